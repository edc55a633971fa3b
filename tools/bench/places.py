"""Where the same work is done: Bough and its peers. Each place gives folders that begin as a fork of
the tree, or empty, and tells what its servers did between two looks at it."""

import contextlib
import os
import subprocess
import time

from harness import call, process_times, requests_between, say


class Place:
    """`fork(name)`: a folder with all of the tree, as cheap as the place can; `fresh(name)`: an empty
    one. `drop(name)` takes either away. They are in `top`; `base` is where the tree itself lies."""

    name = ""
    forks = True  # whether a fork costs less than a copy

    def __init__(self, bench):
        self.bench, self.base = bench, None

    def look(self):
        return None

    def since(self, before, usage):
        return usage

    def prepare(self):
        """Puts the tree there."""

    def fresh(self, name):
        to = os.path.join(self.top, name)
        os.mkdir(to)
        return to

    def drop(self, name):
        call("rm", "-rf", "--one-file-system", os.path.join(self.top, name))

    def settle(self):
        """What was written before is on the disk, so that nobody else pays for it."""
        call("sync", "-f", self.bench.work.path)


class Ext4(Place):
    """A plain folder."""

    name, forks = "ext4", False

    def __init__(self, bench):
        super().__init__(bench)
        self.top = os.path.join(bench.work.path, "ext4")
        os.makedirs(self.top, exist_ok=True)

    def prepare(self):
        self.base = self.bench.tree.path

    def fork(self, name):
        to = os.path.join(self.top, name)
        call("cp", "-a", "--reflink=never", self.base, to)
        return to


class Overlay(Place):
    """The kernel's overlayfs, with the tree on ext4 below."""

    name = "overlayfs"

    def __init__(self, bench):
        super().__init__(bench)
        self.top = os.path.join(bench.work.path, self.name)
        self.empty = os.path.join(self.top, "empty")
        os.makedirs(self.empty, exist_ok=True)

    def prepare(self):
        self.base = self.bench.tree.path

    def _mount(self, lower, to):
        for part in ("upper", "work", "at"):
            os.makedirs(os.path.join(to, part))
        options = f"lowerdir={lower},upperdir={to}/upper,workdir={to}/work"
        self._start(options, os.path.join(to, "at"))
        return os.path.join(to, "at")

    def _start(self, options, at):
        call("mount", "-t", "overlay", "-o", options, "overlay", at)

    def fork(self, name):
        return self._mount(self.base, os.path.join(self.top, name))

    def fresh(self, name):
        return self._mount(self.empty, os.path.join(self.top, name))

    def drop(self, name):
        to = os.path.join(self.top, name)
        call("umount", os.path.join(to, "at"))
        call("rm", "-rf", "--one-file-system", to)


