#!/bin/bash
# A container's whole life through its shim, with every runtime that works here: runtime/shim.h and
# runtime/output.h, called by shim_tool. The bundle is the host's /usr in an empty root.
. "${0%/*}/lib.sh"
need_root
export BOUGH_PROGRAMS=$BOUGH_BIN
NS=bough-e2e-$$ IO=$T/io
tool() { "$BOUGH_BIN/e2e/shim_tool" "$KIND" "$NS" "$B" "$@"; }
io() { tool "io-$1" "$IO" "${@:2}"; }
# One value of what a tool printed: `field exit "status=stopped exit=7"`.
field() { sed -n "s/.*\b$1=\([^ ]*\).*/\1/p" <<<"$2"; }

# The bundle $B, whose first process is bough-init with these arguments.
bundle() { # NAME ARGUMENT…
	B=$T/$1
	shift
	mkdir -p "$B"/rootfs/{usr,proc,dev,sys,tmp,etc,.bough}
	local l
	for l in bin sbin lib lib64; do ln -sfn usr/$l "$B/rootfs/$l"; done
	: >"$B/rootfs/.bough/init"
	# gVisor's own threads count too: at a limit that is meant for the container it dies.
	local pids=100
	[ "$KIND" != runsc ] || pids=2000
	jq -n --arg init "$BOUGH_BIN/bough-init" --arg cg "/$NS-${B##*/}" --argjson pids $pids --args '{
		ociVersion: "1.0.2",
		process: { user: {uid: 0, gid: 0}, cwd: "/", noNewPrivileges: true,
			env: ["PATH=/usr/bin:/bin", "TERM=xterm"],
			args: (["/.bough/init"] + $ARGS.positional) },
		root: {path: "rootfs"}, hostname: "box",
		mounts: [
			{destination: "/proc", type: "proc", source: "proc"},
			{destination: "/dev", type: "tmpfs", source: "tmpfs",
				options: ["nosuid", "mode=755", "size=65536k"]},
			{destination: "/dev/pts", type: "devpts", source: "devpts",
				options: ["nosuid", "noexec", "newinstance", "ptmxmode=0666"]},
			{destination: "/usr", type: "bind", source: "/usr", options: ["rbind", "ro"]},
			{destination: "/.bough/init", type: "bind", source: $init, options: ["bind", "ro"]}],
		linux: { cgroupsPath: $cg, resources: {pids: {limit: $pids}},
			namespaces: [("pid", "network", "ipc", "uts", "mount") | {type: .}] } }' -- "$@" \
		>"$B/config.json"
}
# The OCI process of an exec, under a bough-init of its own.
process() { # TERMINAL ARGUMENT…
	jq -n --argjson tty "$1" --args '{ terminal: $tty, user: {uid: 0, gid: 0}, cwd: "/",
		noNewPrivileges: true, env: ["PATH=/usr/bin:/bin", "TERM=xterm"],
		args: (["/.bough/init"] + $ARGS.positional) }' -- "${@:2}" >"$T/process.json"
}

# Whatever a failure left behind goes, too.
remove_all() {
	for B in "$T"/*/; do
		B=${B%/}
		[ ! -e "$B/shim" ] || tool remove
	done
	[ ! -e "$IO/io.sock" ] || io stop
} >/dev/null 2>&1
trap 'remove_all; clean_up' EXIT

# Starts the bundle's process, with its output kept as `main`.
begin() {
	io open main 0 0 && tool start && tool create - "$IO/main.out" "$IO/main.err" 0 0 >"$T/.pid" &&
		tool run - >/dev/null && io started main
}
# Makes and starts an exec: ID IN TERMINAL ARGUMENT…
exec_start() {
	local id=$1 in=-
	[ "$2" = 0 ] || in=$IO/$id.in
	process "$([ "$3" = 1 ] && echo true || echo false)" "${@:4}"
	io open "$id" "$2" "$3" &&
		tool exec "$id" "$in" "$IO/$id.out" "$IO/$id.err" "$3" 0 "$T/process.json" &&
		tool run "$id" >/dev/null && io started "$id"
}
# Waits for its end and deletes it; its exit code.
exec_end() { # ID
	field exit "$(timeout 60 "$BOUGH_BIN/e2e/shim_tool" "$KIND" "$NS" "$B" wait "$1")"
	io finish "$1" >/dev/null
	tool delete "$1" >/dev/null
}
# Runs an exec to its end: $out, $err, $code.
exec_run() { # ID ARGUMENT…
	out= err= code=
	exec_start "$1" 0 0 "${@:2}" >"$T/.exec" || { diag "$(cat "$T/.exec")"; return; }
	code=$(exec_end "$1")
	out=$(io read "$1" 0 0) err=$(io read "$1" 1 0)
	io drop "$1"
}

# All that a sandbox may leave behind, as one text.
traces() {
	local p
	cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -F -f .ours | sort
	grep -h "$T" /proc/self/mountinfo | cut -d' ' -f 5
	find /sys/fs/cgroup -name "$NS-*" 2>/dev/null
	for p in "$T"/*/; do # a shim's socket has the hash of its names
		p=$(printf '%s/%s' "$NS" "$(basename "$p")" | sha256sum)
		ls /run/containerd/s/"${p%% *}" 2>/dev/null
	done
	ls -d /run/bough/"$NS" 2>/dev/null
}
state() { field status "$(tool get "${1:--}")"; }
is_state() { [ "$(state "$2")" = "$1" ]; }
host_pid() { field pid "$(cat "$T/.pid")"; }

