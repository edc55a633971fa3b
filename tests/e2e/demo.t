#!/bin/bash
# `make demo`'s script with trees of any size.
. "${0%/*}/lib.sh"
need_fuse

demo() { # TREE
	run env DEMO_TREE="$1" TMPDIR="$T" "$BOUGH_SRC/tools/demo/demo.sh"
}

mkdir "$T/few" "$T/empty" "$T/many"
echo a >"$T/few/a" && echo b >"$T/few/b b" && echo c >"$T/few/read-only" && chmod 444 "$T/few/read-only"
(cd "$T/many" && seq -f 'file-%g' 45 | xargs touch)
[ "$(id -u)" != 0 ] || chmod 711 "$T" # sandboxes pass through on the way to their files
demo "$T/few"
is 'three files: it ends well' $code 0
is 'without a complaint' "$err" ''
is 'what it began in a sandbox it ends' "$(grep -c 'rm --now agent-ws' <<<"$out")" \
	"$(grep -c 'run --name agent' <<<"$out")"
if [ "$(id -u)" = 0 ] && git -C "$BOUGH_SRC" rev-parse -q --verify HEAD >/dev/null; then
	like 'an agent has done its task' "$out" 'the better one is way-'
fi
chmod 700 "$T" # once is enough
like 'what changed' "$out" $'D\ta.*R\tb b\tdemo/moved'
demo "$T/empty"
is 'none' $code 0
demo "$T/many"
is 'some' $code 0
is 'ten of them are changed, two of those gone' "$(grep -c $'^    M\tfile-' <<<"$out")" 8
demo "$T/nowhere"
is 'no folder: wrong usage' $code 2
is 'and says so' "$err" "demo: DEMO_TREE=$T/nowhere isn't a folder"
is 'nothing is left behind' "$(find "$T" -maxdepth 1 -name 'bough-demo*')" ''
done_testing
