#!/bin/bash
# diff: what it names, its three forms, and its JSON.
. "${0%/*}/lib.sh"
need_fuse

mkdir -p "$T/tree/dir" "$T/tree/moving"
seq 1 20 >"$T/tree/text"
for f in gone mode kind moving/a moving/b; do echo "$f" >"$T/tree/$f"; done
ln -s old "$T/tree/link"
head -c 100000 /dev/urandom >"$T/tree/binary"
bough_ok 'create' create w --dir "$T/tree"
w=$out
bough_ok 'nothing differs at first' diff w
is 'no line' "$out" ''
bough_ok 'as JSON' diff w --json
is 'no item' "$(json '.items | length')" 0

cd "$w" || exit 1
sed -i 's/^7$/seven/' text
rm gone
chmod 600 mode
rm kind && ln -s away kind
mv moving moved
echo new >dir/new
ln -sfn new link
printf x | dd of=binary bs=1 seek=5000 conv=notrunc status=none
touch dir
echo 'tab	name' >$'a\ttab'
cd "$T" || exit 1

bough_ok 'name-status' diff w
is 'what differs, in order of path' "$out" "$(printf '%s\n' \
	'A	"a\ttab"' 'M	binary' 'A	dir/new' 'D	gone' 'T	kind' 'M	link' 'M	mode' \
	'R	moving	moved' 'M	text')"
bough_ok '--name-status is the same' diff w --name-status
bough_ok '--stat' diff w --stat
like 'stat counts lines' "$out" 'text +\| +2 \+-'
bough_ok '--patch' diff w --patch
like 'the patch has the line' "$out" $'\n-7\n\\+seven\n'
# git knows one bit of it, and the newer ones refuse a patch of the others alone.
ok 'a mode that git has no form for is a line beside' \
	grep -qx 'Modes of a/mode (0644) and b/mode (0600) differ' "$T/.out"
ok 'and no part of the patch' not grep -q '^old mode' "$T/.out"
ok 'a renamed folder: its files are renamed' \
	grep -qx 'rename from moving/a' "$T/.out"
ok 'git can apply it' git -C "$T/tree" apply --check --include=text --include=dir/new - <"$T/.out"
bough_ok '--json' diff w --json
is 'a line for each as JSON' "$(json '.items | length')" 9
is 'kinds' "$(json '[.items[].kind] | sort | group_by(.) | map("\(.[0]) \(length)") | join(" ")')" \
	'added 2 deleted 1 modified 4 renamed 1 type 1'
is 'what of the mode' "$(json '.items[] | select(.path == "mode") | .what | join(" ")')" mode
is 'the old mode' "$(json '.items[] | select(.path == "mode") | .old.mode')" 0644
is 'the old path' "$(json '.items[] | select(.kind == "renamed") | .old_path')" moving
is 'no colours in a pipe' "$(bough diff w | grep -c $'\e')" 0
run script -qec "env TERM=xterm bough diff w" /dev/null
like 'colours on a terminal' "$out" $'\e\\[3'
run script -qec "env TERM=xterm NO_COLOR=1 bough diff w" /dev/null
is 'but not with NO_COLOR' "$(grep -c $'\e' <<<"$out")" 0

# ---- against

bough_ok 'fork' fork w v
echo more >>"$(at v)/text"
bough_ok 'against a workspace' diff v --against w
is 'only what the fork changed' "$out" $'M\ttext'
bough_ok 'save' save w --as s
bough_ok 'nothing since the save' diff w
is 'no line then' "$out" ''
bough_ok 'against a snapshot' diff v --against s
is 'again only that' "$out" $'M\ttext'
bough_ok 'another lineage' create x --dir "$T/tree"
bough_ok 'against another lineage' diff x --against w --json
like 'is compared by path' "$(json '[.items[].path] | join(" ")')" 'text'

# ---- snapshots on both sides

echo two >>"$w/text"
bough_ok 'save again' save w --as s2
bough_ok 'a snapshot against its parent' diff s2
is 'what it changed' "$out" $'M\ttext'
bough_ok 'a snapshot against a snapshot' diff s --against s2 --patch
like 'the other way round' "$out" $'\n-two$'
bough_ok 'by id, as JSON' diff "$(bough snapshots show s2 --json | jq -r .id)" --against s --json
is 'an item' "$(json '.items | map(.path) | join(" ")')" text
bough_ok 'a snapshot against a workspace' diff s2 --against w
is 'no line' "$out" ''
bough_fails 'a snapshot against what is not there' 3 'no snapshot or workspace "nothing"' \
	diff s2 --against nothing
