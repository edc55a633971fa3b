#!/bin/bash
# Jobs that a kill of boughd cuts off: a fetch, an export, a save, a gc and an fsck are begun anew, so
# often and not more, and none that had its effect; others fail, and say why.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/repo.sh"
server=$!
export BOUGH_GIT_STALL=200 # a stopped web server is none that failed
trap 'kill -CONT $server 2>/dev/null; clean_up' EXIT

sock=$BOUGH_ROOT/run/boughd.sock
start() { boughd --root "$BOUGH_ROOT" --daemon; }
again() {
	kill_hard boughd
	wait_for 20 start 2>/dev/null || bail 'boughd does not start again' # its last thread may hold the lock
}
ask() { # METHOD PATH [CURL ARGUMENT…]
	curl -sS -m 200 --unix-socket "$sock" -X "$1" "${@:3}" "http://d$2"
}
leave() { ask POST "$1" -H 'Prefer: respond-async' --data-binary "$2" | jq -r .id; } # PATH BODY: the job
job() { ask GET "/v1/jobs/$1" | jq -r "$2"; }
ended() { ask GET "/v1/jobs/$1?wait=60" | jq -r "$2"; } # JOB FILTER
# Sets a job back to where a kill finds it, however fast it was; "done": where it had its effect.
unfinished() { # JOB [done]
	kill_hard boughd
	python3 - "$BOUGH_ROOT/catalog.db" "$@" <<-'PY' || bail 'sqlite'
	import sqlite3, sys
	with sqlite3.connect(sys.argv[1]) as db:
	    db.execute("UPDATE jobs SET state = 'running', status = NULL, answer = NULL, ended = NULL WHERE id = ?",
	               (sys.argv[2],))
	    db.execute("UPDATE repeats SET status = NULL%s WHERE job = ?" %
	               ("" if len(sys.argv) > 3 else ", answer = NULL, effect = NULL"), (sys.argv[2],))
	PY
	wait_for 20 start 2>/dev/null || bail 'boughd does not start again'
}

# ---- a fetch

bough_ok 'a repository' repo add "$http/r.git"
commit three
push main
kill -STOP $server
asked() { ask POST /v1/repos/r/fetch -H 'Prefer: respond-async' -H 'Idempotency-Key: f' --data-binary '{}' -w '%{http_code}\n'; }
fetch=$(asked | head -n 1 | jq -r .id)
is 'a fetch runs' "$(job "$fetch" .state)" running
again
is 'and so it does after a kill' "$(job "$fetch" '.state, .path' | xargs)" 'running /v1/repos/r/fetch'
is 'its key gives it' "$(asked | tail -n 1) $(asked | head -n 1 | jq -r .id)" "202 $fetch"
like 'the log says so' "$(cat "$BOUGH_ROOT/run/boughd.log")" "job $fetch .*goes on"
kill -CONT $server
is 'it ends well' "$(ended "$fetch" '.state, .status' | xargs)" 'done 200'
is 'its key gives how it ended' "$(asked | tail -n 1) $(asked | head -n 1 | jq -c .)" "200 $(job "$fetch" .result | jq -c .)"
is 'what came is there' "$(tip r)" "$(git -C "$T/src" rev-parse main)"
is 'it is told once' "$(bough audit --json | jq '[.items[] | select(.path == "/v1/repos/r/fetch")] | length')" 1

kill -STOP $server
fetch=$(leave /v1/repos/r/fetch '{}')
for i in 1 2 3 4; do
	pid=$(ask GET /v1/health | jq .pid)
	kill -TERM "$pid"
	wait_for 20 eval '! kill -0 "$pid" 2>/dev/null'
	wait_for 20 start 2>/dev/null || bail 'boughd does not start again'
done
is 'ended properly ever so often, it goes on' "$(job "$fetch" .state)" running
for i in 1 2 3; do
	again
	is "killed $i times in a row, it is begun anew" "$(job "$fetch" .state)" running
done
again
is 'but not for ever' "$(job "$fetch" '.state, .status' | xargs)" 'failed 503'
is 'it says why' "$(job "$fetch" .error.message)" 'the daemon ended each time that this was begun'
fetch=$(leave /v1/repos/r/fetch '{}')
again
is 'one that goes on can be cancelled' "$(ask POST "/v1/jobs/$fetch/cancel" -o /dev/null -w '%{http_code}')" 202
kill -CONT $server
like 'and ends' "$(ended "$fetch" .state)" '^(cancelled|done)$'
kill -STOP $server
fetch=$(leave /v1/repos/r/fetch "{\"token\": \"$token\"}")
again
is 'one with a new secret fails' "$(job "$fetch" '.state, .error.message' | xargs)" \
	'failed the daemon ended: nothing of it is left, ask again'
kill -CONT $server
ok 'the secret is nowhere' test -z "$(grep -rlF "$token" "$BOUGH_ROOT" --include='catalog.db*')"

# ---- an export, a gc

