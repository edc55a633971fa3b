#!/bin/bash
# A workspace from its making to its end: create, work, fork, rename, umount, down, up, rm.
. "${0%/*}/lib.sh"
need_fuse

# ---- many first commands at once start one daemon

for i in 1 2 3 4 5 6 7 8; do
	bough up -q >"$T/first.$i" 2>&1 &
	pids[i]=$!
done
bad=0
for i in 1 2 3 4 5 6 7 8; do wait "${pids[i]}" || bad=$((bad + 1)); done
is 'eight first commands all succeed' $bad 0
is 'they started one daemon' "$(pids_of boughd | wc -l)" 1

# ---- create

bough_ok 'create an empty workspace' create one
path=$out
is 'create prints the mount point' "$path" "$(at one)"
ok 'it is a mount point' mountpoint -q "$path"
is 'it is empty' "$(ls -A "$path")" ''
bough_ok 'show as JSON' show one --json
is 'its name' "$(json .name)" one
like 'its id' "$(json .id)" '^ws_[a-z2-7]{10}$'
is 'its path' "$(json .path)" "$path"
is 'its state' "$(json .state)" ready
is 'it is mounted' "$(json .mounted)" true
id=$(json .id)
bough_ok 'an id names it too' path "$id"
is 'the same path' "$out" "$path"

mkdir -p "$T/tree/sub/deep"
echo hello >"$T/tree/hello"
echo deep >"$T/tree/sub/deep/file"
ln -s hello "$T/tree/link"
ln "$T/tree/hello" "$T/tree/sub/again"
chmod 750 "$T/tree/sub"
bough_ok 'create from a folder' create two --dir "$T/tree" --label task=42 --label who=me
same_tree 'the folder is there' "$T/tree" "$out"
bough_ok 'create from a workspace' create three --from two
same_tree 'what it shows is there' "$T/tree" "$out"
tar cf "$T/tree.tar" --format=pax -C "$T/tree" .
bough_ok 'create from an archive' create four --tar "$T/tree.tar"
same_tree 'the archive is there' "$T/tree" "$out"
bough_ok 'create from stdin' create five --tar - <"$T/tree.tar"
same_tree 'stdin is there' "$T/tree" "$out"
bough_ok 'create without mounting' create six --no-mount
is 'prints nothing' "$out" ''
is 'it is not mounted' "$(bough show six --json | jq .mounted)" false

# ---- set

bough_ok 'create with limits' create seven --inodes 1K --quota 1M --label a=1 --label b=2
bough_ok 'show' show seven --json
is '1K is 1024' "$(json .quota_inodes)" 1024
bough_ok 'set' set seven --quota 64K --inodes none --label b=3 --label c=4 --no-label a --no-label absent --json
is 'it is set' "$(json '[.quota_bytes, .quota_inodes, .labels.a, .labels.b, .labels.c] | map(tostring) | join(" ")')" \
	'65536 0 null 3 4'
run bash -c 'head -c 200000 /dev/zero | tr "\0" x >"$(bough path seven)/f"'
like 'the new quota holds at once' "$err" 'Disk quota exceeded|No space'
bough_ok 'more' set seven --quota 1M
is 'says nothing' "$out$err" ''
ok 'and there is room' dd if=/dev/urandom of="$(at seven)/f" bs=100k count=2 status=none
is 'the labels stayed' "$(bough show seven --json | jq -c .labels)" '{"b":"3","c":"4"}'
for i in $(seq 8); do bough set seven --label "at-once-$i=x" & done
wait
is 'changes at once keep each other' "$(bough show seven --json | jq '.labels | length')" 10
bough_ok 'of an unmounted one' umount seven
bough_ok 'too' set seven --quota none --no-label b
is 'is kept' "$(bough show seven --json | jq -c '[.quota_bytes, .labels.b]')" '[0,null]'
bough_fails 'set of what is not there' 3 nothing set nothing --quota 1G
bough_fails 'a wrong key' 2 'key' set seven --label 'a b=c'
bough_ok 'rm' rm seven

# ---- list

bough_ok 'ls' ls
is 'a line for each and a heading' "$(wc -l <<<"$out")" 7
like 'the heading' "$out" '^NAME +STATE +SNAPSHOT'
is 'ls -q' "$(bough ls -q | sort | tr '\n' ' ')" 'five four one six three two '
is 'ls by label' "$(bough ls -q --label task=42)" two
bough_ok 'ls as JSON' ls --json
is 'six items' "$(json '.items | length')" 6
is 'with labels' "$(json '.items[] | select(.name == "two") | .labels.who')" me
bough_ok 'show' show two
like 'show has the labels' "$out" 'label +task=42'

