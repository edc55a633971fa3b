#!/bin/bash
# kill -9 of boughd between a restore's or merge's effect and its note: asked again with the same
# Idempotency-Key it is answered, and not done once more. (The catalog is locked from outside at that
# moment, so that boughd can't note it.) A process that is started for a key is, too.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/ask.sh"

cat >"$T/cut.py" <<'PY'
import http.client, io, os, signal, sqlite3, subprocess, sys, tarfile, threading, time
from ask import ask, check, must, root

FILES = 2000
tests = 0

def pid():
    return must(200, "GET", "health")["pid"]

def start():
    subprocess.run(["boughd", "--root", root, "--daemon"], check=True)

def many(folder):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for i in range(FILES):
            m = tarfile.TarInfo("%s/f%d" % (folder, i))
            m.size, m.mode = 1, 0o644
            t.addfile(m, io.BytesIO(b"x"))
    return out.getvalue()

def cut(target, body, key, done):
    """Asks, and kills boughd when bough-fs has done it (done: tells so) and before that is noted, or
    at once when it is asked to (done None). False: it was faster than this."""
    boughd = pid()
    db = sqlite3.connect(root + "/catalog.db", timeout=30, isolation_level=None)
    def go():
        try:
            ask("POST", target, body, key)
        except (OSError, http.client.HTTPException):
            pass
    t = threading.Thread(target=go)
    t.start()
    def row():
        return db.execute("SELECT status, effect FROM repeats WHERE key = ?", (key,)).fetchone()
    while not (row() or (None, None))[1]:
        if not t.is_alive():
            sys.exit("no intent was noted: %r" % (row(),))
    if done:
        db.execute("BEGIN IMMEDIATE")
        if row()[0] is not None:
            db.execute("ROLLBACK")
            t.join()
            return False
        until = time.monotonic() + 30
        while not done() and time.monotonic() < until:
            time.sleep(0.001)
    os.kill(boughd, signal.SIGKILL)
    t.join()
    db.close()
    while os.path.exists("/proc/%d/exe" % boughd):
        time.sleep(0.01)
    start()
    return True

def write(path):
    with open(path, "w") as f:
        f.write("later")

ws = must(201, "POST", "workspaces", {"name": "w"})
at = ws["path"]
must(200, "PUT", "workspaces/w/archive/", many("d"))
snap = must(201, "POST", "workspaces/w/snapshots", {})["id"]

# ---- a restore

def away():
    must(204, "DELETE", "workspaces/w/files/d?recursive=true")

for i in range(50):
    away()
    key = "r%d" % i
    if cut("workspaces/w/restore", {"snapshot": snap}, key, lambda: os.path.exists(at + "/d/f0")):
        break
check("killed between a restore and its note", os.path.exists(at + "/d/f0"))
check("its head is known", must(200, "GET", "workspaces/w")["head"] == snap)
write(at + "/later")
got = ask("POST", "workspaces/w/restore", {"snapshot": snap}, key)
check("asked again: answered", got[0] == 200 and got[1]["id"] == ws["id"] and got[2] == "true", got)
check("asked again: not done again", os.path.exists(at + "/later"))
got = ask("POST", "workspaces/w/restore", {"snapshot": snap})
check("asked without the key: done", got[0] == 200 and not os.path.exists(at + "/later"), got)

away()
cut("workspaces/w/restore", {"snapshot": snap}, "under way", None)
was = os.path.exists(at + "/d/f0")
time.sleep(0.3)
check("killed while it is done: done or not, nothing comes later", os.path.exists(at + "/d/f0") == was)
write(at + "/later")
got = ask("POST", "workspaces/w/restore", {"snapshot": snap}, "under way")
check("asked again: it is done", got[0] == 200 and os.path.exists(at + "/d/f0"), got)
check("once", os.path.exists(at + "/later") == was)

# ---- a merge

must(200, "POST", "workspaces/w/restore", {"snapshot": snap})
must(201, "POST", "workspaces/w/fork", {"names": ["f"]})
must(200, "PUT", "workspaces/f/archive/", many("m"))
new = at + "/m/f0"
for i in range(100):
    must(200, "POST", "workspaces/w/restore", {"snapshot": snap})
    key = "m%d" % i
    if cut("workspaces/w/merge", {"from": "f"}, key, lambda: os.path.exists(new)):
        break
check("killed between a merge and its note", os.path.exists(new))
os.unlink(new)
got = ask("POST", "workspaces/w/merge", {"from": "f"}, key)
check("asked again: answered with what was done", got[0] == 200 and got[2] == "true" and
      got[1]["added"] == FILES + 1 and got[1]["workspace"]["id"] == ws["id"], got)
check("asked again: not done again", not os.path.exists(new))

# ---- a mount is noted where it is asked for

def forget(how): # the answer of the request "mount", as a kill before it was noted would
    boughd = pid()
    os.kill(boughd, signal.SIGKILL)
    while os.path.exists("/proc/%d/exe" % boughd):
        time.sleep(0.01)
    with sqlite3.connect(root + "/catalog.db") as db:
        db.execute("UPDATE repeats SET status = NULL, answer = NULL%s WHERE key = 'mount'" % how)
    start()

must(200, "POST", "workspaces/w/umount", {})
must(200, "POST", "workspaces/w/mount", {}, "mount")
forget("")
must(200, "POST", "workspaces/w/umount", {})
got = ask("POST", "workspaces/w/mount", {}, "mount")
check("a mount: answered, not done again", got[0] == 200 and got[2] == "true" and
      not must(200, "GET", "workspaces/w")["mounted"], got)
must(204, "DELETE", "workspaces/f")
first = must(200, "POST", "workspaces/f/undelete", {}, "mount")
forget("")
got = ask("POST", "workspaces/f/undelete", {}, "mount")
check("what came back: answered", got[0] == 200 and got[2] == "true" and got[1]["id"] == first["id"], got)
forget(", effect = 'into/ws_gone/%s/-'" % ("0" * 32))
got = ask("POST", "workspaces/w/mount", {}, "mount")
check("what a workspace that is gone should have become keeps nobody waiting", got[0] == 200 and
      got[2] != "true", got)
PY

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
asks 14 "$T/cut.py"
done_testing
