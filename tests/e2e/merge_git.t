#!/bin/bash
# bough merge of checkouts that are no forks of one: by git's trees, judged by git's own merge.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/repo.sh"
export HOME=$T GIT_PAGER=cat
at() { bough path "$1"; }

(
	cd src || exit 1
	mkdir -p a/deep b c
	for i in $(seq 20); do seq "$i" $((i + 40)) >"a/f$i"; done
	seq 100 >lines && echo one >b/one && echo two >b/two && echo x >a/deep/x
	ln -s one b/link && printf '*.o\n' >.gitignore
	printf '*.dos text eol=crlf\n' >.gitattributes && printf 'a\nb\n' >c/t.dos
	git add -A && git commit -qm files && git tag old
	echo newer >c/newer && git rm -q a/f20 && git add -A && git commit -qm newer
	git push -q --tags "$srv/r.git" main
) || bail 'no repository'
bough_ok 'repo add' repo add "$http/r.git" --name r --token-file "$T/token"
M=$(mirror r)
# By what it has: upkeep goes over its files meanwhile.
objects() { git --git-dir="$M" cat-file --batch-all-objects --batch-check='%(objectname)' 2>/dev/null | sort; }
before=$(objects)

fresh() { # REF-OF-OURS REF-OF-THEIRS [OPTIONS-OF-OURS]
	bough rm ours theirs >/dev/null 2>&1
	bough create ours --git r --ref "$1" ${3:-} >/dev/null && bough create theirs --git r --ref "$2" >/dev/null || bail create
	O=$(at ours) TH=$(at theirs)
	O0=$1 T0=$2
}
# What git makes of the two: the tree of `git merge`, or "conflict".
judge() {
	rm -rf j && git clone -q src j && (
		cd j || exit 1
		for side in ours theirs; do
			ref=$O0 && [ $side = theirs ] && ref=$T0
			git checkout -qB $side "$(git -C "$T/src" rev-parse "$ref^{}")" && git rm -rqf . >/dev/null 2>&1
			(cd "$(at $side)" && tar c --exclude=./.git .) | tar x && git add -A &&
				git commit -q --allow-empty -m $side
		done
		git checkout -q ours && git merge -q theirs >/dev/null 2>&1 || { echo conflict; exit; }
		git rev-parse 'HEAD^{tree}'
	)
}
# The tree that ours is now.
tree() {
	rm -rf k && git init -q k && (cd "$(at ours)" && tar c --exclude=./.git .) | tar x -C k &&
		git -C k add -A && git -C k write-tree
}
merge() { run bough merge theirs --into ours; }
work() { # in both: things that go together
	(cd "$TH" && sed -i 's/^90$/ninety/' lines && rm a/f3 && echo n >a/new && mkdir -p d/e && echo e >d/e/e &&
		chmod +x b/one && ln -sfn two b/link && printf 'a\r\nb\r\nc\r\n' >c/t.dos && rm -r a/deep &&
		echo ignored >junk.o && mv a/f7 b/seven)
	(cd "$O" && sed -i 's/^10$/ten/' lines && echo mine >mine && rm a/f4 && sed -i 's/^30$/thirty/' a/f7)
}

# One commit, another history depth: another image, so other inodes.
fresh main main --depth=1
work
want=$(judge)
ino=$(stat -c %i "$O/lines")
merge
is 'two checkouts of a commit' "$code" 0
is 'the tree is what git makes' "$(tree)" "$want"
is 'a text that both changed' "$(sed -n '10p;90p' "$O/lines" | tr '\n' ' ')" 'ten ninety '
is 'it keeps its inode' "$(stat -c %i "$O/lines")" "$ino"
is 'an edit follows a move' "$(grep -c thirty "$O/b/seven")" 1
is 'ends of lines as git writes them' "$(od -An -c "$O/c/t.dos" | tr -d ' \n')" 'a\r\nb\r\nc\r\n'
is 'what git ignores stays where it is' "$(ls "$O/junk.o" 2>/dev/null)" ''
is 'an empty folder goes' "$(ls -d "$O/a/deep" 2>/dev/null)" ''
is 'its git sees what changed' "$(git -C "$O" status --porcelain -uall | wc -l)" \
	"$(git -C "$O" -c core.fsmonitor=false -c core.untrackedCache=false status --porcelain -uall | wc -l)"
ok 'its git finds no fault' git -C "$O" fsck --no-dangling
same_objects() { [ -n "$before" ] && [ "$(objects)" = "$before" ]; }
ok 'the mirror has nothing of it' wait_for 5 same_objects
is 'no scratch is left' "$(ls "$BOUGH_ROOT/tmp")" ''
merge
is 'once more: nothing' "$code:$out" '0:nothing to merge'

# Another commit of the same history, both ways; one side committed meanwhile.
for way in 'old main' 'main old'; do
	fresh $way
	work
	[ "$way" = 'old main' ] && rm "$O/a/f20"
	want=$(judge)
	merge
	is "$way: code" "$code" 0
	is "$way: the tree is what git makes" "$(tree)" "$want"
