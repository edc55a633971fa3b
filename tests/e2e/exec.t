#!/bin/bash
# Processes in sandboxes: input and output at any byte, callers that leave and come back, signals,
# time limits, terminals; by each runtime that works here.
. "${0%/*}/lib.sh"
need_sandboxes

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
api() { # METHOD TARGET [BODY]
	curl -sS -m 200 --unix-socket "$BOUGH_ROOT/run/boughd.sock" -X "$1" ${3+--data-binary "$3"} "http://d$2"
}
bough_ok 'a workspace' create ws
at=$out

cat >"$T/terminal.py" <<'PY'
# Runs its arguments with a terminal, types what comes first, and prints what is seen.
import os, pty, select, sys, time, fcntl, termios, struct
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
typed = sys.argv[1].encode().decode("unicode_escape").encode()
seen, end = b"", time.time() + 20
time.sleep(1)
os.write(fd, typed)
while time.time() < end:
    try:
        if select.select([fd], [], [], 0.2)[0]:
            data = os.read(fd, 4096)
            if not data:
                break
            seen += data
    except OSError:
        break
_, status = os.waitpid(pid, 0)
sys.stdout.write(seen.decode(errors="replace"))
print("\nexit", os.waitstatus_to_exitcode(status))
PY

cat >"$T/owners.py" <<'PY'
# The owner of a process's user namespace (as seen from here), and of what that lies in.
import fcntl, os, struct, sys
def owner(fd):
    uid = bytearray(4)
    fcntl.ioctl(fd, 0xb704, uid) # NS_GET_OWNER_UID
    return struct.unpack("I", uid)[0]
fd = os.open(f"/proc/{sys.argv[1]}/ns/user", os.O_RDONLY)
owners = [owner(fd)]
up = fcntl.ioctl(fd, 0xb701) # NS_GET_USERNS: whose it is
if os.fstat(up).st_ino != os.stat("/proc/self/ns/user").st_ino:
    owners.append(owner(up))
print(*owners)
PY

