#!/bin/bash
# Watching a workspace: server-sent events over restarts, forks and restores.
. "${0%/*}/lib.sh"
need_fuse

start() { boughd --root "$BOUGH_ROOT" --daemon; }
start || bail 'boughd does not start'
sock=$BOUGH_ROOT/run/boughd.sock
api() { curl -sS -m 30 --unix-socket "$sock" "$@"; }
watch() { # NAME QUERY FILE: in the background, until the test ends; $!
	curl -sSN --unix-socket "$sock" "http://d/v1/workspaces/$1/watch?$2" >"$3" 2>/dev/null &
}
# The events of a stream in short: "created a, renamed b <- a".
short() { sed -n 's/^data: //p' "$1" | jq -rs 'map(.event + (if .path then " " + .path else "" end) + (if .old_path then " <- " + .old_path else "" end)) | join(", ")'; }
heard() { [ "$(short "$1")" = "$2" ]; } # FILE TEXT
hears() { # DESCRIPTION FILE TEXT
	if wait_for 10 heard "$2" "$3"; then pass "$1"; else is "$1" "$(short "$2")" "$3"; fi
}
last_id() { sed -n 's/^id: //p' "$1" | tail -n 1; }
begun() { grep -q '^id: ' "$1"; }

bough_ok 'a workspace' create w -q
at=$(at w)
watch w recursive=1 all
watch w '' top
watch w 'path=d&recursive=1' below
ok 'streams begin with an id' wait_for 10 begun below
wait_for 10 begun all && wait_for 10 begun top
mkdir "$at/d"
api -X PUT --data-binary hello -o /dev/null http://d/v1/workspaces/w/files/d/f
mv "$at/d/f" "$at/g"
mv "$at/g" "$at/d/g"
mv "$at/d" "$at/e"
rm -r "$at/e"
hears 'all that happens' all 'created d, created d/f, renamed g <- d/f, renamed d/g <- g, renamed e <- d, deleted e/g, deleted e'
hears 'of a folder alone' top 'created d, created g, deleted g, renamed e <- d, deleted e'
hears 'below a folder, and what becomes of it' below 'created d, created d/f, deleted d/f, created d/g, deleted d'
is 'no file without a name is told of' "$(grep -c bough-put all)" 0
touch "$at/$(printf 'a\377')"
bytes() { grep -q '"path_b64":"Yf8="' all; }
ok 'a name that is not UTF-8' wait_for 10 bytes

# ---- how soon

watch w path=soon soon
wait_for 10 begun soon
all=()
for i in 1 2 3 4 5 6 7 8; do
	sleep 0.05
	before=$(date +%s%N)
	: >"$at/soon$i"
	mv "$at/soon$i" "$at/soon"
	until [ "$(grep -c '^data: ' soon)" -ge "$i" ]; do sleep 0.002; done
	took=$((($(date +%s%N) - before) / 1000000))
	all+=($took)
done
# One may come in the way of other work on the machine, two don't.
all=($(printf '%s\n' "${all[@]}" | sort -n))
ok "each is told soon (the slowest: ${all[7]} ms)" test ${all[7]} -lt 30000
ok "as a rule at once (${all[6]} ms)" test ${all[6]} -lt 3000

# ---- across restarts

since=$(last_id all)
api -X PUT --data-binary 1 -o /dev/null http://d/v1/workspaces/w/files/kept
kill_hard bough-fs
echo 2 >"$at/kept2"
told() { grep -q '"kept2"' all; }
ok 'a stream goes on when bough-fs is killed' wait_for 10 told
is 'without a gap' "$(grep -c '"reset"' all)" 0
kill_hard boughd
echo 3 >"$at/kept3"
wait_for 10 start 2>/dev/null || bail 'boughd does not start again'
watch w "recursive=1&since=$since" resumed
hears 'who comes back misses nothing' resumed 'created kept, created kept2, modified kept2, created kept3, modified kept3'
ids=$(sed -n 's/^id: //p' resumed)
second=$(sed -n 2p <<<"$ids")
api -N -m 1 -H "Last-Event-ID: $second" 'http://d/v1/workspaces/w/watch?recursive=1' >again 2>/dev/null
is 'nor from any event on' "$(short again)" 'modified kept2, created kept3, modified kept3'

# ---- fork, save, restore, mount

since=$(last_id resumed)
bough_ok 'a fork' fork w child -q
echo 4 >"$(at child)/four"
watch child "recursive=1&since=$since" child
hears 'a moment of the parent is known in its child' child 'created four, modified four'
bough_ok 'save' save w --as s -q
bough_ok 'umount' umount w
bough_ok 'mount' mount w
echo 5 >"$at/five"
hears 'saved and mounted anew' resumed 'created kept, created kept2, modified kept2, created kept3, modified kept3, created five, modified five'
since=$(last_id resumed)
bough_ok 'restore' restore w s -q
reset() { grep -q '"event":"reset"' resumed; }
ok 'a restore is a reset' wait_for 10 reset
status() { api -m 5 -o /dev/null -w '%{http_code}' "http://d/v1/workspaces/$1/watch?$2"; }
is 'and what was before is gone' "$(status w "since=$since")" 410
echo 6 >"$at/six"
six() { grep -q '"six"' resumed; }
ok 'the stream goes on' wait_for 10 six
is 'no id' "$(status w since=x)" 400
is 'another layer'\''s' "$(status w since=00000000000000000000000000000000.1)" 410
is 'a path out of it' "$(status w path=../x)" 400
is 'no such workspace' "$(status none '')" 404

# ---- many at once; whose it is no longer

for i in $(seq 40); do watch w recursive=1 "many$i"; done
all_begun() { local i; for i in $(seq 40); do begun "many$i" || return 1; done; }
ok 'forty watch' wait_for 20 all_begun
ticks() { awk '{ print $14 + $15 }' "/proc/$(pids_of boughd)/stat"; }
idle() { # once it has done what their beginning takes
	local before t0=$EPOCHREALTIME
	before=$(ticks) && sleep 1 && [ $((($(ticks) - before) * 1000000)) -lt \
		$((10 * (${EPOCHREALTIME/./} - ${t0/./}))) ]
}
ok 'idle they cost nothing: less than 10 ticks a second' wait_for 10 idle
for i in $(seq 50); do echo $i >"$at/x$i"; done
all_told() { local i; for i in $(seq 40); do [ "$(grep -c '"created"' "many$i")" = 50 ] || return 1; done; }
ok 'each is told all' wait_for 20 all_told
run bough watch w --since "$since"
is 'bough says so, too' "$code" 3
written() { grep -q '"modified".*"x50"' many1; }
wait_for 20 written
since=$(last_id many1)
timeout 60 bough watch w --since "$since" --count 2 --json >cli &
mkdir "$at/new"
rmdir "$at/new"
wait $!
is 'bough watch' "$(jq -r '.event + " " + .path' cli | tr '\n' ' ')" 'created new deleted new '
timeout 60 bough watch w --since "$since" >odd &
touch "$at/$(printf 'b\377')"
shown() { grep -qxF "created  $'b\\377'" odd; }
ok 'shows odd names as a shell reads them' wait_for 10 shown
kill $!
bough_ok 'rm' rm w -q
gone() { [ "$(pgrep -fc "workspaces/w/watch" -P $$)" = 0 ]; }
ok 'the streams of what is removed end' wait_for 10 gone
done_testing
