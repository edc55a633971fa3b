#!/bin/bash
# Who may do what: every kind of caller with every kind of call, over the socket and over TCP.
. "${0%/*}/lib.sh"
need_fuse
need_root # to become somebody else
. "$BOUGH_SRC/tests/e2e/http.sh"

chmod 711 "$T"
boughd --root "$BOUGH_ROOT" --daemon --multi-user --listen 127.0.0.1:0 || bail 'boughd does not start'
tcp=127.0.0.1:$(sed -n 's/.*listens on 127.0.0.1:0, port \([0-9]*\)$/\1/p' "$BOUGH_ROOT/run/boughd.log")

owner=uid:30001 other=uid:30002 mate=uid:30003 reader=uid:30004

# ---- what there is

gives 'who root is' 200 '.owner, .admin' $'uid:0\ntrue' root GET /v1/whoami
gives 'who a user is' 200 '.owner, .admin, .uid' $'uid:30001\nfalse\n30001' $owner GET /v1/whoami
gives 'a private workspace' 201 '.owner, .visibility' $'uid:30001\nprivate' $owner POST $ws '{"name":"private"}'
private=$(of .id)
path=$(of .path)
is 'its root is its owner'"'"'s' "$(stat -c %u:%g "$path")" 30001:30001
ok 'who writes to it' setpriv --reuid=30001 --regid=30001 --clear-groups sh -c "echo x >'$path/file'"
ok 'and nobody else' not setpriv --reuid=30002 --regid=30002 --clear-groups sh -c "echo x >'$path/file'" 2>/dev/null
gives 'a global one' 201 .visibility global $owner POST $ws '{"name":"global","visibility":"global"}'
gives 'a team' 201 '.members[0].role' admin $owner POST /v1/teams '{"name":"web"}'
gives 'with a member' 200 '' '' $owner PUT "/v1/teams/web/members/$mate" '{"role":"member"}'
gives 'and a reader' 200 '.members | length' 3 $owner PUT "/v1/teams/web/members/$reader" '{"role":"reader"}'
gives 'the team'"'"'s workspace' 201 .team web $owner POST $ws '{"name":"team","visibility":"team","team":"web"}'
gives 'nobody shares with a team of others' 400 .details.field team $other POST $ws \
	'{"name":"x","visibility":"team","team":"web"}'
gives 'a user with a name' 201 .owner ci root POST /v1/users '{"name":"ci"}'
gives 'one for a uid' 201 .owner $owner root POST /v1/users '{"name":"alice","uid":30001}'
gives 'snapshots are their workspace'"'"'s owner'"'"'s' 201 .owner $owner root POST "$ws/alice%2Fprivate/snapshots" '{"name":"s"}'

make_token() { # NAME CALLER BODY
	gives "token $1" 201 '.token | test("^bough_[a-z2-7]{10}_[0-9a-f]{64}$")' true "$2" POST /v1/tokens "$3"
	token[$1]=$(of .token)
}
make_token t_owner $owner '{"name":"all"}'
make_token t_reading $owner '{"read_only":true}'
make_token t_one $owner '{"scope":"private"}'
make_token t_team $mate '{"scope":"team:web"}'
gives 'none for a team that one is not in' 404 '' '' $other POST /v1/tokens '{"scope":"team:web"}'
gives 'the team'"'"'s sees what it is shown' 200 '[.items[].name] | join(" ")' team t_team GET $ws
make_token t_admin root '{"scope":"admin"}'
make_token t_ci root '{"owner":"ci"}'
gives 'a token that is over at once' 400 .details.field expires_s $owner POST /v1/tokens '{"expires_s":0}'
make_token t_old $owner '{"expires_s":1}'
sleep 1.1
token[t_bad]=${token[t_owner]:0:-1}0
[ "${token[t_bad]}" != "${token[t_owner]}" ] || token[t_bad]=${token[t_owner]:0:-1}1
token[t_none]=bough_x

ok 'no token is on the disk' not grep -rqaF "${token[t_owner]#bough_??????????_}" "$BOUGH_ROOT/catalog.db" "$BOUGH_ROOT/catalog.db-wal"

# ---- the table: statuses of each call for each caller

callers=(root $owner $other $mate $reader t_owner t_reading t_one t_admin t_ci t_bad none)
n=0
while read -r method target sent want; do
	[ -n "$method" ] || continue
	read -ra wants <<<"$want"
	[ "$sent" != - ] || sent=
	for i in "${!callers[@]}"; do
		n=$((n + 1))
		as "${callers[$i]}" "$method" "${target//NNN/x$n}" "${sent//NNN/x$n}"
		what="$method $target as ${callers[$i]}"
		if [ "$status" = "${wants[$i]}" ]; then
			pass "$what"
		else
			fail "$what"
			diag "status $status for ${wants[$i]}: $body"
		fi
	done