is_on() { [ "$(bough logs "$1")" = on ]; } # EXEC
try() { # RUNTIME
	local rt=$1 ex half pid
	bough_ok "$rt: a sandbox" run --name "$rt" --runtime "$rt" --workspace ws -d
	run bough exec "$rt" -- sh -c 'echo out; echo err >&2; exit 5'
	is "$rt: stdout, stderr and exit code" "$code $out $err" '5 out err'
	# Host root's limits of users aren't used up: of all owners up to the host's one is the range's.
	pid=$(bough inspect "$rt" | jq .pid) id=$(awk '{ print $2 }' "/proc/$pid/uid_map")
	like "$rt: its user namespace is the range's first id's" \
		" $(python3 "$T/owners.py" "$pid") " " $id "
	run bough exec "$rt" -- no-such-program
	is "$rt: 127" "$code" 127
	run bough exec "$rt" -- /etc/passwd
	is "$rt: 126" "$code" 126
	run bough exec "$rt" -- sh -c 'kill -TERM $$'
	is "$rt: 128 + n" "$code" 143
	run bough exec --cwd /tmp --user 1000:1000 -e A=b "$rt" -- sh -c 'pwd; id -u; echo $A'
	is "$rt: folder, user, environment" "$out" $'/tmp\n1000\nb'
	run bough exec --cwd /nosuch "$rt" -- true
	like "$rt: a folder that isn't there" "$code $err" '^125 .*/nosuch: no such file or directory$'
	run bough run --rm --runtime "$rt" --user 1000 --cwd /made/here -- stat -c '%n %a %u' /made . .
	is "$rt: a sandbox's own is made, for everybody" "$out" $'/made 755 0\n. 755 0\n. 755 0'
	run bough run --rm --runtime "$rt" --workspace ws --cwd /workspace/made -- stat -c '%a %u' .
	is "$rt: and in a workspace" "$out $(stat -c %a "$(bough path ws)/made")" '755 0 755'
	rmdir "$(bough path ws)/made"
	head -c 2000000 /dev/urandom >"$T/in"
	run bough exec -i "$rt" -- sha256sum <"$T/in"
	is "$rt: two megabytes of input" "$out" "$(sha256sum <"$T/in")"
	run bough exec -i "$rt" -- head -c 3 <"$T/in"
	is "$rt: a program that reads no more" "$code" 0
	bough exec "$rt" -- head -c 5000000 /dev/zero | wc -c >"$T/n"
	is "$rt: five megabytes of output" "$(cat "$T/n")" 5000000
	run bough exec --timeout 1s "$rt" -- sh -c 'sleep 60 & sleep 60'
	is "$rt: its time is over" "$code" 124
	run bough exec --timeout 0.2s "$rt" -- sleep 60
	is "$rt: also in parts of a second" "$code" 124
	run bough exec "$rt" -- sh -c 'cat /proc/[0-9]*/comm | grep -c sleep'
	is "$rt: for its children, too" "$out" 0

	# A caller that leaves, and comes back at its byte.
	ex=$(bough exec -d "$rt" -- sh -c 'for i in 1 2 3 4 5 6; do echo line $i; sleep 0.2; done')
	bough logs "$ex" -f >"$T/half" &
	wait_for 10 grep -q 'line 2' "$T/half"
	kill -9 $!
	wait $! 2>/dev/null
	half=$(stat -c %s "$T/half")
	kill_hard boughd
	bough logs "$ex" --since-byte "$half" -f >"$T/rest"
	is "$rt: no byte is lost or told twice" "$(cat "$T/half" "$T/rest")" \
		$'line 1\nline 2\nline 3\nline 4\nline 5\nline 6'
	ok "$rt: some came before" test "$half" -gt 0
	# One that stays, while boughd is killed below it.
	bough exec "$rt" -- sh -c 'for i in 1 2 3 4 5; do echo line $i; sleep 0.2; done; exit 3' >"$T/out" &
	pid=$!
	wait_for 10 test -s "$T/out"
	kill_hard boughd
	wait $pid
	is "$rt: a caller outlives boughd" "$? $(tr '\n' ' ' <"$T/out")" '3 line 1 line 2 line 3 line 4 line 5 '
	# bough-io is killed, while one is heard and nobody asks for anything else.
	ex=$(bough exec -d "$rt" -- sh -c 'echo first; sleep 1; head -c 300000 /dev/zero | tr "\0" x; echo; echo last; exit 4')
	bough logs "$ex" -f >"$T/out" &
	pid=$!
	wait_for 10 test -s "$T/out"
	kill -9 "$(pgrep -f -- "bough-io --dir $BOUGH_ROOT/io/$(bough inspect "$rt" | jq -r .id)")"
	wait $pid
	is "$rt: one whose bough-io is killed is heard to its end" "$(wc -c <"$T/out") $(tr -s x <"$T/out" | tr '\n' ' ')" '300012 first x last '
	is "$rt: and not held up" "$(api GET "/v1/sandboxes/$rt/exec/$ex?wait=10" | jq -c '[.status, .exit_code]')" '["exited",4]'
	# Signals. (A shell's trap isn't run under gVisor.)
	if [ "$rt" != runsc ]; then
		ex=$(bough exec -d "$rt" -- sh -c 'trap "echo got; exit 9" USR1; echo on; while :; do sleep 0.05; done')
		wait_for 10 is_on "$ex"
		api POST "/v1/sandboxes/$rt/exec/$ex/signal" '{"signal": "USR1"}' >/dev/null
		is "$rt: a signal" "$(api GET "/v1/sandboxes/$rt/exec/$ex?wait=10" | jq -c '[.status, .exit_code]')" '["exited",9]'
		is "$rt: was heard" "$(bough logs "$ex")" $'on\ngot'
	fi
	bough exec "$rt" -- sleep 60 &
	sleep 0.5
	kill -TERM $!
	wait $!
	is "$rt: a caller's TERM is the program's" $? 143
	# One that has as many signals pending as its user may, so that none is queued any more.
	if [ "$rt" != runsc ]; then
		ex=$(bough exec -d "$rt" -- python3 -c '
import ctypes, os, signal, time
libc = ctypes.CDLL(None)
signal.pthread_sigmask(signal.SIG_BLOCK, [34])
while libc.sigqueue(os.getpid(), 34, None) == 0:
    pass
print("on", flush=True)
time.sleep(1000)')
		wait_for 20 is_on "$ex"
		curl -sS -m 200 --unix-socket "$BOUGH_ROOT/run/boughd.sock" -H "Idempotency-Key: $ex" \
			-d '{"signal": "KILL"}' "http://d/v1/sandboxes/$rt/exec/$ex/signal"
		is "$rt: a KILL comes for a key, though no signal is queued" \
			"$(api GET "/v1/sandboxes/$rt/exec/$ex?wait=10" | jq -c '[.status, .exit_code]')" '["exited",137]'
	fi
	# A terminal.
	if command -v python3 >/dev/null; then
		run python3 "$T/terminal.py" 'stty size\ntest -t 0 && echo tty-$((40+2))\nexit 6\n' bough exec -it "$rt" -- sh
		like "$rt: a terminal" "$out" 'tty-42'
		like "$rt: of this one's size" "$out" '33 77'
		like "$rt: and its exit code" "$out" 'exit 6'
	fi
	# A restore under it.
	echo before >"$at/restored"
	bough_ok "$rt: saved" save "$rt" --as "$rt-saved"
	bough exec "$rt" -- sh -c 'cat restored >/dev/null; echo after >restored'
	bough_ok "$rt: live" restore "$rt" "$rt-saved" --live
	is "$rt: is seen" "$(bough exec "$rt" -- cat restored)" before
	# Under one that stands in it, and has files of it open.
	mkdir "$at/dir" && echo before >"$at/dir/a" && ln "$at/dir/a" "$at/dir/b" && echo 1 >"$at/dir/1"
	bough_ok "$rt: saved again" save ws --as "$rt-again"
	bough exec "$rt" -- sh -c 'cd dir && echo after >a && rm 1 && mkdir 1 && echo 2 >1/2 &&
		exec 3<a 4<b && >../on && while [ ! -e ../go ]; do sleep 0.1; done
		cat a b 1; pwd; cat ../restored' >"$T/under" 2>&1 &
	pid=$!
	wait_for 10 test -e "$at/on"
	bough_ok "$rt: restored by itself" restore ws "$rt-again"
	is "$rt: is seen by others" "$(bough exec "$rt" -- sh -c 'cat dir/a dir/1; ls dir | xargs')" \
		$'before\n1\n1 a b'
	touch "$at/go"
	wait $pid
	is "$rt: and by who stands in it" "$(cat "$T/under")" \
		$'before\nbefore\n1\n/workspace/dir\nbefore'
	rm -rf "$at/dir" "$at/go"
	bough fork ws "$rt-theirs" >/dev/null && echo theirs >"$(bough path "$rt-theirs")/restored"
	bough_ok "$rt: a merge" merge "$rt-theirs" --into ws
	is "$rt: is seen, too" "$(bough exec "$rt" -- cat restored)" theirs
	bough_ok "$rt: all of it, which starts it anew" restore "$rt" "$rt-saved"
	is "$rt: is as it was" "$(bough exec "$rt" -- cat restored)" before
	# A workspace that comes while it runs can go.
	bough create "$rt-data" >/dev/null && echo data >"$(bough path "$rt-data")/file"
	bough_ok "$rt: a workspace more" attach-workspace "$rt" "$rt-data:/data"
	is "$rt: is seen" "$(bough exec "$rt" -- cat /data/file)" data
	bough exec "$rt" -- sh -c 'cd /data && mkdir -p a/b/c/d/e/f && echo x >a/b/c/d/e/f/g && exec sleep 100' &
	pid=$!
	wait_for 10 test -e "$(bough path "$rt-data")/a/b/c/d/e/f/g"
	bough_fails "$rt: stays while somebody is in it" 5 'something in the sandbox uses /data' \
		detach-workspace "$rt" "$rt-data"
	kill $pid
	wait $pid
	bough_ok "$rt: and is taken off when nobody is" detach-workspace "$rt" "$rt-data"
	bough_ok "$rt: is seen no more" exec "$rt" -- test ! -e /data/file
	# So can the one that it began with.
	bough_fails "$rt: its own is in use" 5 'something in the sandbox uses /workspace' \
		detach-workspace "$rt" ws
	bough_ok "$rt: but goes by force" detach-workspace --force "$rt" ws
	is "$rt: and is seen no more" "$(bough exec --cwd / "$rt" -- ls -A /workspace)" ''
	bough_ok "$rt: it comes again" attach-workspace "$rt" ws:/workspace
	is "$rt: as it was" "$(bough exec --cwd / "$rt" -- cat /workspace/restored)" before
	bough_ok "$rt: and goes as any other" detach-workspace "$rt" ws
	bough_ok "$rt: gone" rm --force "$rt"
}

by_each_runtime try

# ---- the API itself

bough_ok 'one more' run --name api -d
ex=$(api POST /v1/sandboxes/api/exec '{"command": ["cat"], "stdin": true, "env": ["SECRET_NAME=value"]}' | jq -r .id)
is 'input' "$(api POST "/v1/sandboxes/api/exec/$ex/stdin?offset=0" abc | jq -c .)" '{"offset":3,"closed":false}'
is 'the same again is not given twice' "$(api POST "/v1/sandboxes/api/exec/$ex/stdin?offset=0" abcd | jq .offset)" 4
is 'a gap is refused' "$(api POST "/v1/sandboxes/api/exec/$ex/stdin?offset=9" x | jq -r .code)" range
api POST "/v1/sandboxes/api/exec/$ex/stdin?offset=4&last=true" '' >/dev/null
is 'it ends' "$(api GET "/v1/sandboxes/api/exec/$ex?wait=10" | jq -c '[.exit_code, .stdin_offset, .stdout.end]')" '[0,4,4]'
is 'what comes later is too late' "$(api POST "/v1/sandboxes/api/exec/$ex/stdin?offset=4" x | jq .closed)" true
api POST /v1/sandboxes '{"name": "brief", "command": ["true"], "stdin": true}' >/dev/null
api GET '/v1/sandboxes/brief/exec/main?wait=10' >/dev/null
bough stop brief >/dev/null 2>&1
is 'so it is when all has ended' "$(api POST '/v1/sandboxes/brief/exec/main/stdin?offset=0' x | jq -c .)" \
	'{"offset":0,"closed":true}'
is 'and when no more is to follow' \
	"$(api POST '/v1/sandboxes/brief/exec/main/stdin?offset=0&last=true' '' | jq -c .)" '{"offset":0,"closed":true}'
bough rm --force brief
is 'bare bytes, from the second on' "$(api GET "/v1/sandboxes/api/exec/$ex/output?stream=stdout&stdout_offset=1")" bcd
is 'at the end there is nothing' "$(api GET "/v1/sandboxes/api/exec/$ex/output?stream=stdout&stdout_offset=4")" ''
for of in stream=stdout\&stdout_offset=5 stdout_offset=5 stderr_offset=1; do
	is "behind it: $of" "$(api GET "/v1/sandboxes/api/exec/$ex/output?$of" | jq -r .code)" range
done
is 'of a stream that is not asked for it is all one' \
	"$(api GET "/v1/sandboxes/api/exec/$ex/output?stream=stdout&stderr_offset=9")" abcd
is 'it began before it ended' \
	"$(api GET "/v1/sandboxes/api/exec" | jq '[.items[] | select(.ended) | .started <= .ended] | all')" true
is 'a folder that is not there is the mistake of who asks' \
	"$(api POST /v1/sandboxes/api/exec '{"command": ["true"], "cwd": "/nope"}' | jq -r '.code, .message' | tr '\n' ' ')" \
	"invalid it can't begin in /nope: no such file or directory "
is 'frames' "$(api GET "/v1/sandboxes/api/exec/$ex/output" | od -An -v -tx1 | tr -d ' \n' | head -c 40)" \
	0100000000000004000000000000000061626364
is 'names of the environment alone' "$(api GET "/v1/sandboxes/api/exec/$ex" | jq -c .env)" '["SECRET_NAME"]'
is 'by the process alone' "$(api GET "/v1/sandboxes/$ex/exec/$ex" | jq -r .id)" "$ex"
is 'another sandbox has it not' "$(api GET "/v1/sandboxes/api/exec/ex_aaaaaaaaaa" | jq -r .code)" not_found
is 'each is in the audit log' "$(api GET '/v1/audit?limit=1000' | jq --arg e "$ex" '[.items[] | select(.about.made == $e)] | length')" 1
for body in '{}' '{"command": []}' '{"command": ["a", 1]}' '{"command": ["a"], "env": ["x"]}' \
	'{"command": ["a"], "cwd": "b"}' '{"command": ["a"], "more": 1}' '{"command": ["a\u0000b"]}'; do
	is "refused: $body" "$(api POST /v1/sandboxes/api/exec "$body" | jq -r .code)" invalid
done
bough_ok 'gone' rm --force api
done_testing
