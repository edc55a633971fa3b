#!/bin/bash
# The command line alone, without a daemon: help, usage errors, completion, the manual, and what
# it says when the daemon can't start.
. "${0%/*}/lib.sh"

commands=(create path ls show fork rename set rm mount umount save restore diff log 'snapshots ls'
	'snapshots show' 'snapshots rm' 'snapshots tag' export import 'image import' 'image ls' 'image show' 'image rm' cp cat 'files ls' watch up down gc fsck stats doctor help)

# ---- help

run bough --version
like 'version' "$out" '^bough [0-9]+\.[0-9]+\.[0-9]+$'
run bough help
is 'help ends with 0' $code 0
for c in "${commands[@]}"; do
	like "the overview has $c" "$out" "
  $c"
done
is 'bough --help is the same' "$(bough --help)" "$out"
for c in "${commands[@]}"; do
	run bough $c --help
	is "$c --help ends with 0" $code 0
	like "$c --help shows usage" "$out" "^usage: bough $c"
	like "$c --help has examples" "$out" $'\nExamples\n  \\$ .*bough '
	is "help $c is the same" "$(bough help $c)" "$out"
done
run bough snapshots --help
is 'what is the same for all of a group stands once' "$(grep -c '^ *--root' <<<"$out")" 1
like 'help of a group has all of it' "$out" 'snapshots ls.*snapshots tag'
is 'nothing was started by help' "$(pids_of boughd)" ''

# ---- usage

bough_fails 'no command' 2 'bough help'
bough_fails 'unknown command' 2 'did you mean "fork"' frok a
bough_fails 'unknown subcommand' 2 'did you mean "snapshots tag"' snapshots tga
bough_fails 'unknown option' 2 'did you mean --patch' diff a --pacth
bough_fails 'unknown letter' 2 'no option -Z' ls -Z
bough_fails 'missing value' 2 'needs its SIZE' create a --quota
bough_fails 'missing operand' 2 'usage: bough path NAME' path
bough_fails 'surplus operand' 2 'too much' path a b
bough_fails 'surplus operand of a command that takes none' 2 'usage: bough ls$' ls a
bough_fails 'empty name' 2 'empty' path ''
bough_fails 'two origins' 2 'one of --from' create a --from b --dir /
bough_fails 'wrong size' 2 "isn't a size" create a --quota lots
bough_fails 'wrong number' 2 "isn't a number" create a --inodes many
bough_fails 'set of nothing' 2 'give it --quota' set a
bough_fails 'set of a wrong quota' 2 "isn't a size" set a --quota nothing
bough_fails 'set of a wrong label' 2 'K=V' set a --label k
bough_fails 'wrong label' 2 'K=V' create a --label novalue
bough_fails 'wrong format' 2 'one of: tar' export a --format rar -o x
bough_fails 'two forms of diff' 2 'one of' diff a --stat --patch
bough_fails 'fork without names' 2 'NEW name' fork a
bough_fails 'fork of too many' 2 'to 1000' fork a -n 1001
bough_fails 'an option without a command' 2 '^bough: no option -v;' -v
bough_fails 'a format that is not written' 2 'none of .tar' export a -o "$T/a.tgz"
bough_fails 'fork of none' 2 'out of range' fork a -n 0
bough_fails 'fork with a count and names' 2 'one NEW' fork a b c -n 2
bough_fails 'tag without names' 2 'NAME' snapshots tag a
bough_fails 'help of what is not' 2 'did you mean' help crate
run bough frok --json
is 'a usage error as JSON' "$(json '"\(.exit) \(.error.code)"')" '2 invalid'
is 'nothing was started by wrong usage' "$(pids_of boughd)" ''

# ---- without a daemon

run bough down
is 'down without a daemon is fine' "$code" 0
like 'and says so' "$err" "isn't running"
run bough doctor --json
is 'doctor gives JSON' "$(json '.able | type')" boolean
if [ "$(id -u)" = 0 ] && [ "$(cat /proc/sys/fs/file-max)" -lt 2000000000 ]; then
	like 'it tells that one sandbox could use up all open files' "$out" 'sysctl fs.file-max='
fi
bough_fails 'a root that is not there is made by no list' 3 'there is no .*/root: `bough up`' ls
bough_fails 'nor by what looks for a name' 3 "there is no $T/slip: " rm x --root "$T/slip"
is 'so none was made' "$(ls -d "$BOUGH_ROOT" "$T/slip" 2>/dev/null)$(pids_of boughd)" ''
mkdir -m 700 closed
run env BOUGH_ROOT="$T/closed/root" bough doctor
[ "$(id -u)" != 0 ] || like 'a root that sandboxes can not reach' "$out" "
parents +warning +sandboxes can't reach their files below $T"
is 'doctor starts nothing' "$(pids_of boughd)" ''

