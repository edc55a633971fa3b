#!/bin/bash
# git on the mount: init, add, commit, gc, fsck, worktree; and a fork is clean without reading.
. "${0%/*}/lib.sh"
need_fuse
export GIT_CONFIG_GLOBAL=$T/gitconfig GIT_CONFIG_SYSTEM=/dev/null
git config --global user.name Test && git config --global user.email test@example.org
git config --global init.defaultBranch main && git config --global --add safe.directory '*'
git config --global gc.auto 0

bough_ok 'create' create w
w=$out
run git -C "$w" init -q
is 'git init' $code 0
# A real tree: this project's own sources, several times over.
for i in 1 2 3; do
	mkdir "$w/copy-$i"
	(cd "$BOUGH_SRC" && find fs snapd tools tests -name '*.[ch]' -print0 |
		cpio -0 -pdm --quiet "$w/copy-$i" 2>/dev/null)
done
n=$(find "$w" -name '*.c' | wc -l)
ok "some hundred files ($n)" test "$n" -gt 100
run git -C "$w" add -A
is 'git add' $code 0
run git -C "$w" commit -qm 'the first'
is 'git commit' $code 0
is 'the tree is clean' "$(git -C "$w" status --porcelain)" ''
for i in $(seq 1 20); do
	echo "/* $i */" >>"$w/copy-1/fs/base/err.c"
	git -C "$w" commit -qam "change $i" || break
done
is '20 commits' "$(git -C "$w" rev-list --count HEAD)" 21
run git -C "$w" checkout -q -b side HEAD~10
is 'git checkout' $code 0
git -C "$w" mv copy-2 moved && git -C "$w" commit -qm 'move'
run git -C "$w" checkout -q main
run git -C "$w" merge -q side -m merge
is 'git merge' $code 0
run git -C "$w" fsck --full --strict
is 'git fsck' $code 0
run git -C "$w" gc -q
is 'git gc' $code 0
run git -C "$w" fsck --full
is 'git fsck after gc' $code 0
is 'clean after gc' "$(git -C "$w" status --porcelain)" ''

# ---- forks

sleep 1.1 # what is older than the index needs no look at its content
git -C "$w" update-index -q --refresh
requests() { bough stats --json | jq '.fs.opcodes | (.READ // 0)'; }
bough_ok 'fork' fork w f1 f2
f=$(at f1)
before=$(requests)
is 'a fork is clean' "$(git -C "$f" status --porcelain)" ''
after=$(requests)
files=$(git -C "$f" ls-files | wc -l)
ok "and git read no file to know it ($((after - before)) READs, $files files)" \
	test $((after - before)) -lt $((files / 4))
ok 'the index is as fresh as the parent' git -C "$f" diff-files --quiet
run git -C "$f" commit -q --allow-empty -m 'in the fork'
is 'a commit in the fork' $code 0
is 'is not in the parent' "$(git -C "$w" rev-list --count HEAD)" \
	"$(($(git -C "$f" rev-list --count HEAD) - 1))"
run git clone -q "$w" "$(at f2)/clone"
is 'git clone within the mount' $code 0
run git -C "$w" worktree add -q "$w/tree-2" side
is 'git worktree' $code 0
run git -C "$w" fsck --full
is 'the parent is whole' $code 0
run git -C "$f" fsck --full
is 'the fork is whole' $code 0

# ---- save, restore: still clean

bough_ok 'save' save f1 --as s
git -C "$f" rm -rqf copy-1 && git -C "$f" commit -qm 'away'
bough_ok 'restore' restore f1 s
is 'clean after a restore' "$(git -C "$f" status --porcelain)" ''
run git -C "$f" fsck --full
is 'whole after a restore' $code 0
bough_ok 'create from the snapshot' create g --from s
is 'clean in a workspace of the snapshot' "$(git -C "$out" status --porcelain)" ''
bough down >/dev/null && bough up >/dev/null
is 'clean after a restart' "$(git -C "$f" status --porcelain)" ''
run git -C "$w" fsck --full
is 'whole after a restart' $code 0

# ---- make sees a fork as fresh

mkdir "$w/build" && cat >"$w/build/Makefile" <<'MK'
out: in
	cp in out
	echo made >>log
in:
	touch in
MK
make -s -C "$w/build" 2>/dev/null
bough_ok 'fork of something built' fork w f3
run make -C "$(at f3)/build" -q
is 'make has nothing to do in the fork' $code 0
done_testing
