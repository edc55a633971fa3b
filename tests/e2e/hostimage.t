#!/bin/bash
# The image "host" follows the host: what a package brings into /etc is there for the next sandbox. In
# a mount namespace of its own, whose /etc/alternatives is a copy.
if [ "$(id -u)" = 0 ] && [ -z "${BOUGH_TEST_OWN_ETC:-}" ] && unshare -m true 2>/dev/null; then
	exec env BOUGH_TEST_OWN_ETC=1 unshare -m "$0" "$@"
fi
. "${0%/*}/lib.sh"
need_sandboxes
[ -d /etc/alternatives ] || skip_all 'needs root and /etc/alternatives'
cp -a /etc/alternatives "$T/alternatives" && mount --bind "$T/alternatives" /etc/alternatives ||
	skip_all 'needs root in a mount namespace'
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
run bough run --name old -d
[ $code = 0 ] || bail "no sandboxes here: $err"
hosts() { bough image ls | grep -c ^host; }
image() { bough inspect "$1" | jq -r .snapshot; } # SANDBOX
first=$(image old)
bough_ok 'another' run --name same -d
is 'has the same image' "$(image same)" "$first"
ln -s /usr/bin/env "$T/alternatives/bough-test" # as a package does
run bough run --rm -- readlink /etc/alternatives/bough-test
is 'what is new on the host is there' "$code $out" '0 /usr/bin/env'
bough_ok 'one of that' run --name new -d
run bough diff new
is 'differs in nothing' "$code$out" 0
run bough exec old -- ls /etc/alternatives/bough-test
ok 'a root that was there keeps what it had' test "$code" != 0
bough_ok 'and can be saved' save old --as saved
run bough image show saved
like 'which says what it needs' "$out" "needs +this machine's /usr"
is 'its image stays as long' "$(hosts)" 2
bough_ok 'they go' rm --force old same
bough_ok 'and what was saved' snapshots rm saved
rm "$T/alternatives/bough-test" && ln -s /usr/bin/true "$T/alternatives/bough-other"
bough run --rm -- true && ln -s /usr/bin/true "$T/alternatives/bough-more"
bough_ok 'the next' run --name next -d
is 'is of a third' "$(image next | grep -cvx "$first\|$(image new)")" 1
# Or with the one after that, where something just looked at it.
for i in 1 2 3 4 5; do
	[ "$(hosts)" -gt 3 ] || break
	ln -s /usr/bin/true "$T/alternatives/bough-other-$i"
	bough run --rm -- true
done
ok 'and what nobody needs any more goes' test "$(hosts)" -le 3
bough_ok 'all go' rm --force new next
fsck_clean
done_testing
