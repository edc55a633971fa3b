#!/bin/bash
# kill -9 of boughd between what is done to a sandbox and its note: asked again with the same
# Idempotency-Key a call gives the first answer, and has its effect once. Made, started, stopped, killed,
# paused, resumed, saved, forked, restored; workspaces attached, programs run, files changed.
. "${0%/*}/lib.sh"
need_sandboxes
. "$BOUGH_SRC/tests/e2e/ask.sh"

cat >"$T/keys.py" <<'PY'
import os, sys, time
from ask import ask, check, must, root
from boxes import files, inside, make, post, status, write
from deaf import catalog, deaf, hear, kill, same, start

def read(path):
    with open(path) as f:
        return f.read()

v = must(201, "POST", "workspaces", {"name": "v"})
w = must(201, "POST", "workspaces", {"name": "w"})
write(w["path"] + "/saved", "x")
u = must(201, "POST", "workspaces", {"name": "u"})
make("run", workspaces=[{"workspace": "u"}])
make("box", workspaces=[{"workspace": "w"}])
make("off", start=False)
for name in ("stop", "kill", "pause", "resume"):
    make(name)
post(200, "/resume/pause")
saved = post(201, "/box/snapshots")["root"]["id"]
write(w["path"] + "/later", "x")
write(files("box") + "/root/later", "x")
top = files("run")
write(top + "/root/from", "x")
write(v["path"] + "/from", "x")

def stop_it(name):
    post(200, "/%s/stop" % name, {"grace_ms": 0})

# Name of the call, target, body, status; what comes after it; whether that stayed, and so it was done once.
calls = [
    ("make", "", {"name": "new"}, 201, lambda: None,
     lambda: [s["name"] for s in must(200, "GET", "sandboxes")["items"]].count("new") == 1),
    ("start", "/off/start", {}, 200, lambda: stop_it("off"), lambda: status("off") == "stopped"),
    ("stop", "/stop/stop", {"grace_ms": 0}, 200, lambda: post(200, "/stop/start"),
     lambda: status("stop") == "running"),
    ("kill", "/kill/kill", {}, 200, lambda: post(200, "/kill/start"), lambda: status("kill") == "running"),
    ("pause", "/pause/pause", {}, 200, lambda: post(200, "/pause/resume"),
     lambda: status("pause") == "running"),
    ("resume", "/resume/resume", {}, 200, lambda: post(200, "/resume/pause"),
     lambda: status("resume") == "paused"),
    ("save", "/box/snapshots", {"name": "s"}, 201, lambda: None,
     lambda: sum("s" in n["names"] for n in must(200, "GET", "snapshots")["items"]) == 1),
    ("fork", "/box/fork", {"names": ["f1", "f2"]}, 201, lambda: must(204, "DELETE", "sandboxes/f2"),
     lambda: [s["name"] for s in must(200, "GET", "sandboxes")["items"]].count("f2") == 0),
    ("attach", "/run/workspaces", {"workspace": "v", "target": "/v"}, 201,
     lambda: must(200, "DELETE", "sandboxes/run/workspaces/v"),
     lambda: len(must(200, "GET", "sandboxes/run")["workspaces"]) == 1),
    ("exec", "/run/exec", {"command": ["sh", "-c", "echo x >>/root/ran"]}, 201, lambda: None,
     lambda: len(must(200, "GET", "sandboxes/run/exec")["items"]) == 1 and read(top + "/root/ran") == "x\n"),
    ("mkdir", "/run/files/root/d?op=mkdir", {}, 201, lambda: os.rmdir(top + "/root/d"),
     lambda: not os.path.exists(top + "/root/d")),
    ("move", "/run/files/root/from?op=move", {"to": "root/to"}, 200,
     lambda: write(top + "/root/from", "another"), lambda: read(top + "/root/to") == "x"),
    ("a link of what is attached", "/run/files/workspace/l?op=symlink", {"target": "t"}, 201,
     lambda: os.unlink(u["path"] + "/l"), lambda: not os.path.lexists(u["path"] + "/l")),
    ("restore", "/box/restore", {"snapshot": saved}, 200, lambda: (write(w["path"] + "/kept", "x"),
     write(files("box") + "/root/kept", "x")),
     lambda: os.path.exists(w["path"] + "/kept") and os.path.exists(files("box") + "/root/kept")),
]
deaf()
firsts = [ask("POST", "sandboxes" + c[1], c[2], c[0]) for c in calls]
hear()
check("restored: the root", not os.path.exists(files("box") + "/root/later"))
check("restored: what is attached", os.listdir(w["path"]) == ["saved"], os.listdir(w["path"]))
check("restored: it runs", status("box") == "running")
for (what, target, body, code, undo, undone), first in zip(calls, firsts):
    check(what + ": done", first[0] == code, first)
    try:
        undo()
    except OSError as e:
        check(what + ": its effect is there", False, e)
    got = ask("POST", "sandboxes" + target, body, what)
    check(what + ": answered as the first one", got[0] == code and got[2] == "true", got)
    if what == "save":
        check("save: both snapshots", got[1]["root"] == first[1]["root"] and
              got[1]["workspaces"] == first[1]["workspaces"], got, first)
    elif what == "fork":
        check("fork: what is left of it", [i["name"] for i in got[1]["items"]] == ["f1"], got)
    elif "op=" not in target:
        check(what + ": what it was of", got[1]["id"] == first[1]["id"], got, first)
    check(what + ": once", undone())
    check(what + ": another body", ask("POST", "sandboxes" + target, dict(body, x=1), what)[0] in (400, 422))

