#!/bin/bash
# A workspace that begins with an archive: one call, all of it or nothing, whoever is killed.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/ask.sh"

cat >"$T/one.py" <<'PY'
import http.client, io, json, os, random, signal, sqlite3, subprocess, sys, tarfile, threading, time
from ask import Unix, ask, check, must, root

def archive(files, size=1, kind="w"):
    out, rnd = io.BytesIO(), random.Random(files)
    with tarfile.open(fileobj=out, mode=kind) as t:
        for i in range(files):
            m = tarfile.TarInfo("d%d/f%d" % (i % 7, i))
            m.size, m.mode = size, 0o644
            t.addfile(m, io.BytesIO(rnd.randbytes(size)))
    return out.getvalue()

def there():
    """What there is, by the catalog and on the disk."""
    return (sorted(w["name"] for w in must(200, "GET", "workspaces")["items"]),
            len(must(200, "GET", "snapshots")["items"]),
            len(os.listdir(root + "/ws")), len(os.listdir(root + "/snapshots")))

def files(name):
    tree = must(200, "GET", "workspaces/%s/files/?recursive=true" % name)["entries"]
    return sum(e["type"] == "file" for e in tree)

small, large, packed = archive(100), archive(3000, 500), archive(100, kind="w:gz")
status, ws, _ = ask("POST", "workspaces/import?name=a&label=k=v%3Dw&label=m=&quota_bytes=9999999&ttl_s=9000"
                    "&description=d&mount=0", packed, "a")
snap = must(200, "GET", "snapshots/" + ws["head"])
check("one call makes it", [status, ws["name"], ws["labels"], ws["quota_bytes"], ws["description"],
                            ws["mounted"]] == [201, "a", {"k": "v=w", "m": ""}, 9999999, "d", False], ws)
check("all is in it", files("a") == 100)
check("its own bytes are none", must(200, "GET", "workspaces/a")["used_bytes"] == 0)
check("it stands on a snapshot of that", [snap["id"], snap["workspace"], snap["files"], snap["expires"]] ==
      [ws["base"], ws["id"], 108, None], snap)
check("which it is as", must(200, "POST", "workspaces/a/snapshots", {})["unchanged"] is True)
log = must(200, "GET", "audit?object=" + ws["id"])["items"]
check("the audit log has it", log[-1]["path"] == "/v1/workspaces/import", log)
check("asked again", [ask("POST", "workspaces/import?name=a&label=k=v%3Dw&label=m=&quota_bytes=9999999&ttl_s=9000"
                          "&description=d&mount=0", packed, "a")[i] for i in (0, 2)] == [201, "true"])
check("once", ask("POST", "workspaces/import?name=b", small, "b")[0] == 201 and
      ask("POST", "workspaces/import?name=b", small, "b")[::2] == (201, "true"))
check("of another body", ask("POST", "workspaces/import?name=b", small + b"\0" * 512, "b")[0] == 422)
check("of another query", ask("POST", "workspaces/import?name=b&mount=0", small, "b")[0] == 422)

# ---- as a job

later = {"Prefer": "respond-async"}
job = ask("POST", "workspaces/import?name=j&label=k=v&mount=0", small, "j", later)
check("a job, once all has come", job[0] == 202 and job[1]["path"] == "/v1/workspaces/import", job)
got = must(200, "GET", "jobs/%s?wait=60" % job[1]["id"])
check("makes it", [got["state"], got["status"], got["result"]["name"], got["result"]["labels"], files("j")] ==
      ["done", 201, "j", {"k": "v"}, 100], got)
log = [row["object"] or "" for row in must(200, "GET", "audit")["items"] if row["path"] == job[1]["path"]]
check("and is told of once", log.count(got["result"]["id"]) == 1 and not any(o.startswith("jb_") for o in log), log)
again = ask("POST", "workspaces/import?name=j&label=k=v&mount=0", small, "j", later)
check("its key tells", [again[0], again[1]["id"], again[2]] == [201, got["result"]["id"], "true"], again)
got = ask("POST", "workspaces/import?name=j", small, None, later)
check("a name that is taken is no job", got[0] == 409 and got[1]["code"] == "exists", got)
got = ask("POST", "workspaces/import?name=n", b"no archive", None, later)
got = must(200, "GET", "jobs/%s?wait=60" % got[1]["id"])
check("no archive is one that fails", [got["state"], got["status"], got["error"]["code"]] ==
      ["failed", 400, "invalid"], got)
check("nothing is kept of what was sent", os.listdir(root + "/imports") == [])

# ---- what isn't made leaves nothing

was = there()
def refused(what, want, code, query, body):
    got = ask("POST", "workspaces/import?" + query, body)
    check(what, (got[0], got[1].get("code")) == (want, code), got)
