#!/bin/bash
# Teams: names of each owner's own, tokens that are for one, what becomes of what one was shown; and
# that deleting tells nothing of what others made of it.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/http.sh"

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
for who in ann ben cai; do
	bough user add $who
	as root POST /v1/tokens "{\"owner\":\"$who\"}"
	token[$who]=$(of .token)
done

# ---- names

gives 'a team' 201 '.owner + " " + .name' 'ann web' ann POST /v1/teams '{"name":"web"}'
web=$(of .id)
like 'has an id' "$web" '^tm_[a-z2-7]{10}$'
gives 'another one'"'"'s of that name' 201 .owner ben ben POST /v1/teams '{"name":"web"}'
gives 'of one owner it is taken' 409 .code exists ann POST /v1/teams '{"name":"web"}'
gives 'the name means one'"'"'s own' 200 .id "$web" ann GET /v1/teams/web
gives 'each' 200 .owner ben ben GET /v1/teams/web
gives 'not what one is not in' 404 '' '' ben GET /v1/teams/ann%2Fweb
gives 'nor by its id' 404 '' '' ben GET "/v1/teams/$web"
gives 'an admin must say which' 409 .code conflict root GET /v1/teams/web
gives 'says it' 200 .id "$web" root GET /v1/teams/ann%2Fweb
gives 'a member' 200 '' '' ann PUT /v1/teams/web/members/cai '{"role":"member"}'
gives 'of both' 200 '' '' ben PUT /v1/teams/web/members/cai '{"role":"reader"}'
c='"name":"c","mount":false,"visibility":"team"'
gives 'must say which, too' 409 .code conflict cai POST $ws "{$c,\"team\":\"web\"}"
gives 'says it, too' 201 '.team + " " + .team_id' "web $web" cai POST $ws "{$c,\"team\":\"ann/web\"}"
gives 'that one sees it' 200 .owner cai ann GET "$ws/cai%2Fc"
gives 'and not the other' 404 '' '' ben GET "$ws/cai%2Fc"
gives 'a list has both' 200 '[.items[].owner] | sort | join(" ")' 'ann ben' cai GET /v1/teams
gives 'in pages' 200 '.items | length' 1 cai GET '/v1/teams?limit=1'
first=$(of '.items[0].id')
gives 'of which each is on one' 200 ".items | length, .[0].id != \"$first\"" $'1\ntrue' \
	cai GET "/v1/teams?limit=1&cursor=$(of .next)"
like 'bough tells whose they are' "$(bough team ls)" 'web +ann +admin +ann'
bough_ok 'shared with the other' set cai/c --visibility team:ben/web
gives 'who sees it' 200 .owner cai ben GET "$ws/cai%2Fc"
gives 'and no more the first' 404 '' '' ann GET "$ws/cai%2Fc"

# ---- a token of a team is for what the team is shown, and nothing else of its owner's

gives 'private' 201 '' '' ann POST $ws '{"name":"mine","mount":false}'
gives 'for the team' 201 '' '' ann POST $ws '{"name":"ours","visibility":"team","team":"web"}'
gives 'for all' 201 '' '' ben POST $ws '{"name":"global","mount":false,"visibility":"global"}'
gives 'a token' 201 .scope "$web" root POST /v1/tokens '{"scope":"team:ann/web","owner":"ann"}'
token[t]=$(of .token) id=$(of .id)
gives 'none for a team that is not' 404 '' '' root POST /v1/tokens '{"scope":"team:ben/none"}'
gives 'tells what it is for' 200 '.team + " " + .owner' "$web ann" t GET /v1/whoami
gives 'sees that' 200 '[.items[].name] | join(" ")' ours t GET $ws
gives 'changes it' 201 '' '' t PUT $ws/ours/files/f x
gives 'saves it' 201 .team_id "$web" t POST $ws/ours/snapshots '{"name":"s1"}'
gives 'in the background' 202 '' '' t POST $ws/ours/snapshots '{}' -H 'Prefer: respond-async'
gives 'waits for that' 200 .state 'done' t GET "/v1/jobs/$(of .id)?wait=30"
gives 'lists its job' 200 '.items | length' 1 t GET /v1/jobs
gives 'forks it' 201 '[.items[].team_id] | join(" ")' "$web $web" t POST $ws/ours/fork '{"name":"o","count":2}'
gives 'makes what is the team'"'"'s' 201 '.visibility + " " + .owner' 'team ann' \
	t POST $ws '{"name":"made","mount":false,"from":"s1"}'
gives 'as a member finds' 200 '' '' cai GET "$ws/ann%2Fmade"
gives 'a member deletes nothing for good' 403 '' '' cai DELETE "$ws/ann%2Fmade?purge=true"
gives 'and nothing else' 403 '' '' t POST $ws '{"name":"x","visibility":"global"}'
gives 'the rest is not there' 404 '' '' t GET $ws/mine
gives 'nor to make something of' 404 '' '' t POST $ws '{"name":"x","from":"mine"}'
gives 'nor what is for all' 404 '' '' t GET "$ws/ben%2Fglobal"
git init -q -b main "$T/src" && git -C "$T/src" -c user.name=a -c user.email=a@b commit -qm one --allow-empty
(cd "$T/src/.git" && tar cf "$T/src.tar" -- *)
gives 'a repository' 201 .owner ann ann POST '/v1/repos/import?name=src&path=/src.git' '' -T "$T/src.tar"
gives 'of which its owner has a checkout' 201 '' '' ann POST $ws '{"name":"co","mount":false,"git":{"repo":"src"}}'
gives 'is none of it' 404 '' '' t POST $ws '{"name":"co-2","mount":false,"git":{"repo":"src"}}'
gives 'nor by its name' 404 '' '' t POST $ws '{"name":"co-2","mount":false,"git":{"repo":"ann/src"}}'
gives 'a checkout for the team' 201 '' '' \
	ann POST $ws '{"name":"co-3","mount":false,"git":{"repo":"src"},"visibility":"team","team":"web"}'
