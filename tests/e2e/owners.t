#!/bin/bash
# What is an owner's: quotas, keys of calls that count once, and a name that somebody had before.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/http.sh"

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
give() { # NAME BODY: a token
	as root POST /v1/tokens "$2"
	token[$1]=$(of .token)
}

# ---- a name that somebody had

bough_ok 'a user' user add ci
give ci '{"owner":"ci"}'
gives 'has things' 201 .owner ci ci POST $ws '{"name":"w","mount":false}'
gives 'a team of its own' 201 '' '' ci POST /v1/teams '{"name":"t"}'
bough_ok 'goes' user rm ci
gives 'with its tokens' 401 '' '' ci GET $ws
is 'that no account of this machine has' "$err" ''
run bough user add nobody
like 'one that an account has is told' "$code $err" "^0 bough: nobody isn't this machine's account of that name: .*--uid $(id -u nobody) makes"
bough_ok 'and goes' user rm nobody
run bough user add ci --json
is 'the next one of that name' "$(json .owner)" 'ci~2'
give ci '{"owner":"ci"}'
gives 'is somebody else' 200 '.items | length' 0 ci GET $ws
gives 'who may not touch' 404 '' '' ci GET "$ws/ci%2Fw"
gives 'hears of nothing' 200 '.items | length' 0 ci GET /v1/audit
gives 'is in no team' 404 '' '' ci GET /v1/teams/t
gives 'has names of its own' 201 .owner 'ci~2' ci POST $ws '{"name":"w","mount":false}'
gives 'which his name means' 200 .owner 'ci~2' root GET "$ws/ci%2Fw"
bough user rm ci
bough_ok 'but an admin may hand it over' user add ci2 --owner ci
give ci2 '{"owner":"ci2"}'
gives 'then' 200 '[.items[].owner] | join(" ")' ci ci2 GET $ws
bough_fails 'not one with a uid' 2 'uid:N' user add x --owner uid:7
# Also when the catalog was made anew, which forgets users.
bough down
rm "$BOUGH_ROOT"/catalog.db*
bough_ok 'without its catalog' user add ci
gives 'a name is still somebody else'"'"'s' 200 '[.items[] | select(.name == "ci")][0].owner' 'ci~3' root GET /v1/users

# ---- keys are each token's own

bough user add dev
give a '{"owner":"dev"}'
give b '{"owner":"dev"}'
key=(-H 'Idempotency-Key: same')
gives 'a key' 201 .name one a POST $ws '{"name":"one","mount":false}' "${key[@]}"
gives 'of another token of that owner is another' 201 .name two b POST $ws '{"name":"two","mount":false}' "${key[@]}"
gives 'the first one'"'"'s answer' 201 .name one a POST $ws '{"name":"one","mount":false}' "${key[@]}"
gives 'the second one'"'"'s' 201 .name two b POST $ws '{"name":"two","mount":false}' "${key[@]}"
gives 'is not told to the first' 422 '' '' a POST $ws '{"name":"two","mount":false}' "${key[@]}"

# ---- quotas

bough_ok 'a quota' user quota dev --workspaces 3 --snapshots 1 --size 3M
like 'is told' "$(bough user quota dev)" 'dev +3 +1 +3.0M'
like 'among all' "$(bough user quota)" 'dev +3 +1 +3.0M'
bough_fails 'what is no number' 2 'number' user quota dev --workspaces many
bough_fails 'of nobody' 3 'no user' user quota nobody
gives 'the third workspace' 201 '' '' a POST $ws '{"name":"three"}'
path=$(of .path)
gives 'a fourth' 507 .code quota a POST $ws '{"name":"four"}'
like 'said how to make room' "$body" 'dev may have 3 workspaces; .bough rm. makes room'
gives 'forks' 507 .code quota a POST $ws/three/fork '{"names":["f"]}'
gives 'one deleted' 204 '' '' a DELETE $ws/one
gives 'is one less' 201 '' '' a POST $ws '{"name":"four","mount":false}'
gives 'so it can not come back' 507 .code quota a POST $ws/one/undelete '{}'
gives 'nor do two fit' 507 .code quota a POST $ws/three/fork '{"name":"f","count":2}'
bough_ok 'more' user quota dev --workspaces 5
gives 'two at once that do not both fit' 507 .code quota a POST $ws/three/fork '{"name":"f","count":3}'
gives 'nothing is left of them' 200 '[.items[] | select(.name | startswith("f-"))] | length' 0 a GET $ws
gives 'two that do' 201 '.items | length' 2 a POST $ws/three/fork '{"name":"f","count":2}'
gives 'a snapshot' 201 '' '' a POST $ws/three/snapshots '{"name":"s"}'
echo x >"$path/x"
gives 'another' 507 .code quota a POST $ws/three/snapshots '{}'
tar cf "$T/t.tar" -C "$BOUGH_SRC" LICENSE
gives 'an import' 507 .code quota a POST /v1/import '' -T "$T/t.tar"
bough_ok 'no limit' user quota dev --workspaces none --snapshots none
head -c 40000000 /dev/urandom >"$T/large"
gives 'a file that does not fit' 507 .code quota a PUT $ws/three/files/up '' -T "$T/large"
gives 'without a length it is cut off' 507 .code quota a PUT $ws/three/files/up '' -T "$T/large" -H 'Transfer-Encoding: chunked'
gives 'an upload that would not' 507 .code quota a POST $ws/three/uploads '' -H 'Tus-Resumable: 1.0.0' \
	-H 'Upload-Length: 40000000' -H "Upload-Metadata: path $(printf up | base64)"