done < <(sed "s/PRIVATE/$private/" <<'EOF'
GET    /v1/health                    -                        200 200 200 200 200 200 200 200 200 200 401 401
GET    /v1/stats                     -                        200 403 403 403 403 403 403 403 200 403 401 401
POST   /v1/gc                        {}                       200 403 403 403 403 403 403 403 200 403 401 401
GET    /v1/users                     -                        200 403 403 403 403 403 403 403 200 403 401 401
GET    /v1/workspaces/PRIVATE        -                        200 200 404 404 404 200 200 200 200 404 401 401
GET    /v1/workspaces/alice%2Fprivate -                       200 200 404 404 404 200 200 200 200 404 401 401
GET    /v1/workspaces/PRIVATE/diff   -                        200 200 404 404 404 200 200 200 200 404 401 401
GET    /v1/workspaces/PRIVATE/archive -                       200 200 404 404 404 200 200 200 200 404 401 401
GET    /v1/workspaces/PRIVATE/log    -                        200 200 404 404 404 200 200 200 200 404 401 401
GET    /v1/workspaces/PRIVATE/files/file -                    200 200 404 404 404 200 200 200 200 404 401 401
HEAD   /v1/workspaces/PRIVATE/files/file -                    200 200 404 404 404 200 200 200 200 404 401 401
PUT    /v1/workspaces/PRIVATE/files/file bytes                200 200 404 404 404 200 403 200 200 404 401 401
POST   /v1/workspaces/PRIVATE/files/file?op=chmod {"mode":"0640"} 200 200 404 404 404 200 403 200 200 404 401 401
GET    /v1/snapshots/alice%2Fs/files/file -                   200 200 404 404 404 200 200 200 200 404 401 401
PATCH  /v1/workspaces/PRIVATE        {"labels":{"a":"b"}}     200 200 404 404 404 200 403 200 200 404 401 401
POST   /v1/workspaces/PRIVATE/mount  {}                       200 200 404 404 404 200 403 200 200 404 401 401
POST   /v1/workspaces/PRIVATE/snapshots {}                    201 200 404 404 404 200 403 200 200 404 401 401
POST   /v1/workspaces/PRIVATE/fork   {"names":["NNN"]}        201 201 404 404 404 201 403 403 201 404 401 401
POST   /v1/workspaces/PRIVATE/merge  {"from":"global"}        409 409 404 404 404 409 403 404 409 404 401 401
GET    /v1/workspaces/global         -                        200 200 200 200 200 200 200 404 200 200 401 401
PATCH  /v1/workspaces/global         {"labels":{}}            200 200 403 403 403 200 403 404 200 403 401 401
POST   /v1/workspaces/global/snapshots {}                     201 200 403 403 403 200 403 404 200 403 401 401
POST   /v1/workspaces/global/umount  {}                       200 200 403 403 403 200 403 404 200 403 401 401
POST   /v1/workspaces/global/fork    {"names":["NNN"]}        201 201 201 201 201 201 403 403 201 201 401 401
POST   /v1/workspaces                {"name":"NNN","from":"global","mount":false} 201 201 201 201 201 201 403 403 201 201 401 401
POST   /v1/workspaces                {"name":"NNN","from":"PRIVATE","mount":false} 201 201 404 404 404 201 403 403 201 404 401 401
POST   /v1/workspaces                {"name":"NNN","mount":false,"uid":0} 201 403 403 403 403 403 403 403 201 403 401 401
GET    /v1/workspaces/team           -                        200 200 404 200 200 200 200 404 200 404 401 401
PATCH  /v1/workspaces/team           {"labels":{}}            200 200 404 200 403 200 403 404 200 404 401 401
GET    /v1/audit?object=global       -                        200 200 403 403 403 200 200 404 200 403 401 401
PATCH  /v1/workspaces/team           {"visibility":"team","team":"web"} 200 200 404 403 403 200 403 403 200 404 401 401
DELETE /v1/workspaces/global         -                        204 404 404 404 404 404 403 404 404 404 401 401
GET    /v1/snapshots/alice%2Fs       -                        200 200 404 404 404 200 200 200 200 404 401 401
GET    /v1/snapshots/alice%2Fs/diff  -                        200 200 404 404 404 200 200 200 200 404 401 401
PATCH  /v1/snapshots/alice%2Fs       {"message":"m"}          200 200 404 404 404 200 403 200 200 404 401 401
DELETE /v1/snapshots/alice%2Fs       -                        409 409 404 404 404 409 403 409 409 404 401 401
GET    /v1/teams/web                 -                        200 200 404 200 200 200 200 403 200 404 401 401
PUT    /v1/teams/web/members/uid:9   {"role":"reader"}        200 200 404 403 403 200 403 403 200 404 401 401
GET    /v1/tokens                    -                        200 200 200 200 200 200 200 403 200 200 401 401
POST   /v1/tokens                    {}                       201 201 201 201 201 403 403 403 201 403 401 401
POST   /v1/tokens                    {"scope":"admin"}        201 403 403 403 403 403 403 403 201 403 401 401
POST   /v1/tokens                    {"owner":"ci"}           201 403 403 403 403 403 403 403 201 403 401 401
GET    /metrics                      -                        200 403 403 403 403 403 403 403 200 403 401 401
GET    /v1/version                   -                        200 200 200 200 200 200 200 200 200 200 401 401
GET    /v1/jobs                      -                        200 200 200 200 200 200 200 200 200 200 401 401
GET    /v1/audit                     -                        200 200 200 200 200 200 200 200 200 200 401 401
GET    /v1/audit?object=PRIVATE      -                        200 200 404 404 404 200 200 200 200 404 401 401
GET    /v1/repos                     -                        200 200 200 200 200 200 200 403 200 200 401 401
EOF
)

