#!/bin/bash
# What is done to a sandbox and ends in 5xx behind its effect, or before it: asked again with the same
# Idempotency-Key it is told, or done, once. (A trigger in the catalog has it fail.) Paused, resumed,
# started, restored, saved; and restored with secrets, which kill -9 of boughd cuts off.
. "${0%/*}/lib.sh"
need_sandboxes
. "$BOUGH_SRC/tests/e2e/ask.sh"

cat >"$T/keys.py" <<'PY'
import http.client, os, sys, threading, time
from ask import Unix, ask, check, must, root
from boxes import files, inside, make, post, status, write
from deaf import catalog, kill, start

def quiet(*a):
    try:
        return ask(*a)
    except (OSError, http.client.HTTPException):
        return None

def again(what, path, body, key, status, replayed=False):
    got = ask("POST", "sandboxes" + path, body, key)
    check(what, got[0] == status and (got[2] == "true") == replayed, got)
    return got

w = must(201, "POST", "workspaces", {"name": "w"})
write(w["path"] + "/saved", "x")
make("box", workspaces=[{"workspace": "w"}])
make("off", start=False)
make("pause")
box = must(200, "GET", "sandboxes/box")
saved = post(201, "/box/snapshots")["root"]["id"]

# ---- what fails behind its effect, or before it

def failing(when, path, body, key):
    catalog("CREATE TRIGGER fails BEFORE %s BEGIN SELECT abs(-9223372036854775807 - 1); END" % when)
    got = ask("POST", "sandboxes" + path, body, key)
    catalog("DROP TRIGGER fails")
    return got

RUNNING, PAUSED = 1, 2
becomes = lambda n: "UPDATE OF status ON sandboxes WHEN NEW.status = %d AND OLD.status <> %d" % (n, n)
first = failing(becomes(PAUSED), "/pause/pause", {}, "fails")
check("a pause that fails behind its effect", first[0] == 500, first)
got = again("is told", "/pause/pause", {}, "fails", 200, True)
check("as it is", got[1]["status"] == status("pause") == "paused", got)
first = failing(becomes(RUNNING), "/pause/resume", {}, "fails")
check("a resume", first[0] == 500, first)
again("likewise", "/pause/resume", {}, "fails", 200, True)
check("it runs", status("pause") == "running")
first = failing(becomes(RUNNING), "/off/start", {}, "fails")
check("a start that fails before it", first[0] == 500 and status("off") == "failed", first)
again("is done", "/off/start", {}, "fails", 200)
check("it runs", status("off") == "running")

# The second of two trees is restored when it fails, and it has begun again.
write(w["path"] + "/fails", "x")
write(files("box") + "/root/fails", "x")
first = failing("UPDATE OF head ON workspaces WHEN NEW.id = '%s'" % w["id"], "/box/restore",
                {"snapshot": saved}, "fails")
check("a restore that fails behind its effect", first[0] == 500 and not os.path.exists(w["path"] + "/fails"), first)
write(w["path"] + "/since", "x")
write(files("box") + "/root/since", "x")
again("is told", "/box/restore", {"snapshot": saved}, "fails", 200, True)
check("once", os.path.exists(w["path"] + "/since") and os.path.exists(files("box") + "/root/since"))
check("it runs", status("box") == "running")
# At the first of them: the rest is done when it is asked for again.
first = failing("UPDATE OF head ON workspaces WHEN NEW.id = '%s'" % must(200, "GET", "sandboxes/box")["root"],
                "/box/restore", {"snapshot": saved}, "half")
check("one that fails at the first tree", first[0] == 500 and os.path.exists(w["path"] + "/since"), first)
mark = files("box") + "/root/mark"
write(mark, "x")
again("goes on", "/box/restore", {"snapshot": saved}, "half", 200)
check("with what was left alone", not os.path.exists(w["path"] + "/since") and os.path.exists(mark))

# A save is what its root's snapshot is.
write(w["path"] + "/new", "x")
first = failing("INSERT ON snapshots WHEN NEW.workspace <> '%s'" % w["id"], "/box/snapshots", {}, "fails")
check("a save that fails before its root's", first[0] == 500, first)
got = again("is done", "/box/snapshots", {}, "fails", 201)
check("with both", got[1]["root"]["workspace"] == box["root"] and len(got[1]["workspaces"]) == 1, got)

# ---- with secrets

HELD = 24 << 20 # more than a connection holds
s = must(201, "POST", "workspaces", {"name": "s"})
sec = post(201, "", {"name": "sec", "workspaces": [{"workspace": "s"}], "secrets": {"pass": "c2VjcmV0"}})
with open(s["path"] + "/big", "wb") as big:
    big.write(os.urandom(HELD))
has = lambda: inside("sec", "sh", "-c", 'test "$(cat /run/secrets/pass)" = secret')
check("a sandbox with secrets", has() == 0)
of_sec = post(201, "/sec/snapshots")["root"]["id"]
write(s["path"] + "/later", "x")
c = Unix("d") # who takes an archive slowly keeps the workspace from being restored
c.request("GET", "/v1/workspaces/s/archive/?format=tar")
slow = c.getresponse()
slow.read(1)
t = threading.Thread(target=quiet, args=("POST", "sandboxes/sec/restore", {"snapshot": of_sec}, "sec"))
t.start()
until = time.monotonic() + 20
while status("sec") == "running" and time.monotonic() < until:
    time.sleep(0.01)
check("its restore is held up when it is stopped", status("sec") == "stopped" and t.is_alive())
kill()
slow.close()
c.close()
t.join()
kept = root + "/kept/" + sec["id"]
check("its secrets are kept, in memory", os.path.ismount(kept) and os.listdir(root + "/kept") == [sec["id"]])
start()
check("it is stopped", status("sec") == "stopped" and os.path.exists(s["path"] + "/later"))
again("asked again, it goes on", "/sec/restore", {"snapshot": of_sec}, "sec", 200)
check("it runs", status("sec") == "running" and not os.path.exists(s["path"] + "/later"))
check("with its secrets", has() == 0)
check("which are kept no longer", not os.path.exists(kept))
first = failing(becomes(RUNNING), "/sec/restore",
                {"snapshot": of_sec}, "sec2")
check("one that can't be started behind it", first[0] == 500 and status("sec") == "failed", first)
again("is, when it is asked for again", "/sec/restore", {"snapshot": of_sec}, "sec2", 200)
check("with its secrets", has() == 0 and not os.path.exists(kept))
first = failing(becomes(RUNNING), "/sec/restore",
                {"snapshot": of_sec}, "sec3")
check("one that can't be", first[0] == 500 and os.path.ismount(kept), first)
must(204, "DELETE", "sandboxes/sec")
check("leaves none when it is removed", not os.path.exists(kept))
PY

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
asks 32 "$T/keys.py"
fsck_clean
done_testing
