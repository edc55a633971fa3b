#!/usr/bin/env python3
"""Measures boughd under load: see load.sh. The clients are load.c's; this makes workspaces, looks
at the daemons, and prints."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "clients", "python"))
import bough  # noqa: E402

MIX = "get=50,put=15,list=6,stat=6,get_1m=3,put_1m=3,diff=3,fork=10,create=4"
WORKSPACES = 20
# What a daemon may keep behind the load: no threads; of connections the 8 that boughd keeps to
# bough-fs (fsclient.h); of files and memory what caches hold (layers that were read lately). A leak
# of 100 bytes a request would be more, within a minute.
GROWN = {"threads": 4, "sockets": 12, "fds": 200, "anon_kib": 24 << 10}


def look(pid):
    """Memory, descriptors and threads of a process."""
    with open("/proc/%d/status" % pid) as f:
        status = dict(line.split(":", 1) for line in f if ":" in line)
    pss = 0
    with open("/proc/%d/smaps_rollup" % pid) as f:
        for line in f:
            if line.startswith("Pss:"):
                pss = int(line.split()[1])
    open_files = []
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            open_files.append(os.readlink("/proc/%d/fd/%s" % (pid, fd)))
        except FileNotFoundError:
            pass
    return {"rss_kib": int(status["VmRSS"].split()[0]), "pss_kib": pss,
            "peak_kib": int(status["VmHWM"].split()[0]),
            "anon_kib": int(status["RssAnon"].split()[0]),
            "threads": int(status["Threads"]), "fds": len(open_files),
            "sockets": sum(name.startswith("socket:") for name in open_files)}


class Service:
    def __init__(self, root):
        self.root, self.sock = root, root + "/run/boughd.sock"
        env = dict(os.environ, BOUGH_ROOT=root)
        subprocess.run([os.environ["BOUGH_BIN"] + "/boughd", "--root", root, "--daemon"],
                       check=True, env=env)
        self.client = bough.Client(self.sock)
        deadline = time.time() + 20
        while not self.client.health()["ok"]:
            if time.time() > deadline:
                raise SystemExit("bough-fs doesn't come up")
            time.sleep(0.1)

    def look(self):
        health = self.client.health()
        return {"boughd": look(health["pid"]), "bough-fs": look(health["fs"]["pid"])}

    def settle(self, like=None, patience=20):
        """Until the threads and descriptors are as they were, or nothing changes any more."""
        end, before = time.time() + patience, None
        while time.time() < end:
            now = self.look()
            counts = [(v["threads"], v["fds"]) for v in now.values()]
            if like and not leaks(like, now):
                return now
            if not like and counts == before:
                return now
            before = counts
            time.sleep(0.5)
        return self.look()


def prepare(service, n):
    """Workspaces with files in them; the first one's snapshot is what `create` takes."""
    first = service.client.workspaces.create("load")
    block = os.urandom(1 << 20)
    for i in range(100):
        first.files.write("small-%d" % i, block[i * 4096:i * 4096 + 4096])
    first.files.write("big", block)
    first.files.mkdir("out")
    first.save("load-base")
    return [first] + first.fork(name="load", count=n - 1)


def run(service, ids, clients, seconds, mix, rate=0):
    r = subprocess.run([os.environ["BOUGH_BIN"] + "/bench/load", service.sock, str(clients),
                        str(seconds), str(rate), mix], input="\n".join(ids), text=True,
                       stdout=subprocess.PIPE)
    if not r.stdout:
        raise SystemExit("load failed")
    return json.loads(r.stdout)


class Watch(threading.Thread):
    """The daemons' largest memory while something runs."""

    def __init__(self, service):
        super().__init__(daemon=True)
        self.service, self.peak, self.ended = service, {}, threading.Event()
        self.pids = {k: v for k, v in zip(("boughd", "bough-fs"), (
            service.client.health()["pid"], service.client.health()["fs"]["pid"]))}

    def run(self):
        while not self.ended.wait(0.5):
            for name, pid in self.pids.items():
                now = look(pid)
                peak = self.peak.setdefault(name, dict(now))
                for k, v in now.items():
                    peak[k] = max(peak[k], v)


def leaks(before, after):
    found = []
    for name, now in after.items():
        was = before[name]
        for what, bound in GROWN.items():
            if now[what] - was[what] > bound:
                found.append("%s: %s from %d to %d" % (name, what, was[what], now[what]))
    return found


NAMES = {"get": "GET 4 KiB", "put": "PUT 4 KiB", "list": "list 100 files", "stat": "GET workspace",
         "get_1m": "GET 1 MiB", "put_1m": "PUT 1 MiB", "fork": "fork, mounted",
         "save": "save", "diff": "diff", "create": "create, mounted", "delete": "delete",
         "delete_snapshot": "delete snapshot"}