gives 'an expired token' 401 .code unauthenticated t_old GET /v1/health
gives 'what is no token' 401 .code unauthenticated t_none GET /v1/health

# ---- lists show what is the caller's to see

names='[.items[].name] | sort | unique | join(" ")'
gives 'the owner lists' 200 '[.items[].owner] | unique | join(" ")' $owner $owner GET $ws
gives 'a stranger sees his own' 200 '[.items[].owner] | unique | join(" ")' $other $other GET $ws
gives 'the team'"'"'s reader' 200 '[.items[] | select(.owner == "uid:30001")] | length' 1 $reader GET $ws
gives 'a token of one workspace' 200 "$names" private t_one GET $ws
gives 'its snapshots' 200 '[.items[].workspace] | unique | join(" ")' "$private" t_one GET $snap
gives 'a stranger'"'"'s snapshots' 200 '.items | length' 0 $other GET "$snap?workspace=$private"
gives 'the same name again' 201 .name private $other POST $ws '{"name":"private","mount":false}'
gives 'means one'"'"'s own' 200 .owner $other $other GET $ws/private
gives 'root must say which' 409 .code conflict root GET $ws/private
gives 'by the owner' 200 .owner $other root GET "$ws/$other%2Fprivate"
gives 'tokens are one'"'"'s own' 200 '[.items[].owner] | unique | join(" ")' $owner $owner GET /v1/tokens

# ---- what one hears of

came() { # the event is there whole: an empty line ends it
	sed -n "/$last/,\$p" "$T/events" | grep -q '^$'
}
listen() { # CALLER: types and owners of the events since the beginning, up to one for all to see
	local via=()
	[ "$1" = root ] || via=(setpriv --reuid="${1#uid:}" --regid="${1#uid:}" --clear-groups)
	: >"$T/events" # now, and not once curl begins: what another one heard has the last event, too
	"${via[@]}" timeout 60 curl -sSN --unix-socket "$sock" "http://d/v1/events?since=$mark.0" \
		>"$T/events" 2>/dev/null &
	wait_for 10 came || diag 'the last event did not come'
	kill $!
	sed -n 's/^data: //p' "$T/events"
}
curl -sSN -m 60 --unix-socket "$sock" http://d/v1/events >"$T/mark" 2>/dev/null &
marks=$!
wait_for 5 grep -q bough "$T/mark"
as root POST $ws '{"name":"mark","mount":false}'
wait_for 5 grep -q '^id' "$T/mark"
kill $marks
mark=$(sed -n 's/^id: \(.*\)\..*/\1/p' "$T/mark" | tail -n 1)
as root POST $ws '{"name":"last","visibility":"global","mount":false}'
last=$(of .id)
as root PATCH "$ws/$last" '{"description":"of which all hear"}'
is 'a stranger hears of nothing private' "$(listen $other | jq -r "select(.object == \"$private\") | .type")" ''
like 'its owner of all' "$(listen $owner | jq -r "select(.object == \"$private\") | .type" | tr '\n' ' ')" 'workspace.created .*workspace.changed '
like 'of what is made for all everybody hears at once' \
	"$(listen $other | jq -r "select(.object == \"$last\") | .type" | tr '\n' ' ')" '^workspace.created '
