#!/bin/bash
# Measures Bough beside its peers: a plain ext4 folder, overlayfs, fuse-overlayfs, btrfs, XFS, git's
# worktree and clone --shared, restic, borg, casync and ostree. Prints tables of figures and goals, and
# writes them as JSON and as charts.
#
#     tools/bench/run.sh [--quick | --full] [--only PART]… [--places NAME,…] [--json FILE]
#                        [--charts DIR] [--work DIR]
#
# As root, on Debian: it installs the peers, mounts their filesystems on files below --work (/var/tmp,
# some 40 GB), and takes all of it away again at its end, also when it is interrupted. BOUGH_BIN is the
# folder of the programs (build/release). The tree is Linux's: of BOUGH_BENCH_TREE where that is a
# folder, else unpacked from Debian's linux-source. --quick takes a small tree, and three minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
export BOUGH_BIN=${BOUGH_BIN:-$here/build/release} BOUGH_BENCH_CACHE=${BOUGH_BENCH_CACHE:-$here/build/bench}
for a; do
	case $a in
	-h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0 ;;
	--redraw) exec python3 "$here/tools/bench/bench.py" "$@" ;;
	esac
done
"$here/tools/bench/peers.sh" "$@"
exec python3 "$here/tools/bench/bench.py" "$@"
