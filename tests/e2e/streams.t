#!/bin/bash
# Streams of events: how soon they end when nobody hears them any more, or nobody may; that one who
# has ended only his side hears on; what a token of a path is told.
. "${0%/*}/lib.sh"
need_fuse

boughd --root "$BOUGH_ROOT" --daemon --listen 127.0.0.1:0 || bail 'boughd does not start'
port=$(sed -n 's/.*listens on 127.0.0.1:0, port \([0-9]*\)$/\1/p' "$BOUGH_ROOT/run/boughd.log")
bough_ok 'a workspace' create w -q
at=$(at w)
mkdir -p "$at/a/b" "$at/z"
echo x >"$at/z/secret"

python3 - "$BOUGH_ROOT" "$port" "$at" "$(pids_of boughd)" >"$T/out" 2>"$T/.err" <<'PY'
import http.client, json, os, socket, sys, time

root, port, at, pid = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
END = b"0\r\n\r\n"  # of a body in chunks
SOCK = root + "/run/boughd.sock"


def ok(what, good, more=""):
    print("%s %s%s" % ("ok" if good else "not ok", what, "" if good else ": " + str(more)), flush=True)


def sockets():
    n = 0
    for fd in os.listdir("/proc/%s/fd" % pid):
        try:
            n += os.readlink("/proc/%s/fd/%s" % (pid, fd)).startswith("socket:")
        except FileNotFoundError:
            pass
    return n


def unix():
    s = socket.socket(socket.AF_UNIX)
    s.connect(SOCK)
    return s


def tcp():
    return socket.create_connection(("127.0.0.1", port))


def call(method, path, body=None):
    c = http.client.HTTPConnection("d")
    c.sock = unix()
    c.request(method, path, json.dumps(body) if body is not None else None)
    r = c.getresponse()
    data = r.read()
    c.close()
    return json.loads(data) if data else None


def listen(s, path, token=None):
    s.settimeout(20)
    head = "GET %s HTTP/1.1\r\nHost: d\r\n" % path
    if token:
        head += "Authorization: Bearer %s\r\n" % token
    s.sendall((head + "\r\n").encode())
    got = b""
    while b"\nid: " not in got:
        more = s.recv(65536)
        if not more:
            break
        got += more
    return got


def hear(s, wanted, seconds=10):
    end, got = time.time() + seconds, b""
    while wanted not in got and time.time() < end:
        s.settimeout(max(0.1, end - time.time()))
        try:
            more = s.recv(65536)
        except TimeoutError:
            break
        if not more:
            return got + b"<end>"
        got += more
    return got


def settles(n, seconds):
    end = time.time() + seconds
    while sockets() > n and time.time() < end:
        time.sleep(0.1)
    return sockets()


def token(**k):
    return call("POST", "/v1/tokens", dict({"scope": "w"}, **k))


admin = token(scope="admin")["token"]
call("GET", "/v1/health")
WATCH = "/v1/workspaces/w/watch?recursive=1"
first = unix()
listen(first, WATCH)  # with it comes a connection to bough-fs, which stays
before = -1
while before != (before := sockets()):
    time.sleep(0.5)
for name, make in (("socket", unix), ("TCP", tcp)):
    who = None if make == unix else admin
    for what, path in (("watch", WATCH), ("events", "/v1/events")):
        some = [make() for i in range(5)]
        for s in some:
            listen(s, path, who)
        had = sockets()
        for s in some:
            s.close()
        now = settles(before + 1, 12)
        ok("%s, %s: who has gone is noticed" % (name, what), had >= before + 5 and now <= before + 1,
           "%d, then %d, then %d" % (before, had, now))

# ---- one who has ended his side only

halves = []
for name, make, who in (("socket", unix, None), ("TCP", tcp, admin)):
    for what, path, wanted in (("watch", WATCH, b'"half"'), ("events", "/v1/events", b"workspace.changed")):
        s = make()
        listen(s, path, who)
        s.shutdown(socket.SHUT_WR)
        halves.append((name, what, s, wanted))
time.sleep(2.5)
open(at + "/half", "w").close()
call("PATCH", "/v1/workspaces/w", {"description": "half"})
for name, what, s, wanted in halves:
    got = hear(s, wanted)
    ok("%s, %s: who has ended his side hears on" % (name, what), wanted in got, got)
    s.close()

# ---- tokens

for what, path in (("watch", WATCH), ("events", "/v1/events")):
    t = token()
    s = tcp()
    listen(s, path, t["token"])
    call("DELETE", "/v1/tokens/" + t["id"])
    begun = time.time()
    got = hear(s, END, 14)
    took = time.time() - begun
    ok("%s: ends with its token" % what, END in got and took < 12, "%.1f s" % took)
    t = token(expires_s=5)
    s = tcp()
    listen(s, path, t["token"])
    begun = time.time()
    got = hear(s, END, 18)
    took = time.time() - begun
    ok("%s: ends when it expires" % what, END in got and took < 16, "%.1f s" % took)

# ---- a token of a path is told of that path, and where it is

t = token(path="a/b")["token"]
s = tcp()
listen(s, "/v1/workspaces/w/watch?path=a/b&recursive=1", t)


def told(wanted):
    got = hear(s, wanted)
    return [json.loads(line[6:]) for line in got.decode().split("\n") if line.startswith("data: ")]


def move(a, b):
    os.rename(at + "/" + a, at + "/" + b)


move("z/secret", "a/b/in")
events = told(b"a/b/in")
move("a/b/in", "z/hidden")
events += told(b"deleted")
os.mkdir(at + "/a/b/d")
events += told(b"a/b/d")
move("a/b/d", "z/elsewhere")
events += told(b"deleted")
move("a/b", "z/gone")
events += told(b"deleted")
move("z/gone", "a/b")
events += told(b"created")
move("a", "other")
events += told(b"deleted")
short = [(e["event"], e["path"], e.get("old_path")) for e in events]
ok("a token of a path: renames over its border", short == [
    ("created", "a/b/in", None), ("deleted", "a/b/in", None), ("created", "a/b/d", None),
    ("deleted", "a/b/d", None), ("deleted", "a/b", None), ("created", "a/b", None),
    ("deleted", "a", None)], short)
PY
is 'all of it was tried' "$? $(tail -n 5 "$T/.err")" '0 '
take_tap "$T/out"
is 'so many' "$(grep -c '' "$T/out")" 13
done_testing
