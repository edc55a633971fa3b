#!/bin/bash
# Each header compiles alone, without a warning, and twice in one file.
set -u
cd "$(dirname "$0")/../.." || exit 1
headers=()
for h in fs/*/*.h snapd/*.h gitops/*.h runtime/*.h runtime/*/*.h tools/*/*.h tests/*/*.h; do
	[ ! -e "$h" ] || headers+=("$h")
done
try() {
	local out
	out=$(printf '#include "%s"\n#include "%s"\n' "$1" "$1" |
		eval "${CC:-gcc} -std=gnu17 -Wall -Wextra -Wno-unused-parameter -Wno-enum-compare -Werror $CPPFLAGS" \
			-fsyntax-only -x c - 2>&1)
	[ -z "$out" ] || { printf '%s\n' "$out" | head -n 5 | sed "s|^|$1: |"; }
}
export -f try
failures=$(printf '%s\n' "${headers[@]}" | xargs -P "$(nproc)" -I{} bash -c 'try {}')
echo "1..${#headers[@]}"
n=0
for h in "${headers[@]}"; do
	n=$((n + 1))
	if printf '%s\n' "$failures" | grep -q "^$h: "; then
		echo "not ok $n - $h"
		printf '%s\n' "$failures" | sed -n "s|^$h: |# |p"
	else
		echo "ok $n - $h"
	fi
done
