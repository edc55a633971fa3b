"""The benchmark: see run.sh. Only Python's own library.

Every figure is a median of runs that alternate between Bough and ext4 (where ext4 can do the
same thing at all), on the same disk, in the same minutes. Requests are counted by the server."""

import argparse
import array
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BIN = os.environ["BOUGH_BIN"]
BOUGH = os.path.join(BIN, "bough")


def say(text):
    print(f"# {text}", file=sys.stderr, flush=True)


def bough(*args):
    return subprocess.run([BOUGH, *args], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def bough_json(*args):
    return json.loads(bough(*args, "--json"))


def spawn(*argv, cwd=None):
    """Runs a program and gives its wall time in seconds; its output goes nowhere."""
    null = os.open("/dev/null", os.O_RDWR)
    try:
        before = time.perf_counter()
        if cwd is None:
            pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, null, 1)])
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        else:
            status = subprocess.run(argv, cwd=cwd, stdin=null, stdout=null).returncode
        took = time.perf_counter() - before
    finally:
        os.close(null)
    if status not in (0,):
        raise RuntimeError(f"{' '.join(argv)} ended with {status}")
    return took


def median(values):
    return statistics.median(values) if values else float("nan")


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))]


def requests():
    """Requests that the server has answered since its start, by kind."""
    return {k: v for k, v in bough_json("stats")["fs"]["opcodes"].items() if isinstance(v, int)}


def requests_between(before, after, without=("INTERRUPT", "FORGET", "BATCH_FORGET")):
    """Those that a program waits for."""
    diff = {k: after[k] - before.get(k, 0) for k in after}
    return {k: v for k, v in sorted(diff.items(), key=lambda kv: -kv[1]) if v and k not in without}


def server_pids(name="bough-fs"):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as f:
                if f.read().strip() != name:
                    continue
            with open(f"/proc/{pid}/cmdline") as f:
                if os.environ["BOUGH_ROOT"] in f.read().split("\0"):
                    found.append(int(pid))
        except OSError:
            pass
    return found


def server_memory():
    """KiB of all bough-fs processes (proportional set) and their threads."""
    kib = threads = 0
    for pid in server_pids():
        with open(f"/proc/{pid}/smaps_rollup") as f:
            kib += sum(int(line.split()[1]) for line in f if line.startswith("Pss:"))
        threads += len(os.listdir(f"/proc/{pid}/task"))
    return kib, threads


