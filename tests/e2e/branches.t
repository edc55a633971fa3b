#!/bin/bash
# What is upstream's and what was committed here are apart: which of them a checkout begins with,
# what is told of them, how they come together again. And what create tells of a checkout.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/repo.sh"
export HOME=$T GIT_PAGER=cat GIT_CONFIG_GLOBAL=$T/gitconfig
git config --global --add safe.directory '*'
up() { git -C "$T/src" rev-parse "$@"; }
head_of() { git -C "$(bough path "$1")" rev-parse "${2:-HEAD}"; } # WORKSPACE [REF]
change() { echo "$RANDOM" >>"$(bough path "$1")/made"; }            # WORKSPACE

# ---- a commit that isn't pushed

bough_ok 'add' repo add "$http/r.git" --token-file "$T/token"
bough_ok 'a path too' repo add "$T/src" --name p
for r in r p; do
	upstream=$(up main)
	bough_ok "$r: a checkout" create "w-$r" --git $r
	change "w-$r"
	bough_ok "$r: a commit of it" commit "w-$r" -m ours
	ours=$(tip $r)
	ok "$r: it is on the mirror's branch" test "$ours" != "$upstream"
	bough_ok "$r: the next checkout" create "n-$r" --git $r
	is "$r: begins with upstream's" "$(head_of "n-$r")" "$upstream"
	is "$r: the same as origin/main" "$(head_of "n-$r" origin/main)" "$upstream"
	for ref in main origin/main refs/remotes/origin/main HEAD; do
		bough_ok "$r: --ref $ref" create "x-$r" --git $r --ref $ref
		is "$r: is that too" "$(head_of "x-$r")" "$upstream"
		is "$r: on its branch" "$(git -C "$(bough path "x-$r")" symbolic-ref --short HEAD)" main
		bough rm "x-$r" >/dev/null
	done
	for ref in local/main refs/heads/main; do
		bough_ok "$r: --ref $ref" create "x-$r" --git $r --ref $ref
		is "$r: is ours" "$(head_of "x-$r")" "$ours"
		is "$r: and origin/main is upstream's" "$(head_of "x-$r" origin/main)" "$upstream"
		is "$r: git finds no fault" "$(git -C "$(bough path "x-$r")" fsck --strict 2>&1)" ''
		is "$r: it is clean" "$(git -C "$(bough path "x-$r")" status --porcelain)" ''
		bough rm "x-$r" >/dev/null
	done
	change "n-$r"
	bough_fails "$r: upstream's main has another main here" 4 'branch NAME' commit "n-$r" -m theirs
	bough_ok "$r: another branch" commit "n-$r" -m theirs --branch "side-$r"
	run bough repo show $r
	like "$r: show says so" "$out" "main +[0-9a-f]{12}, here ${ours:0:12}: 1 ahead"
	like "$r: and what only is here" "$out" "side-$r +[0-9a-f]{12}, only here"
done

# ---- upstream moves on

commit 'upstream moves'
push main
for r in r p; do
	bough_ok "$r: fetch" repo fetch $r
	like "$r: says what is apart" "$err" "main is upstream [0-9a-f]{12}, here .*: diverged, 1 ahead, 1 behind"
	bough_ok "$r: a checkout after it" create "u-$r" --git $r
	is "$r: begins with upstream's" "$(head_of "u-$r")" "$(up main)"
	bough_ok "$r: ours" create "o-$r" --git $r --ref local/main
	is "$r: is there" "$(head_of "o-$r")" "$(tip $r)"
	run git -C "$(bough path "o-$r")" rev-parse -q --verify origin/main
	is "$r: without upstream's, which isn't in its history" "$out" ''
	is "$r: JSON" "$(bough repo show $r --json | jq -c '.branch_list[0] | [.name, .ahead, .behind]')" \
		'["main",1,1]'
	was=$(tip $r)
	bough_fails "$r: reset would lose a commit" 4 '1 commit that upstream.s lacks: --force' repo reset $r main
	is "$r: nothing has moved" "$(tip $r)" "$was"
	bough_ok "$r: with force" repo reset $r main --force
	is "$r: it is upstream's" "$(tip $r)" "$(up main)"
	bough_ok "$r: what it was" create "k-$r" --git $r --ref "$was"
	is "$r: is still there" "$(head_of "k-$r")" "$was"
	bough_ok "$r: again" repo reset $r main
	bough_fails "$r: none of that name" 3 'no branch' repo reset $r nothing
	bough_fails "$r: one that only is here" 4 'only here' repo reset $r "side-$r"
	bough_ok "$r: goes with force" repo reset $r "side-$r" --force
	run git --git-dir="$(mirror $r)" rev-parse -q --verify "refs/heads/side-$r"
	is "$r: and is gone" "$out" ''
	change "u-$r"
	bough_ok "$r: a commit on main" commit "u-$r" -m again
