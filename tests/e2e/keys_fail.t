#!/bin/bash
# Calls that end in 5xx behind their effect, or while it may come yet: asked again with the same
# Idempotency-Key they are told, or done, once. (A trigger in the catalog has them fail.) Commits, restores,
# what is made; kept doubts about a restore; an end that can't be noted.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/ask.sh"
. "$BOUGH_SRC/tests/e2e/repo.sh"
export BOUGH_GIT_STALL=60 # a busy machine is none that failed

cat >"$T/keys.py" <<'PY'
import json, os, signal, socket, sqlite3, subprocess, sys, threading, time
from ask import ask, check, must, root
from deaf import catalog, health, same

def change(text):
    with open(co + "/file", "w") as out:
        out.write(text)

def git(where, *args):
    return subprocess.run(["git", "--git-dir", where] + list(args), check=True, capture_output=True,
                          text=True).stdout.split()

repo = must(201, "POST", "repos", {"url": sys.argv[2], "name": "r", "token": os.environ["TOKEN"]})
mirror = root + "/repos/" + repo["id"].split("_")[1]
co = must(201, "POST", "workspaces", {"name": "c", "git": {"repo": "r"}})["path"]
change("first")
branch = must(201, "POST", "workspaces/c/commit", {"message": "first"})["branch"]

# ---- what fails behind its effect

def failing(when, do):
    """The answer to do(), while the catalog fails like that."""
    catalog("CREATE TRIGGER fails BEFORE %s BEGIN SELECT abs(-9223372036854775807 - 1); END" % when)
    got = do()
    catalog("DROP TRIGGER fails")
    return got

change("fails")
tip = git(mirror, "rev-parse", branch)[0]
first = failing("UPDATE OF git ON workspaces WHEN NEW.git NOT LIKE '%pending%'",
                lambda: ask("POST", "workspaces/c/commit", {"message": "fails"}, "fails"))
check("a commit that fails behind its branch", first[0] == 500 and git(mirror, "rev-parse", branch + "~1") == [tip], first)
change("more")
got = ask("POST", "workspaces/c/commit", {"message": "fails"}, "fails")
check("is told when it is asked for again", got[0] == 201 and got[2] == "true" and [got[1]["commit"]] ==
      git(mirror, "rev-parse", branch) and got[1]["parent"] == tip, got)
more = must(201, "POST", "workspaces/c/commit", {"message": "more"})
check("what comes next stands on it", more["parent"] == got[1]["commit"], more)

made = must(201, "POST", "workspaces", {"name": "r"})
put_at = lambda name: open(made["path"] + "/" + name, "w").close()
here = lambda: sorted(os.listdir(made["path"]))
put_at("saved")
saved = must(201, "POST", "workspaces/r/snapshots")["id"]
put_at("later")
back = {"snapshot": saved}
first = failing("UPDATE OF head ON workspaces", lambda: ask("POST", "workspaces/r/restore", back, "r1"))
check("a restore that fails behind its effect", first[0] == 500 and here() == ["saved"], first)
put_at("since")
got = ask("POST", "workspaces/r/restore", back, "r1")
check("is told", got[0] == 200 and got[2] == "true" and got[1]["id"] == made["id"], got)
check("and not done once more", here() == ["saved", "since"])
first = failing("UPDATE OF effect ON repeats", lambda: ask("POST", "workspaces/r/restore", back, "r2"))
check("one that fails before it", first[0] == 500 and here() == ["saved", "since"], first)
got = ask("POST", "workspaces/r/restore", back, "r2")
check("is done", got[0] == 200 and got[2] != "true" and here() == ["saved"], got)

# Which doubt there is about a restore, and what has happened to its workspace since.
def fs(**request):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(root + "/run/fs.sock")
    s.send(json.dumps(request).encode())
    return json.loads(s.recv(1 << 18))

def doubt(key, like="r2", layer=None, what=saved):
    layer = layer or fs(op="stack", id=made["id"])["active"]
    catalog("INSERT INTO repeats (owner, method, path, key, body, time, effect) SELECT owner, method, path, '%s', "
            "body, time, 'into/%s/%s/%s' FROM repeats WHERE key = '%s'" % (key, made["id"], layer, what, like))

def again_restore(key, done, what):
    left = here()
    got = ask("POST", "workspaces/r/restore", back, key)
    check(what, got[0] == 200 and (got[2] == "true") == done and here() == (left if done else ["saved"]), got, here())

