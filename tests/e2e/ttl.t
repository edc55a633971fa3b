#!/bin/bash
# Workspaces and snapshots whose time is up.
. "${0%/*}/lib.sh"
need_fuse

bough_ok 'one to delete' create gone --ttl 1s
gone=$out
bough_ok 'one to save' create saved --ttl 1h --on-expiry save --description 'of a task'
saved=$out
ws=$(bough show saved --json | jq -r .id)
echo precious >"$saved/file"
bough_ok 'one to keep' create kept --ttl 1h --on-expiry keep
kept=$out
echo stays >"$kept/file"
given=$SECONDS short_s=20 # a busy machine gets to `set` before
bough_ok 'one that gets more time' create longer --ttl ${short_s}s
bough_ok 'namely' set longer --ttl 1h
bough_ok 'one without end' create ever --ttl ${short_s}s
bough_ok 'after all' set ever --ttl none
like 'when it expires is told' "$(bough show longer --json)" '"expires": "20[0-9-]+T'
is 'and that it does not' "$(bough show ever --json | jq .expires)" null
echo x >"$(at ever)/file"
bough_ok 'a snapshot' save ever --as short
curl -sS --unix-socket "$BOUGH_ROOT/run/boughd.sock" -X PATCH --data '{"ttl_s":1}' http://d/v1/snapshots/short >/dev/null
tar cf "$T/t.tar" -C "$BOUGH_SRC" LICENSE
bough_ok 'another one, on which nothing stands' import "$T/t.tar" --as free
curl -sS --unix-socket "$BOUGH_ROOT/run/boughd.sock" -X PATCH --data '{"ttl_s":1}' http://d/v1/snapshots/free >/dev/null
bough_fails 'a time that is none' 2 'takes a time like' set ever --ttl soon
bough_fails 'an end that is none' 2 'on-expiry' set ever --on-expiry explode

is 'nothing is early' "$(bough ls -q | grep -vx gone | sort | tr '\n' ' ')" 'ever kept longer saved '
for name in saved kept; do bough_ok "a shorter one, $name" set $name --ttl 1s; done
done_all() { [ "$(bough ls -q | sort | tr '\n' ' ')" = 'ever kept longer ' ] && ! mountpoint -q "$kept"; }
wait_for 30 done_all
while [ $SECONDS -le $((given + short_s + 15)) ]; do sleep 1; done # those two would be gone
is 'what is left' "$(bough ls -q | sort | tr '\n' ' ')" 'ever kept longer '
ok 'the deleted one is unmounted' test ! -e "$gone"
ok 'the kept one is unmounted' not mountpoint -q "$kept"
is 'and has no end any more' "$(bough show kept --json | jq .expires)" null
bough_ok 'it is there' mount kept
is 'with its files' "$(cat "$kept/file")" stays
sn=$(curl -sS --unix-socket "$BOUGH_ROOT/run/boughd.sock" "http://d/v1/snapshots?workspace=$ws" | jq -r '.items[0].id')
is 'what was saved' "$(bough export "$sn" | tar xOf - ./file)" precious
gone_free() { ! bough snapshots show free >/dev/null 2>&1; }
wait_for 15 gone_free
ok 'the snapshot is gone' gone_free
run bough snapshots show short
is 'the one that is a head waits' $code 0
bough_ok 'until' rm ever
gone_short() { ! bough snapshots show short >/dev/null 2>&1; }
ok 'nothing stands on it' wait_for 15 gone_short
curl -sS --unix-socket "$BOUGH_ROOT/run/boughd.sock" 'http://d/v1/audit?limit=1000' >"$T/audit"
is 'the log tells of all' "$(jq '[.items[] | select(.path | test("expired"))] | length' "$T/audit")" 5
fsck_clean
done_testing
