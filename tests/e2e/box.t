#!/bin/bash
# Boxes on real workspaces, by the OCI runtimes themselves: what a sandbox has, what is attached to
# it and taken off, and that what it was leaves nothing behind.
. "${0%/*}/lib.sh" || exit 1
. "$BOUGH_SRC/tests/e2e/boxes.sh"

hostimage() {
	fresh "first-$rt"
	box "$rt" first -m "$w:/workspace" -- true
	is "$rt: true" "$code" 0
	is "$rt: a fresh root differs in nothing" "$(bough diff "first-$rt")" ''
	printf 'int main(void) { return 7; }\n' >"$w/a.c"
	box "$rt" first -m "$w:/workspace" -- sh -ec 'gcc -o a a.c; ./a || echo $?
		export HOME=/workspace; git init -q r; cd r; echo x >f; git add f
		git -c user.name=a -c user.email=b commit -qm m; git log --format=%s
		perl -e "print 1 + 1, \"\n\""; python3 -c "print(3)"; echo 4 | awk "{ print \$1 }"
		if command -v vi >/dev/null; then vi -es -c "normal i5" -c wq five </dev/null >/dev/null 2>&1
		else echo 5 >five; fi; cat five
		hostname; id -un; getent hosts localhost | head -n 1 | cut -d" " -f1; date +%Z'
	is "$rt: gcc, git, perl, python, awk, vi where the host has it, and names" "$out" "7
m
2
3
4
5
first
root
::1
UTC"
	[ "$code" = 0 ] || diag_run
	is "$rt: what it made is root's" "$(stat -c %u:%g "$w/a")" 0:0
	rm -rf "$w/r" "$w/a"
	box "$rt" first -- sh -c 'echo kept >/tmp/kept; [ ! -e /usr/local/bin ] && echo none'
	is "$rt: /usr/local is hidden" "$out" none
	is "$rt: /tmp is of the root" "$(cat "$root/tmp/kept")" kept
	box "$rt" first -- python3 -c 'import multiprocessing as m
from multiprocessing import shared_memory
s, q = shared_memory.SharedMemory(create=True, size=9), m.Queue()
def child(): s.buf[0] = 40; q.put(2)
p = m.Process(target=child); p.start(); n = q.get(); p.join(); print(s.buf[0] + n); s.unlink()'
	is "$rt: memory and semaphores that processes share" "$out" 42
	box "$rt" first -L -- sh -c 'ls -d /usr/local/*' && is "$rt: unless asked for" "$code" 0
	box "$rt" first -u nobody -- id -u
	is "$rt: as another user" "$out" 65534
	box "$rt" first -u 1000:50 -w /tmp -e 'A=b c' -- \
		sh -c 'id -u; id -g; pwd; echo "$A"; echo "$HOME"'
	is "$rt: ids, folder, environment" "${out//$'\n'/ }" '1000 50 /tmp b c /'
	box "$rt" first -u whoever -- true
	like "$rt: an unknown user" "$err" "no user 'whoever'"
	box "$rt" first -- /no/such/program
	is "$rt: a command that isn't there" "$code" 127
	box "$rt" first -- /etc/passwd
	is "$rt: one that can't be executed" "$code" 126
	box "$rt" first -- sh -c 'kill -9 $$'
	is "$rt: one that is killed" "$code" 137
	box "$rt" first -t 300 -- sleep 60
	is "$rt: one that takes too long" "$code" 124
	printf 'hush' >"$T/secret"
	box "$rt" first -s "pw=$T/secret" -u 1000 -- cat /run/secrets/pw
	is "$rt: a secret" "$out" hush
	box "$rt" first -s "pw=$T/secret" -- sh -c 'echo x >/run/secrets/new || echo no'
	like "$rt: which nobody changes" "$out" no
	is "$rt: and isn't in the root" "$(bough diff "first-$rt" | grep -v tmp)" ''
	printf 'A=from a file\0TOKEN=x y\0HOME=/h\0' >"$T/env"
	box "$rt" first -s ".env=$T/env" -e A=plain -e B=b -u 1000 -- \
		sh -c 'echo "$A,$B,$TOKEN,$HOME"; env | grep -c "^A="'
	is "$rt: environment from a file" "$out" $'from a file,b,x y,/h\n1'
	ln -s /etc/shadow "$root/etc/passwd.new" && mv "$root/etc/passwd.new" "$root/etc/passwd"
	box "$rt" first -u daemon -- true
	like "$rt: users are those of the root, whatever its links say" "$err" "no user 'daemon'"
}

