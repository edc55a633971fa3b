#!/bin/bash
# Mirrors from URLs: add, fetch, list, show; credentials; everything that the other side can do
# wrong; a kill in the middle. The servers are ours, on this machine: git_http.py, git daemon.
. "${0%/*}/lib.sh"
. "$BOUGH_SRC/tests/e2e/repo.sh"

# ---- by http

bough_ok 'add by http' repo add "$http/r.git"
is 'named after its URL' "$out" r
is 'the tip is there' "$(tip r)" "$(git -C "$T/src" rev-parse main)"
is 'the other branch' "$(tip r topic)" "$(git -C "$T/src" rev-parse topic)"
is 'the tag' "$(tip r v1)" "$(git -C "$T/src" rev-parse v1)"
is "origin's too" "$(tip r refs/remotes/origin/topic)" "$(git -C "$T/src" rev-parse topic)"
ok 'git finds no fault' whole "$(mirror r)"
run bough repo show r --json
is 'show: the branch' "$(json .head)" main
is 'show: the commit' "$(json .commit)" "$(git -C "$T/src" rev-parse main)"
is 'show: how many' "$(json '"\(.branches) \(.tags) \(.workspaces) \(.auth)"')" '2 1 0 null'
is 'ls' "$(bough repo ls -q)" r
run bough repo ls --json
is 'ls in JSON' "$(json '.items[0].url')" "$http/r.git"

commit three
git -C "$T/src" branch -D -q topic
push main :topic
bough_ok 'fetch' repo fetch r
is 'fetch: two refs' "$out" '2 refs changed'
is 'fetch: the tip' "$(tip r)" "$(git -C "$T/src" rev-parse main)"
is 'fetch: the branch that is gone' "$(git --git-dir="$(mirror r)" branch --list topic)" ''
bough_ok 'fetch of nothing new' repo fetch r --json
is 'nothing changed' "$(json .refs_changed)" 0
git -C "$T/src" commit -q --amend -m 'three, written anew'
push main
bough_ok 'fetch of a branch that was written anew' repo fetch r
is 'it follows' "$(tip r)" "$(git -C "$T/src" rev-parse main)"
ok 'and git finds no fault' whole "$(mirror r)"

# A branch that was moved here stays, until the other side has it too.
mine=$(git --git-dir="$(mirror r)" commit-tree -p main -m mine "main^{tree}")
git --git-dir="$(mirror r)" update-ref refs/heads/main "$mine"
commit four
push main
bough_ok 'fetch beside a commit of ours' repo fetch r
is 'ours stays' "$(tip r)" "$mine"
is "origin's is known" "$(tip r origin/main)" "$(git -C "$T/src" rev-parse main)"
git -C "$T/src" fetch -q "$(mirror r)" main
git -C "$T/src" merge -q -m merged FETCH_HEAD
push main
bough_ok 'fetch of what contains it' repo fetch r
is 'then it follows again' "$(tip r)" "$(git -C "$T/src" rev-parse main)"

# ---- credentials

bough_fails 'a token is wanted' 1 'wants a token' repo add "$http/auth/r.git" --name a
bough_fails 'a wrong one is refused' 1 'refused the token' repo add "$http/auth/r.git" --name a \
	--token-file "$T/wrong"
