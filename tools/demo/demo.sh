#!/usr/bin/env bash
# `make demo`: the main job from end to end, on a state folder of its own that is removed
# at the end. BOUGH_BIN is the folder of the programs; DEMO_TREE names another tree to work
# in, of any size.
set -euo pipefail

here=$(cd "$(dirname "$0")/../.." && pwd)
bin=${BOUGH_BIN:-$here/build/release}
if [ -n "${DEMO_TREE:-}" ] && ! [ -d "$DEMO_TREE" ]; then
	echo "demo: DEMO_TREE=$DEMO_TREE isn't a folder" >&2
	exit 2
fi
work=$(mktemp -d "${TMPDIR:-/var/tmp}/bough-demo.XXXXXX")
chmod 711 "$work" # sandboxes pass through it
export BOUGH_ROOT=$work/state
export PATH=$bin:$PATH

finish() {
	local status=$?
	bough down >/dev/null 2>&1 || true
	if [ "$status" -ne 0 ]; then
		echo "demo: failed; the daemon's log ends with:" >&2
		tail -n 20 "$BOUGH_ROOT"/run/*.log >&2 || true
	fi
	rm -rf --one-file-system "$work"
	exit "$status"
}
trap finish EXIT

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\033[1m' plain=$'\033[0m'; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

# What the state takes; du must not walk into the mounts, whose files are the workspaces' own view.
# It fails when files go away under it, as they do while a mirror repacks, and has counted the rest.
used() {
	du -x -s --block-size=1 --exclude="$BOUGH_ROOT/mnt" "$BOUGH_ROOT" 2>/dev/null | cut -f1 || true
}

# Runs a command and prints it with the time that it took and the disk that it used.
step() {
	local before after t0 t1 line='' word
	for word in "$@"; do
		case $word in *[' "']*) word="'$word'" ;; esac
		line+=" $word"
	done
	before=$(used)
	printf '  $%s\n' "${line//$'\n'/$'\n    '}"
	t0=$(date +%s%N)
	"$@" 2>&1 | sed 's/^/    /'
	t1=$(date +%s%N)
	after=$(used)
	awk -v ns=$((t1 - t0)) -v b=$((after - before)) 'BEGIN {
		time = ns < 1e9 ? sprintf("%.1f ms", ns / 1e6) : sprintf("%.1f s", ns / 1e9)
		mib = b / 1048576
		size = mib > -1 && mib < 1 ? sprintf("%+.0f KiB", b / 1024) : sprintf("%+.1f MiB", mib)
		printf "    -- %s, %s on disk\n", time, size
	}'
}

small=$work/small
mkdir -p "$small"
if git -C "$here" rev-parse --git-dir >/dev/null 2>&1; then
	git -C "$here" ls-files -z | (cd "$here" && cpio -0 -pdm --quiet "$small")
else
	(cd "$here" && tar cf - --exclude=./build .) | tar xf - -C "$small"
fi

big=${DEMO_TREE:-}
if [ -z "$big" ]; then
	tarball=$(ls /usr/src/linux-source-*.tar.xz 2>/dev/null | sort -V | tail -n 1 || true)
	if [ -n "$tarball" ]; then
		echo "unpacking $tarball (once, for the demo only)"
		mkdir "$work/big"
		tar xf "$tarball" -C "$work/big" --strip-components=1
		big=$work/big
	else
		big=/usr/share
	fi
fi

# Edits, builds and tests this project in a fork of a checkout; its connection breaks in the middle.
in_sandbox() {
	local ex half size
	step bough repo add "$here" --name project
	git clone -q "$here" "$work/checkout"
	step bough create source --git project --scope fs/base --scope tests/unit --depth 1
	step bough run --name agent --from source -d
	step bough exec agent -- sh -c 'cat >fs/base/sum.c <<EOF
long sum(void)
{
	long v = 0;
	for (long i = 0; i < 300000000; i++)
		v += i % 7;
	return v;
}
EOF
cat >build.sh <<"EOF"
set -e
mkdir -p /tmp/o
for f in fs/base/*.c tests/unit/oom.c tests/unit/test_base.c; do
	o=/tmp/o/${f##*/}.o
	[ $o -nt $f ] && continue
	gcc $CFLAGS -std=gnu17 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -I. -c $f -o $o
	echo built $f
done
wrap=
for f in malloc calloc realloc reallocarray posix_memalign strdup strndup mmap64; do
	wrap="$wrap -Wl,--wrap=$f"
