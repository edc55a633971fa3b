#!/bin/bash
# The walls of a sandbox: who tries to get out of one, or to use up the host, is contained, and the
# next sandbox hardly feels it.
. "${0%/*}/lib.sh" || exit 1
. "$BOUGH_SRC/tests/e2e/boxes.sh"

# ---- who tries to get out

canary=$T/host-canary
echo 'you are out' >"$canary"
python3 -c '
import socket, sys
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
u = socket.socket(socket.AF_UNIX); u.bind("\0" + sys.argv[1]); u.listen()
print(s.getsockname()[1], flush=True)
while True: s.accept()' "bough-box-$$" >"$T/port" &
wait_for 5 test -s "$T/port"
sleep 1000 &
bystander=$!
mknod "$w/device-mem" c 1 1 && mknod "$w/device-disk" b 254 0 && chmod 666 "$w"/device-*
ln -s "$canary" "$w/link-out" && ln -s ../../../../../../../../.. "$w/link-up"
cp "$BOUGH_SRC"/tests/e2e/{escape,bombs}.py "$w"

escape() {
	local kernel=shared line n=0 bad=''
	[ "$rt" != runsc ] || kernel=own
	fresh "escape-$rt"
	box "$rt" escape -m "$w:/workspace" -- python3 escape.py "$kernel" "$canary" 'you are out' \
		"$(cat "$T/port")" "bough-box-$$"
	while IFS= read -r line; do
		case $line in
		'ok '*) n=$((n + 1)) ;;
		OUT*) bad+=$line$'\n' ;;
		esac
	done <<<"$out"
	is "$rt: attempts to get out" "$bad" ''
	like "$rt: all were made" "$out" 'done$'
	[[ $out == *done ]] || diag_run
	diag "$rt: $n attempts contained"
	box "$rt" escape -m "$w:/workspace" -- python3 bombs.py kill
	is "$rt: signals to everyone" "$out" alive
	ok "$rt: reach nobody of the host" kill -0 "$bystander"
}

# ---- who uses everything up

inotify_left() { python3 -c '
import ctypes
l = ctypes.CDLL(None)
print(sum(l.inotify_init() >= 0 for _ in range(20)))'; }
bombs() {
	local shared=1
	[ "$rt" != runsc ] || shared=
	fresh "bombs-$rt" --quota 60M --inodes 3000
	bomb() { box "$rt" bombs -m "$w:/workspace" -M $((96 << 20)) -P 64 -S $((4 << 20)) "$@"; }
	bomb -- python3 bombs.py disk
	like "$rt: disk" "$out" '^[3-6][0-9] (ENOSPC|EDQUOT)'
	rm -f "$root/tmp/big"
	bomb -- python3 bombs.py inode
	like "$rt: inodes" "$out" '^[0-9]{4} (ENOSPC|EDQUOT)'
	rm -rf "$root/tmp/many"
	bomb -- python3 bombs.py shm
	like "$rt: /dev/shm" "$out" '^4 ENOSPC'
	bomb -- python3 bombs.py shm-inode
	like "$rt: and its inodes" "$out" '^10[0-9][0-9] ENOSPC'
	bomb -- python3 bombs.py memory
	like "$rt: memory" "$code$out" '^(137|128|1)$'
	[ -z "$shared" ] || is "$rt: memory, killed" "$code" 137
	[ -n "$shared" ] || return 0
	bomb -- python3 bombs.py fork
	like "$rt: processes" "$out" '^[4-6][0-9] EAGAIN'
	bomb -- python3 bombs.py inotify
	like "$rt: inotify" "$out" '^[0-9]+ EMFILE'
	bomb -- python3 bombs.py pipe
	like "$rt: pipes" "$out" '(^[0-9]+ (EPERM|EMFILE|ENFILE|ENOMEM))|^$'
	run "$D" make -r "$rt" -b "$BASE" -H -m "$w:/workspace" "$T/boxes/eats" "$root" -- \
		sh -c 'python3 bombs.py inotify & wait; exec sleep 100'
	(cd "$T/boxes/eats" && "${rt_cmd[@]}" run -d eats </dev/null >/dev/null 2>&1)
	sleep 0.5
	is "$rt: the host's root still has its own" "$(inotify_left)" 20
	"${rt_cmd[@]}" delete --force eats
	"$D" clear "$T/boxes/eats"
	box "$rt" cpu -m "$w:/workspace" -C 250 -- python3 bombs.py cpu
	like "$rt: no more than a quarter of a core" "$out" '^0\.[0-7]$'
}

each_runtime escape
each_runtime bombs
done_testing
