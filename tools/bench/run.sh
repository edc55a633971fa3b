#!/bin/bash
# Measures Bough beside ext4, prints a table of goals and figures, and writes them as JSON.
#
#     tools/bench/run.sh [--quick] [--only NAME]… [--json FILE] [--work DIR]
#
# BOUGH_BIN is the folder of the programs (build/release). The tree is Linux's: of
# BOUGH_BENCH_TREE where that folder is there, else unpacked from Debian's linux-source package,
# which is installed when it is missing. --quick takes a part of /usr/share, and fewer rounds.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
export BOUGH_BIN=${BOUGH_BIN:-$here/build/release}
quick=0
for a; do case $a in --quick) quick=1 ;; -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0 ;; esac; done

source_tarball() { find /usr/src -maxdepth 1 -name 'linux-source-*.tar.xz' 2>/dev/null | sort -V | tail -n 1; }

if [ $quick = 0 ] && [ ! -d "${BOUGH_BENCH_TREE:-/nowhere}" ]; then
	if [ -z "$(source_tarball)" ]; then
		echo 'bench: installing linux-source' >&2
		sudo=
		[ "$(id -u)" = 0 ] || sudo=sudo
		$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
			install linux-source >/dev/null
	fi
	export BOUGH_BENCH_TARBALL=$(source_tarball)
fi
exec python3 "$here/tools/bench/bench.py" "$@"