bough_fails 'neither is there' 3 'no workspace, snapshot or sandbox "nowhere"' diff nowhere --against nothing
bough_ok 'a snapshot of that name too' snapshots tag s v
bough_fails 'none of the two is taken' 4 '"v" is a workspace .* and a snapshot .*: give the id' diff v --against w
bough_ok 'but by its id' diff "$(bough show v --json | jq -r .id)" --against w
is 'the workspace' "$out" $'M\ttext'

# ---- other types of files at a path, and files that git has no form for

bough_ok 'create' create types
types=$out
(cd "$types" && mkdir -p dir/sub moving && echo a >dir/a && echo b >dir/sub/b && echo f >file &&
	echo z >zfile && echo m >moving/m && echo n >moving/n && mkfifo fifo old-fifo fifo-2)
bough_ok 'save' save types --as types-1
(cd "$types" && git init -q "$T/types.git" && cp -a dir moving file zfile "$T/types.git")
(cd "$types" && rm -r dir file zfile fifo fifo-2 && echo now a file >dir && mkdir file && echo in >file/in &&
	mkfifo zfile && echo plain >fifo && mv moving aaa && echo more >>aaa/n && mv old-fifo new-fifo &&
	python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock\tet")' && chmod 600 new-fifo)
bough_ok 'diff' diff types
is 'T for another type, a line for each in a folder' "$out" "$(printf '%s\n' $'R\tmoving\taaa' \
	'M	aaa/n' 'T	dir' 'D	dir/a' 'D	dir/sub' 'D	dir/sub/b' 'T	fifo' 'D	fifo-2' 'T	file' \
	'A	file/in' $'R\told-fifo\tnew-fifo' 'A	"sock\tet"' 'T	zfile')"
bough_ok 'as JSON' diff types --json
is 'both sides of the folder' "$(json '.items[] | select(.path == "dir") | .kind + " " + .old.type + " " + .new.type')" \
	'type dir file'
bough_ok 'stat' diff types --stat
is 'in order of path, renamed ones too' "$(sed '$d; s/ *|.*//; s/.* => //; s/^ //' <<<"$out" | tr '\n' ' ')" \
	"$(printf '%s\n' aaa/m aaa/n dir dir/a dir/sub/b fifo fifo-2 file file/in new-fifo '"sock\tet"' zfile | tr '\n' ' ')"
bough_ok 'patch' diff types --patch
is 'special files are told' "$(grep '^Special' <<<"$out")" "$(printf '%s\n' \
	'Special files a/fifo (fifo, mode 0644) and /dev/null differ' \
	'Special files a/fifo-2 (fifo, mode 0644) and /dev/null differ' \
	'Special files a/old-fifo (fifo, mode 0644) and b/new-fifo (fifo, mode 0600) differ' \
	'Special files /dev/null and "b/sock\tet" (socket, mode 0755) differ' \
	'Special files /dev/null and b/zfile (fifo, mode 0644) differ')"
is 'no mode that git refuses' "$(grep -cE '^(new|old|deleted)( file)? mode 0' <<<"$out")" 0
ok 'git applies it' git -C "$T/types.git" apply - <"$T/.out"
is 'and has what the workspace has' "$(cd "$T/types.git" && find . -path ./.git -prune -o -type f -print | sort | xargs sha256sum)" \
	"$(cd "$types" && find . -type f | sort | xargs sha256sum)"

# ---- what does not count

cp -p "$w/text" "$T/text" && cat "$T/text" >"$w/text" && touch "$w/mode"
bough_ok 'the same bytes written again, and a touch' diff w
is 'are no difference' "$out" ''
setfattr -n user.x -v 1 "$w/text"
bough_ok 'an attribute' diff w --json
is 'is one' "$(json '.items[0].what | contains(["xattr"])')" true

# ---- names that aren't UTF-8

bough_ok 'create' create names
names=$out
touch "$names/was"$'\xff' "$names/käse"
bough_ok 'save' save names
mv "$names/was"$'\xff' "$names/is"$'\xfe' && echo x >"$names/käse"
bough_ok 'as JSON' diff names --json
is 'come in base64, the others as they are' "$(json '[.items[] | "\(.path) \(.path_b64) \(.old_path) \(.old_path_b64)"] | sort | join(", ")')" \
	"käse null null null, null $(printf 'is\xfe' | base64) null $(printf 'was\xff' | base64)"

# ---- a lot

bough_ok 'create' create big
mkdir "$(at big)/d"
(cd "$(at big)/d" && seq 1 5000 | xargs touch)
bough_ok 'diff of 5,000 files' diff big
is 'all of them' "$(wc -l <<<"$out")" 5001
run bash -c 'bough diff big | head -n 1'
is 'a reader that leaves is no error message' "$err" ''
bough_fails 'against what is not there' 3 nothing diff w --against nothing
done_testing
