"""What hostile_http.t runs: hostile_http.py PORT (with the token in boughd's own hands). TAP."""
import faulthandler
import json
import os
import random
import socket
import struct
import sys
import time

import bough

faulthandler.dump_traceback_later(280, exit=True)
PORT = int(sys.argv[1])
SOCK = os.environ["BOUGH_ROOT"] + "/run/boughd.sock"
n = 0


def ok(what, good, note=""):
    global n
    n += 1
    print("%sok %d - %s" % ("" if good else "not ", n, what), flush=True)
    if not good:
        print("# " + repr(note)[:1000])


def connect(tcp=False):
    s = socket.create_connection(("127.0.0.1", PORT)) if tcp else socket.socket(socket.AF_UNIX)
    if not tcp:
        s.connect(SOCK)
    s.settimeout(30)  # from here on: else a full backlog is an error
    return s


def status_of(data):
    """Of the first answer; None: there is none."""
    parts = data.split(b" ", 2)
    return int(parts[1]) if data.startswith(b"HTTP/1.") and parts[1].isdigit() else None


def receive(s):
    data = bytearray()
    try:
        while True:
            piece = s.recv(1 << 20)
            if not piece:
                break
            data += piece
    except (ConnectionResetError, BrokenPipeError):
        pass
    return bytes(data)


def exchange(raw, tcp=False, half_close=True):
    """What comes back until the end, which the other side has to make: bytes, and seconds."""
    s = connect(tcp)
    begun = time.monotonic()
    try:
        for at in range(0, len(raw), 65536):
            s.sendall(raw[at:at + 65536])
        if half_close:
            s.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    data = receive(s)
    s.close()
    return data, time.monotonic() - begun


def vanish(s):
    """As when a machine loses its power: the other side gets a reset, at best."""
    if s.family == socket.AF_INET:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def head(method, path, *headers):
    return ("%s %s HTTP/1.1\r\nHost: x\r\n%s\r\n" % (
        method, path, "".join(h + "\r\n" for h in headers))).encode("latin-1")


def chunked(path, body, method="POST"):
    return head(method, path, "Transfer-Encoding: chunked") + body


WS = "/v1/workspaces"
PUT = WS + "/w/files/x"


def posts(text):
    body = text if isinstance(text, bytes) else text.encode()
    return head("POST", WS, "Content-Length: %d" % len(body)) + body


