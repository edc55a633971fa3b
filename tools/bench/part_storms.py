"""Many small files: created by one program and by four, removed; and one folder of very many."""

import os
import sys

from harness import measure

CREATE = """
import os, sys
at, n, jobs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
data = b"x" * 1000
def work(j):
    for d in range(n // jobs // 100):
        os.mkdir(f"{at}/{j}-{d}")
        for f in range(100):
            fd = os.open(f"{at}/{j}-{d}/{f}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(fd, data)
            os.close(fd)
kids = []
for j in range(jobs):
    pid = os.fork()
    if not pid:
        work(j)
        os._exit(0)
    kids.append(pid)
sys.exit(max(os.waitpid(p, 0)[1] for p in kids))
"""
BIG = """
import os, sys
at, n = sys.argv[1], int(sys.argv[2])
for i in range(n):
    os.close(os.open(f"{at}/file-{i:07}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
"""
STATS = """
import os, random, sys
at, n = sys.argv[1], int(sys.argv[2])
rng = random.Random(1)
for _ in range(min(n, 20000)):
    os.stat(f"{at}/file-{rng.randrange(n):07}")
"""


def run(bench):
    places = bench.peers()
    storms(bench, places)
    big_folder(bench, places)


def storms(bench, places):
    n = bench.scale(2000, 20000)
    for jobs in (1, 4):
        gone = {p.name: [] for p in places}

        def one(place, i):
            at = place.fresh("storm")
            place.settle()
            used = measure(place, [sys.executable, "-c", CREATE, at, str(n), str(jobs)])
            place.settle()
            gone[place.name].append(measure(place, ["sh", "-c", f"rm -rf {at}/*"]))
            place.drop("storm")
            return used

        bench.compare(f"storm.{jobs}", f"{n} files of 1 KB, {jobs} at once", bench.scale(1, 3), places, one)
        if jobs == 1:
            bench.timed("storm.rm", "  rm -rf of them", gone)


def big_folder(bench, places):
    n = bench.scale(5000, 100000, 500000)
    steps = {"create": {}, "ls": {}, "ls again": {}, "stat": {}, "rm": {}}
    for place in places:
        at = os.path.join(place.fresh("bigdir"), "d")
        os.mkdir(at)
        place.settle()
        for step, argv in (("create", [sys.executable, "-c", BIG, at, str(n)]), ("ls", ["ls", "-f", at]),
                           ("ls again", ["ls", "-f", at]), ("stat", [sys.executable, "-c", STATS, at, str(n)]),
                           ("rm", ["rm", "-rf", at])):
            steps[step][place.name] = [measure(place, argv)]
        place.drop("bigdir")
    for step, usage in steps.items():
        bench.timed(f"bigdir.{step}", f"a folder of {n} files: {step}", usage)