gives 'a stranger'"'"'s audit log is his own' 200 '[.items[].owner] | unique | join(" ")' $other $other GET /v1/audit
gives 'who shared is in the team'"'"'s' 200 '[.items[] | select(.path == "/v1/teams")] | .[0].owner' $owner $owner GET '/v1/audit?limit=1000'

# ---- tokens end

gives 'a token by its id' 200 '[.items[] | select(.name == "all")] | .[0].id | test("^tk_")' true $owner GET /v1/tokens
id=$(of '[.items[] | select(.name == "all")] | .[0].id')
gives 'not a stranger'"'"'s to remove' 404 '' '' $other DELETE "/v1/tokens/$id"
gives 'it is good' 200 '' '' t_owner GET /v1/whoami
curl -sSN -m 20 -H "Authorization: Bearer ${token[t_owner]}" "http://$tcp/v1/events" >"$T/heard" 2>/dev/null &
listener=$!
wait_for 5 grep -q bough "$T/heard"
as $owner POST $ws '{"name":"before","mount":false}'
ok 'its events come' wait_for 5 grep -q workspace.created "$T/heard"
gives 'removed' 204 '' '' $owner DELETE "/v1/tokens/$id"
gives 'at once' 401 .code unauthenticated t_owner GET /v1/whoami
sleep 1.1
as $owner DELETE "$ws/before"
ok 'its stream of events ends' wait_for 5 not kill -0 $listener 2>/dev/null
wait $listener
is 'in good order' $? 0
ok 'without what came behind' not grep -q workspace.deleted "$T/heard"
gives 'a user goes' 204 '' '' root DELETE /v1/users/ci
gives 'and so do the tokens' 401 '' '' t_ci GET /v1/whoami
gives 'another scheme' 401 '' '' none GET /v1/whoami '' -u a:b
run curl -sS -o /dev/null -D - "http://$tcp/v1/whoami"
like 'what to send is said' "$out" $'WWW-Authenticate: Bearer\r'

# ---- the command line

run bough token create --name cli --expires 1h --read-only
is 'token create' $code 0
like 'prints it' "$out" '^bough_[a-z2-7]{10}_[0-9a-f]{64}$'
like 'and its id' "$err" 'tk_[a-z2-7]{10}: it is shown this once'
run bough token ls -q
id=${out%%$'\n'*}
run bough token ls
like 'token ls' "$out" "$id +cli +uid:0 +owner, read-only"
is 'a Tab knows it' "$(bough __complete -- 3 bough token rm "$id")" "$id"
run bough token rm "$id"
is 'token rm' $code 0
bough_ok 'one for a moment' token create --name brief --expires 1s -q
over() { bough token ls | grep -q ' brief .*Z, over '; }
ok 'that it is over is shown' wait_for 20 over
bough_fails 'nor is 0 for ever' 2 'without the option' token create --expires 0
bough_fails 'a time that is none' 2 'takes a time like' token create --expires soon
for seen in team everyone; do
	bough_fails "visibility $seen" 2 'is private, team:TEAM or global' create seen --visibility $seen
done
bough_ok 'user add' user add bob --uid 30009
bough_ok 'team add' team add ops
bough_ok 'team join' team join ops bob --role reader
is 'a Tab knows both' "$(bough __complete -- 3 bough team leave o; bough __complete -- 4 bough team leave ops b)" $'ops\nbob'
run bough team ls
like 'team ls' "$out" 'ops +bob +reader'
bough_ok 'a token for a workspace' token create --scope "$owner/private:src" --owner bob -q
bough_ok 'a token for a team' token create --team ops -q
run bough token ls
like 'both are listed by their names' "$out" 'bob +private:src .*team:ops |team:ops .*bob +private:src '
bough_ok 'share it' set "$owner/private" --visibility team:ops --description 'for ops'
gives 'bob sees it' 200 .description 'for ops' uid:30009 GET "$ws/alice%2Fprivate"
cp "$(type -P bough)" "$T/bough" # where bob can reach it
run setpriv --reuid=30009 --regid=30009 --clear-groups "$T/bough" doctor --json
is 'what serving needs is not for bob to have' \
	"$(json '.checks[] | select(.found | test("another user.s")).name' | tr '\n' ' ')" \
	'/dev/fuse disk parents open files fusermount3 allow_other '
