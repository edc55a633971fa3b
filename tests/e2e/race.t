#!/bin/bash
# The file API on a sandbox whose program changes what a path is all the time: between a folder, a link
# out of the sandbox, a file, a fifo. Nothing of the host is read, written or removed, and no call waits.
. "${0%/*}/lib.sh"
need_sandboxes
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
run bough run --rm -- true
[ $code = 0 ] || bail "no sandboxes here: $err"

mkdir -p "$T/outside/tree/sub"
echo 'you are out' | tee "$T/outside/f" "$T/outside/x" "$T/outside/tree/f" >"$T/outside/tree/sub/f"
outside() { (cd "$T/outside" && find . -printf '%p %y %m %U %s %T@\n' | sort && cat f x tree/f tree/sub/f); }
before=$(outside)

# Within: `d` is a folder or a link to the host's, `x` a file, a fifo or a link, as fast as can be.
cat >"$T/swap.py" <<'PY'
import os, sys, time
out = sys.argv[1]
os.makedirs("/opt/at", exist_ok=True)
os.chdir("/opt/at")
def swap(at, makers, n):
    makers[n % len(makers)](at + ".new")
    try:
        os.rename(at + ".new", at)
    except OSError:  # what is there is a folder, or that is to come
        os.rename(at, "%s.old%d" % (at, n % 7)) if not os.path.isdir("%s.old%d" % (at, n % 7)) else os.system("rm -rf %s.old* %s" % (at, at))
        try:
            os.rename(at + ".new", at)
        except OSError:
            os.system("rm -rf %s.new %s" % (at, at))
def folder(p):
    os.makedirs(p + "/tree/sub", exist_ok=True)
    for f in ("f", "tree/f", "tree/sub/f"):
        open(p + "/" + f, "w").write("inside")
def file(p):
    open(p, "w").write("inside")
folders = [folder, lambda p: os.symlink(out, p), folder, lambda p: os.symlink("../" * 9 + out[1:], p)]
files = [file, lambda p: os.symlink(out + "/x", p), os.mkfifo, file, lambda p: os.symlink("/proc/1/environ", p)]
n = 0
print("on", flush=True)
while True:
    n += 1
    try:
        swap("d", folders, n)
        swap("x", files, n)
    except OSError:  # a call of the host's has come between
        os.system("rm -rf d.new x.new")
PY
# Without: each kind of call by turns.
cat >"$T/call.py" <<'PY'
import collections, http.client, io, json, socket, sys, tarfile, time
sock, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(sock)
b = io.BytesIO()
with tarfile.open(fileobj=b, mode="w") as t:
    for n in ("f", "tree/f", "made"):
        i = tarfile.TarInfo(n)
        i.size = 4
        t.addfile(i, io.BytesIO(b"from"))
tar = b.getvalue()
J = json.dumps
calls = [("GET", "files/opt/at/d/f", None), ("GET", "files/opt/at/d/tree/sub/f", None), ("GET", "files/opt/at/x", None),
         ("GET", "files/opt/at/d?recursive=true", None), ("GET", "archive/opt/at/d", None), ("GET", "archive/opt/at", None),
         ("HEAD", "files/opt/at/x", None), ("PUT", "files/opt/at/d/f", b"from without"), ("PUT", "files/opt/at/d/made", b"x"),
         ("PUT", "files/opt/at/x", b"from without"), ("PUT", "files/opt/at/d/tree/sub/made", b"x"), ("PUT", "archive/opt/at/d", tar),
         ("PUT", "archive/opt/at/d?atomic=true", tar), ("POST", "files/opt/at/d/new?op=mkdir", b"{}"),
         ("POST", "files/opt/at/d/f?op=copy", J({"to": "opt/copy"}).encode()), ("POST", "files/opt/at/x?op=copy", J({"to": "opt/copy-x"}).encode()),
         ("POST", "files/opt/at/d/f?op=move", J({"to": "opt/moved"}).encode()), ("POST", "files/opt/moved?op=move", J({"to": "opt/at/d/moved"}).encode()),
         ("DELETE", "files/opt/at/d/f", None), ("DELETE", "files/opt/at/d/tree?recursive=true", None),
         ("DELETE", "files/opt/copy", None), ("DELETE", "files/opt/copy-x", None), ("DELETE", "files/opt/moved", None)]
end, n, done, slowest = time.time() + seconds, 0, collections.Counter(), 0
wrong = []
# So long, and until either has been met often enough.
while time.time() < end or (min(done[2], done[4]) <= 5 and time.time() < end + 40):
    method, path, body = calls[n % len(calls)]
    n += 1
    c, began = Unix("d"), time.time()
    try:
        c.request(method, "/v1/sandboxes/%s/%s" % (name, path), body)
        r = c.getresponse()
        data = r.read()
    except (OSError, http.client.HTTPException) as e:
        # An archive whose folder goes away while it is read can't be ended otherwise.
        if method != "GET" or not path.startswith("archive/") or isinstance(e, TimeoutError):
            wrong.append("%s %s: %r" % (method, path, e))
        continue
    finally:
        c.close()
        slowest = max(slowest, time.time() - began)
    done[r.status // 100] += 1
    if b"you are out" in data or b"PATH=" in data or r.status >= 500:
        wrong.append("%s %s: %d %r" % (method, path, r.status, data[:300]))
print("# %d calls, the slowest took %.1f s; by class: %s" % (n, slowest, dict(done)))
print("wrong", wrong[:5])
print("both", done[2] > 5 and done[4] > 5)
PY

race() { # RUNTIME
	bough_ok "$1: a sandbox" run --name "s-$1" --runtime "$1" -d
	bough cp "$T/swap.py" "s-$1:/opt/swap.py"
	ex=$(bough exec -d "s-$1" -- python3 /opt/swap.py "$T/outside")
	on() { [ "$(bough logs "$ex")" = on ]; }
	wait_for 10 on
	run timeout 100 python3 "$T/call.py" "$BOUGH_ROOT/run/boughd.sock" "s-$1" 2
	diag "${out%%$'\n'*}"
	like "$1: nothing of the host is read, and nothing waits" "$out" $'\nwrong \[\]\n'
	like "$1: calls met with either" "$out" $'\nboth True$'
	[ "$code" = 0 ] || diag_run
	is "$1: nothing of the host was written or removed" "$(outside)" "$before"
	is "$1: it went on all the time" "$(bough inspect "s-$1" | jq -r '.execs[] | select(.id == "'"$ex"'") | .status')" running
	bough_ok "$1: it goes" rm --force "s-$1"
}
race "$MAIN_RT"
! runsc --version >/dev/null 2>&1 || race runsc
fsck_clean
done_testing