# ---- the parts

one_life() {
	bundle life -- sh -c 'echo out; echo err >&2; exit 7'
	run tool get -
	like "$KIND: without a shim there is nobody to ask" "$out" '^ECONNREFUSED '
	io open main 0 0
	exec 9>"$T/not-for-the-shim"
	run tool start
	is "$KIND: the shim starts" "$code $out" '0 '
	read -r version shim _ <"$B/shim"
	ok "$KIND: it is this version's" test "$version" = 2 -o "$version" = 3
	is "$KIND: it has none of our descriptors" \
		"$(readlink /proc/"$shim"/fd/* | grep -c not-for-the-shim)" 0
	exec 9>&-
	is "$KIND: it has none of our environment" "$(tr '\0' '\n' </proc/"$shim"/environ |
		grep -vcE '^(PATH|XDG_RUNTIME_DIR|MAX_SHIM_VERSION|GOMAXPROCS|BOUGH_RUNTIME|BOUGH_NETWORK|OTEL[A-Z_]*)=')" 0
	like "$KIND: what it writes down lies in the bundle" \
		"$(tr '\0' '\n' </proc/"$shim"/environ)" "XDG_RUNTIME_DIR=$B"
	run tool create - "$IO/main.out" "$IO/main.err" 0 0
	is "$KIND: create" $code 0
	is "$KIND: created" "$(state)" created
	run tool run -
	is "$KIND: run" $code 0
	io started main
	run tool wait -
	is "$KIND: it ends with its code" "$(field status "$out") $(field exit "$out")" 'stopped 7'
	run tool get -
	is "$KIND: which is known later, and when" "$(field exit "$out") $(field exited "$out")" '7 1'
	run tool poll -
	like "$KIND: a wait for what has ended returns" "$out" 'exit=7'
	run tool kill - 15 0
	like "$KIND: it can't be killed again" "$out" '^ESRCH '
	ok "$KIND: its streams end" io finish main
	is "$KIND: its output" "$(io read main 0 0) $(io read main 1 0)" 'out err'
	run tool delete -
	is "$KIND: delete" "$code $(field exit "$out")" '0 7'
	run tool get -
	like "$KIND: now the shim knows nothing of it" "$out" '^ENOENT '
	ok "$KIND: remove" tool remove
	ok "$KIND: and once more" tool remove
	io drop main
}

