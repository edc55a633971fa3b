#!/bin/bash
# What programs that call boughd rely on: keys that make a call count once, jobs that outlive their
# caller, events, the audit log, pages, figures.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/http.sh"

start() { boughd --root "$BOUGH_ROOT" --daemon; }
start || bail 'boughd does not start'

# ---- listening from the beginning

curl -sSN --unix-socket "$BOUGH_ROOT/run/boughd.sock" http://d/v1/events >"$T/events" 2>/dev/null &
listener=$!
wait_for 10 grep -q bough "$T/events"
is 'a stream of events begins at once' $? 0

# ---- keys

key=(-H 'Idempotency-Key: k1')
gives 'with a key' 201 .name one POST $ws '{"name":"one"}' "${key[@]}"
one=$(of .id)
gives 'again: the same answer' 201 .id "$one" POST $ws '{"name":"one"}' "${key[@]}"
like 'which says so' "$(<"$T/head")" $'Idempotency-Replayed: true\r'
gives 'another body' 422 .code key_reused POST $ws '{"name":"other"}' "${key[@]}"
gives 'another path is another call' 201 '.items | length' 2 POST $ws/one/fork '{"name":"f","count":2}' "${key[@]}"
first=$(of '[.items[].id] | join(" ")')
gives 'and repeated' 201 '[.items[].id] | join(" ")' "$first" POST $ws/one/fork '{"name":"f","count":2}' "${key[@]}"
gives 'made once' 200 '.items | length' 3 GET $ws
gives 'a failure is an answer, too' 409 .code exists POST $ws '{"name":"one"}' -H 'Idempotency-Key: k2'
gives 'that stays' 409 .code exists POST $ws '{"name":"one"}' -H 'Idempotency-Key: k2'
gives 'a key that is none' 400 .code invalid POST $ws '{"name":"x"}' -H "Idempotency-Key: $(printf 'x%.0s' $(seq 256))"
gives 'a wrong body takes no key' 400 .code invalid POST $ws '{"nam":"x"}' -H 'Idempotency-Key: k3'
gives 'which is free for the right one' 201 .name x POST $ws '{"name":"x","mount":false}' -H 'Idempotency-Key: k3'
gives 'a token' 201 '.token != null' true POST /v1/tokens '{}' -H 'Idempotency-Key: k4'
gives 'is told this once' 201 .token null POST /v1/tokens '{}' -H 'Idempotency-Key: k4'
gives 'a save' 201 .names[0] s POST $ws/one/snapshots '{"name":"s"}' -H 'Idempotency-Key: k5'
saved=$(of .id)
gives 'saved once' 201 .id "$saved" POST $ws/one/snapshots '{"name":"s"}' -H 'Idempotency-Key: k5'
tar cf "$T/t.tar" -C "$BOUGH_SRC" LICENSE
gives 'an upload' 201 .names[0] in POST "/v1/import?name=in" '' -T "$T/t.tar" -H 'Idempotency-Key: k6'
gives 'once' 201 .names[0] in POST "/v1/import?name=in" '' -T "$T/t.tar" -H 'Idempotency-Key: k6'

# Killed between the effect and its answer: what was made answers.
kill_hard boughd
sqlite3 "$BOUGH_ROOT/catalog.db" "UPDATE repeats SET status = NULL, answer = NULL"
start
gives 'after a kill: the workspace' 201 .id "$one" POST $ws '{"name":"one"}' "${key[@]}"
gives 'the forks' 201 '[.items[].id] | join(" ")' "$first" POST $ws/one/fork '{"name":"f","count":2}' "${key[@]}"
gives 'the snapshot' 201 .id "$saved" POST $ws/one/snapshots '{"name":"s"}' -H 'Idempotency-Key: k5'
gives 'what had no effect is done now' 409 .code exists POST $ws '{"name":"one"}' -H 'Idempotency-Key: k2'

# ---- events

wait $listener
events=$(sed -n 's/^event: //p' "$T/events" | tr '\n' ' ')
like 'what happened was told' "$events" \
	'^workspace.created workspace.created workspace.created workspace.forked .*workspace.saved snapshot.created snapshot.created '