def disk_used(path):
    """Bytes of all files below it on its own filesystem, without the mounts; and the same
    without what is only reserved behind the ends of files."""
    total, written, seen = 0, 0, set()
    mounts = os.path.join(path, "mnt")
    for at, dirs, files in os.walk(path):
        dirs[:] = [d for d in dirs if os.path.join(at, d) != mounts]
        for name in files:
            with contextlib.suppress(OSError):
                st = os.lstat(os.path.join(at, name))
                if st.st_ino not in seen:
                    seen.add(st.st_ino)
                    total += st.st_blocks * 512
                    written += min(st.st_blocks * 512, (st.st_size + 4095) // 4096 * 4096)
    return total, written


class Table:
    def __init__(self):
        self.rows = []

    def add(self, name, value, unit, goal=None, ext4=None, note="", **more):
        """A figure; ok is value <= goal. `ext4` is the same thing measured there."""
        ok = None if goal is None else bool(value <= goal)
        self.rows.append(dict(name=name, value=value, unit=unit, goal=goal, ext4=ext4, ok=ok,
                              note=note, **more))
        shown = f"{value:.3g}" if isinstance(value, float) else value
        say(f"  {name}: {shown} {unit}" + ("" if ok is None else " ok" if ok else f" MISSED ({goal})")
            + (f" [{note}]" if note else ""))

    @staticmethod
    def text(v):
        if v is None:
            return "-"
        if isinstance(v, float):
            return f"{v:.3f}" if abs(v) < 10 else f"{v:.1f}"
        return str(v)

    def print(self):
        head = ["what", "goal", "measured", "unit", "ext4", "", "note"]
        rows = [[r["name"], "-" if r["goal"] is None else f"<= {self.text(r['goal'])}",
                 self.text(r["value"]), r["unit"], self.text(r["ext4"]),
                 {None: "", True: "ok", False: "MISSED"}[r["ok"]], r["note"]] for r in self.rows]
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
        for row in [head, *rows]:
            print("  ".join(c.rjust(w) if i in (1, 2, 4) else c.ljust(w)
                            for i, (c, w) in enumerate(zip(row, widths))).rstrip())


class Bench:
    def __init__(self, args, work):
        self.args, self.work, self.table = args, work, Table()
        self.quick = args.quick
        self.ext4 = os.path.join(work, "ext4")
        os.mkdir(self.ext4)
        self.rng = random.Random(20240229)
        self.load = {}  # of the machine when a part began: who else was at work

    # ---- what is measured on

    def prepare(self):
        tree = os.environ.get("BOUGH_BENCH_TREE")
        if self.quick:
            tree = os.path.join(self.work, "tree")
            say("copying a part of /usr/share")
            os.mkdir(tree)
            subprocess.run("cd /usr/share && find . -type f -size -200k -print0 | head -z -n 8000 | "
                           "tar cf - --null -T - | tar xf - -C " + tree, shell=True, check=True)
        elif not tree or not os.path.isdir(tree):
            tree = os.path.join(self.work, "tree")
            say("unpacking the Linux source")
            os.mkdir(tree)
            subprocess.run(["tar", "xf", os.environ["BOUGH_BENCH_TARBALL"], "-C", tree,
                            "--strip-components=1"], check=True)
        while len(os.listdir(tree)) == 1:  # as the archive has it
            tree = os.path.join(tree, os.listdir(tree)[0])
        self.tar = os.path.join(self.work, "tree.tar")
        say(f"tree: {tree}")
        subprocess.run(["tar", "cf", self.tar, "--exclude=./.git", "-C", tree, "."], check=True)
        self.repo = os.path.join(self.ext4, "repo")
        os.mkdir(self.repo)
        subprocess.run(["tar", "xf", self.tar, "-C", self.repo], check=True)
        self.files = [os.path.relpath(os.path.join(at, f), self.repo)
                      for at, _, files in os.walk(self.repo) for f in files]
        self.files = [f for f in self.files if os.path.isfile(os.path.join(self.repo, f))
                      and not os.path.islink(os.path.join(self.repo, f))]
        self.inodes = sum(len(d) + len(f) for _, d, f in os.walk(self.repo))
        say(f"{len(self.files)} files, {self.inodes} inodes; git add and commit on ext4")
        env = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null")
        for cmd in (["init", "-q"], ["add", "-A", "-f"], ["-c", "user.name=x", "-c", "user.email=x@y",
                    "-c", "gc.auto=0", "commit", "-qm", "x"]):
            subprocess.run(["git", "-C", self.repo, *cmd], check=True, env=env)
        subprocess.run(["sync"])
        say("importing it")
        before = time.perf_counter()
        self.big = bough("create", "big", "--dir", self.repo)
        took = time.perf_counter() - before
        self.table.add("create from the tree's folder", took, "s", note=f"{self.inodes} inodes")
        small = os.path.join(self.work, "small")
        os.mkdir(small)
        for i in range(100):
            with open(f"{small}/f{i}", "w") as f:
                f.write("x" * 1000)
        self.small = bough("create", "small", "--dir", small)

    def change(self, root, names, text=b"changed by the benchmark\n"):
        for name in names:
            with open(os.path.join(root, name), "ab") as f:
                f.write(text)

    # ---- fork

    def one_fork(self, parent, name):
        """From the start of `bough fork` until `ls` in the child has answered."""
        t0 = time.perf_counter()
        answer = bough_json("fork", parent, name)
        spawn("/bin/ls", answer["items"][0]["path"])
        took = time.perf_counter() - t0
        self.gate.append(answer["pause_ns"] / 1e6)
        return took

    def fork_rounds(self, rounds, tag):
        times = {"big": [], "small": []}
        for i in range(rounds):
            for parent in times:
                times[parent].append(self.one_fork(parent, f"{tag}-{parent}-{i}") * 1000)
        bough("rm", *[f"{tag}-{p}-{i}" for p in times for i in range(rounds)])
        return times

    gate = []

    def fork(self):
        rounds = 10 if self.quick else 40
        self.change(self.big, self.rng.sample(self.files, min(2000, len(self.files))))
        self.fork_rounds(3, "warm")
        times = self.fork_rounds(rounds, "idle")
        big, small = median(times["big"]), median(times["small"])
        self.table.add("fork of the tree + ls, idle", big, "ms", 12,
                       note=f"p99 {percentile(times['big'], 99):.1f}")
        self.table.add("  against a 100-file workspace", big / small, "x", 1.5, note=f"{small:.2f} ms")
        with Stream(os.path.join(self.big, "stream")) as stream:
            time.sleep(2)
            quiet = time.perf_counter()
            windows = []
            times = []
            self.gate = []
            for i in range(rounds * 3):
                t0 = time.perf_counter()
                times.append(self.one_fork("big", f"busy-{i}") * 1000)
                windows.append((t0, time.perf_counter()))
                time.sleep(0.02)
        rate = stream.rate()
        base = percentile([w for t, w in stream.writes if t < quiet], 99) * 1000
        pauses = [stream.longest(a, b) * 1000 for a, b in windows]
        bough("rm", *[f"busy-{i}" for i in range(rounds * 3)])
        self.table.add("fork of the tree + ls, parent streams writes", median(times), "ms", 25,
                       note=f"p99 {percentile(times, 99):.1f}; writer {rate / 1e6:.0f} MB/s")
        self.table.add("  the writer's longest pause, p99 of forks", percentile(pauses, 99), "ms", 5,
                       note=f"median {median(pauses):.2f}; p99 of any write before the forks {base:.2f}")
        self.table.add("  how long the server held writers, p99", percentile(self.gate, 99), "ms", 5,
                       note=f"median {median(self.gate):.3f}")
        os.unlink(os.path.join(self.big, "stream"))

    # ---- save

    def save(self):
        rounds = 5 if self.quick else 15
        bough("save", "big")
        quiet = []
        for i in range(rounds):
            self.change(self.big, self.rng.sample(self.files, 10))
            quiet.append(spawn(BOUGH, "save", "big") * 1000)
        self.table.add("save after 10 changed files, idle", median(quiet), "ms", 40,
                       note=f"max {max(quiet):.1f}")
        other = bough("create", "other")
        busy = []
        untar = None
        for i in range(rounds):
            if untar is None or untar.poll() is not None:
                target = tempfile.mkdtemp(dir=other)
                untar = subprocess.Popen(["tar", "xf", self.tar, "-C", target])
                time.sleep(0.5)
            self.change(self.big, self.rng.sample(self.files, 10))
            busy.append(spawn(BOUGH, "save", "big") * 1000)
            time.sleep(0.1)
        untar.kill()
        untar.wait()
        bough("rm", "other")
        self.table.add("save after 10 changed files, beside an untar", median(busy), "ms", 150,
                       note=f"max {max(busy):.1f}")

    # ---- passes over the tree

    PASSES = {
        "find": (1.0, ["find", ".", "-type", "f"]),
        "stat": (1.0, ["sh", "-c", "find . -type f -printf '%s %T@ %m\\n'"]),
        "git status": (1.1, ["git", "status", "--porcelain"]),
        "grep -r": (1.2, ["grep", "-r", "--exclude-dir=.git", "-c", "no_such_word_in_there", "."]),
    }

    def run_pass(self, argv, where):
        before = time.perf_counter()
        r = subprocess.run(argv, cwd=where, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           env=dict(os.environ, GIT_OPTIONAL_LOCKS="0"))
        if r.returncode > 1:  # grep that finds nothing ends with 1
            raise RuntimeError(f"{argv} ended with {r.returncode}")
        return (time.perf_counter() - before) * 1000

    def passes(self):
        rounds = 3 if self.quick else 5
        for name, (goal, argv) in self.PASSES.items():
            fork = "pass-" + name.split()[0]
            where = bough_json("fork", "big", fork)["items"][0]["path"]
            if name == "git status":  # both indexes are as fresh as they get
                for at in (where, self.repo):
                    subprocess.run(["git", "-C", at, "status"], stdout=subprocess.DEVNULL)
            cold = self.run_pass(argv, where)
            counts = []
            ours, theirs = [], []
            self.run_pass(argv, self.repo)
            before = requests()
            for i in range(rounds):
                ours.append(self.run_pass(argv, where))
                after = requests()
                counts.append(requests_between(before, after))
                theirs.append(self.run_pass(argv, self.repo))
                before = requests()
            a, b = median(ours), median(theirs)
            self.table.add(f"{name}, warm, against ext4", a / b, "x", goal, 1.0,
                           note=f"{a:.0f} against {b:.0f} ms; first in a fork {cold:.0f} ms")
            # statfs and lseek for holes are questions that the kernel never answers itself.
            cached = [{k: v for k, v in c.items() if k not in ("STATFS", "LSEEK")} for c in counts]
            if name == "grep -r":
                others = sum(v for k, v in cached[0].items() if k != "GETATTR")
                self.table.add("  requests on the second pass, but GETATTR", others, "requests", 0,
                               note=self.counts(counts[0]))
                self.table.add("  GETATTR on the second pass, for each inode",
                               cached[0].get("GETATTR", 0) / self.inodes, "requests", 1.0)
                self.table.add("  requests on the third pass", sum(cached[1].values()), "requests", 0,
                               note=self.counts(counts[1]))
            elif name != "stat":
                self.table.add("  requests on the second pass", sum(cached[0].values()), "requests", 0,
                               note=self.counts(counts[0]))
                self.table.add("  requests on the third pass", sum(cached[1].values()), "requests", 0,
                               note=self.counts(counts[1]))
            bough("rm", fork)

    @staticmethod
    def counts(c):
        return " ".join(f"{k} {v}" for k, v in list(c.items())[:6])

    # ---- untar and rm -rf

    def untar(self):
        rounds = 1 if self.quick else 3
        times = {"untar": ([], []), "rm": ([], [])}
        per_file = {"untar": [], "rm": []}
        counts = {}
        at = bough("create", "untar")
        for i in range(rounds):
            for ours, root in ((0, at), (1, self.ext4)):
                target = os.path.join(root, "untar")
                os.mkdir(target)
                for what, argv in (("untar", ["/bin/tar", "xf", self.tar, "-C", target]),
                                   ("rm", ["/bin/rm", "-rf", target])):
                    before = requests() if ours == 0 else None
                    times[what][ours].append(spawn(*argv))
                    if ours == 0:
                        counts[what] = requests_between(before, requests())
                        per_file[what].append(sum(counts[what].values()) / self.inodes)
            say(f"  round {i}: untar {times['untar'][0][-1]:.1f} against {times['untar'][1][-1]:.1f} s, "
                f"rm {times['rm'][0][-1]:.1f} against {times['rm'][1][-1]:.1f} s")
        bough("rm", "untar")
        for what, goal, name in (("untar", 2.5, "untar of the tree"), ("rm", 3.0, "rm -rf of it")):
            a, b = (median(t) for t in times[what])
            self.table.add(f"{name}, against ext4", a / b, "x", goal, 1.0, note=f"{a:.2f} against {b:.2f} s")
            self.table.add("  requests a file", median(per_file[what]), "requests",
                           7.5 if what == "untar" else None, note=self.counts(counts[what]))
        self.untar_variants()

    # What an untar's number of requests depends on: how the workspace was made, and how tar is called.
    # (Time says little about it beside what the disk does.)
    VARIANTS = [
        ("--no-xattrs", ["--no-xattrs"], []),
        ("--no-xattrs, tar -b 512", ["--no-xattrs"], ["-b", "512"]),
        ("tar --no-same-owner", [], ["--no-same-owner"]),
        ("--no-xattrs, tar --no-same-owner", ["--no-xattrs"], ["--no-same-owner"]),
        ("--no-xattrs, tar --no-same-owner -b 512", ["--no-xattrs"], ["--no-same-owner", "-b", "512"]),
    ]

    def untar_variants(self):
        for name, create, tar in self.VARIANTS:
            at = bough("create", "variant", *create)
            before = requests()
            took = spawn("/bin/tar", "xf", self.tar, "-C", at, *tar)
            counts = requests_between(before, requests())
            bough("rm", "variant")
            self.table.add(f"  requests a file: {name}", sum(counts.values()) / self.inodes, "requests",
                           7.5 if "xattrs" in name and "-b" in name else None,
                           note=f"{took:.1f} s; {self.counts(counts)}")

    # ---- one byte of a big file

    def big_file(self):
        size = (256 << 20) if self.quick else (4 << 30)
        at = bough("create", "bigfile")
        block = bytearray(os.urandom(1 << 20))
        with open(at + "/file", "wb", buffering=0) as f:
            for i in range(size >> 20):
                block[:8] = i.to_bytes(8, "little")
                f.write(block)
        os.sync()
        times, space, written = [], [], []
        rounds = 5 if self.quick else 15
        for i in range(rounds):
            path = bough_json("fork", "bigfile", f"bigfile-{i}")["items"][0]["path"]
            fd = os.open(path + "/file", os.O_RDWR)
            before = disk_used(os.environ["BOUGH_ROOT"])
            t0 = time.perf_counter()
            os.pwrite(fd, b"x", self.rng.randrange(size))
            times.append((time.perf_counter() - t0) * 1000)
            os.fsync(fd)
            os.close(fd)
            after = disk_used(os.environ["BOUGH_ROOT"])
            space.append((after[0] - before[0]) / 1024)
            written.append((after[1] - before[1]) / 1024)
        bough("rm", "bigfile", *[f"bigfile-{i}" for i in range(rounds)])
        self.table.add(f"one byte of a {size >> 30 or '1/4'} GiB file in a fork", median(times), "ms", 1.0,
                       note=f"max {max(times):.2f}")
        self.table.add("  new space, after fsync", median(space), "KiB", 64.0,
                       note=f"max {max(space):.0f}; without reserves {median(written):.0f}")

    # ---- idle memory

    USER = ("import os,sys\n"
            "p=sys.argv[1]; d=os.urandom(1<<20)\n"
            "f=os.open(p,os.O_RDWR|os.O_CREAT)\n"
            "[os.pwrite(f,d,i<<20) for i in range(8)]\n"
            "[os.pread(f,1<<20,i<<20) for i in range(8)]\n")

    def idle(self):
        n = 40 if self.quick else 200
        bough("down")  # so that nothing of the other parts is counted, or given back meanwhile
        bough("up")
        first = bough_json("fork", "big", "idle-0")["items"][0]["path"]
        os.listdir(first)  # the pool of threads is there from the first mount on
        kib0, threads0 = server_memory()
        forks = bough_json("fork", "big", "idle", "-n", str(n))["items"]
        say(f"  {n} forks, two programs in each")
        for fork in forks:
            root = fork["path"]
            both = [subprocess.Popen([sys.executable, "-c", self.USER, f"{root}/by-{k}"]) for k in "ab"]
            for p in both:
                if p.wait() != 0:
                    raise RuntimeError("a program in an idle fork failed")
        time.sleep(10)
        kib, threads = server_memory()
        self.table.add(f"memory of an idle fork, at {n}", (kib - kib0) / n, "KiB", 256.0,
                       note=f"{kib0} to {kib} KiB in all")
        self.table.add("  threads for each of them", (threads - threads0) / n, "threads", 0.1,
                       note=f"{threads0} to {threads} in all")
        before = time.perf_counter()
        bough("rm", *[f"idle-{i}" for i in range(n + 1)])
        self.table.add(f"removing {n} forks", time.perf_counter() - before, "s")

    # ---- all of it

    PARTS = ["fork", "save", "passes", "untar", "big_file", "idle"]

    def run(self):
        self.prepare()
        for part in self.PARTS:
            if self.args.only and part not in self.args.only:
                continue
            self.load[part] = os.getloadavg()[0]
            say(f"{part} (load {self.load[part]:.1f})")
            try:
                getattr(self, part)()
            except Exception as e:  # one part that fails must not hide the others
                say(f"{part} failed: {e}")
                self.table.rows.append(dict(name=part, value=None, unit="", goal=None, ext4=None,
                                            ok=False, note=f"failed: {e}"))


class Stream:
    """A program that writes all the time, 256 KiB at once, and notes how long each took. A process of
    its own: a thread would wait for this one's interpreter lock, up to 5 ms."""

    BLOCK = 256 << 10
    WRITER = """
import array, gc, os, signal, sys, time
gc.disable()
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
block = os.urandom(int(sys.argv[2]))
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
times = array.array("d")
n = 0
while not stop:
    began = time.perf_counter()
    os.pwrite(fd, block, n % 1024 * len(block))
    times.append(began)
    times.append(time.perf_counter() - began)
    n += 1
os.close(fd)
sys.stdout.buffer.write(times.tobytes())
"""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.WRITER, self.path, str(self.BLOCK)], stdout=subprocess.PIPE)
        return self

    def __exit__(self, *exc):
        """Ends it; then `writes` are (when it began, how long it took), on perf_counter's clock."""
        self.took = time.perf_counter() - self.began
        self.process.terminate()
        times = array.array("d")
        times.frombytes(self.process.communicate()[0])
        self.writes = list(zip(times[0::2], times[1::2]))

    def rate(self):
        return len(self.writes) * self.BLOCK / self.took

    def longest(self, begin, end):
        """The longest write that overlaps the time."""
        return max((took for t, took in self.writes if t < end and t + took > begin), default=0.0)


