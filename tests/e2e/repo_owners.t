#!/bin/bash
# Repositories' names are each owner's: what is another's is neither taken nor told, and OWNER/NAME
# says which one where there are several. Tables tell whose things are where there are several owners.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/http.sh"

export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org
export GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
for who in root ann ben; do
	git init -q -b main "$T/$who/src"
	echo "$who" >"$T/$who/src/file"
	git -C "$T/$who/src" add . && git -C "$T/$who/src" commit -qm "$who"
	bough-pack --git "$T/$who/src" </dev/null >"$T/$who.tar" || bail 'bough-pack'
done
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
bough create mine --no-mount
run bough ls
like 'among the own things of one nothing tells whose they are' "$out" '^NAME +STATE'
bough user add ann --uid 30001
bough user add ben
for who in ann ben; do
	as root POST /v1/tokens "{\"owner\":\"$who\"}"
	token[$who]=$(of .token)
done
take() { # WHO: takes what is WHO's under the name src
	as "$1" POST "/v1/repos/import?path=$T/$1/src" '' -T "$T/$1.tar"
}
reads() { # WHO REPO: what a checkout of it has, by WHO; or what was said
	as "$1" POST $ws "{\"name\":\"w$RANDOM$RANDOM\",\"mount\":false,\"git\":{\"repo\":\"$2\"}}"
	[ "$status" = 201 ] || { echo "$status $(of .code)" && return; }
	as "$1" GET "$ws/$(of .id)/files/file"
	echo "$body"
}

take ann
is 'a repository of one' "$status $(of .owner)" '201 uid:30001'
gives 'is not told to another' 404 .message 'no repository "src": `bough repo ls` shows what there is' ben GET /v1/repos/src
take ben
is 'who may have one of that name' "$status $(of '"\(.name) \(.owner)"')" '201 src ben'
theirs=$(of .id)
take ben
is 'but one' "$status $(of '"\(.code) \(.message)"')" '409 exists there is a repository "src" already'
gives 'by an address' 409 .code exists ben POST /v1/repos '{"url":"https://127.0.0.1:9/src"}'
gives 'lists are one'"'"'s own' 200 '[.items[].owner] | join(" ")' ben ben GET /v1/repos
is "a checkout takes one's own" "$(reads ann src)$(reads ben src)" annben
is 'not by the owner'"'"'s name either' "$(reads ben ann%2Fsrc) $(reads ben ann/src)" '404 not_found 404 not_found'
is 'nor by its id' "$(reads ann "$theirs")" '404 not_found'
gives 'nor is it removed' 404 '' '' ann DELETE "/v1/repos/ben%2Fsrc"
gives 'nor fetched' 404 '' '' ann POST "/v1/repos/$theirs/fetch" '{}'

is 'who sees both must say which' "$(reads root src)" '409 conflict'
bough_fails 'so must the command line' 4 'several repositories are called "src": say OWNER/src' repo show src
run bough repo show ben/src --json
is 'by a name' "$(json .owner)" ben
run bough repo show uid:30001/src
like 'by a uid' "$out" 'owner +ann'
is 'a Tab shows both' "$(bough __complete -- 3 bough repo show '' | sort -u | tr '\n' ' ')" \
	'ann/src ben/src src '
bough_ok 'and makes of it what it says' create c --git ann/src
is 'the right one' "$(cat "$(bough path c)/file")" ann
run bough repo ls
like 'ls tells whose' "$out" 'OWNER +REPOSITORY.*ben +src .*ann +src '
run bough show c --json
is 'a workspace has its name' "$(json .git.name)" src
bough repo add "$T/root/src" >/dev/null
is "then one's own is meant" "$(reads root src)" root

# ---- in the catalog that is made anew

bough down
rm "$BOUGH_ROOT"/catalog.db*
run bough repo ls --json
is 'owners are known without the catalog' "$(json '[.items[] | "\(.owner)/\(.name)"] | sort | join(" ")')" \
	"ben/src uid:$(id -u)/src uid:30001/src"
