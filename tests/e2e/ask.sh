# For tests that ask boughd by a program in Python (ask.py). Sourced behind lib.sh.
command -v python3 >/dev/null || skip_all 'needs python3'
export PYTHONPATH=$BOUGH_SRC/tests/e2e PYTHONDONTWRITEBYTECODE=1

# Runs it on $BOUGH_ROOT; its checks are to be so many.
asks() { # COUNT PROGRAM [ARGUMENT…]
	local good what count=$1 program=$2
	shift 2
	timeout 300 python3 "$program" "$BOUGH_ROOT" "$@" >"$T/said" 2>"$T/why" ||
		{ cat "$T/said"; bail "$(tail -n 5 "$T/why")"; }
	while read -r _ good what; do
		if [ "$good" = ok ]; then pass "$what"; else fail "$what"; fi
	done < <(grep '^T ' "$T/said")
	is 'all of it was tried' "$(grep -c '^T ' "$T/said")" "$count"
}
