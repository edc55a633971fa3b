#!/bin/bash
# bough merge: what one fork changed goes into the other, all of it or nothing.
. "${0%/*}/lib.sh"
need_fuse

tree() { # a description of the whole tree of a workspace: names, modes, links, contents
	(cd "$(bough path "$1")" && find . -printf '%p %y %m %l\n' | sort &&
		find . -type f -print0 | sort -z | xargs -0 sha256sum)
}
at() { bough path "$1"; }
fresh() { # a base with two forks, `ours` and `theirs`
	bough rm --now ours theirs base >/dev/null 2>&1
	bough create base >/dev/null || bail 'create'
	(
		cd "$(at base)" || exit 1
		mkdir -p src/deep docs old/sub
		seq 1 100 >src/lines
		echo one >src/one
		echo two >src/two
		echo deep >src/deep/file
		echo a >docs/a
		echo b >docs/b
		echo x >old/x
		echo y >old/sub/y
		ln -s one src/link
		ln src/two docs/two-again
		head -c 300000 /dev/urandom >big
		printf 'bin\0ary' >binary
	)
	bough fork base ours >/dev/null && bough fork base theirs >/dev/null || bail 'fork'
	O=$(at ours) TH=$(at theirs)
}
merge() { run bough merge theirs --into ours; }

# ---- what goes together

fresh
(
	cd "$TH" || exit 1
	sed -i 's/^90$/ninety/' src/lines
	echo more >>src/one
	mkdir -p new/dir
	echo n >new/dir/n
	ln new/dir/n new/hard
	ln -s dir/n new/link
	ln -sfn two src/link
	mkfifo new/fifo
	chmod 750 src/deep
	chmod +x src/two
	mv docs handbook
	mv src/deep/file src/deep/renamed
	rm -r old
	setfattr -n user.note -v theirs big 2>/dev/null
	printf 'x' | dd of=big bs=1 seek=150000 conv=notrunc status=none
	truncate -s 5M sparse
)
(
	cd "$O" || exit 1
	sed -i 's/^10$/ten/' src/lines
	echo mine >mine
	echo changed >docs/a # theirs moved its folder
	mv src code
)
ino=$(stat -c %i "$O/code/lines")
exec 5<"$O/mine"
merge
is 'merges' "$code" 0
like 'says how much' "$out" '^[0-9]+ added, [0-9]+ removed, [0-9]+ moved, [0-9]+ changed, 1 merged$'
is 'a text that both changed' "$(sed -n '10p;90p' "$O/code/lines" | tr '\n' ' ')" 'ten ninety '
is 'follows what ours moved' "$(cat "$O/code/one")" $'one\nmore'
is 'a file edited in a folder that theirs moved' "$(cat "$O/handbook/a")" changed
is 'the folder is gone from its old place' "$(ls -d "$O/docs" 2>/dev/null)" ''
is 'new files' "$(cat "$O/new/dir/n" "$O/new/link")" $'n\nn'
is 'a new hard link' "$(stat -c %h "$O/new/dir/n")" 2
is 'old hard link stays one' "$(stat -c %i "$O/code/two")" "$(stat -c %i "$O/handbook/two-again")"
is 'symlink' "$(readlink "$O/code/link")" two
is 'fifo' "$(stat -c %F "$O/new/fifo")" fifo
is 'modes' "$(stat -c %a "$O/code/deep" "$O/code/two" | tr '\n' ' ')" '750 755 '
is 'renamed inside of a moved folder' "$(cat "$O/code/deep/renamed")" deep
is 'removed' "$(ls -d "$O/old" 2>/dev/null)" ''
ok 'a big file' cmp "$O/big" "$TH/big"
is 'xattr' "$(getfattr --only-values -n user.note "$O/big" 2>/dev/null)" theirs
is 'sparse' "$(stat -c '%s %b' "$O/sparse")" '5242880 0'
is 'what ours made stays' "$(cat "$O/mine")" mine
is 'a descriptor from before reads on' "$(cat <&5)" mine
exec 5<&-
is 'the text keeps its inode' "$(stat -c %i "$O/code/lines")" "$ino"
is 'theirs is untouched' "$(sed -n '10p' "$TH/src/lines")" 10
is 'nothing is left aside' "$(ls -A "$O" | grep bough-merge)" ''
is 'one workspace more than before: none' "$(bough ls --json | jq '.items | length')" 3
merge
is 'once more: nothing' "$code:$out" '0:nothing to merge'
bough_ok 'saves and reads back' save ours --as merged
is 'fsck is clean' "$(bough fsck >/dev/null 2>&1; echo $?)" 0

# Names that are swapped, and a folder that takes a file's name.
fresh
(cd "$TH" && mv docs/a t && mv docs/b docs/a && mv t docs/b && rm binary && mkdir binary && echo in >binary/in)
merge
is 'swaps' "$code:$(cat "$O/docs/a" "$O/docs/b" | tr '\n' ' ')" '0:b a '
is 'a file becomes a folder' "$(cat "$O/binary/in")" in

# A folder that takes another's name.
fresh
(cd "$TH" && rm -r docs && mv old docs)
merge
is 'a folder in the place of another' "$code:$(cd "$O" && find docs old 2>/dev/null | sort | tr '\n' ' ')" \
	'0:docs docs/sub docs/sub/y docs/x '

# Folders that change places, and one that becomes a file.
fresh
(cd "$TH" && mv docs t && mv src docs && mv t src && rm docs/one && mkdir docs/new && mv old docs/new/ && rm -r src && echo f >src)
want=$(tree theirs)
merge
is 'folders change places' "$code:$(tree ours)" "0:$want"

