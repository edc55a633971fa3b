#!/bin/bash
# Which folder may include which, from what the compiler says (gcc -MM), not from grep:
# base <- store <- image <- work <- mount; base <- hold <- mount; gitops stands on work;
# init <- runtime <- io. Tests may include everything.
set -u
cd "$(dirname "$0")/../.." || exit 1

declare -A may=(
	[fs/base]=""
	[fs/store]="fs/base"
	[fs/image]="fs/base fs/store"
	[fs/work]="fs/base fs/store fs/image"
	[fs/hold]="fs/base"
	[fs/mount]="fs/base fs/store fs/image fs/work fs/hold"
	[gitops]="fs/base fs/store fs/image fs/work"
	[runtime/init]="fs/base"
	[runtime]="fs/base fs/store fs/image runtime/init"
	[runtime/io]="fs/base runtime"
	[snapd]="fs/base fs/store fs/image fs/work fs/hold gitops runtime runtime/init"
	[tools/bough]="fs/base"
	[tools/pack]="fs/base"
	[tools/fsmonitor]="fs/base"
	[tools/tls]="fs/base"
	[tools/apply]="fs/base fs/store gitops"
	[tools/bench]="fs/base fs/store"
)
# The control protocol is what boughd and bough-fs have in common; its header names no
# type of fs/mount.
exception="snapd:fs/mount/ctl.h"

echo "1..$((${#may[@]} + 2))"
n=0
ok() { # CONDITION-CODE NAME
	n=$((n + 1))
	[ "$1" = 0 ] && echo "ok $n - $2" || echo "not ok $n - $2"
}

bad=
for folder in "${!may[@]}"; do
	sources=("$folder"/*.c)
	if [ ! -e "${sources[0]}" ]; then
		ok 0 "$folder has no sources"
		continue
	fi
	r=0 found=
	rules=$(eval "${CC:-gcc} $CPPFLAGS -MM" '"${sources[@]}"') || r=1
	includes=$(printf '%s\n' "$rules" | tr -s ' \\' '\n' |
		grep -E '^(fs|snapd|gitops|runtime|tools|tests)/.*\.h$' | sort -u)
	for h in $includes; do
		case " $folder ${may[$folder]} " in
		*" ${h%/*} "*) ;;
		*)
			[ "$folder:$h" = "$exception" ] && continue
			found+="# $folder includes $h"$'\n'
			r=1
			;;
		esac
	done
	ok "$r" "$folder includes only itself and: ${may[$folder]:-nothing}"
	printf '%s' "$found"
done

# The table itself must have no cycle: what a folder may include is ordered.
tsort >/dev/null 2>&1 < <(for f in "${!may[@]}"; do for g in ${may[$f]}; do echo "$g $f"; done; done)
ok $? "no cycle among folders"

for f in $(git ls-files -co --exclude-standard '*.c' '*.h' 2>/dev/null || find fs snapd gitops runtime tools tests -name '*.[ch]'); do
	case ${f%/*} in
	tests/* | tests) ;;
	*) [ -n "${may[${f%/*}]+x}" ] || bad+=" $f" ;;
	esac
done
[ -z "$bad" ] || echo "# in a folder without a rule:$bad"
ok "$([ -z "$bad" ]; echo $?)" "each source lies in a folder that has a rule"
