#!/bin/bash
# What holds for the text of every source.
set -u
shopt -s lastpipe # `none` counts
cd "$(dirname "$0")/../.." || exit 1
mapfile -t sources < <(find fs snapd gitops runtime tools tests -name '*.[ch]' 2>/dev/null | sort)
mapfile -t all < <(git ls-files -co --exclude-standard 2>/dev/null |
	grep -vE '^(LICENSE$|tests/(fuzz/corpus|golden)/)')
[ ${#all[@]} -gt 0 ] || mapfile -t all < <(find . -path ./build -prune -o -type f -print)

echo 1..11
n=0
none() { # NAME: the findings are on stdin
	local found
	found=$(head -n 20)
	n=$((n + 1))
	if [ -z "$found" ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		printf '%s\n' "$found" | sed 's/^/# /'
	fi
}

grep -nE '[[:space:]]+$' "${sources[@]}" | none "no white space at the end of a line"
perl -CSD -ne 'chomp; 1 while s/^([^\t]*)\t/$1 . " " x (8 - length($1) % 8)/e;
	print "$ARGV:$.\n" if length > 100; close ARGV if eof' "${sources[@]}" |
	none "no line over 100 columns"
grep -nwE 'TODO|FIXME|XXX|HACK' "${sources[@]}" | none "nothing is left for later"
wc -l "${sources[@]}" | awk '$2 != "total" && $1 > ($2 ~ /^tests/ ? 1500 : 900) {
	print $2 ": " $1 " lines" }' | # tests are long lists
	none "no file is too long"
{
	grep -nE 'err_sys\([^;]*-ENOMEM|"no memory|"out of memory [^"]' tools/bough/*.c snapd/*.c
	grep -nE 'err_set\([^;]*-ENOMEM, "(no|out of) memory"\)' "${sources[@]}" |
		grep -v '^fs/base/err\.c' # err_no_memory
} | none "to a person memory is out in the same words everywhere"
printf '%s\n' "${sources[@]}" | grep '\.h$' |
	xargs grep -L '^#define BOUGH_[A-Z0-9_]*_H$' | none "each header has its guard"
grep -nE '(^|[^A-Za-z0-9./_}-])/(home/[a-z]|work/)' "${all[@]}" 2>/dev/null | grep -v '^tests/lint/source.t:' |
	none "no path of somebody's machine"
grep -nE '(deb|security|ftp|snapshot|mirrors?)\.[a-z0-9.-]*debian\.(org|net)|registry\.npm' "${all[@]}" \
	2>/dev/null | none "no host of a package registry"
# What a small machine lacks and tools/setup doesn't install, though those who write tests have it.
grep -nE '(^|[|;&({`]|\$\() *(xxd|file -|bc|hexdump|lsof|strace|socat|nc|fuser|bsdtar|netstat|yq)( -|$| [a-z"$])' \
	tests/*.sh tests/*/*.t tests/*/*.sh | none "tests run no command that set-up doesn't install"
# The banned functions are banned indeed.
for call in 'strcpy(a, b)' 'sprintf(a, "%s", b)' 'strtok(a, b)' 'alloca(8)' 'atoi(b)' 'gmtime(0)'; do
	printf 'void f(char *a, const char *b); void f(char *a, const char *b) { (void)%s; }\n' "$call" |
		eval "${CC:-gcc} -std=gnu17 -Werror=implicit-function-declaration $CPPFLAGS" \
			-fsyntax-only -x c - 2>/dev/null && echo "$call compiles"
done | none "banned functions don't compile"
for f in "${all[@]}"; do
	case $f:$(head -n 1 "$f" 2>/dev/null | tr -d '\0') in
	*:'#!'*/bash | *:'#!'*/'env bash' | *:'#!'*/sh | *.bash:*) bash -n "$f" 2>&1 ;;
	*:'#!'*python3) python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$f" 2>&1 ;;
	esac
done | none "each script parses"
