#!/bin/bash
# What couldn't be done for a sandbox that runs is told in its state and the audit log, and tried
# again: thawing it behind a save, and attaching what was gone when boughd came back.
. "${0%/*}/lib.sh"
need_sandboxes
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
bough_ok 'a workspace' create w
run bough run -d --runtime runc --name s --workspace w -- sh -c \
	'while :; do n=$((n + 1)); echo $n >/root/n; sleep 0.02; done'
[ $code = 0 ] || bail "no sandboxes here: $err"
id=$(bough inspect s --json | jq -r .id)
error_of() { bough inspect s --json | jq -r '.error // ""'; }
says() { [[ $(error_of) == *"$1"* ]]; }
is_well() { [ -z "$(error_of)" ]; }
count() { curl -sS --unix-socket "$BOUGH_ROOT/run/boughd.sock" 'http://d/v1/audit?limit=1000' |
	jq "[.items[] | select(.path == \"$1\")] | length"; }
counted() { sed -n 1p "$T/n" 2>/dev/null; }
goes_on() { # it counts
	bough cp s:/root/n "$T/n" 2>/dev/null || return 1
	local was=$before
	before=$(counted)
	[ -n "$was" ] && [ -n "$before" ] && [ "$was" != "$before" ]
}
before=
ok 'it counts' wait_for 20 goes_on

# ---- a thaw that fails

# The folder whose freezer boughd takes: the first that has one.
group='' file=''
while read -r dir; do
	for f in cgroup.freeze freezer.state; do
		found=$(find "$dir" -maxdepth 2 -path "*$id*/$f" 2>/dev/null | head -n 1)
		[ -z "$group" ] && [ -n "$found" ] && group=${found%/*} file=$f
	done
done < <(awk '/ - cgroup2? / { print $5 }' /proc/self/mountinfo)
[ -n "$group" ] || bail 'no freezer'
free() { # whatever is mounted there, so that a failed test leaves none
	while umount -l "$group/$file" 2>/dev/null; do :; done
}
trap 'free; clean_up' EXIT
# boughd is held up in its word to freeze, by a pipe that is full: what it thaws by is another file.
mkfifo "$T/pipe"
exec 9<>"$T/pipe"
dd if=/dev/zero of="$T/pipe" bs=65536 count=1 oflag=nonblock status=none
mount --bind "$T/pipe" "$group/$file" || bail 'nothing can be mounted over a file of a cgroup'
timeout 60 bough save s >"$T/saved" 2>&1 &
saver=$!
waits() { find "/proc/$(pids_of boughd)/fd" -lname "*$file" -o -lname "$T/pipe" | grep -q .; }
ok 'a save freezes it' wait_for 20 waits
umount -l "$group/$file"
on=$([ $file = freezer.state ] && echo FROZEN || echo 1)
echo $on | tee "$T/plain" >"$group/$file"
mount --bind "$T/plain" "$group/$file"
mount -o remount,bind,ro "$group/$file"
cat <&9 >/dev/null &
wait $saver
is 'it is saved' $? 0
ok 'and says that it is frozen' wait_for 20 says 'it is frozen'
ok 'and that it is tried again' says 'tried again'
is 'which the audit log has' "$(count sandbox.impaired)" 1
before=
goes_on
ok 'it stands still' not goes_on
run bough exec s -- true
like 'no process begins in it' "$code $err" '^125 .*frozen'
bough_fails 'nor is it paused' 4 'frozen' pause s
free
ok 'once it can be thawed, it is' wait_for 20 is_well
ok 'it goes on' wait_for 20 goes_on
is 'the audit log has that, too' "$(count sandbox.mended)" 1
bough_ok 'processes begin in it' exec s -- true

# ---- a workspace that isn't there

bough_ok 'a file' exec s -- touch /workspace/file
pid=$(bough inspect s --json | jq .pid)
nsenter -t "$pid" -m -- python3 -c 'import ctypes
assert ctypes.CDLL(None).umount2(b"/workspace", 2) == 0' || bail 'cannot take it off'
bough_ok 'a file in its place' exec s -- sh -c 'rmdir /workspace && : >/workspace'
kill_hard boughd
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
ok 'what cannot be attached is told' wait_for 20 says "isn't at /workspace"
is 'and not forgotten' "$(bough inspect s --json | jq -r '.workspaces[0].target')" /workspace
is 'the audit log has it' "$(count sandbox.impaired)" 2
bough_ok 'what is in the way goes' exec --cwd / s -- rm /workspace
ok 'it comes' wait_for 20 is_well
bough_ok 'with its files' exec --cwd / s -- test -e /workspace/file
bough_ok 'it goes' rm --force s
done_testing