# What is sent, and which statuses are right; None among them: being cut.
CUT = (None, 400, 431, 414, 413)
LIES = [
    ("noise", os.urandom(4096), CUT),
    ("zeros", bytes(100000), CUT),
    ("a line without an end", b"A" * 300000, CUT),
    ("TLS to a port in the clear", bytes.fromhex("16030100a5010000a10303") + os.urandom(160), CUT),
    ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (None, 400, 401, 404, 405, 505)),
    ("a version that is none", b"GET /v1/version HTTP/9.9\r\nHost: x\r\n\r\n", (None, 400, 505)),
    ("no Host", b"GET /v1/version HTTP/1.1\r\n\r\n", (None, 200, 400, 401)),
    ("a long path", head("GET", "/" + "a" * 200000), CUT + (404,)),
    ("a long query", head("GET", "/v1/version?" + "a=b&" * 60000), CUT),
    ("many parameters", head("GET", "/v1/workspaces?" + "label=a&" * 1000), CUT),
    ("a large header", head("GET", "/v1/version", "X: " + "y" * 1000000), CUT),
    ("a flood of headers", head("GET", "/v1/version", *["X%d: y" % i for i in range(200000)]), CUT),
    ("headers without names", head("GET", "/v1/version", *[": y"] * 100), CUT + (200,)),
    ("a header without a colon", head("GET", "/v1/version", "nonsense"), CUT + (200,)),
    ("a NUL in a header", head("GET", "/v1/version", "X: a\0b"), CUT + (200,)),
    ("a method that is none", head("BREW", "/v1/version"), (400, 405, 501)),
    ("a long method", head("G" * 100000, "/v1/version"), CUT + (405,)),
    ("no path", b"GET HTTP/1.1\r\nHost: x\r\n\r\n", (None, 400, 404)),
    ("a star", head("OPTIONS", "*"), (400, 404, 405)),
    ("CONNECT", head("CONNECT", "example.org:443"), (400, 404, 405)),
    ("another server's URL", head("GET", "http://example.org/v1/version"), (400, 404)),
    ("an upgrade", head("GET", "/v1/version", "Connection: Upgrade", "Upgrade: websocket"), (200,)),
    ("bad escapes", head("GET", "/v1/workspaces/%zz"), (400,)),
    ("an encoded NUL", head("GET", "/v1/workspaces/a%00b"), (400, 404)),
    ("dots", head("GET", WS + "/w/files/../../../etc/passwd"), (400, 404)),
    ("encoded dots", head("GET", WS + "/w/files/%2e%2e/%2e%2e/etc/passwd"), (400,)),
    ("an encoded slash", head("GET", WS + "/w/files/..%2f..%2fetc"), (400,)),
    ("two lengths", head("PUT", PUT, "Content-Length: 1", "Content-Length: 2") + b"xy",
     (None, 400)),
    ("two equal lengths", head("PUT", PUT, "Content-Length: 1", "Content-Length: 1") + b"x",
     (None, 400)),
    ("a list of lengths", head("PUT", PUT, "Content-Length: 1, 1") + b"x", (None, 400)),
    ("a length below zero", head("PUT", PUT, "Content-Length: -1") + b"x", (None, 400)),
    ("a length with a sign", head("PUT", PUT, "Content-Length: +1") + b"x", (None, 400)),
    ("a length in hex", head("PUT", PUT, "Content-Length: 0x1") + b"x", (None, 400)),
    ("a length of 2^64", head("PUT", PUT, "Content-Length: 18446744073709551616") + b"x",
     (None, 400, 413, 507)),
    ("a length of 2^63", head("PUT", PUT, "Content-Length: 9223372036854775807") + b"x",
     (None, 400, 413, 507)),
    ("a length and chunks", head("PUT", PUT, "Content-Length: 5", "Transfer-Encoding: chunked") +
     b"0\r\n\r\n", (None, 400)),
    ("chunked twice", head("PUT", PUT, "Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n",
     (None, 400, 501)),
    ("identity behind chunked", head("PUT", PUT, "Transfer-Encoding: chunked, identity") +
     b"0\r\n\r\n", (None, 400, 501)),
    ("a coding that is none", head("PUT", PUT, "Transfer-Encoding: xchunked") + b"0\r\n\r\n",
     (None, 400, 501)),
    ("a blank before the colon", head("PUT", PUT, "Transfer-Encoding : chunked") + b"0\r\n\r\n",
     (None, 400)),
    ("a chunk's size that is none", chunked(PUT, b"xyz\r\nabc\r\n0\r\n\r\n", "PUT"), (None, 400)),
    ("a chunk's size below zero", chunked(PUT, b"-1\r\nabc\r\n0\r\n\r\n", "PUT"), (None, 400)),
    ("a chunk of 2^64", chunked(PUT, b"10000000000000000\r\nabc", "PUT"), (None, 400, 413)),
    ("a chunk without its end", chunked(PUT, b"3\r\nabcdef\r\n0\r\n\r\n", "PUT"), (None, 400)),
    ("a chunk's size without an end", chunked(PUT, b"1" * 100000, "PUT"), (None, 400, 413)),
    ("a long extension", chunked(PUT, b"1;" + b"a" * 1000000 + b"\r\nx\r\n0\r\n\r\n", "PUT"),
     (None, 400, 413, 500)),  # by libmicrohttpd
    ("a body that ends early", head("PUT", PUT, "Content-Length: 100") + b"x", (None, 400)),
    ("chunks that end early", chunked(PUT, b"5\r\nab", "PUT"), (None, 400)),
    ("JSON that ends early", head("POST", WS, "Content-Length: 100") + b'{"name":', (None, 400)),
    ("no JSON", posts("name=x"), (400,)),
    ("an array", posts("[1]"), (400,)),
    ("a string", posts('"x"'), (400,)),
    ("deep nesting", posts('{"name":' + "[" * 200000 + "]" * 200000 + "}"), (400,)),
    ("deep objects", posts('{"a":' * 100000 + "1" + "}" * 100000), (400,)),
    ("a name twice", posts('{"name":"a","name":"b"}'), (400,)),
    ("no UTF-8", posts(b'{"name":"\xff\xfe"}'), (400,)),
    ("half a surrogate", posts('{"name":"\\ud800"}'), (400,)),
    ("a NUL in a string", posts('{"name":"a\\u0000b"}'), (400,)),
    ("a number of 400 digits", posts('{"name":"a","quota_bytes":%s}' % ("9" * 400)), (400,)),
    ("a number below zero", posts('{"name":"a","quota_bytes":-1}'), (400,)),
    ("a float", posts('{"name":"a","quota_bytes":1e999}'), (400,)),
    ("something behind", posts('{"name":"a"} {}'), (400,)),
    ("a long name", posts('{"name":"%s"}' % ("a" * 500000)), (400,)),
    ("a body above 1 MiB", posts('{"name":"%s"}' % ("a" * (2 << 20))), (413,)),
    ("many labels", posts('{"name":"a","labels":{%s}}' % ",".join(
        '"l%d":"x"' % i for i in range(10000))), (400,)),
    ("an expectation that is none",
     head("PUT", PUT, "Expect: 200-maybe", "Content-Length: 1") + b"x",
     (None, 200, 201, 400, 417)),
    ("ranges without end", head("GET", WS + "/w/files/big", "Range: bytes=" + "0-1," * 5000),
     (200,)),
    ("a range of 2^64", head("GET", WS + "/w/files/big", "Range: bytes=18446744073709551616-"),
     (200, 416)),
    ("many ETags", head("GET", WS + "/w/files/big", "If-None-Match: " + '"a",' * 10000),
     (200, 400)),
    ("a form without an end", head("PUT", PUT, "Content-Type: multipart/form-data; boundary=b",
                                   "Content-Length: 19") + b"--b\r\nno form at all", (400,)),
    ("a boundary that is none", head("PUT", PUT, "Content-Type: multipart/form-data; boundary=" +
                                     "b" * 5000, "Content-Length: 1") + b"x", (400,)),
    ("gzip that is none",
     head("PUT", PUT, "Content-Encoding: gzip", "Content-Length: 5") + b"noise", (400,)),
    ("an upload's lies", head("POST", WS + "/w/uploads", "Tus-Resumable: 1.0.0",
                              "Upload-Length: -5", "Upload-Metadata: path ////"), (400,)),
]


