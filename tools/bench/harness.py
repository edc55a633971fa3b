"""What every part of the benchmark stands on: programs that are run and measured, the servers that
are looked at meanwhile, and the end, at which nothing is left behind."""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.environ["BOUGH_BIN"]
BOUGH = os.path.join(BIN, "bough")
TICK = os.sysconf("SC_CLK_TCK")
# What no program waits for.
UNASKED = ("INIT", "INTERRUPT", "FORGET", "BATCH_FORGET", "DESTROY")

sys.path.insert(0, os.path.join(HERE, "..", "clients", "python"))
import bough as client_library  # noqa: E402


def say(text):
    print(f"# {text}", file=sys.stderr, flush=True)


def median(values):
    return statistics.median(values) if values else None


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))]


def call(*argv, **options):
    """Runs what only prepares; its words are shown when it fails."""
    r = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    if r.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)[:200]} ended with {r.returncode}: {r.stdout[-500:]}")
    return r.stdout


class Usage:
    """What one run took: seconds, CPU seconds of the program and of the servers, bytes that they
    wrote to the disk, requests that were sent."""

    def __init__(self, wall=0.0, user=0.0, sys_=0.0, written=0):
        self.wall, self.user, self.sys, self.written = wall, user, sys_, written
        self.server_user = self.server_sys = 0.0
        self.requests = {}

    @property
    def cpu(self):
        return self.user + self.sys + self.server_user + self.server_sys

    def as_dict(self):
        return {"wall_s": round(self.wall, 5), "user_s": round(self.user, 4),
                "sys_s": round(self.sys, 4), "server_user_s": round(self.server_user, 3),
                "server_sys_s": round(self.server_sys, 3), "cpu_s": round(self.cpu, 4),
                "written_bytes": self.written, "requests": self.requests}


