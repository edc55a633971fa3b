"""The tree that is worked on: Linux's source, or for a quick run a part of it or of /usr/share; on
ext4, as an archive and as a git repository of two tags."""

import contextlib
import glob
import os
import random
import subprocess

from harness import call, say

QUICK_FILES = 3000
GIT = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "gc.auto=0",
       "-c", "core.fsync=none"]


def source_folder(work):
    """A folder of sources that is there, or was just unpacked."""
    given = os.environ.get("BOUGH_BENCH_TREE")
    if given and os.path.isdir(given):
        return given
    tarballs = sorted(glob.glob("/usr/src/linux-source-*.tar.xz"))
    if not tarballs:
        raise RuntimeError("there is no linux-source; BOUGH_BENCH_TREE may name another tree")
    say("unpacking the Linux source")
    to = os.path.join(work, "source")
    os.mkdir(to)
    call("tar", "xf", tarballs[-1], "-C", to, "--strip-components=1")
    return to


class Tree:
    def __init__(self, bench):
        self.work = bench.work.path
        self.path = os.path.join(self.work, "ext4", "tree")
        self.tar = os.path.join(self.work, "tree.tar")
        self.git = False
        os.makedirs(self.path)
        if bench.args.quick:
            self._part_of(os.environ.get("BOUGH_BENCH_TREE") or "/usr/share", QUICK_FILES)
        else:
            source = source_folder(self.work)
            subprocess.run(["tar", "cf", self.tar, "--exclude=./.git", "-C", source, "."], check=True)
        call("tar", "xf", self.tar, "-C", self.path)
        self._look()
        self._make_git()
        call("sync", "-f", self.work)
        say(f"the tree: {len(self.files)} files, {self.inodes} inodes, {self.bytes >> 20} MiB")

    def _part_of(self, source, files):
        find = "find . -path ./.git -prune -o -type f -size -200k -print0"
        script = f"{find} | head -z -n {files} | tar cf {self.tar} --null -T -"
        subprocess.run(["sh", "-c", script], cwd=source, check=True)

    def _look(self):
        self.files, self.inodes, self.bytes = [], 0, 0
        for at, dirs, files in os.walk(self.path):
            self.inodes += len(dirs) + len(files)
            for name in files:
                st = os.lstat(os.path.join(at, name))
                if not os.path.islink(os.path.join(at, name)):
                    self.files.append(os.path.relpath(os.path.join(at, name), self.path))
                    self.bytes += st.st_size
        self.rng = random.Random(20240229)

    def some(self, n):
        return self.rng.sample(self.files, min(n, len(self.files)))

    def folder_of(self, files):
        """The folder in the top one whose number of files is the nearest to this."""
        tops = {}
        for name in self.files:
            tops[name.split("/")[0]] = tops.get(name.split("/")[0], 0) + 1
        folders = [t for t in tops if os.path.isdir(os.path.join(self.path, t))]
        return min(folders, key=lambda t: abs(tops[t] - files))

    def _make_git(self):
        """Tag `one` is the tree; `two` has a thirtieth of its files changed, some gone, some new."""
        def git(*args):
            call(*GIT, *args, cwd=self.path)

        git("init", "-q", "-b", "main")
        git("add", "-A", "-f")
        git("commit", "-qm", "one")
        git("tag", "one")
        changed = self.some(max(1, len(self.files) // 30))
        change(self.path, changed)
        for name in changed[::10]:
            os.unlink(os.path.join(self.path, name))
            with contextlib.suppress(IsADirectoryError), \
                    open(os.path.join(self.path, name + ".new"), "w") as f:
                f.write("new\n")
        git("add", "-A", "-f")
        git("commit", "-qm", "two")
        git("tag", "two")
        git("checkout", "-q", "one")
        git("status")
        self.git = True


def change(root, names, text=b"changed by the benchmark\n"):
    for name in names:
        with open(os.path.join(root, name), "ab") as f:
            f.write(text)
