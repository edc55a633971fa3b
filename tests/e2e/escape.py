"""Tries to get out of a sandbox, from within: a line for each attempt, "ok NAME" when it was
contained, "OUT NAME: why" when it wasn't. Arguments: shared|own (whose kernel this is), the
canary's path on the host, its text, the port and the abstract socket that the host listens on."""
import ctypes
import errno
import os
import resource
import socket
import stat
import struct
import sys

KERNEL, CANARY, TEXT, PORT, ABSTRACT = sys.argv[1:6]
libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"
# Numbers of x86_64; those from 424 on are the same everywhere.
CALLS = {
    "mount": 165, "umount2": 166, "pivot_root": 155, "unshare": 272, "setns": 308, "bpf": 321,
    "perf_event_open": 298, "keyctl": 250, "add_key": 248, "request_key": 249, "userfaultfd": 323,
    "io_uring_setup": 425, "io_uring_enter": 426, "open_by_handle_at": 304, "clone3": 435,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsmount": 432, "mount_setattr": 442,
    "init_module": 175, "finit_module": 313, "kexec_load": 246, "reboot": 169, "swapon": 167,
    "settimeofday": 164, "syslog": 103, "chroot": 161, "sethostname": 170, "acct": 163,
    "iopl": 172, "quotactl": 179, "fanotify_init": 300, "kcmp": 312, "pidfd_getfd": 438,
    "modify_ldt": 154,
}
NEWNS, NEWUSER, NEWPID, NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000


def say(name, contained, why=""):
    print(f"ok {name}" if contained else f"OUT {name}: {why}", flush=True)


