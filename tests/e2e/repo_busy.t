#!/bin/bash
# Fetches, checkouts, commits and forks all at once, while upstream's branches move on, go back, come
# and go, and its packs are replaced: each ends well or says why it can't, and all that came is whole.
. "${0%/*}/lib.sh"
need_fuse
export HOME=$T GIT_CONFIG_NOSYSTEM=1 GIT_PAGER=cat
git config --global user.name Tester && git config --global user.email t@example.org
git config --global init.defaultBranch main && git config --global gc.auto 0
SECONDS_BUSY=${SECONDS_BUSY:-8}

git init -q --bare up && git clone -q up work 2>/dev/null && (
	cd work || exit 1
	mkdir -p a b/c b/d
	for d in a b/c b/d; do for i in $(seq 20); do seq "$i" $((i + 30)) >"$d/f$i"; done; done
	git add -A && git commit -qm base && git tag v0 && git push -q --tags origin main
) || bail 'git'
bough_ok 'repo add' repo add "$T/up" --name r
end=$(($(date +%s) + SECONDS_BUSY))
busy() { [ "$(date +%s)" -lt $end ]; }

upstream() {
	local n=0
	cd work || exit 1
	while busy; do
		n=$((n + 1))
		echo $n >>"a/f$((n % 20 + 1))" && git commit -qam "up $n"
		[ $((n % 5)) != 0 ] || { git reset -q --hard HEAD~2 && echo $n >>b/c/f1 && git commit -qam "again $n"; }
		git push -q -f origin HEAD:main
		[ $((n % 3)) != 0 ] || git push -q -f origin "HEAD:side$((n % 2))"
		[ $((n % 7)) != 0 ] || git push -q origin ":side$((n % 2))"
		[ $((n % 4)) != 0 ] || { git tag -f "t$((n % 2))" && git push -q -f origin "t$((n % 2))"; }
		[ $((n % 9)) != 0 ] || git -C ../up gc -q --prune=now
	done >"$T/up.log" 2>&1
}
# Other codes than these are nobody's fault but ours; err and out have the name of who asks.
try() { # WHO CODES COMMAND…
	local who=$1 codes=$2 c
	shift 2
	bough "$@" >"$who.out" 2>"$who.err"
	c=$?
	[[ $codes == *$c* ]] || echo "exit $c: bough $*: $(head -c 400 "$who.err")" >>bad
	return $c
}
fetch() { while busy; do try "$1" 0 repo fetch r; done; }
agent() { # WHO
	local n=0 w p refs=(main side0 side1 v0 t0) scope
	while busy; do
		n=$((n + 1)) w=$1-$n scope=()
		[ $((n % 3)) != 0 ] || scope=(--scope b/c)
		try "$1" 03 create "$w" --git r --ref "${refs[RANDOM % 5]}" "${scope[@]}" || continue
		p=$(cat "$1.out")
		git -C "$p" fsck --strict >"$1.fsck" 2>&1 && [ -z "$(git -C "$p" status --porcelain 2>&1)" ] ||
			echo "$w isn't whole or clean: $(cat "$1.fsck")" >>bad
		echo "$w" >>"$p/b/c/f1" && echo new >"$p/b/c/$w"
		try "$1" 0 commit "$w" -m "$w" --branch "own-$w" && echo "own-$w" >>made
		try "$1" 0 diff "$w" --since anchor && [ -s "$1.out" ] && echo "$w differs after its commit" >>bad
		try "$1" 04 commit "$w" -m race --branch race
		[ $((n % 2)) != 0 ] || try "$1" 0 fork "$w" "$w-f"
		try "$1" 0 rm "$w"
	done
}
touch bad made
upstream & pids=($!)
for who in f1 f2; do fetch $who & pids+=($!); done
for who in a1 a2 a3; do agent $who & pids+=($!); done
wait "${pids[@]}"
is 'nothing failed that could be done' "$(cat bad)" ''
ok "much was done ($(wc -l <made) commits)" test "$(wc -l <made)" -ge 3
bough_ok 'a last fetch' repo fetch r
M=$(for m in "$BOUGH_ROOT"/repos/*/HEAD; do echo "${m%/HEAD}"; done)
in_mirror() { git --git-dir="$M" "$@"; }
is 'git finds no fault in the mirror' "$(in_mirror fsck --strict 2>&1 | grep -v '^dangling\|^notice')" ''
is 'it has what upstream has' "$(in_mirror rev-parse refs/remotes/origin/main)" "$(git -C up rev-parse main)"
is 'and each commit that was made' "$(in_mirror for-each-ref --format='%(refname:short)' 'refs/heads/own-*' | sort)" \
	"$(sort made)"
done_testing