# ---- work

cd "$path" || exit 1
echo data >file
mkdir dir
mv file dir/
is 'what is written can be read' "$(cat dir/file)" data
cd "$T" || exit 1

# ---- fork

bough_ok 'fork' fork one one-a one-b
is 'prints the names' "$out" $'one-a\none-b'
is 'a fork has all of it' "$(cat "$(at one-a)/dir/file")" data
echo changed >"$(at one-a)/dir/file"
is 'a change in a fork stays there' "$(cat "$path/dir/file")" data
is 'also for its sibling' "$(cat "$(at one-b)/dir/file")" data
echo parent >"$path/dir/new"
ok 'a change in the parent stays there' test ! -e "$(at one-b)/dir/new"
is 'a fork has the same inode number and times' \
	"$(stat -c '%i %y %z' "$(at one-b)/dir/file")" "$(stat -c '%i %y %z' "$path/dir/file")"
bough_ok 'fork by count' fork one many -n 3
is 'names by count' "$out" $'many-1\nmany-2\nmany-3'
bough_ok 'fork by count alone' fork many-1 -n 2 --label x=y --json
is 'names by count alone' "$(json '[.items[].name] | join(" ")')" 'many-1-1 many-1-2'
is 'labels of forks' "$(json '.items[1].labels.x')" y
like 'the pause is told' "$(json .pause_ns)" '^[0-9]+$'

# ---- rename

bough_ok 'rename' rename one-b renamed
bough_fails 'the old name is gone' 3 one-b path one-b
is 'the new one is there' "$(cat "$(at renamed)/dir/file")" data

# ---- umount and mount

renamed=$(at renamed)
bough_ok 'umount' umount renamed
ok 'no folder is left into which a program could write unseen' test ! -e "$renamed"
bough_fails 'an unmounted one has no path' 3 'bough mount renamed' path renamed
bough_ok 'mount' mount renamed
is 'it is all back' "$(cat "$out/dir/file")" data
bough_ok 'mount again changes nothing' mount renamed
bough_ok 'umount of two' umount renamed one-a
bough_ok 'mount of one' mount one-a

# ---- down and up

ino=$(stat -c %i "$path/dir/file")
(exec sleep 30 <"$path/dir/file") &
sleeper=$!
sleeps() { [ "$(cat /proc/$sleeper/comm)" = sleep ]; }
wait_for 10 sleeps
bough_ok 'down' down
kill $sleeper 2>/dev/null
is 'tells who was there' "$err" \
	"bough: one was in use by sleep (pid $sleeper): what is open there fails now; \`bough up\` mounts it again"
is 'no daemon is left' "$(pids_of boughd)$(pids_of bough-fs)" ''
is 'no mount is left' "$(grep -c " $T/" /proc/self/mounts)" 0
is 'and no mount point' "$(ls "$BOUGH_ROOT/mnt")" ''
bough_ok 'up' up
like 'up tells what runs' "$out" 'boughd .* runs \(pid [0-9]+\)'
is 'the mounts are back' "$(cat "$(at one)/dir/new")" parent
is 'at the same path' "$(at one)" "$path"
is 'with the same inode numbers' "$(stat -c %i "$path/dir/file")" "$ino"
is 'what a fork changed is back' "$(cat "$(at one-a)/dir/file")" changed
is 'an unmounted one stayed so' "$(bough show renamed --json | jq .mounted)" false

# ---- rm

gone=$(at one-a)
bough_ok 'rm' rm one-a renamed six
bough_fails 'a removed one is gone' 3 one-a show one-a
ok 'its mount point too' test ! -e "$gone"
is 'the parent is not' "$(cat "$path/dir/file")" data
(cd "$path" && exec sleep 30) &
sleeper=$!
wait_for 10 sleeps
bough_fails 'rm of one that is in use' 5 "in use by sleep \\(pid $sleeper\\); .*--force" rm one
is 'it is all there' "$(cat "$path/dir/file")" data
bough_ok 'rm of one that nobody uses' rm two
bough_ok 'or by force' rm --force one
kill $sleeper 2>/dev/null
bough_ok 'rm of all' rm $(bough ls -q)
is 'none is left' "$(bough ls -q)" ''
bough_ok 'gc' gc
bough_ok 'stats' stats
like 'times in units' "$out" $'\n  cpu  +[0-9.]+(ns|us|ms|s)\n'
bough_ok 'exact ones' stats --bytes
like 'if wanted' "$out" $'\n  cpu ns  +[0-9]+\n'
fsck_clean
done_testing
