#!/bin/bash
# Commits that are malformed as they come: git takes them into a repository (checks are off by
# default), so a mirror has them. What can't be done with one is refused (400), and is no fault of
# ours (500), on every call that meets it; damage of the mirror itself is.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/http.sh"
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

g=$T/bad.git
git init -q --bare -b main "$g" || bail 'no git'
put() { git -C "$g" hash-object -t "$1" --literally -w --stdin; } # TYPE
entry() { printf '%s %s\0' "$1" "$2" && perl -e 'print pack "H*", shift' "$3"; } # MODE NAME OBJECT
commit() { # TREE [PARENT]
	printf 'tree %s\n%sauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nx\n' "$1" \
		"${2:+parent $2$'\n'}" | put commit
}
ref() { git -C "$g" update-ref "refs/heads/$1" "$2" || bail "no branch $1"; }

blob=$(echo hello | put blob) other=$(echo other | put blob)
empty=$(put blob </dev/null) zero=$(printf 'a\0b' | put blob)
good=$(entry 100644 f "$blob" | put tree)
more=$({ entry 100644 f "$blob" && entry 100644 g "$other"; } | put tree)
main=$(commit "$good")
ref main "$main"

declare -A why=()
names=()
# A branch with that tree; one with it in a folder, beside a good one; and two that stand on it and
# are well formed.
bad() { # NAME WHY-IT-IS-REFUSED: the tree on stdin
	local tree base
	tree=$(put tree) && base=$(commit "$tree") || bail "no tree $1"
	names+=("$1") why[$1]=$2
	ref "$1" "$base"
	ref "in-$1" "$(commit "$({ entry 40000 bad "$tree" && entry 40000 good "$good"; } | put tree)")"
	ref "left-$1" "$(commit "$good" "$base")"
	ref "right-$1" "$(commit "$more" "$base")"
}
bad dotdot 'leads out of its folder' < <(entry 100644 .. "$blob")
bad dotgit 'stands for .git' < <(entry 40000 .git "$good")
bad slash 'a slash in it' < <(entry 100644 a/b "$blob")
bad long 'longer than 255' < <(entry 100644 "$(printf 'x%.0s' {1..300})" "$blob")
bad order 'out of order' < <(entry 100644 b "$blob" && entry 100644 a "$blob")
bad twice 'out of order' < <(entry 100644 a "$blob" && entry 100644 a "$blob")
bad both 'twice' < <(entry 100644 a "$blob" && entry 40000 a "$good")
bad nolink 'empty or too long' < <(entry 120000 f "$empty")
bad zerolink 'a zero byte' < <(entry 120000 f "$zero")
for kind in noauthor badauthor; do
	[ $kind = noauthor ] && lines='' || lines=$'author\ncommitter\n'
	base=$(printf 'tree %s\n%s\nx\n' "$good" "$lines" | put commit)
	ref $kind "$base"
	ref in-$kind "$base"
	ref left-$kind "$(commit "$good" "$base")"
	ref right-$kind "$(commit "$more" "$base")"
	names+=($kind) why[$kind]='read '
done

bough_ok 'the repository is taken as it is' repo add "$g" --name bad

create() { # NAME REF [MORE]
	api POST $ws "{\"name\":\"$1\",\"git\":{\"repo\":\"bad\",\"ref\":\"$2\"${3:-}}}"
}
refused() { # DESCRIPTION WHY
	if [ "$status $(of .code)" = '400 unsupported' ] && [[ $(of .message) == *"$2"* ]]; then
		pass "$1"
	else
		fail "$1"
		diag "$status $body"
	fi
}
no_fault() { # DESCRIPTION
	if [ "$status" -lt 500 ]; then pass "$1"; else fail "$1" && diag "$status $body"; fi
}
for n in "${names[@]}"; do
	create w "$n"
	refused "$n: no checkout" "${why[$n]}"
	create w "in-$n"
	refused "$n, in a folder: none either" "${why[$n]}"
	create "s-$n" "in-$n" ',"scopes":["good"]'
	no_fault "$n, beside the scope"
	# With it in their past: checkouts, and all that is done with those.
	create "l-$n" "left-$n"
	no_fault "$n, in the history"
	[ "$status" = 201 ] || continue
	create "r-$n" "right-$n"
	at=$(bough path "r-$n") && echo new >"$at/new"
	for call in GET:diff GET:diff?since=base 'GET:diff?format=patch' GET:bundle?message=x; do
		api "${call%%:*}" "$ws/r-$n/${call#*:}"
		no_fault "$n, in the history: ${call#*:}"
	done
	api POST "$ws/l-$n/merge" "{\"from\":\"r-$n\"}"
	no_fault "$n, in the history: merge"
	[ "$status" != 400 ] || is "$n: refused as such" "$(of .code)" unsupported
	api POST "$ws/r-$n/commit" "{\"message\":\"m\",\"branch\":\"b-$n\"}"
	no_fault "$n, in the history: commit"
	git -C "$at" -c user.name=a -c user.email=a@b commit -qam inside
	api POST "$ws/r-$n/commit" "{\"message\":\"m\",\"history\":true,\"branch\":\"h-$n\"}"
	no_fault "$n, in the history: commit of what was committed inside"
	api POST "$ws/r-$n/push" '{}'
	no_fault "$n, in the history: push"
done
api GET /v1/repos/bad
is 'the repository can be looked at' "$status" 200
run bough create w --git bad --ref dotdot
is 'the command fails with 1: nothing is wrong with its arguments' $code 1
like 'and says why' "$err" 'leads out of its folder'

# git's own look at what is reachable finds this one, where it meets the object by its other name.
odd=$(commit "$(entry 100644 f "$main" | put tree)")
git init -q --bare -b main "$T/odd.git" && cp -r "$g/objects" "$T/odd.git" &&
	git -C "$T/odd.git" update-ref refs/heads/main "$odd"
bough_ok 'a repository with a file that is a commit' repo add "$T/odd.git" --name odd
api POST $ws '{"name":"w","git":{"repo":"odd"}}'
refused 'which is no file' 'is no file'

# ---- what is damaged here is our own fault

id=$(bough repo show bad --json | jq -r .id)
m=$BOUGH_ROOT/repos/${id#repo_}
fresh=$(commit "$({ entry 100644 f "$blob" && entry 100644 z "$other"; } | put tree)")
ref fresh "$fresh"
bough_ok 'one more branch' repo fetch bad
tree=$(git -C "$m" rev-parse refs/remotes/origin/fresh^{tree}) || bail 'no tree'
bough_ok 'down' down
# Every copy: what lay there alone may have been packed in the meantime, and be there still.
copies=()
loose=$m/objects/${tree:0:2}/${tree:2}
[ ! -e "$loose" ] || copies+=("$loose" 2)
for idx in "$m"/objects/pack/*.idx; do
	[ -e "$idx" ] || continue
	at=$(git verify-pack -v "$idx" | awk -v o="$tree" '$1 == o { print int($5 + $4 / 2) }')
	[ -z "$at" ] || copies+=("${idx%.idx}.pack" "$at")
done
[ ${#copies[@]} -gt 0 ] || bail 'it is nowhere'
python3 - "${copies[@]}" <<-'PY'
	import os, sys
	for file, at in zip(sys.argv[1::2], map(int, sys.argv[2::2])):
	    os.chmod(file, 0o600)
	    f = os.open(file, os.O_RDWR)
	    b = os.pread(f, 1, at); os.pwrite(f, bytes([b[0] ^ 0x10]), at)
PY
bough_ok 'up' up
create w fresh
is 'a damaged tree is a fault' "$status $(of .code)" '500 internal'
done_testing
