"""Uses up what there is of one thing, and says how much it got: `bombs.py KIND`."""
import errno
import fcntl
import os
import signal
import sys
import time

kind = sys.argv[1]


def count(fn, most):
    n = 0
    try:
        while n < most:
            fn(n)
            n += 1
    except OSError as e:
        print(n, errno.errorcode[e.errno], flush=True)
        return
    print(n, "no limit", flush=True)


keep = []
if kind == "fork":
    def fork(_):
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
    count(fork, 5000)
elif kind == "memory":
    for _ in range(4096):
        keep.append(b"x" * (1 << 20))
    print("no limit")
elif kind in ("disk", "shm"):
    f = os.open("/tmp/big" if kind == "disk" else "/dev/shm/big", os.O_WRONLY | os.O_CREAT)
    count(lambda _: os.write(f, b"y" * (1 << 20)), 4096)
elif kind in ("inode", "shm-inode"):
    at = "/tmp/many" if kind == "inode" else "/dev/shm/many"
    os.mkdir(at)
    count(lambda n: os.close(os.open(f"{at}/{n}", os.O_CREAT)), 100000)
elif kind == "inotify":
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)

    def inotify(_):
        if libc.inotify_init() < 0:
            raise OSError(ctypes.get_errno(), "")
    count(inotify, 15000)
elif kind == "pipe":
    def pipe(_):
        r, w = os.pipe()
        fcntl.fcntl(w, 1031, 1 << 20)
        keep.append((r, w))
    count(pipe, 9000)
elif kind == "kill":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        os.kill(-1, signal.SIGTERM)
    except OSError:
        pass
    print("alive", flush=True)
elif kind == "requests":  # of files that nobody knows yet, reads, writes and syncs, 60 at a time
    block = b"r" * (1 << 20)

    def flood(n):
        f = os.open(f"/workspace/flood-{n % 8}", os.O_RDWR | os.O_CREAT)
        while True:
            os.path.lexists(f"/workspace/none-{n}-{time.time_ns()}")
            if n % 3:
                os.pwrite(f, block[:1 << 12 if n % 2 else 1 << 20], n << 12)
            if n % 3 == 1:
                os.fsync(f)
            if n % 3 == 0:
                os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
                os.pread(f, 1 << 20, 0)
    children = []
    for n in range(60):
        pid = os.fork()
        if pid == 0:
            flood(n)
        children.append(pid)
    time.sleep(2)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)
    print(len(children))
elif kind == "cpu":
    end = time.time() + 2
    while time.time() < end:
        pass
    print(round(time.process_time(), 1))
