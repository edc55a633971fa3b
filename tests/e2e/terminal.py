"""A WebSocket client of its own, for terminal.t: python's standard library, and frames by hand.

    terminal.py SOCKET PORT STALL_S FOLDER [tls EXEC OFFSET]

TOKENS in the environment is JSON. Each check prints a line of TAP. Its sandbox is `box`. In the end it
makes FOLDER/ready, with an exec and the offset reached, and waits for boughd to end; with `tls` it
goes on there, by TLS."""

import base64, hashlib, http.client, json, os, socket, ssl, struct, sys, threading, time

SOCK, PORT, STALL, FOLDER = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
TOKENS = json.loads(os.environ["TOKENS"])
SB = "/v1/sandboxes/box"
WAIT = 20
n = 0


def ok(good, what, why=""):
    global n
    n += 1
    print("%sok %d - %s" % ("" if good else "not ", n, what), flush=True)
    if not good:
        print("# %r" % (why,), flush=True)


def dial(way):
    if way == "unix":
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(WAIT)
        s.connect(SOCK)
        return s
    s = socket.create_connection(("127.0.0.1", PORT), WAIT)
    if way == "tls":
        s = ssl.create_default_context(cafile=FOLDER + "/cert.pem").wrap_socket(s, server_hostname="localhost")
    return s


def call(method, target, body=None):
    c = http.client.HTTPConnection("d")
    c.sock = dial("unix")
    c.request(method, target, None if body is None else json.dumps(body))
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, json.loads(text) if text else None


def start(*command, **more):
    status, doc = call("POST", SB + "/exec",
                       dict({"command": command, "tty": True, "stdin": True}, **more))
    if status != 201:
        sys.exit("exec: %d %s" % (status, doc))
    return doc["id"]


