#!/bin/bash
# Saving, restoring in place under an open folder, the line of snapshots and their names.
. "${0%/*}/lib.sh"
need_fuse

bough_ok 'create' create w
w=$out
mkdir "$w/dir" && echo one >"$w/dir/file" && echo keep >"$w/keep"
head -c 3000000 /dev/urandom >"$w/big"
sum=$(sha256sum <"$w/big")
bough_ok 'save' save w -m 'the first' --as first
like 'prints the id' "$out" '^sn_[a-z2-7]{10}$'
first=$out

bough_ok 'save of nothing new' save w
is 'gives the same snapshot' "$out" "$first"
like 'and says so' "$err" 'nothing has changed'
bough_ok 'as JSON' save w --json
is 'unchanged is told' "$(json .unchanged)" true

# ---- a save stores what changed

echo two >"$w/dir/file"
printf x | dd of="$w/big" bs=1 seek=1500000 conv=notrunc status=none
bough_ok 'a second save' save w -m 'the second' --json
second=$(json .id)
is 'its parent is the first' "$(json .parent)" "$first"
stored=$(json .stored_bytes)
ok "one byte of 3 MB changed costs a chunk ($stored bytes)" test "$stored" -lt 1500000
bough_ok 'log' log w --json
is 'the line of snapshots' "$(json '[.items[].id] | join(" ")')" "$second $first"
for c in show log path; do
	bough_fails "$c of a snapshot" 3 'is a snapshot: see .bough snapshots show' $c "$first"
done
bough_ok 'log for people' log w
like 'with messages' "$out" 'the second.*the first'

# ---- restore in place: the open folder, its inode numbers, its id

ino=$(stat -c %i "$w/dir") id=$(bough show w --json | jq -r .id)
exec 8<"$w/dir/file" 9<"$w/keep"
cd "$w/dir" || exit 1
rm file && echo other >new && rm -r "$w/big" && chmod 700 "$w/dir" && ln -s x "$w/link"
bough_ok 'restore' restore w first
is 'the shell still stands in the folder' "$(/bin/pwd)" "$w/dir"
is 'a look from inside' "$(cat file)" one
ok 'what was made is gone' test ! -e new -a ! -L ../link
is 'the mode is back' "$(stat -c %a .)" 755
is 'the big file is back' "$(sha256sum <../big)" "$sum"
is 'the folder has its inode number' "$(stat -c %i .)" "$ino"
cd "$T" || exit 1
is 'the id is the same' "$(bough show w --json | jq -r .id)" "$id"
is 'the path too' "$(at w)" "$w"
is 'head is the snapshot' "$(bough show w --json | jq -r .head)" "$first"
is 'an open file that did not differ goes on' "$(cat <&9)" keep
run cat <&8
ok 'an open file whose content differs is stale, or was never read' \
	test "$code" != 0 -o "$out" = two
exec 8<&- 9<&-
bough_ok 'diff is empty' diff w
is 'nothing differs' "$out" ''
bough_ok 'restore forward' restore w "$second"
is 'the second is back' "$(cat "$w/dir/file")" two
bough_ok 'restore by the beginning of an id' restore w "${first:0:9}"
is 'the first again' "$(cat "$w/dir/file")" one

# A writer in the middle of a restore gets through or an error, and the tree is the snapshot's.
(while :; do echo x >"$w/dir/file"; echo y >"$w/dir/$RANDOM"; done) 2>/dev/null &
busy=$!
sleep 0.3
bough_ok 'restore under a writer' restore w first
kill $busy
wait $busy 2>/dev/null
bough_ok 'and once more in peace' restore w first
is 'only what the snapshot has' "$(ls "$w" "$w/dir" | tr '\n' ' ')" "$(printf '%s:\nbig\ndir\nkeep\n\n%s/dir:\nfile\n' "$w" "$w" | tr '\n' ' ')"

# ---- names, messages