each_runtime hostimage

# ---- workspaces that come and go

fresh live
bough_ok 'another workspace' create w2
w2=$out
echo two >"$w2/file"
run "$D" make -b "$BASE" -H -m "$w:/workspace" "$T/boxes/live" "$root"
is 'a box without a command' "$code" 0
(cd "$T/boxes/live" && "${RUNC[@]}" run -d live </dev/null >/dev/null 2>"$T/live.err") ||
	diag "$(cat "$T/live.err")"
pid=$("${RUNC[@]}" state live | jq .pid)
attach() { run "$D" "$1" -b "$BASE" -H -p "$pid" "${@:2}" "$T/boxes/live" "$root"; }
inside() { "${RUNC[@]}" exec live "$@" </dev/null; }
attach attach -m "$w2:/data/two"
is 'attached while it runs' "$code" 0
is 'and seen' "$(inside cat /data/two/file)" two
inside sh -c 'echo three >/data/two/new'
is 'written as its root' "$(stat -c %u "$w2/new")" 0
(cd / && inside sh -c 'cd /data/two && touch there && exec sleep 100') &
wait_for 10 test -e "$w2/there"
attach detach -T /data/two
is 'what is in use stays' "$code" 16
like 'and why' "$err" 'uses /data/two'
attach detach -T /data/two -f
is 'unless by force' "$code" 0
ok 'it is gone' not inside test -e /data/two/file
attach detach -T /data/two
is 'nothing is there any more' "$code" 2
attach attach -m "$w2:/ro:ro"
ok 'read-only' not inside sh -c 'echo x >/ro/x' 2>/dev/null
attach detach -T /ro
is 'detached' "$code" 0
inside ln -s /proc /trap
attach attach -m "$w2:/trap/x"
ok 'a link to /proc is no place' test "$code" != 0
inside sh -c 'rm /trap; ln -s ../../../../../.. /trap'
attach attach -m "$w2:/trap/deep"
is 'a link out of it stays in it' "$code" 0
is 'as the container sees' "$(inside cat /deep/file)" two
run "$D" exec -b "$BASE" -H -u nobody -w /tmp "$T/boxes/live" "$root" -- id -u
printf '%s' "$out" >"$T/process.json"
is 'an exec by its spec' "$("${RUNC[@]}" exec --process "$T/process.json" live </dev/null)" 65534
"${RUNC[@]}" delete --force live
ok 'cleared' "$D" clear "$T/boxes/live"