class Terminal:
    """One connection. Headers: None leaves one out."""

    def __init__(self, ex, query="", way="unix", token="admin", headers={}, early=b"", base=SB):
        self.s = dial(way)
        key = base64.b64encode(os.urandom(16)).decode()
        h = {"Host": "d", "Connection": "keep-alive, Upgrade", "Upgrade": "websocket",
             "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key,
             "Sec-WebSocket-Protocol": "chat, bough.terminal.v1"}
        if way != "unix" and token:
            h["Authorization"] = "Bearer " + TOKENS[token]
        h.update(headers)
        head = "GET %s/exec/%s/terminal%s HTTP/1.1\r\n" % (base, ex, query)
        head += "".join("%s: %s\r\n" % kv for kv in h.items() if kv[1] is not None) + "\r\n"
        self.s.sendall(head.encode() + early)
        self.buf, self.out, self.words, self.closed = b"", b"", [], None
        while b"\r\n\r\n" not in self.buf:
            got = self.s.recv(4096)
            if not got:
                break
            self.buf += got
        head, _, self.buf = self.buf.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.status = int(lines[0].split()[1]) if lines[0] else 0
        self.headers = {k.lower(): v for k, v in (l.split(": ", 1) for l in lines[1:])}
        guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.accepts = self.headers.get("sec-websocket-accept") == base64.b64encode(
            hashlib.sha1((key + guid).encode()).digest()).decode()
        self.start = None
        if self.status == 101:
            self.until(lambda: self.words)
            self.start = self.words[0]["offset"]

    def raw(self, op, data=b"", fin=True, mask=True, rsv=0, length=None):
        """A frame, right or wrong."""
        k = len(data) if length is None else length
        head = struct.pack("!B", (128 if fin else 0) | rsv | op)
        m = 128 if mask else 0
        head += struct.pack("!B", m | k) if k < 126 else struct.pack("!BH", m | 126, k) \
            if k < 65536 else struct.pack("!BQ", m | 127, k)
        if mask:
            key = os.urandom(4)
            head += key
            data = bytes(b ^ key[i & 3] for i, b in enumerate(data))
        return head + data

    def send(self, op, data=b"", **more):
        self.s.sendall(self.raw(op, data, **more))

    def type(self, text):
        self.send(2, text.encode() if isinstance(text, str) else text)

    def say(self, **words):
        self.send(1, json.dumps(words).encode())

    def frame(self):
        """The next one whole, or None: more is needed."""
        b = self.buf
        if len(b) < 2:
            return None
        k, at = b[1], 2
        assert not k & 128, "servers don't mask"
        if k == 126:
            if len(b) < 4:
                return None
            k, at = struct.unpack("!H", b[2:4])[0], 4
        elif k == 127:
            if len(b) < 10:
                return None
            k, at = struct.unpack("!Q", b[2:10])[0], 10
        if len(b) < at + k:
            return None
        self.buf = b[at + k:]
        return b[0] & 15, b[at:at + k]

    def take(self):
        """All frames that have come. False: the connection has ended."""
        while True:
            f = self.frame()
            if f is None:
                return True
            op, data = f
            if op == 2:
                self.out += data
            elif op == 1:
                self.words.append(json.loads(data))
            elif op == 9:
                self.pings = getattr(self, "pings", 0) + 1
                if not getattr(self, "mute", False):
                    self.send(10, data)
            elif op == 10:
                self.pong = data
            elif op == 8:
                self.closed = struct.unpack("!H", data[:2])[0] if data else 1005
                return False

    def until(self, done, wait=WAIT):
        """Reads until done() or the end; True: done."""
        end = time.monotonic() + wait
        while not done():
            if not self.take() or done():
                break
            self.s.settimeout(max(0.01, end - time.monotonic()))
            try:
                got = self.s.recv(65536)
            except (TimeoutError, socket.timeout, ssl.SSLWantReadError):
                break
            except OSError:
                got = b""
            if not got:
                self.eof = True
                break
            self.buf += got
        return bool(done())

    def end(self):
        self.until(lambda: False)
        return self.closed

    def has(self, text, wait=WAIT):
        return self.until(lambda: text.encode() in self.out, wait)

    def last(self, kind):
        return ([w for w in self.words if w["type"] == kind] or [{}])[-1]

    def at(self):
        return self.start + len(self.out)

    def drop(self):
        self.s.close()


SHELL = ("sh", "-c", "stty -echo; echo begun; exec sh")

# ---- one after the other


def talk(way):
    ex = start(*SHELL)
    t = Terminal(ex, way=way)
    ok(t.status == 101 and t.accepts and
       t.headers.get("sec-websocket-protocol") == "bough.terminal.v1",
       "%s: the handshake" % way, (t.status, t.headers))
    t.has("begun")
    t.type("echo $((6*7))-%s\n" % way)
    ok(t.has("42-" + way), "%s: a command and its output" % way, t.out)
    t.type("exit 7\n")
    ok(t.end() == 1000 and t.last("exit") == {"type": "exit", "exit_code": 7, "reason": "exited"},
       "%s: how it ended, and a normal close" % way, (t.closed, t.words))


if len(sys.argv) > 5:
    talk("tls")
    t = Terminal(sys.argv[6], "?offset=" + sys.argv[7], way="tls")
    t.type("echo again\n")
    ok(t.has("again") and t.out.startswith(b"again"),
       "behind a boughd that was started anew it goes on at its byte", t.out)
    t.mute = True
    t.until(lambda: getattr(t, "eof", False), 4 * STALL)
    ok(getattr(t, "eof", False), "one that is silent is cut with TLS, too", t.words)
    sys.exit()
talk("unix")
talk("tcp")

# ---- going on where it broke

