#!/bin/bash
# bough cp of one large file that broke off: the same command goes on with its upload, and takes
# nothing old for new.
. "${0%/*}/lib.sh"
need_fuse
command -v python3 >/dev/null || skip_all 'needs python3'
export XDG_STATE_HOME=$T/state
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
sock=$BOUGH_ROOT/run/boughd.sock
echo pass >way
python3 "$BOUGH_SRC/tests/e2e/way.py" "$sock" way &
wait_for 10 grep -q . way.port 2>/dev/null || bail 'no way to boughd'
by=(--url "http://127.0.0.1:$(cat way.port)")
size=$((34 << 20))
head -c "$size" /dev/urandom >file
head -c "$size" /dev/urandom >other
touch -d '2001-02-03 04:05:06.5' file other
bough_ok 'a workspace' create w -q
at=$(at w)

records() { find "$XDG_STATE_HOME/bough/cp" -type f 2>/dev/null | wc -l; }
uploads() { find "$BOUGH_ROOT/uploads" -name '*.data' 2>/dev/null | wc -l; }
of_it() { stat -c %s "$BOUGH_ROOT"/uploads/*.data 2>/dev/null | tail -n 1; }
arrived() { local n; n=$(of_it) && [ "$n" -gt 15000000 ] && [ "$n" = "$(sleep 0.2; of_it)" ]; }
# A copy whose connection stalls behind half of it, and which is killed then.
broken() { # ARGUMENT…
	local pid
	rm -f way.stalled
	echo 'stall in 20000000' >way
	bough "${by[@]}" cp "$@" -q 2>/dev/null &
	pid=$!
	wait_for 20 test -e way.stalled || diag "nothing stalled: cp $*"
	wait_for 20 arrived || diag "little came: cp $*"
	kill -9 $pid 2>/dev/null
	wait $pid 2>/dev/null
	echo pass >way
	[ "$(records)" = 1 ] || diag "$(records) records of: cp $*"
}
goes_on() { # DESCRIPTION ARGUMENT…
	local what=$1
	shift
	run bough "${by[@]}" cp "$@"
	is "$what" "$code" 0
	like 'says that it goes on' "$err" 'this copy broke off before: it goes on at byte [1-9][0-9]{7}'
	is 'nothing is left to go on with' "$(records) $(uploads)" '0 0'
}
anew() { # DESCRIPTION ARGUMENT…
	local what=$1
	shift
	run bough "${by[@]}" cp "$@"
	if [ "$code" = 0 ] && [[ $err != *'broke off'* ]]; then pass "$what"; else fail "$what" && diag_run; fi
	is 'nothing is left to go on with' "$(records) $(uploads)" '0 0'
}

broken file w:new
is 'a copy that was killed is noted' "$(records)" 1
ok 'the file is not there yet' test ! -e "$at/new"
goes_on 'the same command goes on' file w:new
ok 'it is whole' cmp -s file "$at/new"
anew 'the next one is a new one' file w:new

# A source that is another one by now, of the same size and time.
broken file w:new
cp other file.new && touch -d '2001-02-03 04:05:06.5' file.new && mv file.new file
anew 'of another file it is a new one' file w:new
ok 'and that file' cmp -s other "$at/new"
broken file w:new
printf x | dd of=file bs=1 seek=10 conv=notrunc status=none && touch -d '2001-02-03 04:05:06.5' file
anew 'of one that was written to, too' file w:new
ok 'and it as it is now' cmp -s file "$at/new"

# Another target; one that was a folder meanwhile.
broken file w:new
bough_ok 'to another one' cp file w:elsewhere -q
ok 'whole' cmp -s file "$at/elsewhere"
rm -f "$at/new" && mkdir "$at/new"
anew 'into a folder it goes below' file w:new
ok 'whole' cmp -s file "$at/new/file"
rm -rf "$at/new"

# boughd and bough-fs were killed in between.
broken file w:new
kill_hard boughd bough-fs
again() { boughd --root "$BOUGH_ROOT" --daemon 2>/dev/null; } # the last one's thread may hold the lock
wait_for 10 again || bail 'boughd does not start again'
goes_on 'after boughd was killed' file w:new
ok 'whole' cmp -s file "$at/new"

# It was done, but not heard of; and another file since.
broken file w:new
up=$(basename "$(ls "$BOUGH_ROOT"/uploads/*.data)" .data)
from=$(of_it)
tail -c +$((from + 1)) file | curl -sS -o /dev/null --unix-socket "$sock" -X PATCH -H 'Tus-Resumable: 1.0.0' -H "Upload-Offset: $from" \
	-H 'Content-Type: application/offset+octet-stream' --data-binary @- "http://d/v1/workspaces/w/uploads/$up"
ok 'it is there' cmp -s file "$at/new"
echo changed >"$at/new"
run bough "${by[@]}" cp file w:new -q
is 'what was done and replaced since is copied anew' "$code $(records) $(uploads)" '0 0 0'
ok 'whole' cmp -s file "$at/new"

# The upload is gone; the workspace is another of that name.
broken file w:new
rm -f "$BOUGH_ROOT"/uploads/*
anew 'without the upload it is a new one' file w:new
broken file w:new
bough_ok 'rm' rm w --now -q
bough_ok 'another workspace' create w -q
anew 'into another workspace too' file w:new
ok 'whole' cmp -s file "$(at w)/new"

# What doesn't fit leaves nothing.
bough_ok 'a small one' create small --quota 8M -q
bough_fails 'into one that is too small' 6 "don.t fit" cp file small:
is 'nothing is left' "$(records) $(uploads)" '0 0'
fsck_clean
done_testing
