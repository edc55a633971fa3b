"""What a sandbox feels of its neighbour's bombs: see neighbour.sh. Only Python's own library."""

import argparse
import json
import os
import subprocess
import sys

from harness import BOUGH, Workdir, call, machine, median

GOAL = 3.0  # times the p99 of a quiet neighbourhood
KINDS = ("fork", "memory", "disk", "shm", "inode", "inotify", "pipe", "cpu", "requests")
FILES = 200
HERE = os.path.dirname(os.path.abspath(__file__))

# Stats of files that the kernel knows, and of names that it has to ask bough-fs for.
LOOK = f"""
import json, os, sys, time
end, now = time.monotonic() + float(sys.argv[1]), time.perf_counter_ns
known, asked = [], []
while time.monotonic() < end:
    n = len(known)
    a = now()
    os.stat(f"/workspace/{{n % {FILES}}}")
    b = now()
    os.path.lexists(f"/workspace/none-{{os.getpid()}}-{{a}}")
    c = now()
    known.append(b - a)
    asked.append(c - b)
    time.sleep(0.001)
def of(v, part):
    return sorted(v)[min(int(len(v) * part), len(v) - 1)] / 1000
print(json.dumps({{"stat": of(known, 0.99), "asked": of(asked, 0.99), "stat_median": of(known, 0.5),
                  "asked_median": of(asked, 0.5), "n": len(known)}}))
"""


class Street:
    def __init__(self, args, work):
        self.args, self.bough = args, [BOUGH, "--root", work.root]
        self.run("up")
        for name in ("calm", "wild"):
            self.run("create", name + "-files")
            self.run("run", "-d", "--runtime", args.runtime, "--name", name, "--workspace",
                     name + "-files", "--memory", "256M", "--disk", "200M", "--inodes", "20000",
                     "--pids", "200")
        self.sh("calm", f"for i in $(seq 0 {FILES - 1}); do echo $i >$i; done")
        self.run("cp", os.path.join(HERE, "../../tests/e2e/bombs.py"), "wild:/workspace/bombs.py")

    def run(self, *argv):
        return call(*self.bough, *argv)

    def sh(self, name, line):
        return self.run("exec", "--cwd", "/workspace", name, "--", "sh", "-c", line)

    def look(self):
        return json.loads(self.run("exec", "calm", "--", "python3", "-c", LOOK,
                                   str(self.args.seconds)))

    def beside(self, kind):
        """The same while the neighbour does that, over and over."""
        line = ("while :; do python3 /workspace/bombs.py %s; rm -rf /tmp/* /dev/shm/*; done "
                ">/tmp/said 2>&1" % kind)
        bomb = self.run("exec", "-d", "wild", "--", "sh", "-c", line).strip()
        try:
            return self.look()
        finally:
            self.run("stop", "wild")
            self.run("start", "wild")
            subprocess.run([*self.bough, "logs", bomb], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=False)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--runtime", default="runc")
    p.add_argument("--seconds", type=float, default=4)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    p.add_argument("--json")
    p.add_argument("--work", default="/var/tmp")
    args = p.parse_args()
    if os.geteuid() != 0:
        sys.exit("neighbour.sh: sandboxes want root")
    work = Workdir(args.work)
    found, missed = {}, 0
    try:
        os.chmod(work.path, 0o711)
        street = Street(args, work)
        street.look()  # warms up
        print("p99 of a stat in microseconds, alone and beside: what the kernel knows; what bough-fs "
              f"is asked for (goal: {GOAL:g} times)")
        for kind in args.only:
            quiet, loud = [street.look()], []
            for _ in range(args.rounds):
                loud.append(street.beside(kind))
                quiet.append(street.look())
            row = {}
            for what in ("stat", "asked"):
                alone, beside = (median([q[what] for q in looks]) for looks in (quiet, loud))
                row[what] = {"alone_us": alone, "beside_us": beside,
                             "ratio": round(beside / alone, 2)}
                missed += row[what]["ratio"] > GOAL
            found[kind] = row
            print(f"{kind:8}" + "".join(
                f"  {r['alone_us']:7.1f} {r['beside_us']:8.1f}  {r['ratio']:5.2f} x"
                for r in row.values()) + f"   n {sum(q['n'] for q in loud)}", flush=True)
        if args.json:
            with open(args.json, "w", encoding="utf-8") as f:
                json.dump({"machine": machine(), "runtime": args.runtime, **found}, f, indent=1)
    finally:
        work.clear()
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