HEAD = b"Host: x\r\n"
NO_HTTP = [
    ("a head of no headers", b"GET / HTTP/1.1\r\nno header\r\n\r\n", 400, "invalid"),
    ("another version", b"GET / HTTP/3.0\r\n" + HEAD + b"\r\n", 505, "unsupported"),
    ("an old version", b"GET / HTTP/0.9\r\n" + HEAD + b"\r\n", 505, "unsupported"),
    ("a long target", b"GET /" + b"a" * 400000 + b" HTTP/1.1\r\n" + HEAD + b"\r\n", 414,
     "too_large"),
    ("a flood of headers", b"GET / HTTP/1.1\r\n" + HEAD +
     b"".join(b"X-%d: %s\r\n" % (i, b"y" * 100) for i in range(8000)) + b"\r\n", 431,
     "too_large"),
    ("a length that is none", b"POST /v1/workspaces HTTP/1.1\r\n" + HEAD +
     b"Content-Length: x\r\n\r\n", 400, "invalid"),
    ("a length beyond all", b"POST /v1/workspaces HTTP/1.1\r\n" + HEAD +
     b"Content-Length: 99999999999999999999999\r\n\r\n", 413, "too_large"),
    ("a chunk that is none", b"POST /v1/workspaces HTTP/1.1\r\n" + HEAD +
     b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "invalid"),
    ("a chunk beyond all", b"POST /v1/workspaces HTTP/1.1\r\n" + HEAD +
     b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffffff\r\n", 413, "too_large"),
]


def bomb():
    """A thousand times its size."""
    import zlib
    z = zlib.compressobj(9, wbits=31)
    return z.compress(bytes(60 << 20)) + z.flush()


def mutants(seed, count):
    """Requests that were right, with bytes changed, removed, doubled."""
    r = random.Random(seed)
    good = [head("GET", "/v1/version", "Accept: */*"), posts('{"name":"mutant"}'),
            head("PUT", PUT, "Content-Length: 5", "If-Match: *") + b"hello",
            chunked(PUT, b"5\r\nhello\r\n0\r\n\r\n", "PUT"),
            head("GET", WS + "/w/files/?limit=2&cursor=abc", "Range: bytes=0-5"),
            head("PATCH", WS + "/w/uploads/up_aaaaaaaaaa", "Tus-Resumable: 1.0.0",
                 "Upload-Offset: 0", "Content-Length: 1") + b"x"]
    for _ in range(count):
        raw = bytearray(r.choice(good))
        for _ in range(r.randint(1, 8)):
            at = r.randrange(len(raw))
            what = r.randrange(4)
            if what == 0:
                raw[at] = r.randrange(256)
            elif what == 1:
                del raw[at:at + r.randint(1, 10)]
            elif what == 2:
                raw[at:at] = raw[at:at + r.randint(1, 30)]
            else:
                raw[at:at] = r.choice([b"\r\n", b"\0", b" ", b":", b"%00", b"\r\n\r\n", b"9" * 30])
            if not raw:
                break
        yield bytes(raw)


def look(pid):
    """Threads and connections. (Other files are of layers that were read lately.)"""
    sockets = 0
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            sockets += os.readlink("/proc/%d/fd/%s" % (pid, fd)).startswith("socket:")
        except FileNotFoundError:
            pass
    return len(os.listdir("/proc/%d/task" % pid)), sockets


def calms_down(pid, before, patience=20):
    """They come back. (A few connections to bough-fs stay for the next who needs one.)"""
    end = time.time() + patience
    while time.time() < end:
        now = look(pid)
        if now[0] <= before[0] + 2 and now[1] <= before[1] + 8:
            return True
        time.sleep(0.1)
    return False


def main():
    c = bough.Client(SOCK, retries=0, timeout=30)
    while not c.health()["ok"]:
        time.sleep(0.1)
    pid = c.health()["pid"]
    token = c.tokens.create("t")["token"]
    w = c.workspaces.create("w")
    big = os.urandom(1 << 20)
    w.files.write("big", (big for _ in range(8)))
    auth = "Authorization: Bearer " + token
    for tcp in (False, True):  # as many pools and arenas as there will be
        for _ in range(3):
            exchange(head("GET", "/v1/version", auth, "Connection: close"), tcp)
    c.close()
    c = bough.Client(SOCK, retries=0, timeout=30)
    w = c.workspaces.get("w")
    time.sleep(0.3)
    before = look(pid)

    def alive(what):
        begun = time.monotonic()
        good = c.health()["pid"] == pid and c.workspaces("w").refresh()["id"] == w.id
        took = time.monotonic() - begun
        ok("%s: it answers others (%.0f ms)" % (what, 1000 * took), good and took < 15)

    # -- lies; those who ask by TCP have a token, so that they come as far

    for tcp in (False, True):
        for what, raw, right in LIES:
            if tcp:
                raw = raw.replace(b"Host: x\r\n", b"Host: x\r\n%s\r\n" % auth.encode(), 1)
            data, took = exchange(raw, tcp)
            status = status_of(data)
            ok("%s: %s%s" % (what, status or "cut", " by TCP" if tcp else ""),
               status in right and took < 20, (status, took, data[:300]))
    ok("none of it made a workspace", [x.name for x in c.workspaces.list()] == ["w"])
    ok("nor changed a file", sorted(e["name"] for e in w.files.list()) in (["big"], ["big", "x"]))
    raw = bomb()
    w.update(quota_bytes=30 << 20)
    data, _ = exchange(head("PUT", PUT, "Content-Encoding: gzip",
                            "Content-Length: %d" % len(raw)) + raw)
    ok("a bomb ends at the quota", status_of(data) in (None, 507), data[:300])
    w.update(quota_bytes=0)
    seed = int(os.environ.get("BOUGH_SEED", random.randrange(1 << 30)))
    print("# BOUGH_SEED=%d" % seed)
    slow = [(raw, took) for raw in mutants(seed, 400) for _, took in [exchange(raw)] if took > 10]
    ok("400 requests with faults are answered or cut", not slow, slow)
    for x in c.workspaces.list():
        if x.name != "w":
            x.delete(purge=True)
    alive("lies")

    # -- what isn't HTTP is answered as all other errors are

    for what, raw, status, code in NO_HTTP:
        data, _ = exchange(raw, half_close=False)
        text = data.partition(b"\r\n\r\n")[2]
        try:
            good = json.loads(text)["code"] == code and json.loads(text)["details"] == {}
        except ValueError:
            good = False
        ok("%s: %d in JSON" % (what, status), good and status_of(data) == status and
           b"application/json" in data, data[-600:])
    data, _ = exchange(b"NONSENSE\r\n\r\n", half_close=False)
    ok("no line of HTTP: the connection ends", data == b"", data)

    # -- refused by its head: heard by who sends all of its body first

    body = bytes(8 << 20)
    refused = [("no such workspace", "PUT", WS + "/nobody/files/x", 404),
               ("too much JSON", "POST", WS, 413), ("another method", "PUT", WS, 405),
               ("no such path", "POST", "/v1/nothing", 404)]
    for tcp in (False, True):
        for what, method, path, status in refused:
            raw = head(method, path, "Content-Length: %d" % len(body), "Connection: close",
                       *((auth,) if tcp else ())) + body
            data, took = exchange(raw, tcp, half_close=False)
            ok("%s: %d for who sends first%s" % (what, status, ", by TCP" if tcp else ""),
               status_of(data) == status, data[:300])
        data, _ = exchange(head("PUT", PUT, "Content-Length: %d" % len(body),
                                "Connection: close", "Authorization: Bearer bough_no") + body, tcp, half_close=False)
        ok("no such token: 401%s" % (", by TCP" if tcp else ""), status_of(data) == 401, data[:300])
    alive("who sends first")

    # -- who asks before it sends is told so before it does

    for tcp in (False, True):
        a = (auth,) if tcp else ()
        for what, path, status in (("no such workspace", WS + "/nobody/files/x", 404),
                                   ("the root", WS + "/w/files/", 409)):
            s = connect(tcp)
            s.sendall(head("PUT", path, "Content-Length: 1000000", "Expect: 100-continue", *a))
            data = receive(s)
            s.close()
            ok("%s: %d instead of 100%s" % (what, status, ", by TCP" if tcp else ""),
               status_of(data) == status and b"100 Continue" not in data, data[:300])
        s = connect(tcp)
        s.sendall(head("PUT", PUT, "Content-Length: 5", "Expect: 100-continue",
                       "Connection: close", *a))
        data = s.recv(1000)
        s.sendall(b"hello")
        ok("else 100 comes first%s" % (", by TCP" if tcp else ""), status_of(data) == 100 and
           status_of(receive(s)) in (200, 201), data)
        s.close()

    # -- who closes its half still gets its answer

    data, _ = exchange(head("GET", WS + "/w/files/big", "Connection: close"))
    ok("half closed: a large answer is whole", data.endswith(big) and len(data) > 8 << 20,
       len(data))
    data, _ = exchange(head("PUT", PUT, "Content-Length: 5") + b"hello")
    ok("half closed: a PUT is done", status_of(data) in (200, 201) and
       w.files.read("x") == b"hello", data)
    data, _ = exchange(head("GET", "/v1/version") * 500)
    ok("500 requests at once have 500 answers", data.count(b"HTTP/1.1 200") == 500,
       data.count(b"HTTP/1.1 200"))

    # -- who vanishes

    for tcp in (False, True):
        a = (auth,) if tcp else ()
        for i in range(20):
            s = connect(tcp)
            s.sendall(head("PUT", WS + "/w/files/gone", "Content-Length: 100000000", *a) +
                      big[:65536])
            vanish(s)
            s = connect(tcp)
            s.sendall(head("PUT", WS + "/w/files/gone", "Transfer-Encoding: chunked", *a) +
                      b"10000\r\n" + big[:30000])
            vanish(s)
            s = connect(tcp)
            s.sendall(head("GET", WS + "/w/files/big", *a))
            s.recv(1000)
            vanish(s)
            s = connect(tcp)
            s.sendall(head("GET", WS + "/w/archive/", *a))
            s.recv(1000)
            vanish(s)
            s = connect(tcp)
            s.sendall(head("POST", "/v1/import?name=gone", "Content-Length: 1000000", *a) +
                      big[:600])
            vanish(s)
            s = connect(tcp)
            s.sendall(head("GET", "/v1/events", *a))
            s.recv(100)
            vanish(s)
            s = connect(tcp)
            s.sendall(head("POST", WS + "/w/snapshots", "Accept: application/x-ndjson",
                           "Content-Length: 2", *a) + b"{}")
            vanish(s)
            s = connect(tcp)
            s.sendall(head("POST", WS + "/w/snapshots")[:20])
            vanish(s)
    ok("who vanished leaves no thread and no connection", calms_down(pid, before),
       (before, look(pid)))
    ok("no file", not w.files.exists("gone"))
    ok("no snapshot", not [s for s in c.snapshots.list() if "gone" in s.info["names"]])
    w.files.write("x", "y")
    w.restore(w.save())
    ok("and holds no workspace", True)
    alive("who vanished")

    # -- who is slow

    stuck = []
    for i in range(40):
        s = connect()  # asks, and takes nothing
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(head("GET", WS + "/w/%s" % ("files/big", "archive/", "diff")[i % 3]))
        stuck.append(s)
        s = connect()  # announces, and sends little
        s.sendall(head("PUT", WS + "/w/files/slow", "Content-Length: 1000000") + b"x")
        stuck.append(s)
        s = connect()  # doesn't come to an end of its head
        s.sendall(b"GET /v1/version HTTP/1.1\r\nX: ")
        stuck.append(s)
        stuck.append(connect())  # says nothing
    time.sleep(0.5)
    alive("160 slow clients")
    w.files.write("beside", "x")
    w.save()
    fork = w.fork("fork")[0]
    fork.delete(purge=True)
    ok("and all goes on beside them", True)
    for s in stuck:
        vanish(s)
    ok("they leave nothing behind", calms_down(pid, before), (before, look(pid)))

    # -- floods of connections

    def crowd(tcp, count):
        """How many of so many answer."""
        conns, good = [], 0
        for _ in range(count):
            conns.append(connect(tcp))
        for s in conns:
            s.settimeout(30)
            try:
                s.sendall(head("GET", "/v1/version", *((auth,) if tcp else ())))
                good += status_of(s.recv(1000)) == 200
            except OSError:
                pass
        return conns, good

    conns, good = crowd(True, 300)
    ok("of 300 connections of one address %d are served" % good, 100 <= good <= 128)
    alive("beside them")
    for s in conns:
        s.close()
    conns, good = crowd(False, 500)
    ok("of 500 on the socket %d are" % good, good >= 490)
    alive("beside those")
    for s in conns:
        s.close()
    for _ in range(1000):
        vanish(connect())
    ok("a thousand that come and go", calms_down(pid, before), (before, look(pid)))
    alive("in the end")


main()