curl -sSN -m 20 --unix-socket "$BOUGH_ROOT/run/boughd.sock" http://d/v1/events >"$T/events" 2>/dev/null &
listener=$!
wait_for 10 grep -q bough "$T/events"
api PATCH $ws/x '{"labels":{"a":"b"}}'
wait_for 10 grep -q workspace.changed "$T/events"
id=$(sed -n 's/^id: //p' "$T/events" | tail -n 1)
kill $listener
api PATCH $ws/x '{"labels":{"a":"c"}}'
api DELETE $ws/x
curl -sSN --unix-socket "$BOUGH_ROOT/run/boughd.sock" -H "Last-Event-ID: $id" http://d/v1/events >"$T/resumed" &
listener=$!
wait_for 10 grep -q '"type":"workspace.deleted"' "$T/resumed"
sleep 1 # for what would come twice
kill $listener
out=$(cat "$T/resumed")
is 'resumed: nothing is missed, nothing twice' "$(sed -n 's/^event: //p' <<<"$out" | tr '\n' ' ')" 'workspace.changed workspace.deleted '
is 'its data' "$(sed -n 's/^data: //p' <<<"$out" | tail -n 1 | jq -r '.type + " " + .by')" 'workspace.deleted uid:'"$(id -u)"
gives 'of a boughd that is gone' 410 .code gone GET "/v1/events?since=00000000.1"
gives 'what is no id' 400 .details.field since GET "/v1/events?since=x"

# ---- jobs

async=(-H 'Prefer: respond-async')
one_path=$(at one)
echo changed >"$one_path/file"
gives 'a save that nobody waits for' 202 .state running POST $ws/one/snapshots '{"name":"j"}' "${async[@]}"
job=$(of .id)
like 'its id' "$job" '^jb_[a-z2-7]{10}$'
like 'where it is' "$(<"$T/head")" "Location: /v1/jobs/$job"
gives 'its end' 200 '.state, .status, .result.names[0]' $'done\n201\nj' GET "/v1/jobs/$job?wait=30"
gives 'gc as a job' 202 '' '' POST /v1/gc '{}' "${async[@]}"
gives 'that ends' 200 .state done GET "/v1/jobs/$(of .id)?wait=30"
gives 'a failure' 409 .code exists POST $ws/one/snapshots '{"name":"j"}' "${async[@]}"
gives 'jobs, newest first' 200 '[.items[].state] | unique | join(" ")' done GET /v1/jobs
gives 'no such job' 404 .code not_found GET /v1/jobs/jb_aaaaaaaaaa
gives 'cancel what has ended' 409 .code conflict POST "/v1/jobs/$job/cancel"
# A big one, cancelled; another, cut off by a kill.
mkdir "$one_path/many"
for i in $(seq 40); do head -c 1000000 /dev/urandom >"$one_path/many/$i"; done
api POST $ws/one/snapshots '{}' "${async[@]}"
job=$(of .id)
api POST "/v1/jobs/$job/cancel"
api GET "/v1/jobs/$job?wait=30"
like 'cancelled, or done before' "$(of .state)" '^(cancelled|done)$'
for i in $(seq 40); do head -c 1000000 /dev/urandom >"$one_path/many/$i"; done
api POST $ws/one/snapshots '{"name":"cut"}' "${async[@]}"
job=$(of .id)
kill_hard boughd
start
api GET "/v1/jobs/$job?wait=60"
is 'it goes on behind a kill' "$(of '.state, .status' | xargs)" 'done 201'
gives 'with a key: first the job' 202 '' '' POST $ws/one/snapshots '{"name":"k"}' "${async[@]}" -H 'Idempotency-Key: k7'
api GET "/v1/jobs/$(of .id)?wait=30"
made=$(of .result.id)
api POST $ws/one/snapshots '{"name":"k"}' "${async[@]}" -H 'Idempotency-Key: k7'
is 'then its answer' "$(of .id)" "$made"

# ---- audit

