#!/bin/bash
# A host's disk that fails to take what was written: each program's fsync says so, whoever met it
# first; the workspace says so and turns read-only, over a killed server too; mounted anew it is what
# it was at its last good commit, and goes on. The root is an ext4 on a loop device over a file
# whose writes fail when they hold certain bytes.
. "${0%/*}/lib.sh"
need_fuse
need_root

[ -x "$BOUGH_BIN/e2e/bad_disk" ] || bail 'e2e/bad_disk is not built: make check-e2e does'
truncate -s 200M "$T/image"
mkdir "$T/bad" "$BOUGH_ROOT"
"$BOUGH_BIN/e2e/bad_disk" "$T/image" "$T/bad" "$T/what" &
wait_for 10 test -e "$T/bad/disk" || bail "e2e/bad_disk doesn't mount"
LOOP=$(losetup -f --show "$T/bad/disk") || skip_all 'no loop device: needs root'
mkfs.ext4 -q -F -m 0 "$LOOP" || skip_all 'no mkfs.ext4'
mount "$LOOP" "$BOUGH_ROOT" || skip_all 'no loop device: needs root'

# Holds files open; for each line that comes, says what an fsync of each gives.
cat >"$T/holder.py" <<'PY'
import errno, os, sys
root = sys.argv[1]
fds = [os.open(f"{root}/{n}", os.O_RDWR | os.O_CREAT, 0o644) for n in ("open-1", "open-2", "kept")]
for line in sys.stdin:
    said = []
    for fd in fds:
        try:
            os.fsync(fd)
            said.append("0")
        except OSError as e:
            said.append(errno.errorcode[e.errno])
    print(" ".join(said), flush=True)
PY
fsyncs() { # what the three give
	echo >&"${HOLDER[1]}"
	local line
	read -r -t 60 line <&"${HOLDER[0]}" && echo "$line"
}
is_read_only() { bough show w --json | jq -e '.state == "read-only"' >/dev/null; }
errno_of() { # PYTHON
	python3 -c "
import errno, os, sys
try:
    $1
    print(0)
except OSError as e:
    print(errno.errorcode[e.errno])" "$w"
}

bough_ok 'create' create w
w=$out
id=$(bough show w --json | jq -r .id)
echo kept >"$w/kept"
bough_ok 'an older snapshot' save w --as old
bough events --follow --json >"$T/events" 2>/dev/null &
follower=$!
coproc HOLDER { exec python3 "$T/holder.py" "$w"; }
is 'all is well' "$(fsyncs)" '0 0 0'

# ---- the data of a file

fail_with() { # WHAT: content, or a name
	printf 'BAD-SECTOR-%s' "$1" >"$T/what"
	if [ "$1" = data ]; then
		printf 'BAD-SECTOR-data' >"$w/lost"
	else
		: >"$w/BAD-SECTOR-name"
	fi
}
fail_with data
ok 'the background finds it, and says so' wait_for 60 is_read_only
is 'each open file hears of it' "$(fsyncs)" 'EIO EIO EIO'
is 'and once more' "$(fsyncs)" 'EIO EIO EIO'
is 'a new one too' "$(errno_of 'os.fsync(os.open(sys.argv[1] + "/kept", os.O_RDONLY))')" EIO
line="read-only: the disk failed to take layers/[0-9a-f]{32}/data \(EIO\); mounted anew it goes back to 20"
run bough show w
like 'show says why' "$out" "$line"
run bough ls
like 'ls says it' "$out" 'read-only'
like 'the log names workspace, file and errno' "$(cat "$BOUGH_ROOT/run/bough-fs.log")" \
	"$id: $line"
is 'making a file is EROFS' "$(errno_of 'open(sys.argv[1] + "/new", "w")')" EROFS
is 'making a folder' "$(errno_of 'os.mkdir(sys.argv[1] + "/new")')" EROFS
is 'removing' "$(errno_of 'os.unlink(sys.argv[1] + "/kept")')" EROFS
is 'renaming' "$(errno_of 'os.rename(sys.argv[1] + "/kept", sys.argv[1] + "/new")')" EROFS
is 'writing' "$(errno_of 'os.write(os.open(sys.argv[1] + "/kept", os.O_WRONLY), b"x")')" EROFS
is 'truncating' "$(errno_of 'os.truncate(sys.argv[1] + "/kept", 0)')" EROFS
is 'modes' "$(errno_of 'os.chmod(sys.argv[1] + "/kept", 0o600)')" EROFS
is 'reading goes on' "$(cat "$w/kept")" kept
# What the disk didn't take may read otherwise once the kernel needs the memory.
is 'also of what may be lost' "$(cat "$w/lost" | wc -c)" 15
is 'so does listing' "$(ls "$w" | sort | tr '\n' ' ')" 'kept lost open-1 open-2 '
for c in 'save w' 'fork w v' 'save w --as s'; do
	run bough $c
	ok "$c is refused" test $code != 0
	like 'and says why' "$err" "$line"
