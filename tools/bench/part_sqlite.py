"""SQLite with a write-ahead log: one row a transaction, and fsync of a small file beside a big dirty one."""

import os
import sys

from harness import measure, measure_here

# Run in a process of its own: DATABASE, synchronous mode, seconds; prints transactions.
PROGRAM = """
import sqlite3, sys, time, random
path, sync, what, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
db = sqlite3.connect(path, isolation_level=None)
db.execute("pragma journal_mode=wal")
db.execute("pragma synchronous=" + sync)
db.execute("create table if not exists t (id integer primary key, a text, b integer)")
db.execute("create index if not exists i on t (b)")
if what == "update":
    db.execute("begin")
    db.executemany("insert into t (a, b) values (?, ?)", [("x" * 100, k) for k in range(20000)])
    db.execute("commit")
rng, n, end = random.Random(1), 0, time.perf_counter() + seconds
while time.perf_counter() < end:
    if what == "insert":
        db.execute("insert into t (a, b) values (?, ?)", ("y" * 100, rng.randrange(1 << 30)))
    else:
        db.execute("update t set a = ?, b = b + 1 where id = ?", ("z" * 100, rng.randrange(1, 20000)))
    n += 1
print(n / seconds)
"""


def run(bench):
    places = bench.peers()
    rounds, seconds = bench.scale(1, 3), bench.scale(1, 4)
    out = os.path.join(bench.work.path, "sqlite.out")
    for id_, name, what, sync in (
            ("sqlite.insert", "SQLite WAL, insert", "insert", "normal"),
            ("sqlite.update", "SQLite WAL, update", "update", "normal"),
            ("sqlite.insert.full", "SQLite WAL, insert, fsync each", "insert", "full")):
        usage = {p.name: [] for p in places}

        def one(place, i):
            at = place.fresh("sqlite")
            place.settle()
            with open(out, "w+", encoding="utf-8") as f:
                usage[place.name].append(measure(
                    place, [sys.executable, "-c", PROGRAM, at + "/db", sync, what, str(seconds)], output=f))
                f.seek(0)
                rate = float(f.read())
            place.drop("sqlite")
            return rate / 1000

        bench.report.row(id_, name, "1,000/s", bench.alternate(rounds, places, one), usage)
    beside_dirty(bench, places)


def beside_dirty(bench, places):
    """A small file's fsync while another file has much that isn't on the disk."""
    size = bench.scale(64, 1024)

    def one(place, i):
        at = place.fresh("dirty")
        place.settle()
        block = os.urandom(1 << 20)
        with open(at + "/big", "wb", buffering=0) as big:
            for _ in range(size):
                big.write(block)
            with open(at + "/small", "wb", buffering=0) as small:
                small.write(b"x" * 4096)
                used = measure_here(place, lambda: os.fsync(small.fileno()))
        place.drop("dirty")
        return used

    bench.compare("fsync.dirty", f"fsync of a small file beside {size} MiB dirty", bench.scale(1, 5), places, one,
                  "ms")
