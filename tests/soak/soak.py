#!/usr/bin/env python3
"""Mixed work for as long as one likes, with the servers killed beside it, and proof that it leaves them
as they were: `make soak MINUTES=120`, or

    tests/soak/soak.py [--minutes M] [--kill-fs SECONDS] [--kill-daemon SECONDS] [--work DIR] [--out FILE]

Each worker does what users do, checks all that it gets, and counts: forks that are written to, saved,
restored and deleted; a C project that is built; a database; sandboxes; workspaces that expire; gc. A
command that a killed boughd cut off may fail, and is tried again; what was acknowledged must be there; a
program on a mount must never see an error. Every five seconds memory, descriptors, threads and disk are
noted. At the end: fsck, and the last third against the middle one. FILE.json gets the figures, FILE.svg
the chart, FILE.logs the servers' logs when something was wrong."""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools", "bench"))
import chart  # noqa: E402

BIN = os.environ["BOUGH_BIN"]
EVERY = 5  # seconds between two looks
KILL_FELT = 30  # seconds after which no command may fail because of a kill
# How much more of the last third than of the middle one is still flat: a share, and a floor.
FLAT = {"anon_mib": (1.25, 12), "fds": (1.25, 60), "threads": (1.25, 12), "disk_mib": (1.25, 300)}


class Wrong(Exception):
    """What must never be."""