def table(title, results):
    """Columns of p50 and p99, in milliseconds."""
    print("\n%s" % title)
    print("%-18s" % "" + "".join("%24s" % name for name in results))
    print("%-18s" % "ms" + "%12s%12s" % ("p50", "p99") * len(results))
    for op, name in NAMES.items():
        cells = ""
        for r in results.values():
            o = r["ops"].get(op)
            cells += "%12.2f%12.2f" % (o["p50_us"] / 1000, o["p99_us"] / 1000) if o else " " * 24
        if cells.strip():
            print("%-18s%s" % (name, cells))
    print("%-18s" % "requests/s" + "".join(
        "%24d" % (r["requests"] / r["seconds"]) for r in results.values()))
    print("%-18s" % "errors" + "".join("%24d" % r["errors"] for r in results.values()))


def grown(before, after, peak):
    print("\n%-18s%12s%12s%12s" % ("", "before", "at most", "after"))
    for name in after:
        for what in ("anon_kib", "threads", "sockets", "fds"):
            print("%-18s%12d%12d%12d" % (name + " " + what, before[name][what],
                                         peak.get(name, after[name])[what], after[name][what]))


def mixed(service, args, out):
    ids = [w.id for w in prepare(service, WORKSPACES)]
    run(service, ids, args.clients, 1 if args.quick else 5, MIX)  # pools and caches fill
    alone = run(service, ids, 1, 1 if args.quick else 10, MIX)
    # As many threads as there are connections once were: their stacks and arenas are kept.
    before = service.settle()
    watch = Watch(service)
    watch.start()
    many = run(service, ids, args.clients, args.seconds, MIX)
    watch.ended.set()
    watch.join()
    after = service.settle(before)
    results = {"1 client": alone, "%d clients" % args.clients: many}
    if not args.quick:
        rate = args.rate or int(0.3 * many["requests"] / many["seconds"])
        results["%d/s arrive" % rate] = run(service, ids, args.clients, 20, MIX, rate)
    out["mixed"] = {"results": results, "before": before, "after": after, "peak": watch.peak}
    table("%d workspaces, for %d s" % (WORKSPACES, args.seconds), results)
    grown(before, after, watch.peak)
    faults = leaks(before, after)
    faults += ["%d errors: %s" % (r["errors"], name) for name, r in results.items() if r["errors"]]
    return faults


def crowd(service, args, out):
    """Many workspaces, of which some are mounted."""
    base = service.client.snapshots.get("load-base")
    empty, times, ids = service.settle(), [], []
    for i in range(args.many):
        t = time.perf_counter()
        ws = service.client.workspaces.create("m-%d" % i, source=base, mount=i < args.mounted)
        times.append(time.perf_counter() - t)
        if i < args.mounted:
            ids.append(ws.id)
    full = service.settle()
    t = time.perf_counter()
    n = sum(1 for _ in service.client.workspaces.list(page=1000))
    listed = time.perf_counter() - t
    results = {"1 client": run(service, ids, 1, 10, MIX),
               "%d clients" % args.clients: run(service, ids, args.clients, 20, MIX)}
    after = service.settle(full)
    mounted, others = sorted(times[:args.mounted]), sorted(times[args.mounted:])
    out["crowd"] = {"results": results, "before": empty, "full": full, "after": after,
                    "list_s": listed,
                    "create_mounted_us": [int(1e6 * mounted[len(mounted) * p // 100])
                                          for p in (50, 99)],
                    "create_us": [int(1e6 * others[len(others) * p // 100]) for p in (50, 99)]}
    table("%d workspaces, %d mounted" % (n, args.mounted), results)
    print("%-18s%12.2f%12.2f  one after the other, mounted" % (
        "create", *(us / 1000 for us in out["crowd"]["create_mounted_us"])))
    print("%-18s%12.2f%12.2f  not mounted" % (
        "", *(us / 1000 for us in out["crowd"]["create_us"])))
    print("%-18s%12.2f  all, in pages of 1,000" % ("list", 1000 * listed))
    grown(empty, after, full)
    return ["%d errors: %s" % (r["errors"], name) for name, r in results.items() if r["errors"]]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--quick", action="store_true")
    p.add_argument("--clients", type=int, default=200)
    p.add_argument("--seconds", type=float, default=0)
    p.add_argument("--rate", type=int, default=0)
    p.add_argument("--many", type=int, default=0)
    p.add_argument("--mounted", type=int, default=300)
    p.add_argument("--json")
    p.add_argument("--work", default=None)
    args = p.parse_args()
    args.seconds = args.seconds or (5 if args.quick else 60)
    out, faults = {"clients": args.clients, "seconds": args.seconds}, []
    with tempfile.TemporaryDirectory(prefix="bough-load.", dir=args.work) as folder:
        root = folder + "/root"
        service = Service(root)
        try:
            faults = mixed(service, args, out)
            if args.many:
                faults += crowd(service, args, out)
        finally:
            service.client.shutdown()
            subprocess.run([os.environ["BOUGH_BIN"] + "/bough", "--root", root, "down"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(out, f, indent=1)
            f.write("\n")
    for fault in faults:
        print("load: %s" % fault, file=sys.stderr)
    return 1 if faults else 0


sys.exit(main())
