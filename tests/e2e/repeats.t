#!/bin/bash
# What an Idempotency-Key made is answered also where boughd was killed before it had answered: tokens,
# users, teams, webhooks. Without a secret.
. "${0%/*}/lib.sh"
need_fuse

start() { boughd --root "$BOUGH_ROOT" --daemon; }
start || bail 'boughd does not start'
post() { # KEY PATH BODY: the answer, with its status behind it
	curl -sS -m 30 --unix-socket "$BOUGH_ROOT/run/boughd.sock" -H "Idempotency-Key: $1" -d "$3" \
		-w '%{http_code}\n' "http://d/v1/$2"
}
asks=("t tokens {}" 'u users {"name":"ann"}' 'g teams {"name":"ops"}' 'h webhooks {"url":"https://192.0.2.1/"}')
for ask in "${asks[@]}"; do
	read -r key path body <<<"$ask"
	post "$key" "$path" "$body" >"$T/$key.first"
	is "$path: made" "$(tail -n 1 "$T/$key.first")" 201
done
kill_hard boughd
# As if it had been killed between the effect and the answer.
python3 - "$BOUGH_ROOT/catalog.db" <<'PY' || bail 'sqlite'
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as db:
    db.execute("UPDATE repeats SET status = NULL, answer = NULL")
PY
wait_for 10 start 2>/dev/null || bail 'boughd does not start again'
for ask in "${asks[@]}"; do
	read -r key path body <<<"$ask"
	post "$key" "$path" "$body" >"$T/$key.again"
	is "$path: told again" "$(tail -n 1 "$T/$key.again")" 201
	is "$path: as it was, without a secret" "$(head -n 1 "$T/$key.again" | jq -cS .)" \
		"$(head -n 1 "$T/$key.first" | jq -cS 'del(.token, .secret)')"
done
for path in tokens users teams webhooks; do
	n=$(curl -sS --unix-socket "$BOUGH_ROOT/run/boughd.sock" "http://d/v1/$path" | jq '.items | length')
	is "$path: once" "$n" 1
done

# ---- what a call was about is gone by now

made() { post "$@" | jq -rs '"\(.[1]) \(.[0].id // .[0].code)"'; } # its status, and what came of it
gone() { # WHAT PATH BODY ANOTHER-BODY, with $first: the key is the path
	like "$1: done" "$first" '^20[01] (ws|sn)_'
	is "$1: told again" "$(made "$2" "$2" "$3")" "$first"
	is "$1: another request" "$(made "$2" "$2" "$4")" '422 key_reused'
	is "$1: another key" "$(made another "$2" "$3")" '404 not_found'
}
bough create w -q
path=workspaces/w/snapshots
first=$(made $path $path '{"name":"s"}')
bough rm w -q
gone 'a workspace that is removed' $path '{"name":"s"}' '{"name":"t"}'
path=workspaces/w/undelete
first=$(made $path $path '{"name":"back"}')
gone 'one that is back by another name' $path '{"name":"back"}' '{}'
path=workspaces
first=$(made $path $path '{"name":"of-s","from":"s"}')
bough snapshots rm s --force -q
gone 'a snapshot that is gone' $path '{"name":"of-s","from":"s"}' '{"name":"of-s"}'
bough rm back of-s -q

# ---- webhooks come in pages, newest first

get() { curl -sS -m 30 --unix-socket "$BOUGH_ROOT/run/boughd.sock" "http://d/v1/$1"; }
first=$(get webhooks | jq -r '.items[0].id')
post h2 webhooks '{"url":"https://192.0.2.1/"}' >"$T/second"
second=$(head -n 1 "$T/second" | jq -r .id)
page=$(get 'webhooks?limit=1')
is 'the newest' "$(jq -r '.items[].id' <<<"$page")" "$second"
next=$(jq -r .next <<<"$page")
is 'the rest' "$(get "webhooks?limit=1&cursor=$next" | jq -rc '[.items[].id, .next]')" "[\"$first\",null]"

# ---- users, teams and quotas come in pages, by name

put() { curl -sS -m 30 --unix-socket "$BOUGH_ROOT/run/boughd.sock" -X PUT -d "$2" -o /dev/null "http://d/v1/$1"; }
for name in bea cid dan; do
	post "u-$name" users "{\"name\":\"$name\"}" >/dev/null
	post "t-$name" teams "{\"name\":\"$name\"}" >/dev/null
	put "quotas/$name" '{"workspaces":1}'
done
put quotas/ann '{}'
for list in users.name teams.name quotas.owner; do
	path=${list%.*} key=${list#*.} cursor='' seen='' pages=0
	while [ $pages -lt 9 ]; do
		page=$(get "$path?limit=2$cursor") pages=$((pages + 1))
		seen+=" $(jq -r "[.items[].$key] | join(\" \")" <<<"$page")"
		next=$(jq -r '.next // empty' <<<"$page")
		[ -n "$next" ] || break
		cursor="&cursor=$next"
		# What goes meanwhile takes nothing else along: the cursor's own.
		[ $pages != 1 ] || [ "$path" != users ] ||
			curl -sS -X DELETE --unix-socket "$BOUGH_ROOT/run/boughd.sock" http://d/v1/users/bea
	done
	is "$path: each once, by name" "$pages:$seen" "2: $([ "$path" = teams ] && echo 'bea cid dan ops' || echo 'ann bea cid dan')"
	is "$path: no cursor" "$(get "$path?cursor=x" | jq -r .code)" invalid
done
is 'exports: no cursor' "$(get 'exports?cursor=x' | jq -r .code)" invalid
is 'no cursor' "$(get 'webhooks?cursor=x' | jq -r .code)" invalid

# ---- bough asks once more where boughd was killed before it answered

bough_ok 'a workspace' create kept
stopped() { # COMMAND…: asked of a boughd that is killed before it looks
	local pid
	pid=$(get health | jq .pid)
	kill -STOP "$pid"
	timeout 60 bough "$@" >"$T/.out" 2>"$T/.err" &
	local asking=$!
	sleep 0.5 # one that is later starts a boughd, and that is right, too
	kill_hard boughd
	wait $asking
	code=$? out=$(<"$T/.out") err=$(<"$T/.err")
}
bough_ok 'one snapshot' save kept --as first
echo x >"$(at kept)/x"
bough_ok 'another one' save kept --as second
curl -sS -X PATCH -d '{"labels":{"k":"v"}}' -o /dev/null --unix-socket "$BOUGH_ROOT/run/boughd.sock" http://d/v1/snapshots/first
is 'the line of snapshots, by label' "$(get 'workspaces/kept/log?label=k=v' | jq -c '[.items[].names[]]')" '["first"]'
is 'from one on' "$(get 'snapshots/second/log?label=k&limit=1' | jq -c '[[.items[].names[]], .next]')" '[["first"],null]'
is 'all of it' "$(get 'snapshots/second/log' | jq -c '[.items[].names[]]')" '["second","first"]'
stopped ls
is 'a list' "$code:$(grep -c kept <<<"$out")" 0:1
stopped fork kept forked
is 'a fork' "$code" 0
is 'once' "$(get workspaces | jq '[.items[].name] | sort | join(" ")')" '"forked kept"'
done_testing
