#!/bin/bash
# kill -9 of boughd at random moments, while programs make, fork, save, write, change, delete and leave
# jobs behind. What was acknowledged stays; what wasn't is done once or not at all, whatever it was
# asked again; nothing half-made is seen; jobs end with a result or a reason.
#
#   KILLS=100 BOUGH_SEED=7 tests/run.sh e2e/killd     # a long one, replayed
. "${0%/*}/lib.sh"
need_fuse
command -v python3 >/dev/null || skip_all 'needs python3'
KILLS=${KILLS:-4} SEED=${BOUGH_SEED:-$RANDOM}
echo "# KILLS=$KILLS BOUGH_SEED=$SEED"

cat >"$T/load.py" <<'EOF'
import http.client, json, os, random, signal, socket, subprocess, sys, threading, time

root, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sock = root + "/run/boughd.sock"
WS, SN = "/v1/workspaces", "/v1/snapshots"
stop, wrong, lock = threading.Event(), [], threading.Lock()
counts = {}
TTY = 120 # seconds that one call may take, over all kills

class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(sock)

def fault(text):
    with lock:
        wrong.append(text)
    stop.set()

def count(what):
    with lock:
        counts[what] = counts.get(what, 0) + 1

def once(method, target, body, headers):
    c = Unix("d")
    try:
        c.request(method, target, body, headers)
        r = c.getresponse()
        data = r.read()
        return r.status, data
    finally:
        c.close()

def call(method, target, body=None, key=None, headers={}):
    """Until it is answered: what a program does whose server goes away. A key makes it count once."""
    h = dict(headers)
    if key:
        h["Idempotency-Key"] = key
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    until = time.monotonic() + TTY
    while True:
        try:
            status, text = once(method, target, data, h)
            # Under way still in another connection, or the service is ending or beginning.
            if stop.is_set() and wrong:
                raise SystemExit
            if status not in (503,) and not (status == 409 and b"in_flight" in text):
                return status, text
        except (OSError, http.client.HTTPException):
            count("asked again")
        if stop.is_set() and wrong:
            raise SystemExit
        if time.monotonic() > until:
            fault("%s %s was never answered" % (method, target))
            raise SystemExit
        time.sleep(0.02)

def doc(status, text, want, what):
    if status not in want:
        fault("%s: %d %s" % (what, status, text[:300]))
        raise SystemExit
    return json.loads(text) if text else None