is 'the wrong one is in nothing that is said' "$(grep -c wrong-token "$T/.err")" 0
bough_ok 'the right one' repo add "$http/auth/r.git" --name a --token-file "$T/token"
bough_ok 'as a user and password' repo add "$http/auth/r.git" --name b --token-file "$T/robot"
bough_ok 'from stdin' repo add "$http/auth/r.git" --name c --token-file - <"$T/token"
ok 'fetch has it still' bough repo fetch a -q
is 'show says that there is one' "$(bough repo show a --json | jq -r .auth)" token
is 'its file is for the owner only' "$(stat -c %a "$(mirror a).secret")" 600
bough_fails 'fetch with another one' 1 'refused the token' repo fetch a --token-file "$T/wrong"
ok 'which is not kept' bough repo fetch a -q
bough_fails 'a token in the URL' 2 'user or password' repo add "${http/\/\//\/\/$token@}/r.git"
is 'is not said again' "$(grep -c "$token" "$T/.err")" 0
bough_fails 'a token for a path' 2 'no credentials' repo add "$T/src" --token-file "$T/token"
bough_fails 'a token for git:' 2 'http' repo add git://127.0.0.1/r.git --name x --token-file "$T/token"
bough_fails 'no token in the file' 2 'empty' repo add "$http/r.git" --token-file /dev/null
bough_fails 'no such file' 3 'No such file' repo add "$http/r.git" --token-file "$T/none"
# Another server than the one that it was given for gets nothing.
python3 "$BOUGH_SRC/tests/e2e/git_http.py" "$srv" "$T/port2" &
wait_for 20 test -s "$T/port2" || bail 'no web server'
: >"$srv/requests"
bough_fails 'a redirection gets no token' 1 'token' repo add \
	"$http/moved/127.0.0.1:$(cat "$T/port2")/auth/r.git" --name m --token-file "$T/token"
is 'nor was it sent' "$(grep -c ' auth$' "$srv/requests")" 0

# ---- what goes wrong over there

bough_fails 'no such repository' 1 'no such repository' repo add "$http/none.git"
bough_fails 'nobody listens' 1 "doesn't answer" repo add http://127.0.0.1:1/r.git --name x
bough_fails 'no such host' 1 'no address' repo add http://nowhere.invalid/r.git --name x
bough_fails 'cut in the middle' 1 '' repo add "$http/cut/r.git" --name x
bough_fails 'a damaged pack' 1 'damaged' repo add "$http/flip/r.git" --name x
bough_fails 'a server that stalls' 1 'nothing came for 4 s' repo add "$http/stall/r.git" --name x
no_trace 'nothing is left'
ok 'a web page is no repository' not bough repo add "$http/" 2>/dev/null
git init -q --bare --object-format=sha256 "$srv/sha256.git"
git clone -q --bare --depth 1 "file://$T/src" "$srv/shallow.git"
git init -q --bare "$srv/empty.git"
bough_fails 'a shallow one' 1 'git fetch --unshallow' repo add "$http/shallow.git"
bough_ok 'an empty one' repo add "$http/empty.git"
for url in ext::date file:///etc ssh://-oProxyCommand=date/x -oProxyCommand=date:x 'a b:c' ''; do
	bough_fails "refused: $url" 2 '' repo add --name x -- "$url"
done
bough_fails 'a path as a URL' 2 'give the path: /etc$' repo add file:///etc
bough_fails 'a name that is taken' 4 'r' repo add "$http/r.git"
bough_fails 'a wrong name' 2 '' repo add "$http/r.git" --name a/b
bough_fails 'an id for a name' 2 'id' repo add "$http/r.git" --name repo_00000001

before=$(tip r)
commit five
push main
for mode in cut flip; do
	sqlite3 "$BOUGH_ROOT/catalog.db" "UPDATE repos SET url = '$http/$mode/r.git' WHERE name = 'r'"
	bough_fails "fetch: $mode" 1 '' repo fetch r
	is "$mode: the mirror is as it was" "$(tip r)" "$before"
done
sqlite3 "$BOUGH_ROOT/catalog.db" "UPDATE repos SET url = '$http/r.git' WHERE name = 'r'"
no_trace 'nothing of it is left'
mv "$srv/r.git" "$srv/away.git"
bough_fails 'fetch: it vanished' 1 'no such repository' repo fetch r
mv "$srv/away.git" "$srv/r.git"
bough_ok 'and back' repo fetch r
is 'with all that is new' "$(tip r)" "$(git -C "$T/src" rev-parse main)"

# ---- by git:

git_port=$(free_port)
git daemon --listen=127.0.0.1 --port=$git_port --base-path="$srv" --export-all "$srv" \
	>/dev/null 2>&1 &
