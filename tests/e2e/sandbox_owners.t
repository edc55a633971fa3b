#!/bin/bash
# Sandboxes of several owners: what one shows, saves and restores is never more than its caller may.
. "${0%/*}/lib.sh"
need_fuse
need_root
command -v runc >/dev/null || skip_all 'no runc'
chmod 711 "$T"

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
sock=$BOUGH_ROOT/run/boughd.sock
declare -A token=()
as() { # NAME METHOD TARGET [BODY]: $status and $body
	body=$(curl -sS -m 60 --unix-socket "$sock" -X "$2" ${4:+--data-binary "$4"} -w '\n%{http_code}' \
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
gives 'until its owner makes it private' 200 bob PATCH $W/all '{"visibility":"private"}'
gives 'then not any more' 404 alice GET $S/a/files/all/file
gives 'but what is its own' 200 alice GET $S/a/files/workspace/secret
gives 'and again' 200 bob PATCH $W/all '{"visibility":"global"}'
gives 'when it is for all' 200 alice GET $S/a/files/all/file
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
gives 'its maker forks it' 201 alice POST $S/t/fork '{"names":["t2"]}'
gives 'who sees it alone would keep what is not theirs' 404 carol POST $S/alice%2Ft/fork '{"names":["t3"]}'
gives 'one with the network of this host' 201 root POST $S '{"name":"n", "start":false, "net":"host",
	"visibility":"team", "team":"team"}'
gives 'is forked by admins alone' 403 carol POST $S/n/fork '{"names":["n2"]}'
gives 'as it is made' 201 root POST $S/n/fork '{"names":["n3"]}'

bough_ok 'all go' rm --force alice/a bob/b carol/c alice/t alice/t2 n n3
done_testing
