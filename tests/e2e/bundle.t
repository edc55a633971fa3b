#!/bin/bash
# bough-apply: a bundle of one commit into a checkout, all of it or nothing.
. "${0%/*}/lib.sh"

export GIT_CONFIG_NOSYSTEM=1 HOME=$T GIT_AUTHOR_DATE='2024-01-02T03:04:05 +0100'
git config --global user.name Tester
git config --global user.email t@example.org
git config --global init.defaultBranch main
git config --global advice.detachedHead false

git init -q up && cd up || bail 'git init'
mkdir dir
seq 1 100 >lines
echo keep >dir/keep
echo old >dir/old
echo run >run
ln -s keep dir/link
printf 'a\0b' >binary
git add -A && git commit -qm base
base=$(git rev-parse HEAD)
git checkout -qb topic
sed -i 's/^50$/fifty/' lines
git mv dir/old dir/renamed
git rm -q binary
chmod +x run
echo new >dir/new
ln -sf ../run dir/link
git add -A && git commit -qm 'the change

with a body' --author 'An Author <a@example.org>'
git -c pack.window=0 bundle create -q ../b.bundle "^$base" topic 2>/dev/null
cd "$T" || exit 1

fresh() { # a checkout of the base in $T/co
	rm -rf co
	git clone -q -b main up co
	# The change isn't there but by the bundle.
	git -C co remote remove origin
	git -C co branch -qD topic 2>/dev/null
	rm -rf co/.git/logs
	git -C co prune
}
state() { # everything that can be seen of the checkout
	(cd co && git status --porcelain=v2 --branch && git ls-files -s &&
		find . -path ./.git -prune -o -printf '%p %m %l ' \( -type f -exec sha256sum {} \; -o -print \) |
		sort; git count-objects -v)
}
apply() { run bough-apply "$@" <b.bundle; }

fresh
apply --commit co
is 'committed' "$code" 0
like 'says what' "$out" '^[0-9]+ files in co, commit [0-9a-f]{12}$'
is 'the tree is the commit'"'"'s' "$(git -C co rev-parse 'HEAD^{tree}')" "$(git -C up rev-parse 'topic^{tree}')"
is 'clean' "$(git -C co status --porcelain)" ''
is 'on the branch' "$(git -C co rev-parse --abbrev-ref HEAD)" main
is 'author and message' "$(git -C co log -1 --format='%an|%s|%cn|%b')" 'An Author|the change|Tester|with a body'
is 'git finds it sound' "$(git -C co fsck --strict 2>&1 | grep -v dangling)" ''
apply --commit co
is 'a second time: nothing to do' "$code:$out" '0:co has all of it already'
is 'nothing temporary stays' "$(find co/.git -name 'bough-apply*')" ''

fresh
apply co
is 'files and index' "$code" 0
is 'all staged' "$(git -C co status --porcelain | grep -c '^[AMDRT] ')" "$(git -C co status --porcelain | wc -l)"
is 'as the tree' "$(git -C co write-tree)" "$(git -C up rev-parse 'topic^{tree}')"
is 'HEAD stays' "$(git -C co rev-parse HEAD)" "$base"

fresh
apply --patch --json co
is 'files alone' "$code" 0
is 'the index stays' "$(git -C co diff --cached --name-only)" ''
is 'JSON lists paths' "$(jq -r '.paths | join(" ")' <<<"$out")" 'binary dir/link dir/new dir/old dir/renamed lines run'
is 'mode and link' "$(stat -c %a co/run) $(readlink co/dir/link)" '755 ../run'

# Three ways: HEAD went on meanwhile.
fresh
sed -i 's/^10$/ten/' co/lines
git -C co commit -qam 'elsewhere'
apply --commit co
is 'merges' "$code" 0
is 'both changes' "$(sed -n '10p;50p' co/lines | tr '\n' ' ')" 'ten fifty '

# What is in the way.
conflict() { # DESCRIPTION PATH
	before=$(state)
	apply co
	is "$1: exit code" "$code" 4
	like "$1: named" "$err" "  $2"$'\n'?
	is "$1: nothing changed" "$(state)" "$before"
}
fresh
sed -i 's/^50$/FIFTY/' co/lines
git -C co commit -qam 'elsewhere'
conflict 'conflicting commit' lines
fresh
echo local >>co/lines
conflict 'local change' lines
fresh
echo mine >co/dir/new
conflict 'untracked file' dir/new
fresh
echo dir/new >co/.git/info/exclude
echo mine >co/dir/new
conflict 'ignored file' dir/new
fresh
echo staged >co/lines
git -C co add lines
conflict 'staged change' lines
# What is staged and not in the files. (A file or a folder in another's place, too.)
staged() { # DESCRIPTION PATH
	for mode in '' --commit; do
		before=$(state)
		# shellcheck disable=SC2086 # an option or none
		apply $mode co
		is "$1: exit code $mode" "$code" 4
		like "$1: named" "$err" "  $2"$'\n'?
		is "$1: nothing changed" "$(state)" "$before"
	done
	apply --patch co
	is "$1: of no concern to --patch" "$code" 0
}
fresh
echo staged >>co/lines && git -C co add lines && git -C co show HEAD:lines >co/lines
staged 'staged and taken back in the file' lines
fresh
git -C co rm -q --cached run
staged 'a file removed from the index' run
for path in dir/new dir lines/below; do
	fresh
	blob=$(git -C co hash-object -w --stdin <<<staged)
	[ $path != dir ] || git -C co rm -rq --cached dir
	git -C co update-index --replace --add --cacheinfo "100644,$blob,$path"
	staged "staged alone: $path" $path