gives 'the audit log of a workspace' 200 '[.items[].method] | unique | join(" ")' POST GET "/v1/audit?object=$one"
# Files that calls change, but not what passes by on the way to one.
gives 'a file' 201 '' '' PUT $ws/one/files/log/a x
gives 'is moved' 200 '' '' POST "$ws/one/files/log/a?op=move" '{"to":"log/b"}'
gives 'and removed' 204 '' '' DELETE "$ws/one/files/log/b"
tus=(-H 'Tus-Resumable: 1.0.0')
gives 'an upload' 201 '' '' POST $ws/one/uploads '' "${tus[@]}" -H 'Upload-Length: 2' \
	-H "Upload-Metadata: path $(printf log/up | base64)"
up=$(sed -n 's/^Location: \(.*\)\r$/\1/p' "$T/head")
for i in 0 1; do
	gives 'comes' 204 '' '' PATCH "$up" x "${tus[@]}" -H "Upload-Offset: $i" -H 'Content-Type: application/offset+octet-stream'
done
gives 'each is in the log once' 200 '[.items[] | select(.path | test("/files/|/uploads"))] | reverse |
	map("\(.method) \(.about.op) \(.about.made)") | join(", ")' \
	'PUT null null, POST move log/b, DELETE null null, PATCH null log/up' GET "/v1/audit?object=$one&limit=1000"
gives 'a batch' 200 '' '' POST $ws/one/batch \
	'{"operations":[{"op":"write","path":"log/1","content":"x"},{"op":"move","path":"log/1","to":"log/2"}]}'
gives 'names its files' 200 '.items[0].about | "\(.operations) \(.paths | join(" "))"' '2 log/1 log/2' GET "/v1/audit?object=$one&limit=1"
# What calls to something else did to it.
gives 'a fork' 201 '' '' POST $ws/one/fork '{"names":["child"]}'
gives 'in its log, too' 200 '.items[-1].about.from' "$one" GET '/v1/audit?object=child'
sb=/v1/sandboxes
gives 'a sandbox' 201 '' '' POST $sb '{"name":"box","start":false}'
box=$(of .id)
gives 'attached' 201 '' '' POST $sb/box/workspaces '{"workspace":"one","target":"/one"}'
gives 'saved with it' 201 '' '' POST $sb/box/snapshots '{"name":"both"}'
gives 'restored' 200 '' '' POST $sb/box/restore '{"snapshot":"both"}'
gives 'forked' 201 '' '' POST $sb/box/fork '{"names":["box2"]}'
fork=$(as root GET $ws/box2-ws && of .id)
gives 'which goes with its sandbox' 204 '' '' DELETE "$sb/box2?workspaces=true"
gives 'detached' 200 '' '' DELETE $sb/box/workspaces/one
gives 'all of it is in its log' 200 '[.items[] | select(.path | test("sandboxes")) | .about | keys[0]] | reverse | join(" ")' \
	'to made to from' GET "/v1/audit?object=$one&limit=1000"
gives 'and in its fork'"'"'s' 200 '[.items[] | .method + " " + (.about | keys[0])] | reverse | join(" ")' \
	'POST from DELETE with' GET "/v1/audit?object=$fork"
gives 'the sandbox goes' 204 '' '' DELETE $sb/box
gives 'who and from where' 200 '.items[0].owner, (.items[0].from | test("^pid [0-9]+$"))' $'uid:'"$(id -u)"$'\ntrue' GET "/v1/audit?limit=1"
next=$(of .next) newest=$(of .items[0].seq)
gives 'the next page' 200 '.items[0].seq' $((newest - 1)) GET "/v1/audit?limit=1&cursor=$next"
api GET '/v1/audit?format=ndjson'
is 'exported' "$(tail -n 1 <<<"$body" | jq -r .seq)" 1
is 'no line is missing' "$(wc -l <<<"$body")" "$newest"
is 'reading leaves none' "$(grep -c '"GET"' <<<"$body")" 0

# ---- pages

