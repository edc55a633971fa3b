"""Writing a tree: untar, rm -rf, git checkout between two tags, git add and commit."""

import os

from harness import measure
from tree import GIT, change

# What an untar's requests depend on: how the workspace was made, and how tar is called.
VARIANTS = [
    ("--no-xattrs", False, []),
    ("--no-xattrs, tar -b 512", False, ["-b", "512"]),
    ("tar --no-same-owner", True, ["--no-same-owner"]),
    ("--no-xattrs, tar --no-same-owner -b 512", False, ["--no-same-owner", "-b", "512"]),
]


def run(bench):
    places = bench.peers(tree=True)
    untar(bench, places)
    if not bench.args.quick:
        variants(bench)
    checkouts(bench, places)


def untar(bench, places):
    rounds = bench.scale(1, 2, 3)
    gone = {p.name: [] for p in places}

    def one(place, i):
        at = place.fresh("untar")
        to = os.path.join(at, "tree")
        os.mkdir(to)
        place.settle()
        used = measure(place, ["tar", "xf", bench.tree.tar, "-C", to])
        place.settle()
        gone[place.name].append(measure(place, ["rm", "-rf", to]))
        place.drop("untar")
        return used

    def note(usage):
        n = sum(usage["bough"][0].requests.values()) if usage.get("bough") else 0
        return f"{n / bench.tree.inodes:.2f} requests a file"

    used = bench.alternate(rounds, places, one)
    bench.timed("untar", "untar", used, note=note(used))
    bench.timed("rm", "rm -rf of it", gone, note=note(gone))


def variants(bench):
    bough, = bench.places.get("bough")
    for name, xattrs, options in VARIANTS:
        at = bench.service.client.workspaces.create("variant", xattrs=xattrs).path
        used = measure(bough, ["tar", "xf", bench.tree.tar, "-C", at, *options])
        bough.drop("variant")
        bench.timed(f"untar {name}", f"untar, {name}", {"bough": [used]},
                    note=f"{sum(used.requests.values()) / bench.tree.inodes:.2f} requests a file")


def checkouts(bench, places):
    """In forks; on ext4 in the tree itself, which it leaves as it was."""
    rounds = bench.scale(1, 3)
    there, adds, commits = ({p.name: [] for p in places} for _ in range(3))
    for i in range(rounds):
        for p in places:
            if p.name == "xfs" and i > 0:
                continue
            at = p.base if p.name == "ext4" else p.fork(f"co{i}")
            measure(p, [*GIT, "checkout", "-q", "-f", "one"], cwd=at)
            p.settle()
            for tag in ("two", "one"):
                there[p.name].append(measure(p, [*GIT, "checkout", "-q", tag], cwd=at))
            change(at, bench.tree.some(100))
            p.settle()
            adds[p.name].append(measure(p, [*GIT, "add", "-A"], cwd=at))
            commits[p.name].append(measure(p, [*GIT, "commit", "-qm", "x"], cwd=at))
            if p.name == "ext4":
                measure(p, [*GIT, "checkout", "-q", "-f", "one"], cwd=at)
            else:
                p.drop(f"co{i}")
    bench.timed("checkout", "git checkout of the other tag", there)
    bench.timed("add", "git add of 100 changed files", adds)
    bench.timed("commit", "git commit", commits)
