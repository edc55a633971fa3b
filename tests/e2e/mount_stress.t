#!/usr/bin/env python3
"""Mounts, forks, restores, unmounts and deletes beside each other, with programs at work in
all of them. Nothing may hang, fail in an unforeseen way, or be left behind; and a restore shows
at once, through everything that the kernel has cached.

    mount_stress.t [SECONDS [SEED]]
"""
import errno
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SERVER = os.environ["BOUGH_BIN"] + "/bough-fs"
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 6
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else int(os.environ.get("BOUGH_SEED", time.time()))
# What may happen to a program when its workspace is unmounted, deleted or restored below it.
# (EEXIST: makedirs finds a name, and then no folder there. ECANCELED: by the ring.)
FORESEEN = {errno.ENOENT, errno.ENOTCONN, errno.ECONNABORTED, errno.ESTALE, errno.ENOTDIR, errno.ENODEV, errno.EEXIST,
            errno.ECANCELED}
number = failed = 0


def report(ok, name, note=""):
    global number, failed
    number += 1
    if not ok:
        failed += 1
        print("# " + str(note).replace("\n", "\n# "))
    print(f"{'' if ok else 'not '}ok {number} - {name}", flush=True)


class Control:
    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.s.settimeout(60)  # a hang is a failure
        self.s.connect(path)

    def __call__(self, op, **q):
        self.s.send(json.dumps({"op": op, **q}).encode())
        return json.loads(self.s.recv(1 << 20))


class Stress:
    def __init__(self, transport):
        self.top = tempfile.mkdtemp(prefix="stress.")
        self.log = self.top + "/log"
        self.transport = transport
        self.surprises = []
        self.counts = {}

    def surprise(self, what):
        if len(self.surprises) < 10:
            self.surprises.append(what)

    def start(self):
        with open(self.log, "w") as log:
            self.p = subprocess.Popen([SERVER, "--root", self.top + "/root", "--foreground", "--transport",
                                       self.transport, "--mount", f"ws_p={self.top}/ws_p"], stderr=log)
        for _ in range(1000):
            if "serving" in open(self.log).read() or self.p.poll() is not None:
                break
            time.sleep(0.01)
        self.end = time.time() + SECONDS

    def work(self, path, seed, end):
        r = random.Random(seed)
        while time.time() < end:
            try:
                d = f"{path}/d{r.randrange(5)}"
                f = f"{d}/x{r.randrange(30)}"
                k = r.randrange(7)
                os.makedirs(d, exist_ok=True)
                if k < 3:
                    with open(f, "wb") as out:
                        out.write(os.urandom(r.choice((10, 5000, 300000))))
                elif k == 3:
                    with open(f, "rb") as inp:
                        inp.read()
                elif k == 4:
                    os.unlink(f)
                elif k == 5:
                    os.rename(f, f"{path}/d{r.randrange(5)}/x{r.randrange(30)}")
                else:
                    for e in os.scandir(d):
                        e.stat(follow_symlinks=False)
            except OSError as e:
                if e.errno not in FORESEEN:
                    self.surprise(f"work in {path}: {e}")
                if e.errno != errno.ENOENT:
                    time.sleep(0.001)

    def restored(self, ask, ws):
        """What is made after the seal must be gone after the restore, for readers of any kind."""
        a = ask("seal", id=ws)
        if "ok" not in a:
            return a
        mark = f"{self.top}/{ws}/mark"
        mounted = ask("usage", id=ws).get("mounted")
        if mounted:
            with open(mark, "w") as f:
                f.write("x")
            os.stat(mark)
        a = ask("restore", id=ws, stack=a["stack"])
        if "ok" in a and mounted:
            if os.path.exists(mark):
                self.surprise(f"{mark} is there after the restore")
            try:
                if "mark" in os.listdir(f"{self.top}/{ws}"):
                    self.surprise(f"{mark} is listed after the restore")
            except OSError as e:
                if e.errno not in FORESEEN:
                    self.surprise(f"list {ws}: {e}")
        return a

    def live(self, number):
        ask, r, mine, helpers = Control(self.top + "/root/run/fs.sock"), random.Random(SEED + number), [], []
        ops = ("fork", "fork", "umount", "mount", "restore", "seal", "delete", "usage", "stats", "list", "close",
               "trim", "sync")
        for i in range(1 << 30):
            if time.time() > self.end:
                break
            op, ws = r.choice(ops), r.choice(mine) if mine else None
            if op == "fork":
                if len(mine) > 6:
                    continue
                names = [f"ws_{number}_{i}_{j}" for j in range(2)]
                a = ask("fork", id=r.choice(["ws_p"] + mine),
                        children=[{"id": n, "path": f"{self.top}/{n}"} for n in names])
                mine += names
            elif op in ("stats", "list", "trim"):
                a = ask(op)
            elif not ws:
                continue
            elif op == "mount":
                a = ask("mount", id=ws, path=f"{self.top}/{ws}")
            elif op == "restore":
                a = self.restored(ask, ws)
            else:
                a = ask(op, id=ws)
                if op == "delete":
                    mine.remove(ws)
            if "ok" not in a:
                self.surprise(f"{op} {ws}: {a}")
            self.counts[op] = self.counts.get(op, 0) + 1
            if ws and op not in ("delete", "restore") and r.random() < 0.5:
                t = threading.Thread(target=self.work, args=(f"{self.top}/{ws}", i, time.time() + 0.2))
                t.start()
                helpers.append(t)
        for t in helpers:
            t.join()

    def guarded(self, fn, *args):
        try:
            fn(*args)
        except Exception as e:
            self.surprise(f"{fn.__name__}: {type(e).__name__} {e}")

    def run(self):
        name = self.transport
        self.start()
        threads = [threading.Thread(target=self.guarded, args=a) for a in
                   [(self.work, self.top + "/ws_p", s, self.end) for s in range(3)] +
                   [(self.live, k) for k in range(3)]]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        report(not self.surprises, f"{name}: {sum(self.counts.values())} operations", "\n".join(self.surprises))
        self.p.terminate()
        try:
            code = self.p.wait(60)
        except subprocess.TimeoutExpired:
            code = "none: it hangs"
        log = open(self.log).read()
        report(code == 0 and " ERROR " not in log, f"{name}: a clean end", f"exit {code}\n{log[-3000:]}")
        left = [line.split()[1] for line in open("/proc/self/mounts") if self.top in line]
        report(not left, f"{name}: nothing is left mounted", left)

    def clean(self):
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGKILL)
            self.p.wait()
        for line in reversed(open("/proc/self/mounts").readlines()):
            if line.split()[1].startswith(self.top + "/"):
                subprocess.run(["umount", "-l", line.split()[1]], check=False)
        shutil.rmtree(self.top, ignore_errors=True)


if not os.path.exists("/dev/fuse") or os.geteuid() != 0:
    print("1..0 # SKIP needs root and /dev/fuse")
    sys.exit(0)
print(f"# seed {SEED}")
switch = "/sys/module/fuse/parameters/enable_uring"
ring = os.path.exists(switch) and open(switch).read().strip() == "Y"
for transport in ["dev"] + ["ring"] * ring:
    s = Stress(transport)
    try:
        s.run()
    finally:
        s.clean()
if not ring:
    number += 1
    print(f"ok {number} - ring # SKIP no io_uring for FUSE")
print(f"1..{number}")
sys.exit(failed != 0)