# The same change in both is none.
fresh
for w in "$TH" "$O"; do
	(cd "$w" && echo same >src/one && echo same >src/new && mkdir d && echo s >d/s && rm docs/a && mv src/two src/zwei)
done
merge
is 'equal changes' "$code:$out" '0:nothing to merge'
(cd "$TH" && echo more >d/more)
merge
is 'into a folder that both made' "$code:$(cat "$O/d/more")" 0:more

# A snapshot, and a workspace made from one.
fresh
bough save base --as root >/dev/null
bough create late --from root >/dev/null
echo late >"$(at late)/late"
bough save late --as done >/dev/null
run bough merge done --into base
is 'from a snapshot' "$code:$(cat "$(at base)/late" 2>&1)" 0:late
bough rm --now late >/dev/null

# ---- conflicts: listed, and nothing is changed

conflict() { # DESCRIPTION PATH WHY
	local before
	before=$(tree ours)
	merge
	is "$1: exit code" "$code" 4
	like "$1: says why" "$err" "  $2: $3"
	is "$1: nothing changed" "$(tree ours)" "$before"
	is "$1: nothing left behind" "$(ls "$BOUGH_ROOT/ws" | wc -l)" 3
}
fresh
sed -i 's/^50$/fifty/' "$TH/src/lines"
sed -i 's/^50$/FIFTY/' "$O/src/lines"
echo elsewhere >"$TH/elsewhere"
conflict 'one line' src/lines 'changed in both'
run bough merge theirs --into ours --json
is 'as JSON' "$(jq -r '.error.details.conflicts[0].path' <<<"$out")" src/lines
fresh
printf '1\0' >"$TH/binary"
printf '2\0' >"$O/binary"
conflict 'binary' binary 'changed in both'
fresh
echo 1 >"$TH/src/odd"$'\xff'
echo 2 >"$O/src/odd"$'\xff'
conflict 'a name that is not UTF-8' "\\\$'src/odd\\\\377'" 'new in both'
run bough merge theirs --into ours --json
is 'as JSON' "$(jq -r '.error.details.conflicts[0] | "\(.path) \(.path_b64)"' <<<"$out")" "null $(printf 'src/odd\xff' | base64)"
fresh
echo t >"$TH/src/one"
rm "$O/src/one"
conflict 'changed and removed' src/one 'changed there, removed here'
fresh
rm "$TH/src/one"
echo o >"$O/src/one"
conflict 'removed and changed' src/one 'removed there, changed here'
fresh
rm -r "$TH/old"
echo n >"$O/old/new"
conflict 'a folder with something new' old 'removed there, has new entries here'
fresh
echo t >"$TH/docs/new"
rm -r "$O/docs"
conflict 'into a removed folder' docs/new 'its folder was removed here'
fresh
echo t >"$TH/new"
echo o >"$O/new"
conflict 'new in both' new 'new in both'
fresh
mv "$TH/src/one" "$TH/1"
mv "$O/src/one" "$O/eins"
conflict 'moved apart' src/one 'moved to different places'
fresh
mv "$TH/src/one" "$TH/src/1"
echo o >"$O/src/1"
conflict 'moved onto a name' src/1 'moved there to a name that is taken here'
fresh
chmod 600 "$TH/src/one"
chmod 640 "$O/src/one"
conflict 'modes' src/one 'mode, owner or xattrs'
fresh
mkdir -p "$TH/a" "$TH/b" "$O/a" "$O/b"
mv "$TH/src" "$TH/docs/"
mv "$O/docs" "$O/src/"
merge
is 'folders moved into each other: exit code' "$code" 4
like 'folders moved into each other: says why' "$err" 'moved into each other'
ok 'folders moved into each other: nothing changed' test -e "$O/src/docs/a"

# ---- what can't be

fresh
bough create stranger >/dev/null
run bough merge stranger --into ours
is 'no common origin: exit code' "$code" 4
like 'no common origin: says so' "$err" 'no common origin'
run bough merge nobody --into ours
is 'unknown' "$code" 3
run bough merge theirs
is 'without --into' "$code" 2
run bough merge ours --into ours
is 'into itself' "$code" 2

# Hostile names and links: nothing outside is touched.
mkdir "$T/outside"
echo secret >"$T/outside/file"
ln -s "$T/outside" "$TH/evil"
rm -r "$O/docs" && ln -s "$T/outside" "$O/docs"
echo pwned >"$TH/docs/file"
echo pwned >"$TH/docs/a"
merge
is 'a link in the place of a folder' "$code" 4
is 'outside is as it was' "$(ls "$T/outside"; cat "$T/outside/file")" $'file\nsecret'
rm "$O/docs"

# Written to all the while: nothing that was written is lost.
fresh
echo t >"$TH/t"
(
	cd "$O" || exit 1
	for i in $(seq 1 2000); do
		echo "$i" >"w$i" || exit 1
		[ $((i % 40)) = 0 ] && sleep 0.02
	done
	touch "$T/wrote"
) &
writer=$!
done_one=
for _ in $(seq 1 40); do
	merge
	[ "$code" = 0 ] && done_one=1 && break
	[ "$code" = 5 ] || break
done
wait "$writer"
ok 'merged beside a writer, or told busy' test "$done_one" = 1 -o "$code" = 5
is 'every file that was written is there' "$(ls "$O" | grep -c '^w[0-9]')" 2000
is 'with its content' "$(cat "$O"/w* | sort -n | uniq | wc -l)" 2000

done_testing
