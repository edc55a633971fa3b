#!/bin/bash
# The hook of checkouts with a scope (tools/fsmonitor/outside.h), in a repository of git's own: what
# git writes outside of the scope has both marks, whatever was done, and the index is whole.
. "${0%/*}/lib.sh"
export HOME=$T GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
unset XDG_CONFIG_HOME
git config --global user.name Test && git config --global user.email test@example.org
git config --global init.defaultBranch main && git config --global gc.auto 0
git config --global advice.detachedHead false

git init -q r && cd r || bail 'no git'
mkdir -p doc tools/deep in/it/self in/other && seq 20 | tee doc/r doc/same tools/deep/run in/it/self/x in/other/y >in/top
for i in $(seq 30); do echo "$i" >"tools/f$i"; done
echo root >top && git add . && git commit -qm 1 && git tag v1
echo more | tee -a doc/r tools/f3 in/other/y in/top >/dev/null && git rm -q tools/f9 && echo n >tools/new &&
	git add . && git commit -qm 2 && git tag v2
git sparse-checkout set --cone doc in/it
hook=.git/hooks/post-index-change
mkdir -p .git/bough .git/hooks && printf 'doc\0in/it\0' >.git/bough/folders && cp "$BOUGH_BIN/bough-fsmonitor" $hook

marks() { git ls-files -v | cut -c 1 | sort | uniq -c | xargs; }
sum() { head -c -20 .git/index | sha1sum | cut -c 1-40; }
sum_kept() { tail -c 20 .git/index | od -An -tx1 | tr -d ' \n'; }
both() { # DESCRIPTION: no S, which is skip-worktree alone
	is "$1" "$(git ls-files -v | grep -c '^[Sh]') $(git status --porcelain -uno | grep -v 'doc/r$\|in/top$') $(sum)" \
		"0  $(sum_kept)"
}
was=$(marks)
like 'git marks what is outside once' "$was" ' S$'
$hook
is 'the hook twice' "$(marks)" "${was/% S/ s}"
both 'and nothing else'
for version in 2 4; do
	git update-index --index-version $version
	for what in 'checkout -q v1' 'checkout -q -b side-'$version 'merge -q v2' 'reset -q --hard v1' 'reset -q v2' \
		'reset -q --hard v1' 'cherry-pick v2' 'revert --no-edit HEAD' 'rebase -q v2' 'read-tree -m -u v1' \
		'reset -q --hard main'; do
		# shellcheck disable=SC2086 # its words
		run git $what
		ok "$what, version $version" [ $code = 0 ]
		both 'both marks'
	done
done
ok 'no lock stays' test ! -e .git/index.lock

# Once the scope is wider git looks there, and no more when it is as before.
git sparse-checkout add tools
is 'a wider scope is looked at' "$(echo x >>tools/f1 && git status --porcelain)" ' M tools/f1'
git checkout -q tools/f1 && git sparse-checkout set doc in/it
both 'until it is narrow again'
# Git's own marks in the scope are who set them's.
git update-index --assume-unchanged doc/same && git checkout -q v1
is 'a mark in the scope stays' "$(git ls-files -v doc/same)" 'h doc/same'
git update-index --no-assume-unchanged doc/same && git checkout -q main
git sparse-checkout set doc
is 'a narrower scope is git'\''s' "$(git ls-files -v in/it/self/x)" 'S in/it/self/x'
git sparse-checkout set doc in/it
# A file that somebody puts outside, over a name of the commit.
rm -rf tools && git read-tree HEAD && git sparse-checkout reapply && git reset -q --hard
both 'as at the beginning'
mkdir tools && echo mine >tools/f1 && echo y >>doc/r && git commit -qam 3
is 'is passed over, also after a commit' "$(git status --porcelain)" ''
git update-index --no-assume-unchanged tools/f1
is 'until it is told to look' "$(git status --porcelain)" ' M tools/f1'
git checkout -q -b new HEAD~1 2>/dev/null # it says that one was left
is 'and still, after a checkout' "$(git status --porcelain)" ' M tools/f1'
git reset -q --hard

# The index keeps its time: with a later one a change since would be taken for none.
rm $hook && git checkout -q v1 && touch -d '2020-01-01 00:00:00.5' .git/index
like 'without the hook: once' "$(marks)" ' S '
cp "$BOUGH_BIN/bough-fsmonitor" $hook && $hook
is 'its time stays' "$(stat -c %y .git/index | cut -c 1-21)" '2020-01-01 00:00:00.5'
both 'marked'

# Where git's hooks are in another folder: git's question what changed does it, unless git holds the index.
helper='test -d .git && exec .git/bough/fsmonitor'
cp "$BOUGH_BIN/bough-fsmonitor" .git/bough/fsmonitor && mkdir ../hooks && git config core.fsmonitor "$helper"
git checkout -q main && git config core.hooksPath ../hooks && git checkout -q v1
like 'with core.hooksPath git marks once' "$(marks)" ' S '
is 'a status in between changes nothing' "$(git status --porcelain -uno)" ''
both 'and has marked'
git checkout -q main && touch .git/index.lock && git --no-optional-locks status --porcelain -uno
like 'not where another git is at the index' "$(marks)" ' S '
rm .git/index.lock && cp $hook ../hooks/ && git checkout -q v1
both 'the hook in that folder does it at once'
rm ../hooks/* && printf '#!/bin/sh\nexec .git/hooks/post-index-change\n' >../hooks/post-index-change &&
	chmod +x ../hooks/post-index-change && git checkout -q main
both 'a script that runs it, too'
git config --unset core.hooksPath && git config --unset core.fsmonitor

# What it doesn't understand, or somebody holds, stays.
rm $hook && git checkout -q main && cp "$BOUGH_BIN/bough-fsmonitor" $hook && cp .git/index ../good
touch .git/index.lock && $hook
ok 'a lock is respected' cmp .git/index ../good
rm .git/index.lock && mv .git/bough/folders .git/bough/away && $hook
ok 'without the folders nothing is outside' cmp .git/index ../good
mv .git/bough/away .git/bough/folders
size=$(stat -c %s ../good) kept=0
for at in $(seq 0 131 "$((size - 1))"); do # cut short there, or another byte
	head -c "$at" ../good >.git/index && cp .git/index ../bad && $hook && cmp -s .git/index ../bad &&
		cp ../good .git/index && printf '\377' | dd of=.git/index bs=1 seek="$at" conv=notrunc status=none &&
		cp .git/index ../bad && $hook && cmp -s .git/index ../bad && kept=$((kept + 1))
done
is 'one that is damaged' "$kept" "$(seq 0 131 "$((size - 1))" | wc -l)"
is 'no lock stays' "$(ls .git/*.lock 2>/dev/null)" ''
cp ../good .git/index && $hook
both 'and the good one is marked'
rm .git/index && mkfifo .git/index && { timeout 5 $hook || fail 'a fifo'; }
rm .git/index && ln -s ../../good .git/index && $hook
ok 'a link is none of ours' cmp .git/index ../good
rm .git/index && $hook && rm -r .git/bough && $hook
is 'nothing there' $? 0
done_testing