execs() {
	ok "$KIND: a sandbox without a command runs" begin
	is "$KIND: running" "$(state)" running
	run tool delete -
	like "$KIND: and can't be deleted" "$out" '^EBUSY '
	exec_run e1 -- sh -c 'echo a b; echo c >&2; exit 3'
	is "$KIND: an exec's output and code" "$out/$err/$code" 'a b/c/3'
	exec_run e2 -- no-such-command
	is "$KIND: a command that isn't there" "$code" 127
	like "$KIND: is told so" "$err" 'no-such-command: not found'
	exec_run e3 -- /usr/share/zoneinfo
	is "$KIND: a command that can't be executed" "$code" 126
	exec_run e4 -t 300 -- sh -c 'setsid sleep 60 & sleep 60'
	is "$KIND: a timeout" "$code" 124
	exec_run e5 -- pidof sleep
	is "$KIND: ends what had left its session, too" "$out$code" 1
	run tool get nobody
	like "$KIND: an exec that nobody made" "$out" '^ENOENT '

	ok "$KIND: an exec with input" exec_start in 1 0 -- sh -c 'cat; echo end'
	is "$KIND: takes it" "$(io write in 0 'some words ')" taken=11
	io write in 0 'some words ' >/dev/null # a caller that has lost count
	io write in 11 'and more ' >/dev/null
	io close in && tool close in
	is "$KIND: sees its end" "$(exec_end in)" 0
	is "$KIND: and got each byte once" "$(io read in 0 0)" 'some words and more end'
	io drop in

	ok "$KIND: an exec in the background" exec_start bg 0 0 -- sh -c 'sleep 60 & setsid sleep 60 & wait'
	run tool delete bg
	like "$KIND: can't be deleted while it runs" "$out" '^EBUSY '
	run tool break bg
	like "$KIND: a wait for it can be broken off" "$out" '^ECANCELED '
	"$BOUGH_BIN/e2e/shim_tool" "$KIND" "$NS" "$B" wait bg >/dev/null &
	local waiter=$!
	sleep 0.1
	kill -9 $waiter
	wait $waiter 2>/dev/null
	tool poll bg >"$T/.waited" &
	wait_for 5 grep -q at_once "$T/.waited"
	ok "$KIND: kill an exec" tool kill bg 15 0
	wait $!
	like "$KIND: a wait in two halves, after one that was killed" "$(cat "$T/.waited")" \
		'^at_once=not-yet status=stopped .*exit=143'
	is "$KIND: its code" "$(exec_end bg)" 143
	exec_run e6 -- pidof sleep
	is "$KIND: its children are gone" "$out$code" 1
	io drop bg

	exec_start stubborn 0 0 -- sh -c 'trap "" TERM; sleep 60 & sleep 60' >/dev/null
	tool kill stubborn 64 0
	is "$KIND: what stands for SIGKILL" "$(exec_end stubborn)" 137
	exec_run e7 -- pidof sleep
	is "$KIND: reaches all, too" "$out$code" 1
	io drop stubborn

	exec_start server 0 0 -- sh -c 'sleep 60 & echo up' >/dev/null
	is "$KIND: what an exec leaves running" "$(field exit "$(tool wait server)")" 0
	run io finish server
	like "$KIND: holds its output" "$out" '^ETIMEDOUT '
	exec_run e8 -- pkill sleep
	ok "$KIND: until it ends" wait_for 5 io finish server
	tool delete server >/dev/null
	io drop server
}

is_on() { io read "$1" 0 0 | grep -q '^on'; }
terminals() {
	ok "$KIND: an exec on a terminal" exec_start tty 1 1 -- sh -c 'test -t 0 && read x && stty size && echo "$x"'
	tool resize tty 123 45
	io write tty 0 $'typed\n' >/dev/null
	is "$KIND: ends" "$(exec_end tty)" 0
	like "$KIND: it had the size that it was given" "$(io read tty 0 0 | tr -d '\r')" $'45 123\ntyped'
	io drop tty
	exec_start keys 1 1 -- sh -c 'echo on; sleep 60; echo not reached' >/dev/null
	wait_for 5 is_on keys
	io write keys 0 $'\003' >/dev/null
	is "$KIND: ^C reaches what runs in the foreground" "$(exec_end keys)" 130
	io drop keys
}

figures() {
	run tool stats
	is "$KIND: figures" $code 0
	if [ "$KIND" = runsc ]; then
		return
	fi
	ok "$KIND: of memory and time" test "$(field memory "$out")" -gt 0 -a "$(field cpu_ns "$out")" -gt 0
	is "$KIND: the limit of processes" "$(field pids_limit "$out")" 100
	ok "$KIND: new limits" tool update '{"memory":{"limit":104857600},"pids":{"limit":50}}'
	run tool stats
	is "$KIND: are in force" "$(field limit "$out") $(field pids_limit "$out")" '104857600 50'
	is "$KIND: its processes" "$(tool pids | head -n 1)" "$(host_pid)"
}

# What it had printed may still be on its way.
still() {
	before=$(io status ticks)
	sleep 0.2
	[ "$(io status ticks)" = "$before" ]
}
pauses() {
	exec_start ticks 0 0 -- sh -c 'while :; do echo tick; sleep 0.02; done' >/dev/null
	ok "$KIND: it ticks" wait_for 5 sh -c "[ \$($BOUGH_BIN/e2e/shim_tool $KIND $NS $B io-read $IO ticks 0 0 | wc -l) -gt 3 ]"
	ok "$KIND: pause" tool pause
	is "$KIND: paused" "$(state)" paused
	local before
	ok "$KIND: nothing runs" wait_for 5 still
	ok "$KIND: resume" tool resume
	is "$KIND: running again" "$(state)" running
	ok "$KIND: all runs on" wait_for 5 grown "$before"
	tool kill ticks 64 0
	exec_end ticks >/dev/null
	io drop ticks
}