# gVisor, which finds in its root what is mounted there here: what it began with goes, too.
if [ ${#runtimes[@]} = 2 ]; then
	fresh spread
	echo one >"$w/file"
	run "$D" make -r runsc -b "$BASE" -H -m "$w:/workspace" "$T/boxes/spread" "$root"
	spread() { run "$D" "$1" -r runsc -b "$BASE" -H "${@:2}" "$T/boxes/spread" "$root"; }
	inside() { "${RUNSC[@]}" exec -cwd / spread "$@" </dev/null; }
	(cd "$T/boxes/spread" && "${RUNSC[@]}" create spread </dev/null >/dev/null 2>&1)
	spread first -m "$w:/workspace"
	is 'runsc: what it begins with' "$code" 0
	"${RUNSC[@]}" start spread
	is 'runsc: is where it begins' "$("${RUNSC[@]}" exec spread cat file </dev/null)" one
	spread attach -m "$w2:/data/two"
	is 'runsc: attached while it runs' "$code" 0
	is 'runsc: and seen' "$(inside cat /data/two/file)" two
	inside sh -c 'echo four >/data/two/four'
	is 'runsc: written as its root' "$(stat -c %u "$w2/four" "$root/data" | xargs)" '0 0'
	spread attach -m "$w2:/workspace/in:ro"
	is 'runsc: also in another, read-only' \
		"$(inside sh -c 'cat /workspace/in/file; touch /workspace/in/x 2>&1')" \
		$'two\ntouch: cannot touch '"'/workspace/in/x': Read-only file system"
	spread attach -m "$w2:/tmp/two"
	is 'runsc: and in /tmp' "$(inside cat /tmp/two/file)" two
	spread attach -m "$w2:/tmp"
	is 'runsc: which itself is as it began' "$code" 95
	spread detach -T /tmp/two -f
	spread detach -T /workspace
	is 'runsc: what another is in stays' "$code" 16
	spread detach -T /workspace/in -f
	is 'runsc: unless that goes first' "$code" 0
	(inside sh -c 'cd /workspace && touch there && exec sleep 100') &
	wait_for 10 test -e "$w/there"
	spread detach -T /workspace
	is 'runsc: and what is in use' "$code" 16
	like 'runsc: and why' "$err" 'uses /workspace'
	spread detach -T /workspace -f
	is 'runsc: unless by force' "$code" 0
	is 'runsc: it is gone' "$(inside ls -A /workspace)" ''
	spread detach -T /workspace
	is 'runsc: nothing is there any more' "$code" 2
	inside ln -s /proc /trap
	spread attach -m "$w2:/trap/x"
	ok 'runsc: a link to /proc is no place' test "$code" != 0
	inside sh -c 'rm /trap; mkdir /real; ln -s /real /trap'
	spread attach -m "$w2:/trap/deep"
	is 'runsc: nor any other' "$code" 40
	ok 'runsc: nothing is there' not grep -q "$T/boxes/spread/rootfs/real" /proc/self/mountinfo
	"${RUNSC[@]}" delete -force spread
	ok 'runsc: cleared' "$D" clear "$T/boxes/spread"
	ok 'runsc: nothing stays mounted' not grep -q "$T/boxes/spread" /proc/self/mountinfo
	run "$D" make -r runsc -b "$BASE" -H -m "$w2:/tmp" "$T/boxes/spread" "$root" -- true
	is 'runsc: a workspace as /tmp' "$(cat "$T/boxes/spread/tmp/file")" two
	ok 'runsc: cleared again' "$D" clear "$T/boxes/spread"
	run "$D" make -r runsc -b "$BASE" -H -m "$T/nowhere:/tmp" "$T/boxes/spread" "$root" -- true
	is 'runsc: or no box, where that is not there' "$code" 2
fi

# ---- for kata: nothing shifted, and private

touch "$w/plain"
run "$D" make -r kata -b "$BASE" -m "$w:/workspace" "$T/boxes/kata" "$root" -- true
is 'a box for kata' "$code" 0
is 'its files are as they lie' "$(stat -c %u "$T/boxes/kata/rootfs/etc/passwd" \
	"$T/boxes/kata/mnt/0/plain" | xargs)" '0 0'
is 'private' "$(findmnt -no PROPAGATION "$T/boxes/kata/rootfs")" private
is 'without a user namespace' "$(jq -c '[.linux.namespaces[].type | select(. == "user")]' \
	"$T/boxes/kata/config.json")" '[]'
ok 'cleared' "$D" clear "$T/boxes/kata"

# ---- nothing is left

state() {
	grep -c "$T/boxes" /proc/self/mountinfo
	find /sys/fs/cgroup -path "*/$BOX_NS-*" -type d
	ls -A "$T/boxes"
	ps -eo uid=,stat=,comm= | # who is only waited for is gone
		awk -v base="$BASE" '$2 !~ /Z/ && $1 + 0 >= base + 0 && $1 + 0 < base + 65536'
	ls "$T/runc" 2>/dev/null
}
nobody() { [ -z "$(ps -eo uid=,stat= | awk -v base="$BASE" \
	'$2 !~ /Z/ && $1 + 0 >= base + 0 && $1 + 0 < base + 65536')" ]; }
as_before() { # DESCRIPTION: what was killed may take its time
	wait_for 5 eval '[ "$(state)" = "$before" ]'
	is "$1" "$(state)" "$before"
}
fresh cycles
ok 'what ran before has ended' wait_for 5 nobody
before=$(state)
for i in 1 2 3 4 5 6 7 8; do
	box "$MAIN_RT" "c$i" -m "$w:/workspace" -s "pw=$T/secret" -- \
		sh -c 'sleep 100 & setsid sleep 100 & true'
	[ "$code" = 0 ] || diag_run
done
as_before 'after eight lives'
# Killed at any moment of being made.
for i in $(seq 25); do
	"$D" make -b "$BASE" -H -m "$w:/workspace" -m "$w2:/two" -s "pw=$T/secret" \
		"$T/boxes/k$i" "$root" -- true &
	sleep "0.00$((i % 10))$((i / 3))"
	kill -9 $! 2>/dev/null
	wait $! 2>/dev/null
	"$D" clear "$T/boxes/k$i" || fail "clear k$i"
done
as_before 'after being killed on the way'
# What goes wrong at each step.
for bad in "-m $w:/etc/passwd/x" "-m $T/none:/x" "-s pw=$T" "-u whoever" "-m $w:/usr/x"; do
	# shellcheck disable=SC2086
	run "$D" make -b "$BASE" -H -m "$w2:/two" $bad "$T/boxes/bad" "$root" -- true
	ok "fails: $bad" test "$code" != 0 -a -n "$err"
done
run env BOUGH_INIT=/none "$D" make -b "$BASE" -H "$T/boxes/bad" "$root" -- true
ok 'fails: no bough-init' test "$code" != 0
as_before 'after what went wrong'
# A box that still runs when it is cleared.
run "$D" make -b "$BASE" -H "$T/boxes/runs" "$root"
(cd "$T/boxes/runs" && "${RUNC[@]}" run -d runs </dev/null >/dev/null 2>&1)
"${RUNC[@]}" pause runs
ok 'clear ends a paused one' "$D" clear "$T/boxes/runs"
"${RUNC[@]}" delete --force runs
as_before 'all of it'
# Of one made by a boughd of before, whose groups lay below a common one.
run "$D" make -b "$BASE" -H "$T/boxes/older" "$root"
sleep 1000 &
pid=$!
for h in $(awk '$3 ~ /^cgroup/ { print $2 }' /proc/mounts); do
	mkdir -p "$h/bough/$BOX_NS/older" && echo $pid >"$h/bough/$BOX_NS/older/cgroup.procs"
done 2>/dev/null
frozen() { # A process of version 1's freezer, or of version 2's
	cat /sys/fs/cgroup{/freezer,}/bough/"$BOX_NS"/older/{freezer.state,cgroup.freeze} 2>/dev/null |
		grep -c -e FROZEN -e '^1$'
}
ok 'an older one is frozen' "$D" freeze older
is 'where it is' "$(frozen)" 1
ok 'and goes on' "$D" thaw older
is 'there' "$(frozen)" 0
"$D" freeze older
ok 'it is cleared' "$D" clear "$T/boxes/older"
wait $pid 2>/dev/null
is 'what ran in it is killed' $? 137
as_before 'with an older one'
ok 'the end' "$D" end "$T/boxes"
ok 'of what they shared' not mountpoint -q "$T/boxes/.share"
is 'and of the cgroups' "$(find /sys/fs/cgroup -path "*/$BOX_NS*" -type d)" ''
done_testing
