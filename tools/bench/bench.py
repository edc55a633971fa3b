"""The benchmark: see run.sh. Only Python's own library.

Each figure is a median of runs that alternate between the places, on one disk, in the same
minutes. Beside the time stand the requests that the server counted, the CPU seconds of program and
servers and what they wrote: those hold also where others use the machine."""

import argparse
import importlib
import json
import os
import signal
import sys
import traceback

from harness import BIN, Service, Workdir, machine, say
from places import KINDS, Places
from report import Report
from tree import Tree

# In this order. The name of the part, and the module whose run(bench) does it.
PARTS = {
    "workspaces": "part_workspaces", "save": "part_save", "passes": "part_passes",
    "trees": "part_trees", "pauses": "part_pauses", "fio": "part_fio", "sqlite": "part_sqlite",
    "storms": "part_storms", "builds": "part_builds", "growth": "part_growth", "idle": "part_idle",
    "git": "part_programs", "load": "part_programs", "sandbox": "part_programs",
}
NAMED = ("bough", "ext4", "overlayfs")  # by goals
QUICK = ["workspaces", "save", "passes", "trees", "fio", "sqlite", "storms", "growth"]


class Bench:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.report = Report()
        self.service = Service(work.root)
        self.places = Places(self, args.places)
        self._tree = None
        self.loop_bytes = (4 if args.quick else 24) << 30  # sparse

    @property
    def tree(self):
        if self._tree is None:
            self._tree = Tree(self)
        return self._tree

    def peers(self, tree=False):
        """The places of work on files; of a quick run the few that the goals name."""
        return self.places.get(*(NAMED if self.args.quick else KINDS), tree=tree)

    def scale(self, quick, usual, full=None):
        """A size or a number of rounds for this kind of run."""
        if self.args.quick:
            return quick
        return full if self.args.full and full is not None else usual

    def alternate(self, rounds, places, what):
        """what(place, round) for each place, by turns; the order turns too. Results by place. Those
        that no goal names have half of the rounds."""
        found = {p.name: [] for p in places}
        for i in range(rounds):
            k = i % len(places)
            for p in places[k:] + places[:k]:
                if p.name in NAMED or i < (rounds + 1) // 2:
                    found[p.name].append(what(p, i))
        return found

    def compare(self, id_, name, rounds, places, what, unit="s"):
        """A row of the times of what(place, round) -> Usage."""
        usage = self.alternate(rounds, places, what)
        self.timed(id_, name, usage, unit)
        return usage

    def timed(self, id_, name, usage, unit="s", note=""):
        factor = {"s": 1, "ms": 1000}[unit]
        return self.report.row(id_, name, unit, {k: [u.wall * factor for u in v] for k, v in usage.items()},
                               usage, note)

    def run(self, parts):
        for part in parts:
            self.report.begin(part)
            failed = None
            try:
                importlib.import_module(PARTS[part]).run(self)
            except Exception as e:  # one part that fails must not hide the others
                failed = f"{type(e).__name__}: {e}"
                if os.environ.get("BOUGH_BENCH_KEEP"):
                    traceback.print_exc()
            self.report.end(failed)


def parse():
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small tree and few rounds")
    parser.add_argument("--full", action="store_true", help="the curves to their ends: hours")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="one part; may be repeated")
    parser.add_argument("--places", type=lambda s: s.split(","), help="peers, by comma; Bough and ext4 always are")
    parser.add_argument("--json", default=os.path.join(BIN, "..", "bench.json"))
    parser.add_argument("--charts", help="a folder for the SVGs (default: beside the JSON)")
    parser.add_argument("--work", default="/var/tmp", help="a folder on ext4")
    parser.add_argument("--redraw", action="store_true", help="only draw the charts of --json anew")
    return parser.parse_args()


def write(args, bench):
    from charts import draw
    data = dict(machine=machine(), quick=args.quick, full=args.full, **bench.report.as_dict(),
                absent=bench.places.absent)
    if bench._tree is not None:
        data["tree"] = dict(files=len(bench.tree.files), inodes=bench.tree.inodes, bytes=bench.tree.bytes)
    with open(args.json, "w", encoding="utf-8") as f:
        json.dump(data, f, indent=1)
        f.write("\n")
    say(f"written: {os.path.normpath(args.json)}")
    for path in draw(data, args.charts):
        say(f"written: {os.path.normpath(path)}")


def stop(number, _):
    raise SystemExit(128 + number)


def main():
    args = parse()
    args.charts = args.charts or os.path.dirname(os.path.abspath(args.json))
    os.makedirs(args.charts, exist_ok=True)
    if args.redraw:
        from charts import draw
        from harness import load_json
        print("\n".join(draw(load_json(args.json), args.charts)))
        return 0
    if os.geteuid() != 0:
        raise SystemExit("bench: the peers are mounted: as root, please")
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, stop)
    work = Workdir(args.work)
    # A file of our own, never /dev/null: who sets something there replaces the file.
    os.environ.update(GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_GLOBAL=os.path.join(work.path, "gitconfig"),
                      LC_ALL="C.UTF-8", PYTHONDONTWRITEBYTECODE="1")
    try:
        bench = Bench(args, work)
        os.environ["BOUGH_ROOT"] = work.root
        bench.service.up()
        try:
            bench.run(args.only or (QUICK if args.quick else list(PARTS)))
        finally:  # who interrupts it keeps what was measured until then
            print()
            bench.report.print()
            write(args, bench)
    finally:
        work.clear()
    missed = bench.report.missed()
    if missed:
        say(f"missed: {len(missed)}: {', '.join(missed)}")
    failed = [p for p, about in bench.report.parts.items() if about.get("failed")]
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