put_at("s1")
doubt("d1")
must(201, "POST", "workspaces/r/fork", {"names": ["r-fork"]})
must(201, "POST", "workspaces/r/snapshots")
again_restore("d1", False, "a restore that never came is done, also behind a fork and a save")
put_at("s2")
doubt("d2", layer="0" * 32)
again_restore("d2", True, "one that came is told")
doubt("d3")
doubt("d4")
again_restore("d3", False, "of two that never came one is done")
put_at("s3")
again_restore("d4", False, "and the other, which was settled before it")

# ---- it can't be told which sandboxes see it

into = must(201, "POST", "workspaces/r/fork", {"names": ["r-into"]})["items"][0]["path"]
put_at("theirs")
catalog("ALTER TABLE attached RENAME TO away")
first = ask("POST", "workspaces/r/restore", back, "r3")
merge = ask("POST", "workspaces/r-into/merge", {"from": "r"}, "m3")
catalog("ALTER TABLE away RENAME TO attached")
check("a restore of which nobody knows who sees it isn't done", first[0] == 500 and here() == ["saved", "theirs"],
      first, here())
check("nor is a merge", merge[0] == 500 and os.listdir(into) == ["saved"], merge, os.listdir(into))
merge = ask("POST", "workspaces/r-into/merge", {"from": "r"}, "m3")
check("the merge is done when that is known", merge[0] == 200 and sorted(os.listdir(into)) == ["saved", "theirs"],
      merge, os.listdir(into))
got = ask("POST", "workspaces/r/restore", back, "r3")
check("and the restore", got[0] == 200 and got[2] != "true" and here() == ["saved"], got, here())

# ---- whose end can't be noted

catalog("CREATE TRIGGER deaf BEFORE UPDATE OF status ON repeats BEGIN SELECT RAISE(FAIL, 'deaf'); END",
        "CREATE TRIGGER deaf2 BEFORE DELETE ON repeats BEGIN SELECT RAISE(FAIL, 'deaf'); END")
first = ask("POST", "workspaces", {"name": "unnoted"}, "u1")
gc = ask("POST", "gc", {}, "u2")
got = ask("POST", "gc", {}, "u2")
check("while it can't be noted what became of it", got[0] == 409 and got[1]["code"] == "in_flight", got)
catalog("DROP TRIGGER deaf", "DROP TRIGGER deaf2")
same("then what was made is told", "workspaces", {"name": "unnoted"}, "u1", first)
got = ask("POST", "gc", {}, "u2")
check("and what makes nothing is done again", gc[0] == 200 and got[0] == 200 and got[2] != "true", got)

# ---- bough-fs gets to a restore too late

def late_restore(key):
    """The answer; None: boughd had noted it before it could be held up."""
    db = sqlite3.connect(root + "/catalog.db", timeout=30, isolation_level=None)
    got = []
    pid = health()["fs"]["pid"]
    t = threading.Thread(target=lambda: got.append(ask("POST", "workspaces/r/restore", back, key)))
    t.start()
    row = lambda: db.execute("SELECT effect FROM repeats WHERE key = ?", (key,)).fetchone()
    while not row() and t.is_alive():
        pass
    db.execute("BEGIN IMMEDIATE")
    held = (row() or ("",))[0] is None
    if held:
        time.sleep(0.1)
        os.kill(pid, signal.SIGSTOP)
    db.execute("ROLLBACK")
    t.join(10)
    if held:
        os.kill(pid, signal.SIGCONT)
    t.join()
    db.close()
    return got[0] if held else None

for i in range(30):
    put_at("before")
    first = late_restore("late-restore%d" % i)
    if first:
        break
check("a restore that bough-fs doesn't answer", first and first[0] == 503, first)
until = time.monotonic() + 10
while "before" in here() and time.monotonic() < until:
    time.sleep(0.01)
came = "before" not in here()
put_at("since")
for j in range(100):
    got = ask("POST", "workspaces/r/restore", back, "late-restore%d" % i)
    if got[0] not in (409, 503):
        break
    time.sleep(0.2)
check("asked again: once", got[0] == 200 and (got[2] == "true") == came and here() ==
      (["saved", "since"] if came else ["saved"]), came, got, here())
PY

BOUGH_FS_ANSWER_MS=2000 boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
TOKEN=$token asks 21 "$T/keys.py" "$http/r.git"
fsck_clean
done_testing
