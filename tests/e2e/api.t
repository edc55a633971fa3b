#!/bin/bash
# boughd's HTTP API as snapd/API.md has it, by curl on its socket; and what the daemon mends by
# itself: left-overs, lost rows, a dead bough-fs, a damaged catalog.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/http.sh"

start() { boughd --root "$BOUGH_ROOT" --daemon; }
start || bail 'boughd does not start'

# ---- workspaces

healthy() { api GET /v1/health && [ "$(of .ok)" = true ]; }
wait_for 20 healthy # boughd answers before bough-fs does
gives 'health' 200 '.ok, .root' "true"$'\n'"$BOUGH_ROOT" GET /v1/health
gives 'nothing yet' 200 '.items | length' 0 GET $ws
gives 'create' 201 .name one POST $ws '{"name":"one","labels":{"team":"x"},"quota_bytes":100000000}'
one=$(of .path) id=$(of .id)
ok 'it is mounted' mountpoint -q "$one"
like 'its id' "$id" '^ws_[a-z2-7]{10}$'
is 'its fields' "$(of '[.base, .head, .parent, .mounted, .state, .labels.team, .quota_bytes] | join(" ")')" \
	'   true ready x 100000000'
gives 'create without a mount' 201 .mounted false POST $ws '{"name":"two","mount":false}'
gives 'the name is taken' 409 .code exists POST $ws '{"name":"one"}'
gives 'a name that is none' 400 .details.field name POST $ws '{"name":"../x"}'
gives 'an id as name' 400 .details.field name POST $ws '{"name":"ws_aaaaaaaaaa"}'
gives 'no such source' 404 .code not_found POST $ws '{"name":"x","from":"nowhere"}'
gives 'a field that is none' 400 .details.field mont POST $ws '{"name":"x","mont":true}'
gives 'no JSON' 400 .code invalid POST $ws '{"name":'
gives 'by id' 200 .name one GET "$ws/$id"
gives 'get has the usage' 200 '.used_bytes, .layers' $'0\n1' GET $ws/one
gives 'not there' 404 .code not_found GET $ws/three
gives 'list by label' 200 '[.items[].name] | join(" ")' one GET "$ws?label=team=x"
gives 'list by key' 200 '.items | length' 1 GET "$ws?label=team"
gives 'neither yes nor no' 400 .details.field usage GET "$ws?usage=yes"
gives 'nor as nothing' 400 .details.field purge DELETE "$ws/two?purge"
gives 'list with usage' 200 '[.items[] | has("used_bytes")] | all' true GET "$ws?usage=1"
gives 'rename and labels' 200 '.name, .labels.a, .labels.team' $'uno\nb\nnull' \
	PATCH $ws/one '{"name":"uno","labels":{"a":"b"}}'
gives 'labels are added and removed' 200 '.labels | "\(.a) \(.c) \(.d)"' 'null 1 2' \
	PATCH $ws/uno '{"add_labels":{"c":"1","d":"2"},"remove_labels":["a","none"]}'
gives 'too many of them' 400 .details.field add_labels PATCH $ws/uno \
	"$(jq -nc '{add_labels: ([range(63) | {"l\(.)": "x"}] | add)}')"
gives 'a label that is none' 400 .details.field add_labels PATCH $ws/uno '{"add_labels":{"a b":"x"}}'
gives 'the old name is gone' 404 .code not_found GET $ws/one
gives 'back' 200 .name one PATCH $ws/uno '{"name":"one"}'
gives 'a name that is taken' 409 .code exists PATCH $ws/one '{"name":"two"}'
gives 'quota' 200 .quota_inodes 50 PATCH $ws/one '{"quota_inodes":50}'
gives 'mount' 200 .mounted true POST $ws/two/mount
two=$(of .path)
ok 'it is' mountpoint -q "$two"
gives 'mount again' 200 .mounted true POST $ws/two/mount
gives 'umount' 200 .mounted false POST $ws/two/umount
ok 'it is not' not mountpoint -q "$two"
gives 'umount again' 200 .mounted false POST $ws/two/umount
gives 'method' 405 .code invalid PUT $ws/two
gives 'path' 404 .code not_found GET /v2/workspaces

# ---- save, log, diff, restore