done

# ---- a push

git clone -q --bare "$srv/r.git" "$srv/other.git"
git -C "$srv/other.git" config http.receivepack true
bough_ok 'push elsewhere' push u-r --remote "$http/other.git"
is 'tells nothing of upstream' "$(tip r refs/remotes/origin/main)" "$(up main)"
bough_ok 'push' push u-r
is 'upstream is known to have it' "$(tip r refs/remotes/origin/main)" "$(tip r)"
bough_ok 'a checkout then' create v --git r
is 'begins with it' "$(head_of v)" "$(tip r)"

# ---- ~ and ^

for ref in 'main~1' 'main^' 'HEAD~2' 'v1^0'; do
	bough_ok "--ref $ref" create "t" --git p --ref "$ref"
	is "is git's" "$(head_of t) $(git -C "$(bough path t)" symbolic-ref -q HEAD)" "$(up "$ref^0") "
	bough rm t >/dev/null
done
bough_fails 'further than the history' 3 "doesn't reach" create t --git p --ref main~99
bough_fails 'other things of that kind' 2 'only ~N and' create t --git p --ref 'main^{tree}'

# ---- snapshots

bough_ok 'save' save u-r --as s
run bough snapshots show s
like 'tells the repository' "$out" 'repo +r'
like 'the commit' "$out" "commit +$(up main | cut -c 1-12)"
like 'and the anchor' "$out" "anchor +$(tip r | cut -c 1-12)"

# ---- git worktree

w=$(bough path v)
run git -C "$w" worktree add -q wt
is 'git worktree has nothing to complain of' "$err" ''
run git -C "$w/wt" status --porcelain
is 'nor has status in it' "$out$err" ''
echo x >>"$w/wt/file"
is 'which sees a change' "$(git -C "$w/wt" status --porcelain)" ' M file'
git -C "$w" status >/dev/null
is 'in the main one the hook answers' "$(git -C "$w" config core.fsmonitor >/dev/null &&
	cd "$w" && sh -c "$(git config core.fsmonitor) \"\$@\"" x 2 none | tr '\0' '\n' | tail -n 1)" /

# ---- what create tells

(
	cd "$T/src" || exit 1
	echo '*.bin filter=lfs -text' >.gitattributes
	for i in $(seq 1 30); do
		printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 3\n' 0 >"$i.bin"
	done
	git add . && git update-index --add --cacheinfo "160000,$(git rev-parse HEAD),sub"
	git commit -qm lfs
) || bail 'no files of git-lfs'
bough_ok 'fetch' repo fetch p
bough_ok 'create' create l --git p
like 'says how many pointers' "$err" '30 files of git-lfs are left as pointers:'
like 'and which' "$err" '  10.bin'
like 'not all' "$err" '… and 10 more'
like 'and the submodule' "$err" 'submodule is left as an empty folder:.*  sub'
bough_ok 'the same from memory' create l2 --git p --json
is 'in JSON' "$(json '.checkout | [.built, .lfs, (.lfs_paths | length), .submodules, .submodule_paths[0]] | tostring')" \
	'[false,30,20,1,"sub"]'
done_testing
