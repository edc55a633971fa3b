#!/bin/bash
# Workspaces that were deleted, or have expired, and come back; and those that don't.
. "${0%/*}/lib.sh"
need_fuse

sock=$BOUGH_ROOT/run/boughd.sock
status() { curl -sS -o "$T/body" -w '%{http_code}' --unix-socket "$sock" "$@"; }
config() { # JSON
	mkdir -p "$BOUGH_ROOT"
	echo "$1" >"$BOUGH_ROOT/config.json"
}
config '{"grace_deleted_s": 600, "grace_expired_s": 3, "gc_every_s": 0, "look_every_s": 1}'

bough_ok 'a workspace' create w --label a=b --description 'to lose'
path=$out
echo precious >"$path/file"
id=$(bough show w --json | jq -r .id)
bough_ok 'saved once' save w --as s
echo unsaved >"$path/new"
exec 3>"$path/open"
bough_ok 'a snapshot of it' fork w child
bough_ok 'deleted, with a program in it' rm --force w
ok 'it is unmounted' test ! -e "$path"
ok 'what the program writes goes nowhere' not eval 'echo x >&3' 2>/dev/null
exec 3>&-
bough_fails 'nobody finds it' 3 'no workspace or sandbox "w"' show w
bough_fails 'nor by its id' 3 'no workspace' show "$id"
is 'it is in no list' "$(bough ls -q)" child
is 'but in its own' "$(bough ls --deleted -q)" w
like 'which says until when' "$(bough ls --deleted)" "w +$id +[0-9a-z]+ +20[0-9T:-]+Z"
is 'as JSON' "$(bough ls --deleted --json | jq -r '.items[] | .name, .mounted, (.purges > .deleted)')" $'w\nfalse\ntrue'
bough_ok 'gc leaves it alone' gc
is 'completion knows it' "$(bough __complete -- 2 bough undelete '')" w
kill_hard boughd
bough_ok 'over a kill of boughd' ls
is 'too' "$(bough ls --deleted -q)" w
kill_hard bough-fs
wait_for 10 eval '[ "$(status http://d/v1/health)" = 200 ]'
bough_ok 'its name is free' create w
bough_fails 'so it can not come back under it' 4 'already' undelete w
bough_ok 'but under another' undelete w --as back
is 'where it was' "$out" "$path"
is 'with all it had' "$(cat "$path/file" "$path/new")" $'precious\nunsaved'
is 'as the one that it was' "$(bough show back --json | jq -r '.id, .labels.a, .description, .deleted')" "$id"$'\nb\nto lose\nnull'
is 'its head, too' "$(bough show back --json | jq -r .head)" "$(bough snapshots show s --json | jq -r .id)"
bough_fails 'there is none any more' 3 'could be brought back' undelete w

# The last one of that name; by its id another.
bough rm w
second=$(bough ls --deleted --json | jq -r '.items[0].id')
bough create w --no-mount
bough rm w
bough_ok 'the last one' undelete w
is 'is it' "$(bough show w --json | jq -r '.mounted, .id != "'"$second"'"')" $'false\ntrue'
bough_ok 'by its id the first' undelete "$second" --as w1
bough_ok 'for good' rm --now w1
bough_fails 'is for good' 3 'could be brought back' undelete "$second"
bough rm w
bough_ok 'one that is deleted already' rm --now w
is 'goes, too' "$(bough ls --deleted -q)" ''

# A snapshot that only a deleted one stands on can be deleted.
bough create x --from s
bough rm back x
run bough snapshots rm s
[ $code = 4 ] && pass 'the child still stands on it' || { fail 'the child still stands on it'; diag_run; }
bough rm child
bough_ok 'now nobody does' snapshots rm s
bough_ok 'it comes back without' undelete x
is 'its head' "$(bough show x --json | jq -r .head)" null
is 'but with its files' "$(cat "$(at x)/file")" precious

# Expired ones.
bough create e >/dev/null
echo late >"$(at e)/file"
bough set e --ttl 1s
gone() { ! bough show "$1" >/dev/null 2>&1; }
ok 'one expires' wait_for 25 gone e
bough_ok 'and is brought back' undelete e
is 'it does not expire again' "$(bough show e --json | jq -r .expires)" null
is 'with its file' "$(cat "$(at e)/file")" late
bough set e --ttl 1s
ok 'it expires once more' wait_for 25 gone e
purged() { [ -z "$(bough ls --deleted --json | jq -r '.items[] | select(.name == "e")')" ]; }
ok 'and is purged' wait_for 25 purged
ok 'its folder went' not test -e "$BOUGH_ROOT/ws/$(bough ls --deleted --json | jq -r '.items[] | select(.name == "e") | .id')/meta.json"
like 'the log tells' "$(curl -sS --unix-socket "$sock" 'http://d/v1/audit?limit=1000' | jq -r '.items[].path')" 'workspace.purged'

# The catalog is lost: what was deleted stays so.
bough rm x
bough down
rm "$BOUGH_ROOT"/catalog.db*
bough_ok 'the catalog is made anew' ls -q
is 'without what was deleted' "$out" ''
like 'which is still there' "$(bough ls --deleted -q | sort | tr '\n' ' ')" 'back child x '
bough_ok 'to be brought back' undelete x
is 'whole' "$(cat "$(at x)/file")" precious
fsck_clean

# A disk that is nearly full.
bough down
config '{"reserve_bytes": 1152921504606846976, "gc_every_s": 0, "look_every_s": 1}'
bough_fails 'nothing new begins' 6 'nearly full' create y
bough_fails 'no save' 6 'nearly full' save x
is 'no upload' "$(status -X POST -T "$T/root/config.json" "http://d/v1/import")" 507
is 'said why' "$(jq -r .code "$T/body")" no_space
is 'none into a workspace' "$(status -T "$T/root/config.json" "http://d/v1/workspaces/x/files/f")" 507
op() { status --data-binary "$2" "http://d/v1/workspaces/x/files/$1"; } # PATH?op=OP BODY
is 'nor a folder, a link or a copy' "$(op 'd?op=mkdir' '{}') $(op 'l?op=symlink' '{"target":"t"}') \
$(op 'file?op=copy' '{"to":"copy"}')" '507 507 507'
is 'but names and modes change' "$(op 'file?op=chmod' '{"mode":"0600"}') $(op 'file?op=move' '{"to":"moved"}')" '200 200'
echo more >"$(at x)/more" && pass 'programs go on' || fail 'programs go on'
is 'reading, too' "$(bough cat x:more)" more
bough_ok 'what is deleted now' rm x
is 'is gone' "$(bough ls --deleted --json | jq -r '[.items[] | select(.name == "x")] | length')" 0
ok 'what was deleted before makes room' wait_for 25 eval '[ -z "$(bough ls --deleted -q)" ]'
bough down

# gc by the clock.
config '{"gc_every_s": 1, "grace_deleted_s": 0, "look_every_s": 1}'
bough create g >/dev/null
head -c 3000000 /dev/urandom >"$(at g)/noise"
sn=$(bough save g)
bough rm g
bough snapshots rm "$sn"
packs() { du -s --block-size=1 "$BOUGH_ROOT/store" | cut -f1; }
is 'without a grace it is gone' "$(bough ls --deleted -q)" ''
ok 'gc comes by itself' wait_for 20 grep -q 'gc freed' "$BOUGH_ROOT/run/boughd.log"
fsck_clean
done_testing
