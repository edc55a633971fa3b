#!/bin/bash
# Measures sandboxes beside the runtime alone, tar, and podman where there is one (in PATH, or as
# BOUGH_PODMAN says): starting, executing, saving, forking, destroying, copying, and the memory of many
# that are alive. Prints a table with goals, and writes the figures as JSON.
#
#     tools/bench/sandbox.sh [--quick] [--runtime NAME] [--alive N] [--rounds N] [--files N]
#                            [--json FILE] [--work DIR]
#
# As root. BOUGH_BIN is the folder of the programs (build/release). --alive 300 is what the goal for
# memory says; --files 79000 that for copies (20,000 otherwise, and a file of 1 GiB beside them). What
# runs by turns is compared pair by pair, so that a ratio holds where others use the machine, too.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
for a; do
	[ "$a" != -h ] && [ "$a" != --help ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0; }
done
export BOUGH_BIN=${BOUGH_BIN:-$here/build/release} PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/tools/bench/sandbox.py" "$@"
