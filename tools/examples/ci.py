#!/usr/bin/env python3
"""CI: one workspace is prepared once, and every job runs in a fork of it.

    ci.py ARCHIVE PREPARE JOB…

Imports ARCHIVE (a source tree as tar, zip …), runs the shell command PREPARE in it (fetch, build) and then
every JOB at once, each in a fork of its own: a failed or wild one spoils nothing of the others. Prints
a line for each job, what the failed ones said, and saves the forks of those for later. What was prepared
is found by the archive's hash and PREPARE the next time."""

import concurrent.futures
import hashlib
import subprocess
import sys
import time

import bough


def run(command, ws):
    begun = time.monotonic()
    p = subprocess.run(["sh", "-c", command], cwd=ws.path, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, errors="replace")
    return p.returncode, p.stdout, time.monotonic() - begun


def prepared(client, archive, prepare):
    """A snapshot of the tree behind PREPARE."""
    with open(archive, "rb") as f:
        name = "ci-" + hashlib.sha256(prepare.encode() + f.read()).hexdigest()[:16]
        try:
            return client.snapshots.get(name)
        except bough.NotFound:
            pass
        f.seek(0)
        source = client.snapshots.create(f)
    with client.workspaces.temporary(name, source=source) as ws:
        code, said, _ = run(prepare, ws)
        if code != 0:
            sys.exit("prepare: exit %d\n%s" % (code, said))
        return ws.save(name, message=prepare)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    archive, prepare, jobs = sys.argv[1], sys.argv[2], sys.argv[3:]
    failed = 0
    with bough.Client() as client:
        base = prepared(client, archive, prepare)
        tag = base.id[3:]
        with client.workspaces.temporary("ci-" + tag, source=base) as ws, \
                concurrent.futures.ThreadPoolExecutor(8) as pool:
            # An hour's life, whatever becomes of us.
            forks = ws.fork(name="job-" + tag, count=len(jobs), ttl_s=3600)
            try:
                for job, fork, (code, said, took) in zip(jobs, forks, pool.map(run, jobs, forks)):
                    print("%-6s %6.2f s  %s" % ("ok" if code == 0 else "FAILED", took, job))
                    if code != 0:
                        failed += 1
                        kept = fork.save(message="%s: exit %d" % (job, code))
                        print("%s(kept: %s)" % (said, kept.id))
            finally:
                for fork in forks:
                    fork.delete(purge=True)
    return 1 if failed else 0


try:
    sys.exit(main())
except (bough.BoughError, OSError) as e:
    sys.exit("ci.py: %s" % e)
