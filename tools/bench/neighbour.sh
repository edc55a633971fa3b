#!/bin/bash
# Measures what a sandbox feels of its neighbour's bombs: of processes, memory, disk, inodes, inotify
# instances, pipes, CPU and requests to bough-fs, each over and over while the other looks up files.
# Prints the p99 of a stat, alone and beside (medians of N rounds by turns, 3), and their ratio; ends
# with 1 when one of them is over the goal. Who else uses the machine is seen, too: run it on a quiet
# one. That bombs are contained is what tests/e2e/escape.t tests.
#
#     tools/bench/neighbour.sh [--runtime NAME] [--seconds N] [--rounds N] [--only KIND…]
#                              [--json FILE] [--work DIR]
#
# As root. BOUGH_BIN is the folder of the programs (build/release).
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
for a; do
	[ "$a" != -h ] && [ "$a" != --help ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0; }
done
export BOUGH_BIN=${BOUGH_BIN:-$here/build/release} PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/tools/bench/neighbour.py" "$@"
