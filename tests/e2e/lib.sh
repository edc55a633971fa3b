# What the tests of the programs share: TAP, a root of their own, and clean-up. Sourced:
#
#     #!/bin/bash
#     . "${0%/*}/lib.sh"
#     need_fuse                      # or no daemon at all
#     ok 'it does' test -d /
#     done_testing
#
# Every test works in $T, with BOUGH_ROOT=$T/root; all of it goes at the end, mounts too.
set -uo pipefail

BOUGH_SRC=${BOUGH_SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
BOUGH_BIN=${BOUGH_BIN:-$BOUGH_SRC/build/release}
export PATH=$BOUGH_BIN:$PATH LC_ALL=C.UTF-8
unset BOUGH_LOG NO_COLOR XDG_STATE_HOME
umask 022

T=$(mktemp -d "${TMPDIR:-/tmp}/bough-e2e.XXXXXX") || exit 1
export BOUGH_ROOT=$T/root
tap_n=0 tap_failed=0
code=0 out='' err=''

# ---- the daemons of a root, found by their command lines

# Process ids of a program that serves $BOUGH_ROOT (or the root given).
pids_of() { # NAME [ROOT]
	local dir root=${2:-$BOUGH_ROOT} line
	for dir in /proc/[0-9]*; do
		[ "$(cat "$dir/comm" 2>/dev/null)" = "$1" ] || continue
		line=$(tr '\0' '\n' <"$dir/cmdline" 2>/dev/null) || continue
		[[ $'\n'$line$'\n' == *$'\n'"$root"$'\n'* || $line == *"--root=$root"* ]] &&
			echo "${dir#/proc/}"
	done
	return 0
}

# kill -9 of a program, and waits until it is gone: also its last thread, which may hold sockets
# when the first is a zombie already.
kill_hard() { # NAME…
	local name pid pids=()
	for name; do
		while read -r pid; do pids+=("$pid"); done < <(pids_of "$name")
	done
	[ ${#pids[@]} = 0 ] || kill -9 "${pids[@]}" 2>/dev/null
	for pid in "${pids[@]}"; do
		while [ -d "/proc/$pid" ] && { ! grep -q '^State:.Z' "/proc/$pid/status" ||
			[ "$(ls "/proc/$pid/task" | wc -l)" -gt 1 ]; } 2>/dev/null; do
			sleep 0.01
		done
	done
}

clean_up() {
	local at root
	cd / || exit 1
	kill $(jobs -p) 2>/dev/null
	for root in "$BOUGH_ROOT" ${EXTRA_ROOTS:-}; do
		[ ! -e "$root" ] || BOUGH_ROOT=$root timeout 30 bough down --grace 0 >/dev/null 2>&1
		BOUGH_ROOT=$root kill_hard boughd bough-fs bough-hold
	done
	# The deepest first: mounts inside of workspaces, then those, then loop mounts.
	awk -v t="$T/" 'index($2, t) == 1 { print $2 }' /proc/self/mounts | tac |
		while IFS= read -r at; do umount -l "$(printf '%b' "$at")" 2>/dev/null; done
	[ -z "${LOOP:-}" ] || losetup -d "$LOOP" 2>/dev/null
	rm -rf --one-file-system "$T"
}
trap clean_up EXIT
cd "$T" || exit 1
# An empty variable must never mean the current folder, or /.
cd() { [ -n "${1:-}" ] && builtin cd "$@"; }
trap 'diag "stopped behind test $tap_n"; end_of_logs; exit 130' INT TERM

# ---- TAP

pass() { # DESCRIPTION
	echo "ok $((++tap_n)) - $1"
}
fail() { # DESCRIPTION
	echo "not ok $((++tap_n)) - $1"
	tap_failed=$((tap_failed + 1))
}
diag() { sed 's/^/# /' <<<"$*"; }
# What the last `run` gave, for a failed test.
diag_run() { diag "exit $code; stdout: ${out:0:2000}"; diag "stderr: ${err:0:2000}"; }

ok() { # DESCRIPTION COMMAND…
	local what=$1
	shift
	if "$@"; then pass "$what"; else fail "$what"; diag "failed: $*"; fi
}
not() { ! "$@"; }
# What another program says in TAP counts as this test's.
take_tap() { # FILE
	local line text
	while IFS= read -r line; do
		text=${line#not } text=${text#ok }
		[[ $text =~ ^[0-9]+\ -\  ]] && text=${text#* - }
		case $line in
		'ok '*) pass "$text" ;;
		'not ok '*) fail "$text" ;;
		1..*) ;;
		*) echo "$line" ;;
		esac
	done <"$1"
}
is() { # DESCRIPTION GOT WANTED
	if [ "$2" = "$3" ]; then
		pass "$1"
	else
		fail "$1"
		diag "     got: ${2:0:4000}"
		diag "expected: ${3:0:4000}"
	fi
}
like() { # DESCRIPTION TEXT REGEX
	if [[ $2 =~ $3 ]]; then pass "$1"; else fail "$1"; diag "got: ${2:0:2000}"; diag "no match for: $3"; fi
}
skip_all() { # REASON
	echo "1..0 # SKIP $1"
	exit 0
}
bail() { # a precondition of all that follows isn't there
	echo "Bail out! $*"
	end_of_logs
	exit 1
}
end_of_logs() {
	local log
	for log in "$BOUGH_ROOT"/run/*.log; do
		[ -s "$log" ] && { diag "== end of ${log##*/}"; diag "$(tail -n 25 "$log")"; }
	done
}
done_testing() {
	echo "1..$tap_n"
	if [ $tap_failed != 0 ]; then
		end_of_logs
		exit 1
	fi
	exit 0
}