gives 'nothing of them is there' 404 '' '' a GET $ws/three/files/up
head -c 4000000 /dev/urandom >"$path/noise"
over() { as a PUT $ws/three/files/more x; [ "$status" = 507 ]; }
wait_for 10 over # they are looked at once a second
gives 'over its bytes' 507 .code quota a POST $ws '{"name":"g"}'
gives 'no sandbox' 507 .code quota a POST /v1/sandboxes '{"name":"sb","start":false}'
gives 'no upload' 507 .code quota a PUT $ws/three/files/up '' -T "$T/t.tar"
echo more >"$path/more" && pass 'programs go on' || fail 'programs go on'
gives 'reading, too' 200 '' '' a GET $ws/three/files/more
gives 'others may' 201 '' '' root POST $ws '{"name":"mine","mount":false}'
gives 'what it has' 200 '.owners | length, .[0].owner, .[0].workspaces, .[0].snapshots, (.[0].bytes > 4000000), .[0].quota.bytes' \
	$'1\ndev\n5\n1\ntrue\n3145728' a GET /v1/usage
gives 'an admin sees all' 200 '[.owners[].owner] | contains(["dev", "uid:'"$(id -u)"'"])' true root GET /v1/usage
# What was saved counts as well, also when the workspace is gone for good.
gives 'without a limit' 200 '' '' root PUT /v1/quotas/dev '{}'
gives 'a workspace that is saved' 201 '' '' a POST $ws '{"name":"kept"}'
head -c 4000000 /dev/urandom >"$(of .path)/noise"
before=$(as a GET /v1/usage && of '.owners[0].bytes')
gives 'and purged' 201 '' '' a POST $ws/kept/snapshots '{"name":"kept"}'
as a GET /v1/usage
ok 'is in the store' test "$(of '.owners[0].bytes')" -gt $((before + 3900000))
gives 'its workspace goes' 204 '' '' a DELETE "$ws/kept?purge=true"
as a GET /v1/usage
ok 'what it left counts' test "$(of '.owners[0].bytes')" -gt $((before - 100000))
gives 'it goes' 204 '' '' root DELETE /v1/quotas/dev
gives 'and so does the limit' 201 '' '' a POST $ws '{"name":"g","mount":false}'

# ---- what was made from another's snapshot

snaps=/v1/snapshots
bough user add eve
give eve '{"owner":"eve"}'
gives 'a snapshot for all' 200 .visibility global a PATCH $snaps/kept '{"visibility":"global"}'
kept=$(of .id)
gives 'stood on' 201 .head "$kept" eve POST $ws '{"name":"on","from":"dev/kept"}'
gives 'written to' 201 '' '' eve PUT "$ws/on/files/new" x
gives 'saved' 201 .parent "$kept" eve POST $ws/on/snapshots '{"name":"made","message":"m"}'
gives 'for all to see' 200 .visibility global eve PATCH $snaps/made '{"visibility":"global"}'
gives 'what is not yours is not deleted with it' 403 .code forbidden a DELETE "$snaps/kept?cascade=true"
gives 'and it stays' 200 .id "$kept" a GET $snaps/kept
gives 'either' 400 .details.field cascade a DELETE "$snaps/kept?cascade=true&force=true"
gives 'for nobody to see' 200 .visibility private eve PATCH $snaps/made '{"visibility":"private"}'
gives 'he is not told of it' 204 '' '' a DELETE "$snaps/kept?cascade=true"
gives 'which stays' 200 .parent null eve GET $snaps/made
gives 'and its workspace' 200 '' '' eve GET "$ws/on/files/new"
gives 'made from it' 201 '' '' eve PUT "$ws/on/files/newer" x
gives 'another' 201 '' '' eve POST $ws/on/snapshots '{"name":"last"}'
last=$(of .id)
gives 'an admin may' 204 '' '' root DELETE "$snaps/eve%2Fmade?cascade=true"
gives 'with what was made from it' 404 '' '' eve GET $snaps/last
gives 'each is in the log' 200 "[.items[] | select(.object == \"$last\") | .path] | contains([\"snapshot.deleted\"])" true \
	root GET "/v1/audit?object=$last"
fsck_clean
done_testing
