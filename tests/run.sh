#!/bin/bash
# Runs tests, prints a line for each program, and closes with the totals:
#
#     tests/run.sh [lint|unit|fuzz|crash|model|e2e]…    a kind
#     tests/run.sh lint/layers unit/test_omap …         one of a kind
#
# The environment says where the binaries are (B, default build/release). All programs
# speak TAP; those that don't count as one test by their exit code. A skip whose reason
# tests/skips.txt doesn't list is a failure. Logs are in $B/log.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

export B=${B:-build/release} VARIANT=${VARIANT:-release}
export BOUGH_BIN=$PWD/$B BOUGH_SRC=$PWD
export CC=${CC:-gcc} CPPFLAGS=${CPPFLAGS:-$(make -s cppflags | tail -n 1)}
export LC_ALL=C.UTF-8 CMOCKA_MESSAGE_OUTPUT=TAP
asan_options=${ASAN_OPTIONS:-abort_on_error=1:detect_stack_use_after_return=1}
ubsan_options=${UBSAN_OPTIONS:-print_stacktrace=1}
tsan_options=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}
unset BOUGH_LOG MAKEFLAGS MAKELEVEL MFLAGS

logs=$B/log
mkdir -p "$logs"
# Nothing that a test starts may touch the user's own workspaces or leave files behind.
scratch=$(mktemp -d "${TMPDIR:-/tmp}/bough-check.XXXXXX")
export TMPDIR=$scratch/tmp
sums=$scratch/sums reports=$scratch/reports
mkdir "$TMPDIR" "$sums" "$reports"
# Tests as root also act as other users.
chmod 711 "$scratch" && chmod 1777 "$TMPDIR" "$reports"
# A test that was stopped may leave servers and mounts: all that this run started has the
# scratch folder on its command line.
clean_up() {
	local p
	for p in /proc/[0-9]*; do
		tr '\0' ' ' 2>/dev/null <"$p/cmdline" | grep -qF "$scratch/" && kill -9 "${p#/proc/}"
	done
	awk -v under="$scratch/" 'index($2, under) == 1 { print $2 }' /proc/mounts |
		tac | xargs -r -d '\n' -n 1 umount -l
	rm -rf --one-file-system "$scratch"
} 2>/dev/null
trap clean_up EXIT
trap 'exit 130' INT TERM

# Seconds that one program of a kind may take, far more than any takes alone: it hangs, then. The
# sanitizers are slower.
limit_of() {
	local s
	case $1 in
	lint) s=600 ;;
	unit) s=400 ;;
	fuzz) s=400 ;;
	*) s=600 ;;
	esac
	[ "$VARIANT" = release ] || s=$((s * 5))
	echo "${BOUGH_TEST_TIMEOUT:-$s}"
}

# The programs of a kind, one a line.
list_kind() {
	case $1 in
	lint) ls tests/lint/*.t ;;
	unit) ls tests/unit/test_*.c | sed "s|^tests/unit/\(.*\)\.c|$B/unit/\1|" ;;
	fuzz) ls tests/fuzz/fuzz_*.c | sed "s|^tests/fuzz/\(.*\)\.c|$B/fuzz/\1|" ;;
	crash | model)
		ls "tests/$1"/*.c | sed "s|^tests/$1/\(.*\)\.c|$B/$1/\1|"
		ls "tests/$1"/*.t
		;;
	e2e) ls tests/e2e/*.t ;;
	*) echo "no such kind of test: $1" >&2; return 1 ;;
	esac 2>/dev/null
}

command_of() { # KIND PROGRAM: sets cmd
	local name
	case $2 in
	*.t) cmd=(prove --verbose --nocolor "$2") ;;
	*) cmd=("$2") ;;
	esac
	if [ "$1" = fuzz ]; then
		name=${2##*/fuzz_}
		cmd+=("tests/fuzz/corpus/$name")
	fi
	# gcc's thread sanitizer can't live with the address randomisation of newer kernels.
	[ "$VARIANT" != tsan ] || cmd=(setarch -R "${cmd[@]}")
}

# Why the tests of a log were skipped, one a line. cmocka's skip() has no reason and, in its
# older versions, says `not ok`: the test prints a line `skip: REASON` before.
skip_reasons() {
	awk '
		tolower($0) ~ /^(# *)?skip: / { sub(/^[^:]*: */, ""); said = $0; next }
		/^(not )?ok / && tolower($0) ~ /# *skip/ {
			sub(/.*# *[sS][kK][iI][pP][a-z]* */, "")
			print said != "" ? said : $0 != "" ? $0 : "no reason given"
			said = ""
		}
		# A file that is skipped whole: "1..0 # SKIP REASON", as prove shows it.
		/ \.\. skipped: / { sub(/.* \.\. skipped: /, ""); print }
	' "$1"
}

allowed_skip() {
	local line
	while IFS= read -r line; do
		case $line in
		'' | '#'*) ;;
		*) [[ $1 != *"$line"* ]] || return 0 ;;
		esac
	done <tests/skips.txt
	return 1
}

# The sanitizers write what they find into files beside each other, not to where the program
# writes: a daemon that dies of a report is started again, and the test may well go on.
tell_sanitizers() { # KIND NAME
	export ASAN_OPTIONS=$asan_options:log_path=$reports/$2
	export UBSAN_OPTIONS=$ubsan_options:log_path=$reports/$2
	export TSAN_OPTIONS=$tsan_options:log_path=$reports/$2
	# Its watch over the order of locks dies where a thread holds 64 of them: a fork of a
	# hundred, or all rows of the catalog. The unit tests have that watch.
	case $1 in model | e2e) TSAN_OPTIONS+=:detect_deadlocks=0 ;; esac
	# kill_ws forks servers, which have threads, from a program that has some.
	[ "$1" != crash ] || TSAN_OPTIONS+=:die_after_fork=0
}
# Appends those of a program to its log; how many there were.
take_reports() { # NAME LOG
	local file n=0
	for file in "$reports/$1".*; do
		[ -s "$file" ] || continue
		n=$((n + 1))
		{ echo "not ok - a sanitizer's report"; cat "$file"; } >>"$2"
	done
	echo $n
}