# ---- running

# Runs a command; $code, $out and $err are what it gave.
run() {
	"$@" >"$T/.out" 2>"$T/.err"
	code=$?
	out=$(tr -d '\0' <"$T/.out") err=$(tr -d '\0' <"$T/.err")
	return 0
}
# bough with these arguments must succeed. Without its workspaces a test can't go on.
bough_ok() { # DESCRIPTION ARGUMENT…
	local what=$1
	shift
	run bough "$@"
	if [ $code = 0 ]; then
		pass "$what"
		return
	fi
	fail "$what"
	diag "bough $*"
	diag_run
	[ "$1" != create ] || bail 'no workspace to work in'
}
# The mount point, or a path where nothing can be.
at() { bough path "$1" 2>/dev/null || echo "$T/nowhere"; } # NAME
import_many() { # as the snapshot `many`: 6,000 small files
	python3 - "$T/many.tar" <<-'END'
		import io, os, sys, tarfile
		with tarfile.open(sys.argv[1], "w") as t:
		    for i in range(6000):
		        m = tarfile.TarInfo(f"d{i % 50}/f{i}")
		        m.size = 40
		        t.addfile(m, io.BytesIO(os.urandom(40)))
	END
	bough_ok 'a tree of many files' import "$T/many.tar" --as many
}
# bough must end with this code, and say one line that matches.
bough_fails() { # DESCRIPTION CODE REGEX ARGUMENT…
	local what=$1 want=$2 regex=$3
	shift 3
	run bough "$@" </dev/null
	if [ $code = "$want" ] && [[ $err =~ $regex ]] && [[ $err == bough:* ]] &&
		[ "$(wc -l <"$T/.err")" = 1 ]; then
		pass "$what"
	else
		fail "$what"
		diag "bough $*; expected exit $want and one line like $regex"
		diag_run
	fi
}
json() { jq -er "$1" <<<"$out" 2>/dev/null; } # FILTER: of $out

need_fuse() {
	[ -c /dev/fuse ] && (exec 3<>/dev/fuse) 2>/dev/null || skip_all 'no /dev/fuse'
}
# With BOUGH_DEFAULT_RUNTIME=crun the files on sandboxes run with that.
MAIN_RT=${BOUGH_DEFAULT_RUNTIME:-runc}
need_runtime() { command -v "$MAIN_RT" >/dev/null || skip_all "no $MAIN_RT"; }
by_each_runtime() { # COMMAND…: with MAIN_RT, and with runsc where doctor says that it works
	"$@" "$MAIN_RT"
	local why
	why=$(bough doctor 2>/dev/null | sed -n 's/^runsc *//p')
	case $why in
	ok*) "$@" runsc ;;
	*) diag "runsc isn't tried: $why" ;;
	esac
}
need_root() { [ "$(id -u)" = 0 ] || skip_all 'needs root'; }
need_sandboxes() { # which pass through $T on the way to their files
	need_fuse
	need_root
	need_runtime
	chmod 711 "$T"
}

# A TCP port on which nobody listens now.
free_port() {
	python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
# Waits until a command succeeds, for some seconds; for more where other work or a sanitizer may
# come between, since who waits in vain fails anyway: never for less than 40.
wait_for() { # SECONDS COMMAND…
	local end=$((SECONDS + ($1 > 10 ? $1 * 4 : 40)))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.05
	done
}

# A listing of a tree by which two can be compared: all but inode numbers and ctimes. With -t the
# times of folders too.
listing() { # FOLDER
	(
		cd "$1" || exit 1
		LC_ALL=C find . -printf '%P %y %m %U:%G %n %T@ %l ' \( -type f -printf '%s\n' -o -printf '\n' \) | sort
		find . -type f -print0 | sort -z | xargs -0r sha256sum
		find . \( -type f -o -type d -o -type l \) -print0 | sort -z |
			xargs -0r getfattr -h -d -m - -e hex 2>/dev/null | grep -av '^$'
		find . \( -type c -o -type b \) -exec stat -c '%n %t:%T' {} + | sort
	)
}
# Both trees are the same, byte for byte.
same_tree() { # DESCRIPTION A B
	listing "$2" >"$T/.a"
	listing "$3" >"$T/.b"
	if cmp -s "$T/.a" "$T/.b" && [ -s "$T/.a" ]; then
		pass "$1"
	else
		fail "$1"
		diag "$(diff "$T/.a" "$T/.b" | head -n 20)"
	fi
}

fsck_clean() { # [DESCRIPTION]
	run bough fsck
	if [ $code = 0 ]; then pass "${1:-fsck is clean}"; else fail "${1:-fsck is clean}"; diag_run; fi
}
