#!/bin/bash
# bough-fs is killed while it tells the kernel of what boughd changed: the kernel has it wait for
# a folder that who looks a name up has locked, and that one waits for an answer of the next bough-fs.
. "${0%/*}/lib.sh"
need_fuse
[ "${VARIANT:-}" != tsan ] || skip_all "ThreadSanitizer's own thread" # no process apart (session_apart)
. "$BOUGH_SRC/tests/e2e/ask.sh"

bough_ok 'create' create w
w=$out
cat >"$T/storm.py" <<'PY'
import os, random, signal, sys, threading, time
from ask import ask

mount, seed = sys.argv[2], int(sys.argv[3])
KILLS = 25
random.seed(seed)
over, changed, failed = threading.Event(), [], []

def change(n):
    i = 0
    while not over.is_set():
        name, i = "%d-%d" % (n, i), i + 1
        try:
            made = ask("POST", "workspaces/w/files/%s?op=mkdir" % name)[0]
            moved = ask("POST", "workspaces/w/files/%s?op=move" % name, {"to": name + "-moved"})[0]
        except OSError as e:
            made, moved = str(e), None
        (changed if (made, moved) == (201, 200) else failed).append((name, made, moved))

def look():
    while not over.is_set():
        os.path.lexists("%s/none-%d" % (mount, random.getrandbits(32)))
        os.listdir(mount)

# Whoever hangs is one of these, which nobody waits for.
threads = [threading.Thread(target=change, args=(n,), daemon=True) for n in range(4)]
lookers = []
for n in range(3):
    lookers.append(os.fork())
    if lookers[-1] == 0:
        signal.alarm(100)
        look()
for t in threads:
    t.start()
for i in range(KILLS):
    time.sleep(random.choice([0.02, 0.1, 0.3]))
    pid = ask("GET", "health")[1]["fs"]["pid"]
    if pid > 0:
        os.kill(pid, signal.SIGKILL)
over.set()
for t in threads:
    t.join(60)
print("hang", sum(t.is_alive() for t in threads))
print("failed", failed[:3])
print("some", len(changed) > KILLS)
left = set(os.listdir(mount))
print("lost", [c[0] for c in changed if c[0] + "-moved" not in left][:3], flush=True)
for pid in lookers:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
os._exit(0)
PY
seed=${BOUGH_SEED:-$RANDOM}
echo "# BOUGH_SEED=$seed"
run timeout 200 python3 "$T/storm.py" "$BOUGH_ROOT" "$w" "$seed"
is 'nobody hangs, and nothing fails or is lost' "$code $out" $'0 hang 0\nfailed []\nsome True\nlost []'
bough_ok 'all is well' fsck
done_testing
