#!/bin/bash
# Flipped bytes, torn tails, missing files in the store, images, layers and the catalog: EIO for
# that content only, a line that names it, everything else served, nothing silently wrong.
. "${0%/*}/lib.sh"
need_fuse

. "$BOUGH_SRC/tests/e2e/damage.sh"


# ---- a byte of a pack

fresh
pack=$(find "$BOUGH_ROOT/store/packs" -type f -printf '%s %p\n' | sort -n | tail -n 1 | cut -d' ' -f2)
ok "there is a pack (${pack#"$BOUGH_ROOT/"})" test -n "$pack"
flip "$pack" $(($(stat -c %s "$pack") / 2))
bough_ok 'up with a damaged pack' up
read -r right failed wrong < <(read_all "$(at w)")
is 'no file has wrong bytes' "$wrong" 0
is 'one file cannot be read' "$failed" 1
is 'all others are right' "$right" $((total - 1))
run bash -c "cat '$(at w)'/file-* >/dev/null"
like 'the error is EIO' "$err" 'Input/output error'
run bough fsck
is 'fsck ends with 1' $code 1
like 'fsck names pack and object' "$out" '([0-9a-f]{16}|pack)'
run bough fsck --json
is 'as JSON with one fault at least' "$(json '.faults | length > 0')" true
like 'and the workspace that needs it' "$(json '[.faults[].workspaces[]?] | join(" ")')" '(w|ws_)'
like 'the log names workspace, file and object' "$(grep ERROR "$BOUGH_ROOT/run/bough-fs.log")" \
	'workspace ws_[a-z2-7]{10}: file-[1-5], inode [0-9]+: content in object [0-9a-f]{64}: '
run bough show w
like 'show tells it' "$out" $'\ndamage +file-[1-5], inode [0-9]+: content in object [0-9a-f]{64}'
like 'so does ls' "$(bough ls)" $'\nw +damaged '
run bough export s -o "$T/x.tar"
ok 'an export of it fails' test $code != 0
ok 'and leaves no file' test ! -e "$T/x.tar"
bough_ok 'other work goes on' create fine
echo x >"$(at fine)/file"
bough_ok 'also saving' save fine

# ---- a torn tail of a pack, and a missing one

fresh
pack=$(find "$BOUGH_ROOT/store/packs" -type f -size +400k | head -n 1)
truncate -s -50000 "$pack"
run bough up
is 'up with a torn pack' $code 0
read -r right failed wrong < <(read_all "$(at w)")
is 'torn: no wrong bytes' "$wrong" 0
ok "torn: some are right, some fail ($right, $failed)" test "$failed" -ge 1 -a $((right + failed)) = "$total"
run bough fsck
is 'torn: fsck ends with 1' $code 1
fresh
find "$BOUGH_ROOT/store/packs" -type f -size +400k -delete
run bough up
is 'up with a missing pack' $code 0
read -r right failed wrong < <(read_all "$(at w)")
is 'missing: no wrong bytes' "$wrong" 0
ok 'missing: its files fail' test "$failed" -ge 1
run bough fsck
is 'missing: fsck ends with 1' $code 1
# The index forgets what was there, and nobody may think that it is mended.
for i in 1 2; do
	run bough fsck --repair
	is 'missing: a repair brings nothing back' $code 1
	like 'missing: and says so' "$err" "[0-9]+ faults couldn't be repaired"
done
like 'missing: the snapshot that is lost is named' "$out" \
	"manifest: .*needed by $(bough show w --json | jq -r .head)"

# ---- the index is a cache

fresh
find "$BOUGH_ROOT/store" -type f \( -name '*.mdb' -o -name '*.lmdb' -o -path '*index*' \) -delete
bough_ok 'up without the index' up
is 'it was rebuilt' "$(read_all "$(at w)")" "$total 0 0"
fsck_clean 'fsck is clean then'
fresh
index=$(find "$BOUGH_ROOT/store" -type f \( -name '*.mdb' -o -name '*.lmdb' -o -path '*index*' \) -size +0 | head -n 1)
[ -z "$index" ] || dd if=/dev/urandom of="$index" bs=4096 count=3 conv=notrunc status=none
run bough up
is 'up with a scribbled index' $code 0
is 'it was rebuilt too' "$(read_all "$(at w)")" "$total 0 0"

# ---- an image

fresh
image=$(find "$BOUGH_ROOT/images" -type f -size +0 | head -n 1)
ok 'there is an image' test -n "$image"
for at in 100 -3000 $(($(stat -c %s "$image") / 2)); do
	flip "$image" "$at"
	bough up >/dev/null 2>&1
	path=$(at w)
	read -r right failed wrong < <(read_all "${path:-/nowhere}")
	is "a byte of the image at $at: no wrong bytes" "$wrong" 0
	run bough fsck
	is "a byte of the image at $at: fsck tells" $code 1
	ok 'the service runs' bough ls -q
	bough down >/dev/null 2>&1
	flip "$image" "$at"
done
bough_ok 'with the byte back all is back' up
is 'every file' "$(read_all "$(at w)")" "$total 0 0"

# ---- a journal

fresh
bough up >/dev/null
echo later >"$(at w)/later"
sync -f "$(at w)/later"
bough down >/dev/null
damaged=0
while IFS= read -r j; do
	size=$(stat -c %s "$j")
	[ "$size" -gt 300 ] || continue
	cp "$j" "$T/journal"
	for at in 20 $((size / 2)); do
		flip "$j" "$at"
		bough up >/dev/null 2>&1
		path=$(at w)
		read -r right failed wrong < <(read_all "${path:-/nowhere}")
		damaged=$((damaged + wrong))
		bough ls -q >/dev/null 2>&1 || damaged=$((damaged + 1000))
		bough down >/dev/null 2>&1
		kill_hard boughd bough-fs
		cp "$T/journal" "$j"
	done
done < <(find "$BOUGH_ROOT/layers" "$BOUGH_ROOT/ws" -type f -name '*journal*' 2>/dev/null)
is 'a flipped byte in a journal: never wrong bytes, the service runs' $damaged 0

# ---- the catalog

fresh
printf 'garbage%.0s' $(seq 2000) | dd of="$BOUGH_ROOT/catalog.db" conv=notrunc status=none
run bough ls
ok 'a damaged catalog is told, or rebuilt at once' test $code = 0 -o $code = 1
run bough fsck --repair
bough_ok 'after a repair the workspaces are there' path w
is 'with every file' "$(read_all "$out")" "$total 0 0"
bough_ok 'and the snapshots' snapshots show s
fresh
rm -f "$BOUGH_ROOT"/catalog.db*
run bough ls -q
[ $code = 0 ] || run bough fsck --repair
is 'a lost catalog comes back from what lies beside the data' "$(bough ls -q)" w
done_testing
