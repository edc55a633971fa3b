#!/bin/bash
# Commits made inside a workspace that name what it never had: the mirror has other branches, and
# what is outside of the scope, and must give none of it away. And honest ones, which pass.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/repo.sh"
export HOME=$T GIT_PAGER=cat

(
	cd src || exit 1
	mkdir -p in out/deep
	echo old >in/a && seq 40 >in/b && echo b >in/c && echo hidden >out/hidden && echo x >out/deep/x
	git add -A && git commit -qm files
	echo other >out/other && echo new >in/a && echo shown >out/hidden && git add -A &&
		git commit -qm newer
	git checkout -qb secret && mkdir vault && echo TOPSECRET >vault/s && cp in/c vault/names-alone &&
		git add -A && git commit -qm secret && git tag -a -m s secret-tag
	git checkout -q main
	git push -q "$srv/r.git" main secret secret-tag
) || bail 'no repository'
secret=$(git -C src rev-parse secret) blob=$(git -C src rev-parse secret:vault/s)
vault=$(git -C src rev-parse secret:vault) tag=$(git -C src rev-parse secret-tag)
hidden=$(git -C src rev-parse main:out/hidden)
bough_ok 'repo add' repo add "$http/r.git" --name r --token-file "$T/token"
M=$(mirror r)
refs=$(git --git-dir="$M" for-each-ref refs/heads)
bough_ok 'create' create all --git r --ref main
bough_ok 'create of a part' create part --git r --ref main --scope in

# Runs the lines in a fork of $1, with $head, and makes what they say HEAD.
n=0
make_head() { # WS LINES
	n=$((n + 1))
	bough fork "$1" "f$n" >/dev/null
	w=$(at "f$n")
	cd "$w" || exit 1
	head=$(git rev-parse HEAD)
	new=$(eval "$2" 2>"$T/made")
	echo "$new" >.git/HEAD
	cd "$T" || exit 1
	[[ $new =~ ^[0-9a-f]{40}$ ]] || diag "made: $new $(cat "$T/made")"
}
refused() { # WHAT WS TEXT LINES
	make_head "$2" "$4"
	bough_fails "$1" 4 "$3" commit "f$n" --history --branch "leak-$n" --sync
	is "$1: nothing moved" "$(git --git-dir="$M" for-each-ref refs/heads)" "$refs"
	is "$1: nothing came out" "$(git -C "$w" cat-file -p $blob 2>&1 | grep -c TOPSECRET)" 0
	is "$1: no scratch is left" "$(ls "$BOUGH_ROOT/tmp")" ''
	bough rm "f$n"
}
passes() { # WHAT WS LINES
	make_head "$2" "$3"
	bough_ok "$1" commit "f$n" --history --branch "ok-$n"
	is "$1: its HEAD" "$(tip r "ok-$n")" "$new"
	bough rm "f$n"
	refs=$(git --git-dir="$M" for-each-ref refs/heads)
}
raw() { # TREE PARENT…: a commit as bytes
	printf 'tree %s\n' "$1" && shift && printf 'parent %s\n' "$@" &&
		printf 'author a <a@x> 1700000000 +0000\ncommitter a <a@x> 1700000000 +0000\n\nm\n'
}
object() { git hash-object -t "$1" -w --stdin --literally; }
# A tree of $head's entries, and the lines
plus() { { git ls-tree "$head" && printf "$@"; } | git mktree --missing; }

refused 'a parent of another branch' all 'leads to commit' \
	'raw "$head^{tree}" >/dev/null; raw $(git rev-parse $head^{tree}) $head $secret | object commit'
refused 'its blob' all 'never had: leak' \
	'git commit-tree -p $head -m x $(plus "100644 blob $blob\tleak\n")'
refused 'its blob, two commits deep and gone again' all 'never had: d/leak' \
	'sub=$(printf "100644 blob $blob\tleak\n" | git mktree --missing)
	one=$(git commit-tree -p $head -m x $(plus "040000 tree $sub\td\n"))
	git commit-tree -p $one -m y $head^{tree}'
refused 'its tree' all 'never had: leak/' \
	'raw $(plus "040000 tree $vault\tleak\n") $head | object commit'
refused 'its root' all 'never had: its tree' \
	'raw $(git -C "$T/src" rev-parse secret^{tree}) $head | object commit'
refused 'its tag in HEAD' all '' 'echo $tag'
refused 'its tag as a parent' all '' 'raw $(git rev-parse $head^{tree}) $head $tag | object commit'
refused 'a loose file that claims to be it' all '' \
	'mkdir -p .git/objects/${blob:0:2}
	mine=$(echo mine | git hash-object -w --stdin)
	cp .git/objects/${mine:0:2}/${mine:2} .git/objects/${blob:0:2}/${blob:2}
	git commit-tree -p $head -m x $(plus "100644 blob $blob\tleak\n")'
refused 'a pack that leans on it' all '' \
	'python3 - "$blob" <<"END"
import sys, zlib, hashlib, struct
oid = bytes.fromhex(sys.argv[1])
delta = bytes([10, 10, 0x91, 0, 10]) # copies all 10 bytes of the base
body = b"PACK" + struct.pack(">II", 2, 1) + bytes([0x70 | len(delta)]) + oid + zlib.compress(delta)
name = hashlib.sha1(body).digest()
open(".git/objects/pack/pack-%s.pack" % name.hex(), "wb").write(body + name)
END
	git commit-tree -p $head -m x $(plus "100644 blob $blob\tleak\n")'