def usage_median(many):
    """Of times and bytes the median; of the servers' CPU, which is counted in hundredths of a second,
    the mean; requests are those of the run in the middle."""
    u = Usage()
    for key in ("wall", "user", "sys", "written"):
        setattr(u, key, median([getattr(one, key) for one in many]))
    for key in ("server_user", "server_sys"):
        setattr(u, key, statistics.fmean(getattr(one, key) for one in many))
    u.requests = sorted(many, key=lambda one: sum(one.requests.values()))[len(many) // 2].requests
    return u


def process_times(pid):
    """User and system seconds of a process and what it wrote, or zeros when it has gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            field = f.read().rpartition(")")[2].split()
        with open(f"/proc/{pid}/io") as f:
            io = dict(line.split(": ") for line in f)
        return (int(field[11]) / TICK, int(field[12]) / TICK,
                int(io["write_bytes"]) - int(io["cancelled_write_bytes"]))
    except OSError:
        return 0.0, 0.0, 0


def process_memory(pid):
    """KiB (proportional set) and threads."""
    with open(f"/proc/{pid}/smaps_rollup") as f:
        kib = sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    return kib, len(os.listdir(f"/proc/{pid}/task"))


def measure(place, argv, cwd=None, ok=(0,), env=None, output=None):
    """Runs a program and gives its Usage, with what the place's servers did meanwhile."""
    out = output or subprocess.DEVNULL
    before = place.look()
    began = time.perf_counter()
    p = subprocess.Popen(argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out,
                         stderr=subprocess.DEVNULL, env=dict(os.environ, **(env or {})))
    try:
        _, status, r = os.wait4(p.pid, 0)
    except BaseException:
        p.kill()
        raise
    wall = time.perf_counter() - began
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode not in ok:
        raise RuntimeError(f"{place.name}: {' '.join(argv)[:200]} ended with {p.returncode}")
    return place.since(before, Usage(wall, r.ru_utime, r.ru_stime, r.ru_oublock * 512))


def measure_here(place, what):
    """The same of a function of this process."""
    before, own = place.look(), process_times(os.getpid())
    began = time.perf_counter()
    what()
    wall = time.perf_counter() - began
    now = process_times(os.getpid())
    return place.since(before, Usage(wall, now[0] - own[0], now[1] - own[1], now[2] - own[2]))


def evict(*folders):
    """Takes clean pages of all files below out of the page cache."""
    call("sync")
    for folder in folders:
        for at, dirs, files in os.walk(folder):
            dirs[:] = [d for d in dirs if not os.path.ismount(os.path.join(at, d))]
            for name in files:
                with contextlib.suppress(OSError):
                    fd = os.open(os.path.join(at, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                    try:
                        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                    finally:
                        os.close(fd)


def disk_used(path):
    """Bytes of all files below it on its own filesystem, without the mounts; and the same
    without what is only reserved behind the ends of files."""
    total, written, seen = 0, 0, set()
    for at, dirs, files in os.walk(path):
        dirs[:] = [d for d in dirs if not os.path.ismount(os.path.join(at, d))]
        for name in files:
            with contextlib.suppress(OSError):
                st = os.lstat(os.path.join(at, name))
                if st.st_ino not in seen:
                    seen.add(st.st_ino)
                    total += st.st_blocks * 512
                    written += min(st.st_blocks * 512, (st.st_size + 4095) // 4096 * 4096)
    return total, written


class Service:
    """boughd and bough-fs of the benchmark's own root."""

    def __init__(self, root):
        self.root = root
        self.client = client_library.Client(os.path.join(root, "run", "boughd.sock"))

    def up(self):
        call(BOUGH, "--root", self.root, "up")
        return self

    def down(self):
        call(BOUGH, "--root", self.root, "down")

    def pids(self):
        """boughd, bough-fs"""
        health = self.client.health()
        return [health["pid"], health["fs"]["pid"]]

    def requests(self):
        ops = self.client.stats()["fs"]["opcodes"]
        return {k: v for k, v in ops.items() if isinstance(v, int) and k not in UNASKED}

    def memory(self):
        """KiB and threads of bough-fs."""
        return process_memory(self.pids()[1])


def requests_between(before, after):
    diff = {k: v - before.get(k, 0) for k, v in after.items()}
    return {k: v for k, v in sorted(diff.items(), key=lambda kv: -kv[1]) if v}


def servers_of(root, names=("boughd", "bough-fs", "bough-hold")):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/comm") as f:
                if f.read().strip() not in names:
                    continue
            with open(f"/proc/{pid}/cmdline") as f:
                if root in f.read():
                    found.append(int(pid))
    return found


def mounts_below(work):
    with open("/proc/self/mounts") as f:
        points = [line.split()[1].replace("\\040", " ") for line in f]
    return [p for p in points if p.startswith(work + "/")]


class Workdir:
    """The folder for all that is made, locked while its benchmark lives. What a killed one left is
    found by its lock, and cleared away by the next."""

    PREFIX = "bough-bench."

    def __init__(self, parent):
        os.makedirs(parent, exist_ok=True)
        for name in os.listdir(parent):
            if name.startswith(self.PREFIX):
                self._clear_stale(os.path.join(parent, name))
        self.path = os.path.join(parent, f"{self.PREFIX}{os.getpid()}")
        os.mkdir(self.path, 0o755)
        self._lock = open(os.path.join(self.path, "lock"), "w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.root = os.path.join(self.path, "root")

    @classmethod
    def _clear_stale(cls, path):
        with contextlib.suppress(OSError):
            with open(os.path.join(path, "lock")) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                say(f"clearing away {path}, which an ended benchmark left")
                cls._clear(path)

    @staticmethod
    def _clear(path):
        for name in os.listdir(path):
            root = os.path.join(path, name)
            if not os.path.isdir(os.path.join(root, "run")):
                continue
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run([BOUGH, "--root", root, "down"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, timeout=60)
            for pid in servers_of(root):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        for at in reversed(mounts_below(path)):
            subprocess.run(["umount", "-l", at], stderr=subprocess.DEVNULL)
        if mounts_below(path):
            say(f"{path} still has mounts, and is left there")
            return
        shutil.rmtree(path, ignore_errors=True)

    def clear(self):
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(sig, signal.SIG_IGN)
        if os.environ.get("BOUGH_BENCH_KEEP"):
            say(f"kept: {self.path}")
        else:
            self._clear(self.path)


def machine():
    def first(path, key):
        with contextlib.suppress(OSError), open(path) as f:
            for line in f:
                if line.startswith(key):
                    return line.split(":", 1)[1].strip()
        return ""
    return dict(kernel=os.uname().release, cpus=os.cpu_count(),
                cpu=first("/proc/cpuinfo", "model name"), memory=first("/proc/meminfo", "MemTotal"),
                version=call(BOUGH, "--version").strip(),
                date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))


def load_json(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)