# As records were before there were names of owners.
record=$(grep -l '"uid:30001"' "$BOUGH_ROOT"/repos/*.json)
bough down
sed -i 's/"uid:30001"/30001/' "$record"
rm "$BOUGH_ROOT"/catalog.db*
run bough repo ls --json
is 'older records, too' "$(json '[.items[] | "\(.owner)/\(.name)"] | sort | join(" ")')" \
	"ben/src uid:$(id -u)/src uid:30001/src"

# ---- whose things are

bough user add ann --uid 30001
as root POST /v1/tokens '{"owner":"ann"}'
token[ann]=$(of .token)
as ann POST $ws '{"name":"hers","mount":false}'
as ann POST "$ws/hers/snapshots" '{"name":"s"}'
bough save mine >/dev/null
as ann POST /v1/sandboxes '{"name":"box","start":false}'
as root POST /v1/sandboxes '{"name":"box","start":false}'
run bough ls
like 'ls tells whose, by the name' "$out" 'OWNER +NAME.*ann +hers .*uid:0 +mine '
run bough snapshots ls
like 'so does snapshots ls' "$out" 'OWNER +SNAPSHOT.*uid:0 +sn_.*ann +sn_'
bough set mine --visibility global --description 'for all'
run bough show mine
like 'show, too, and who sees it' "$out" 'owner +uid:0.*visibility +global.*description +for all'
run bough show hers
like 'it has the name' "$out" 'owner +ann'
run bough snapshots show ann/s
like 'of a snapshot, too' "$out" 'owner +ann'
as ann POST $ws '{"name":"mine","mount":false}'
is 'where a path of this machine may stand a Tab has ids of owners' \
	"$(bough __complete -- 2 bough cp | grep mine | sort -u | tr '\n' ' ')" \
	"mine: uid:$(id -u)/mine: uid:30001/mine: "
as ann DELETE $ws/mine
run bough ps
like 'ps, too' "$out" 'OWNER +NAME.*ann +box '
bough rm mine
as ann DELETE "$ws/hers"
run bough ls --deleted
like 'and ls --deleted' "$out" 'OWNER +NAME.*ann +hers '
run bough audit
like 'audit has names' "$out" ' ann +.*DELETE '
run bough events
like 'events, too' "$out" 'workspace.deleted +ws_[a-z2-7]+ +ann'
# ---- what a commit has outside of a workspace's scope is shown to who may read the repository

git init -q -b main "$T/ann/wide" && mkdir "$T/ann/wide/in" "$T/ann/wide/out" && echo in >"$T/ann/wide/in/f" &&
	echo hidden >"$T/ann/wide/out/f" && git -C "$T/ann/wide" add . && git -C "$T/ann/wide" commit -qm wide &&
	bough-pack --git "$T/ann/wide" </dev/null >"$T/wide.tar" || bail 'bough-pack'
as ann POST "/v1/repos/import?path=$T/ann/wide" '' -T "$T/wide.tar"
as ann POST $ws '{"name":"narrow","visibility":"global","git":{"repo":"wide","scopes":["in"]}}'
is 'a scope' "$status" 201
as root POST /v1/tokens '{"owner":"ann","scope":"ann/narrow"}'
token[agent]=$(of .token)
bough user add ben
as root POST /v1/tokens '{"owner":"ben"}'
token[ben]=$(of .token)
for path in out/f in/f; do
	as agent PUT "$ws/narrow/files/$path" put
	is "who has a token for it alone writes $path" "$((status / 100)) $(of .code)" "2 null"
done
for who in agent ben ann root; do
	as $who GET "$ws/ann%2Fnarrow/diff?format=patch"
	[ "$status" = 200 ] || as $who GET "$ws/narrow/diff?format=patch"
	[[ $who = [ab]* && $who != ann ]] && want='differ +put -in' || want='-hidden +put +put -in'
	is "$who sees the patch" "$(grep -oE '^[+-][a-z]+|differ$' <<<"$body" | sort | xargs)" \
		"$(tr ' ' '\n' <<<"$want" | sort | xargs)"
	as $who GET "$ws/narrow/diff?format=stat"
	like "$who sees the stat" "$body" '2 files changed'
done
is 'the size is not told either' "$(as agent GET "$ws/narrow/diff?format=stat"; grep out/f <<<"$body" | xargs)" \
	'out/f | Bin 0 -> 3 bytes'
done_testing
