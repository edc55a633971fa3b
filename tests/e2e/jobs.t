#!/bin/bash
# The command line's side of jobs, events and the audit log; upgrades that would fail.
. "${0%/*}/lib.sh"
need_fuse

bough_ok 'a workspace' create w
w=$out
echo x >"$w/x"

# ---- jobs

bough_ok 'a save in the background' save w --as bg --background
job=$out
like 'prints its job' "$job" '^jb_[a-z2-7]{10}$'
bough_ok 'waited for' jobs wait "$job"
is 'prints what it made' "$out" "$(bough snapshots show bg --json | jq -r .id)"
bough_ok 'again' jobs wait "$job"
run bough jobs show "$job"
like 'shown' "$out" "state +done"
like 'listed' "$(bough jobs ls)" "$job +done +uid:$(id -u)"
is 'as JSON' "$(bough jobs ls --json | jq -r '.items[0].state')" 'done'
is 'completed' "$(bough __complete -- 3 bough jobs wait 'jb_')" "$job"
bough_fails 'what has ended can not be cancelled' 4 'has ended' jobs cancel "$job"
bough_fails 'no such job' 3 'no job' jobs wait jb_aaaaaaaaaa
bough_ok 'gc in the background' gc --background
bough_ok 'waited for as JSON' jobs wait "$out" --json
is 'has its answer' "$(json '.objects_live >= 0')" true
bough_ok 'fsck, too' fsck --background
fsck=$out
bough_ok 'it ends' jobs wait "$fsck"
for i in $(seq 60); do head -c 1000000 /dev/urandom >"$w/noise-$i"; done
bough save w --background >"$T/id"
bough jobs cancel "$(<"$T/id")" >/dev/null 2>&1
run bough jobs wait "$(<"$T/id")"
case $code in
0) pass 'saved before it was cancelled' ;;
1) like 'cancelled' "$err" 'cancel' ;;
*) fail "cancelled: $code" ;;
esac
bough save w --background --as cut >"$T/id"
kill_hard boughd
run bough jobs wait "$(<"$T/id")"
[ $code = 0 ] && pass 'saved before boughd was killed' || like 'a killed one says so' "$err" 'the daemon ended'

# ---- exports and imports

mkdir -p "$w/sub"
seq 200000 >"$w/sub/numbers"
bough_ok 'an export in the background' export w --background --format tar
bough_ok 'waited for' jobs wait "$out" --json
ex=$(json .id)
is 'nothing is lost in it' "$err" ''
like 'has an id' "$ex" '^ex_[a-z2-7]{10}$'
is 'and how long it is kept' "$(json '(.expires[0:19] + "Z" | fromdate) - (.created[0:19] + "Z" | fromdate)')" 86400
bough_ok 'fetched' export "$ex" -o "$T/kept.tar"
mkfifo "$w/sub/fifo"
bough_ok 'one as a zip' export w --background --format zip
run bough jobs wait "$out"
like 'what that could not hold is told' "$err" \
	"^bough: export: zip can't hold it all: 1 device or fifo left out, [0-9]+ times cut to whole seconds$"
rm "$w/sub/fifo"
get() { curl -sS --unix-socket "$BOUGH_ROOT/run/boughd.sock" "$@"; }
get -X DELETE "http://d/v1/exports/$out"
is 'its bytes' "$(tar xOf "$T/kept.tar" ./sub/numbers | tail -1)" 200000
get -o "$T/part" -r 1000-1999 "http://d/v1/exports/$ex"
cmp -s "$T/part" <(tail -c +1001 "$T/kept.tar" | head -c 1000)
is 'a part of it' $? 0
is 'of that version only' "$(get -o "$T/part" -w '%{http_code}' -H 'If-Range: "other"' -r 1000-1999 "http://d/v1/exports/$ex")" 200
is 'behind its end' "$(get -o /dev/null -w '%{http_code}' -r 99999999999- "http://d/v1/exports/$ex")" 416
bough_ok 'imported in the background' import "$T/kept.tar" --as again --background
like 'as a job' "$out" '^jb_'
bough_ok 'waited for' jobs wait "$out"
is 'is the snapshot' "$out" "$(bough snapshots show again --json | jq -r .id)"
bough_ok 'what is no archive' import "$T/id" --background
run bough jobs wait "$out"
is 'fails as a job' $code 2
kill_hard boughd
is 'an export outlives boughd' "$(bough export "$ex" | cmp - "$T/kept.tar" && echo same)" same
is 'an import as a job says where that is' \
	"$(get -o "$T/body" -w '%{http_code} %header{location}' -H 'Prefer: wait=1, respond-async' -T "$T/kept.tar" -X POST http://d/v1/import)" \
	"202 /v1/jobs/$(jq -r .id "$T/body")"
is 'what looks like a preference is none' \
	"$(get -o "$T/body" -w '%{http_code}' -H 'Prefer: not-respond-async' -d '{"from":"w"}' http://d/v1/exports)" 201
