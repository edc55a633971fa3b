"""What a fork costs that is mounted and idle: memory and threads of the server."""

import os
import subprocess
import sys
import time

from harness import say

# What a program does in each before it is idle.
USER = ("import os,sys\n"
        "p=sys.argv[1]; d=os.urandom(1<<20)\n"
        "f=os.open(p,os.O_RDWR|os.O_CREAT)\n"
        "[os.pwrite(f,d,i<<20) for i in range(8)]\n"
        "[os.pread(f,1<<20,i<<20) for i in range(8)]\n")


def run(bench):
    bench.places.get("bough", tree=True)
    n = bench.scale(40, 200)
    service = bench.service
    service.down()  # so that nothing of the other parts is counted, or given back meanwhile
    service.up()
    parent = service.client.workspaces("tree")
    first = parent.fork("idle-0")[0]
    os.listdir(first.path)  # the pool of threads is there from the first mount on
    kib0, threads0 = service.memory()
    forks = parent.fork(name="idle", count=n)
    say(f"  {n} forks, two programs in each")
    for fork in forks:
        both = [subprocess.Popen([sys.executable, "-c", USER, f"{fork.path}/by-{k}"]) for k in "ab"]
        if any(p.wait() != 0 for p in both):
            raise RuntimeError("a program in an idle fork failed")
    time.sleep(10)
    kib, threads = service.memory()
    bench.report.row("idle.memory", f"memory of an idle fork, at {n}", "KiB", {"bough": (kib - kib0) / n},
                     note=f"{kib0} to {kib} KiB in all")
    bench.report.row("idle.threads", "  threads for each of them", "threads", {"bough": (threads - threads0) / n},
                     note=f"{threads0} to {threads} in all")
    began = time.perf_counter()
    for fork in [first, *forks]:
        fork.delete(purge=True)
    bench.report.row("idle.rm", f"removing {n} forks", "s", {"bough": time.perf_counter() - began})
