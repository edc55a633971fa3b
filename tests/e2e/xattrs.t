#!/bin/bash
# Workspaces that show no extended attributes: what programs hear, what the kernel no longer asks,
# and that nothing of what the tree has is lost, or worth more than before.
. "${0%/*}/lib.sh"
need_fuse

asked() { bough stats --json | jq -r '.fs.opcodes | [.GETXATTR, .LISTXATTR, .SETXATTR, .REMOVEXATTR] | map(. // 0) | add'; }
shown() { bough show "$1" --json | jq .xattrs; } # WORKSPACE
note() { getfattr --absolute-names -n user.note --only-values "$1" 2>&1; }
has_cap() { getfattr -d -m - "$1" 2>/dev/null | grep -q security.capability; }
root() { [ "$(id -u)" = 0 ]; }

mkdir "$T/tree" && echo a >"$T/tree/a" && echo b >"$T/tree/b" && cp /bin/true "$T/tree/true"
cp /bin/true "$T/tree/owned"
setfattr -n user.note -v kept "$T/tree/a" || skip_all 'no xattrs here'
# Of root's files only: another user may set none.
! root || setfattr -n security.capability -v 0x0100000200040000000000000000000000000000 "$T/tree/true" "$T/tree/owned"

bough_ok 'a workspace as ever' create with --dir "$T/tree"
is 'shows them' "$(shown with)" true
is 'one of them' "$(note "$(at with)/a")" kept
bough_ok 'without' create w --dir "$T/tree" --no-xattrs
w=$out
is 'it says so' "$(shown w)" false
like 'to people too' "$(bough show w)" 'xattrs *none'
like 'what the tree has is hidden' "$(note "$w/a")" 'not supported'
like 'nothing can be set' "$(setfattr -n user.x -v y "$w/b" 2>&1)" 'not supported'
like 'or removed' "$(setfattr -x user.note "$w/a" 2>&1)" 'not supported'
cp -p "$w/b" "$w/copy" && chown "$(id -u):$(id -g)" "$w/copy" && ls -l "$w" >/dev/null # the first of each
before=$(asked)
for i in $(seq 50); do echo "$i" >"$w/f$i"; done
cp -p "$w/f1" "$w/copy" && chown "$(id -u):$(id -g)" "$w"/f* && ls -l "$w" >/dev/null
is 'the kernel asks no more' "$(asked)" "$before"

# ---- it stays so

bough_ok 'a fork' fork w v
is 'is the same' "$(shown v)" false
like 'in what it says' "$(note "$(at v)/a")" 'not supported'
bough_ok 'so is one made from it' create u --from w
is 'it is' "$(shown u)" false
bough_ok 'a save' save w --as s
echo more >>"$w/b"
bough_ok 'and the way back' restore w s
is 'leave it so' "$(shown w)" false
kill_hard bough-fs
like 'so does a crash' "$(note "$w/a")" 'not supported'
bough_ok 'and a stop' down
bough_ok 'and a start' up
is 'it is as it was' "$(shown w)" false
like 'when asked' "$(note "$(at w)/a")" 'not supported'

# ---- nothing is lost

bough_ok 'from the snapshot' create x --from s
is 'shows them' "$(shown x)" true
is 'all there' "$(note "$(at x)/a")" kept
mkdir "$T/out" && bough export w | tar xf - -C "$T/out" --xattrs --xattrs-include='*'
is 'an archive has them' "$(note "$T/out/a")" kept

if root; then
	ok 'a capability that nobody touched is kept' has_cap "$(at x)/true"
	ok 'and hidden' not has_cap "$w/true"
	# As on any filesystem it ends with the content that it was given for; root's write too.
	cat /bin/false >"$w/true"
	chown 1:1 "$w/owned"
	bough_ok 'saved after a write' save w --as t
	bough_ok 'a look at it' create y --from t
	ok 'a write has ended it' not has_cap "$(at y)/true"
	ok 'a change of owner too' not has_cap "$(at y)/owned"
	ok 'in that fork alone' has_cap "$(at x)/owned"
fi

# ---- a merge brings what can't be seen

bough_ok 'one that shows them' create z --from s
echo theirs >>"$(at z)/b" && setfattr -n user.new -v brought "$(at z)/b"
bough_ok 'is merged into one that does not' merge z --into u
bough_ok 'which is saved' save u --as m
bough_ok 'and looked at' create q --from m
is 'it came along' "$(getfattr --absolute-names -n user.new --only-values "$(at q)/b")" brought
is 'and is hidden' "$(shown u)" false
done_testing
