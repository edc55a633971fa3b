#!/bin/bash
# bough cp of folders that broke off: the same command goes on, sends nothing twice, and takes
# nothing old for new.
. "${0%/*}/lib.sh"
need_fuse
command -v python3 >/dev/null || skip_all 'needs python3'
export XDG_STATE_HOME=$T/state
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
sock=$BOUGH_ROOT/run/boughd.sock

# A way to boughd on which connections stall or break.
echo pass >way
python3 "$BOUGH_SRC/tests/e2e/way.py" "$sock" way &
wait_for 10 grep -q . way.port 2>/dev/null || bail 'no way to boughd'
by=(--url "http://127.0.0.1:$(cat way.port)")

# Two trees that no size, time or mode tells apart.
for v in 1 2; do
	for d in a k/b k/c d e f g h; do
		mkdir -p "v$v/$d" && (cd "v$v/$d" && for i in $(seq 100); do printf '%s%03d%s\n%3000s' "${d##*/}" "$i" $v >"f$i"; done)
	done
	chmod 640 "v$v/a/f1" && ln "v$v/a/f1" "v$v/h/hard" && ln -s "target$v" "v$v/k/c/link"
	find "v$v" -exec touch -hd '2001-02-03 04:05:06.5' {} +
done
cp -a v1 src
records() { find "$XDG_STATE_HOME/bough/cp" -type f 2>/dev/null | wc -l; }
# What boughd, or bough-pack, had got is in place when the last of it is heard of no more.
settled() { # FOLDER
	local n
	n=$(find "$1" -cnewer way.began -type f 2>/dev/null | wc -l)
	[ "$n" -gt 100 ] && [ "$n" = "$(sleep 0.2; find "$1" -cnewer way.began -type f 2>/dev/null | wc -l)" ]
}
# A copy whose connection stalls behind half of it, and which is killed then.
broken() { # in|out FOLDER ARGUMENT…
	local side=$1 dir=$2 pid
	shift 2
	rm -f way.stalled && : >way.began && sleep 0.02
	echo "stall $side 1900000" >way
	bough "${by[@]}" cp "$@" -q 2>/dev/null &
	pid=$!
	wait_for 20 test -e way.stalled || diag "nothing stalled: cp $*"
	kill -9 $pid 2>/dev/null
	wait $pid 2>/dev/null
	echo pass >way
	wait_for 20 settled "$dir" || diag "little came: cp $*"
	[ "$(records)" = 1 ] || diag "$(records) records of: cp $*"
}
same() { # DESCRIPTION A B
	if diff -r --no-dereference "$2" "$3" >"$T/.diff" && [ "$(cd "$2" && find . -printf '%P %m %T@ %n\n' | sort)" = \
		"$(cd "$3" && find . -printf '%P %m %T@ %n\n' | sort)" ]; then pass "$1"; else
		fail "$1"
		diag "$(head -n 5 "$T/.diff")"
	fi
}
goes_on() { # DESCRIPTION MOST-MEMBERS ARGUMENT…: less than the whole of some 810 is sent
	local what=$1 most=$2
	shift 2
	run bough "${by[@]}" cp "$@" --json
	is "$what" "$code" 0
	like 'says that it goes on' "$err" 'this copy broke off before: it goes on, [0-9]+ files are there'
	if [ "$(json .members)" -lt "$most" ]; then pass 'sends the rest alone'; else
		fail 'sends the rest alone'
		diag "$(json .members) members, not below $most"
	fi
	is 'nothing is left to go on with' "$(records)" 0
}
anew() { # DESCRIPTION ARGUMENT…
	local what=$1
	shift
	run bough "${by[@]}" cp "$@"
	if [ "$code" = 0 ] && [[ $err != *'broke off'* ]]; then pass "$what"; else fail "$what" && diag_run; fi
}

bough_ok 'a workspace' create w -q
at=$(at w)

# ---- into a workspace
broken in "$at/new" src w:new
is 'a copy that was killed is noted' "$(records)" 1
goes_on 'the same command goes on' 650 src w:new
same 'all of it is there' src "$at/new"
ok 'not in a folder of its own below' test ! -e "$at/new/src"
anew 'the next one is a new one' src w:new
same 'which goes below' src "$at/new/src"
rm -rf "$at/new"

# What changed meanwhile is sent again, also where nothing but its ctime, or a folder's, tells.
broken in "$at/new" src w:new
printf 9 | dd of=src/a/f1 bs=1 seek=4 conv=notrunc status=none && touch -d '2001-02-03 04:05:06.5' src/a/f1
mv v2/k/b b2 && mv src/k/b b1 && mv b2 src/k/b
touch -d '2001-02-03 04:05:06.5' src/k
printf 'x' >"$at/new/a/f2"
rm -f "$at/new/a/f3" src/a/f4
goes_on 'with a source that changed' 750 src w:new
like 'what went is told' "$err" 'gone since, and left at the target: 1, as a/f4'
rm -f "$at/new/a/f4"
ok 'it is the source as it is now' diff -r --no-dereference src "$at/new"

# A target that is another one by now.
rm -rf "$at/new"
broken in "$at/new" src w:new
rm -rf "$at/new" && mkdir "$at/new"
anew 'into another folder of that name it is a new one' src w:new
same 'as cp has it' src "$at/new/src"

