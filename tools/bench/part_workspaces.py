"""Making workspaces: create, fork, restore, diff, export, gc; and what a space one changed byte takes."""

import os
import time

from harness import BOUGH, Usage, call, disk_used, measure, measure_here
from tree import change

FORKERS = ("bough", "overlayfs", "fuse-overlayfs", "btrfs", "xfs")


def run(bench):
    places = bench.places.get("bough", "ext4", *FORKERS[1:], tree=True)
    create(bench)
    fork(bench, places)
    checkout(bench)
    restore_diff_export(bench)
    gc(bench)
    big_file(bench)


def create(bench):
    """From a plain folder: Bough reads it all, the others copy it."""
    bough, ext4 = bench.places.get("bough", "ext4", tree=True)

    def one(place, i):
        place.settle()
        if place is bough:
            used = measure(place, [BOUGH, "create", f"made-{i}", "--dir", bench.tree.path])
            place.drop(f"made-{i}")
            return used
        to = os.path.join(ext4.top, f"made-{i}")
        used = measure(place, ["cp", "-a", bench.tree.path, to])
        place.drop(f"made-{i}")
        return used

    bench.compare("create", "create from a folder (ext4: cp -a)", bench.scale(1, 2), [bough, ext4], one)


def fork(bench, places):
    bough = places[0]
    rounds = bench.scale(5, 21)
    # A copy of 80,000 files for each round would say no more than two do.
    few = {"ext4": 1, "xfs": bench.scale(1, 2)}

    def one(place, i):
        if i >= few.get(place.name, rounds):
            return None
        usage = measure_here(place, lambda: place.fork(f"f{i}"))
        place.drop(f"f{i}")
        return usage

    def rows(id_, name, some):
        found = bench.alternate(rounds, some, one)
        bench.timed(id_, name, {k: [u for u in v if u] for k, v in found.items()}, "ms",
                    "at the API; ext4: cp -a; xfs: cp --reflink; others: the call that mounts")

    rows("fork.clean", "fork, clean", places)

    def dirty(place, i):
        if i >= few.get(place.name, rounds):
            return None
        change(place.base, bench.tree.some(20))
        return one(place, i)

    own = [p for p in places if p.name in ("bough", "btrfs")]  # the others' base is shared with ext4
    found = bench.alternate(rounds, own, dirty)
    for p in own:
        call("git", "checkout", "-q", "-f", "one", cwd=p.base)
    bench.timed("fork.dirty", "fork, after 20 changed files", {k: [u for u in v if u] for k, v in found.items()},
                "ms")
    small(bench, bough, rounds)
    first_ls(bench, [p for p in places if p.name not in few], rounds)
    few = ("bough", "overlayfs", *(() if bench.args.quick else ("fuse-overlayfs", "btrfs")))
    hundred(bench, [p for p in places if p.name in few])


def small(bench, bough, rounds):
    """Whether the size of the tree matters."""
    at = bough.fresh("hundred-files")
    for i in range(100):
        with open(f"{at}/f{i}", "w") as f:
            f.write("x" * 1000)
    times = {"tree": [], "hundred-files": []}
    for i in range(rounds):
        for parent, found in times.items():
            ws = bench.service.client.workspaces(parent)
            began = time.perf_counter()
            child = ws.fork(f"s{i}")[0]
            found.append(time.perf_counter() - began)
            child.delete(purge=True)
    bough.drop("hundred-files")
    ratio = [a / b for a, b in zip(times["tree"], times["hundred-files"])]
    bench.report.row("fork.ratio", "fork, of the tree against 100 files", "x", {"bough": ratio})


def first_ls(bench, places, rounds):
    """From the start of the command line until a listing of the child has answered. A copy of all
    files takes as long as above."""
    def one(place, i):
        if place.name == "bough":
            usage = measure(place, ["sh", "-c", f'ls "$({BOUGH} fork tree l{i} --json | '
                                    'sed -n \'s/.*"path": "\\([^"]*\\)".*/\\1/p\')"'])
        else:
            usage = measure_here(place, lambda: call("ls", place.fork(f"l{i}")))
        place.drop(f"l{i}")
        return usage

    bench.compare("fork.ls", "fork by the command line + ls", rounds, places, one, "ms")


def hundred(bench, places):
    def one(place, i):
        names = [f"h-{k}" for k in range(1, 101)]

        def go():
            if place.name == "bough":
                bench.service.client.workspaces("tree").fork(name="h", count=100)
            else:
                for n in names:
                    place.fork(n)

        usage = measure_here(place, go)
        for n in names:
            place.drop(n)
        return usage

    bench.compare("fork.hundred", "fork, 100 at once", bench.scale(1, 3), places, one, "ms")


