#!/bin/bash
# bough-hold by itself: what it keeps, what it gives, when it lets go.
. "${0%/*}/lib.sh" || exit 1

cat >"$T/hold.py" <<'PY'
import array, os, select, socket, struct, subprocess, sys, time

HELLO, PUT, DROP, NEXT, ENTRY, END, PING, PONG, DROP_ALL = range(1, 10)
tests = 0
def ok(good, what):
    global tests
    tests += 1
    print(("ok " if good else "not ok ") + what, flush=True)

path = sys.argv[1]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(path)
listener.listen(8)
hold = subprocess.Popen(["bough-hold", "--root", path + ".root", "--listener", str(listener.fileno()),
                         "--patience", "6"], pass_fds=[listener.fileno()])
listener.close()

def connect():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(path)
    s.settimeout(60)
    return s
def say(s, op, key=0, blob=b"", fd=None):
    msg = struct.pack("<IIQ", op, 0, key) + blob
    s.sendmsg([msg], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd is not None else [])
def hear(s):
    data, anc, *_ = s.recvmsg(65536, 64)
    fds = [f for _, _, d in anc for f in array.array("i", d)]
    if not data:
        return None
    op, _, key = struct.unpack("<IIQ", data[:16])
    return op, key, data[16:], fds
def closed(s):
    try:
        return s.recv(1) == b""
    except ConnectionResetError:
        return True
def kept(s):
    all, key = [], 0
    while True:
        say(s, NEXT, key)
        op, key, blob, fds = hear(s)
        if op == END:
            return all
        all.append((key, blob))
        for f in fds:
            os.close(f)

s = connect()
say(s, HELLO)
op, _, who, _ = hear(s)
ok(op == HELLO and len(who) > 5, "says which program it is")
reads, writes = zip(*[os.pipe() for _ in range(3)])
for i, w in enumerate(writes):
    say(s, PUT, 30 - 10 * i, b"blob%d" % i, w)
    os.close(w)
ok(kept(s) == [(10, b"blob2"), (20, b"blob1"), (30, b"blob0")], "keeps, in order of key")
say(s, PUT, 20, b"another")
ok(kept(s)[1] == (20, b"another"), "another blob for what it has")
say(s, PUT, 21, b"nothing")
ok(len(kept(s)) == 3, "keeps nothing without a descriptor")
def ended(r, wait=0):
    return bool(select.select([r], [], [], wait)[0])
say(s, DROP, 10)
say(s, PING)
ok(hear(s)[0] == PONG and ended(reads[2]) and not ended(reads[1]), "lets go what it is told to")

for bad in [b"", b"x", struct.pack("<IIQ", 99, 0, 0), struct.pack("<IIQ", PUT, 1, 0), struct.pack("<IIQ", ENTRY, 0, 5),
            struct.pack("<IIQ", PING, 0, 0) + b"x" * 20000]:
    other = connect()
    other.send(bad)
    ok(closed(other), f"hangs up on {bad[:8]!r}")
    other.close()
other = connect()
for fd in range(4):
    r, w = os.pipe()
    say(other, NEXT, 0, b"", w)
    hear(other)
    os.close(w)
    ok(ended(r, 5), "keeps no descriptor that it wasn't to keep")
    os.close(r)
other.close()
ok(len(kept(s)) == 2, "has all after that")

s.close()
time.sleep(1)
s = connect()
say(s, HELLO)
hear(s)
time.sleep(6.5)
ok(len(kept(s)) == 2, "waits for a server that comes back in time")
r, w = os.pipe()
say(s, PUT, 40, b"sent by who died", w)
os.close(w)
s.close()
s = connect()
ok(any(k == 40 for k, _ in kept(s)), "has what a server sent last")
s.close() # no server: it only looked
start = time.time()
ok(select.select([reads[0]], [], [], 60)[0] and time.time() - start > 0.5, "lets go without a server")
ok(hold.wait(60) == 0, "and ends")
PY
take_tap <(timeout 200 python3 "$T/hold.py" "$T/sock" 2>"$T/err")
is 'the test ran to its end' "$(grep -c Traceback "$T/err")" 0
[ ! -s "$T/err" ] || diag "$(tail -n 5 "$T/err")"
ok 'all of it' test $tap_n -ge 20
run bough-hold --listener x
is 'no descriptor' $code 2
run bough-hold
is 'no listener' $code 2
done_testing