done
fresh
git -C co update-index --add --cacheinfo "100644,$(git -C up rev-parse topic:dir/new),dir/new"
git -C co update-index --force-remove binary
apply co
is 'what is staged as it will be is no hindrance' "$code $(git -C co write-tree)" "0 $(git -C up rev-parse 'topic^{tree}')"
fresh
git -C co update-index --cacheinfo "100644,$blob,dir/keep"
apply --commit co
is 'nor what is staged elsewhere' "$code $(git -C co diff --cached --name-only)" '0 dir/keep'
fresh
echo local >>co/dir/keep
apply co
is 'a local change elsewhere is no hindrance' "$code:$(tail -1 co/dir/keep)" 0:local

# What can't be.
refused() { # DESCRIPTION CODE TEXT COMMAND…
	local what=$1 want=$2 text=$3
	shift 3
	run "$@"
	is "$what: exit code" "$code" "$want"
	like "$what: says so" "$err" "$text"
}
fresh
git init -q other
git -C other commit -q --allow-empty -m other
mkdir plain
refused 'base is missing' 3 "hasn't the commit $base" bough-apply other <b.bundle
refused 'no repository' 3 'in no git repository' env GIT_CEILING_DIRECTORIES="$T" bough-apply plain <b.bundle
git clone -q --bare up bare.git
refused 'bare' 1 'is bare' bough-apply bare.git <b.bundle
git init -q empty
refused 'no commit' 3 'no commit yet' bough-apply empty <b.bundle
touch co/.git/MERGE_HEAD
refused 'in a merge' 5 'middle of a merge' bough-apply co <b.bundle
rm co/.git/MERGE_HEAD
before=$(state)
size=$(stat -c %s b.bundle)
for n in 0 10 60 150 $((size / 2)) $((size - 1)); do
	head -c "$n" b.bundle >cut
	refused "cut at $n of its bytes" 1 'bundle' bough-apply co <cut
done
python3 - <<'PY'
import os
d = bytearray(open("b.bundle", "rb").read())
d[-60] ^= 1
open("flipped", "wb").write(d)
open("two", "wb").write(b"# v2 git bundle\n-" + b"1" * 40 + b"\n-" + b"2" * 40 + b"\n\n")
open("long", "wb").write(b"# v2 git bundle\n" + b"x" * 200000)
PY
refused 'flipped bit' 1 'bundle' bough-apply co <flipped
refused 'two bases' 1 'more than one' bough-apply co <two
refused 'endless header' 1 'no end' bough-apply co <long
is 'after all that nothing changed' "$(state)" "$before"
refused 'usage' 2 'one checkout' bough-apply
refused 'both' 2 'either' bough-apply --commit --patch co

# Checkouts of large repositories: partial clones, sparse ones.
git -C up config uploadpack.allowFilter true
some() { rm -rf co && git clone -q -b main --sparse "$@" "file://$T/up" co && git -C co config advice.updateSparsePath false; }
some --filter=blob:none
refused 'a file that is left out' 4 "dir/link isn't checked out there: git sparse-checkout add" bough-apply co <b.bundle
is 'nothing changed' "$(git -C co status --porcelain)$(ls co)" $'binary\nlines\nrun'
git -C co sparse-checkout add dir
for mode in '' --commit; do
	# shellcheck disable=SC2086 # an option or none
	apply $mode co
	is "where it isn't $mode" "$code $(git -C co write-tree)" "0 $(git -C up rev-parse 'topic^{tree}')"
	git -C co reset -q --hard "$base"
done
(cd up && git checkout -q main && mkdir -p aside && echo a >aside/a && git add aside && git commit -qm aside &&
	sed -i 's/^10$/ten/' lines && git commit -qam ten) || bail 'git'
some --filter=blob:none && git -C co sparse-checkout add dir
refused 'contents that a merge needs' 3 "git diff ${base:0:12} HEAD brings them" bough-apply co <b.bundle
git -C co diff "${base:0:12}" HEAD >/dev/null
apply --commit co
is 'once they are there' "$code $(sed -n '10p;50p' co/lines | xargs) $(git -C co status --porcelain)" '0 ten fifty '
is 'what is left out stays' "$(git -C co rev-parse HEAD:aside) $(ls -d co/aside 2>&1 | grep -c cannot)" \
	"$(git -C up rev-parse main:aside) 1"
git -C co sparse-checkout reapply --sparse-index
refused 'a sparse index' 1 'sparse-checkout reapply --no-sparse-index' bough-apply --commit co <b.bundle
fresh
git -C co update-index --split-index
refused 'a split one' 1 'update-index --no-split-index' bough-apply co <b.bundle
fresh
git -C co config extensions.worktreeConfig true && git -C co config core.repositoryformatversion 1 &&
	git -C co config --worktree core.eol crlf && echo '* text' >co/.git/info/attributes
apply co
is 'configuration of one work tree' "$code $(grep -c $'\r$' co/dir/new) $(grep -vc $'\r$' co/dir/new)" '0 1 0'

# Whatever was done on both sides, the same as git's.
rounds=15
run python3 "$BOUGH_SRC/tests/e2e/bundle_random.py" ${SEED:-$$} $rounds
is "as git cherry-pick --no-commit (SEED=${SEED:-$$})" "$code $out" "0 $rounds"
[ $code = 0 ] || diag_run

# Hooks and filters of the checkout don't run.
fresh
printf '#!/bin/sh\ntouch %s/ran\n' "$T" | tee co/.git/hooks/post-checkout co/.git/hooks/pre-commit \
	co/.git/hooks/post-commit >/dev/null
chmod +x co/.git/hooks/*
apply --commit co
is 'no hook ran' "$code:$(ls ran 2>/dev/null)" 0:

done_testing
