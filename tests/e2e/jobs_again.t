#!/bin/bash
# Jobs that a kill of boughd cuts off: a fetch, an export of a snapshot and a gc are begun anew, so
# often and not more; others fail, and say why.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/repo.sh"
server=$!
export BOUGH_GIT_STALL=60 # a stopped web server is none that failed
trap 'kill -CONT $server 2>/dev/null; clean_up' EXIT

sock=$BOUGH_ROOT/run/boughd.sock
start() { boughd --root "$BOUGH_ROOT" --daemon; }
again() {
	kill_hard boughd
	wait_for 20 start 2>/dev/null || bail 'boughd does not start again' # its last thread may hold the lock
}
ask() { # METHOD PATH [CURL ARGUMENT…]
	curl -sS -m 60 --unix-socket "$sock" -X "$1" "${@:3}" "http://d$2"
}
leave() { ask POST "$1" -H 'Prefer: respond-async' --data-binary "$2" | jq -r .id; } # PATH BODY: the job
job() { ask GET "/v1/jobs/$1" | jq -r "$2"; }
ended() { ask GET "/v1/jobs/$1?wait=60" | jq -r "$2"; } # JOB FILTER
# Sets a job back to where a kill finds it, however fast it was.
unfinished() { # JOB
	kill_hard boughd
	python3 - "$BOUGH_ROOT/catalog.db" "$1" <<-'PY' || bail 'sqlite'
	import sqlite3, sys
	with sqlite3.connect(sys.argv[1]) as db:
	    db.execute("UPDATE jobs SET state = 'running', status = NULL, answer = NULL, ended = NULL WHERE id = ?",
	               (sys.argv[2],))
	PY
	wait_for 20 start 2>/dev/null || bail 'boughd does not start again'
}

# ---- a fetch

bough_ok 'a repository' repo add "$http/r.git"
commit three
push main
kill -STOP $server
fetch=$(leave /v1/repos/r/fetch '{}')
is 'a fetch runs' "$(job "$fetch" .state)" running
again
is 'and so it does after a kill' "$(job "$fetch" '.state, .path' | xargs)" 'running /v1/repos/r/fetch'
like 'the log says so' "$(cat "$BOUGH_ROOT/run/boughd.log")" "job $fetch .*goes on"
kill -CONT $server
is 'it ends well' "$(ended "$fetch" '.state, .status' | xargs)" 'done 200'
is 'what came is there' "$(tip r)" "$(git -C "$T/src" rev-parse main)"
is 'it is told once' "$(bough audit --json | jq '[.items[] | select(.path == "/v1/repos/r/fetch")] | length')" 1

kill -STOP $server
fetch=$(leave /v1/repos/r/fetch '{}')
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
is 'one with a new secret fails' "$(job "$fetch" '.state, .error.message' | xargs)" 'failed the daemon ended'
kill -CONT $server
ok 'the secret is nowhere' test -z "$(grep -rlF "$token" "$BOUGH_ROOT" --include='catalog.db*')"

# ---- an export, a gc

bough_ok 'a workspace' create w
mkdir "$out/sub"
seq 20000 >"$out/sub/numbers"
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
other=$(leave /v1/exports '{"from": "w"}')
ended "$other" .state >"$T/state"
unfinished "$other"
is 'one of a workspace fails' "$(job "$other" '.state, .error.message' | xargs)" 'failed the daemon ended'
bough_ok 'the workspace goes' rm w --now -q
bough_ok 'and the snapshot' snapshots rm t
unfinished "$export"
is 'an export of what is gone fails' "$(ended "$export" '.state, .status' | xargs)" 'failed 404'
gc=$(leave /v1/gc '{}')
ended "$gc" .state >"$T/state"
unfinished "$gc"
is 'a gc goes on' "$(ended "$gc" '.state, .status, (.result.objects_live >= 0)' | xargs)" 'done 200 true'
done_testing