def call(name, *args):
    ctypes.set_errno(0)
    r = libc.syscall(CALLS[name], *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return r, ctypes.get_errno()


def refused(name, what, *args):
    r, e = call(what, *args)
    say(name, r < 0, f"returned {r}")


def raises(name, fn):
    try:
        fn()
    except OSError:
        say(name, True)
    else:
        say(name, False, "it worked")


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def calls():
    buf = ctypes.create_string_buffer(4096)
    refused("mount a tmpfs", "mount", b"x", b"/mnt", b"tmpfs", 0, b"")
    refused("mount the host's disk", "mount", b"/dev/vda", b"/mnt", b"ext4", 0, b"")
    refused("mount proc", "mount", b"proc", b"/mnt", b"proc", 0, b"")
    refused("remount /usr", "mount", b"", b"/usr", b"", 4096 | 32, b"")
    refused("unmount a mask", "umount2", b"/proc/sys", 2)
    refused("pivot_root", "pivot_root", b"/", b"/mnt")
    for n in ("init_module", "finit_module", "kexec_load", "swapon", "settimeofday", "acct",
              "iopl", "quotactl"):
        refused(n, n, buf, 0, 0, 0)
    refused("reboot", "reboot", 0xfee1dead, 672274793, 0x4321fedc, 0)
    refused("chroot", "chroot", b"/tmp")
    refused("sethostname", "sethostname", b"evil", 4)
    if KERNEL != "shared":
        return
    refused("the kernel's log", "syslog", 3, buf, 4096)
    for flag, what in ((NEWUSER, "user"), (NEWNS, "mount"), (NEWPID, "pid"), (NEWNET, "net"),
                       (0x80, "time")):
        refused(f"a new {what} namespace", "unshare", flag)
    pid = libc.syscall(56, NEWUSER | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    say("clone into a user namespace", pid < 0, "it worked")
    for n in ("bpf", "perf_event_open", "keyctl", "add_key", "request_key", "userfaultfd",
              "io_uring_setup", "io_uring_enter", "open_by_handle_at", "open_tree", "move_mount",
              "fsopen", "fsmount", "mount_setattr", "fanotify_init", "kcmp", "pidfd_getfd",
              "setns"):
        r, e = call(n, 0, buf, 0, 0)
        say(n, r < 0 and e == errno.ENOSYS, f"returned {r}, errno {e}")
    r, e = call("clone3", buf, 88)
    say("clone3 sends libc to clone", r < 0 and e == errno.ENOSYS, f"{r} {e}")
    fd = os.open("/proc/self/ns/user", os.O_RDONLY)
    refused("setns to a namespace", "setns", fd, 0)
    os.close(fd)
    for family, name in ((40, "vsock"), (17, "packet"), (38, "the kernel's ciphers"), (44, "xdp")):
        raises(f"a socket of {name}", lambda f=family: socket.socket(f, socket.SOCK_DGRAM))
    for family, kind, protocol, name in (
            (2, 1, 132, "SCTP"), (10, 5, 132, "SCTP over IPv6"), (2, 6, 33, "DCCP"),
            (2, 1, 256, "SMC"), (2, 1, 262, "MPTCP"), (2, 2, 115, "L2TP"),
            (16, 3, 12, "the kernel's filters"), (16, 3, 21, "its ciphers' names"),
            (16, 3, 16, "any family of netlink")):
        ctypes.set_errno(0)
        r = libc.socket(family, kind, protocol)
        say(f"a socket of {name}", r < 0 and ctypes.get_errno() == errno.ENOSYS,
            f"{r} {ctypes.get_errno()}")
        if r >= 0:
            os.close(r)
    for family, kind, protocol in ((1, 1, 0), (2, 1, 0), (2, 1, 6), (2, 2, 17), (10, 1, 6),
                                   (10, 2, 0), (16, 3, 0), (16, 2, 4)):
        r = libc.socket(family, kind, protocol)
        say(f"a socket that programs need: {family} {kind} {protocol}", r >= 0, "refused")
        if r >= 0:
            os.close(r)


def files():
    for path, text in (("/proc/sys/kernel/core_pattern", "|/tmp/evil"),
                       ("/proc/sys/kernel/modprobe", "/tmp/evil"),
                       ("/proc/sys/vm/panic_on_oom", "1"), ("/proc/sysrq-trigger", "b"),
                       ("/proc/sys/fs/binfmt_misc/register", ":x:M::x::/x:"),
                       ("/proc/self/oom_score_adj", "-900"), ("/proc/self/uid_map", "0 0 1"),
                       ("/sys/kernel/uevent_helper", "/tmp/evil"),
                       ("/sys/power/state", "mem"), ("/proc/irq/default_smp_affinity", "1"),
                       ("/sys/fs/cgroup/cgroup.procs", "1"), ("/usr/bin/evil", "x"),
                       ("/.bough/init", "x"), ("/.bough/new", "x"), ("/usr/local/evil", "x")):
        if KERNEL == "own" and (path.startswith("/proc/") or path.startswith("/sys/")):
            continue  # they are the sentry's
        raises(f"write {path}", lambda p=path, t=text: write(p, t))
    for path in ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/kmsg", "/dev/mem",
                 "/dev/kmsg", "/dev/vda", "/dev/fuse", "/dev/kvm", "/proc/swaps",
                 "/proc/cmdline"):
        try:
            with open(path, "rb") as f:
                n = len(f.read(16))
        except OSError:
            n = 0
        say(f"read {path}", n == 0 or (KERNEL == "own" and path != "/dev/vda"), f"{n} bytes")
    if KERNEL == "shared":
        for at in ("block", "dmi"):
            seen = os.path.exists("/sys/devices/virtual/" + at) and \
                os.listdir("/sys/devices/virtual/" + at)
            say(f"the host's {at}", not seen, str(seen))
        core = resource.getrlimit(resource.RLIMIT_CORE)
        # No limit where the runtime may set none (spec_process.files_max).
        say("the host's program for cores", core == (1, 1) or core[1] == -1, str(core))
        for at in ("/tmp/node", "/dev/node", "node"):
            raises(f"make a device {at}",
                   lambda p=at: os.mknod(p, 0o666 | stat.S_IFCHR, os.makedev(1, 1)))
    for at in ("device-mem", "device-disk"):
        raises(f"open {at} of the image", lambda p=at: os.open(p, os.O_RDONLY))


def canary():
    """Every way to a path of the host that once worked somewhere."""
    name = CANARY.lstrip("/")
    up = "../" * 12
    places = ["", "/proc/1/root", "/proc/self/root", "/proc/1/cwd", "/proc/self/cwd",
              "/proc/self/fd/0", "/proc/1/fd/0", "/proc/1/task/1/root"]
    places += [f"/proc/{p}/fd/{n}" for p in ("self", "1") for n in range(3, 32)]
    places += ["/tmp", "/workspace", "/.bough", "/usr", "/dev/shm", "link-out", "link-up"]
    found = []
    for p in places:
        for path in (f"{p}/{name}", f"{p}/{up}{name}"):
            try:
                with open(path) as f:
                    if TEXT in f.read():
                        found.append(path)
            except OSError:
                pass
        try:
            os.chdir(p or "/")
            with open(up + name) as f:
                if TEXT in f.read():
                    found.append(f"cd {p}")
        except OSError:
            pass
    os.chdir("/workspace")
    say("a file of the host", not found, " ".join(found))
    open_now = [n for n in os.listdir("/proc/self/fd") if int(n) > 2]
    say("no descriptor was left open", len(open_now) <= 1, " ".join(open_now))
    info = open("/proc/self/mountinfo").read()
    say("mounts name no place of the host", CANARY.split("/")[2] not in info, info)


def others():
    pids = [int(p) for p in os.listdir("/proc") if p.isdigit()]
    say("sees no process of the host", len(pids) < 12, str(pids))
    say("is root of no host", open("/proc/self/uid_map").read().split()[1] != "0"
        or KERNEL == "own", "uid 0 is the host's")
    s = socket.socket(socket.AF_INET)
    s.settimeout(2)
    raises("the host's loopback", lambda: s.connect(("127.0.0.1", int(PORT))))
    u = socket.socket(socket.AF_UNIX)
    raises("the host's abstract sockets", lambda: u.connect("\0" + ABSTRACT))
    say("only a loopback", [n for _, n in socket.if_nameindex()] == ["lo"],
        str(socket.if_nameindex()))
    srv = socket.socket(socket.AF_INET)
    srv.bind(("127.0.0.1", 0))
    srv.listen()
    c = socket.create_connection(srv.getsockname(), 5)
    say("which is up", c is not None)
    say("/usr is nosuid", os.statvfs("/usr").f_flag & os.ST_NOSUID or KERNEL == "own", "no")
    if KERNEL == "shared":
        for pid in (os.getppid() + 100000, 2 ** 21):
            raises(f"signal {pid}", lambda p=pid: os.kill(p, 0))
            r = libc.ptrace(16, pid, 0, 0)
            say(f"ptrace {pid}", r < 0, "attached")


def setuid():
    """A file that is setuid for root gives another user nothing."""
    os.system("cp /usr/bin/id /tmp/sid && chown 0:0 /tmp/sid && chmod 6755 /tmp/sid")
    r, w = os.pipe()
    if os.fork() == 0:
        os.setgroups([])
        os.setresgid(1000, 1000, 1000)
        os.setresuid(1000, 1000, 1000)
        os.dup2(w, 1)
        os.execv("/tmp/sid", ["id", "-u"])
    os.close(w)
    got = os.read(r, 100).decode().strip()
    os.wait()
    say("setuid", got == "1000", got)


if X86 or KERNEL == "own":
    calls()
files()
canary()
others()
setuid()
print("done")
