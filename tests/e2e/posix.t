#!/bin/bash
# Runs the posix_* programs on a mount of bough-fs and, as the judge of the cases, on a
# host filesystem: every case must hold on both.
set -u
: "${BOUGH_BIN:?}"
work=$(mktemp -d) || exit 1
chmod 755 "$work"
mkdir "$work/judge" "$work/mnt"
server=
finish() {
	[ -z "$server" ] || kill "$server" 2>/dev/null
	[ -z "$server" ] || wait "$server" 2>/dev/null
	mountpoint -q "$work/mnt" && umount -l "$work/mnt"
	rm -rf --one-file-system "$work"
}
trap finish EXIT

if [ ! -e /dev/fuse ]; then
	echo '1..0 # SKIP no /dev/fuse'
	exit 0
fi

number=0
# Gives the lines of one program's TAP the next numbers.
renumber() { # LABEL
	local line
	while IFS= read -r line; do
		case $line in
		1..*) ;;
		ok\ * | not\ ok\ *)
			number=$((number + 1))
			echo "$line" | sed -E "s|^((not )?ok) [0-9]+ - |\1 $number - $1: |"
			;;
		*) echo "$line" ;;
		esac
	done
}

try() { # LABEL PROGRAM ARGUMENTS…
	local label=$1 out code
	shift
	out=$("$@" 2>&1)
	code=$?
	renumber "$label" <<<"$out"
	case $code in
	0 | 1) ;;
	*) number=$((number + 1)); echo "not ok $number - $label: $1 ended with $code" ;;
	esac
}

start() { # ARGUMENTS…
	"$BOUGH_BIN/bough-fs" --root "$work/root" --foreground --mount "ws_posix=$work/mnt" "$@" \
		2>"$work/log" &
	server=$!
	for _ in $(seq 1200); do # a sanitizer replays a long journal slowly
		mountpoint -q "$work/mnt" && return 0
		kill -0 "$server" 2>/dev/null || break
		sleep 0.05
	done
	sed 's/^/# /' "$work/log"
	number=$((number + 1))
	echo "not ok $number - start bough-fs $*"
	return 1
}

stop() { # LABEL
	number=$((number + 1))
	kill "$server"
	if wait "$server" && ! mountpoint -q "$work/mnt" &&
		! grep -qE ' (ERROR|WARN) ' "$work/log"; then
		echo "ok $number - $1: a clean end"
	else
		sed 's/^/# /' "$work/log"
		echo "not ok $number - $1: a clean end"
	fi
	server=
}

programs="posix_names posix_data posix_rights posix_race"
export POSIX_FEW=1
for p in $programs; do
	try "host $p" "$BOUGH_BIN/e2e/$p" "$work/judge" --judge
done
if start; then
	for p in $programs; do
		try "bough $p" env -u POSIX_FEW "$BOUGH_BIN/e2e/$p" "$work/mnt"
	done
	stop bough
fi
# The same with a kernel that offers less: what a capability is about without it, and
# everything without all of them.
caps="async_read async_dio readdirplus parallel_dirops killpriv_v2 cache_symlinks explicit_inval
	ioctl_dir no_open no_opendir expire_only idmap"
without() { # CAPABILITY PROGRAM…
	local c=$1 mask=() p
	shift
	if [ "$c" = all ]; then
		for p in $caps; do mask+=(--mask-cap "$p"); done
	else
		mask=(--mask-cap "$c")
	fi
	start "${mask[@]}" || return
	for p; do
		try "without $c $p" "$BOUGH_BIN/e2e/$p" "$work/mnt"
	done
	stop "without $c"
}
without idmap posix_rights
without killpriv_v2 posix_rights
without no_open posix_data posix_rights
without readdirplus posix_names
without parallel_dirops posix_race
# shellcheck disable=SC2086
without all $programs
# The other transport, where the machine has it.
if [ "$(cat /sys/module/fuse/parameters/enable_uring 2>/dev/null)" = Y ] &&
	cmp -s /sys/devices/system/cpu/possible /sys/devices/system/cpu/present; then
	if start --transport ring; then
		for p in $programs; do
			try "ring $p" "$BOUGH_BIN/e2e/$p" "$work/mnt"
		done
		stop ring
	fi
else
	number=$((number + 1))
	echo "ok $number - ring # SKIP no io_uring for FUSE"
fi
echo "1..$number"