printf 'a\nb\n' >"$one/file"
mkdir "$one/dir" && echo x >"$one/dir/x"
gives 'save' 201 '.names[0], .message, .parent' $'first\nthe first\nnull' \
	POST $ws/one/snapshots '{"name":"first","message":"the first"}'
first=$(of .id)
cat "$one/file" "$one/dir/x" >/dev/null
gives 'nothing new, though it was read' 200 '.id, .unchanged' "$first"$'\ntrue' POST $ws/one/snapshots
gives 'the name is taken' 409 .code exists POST $ws/one/snapshots '{"name":"first"}'
printf 'a\nB\n' >"$one/file"
mv "$one/dir/x" "$one/dir/y"
gives 'status' 200 '' '' GET "$ws/one/diff?format=name-status"
is 'against the head' "$body" $'R\tdir/x\tdir/y\nM\tfile'
api GET "$ws/one/diff"
is 'as ndjson' "$(jq -r '.kind + " " + .path' <<<"$body" | tr '\n' ';')" 'renamed dir/y;modified file;'
is 'with what' "$(jq -r 'select(.path == "file") | .what | join(" ")' <<<"$body")" 'content mtime'
api GET "$ws/one/diff?format=patch"
like 'patch' "$body" $'\n-b\n\\+B'
api GET "$ws/one/diff?format=stat"
like 'stat' "$body" '2 files changed, 1 insertion\(\+\), 1 deletion\(-\)'
gives 'no such format' 400 .code invalid GET "$ws/one/diff?format=odd"
gives 'no such tree' 404 .code not_found GET "$ws/one/diff?against=odd"
api POST $ws/one/snapshots '{}' -H 'Accept: application/x-ndjson'
is 'save with lines' "$(tail -n 1 <<<"$body" | jq -r .result.parent)" "$first"
second=$(tail -n 1 <<<"$body" | jq -r .result.id)
gives 'log' 200 '[.items[].id] | join(" ")' "$second $first" GET $ws/one/log
gives 'restore' 200 .head "$first" POST $ws/one/restore '{"snapshot":"first"}'
is 'in place' "$(cat "$one/file" "$one/dir/x" | tr '\n' ' ')" 'a b x '
gives 'the line begins there' 200 '[.items[].id] | join(" ")' "$first" GET $ws/one/log
gives 'nothing new after a restore' 200 .unchanged true POST $ws/one/snapshots
gives 'restore what is not' 404 .code not_found POST $ws/one/restore '{"snapshot":"odd"}'
api GET "$snap/$second/diff?format=name-status"
is "a snapshot's diff against its parent" "$body" $'R\tdir/x\tdir/y\nM\tfile'

# ---- snapshots

gives 'by a beginning of the id' 200 .id "$first" GET "$snap/${first:0:9}"
gives 'too short a beginning' 404 .code not_found GET "$snap/sn_"
gives 'list of one workspace' 200 '.items | length' 2 GET "$snap?workspace=one"
gives 'names' 200 '.names | join(" ")' 'v1 v2' \
	PATCH $snap/first '{"add_names":["v1","v2"],"remove_names":["first"],"message":"m","labels":{"k":"v"}}'
gives 'listed by label' 200 '[.items[].id] | join(" ")' "$first" GET "$snap?label=k=v&label=k"
gives 'by another none' 200 '.items | length' 0 GET "$snap?label=k=w"
gives 'in the log, too' 200 '[.items[].id] | join(" ")' "$first" GET "$ws/one/log?label=k"
gives 'the old one is gone' 404 .code not_found GET $snap/first
gives 'a name of another' 409 .code exists PATCH "$snap/$second" '{"add_names":["v1"]}'
gives 'removing what it has not' 404 .code not_found PATCH $snap/v1 '{"remove_names":["odd"]}'
gives 'rm of a head' 409 .code conflict DELETE $snap/v1
gives 'rm' 204 '' '' DELETE "$snap/$second"
gives 'it is gone' 404 .code not_found GET "$snap/$second"
gives 'rm by force' 204 '' '' DELETE "$snap/v1?force=1"
gives 'the workspace lives on without' 200 .head null GET $ws/one
is 'with its files' "$(cat "$one/dir/x")" x
gives 'and is saved anew' 201 .parent null POST $ws/one/snapshots '{"name":"base"}'
base=$(of .id)

# ---- fork, create from

