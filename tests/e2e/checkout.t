#!/bin/bash
# create --git: a checkout that git takes for its own, clean from the first moment.
# A part of it acts as another user: where /dev/fuse is root's alone, in a mount name space with an
# open one.
if [ "$(id -u)" = 0 ] && [ -c /dev/fuse ] && [ -z "${BOUGH_TEST_OWN_FUSE:-}" ] &&
	[ "$(stat -c %a /dev/fuse)" != 666 ] && unshare -m true 2>/dev/null; then
	exec env BOUGH_TEST_OWN_FUSE=1 unshare -m "$0" "$@"
fi
. "${0%/*}/lib.sh"
need_fuse
if [ -n "${BOUGH_TEST_OWN_FUSE:-}" ]; then
	mknod -m 666 "$T/fuse" c 10 229 && mount --bind "$T/fuse" /dev/fuse || skip_all 'no /dev/fuse'
fi
export HOME=$T/home GIT_CONFIG_NOSYSTEM=1 GIT_PAGER=cat
unset XDG_CONFIG_HOME
mkdir "$HOME"
git config --global user.name Test && git config --global user.email test@example.org
git config --global init.defaultBranch main
export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'

git init -q src || bail 'no git'
(
	cd src || exit 1
	mkdir -p lib/deep/er doc tools 'with blank' vendor/sub
	for i in $(seq 300); do echo "line $i" >"lib/f$i.c"; done
	echo deep >lib/deep/er/x && echo d >doc/readme && echo '#!/bin/sh' >tools/run && chmod 755 tools/run
	echo q >'with blank/"q"' && ln -s lib/f1.c link && ln -s nowhere dangling
	printf '*.o\n/build\n' >.gitignore && echo '*.tmp' >lib/.gitignore
	printf '*.bat text eol=crlf\n*.id ident\n* text=auto\n' >.gitattributes
	printf 'one\ntwo\n' >run.bat && echo '$Id$' >v.id
	head -c 1500000 /dev/urandom >large
	git add -A && git update-index --add \
		--cacheinfo 160000,1234567890123456789012345678901234567890,vendor/sub
	git commit -qm 'the first' && git tag v1
	echo more >>lib/f1.c && git rm -q lib/f2.c && git commit -qam 'the second'
	git branch side v1
	GIT_COMMITTER_DATE='4000000000 +0000' git commit -q --allow-empty -m 'from the future'
	git branch future && git reset -q --hard HEAD~1
) || bail 'no repository'
git clone -q src plain # git's own checkout, to compare with

bough_ok 'repo add' repo add "$T/src" --name src

status() { git -C "$1" status --porcelain 2>&1; } # WORK TREE
# Requests that a git which looks at each file would send for each.
looks() { bough stats --json | jq '.fs.opcodes | (.READ // 0) + (.LOOKUP // 0) + (.GETATTR // 0)'; }
same_as() { # DESCRIPTION WORKSPACE CHECKOUT
	run diff -r --no-dereference --exclude=.git "$2" "$3"
	is "$1" "$code$out" 0
}

bough_ok 'create' create a --git src
a=$out
same_as 'the files are git'\''s' "$a" plain
is 'git status is clean' "$(status "$a")" ''
is 'on the branch of its HEAD' "$(git -C "$a" symbolic-ref HEAD)" refs/heads/main
is 'it follows origin'\''s' "$(git -C "$a" rev-parse --abbrev-ref '@{u}')" origin/main
is 'with its history' "$(git -C "$a" log --format=%H)" "$(git -C src log --format=%H)"
is 'and its tag' "$(git -C "$a" rev-parse v1)" "$(git -C src rev-parse v1)"
run git -C "$a" fsck --strict
is 'git fsck' $code 0
is 'nothing of other branches is there' "$(git -C "$a" cat-file -t future 2>&1)" \
	'fatal: Not a valid object name future'
ok 'a submodule is an empty folder' test -d "$a/vendor/sub"
is 'ends of lines as .gitattributes says' "$(od -c "$a/run.bat" | head -n 1)" \
	"$(od -c plain/run.bat | head -n 1)"