done
fresh old main
echo first >"$O/first" && bough commit ours -m first --branch first >/dev/null
echo there >"$TH/there" && bough commit theirs -m there --branch there >/dev/null
merge
is 'after commits on both sides' "$code:$(cat "$O/there" "$O/first" "$O/c/newer" | tr '\n' ' ')" '0:there first newer '

# Random edits, with git as the judge.
seed=${BOUGH_SEED:-$RANDOM}
echo "# BOUGH_SEED=$seed"
RANDOM=$seed
edits() { # of the present folder
	local i f
	for i in 1 2 3 4 5; do
		f=a/f$((RANDOM % 19 + 1))
		case $((RANDOM % 5)) in
		0) rm -f "$f" ;;
		1) [ -f "$f" ] && sed -i "$((RANDOM % 40 + 1))s/.*/e$RANDOM/" "$f" ;;
		2) echo "$RANDOM" >"n$((RANDOM % 12))" ;;
		3) [ -f "$f" ] && mkdir -p "m$((RANDOM % 3))" && mv "$f" "m$((RANDOM % 3))/" 2>/dev/null ;;
		4) [ -f "$f" ] && chmod +x "$f" ;;
		esac
	done
}
same=0 refused=0 wrong=0
for round in 1 2 3 4 5 6; do
	fresh main main --depth=1
	(cd "$O" && edits)
	(cd "$TH" && edits)
	want=$(judge)
	had=$(tree)
	merge
	got=$(tree)
	if [ "$code" = 0 ] && [ "$got" = "$want" ]; then
		same=$((same + 1))
	elif [ "$code" = 4 ] && [ "$got" = "$had" ]; then
		refused=$((refused + 1)) # git's own may do more with renames
		[ "$want" = conflict ] || diag "round $round: refused what git merges: $err"
	else
		wrong=$((wrong + 1))
		diag "round $round: code $code, $got, wanted $want; $err"
	fi
done
is "random merges: $same as git's, $refused refused, none wrong" "$wrong" 0
ok 'not all of them are refused' test $same -gt 0

# A folder becomes a file; where something that git ignores is left in it, it can't.
fresh main main --depth=1
(cd "$TH" && rm -r a/deep && echo file >a/deep)
want=$(judge)
merge
is 'a folder becomes a file' "$code:$(tree)" "0:$want"
fresh main main --depth=1
(cd "$TH" && rm -r a/deep && echo file >a/deep)
touch "$O/a/deep/x.o"
merge
is 'not with an ignored file in it' "$code:$(ls "$O/a/deep" | tr '\n' ' ')" '4:x x.o '

# One image, of which one stack was flattened: by inode still.
fresh main main
for i in 1 2 3 4 5 6 7 8 9; do echo $i >"$TH/mine" && bough save theirs -q >/dev/null; done
wait_for 20 sh -c '[ $(bough show theirs --json | jq .layers) -lt 4 ]'
mv "$TH/lines" "$TH/zeilen" && echo more >>"$O/lines"
merge
is 'a flattened one' "$code:$(tail -n 1 "$O/zeilen")" 0:more

# ---- conflicts and refusals: nothing is changed

conflict() { # DESCRIPTION PATH WHY
	local before
	before=$(tree)
	merge
	is "$1: exit code" "$code" 4
	like "$1: says why" "$err" "  $2: $3"
	is "$1: nothing changed" "$(tree)" "$before"
}
fresh main main --depth=1
sed -i 's/^50$/fifty/' "$TH/lines" && sed -i 's/^50$/FIFTY/' "$O/lines"
conflict 'one line' lines 'changed in both'
fresh main main --depth=1
echo t >"$TH/b/one" && rm "$O/b/one"
conflict 'changed and removed' b/one 'changed there, removed here'
fresh main main --depth=1
printf '*.o\n!keep.o\n' >"$TH/.gitignore" && echo t >"$TH/keep.o" && echo o >"$O/keep.o"
conflict 'an ignored file in the way' keep.o 'something that git ignores is in the way here'
is 'which is as it was' "$(cat "$O/keep.o")" o
fresh main main --scope=b
echo t >"$TH/b/one" && echo t >"$TH/a/f1"
conflict 'outside of the scope' a/f1 'outside of the scope here'
git -C "$TH" checkout -q a/f1
merge
is 'within it' "$code:$(cat "$O/b/one")" 0:t

# A link that leads outside.
fresh main main --depth=1
mkdir -p outside && rm -r "$O/b" && ln -s "$T/outside" "$O/b" && echo t >"$TH/b/new"
merge
is 'a link in the place of a folder' "$code:$(ls outside)" '4:'
like 'and it says so' "$err" '  b: a file in one, a folder in the other'

git init -q -b main other && git -C other commit -q --allow-empty -m other && git clone -q --bare other "$srv/o.git"
bough_ok 'another repository' repo add "$http/o.git" --name o --token-file "$T/token"
bough create stranger --git o >/dev/null
bough_fails 'checkouts of different repositories' 4 'different repositories' merge stranger --into ours
(cd src && git checkout -q --orphan lonely && git commit -qm lonely && git push -q "$srv/r.git" lonely)
bough_ok 'fetch' repo fetch r
bough create lonely --git r --ref lonely >/dev/null
bough_fails 'histories with nothing in common' 4 'no common history' merge lonely --into ours

done_testing