gives 'fork' 201 '[.items[].name] | join(" ")' 'a b' POST $ws/one/fork '{"names":["a","b"]}'
is 'their parent' "$(of '.items[0].parent')" "$id"
is 'their head' "$(of '.items[0].head')" "$base"
is 'their quota' "$(of '.items[0].quota_bytes')" 100000000
ok 'the pause is told' test "$(of .pause_ns)" -ge 0
is 'their files' "$(cat "$(of '.items[1].path')/dir/x")" x
gives 'unchanged in a fork' 200 .id "$base" POST $ws/a/snapshots
gives 'fork by count' 201 '[.items[].name] | join(" ")' 'c-1 c-2 c-3' \
	POST $ws/one/fork '{"name":"c","count":3}'
gives 'one name is taken: none is made' 409 .code exists POST $ws/one/fork '{"names":["new","a"]}'
gives 'indeed none' 404 .code not_found GET $ws/new
gives 'a name twice' 400 .details.field names POST $ws/one/fork '{"names":["d","d"]}'
gives 'too many' 400 .details.field count POST $ws/one/fork '{"name":"d","count":1001}'
gives 'none' 400 .code invalid POST $ws/one/fork '{}'
gives 'from a snapshot' 201 '.base, .head' "$base"$'\n'"$base" POST $ws '{"name":"s","from":"base"}'
gives 'unchanged since' 200 .id "$base" POST $ws/s/snapshots
gives 'from a workspace' 201 .parent "$id" POST $ws '{"name":"t","from":"one"}'
api PATCH "$snap/base" '{"add_names":["one"]}'
gives 'both have that name' 409 .code conflict POST $ws '{"name":"u","from":"one"}'
gives 'rm of a workspace' 204 '' '' DELETE $ws/t
gives 'gone' 404 .code not_found DELETE $ws/t

# ---- archives

curl -sS --unix-socket "$BOUGH_ROOT/run/boughd.sock" "http://d$ws/one/archive?format=tar" >"$T/one.tar"
is 'archive of a workspace' "$(tar tf "$T/one.tar" | sort | tr '\n' ' ')" './ ./dir/ ./dir/x ./file '
gives 'no such format' 400 .code invalid GET "$ws/one/archive?format=odd"
gives 'import' 201 .names[0] in POST '/v1/import?name=in&message=m' '' -T "$T/one.tar"
gives 'import in chunks' 201 .names[0] in2 POST '/v1/import?name=in2' '' -T - <"$T/one.tar"
gives 'the same tree' 200 '' '' GET "$snap/in2/diff?against=in&format=name-status"
is 'without a difference' "$body" ''
gives 'the name is taken' 409 .code exists POST '/v1/import?name=in' '' -T "$T/one.tar"
gives 'no archive' 400 .code invalid POST '/v1/import?name=bad' 'this is no archive'
head -c 20000000 /dev/urandom >"$T/noise"
gives 'noise that goes on' 400 .code invalid POST '/v1/import?name=bad' '' -T "$T/noise"
{ cat "$T/one.tar" && sleep 5; } | timeout 1 curl -sS --unix-socket "$BOUGH_ROOT/run/boughd.sock" \
	-X POST -T - "http://d/v1/import?name=cut" >/dev/null 2>&1
sleep 0.3
gives 'an upload that broke off is nothing' 404 .code not_found GET $snap/cut

# ---- the system

gives 'gc' 200 '.objects_live > 0' true POST /v1/gc
gives 'fsck' 200 '.faults | length' 0 POST /v1/fsck '{}'
gives 'stats' 200 '.catalog.workspaces, (.fs.opcodes.LOOKUP > 0), (.store.objects > 0)' $'8\ntrue\ntrue' GET /v1/stats
api POST /v1/fsck '{}' -H 'Accept: application/x-ndjson'
is 'fsck with lines' "$(tail -n 1 <<<"$body" | jq -r '.result.faults | length')" 0
run boughd --root "$BOUGH_ROOT" --daemon
is 'a second daemon: exit 1' $code 1
like 'in one line' "$err" '^boughd: another boughd \(process [0-9]+\) has the state '

# As the system's service does, which a command may be quicker than.
pid=$(pids_of boughd)
run boughd --root "$BOUGH_ROOT" --daemon --replace
is 'one that is to replace it does' "$code $err" '0 '
ok 'the first has ended' not test -e "/proc/$pid/exe"
is 'the workspaces stayed' "$(cat "$one/dir/x")" x
gives 'and it answers' 200 .ok true GET /v1/health

