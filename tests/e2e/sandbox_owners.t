#!/bin/bash
# Sandboxes of several owners: what one shows, saves and restores is never more than its caller may.
. "${0%/*}/lib.sh"
need_sandboxes

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
sock=$BOUGH_ROOT/run/boughd.sock
declare -A token=()
as() { # NAME METHOD TARGET [BODY]: $status and $body
	body=$(curl -sS -m 200 --unix-socket "$sock" -X "$2" ${4:+--data-binary "$4"} -w '\n%{http_code}' \
		${token[$1]:+-H "Authorization: Bearer ${token[$1]}"} "http://d$3" 2>"$T/.err")
	status=${body##*$'\n'}
	body=${body%$'\n'*}
}
of() { jq -r "$1" <<<"$body"; }
gives() { # DESCRIPTION STATUS WHO METHOD TARGET [BODY]
	local what=$1 want=$2
	shift 2
	as "$@"
	is "$what" "$status" "$want"
	[ "$status" = "$want" ] || diag "$body"
}
for who in alice bob carol; do
	bough_ok "$who" user add $who
	as root POST /v1/tokens "{\"owner\":\"$who\"}"
	token[$who]=$(of .token)
done
W=/v1/workspaces S=/v1/sandboxes
run bough run --rm -- true
[ $code = 0 ] || bail "no sandboxes here: $err"

gives 'a workspace of one' 201 alice POST $W '{"name":"own"}'
as alice PUT $W/own/files/secret 'of alice'
gives 'a workspace of another, for all to read' 201 bob POST $W '{"name":"all","visibility":"global"}'
shared=$(of .id)
as bob PUT $W/all/files/file 'of bob'
gives 'a sandbox with both' 201 alice POST $S '{"name":"a", "workspaces":[
	{"workspace":"own"}, {"workspace":"bob/all", "target":"/all", "read_only":true}]}'
gives 'not to write to' 403 alice POST $S/a/workspaces '{"workspace":"bob/all", "target":"/more"}'

gives 'nor to be kept from others' 403 alice POST $S '{"name":"x", "start":false, "workspaces":[
	{"workspace":"bob/all", "read_only":true, "exclusive":true}]}'

# ---- saving what is only read

gives 'is saved' 201 alice POST $S/a/snapshots '{"name":"group"}'
snap=$(of .root.id) group=$(of '.workspaces[0].id')
is 'what is its own' "$(of '[.workspaces[].owner] | join(" ")')" alice
as bob GET $W/all
is 'the other has not moved' "$(of .head)" null
as bob GET "/v1/snapshots?workspace=$shared"
is 'nor got a snapshot' "$(of '.items | length')" 0
as alice POST $W/own/files/secret?op=move '{"to":"moved"}'
gives 'it is restored' 200 alice POST $S/a/restore '{"snapshot":"group"}'
gives 'with its own files' 200 alice GET $S/a/files/workspace/secret
gives 'and what it reads' 200 alice GET $S/a/files/all/file
in_a() { bough exec alice/a -- "$@" 2>/dev/null; }
is 'its processes, too' "$(in_a cat /all/file)" 'of bob'
gives 'until its owner makes it private' 200 bob PATCH $W/all '{"visibility":"private"}'
is 'then its processes have it no longer' "$(in_a ls -A /all)" ''
as alice GET $S/a
is 'nor does it say so' "$(of '[.workspaces[].name] | join(" ")') $(of .status)" 'own running'
as root GET /v1/audit
is 'which is noted' "$(of '[.items[] | select(.path == "sandbox.detached")] | length')" 1
gives 'nor can its files be asked for' 404 alice GET $S/a/files/all/file
gives 'but what is its own' 200 alice GET $S/a/files/workspace/secret
gives 'once it is for all again' 200 bob PATCH $W/all '{"visibility":"global"}'
again='{"workspace":"bob/all", "target":"/all", "read_only":true}'
gives 'it can be attached again' 201 alice POST $S/a/workspaces "$again"
gives 'and read' 200 alice GET $S/a/files/all/file

# ---- what its owner may, whoever's the sandbox is