for i in 1 2 3 4 5; do api POST $ws "{\"name\":\"p$i\",\"mount\":false,\"labels\":{\"n\":\"$i\"}}"; done
gives 'a page' 200 '[.items[].name] | join(" ")' 'p5 p4' GET "$ws?limit=2"
next=$(of .next)
api DELETE $ws/p4
gives 'the next one, though where it began is gone' 200 '[.items[].name] | join(" ")' 'p3 p2' GET "$ws?limit=2&cursor=$next"
gives 'the last' 200 '.next' null GET "$ws?label=n&limit=4"
gives 'no cursor' 400 .details.field cursor GET "$ws?cursor=x"
gives 'no limit' 400 .details.field limit GET "$ws?limit=0"
gives 'snapshots, too' 200 '.items | length' 1 GET "$snap?limit=1"

# ---- who holds what

api POST $ws '{"name":"u"}'
u=$(of .id)
head -c 300000 /dev/urandom >"$(at u)/noise"
api POST $ws/u/snapshots '{"name":"u1"}'
u1=$(of .id)
cp "$(at u)/noise" "$(at u)/same"
head -c 100000 /dev/urandom >"$(at u)/more"
api POST $ws/u/snapshots '{"name":"u2"}'
u2=$(of .id)
gives 'usage comes in pages' 200 '.items | length' 1 GET '/v1/usage?limit=1'
first=$(of '.items[0].id')
gives 'by id' 200 ".items | length, .[0].id > \"$first\"" $'1\ntrue' GET "/v1/usage?limit=1&cursor=$(of .next)"
api GET /v1/usage
held() { of ".items[] | select(.id == \"$1\") | .$2 / 100000 | floor"; }
is 'what the workspace has written' "$(held "$u" written_bytes)" 7
is 'it has what it saved in common with its snapshot' "$(held "$u2" unique_bytes) $(held "$u2" shared_bytes)" '0 4'
api DELETE $ws/u
api GET /v1/usage
is 'what two snapshots have in common is shared' "$(held "$u1" shared_bytes) $(held "$u2" shared_bytes)" '3 3'
is 'what one has alone' "$(held "$u1" unique_bytes) $(held "$u2" unique_bytes)" '0 1'

# ---- figures

figure() { sed -n "s/^bough_$1 //p" <<<"$body"; }
api POST /v1/gc '{}'
api GET /metrics
before=$(figure store_held_bytes)
gives 'a workspace that holds much' 201 .name much POST $ws '{"name":"much"}'
head -c 2000000 /dev/urandom >"$(jq -r .path <<<"$body")/much"
api POST $ws/much/snapshots '{}'
api POST $ws/much/fork '{"name":"more","count":4}'
gives 'gc' 200 .images_deleted 0 POST /v1/gc '{}'
gives 'version' 200 .api v1 GET /v1/version
api GET /metrics
is 'metrics' "$status" 200
like 'of requests' "$body" 'bough_http_requests_total\{method="POST",path="/v1/workspaces",status="2xx"\} [0-9]+'
like 'of their time' "$body" 'bough_http_request_duration_seconds_bucket\{method="GET",path="/v1/workspaces",le="\+Inf"\} [0-9]+'
like 'of the store' "$body" 'bough_store_compression_ratio [0-9.]+'
for figure in store_stored_bytes store_raw_bytes store_dedup_ratio jobs_running flatten_waiting \
	store_work_waiting webhook_deliveries_waiting workspaces_deleted; do
	like "$figure" "$body" "bough_$figure [0-9.]+"
done
more=$(awk -v n="$(figure store_held_bytes)" -v before="$before" 'BEGIN { print n - before }')
ok "five workspaces and a snapshot hold the same: $more bytes" test "$more" -ge 12000000 -a "$more" -lt 13000000
is 'by what the store has' "$(figure store_dedup_ratio | cut -c 1-4)" \
	"$(awk -v h="$(figure store_held_bytes)" -v r="$(figure store_raw_bytes)" 'BEGIN { printf "%.15g", h / r }' | cut -c 1-4)"
like 'of the filesystem' "$body" 'bough_fs_requests_total\{opcode="LOOKUP"\} [0-9]+'
is 'each line is one of Prometheus'"'" "$(grep -vcE '^(#.*|bough_[a-z_]+(\{.*\})? [0-9.e+-]+)$' <<<"$body")" 0
fsck_clean
done_testing