# ---- boughd ends, the workspaces stay

pid=$(pids_of boughd)
kill "$pid"
wait_for 15 test ! -d "/proc/$pid"
is 'mounted without boughd' "$(cat "$one/dir/x")" x
echo 'written meanwhile' >"$one/meanwhile"
fs=$(pids_of bough-fs)
start
is 'the new one takes bough-fs over' "$(pids_of bough-fs)" "$fs"
gives 'and knows all' 200 '.items | length' 8 GET $ws
is 'nothing is lost' "$(cat "$one/meanwhile")" 'written meanwhile'

# ---- bough-fs dies

kill_hard bough-fs
gives 'a list waits until the mounts are back' 200 '[.items[] | select(.mounted)] | length' 7 GET $ws
is 'with all that was written' "$(cat "$one/meanwhile")" 'written meanwhile'
gives 'two stays as it was wanted' 200 .mounted false GET $ws/two

# ---- what the catalog and the folders disagree on

api POST /v1/shutdown '{}'
wait_for 15 test -z "$(pids_of boughd)"
ok 'all is unmounted' not mountpoint -q "$one"
# A fork that was killed before it was acknowledged: a folder without meta.json and row.
cp -r "$BOUGH_ROOT/ws/$id" "$BOUGH_ROOT/ws/ws_aaaaaaaaaa" && rm "$BOUGH_ROOT/ws/ws_aaaaaaaaaa/meta.json"
sqlite3 "$BOUGH_ROOT/catalog.db" "DELETE FROM workspaces WHERE name = 'a'; DELETE FROM snapshots
	WHERE id = '$base'; DELETE FROM snapshot_names WHERE snapshot = '$base';
	INSERT INTO workspaces (id, name, created, quota_bytes, quota_inodes, mount)
	VALUES ('ws_bbbbbbbbbb', 'ghost', 1, 0, 0, 1)"
start
gives 'a lost workspace is adopted' 200 .mounted true GET $ws/a
gives 'a lost snapshot too, with its names' 200 '.names | join(" ")' 'base one' GET "$snap/$base"
gives 'a row without a folder is broken' 200 '.state, .mounted' $'broken\nfalse' GET $ws/ghost
like 'and says so' "$(of .error)" 'folder is missing'
gives 'it can be removed' 204 '' '' DELETE $ws/ghost
ok 'what was never acknowledged is removed' test ! -e "$BOUGH_ROOT/ws/ws_aaaaaaaaaa"
is 'its layers were others, too' "$(cat "$one/dir/x")" x

# ---- a damaged catalog

api POST /v1/shutdown '{}'
wait_for 15 test -z "$(pids_of boughd)"
dd if=/dev/urandom of="$BOUGH_ROOT/catalog.db" bs=1k count=8 conv=notrunc status=none
start
gives 'it starts, and says what is wrong' 503 .code unavailable GET $ws
like 'and what to do' "$(of .message)" 'catalog.db is damaged.*bough fsck --repair'
gives 'health too' 200 .ok false GET /v1/health
gives 'nothing is made over it' 503 .code unavailable POST $ws '{"name":"new"}'
gives 'fsck names it' 200 '.faults[0].where, .faults[0].repaired' $'catalog.db\nfalse' POST /v1/fsck '{}'
gives 'repair' 200 '.faults[0].where, .faults[0].repaired' $'catalog.db\ntrue' POST /v1/fsck '{"repair":true}'
gives 'all workspaces are back' 200 '[.items[].name] | sort | join(" ")' 'a b c-1 c-2 c-3 one s two' GET $ws
gives 'and snapshots' 200 '[.items[].names[0]] | sort | join(" ")' 'base in in2' GET $snap
is 'and mounts' "$(cat "$one/dir/x")" x
like 'the damaged one is kept' "$(echo "$BOUGH_ROOT"/catalog.db.damaged-*)" 'damaged-[0-9]+$'
gives 'it is whole' 200 '.faults | length' 0 POST /v1/fsck '{}'
api POST /v1/shutdown '{}'
is 'the end' "$status" 200
wait_for 15 test -z "$(pids_of boughd)$(pids_of bough-fs)"
is 'of both' "$(pids_of boughd)$(pids_of bough-fs)" ''
done_testing
