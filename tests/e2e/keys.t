#!/bin/bash
# kill -9 of boughd, and of bough-fs with it, between an effect and its note: asked again with the same
# Idempotency-Key a call gives the first answer, and has its effect once. Changes of files, batches,
# commits, pushes, exports, repositories. (A trigger in the catalog keeps boughd from noting it.)
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/ask.sh"
. "$BOUGH_SRC/tests/e2e/repo.sh"
export BOUGH_GIT_STALL=60 # a busy machine is none that failed

cat >"$T/keys.py" <<'PY'
import http.client, io, json, os, signal, subprocess, sys, tarfile, threading, time
from ask import Unix, ask, check, must, root
from deaf import catalog, deaf, gone, health, hear, kill, same, start

remote, srv = sys.argv[2:4]
TOKEN = os.environ["TOKEN"]

# ---- files

ws = must(201, "POST", "workspaces", {"name": "w"})
at, f = ws["path"], "workspaces/w/files/"

def put(name, text):
    with open(at + "/" + name, "w") as out:
        out.write(text)

def read(name):
    with open(at + "/" + name) as of:
        return of.read()

def files(n):
    """Target, body, status, what undoes it, whether that stayed."""
    put(n + "from", "x")
    put(n + "copied", "content")
    return [
        (n + "dir/sub?op=mkdir", {"mode": "0750"}, 201, lambda: os.rmdir(at + "/%sdir/sub" % n),
         lambda: not os.path.exists(at + "/%sdir/sub" % n)),
        (n + "from?op=move", {"to": n + "to"}, 200, lambda: put(n + "from", "another"),
         lambda: read(n + "from") == "another" and read(n + "to") == "x"),
        (n + "copied?op=copy", {"to": n + "copy"}, 201, lambda: put(n + "copy", "changed"),
         lambda: read(n + "copy") == "changed"),
        (n + "link?op=symlink", {"target": "some/where"}, 201, lambda: os.unlink(at + "/%slink" % n),
         lambda: not os.path.lexists(at + "/%slink" % n)),
        (n + "copied?op=chmod", {"mode": "0640"}, 200, lambda: os.chmod(at + "/%scopied" % n, 0o600),
         lambda: os.stat(at + "/%scopied" % n).st_mode & 0o777 == 0o600),
    ]

def batch(n):
    return {"operations": [
        {"op": "write", "path": n + "/a", "content": "one"},
        {"op": "mkdir", "path": n + "/d"},
        {"op": "write", "path": n + "/gone", "content": "x"},
        {"op": "move", "path": n + "/gone", "to": n + "/b"},
        {"op": "symlink", "path": n + "/l", "target": "a"}]}

# ---- a checkout

def change(text):
    with open(co + "/file", "w") as out:
        out.write(text)

def git(where, *args):
    return subprocess.run(["git", "--git-dir", where] + list(args), check=True, capture_output=True,
                          text=True).stdout.split()

def pushed():
    return git(srv + "/r.git", "rev-parse", branch)[0]

add = {"url": remote, "name": "r", "token": TOKEN}
refused = {"operations": [{"op": "mkdir", "path": "0-batch"}]}