class FuseOverlay(Overlay):
    """fuse-overlayfs, one process a mount."""

    name = "fuse-overlayfs"

    def __init__(self, bench):
        super().__init__(bench)
        self.pids = {}

    def _start(self, options, at):
        p = subprocess.Popen(["fuse-overlayfs", "-f", "-o", options, at],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not os.path.ismount(at):
            if p.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("fuse-overlayfs doesn't start")
            time.sleep(0.001)
        self.pids[at] = p

    def drop(self, name):
        at = os.path.join(self.top, name, "at")
        super().drop(name)
        with contextlib.suppress(KeyError):
            self.pids.pop(at).wait()

    def look(self):
        return {p.pid: process_times(p.pid) for p in self.pids.values()}

    def since(self, before, usage):
        for p in self.pids.values():
            now, was = process_times(p.pid), before.get(p.pid, (0, 0, 0))
            usage.server_user += now[0] - was[0]
            usage.server_sys += now[1] - was[1]
            usage.written += now[2] - was[2]
        return usage


class Loop(Place):
    """A filesystem in a file on ext4."""

    mkfs, options = (), "loop"

    def __init__(self, bench):
        super().__init__(bench)
        self.image = os.path.join(bench.work.path, f"{self.name}.img")
        self.top = os.path.join(bench.work.path, self.name)
        os.makedirs(self.top)
        with open(self.image, "wb") as f:
            f.truncate(bench.loop_bytes)
        call(*self.mkfs, self.image)
        call("mount", "-o", self.options, self.image, self.top)
        self.base = os.path.join(self.top, "tree")

    def prepare(self):
        self._make_base()
        call("tar", "xf", self.bench.tree.tar, "-C", self.base)
        if self.bench.tree.git:
            call("cp", "-a", os.path.join(self.bench.tree.path, ".git"), self.base)
        self.settle()

    def settle(self):
        call("sync", "-f", self.top)
        super().settle()

    def _make_base(self):
        os.mkdir(self.base)


class Btrfs(Loop):
    """Snapshots of a subvolume."""

    name, mkfs = "btrfs", ("mkfs.btrfs", "-q", "-m", "single")

    def _make_base(self):
        call("btrfs", "subvolume", "create", self.base)

    def fork(self, name):
        to = os.path.join(self.top, name)
        call("btrfs", "subvolume", "snapshot", self.base, to)
        return to

    def drop(self, name):
        to = os.path.join(self.top, name)
        if os.stat(to).st_ino == 256:
            call("btrfs", "subvolume", "delete", to)
        else:
            super().drop(name)


class Xfs(Loop):
    """A copy of the folders, with the files' blocks shared."""

    name, mkfs = "xfs", ("mkfs.xfs", "-q", "-m", "reflink=1")

    def fork(self, name):
        to = os.path.join(self.top, name)
        call("cp", "-a", "--reflink=always", self.base, to)
        return to


class Bough(Place):
    """Workspaces. The root lies on the same ext4."""

    name = "bough"

    def __init__(self, bench, service=None):
        super().__init__(bench)
        self.service = service or bench.service
        self.client = self.service.client
        self.tree = None
        self.create = {}  # fields for each workspace

    def prepare(self):
        self.base = call(os.path.join(os.environ["BOUGH_BIN"], "bough"), "create", "tree", "--dir",
                         self.bench.tree.path).strip()
        self.tree = self.client.workspaces("tree")

    def fork(self, name):
        return self.client.workspaces("tree").fork(name)[0].path

    def fresh(self, name):
        return self.client.workspaces.create(name, **self.create).path

    def drop(self, name):
        self.client.workspaces(name).delete(purge=True, force=True)

    def look(self):
        pids = self.service.pids()
        return pids, [process_times(p) for p in pids], self.service.requests()

    def since(self, before, usage):
        pids, times, requests = before
        for pid, was in zip(pids, times):
            now = process_times(pid)
            usage.server_user += now[0] - was[0]
            usage.server_sys += now[1] - was[1]
            usage.written += now[2] - was[2]
        usage.requests = requests_between(requests, self.service.requests())
        return usage


KINDS = {k.name: k for k in (Bough, Ext4, Overlay, FuseOverlay, Btrfs, Xfs)}


class Places:
    """The places of a run, each made when a part first asks for it. One that can't be had here is
    left out, and the report says why."""

    def __init__(self, bench, wanted):
        self.bench, self.wanted = bench, wanted
        self.made, self.with_tree, self.absent = {}, set(), {}

    def get(self, *names, tree=False):
        found = []
        for name in names:
            if self.wanted and name not in self.wanted and name not in ("bough", "ext4"):
                continue
            if name in self.absent:
                continue
            try:
                if name not in self.made:
                    self.made[name] = KINDS[name](self.bench)
                if tree and name not in self.with_tree:
                    began = time.perf_counter()
                    self.made[name].prepare()
                    self.with_tree.add(name)
                    say(f"  the tree is on {name} after {time.perf_counter() - began:.1f} s")
                found.append(self.made[name])
            except (OSError, RuntimeError) as e:
                if name in ("bough", "ext4"):
                    raise
                self.absent[name] = str(e)
                say(f"  no {name}: {e}")
        return found
