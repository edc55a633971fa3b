#!/bin/bash
# Clients that stop in the middle: what their requests hold comes free. Slow ones go on.
. "${0%/*}/lib.sh"
need_fuse

export BOUGH_WEB_STALL=8
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
sock=$BOUGH_ROOT/run/boughd.sock
call() { curl -sS -m 30 --unix-socket "$sock" "$@"; }
status() { call -o /dev/null -w '%{http_code}' "$@"; }

for name in read sent slow; do
	is "a workspace, $name" "$(status -d "{\"name\":\"$name\"}" http://d/v1/workspaces)" 201
done
for name in read slow; do head -c 20000000 /dev/urandom >"$(at $name)/big"; done
gone() { # NAME: whether it could be removed
	[ "$(status -X DELETE "http://d/v1/workspaces/$1")" = 204 ]
}

# A reader that stops, and a sender: neither curl ends by itself.
call http://d/v1/workspaces/read/archive 2>/dev/null | sleep 100 >/dev/null 2>&1 &
(
	tar cf - -C "$BOUGH_SRC" LICENSE | head -c 2000
	sleep 100 >/dev/null 2>&1
) | call -T - http://d/v1/workspaces/sent/archive >/dev/null 2>&1 &
# A slow one takes longer than that, but never stops for so long.
call http://d/v1/workspaces/slow/archive | python3 -c '
import sys, time
while sys.stdout.buffer.write(sys.stdin.buffer.read(2 << 20)):
    time.sleep(1)
' >"$T/slow.tar" &
slow=$!
sleep 0.5
ok 'a reader that stops holds a workspace for a while only' wait_for 8 gone read
ok 'and so does a sender' wait_for 8 gone sent
wait $slow
is 'a slow reader gets it all' "$(tar xOf "$T/slow.tar" --wildcards '*big' | sha256sum)" "$(sha256sum <"$(at slow)/big")"
ok 'boughd told so' grep -q 'neither takes bytes nor sends any' "$BOUGH_ROOT/run/boughd.log"

# Without a descriptor left boughd says so, whatever it was about to open, and goes on afterwards.
run python3 - "$sock" "$(pids_of boughd)" <<'PY'
import http.client, json, os, resource, socket, sys
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
pid, c = int(sys.argv[2]), Unix("d")
def ask(method, path, body=None):
    c.request(method, path, body)
    r = c.getresponse()
    return r.status, r.read()
print(ask("PUT", "/v1/workspaces/slow/files/before", b"x")[0])
used = {int(n) for n in os.listdir(f"/proc/{pid}/fd")}
free = min(set(range(len(used) + 1)) - used)
was = resource.prlimit(pid, resource.RLIMIT_NOFILE)
resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, was[1]))
try:
    for method, path in (("PUT", "files/during"), ("GET", "files/before")):
        status, body = ask(method, "/v1/workspaces/slow/" + path, b"x" if method == "PUT" else None)
        print(status, json.loads(body)["code"])
finally:
    resource.prlimit(pid, resource.RLIMIT_NOFILE, was)
print(ask("PUT", "/v1/workspaces/slow/files/after", b"x")[0])
PY
is 'no descriptor is left: what is told' "$out" $'201\n503 overloaded\n503 overloaded\n201'
[ $code = 0 ] || diag_run
done_testing