grown() { [ "$(io status ticks)" != "$1" ]; } # STATUS

# Removal from every state.
ends() {
	ok "$KIND: removed while it runs" tool remove
	is "$KIND: nothing is left" "$(traces)" "$clean"
	io drop main
	bundle paused -w
	begin >/dev/null
	tool pause
	ok "$KIND: removed while it is paused" tool remove
	io drop main
	bundle created -- true
	io open main 0 0
	tool start && tool create - "$IO/main.out" "$IO/main.err" 0 0 >/dev/null
	ok "$KIND: removed before it was started" tool remove
	io drop main
	bundle fresh -- true
	tool start
	ok "$KIND: removed before it was created" tool remove
	bundle unwritten -- true
	tool start
	rm "$B/shim" # who started it was killed before it wrote that
	ok "$KIND: removed without a record" tool remove
	if [ "$KIND" = runc ]; then
		bundle broken_off -- true
		tool start
		command -v runc | tr -d '\n' >"$B/runtime"
		echo '{"root":"/run/bough"}' >"$B/options.json"
		mkdir -p /run/bough/"$NS"/broken_off # by a create that was killed
		mkfifo /run/bough/"$NS"/broken_off/exec.fifo
		ok "$KIND: removed in the midst of a create" tool remove
	fi
	is "$KIND: of none anything is left" "$(traces)" "$clean"
}

killed_shim() {
	bundle orphan -w
	begin >/dev/null
	local pid shim
	pid=$(host_pid)
	read -r _ shim _ <"$B/shim"
	kill -9 "$shim"
	wait_for 5 not test -d "/proc/$shim/root" >/dev/null
	ok "$KIND: the shim dies, the container lives" test -d "/proc/$pid"
	run tool get -
	like "$KIND: the death is told" "$out" '^ECONNREFUSED '
	ok "$KIND: remove" tool remove
	ok "$KIND: its process is gone" wait_for 5 not test -e "/proc/$pid/exe"
	io drop main
	is "$KIND: after the shim's death nothing is left" "$(traces)" "$clean"
	[ "$KIND" = runc ] || return # it's the same shim, and takes seconds
	# One that hangs is as good as dead.
	bundle hung -w
	begin >/dev/null
	read -r _ shim _ <"$B/shim"
	kill -STOP "$shim"
	ok "$KIND: a shim that hangs is removed" tool remove
	io drop main
	is "$KIND: with all that it had" "$(traces)" "$clean"
}

broken() {
	bundle nothing
	jq '.process.args = ["/nowhere"]' "$B/config.json" >"$T/c" && mv "$T/c" "$B/config.json"
	io open main 0 0
	tool start
	run tool create - "$IO/main.out" "$IO/main.err" 0 0
	[ $code != 0 ] || run tool run -
	like "$KIND: what can't be run is told in its words" "$out" '^EIO .*(/nowhere|no such file)'
	ok "$KIND: and removed" tool remove
	io drop main
	bundle senseless -- true
	echo '{"ociVersion": "1.0.2", "process": 7}' >"$B/config.json"
	io open main 0 0
	tool start
	run tool create - "$IO/main.out" "$IO/main.err" 0 0
	like "$KIND: so is a senseless bundle" "$out" '^E'
	ok "$KIND: which is removed" tool remove
	io drop main
	B=$T/absent
	run tool start
	like "$KIND: a bundle that isn't there" "$out" '^E'
	ok "$KIND: is removed already" tool remove
	is "$KIND: failures leave nothing" "$(traces)" "$clean"
}

# ---- all of it

printf '%s\n' "$NS" "$T/" >.ours # by which they are known; no command line of ours has it

KIND=runc B=$T/none
like 'runc works wherever the tests run' "$(tool probe)" '^works=1 '
like 'names that no container has' "$(B=$T/..; tool start)" '^EINVAL '
tried=0
for KIND in ${KINDS:-runc runsc crun kata}; do
	probe=$(tool probe)
	if [[ $probe != works=1* ]]; then
		diag "$KIND: $probe"
		continue
	fi
	tried=$((tried + 1))
	run io start
	clean=$(traces)
	one_life
	bundle long -w
	execs
	terminals
	figures
	pauses
	ends
	killed_shim
	broken
	ok "$KIND: bough-io ends" io stop
done
ok 'more than one runtime was tried, or there is but one' test $tried -ge 1
done_testing
