#!/usr/bin/env python3
"""The life of mounts: what a server does when mounts are taken away, points are in use, it is
killed, its state vanishes; as root and as an ordinary user; and the budget of requests."""
import errno
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

BIN = os.environ["BOUGH_BIN"]
SERVER = BIN + "/bough-fs"
ROOT = os.geteuid() == 0
if ROOT and "MOUNT_T_PRIVATE" not in os.environ:
    # In mounts of our own, where /dev/fuse can be opened to ordinary users for a while.
    os.environ["MOUNT_T_PRIVATE"] = "1"
    os.execvp("unshare", ["unshare", "-m", sys.executable, __file__])
number = failed = 0
servers = []


def report(ok, name, note=""):
    global number, failed
    number += 1
    if not ok:
        failed += 1
        if note:
            print("# " + str(note).replace("\n", "\n# "))
    print(f"{'' if ok else 'not '}ok {number} - {name}", flush=True)
    return ok


def skip(name, why):
    global number
    number += 1
    print(f"ok {number} - {name} # SKIP {why}")


if not os.path.exists("/dev/fuse"):
    print("1..0 # SKIP no /dev/fuse")
    sys.exit(0)
top = tempfile.mkdtemp(prefix="mount.")
os.chmod(top, 0o755)


def wait_for(what, seconds=40):
    end = time.time() + seconds
    while time.time() < end:
        if what():
            return True
        time.sleep(0.01)
    return False


class Server:
    """bough-fs in the background of its own, and a control connection to it."""

    def __init__(self, name, *args, before=(), mount=True, ready=True):
        self.root = f"{top}/{name}"
        self.mnt = f"{top}/{name}.mnt"
        self.log = open(f"{top}/{name}.log", "w+")
        cmd = [*before, SERVER, "--root", self.root, "--foreground", *args]
        if mount:
            cmd += ["--mount", f"ws_a={self.mnt}"]
        self.p = subprocess.Popen(cmd, stderr=self.log, stdin=subprocess.DEVNULL)
        servers.append(self)
        if ready:
            assert wait_for(lambda: "serving" in self.text() or self.p.poll() is not None), self.text()

    def text(self):
        self.log.flush()
        return open(self.log.name).read()

    def ask(self, op, **q):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.settimeout(30)
        s.connect(self.root + "/run/fs.sock")
        s.send(json.dumps({"op": op, **q}).encode())
        a = json.loads(s.recv(300000))
        s.close()
        return a

    def requests(self):
        return self.ask("stats")["opcodes"]

    def end(self, sig=signal.SIGTERM):
        self.p.send_signal(sig)
        return self.p.wait(30)


def error_of(answer):
    return answer.get("error", {}).get("errno", 0)


def mounted(path):  # without asking the mount, which may be somebody else's, or dead
    return any(line.split()[1] == path for line in open("/proc/self/mounts"))


def put(path, text):  # not by open(), which asks each file whether it is a terminal
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(fd, text.encode())
    os.close(fd)


def get(path):
    fd = os.open(path, os.O_RDONLY)
    text = b""
    while more := os.read(fd, 1 << 20):
        text += more
    os.close(fd)
    return text.decode()


def usage_errors():
    for args in ([], ["--root"], ["--nonsense"], ["--root", "x", "more"], ["--root", "x", "--workers", "0"],
                 ["--root", "x", "--transport", "pigeon"], ["--root", "x", "--mask-cap", "y"]):
        r = subprocess.run([SERVER, *args], capture_output=True, text=True)
        report(r.returncode == 2 and r.stderr.count("\n") == 1, f"usage: {' '.join(args) or 'nothing'}", r)
    r = subprocess.run([SERVER, "--help"], capture_output=True, text=True)
    report(r.returncode == 0 and "Example" in r.stdout, "--help")
    r = subprocess.run([SERVER, "--version"], capture_output=True, text=True)
    report(r.returncode == 0 and r.stdout.startswith("bough-fs "), "--version")