bough_ok 'tag' snapshots tag "$second" green release
bough_ok 'show by name' snapshots show green --json
is 'it is that one' "$(json .id)" "$second"
bough_fails 'a name is one snapshot only' 4 green snapshots tag first green
bough_ok 'take a name away' snapshots tag green -r release -m 'a better message'
bough_fails 'it is gone' 3 release snapshots show release
bough_ok 'show' snapshots show green
like 'the new message' "$out" 'a better message'
bough_ok 'ls' snapshots ls
like 'ls has names' "$out" "$second +green"
is 'ls -q' "$(bough snapshots ls -q | sort)" "$(printf '%s\n' "$first" "$second" | sort)"
is 'ls of one workspace' "$(bough snapshots ls --workspace w --json | jq '.items | length')" 2

# ---- forks and creates from snapshots

bough_ok 'create from a snapshot' create v --from green
is 'it has the snapshot' "$(cat "$out/dir/file")" two
bough_ok 'remove the workspace' rm w
bough_ok 'its snapshots stay' snapshots show first
bough_ok 'and can be used' create u --from first
is 'with all their content' "$(sha256sum <"$(at u)/big")" "$sum"

# ---- deleting

bough_fails 'a snapshot that others were made from stays' 4 '' snapshots rm first
bough_ok 'unless forced' snapshots rm --force first
bough_fails 'then it is gone' 3 "$first" snapshots show "$first"
is 'a workspace made from it is whole' "$(sha256sum <"$(at u)/big")" "$sum"
bough_ok 'gc' gc --json
is 'after gc too' "$(sha256sum <"$(at u)/big")" "$sum"
is 'and the other snapshot' "$(bough create t --from green >/dev/null; cat "$(at t)/dir/file")" two

# It, and what was made from it and from that; workspaces stay.
bough_ok 'a line' create line
for name in a b c; do
	echo "$name" >"$(at line)/$name"
	bough_ok "of $name" save line --as "line-$name"
done
bough_ok 'a branch' create branch --from line-a
echo x >"$(at branch)/x"
bough_ok 'of another' save branch --as line-x
bough_fails 'neither alone' 4 'cascade' snapshots rm line-b
bough_fails 'nor in both ways' 2 'either' snapshots rm --cascade --force line-b
bough_ok 'with what was made from it' snapshots rm --cascade line-b
for name in b c; do bough_fails "$name is gone" 3 '' snapshots show "line-$name"; done
bough_ok 'what it was made from stays' snapshots show line-a
bough_ok 'and what was made from that' snapshots show line-x
is 'the workspace stands on it' "$(bough show line --json | jq -r .head)" \
	"$(bough snapshots show line-a --json | jq -r .id)"
is 'and has all' "$(cat "$(at line)"/{a,b,c} | tr '\n' ' ')" 'a b c '
bough_ok 'it is saved anew' save line --as line-d
bough_ok 'all of it' snapshots rm --cascade line-a
is 'goes' "$(bough snapshots ls --json | jq -c '[.items[].names[] | select(startswith("line-"))]')" '[]'
bough_ok 'gc again' gc --json
is 'they are whole' "$(cat "$(at line)"/{a,b,c} "$(at branch)"/{a,x} | tr '\n' ' ')" 'a b c a x '

# ---- saving beside a writer, and gc beside saving

(cd "$(at v)" && for i in $(seq 1 100000); do echo "$i" >"f$((i % 500))"; done) &
busy=$!
bad=0
for i in 1 2 3 4 5; do
	bough save v >/dev/null 2>&1 || bad=$((bad + 1))
	bough gc >/dev/null 2>&1 || bad=$((bad + 1))
done
kill $busy
wait $busy 2>/dev/null
is 'five saves and collections beside a writer' $bad 0
wrong=
for s in $(bough log v -q | head -n 5); do
	bough export "$s" | tar xf - -C "$(mktemp -d "$T/x.XXXX")" || wrong+=" $s"
done
is 'each of them can be exported' "$wrong" ''
# ---- what the store grew by

n=$(bough create noisy)
head -c 1000000 /dev/urandom >"$n/noise"
bough_ok 'a save of noise' save noisy --json
ok "stores all of it ($(json .stored_bytes) bytes)" test "$(json .stored_bytes)" -ge 1000000
cat "$n/noise" >"$n/again"
bough_ok 'a save of what is there already' save noisy --json
ok "stores nothing of it ($(json .stored_bytes) bytes)" test "$(json .stored_bytes)" -lt 100000
fsck_clean
done_testing
