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

# ---- what does not count

cp -p "$w/text" "$T/text" && cat "$T/text" >"$w/text" && touch "$w/mode"
bough_ok 'the same bytes written again, and a touch' diff w
is 'are no difference' "$out" ''
setfattr -n user.x -v 1 "$w/text"
bough_ok 'an attribute' diff w --json
is 'is one' "$(json '.items[0].what | contains(["xattr"])')" true

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
