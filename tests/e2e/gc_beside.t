#!/bin/bash
# What is made while a gc looks for what is alive: it finds neither its row nor, once that has been restored
# or deleted, the tree that it was made of. What only they have is alive all the same.
. "${0%/*}/lib.sh"
need_fuse
mkdir "$BOUGH_ROOT" && echo '{"gc_every_s": 0}' >"$BOUGH_ROOT/config.json" # by hand alone
import_many
mkdir "$T/few"
state() { bough jobs show "$gc" --json | jq -r '.state + " " + .progress.unit'; }
marks() { [ "$(state)" = 'running workspaces' ]; }
began() { [[ "$(state)" =~ workspaces|done ]]; }
# A workspace, and with one of the last ids: they are marked in that order.
late() {
	for ((i = 0; i < 500; i++)); do
		bough create "$1" --from "$2" -q >/dev/null || bail "no workspace"
		[[ $(bough show "$1" --json | jq -r .id) == ws_[w-z]* ]] && return
		bough rm "$1" --now -q >/dev/null || bail "$1 stays"
	done
	bail "no late id"
}
marked=
# Others are marked first: so many more each time that it still marks when all has happened.
for n in 1 2 3 4 5 6; do
	for name in forked saved; do
		echo "in $name" >"$T/few/$name"
		head -c 100000 /dev/urandom >"$T/few/noise"
		tar -C "$T/few" -cf "$T/few.tar" .
		bough_ok "a tree of its own for $name" import "$T/few.tar" --as "of-$name-$n"
		late "$name-$n" "of-$name-$n"
		bough_ok 'that nothing else has' snapshots rm "of-$name-$n" --force
	done
	for ((i = 0; i < 60 * n; i++)); do
		bough create "other-$n-$i" --from many -q >/dev/null || bail "no workspace"
	done
	bough_ok 'a gc' gc --background
	gc=$out
	ok 'marks' wait_for 20 began
	bough_ok 'one is forked' fork "forked-$n" "child-$n"
	bough_ok 'and another tree put in its place' restore "forked-$n" many
	bough_ok 'one is saved' save "saved-$n" --as "kept-$n"
	bough_ok 'and deleted' rm "saved-$n" --now
	marks && marked=1 && break
	bough_ok 'it ends' jobs wait "$gc"
done
ok 'all that while it marked' test -n "$marked"
bough_ok 'it ends' jobs wait "$gc"
bough_ok 'a restart' down
bough_ok 'all is read anew' up
is 'the fork is whole' "$(cat "$(at "child-$n")/forked" 2>&1)" 'in forked'
bough_ok 'the snapshot is there' create again --from "kept-$n"
is 'and whole' "$(cat "$(at again)/saved" 2>&1)" 'in saved'
bough_ok 'another gc' gc
is 'the fork is whole' "$(wc -c <"$(at "child-$n")/noise")" 100000
fsck_clean
done_testing
