#!/bin/bash
# A program that is started in a sandbox, and a signal that is sent there, for an Idempotency-Key: once,
# whenever boughd is killed in between, or the shim is slow, doesn't answer or dies. The programs count.
. "${0%/*}/lib.sh"
need_sandboxes
. "$BOUGH_SRC/tests/e2e/ask.sh"

# A runtime that can be held up on both sides of an exec: it says so in `reached`.
mkdir "$T/slow"
export BOUGH_PROGRAMS=$T/slow
slow() { # NAME
	local real
	real=$(PATH=$BOUGH_BIN:$PATH command -v "$1")
	cat >"$T/slow/$1" <<-SH
		#!/bin/sh
		at() {
			[ -e "$T/hold-\$1" ] || return 0
			echo "\$1" >>"$T/reached"
			while [ -e "$T/hold-\$1" ]; do sleep 0.02; done
		}
		case " \$* " in *' exec '*) ;; *) exec "$real" "\$@" ;; esac
		at before
		"$real" "\$@"
		code=\$?
		at after
		exit \$code
	SH
	chmod +x "$T/slow/$1"
}
slow "$MAIN_RT"
runtimes=$MAIN_RT
! runsc --version >/dev/null 2>&1 || { slow bough-runsc && runtimes="$MAIN_RT runsc"; }

cat >"$T/keys.py" <<'PY'
import http.client, os, random, signal, sys, threading, time
import ask as asking
from ask import check, must, root
from boxes import files, inside, make, post, status, write
from deaf import catalog, deaf, hear, kill, start

T, runtime = sys.argv[2], sys.argv[3]
MAIN = "trap 'echo x >>/root/hup' HUP; trap 'echo x >>/root/term' TERM; while :; do sleep 0.05; done"
rng = random.Random(0)

def ask(method, target, body=None, key=None):
    return asking.ask(method, target, body, key and key + runtime)

def quiet(got, *a):
    try:
        got.append(ask(*a))
    except (OSError, http.client.HTTPException):
        pass

def until(what):
    end = time.monotonic() + 30
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True

def count(name):
    try:
        with open(os.path.join(top, "root", name)) as f:
            return len(f.readlines())
    except FileNotFoundError:
        return 0

def signals():
    return count("usr1") + count("hup")

def hold(at):
    write(T + "/hold-" + at, "")
    write(T + "/reached", "")

def release(at):
    os.unlink(T + "/hold-" + at)

def counting(name):
    return {"command": ["sh", "-c", "echo x >>/root/" + name]}

def again(what, path, body, key, code=201, replayed=None):
    got = ask("POST", "sandboxes" + path, body, key)
    check(what, got[0] == code and replayed in (None, got[2] == "true"), got)
    return got

def ended(got):
    """How the exec of that answer ended."""
    e = must(200, "GET", "sandboxes/box/exec/%s?wait=60" % got[1]["id"])
    return e["exit_code"], e["reason"]

def begin(path, body, key):
    got = []
    t = threading.Thread(target=quiet, args=(got, "POST", "sandboxes" + path, body, key))
    t.start()
    return t, got

make("box", runtime=runtime, command=["sh", "-c", MAIN])
top = files("box")
shim = int(open(root + "/box/" + must(200, "GET", "sandboxes/box")["id"] + "/shim").read().split()[1])

# ---- killed in the middle of a start

for at in ("before", "after"):
    for slow in (False, True):
        name = "%s-%s" % (at, slow)
        hold(at)
        t, got = begin("/box/exec", counting(name), name)
        check("%s: it is being started" % name, until(lambda: os.path.getsize(T + "/reached")))
        kill()
        t.join()
        if at == "after" and slow: # which holds up all of the shim, when the process has ended
            threading.Timer(2, release, (at,)).start()
        elif not slow:
            release(at)
        start()
        if at == "before" and slow:
            got = again("%s: who asks again is told that it isn't known yet" % name, "/box/exec", counting(name),
                        name, 409)
            check("%s: in these words" % name, got[1]["code"] == "in_flight", got)
            release(at)
            until(lambda: ask("POST", "sandboxes/box/exec", counting(name), name)[0] == 201)
        got = again("%s: then it is told" % name, "/box/exec", counting(name), name, 201, True)
        check("%s: it ends well" % name, ended(got) == (0, "exited"), ended(got))
        check("%s: once" % name, count(name) == 1, count(name))

# ---- at any moment

for i in range(12):
    key = "any%d" % i
    t, got = begin("/box/exec", counting("any"), key)
    time.sleep(rng.random() * (0.06 if runtime != "runsc" else 0.15))
    kill()
    t.join()
    start()
    end = time.monotonic() + 30
    while (got := ask("POST", "sandboxes/box/exec", counting("any"), key))[0] != 201:
        if time.monotonic() > end:
            break
        time.sleep(0.1)
    if got[0] != 201 or ended(got) != (0, "exited") or count("any") != i + 1:
        break
check("killed at any moment: once each", count("any") == 12, i, got, count("any"))

# ---- a shim that doesn't answer

os.kill(shim, signal.SIGSTOP)
first = ask("POST", "sandboxes/box/exec", counting("stopped"), "stopped")
check("a shim that is stopped: it isn't done", first[0] == 503, first)
os.kill(shim, signal.SIGCONT)
got = again("asked again it is", "/box/exec", counting("stopped"), "stopped", 201)
check("and ends well", ended(got) == (0, "exited"), ended(got))
check("once", count("stopped") == 1, count("stopped"))

# ---- what is about to be noted, and can't be