get -X DELETE "http://d/v1/exports/$(jq -r .id "$T/body")"
get -H 'Accept: application/x-ndjson' -d '{"from":"w"}' http://d/v1/exports >"$T/lines"
is 'its progress has a total' "$(head -n 1 "$T/lines" | jq '.progress | .unit == "bytes" and .total > 1000000')" true
get -X DELETE "http://d/v1/exports/$(tail -n 1 "$T/lines" | jq -r .result.id)"
touch "$BOUGH_ROOT"/exports/*/left.tar.part
touch -d '25 hours ago' "$BOUGH_ROOT"/exports/*/"$ex.tar"
kill_hard boughd
bough ls >/dev/null
is 'what is old, or half, is gone' "$(get http://d/v1/exports | jq -c .items) $(ls "$BOUGH_ROOT"/exports/*)" '[] '
bough quotas set "uid:$(id -u)" --bytes 1 >/dev/null 2>&1 ||
	get -X PUT --data-binary '{"bytes": 1}' "http://d/v1/quotas/uid:$(id -u)" >/dev/null
is 'over the quota' "$(get -o "$T/body" -w '%{http_code}' --data-binary '{"from":"w"}' http://d/v1/exports)" 507
is 'nothing is left' "$(ls "$BOUGH_ROOT"/exports/*)" ''
get -X DELETE "http://d/v1/quotas/uid:$(id -u)"

# ---- events

bough create e --no-mount >/dev/null
bough rm e
run bough events
like 'events' "$out" '20[0-9T:-]+Z  workspace.created +ws_[a-z2-7]{10}  uid:[0-9]+'
like 'in their order' "$(awk '{ print $2 }' <<<"$out" | tr '\n' ' ')" 'workspace.created workspace.deleted '
bough events --follow --json >"$T/follow" 2>/dev/null &
follow=$!
wait_for 10 grep -q workspace.deleted "$T/follow"
bough undelete e >/dev/null
ok 'they are followed' wait_for 10 grep -q workspace.undeleted "$T/follow"
kill_hard boughd
bough rm e
ok 'over a kill of boughd' wait_for 10 eval '[ "$(grep -c workspace.deleted "$T/follow")" = 2 ]'
kill $follow

# ---- audit

run bough audit
like 'the log' "$out" "TIME +OWNER +FROM +CALL +PATH +OBJECT +STATUS"
like 'newest first' "$(sed -n 2p <<<"$out")" "20[0-9T:-]+Z +uid:$(id -u) +pid [0-9]+ +DELETE +/v1/workspaces/e +ws_[a-z2-7]+ +204"
like 'of one workspace' "$(bough audit w)" '/v1/workspaces/w/snapshots'
is 'by method' "$(bough audit --method DELETE --json | jq -r '[.items[].method] | unique | join(" ")')" DELETE
is 'until a time' "$(bough audit --until 2020-01-01 --json | jq '.items | length')" 0
is 'since one' "$(bough audit --since 2020-01-01T00:00:00Z --json | jq '.items | length > 3')" true
is 'of nobody' "$(bough audit --owner uid:77 --json | jq '.items | length')" 0
is 'what was forbidden' "$(bough audit --failed --json | jq '.items | length')" 0
bough_fails 'a time that is none' 2 'since' audit --since yesterday
bough audit --export >"$T/audit"
is 'exported' "$(jq -s 'length == (map(.seq) | unique | length) and length > 5' "$T/audit")" true
is 'with the same filters' "$(bough audit --export --method DELETE | jq -r .method | sort -u)" DELETE

# ---- forks that are kept for a while

bough_ok 'forks with a time' fork w f1 f2 --ttl 1h --visibility global --on-expiry keep --description 'to try'
is 'have it' "$(bough show f2 --json | jq -r '.visibility, .on_expiry, .description, (.expires != null)')" $'global\nkeep\nto try\ntrue'

# ---- upgrades

bough_ok 'an upgrade' upgrade
pid=$(pids_of boughd)
echo '{"listen": "nowhere"}' >"$BOUGH_ROOT/config.json"
bough_fails 'with an address that is none' 1 'the old one goes on: .*nowhere' upgrade
is 'leaves the old one' "$(pids_of boughd)" "$pid"
bough_ok 'which serves' ls
echo '{"gc_every_s": ' >"$BOUGH_ROOT/config.json"
bough_fails 'with what is no JSON' 1 'goes on: .*no JSON' upgrade
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=a -keyout "$T/a.key" -out "$T/a.pem" 2>/dev/null
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=b -keyout "$T/b.key" -out "$T/b.pem" 2>/dev/null
echo "{\"tls_cert\": \"$T/a.pem\", \"tls_key\": \"$T/b.key\"}" >"$BOUGH_ROOT/config.json"
bough_fails 'with another key' 1 "isn't the key of" upgrade
run boughd --root "$BOUGH_ROOT" --check
is 'boughd --check says the same' $code 1
echo "{\"listen\": \"127.0.0.1:0\", \"tls_cert\": \"$T/a.pem\", \"tls_key\": \"$T/a.key\"}" >"$BOUGH_ROOT/config.json"
run boughd --root "$BOUGH_ROOT" --check
is 'a sound one' "$code:$out$err" 0:
bough_ok 'is taken' upgrade
ok 'by another boughd' test "$(pids_of boughd)" != "$pid"
fsck_clean
done_testing
