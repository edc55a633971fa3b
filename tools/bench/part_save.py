"""Saving: all of the tree, and ten changed files, beside programs for backup."""

import os
import subprocess
import time

from harness import BOUGH, Service, disk_used, measure, percentile, say
from places import Bough
from tree import change


class Restic:
    name = "restic"
    env = {"RESTIC_PASSWORD": "bench"}

    def __init__(self, repo, tree):
        self.repo, self.tree = repo, tree

    def init(self):
        return ["restic", "init", "-q", "-r", self.repo]

    def save(self, n):
        return ["restic", "backup", "-q", "-r", self.repo, "--exclude", self.tree + "/.git", self.tree]

    def restore(self, to):
        return ["restic", "restore", "-q", "-r", self.repo, "latest", "--target", to]


class Borg(Restic):
    name = "borg"
    env = {"BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes", "BORG_RELOCATED_REPO_ACCESS_IS_OK": "yes"}

    def init(self):
        return ["borg", "init", "-e", "none", self.repo]

    def save(self, n):
        return ["borg", "create", "--exclude", self.tree + "/.git", f"{self.repo}::n{n}", self.tree]

    def restore(self, to):
        return ["borg", "extract", f"{self.repo}::n0"]


class Casync(Restic):
    name = "casync"
    env = {}

    def init(self):
        return ["mkdir", self.repo]

    def save(self, n):
        return ["casync", "make", "--store", self.repo + "/store", f"{self.repo}/n{n}.caidx", self.tree]

    def restore(self, to):
        return ["casync", "extract", "--store", self.repo + "/store", f"{self.repo}/n0.caidx", to]


class Ostree(Restic):
    name = "ostree"
    env = {}

    def init(self):
        return ["ostree", "init", "--mode=archive", f"--repo={self.repo}"]

    def save(self, n):
        return ["ostree", "commit", f"--repo={self.repo}", "-b", "bench", "-s", "x",
                f"--tree=dir={self.tree}"]

    def restore(self, to):
        return ["ostree", "checkout", "-U", "--union", f"--repo={self.repo}", "bench", to]


def run(bench):
    ext4, = bench.places.get("ext4")
    tree = bench.tree
    # In a store that has nothing of the tree yet.
    service = Service(os.path.join(bench.work.path, "root-save")).up()
    try:
        savings(bench, ext4, Bough(bench, service), tree)
    finally:
        service.down()
        ext4.drop("../root-save")


def savings(bench, ext4, bough, tree):
    root, save_it = bough.service.root, [BOUGH, "--root", bough.service.root, "save", "to-save"]
    # A copy without .git, which none of them should have to save.
    copy = ext4.fresh("to-save")
    subprocess.run(["tar", "xf", tree.tar, "-C", copy], check=True)
    peers = [kind(os.path.join(ext4.top, kind.name), copy)
             for kind in ((Restic, Borg) if bench.args.quick else (Restic, Borg, Casync, Ostree))
             if not bench.args.places or kind.name in bench.args.places]
    home = {"HOME": ext4.fresh("home")}
    at = bough.fresh("to-save")
    subprocess.run(["tar", "xf", tree.tar, "-C", at], check=True)
    have = []
    for p in peers:
        try:
            measure(ext4, p.init(), env={**home, **p.env})
            have.append(p)
        except (OSError, RuntimeError) as e:
            say(f"  no {p.name}: {e}")

    def save(n):
        """The first and one more by all; then only what the goal names."""
        ext4.settle()
        found = {"bough": measure(bough, save_it)}
        for p in have if n < 2 else have[:1]:
            ext4.settle()
            found[p.name] = measure(ext4, p.save(n), cwd=copy, env={**home, **p.env})
        return found

    full = save(0)
    bench.timed("save.full", "save of the whole tree", {k: [u] for k, u in full.items()}, "ms")
    sizes = {p.name: disk_used(p.repo)[0] / 2**20 for p in have}
    sizes["bough"] = disk_used(os.path.join(root, "store"))[0] / 2**20
    bench.report.row("save.store", "  the store then", "MiB", sizes)
    small = {}
    for n in range(1, 1 + bench.scale(3, 7)):
        names = tree.some(10)
        for where in (at, copy):
            change(where, names)
        for k, u in save(n).items():
            small.setdefault(k, []).append(u)
    for _ in range(bench.scale(4, 14)):  # these are short
        change(at, tree.some(10))
        small["bough"].append(measure(bough, save_it))
    bench.timed("save.small", "save of 10 changed files", small, "ms")
    restores(bench, bough, ext4, have, home)
    beside(bench, bough, at, save_it)
    bough.drop("to-save")
    for name in ["to-save", "home", *[p.name for p in have]]:
        ext4.drop(name)


def restores(bench, bough, ext4, have, home):
    """All of the tree into a folder that isn't there; Bough makes a workspace of the snapshot."""
    head = bough.client.workspaces("to-save").save()
    found = {"bough": [measure(bough, [BOUGH, "--root", bough.service.root, "create", "restored", "--from", head.id])]}
    bough.drop("restored")
    for p in have:
        to = ext4.fresh("restored")
        ext4.settle()
        found[p.name] = [measure(ext4, p.restore(to), cwd=to, env={**home, **p.env})]
        ext4.drop("restored")
    bench.timed("restore.full", "the whole tree out of it, ready to use", found, "ms")


def beside(bench, bough, at, save_it):
    """Saves while an untar keeps the disk and the server busy."""
    other = bough.fresh("other")
    times, untar, n = [], None, 0
    try:
        for _ in range(bench.scale(3, 11)):
            if untar is None or untar.poll() is not None:
                n += 1
                os.mkdir(f"{other}/{n}")
                untar = subprocess.Popen(["tar", "xf", bench.tree.tar, "-C", f"{other}/{n}"])
                time.sleep(0.3)
            change(at, bench.tree.some(10))
            times.append(measure(bough, save_it))
            time.sleep(0.1)
    finally:
        if untar:
            untar.kill()
            untar.wait()
    bough.drop("other")
    bench.timed("save.beside", "save of 10 changed files beside an untar", {"bough": times}, "ms",
                f"max {percentile([u.wall * 1000 for u in times], 100):.0f}")