is 'a file is as old as the commit' "$(stat -c %Y "$a/lib/f1.c")" 1700000000
run git -C "$a" -c core.fsmonitor=false status --porcelain
is 'clean by stat data too' "$code$out" 0
run git -C "$a" -c core.fsmonitor=false -c core.untrackedCache=false status --porcelain
is 'and without the untracked cache' "$code$out" 0

# Untracked cache: as it came, no folder is read.
bough_ok 'another' create b --git src
b=$out
before=$(looks)
is 'its first git status is clean' "$(status "$b")" ''
n=$(($(looks) - before))
ok "and looks at few of 311 files ($n requests)" test $n -lt 100
GIT_TRACE2_PERF=$T/perf git -C "$b" status >/dev/null
is 'git opened no folder' "$(grep -c 'opendir:0' "$T/perf")" 1
is 'and no pattern file was news' "$(grep -c 'gitignore-invalidation:0' "$T/perf")" 1
ok 'the second is as the first' cmp <(cd "$a" && stat -c '%n %i %s %Y %Z %f' lib/* doc) \
	<(cd "$b" && stat -c '%n %i %s %Y %Z %f' lib/* doc)
is 'its own changes are seen' "$(
	echo x >>"$b/lib/f3.c" && rm "$b/lib/f4.c" && echo n >"$b/new" && touch "$b/x.o"
	status "$b"
)" ' M lib/f3.c
 D lib/f4.c
?? new'
is 'the first knows nothing of it' "$(status "$a")" ''

# A status after changes leaves the index as it is: to write it costs more than to look again. At
# another path, where the untracked cache isn't trusted, git makes its own, and says nothing.
bough_ok 'a third' create uc --git src
c=$out
index() { stat -c '%i %Y %Z' "$1/.git/index"; }
had=$(index "$c")
status "$c" >/dev/null && echo x >>"$c/lib/f3.c" && echo n >"$c/doc/new"
is 'changes are seen' "$(status "$c")" $' M lib/f3.c\n?? doc/new'
is 'and again' "$(status "$c")" $' M lib/f3.c\n?? doc/new'
is 'the index was not written' "$(index "$c")" "$had"
bough_ok 'fork' fork uc ud
d=$(bough path ud)
is 'a fork sees them, without a word' "$(status "$d")" $' M lib/f3.c\n?? doc/new'
GIT_TRACE2_PERF=$T/perf2 git -C "$d" status >/dev/null
is 'and opens no folder the second time' "$(grep -c 'opendir:0' "$T/perf2")" 1
if [ "$(id -u)" = 0 ]; then
	mkdir elsewhere
	# Not by the hook's help: git writes the cache for that path without it.
	unshare -m sh -c "mount --bind '$c' elsewhere && git -C elsewhere -c core.fsmonitor=false status" >/dev/null
	status "$c" >/dev/null # which may say that the cache is another's
	is 'what another path left is mended' "$(status "$c")" $' M lib/f3.c\n?? doc/new'
	GIT_TRACE2_PERF=$T/perf3 git -C "$c" status >/dev/null
	is 'and the cache is in use' "$(grep -c 'opendir:0' "$T/perf3")" 1
	unshare -m sh -c "mount --bind '$d' elsewhere && git -C elsewhere status --porcelain" >other 2>&1
	is 'at another path' "$(cat other)" $' M lib/f3.c\n?? doc/new'
	# One that was made to be seen there has its cache for that path.
	bough_ok 'a fourth' create ue --git src --seen-at "$PWD/elsewhere"
	unshare -m sh -c "mount --bind '$out' elsewhere && cd elsewhere && GIT_TRACE2_PERF='$T/perf4' git status --porcelain &&
		echo x >>lib/f3.c && git status --porcelain" >other 2>&1
	is 'seen there' "$(cat other)" ' M lib/f3.c'
	is 'where git opened no folder at the first status' "$(grep -c 'opendir:0' "$T/perf4")" 1
	is 'and reads all at its mount point' "$(status "$out")" ' M lib/f3.c'
fi
bough_fails 'seen at no path' 2 "doesn't begin with /" create uf --git src --seen-at here
bough_fails 'seen at nothing' 2 'it is empty' create uf --git src --seen-at ''
bough_fails 'without a checkout' 2 'needs --git' create uf --seen-at /workspace

run git -C "$b" commit -qam 'in the workspace'
is 'git commit' $code 0
like 'how far it is ahead is counted' "$(git -C "$b" status -sb)" '^## [a-z]+\.\.\.origin/main \[ahead 1\]'
run git -C "$b" stash -qu
is 'git stash' $code 0
is 'clean again' "$(status "$b")" ''
run git -C "$b" checkout -q v1
is 'git checkout' "$code$(status "$b")" 0
run git -C "$b" gc -q --prune=now
is 'git gc' $code 0
run git -C "$b" fsck --strict
is 'git fsck after all that' $code 0

# ---- which commit

bough_ok 'a tag' create t --git src --ref v1
t=$out
is 'is checked out detached' "$(git -C "$t" rev-parse HEAD) $(git -C "$t" symbolic-ref -q HEAD)" \
	"$(git -C src rev-parse v1) "
git -C plain checkout -q v1
same_as 'with its files' "$t" plain
is 'and clean' "$(status "$t")" ''
git -C plain checkout -q main
bough_ok 'a new branch' create n --git src --ref side --branch topic/x --depth 1
n=$out
is 'it is on it' "$(git -C "$n" symbolic-ref HEAD)" refs/heads/topic/x
is 'one commit deep' "$(git -C "$n" rev-list --count HEAD)" 1
is 'clean' "$(status "$n")" ''
bough_ok 'a commit by its id' create i --git src --ref "$(git -C src rev-parse --short=10 v1)"
is 'is that' "$(git -C "$out" rev-parse HEAD)" "$(git -C src rev-parse v1)"
bough_ok 'a commit of the future' create f --git src --ref future
is 'has files of the present' "$(($(stat -c %Y "$out/doc/readme") <= $(date +%s)))" 1
is 'and is clean' "$(status "$out")" ''

run bough show n --json
is 'show tells' "$(json '.git | [.name, .ref, .branch, (.base == .anchor)] | tostring')" \
	'["src","refs/remotes/origin/side","topic/x",true]'
run bough show n
like 'in words too' "$out" 'repo +src'

# ---- scope

bough_ok 'a scope' create s --git src --scope lib/deep --scope ./doc/
s=$out
git clone -q src cone && git -C cone sparse-checkout set --cone lib/deep doc
same_as 'the files are those of a cone' "$s" cone
is 'clean' "$(status "$s")" ''
is 'the index has all names' "$(git -C "$s" ls-files -t)" "$(git -C cone ls-files -t)"
libgit2_status() { "$BOUGH_BIN/e2e/libgit2_status" "$1" 2>&1; }
is 'to libgit2, too' "$(libgit2_status "$s")" ''
echo changed >>"$s/doc/readme"
is 'which sees a change' "$(libgit2_status "$s")" '100 doc/readme'
git -C "$s" stash -q && git -C "$s" stash pop -q
run git -C "$s" commit -qam 'in the scope'
is 'a commit in it' $code 0
is 'after which it is clean to both' "$(status "$s")$(libgit2_status "$s")" ''
is 'keeps what is outside' "$(git -C "$s" rev-parse HEAD:tools)" "$(git -C src rev-parse main:tools)"
run git -C "$s" fsck
is 'git fsck' $code 0
run git -C "$s" cat-file -p HEAD:tools/run
like 'content outside: git says why it isn'\''t there' "$err" 'outside of the scope'
ok 'and fails' test $code != 0
mkdir "$s/tools" && echo mine >"$s/tools/run"
is 'what is written outside is none of git'\''s' "$(status "$s")$(libgit2_status "$s")" ''
run bough diff s --since anchor
like 'but bough takes it' "$out" 'M.tools/run'
git -C "$s" update-index --no-assume-unchanged tools/run
is 'until it is told to look' "$(status "$s")" ' M tools/run'
rm -r "$s/tools"
run git -C "$s" merge -q --no-edit --no-ff HEAD~1
is 'a merge that changes nothing outside' $code 0

# What needs contents from outside says so.
git init -q needs && (
	cd needs && mkdir doc tools && seq 20 >doc/r && seq 20 >tools/run && seq 5000 >tools/big && git add . &&
		git commit -qm 1 && git tag v1 && sed -i s/^7$/seven/ tools/run && echo more >>doc/r && git commit -qam 2
) || bail 'no repository'
bough_ok 'repo add' repo add "$T/needs" --name needs
bough_ok 'a scope of it' create o --git needs --scope doc
o=$out
why='fatal: remote error: This object is outside of the scope of this workspace: name paths that are in it,'
says_why() { # git's words
	run git -C "$o" "$@"
	ok "$* fails" [ $code != 0 ]
	like 'and says why' "$err" "$why as in git log -p -- FOLDER. If git was about to tell how many lines"
	is 'and nothing of rights' "$(grep -c 'correct access rights' <<<"$err")" 0
}
says_why sparse-checkout add tools
# A merge of what changed there needs no content of it; and it stays unchanged to libgit2.
unchanged() { is "$1: nothing has changed" "$(status "$o")$(libgit2_status "$o")" ''; } # DESCRIPTION
git -C "$o" checkout -q -b along v1
run git -C "$o" merge main
is 'merge main, a fast-forward' "$code $(git -C "$o" rev-parse HEAD)" "0 $(git -C needs rev-parse main)"
unchanged merge
git -C "$o" reset -q --hard v1 && unchanged reset && echo mine >"$o/doc/mine" && git -C "$o" add doc
run git -C "$o" commit -m mine
is 'commit' $code 0
run git -C "$o" pull --no-rebase --no-edit . main
is 'pull, a merge' "$code $(git -C "$o" rev-parse HEAD:tools)" "0 $(git -C needs rev-parse main:tools)"
unchanged pull
git -C "$o" reset -q --hard HEAD~1
run git -C "$o" rebase main
is 'rebase' "$code $(git -C "$o" rev-parse HEAD:tools)" "0 $(git -C needs rev-parse main:tools)"
unchanged rebase
git -C "$o" config core.hooksPath elsewhere
git -C "$o" reset -q --hard v1 && git -C "$o" merge -q main
unchanged 'merge with core.hooksPath, after git status' # which is asked first
git -C "$o" config --unset core.hooksPath
git -C "$o" reset -q --hard v1
run git -C "$o" merge --squash main
is 'merge --squash' "$code $(git -C "$o" diff --cached --name-only | tr '\n' ' ')" '0 doc/r tools/run '
git -C "$o" reset -q --hard
# Pushed from inside to where there is more by now; and fetched, which brings deltas of what is outside.
git clone -q --bare needs up.git && git clone -q up.git up &&
	(cd up && sed -i s/^9$/nine/ tools/big && git commit -qam 3 && git push -q) || bail 'no upstream'
git -C "$o" checkout -q -b up main && echo up >"$o/doc/up" && git -C "$o" add doc && git -C "$o" commit -qm up
run git -C "$o" push "$T/up.git" up
is 'push' "$code $(git -C up.git rev-parse up)" "0 $(git -C "$o" rev-parse up)"
says_why fetch "$T/up.git" main
run git -C "$o" -c remote.u.url="$T/up.git" -c remote.u.promisor=true -c remote.u.partialCloneFilter=blob:none \
	fetch u main:refs/remotes/u/main
is 'fetch, with contents that git may ask for' $code 0
run git -C "$o" merge --no-edit u/main
is 'and merge' "$code $(git -C "$o" rev-parse HEAD:tools)" "0 $(git -C up rev-parse main:tools)"
run git -C "$o" fsck
is 'git fsck after it' $code 0
# Once the scope is wider, git looks there.
bough_ok 'fork' fork o wide
w=$(at wide)
git -C "$w" -c remote.u.url="$T/up.git" -c remote.u.promisor=true sparse-checkout add tools 2>/dev/null
is 'a wider scope is looked at' "$(echo x >>"$w/tools/run" && git -C "$w" status --porcelain)" ' M tools/run'
git -C "$o" checkout -q -b pick v1
for what in 'log -p main' 'log --stat main' 'show main' 'diff v1 main' 'diff --stat v1 main' 'format-patch --stdout v1..main' \
	'log -S seven main' 'log -G seven main' 'log -L 1,3:tools/run main' 'archive main' 'archive main doc' \
	'blame main tools/run' 'grep seven main' 'bundle create b main' 'rev-list --objects main' 'ls-tree -rl main' \
	'reset main'; do
	# shellcheck disable=SC2086 # its words
	says_why $what
done
# What is in the scope is told of both commits.
for what in 'log -p main' 'diff v1 main' 'log -S more main' 'grep more main' 'archive --worktree-attributes main'; do
	sep=--
	[ "${what%% *}" = archive ] && sep=
	# shellcheck disable=SC2086 # its words
	run git -C "$o" $what $sep doc
	is "$what $sep doc" $code 0
	ok 'and something' test -n "$out"
done
# A commit whose lines git would count once it is made isn't made before that is known to work.
trees() { git -C "$o" rev-parse "${1:-HEAD}^{tree}"; } # REF
refuses() { # WORDS of git
	before=$(git -C "$o" rev-parse HEAD)
	run git -C "$o" "$@"
	is "$* is refused, and nothing is made" "$((code != 0)) $(git -C "$o" rev-parse HEAD)" "1 $before"
	like 'git says how it is' "$err" 'git commit -q --no-edit makes it'
	is 'and no more' "$(grep -c 'remote error' <<<"$err")" 0
}
refuses cherry-pick main
run git -C "$o" commit -q --no-edit
is 'quietly it is, whole' "$code $(trees) $(status "$o")" "0 $(trees main) "
is 'and is that one'\''s' "$(git -C "$o" log -1 --format='%an %ad %s')" "$(git -C needs log -1 --format='%an %ad %s' main)"
refuses revert --no-edit HEAD
git -C "$o" reset -q --merge
is 'what is taken back leaves nothing' "$(trees) $(status "$o")$(ls "$o/.git/MERGE_MSG" 2>/dev/null)" "$(trees main) "
refuses revert --no-edit HEAD
run git -C "$o" commit -q --no-edit
is 'quietly it is reverted' "$code $(trees) $(status "$o")" "0 $(trees v1) "
like 'and says so' "$(git -C "$o" log -1 --format=%s)" '^Revert "2"'
# One behind the other: it goes on.
refuses cherry-pick main up^
git -C "$o" commit -q --no-edit
run git -C "$o" cherry-pick --continue
is 'the next one, which changes the scope alone' "$code $(git -C "$o" rev-list --count HEAD~2..) $(status "$o")" '0 2 '
git -C "$o" reset -q --hard main
refuses commit --amend -m other
run git -C "$o" commit -q --amend -m other
is 'quietly it has another message' "$code $(trees) $(git -C "$o" log -1 --format=%s)" "0 $(trees main) other"
git -C "$o" reset -q --hard v1 && git -C "$o" merge -q --squash main >/dev/null
refuses commit -m squashed
run git -C "$o" commit -qm squashed
is 'what was squashed is whole' "$code $(trees)" "0 $(trees main)"
git -C "$o" checkout -q --orphan root
refuses commit -m root
git -C "$o" commit -qm root
is 'a root, too' "$(trees)" "$(trees main)"
git -C "$o" checkout -q pick && git -C "$o" reset -q --hard v1
echo in >>"$o/doc/r"
run git -C "$o" commit -am 'in the scope'
is 'lines in the scope are counted' "$code ${out##*$'\n'}" '0  1 file changed, 1 insertion(+)'
# Where git's hooks are elsewhere it is made, and git can't say how many lines it changed.
git -C "$o" reset -q --hard v1 && git -C "$o" config core.hooksPath elsewhere
says_why cherry-pick main
is 'what was picked is whole' "$(trees) $(status "$o")" "$(trees main) "
git -C "$o" config --unset core.hooksPath
# A merge that needs contents of both sides: nothing is half-done.
git -C up checkout -q -b clash v1 && (cd up && sed -i s/^7$/sept/ tools/run && git commit -qam clash && git push -q origin clash)
git -C "$o" reset -q --hard main
run git -C "$o" -c remote.u.url="$T/up.git" -c remote.u.promisor=true -c remote.u.partialCloneFilter=blob:none \
	fetch u clash:refs/remotes/u/clash
is 'another branch' $code 0
says_why merge --no-edit u/clash
unchanged 'a merge that needs contents outside'
ok 'and none is on its way' test ! -e "$o/.git/MERGE_HEAD"
says_why rebase u/clash
run git -C "$o" rebase --abort
unchanged "$code: a rebase that was broken off"
is 'and is where it was' "$(git -C "$o" rev-parse HEAD)" "$(git -C needs rev-parse main)"
run git clone -q "$o" cloned
like 'git clone of the workspace lacks them' "$code $err" '128 .*unable to read'
git -C "$o" checkout -q pick && git -C "$o" reset -q --hard v1
run git -C "$o" reset -q main -- doc
is 'reset of what is in the scope' "$code $(git -C "$o" diff --cached --name-only)" '0 doc/r'

# ---- forks and snapshots

bough_ok 'fork' fork a a2
is 'a fork is clean' "$(status "$(at a2)")" ''
echo y >>"$a/lib/f5.c"
bough_ok 'save' save a --as saved
rm -r "$a/lib"
bough_ok 'restore' restore a saved
is 'back as it was' "$(status "$a")" ' M lib/f5.c'
bough_ok 'from a snapshot' create c --from saved
is 'which changed as much' "$(status "$out")" ' M lib/f5.c'
run bough show c --json
is 'it is a checkout too' "$(json .git.base)" "$(git -C src rev-parse main)"
bough_ok 'gc' gc
bough_ok 'fsck' fsck
bough_ok 'and one more' create d --git src
is 'is clean' "$(status "$out")" ''
bough_ok 'down' down
bough_ok 'up' up
is 'clean after a restart' "$(status "$(at d)")" ''
run diff -r --no-dereference --exclude=.git "$(at d)" plain
is 'and whole' "$code$out" 0

# ---- what keeps what

images() { ls "$BOUGH_ROOT/images" | wc -l; }
base=$(images)
touch -d '20 days ago' "$BOUGH_ROOT"/repos/*.checkouts/* # used long ago, all of them
bough rm --now t n i f s c >/dev/null 2>&1
bough_ok 'gc' gc
ok "images of checkouts that nobody has go ($base, now $(images))" test "$(images)" -lt "$base"
for i in $(seq 10); do # the stack is flattened: its image isn't the checkout's any more
	echo "$i" >"$(at d)/flat$i" && bough save d >/dev/null 2>&1
done
flat() { run bough show d --json && [ "$(json .layers)" -le 3 ]; }
wait_for 20 flat
touch -d '20 days ago' "$BOUGH_ROOT"/repos/*.checkouts/*
bough rm a a2 b >/dev/null 2>&1
bough_ok 'gc once more' gc
bough_ok 'nothing is missing' fsck
ok 'the tree that it began with is still there' test "$(images)" -ge 2
is 'status' "$(status "$(at d)" | wc -l)" 10
# Two at once want what isn't there: one builds it.
bough create p1 --git src --ref v1 --json >"$T/p1" &
bough create p2 --git src --ref v1 --json >"$T/p2"
wait $!
is 'two at once, built once' "$(cat "$T/p1" "$T/p2" | jq -s 'map(.checkout.built) | sort' -c)" \
	'[false,true]'
is 'both are clean' "$(status "$(at p1)")$(status "$(at p2)")" ''

# ---- bad input

bough_fails 'an unknown repository' 3 'nowhere' create x --git nowhere
bough_fails 'an unknown ref' 3 'no-such' create x --git src --ref no-such
bough_fails 'an unknown scope' 3 "no folder 'lib/none'" create x --git src --scope lib/none
bough_fails 'a file as scope' 3 "no folder 'run.bat'" create x --git src --scope run.bat
bough_fails 'an empty scope isn'\''t all' 2 'empty' create x --git src --scope ''
bough_fails 'nor an empty ref the default' 2 'empty' create x --git src --ref ''
bough_fails 'nor an empty branch' 2 'empty' create x --git src --branch ''
bough_fails 'a scope that leads out' 2 'no folder' create x --git src --scope ../x
bough_fails 'a branch that can'\''t be' 2 'a\.\.b' create x --git src --branch a..b
bough_fails 'a ref without a repository' 2 'needs --git' create x --ref main
bough_fails 'two beginnings' 2 'one of' create x --git src --from saved
bough_fails 'a name that is taken' 4 'already' create d --git src
run bough path x
is 'nothing was made' $code 3

# ---- many files: git reads such an index by several threads

git init -q --bare "$T/many.git"
oid=$(echo x | git -C "$T/many.git" hash-object -w --stdin)
(
	cd "$T/many.git" || exit 1
	seq -f "100644 $oid	%06.0f" 25000 | sed 's|...$|/&|' | git update-index --index-info
	git update-ref HEAD "$(git commit-tree -m many "$(git write-tree)")" && rm index
)
bough_ok 'a repository of 25,000 files' repo add "$T/many.git" --name many
bough_ok 'create' create many --git many
m=$out
is 'its index has a table of offsets' "$(grep -c IEOT "$m/.git/index")" 1
is 'and all files' "$(git -C "$m" ls-files | wc -l) $(git -C "$m" ls-files -s | git hash-object --stdin)" \
	"25000 $(git -C "$T/many.git" ls-tree -r HEAD | sed 's/ blob / /; s/\t/ 0&/' | git hash-object --stdin)"
is 'it is clean' "$(git -C "$m" status --porcelain 2>&1)" ''
echo y >>"$m/000/007" && rm "$m/024/999" && mkdir "$m/new" && echo z >"$m/new/file"
is 'what changed is seen' "$(git -C "$m" status --porcelain | xargs)" 'M 000/007 D 024/999 ?? new/'
is 'fsck finds nothing' "$(git -C "$m" fsck --strict 2>&1)" ''

# ---- another user

if [ "$(id -u)" = 0 ] && fusermount3 --version >/dev/null 2>&1; then
	uid=65534 # fusermount3 wants a user that has a name: nobody
	user() { setpriv --reuid=$uid --regid=$uid --clear-groups --inh-caps=-all "$@"; }
	chmod 711 "$T" && mkdir -m 700 "$T/u" && chown $uid:$uid "$T/u" && chmod -R a+rX "$T/src"
	mkdir "$T/bin" && cp "$BOUGH_BIN"/bough "$BOUGH_BIN"/boughd "$BOUGH_BIN"/bough-* "$T/bin"
	chmod -R a+rX "$T/bin"
	export BOUGH_ROOT=$T/u/root HOME=$T/u PATH=$T/bin:/usr/bin:/bin
	EXTRA_ROOTS=$T/root
	user git config --global safe.directory '*' # src is root's
	run user bough repo add "$T/src" --name src
	is 'a user adds a repository' $code 0
	run user bough create w --git src
	is 'and creates from it' $code 0
	[ $code = 0 ] || diag_run
	w=$out
	is 'all is the user'\''s' "$(user stat -c %u "$w/.git/index" "$w/doc/readme" | sort -u)" $uid
	user git clone -q "$T/src" "$T/u/co" && user touch "$w/doc/applied"
	run user bough apply w --to "$T/u/co"
	is 'and applies' "$code $(user git -C "$T/u/co" status --porcelain)" '0 A  doc/applied'
	is 'as the user' "$(stat -c %u "$T/u/co/doc/applied" "$T/u/co/.git/index" | sort -u)" $uid
	run user bough apply w --to "$T/src"
	is 'not into what is another'"'"'s' "$((code > 0)) $(git -C "$T/src" status --porcelain)" '1 '
	user rm "$w/doc/applied" && user git config --global --unset-all safe.directory
	is 'clean, without a setting' "$(user git -C "$w" status --porcelain 2>&1)" ''
	echo n >"$T/n" && user cp "$T/n" "$w/n"
	is 'what changes is seen' "$(user git -C "$w" status --porcelain 2>&1)" '?? n'
	is 'the user isn'\''t told whose it is' "$(user bough create w2 --git src 2>&1 | grep -c belongs)" 0
	bough_ok 'root creates there' create w3 --git src
	like 'and is told' "$err" "all belongs to user $uid; git of others wants it in safe.directory"
fi
done_testing
