#!/bin/bash
# Mirrors from paths; on a host without git; several at once; their removal, and a catalog that is
# lost.
. "${0%/*}/lib.sh"
. "$BOUGH_SRC/tests/e2e/repo.sh"

git init -q --bare --object-format=sha256 "$srv/sha256.git"
git clone -q --bare --depth 1 "file://$T/src" "$srv/shallow.git"
bough_ok 'add by http' repo add "$http/r.git"
bough_ok 'add with a token' repo add "$http/auth/r.git" --name a --token-file "$T/token"
printf 'the key %s' "$token" >"$T/key"
echo 'host key' >"$T/hosts"
mkdir "$T/bin"

# ---- a path

bough_ok 'add a work tree' repo add "$T/src" --name p
is 'its tip' "$(tip p)" "$(git -C "$T/src" rev-parse main)"
ok 'git finds no fault' whole "$(mirror p)"
commit six
git -C "$T/src" tag v6
bough_ok 'fetch from it' repo fetch p
is 'what is new is there' "$(tip p)" "$(git -C "$T/src" rev-parse main)"
is 'refs: branch and tag' "$out" '2 refs changed'
commit loose
bough_ok 'fetch of one commit' repo fetch p --json
ok 'sends its three objects and none from before' test "$(json .bytes_received)" -lt 12000
bough_ok 'fetch of nothing' repo fetch p --json
ok 'sends no object' test "$(json .bytes_received)" -lt 10241
git -C "$T/src" repack -adq
bough_ok 'fetch of what was repacked' repo fetch p
commit seven
git -C "$T/src" repack -q
bough_ok 'fetch of a new pack' repo fetch p --json
ok 'sends that pack and no other' test "$(json .bytes_received)" -lt 100000
half=$T/src/.git/objects/pack/pack-$(printf %040d 0).idx
touch "$half" && { sleep 0.4 && rm "$half"; } &
bough_ok 'fetch while a repack there removes a pack' repo fetch p
wait $!
touch "$half"
bough_fails 'one that gets no further' 1 'being repacked' repo fetch p
rm "$half"
packs() { curl -sS --unix-socket "$BOUGH_ROOT/run/boughd.sock" "http://d/v1/repos/p/packs?$1"; }
all=$(packs '' | jq -c .items) one=() cursor=''
for _ in {1..50}; do
	page=$(packs "limit=2$cursor")
	mapfile -t -O ${#one[@]} one < <(jq -r '.items[]' <<<"$page")
	cursor=$(jq -r '.next // empty' <<<"$page")
	[ -n "$cursor" ] || break
	cursor="&cursor=$cursor"
done
ok 'it tells of several packs and objects' test "$(jq length <<<"$all")" -gt 2
is 'page by page they are the same, in order' "$(printf '%s\n' "${one[@]}" | jq -Rcs 'split("\n")[:-1]')" \
	"$(jq -c sort <<<"$all")"
git -C "$T/src" worktree add -q -b side "$T/side" main
git clone -q --shared --bare "$T/src" "$T/shared.git"
bough_ok 'a second work tree' repo add "$T/side"
is 'HEAD is its own' "$(bough repo show side --json | jq -r .head)" side
bough_ok 'one that borrows objects' repo add "$T/shared.git"
ok 'has them itself' whole "$(mirror shared)"
bough_fails 'no repository' 1 "isn't a git repository" repo add "$T/bin"
bough_fails 'nothing there' 3 'No such file' repo add "$T/nothing"
bough_fails 'a shallow one, by path' 1 'shallow.*git fetch --unshallow' repo add "$srv/shallow.git"
bough_fails 'a SHA-256 one' 1 'SHA-256' repo add "$srv/sha256.git"
git clone -q --bare --filter=blob:none "file://$T/src" "$T/partial.git" 2>/dev/null
git -C "$T/partial.git" config remote.origin.partialclonefilter blob:none
: >"$(ls "$T"/partial.git/objects/pack/*.pack | sed 's/pack$/promisor/')"
bough_fails 'a partial one' 1 'partial clone.*add the one that it was cloned from' repo add "$T/partial.git"
cp -r "$srv/r.git" "$T/broken.git"
git -C "$T/broken.git" repack -adq
chmod +w "$T"/broken.git/objects/pack/*.pack
printf x | dd of="$(ls "$T"/broken.git/objects/pack/*.pack)" bs=1 seek=2000 conv=notrunc 2>/dev/null
bough_fails 'a damaged pack' 1 'checksum' repo add "$T/broken.git"
cp -r "$T/src/.git" "$T/holes.git"
git -C "$T/holes.git" unpack-objects -q <"$(ls "$T"/holes.git/objects/pack/*.pack | head -1)" 2>/dev/null
git clone -q "$T/src" "$T/holes" && rm -rf "$T/holes.git"
blob=$(git -C "$T/holes" rev-parse HEAD:big)
mkdir "$T/packs" && mv "$T"/holes/.git/objects/pack/* "$T/packs" 2>/dev/null
for f in "$T"/packs/*.pack; do git -C "$T/holes" unpack-objects -q <"$f"; done
rm -f "$T/holes/.git/objects/${blob:0:2}/${blob:2}"
bough_fails 'one with an object missing' 1 'missing' repo add "$T/holes"
no_trace 'nothing of those is left'

# ---- hosts without git: libgit2 in its place

bough down >/dev/null 2>&1
BOUGH_GIT=/nonexistent bough up >/dev/null
bough_ok 'add without git' repo add "$http/r.git" --name l
is 'its tip' "$(tip l)" "$(git -C "$T/src" --git-dir="$srv/r.git" rev-parse main)"
is 'its branch' "$(bough repo show l --json | jq -r .head)" main
git -C "$T/src" push -q --force "$srv/r.git" main
bough_ok 'fetch without git' repo fetch l
is 'what is new' "$(tip l)" "$(git -C "$T/src" rev-parse main)"
bough_ok 'with a token' repo add "$http/auth/r.git" --name la --token-file "$T/token"
bough_fails 'without git: a wrong token' 1 'refused the token' repo add "$http/auth/r.git" \
	--name x --token-file "$T/wrong"
bough_fails 'without git: none there' 1 '' repo add "$http/none.git"
bough_fails 'without git: a damaged pack' 1 '' repo add "$http/flip/r.git" --name x
bough_fails 'without git: a stall' 1 'nothing came for 4 s' repo add "$http/stall/r.git" --name x
bough_fails 'without git: ssh' 1 'ssh needs' repo add me@host.invalid:x --name x \
	--ssh-key "$T/key" --known-hosts "$T/hosts"
bough_ok 'a path without git' repo add "$T/src" --name lp
bough_fails 'without git: an object missing' 1 'missing' repo add "$T/holes"
no_trace 'nothing of that is left'
bough down >/dev/null 2>&1

# ---- side by side

bough_ok 'added, for several at once' repo add "$http/r.git" --name m
for i in 1 2 3; do
	for j in 1 2; do commit "round $i, $j"; done
	push main
	pids=
	for j in 1 2 3 4; do bough repo fetch m -q 2>>"$T/side.err" & pids+=" $!"; done
	for j in 1 2 3; do bough repo add "$http/r.git" --name m2 >>"$T/added" 2>/dev/null & pids+=" $!"; done
	wait $pids
	bough repo rm m2 2>>"$T/side.err"
	[ "$(tip m)" = "$(git -C "$T/src" rev-parse main)" ] || echo "round $i" >>"$T/side.err"
done
is 'four fetches at once all end well' "$(cat "$T/side.err")" ''
is 'of three with one name one is added' "$(cat "$T/added")" $'m2\nm2\nm2'
ok 'git finds no fault' whole "$(mirror m)"
no_trace 'nothing is left of it'

# ---- rm, and a catalog that is lost

if (exec 3<>/dev/fuse) 2>/dev/null; then
	bough_ok 'a workspace of it' create w --git m
	bough_fails 'rm is refused while it is used' 5 'used by 1 workspace' repo rm m
	is 'show says so' "$(bough repo show m --json | jq .workspaces)" 1
	bough_ok 'rm of the workspace' rm --now w
	bough_ok 'then it goes' repo rm m
else
	bough repo rm m
fi

bough_ok 'rm' repo rm l la lp
# But for the folder of an upkeep that may have begun.
is 'their files are gone' "$(ls "$BOUGH_ROOT/repos" | grep -vc '\.run-')" \
	"$(($(bough repo ls -q | wc -l) * 2 + $(ls "$BOUGH_ROOT"/repos/*.secret | wc -l)))"
bough_fails 'rm of none' 3 'none' repo rm none
last=$(bough repo ls --json | jq '[.items[].number] | max')
bough_ok 'add again' repo add "$http/r.git" --name again
ok 'numbers are not used twice' test "$(bough repo show again --json | jq .number)" -gt "$last"
names=$(bough repo ls -q | sort)
bough down >/dev/null 2>&1
rm -f "$BOUGH_ROOT"/catalog.db*
mkdir "$BOUGH_ROOT/repos/000000ff" "$BOUGH_ROOT/repos/000000fe.tmp"
is 'a lost catalog is made anew' "$(bough repo ls -q | sort)" "$names"
is 'what was never acknowledged goes' "$(ls "$BOUGH_ROOT/repos" | grep -c 000000f)" 0
ok 'and all works' bough repo fetch again -q
is 'complete' "$(bough __complete -- 3 bough repo show aga)" again
done_testing
