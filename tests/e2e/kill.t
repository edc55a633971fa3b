#!/bin/bash
# kill -9 of boughd, of bough-fs, of both, of bough, at random moments of any operation: all that
# was acknowledged is there, snapshots are whole, fsck is clean, and the service comes back.
#
#     BOUGH_SEED=123 ROUNDS=40 tests/e2e/kill.t      replays or prolongs
. "${0%/*}/lib.sh"
need_fuse

SEED=${BOUGH_SEED:-$RANDOM} ROUNDS=${ROUNDS:-8}
diag "BOUGH_SEED=$SEED ROUNDS=$ROUNDS"
RANDOM=$SEED

bough_ok 'create' create w
w=$out
mkdir "$w/fixed"
for i in $(seq 1 200); do echo "content of $i" >"$w/fixed/$i"; done
fixed_sum=$(cd "$w/fixed" && sha256sum ./* | sha256sum)
bough_ok 'save' save w --as fixed

# The writer goes on through anything: each number it tells is of a write that was acknowledged.
# When the mount is away it waits until it is back. A file is closed before its number is told.
cat >"$T/writer.py" <<'PY'
import errno, os, sys, time
root, ack, n = sys.argv[1], sys.argv[2], 0
told = os.open(ack, os.O_RDWR | os.O_CREAT, 0o644)
def again(f):
    end = time.time() + 60
    while True:
        try:
            return f()
        except OSError as e:
            if e.errno in (errno.ENOTCONN, errno.ECONNABORTED, errno.ENOENT, errno.EIO, errno.ESTALE) \
                    and time.time() < end:
                time.sleep(0.01)
            else:
                raise
def step():
    path = f"{root}/live/{n % 400:04d}"
    fd = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(fd, b"%08d" % n + b"." * (n % 5000))
    finally:
        os.close(fd)
    os.rename(path + ".tmp", path)
again(lambda: os.makedirs(root + "/live", exist_ok=True))
while True:
    n += 1
    again(step)
    os.pwrite(told, b"%08d" % n, 0)
PY
check_live() { # PATH ACKNOWLEDGED: prints what is wrong
	python3 - "$@" <<-'PY'
	import os, sys
	root, acked = sys.argv[1], int(sys.argv[2])
	for n in range(max(1, acked - 399), acked + 1):
	    try:
	        data = open(f"{root}/live/{n % 400:04d}", "rb").read()
	    except OSError as e:
	        print(f"write {n}: {e}"); break
	    got = int(data[:8])
	    if got != n and not (got > acked and got % 400 == n % 400):
	        print(f"write {n} of {acked}: {got} is there"); break
	    if data[8:] != b"." * (got % 5000):
	        print(f"write {got}: its bytes are wrong"); break
	PY
}
python3 "$T/writer.py" "$w" "$T/ack" 2>"$T/writer.err" &
writer=$!
wait_for 10 test -s "$T/ack" || bail 'the writer does not start'

# Something is always being done when the kill comes; what ended with 0 must be so afterwards.
declare -A must=()
n=0
busy_once() { # in the background: one operation, told when it is acknowledged
	local k=$1 what=$2
	case $what in
	0) bough fork w "f$k" >/dev/null 2>&1 && echo "ws f$k" ;;
	1) bough save w --as "s$k" >/dev/null 2>&1 && echo "snap s$k" ;;
	2) bough create "c$k" --from fixed >/dev/null 2>&1 && echo "ws c$k" ;;
	3) bough import "$T/tree.tar" --as "i$k" >/dev/null 2>&1 && echo "snap i$k" ;;
	4) bough gc >/dev/null 2>&1 ;;
	5) bough fork w "g$k" -n 5 >/dev/null 2>&1 && echo "ws g$k-5" ;;
	6) bough create "r$k" >/dev/null 2>&1 && bough rm "r$k" >/dev/null 2>&1 && echo "no r$k" ;;
	esac >>"$T/done"
}
tar cf "$T/tree.tar" -C "$w/fixed" .
victims=(boughd bough-fs 'boughd bough-fs' bough)
: >"$T/done"
back=0 fs_kills=0
for round in $(seq 1 "$ROUNDS"); do
	for j in 1 2 3; do
		n=$((n + 1))
		busy_once $n $((RANDOM % 7)) &
	done
	sleep "0.$(printf '%03d' $((RANDOM % 400)))"
	victim=${victims[RANDOM % 4]}
	# What dies five times in a minute isn't started again by the same boughd.
	[ "$victim" = bough-fs ] && fs_kills=$((fs_kills + 1))
	[ $fs_kills -lt 5 ] || victim='boughd bough-fs'
	[[ $victim != boughd* ]] || fs_kills=0
	if [ "$victim" = bough ]; then
		pids=$(pgrep -P "$(jobs -p | tr '\n' ',' | sed 's/,$//')" -x bough | tr '\n' ' ')
		[ -z "$pids" ] || kill -9 $pids 2>/dev/null
	else
		kill_hard $victim
	fi
	for p in $(jobs -p); do [ "$p" = $writer ] || wait "$p" 2>/dev/null; done
	# Somebody comes along; with that the service is back, by itself.
	wait_for 20 bough ls -q >/dev/null 2>&1 || { fail "round $round: no service after $victim"; break; }
	acked=$((10#$(cat "$T/ack")))
	# statfs always asks the server; a look at a folder may be answered from the kernel's cache.
	wait_for 20 stat -f "$w" >/dev/null 2>&1 || { fail "round $round: no mount after $victim"; break; }
	wrong=$(check_live "$w" $acked)
	[ -z "$wrong" ] || { fail "round $round ($victim): acknowledged writes"; diag "$wrong"; end_of_logs; }
	[ "$(cd "$w/fixed" && sha256sum ./* | sha256sum)" = "$fixed_sum" ] ||
		fail "round $round ($victim): the files that nobody changes"
	kill -0 $writer 2>/dev/null || { fail "round $round ($victim): the writer ended"; diag "$(cat "$T/writer.err")"; break; }
	back=$((back + 1))
done
is 'every round came back with all that was acknowledged' "$back" "$ROUNDS"
kill $writer
wait $writer 2>/dev/null
acked=$((10#$(cat "$T/ack")))
diag "writes acknowledged: $acked; operations: $(wc -l <"$T/done")"
ok 'the writer got on' test $acked -gt 100

wrong=
while read -r kind name; do
	case $kind in
	ws)
		at=$(bough path "$name" 2>&1) || { wrong+="$name: $at;"; continue; }
		dir=$at/fixed
		[ "$name" = "${name#c}" ] || dir=$at/fixed
		[ "$(cd "$dir" 2>/dev/null && sha256sum ./* | sha256sum)" = "$fixed_sum" ] ||
			wrong+="$name has other files;"
		;;
	snap)
		mkdir -p "$T/x/$name"
		bough export "$name" 2>&1 | tar xf - -C "$T/x/$name" || wrong+="$name is not whole;"
		dir=$T/x/$name
		[ ! -d "$dir/fixed" ] || dir+=/fixed
		[ "$(cd "$dir" && sha256sum ./* | sha256sum)" = "$fixed_sum" ] ||
			wrong+="$name has other files;"
		;;
	no) ! bough path "$name" >/dev/null 2>&1 || wrong+="$name is there again;" ;;
	esac
done <"$T/done"
is 'every acknowledged fork, save, import and removal holds' "$wrong" ''
wrong=
for name in $(bough ls -q); do
	at=$(bough path "$name" 2>&1) && ls -lR "$at" >/dev/null 2>&1 || wrong+=" $name: $at"
done
is 'every workspace can be read' "$wrong" ''
fsck_clean
bough_ok 'down' down
bough_ok 'up' up
is 'and after a restart' "$(check_live "$w" $acked)" ''
fsck_clean 'fsck is clean after the restart'

# `down` in the moment when bough-fs is being started again ends that one too, and its mounts.
left=
for i in 1 2 3 4 5 6; do
	kill_hard bough-fs
	sleep "0.0$((i * 12 % 10))"
	bough down >/dev/null 2>&1 || left+=" down $i failed;"
	[ -z "$(pids_of bough-fs)" ] || left+=" bough-fs runs after $i;"
	! grep -q " $BOUGH_ROOT/" /proc/self/mounts || left+=" a mount is left after $i;"
	bough up >/dev/null 2>&1 || left+=" up $i failed;"
done
is 'down just after a kill' "$left" ''

# Started from a folder that is gone.
bough_ok 'down once more' down
mkdir "$T/gone" && cd "$T/gone" && rmdir "$T/gone"
run bough up
cd "$T" || exit 1
is 'up from a folder that is gone' "$code" 0
is 'and what it says is so' "$(check_live "$w" $acked)" ''
done_testing
