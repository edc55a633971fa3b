"""A client of boughd's socket, for tests that kill it: ROOT is the first argument of the program that
imports this."""
import http.client, json, socket, sys

root = sys.argv[1]

class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(100)
        self.sock.connect(root + "/run/boughd.sock")

def ask(method, target, body=None, key=None, headers={}):
    """(status, what the answer says, "true" where it is one given before)"""
    c = Unix("d")
    h = dict(headers, **({"Idempotency-Key": key} if key else {}))
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    c.request(method, "/v1/" + target, data, h)
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, json.loads(text) if text else None, r.getheader("Idempotency-Replayed")

def must(status, method, target, body=None, key=None):
    got = ask(method, target, body, key)
    if got[0] != status:
        sys.exit("%s %s: %r" % (method, target, got))
    return got[1]

def check(what, good, *more):
    """A line for the shell."""
    print("T", "ok" if good else "no", what, *("" if good else repr(m) for m in more), flush=True)