for both in (False, True):
    n, with_fs = "%d-" % both, " (bough-fs is killed, too)" if both else ""
    calls = files(n)
    deaf()
    firsts = [ask("POST", f + c[0], c[1], c[0]) for c in calls]
    b = ask("POST", "workspaces/w/batch", batch(n + "batch"), n)
    if not both:
        no = ask("POST", "workspaces/w/batch", refused, "refused")
        repo = ask("POST", "repos", add, "add")
        mirror = root + "/repos/" + repo[1]["id"].split("_")[1]
        co = must(201, "POST", "workspaces", {"name": "c", "git": {"repo": "r"}})["path"]
        export = ask("POST", "exports", {"from": "w"}, "export")
    change("committed %d" % both)
    commit = ask("POST", "workspaces/c/commit", {"message": "m"}, "commit" + n)
    branch = commit[1]["branch"]
    lease = {"force_with_lease": pushed()} if both else {}
    push = ask("POST", "workspaces/c/push", lease, "push" + n)
    hear(both)

    for (target, body, status, undo, undone), first in zip(calls, firsts):
        what = target.split("=")[1] + with_fs
        check(what + ": done", first[0] == status, first)
        undo()
        same(what, f + target, body, target, first)
        check(what + ": once", undone())
        other = ask("POST", f + target, dict(body, mode="0700"), target)
        check(what + ": another body", other[0] == 422, other)

    check("a batch: done", b[0] == 200 and len(b[1]["results"]) == 5, b)
    os.unlink(at + "/" + n + "batch/b")
    same("a batch" + with_fs, "workspaces/w/batch", batch(n + "batch"), n, b)
    check("a batch: once", not os.path.exists(at + "/" + n + "batch/b"))
    other = ask("POST", "workspaces/w/batch", batch(n + "other"), n)
    check("a batch: another body", other[0] == 422 and other[1]["code"] == "key_reused" and
          other[2] != "true", other)

    check("a commit: made", commit[0] == 201 and commit[1]["branch_moved"], commit)
    change("another %d" % both)
    same("a commit" + with_fs, "workspaces/c/commit", {"message": "m"}, "commit" + n, commit)
    check("a commit: once", git(mirror, "rev-parse", branch) == [commit[1]["commit"]])
    later = must(201, "POST", "workspaces/c/commit", {"message": "later"})
    check("a commit: what comes next stands on it", later["parent"] == commit[1]["commit"], later)

    check("a push: done", push[0] == 200 and pushed() == push[1]["commit"] == commit[1]["commit"], push)
    got = ask("POST", "workspaces/c/push", lease, "push" + n)
    check("a push: the first answer" + with_fs, got[:2] == push[:2], got, push)
    check("a push: what was committed since isn't pushed", pushed() == commit[1]["commit"] != later["commit"])
    same("a push, by note from then on", "workspaces/c/push", lease, "push" + n, push)
    if both:
        continue
    check("a batch that is refused", no[0] == 409, no)
    got = ask("POST", "workspaces/w/batch", refused, "refused")
    check("had no effect, so it is tried again", got[0] == 409 and got[2] != "true", got)
    check("a repository: added", repo[0] == 201 and repo[1]["refs_changed"] > 0, repo)
    same("a repository", "repos", add, "add", repo)
    check("a repository: once", len(must(200, "GET", "repos")["items"]) == 1)
    check("an export: made", export[0] == 201, export)
    same("an export", "exports", {"from": "w"}, "export", export)
    check("an export: once", [e["id"] for e in must(200, "GET", "exports")["items"]] == [export[1]["id"]])

# ---- asked of a bough-fs that doesn't get to it before boughd is killed

def quiet(*a):
    try:
        return ask(*a)
    except (OSError, http.client.HTTPException):
        return None

def send_late(key, nap):
    """A batch that bough-fs has got, or not yet, when boughd is killed. False: it didn't come so far."""
    ask("GET", f) # bough-fs is known to live now, and isn't asked for a moment
    h = health()
    os.kill(h["fs"]["pid"], signal.SIGSTOP)
    t = threading.Thread(target=quiet, args=("POST", "workspaces/w/batch", batch(key), key))
    t.start()
    noted, until = False, time.monotonic() + 3
    while not noted and time.monotonic() < until:
        noted = catalog("SELECT 1 FROM repeats WHERE key = '%s' AND effect IS NOT NULL" % key)
        time.sleep(0.005)
    time.sleep(nap)
    if noted:
        os.kill(h["pid"], signal.SIGKILL)
    os.kill(h["fs"]["pid"], signal.SIGCONT)
    t.join()
    if noted:
        gone(h["pid"])
        start()
    return noted