class Soak:
    def __init__(self, args, root):
        self.args, self.root = args, root
        self.env = dict(os.environ, BOUGH_ROOT=root, PATH=BIN + ":" + os.environ["PATH"], LC_ALL="C.UTF-8")
        self.counts, self.faults, self.samples = {}, [], []
        self.killed_at = -KILL_FELT
        self.lock, self.over = threading.Lock(), threading.Event()
        self.began = time.monotonic()

    # ---- what workers use

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + n

    def bough(self, *argv, done=()):
        """A command that in the end must succeed. One that a kill cut off may have been done: then the
        next try ends with one of the codes in `done`."""
        for attempt in range(60):
            r = subprocess.run(["bough", *argv], env=self.env, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if r.returncode == 0 or attempt and r.returncode in done:
                return r.stdout.strip()
            if not self.cut_off():
                break
        raise Wrong(f"bough {' '.join(argv)}: {r.returncode} {r.stderr[-500:]}")

    def cut_off(self):
        """Whether a command may have failed because of a kill."""
        if time.monotonic() - self.killed_at > KILL_FELT:
            return False
        self.count("commands cut off")
        time.sleep(0.5)
        return True

    def path(self, name):
        return self.bough("path", name)

    # ---- workers: each does one round

    def forks(self, me, n, rng):
        """A fork with files of its own, saved, changed, restored: each state is whole."""
        name, snapshot = f"{me}-{n}", f"{me}-s{n}"
        self.bough("fork", "base", name, done=(4,))
        top = self.path(name)
        wanted = write_files(rng, top)
        self.bough("save", name, "--as", snapshot, done=(4,))
        write_files(rng, top)
        self.bough("restore", name, snapshot)
        compare(top, wanted, f"{name} after its restore")
        if n % 4 == 3:
            self.bough("create", name + "-c", "--from", snapshot, done=(4,))
            compare(self.path(name + "-c"), wanted, f"a workspace from {snapshot}")
            self.bough("rm", "--now", name + "-c", done=(3,))
        self.bough("rm", "--now", name, done=(3,))
        if n >= 5:
            self.bough("snapshots", "rm", f"{me}-s{n - 5}", done=(3,))

    def build(self, me, n, rng):
        """make of a C project of 30 files; the program says what it should."""
        if n == 0:
            self.bough("create", me, done=(4,))
            make_project(self.path(me))
        top = self.path(me)
        with open(f"{top}/value.h", "w") as f:
            f.write(f"#define VALUE {n}\n")
        run(["make", "-s", "-C", top, "clean", "all"])
        got = run([f"{top}/prog"]).strip()
        if got != str(30 * n + sum(range(30))):
            raise Wrong(f"the program says {got} in round {n}")

    def database(self, me, n, rng):
        """SQLite with WAL: all that was committed is there."""
        if n == 0:
            self.bough("create", me, done=(4,))
        db = sqlite3.connect(self.path(me) + "/db", timeout=60)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, v BLOB)")
        for i in range(50):
            with db:
                db.execute("INSERT INTO t VALUES (?, ?)", (n * 50 + i, rng.randbytes(500)))
        (rows,), (whole,) = db.execute("SELECT count(*) FROM t").fetchone(), db.execute(
            "PRAGMA integrity_check").fetchone()
        if rows != (n + 1) * 50 and n < 200 or whole != "ok":
            raise Wrong(f"{rows} rows in round {n}: {whole}")
        if n >= 199:
            with db:
                db.execute("DELETE FROM t WHERE n <= ?", ((n - 199) * 50 + 49,))
        db.close()

    def sandboxes(self, me, n, rng):
        """A sandbox on a workspace: what it wrote is there, and it is gone."""
        if n == 0:
            self.bough("create", me, done=(4,))
        word = f"{rng.random()}"
        r = subprocess.run(["bough", "run", "--rm", "--workspace", me, "--", "sh", "-c",
                            f"echo {word} >word && cat word"], env=self.env, text=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if r.returncode == 125 and self.cut_off():  # before the sandbox was there
            return
        if r.returncode != 0 or r.stdout.strip() != word:
            raise Wrong(f"sandbox {n}: {r.returncode} {r.stdout!r} {r.stderr[-300:]!r}")
        elif open(self.path(me) + "/word").read().strip() != word:
            raise Wrong(f"sandbox {n}: its file isn't there")

    def expiry(self, me, n, rng):
        """Workspaces that end by themselves; every other one is saved then."""
        name = f"{me}-{n}"
        self.bough("create", name, "--ttl", "2s", "--on-expiry", ("delete", "save")[n % 2], done=(4,))
        end = time.monotonic() + 120
        while name in self.bough("ls", "-q").split():
            if time.monotonic() > end:
                raise Wrong(f"{name} doesn't expire")
            time.sleep(1)
        self.over.wait(5)

    def upkeep(self, me, n, rng):
        self.over.wait(60)
        self.bough("gc")
        self.bough("stats")

    WORKERS = {"forks": 2, "build": 1, "database": 1, "sandboxes": 1, "expiry": 1, "upkeep": 1}

    def work(self, kind, me):
        rng, n = random.Random(f"{self.args.seed} {me}"), 0
        do = getattr(self, kind)
        while not self.over.is_set():
            try:
                do(me, n, rng)
                self.count(kind)
            except Exception as e:
                said = str(e) if isinstance(e, Wrong) else traceback.format_exc()
                self.faults.append(f"{time.monotonic() - self.began:.0f} s: {me}: {said}")
                print(f"# FAULT {self.faults[-1]}", file=sys.stderr, flush=True)
                return
            n += 1

    # ---- beside them

    def servers(self):
        """Process ids by name of what serves the root."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/comm") as f:
                    name = f.read().strip()
                if name not in ("boughd", "bough-fs", "bough-hold"):
                    continue
                with open(f"/proc/{pid}/cmdline") as f:
                    if self.root in f.read().split("\0"):
                        found.setdefault(name, int(pid))
            except OSError:
                pass
        return found

    def killer(self, name, every):
        while every and not self.over.wait(every):
            pid = self.servers().get(name)
            if pid:
                self.killed_at = time.monotonic()
                os.kill(pid, signal.SIGKILL)
                self.count(f"kills of {name}")

    def look(self):
        now = {"at_s": round(time.monotonic() - self.began), "anon_mib": {}, "fds": {}, "threads": {}}
        for name, pid in self.servers().items():
            try:
                with open(f"/proc/{pid}/status") as f:
                    status = dict(line.split(":", 1) for line in f if ":" in line)
                now["anon_mib"][name] = round(int(status["RssAnon"].split()[0]) / 1024, 1)
                now["threads"][name] = int(status["Threads"])
                now["fds"][name] = len(os.listdir(f"/proc/{pid}/fd"))
            except (OSError, KeyError):
                pass
        used = subprocess.run(["du", "-sxk", "--exclude=mnt", "--exclude=box", self.root],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        now["disk_mib"] = {"root": round(int(used.split()[0]) / 1024, 1)}
        return now

    def run(self):
        os.mkdir(self.root)
        with open(self.root + "/config.json", "w") as f:  # so that what was deleted goes meanwhile
            json.dump({"grace_deleted_s": 30, "grace_expired_s": 30}, f)
        tree = tempfile.mkdtemp(dir=self.args.work)
        write_files(random.Random(self.args.seed), tree, 500)
        self.bough("create", "base", "--dir", tree)
        shutil.rmtree(tree)
        threads = [threading.Thread(target=self.work, args=(kind, f"{kind}{i}"))
                   for kind, many in self.WORKERS.items() for i in range(many)]
        threads += [threading.Thread(target=self.killer, args=("bough-fs", self.args.kill_fs)),
                    threading.Thread(target=self.killer, args=("boughd", self.args.kill_daemon))]
        for t in threads:
            t.start()
        end = self.began + self.args.minutes * 60
        try:
            while time.monotonic() < end and not self.faults:
                self.samples.append(self.look())
                time.sleep(EVERY)
        finally:
            self.over.set()
            for t in threads:
                t.join()
        self.bough("up")
        self.bough("fsck")

    # ---- what it comes to

    def growth(self):
        """Of each figure the highest of the middle third and of the last, and whether that is flat."""
        third = len(self.samples) // 3
        for what, (share, floor) in FLAT.items():
            for name in sorted({n for s in self.samples for n in s[what]}):
                middle, last = (max((s[what].get(name, 0) for s in part), default=0)
                                for part in (self.samples[third:2 * third], self.samples[2 * third:]))
                yield what, name, middle, last, last <= max(middle * share, middle + floor)

    def chart(self):
        titles = {"anon_mib": "memory of its own, MiB", "fds": "descriptors", "threads": "threads",
                  "disk_mib": "disk, MiB"}
        panels = []
        for what, title in titles.items():
            names = sorted({n for s in self.samples for n in s[what]})
            panels.append((title, {n: [(s["at_s"] / 60, s[what][n]) for s in thinned(self.samples)
                                       if n in s[what]] for n in names}))
        done = ", ".join(f"{n} {what}" for what, n in sorted(self.counts.items()))
        return chart.times(f"{self.args.minutes:g} minutes of mixed work", done, panels)


def thinned(samples, most=240):
    return samples[::max(1, len(samples) // most)]


def write_files(rng, top, n=40):
    """Files of random names, sizes and bytes below a folder; gives all that is there as {path: SHA-256}."""
    for _ in range(n):
        folder = f"{top}/d{rng.randrange(8)}"
        os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/f{rng.randrange(100)}", "wb") as f:
            f.write(rng.randbytes(int(rng.paretovariate(0.6) * 300) % (1 << 20)))
    return sums_of(top)


def sums_of(top):
    sums = {}
    for folder, _, files in os.walk(top):
        for name in files:
            with open(f"{folder}/{name}", "rb") as f:
                sums[os.path.relpath(f"{folder}/{name}", top)] = hashlib.sha256(f.read()).hexdigest()
    return sums


def compare(top, wanted, what):
    got = sums_of(top)
    if got != wanted:
        differs = [p for p in sorted({*got, *wanted}) if got.get(p) != wanted.get(p)]
        raise Wrong(f"{what}: {len(differs)} files differ, {differs[:5]}")


def run(argv):
    r = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       text=True)
    if r.returncode != 0:
        raise Wrong(f"{' '.join(argv)}: {r.returncode} {r.stdout[-500:]}")
    return r.stdout


def make_project(top):
    for i in range(30):
        with open(f"{top}/part{i}.c", "w") as f:
            f.write(f'#include "value.h"\nint part{i}(void) {{ return VALUE + {i}; }}\n')
    calls = " + ".join(f"part{i}()" for i in range(30))
    with open(f"{top}/main.c", "w") as f:
        f.write("#include <stdio.h>\n" + "".join(f"int part{i}(void);\n" for i in range(30)) +
                f'int main(void) {{ printf("%d\\n", {calls}); return 0; }}\n')
    with open(f"{top}/Makefile", "w") as f:
        f.write("objs = $(patsubst %.c,%.o,$(wildcard *.c))\nall: prog\nprog: $(objs)\n"
                "\t$(CC) -o $@ $^\n$(objs): value.h\nclean:\n\trm -f prog *.o\n")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--minutes", type=float, default=120)
    ap.add_argument("--kill-fs", type=float, default=300, metavar="SECONDS", help="0: never")
    ap.add_argument("--kill-daemon", type=float, default=420, metavar="SECONDS", help="0: never")
    ap.add_argument("--seed", type=int, default=int(time.time()))
    ap.add_argument("--work", default=tempfile.gettempdir())
    ap.add_argument("--out", default="soak")
    args = ap.parse_args()
    top = tempfile.mkdtemp(prefix="bough-soak.", dir=args.work)
    os.chmod(top, 0o711)
    soak = Soak(args, top + "/root")
    print(f"# seed {args.seed}, {args.minutes:g} minutes", flush=True)
    try:
        soak.run()
    except Wrong as e:
        soak.faults.append(str(e))
    finally:
        subprocess.run(["bough", "down"], env=soak.env)
    ok = not soak.faults
    for what, n in sorted(soak.counts.items()):
        print(f"{what:<24} {n}")
    print(f"{'':<24} {'middle third':>12} {'last third':>12}   (the highest)")
    for what, name, middle, last, flat in soak.growth():
        print(f"{what + ' ' + name:<24} {middle:>12g} {last:>12g}   {'flat' if flat else 'GROWS'}")
        ok = ok and flat
    for fault in soak.faults:
        print(f"FAULT {fault}")
    with open(args.out + ".json", "w") as f:
        json.dump({"seed": args.seed, "minutes": args.minutes, "counts": soak.counts,
                   "faults": soak.faults, "samples": soak.samples}, f)
    with open(args.out + ".svg", "w") as f:
        f.write(soak.chart())
    if not ok:
        shutil.copytree(top + "/root/run", args.out + ".logs", dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("*.sock"))
    shutil.rmtree(top, ignore_errors=True)
    print("ok" if ok else "FAILED")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