bough_ok 'a workspace' create w
w=$out
mkdir "$w/sub"
seq 20000 >"$w/sub/numbers"
bough_ok 'a snapshot' save w --as s
export=$(leave /v1/exports '{"from": "s", "path": "sub", "format": "tar"}')
ended "$export" .state >"$T/state"
ask DELETE "/v1/exports/$(job "$export" .result.id)"
is 'with another name by then' "$(ask PATCH /v1/snapshots/s --data-binary '{"add_names": ["t"], "remove_names": ["s"]}' | jq -r '.names | join(" ")')" t
unfinished "$export"
is 'an export goes on' "$(ended "$export" '.state, .status' | xargs)" 'done 201'
ask GET "/v1/exports/$(job "$export" .result.id)" >"$T/kept.tar"
is 'of the same folder' "$(tar xOf "$T/kept.tar" ./numbers | tail -1)" 20000
is 'there is one' "$(ask GET /v1/exports | jq '.items | length')" 1
unfinished "$export" done
is 'one that was made is not made twice' "$(ended "$export" '.state, .status' | xargs) $(ask GET /v1/exports |
	jq -r '.items[].id')" "done 201 $(job "$export" .result.id)"
other=$(leave /v1/exports '{"from": "w", "format": "tar"}')
ended "$other" .state >"$T/state"
ask DELETE "/v1/exports/$(job "$other" .result.id)"
echo later >"$w/later"
unfinished "$other"
is 'one of a workspace goes on' "$(ended "$other" '.state, .status' | xargs)" 'done 201'
ask GET "/v1/exports/$(job "$other" .result.id)" >"$T/kept.tar"
is 'as it was when it was asked for' "$(tar tf "$T/kept.tar" | grep -c later),$(tar xOf "$T/kept.tar" ./sub/numbers | tail -1)" 0,20000

# ---- a save

keyed() { # KEY PATH BODY: a job, or how it ended
	ask POST "$2" -H 'Prefer: respond-async' -H "Idempotency-Key: $1" --data-binary "$3" -D "$T/head" -w '%{http_code}\n'
}
# Its job, and its state when boughd is killed, which can't note how it ends.
cut() { # KEY PATH BODY-FILE [THEN-MADE-FILE]
	python3 - "$BOUGH_ROOT" "$@" <<-'PY'
	import http.client, json, os, signal, socket, sqlite3, sys
	root, key, path, body = sys.argv[1:5]
	db = sqlite3.connect(root + "/catalog.db", timeout=60, isolation_level=None)
	c = http.client.HTTPConnection("d")
	c.sock = socket.socket(socket.AF_UNIX)
	c.sock.connect(root + "/run/boughd.sock")
	c.request("GET", "/v1/health")
	pid = json.load(c.getresponse())["pid"]
	c.request("POST", path, open(body, "rb"), {"Prefer": "respond-async", "Idempotency-Key": key})
	job = json.load(c.getresponse())["id"]
	db.execute("BEGIN IMMEDIATE")
	if sys.argv[5:]:
	    open(sys.argv[5], "w").close()
	state = db.execute("SELECT state FROM jobs WHERE id = ?", (job,)).fetchone()[0]
	os.kill(pid, signal.SIGKILL)
	db.execute("ROLLBACK")
	print(job, state)
	PY
}
for i in 1 2 3 4 5; do # until it isn't faster than this
	for f in $(seq 15); do head -c 1000000 /dev/urandom >"$w/big-$f"; done
	printf '{"name": "s%d"}' "$i" >"$T/body"
	read -r save state < <(cut "save$i" /v1/workspaces/w/snapshots "$T/body" "$w/later-$i")
	again
	[ "$state" = running ] && break
done
is 'a save is cut off' "$state" running
keyed "save$i" /v1/workspaces/w/snapshots "{\"name\": \"s$i\"}" >"$T/again"
like 'its key gives the job' "$(tail -n 1 "$T/again") $(head -n 1 "$T/again" | jq -r '.id // .workspace')" "202 $save|201 ws_"
is 'it goes on' "$(ended "$save" '.state, .status' | xargs)" 'done 201'
status() { ask GET "$1" -o /dev/null -w '%{http_code}'; }
is 'from what was sealed when it was asked for' \
	"$(status "/v1/snapshots/s$i/files/big-15") $(status "/v1/snapshots/s$i/files/later-$i")" '200 404'
