#!/bin/bash
# Back to git: diff, commit and push of checkouts, judged by system git; workspaces that lie.
# A part of it acts as another user, as in checkout.t.
if [ "$(id -u)" = 0 ] && [ -c /dev/fuse ] && [ -z "${BOUGH_TEST_OWN_FUSE:-}" ] &&
	[ "$(stat -c %a /dev/fuse)" != 666 ] && unshare -m true 2>/dev/null; then
	exec env BOUGH_TEST_OWN_FUSE=1 unshare -m "$0" "$@"
fi
. "${0%/*}/lib.sh"
need_fuse
if [ -n "${BOUGH_TEST_OWN_FUSE:-}" ]; then
	mknod -m 666 "$T/fuse" c 10 229 && mount --bind "$T/fuse" /dev/fuse || skip_all 'no /dev/fuse'
fi
. "$BOUGH_SRC/tests/e2e/repo.sh"
export HOME=$T GIT_PAGER=cat

(
	cd src || exit 1
	mkdir -p net/core net/ipv4 doc
	for i in $(seq 40); do seq "$i" $((i + 30)) >"net/core/f$i.c"; done
	seq 50 >net/ipv4/tcp.c && echo doc >doc/readme && echo run >run && chmod 755 run
	ln -s run link && printf '*.o\n' >.gitignore && printf '*.txt text\n' >.gitattributes
	git add -A && git commit -qm files && git push -q "$srv/r.git" main
) || bail 'no repository'
bough_ok 'repo add' repo add "$http/r.git" --name r --token-file "$T/token"
M=$(mirror r)
base=$(tip r)
in_mirror() { git --git-dir="$M" "$@"; }
bough_ok 'create' create w --git r
w=$out

# ---- diff