for nap in (0, 0.2):
    keys = ("late%d-%d" % (10 * nap, i) for i in range(30))
    key = next(k for k in keys if send_late(k, nap))
    was = os.path.exists(at + "/" + key)
    time.sleep(0.2)
    check("killed while bough-fs was stopped: nothing comes later", os.path.exists(at + "/" + key) == was)
    if was:
        os.unlink(at + "/" + key + "/b")
    got = ask("POST", "workspaces/w/batch", batch(key), key)
    check("asked again: answered", got[0] == 200 and len(got[1]["results"]) == 5 and
          (got[2] == "true") == was, got)
    check("done once", os.path.exists(at + "/" + key + "/b") != was)

# ---- uploads are compared when they have come

def form(boundary, text):
    part = '--%s\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    ops = json.dumps({"operations": [{"op": "write", "path": "form", "part": "p"}]})
    body = part % (boundary, "operations", ops) + part % (boundary, "p", text) + "--%s--\r\n" % boundary
    return ask("POST", "workspaces/w/batch", body.encode(), "form",
               {"Content-Type": "multipart/form-data; boundary=" + boundary})

check("a form", form("one", "x")[0] == 200)
got = form("twice", "x")
check("a form: the boundary is another, and that is all", got[0] == 200 and got[2] == "true", got)
check("another form", form("two", "y")[0] == 422)

def tar(text):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        m = tarfile.TarInfo("f")
        m.size = len(text)
        t.addfile(m, io.BytesIO(text))
    return out.getvalue()

def imported(key, text, **headers):
    return ask("POST", "import?name=" + key, tar(text), key, headers)

first = imported("i1", b"x")
check("an import", first[0] == 201, first)
got = imported("i1", b"x")
check("an import: the same", got[0] == 201 and got[2] == "true" and got[1]["id"] == first[1]["id"], got)
check("an import: another", imported("i1", b"y")[0] == 422)

