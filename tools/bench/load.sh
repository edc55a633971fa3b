#!/bin/bash
# Measures boughd under load: latencies of one client, of many at once and at a steady rate; what the
# daemons grow by; many workspaces. Prints tables, and writes the figures as JSON.
#
#     tools/bench/load.sh [--quick] [--clients N] [--seconds S] [--rate R] [--many N --mounted M]
#                         [--json FILE] [--work DIR]
#
# BOUGH_BIN is the folder of the programs (build/release). --quick takes some 15 seconds and fails when
# there was an error or a leak.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
export BOUGH_BIN=${BOUGH_BIN:-$here/build/release} PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/tools/bench/load.py" "$@"
