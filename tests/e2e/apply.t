#!/bin/bash
# bough apply: what a checkout changed, into another checkout of the repository.
. "${0%/*}/lib.sh"
need_fuse

export GIT_CONFIG_NOSYSTEM=1 HOME=$T
git config --global user.name Tester
git config --global user.email t@example.org
git config --global init.defaultBranch main

git init -q up
(
	cd up || exit 1
	mkdir -p src docs
	seq 1 100 >src/lines
	echo a >docs/a
	echo b >docs/b
	printf '*.o\n' >.gitignore
	git add -A && git commit -qm base
) || bail 'git'
bough_ok 'a mirror' repo add up --name up
bough_ok 'a checkout' create work --git up
W=$out
base=$(git -C up rev-parse HEAD)

run bough apply work --to up
is 'nothing changed' "$code:$out" '0:work has changed nothing'

(
	cd "$W" || exit 1
	sed -i 's/^50$/fifty/' src/lines
	git mv docs/a docs/moved
	rm docs/b
	printf 'bin\0ary' >binary
	echo x >script && chmod +x script
	ln -s src/lines link
	echo ignored >out.o
)
fresh() { rm -rf co && git clone -q up co; }

fresh
run bough apply work --to co
is 'applies' "$code" 0
is 'files' "$(git -C co status --porcelain | tr '\n' ' ')" \
	'A  binary D  docs/b R  docs/a -> docs/moved A  link A  script M  src/lines '
