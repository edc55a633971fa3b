#!/bin/bash
# Many sandboxes alive at once, and many one after the other: nothing of them is left on this machine.
# The long run: `make cycles`, CYCLES=200 ALIVE=300.
. "${0%/*}/lib.sh"
need_sandboxes

CYCLES=${CYCLES:-3} ALIVE=${ALIVE:-6}
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
bough create ws >/dev/null
run bough run --rm --workspace ws -- true
[ $code = 0 ] || bail "no sandboxes here: $err"
box=$BOUGH_ROOT/box

# Their shims' sockets, and their first processes: noted while they are alive, looked for when they
# aren't. (Namespaces live by processes and by mounts, which are counted; their inodes are used again.)
remember() {
	local d pid
	for d in "$box"/sb_*; do
		sed 's|^unix://||' "$d/address" >>"$T/sockets"
		echo >>"$T/sockets"
		pid=$(cat "$d/init.pid")
		echo "$pid $(process_began "$pid")" >>"$T/processes"
	done
}
process_began() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }'; } # PID; a zombie is gone
# Names and counts of all that is left of this root's; one line each.
traces() {
	echo "mounts $(grep -c "$BOUGH_ROOT/box/sb_" /proc/self/mountinfo)"
	echo "roots mounted $(grep -c "$BOUGH_ROOT/.*sb_" /proc/self/mountinfo)"
	echo "bough-io $(pgrep -fc -- "bough-io --dir $BOUGH_ROOT/")"
	echo "shims $(pgrep -fc -- "-namespace $ns ")"
	echo "folders $(ls "$box" "$BOUGH_ROOT/io" | grep -c sb_)"
	echo "sandboxes $(bough ps -q | wc -l)"
	echo "sockets $(sort -u "$T/sockets" | while IFS= read -r s; do [ -n "$s" ] && [ -e "$s" ] && echo "$s"; done | wc -l)"
	echo "processes $(while read -r pid began; do
		[ "$(process_began "$pid")" != "$began" ] || echo "$pid"
	done <"$T/processes" | wc -l)"
	echo "cgroups $(find /sys/fs/cgroup -maxdepth 4 -path "*/$ns-sb_*" 2>/dev/null | wc -l)"
	echo "state $(ls "/run/bough/$ns" 2>/dev/null | grep -c sb_)"
}
: >"$T/sockets" >"$T/processes"
bough run -d --name probe >/dev/null
pid=$(bough inspect probe | jq -r .pid)
ns=$(grep -o 'bough-[0-9a-f]*' "/proc/$pid/cgroup" | head -n 1)
like 'the cgroup of this root' "$ns" '^bough-'
remember
is 'the probe leaves traces while it is alive: a check that sees nothing would be worth nothing' \
	"$(traces | grep ' 0$')" ''
bough rm --force probe >/dev/null
# What lies below the root for workspaces and sandboxes; boughd's own records come and go.
stored() { (builtin cd "$BOUGH_ROOT" && ls ws layers mnt box io 2>/dev/null | wc -l); }
stored_before=$(stored)
# Of the whole machine, only told: others come and go on it, too.
host() {
	echo "$(wc -l </proc/self/mountinfo) mounts, $(ls -d /proc/[0-9]* 2>/dev/null | wc -l) processes," \
		"$(find /sys/fs/cgroup -type d 2>/dev/null | wc -l) folders of cgroups," \
		"$(readlink /proc/[0-9]*/ns/* 2>/dev/null | sort -u | wc -l) namespaces in use," \
		"$(wc -l </proc/net/unix) unix sockets, $(ls /run/bough 2>/dev/null | wc -l) folders in /run/bough"
}
host_before=$(host)
none=$(traces | sed 's/ [0-9]*$/ 0/')
is 'and none when it is gone' "$(traces)" "$none"
settled() { [ "$(traces)" = "$none" ]; } # what a killed shim left is cleared away beside the call
files() { ls /proc/"$(pids_of boughd)"/fd | wc -l; }
before=$(files)

# ---- one after the other, some with what ends them otherwise

bad=0
for ((i = 0; i < CYCLES; i++)); do
	case $((i % 3)) in
	0) bough run --rm --workspace ws -- sh -c 'sleep 100 & echo x' >/dev/null || bad=$((bad + 1)) ;;
	1)
		bough run -d --name c >/dev/null && bough exec c -- true || bad=$((bad + 1))
		remember
		bough exec -d c -- sleep 100 >/dev/null
		bough rm --force c >/dev/null || bad=$((bad + 1))
		;;
	2) # its shim is killed
		bough run -d --name k >/dev/null
		remember
		shim=$(pgrep -f -- "-namespace $ns ")
		[ -n "$shim" ] && kill -9 $shim || bad=$((bad + 1))
		bough rm --force k >/dev/null || bad=$((bad + 1))
		;;
	esac
done
is "$CYCLES cycles" "$bad" 0
wait_for 10 settled
is 'nothing is left of them' "$(traces)" "$none"

# ---- at once

bad=0
for ((i = 0; i < ALIVE; i += 4)); do
	for ((j = i; j < i + 4 && j < ALIVE; j++)); do
		bough run -d --name "m$j" >/dev/null || echo "m$j" >>"$T/failed" &
	done
	wait $(jobs -p)
done
is "$ALIVE alive at once" "$(bough ps -q | wc -l)" "$ALIVE"
remember
for ((i = 0; i < ALIVE; i++)); do
	[ "$(bough exec "m$i" -- hostname)" = "m$i" ] || bad=$((bad + 1))
done
is 'each answers' "$bad" 0
for ((i = 0; i < ALIVE; i += 4)); do
	for ((j = i; j < i + 4 && j < ALIVE; j++)); do
		bough rm --force "m$j" >/dev/null || echo "m$j" >>"$T/failed" &
	done
	wait $(jobs -p)
done
is 'all are destroyed' "$(cat "$T/failed" 2>/dev/null)" ''
wait_for 10 settled
is 'nothing is left of them' "$(traces)" "$none"
no_more_stored() { [ "$(stored)" -le "$stored_before" ]; }
ok 'no workspace, layer or folder of theirs is left' wait_for 10 no_more_stored
diag "this machine before: $host_before"
diag "and after: $(host)"
# Connections' own come and go.
after=$(files)
ok "boughd holds no more files ($before, then $after)" test "$after" -le $((before + 8))
fsck_clean
done_testing