done
gcc /tmp/o/*.o $wrap -lcmocka -lcrypto -ljansson -lxxhash -pthread -o /tmp/test_base
/tmp/test_base
echo "long sum(void); int main(void) { return sum() < 0; }" >/tmp/main.c
gcc /tmp/main.c /tmp/o/sum.c.o -o /tmp/sum
time -p /tmp/sum
EOF
git status --short'

	echo "    a build and test, whose caller is killed in the middle:"
	ex=$(bough exec -d agent -- sh -c 'bash build.sh 2>&1 && echo all is well')
	(timeout -s KILL 0.5 bough logs "$ex" -f >"$work/half" || true) 2>/dev/null
	half=$(stat -c %s "$work/half")
	echo "    it had heard $half bytes; it goes on at the next one:"
	step bough logs "$ex" --since-byte "$half" -f
	[ "$(bough logs "$ex" | tail -n 1)" = 'all is well' ]

	step bough save agent --as task
	step bough fork agent way-a way-b --start
	step bough exec way-a -- sh -c 'sed -i "1i /* as with -O1 */" fs/base/sum.c && CFLAGS=-O1 bash build.sh | grep built'
	step bough exec way-b -- sh -c 'sed -i "1i /* as with -O2 */" fs/base/sum.c && CFLAGS=-O2 bash build.sh | grep built'
	size=$(for w in way-a way-b; do
		s=$(date +%s%N)
		bough exec $w -- /tmp/sum >/dev/null
		echo "$(($(date +%s%N) - s)) $w"
	done | sort -n | head -n 1 | cut -d' ' -f2)
	echo "    the better one is $size"
	step bough apply "$size-ws" --to "$work/checkout"
	git -C "$work/checkout" status --short | sed 's/^/    /'
	step bough rm --force agent way-a way-b
	step bough rm --now agent-ws way-a-ws way-b-ws source
}

bough up >/dev/null

say "1. Workspaces from real trees: this repository, and $(find "$big" | wc -l) files of $big"
step bough create small --dir "$small"
step bough create big --dir "$big"
step bough ls

say "2. Work in one: change, delete, add, rename"
big_path=$(bough path big)
# Ten of them, or as many as there are: the first is deleted, the second moved.
find "$big_path" -type f -size -64k -writable ! -path $'*\n*' | sort |
	awk 'NR <= 2000' >"$work/files"
every=$(($(wc -l <"$work/files") / 10))
awk -v every=$((every > 0 ? every : 1)) 'NR % every == (1 % every) && n++ < 10' "$work/files" >"$work/change"
while IFS= read -r f; do echo "changed by the demo" >>"$f"; done <"$work/change"
first=$(sed -n 1p "$work/change") second=$(sed -n 2p "$work/change")
[ -z "$first" ] || rm -f "$first"
mkdir -p "$big_path/demo" && echo hello >"$big_path/demo/hello"
[ -z "$second" ] || mv -f "$second" "$big_path/demo/moved"
step bough diff big

say "3. Fork it three ways, as it is, mounted and changed"
step bough fork big try-1 try-2 try-3
for i in 1 2 3; do echo "way $i" >"$(bough path "try-$i")/demo/hello"; done
for i in 1 2 3; do printf '    try-%s: %s\n' "$i" "$(cat "$(bough path "try-$i")/demo/hello")"; done
printf '    big:   %s\n' "$(cat "$big_path/demo/hello")"

say "4. What the second way changed"
step bough diff try-2 --against big --patch

say "5. Save it, break it, restore it in place"
step bough save try-2 -m "the second way" --as way-2
try_2=$(bough path try-2) # apart: a path that isn't there must not become `rm -rf /demo`
rm -rf "$try_2/demo"
echo "    broken: $(ls "$try_2/demo" 2>&1 | sed "s#$work/##")"
step bough restore try-2 way-2
printf '    back:   %s\n' "$(cat "$try_2/demo/hello")"
step bough log try-2

say "6. Export: a tar of the snapshot holds the same files as the workspace"
step bough export way-2 --format tar.zst -o "$work/way-2.tar.zst"
mkdir "$work/out"
bsdtar -xpf "$work/way-2.tar.zst" -C "$work/out" 2>/dev/null ||
	zstd -dc "$work/way-2.tar.zst" | tar xpf - -C "$work/out"
diff -r --no-dereference "$work/out" "$try_2"
echo "    diff -r finds no difference"

say "7. A task as an agent has it: a real C project, in a sandbox"
if [ "$(id -u)" != 0 ] || ! git -C "$here" rev-parse -q --verify HEAD >/dev/null 2>&1; then
	echo "    left out: it takes root, and a git repository"
elif ! bough run --rm -- true 2>"$work/why"; then
	echo "    left out: $(cat "$work/why")"
else
	in_sandbox
fi

say "8. What it all takes"
step bough stats
step bough fsck

say "Done; its state folder is removed."
