#!/bin/bash
# Flattening in the background: the stack gets short, and nobody can tell otherwise.
. "${0%/*}/lib.sh"
need_fuse

layers() { bough show "$1" --json | jq .layers; } # WORKSPACE
# FLATTEN_LAYERS (fs/work/save.h) and the active one may stay: fewer aren't worth it.
is_short() { [ "$(layers "$1")" -le 9 ]; }
# Seals so often that the stack is worth it: each fork adds a layer, when something was written.
make_long() { # WORKSPACE FOLDER
	local i
	for i in 1 2 3 4 5 6 7 8 9; do
		echo "$i" >"$2/step-$i"
		bough fork "$1" "tmp-$i" >/dev/null && bough rm "tmp-$i" >/dev/null || return
	done
}
# Shares a whole file, as cp does where the filesystem can.
reflink() { # FROM TO
	python3 - "$@" <<-'PY'
	import os, sys
	a, b = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[2], os.O_CREAT | os.O_WRONLY, 0o644)
	at, n = 0, os.fstat(a).st_size
	while at < n:
	    at += os.copy_file_range(a, b, n - at, at, at)
	PY
}

mkdir -p "$T/tree/dir"
head -c 200000 /dev/urandom >"$T/tree/A"
head -c 3000000 /dev/urandom >"$T/tree/big"
for i in $(seq 1 200); do echo "content of $i" >"$T/tree/dir/$i"; done
ln "$T/tree/dir/1" "$T/tree/dir/linked" && ln -s ../A "$T/tree/dir/symlink"
setfattr -n user.note -v kept "$T/tree/A"
old=$(sha256sum <"$T/tree/A")
bough_ok 'create' create w --dir "$T/tree"
w=$out

# ---- what is open, unlinked, locked or renamed stays so

exec 8<>"$w/dir/5" 9<"$w/dir/6"
rm "$w/dir/5" && mv "$w/dir/7" "$w/dir/seven" && echo more >>"$w/dir/8" && rm "$w/dir/9"
printf x | dd of="$w/big" bs=1 seek=1500000 conv=notrunc status=none
# A copy that shares what the import gave, whose source changes afterwards.
reflink "$w/A" "$w/B" && head -c 200000 /dev/urandom >"$w/A"
new=$(sha256sum <"$w/A") big=$(sha256sum <"$w/big") ino=$(stat -c %i "$w/dir/8")
ok 'a long line of layers' make_long w "$w"
# Written while the flattening is due: it lies above what is flattened, and shares with it.
reflink "$w/B" "$w/C" && reflink "$w/big" "$w/big-2" && echo above >"$w/above"
before=$(listing "$w")
ok 'it gets short by itself' wait_for 60 is_short w
[ "$(id -u)" != 0 ] || echo 3 >/proc/sys/vm/drop_caches
is 'the tree is the same, byte for byte' "$(listing "$w" | sha256sum)" "$(sha256sum <<<"$before")"
is 'a changed file' "$(sha256sum <"$w/A")" "$new"
is 'a copy of what it was' "$(sha256sum <"$w/B")" "$old"
is 'a copy of that copy, made above' "$(sha256sum <"$w/C")" "$old"
is 'a byte in a big file' "$(sha256sum <"$w/big")" "$big"
is 'and its copy' "$(sha256sum <"$w/big-2")" "$big"
is 'inode numbers' "$(stat -c %i "$w/dir/8")" "$ino"
is 'an unlinked file is read' "$(cat <&8)" 'content of 5'
echo again >&8
is 'and written' "$(tail -n 1 /proc/$$/fd/8)" again
is 'an open one too' "$(cat <&9)" 'content of 6'
exec 8>&- 9<&-

# ---- snapshots and forks

