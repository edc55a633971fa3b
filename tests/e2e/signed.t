#!/bin/bash
# Signed URLs: a file for whoever has the URL, for a while, over TCP without a token.
. "${0%/*}/lib.sh"
need_fuse

port=$(free_port)
start() { boughd --root "$BOUGH_ROOT" --daemon --listen "127.0.0.1:$port" --multi-user; }
start || bail 'boughd does not start'
sock=$BOUGH_ROOT/run/boughd.sock
sign() { # PATH JSON [CURL ARGUMENT…]: $url, and $status
	local path=$1 json=$2
	shift 2
	status=$(curl -sS -m 20 --unix-socket "$sock" -o "$T/.body" -w '%{http_code}' -H 'Content-Type: application/json' \
		--data-binary "$json" "$@" "http://d/v1/$path?op=sign")
	url=$(jq -r '.url // empty' "$T/.body")
}
get() { # URL [CURL ARGUMENT…]: over TCP; $status, $out
	local url=$1
	shift
	status=$(curl -sS -m 20 -o "$T/.body" -w '%{http_code}' "$@" "http://127.0.0.1:$port$url")
	out=$(tr -d '\0' <"$T/.body")
}
gives() { # DESCRIPTION STATUS URL …
	local what=$1 want=$2
	shift 2
	get "$@"
	is "$what" "$status" "$want"
}

bough_ok 'a workspace' create w -q
at=$(at w)
mkdir "$at/d d"
echo hello >"$at/d d/f?"
sign 'workspaces/w/files/d%20d/f%3F' '{"expires_in": 600}'
is 'a URL' "$status" 200
like 'it is of the workspace'\''s id' "$url" '^/v1/signed/ws_[a-z2-7]{10}/d%20d/f%3F\?expires='
gives 'gives the file without a token' 200 "$url"
is 'whole' "$out" hello
gives 'a part of it' 206 "$url" -H 'Range: bytes=1-2'
is 'that part' "$out" el
gives 'HEAD' 200 "$url" -I
gives 'nothing else' 401 /v1/workspaces
gives 'no other method' 405 "$url" -X DELETE
gives 'another path' 403 "${url/d%20d/e}"
gives 'later' 403 "$(sed 's/expires=[0-9]*/expires=9999999999/' <<<"$url")"
gives 'another owner' 403 "$(sed 's/owner=[^&]*/owner=uid%3A17/' <<<"$url")"
gives 'a wrong signature' 403 "${url%?}$([[ $url == *0 ]] && echo 1 || echo 0)"
gives 'no signature' 403 "${url%&sig=*}"
gives 'another key' 410 "$(sed 's/key=[0-9a-f]*/key=0011223344556677/' <<<"$url")"
gives 'none at all' 400 "${url%%\?*}"
is 'the key is nobody else'\''s to read' "$(stat -c %a "$BOUGH_ROOT/sign.keys")" 600
kill_hard boughd
wait_for 10 start 2>/dev/null || bail 'boughd does not start again'
gives 'after a restart' 200 "$url"

sign 'workspaces/w/files/d%20d/f%3F' '{"expires_in": 1}'
sleep 1.1
gives 'when it has expired' 410 "$url"
sign 'workspaces/w/files/d%20d/f%3F' '{"pin": true}'
pinned=$url
gives 'that version' 200 "$pinned"
echo other >"$at/d d/f?"
gives 'no other' 412 "$pinned"
sign workspaces/w/files/none '{}'
is 'of nothing' "$status" 404
sign 'workspaces/w/files/d%20d' '{}'
is 'of a folder' "$status" 409
sign 'workspaces/w/files/d%20d/f%3F' '{"expires_in": 604801}'
is 'for too long' "$status" 400
sign 'workspaces/w/files/d%20d/f%3F' '{"method": "PUT"}'
is 'to write' "$status" 400
bough_ok 'save' save w --as s -q
sign 'snapshots/s/files/d%20d/f%3F' '{}'
gives 'of a snapshot' 200 "$url"
is 'as it was' "$out" other

# ---- when who made it may not any more

token() { run bough token create "$@" --json; secret=$(json .token) id=$(json .id); }
token --name t --scope w
sign 'workspaces/w/files/d%20d/f%3F' '{}' -H "Authorization: Bearer $secret"
gives 'made with a token' 200 "$url"
is 'which isn'\''t in it' "$(grep -c "${secret##*_}" <<<"$url")" 0
bough_ok 'the token goes' token rm "$id"
gives 'so does the URL' 403 "$url"
sign 'workspaces/w/files/d%20d/f%3F' '{}'
bough_ok 'the workspace goes' rm w -q
gives 'it too' 404 "$url"
done_testing