refused 'a file outside of the scope, in it' part 'never had: in/leak' \
	'sub=$({ git ls-tree $head:in && printf "100644 blob $hidden\tleak\n"; } | git mktree --missing)
	git commit-tree -p $head -m x $(git ls-tree $head | sed "s/^\(.*tree \)[0-9a-f]*\tin$/\1$sub\tin/" |
		git mktree --missing)'
refused 'one outside of it elsewhere outside' part 'never had: moved' \
	'git commit-tree -p $head -m x $(plus "100644 blob $hidden\tmoved\n")'
refused 'one in the place of another' part 'never had: out/deep/x' \
	'deep=$(printf "100644 blob $hidden\tx\n" | git mktree --missing)
	out=$({ git ls-tree $head:out | grep -v deep; printf "040000 tree $deep\tdeep\n"; } |
		git mktree --missing)
	git commit-tree -p $head -m x $(git ls-tree $head |
		sed "s/^\(.*tree \)[0-9a-f]*\tout$/\1$out\tout/" | git mktree --missing)'
refused 'a folder outside of it, in it' part 'never had: in/o/hidden' \
	'sub=$({ git ls-tree $head:in && printf "040000 tree $(git rev-parse $head:out)\to\n"; } |
		git mktree --missing)
	git commit-tree -p $head -m x $(git ls-tree $head | sed "s/^\(.*tree \)[0-9a-f]*\tin$/\1$sub\tin/" |
		git mktree --missing)'

refused 'folders without an end' all 'a tree has more than 4000000 paths' \
	't="100644 blob $(echo x | git hash-object -w --stdin)"
	for i in $(seq 8); do
		t="040000 tree $(for j in $(seq 1000); do printf "$t\t$j\n"; done | git mktree)"
	done
	t=${t##* }
	git commit-tree -p $head -m x $(plus "040000 tree $t\tbomb\n")'

# What was outside of the scope may come back to where it was, and to nowhere else.
bough_ok 'create' create shallow --git r --ref main --scope in --depth 1
turn() { # PATH ID: $head's tree with that blob there, as lines for git mktree
	printf 'sub=$(git ls-tree $head:%s | sed "s/^\\(100644 blob \\)[0-9a-f]*\\t%s$/\\1%s\\t%s/" | git mktree --missing)
	git commit-tree -p $head -m x $(git ls-tree $head |
		sed "s/^\\(040000 tree \\)[0-9a-f]*\\t%s$/\\1$sub\\t%s/" | git mktree --missing)' \
		"${1%/*}" "${1#*/}" "$2" "${1#*/}" "${1%/*}" "${1%/*}"
}
older=$(git -C src rev-parse main~1:out/hidden)
passes 'a file outside of the scope as it was' part "$(turn out/hidden "$older")"
refused 'one that is behind the depth' shallow 'never had: out/hidden' "$(turn out/hidden "$older")"
refused 'an older one in the place of another' part 'never had: out/other' "$(turn out/other "$older")"
passes 'git revert of a change outside of the scope' part \
	'git config user.name a; git config user.email a@x; git checkout -q --detach >&2
	git revert --no-edit HEAD >&2; git rev-parse HEAD'

work='git config user.name a; git config user.email a@x; git checkout -q --detach;'
for ws in all part; do
	passes "$ws: a merge of branches inside" $ws "$work"'
		{ echo 1 >in/one; git add -A; git commit -m one; git checkout -b side $head; echo 2 >in/two
		echo end >>in/b; git add -A; git commit -m two; git merge -m merge HEAD@{2}; } >&2
		git rev-parse HEAD'
	passes "$ws: back to an older content" $ws "$work"'
		{ git checkout $head~1 -- in/a; git commit -m back; } >&2; git rev-parse HEAD'
	passes "$ws: files and folders renamed" $ws "$work"'
		{ git mv in/a in/z; git commit -m r; mkdir in/d; git mv in/b in/c in/d; chmod +x in/d/c
		git commit -am d; git mv in/d in/e; git commit -m e; } >&2; git rev-parse HEAD'
	passes "$ws: after a gc" $ws "$work"'
		{ echo gc >in/gc; git add -A; git commit -m gc; git gc --prune=now; echo 2 >in/gc
		git commit -am 2; } >&2; git rev-parse HEAD'
	passes "$ws: a root of its own, merged" $ws "$work"'
		{ own=$(git commit-tree -m own $(printf "100644 blob $(echo o | git hash-object -w --stdin)\to\n" |
			git mktree)); git merge --allow-unrelated-histories -m m $own; } >&2
		git rev-parse HEAD'
done
passes 'a merge of a new commit with an old one' all 'git commit-tree -p $head -p $head~1 -m x $head^{tree}'
passes 'a submodule of an unknown commit' all \
	'git commit-tree -p $head -m x $(plus "160000 commit $secret\tsub\n")'
ok 'git finds no fault' whole "$M"
# What was synced is the workspace's too.
w=$(at part)
echo host >"$w/in/host"
bough_ok 'a commit outside' commit part -m host --branch both --sync
(cd "$w" && eval "$work" && git reset -q bough/both && git mv in/host in/moved && git commit -qm moved) ||
	diag 'no commit'
bough_ok 'one inside on it' commit part --history
is 'is there' "$(tip r both)" "$(git -C "$w" rev-parse HEAD)"
done_testing
