#!/usr/bin/env python3
"""CI: one workspace is prepared once, and every job runs in a fork of it, each in a sandbox.

    ci.py ARCHIVE PREPARE JOB…

Imports ARCHIVE (a source tree as tar, zip …), runs the shell command PREPARE in it (build) and then every
JOB at once. Each has a fork of what was prepared as /workspace of a sandbox of its own, with this
machine's programs, limits and no network: a failed or wild one spoils nothing of the others or of this
machine. Prints a line for each job, what the failed ones said, and saves the forks of those for later.
What was prepared is found by the archive's hash and PREPARE the next time."""

import concurrent.futures
import hashlib
import sys
import time

import bough

LIMITS = {"memory_bytes": 1 << 30, "cpu_milli": 2000, "pids": 256}
LIFE = {"ttl_s": 3600, "on_expiry": "delete"}  # whatever becomes of us
JOB_MS = 1800 * 1000


def run(client, command, ws):
    """In a sandbox on that workspace: its exit code, what it said, and the seconds that it took."""
    begun = time.monotonic()
    with client.sandboxes.temporary(workspaces=[{"workspace": ws.id}], **LIMITS, **LIFE) as box:
        job = box.exec(["sh", "-c", command], cwd="/workspace", timeout_ms=JOB_MS)
        said = b"".join(data for _, data in job.stream())
    return job.info["exit_code"], said.decode(errors="replace"), time.monotonic() - begun


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
    with client.workspaces.temporary(name, source=source, **LIFE) as ws:
        code, said, _ = run(client, prepare, ws)
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
        with client.workspaces.temporary("ci-" + tag, source=base, **LIFE) as ws, \
                concurrent.futures.ThreadPoolExecutor(8) as pool:
            forks = ws.fork(name="job-" + tag, count=len(jobs), **LIFE)
            try:
                done = pool.map(lambda job, fork: run(client, job, fork), jobs, forks)
                for job, fork, (code, said, took) in zip(jobs, forks, done):
                    print("%-6s %6.2f s  %s" % ("ok" if code == 0 else "FAILED", took, job))
                    if code != 0:
                        failed += 1
                        kept = fork.save(message="%s: exit %d" % (job, code))
                        print("%s(kept: %s)" % (said, kept.id))
            finally:
                pool.shutdown(cancel_futures=True)  # those that run leave their sandboxes first
                for fork in forks:
                    fork.delete(purge=True, force=True)
    return 1 if failed else 0


try:
    sys.exit(main())
except (bough.BoughError, OSError) as e:
    sys.exit("ci.py: %s" % e)