def background():
    root, mnt = f"{top}/bg", f"{top}/bg.mnt"
    with open(f"{top}/bg.log", "w") as log:
        r = subprocess.run([SERVER, "--root", root, "--mount", f"ws_a={mnt}"], stderr=log,
                           stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    report(r.returncode == 0 and mounted(mnt), "in the background it is ready on return")
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(root + "/run/fs.sock")
    s.send(b'{"op":"quit"}')
    ok = b"ok" in s.recv(1000)
    s.settimeout(20)
    report(ok and s.recv(1000) == b"" and not mounted(mnt),
           "quit: the connection ends when all is unmounted")
    r = subprocess.run([SERVER, "--root", "/proc/none"], capture_output=True, text=True)
    report(r.returncode == 1 and "ERROR" in r.stderr, "a root that can't be is told at once", r)


def in_use():
    s = Server("use")
    r = subprocess.run([SERVER, "--root", s.root, "--foreground"], capture_output=True, text=True)
    report(r.returncode == 1 and r.stderr.count("\n") == 1, "a second server on one root", r.stderr)
    put(s.mnt + "/f", "text")
    report(error_of(s.ask("create", id="ws_b", uid=0, gid=0, path=s.mnt)) == errno.EBUSY,
           "a mount point that is in use")
    report(error_of(s.ask("usage", id="ws_b")) == errno.ENOENT, "and nothing is left of the attempt")
    put(top + "/file", "x")
    report(error_of(s.ask("create", id="ws_b", uid=0, gid=0, path=top + "/file")) == errno.ENOTDIR,
           "a mount point that is a file")
    report(s.end() == 0 and not mounted(s.mnt), "a clean end", s.text())
    s = Server("use")
    report(get(s.mnt + "/f") == "text", "what was written is there after a restart")
    s.end()


def taken_away():
    s = Server("taken")
    put(s.mnt + "/f", "text")
    umount = ["umount", s.mnt] if ROOT else ["fusermount3", "-u", s.mnt]
    subprocess.run(umount, check=True)
    a = s.ask("usage", id="ws_a")
    report(a["mounted"] is False and a["path"] is None, "unmounted by hand: it knows", a)
    report("ok" in s.ask("mount", id="ws_a", path=s.mnt) and get(s.mnt + "/f") == "text", "and mounts again")
    with open(s.mnt + "/f") as f:
        a = s.ask("umount", id="ws_a")
        report(a.get("busy") is True and not mounted(s.mnt), "busy: it is detached", a)
        report(f.read() == "text", "and serves who has it open")
        a = s.ask("mount", id="ws_a", path=s.mnt)
        report("ok" in a and get(s.mnt + "/f") == "text", "and can be mounted again", a)
    with open(s.mnt + "/f"):
        t = time.time()
        report(s.end() == 0 and time.time() - t < 40 and not mounted(s.mnt),
               "SIGTERM while a file is open", s.text())


def killed():
    s = Server("killed")
    for i in range(100):
        put(f"{s.mnt}/f{i}", f"text {i}")
    s.end(signal.SIGKILL)
    try:
        os.listdir(s.mnt)
        dead = False
    except OSError as e:
        dead = e.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    report(dead, "kill -9 leaves a dead mount")
    s = Server("killed")
    report(all(get(f"{s.mnt}/f{i}") == f"text {i}" for i in range(100)),
           "the next server takes it away and serves what was acknowledged", s.text())
    s.end()
    mounts = open("/proc/self/mounts").read()
    report(s.mnt not in mounts, "and nothing is left mounted", mounts)


def state_removed():
    s = Server("removed")
    put(s.mnt + "/f", "text")
    shutil.rmtree(s.root)
    report(wait_for(lambda: s.p.poll() is not None, 20), "its state removed: it ends", s.text())
    report(not mounted(s.mnt) and s.p.wait() >= 0, "and unmounts first", s.text())


def budget():
    s = Server("budget")

    def cost(name, most, fn, items=100):
        a = s.requests()
        fn()
        b = s.requests()
        # mount(2) doesn't wait for the answer to INIT.
        d = {k: b[k] - a.get(k, 0) for k in b if b[k] > a.get(k, 0) and k != "INIT"}
        ok = all(d.get(k, 0) <= most.get(k, 0) * items + (2 if most.get(k, 0) else 0) for k in d)
        report(ok, f"budget: {name}", f"{d} for {items}")

    def make():
        for i in range(100):
            put(f"{s.mnt}/d/f{i}", "x" * 3000)

    def each(fn):
        return lambda: [fn(f"{s.mnt}/d/f{i}") for i in range(100)]

    os.mkdir(s.mnt + "/d")
    put(s.mnt + "/d/first", "x")  # what the kernel asks once a mount: CREATE, OPEN, FLUSH
    os.listdir(s.mnt + "/d")
    get(s.mnt + "/d/first")
    # The directory's attributes once after each change of it; capabilities once a new file.
    cost("create, write, close", {"LOOKUP": 1, "MKNOD": 1, "WRITE": 1, "GETATTR": 1.1, "GETXATTR": 1}, make)
    each(os.stat)()
    cost("stat, warm", {}, each(os.stat))
    each(get)()
    each(os.stat)()
    cost("open, read, close, warm", {}, each(get))
    cost("stat of what isn't there, first", {"LOOKUP": 1}, each(lambda p: os.path.exists(p + "x")))
    cost("stat of what isn't there, again", {}, each(lambda p: os.path.exists(p + "x")))
    os.listdir(s.mnt + "/d")
    os.stat(s.mnt + "/d")
    cost("readdir, warm", {}, lambda: [os.listdir(s.mnt + "/d") for _ in range(100)])
    os.symlink("target", s.mnt + "/l")
    os.readlink(s.mnt + "/l")
    cost("readlink, warm", {}, lambda: [os.readlink(s.mnt + "/l") for _ in range(100)])
    cost("locks", {}, lambda: subprocess.run(["flock", s.mnt + "/d/f1", "true"], check=True))
    put(s.mnt + "/big", "x" * (8 << 20))
    fd = os.open(s.mnt + "/big", os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    # Half a MiB at once, where the server may tell the kernel so; else 128 KiB.
    cost("read of 8 MiB, cold", {"READ": 16 if ROOT else 64, "GETATTR": 1},
         lambda: [os.read(fd, 1 << 20) for _ in range(8)], 1)
    os.close(fd)
    s.ask("fork", id="ws_a", children=[{"id": "ws_b", "path": top + "/b"}])
    cost("first look at a fork", {"READDIRPLUS": 0.1, "LOOKUP": 0.02, "GETATTR": 0.03, "OPENDIR": 0.01},
         lambda: [os.stat(e) for e in os.scandir(top + "/b/d")])
    cost("first read in a fork", {"READ": 1, "OPEN": 0.01, "FLUSH": 0.01},
         lambda: [get(f"{top}/b/d/f{i}") for i in range(100)])
    s.end()


def idle():
    n = 40
    s = Server("idle")
    put(s.mnt + "/f", "text")
    before = s.ask("stats")["memory_bytes"]
    kids = [{"id": f"ws_{i}", "path": f"{top}/k{i}"} for i in range(n)]
    t = time.time()
    a = s.ask("fork", id="ws_a", children=kids)
    t = (time.time() - t) * 1000 / n
    report("ok" in a, f"a fork {n} ways ({t:.2f} ms a child)", a)
    for k in kids:
        put(k["path"] + "/big", "x" * (4 << 20))
        get(k["path"] + "/big")
    def each_kib():
        return (s.ask("stats")["memory_bytes"] - before) / n / 1024
    wait_for(lambda: each_kib() < 256, 60)  # what was written is on the disk in the end
    each = each_kib()
    name = f"an idle mount's memory: {each:.1f} KiB"
    if os.environ.get("VARIANT", "release") == "release":
        report(each < 256, name)
    else:
        skip(name, "memory under a sanitizer")
    threads = len(os.listdir(f"/proc/{s.p.pid}/task"))
    report(threads <= s.ask("stats")["workers"] + 6, f"threads with {n} mounts: {threads}")
    t = time.time()
    report(s.end() == 0, "and all are unmounted at the end", s.text())
    print(f"# the end took {time.time() - t:.2f} s")


def ordinary_user():
    if not ROOT:
        skip("as an ordinary user", "not root")  # all of the above ran as one
        return
    node = top + "/fuse"
    os.mknod(node, 0o666 | stat.S_IFCHR, os.stat("/dev/fuse").st_rdev)
    os.chmod(node, 0o666)
    subprocess.run(["mount", "--bind", node, "/dev/fuse"], check=True)
    home = top + "/home"
    os.mkdir(home)
    os.chown(home, 65534, 65534)
    as_user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    s = Server("home/user", before=as_user)
    if not report(mounted(s.mnt), "an ordinary user mounts by fusermount3", s.text()):
        return
    sh = lambda c: subprocess.run([*as_user, "sh", "-ec", c], capture_output=True, text=True)
    r = sh(f"cd {s.mnt}; echo hello >f; mkdir d; mv f d; cat d/f; stat -c %u d")
    report(r.stdout == "hello\n65534\n", "and works in it", r)
    with open("/etc/fuse.conf") if os.path.exists("/etc/fuse.conf") else open("/dev/null") as f:
        allowed = any(line.strip() == "user_allow_other" for line in f)
    try:
        os.listdir(s.mnt)
        report(allowed, "others only where fuse.conf lets them in")
    except PermissionError:
        report(not allowed, "others only where fuse.conf lets them in")
    report("ok" in s.ask("fork", id="ws_a", children=[{"id": "ws_b", "path": home + "/b"}]), "forks", s.text())
    report(sh(f"cat {home}/b/d/f").stdout == "hello\n", "reads in the fork")
    report(s.ask("umount", id="ws_b").get("busy") is False, "unmounts")
    s.end(signal.SIGKILL)
    s = Server("home/user", before=as_user)
    report(sh(f"cat {s.mnt}/d/f").stdout == "hello\n", "is back after kill -9", s.text())
    report(s.end() == 0 and not mounted(s.mnt), "and ends cleanly", s.text())
    no_device = "mount -t tmpfs none /dev && exec \"$@\""
    r = subprocess.run(["unshare", "-m", "sh", "-c", no_device, "sh", SERVER,
                        "--root", top + "/nofuse", "--foreground", "--mount", f"ws_a={top}/nofuse.mnt"],
                       capture_output=True, text=True)
    report(r.returncode == 1 and "/dev/fuse" in r.stderr, "no /dev/fuse: one line says so", r.stderr)


try:
    for part in (usage_errors, background, in_use, taken_away, killed, state_removed, budget, idle, ordinary_user):
        try:
            part()
        except Exception as e:  # the other parts are worth a try
            report(False, f"{part.__name__}: {type(e).__name__}: {e}", servers[-1].text() if servers else "")
finally:
    for s in servers:
        if s.p.poll() is None:
            s.p.kill()
            s.p.wait()
    for line in reversed(open("/proc/self/mounts").readlines()):
        point = line.split()[1]
        if point.startswith(top + "/"):
            subprocess.run(["umount", "-l", point] if ROOT else ["fusermount3", "-uz", point])
    shutil.rmtree(top, ignore_errors=True)
print(f"1..{number}")
sys.exit(failed != 0)