as bob GET $W/all
is 'its owner is told who has it' "$(of '.sandboxes[] | .owner + "/" + .name + .target')" alice/a/all
sandbox=$(of '.sandboxes[0].id')
as alice GET $W/bob%2Fall
is 'who only reads it is not' "$(of .sandboxes)" null
gives 'a sandbox that is not shown is not' 404 bob GET $S/$sandbox
gives 'to others neither' 404 carol DELETE $S/alice%2Fa/workspaces/bob%2Fall
gives 'what another owns is not taken off' 404 bob DELETE $S/alice%2Fa/workspaces/alice%2Fown
in_a sh -c 'cd /all && exec sleep 300' &
busy() { in_a sh -c 'ls -l /proc/[0-9]*/cwd' | grep -q ' /all$'; }
ok 'while a program is in it' wait_for 60 busy
gives 'it is busy for its owner, too' 409 bob DELETE $S/alice%2Fa/workspaces/all
is 'and says so' "$(of .code)" busy
gives 'unless it is forced' 204 bob DELETE "$S/alice%2Fa/workspaces/all?force=true"
is 'then it is off' "$(in_a ls -A /all)" ''
gives 'once' 404 bob DELETE $S/alice%2Fa/workspaces/all
gives 'by its id as well' 201 alice POST $S/a/workspaces "$again"
gives 'that is enough' 204 bob DELETE $S/$sandbox/workspaces/$shared
gives 'an admin may' 201 alice POST $S/a/workspaces "$again"
bough_ok 'from the command line' detach-workspace alice/a bob/all
gives 'what is attached' 201 alice POST $S/a/workspaces "$again"
gives 'is not deleted by accident' 409 bob DELETE $W/all
like 'and whose sandbox it is is told' "$(of .message)" 'sandbox alice/a uses it: `bough detach-workspace alice/a all`'
gives 'with force it is' 204 bob DELETE "$W/all?force=true"
is 'and gone from there' "$(in_a ls -A /all)" ''
gives 'it can be brought back' 200 bob POST $W/all/undelete '{}'
gives 'as it was' 200 bob GET $W/all/files/file

# ---- judged anew at each start

gives 'one that is stopped' 201 alice POST $S '{"name":"later", "start":false, "workspaces":[
	{"workspace":"bob/all", "target":"/all", "read_only":true}]}'
gives 'loses nothing yet' 200 bob PATCH $W/all '{"visibility":"private"}'
gives 'but is not started' 403 alice POST $S/later/start '{}'
like 'and says why' "$(of .message)" "what is to be at /all: workspace $shared is no longer for alice"
as alice GET $S/later
is 'it is as it was' "$(of .status)" created
gives 'without that' 200 alice DELETE $S/later/workspaces/$shared
gives 'it is' 200 alice POST $S/later/start '{}'
gives 'a workspace for a while' 201 alice POST $W '{"name":"brief"}'
brief=$(of .id)
gives 'is attached' 201 alice POST $S/later/workspaces '{"workspace":"brief", "target":"/brief"}'
gives 'and stopped' 200 alice POST $S/later/stop '{"grace_ms":0}'
gives 'and deleted by force' 204 alice DELETE "$W/brief?force=true"
gives 'which it does not miss' 200 alice POST $S/later/start '{}'
gives 'for all again' 200 bob PATCH $W/all '{"visibility":"global"}'
gives 'its image is a snapshot of another' 201 bob POST $S '{"name":"i", "start":false}'
gives 'that' 201 bob POST $S/i/snapshots '{"name":"img"}'
image=$(of .root.id)
gives 'all may use' 200 bob PATCH /v1/snapshots/$image '{"visibility":"global"}'
gives 'as she does' 201 alice POST $S "{\"name\":\"of-img\", \"image\":\"$image\"}"
gives 'stopped' 200 alice POST $S/of-img/stop '{"grace_ms":0}'
gives 'and private by now' 200 bob PATCH /v1/snapshots/$image '{"visibility":"private"}'
gives 'it is not started' 403 alice POST $S/of-img/start '{}'
like 'and says why' "$(of .message)" "its image $image is no longer for alice"
gives 'nor forked' 403 alice POST $S/of-img/fork '{"names":["of-img2"]}'
bough_ok 'they go' rm --force alice/later alice/of-img bob/i

gives 'who may write to it' 201 bob POST $S '{"name":"b", "start":false, "workspaces":[
	{"workspace":"all", "read_only":true}]}'
as bob POST $S/b/snapshots '{}'
is 'saves it' "$(of '[.workspaces[].owner] | join(" ")')" bob

# ---- a root that all may read