done
run bough fsck
is 'fsck finds it' $code 1
like 'and says what mends it' "$out" "$line"
bough_ok 'other workspaces are as ever' create other
echo x >"$out/x"
sync "$out/x"
is 'and their syncs' $? 0
like 'the metrics count it' "$(curl -s --unix-socket "$BOUGH_ROOT/run/boughd.sock" http://x/metrics)" \
	'workspaces_read_only 1'
ok 'who listens was told' wait_for 30 grep -q 'workspace.read_only' "$T/events"

# ---- killed

kill_hard bough-fs
ok 'a new server behind the mount' wait_for 60 test -e "$w/kept"
is 'it is what it was' "$(stat -c %s "$w/lost")" 15
is 'and read-only' "$(errno_of 'os.mkdir(sys.argv[1] + "/new")')" EROFS
is 'and each fsync says so' "$(fsyncs)" 'EIO EIO EIO'

# ---- mounted anew

leave() {
	exec {HOLDER[1]}>&-
	wait "$HOLDER_PID"
}
leave 2>/dev/null
bough_ok 'umount' umount w
bough_ok 'mount' mount w
is 'it can be written to' "$(bough show w --json | jq -r .state)" ready
is 'what was lost is gone' "$(ls "$w" | sort | tr '\n' ' ')" 'kept open-1 open-2 '
is 'what was synced is there' "$(cat "$w/kept")" kept
echo new >"$w/new"
is 'a sync is good again' "$(errno_of 'os.fsync(os.open(sys.argv[1] + "/new", os.O_RDONLY))')" 0
ok 'and who listens was told' wait_for 30 grep -q 'workspace.writable' "$T/events"
bough_ok 'save' save w --as after
fsck_clean

# ---- the journal; and a fork on what was sealed

bough_ok 'fork' fork w v
v=$(at v)
fail_with name
is 'an fsync meets it' "$(errno_of 'os.fsync(os.open(sys.argv[1] + "/kept", os.O_RDONLY))')" EIO
run bough show w
like 'it was the journal' "$out" 'read-only: the disk failed to take layers/[0-9a-f]{32}/journal \(EIO\)'
echo x >"$v/of-v"
is 'a fork of before is well' "$(python3 -c 'import os, sys
os.fsync(os.open(sys.argv[1], os.O_RDONLY)); print(0)' "$v/of-v")" 0
bough_ok 'a restore leads out, too' restore w old
is 'in place' "$(cat "$w/kept")" kept
is 'and syncs are good' "$(errno_of 'os.fsync(os.open(sys.argv[1] + "/kept", os.O_RDONLY))')" 0

# ---- a layer that a workspace and its fork show

for _ in 1 2 3 4 5; do # again where the background was faster than the fork
	fail_with data
	run bough fork w u
	[ $code = 0 ] && break
	bough umount w && bough mount w
done
u=$(at u)
is 'an fsync meets what was written before a fork' \
	"$(errno_of 'os.fsync(os.open(sys.argv[1] + "/kept", os.O_RDONLY))')" EIO
is 'the fork is read-only, too' "$(bough show u --json | jq -r .state)" read-only
rm "$T/what"
bough_ok 'umount' umount w
bough_ok 'mount, while the fork shows it' mount w
is 'it stays read-only' "$(bough show w --json | jq -r .state)" read-only
bough_ok 'umount both' umount w
bough_ok 'umount both' umount u
bough_ok 'mount one' mount w
bough_ok 'and the other' mount u
is 'both can be written to' "$(bough show w --json | jq -r .state) $(bough show u --json | jq -r .state)" 'ready ready'
for f in "$w/both" "$u/both"; do
	echo x >"$f"
	sync "$f"
	is 'and synced' $? 0
done

# ---- the disk is taken out and put in again

kill $follower # it would start boughd again
bough_ok 'down' down
wait_for 10 umount "$BOUGH_ROOT" 2>/dev/null # bough-hold ends behind the others
run e2fsck -fn "$LOOP"
is 'the host filesystem is clean' $code 0
mount "$LOOP" "$BOUGH_ROOT"
bough_ok 'up' up
is 'all is there' "$(cat "$(at w)/kept" "$(at v)/new" "$(at v)/of-v" | tr '\n' ' ')" 'kept new x '
fsck_clean
done_testing
