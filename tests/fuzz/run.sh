#!/bin/bash
# Searches with libFuzzer: run.sh FOLDER SECONDS TARGET…   (see `make fuzz`)
# New inputs that reach new code are kept under build/, crashes too; the repository's
# corpus takes in what is worth keeping by hand: copy a crash there when it is fixed.
set -euo pipefail
bin=$1 seconds=$2
shift 2
failed=0
for target; do
	name=${target#fuzz_}
	new=build/fuzz/corpus/$name
	mkdir -p "$new" build/fuzz/crashes
	echo "== $name, $seconds s"
	corpus=()
	[ ! -d "tests/fuzz/corpus/$name" ] || corpus=("tests/fuzz/corpus/$name")
	"$bin/$target" -max_total_time="$seconds" -rss_limit_mb=4096 -timeout=10 \
		-artifact_prefix="build/fuzz/crashes/$name-" -print_final_stats=1 \
		"$new" "${corpus[@]}" >"build/fuzz/$name.log" 2>&1 || failed=1
	grep -E '^stat::number|SUMMARY|Test unit written' "build/fuzz/$name.log" || true
done
exit $failed