def broken(key, text):
    """The same, of which half comes: when boughd knows that, the key is known, and free."""
    c, body = Unix("d"), tar(text)
    c.putrequest("POST", "/v1/import?name=" + key)
    c.putheader("Idempotency-Key", key)
    c.putheader("Content-Length", str(len(body)))
    c.endheaders(body[:len(body) // 2])
    while not catalog("SELECT 1 FROM repeats WHERE key = '%s'" % key):
        time.sleep(0.01)
    c.close()
    for _ in range(3000):
        got = imported(key, text)
        if got[1].get("code") != "in_flight":
            return got
        time.sleep(0.01)
    return got

got = broken("i3", b"x" * 100000)
check("an import that broke off is done when it comes again", got[0] == 201 and not got[2], got)
big = os.urandom(3 << 20)
first = imported("i2", big, Prefer="respond-async")
check("a job", first[0] == 202, first)
got = imported("i2", big, Prefer="respond-async")
check("a job: the same", got[0] in (201, 202) and got[2] == "true", got)
must(200, "GET", "jobs/%s?wait=60" % first[1]["id"])
got = imported("i2", big, Prefer="respond-async")
check("a job: what it made", got[0] == 201 and got[2] == "true", got)
check("a job: another", imported("i2", big[:-1], Prefer="respond-async")[0] == 422)

# ---- bough-fs doesn't answer in time, and does it later

os.environ["BOUGH_FS_ANSWER_MS"] = "2000"
kill()
start()
del os.environ["BOUGH_FS_ANSWER_MS"]

def in_doubt(key):
    return catalog("SELECT 1 FROM repeats WHERE key = '%s' AND status IS NULL AND effect IS NOT NULL" % key)

def too_late(key):
    """A batch that bough-fs gets to when it was answered with 503; None: it didn't come so far."""
    ask("GET", f)
    pid = health()["fs"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    got = []
    t = threading.Thread(target=lambda: got.append(ask("POST", "workspaces/w/batch", batch(key), key)))
    t.start()
    t.join(10)
    os.kill(pid, signal.SIGCONT)
    t.join()
    return got[0] if got[0][0] == 503 and in_doubt(key) else None

def there(key):
    return os.path.exists(at + "/" + key + "/b")

def again(key):
    until = time.monotonic() + 20
    while True:
        got = ask("POST", "workspaces/w/batch", batch(key), key)
        if got[0] not in (409, 503) or got[1]["code"] not in ("in_flight", "unavailable") or time.monotonic() > until:
            return got
        time.sleep(0.2)

never = []
for i in range(30):
    key = "too-late%d" % i
    first = too_late(key)
    until = time.monotonic() + 5
    while first and not there(key) and time.monotonic() < until:
        time.sleep(0.01)
    if first and there(key):
        break
    if first: # it was asked about before it was begun, and so never is
        got = again(key)
        never.append(got if got[0] != 200 or not there(key) else "done")
check("what never came is done when it is asked for again", never == ["done"] * len(never), never)
check("one that bough-fs doesn't answer", first and first[1]["code"] == "unavailable", first)
check("is done all the same", there(key))
os.unlink(at + "/" + key + "/b")
got = again(key)
check("and known to be, when it is asked for again", got[0] == 200 and got[2] == "true" and
      len(got[1]["results"]) == 5, got)
check("so it is done once", not there(key))
# One that was never done.
catalog("INSERT INTO repeats (owner, method, path, key, body, time, effect, answer) SELECT owner, method, path, "
        "'never', body, time, substr(effect, 1, 22) || '1234/200', answer FROM repeats WHERE key = '%s'" % key)
got = ask("POST", "workspaces/w/batch", batch(key), "never")
check("what was never done is done then", got[0] == 409 and got[1]["code"] == "exists", got)

# ---- a push that the other side doesn't take

change("to be pushed")
commit = must(201, "POST", "workspaces/c/commit", {"message": "m"})
os.rename(srv + "/r.git", srv + "/away.git")
got = ask("POST", "workspaces/c/push", {}, "away")
check("a push to what isn't there", got[0] == 502, got)
os.rename(srv + "/away.git", srv + "/r.git")
change("later")
later = must(201, "POST", "workspaces/c/commit", {"message": "later"})
got = ask("POST", "workspaces/c/push", {}, "away")
check("asked again: the same commit", got[0] == 200 and got[1]["commit"] == commit["commit"] == pushed(), got)

# ---- a reset

def since(parent):
    """Somebody else's commit, which the branch comes to."""
    made = git(mirror, "-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", parent + "^{tree}", "-p", parent,
               "-m", "since")[0]
    git(mirror, "update-ref", "refs/heads/" + branch, made)
    return made

local = lambda: git(mirror, "rev-parse", branch)[0]
body = {"branch": branch, "force": True}
was = local()
deaf()
first = ask("POST", "repos/r/reset", body, "reset")
hear()
check("a reset: done", first[0] == 200 and first[1]["lost"] == 1 and first[1]["was"] == was and
      local() == first[1]["commit"] == pushed(), first)
made = since(local())
same("a reset", "repos/r/reset", body, "reset", first)
check("a reset: once", local() == made)
# As it is noted when it hasn't come yet.
catalog("INSERT INTO repeats (owner, method, path, key, body, time, effect) SELECT owner, method, path, 'reset2', body, "
        "time, replace(effect, '%s', '%s') FROM repeats WHERE key = 'reset'" % (was, made))
got = ask("POST", "repos/r/reset", body, "reset2")
check("one that never came is done", got[0] == 200 and got[2] != "true" and got[1]["was"] == made and
      local() == pushed(), got)
# To what is upstream's, and no commit goes.
git(mirror, "update-ref", "refs/heads/" + branch, pushed() + "~1")
deaf()
first = ask("POST", "repos/r/reset", body, "ahead")
hear()
check("one by which no commit goes", first[0] == 200 and first[1]["lost"] == 0 and local() == pushed(), first)
made = since(local())
same("one by which no commit goes", "repos/r/reset", body, "ahead", first)
check("once", local() == made)
PY

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
TOKEN=$token asks 104 "$T/keys.py" "$http/r.git" "$srv"
fsck_clean
done_testing