refused("a name that is taken", 409, "exists", "name=b", small)
refused("no name", 400, "invalid", "mount=1", small)
refused("no such field", 400, "invalid", "name=c&from=b", small)
refused("no number", 400, "invalid", "name=c&quota_bytes=1x", small)
refused("no yes or no", 400, "invalid", "name=c&mount=perhaps", small)
refused("no label", 400, "invalid", "name=c&label=k", small)
refused("a label twice", 400, "invalid", "name=c&label=k=a&label=k=b", small)
refused("no archive", 400, "invalid", "name=c", b"no archive")
refused("one that is cut", 400, "invalid", "name=c", large[:len(large) // 2])
refused("one that leads out", 400, "invalid", "name=c", small.replace(b"d3/f3\0", b"../f3\0"))
refused("over the quota of bytes", 507, "quota", "name=c&quota_bytes=100000", large)
refused("over the quota of files", 507, "quota", "name=c&quota_inodes=50", large)
check("nothing of these is there", there() == was, there(), was)
c = Unix("d")
c.putrequest("POST", "/v1/workspaces/import?name=c")
c.putheader("Content-Length", str(len(large)))
c.putheader("Idempotency-Key", "c")
c.endheaders()
c.send(large[:len(large) // 2])
time.sleep(0.3)
c.close()
until = time.monotonic() + 30
while (got := ask("POST", "workspaces/import?name=c", large, "c"))[0] == 409 and time.monotonic() < until:
    time.sleep(0.1)
check("one whose caller left isn't there, and is made when it comes again", got[::2] == (201, None) and
      files("c") == 3000, got)

# ---- kill -9 of boughd at any moment

def start():
    subprocess.run(["boughd", "--root", root, "--daemon"], check=True)

def kill(pid):
    os.kill(pid, signal.SIGKILL)
    while os.path.exists("/proc/%d/exe" % pid):
        time.sleep(0.01)
    for _ in range(100):
        if subprocess.run(["boughd", "--root", root, "--daemon"], stderr=subprocess.DEVNULL).returncode == 0:
            return
        time.sleep(0.1)
    sys.exit("boughd doesn't start again")

def go(name):
    try:
        ask("POST", "workspaces/import?name=" + name, large, name)
    except (OSError, http.client.HTTPException):
        pass

began = time.monotonic()
go("timed")
took = time.monotonic() - began
bad, made = [], 0
for i in range(12):
    name, before = "k%d" % i, there()
    pid = must(200, "GET", "health")["pid"]
    t = threading.Thread(target=go, args=(name,))
    t.start()
    time.sleep(took * i / 10)
    kill(pid)
    t.join()
    after = there()
    new = name in after[0]
    made += new
    if [a - b for a, b in zip(after[1:], before[1:])] != [new] * 3 or (new and files(name) != 3000):
        bad.append((i, before[1:], after[1:]))
    got = ask("POST", "workspaces/import?name=" + name, large, name)
    if got[0] != 201 or got[1]["name"] != name or files(name) != 3000 or there()[1] != before[1] + 1:
        bad.append((i, got))
check("after a kill all of it is there, or nothing; asked again it is, once", not bad, bad)

# ---- between the effect and the answer, and without the snapshot's record

pid = must(200, "GET", "health")["pid"]
os.kill(pid, signal.SIGSTOP)
with sqlite3.connect(root + "/catalog.db", timeout=30) as db:
    db.execute("UPDATE repeats SET status = NULL, answer = NULL WHERE key = 'c'")
os.unlink("%s/snapshots/%s.json" % (root, got[1]["head"]))
kill(pid)
again = ask("POST", "workspaces/import?name=c", large, "c")
check("what was made is answered", [again[0], again[1]["name"], again[2]] == [201, "c", "true"], again)
check("the record is there again", os.path.exists("%s/snapshots/%s.json" % (root, got[1]["head"])))
PY
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
asks 34 "$T/one.py"

# ---- bough

mkdir -p src/sub
echo one >src/f
head -c 300000 /dev/urandom >src/sub/g
tar -C src --format=posix -cf all.tar .
head -c 200000 all.tar >cut.tar
there() { find "$BOUGH_ROOT/ws" "$BOUGH_ROOT/snapshots" "$BOUGH_ROOT/mnt" -mindepth 1 -maxdepth 1 | sort; }
was=$(there)
bough_fails 'a broken archive' 1 'cut.tar' create broken --tar cut.tar
bough_fails 'a name that is taken' 4 'already' create c --tar all.tar
bough_fails 'over the quota' 6 'quota' create much --tar all.tar --quota 100K
is 'leave nothing' "$(there)" "$was"
bough_ok 'an archive' create tarred --tar all.tar --label a=b --label 'c=d e&f' --ttl 3h --no-xattrs
same_tree 'is there' src "$out"
bough_ok 'its labels' show tarred --json
is 'as they were given' "$(jq -c .labels <<<"$out")" '{"a":"b","c":"d e&f"}'
is 'without xattrs' "$(jq .xattrs <<<"$out")" false
bough_ok 'a folder' create foldered --dir src
same_tree 'is there, too' src "$out"
bough_ok 'which is as its snapshot' diff foldered
is 'nothing changed' "$out" ''
fsck_clean
done_testing