ex = start("sh", "-c", "stty raw -echo; echo begun; exec cat")
t = Terminal(ex, way="tcp")
t.has("begun")
sent = b"".join(b"%06d " % i for i in range(3000))
t.type(sent[:9000])
t.until(lambda: len(t.out) > 2000)
got, at = t.out, t.at()
t.drop()
t = Terminal(ex, "?offset=%d&stdin_offset=0" % at, way="tcp")
t.type(sent[:9000] + sent[9000:])  # what was given already is left out
t.until(lambda: len(got) + len(t.out) >= len(b"begun\n") + len(sent))
whole = (got + t.out).split(b"begun")[1].lstrip(b"\r\n")
ok(whole == sent, "after a lost connection nothing is missing and nothing comes twice",
   (len(whole), len(sent)))
t.until(lambda: t.last("stdin").get("offset") == len(sent), 5)
ok(t.last("stdin").get("offset") == len(sent), "the client hears what of its input was given",
   t.words)
u = Terminal(ex, "?offset=999999999")
ok(u.status == 416, "an offset behind the end", u.status)
u = Terminal(ex, "?stdin_offset=999999999")
ok(u.status == 416, "and of input that is missing", u.status)
t.say(type="signal", signal="TERM")
ok(t.end() == 1000 and t.last("exit").get("reason") == "signal", "a signal", t.words)
t = Terminal(ex, "?offset=6")
ok(t.end() == 1000 and t.out.startswith(sent[:100]), "who comes after the end hears all",
   t.out[:100])

# ---- resize, end of input, two at once, early bytes

ex = start("sh", "-c", "stty -echo; trap 'stty size' WINCH; stty size; "
           "while :; do read x && echo got-$x; done", columns=80, rows=24)
t, u = Terminal(ex, early=b""), Terminal(ex, way="tcp")
ok(t.has("24 80"), "the size that it began with", t.out)
t.say(type="resize", columns=132, rows=43)
ok(t.has("43 132"), "a new size is seen by the program", t.out)
u.type("from-u\n")
ok(t.has("got-from-u") and u.has("got-from-u"), "two at once: both see, either types",
   (t.out, u.out))
t.say(type="resize", columns=0, rows=1)
ok(t.until(lambda: t.last("error").get("code") == "invalid"), "a size that is none", t.words)
t.say(type="signal", signal="NONE")
ok(t.until(lambda: len([w for w in t.words if w["type"] == "error"]) == 2),
   "a signal that is none", t.words)
t.say(type="signal", signal="KILL")
ok(t.end() == 1000 and u.end() == 1000, "both hear its end", (t.closed, u.closed))
ex = start("sh", "-c", "stty -echo; read a; read b; echo $b$a")
t = Terminal(ex)
t.send(2, b"on", fin=False)
t.send(9, b"between")
t.send(0, b"e\ntw", fin=False)
t.send(0, b"o\n")
ok(t.has("twoone") and t.end() == 1000, "a message in pieces, with a ping between", t.out)
ok(getattr(t, "pong", None) == b"between", "which was answered", t.words)
ex = start("sh", "-c", "stty -echo; echo b; read a; echo early-$a; sleep 100")
first = Terminal(ex)
first.has("b")
t = Terminal(ex, early=first.raw(2, b"bird\n"))
ok(t.has("early-bird"), "what comes with the handshake isn't lost", t.out)
t.say(type="signal", signal="KILL")

# ---- who may not

ex = start("sleep", "1000")
for what, more, wanted in (
        ("a plain GET", {"headers": {"Upgrade": None, "Connection": None}}, 426),
        ("another version", {"headers": {"Sec-WebSocket-Version": "8"}}, 426),
        ("no key", {"headers": {"Sec-WebSocket-Key": None}}, 400),
        ("a short key", {"headers": {"Sec-WebSocket-Key": "AAAA"}}, 400),
        ("another protocol", {"headers": {"Sec-WebSocket-Protocol": "chat"}}, 400),
        ("a body", {"headers": {"Content-Length": "3"}, "early": b"abc"}, 400),
        ("a page of another site", {"headers": {"Origin": "https://evil.example"}}, 403),
        ("a page of no site", {"headers": {"Origin": "null"}}, 403),
        ("no token", {"way": "tcp", "token": None}, 401),
        ("a token for reading", {"way": "tcp", "token": "reading"}, 403),
        ("a stranger", {"way": "tcp", "token": "other"}, 404)):
    t = Terminal(ex, **more)
    ok(t.status == wanted, "%s: %d" % (what, wanted), (t.status, t.buf))
    t.drop()