# Runs one program, and leaves `PASSED FAILED SKIPPED` in a file of $sums.
run_one() { # KIND PROGRAM
	local kind=$1 prog=$2 name log limit t0 code passed failed=0 skipped=0 bad_skips=0 reason cmd
	local found
	name=$kind/$(basename "$prog")
	log=$logs/${name//\//-}.log
	limit=$(limit_of "$kind")
	command_of "$kind" "$prog"
	export BOUGH_ROOT=$scratch/root/${name//\//-}
	tell_sanitizers "$kind" "${name//\//-}"
	t0=$EPOCHREALTIME
	# The braces keep bash's own word on a killed program off the screen.
	{ timeout -k 10 "$limit" "${cmd[@]}" >"$log" 2>&1 </dev/null; } 2>/dev/null
	code=$?
	passed=$(grep '^ok ' "$log" | grep -civ '# *skip')
	failed=$(grep '^not ok ' "$log" | grep -civ '# *skip')
	while IFS= read -r reason; do
		skipped=$((skipped + 1))
		allowed_skip "$reason" || bad_skips=$((bad_skips + 1))
	done < <(skip_reasons "$log")
	[ $((passed + failed + skipped)) -gt 0 ] || [ $code != 0 ] || passed=1
	found=$(take_reports "${name//\//-}" "$log")
	failed=$((failed + found))
	# It died, hung, or a plan did not hold: that is a failure beside what it printed.
	[ $code = 0 ] || [ "$failed" -gt 0 ] || failed=1
	local word=ok note=
	[ $skipped = 0 ] || note=", $skipped skipped"
	[ $bad_skips = 0 ] || note=", $bad_skips skipped for a reason that tests/skips.txt doesn't list"
	skipped=$((skipped - bad_skips)) failed=$((failed + bad_skips))
	[ $failed = 0 ] || word=FAIL
	[ "$found" = 0 ] || note+=", $found reports of sanitizers"
	[ $code != 124 ] || note+=", stopped after $limit s"
	[ $code -lt 128 ] || note+=", killed by signal $((code - 128))"
	echo "$passed $failed $skipped" >"$sums/${name//\//-}"
	{
		printf '%-4s %-36s %5.1f s  %s passed%s%s\n' $word "$name" \
			"$(echo "$t0 $EPOCHREALTIME" | awk '{ print $2 - $1 }')" "$passed" \
			"$([ $failed = 0 ] || echo ", $failed failed")" "$note"
		[ $failed = 0 ] || show_failure "$log"
	} >"${log%.log}.out"
	cat "${log%.log}.out" # at once, so that parallel lines don't mix
}

# The last lines of a log, too: there the daemons' own logs end, and what a test that was stopped
# had come to.
show_failure() {
	if grep -q '^not ok ' "$1"; then
		# What a program of ours says of it stands before, what a shell's says behind.
		awk '/^ok / { show = 0; said = "" }
		     /^not ok / { printf "%s", said; show = 13; said = "" }
		     show-- > 0 { print; next }
		     /^# / { said = said $0 "\n" }' "$1" | head -n 60
		echo '...'
		awk '/^# == end of / { show = 1 } show' "$1" | grep . || tail -n 8 "$1"
	else
		tail -n 30 "$1"
	fi | sed 's/^/     | /'
	echo "     | (all of it: $1)"
}

[ $# -gt 0 ] || set -- lint unit fuzz crash model e2e
started=0
jobs=$(nproc)
for arg; do
	kind=${arg%%/*}
	# Programs that mount and kill wait for each other more than for a core.
	case $kind in lint | unit | fuzz) width=$jobs ;; *) width=$((jobs + 1)) ;; esac
	while IFS= read -r prog; do
		name=$(basename "$prog" .t)
		[ "$kind" = "$arg" ] || [ "$name" = "${arg#*/}" ] || continue
		started=$((started + 1))
		while [ "$(jobs -rp | wc -l)" -ge "$width" ]; do wait -n; done
		run_one "$kind" "$prog" &
	done < <(list_kind "$kind")
done
wait

if [ "$started" = 0 ]; then
	echo "no such test: $*" >&2
	exit 1
fi
read -r passed failed skipped finished < <(cat "$sums"/* |
	awk '{ p += $1; f += $2; s += $3; n++ } END { print p + 0, f + 0, s + 0, n + 0 }')
failed=$((failed + started - finished)) # one that was killed itself has left no sum
# Once more, behind all that went well: of a run elsewhere the last lines may be all that is kept.
[ "$failed" = 0 ] || [ "$started" = 1 ] ||
	awk '$2 > 0 { n = FILENAME; sub(/.*\//, "", n); print n }' "$sums"/* |
	while IFS= read -r name; do head -n 80 "$logs/$name.out"; done | tail -n 240
awk '$2 > 0 { n = FILENAME; sub(/.*\//, "", n); sub(/-/, "/", n); printf "%s%s", said++ ? ", " : "failed: ", n }
     END { if (said) print "" }' "$sums"/*
echo "$passed passed, $failed failed$([ "$skipped" = 0 ] || echo ", $skipped skipped")"
[ "$failed" = 0 ]