catalog("CREATE TRIGGER fails BEFORE UPDATE ON execs WHEN NEW.status = 1 BEGIN SELECT abs(-9223372036854775807 - 1); END")
got = again("a start that can't be noted is one", "/box/exec", counting("unnoted"), "unnoted", 201)
catalog("DROP TRIGGER fails")
check("and ends well", ended(got) == (0, "exited"), ended(got))
again("asked again it is told", "/box/exec", counting("unnoted"), "unnoted", 201, True)
check("once", count("unnoted") == 1, count("unnoted"))

# ---- signals

trap = {"command": ["sh", "-c", "trap 'echo x >>/root/usr1' USR1; touch /root/traps; while :; do sleep 0.05; done"]}
e = post(201, "/box/exec", trap)["id"]
until(lambda: os.path.exists(top + "/root/traps"))
mortal = post(201, "/box/exec", {"command": ["sleep", "1000"]})["id"]
time.sleep(0.2)
calls = [("exec", "/box/exec/%s/signal" % e, {"signal": "USR1"}, "usr1", 204),
         ("main", "/box/exec/main/signal", {"signal": "HUP"}, "hup", 204),
         ("kill", "/box/kill", {"signal": "HUP"}, "hup", 200)]
deaf()
for key, path, body, name, code in calls:
    told = signals()
    again("a signal: " + key, path, body, key, code)
    until(lambda: signals() > told) # two at once are one to a shell
again("one that ends a process", "/box/exec/%s/signal" % mortal, {"signal": "TERM"}, "mortal", 204)
check("has ended it", ended((0, {"id": mortal})) == (143, "signal"))
check("they come", until(lambda: (count("usr1"), count("hup")) == (1, 2)), count("usr1"), count("hup"))
hear()
for key, path, body, name, code in calls:
    again("again: " + key, path, body, key, code)
again("again: of what it has ended", "/box/exec/%s/signal" % mortal, {"signal": "TERM"}, "mortal", 204)
time.sleep(1)
check("they don't come again", (count("usr1"), count("hup")) == (1, 2), count("usr1"), count("hup"))
for key, path, body, name, code in calls:
    again("told: " + key, path, body, key, code, True)
    told = signals()
    again("with another key: " + key, path, body, key + "2", code, False)
    until(lambda: signals() > told) # two at once are one to a shell
check("each of these comes", until(lambda: (count("usr1"), count("hup")) == (2, 4)), count("usr1"), count("hup"))
kill()
catalog("UPDATE repeats SET status = NULL, answer = NULL, effect = replace(effect, substr(effect, -8), '12345678') "
        "WHERE key = 'exec2" + runtime + "'")
start()
again("one that was noted, and not sent, is when it is asked for again", calls[0][1], calls[0][2], "exec2", 204, False)
check("it comes", until(lambda: count("usr1") == 3), count("usr1"))

# ---- TERM of a stop

t, got = begin("/box/stop", {"grace_ms": 3000}, "stop")
check("a stop: it gets TERM", until(lambda: count("term") == 1), count("term"))
kill()
t.join()
start()
check("boughd is killed meanwhile: it runs", status("box") == "running")
again("asked again it is stopped", "/box/stop", {"grace_ms": 3000}, "stop", 200)
check("with the one TERM", status("box") == "stopped" and count("term") == 1, count("term"))
post(200, "/box/start")
again("it is told", "/box/stop", {"grace_ms": 3000}, "stop", 200, True)
check("and stops no other run", status("box") == "running")

# ---- a sandbox's own process

def box_body(name):
    return {"name": name, "runtime": runtime, "command": ["sh", "-c", "echo x >>/root/ran; sleep 1000"]}
own = post(201, "", dict(box_body("own"), start=False))
top = files("own")
for i in range(6):
    key = "start%d" % i
    t, got = begin("/own/start", {}, key)
    time.sleep(rng.random() * 0.2)
    kill()
    t.join()
    start()
    again("a start that was cut off at any moment", "/own/start", {}, key, 200)
    until(lambda: count("ran") == i + 1 or status("own") != "running")
    check("once", count("ran") == i + 1 and status("own") == "running", count("ran"), status("own"))
    post(200, "/own/kill")

# ---- a shim that dies

for at in ("before", "after"):
    top = files("box")
    shim = int(open(root + "/box/" + must(200, "GET", "sandboxes/box")["id"] + "/shim").read().split()[1])
    name = "dies-" + at
    hold(at)
    t, got = begin("/box/exec", counting(name), name)
    until(lambda: os.path.getsize(T + "/reached"))
    os.kill(shim, signal.SIGKILL)
    t.join()
    until(lambda: status("box") == "failed")
    time.sleep(1) # for the rest of it to be ended
    release(at)
    got = again("a shim that dies %s the runtime has begun it: nobody knows how it ended" % at, "/box/exec",
                counting(name), name, 201)
    check("by its end", got[1]["reason"] == "lost", got)
    check("but whether it had begun, where the runtime says so", (got[1]["started"] is None) == (at == "before"), got)
    check("not twice", count(name) <= (at == "after"), count(name))
    if at == "before":
        post(200, "/box/start")
must(204, "DELETE", "sandboxes/box?force=true")
must(204, "DELETE", "sandboxes/own?force=true")
left = [f for d in ("/run", "/tmp") for f in os.listdir(d) if own["id"] in f]
check("nothing is left of what was killed in the middle", not left, left)
PY

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
for rt in $runtimes; do
	asks 74 "$T/keys.py" "$T" "$rt"
done
fsck_clean
done_testing