# ---- a daemon that can't be started: bough alone, or with an impostor beside it

mkdir "$T/bin" "$BOUGH_ROOT"
cp "$BOUGH_BIN/bough" "$T/bin"
run env PATH=/usr/bin:/bin "$T/bin/bough" ls
is 'no boughd: exit 1' $code 1
like 'no boughd: one line' "$err" '^bough: ls: boughd is neither .*install it$'
printf '#!/bin/sh\necho "boughd: something else"; echo "boughd: no luck today: try tomorrow" >&2; exit 1\n' >"$T/bin/boughd"
chmod +x "$T/bin/boughd"
run "$T/bin/bough" ls
is 'boughd fails: exit 1' $code 1
is 'boughd fails: its reason in one line' "$err" "bough: ls: boughd doesn't start: no luck today: try tomorrow"
printf '#!/bin/sh\nkill -9 $$\n' >"$T/bin/boughd"
run "$T/bin/bough" ls
like 'boughd dies: one line' "$err" "^bough: ls: boughd doesn't start: killed by signal 9$"
# A peer that isn't boughd.
printf '#!/bin/sh\nexec python3 -c "
import socket, sys
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[2] + \\"/run/boughd.sock\\"); s.listen(); s.settimeout(20)
c, _ = s.accept(); c.close()
c, _ = s.accept(); c.recv(9999); c.send(b\\"SSH-2.0-nonsense\\\\r\\\\n\\"); c.close()
" "$@"\n' >"$T/bin/boughd"
run timeout 60 "$T/bin/bough" ls
is 'a strange peer: exit 1' $code 1
rm -f "$BOUGH_ROOT/run/boughd.sock"
# A root that can't be.
touch "$T/file"
run "$T/bin/bough" up --root "$T/file/root"
is 'a root below a file: exit 1' $code 1
like 'a root below a file: one line' "$err" '^bough: up: .*: Not a directory$'

# ---- output that can't be written

run bash -c 'bough help >/dev/full'
is 'a full disk for output is a failure' $code 1
like 'and says so' "$err" 'write to stdout'

# ---- completion

complete_line() { # WORD…: the candidates for the last one
	bough __complete -- $(($# - 1)) "$@" | sort | tr '\n' ' '
}
is 'completes commands' "$(complete_line bough s)" 'save set shell show snapshots start stats stop '
is 'completes a group' "$(complete_line bough snapshots '')" 'ls rm show tag '
is 'completes options' "$(complete_line bough fork a --co)" '--count '
is 'completes options with common ones' "$(complete_line bough diff --)" \
	'--against --auth --bytes --ca --help --insecure --json --name-status --patch --quiet --root --since --stat --url --version '
is 'completes choices' "$(complete_line bough export x --format t)" 'tar tar.zst '
is 'leaves files to the shell' "$(complete_line bough import '')" $'\tf '
is 'completes help' "$(complete_line bough help um)" 'umount '
is 'completes help of a group' "$(complete_line bough help token '')" 'create ls rm '
is 'a Tab starts nothing' "$(complete_line bough path '')$(pids_of boughd)" ''
for c in "${commands[@]}"; do
	for o in $(bough $c --help | grep -o -- ' --[a-z-]*' | sort -u); do
		like "completes $c $o" " $(complete_line bough $c --) " " $o "
	done
done | awk '/^not/ { bad = 1; print "# " $0 } END { exit bad }'
ok 'every option of the help completes' test "${PIPESTATUS[1]}" = 0

# ---- the manual

page=$("$BOUGH_SRC/tools/man/fill.sh" "$BOUGH_SRC/tools/man/bough.1.rst" "$BOUGH_BIN")
missing=
for c in "${commands[@]}"; do
	[[ $page == *"bough $c"* ]] || missing+=" $c"
	for o in $(bough $c --help | grep -o -- '^ .* --[a-z-]*' | grep -o -- '--[a-z-]*' | sort -u); do
		[[ $page == *"$o"* ]] || missing+=" $c:$o"
	done
done
is 'the manual has every command and option' "$missing" ''
for f in "$BOUGH_SRC"/tools/man/*.rst; do
	"$BOUGH_SRC/tools/man/fill.sh" "$f" "$BOUGH_BIN" >"$T/page.rst" 2>/dev/null
	ok "${f##*/} is sound" rst2man --halt=2 "$T/page.rst" "$T/page"
done
done_testing
