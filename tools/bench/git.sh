#!/bin/bash
# Measures checkouts beside git's own: creating workspaces of commits, and git status in them.
#
#     tools/bench/git.sh (--repo REPOSITORY | --tree FOLDER) [--rounds N] [--json FILE] [--work DIR]
#
# A repository with a long history and deep chains of deltas is made by tools/bench/history.py.
# BOUGH_BIN is the folder of the programs (build/release).
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
export BOUGH_BIN=${BOUGH_BIN:-$here/build/release}
exec python3 "$here/tools/bench/git.py" "$@"