def machine():
    def read(path):
        with contextlib.suppress(OSError):
            with open(path) as f:
                return f.read()
        return ""
    cpu = [line.split(":")[1].strip() for line in read("/proc/cpuinfo").splitlines()
           if line.startswith("model name")]
    return dict(kernel=os.uname().release, cpus=os.cpu_count(), cpu=cpu[0] if cpu else "",
                version=bough("--version"), date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))


def main():
    parser = argparse.ArgumentParser(prog="run.sh")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=Bench.PARTS, help="one part; may be repeated")
    parser.add_argument("--json", default=os.path.join(BIN, "..", "bench.json"))
    parser.add_argument("--work", default="/var/tmp", help="a folder on ext4")
    args = parser.parse_args()
    work = tempfile.mkdtemp(prefix="bough-bench.", dir=args.work)
    os.environ["BOUGH_ROOT"] = os.path.join(work, "root")
    kind = subprocess.run(["stat", "-f", "-c", "%T", work], capture_output=True, text=True).stdout.strip()
    if kind not in ("ext2/ext3", "ext4"):
        say(f"{work} is on {kind}, not on ext4: the figures compare with that")
    bench = Bench(args, work)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        bench.run()
    finally:
        subprocess.run([BOUGH, "down"], stdout=subprocess.DEVNULL)
        for pid in server_pids("boughd") + server_pids():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with open("/proc/self/mounts") as f:
            for at in [line.split()[1] for line in f if line.split()[1].startswith(work + "/")]:
                subprocess.run(["umount", "-l", at])
        if os.environ.get("BOUGH_BENCH_KEEP"):
            say(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    print()
    bench.table.print()
    with open(args.json, "w") as f:
        json.dump(dict(machine=machine(), quick=args.quick, files=len(getattr(bench, "files", [])),
                       load=bench.load, results=bench.table.rows), f, indent=2)
        f.write("\n")
    say(f"written: {os.path.normpath(args.json)}")
    missed = [r["name"].strip() for r in bench.table.rows if r["ok"] is False]
    if missed:
        say(f"missed: {len(missed)}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
