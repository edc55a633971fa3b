#!/bin/bash
# A full disk: ENOSPC to the caller, nothing lost that was acknowledged, and service goes on when
# space returns. The root is a small ext4 of its own.
. "${0%/*}/lib.sh"
need_fuse
need_root

truncate -s 160M "$T/disk"
mkfs.ext4 -q -F -m 0 "$T/disk" || skip_all 'no mkfs.ext4'
mkdir "$BOUGH_ROOT"
LOOP=$(losetup -f --show "$T/disk") || skip_all 'no loop device: needs root'
mount "$LOOP" "$BOUGH_ROOT" || skip_all 'no loop device: needs root'
head -c 60M /dev/zero >"$BOUGH_ROOT/ballast" # what will come free later
echo '{"gc_every_s": 0}' >"$BOUGH_ROOT/config.json" # by hand alone
ls_free() { df --output=avail -k "$BOUGH_ROOT" | tail -n 1; }

bough_ok 'create' create w
w=$out
for i in $(seq 1 100); do echo "kept $i" >"$w/keep-$i"; done
head -c 5000000 /dev/urandom >"$w/random"
sum=$(sha256sum <"$w/random")
bough_ok 'save' save w --as s
head -c 12000000 /dev/urandom >"$T/dead" && tar cf "$T/dead.tar" -C "$T" dead && rm "$T/dead"
bough_ok 'what gc will take' import "$T/dead.tar" --as dead
rm "$T/dead.tar"
bough_ok 'what will be in the way' fork w spare-1 spare-2 spare-3 idle
echo changed >"$(at idle)/keep-1"

# Fills up to the last block, from inside the workspace, with numbered files: each that could be
# closed without an error counts.
cat >"$T/fill.py" <<'PY'
import errno, os, sys
root, told, n = sys.argv[1], open(sys.argv[2], "w"), 0
block = os.urandom(100000)
while True:
    try:
        fd = os.open(f"{root}/fill-{n}", os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            done = 0
            while done < len(block):
                done += os.write(fd, block[done:])
        finally:
            os.close(fd)
    except OSError as e:
        print(errno.errorcode[e.errno])
        sys.exit(e.errno != errno.ENOSPC)
    told.write(f"{n}\n"); told.flush(); n += 1
PY
run python3 "$T/fill.py" "$w" "$T/told"
is 'a full disk is ENOSPC' "$out" ENOSPC
n=$(wc -l <"$T/told")
ok "some were written before ($n)" test "$n" -gt 100
wrong=0
for i in $(cat "$T/told"); do [ "$(stat -c %s "$w/fill-$i")" = 100000 ] || wrong=$((wrong + 1)); done
is 'each acknowledged one is whole' $wrong 0
is 'what was there is whole' "$(sha256sum <"$w/random")" "$sum"
# The last bit is taken from outside, so that nothing of the host's disk is left.
take_rest() { # what the service gives back in the background too
	local i
	for i in $(seq 10); do
		sync -f "$BOUGH_ROOT"
		cat /dev/zero >>"$BOUGH_ROOT/$1" 2>/dev/null
		[ "$i" -lt 3 ] || [ "$(ls_free)" -ge 50 ] || return 0
	done
}
take_rest rest
ok "the disk is full ($(ls_free) KiB)" test "$(ls_free)" -lt 500

for c in 'create new-1' 'fork w new-2' 'save w' 'import '"$T/t.tar"' --as new-3'; do
	tar cf "$T/t.tar" -C "$BOUGH_SRC" fs/base 2>/dev/null
	run bough $c
	if [ $code = 6 ] || [ $code = 0 ]; then
		pass "$c on a full disk: done, or exit 6"
		diag "exit $code: $err"
	else
		fail "$c on a full disk: done, or exit 6"
		diag_run
	fi
done
ok 'reading goes on' test "$(cat "$w/keep-50")" = 'kept 50'
bough_ok 'listing goes on' ls
run rm "$w/keep-100"
is 'a file can be removed on a full disk' $code 0

bough_ok 'a workspace can be unmounted on a full disk' umount idle

# A gc that finds nothing leaves some of the room that is kept for the next one, whoever takes the rest.
# A write may be refused, before the file was cut off or after: as it is then it stays.
write_dirty() { if echo dirty 2>/dev/null >"$w/$1"; then echo dirty; else cat "$w/$1"; fi; }
two=$(write_dirty keep-2)
bough_ok 'gc on a full disk, with nothing to collect' gc
take_rest rest-1

# What makes room needs none: not even a page of the catalog's log.
take_rest rest-2
bough_ok 'workspaces can be removed on a full disk' rm spare-1 spare-2 spare-3
rm "$BOUGH_ROOT/rest-2"
take_rest rest-3
bough_ok 'so can snapshots' snapshots rm dead
one=$(write_dirty keep-1)
take_rest rest-4
bough_ok 'gc works on a full disk' gc
ok "and makes room ($(ls_free) KiB)" test "$(ls_free)" -gt 4000
rm "$BOUGH_ROOT/rest-3" "$BOUGH_ROOT/rest-4"

# ---- kill on a full disk

kill_hard boughd bough-fs
run bough ls
if [ $code = 0 ]; then
	is 'killed and started on a full disk' "$(cat "$(at w)/keep-50")" 'kept 50'
else
	like 'it cannot start on a full disk, and says why' "$err" '[Ss]pace'
fi

# ---- space returns

rm "$BOUGH_ROOT/ballast" "$BOUGH_ROOT/rest" "$BOUGH_ROOT/rest-1"
run wait_for 10 bough ls
is 'with space it runs' $code 0
w=$(at w)
rm -f "$w"/fill-*
is 'removed files are gone' "$(ls "$w" | grep -c fill)" 0
is 'what was there is whole' "$(sha256sum <"$w/random")" "$sum"
is 'the last writes, too' "$(cat "$w/keep-1")/$(cat "$w/keep-2")" "$one/$two"
is 'every other file' "$(cat "$w"/keep-{3..99} | wc -l)" 97
bough_ok 'what was unmounted can be mounted' mount idle
is 'and has what was in it' "$(cat "$(at idle)/keep-1" "$(at idle)/keep-2")" $'changed\nkept 2'
for n in $(bough ls -q); do [ "$n" = w ] || bough rm "$n" >/dev/null; done
bough_ok 'gc' gc
head -c 20000000 /dev/urandom >"$w/after"
is 'there is room to write again' $? 0
ok "space came back ($(ls_free) KiB)" test "$(ls_free)" -gt 30000
bough_ok 'save' save w --as t
bough_ok 'fork' fork w v
is 'the fork is whole' "$(sha256sum <"$(at v)/random")" "$sum"
fsck_clean
bough_ok 'down' down
ok 'nobody has anything of it open' umount "$BOUGH_ROOT"
clean() { e2fsck -fn "$T/disk" >"$T/fsck" 2>&1; }
# Whoever makes a namespace of mounts just then has it mounted a moment longer.
ok 'the host filesystem is clean' wait_for 20 clean
clean || sed 's/^/# /' "$T/fsck"
mount "$LOOP" "$BOUGH_ROOT"
bough_ok 'up' up
is 'all is there' "$(sha256sum <"$(at v)/random")" "$sum"
done_testing