# Over an older copy of the same sizes, times and modes.
bough_ok 'an older tree' cp v1 w:tree -q
cp -a v1 v3 && find v3 -type f -exec sed -i '1s/1$/3/' {} + && find v3 -exec touch -hd '2001-02-03 04:05:06.5' {} +
broken in "$at/tree" v3/. w:tree
goes_on 'over an older tree' 650 v3/. w:tree
same 'nothing old stays' v3 "$at/tree"

# ---- out
broken out "$T/out" w:tree out
is 'a copy out that was killed is noted' "$(records)" 1
is 'no half of a file is there' "$(find out -type f -size 0 | wc -l) $(find out -name '.bough-cp*' | wc -l)" '0 0'
printf 9 | dd of="$at/tree/a/f1" bs=1 seek=4 conv=notrunc status=none && touch -d '2001-02-03 04:05:06.5' "$at/tree/a/f1"
printf 'x' >"$(find out -name f2 | head -n 1)"
goes_on 'the same command goes on' 650 w:tree out
same 'it is the workspace as it is now' "$at/tree" out
rm -rf out
broken out "$T/out" w:tree out
rm -rf out && mkdir out
anew 'into another folder of that name it is a new one' w:tree out
same 'as cp has it' "$at/tree" out/tree
broken out "$T/out2" w:tree out2
touch "$at/tree/new" && rm "$at/tree/new" # what is in a folder that changed may have come by a rename
goes_on 'out of one that changed' 850 w:tree out2
like 'all is sent again' "$(json .members)" '^81'
ok 'and right' diff -r --no-dereference "$at/tree" out2

# Files that a restore brought back are older than the copy.
bough_ok 'a snapshot' save w --as older -q
find "$at/tree" -name 'f?' -exec sh -c 'for f; do sed -i 1s/.$/7/ "$f" && touch -d "2001-02-03 04:05:06.5" "$f"; done' - {} +
broken out "$T/out3" w:tree out3
ok 'what was changed came' grep -rlq 7$ out3
bough_ok 'a restore' restore w older -q
anew 'what was restored since is copied anew' w:tree out3
same 'as it is' "$at/tree" out3

# ---- from one to another
bough_ok 'another' create v -q
vat=$(at v)
broken in "$vat/copy" w:tree v:copy
goes_on 'from workspace to workspace' 650 w:tree v:copy
ok 'is whole' diff -r --no-dereference "$at/tree" "$vat/copy"
bough_ok 'a snapshot' save w --as s -q
broken in "$vat/snap" s:tree v:snap
goes_on 'from a snapshot' 650 s:tree v:snap
ok 'is whole' diff -r --no-dereference "$at/tree" "$vat/snap"

# ---- connections that break: the command goes on by itself
cut() { # DESCRIPTION in|out ARGUMENT…
	local what=$1
	shift
	echo "cut $1 1900000" >way
	shift
	run bough "${by[@]}" cp "$@"
	is "$what" "$code" 0
	is 'that broke' "$(cat way)" pass
	is 'nothing is left to go on with' "$(records)" 0
}
cut 'a copy in over a connection' in src v:cut
same 'is whole' src "$vat/cut"
cut 'one out' out v:cut cut
same 'is whole' src cut
cut 'one across' out v:cut w:cut
same 'is whole' src "$at/cut"
cut 'one across, on the other side' in v:cut w:cut2
same 'is whole' src "$at/cut2"
bough cp src v:lost -q &
pid=$!
until [ -d "$vat/lost" ] || [ ! -d "/proc/$pid" ]; do :; done
kill_hard boughd
wait $pid
is 'one while boughd was killed' "$?" 0
same 'is whole' src "$vat/lost"

bough_ok 'boughd is there' ls -q

# ---- what the API wants of such a list
later='before=2100-01-01T00:00:00.000000000Z'
post() { # DESCRIPTION STATUS QUERY [BODY]
	: >"$T/.body"
	is "$1" "$(printf "${4-}" | curl -sS -m 200 -o "$T/.body" -w '%{http_code}' --unix-socket "$sock" \
		--data-binary @- "http://d/v1/workspaces/w/archive/tree/d?$3" 2>/dev/null)" "$2"
}
post 'without a time' 400 format=tar
post 'with one that is none' 400 'before=now'
post 'as a zip' 400 "format=zip&$later"
post 'an empty list' 200 "$later"
is 'is all of it' "$(tar tf "$T/.body" | wc -l)" 101
post 'a list' 200 "$later" '3006 981173106 500000000 0644 f2\0003006 981173106 500000000 0600 f3\000'
is 'is the rest' "$(tar tf "$T/.body" | grep -cE '/(f2|f3)$') $(tar tf "$T/.body" | wc -l)" '1 100'
for i in 1 2; do
	is "with a key, time $i" "$(curl -sS -m 200 --unix-socket "$sock" -H 'Idempotency-Key: same' --data-binary '' \
		"http://d/v1/workspaces/w/archive/tree/d?$later" | tar tf - | wc -l)" 101
done
post 'no list' 200 "$later" nonsense
is 'is no archive' "$(stat -c %s "$T/.body")" 0
done_testing
