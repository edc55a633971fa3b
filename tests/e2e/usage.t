#!/bin/bash
# Every command with wrong arguments: the documented exit code, one line that says what is wrong, and
# nothing left behind.
. "${0%/*}/lib.sh"
need_fuse

# ---- options and operands: all commands, without a daemon

# COMMAND, a tab, OPERANDS
commands=$(bough help | awk '
	/^[A-Z]/ { listed = /^(Workspaces|Snapshots|Images|Files|Sandboxes|Repositories|Users|The service)/ }
	listed && match($0, /^  [a-z][a-z-]*( [a-z]+ )?/) {
		line = substr($0, 3)
		sub(/   .*/, "", line)
		n = match(line, /^(snapshots|image|files|repo|token|user|team|jobs|webhook) [a-z]+/) ? RLENGTH : match(line, / |$/) - 1
		print substr(line, 1, n) "\t" substr(line, n + 2)
	}')
ok 'the overview has all commands' test "$(wc -l <<<"$commands")" -gt 75
usage_of() { # COMMAND: its exit code for wrong usage
	case $1 in run | exec | shell) echo 125 ;; *) echo 2 ;; esac
}
while IFS=$'\t' read -r c operands; do
	want=$(usage_of "$c")
	# shellcheck disable=SC2086
	bough_fails "$c: an unknown option" "$want" 'no option --nonsense' $c --nonsense
	[[ -z $operands || $operands == \[* ]] || bough_fails "$c: nothing" "$want" 'usage: bough' $c
	[[ $operands == *…* ]] || bough_fails "$c: too much" "$want" 'is too much' $c x x x x
done <<<"$commands"
bough_fails 'an unknown letter' 2 'no option -Z' path -Z
bough_fails 'a value that is missing' 2 'root needs its DIR' path --root
is 'nothing was started' "$(pids_of boughd)" ''

# ---- names that aren't there

bough_ok 'a workspace' create w -q
bough_ok 'a snapshot' save w --as s -q
echo x >file
mkdir folder && seq 1000 >folder/numbers
bough_ok 'and another' create v -q
echo x >"$(at v)/x"
# But the built-in image, which the first sandbox makes.
there() { bough ls -q; bough snapshots ls --json | jq -c '[.items[] | select(.image.builtin | not).names]'; }
before=$(there)
none() { # ARGUMENT…: of which `none` is what isn't there
	local want=3
	case $1 in run | exec | shell) want=125 ;; esac
	bough_fails "$*" $want 'none' "$@"
}
none path none
none show none
none fork none x
none rename none x
none set none --quota 1G
none rm none
none rm --now none
none undelete none
none mount none
none umount none
none save none
none restore none s
none restore w none
none diff none
none diff w --against none
none commit none -m x
none push none
none apply none --to folder
none merge none --into w
none merge w --into none
none log none
none snapshots ls --workspace none
none snapshots show none
none snapshots rm none
none snapshots tag none x
none export none -o x.tar
none export w -o none/x.tar
none import none
none create x --from none
none create x --git none
none create x --dir none
none create x --tar none
none image import x none
none image show none
none image rm none
none cp none:x y
none cp w:none y
none cp file none:x
none cp none w:
none cat none:x
none cat w:none
none files ls none:
none files ls w:none
none watch none
none repo add ./none
none repo fetch none
none repo show none
none repo reset none main
none repo rm none
none token rm none
none token create --scope none
none token create --owner none
none user rm none
none user quota none
none user quota none --size 1G
none team join none x
none team leave none none
none team rm none
none jobs show none
none jobs wait none
none jobs cancel none
none webhook log none
none webhook test none
none webhook rm none
none audit none
none stats none
none inspect none
none logs none
none attach-workspace none w
none detach-workspace none w
none pause none
none resume none
none start none
none stop none
none kill none
none exec none -- true
none shell none
bough_fails 'help none' 2 'none' help none
if [ "$(id -u)" = 0 ] && command -v "$MAIN_RT" >/dev/null; then
	chmod 711 "$T"
	none run --workspace none -- true
	none run --from none -- true
	none run --git none -- true
	none run --image none -- true
	none run --env-file none -- true
	none run --secret k=none -- true
fi

# ---- values that can't be

bad() { # REGEX ARGUMENT…
	local regex=$1 want
	shift
	want=$(usage_of "$1")
	bough_fails "$*" "$want" "$regex" "$@"
}
bad '"a b": a name is made' create 'a b'
bad '"a/b/c": a name' create a/b/c
bad 'a name' fork w 'a b'
bad 'a name' rename w 'a b'
bad 'a name' save w --as 'a b'
bad 'a name' snapshots tag s 'a b'
bad 'a name' import file --as 'a b'
bad 'a name' user add 'a b'
bad 'a name' team add 'a b'
bad 'a name' image import 'a b' file
bad '--visibility is private, team:TEAM or global' create x --visibility all
bad '--visibility' set w --visibility all
bad "isn't a size" set w --quota much
bad 'takes a time' set w --ttl soon
bad 'one of: delete save keep' set w --on-expiry never
bad 'K=V' set w --label x
bad '--limit: a number' audit --limit x
bad '--since: a time' audit --since yesterday
bad 'one of: POST' audit --method GET
bad '--event: there is no event' webhook add https://example.org/ --event workspace.svaed
bad 'url' webhook add nowhere
bad "isn't a number" user add x --uid root
bad 'takes a time' token create --expires soon
bad 'one of: reader' team join t x --role king
bad 'is expected' cat w
bad 'is expected' files ls w
bad 'one of the two' cp file file
bad "isn't a number" logs x --since-byte x
bad '--ref needs --git' create x --ref main
bad '--label takes' ls --label ''
bad '--label takes' ps --label =x
bad 'out of range' fork w -n 0
bad 'no checkout' commit w -m x
bad 'cpus' run --cpus x -- true
bad '--net is one of' run --net all -- true
bad 'a target begins with /' run --workspace w:x -- true
bad 'takes a time' exec x --timeout soon -- true

# ---- what is there, or in the way

bough_fails 'a name that is taken' 4 'choose another' create w
bough_fails 'by a fork' 4 'choose another' fork w w
bough_fails 'by a snapshot' 4 'choose another' save v --as s
bough_fails 'a snapshot that is used' 4 'w' snapshots rm s
bough_fails 'bytes that are no archive' 1 'file' import file
bough_fails 'more than there may be' 6 'quota' create x --dir folder --quota 100

is 'nothing is left of all that' "$(there)" "$before"
ok 'nor a file' test ! -e y -a ! -e x.tar
is 'nor a person' "$(bough user ls -q)$(bough team ls -q)$(bough webhook ls -q)$(bough token ls -q)" ''
done_testing