run setpriv --reuid=30009 --regid=30009 --clear-groups "$T/bough" upgrade
like 'nor is an upgrade' "$code $err" '^1 bough: upgrade: boughd is another user.s'
gives 'bob does something' 201 '' '' uid:30009 POST /v1/tokens '{"name":"bobs"}'
gives 'and finds himself in the audit log by his name' 200 '.items[0] | .user + " " + .owner' 'bob uid:30009' uid:30009 GET /v1/audit
run setpriv --reuid=30009 --regid=30009 --clear-groups "$T/bough" audit
like 'also in the table' "$out" 'Z +bob +pid [0-9]+ +POST +/v1/tokens'
bough_ok 'team rm' team rm ops
gives 'bob doesn'"'"'t' 404 '' '' uid:30009 GET "$ws/alice%2Fprivate"
bough_ok 'user rm' user rm bob

# ---- slow and many clients

fill() { exec 3<>"/dev/tcp/${tcp%:*}/${tcp#*:}" && printf 'GET /v1/health HTTP/1.1\r\n' >&3 &&
	(for i in $(seq 100); do printf 'X: y\r\n' >&3 2>/dev/null || exit 0; sleep 0.5; done; exit 1); }
(SECONDS=0; fill 2>/dev/null; [ $SECONDS -lt 45 ]) &
slow=$!

# A user of the machine has as many connections as that, and holds up nobody.
run python3 - "$sock" <<'PY'
import collections, http.client, json, os, socket, sys, time
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
def ask(c):
    c.request("GET", "/v1/version")
    r = c.getresponse()
    return r.status, json.loads(r.read()).get("code", "-")
os.seteuid(30002)
conns, heard = [], collections.Counter()
for _ in range(150):
    conns.append(Unix("d", timeout=30))
    heard[ask(conns[-1])] += 1
os.seteuid(0)
print(sorted(heard.items()), ask(Unix("d", timeout=30))[0])
for c in conns:
    c.close()
os.seteuid(30002)
for _ in range(200):
    left = ask(Unix("d", timeout=30))[0]
    if left == 200:
        break
    time.sleep(0.05)
print(left)
PY
is 'of 150 connections of one user 128 are served' "$out" "[((200, '-'), 128), ((429, 'too_many'), 22)] 200"$'\n200'
[ $code = 0 ] || diag_run

# ---- in the clear, and with TLS

run boughd --root "$T/r2" --listen 0.0.0.0:0
is 'in the clear beyond this machine: refused' $code 1
like 'with what to do' "$err" 'give --tls-cert and --tls-key, or --insecure'
run boughd --root "$T/r2" --listen nowhere
is 'an address that is none' $code 1
echo '{"listen":"127.0.0.1:0","x":1}' >"$T/r2/config.json"
run boughd --root "$T/r2"
like 'a setting that is none' "$err" 'config.json: there is no "x"'
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$T/key.pem" -out "$T/cert.pem" \
	-days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 2>/dev/null
EXTRA_ROOTS=$T/r2
echo "{\"listen\":[\"127.0.0.1:0\"],\"tls_cert\":\"$T/cert.pem\",\"tls_key\":\"$T/key.pem\"}" >"$T/r2/config.json"
boughd --root "$T/r2" --daemon
is 'with TLS, by config.json' $? 0
port=$(sed -n 's/.*, port \([0-9]*\) with TLS$/\1/p' "$T/r2/run/boughd.log")
secret=$(bough --root "$T/r2" token create -q)
run curl -sS --cacert "$T/cert.pem" -H "Authorization: Bearer $secret" "https://127.0.0.1:$port/v1/whoami"
is 'a call over TLS' "$(json .owner)" uid:0
run curl -sS -m 30 -o /dev/null -w '%{http_code}' --cacert "$T/cert.pem" "https://127.0.0.1:$port/v1/whoami"
is 'without a token' "$out" 401
bough --root "$T/r2" create big >/dev/null
head -c 3000000 /dev/urandom >"$(bough --root "$T/r2" path big)/noise"
curl -sS --cacert "$T/cert.pem" -H "Authorization: Bearer $secret" "https://127.0.0.1:$port$ws/big/archive" | tar xOf - ./noise |
	cmp -s - "$(bough --root "$T/r2" path big)/noise"
is 'a stream over TLS' $? 0
run setpriv --reuid=30001 --regid=30001 --clear-groups curl -sS --unix-socket "$T/r2/run/boughd.sock" http://d/v1/health
ok 'without --multi-user the socket is nobody else'"'"'s' test $code != 0
ok 'a head that comes slowly is cut' wait $slow
done_testing