t = Terminal(ex, headers={"Origin": "https://app.example.org"})
ok(t.status == 101, "a page that may", t.status)
t = Terminal(ex, way="tcp", token=None, headers={
    "Origin": "https://app.example.org",
    "Sec-WebSocket-Protocol": "bough.terminal.v1, bough.bearer." + TOKENS["admin"]})
ok(t.status == 101, "a token as a page can send it", (t.status, t.buf))
ok(TOKENS["admin"] not in str(t.headers), "is not sent back", t.headers)
t = Terminal(ex, base="/v1/sandboxes/none")
ok(t.status == 404, "no such sandbox", t.status)
status, plain = call("POST", SB + "/exec", {"command": ["true"]})
t = Terminal(plain["id"])
ok(t.status == 409, "a process without a terminal", t.status)
# What takes its time, and is looked at below: a token that is removed meanwhile, one that takes
# nothing, one that says nothing, and one that answers pings and no more.
brief = Terminal(ex, way="tcp", token="brief")
call("DELETE", "/v1/tokens/" + TOKENS["brief_id"])
loud = start("sh", "-c", "stty raw; while :; do echo 0123456789012345678901234567890123456789; done")
slow = Terminal(loud)
mute_begun = time.monotonic()
mute = Terminal(ex)
mute.mute = True
pinged = Terminal(start(*SHELL))