bough_ok 'nothing differs at first' diff w
is 'no line' "$out" ''
cd "$w" || exit 1
sed -i 's/^10$/ten/' net/core/f1.c
rm net/core/f2.c
mv net/ipv4 net/inet
chmod +x doc/readme
ln -sfn elsewhere link
printf 'a\r\nb\r\n' >dos.txt
head -c 3000 /dev/urandom >bin
touch ignored.o run
echo 'ünï' >'new file'
cd "$T" || exit 1
git clone -q src judge && rm -rf judge/* && (cd "$w" && tar c --exclude=./.git .) | tar x -C judge
git -C judge add -A
for f in name-status stat; do
	run bough diff w --$f
	is "--$f is git's" "$out" "$(git -C judge diff --cached -M --$f)"
done
run bough diff w --patch
mv .out patch
ok 'git applies the patch' git -C src apply --index "$T/patch"
is 'and gets the tree' "$(git -C src write-tree)" "$(git -C judge write-tree)"
git -C src reset -q --hard
bough_ok 'as JSON' diff w --json
is 'a rename in it' "$(json '.items[] | select(.kind == "renamed") | .old_path')" net/ipv4/tcp.c

# ---- commit

bough_ok 'commit' commit w -m 'first' --author 'Jo <jo@example.org>' --branch work
c1=$out
is 'on the branch' "$(tip r work)" "$c1"
is 'on the base' "$(in_mirror rev-parse work~1)" "$base"
is 'the tree is git'\''s' "$(in_mirror rev-parse 'work^{tree}')" "$(git -C judge write-tree)"
is 'whose it is' "$(in_mirror log -1 --format='%an <%ae> %s' work)" 'Jo <jo@example.org> first'
ok 'git finds no fault' whole "$M"
left() { find "$M" \( -name 'tmp_*' -o -name 'bough_*' \) 2>/dev/null | grep -q .; }
ok 'nothing is left in the mirror' wait_for 5 not left # but what upkeep is about to rename
bough_ok 'again' commit w -m 'again' --json
is 'says that nothing changed' "$(json .unchanged)" true
is 'and which commit that is' "$(json .commit)" "$c1"
is 'the branch is remembered' "$(json .branch)" work
bough_ok 'since then' diff w --since anchor
is 'nothing differs' "$out" ''
echo more >>"$w/run"
run bough diff w --since anchor
is 'only what came since' "$out" $'M\trun'
bough_ok 'a second commit' commit w -m second
is 'is on the first' "$(in_mirror rev-parse work~1)" "$c1"
ok 'the workspace was not touched' test "$(git -C "$w" rev-parse HEAD)" = "$base"
bough_ok 'a save' save w --as s1
bough_ok 'a commit of a snapshot' commit s1 -m snap --branch from-snap
like 'makes the branch, and says so' "$err" 'from-snap is there now: nothing has changed'
is 'finds nothing new' "$(in_mirror rev-parse 'from-snap^{tree}')" "$(in_mirror rev-parse 'work^{tree}')"

# Once it was flattened, the same comes out.
run bough diff w
before=$out
for i in 1 2 3 4 5 6 7 8 9; do echo $i >"$w/run" && bough commit w -m "$i" -q >/dev/null; done
wait_for 20 sh -c '[ $(bough show w --json | jq .layers) -lt 4 ]'
run bough diff w
is 'the same after flattening' "$out" "$before"

# Each commit is a pack; upkeep goes over them when they are many. That of the commits above may come
# in between.
packs() { find "$M/objects/pack" -name '*.pack' | wc -l; }
for i in $(seq 140); do
	[ "$(packs)" -ge 60 ] && break
	printf 'blob\ndata <<E\n%s\nE\n' "$i" | in_mirror -c fastimport.unpackLimit=0 fast-import --quiet
done
ok 'many packs' [ "$(packs)" -ge 50 ]
echo packs >"$w/run" && bough_ok 'a commit' commit w -m packs -q
few() { [ "$(packs)" -lt 20 ]; }
ok 'become few' wait_for 20 few
ok 'and git finds no fault' whole "$M"

# ---- killed when the branch had moved and the row hadn't heard

bough_ok 'create' create k --git r --ref "$base"
echo 1 >"$(at k)/k" && bough_ok 'commit' commit k -m k1 --branch killed
echo 2 >"$(at k)/k" && bough_ok 'a second' commit k -m k2
k1=$(in_mirror rev-parse killed~1) k2=$(tip r killed)
row() { sqlite3 "$BOUGH_ROOT/catalog.db" "$1"; }
is 'nothing is pending' "$(row "SELECT git LIKE '%pending%' FROM workspaces WHERE name = 'k'")" 0
kill_hard boughd
row "UPDATE workspaces SET git = json_set(git, '\$.anchor', '$k1', '\$.pending', '$k2') WHERE name = 'k'"
bough_ok 'what is there then is found' commit k -m again --json
is 'and taken' "$(json .commit)" "$k2"
is 'for good' "$(row "SELECT json_extract(git, '\$.anchor') FROM workspaces WHERE name = 'k'")" "$k2"
kill_hard boughd
row "UPDATE workspaces SET git = json_set(git, '\$.anchor', '$k1', '\$.pending', '$k2') WHERE name = 'k'"
echo 3 >"$(at k)/k" && bough_ok 'with other files, too' commit k -m k3
is 'it stands on what was there' "$(in_mirror log --format=%s "$base..killed" | tr '\n' ' ')" 'k3 k2 k1 '
is 'nothing is pending' "$(row "SELECT git LIKE '%pending%' FROM workspaces WHERE name = 'k'")" 0
kill_hard boughd
k3=$(tip r killed)
row "UPDATE workspaces SET git = json_set(git, '\$.anchor', '$k2', '\$.branch', 'before', '\$.pending', '$k3',
	'\$.pending_branch', 'killed') WHERE name = 'k'"
run bough diff k --since anchor
is 'diff knows it' "$code$out" 0
run bough push k --json
is 'push sends it' "$(json '.commit + .branch')" "${k3}killed"
kill_hard boughd
row "UPDATE workspaces SET git = json_set(git, '\$.anchor', '$k1', '\$.branch', 'killed', '\$.pending', '$k1',
	'\$.pending_branch', 'killed') WHERE name = 'k'"
echo 4 >"$(at k)/k"
bough_fails 'a branch that is elsewhere stays refused' 4 'killed is at.*--branch NAME.*bough repo reset REPO killed' commit k -m k4

# ---- two forks, one branch

bough_ok 'forks' fork w x y
echo x >"$(at x)/x" && echo y >"$(at y)/y"
bough commit x -m x --branch race >"$T/x.out" 2>"$T/x.err" & p=$!
bough commit y -m y --branch race >"$T/y.out" 2>"$T/y.err"
cy=$?
wait $p
cx=$?
is 'one gets the branch, the other code 4' "$((cx + cy)) $((cx * cy))" '4 0'
like 'and hears why' "$(cat "$T/x.err" "$T/y.err")" 'race'
[ $cx = 0 ] && loser=y || loser=x
bough_ok 'another branch is free' commit $loser -m $loser --branch other
# Branches lie like files, and some names mean something else.
for b in HEAD refs/heads/x -x "$(printf '%0252d' 0)"; do
	run bough commit $loser -m x "--branch=$b"
	is "no branch $b" $code 2
	run bough create nobranch --git r "--branch=$b"
	is 'nor to begin with' $code 2
	run bough push w "--branch=$b"
	is 'nor to push to' $code 2
done
run bough commit $loser -m x --branch other/below
is 'no branch below a branch' $code 4
like 'and it says why' "$err" 'there is a branch other'
git clone -q "$http/r.git" other && git -C other commit -q --allow-empty -m theirs &&
	git -C other push -q origin main
bough_ok 'the origin moves on' repo fetch r
bough_ok 'create' create z --git r --ref "$base"
echo z >"$(at z)/z"
bough_fails 'a branch that has more than the workspace saw' 4 'main is at' commit z -m z --branch main
is 'it did not move' "$(tip r)" "$(git -C other rev-parse HEAD)"

# ---- commits made inside

bough_ok 'create' create i --git r --ref main --branch inner
i=$(at i)
cd "$i" || exit 1
git config user.name Agent && git config user.email agent@example.org
echo 1 >in1 && git add in1 && git commit -qm 'inside 1'
git rm -q doc/readme && git commit -qm 'inside 2' && git gc -q 2>/dev/null
git tag -a -m x inside-tag
echo dirty >in3
cd "$T" || exit 1
bough_fails 'they are asked about' 4 'own git has moved to [0-9a-f]+ on inner' commit i -m x
bough_ok 'fork' fork i i2
bough_ok '--squash' commit i2 -m squashed --squash --branch squash
is 'one commit' "$(in_mirror rev-list --count main..squash)" 1
bough_ok '--history' commit i --history -m 'the rest' --branch hist
is 'its commits and the rest' "$(in_mirror log --format=%s main..hist)" $'the rest\ninside 2\ninside 1'
is 'under their own ids' "$(in_mirror rev-parse hist~1)" "$(git -C "$i" rev-parse HEAD)"
is 'the same files' "$(in_mirror rev-parse 'hist^{tree}')" "$(in_mirror rev-parse 'squash^{tree}')"
ok 'git finds no fault' whole "$M"
is 'no scratch is left' "$(ls "$BOUGH_ROOT/tmp")" ''
bough_ok 'fork' fork i i4
for m in one two; do # what was taken over isn't asked about again
	echo $m >"$(at i4)/in5" && bough_ok "and $m more on it" commit i4 -m $m --branch more
done
is 'stand on those' "$(in_mirror log --format=%s main..more | xargs)" 'two one the rest inside 2 inside 1'
echo 4 >"$i/in4" && git -C "$i" add -A && git -C "$i" commit -qm 'inside 3'
bough_fails 'a history that forked off' 4 "doesn't come from.*--squash.*--branch NEW" commit i --history
bough_ok 'fork' fork i i3
bough_ok 'on a branch of its own' commit i3 --history --branch apart
is 'it is all there' "$(tip r apart)" "$(git -C "$i" rev-parse HEAD)"
bough rm i2 i3
bough_ok '--sync' commit i -m synced --squash --sync
is 'its own git knows the commit' "$(git -C "$i" rev-parse bough/hist)" "$(tip r hist)"
is 'and is on its own branch still' "$(git -C "$i" log -1 --format=%s)" 'inside 3'
ok 'and is sound' git -C "$i" fsck --strict
# A boughd that was killed in the middle of it has left half a pack.
half=$(for x in "$i"/.git/objects/pack/*.idx; do
	git show-index --object-format=sha1 <"$x" | grep -q "$(tip r hist)" && echo "${x%.idx}"
done)
chmod u+w "$half.pack" && truncate -s 40 "$half.pack" && rm -f "$half.idx" && git -C "$i" update-ref -d refs/remotes/bough/hist
bough_ok '--sync once more' commit i -m synced --squash --sync
is 'its own git knows it again' "$(git -C "$i" rev-parse bough/hist) $(git -C "$i" cat-file -t bough/hist)" "$(tip r hist) commit"
ok 'and is sound again' git -C "$i" fsck --strict
git -C "$i" reset -q bough/hist
is 'it can move on to it' "$(git -C "$i" status --porcelain)" ''
echo 5 >"$i/in5" && git -C "$i" add -A && git -C "$i" commit -qm 'inside 4'
bough_ok 'then --history goes on' commit i --history
is 'to its HEAD' "$(tip r hist)" "$(git -C "$i" rev-parse HEAD)"

# ---- workspaces that lie

bough_ok 'create' create h --git r --ref "$base"
h=$(at h)
echo change >>"$h/run"
real=$(git -C "$h" rev-parse HEAD)
lie() { # DESCRIPTION, then how; commit must survive and take the files
	bough fork h "h$((++n))" >/dev/null
	(cd "$(at "h$n")" && eval "$2") >/dev/null 2>&1
	run timeout 60 bough commit "h$n" -m "$1" --branch "lie/$n"
	is "$1" "$code" 0
	[ $code = 0 ] || diag_run
	is "$1: the tree" "$(in_mirror rev-parse "lie/$n^{tree}" 2>&1)" "$want"
}
n=0
bough commit h -m h --branch lie/0 -q >/dev/null 2>&1
want=$(in_mirror rev-parse 'lie/0^{tree}')
lie 'no .git' 'rm -rf .git'
lie '.git is a link' 'mv .git ../../git-gone 2>/dev/null; rm -rf .git; ln -s / .git'
lie '.git is a fifo' 'rm -rf .git; mkfifo .git'
lie '.git is a file' 'rm -rf .git; echo "gitdir: /etc" >.git'
lie 'HEAD is a link' 'ln -sf /etc/passwd .git/HEAD'
lie 'HEAD is a fifo' 'rm .git/HEAD; mkfifo .git/HEAD'
lie 'HEAD is garbage' 'head -c 4000 /dev/urandom >.git/HEAD'
lie 'HEAD is huge' 'truncate -s 10G .git/HEAD'
lie 'HEAD leads out' 'echo "ref: refs/heads/../../../../etc/passwd" >.git/HEAD'
lie 'the branch is a folder' 'rm -rf .git/refs/heads; mkdir -p .git/refs/heads; echo "ref: refs/heads/d" >.git/HEAD; mkdir .git/refs/heads/d'
lie 'packed-refs is huge' 'echo "ref: refs/heads/p" >.git/HEAD; truncate -s 10G .git/packed-refs'
lie 'packed-refs is one line' 'echo "ref: refs/heads/p" >.git/HEAD; head -c 3M /dev/zero | tr "\0" a >.git/packed-refs'
lie 'the index is huge' 'truncate -s 10G .git/index'
lie 'hooks and config that run things' 'printf "#!/bin/sh\ntouch '"$T"'/ran\n" >.git/hooks/pre-commit;
	chmod +x .git/hooks/pre-commit; git config core.fsmonitor "touch '"$T"'/ran"; git config core.sshCommand "touch '"$T"'/ran"'
ok 'nothing of them ran' test ! -e "$T/ran"
bough_ok 'a history that lies' fork h hl
hl=$(at hl)
git -C "$hl" commit -qam real
obj=$(git -C "$hl" rev-parse HEAD | sed 's|..|&/|')
chmod u+w "$hl/.git/objects/$obj"
printf x | dd of="$hl/.git/objects/$obj" bs=1 seek=20 conv=notrunc status=none
bough_fails 'a damaged object' 4 "can't be taken over" commit hl --history --branch liar
evil=$(git -C "$hl" hash-object -w --stdin <<<evil)
fake=$(git -C "$hl" hash-object --stdin <<<innocent)
mkdir -p "$hl/.git/objects/${fake:0:2}"
cp "$hl/.git/objects/${evil:0:2}/${evil:2}" "$hl/.git/objects/${fake:0:2}/${fake:2}"
tree=$(printf '100644 blob %s\tf\n' "$fake" | git -C "$hl" mktree --missing)
bad=$(git -C "$hl" commit-tree -p "$real" -m bad "$tree")
echo "$bad" >"$hl/.git/HEAD"
bough_fails 'an object under another'\''s name' 4 "can't be taken over" commit hl --history --branch liar
dotgit=$(printf '100644 blob %s\t.git\n' "$evil" | git -C "$hl" mktree)
bad=$(git -C "$hl" commit-tree -p "$real" -m bad "$dotgit")
echo "$bad" >"$hl/.git/HEAD"
bough_fails 'a tree with .git in it' 4 "can't be taken over" commit hl --history --branch liar
is 'nothing of it came' "$(in_mirror cat-file -t "$bad" 2>&1 | head -c 5)" fatal
is 'no scratch is left' "$(ls "$BOUGH_ROOT/tmp")" ''

# ---- what is left out

cd "$h" || exit 1
mkdir nested && git -C nested init -q && echo n >nested/n
mkfifo fifo
mkdir .GIT && echo x >.GIT/config
cd "$T" || exit 1
run bough commit h -m 'left out' --branch left --json
is 'all of it is told' "$(json '.warnings | length')" 3
is 'and none is in the tree' "$(in_mirror rev-parse 'left^{tree}')" "$want"

# ---- what can't be converted, and what was moved out of sight

bough_ok 'create' create e --git r --ref "$base"
e=$(at e)
printf '*.le working-tree-encoding=UTF-16LE-BOM\n*.odd working-tree-encoding=no-such\n' >"$e/.gitattributes"
printf '\xff\xfea\0\n\0' >"$e/a.le"
bough_ok 'a file of UTF-16LE-BOM' commit e -m le --branch le
is 'is UTF-8 in git' "$(in_mirror show le:a.le)" a
echo odd >"$e/x.odd" && mv "$e/net/core/f1.c" "$e/net/core/f1.o"
run bough diff e --since anchor
is 'diff goes on where an encoding is unknown' "$code $out" $'0 D\tnet/core/f1.c\nA\tx.odd'
like 'and warns of it' "$err" 'x.odd: it is taken as it is: .*no-such'
like 'and of what was moved to where it is ignored' "$err" '1 file that was moved is ignored'
bough_fails 'commit names it' 4 'x.odd: .*no-such' commit e -m odd
rm "$e/x.odd"
bough_ok 'without it' commit e -m moved
like 'commit says it too' "$err" '1 file that was moved is ignored'

# ---- scope

bough_ok 'create of a part' create p --git r --ref "$base" --scope net/ipv4
echo scoped >>"$(at p)/net/ipv4/tcp.c"
bough_ok 'its commit' commit p -m scoped --branch scoped
is 'only that file changed' "$(in_mirror diff --name-status "$base" scoped)" $'M\tnet/ipv4/tcp.c'

# ---- push

bough_ok 'push' push w
is 'the branch is there' "$(git --git-dir="$srv/r.git" rev-parse work)" "$(tip r work)"
is 'the token is nowhere' "$(grep -rlF "$token" "$BOUGH_ROOT/run" "$w/.git/config" 2>/dev/null)" ''
git -C other fetch -q && git -C other checkout -q work && git -C other commit -q --allow-empty -m theirs &&
	git -C other push -q origin work
echo again >>"$w/run"
bough_ok 'a commit' commit w -m again
bough_fails 'no fast-forward' 4 'has commits' push w
theirs=$(git -C other rev-parse HEAD)
bough_fails 'a lease on another commit' 4 'expected' push w --force-with-lease-of "$base"
bough_ok 'the right lease' push w --force-with-lease-of "$theirs"
is 'is there then' "$(git --git-dir="$srv/r.git" rev-parse work)" "$(tip r work)"
bough_ok 'create' create q --git r
bough_fails 'nothing to push' 4 'nothing was committed' push q
k=0
for name in con 'a.' 'back\slash' RUN; do
	k=$((k + 1))
	bough fork q "q-$k" >/dev/null
	echo x >"$(at "q-$k")/$name"
	bough commit "q-$k" -m n --branch "name-$k" -q >/dev/null
	bough_fails "a name that others can't hold: $name" 4 'other systems' push "q-$k"
	bough rm "q-$k"
done
bough_ok 'create' create path --git r && bough_ok 'a repository by path' repo add "$T/src" --name bypath
bough_ok 'create' create bp --git bypath
echo x >"$(at bp)/x" && bough_ok 'commit' commit bp -m x --branch b
bough_fails 'is not pushed to' 4 'came from a path' push bp
bough_ok 'but elsewhere' push bp --remote "$http/r.git" --branch from-path
bough_fails 'a remote that is a path' 2 '' push bp --remote "$T/src"

# ---- bad input

bough_ok 'no checkout' create plain
bough_fails 'commit of it' 2 'no checkout' commit plain -m x
bough_fails 'push of it' 2 'no checkout' push plain
bough_fails 'no message' 2 'MESSAGE' commit w
bough_fails 'an empty one' 2 'empty' commit w -m ' '
bough_fails 'a bad author' 2 'Name <address>' commit w -m x --author nobody
bough_fails 'a bad branch' 2 'no name for a branch' commit w -m x --branch 'a..b'
bough_fails 'unknown' 3 'no workspace or snapshot' commit nowhere -m x
bough_fails 'both' 2 'either' commit w -m x --squash --history
bough_fails 'since what' 2 'base' diff w --since yesterday
bough_fails 'since, of no checkout' 2 'checkout' diff plain --since anchor

# ---- another user

if [ "$(id -u)" = 0 ] && fusermount3 --version >/dev/null 2>&1; then
	uid=65534
	user() { setpriv --reuid=$uid --regid=$uid --clear-groups --inh-caps=-all "$@"; }
	chmod 711 "$T" && mkdir -m 700 "$T/u" && chown $uid:$uid "$T/u"
	mkdir "$T/bin" && cp "$BOUGH_BIN"/bough "$BOUGH_BIN"/boughd "$BOUGH_BIN"/bough-* "$T/bin"
	chmod -R a+rX "$T/bin"
	first=$BOUGH_ROOT
	export BOUGH_ROOT=$T/u/root HOME=$T/u PATH=$T/bin:/usr/bin:/bin
	EXTRA_ROOTS=$first
	run user bough repo add "$http/r.git" --name r --token-file "$T/token"
	run user bough create w --git r
	w=$out
	user sh -c 'cd "$1" && echo u >u && git add u && git -c user.name=U -c user.email=u@x commit -qm u &&
		echo v >v' - "$w"
	run user bough commit w --history -m v --branch user --sync
	is 'a user commits, with history' $code 0
	[ $code = 0 ] || diag_run
	run user bough push w
	is 'and pushes' $code 0
	is 'what he made' "$(git --git-dir="$srv/r.git" log --format=%s -2 user)" $'v\nu'
fi

done_testing