gives 'the snapshot of the root alone is shown' 200 alice PATCH /v1/snapshots/$snap '{"visibility":"global"}'
gives 'what goes with it is not' 404 carol GET /v1/snapshots/$group
gives 'somebody has a workspace' 201 carol POST $W '{"name":"w"}'
gives 'and a sandbox of that root' 201 carol POST $S \
	"{\"name\":\"c\", \"image\":\"$snap\", \"start\":false, \"workspaces\":[{\"workspace\":\"w\"}]}"
gives 'which is restored to nothing of others' 404 carol POST $S/c/restore "{\"snapshot\":\"$snap\"}"
gives 'nor live' 404 carol POST $S/c/restore "{\"snapshot\":\"$snap\", \"live\":true}"
gives 'it has none of their files' 404 carol GET $W/w/files/secret
gives 'another sandbox is none of hers' 404 carol POST $S/alice%2Fa/exec '{"command":["id"]}'

# ---- forks are their maker's, for good

gives 'a team' 201 alice POST /v1/teams '{"name":"team"}'
gives 'with another in it' 200 alice PUT /v1/teams/team/members/carol '{"role":"member"}'
gives 'has a sandbox' 201 alice POST $S '{"name":"t", "start":false, "visibility":"team", "team":"team",
	"workspaces":[{"workspace":"own", "read_only":true}]}'
gives 'a workspace of the team' 201 alice POST $W '{"name":"ours", "visibility":"team", "team":"team"}'
gives 'is attached by a member' 201 carol POST $S '{"name":"m", "workspaces":[{"workspace":"alice/ours"}]}'
gives 'and written to' 201 carol PUT $S/m/files/workspace/f x
gives 'until she is a reader only' 200 alice PUT /v1/teams/team/members/carol '{"role":"reader"}'
as carol GET $S/m
is 'then she has it no longer' "$(of '.workspaces | length')" 0
gives 'who reads' 201 carol POST $S/m/workspaces '{"workspace":"alice/ours", "read_only":true}'
gives 'and leaves the team' 204 alice DELETE /v1/teams/team/members/carol
as carol GET $S/m
is 'reads no longer' "$(of '.workspaces | length') $(of .status)" '0 running'
gives 'back in it' 200 alice PUT /v1/teams/team/members/carol '{"role":"member"}'
gives 'its maker forks it' 201 alice POST $S/t/fork '{"names":["t2"]}'
gives 'who sees it alone would keep what is not theirs' 404 carol POST $S/alice%2Ft/fork '{"names":["t3"]}'
gives 'the network of this host is nothing for others' 403 alice POST $S '{"name":"n", "start":false, "net":"host"}'
gives 'one with the network of this host' 201 root POST $S '{"name":"n", "start":false, "net":"host",
	"visibility":"team", "team":"team"}'
gives 'is forked by admins alone' 403 carol POST $S/n/fork '{"names":["n2"]}'
gives 'as it is made' 201 root POST $S/n/fork '{"names":["n3"]}'

# ---- what it prints, to who saw it when he asked

gives 'one for all to see' 201 alice POST $S '{"name":"told", "visibility":"global"}'
gives 'prints' 201 alice POST $S/told/exec '{"command":["sh", "-c", "while echo x; do sleep 0.1; done"]}'
printing=$(of .id)
curl -sSN -m 60 --unix-socket "$sock" -H "Authorization: Bearer ${token[bob]}" \
	"http://d$S/alice%2Ftold/exec/$printing/output?follow=true" >"$T/told" 2>&1 &
listener=$!
ok 'somebody else hears it' wait_for 20 test -s "$T/told"
gives 'it becomes private' 200 alice PATCH $S/told '{"visibility":"private"}'
ok 'he hears no more' wait_for 15 not kill -0 $listener 2>/dev/null
kill $listener 2>/dev/null
bytes_of() { as "$1" GET /v1/usage && of '.owners[0].bytes'; }
before=$(bytes_of alice)
gives 'what it prints' 201 alice POST $S/told/exec '{"command":["head", "-c", "8388608", "/dev/zero"]}'
printing=$(of .id)
gives 'to its end' 200 alice GET "$S/told/exec/$printing/output?follow=true&stream=stdout&stdout_offset=8388600"
ok 'counts among what its owner has' test "$(bytes_of alice)" -gt $((before + 8388608))
gives 'it goes' 204 alice DELETE "$S/told?force=true"
ok 'and no more, then' test "$(bytes_of alice)" -lt $((before + 8388608))

bough_ok 'all go' rm --force alice/a bob/b carol/c alice/t alice/t2 carol/m n n3
done_testing
