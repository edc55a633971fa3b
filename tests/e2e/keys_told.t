#!/bin/bash
# A webhook's ping, a signed URL and an announced upload, for an Idempotency-Key: once, whenever boughd
# is killed in between. (A trigger in the catalog keeps boughd from noting how they ended.)
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/ask.sh"

cat >"$T/keys.py" <<'PY'
import base64, http.client, os, random, signal, threading, time
from ask import Unix, ask, check, must, root
from deaf import deaf, gone, health, hear, same, start

rng = random.Random(0)
at = must(201, "POST", "workspaces", {"name": "w"})["path"]
hook = must(201, "POST", "webhooks", {"url": "http://127.0.0.1:9/", "events": ["gc.done"]})["id"]
PING, URL = "webhooks/%s/test" % hook, "workspaces/w/files/f?op=sign"

def put(name, text):
    with open(at + "/" + name, "w") as out:
        out.write(text)

def read(name):
    with open(at + "/" + name) as of:
        return of.read()

def pings():
    return sorted(d["id"] for d in must(200, "GET", "webhooks/%s/deliveries?limit=1000" % hook)["items"])

def uploads():
    try:
        return sorted(n[:-5] for n in os.listdir(root + "/uploads") if n.endswith(".json"))
    except FileNotFoundError:
        return []

def announce(key, length=10, name="ten"):
    """(status, the upload's id, whether it is one given before)"""
    c = Unix("d")
    c.request("POST", "/v1/workspaces/w/uploads", None, {
        "Tus-Resumable": "1.0.0", "Upload-Length": str(length), "Idempotency-Key": key,
        "Upload-Metadata": "path " + base64.b64encode(name.encode()).decode()})
    r = c.getresponse()
    r.read()
    c.close()
    return r.status, (r.getheader("Location") or "").rsplit("/", 1)[-1], r.getheader("Idempotency-Replayed")

def send(upload, text):
    c = Unix("d")
    c.request("PATCH", "/v1/workspaces/w/uploads/" + upload, text, {
        "Tus-Resumable": "1.0.0", "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"})
    r = c.getresponse()
    r.read()
    c.close()
    return r.status

# ---- between the effect and its note

put("f", "x")
deaf()
ping, url = ask("POST", PING, {}, "ping"), ask("POST", URL, {}, "url")
up, sent, empty = announce("up"), announce("sent", 10, "sent"), announce("empty", 0, "empty")
check("a ping", ping[0] == 202 and [ping[1]["id"]] == pings() and ping[1]["seq"] > 0, ping, pings())
check("a signed URL", url[0] == 200 and url[1]["url"].startswith("/v1/signed/ws_"), url)
check("uploads", [u[0] for u in (up, sent, empty)] == [201] * 3 and len(uploads()) == 3, up, sent, empty)
check("one of no bytes is a file", read("empty") == "")
check("another is sent", send(sent[1], b"0123456789") == 204 and read("sent") == "0123456789")
time.sleep(1.1) # a URL that is signed now says another second
hear()
# What has come of it by then is told.
same("a ping", PING, {}, "ping", ping, ("state", "tries", "status", "error", "next"))
check("a ping: once", pings() == [ping[1]["id"]], pings())
same("a signed URL", URL, {}, "url", url)
put("empty", "since")
put("sent", "since")
again = announce("up"), announce("sent", 10, "sent"), announce("empty", 0, "empty")
check("uploads: the same", [u[:2] for u in again] == [u[:2] for u in (up, sent, empty)], again)
check("uploads: once", len(uploads()) == 3 and read("empty") == read("sent") == "since", uploads())
check("uploads: one that was sent takes no more", send(sent[1], b"0123456789") == 409)
again = announce("up"), announce("empty", 0, "empty")
check("uploads: by note from then on", [u[:2] for u in again] == [up[:2], empty[:2]] and
      [u[2] for u in again] == ["true"] * 2, again)
check("the other one is there to be sent", send(up[1], b"0123456789") == 204 and read("ten") == "0123456789")
check("another length", announce("up", 11)[0] == 422)

# ---- the end of a mount

for since in (False, True):
    name = "m%d" % since
    must(201, "POST", "workspaces", {"name": name})
    deaf()
    first = ask("POST", "workspaces/%s/umount" % name, {}, name)
    hear()
    check("a mount ends", first[0] == 200 and not first[1]["mounted"], first)
    if since:
        must(200, "POST", "workspaces/%s/mount" % name, {})
    got = ask("POST", "workspaces/%s/umount" % name, {}, name)
    check("asked again: not what was mounted since (%s)" % since, got[0] == 200 and got[1]["mounted"] == since and
          must(200, "GET", "workspaces/" + name)["mounted"] == since, got)
    check("by note from then on", ask("POST", "workspaces/%s/umount" % name, {}, name)[2] == "true")

# ---- at any moment

def quiet(do, key):
    try:
        do(key)
    except (OSError, http.client.HTTPException):
        pass

def killed(do, key):
    pid = health()["pid"]
    t = threading.Thread(target=quiet, args=(do, key))
    t.start()
    time.sleep(rng.random() * 0.01)
    os.kill(pid, signal.SIGKILL)
    t.join()
    gone(pid)
    start()
    until = time.monotonic() + 30
    while (got := do(key))[0] == 409 and time.monotonic() < until:
        time.sleep(0.05)
    return got

for what, want, do, count in (("a ping", 202, lambda key: ask("POST", PING, {}, key), pings),
                              ("an upload", 201, announce, uploads),
                              ("an empty one", 201, lambda key: announce(key, 0, key), uploads)):
    before, bad = len(count()), []
    for i in range(10):
        got = killed(do, "%s %d" % (what, i))
        if got[0] != want or len(count()) != before + i + 1:
            bad.append((i, got, len(count()) - before))
            break
    check("%s: once, killed at any moment" % what, not bad, bad)
PY
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
asks 23 "$T/keys.py"
fsck_clean
done_testing
