"""Keeps a boughd from noting how calls with an Idempotency-Key ended, and kills it: as it is when one
dies between an effect and its note."""
import os, signal, sqlite3, subprocess, sys, time
from ask import ask, check, must, root

def start():
    for i in range(50): # the last thread of the one before may hold the lock
        if subprocess.run(["boughd", "--root", root, "--daemon"], stderr=subprocess.DEVNULL).returncode == 0:
            return
        time.sleep(0.2)
    sys.exit("boughd does not start again")

def health():
    return must(200, "GET", "health")

def gone(pid):
    while True:
        try:
            if open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] == "Z":
                return
        except OSError:
            return
        time.sleep(0.01)

def catalog(*statements):
    db = sqlite3.connect(root + "/catalog.db", timeout=30, isolation_level=None)
    rows = [db.execute(s).fetchall() for s in statements]
    db.close()
    return rows[-1]

def kill(both=False):
    h = health()
    os.kill(h["pid"], signal.SIGKILL)
    if both:
        os.kill(h["fs"]["pid"], signal.SIGKILL)
    gone(h["pid"])

def deaf():
    catalog("CREATE TRIGGER deaf BEFORE UPDATE OF status ON repeats BEGIN SELECT RAISE(FAIL, 'deaf'); END",
            "CREATE TRIGGER deaf2 BEFORE DELETE ON repeats BEGIN SELECT RAISE(FAIL, 'deaf'); END")

def hear(both=False):
    """Kills boughd, which hasn't noted how anything ended, and starts it again."""
    kill(both)
    catalog("DROP TRIGGER deaf", "DROP TRIGGER deaf2")
    start()

def same(what, target, body, key, first, less=()):
    got = ask("POST", target, body, key)
    cut = lambda j: {k: v for k, v in (j or {}).items() if k not in less}
    check(what + ": the first answer", got[0] == first[0] and cut(got[1]) == cut(first[1]) and
          got[2] == "true", got, first)
    return got