bough_ok 'save' save w --as flat
bough_ok 'a fork' fork w v
is 'has the same tree' "$(listing "$(at v)" | sha256sum)" "$(listing "$w" | sha256sum)"
bough_ok 'nothing differs' diff w --against flat
is 'indeed' "$out" ''
mkdir "$T/x" && bough export flat | tar xf - -C "$T/x" --xattrs
is 'the snapshot is whole' "$(cd "$T/x" && find . -type f ! -name above -print0 | sort -z | xargs -0 sha256sum | sha256sum)" \
	"$(cd "$w" && find . -type f ! -name above -print0 | sort -z | xargs -0 sha256sum | sha256sum)"
ok 'another line' make_long w "$w"
bough_ok 'its end is saved' save w --as long
before=$(bough export long | sha256sum)
ok 'and short again' wait_for 60 is_short w
is 'the snapshot is the same' "$(bough export long | sha256sum)" "$before"
run bough save w
is 'nothing new' "$err" "bough: nothing has changed since that snapshot"
bough_ok 'gc' gc
fsck_clean
[ "$(id -u)" != 0 ] || echo 3 >/proc/sys/vm/drop_caches
is 'whole after gc' "$(bough export long | sha256sum)" "$before"
is 'the earlier one too' "$(bough export flat | tar xO ./C | sha256sum)" "$old"

# ---- reading alone seals, too

bough_ok 'create' create r
r=$out failed=0
call() { curl -sS -m 200 --unix-socket "$BOUGH_ROOT/run/boughd.sock" -o "$T/.body" -w '%{http_code}' "http://x$1"; }
for i in $(seq 300); do
	echo "$i" >"$r/f"
	[ "$(call '/v1/workspaces/r/archive?format=tar')" = 200 ] || failed=$((failed + 1))
done
is '300 archives of what was just written' "$failed" 0
bough_ok 'save after them' save r
is 'the file' "$(tar xOf "$T/.body" ./f)" 300
ok 'and its stack is short' wait_for 60 is_short r

# ---- as long as a chain may be: whoever has to seal makes it short first

# Through bough-fs's own socket, so that boughd doesn't know and flattens nothing meanwhile.
make_full() { # WORKSPACE
	python3 - "$BOUGH_ROOT/run/fs.sock" "$(bough show "$1" --json | jq -r .id)" "$(at "$1")" <<-'PY'
	import json, socket, sys
	s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
	s.connect(sys.argv[1])
	for n in range(1000):
	    with open(sys.argv[3] + "/step", "w") as f:
	        f.write(str(n))
	    s.send(json.dumps({"op": "seal", "id": sys.argv[2]}).encode())
	    if '"ok":true' not in s.recv(1 << 20).decode().replace(" ", ""):
	        sys.exit(0 if n > 100 else "refused at once")
	sys.exit("never refused")
	PY
}
bough_ok 'create' create full
bough_ok 'something' save full --as full-0
bough_ok 'and a fork' fork full full-2
echo theirs >"$(at full-2)/theirs"
for what in 'gc' 'save full' 'fork full full-3' 'merge full-2 --into full' fsck; do
	ok 'a chain as long as it may be' make_full full
	if [ "$what" = fsck ]; then # the inode counter is lost: who repairs it looks at all layers
		bough down && printf rubbish >"$BOUGH_ROOT/ino" && bough up
		run bough fsck --repair
		like 'fsck --repair' "$out$err" 'inode counter'
		continue
	fi
	bough_ok "$what" $what
done
is 'all is there' "$(cat "$(at full)/theirs")" theirs

# ---- killed in the middle

for i in 1 2 3; do
	make_long w "$w" || break
	sleep "0.$((RANDOM % 4 + 2))"
	kill_hard boughd
done
before=$(listing "$w" | sha256sum)
bough_ok 'service after kills' ls
ok 'it gets short in the end' wait_for 20 eval 'echo x >"$w/again"; bough fork w k >/dev/null && bough rm k && is_short w'
rm "$w/again"
kill_hard boughd bough-fs
bough_ok 'and after a kill of both' ls
is 'all is there' "$(cd "$w" && ls | grep -c step)" 9
is 'the copy of the copy' "$(sha256sum <"$w/C")" "$old"
bough_ok 'gc takes what is left over' gc
fsck_clean
is 'what was changed' "$(sha256sum <"$w/A")" "$new"
done_testing