# ---- killed in the middle

def under_way(like, key, effect):
    """The request of that key once more, as a boughd leaves it that is killed while it does it."""
    kill()
    catalog("INSERT INTO repeats (owner, method, path, key, body, time, effect) SELECT owner, method, path, "
            "'%s', body, time, %s FROM repeats WHERE key = '%s'" % (key, effect, like))
    start()

def unfinished(path, body, key, how, effect="effect"):
    """The same of one that is asked now, with a change of the catalog."""
    first = ask("POST", "sandboxes" + path, body, key)
    kill()
    catalog(how, "UPDATE repeats SET status = NULL, answer = NULL, effect = %s WHERE key = '%s'" % (effect, key))
    start()
    return first

def again(what, path, body, key, status, replayed=False):
    got = ask("POST", "sandboxes" + path, body, key)
    check(what, got[0] == status and (got[2] == "true") == replayed, got)
    return got

box = must(200, "GET", "sandboxes/box")
group = must(200, "GET", "snapshots/" + saved)["image"]["sandbox"]["workspaces"][0]["snapshot"]
done = os.path.join(files("box"), "root/middle")
write(w["path"] + "/middle", "x")
write(done, "x")
# Its root was restored, when boughd was killed, what is attached not, and it was stopped for that.
stop_it("box")
under_way("restore", "back", "'by/back/%s/1/1/%s/%s/+/%s/%s/-'" %
          (box["id"], box["root"], saved, w["id"], group))
check("a restore that was cut off: nothing comes by itself", os.path.exists(w["path"] + "/middle"))
again("asked again, it goes on", "/box/restore", {"snapshot": saved}, "back", 200)
check("with what was left", not os.path.exists(w["path"] + "/middle"))
check("not with what was done", os.path.exists(done))
check("and it runs, as it did", status("box") == "running")
again("then it is told", "/box/restore", {"snapshot": saved}, "back", 200, True)

# Attached by the catalog, not yet in the sandbox that runs.
run = must(200, "GET", "sandboxes/run")["id"]
kill()
catalog("INSERT INTO attached (sandbox, target, workspace, read_only, exclusive, own) "
        "VALUES ('%s', '/late', '%s', 0, 0, 0)" % (run, v["id"]))
start()
check("what was about to be attached is", inside("run", "test", "-e", "/late/from") == 0)
must(200, "DELETE", "sandboxes/run/workspaces/v")

# A program that was written down, and never started.
unfinished("/run/exec", {"command": ["false", "never"]}, "never",
           "INSERT INTO execs (id, sandbox, caller, spec, status, created) VALUES "
           "('ex_aaaaaaaaaa', '%s', 'uid:0', '{\"command\": [\"false\"]}', 0, 1)" % run, "'by/exec/ex_aaaaaaaaaa'")
got = again("a program that was never started is, when it is asked for again", "/run/exec",
            {"command": ["false", "never"]}, "never", 201)
check("of the first nothing is left", ask("GET", "sandboxes/run/exec/ex_aaaaaaaaaa")[0] == 404)

# Made, and not yet started.
first = unfinished("", {"name": "late", "start": False}, "late",
                   "UPDATE sandboxes SET starting = 1 WHERE name = 'late'")
check("one that was to be started is gone", ask("GET", "sandboxes/late")[0] == 404)
got = again("and made when it is asked for again", "", {"name": "late", "start": False}, "late", 201)
check("another one", got[1]["id"] != first[1]["id"])
# Forks of which one isn't made to the end.
unfinished("/off/fork", {"names": ["g1", "g2"]}, "forks",
           "UPDATE sandboxes SET made = 0 WHERE name IN ('g1', 'g2')")
again("forks that weren't made to the end are made", "/off/fork", {"names": ["g1", "g2"]}, "forks", 201)
# A stop whose signal had come.
stop = must(200, "GET", "sandboxes/stop")
under_way("stop", "ends", "'by/box/%s/' || (SELECT started FROM sandboxes WHERE name = 'stop') || '/stop'" %
          stop["id"])
check("a stop that was cut off: it runs", status("stop") == "running")
stop_it("stop")
again("when it has ended by itself, that is no mistake", "/stop/stop", {"grace_ms": 0}, "ends", 200)
got = ask("POST", "sandboxes/stop/stop", {"grace_ms": 0})
check("without the key it is", got[0] == 409, got)
PY

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
asks 86 "$T/keys.py"
fsck_clean
done_testing