is 'contents' "$(sed -n 50p co/src/lines) $(readlink co/link) $(stat -c %a co/script)" 'fifty src/lines 755'
is 'what is ignored stays' "$(ls co/*.o 2>/dev/null)" ''
# How many pages of files aren't on the disk: cachestat(2), from Linux 6.5 on.
dirty() {
	python3 -c '
import ctypes, os, sys
stat = (ctypes.c_uint64 * 5)()
pages = 0
for name in sys.argv[1:]:
    fd = os.open(name, os.O_RDONLY)
    if ctypes.CDLL(None).syscall(451, fd, (ctypes.c_uint64 * 2)(), stat, 0) == 0:
        pages += stat[1]
    os.close(fd)
print(pages)' "$@"
}
fresh
touch before
run bough apply work --to co --commit -m 'the work' --author 'Some One <s@example.org>'
is 'commits' "$code" 0
mapfile -t written < <(find co/.git/objects co/.git/refs -type f -newer before)
ok 'objects and a branch' [ ${#written[@]} -gt 2 ]
is 'which are on the disk' "$(dirty "${written[@]}")" 0
is 'as told' "$(git -C co log -1 --format='%s %an %ae %P')" "the work Some One s@example.org $base"
is 'git finds it sound' "$(git -C co fsck --strict 2>&1 | grep -v dangling)" ''
want=$(git -C co rev-parse 'HEAD^{tree}')
bough_ok 'from a snapshot' save work --as done
fresh
run bough apply done --to co --commit
is 'the same' "$code:$(git -C co rev-parse 'HEAD^{tree}')" "0:$want"
fresh
run bough apply work --to co --patch --json
is 'JSON' "$code:$(jq -r '.paths | length' <<<"$out")" 0:7
is 'the index stays' "$(git -C co diff --cached --name-only)" ''

# Three ways, and what is in the way.
fresh
sed -i 's/^10$/ten/' co/src/lines && git -C co commit -qam more
run bough apply work --to co --commit
is 'three ways' "$code:$(sed -n '10p;50p' co/src/lines | tr '\n' ' ')" '0:ten fifty '
fresh
echo local >>co/src/lines
before=$(git -C co status --porcelain; cat co/src/lines; ls co)
run bough apply work --to co
is 'a local change' "$code" 4
like 'named' "$err" src/lines
is 'nothing changed' "$(git -C co status --porcelain; cat co/src/lines; ls co)" "$before"

# What can't be.
run bough apply work --to "$T/nowhere"
is 'no checkout' "$code" 3
git init -q strange && git -C strange commit -q --allow-empty -m x
run bough apply work --to strange
is 'another repository' "$code" 3
like 'says what is missing' "$err" "hasn't the commit $base"
run bough apply nobody --to up
is 'unknown workspace' "$code" 3
bough_ok 'no checkout' create plain
run bough apply plain --to up
is 'a plain workspace' "$code" 2
like 'says so' "$err" 'no checkout of a repository'
run bough apply work
is 'without --to' "$code" 2
run bough apply work --to up --author nobody
is 'a bad author' "$code" 2
for author in $'A\nB <a@b>' $'A <a@b\n>' 'A <a> <b@c>'; do
	run bough apply work --to up --author "$author"
	is 'an author that is no line' "$code" 2
done

# Anybody's git can read what the API gives.
run curl -s --unix-socket "$BOUGH_ROOT/run/boughd.sock" "http://x/v1/workspaces/work/bundle" -o b.bundle
ok 'a bundle' git -C up bundle verify -q ../b.bundle
fresh
ok 'fetched from' git -C co fetch -q ../b.bundle refs/heads/bough:got
is 'its tree' "$(git -C co rev-parse 'got^{tree}')" "$want"

# All or nothing, also where it fails in the middle: no file may be larger than 64 KiB, and one is.
state() { (cd co && git status --porcelain --ignored && git log --format=%H -1 && find . -name .git -prune -o -ls |
	awk '{ print $3, $5, $7, $11 }' | sort && git ls-files -s | sha1sum && cat src/lines && ls .git); }
(
	cd "$W" || exit 1
	mkdir -p new/deep && echo x >new/deep/a && head -c 200000 /dev/zero >zeros && echo x >zz
	git rm -q docs/moved 2>/dev/null || rm docs/moved
	chmod +x .gitignore
)
curl -s --unix-socket "$BOUGH_ROOT/run/boughd.sock" "http://x/v1/workspaces/work/bundle" -o big.bundle
for how in '' --patch --commit; do
	fresh
	sed -i 's/^50$/fifty/' co/src/lines # as it will be
	[ -z "$how" ] || git -C co checkout -q src/lines
	before=$(state)
	# shellcheck disable=SC2086 # an option or none
	(trap '' XFSZ && ulimit -f 64 && bough-apply $how co <big.bundle) >out 2>&1
	code=$?
	is "a file that can't be written $how" "$((code > 0)) $(grep -c 'written' out)" '1 0'
	is 'nothing changed' "$(state)" "$before"
	(ulimit -f 640 && bough-apply $how co <big.bundle) >out 2>&1
	is 'with more room it goes' "$? $(wc -c <co/zeros)" '0 200000'
done
fresh
touch co/.git/refs/heads/main.lock
before=$(state)
run bough apply work --to co --commit
is 'a branch that is locked' "$code" 5
is 'nothing changed' "$(state)" "$before"
rm co/.git/refs/heads/main.lock
bough_ok 'and without the lock' apply work --to co --commit -m moved
is 'HEAD heard of it' "$(git -C co reflog -1 --format=%gs)" 'commit: moved'
git -C co checkout -q --detach HEAD~1
bough_ok 'a detached HEAD' apply work --to co --commit -m detached
is 'moves alone' "$(git -C co log -1 --format=%s) $(git -C co log -1 --format=%s main)" 'detached moved'
git clone -q up foreign && git -C foreign config core.bare false
if [ "$(id -u)" = 0 ]; then
	chown -R 65534 foreign
	run bough apply work --to foreign
	is "another user's" "$code" 1
	like 'says so' "$err" 'belongs to another user.*safe.directory'
fi

# Encodings, which libgit2 doesn't know.
git init -q enc
(
	cd enc || exit 1
	printf '*.u16 text working-tree-encoding=UTF-16\n*.le text working-tree-encoding=UTF-16LE-BOM eol=crlf\n' >.gitattributes
	printf '*.sj text working-tree-encoding=SHIFT-JIS\n*.id ident working-tree-encoding=UTF-16LE\n' >>.gitattributes
	printf '\xff\xfea\0\n\0' | tee a.u16 >same.u16
	printf '\xff\xfea\0\r\0\n\0' >a.le
	printf '\x93\xfa\x96\x7b\n' >a.sj
	printf '$\0I\0d\0$\0\n\0' >a.id
	git add -A && git commit -qm base
) || bail 'git'
bough_ok 'a mirror with encodings' repo add enc --name enc
bough_ok 'a checkout' create encoded --git enc
E=$out
printf 'b\0\n\0' | tee -a "$E/a.u16" >>"$E/a.id"
printf 'b\0\r\0\n\0' >>"$E/a.le"
printf '\x96\x7b\n' >>"$E/a.sj"
rm -rf co && git clone -q enc co
touch -d '1 hour ago' co/*.* # so that libgit2 looks into them
bough_ok 'apply' apply encoded --to co --commit
is 'git finds it clean' "$(git -C co status --porcelain 2>&1)" ''
is 'and written as it would' "$(cd co && rm ./*.* && git checkout -q . && sha1sum ./*.*)" \
	"$(rm -rf again && git clone -q co again && bough apply encoded --to again >/dev/null 2>&1; cd again && sha1sum ./*.*)"
rm -rf co && git clone -q enc co && bough apply encoded --to co >/dev/null
is 'in the encodings' "$(cd co && sha1sum a.u16 a.le a.sj)" "$(cd "$E" && sha1sum a.u16 a.le a.sj)"
printf '\xff\xfex\0\n\0' >co/a.u16
run bough apply encoded --to co
is 'a local change is seen' "$code:$(grep -c a.u16 <<<"$err")" 4:1

done_testing