def checkout(bench):
    """A workspace of a commit, beside what git makes."""
    bough, ext4 = bench.places.get("bough", "ext4", tree=True)
    repo = os.path.join(ext4.top, "repo.git")
    call("git", "clone", "-q", "--bare", bench.tree.path, repo)
    usage = {"worktree": [], "clone --shared": [], "bough": []}
    call(BOUGH, "repo", "add", repo, "--name", "bench")
    ext4.settle()  # else it waits for the gigabytes of the clone
    first = measure(bough, [BOUGH, "create", "c-first", "--git", "bench", "--ref", "one"])
    bough.drop("c-first")
    for i in range(bench.scale(1, 3)):
        ext4.settle()
        usage["bough"].append(measure(bough, [BOUGH, "create", f"c{i}", "--git", "bench", "--ref", "one"]))
        bough.drop(f"c{i}")
        for name, argv in (("worktree", ["git", "-C", repo, "worktree", "add", "-q", "--detach",
                                         os.path.join(ext4.top, "wt"), "one"]),
                           ("clone --shared", ["git", "clone", "-q", "--shared", "-b", "one", repo,
                                               os.path.join(ext4.top, "wt")])):
            ext4.settle()
            usage[name].append(measure(ext4, argv))
            ext4.drop("wt")
            if name == "worktree":
                call("git", "-C", repo, "worktree", "prune")
    bench.timed("checkout.create", "checkout of a commit seen before", usage, "ms")
    bench.timed("checkout.first", "checkout of the first commit ever", {"bough": [first]}, "ms")


def restore_diff_export(bench):
    bough, ext4 = bench.places.get("bough", "ext4", tree=True)
    client = bench.service.client
    client.workspaces("tree").fork("rde")
    ws = client.workspaces.get("rde")
    snapshot = ws.save("rde-base")
    restored, diffs, gits = [], [], []
    for i in range(bench.scale(3, 9)):
        names = bench.tree.some(10)
        change(ws.path, names)
        diffs.append(measure_here(bough, lambda: list(ws.diff())))
        restored.append(measure_here(bough, lambda: ws.restore(snapshot)))
        change(bench.tree.path, names)
        gits.append(measure(ext4, ["git", "-C", bench.tree.path, "diff", "--stat"]))
        call("git", "-C", bench.tree.path, "checkout", "-q", "-f", "one")
    bench.timed("restore", "restore in place, 10 changed files", {"bough": restored}, "ms")
    bench.timed("diff", "diff of 10 changed files (ext4: git diff)", {"bough": diffs, "ext4": gits}, "ms")

    def export(place, i):
        if place is bough:
            return measure(place, ["sh", "-c", f"{BOUGH} export rde-base --format tar | cat >/dev/null"])
        return measure(place, ["sh", "-c", "tar c --exclude=./.git . | cat >/dev/null"], cwd=bench.tree.path)

    bench.compare("export", "export as tar (ext4: tar c)", bench.scale(1, 3), [bough, ext4], export)
    bough.drop("rde")
    snapshot.delete(force=True)


def gc(bench):
    bough, = bench.places.get("bough", tree=True)
    usage = measure_here(bough, bench.service.client.gc)
    bench.timed("gc", "gc of all that", {"bough": [usage]})


def big_file(bench):
    """One byte of a big file, in a fork."""
    bough, = bench.places.get("bough")
    size = bench.scale(128, 1024, 4096) << 20
    at = bough.fresh("bigfile")
    block = bytearray(os.urandom(1 << 20))
    with open(at + "/file", "wb", buffering=0) as f:
        for i in range(size >> 20):
            block[:8] = i.to_bytes(8, "little")
            f.write(block)
        os.fsync(f.fileno())
    times, space, written = [], [], []
    layers = os.path.join(bench.service.root, "layers")
    parent = bench.service.client.workspaces("bigfile")
    for i in range(bench.scale(3, 9)):
        child = parent.fork(f"bigfile-{i}")[0]
        fd = os.open(child.path + "/file", os.O_RDWR)
        before = disk_used(layers)
        began = time.perf_counter()
        os.pwrite(fd, b"x", bench.tree.rng.randrange(size))
        times.append(Usage(time.perf_counter() - began))
        os.fsync(fd)
        os.close(fd)
        after = disk_used(layers)
        space.append((after[0] - before[0]) / 1024)
        written.append((after[1] - before[1]) / 1024)
        child.delete(purge=True)
    bough.drop("bigfile")
    bench.timed("bigfile.write", f"one byte of {size >> 20} MiB in a fork", {"bough": times}, "ms")
    bench.report.row("bigfile.space", "  new space, after fsync", "KiB", {"bough": space},
                     note=f"without reserves {sorted(written)[len(written) // 2]:.0f}")
