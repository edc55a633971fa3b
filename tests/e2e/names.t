#!/bin/bash
# Names that mean several things: workspaces, snapshots and sandboxes have names of their own kind, and
# each owner has names of its own. What isn't clear is refused, with what to say instead.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/http.sh"

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
bough create x >/dev/null
echo ours | bough cp - x:f
bough save x --as x >/dev/null
ws_x=$(bough show x --json | jq -r .id)
sn_x=$(bough snapshots show x --json | jq -r .id)

# ---- a workspace and a snapshot

both="\"x\" is a workspace \\($ws_x\\) and a snapshot \\($sn_x\\): give the id"
bough_fails 'cat of either' 4 "$both" cat x:f
bough_fails 'files ls' 4 "$both" files ls x:
bough_fails 'cp out' 4 "$both" cp x:f "$T/f"
bough_fails 'diff' 4 "$both" diff x
bough_fails 'export' 4 "$both" export x -o "$T/x.tar"
bough_fails 'what boughd is to decide' 4 "\"x\" is both a snapshot \\($sn_x\\) and a workspace \\($ws_x\\)" create y --from x
bough_ok 'an id decides' cat "$ws_x:f"
is 'it' "$out" ours
bough_ok 'the other one' cat "$sn_x:f"
bough_ok 'so does the beginning of one' cat "${sn_x:0:9}:f"
bough_ok 'what only a workspace can do is clear' cp "$BOUGH_SRC/LICENSE" x:l
bough_ok 'saving' save x
bough_ok 'showing' show x
bough_ok 'and forking' fork x y
bough rm y

# ---- a workspace and a sandbox

bough snapshots rm --force x
as root POST /v1/sandboxes '{"name":"x","start":false}'
sb_x=$(of .id)
both="\"x\" is a workspace \\($ws_x\\) and a sandbox \\($sb_x\\): give the id"
for call in 'cat x:f' 'files ls x:' "cp x:f $T/f" "cp $BOUGH_SRC/LICENSE x:l" \
	'save x' 'fork x z' 'restore x x' 'log x' 'show x' 'path x' 'diff x' 'rm x' 'set x --ttl 1h' 'rename x z'; do
	bough_fails "$call" 4 "$both" $call
done
gives 'of the audit log' 409 .message "\"x\" is both a sandbox ($sb_x) and a workspace ($ws_x): give the id" \
	root GET '/v1/audit?object=x'
bough_ok 'the workspace by its id' cat "$ws_x:f"
bough_ok 'into it' cp "$BOUGH_SRC/LICENSE" "$ws_x:m"
bough_ok 'into the sandbox by its' cp "$BOUGH_SRC/LICENSE" "$sb_x:/root/m"
bough_ok 'and from it' cat "$sb_x:/root/m"
bough_ok 'which diff takes' diff "$sb_x"
like 'as that of its root' "$out" 'root/m'

# ---- what is one's own comes before what others show

bough user add ann
as root POST /v1/tokens '{"owner":"ann"}'
token[ann]=$(of .token)
bough create app >/dev/null
echo ours | bough cp - app:f
as ann POST $ws '{"name":"app","visibility":"global"}'
as ann PUT "$ws/app/files/f" theirs
as ann POST "$ws/app/snapshots" '{"name":"app"}'
is 'a snapshot that all see' "$status" 201
bough_ok 'nobody else is in the way of his own' cat app:f
is 'which it is' "$out" ours
as ann GET "$ws/app/files/f"
is 'nor is he of another' "$body" theirs
as ann POST $ws '{"name":"from","from":"app"}'
is 'who has both must say which' "$status $(of .code)" '409 conflict'
gives 'but who has one needs not' 201 '' '' root POST $ws '{"name":"from","from":"app"}'
as ann POST $ws '{"name":"hers"}'
as ann PUT "$ws/hers/files/dir/f" 'hers'
bough_ok 'a place of an owner' cat ann/hers:dir/f
is 'is hers' "$out" hers
bough create hers >/dev/null
bough_ok 'so are folders' files ls ann/hers:dir
bough_fails 'which are not among the own' 3 'No such' cat hers:dir/f
bough user add ben --uid 30002
as root POST /v1/tokens '{"owner":"ben"}'
token[ben]=$(of .token)
as ben POST $ws '{"name":"his"}'
as ben PUT "$ws/his/files/f" 'his'
bough_ok 'by a uid' cp uid:30002/his:f "$T/his"
is 'it came' "$(cat "$T/his")" his
bough_ok 'and into it' cp "$BOUGH_SRC/LICENSE" uid:30002/his:l
bough_ok 'by the name, too' cat ben/his:l
done_testing