wait_for 10 git ls-remote -q "git://127.0.0.1:$git_port/r.git" >/dev/null 2>&1
bough_ok 'add by git' repo add "git://127.0.0.1:$git_port/r.git" --name g
is 'its tip' "$(tip g)" "$(git -C "$T/src" rev-parse main)"
bough_fails 'none there' 1 'no such' repo add "git://127.0.0.1:$git_port/none.git"

# ---- by ssh: what our ssh is asked for

mkdir "$T/bin"
cat >"$T/bin/ssh" <<'SH'
#!/bin/sh
printf '%s\n' "$@" >"$SSH_SEEN.args"
for a; do
	case $a in
	IdentityFile=*) cat "${a#*=}" >"$SSH_SEEN.key"; stat -Lc %a "${a#*=}" >"$SSH_SEEN.mode" ;;
	UserKnownHostsFile=*) cat "${a#*=}" >"$SSH_SEEN.hosts" ;;
	esac
done
tr '\0' '\n' </proc/self/environ >"$SSH_SEEN.env"
for a; do :; done
exec sh -c "$a"
SH
sed -i "s|\$SSH_SEEN|$T/ssh|g" "$T/bin/ssh"
chmod +x "$T/bin/ssh"
printf 'the key %s' "$token" >"$T/key"
echo 'host key' >"$T/hosts"
bough down >/dev/null 2>&1
PATH=$T/bin:$PATH bough up >/dev/null
bough_ok 'add by ssh' repo add "me@host.invalid:$srv/r.git" --name s --ssh-key "$T/key" \
	--known-hosts "$T/hosts"
is 'ssh: the key, its line ended' "$(cat "$T/ssh.key")" "the key $token"
is 'ssh: its mode' "$(cat "$T/ssh.mode")" 600
is 'ssh: the known hosts' "$(cat "$T/ssh.hosts")" 'host key'
for want in BatchMode=yes StrictHostKeyChecking=yes IdentitiesOnly=yes IdentityAgent=none \
	ProxyCommand=none me@host.invalid; do
	ok "ssh: $want" grep -qx "$want" "$T/ssh.args"
done
is 'ssh: no key in arguments or environment' "$(cat "$T/ssh.args" "$T/ssh.env" | grep -c "$token")" 0
bough_fails 'ssh without known hosts' 2 'known-hosts' repo add me@host.invalid:x --ssh-key "$T/key"
bough_fails 'ssh without a key' 2 'ssh-key' repo add me@host.invalid:x

# ---- a secret is nowhere but in its file, also while git works; a kill leaves nothing

: >"$srv/requests"
bough repo add "$http/drip/r.git" --name d --token-file "$T/token" >/dev/null 2>&1 &
adding=$!
wait_for 10 grep -q 'POST /drip' "$srv/requests"
sleep 0.3
seen=
for p in $(ps -eo pid=,args= | awk -v r="$BOUGH_ROOT" '/git/ && index($0, "127.0.0.1") || index($0, r) { print $1 }'); do
	for f in cmdline environ; do
		tr '\0' '\n' 2>/dev/null <"/proc/$p/$f" | grep -qF "$token" && seen+=" $p:$f"
	done
done
is 'no process shows the token' "$seen" ''
ok 'git is at work' test -n "$(ls -d "$BOUGH_ROOT"/repos/*.tmp 2>/dev/null)"
stage=$(ls -d "$BOUGH_ROOT"/repos/*.tmp)
kill -9 $adding # or it asks the next boughd once more
kill_hard boughd
gone() { ! ps -eo args= | grep -v grep | grep -qF "$stage"; }
ok 'git ends with boughd' wait_for 5 gone
workers() { [ -z "$(ps -eo args= | grep -F "$http/drip" | grep -v -e grep -e 'bough repo')" ]; }
ok 'all of it' wait_for 5 workers
bough_ok 'it starts again' repo ls -q
is 'without what was not whole' "$(grep -cx d <<<"$out")" 0
no_trace 'a kill leaves nothing'
grep -rlF "$token" "$BOUGH_ROOT" 2>/dev/null | grep -v '\.secret$' >"$T/found"
is 'no file but the secrets holds the token' "$(cat "$T/found")" ''
done_testing
