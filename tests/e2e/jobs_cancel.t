#!/bin/bash
# Jobs tell how far they are, and end when they are cancelled: save, import, export, gc and fetch. Nothing of
# what was cancelled is left, and the next one does all.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/repo.sh"
server=$!
export BOUGH_GIT_STALL=200 # a stopped web server is none that failed
trap 'kill -CONT $server 2>/dev/null; clean_up' EXIT

mkdir "$BOUGH_ROOT" && echo '{"gc_every_s": 0}' >"$BOUGH_ROOT/config.json" # by hand alone
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
# What takes so long that it is cancelled before its end: of twice as much each time, until it is.
cat >"$T/cancel.py" <<'PY'
import http.client, json, socket, sys, time
sock, method, path, body, unit = sys.argv[1:6]

class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sock)

def ask(method, path, body=None, **headers):
    c = Unix("d", timeout=60)
    c.request(method, path, body, headers)
    r = c.getresponse()
    return r.status, json.loads(r.read())

status, job = ask(method, path, open(body, "rb"), Prefer="respond-async")
at = "/v1/jobs/" + job["id"]
told, end = None, time.time() + 30
while time.time() < end:
    job = ask("GET", at)[1]
    told = told or job.get("progress")
    if job["state"] != "running" or told and told["unit"] == unit or unit == "-":
        break
asked = ask("POST", at + "/cancel", "{}")[0]
begun = time.time()
job = ask("GET", at + "?wait=60")[1]
print(job["state"], job.get("status"), asked, told and told["unit"], "soon" if time.time() - begun < 10 else "late")
PY
cancel() { python3 "$T/cancel.py" "$BOUGH_ROOT/run/boughd.sock" "$@"; } # METHOD PATH BODY-FILE UNIT: STATE STATUS ASKED UNIT
echo '{}' >"$T/none"
grown() { # MEGABYTES FOLDER: random, in files of one
	local i
	for ((i = 0; i < $1; i++)); do head -c 1000000 /dev/urandom >"$2/$i"; done
}
bough_ok 'a workspace' create w
w=$out

echo '{"name": "cut"}' >"$T/body"
for n in 40 80 160 320; do
	grown $n "$w"
	got=$(cancel POST /v1/workspaces/w/snapshots "$T/body" files)
	[[ $got == done* ]] || break
	bough snapshots rm cut --force >/dev/null
done
is 'a save is cancelled' "$got" 'cancelled 409 202 files soon'
bough_fails 'there is no snapshot' 3 'cut' snapshots show cut
bough_ok 'the next one saves all' save w --as all -q
is 'that is there' "$(bough diff w --against all)" ''

rm -rf "$T/x" && mkdir "$T/x"
for n in 40 80 160 320; do
	grown $n "$T/x"
	tar cf "$T/x.tar" -C "$T/x" .
	got=$(cancel POST '/v1/import?name=in' "$T/x.tar" bytes)
	[[ $got == done* ]] || break
	bough snapshots rm in >/dev/null
done
is 'an import is cancelled' "$got" 'cancelled 409 202 bytes soon'
bough_fails 'there is no snapshot' 3 'in' snapshots show in
is 'nothing is kept of the upload' "$(ls "$BOUGH_ROOT/imports")" ''

echo '{"from": "w", "format": "tar"}' >"$T/body"
for n in 80 160 320; do
	got=$(cancel POST /v1/exports "$T/body" bytes)
	[[ $got == done* ]] || break
	grown $n "$w"
done
is 'an export is cancelled' "$got" 'cancelled 409 202 bytes soon'
is 'nothing is left of it' "$(find "$BOUGH_ROOT/exports" -name '*.part*')" ''

# Many workspaces of many files: each of these is marked.
import_many
for n in 1 2 3 4 5; do
	for ((i = 0; i < 40; i++)); do bough create "m-$n-$i" --from many --no-mount -q >/dev/null || bail 'no workspace'; done
	got=$(cancel POST /v1/gc "$T/none" -)
	[[ $got == done* ]] || break
done
like 'a gc is cancelled' "$got" '^cancelled 409 202 .* soon$'
bough_ok 'the next one runs to its end' gc

bough_ok 'a repository' repo add "$http/r.git" --name r
commit three
push main
kill -STOP $server
is 'a fetch is cancelled while the other side says nothing' "$(cancel POST /v1/repos/r/fetch "$T/none" -)" 'cancelled 409 202 None soon'
kill -CONT $server
bough_ok 'the next one fetches' repo fetch r
is 'what there is' "$(tip r)" "$(git -C "$T/src" rev-parse main)"
no_trace 'nothing of the other is left'
fsck_clean
done_testing