keyed "save$i" /v1/workspaces/w/snapshots "{\"name\": \"s$i\"}" >"$T/again"
is 'its key gives what it made' "$(tail -n 1 "$T/again") $(head -n 1 "$T/again" | jq -r .id)" "201 $(job "$save" .result.id)"
like 'as before' "$(cat "$T/head")" 'Idempotency-Replayed: true'
is 'there is one' "$(ask GET /v1/snapshots | jq "[.items[] | select(.names | index(\"s$i\"))] | length")" 1
unfinished "$save" done
is 'one that had saved is not begun anew' "$(ended "$save" '.state, .status, .result.id' | xargs)" \
	"done 201 $(bough snapshots show "s$i" --json | jq -r .id)"
bough_ok 'its snapshot goes' snapshots rm "s$i" --force
bough_ok 'the workspace becomes another' restore w t
unfinished "$save"
like 'what was sealed is gone then' "$(ended "$save" '.state, .status, .error.message' | xargs)" \
	'^failed 409 what was sealed for it before the daemon ended is gone: save again$'
bough_ok 'the workspace goes' rm w --now -q
bough_ok 'and the snapshot' snapshots rm t
unfinished "$export"
is 'an export of what is gone fails' "$(ended "$export" '.state, .status' | xargs)" 'failed 404'

# ---- an import

mkdir "$T/many"
for f in $(seq 40); do head -c 1000000 /dev/urandom >"$T/many/$f"; done
tar cf "$T/many.tar" -C "$T/many" .
# Of $T/many.tar, with the key WHAT$i and a name that ends in $i; the job is $job.
upload_cut() { # WHAT PATH
	local state
	for i in 1 2 3 4 5; do
		read -r job state < <(cut "$1$i" "$2$i" "$T/many.tar")
		again
		[ "$state" = running ] && break
	done
	is "an upload is cut off: $1" "$state" running
}
imported() { # KEY NAME: as keyed
	ask POST "/v1/import?name=$2" -H 'Prefer: respond-async' -H "Idempotency-Key: $1" -T "$T/many.tar" -w '%{http_code}\n'
}
upload_cut import '/v1/import?name=i'
import=$job
is 'it goes on' "$(ended "$import" '.state, .status' | xargs)" 'done 201'
is 'with all that was uploaded' "$(ask GET "/v1/snapshots/i$i/files/40" | cmp - "$T/many/40" && ask GET "/v1/snapshots/i$i/files/" |
	jq '.entries | length')" 40
imported "import$i" "i$i" >"$T/again"
is 'its key gives what it made' "$(tail -n 1 "$T/again") $(head -n 1 "$T/again" | jq -r .id)" "201 $(job "$import" .result.id)"
is 'there is one' "$(ask GET /v1/snapshots | jq "[.items[] | select(.names | index(\"i$i\"))] | length")" 1
is 'nothing is kept of the upload' "$(ls "$BOUGH_ROOT/imports")" ''
unfinished "$import"
like 'nor is it begun without' "$(ended "$import" '.state, .status, .error.message' | xargs)" \
	'^failed 409 what was uploaded before the daemon ended is gone: import it again$'

# ---- a workspace from an archive

begun() { # KEY NAME: as keyed
	ask POST "/v1/workspaces/import?label=k=v&mount=0&quota_bytes=99999999&name=$2" -H 'Prefer: respond-async' \
		-H "Idempotency-Key: $1" -T "$T/many.tar" -w '%{http_code}\n'
}
upload_cut create '/v1/workspaces/import?label=k=v&mount=0&quota_bytes=99999999&name=c'
create=$job
is 'it goes on' "$(ended "$create" '.state, .status' | xargs)" 'done 201'
is 'with all that was uploaded' "$(ask GET "/v1/workspaces/c$i/files/40" | cmp - "$T/many/40" && ask GET "/v1/workspaces/c$i/files/" |
	jq '.entries | length')" 40
is 'as it was asked for' "$(ask GET "/v1/workspaces/c$i" | jq -c '[.labels, .mounted, .quota_bytes, .visibility, .base == .head]')" \
	'[{"k":"v"},false,99999999,"private",true]'
begun "create$i" "c$i" >"$T/again"
is 'its key gives what it made' "$(tail -n 1 "$T/again") $(head -n 1 "$T/again" | jq -r .id)" "201 $(job "$create" .result.id)"
is 'nothing is kept of the upload' "$(ls "$BOUGH_ROOT/imports")" ''
unfinished "$create" done
is 'one that was made is not made twice' "$(ended "$create" '.state, .status, .result.id' | xargs)" \
	"done 201 $(ask GET "/v1/workspaces/c$i" | jq -r .id)"
bough_ok 'it goes' rm "c$i" --now -q
unfinished "$create"
like 'nor is it begun without what was uploaded' "$(ended "$create" '.state, .status, .error.message' | xargs)" \
	'^failed 409 what was uploaded before the daemon ended is gone: import it again$'
touch "$BOUGH_ROOT/imports/im_aaaaaaaaaa"
again
is 'an upload of no job goes' "$(ls "$BOUGH_ROOT/imports")" ''
gc=$(leave /v1/gc '{}')
ended "$gc" .state >"$T/state"
unfinished "$gc"
is 'a gc goes on' "$(ended "$gc" '.state, .status, (.result.objects_live >= 0)' | xargs)" 'done 200 true'
fsck=$(leave /v1/fsck '{}')
ended "$fsck" .state >"$T/state"
unfinished "$fsck"
is 'an fsck goes on' "$(ended "$fsck" '.state, .status' | xargs)" 'done 200'
fsck_clean
done_testing