def beside(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


silence = []
hearing = beside(brief.end)
pinging = beside(lambda: pinged.until(lambda: getattr(pinged, "pings", 0) >= 5, 4 * STALL))
being_mute = beside(lambda: (mute.end(), silence.append(time.monotonic() - mute_begun)))

# ---- frames that are wrong

HOSTILE = (
    ("unmasked", 1002, lambda t: t.raw(2, b"x", mask=False)),
    ("a reserved bit", 1002, lambda t: t.raw(2, b"x", rsv=64)),
    ("a reserved kind", 1002, lambda t: t.raw(3, b"x")),
    ("a reserved control", 1002, lambda t: t.raw(11, b"x")),
    ("a ping in pieces", 1002, lambda t: t.raw(9, b"x", fin=False)),
    ("a long ping", 1002, lambda t: t.raw(9, b"x" * 126)),
    ("a piece of nothing", 1002, lambda t: t.raw(0, b"x")),
    ("a message in a message", 1002, lambda t: t.raw(2, b"x", fin=False) + t.raw(2, b"x")),
    ("text in binary", 1002, lambda t: t.raw(2, b"x", fin=False) + t.raw(1, b"x")),
    ("a length that could be shorter", 1002, lambda t: b"\x82\xfe\x00\x05mask12345"),
    ("a length of 63 bits and more", 1002, lambda t: b"\x82\xff" + b"\xff" * 8 + b"mask"),
    ("an enormous message", 1009, lambda t: t.raw(2, b"", length=1 << 40)),
    ("long text", 1009, lambda t: t.raw(1, b"x" * 5000)),
    ("text that grows", 1009, lambda t: t.raw(1, b"x" * 3000, fin=False) + t.raw(0, b"x" * 3000)),
    ("text that isn't UTF-8", 1007, lambda t: t.raw(1, b'{"type":"\xc0\xaf"}')),
    ("a surrogate", 1007, lambda t: t.raw(1, b"\xed\xa0\x80")),
    ("a close of one byte", 1002, lambda t: t.raw(8, b"\x03")),
    ("a close with a code that may not be", 1002, lambda t: t.raw(8, struct.pack("!H", 1005))),
    ("a close with no text", 1007, lambda t: t.raw(8, struct.pack("!H", 1000) + b"\xff")),
    ("no JSON", 1008, lambda t: t.raw(1, b"{")),
    ("JSON without a type", 1008, lambda t: t.raw(1, b"[1]")),
    ("an unknown type", 1008, lambda t: t.raw(1, b'{"type":"reboot"}')),
    ("a deep nesting", 1008, lambda t: t.raw(1, b"[" * 4000)),
    ("a close", 4321, lambda t: t.raw(8, struct.pack("!H", 4321) + b"bye")),
    ("an empty close", 1005, lambda t: t.raw(8)),
)
for what, code, make in HOSTILE:
    t = Terminal(ex)
    try:
        t.s.sendall(make(t))
    except OSError:
        pass
    ok(t.end() == code, "%s: %d" % (what, code), (t.closed, t.words))
    t.drop()

# What takes more to answer than to say, as fast as it goes, with nobody reading the answers.
t = Terminal(ex)
flood = (t.raw(9, b"") * 400 + t.raw(1, b'{"type":"signal"}') * 100) * 20
done = []


def pour():
    try:
        t.s.sendall(flood)
        done.append(True)
    except OSError:
        pass


beside(pour)
time.sleep(0.5)
t.until(lambda: len([w for w in t.words if w["type"] == "error"]) >= 2000, 15)
ok(len([w for w in t.words if w["type"] == "error"]) == 2000, "a flood of words is answered",
   len(t.words))
t.drop()

# ---- the slow

quick = start(*SHELL)
t = Terminal(quick)
t.has("begun")
worst = 0.0
for i in range(20):
    one = time.monotonic()
    t.type("echo =%d=\n" % i)
    if not t.has("=%d=" % i):
        break
    worst = max(worst, time.monotonic() - one)
ok("=19=" in t.out.decode() and worst < 5, "one that doesn't read holds up nobody",
   (worst, t.out[-100:]))
call("POST", SB + "/exec/%s/signal" % loud, {"signal": "KILL"})
being_mute.join()
ok(getattr(mute, "eof", False) and mute.closed is None and silence[0] >= STALL * 0.8,
   "a silent client is cut where it doesn't answer", (mute.closed, silence))
cut = False
slow.s.settimeout(WAIT)
try:
    while slow.s.recv(1 << 20):
        pass
    cut = True
except OSError as e:
    cut = isinstance(e, ConnectionError)
ok(cut and slow.closed is None, "and one that takes nothing", slow.words)
pinging.join()
ok(getattr(pinged, "pings", 0) >= 5, "who answers is asked again", pinged.words)
pinged.type("echo still\n")
ok(pinged.has("still"), "and goes on", pinged.out)
hearing.join()
ok(brief.closed == 1008, "a token that was removed meanwhile", brief.closed)

# A program that doesn't read: what is given waits, and the words pass.
deaf = start("sh", "-c", "stty raw -echo; echo begun; sleep 1000")
t = Terminal(deaf)
t.has("begun")
giving = t.raw(2, b"x" * (1 << 20))


def give():
    try:
        t.s.sendall(giving)
    except OSError:
        pass  # it has ended before it took all


thread = beside(give)
time.sleep(0.5)
v = Terminal(deaf)
v.say(type="signal", signal="KILL")
ok(v.end() == 1000 and t.end() == 1000, "input that nobody reads holds up nobody",
   (v.closed, t.closed))
thread.join(WAIT)

# ---- boughd ends (terminal.t stops it when this line is there)

t = Terminal(quick)
t.type("PS1=; echo last\n")  # no prompt comes behind it
t.has("last\r\n")
at = t.at()
print("# ready", flush=True)
open(FOLDER + "/ready", "w").write("%s %d" % (quick, at))
ok(t.end() in (1001, 1006), "boughd says that it goes away", (t.closed, t.words))