class Worker(threading.Thread):
    """One caller with names of its own, so that it knows what must be there."""
    def __init__(self, k):
        super().__init__()
        self.k, self.rng, self.n = k, random.Random(seed * 1000 + k), 0
        self.ws = {}    # name: {"id", "files": {path: bytes}, "labels": {}}
        self.snaps = {} # id: files
        self.jobs = []
        self.gone = []
    def new(self):
        self.n += 1
        return "w%d-%d" % (self.k, self.n)
    def any(self):
        return self.rng.choice(sorted(self.ws)) if self.ws else None
    def make(self):
        name = self.new()
        origin = self.rng.choice(sorted(self.snaps)) if self.snaps and self.rng.random() < .5 else None
        body = {"name": name, "labels": {"k": name}}
        if origin:
            body["from"] = origin
        d = doc(*call("POST", WS, body, name), (201,), "create")
        self.ws[name] = {"id": d["id"], "files": dict(self.snaps.get(origin, {})), "labels": {"k": name}}
    def put(self):
        name = self.any()
        if not name:
            return
        path = "d%d/f%d" % (self.rng.randrange(3), self.rng.randrange(5))
        data = os.urandom(8) * self.rng.randrange(1, 3000)
        s, t = call("PUT", "%s/%s/files/%s" % (WS, self.ws[name]["id"], path), data)
        doc(s, t, (200, 201), "put")
        self.ws[name]["files"][path] = data
    def fork(self):
        name = self.any()
        if not name or len(self.ws) > 12:
            return
        names = [self.new() for _ in range(self.rng.randrange(1, 4))]
        d = doc(*call("POST", "%s/%s/fork" % (WS, name), {"names": names}, names[0]), (201,), "fork")
        if [w["name"] for w in d["items"]] != names:
            fault("fork of %s gave %s" % (names, [w["name"] for w in d["items"]]))
        for w in d["items"]:
            self.ws[w["name"]] = {"id": w["id"], "files": dict(self.ws[name]["files"]), "labels": {}}
    def save(self):
        name = self.any()
        if not name:
            return
        self.n += 1
        d = doc(*call("POST", "%s/%s/snapshots" % (WS, name), {"message": "m"}, "s%d" % self.n), (200, 201), "save")
        self.snaps[d["id"]] = dict(self.ws[name]["files"])
    def patch(self):
        name = self.any()
        if not name:
            return
        self.n += 1
        labels = {"n": str(self.n)}
        doc(*call("PATCH", "%s/%s" % (WS, name), {"labels": labels}), (200,), "patch")
        self.ws[name]["labels"] = labels
    def delete(self):
        name = self.any()
        if not name or len(self.ws) < 3:
            return
        s, t = call("DELETE", "%s/%s%s" % (WS, self.ws[name]["id"], self.rng.choice(["", "?purge=true"])))
        doc(s, t, (204, 404), "delete") # 404: it was done when the answer was lost
        self.gone.append(self.ws.pop(name)["id"])
    def job(self):
        name = self.any()
        if not name:
            return
        self.n += 1
        s, t = call("POST", "%s/%s/snapshots" % (WS, name), {}, None, {"Prefer": "respond-async"})
        self.jobs.append(doc(s, t, (202,), "job")["id"])
    def look(self):
        name = self.any()
        if name:
            self.check(name)
    def check(self, name):
        w = self.ws[name]
        d = doc(*call("GET", "%s/%s" % (WS, name)), (200,), "get %s" % name)
        if d["id"] != w["id"] or d["labels"] != w["labels"] or d["state"] != "ready" or "error" in d:
            fault("%s is %s, it was acknowledged as %s" % (name, d, {k: w[k] for k in ("id", "labels")}))
        for path, data in w["files"].items():
            s, t = call("GET", "%s/%s/files/%s" % (WS, w["id"], path))
            if s != 200 or t != data:
                fault("%s/%s: %d, %d bytes for %d" % (name, path, s, len(t), len(data)))
    def run(self):
        try:
            steps = [self.make, self.put, self.put, self.put, self.fork, self.save, self.patch, self.delete, self.job, self.look]
            while not stop.is_set():
                step = self.rng.choice(steps)
                step()
                count(step.__name__)
        except SystemExit:
            pass
        except Exception as e:
            fault("worker %d: %r" % (self.k, e))
    def check_all(self):
        for name in list(self.ws):
            self.check(name)
        for sn, files in self.snaps.items():
            doc(*call("GET", "%s/%s" % (SN, sn)), (200,), "get %s" % sn)
            for path, data in files.items():
                s, t = call("GET", "%s/%s/files/%s" % (SN, sn, path))
                if s != 200 or t != data:
                    fault("%s/%s: %d, %d bytes for %d" % (sn, path, s, len(t), len(data)))
        for ws in self.gone:
            if call("GET", "%s/%s" % (WS, ws))[0] != 404:
                fault("%s was deleted" % ws)
        ends = {}
        for job in self.jobs:
            d = doc(*call("GET", "/v1/jobs/%s?wait=30" % job), (200,), "job")
            ends[d["state"]] = ends.get(d["state"], 0) + 1
            if d["state"] not in ("done", "failed") or (d["state"] == "failed" and not d["error"]["message"]):
                fault("job %s ended as %s" % (job, d))
        return ends

def start():
    with open(root + ".start", "wb") as f: # a pipe would stay open with the daemon
        code = subprocess.run(["boughd", "--root", root, "--daemon"], stderr=f).returncode
    if code:
        fault("boughd does not start: %s" % open(root + ".start").read())
        return None
    return json.loads(once("GET", "/v1/health", None, {})[1])["pid"]

rng = random.Random(seed)
pid = start()
workers = [Worker(k) for k in range(4)]
for w in workers:
    w.start()
slowest = 0
for k in range(kills):
    time.sleep(rng.random() * .6 + .02)
    if stop.is_set():
        break
    os.kill(pid, signal.SIGKILL)
    begun = time.monotonic()
    pid = start()
    if not pid:
        break
    slowest = max(slowest, time.monotonic() - begun)
time.sleep(.3)
stop.set()
for w in workers:
    w.join()
ends = {}
if not wrong:
    for w in workers:
        for state, n in w.check_all().items():
            ends[state] = ends.get(state, 0) + n
    known = {n for w in workers for n in w.ws}
    listed = doc(*call("GET", WS + "?usage=1"), (200,), "list")["items"]
    for w in listed:
        if w["name"] not in known:
            fault("%s is there, and nobody asked for it" % w["name"])
        if w["state"] != "ready" or "error" in w or "used_bytes" not in w:
            fault("half-made: %s" % w)
    if len(listed) != len(known):
        fault("%d workspaces for %d" % (len(listed), len(known)))
for text in wrong:
    print("FAULT " + text)
print("# %d kills, the slowest start %.2f s; %s" % (kills, slowest, ", ".join("%s %d" % x for x in sorted(counts.items()))))
print("# jobs: %s" % ends)
print("END")
EOF
bough down 2>/dev/null
python3 "$T/load.py" "$BOUGH_ROOT" "$KILLS" "$SEED" >"$T/out" 2>"$T/.err"
sed -n '/^#/p' "$T/out"
is 'nothing that was acknowledged is lost, nothing half-made is seen' "$(grep '^FAULT' "$T/out" | head -n 20)" ''
is 'the load ran to its end' "$(tail -n 1 "$T/out"; tail -n 5 "$T/.err")" END
ok 'boughd was killed in the midst of it' grep -q 'asked again' "$T/out"
fsck_clean
bough_ok 'gc' gc
fsck_clean 'and after gc'
done_testing