gives 'is read' 200 '' '' t GET $ws/co-3/diff
gives 'but moves no branch of it' 404 '' '' t POST $ws/co-3/commit '{"message":"m"}'
as ann DELETE "$ws/co?purge=true"
as ann DELETE "$ws/co-3?purge=true"
gives 'usage is of those' 200 '([.items[].id | select(startswith("ws_"))] | length), (.owners | length)' $'4\n0' \
	t GET /v1/usage
gives 'the log is of itself' 200 '[.items[].token] | unique | join(" ")' "$id" t GET /v1/audit
gives 'and of those' 200 '[.items[] | .token != null] | unique | length' 1 t GET '/v1/audit?object=ours'
for path in repos sandboxes webhooks exports teams tokens; do
	gives "no $path" 403 '' '' t GET /v1/$path
done
gives 'a job of something else' 202 '' '' ann POST $ws/mine/snapshots '{}' -H 'Prefer: respond-async'
gives 'is none of its' 404 '' '' t GET "/v1/jobs/$(of .id)"
gives 'a reader'"'"'s token' 201 '' '' root POST /v1/tokens '{"scope":"team:ben/web","owner":"cai"}'
token[r]=$(of .token)
gives 'sees its owner'"'"'s own in that team' 200 '[.items[].name] | join(" ")' c r GET $ws
run bough token create --team ann/web -q
is 'bough makes one' $code 0
token[b]=$out
gives 'of the service'"'"'s owner, who is in no team' 200 '.items | length' 0 b GET $ws
bough_fails 'not with another scope' 2 'exclude each other' token create --team ann/web --scope admin
created() { # CALLER: how many workspaces' making it hears of
	as "$1" GET '/v1/events?since=0&follow=false'
	sed -n 's/^data: //p' <<<"$body" | jq -r 'select(.type == "workspace.created" and .owner == "ann") | .object' |
		sort -u | wc -l
}
is 'it hears of those' "$(created t) $(created ann)" '5 7'

# ---- what was a team's isn't the next one's of that name

gives 'a sandbox of the team' 201 '' '' \
	ann POST /v1/sandboxes '{"name":"box","start":false,"visibility":"team","team":"web"}'
gives 'a member sees it' 200 '' '' cai GET /v1/sandboxes/ann%2Fbox
gives 'the team goes' 204 '' '' ann DELETE /v1/teams/web
gives 'with its tokens' 401 '' '' t GET $ws
gives 'the sandbox is private' 200 .visibility private ann GET /v1/sandboxes/box
gives 'another one of that name' 201 '' '' ann POST /v1/teams '{"name":"web"}'
gives 'with that member' 200 '' '' ann PUT /v1/teams/web/members/cai '{"role":"admin"}'
gives 'sees no sandbox' 404 '' '' cai GET /v1/sandboxes/ann%2Fbox
gives 'no workspace' 404 '' '' cai GET "$ws/ann%2Fours"
gives 'no snapshot' 404 '' '' cai GET "$snap/ann%2Fs1"
is 'and hears of none' "$(created cai)" 0
gives 'no admin takes the team from its owner' 403 '' '' cai DELETE /v1/teams/ann%2Fweb/members/ann
gives 'nor makes less of him' 403 '' '' cai PUT /v1/teams/ann%2Fweb/members/ann '{"role":"reader"}'
gives 'nor does he leave' 403 '' '' ann DELETE /v1/teams/web/members/ann
gives 'it is still his' 200 '.members | length' 2 ann GET /v1/teams/web
gives 'others may leave' 204 '' '' cai DELETE /v1/teams/ann%2Fweb/members/cai

# ---- deleting tells nothing of what others made of it

gives 'a snapshot for all' 200 .visibility global ann PATCH $snap/s1 '{"visibility":"global"}'
gives 'its own stand on it' 409 '' '' ann DELETE $snap/s1
gives 'others may not change it' 403 '' '' ben PATCH $snap/ann%2Fs1 '{"message":"x"}'
gives 'its owner hears of that' 200 '[.items[] | select(.status == 403) | .method] | join(" ")' PATCH \
	ann GET '/v1/audit?object=s1&failed=1'
for w in ours o-1 o-2 made; do as ann DELETE "$ws/$w?purge=true"; done
gives 'another one makes something of it' 201 '' '' ben POST $ws '{"name":"secret","from":"ann/s1"}'
secret=$(of .path)
gives 'adds' 201 '' '' ben PUT $ws/secret/files/g y
gives 'and saves' 201 '' '' ben POST $ws/secret/snapshots '{"name":"hidden"}'
gives 'a second' 201 '' '' ben POST $ws '{"name":"secret-2","from":"ann/s1"}'
gives 'who made it deletes it, as if nobody had' 204 '' '' ann DELETE $snap/s1
gives 'it is gone' 404 '' '' ann GET $snap/s1
bough_ok 'for good' gc
is 'what was made of it has all its bytes' "$(cat "$secret/f" "$secret/g")" xy
gives 'its snapshot, too' 200 '' '' ben GET $snap/hidden/files/f
is 'with all of it' "$body" x
gives 'and the second' 200 '' '' ben GET $ws/secret-2/files/f
is 'all of it' "$body" x
fsck_clean
done_testing
