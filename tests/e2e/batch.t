#!/bin/bash
# Batches: many changes of files in one call, all or none, whatever happens meanwhile.
. "${0%/*}/lib.sh"
need_fuse

start() { boughd --root "$BOUGH_ROOT" --daemon; }
start || bail 'boughd does not start'
sock=$BOUGH_ROOT/run/boughd.sock
batch() { # JSON of the operations: $status and $T/.body
	status=$(jq -nc "{operations: [$1]}" | curl -sS -m 200 --unix-socket "$sock" -o "$T/.body" -w '%{http_code}' \
		--data-binary @- http://d/v1/workspaces/w/batch 2>"$T/.err")
}
gives() { # DESCRIPTION STATUS JSON [FILTER WANTED]
	batch "$3"
	if [ "$status" = "$2" ]; then pass "$1"; else fail "$1"; diag "status $status: $(cat "$T/.body" "$T/.err")"; fi
	[ $# -lt 5 ] || is "$1: $4" "$(jq -r "$4" "$T/.body")" "$5"
}
tag() { curl -sS -I --unix-socket "$sock" "http://d/v1/workspaces/w/files/$1" | tr -d '\r' | sed -n 's/^[Ee][Tt]ag: //p'; }

bough_ok 'a workspace' create w -q
at=$(at w)
ls "$at" >/dev/null
test ! -e "$at/a" # the kernel knows that it isn't there
gives 'each sees what those before it did' 200 '{op: "mkdir", path: "d"}, {op: "write", path: "d/f", content: "one\n"},
	{op: "write", path: "a/b/c", content_b64: "dHdvCg==", mode: "0640"}, {op: "move", path: "d/f", to: "d/g"},
	{op: "symlink", path: "l", target: "d/g"}, {op: "chmod", path: "d", mode: "0700"}' '.results | length' 6
is 'contents' "$(cat "$at/d/g" "$at/a/b/c" "$at/l")" $'one\ntwo\none'
is 'modes' "$(stat -c %a "$at/d" "$at/a/b/c" | tr '\n' ' ')" '700 640 '
is 'the tag of an answer is the file'\''s' "$(jq -r '.results[2].etag' "$T/.body")" "$(tag a/b/c)"
exec 5<"$at/d/g"
gives 'one that fails' 404 '{op: "write", path: "d/g", content: "x"}, {op: "write", path: "new/x", content: ""}, {op: "delete", path: "none"}' \
	'.details.operation' 2
is 'leaves all as it was' "$(cat "$at/d/g"; ls "$at" | tr '\n' ' ')" $'one\na d l '
was=$(tag d/g)
gives 'with the right tag' 200 "{op: \"write\", path: \"d/g\", content: \"two\n\", if_match: $(jq -n --arg t "$was" '$t')}, {op: \"write\", path: \"n\", content: \"\", if_none_match: \"*\"}"
is 'the mount shows it' "$(cat "$at/d/g")" two
is 'who has it open keeps the old one' "$(cat <&5)" one
exec 5<&-
gives 'with an old one' 412 "{op: \"write\", path: \"x\", content: \"\"}, {op: \"check\", path: \"d/g\", if_match: $(jq -n --arg t "$was" '$t')}" '.code' changed
gives 'what must be absent' 412 '{op: "write", path: "n", content: "", if_none_match: "*"}'
gives 'through a link' 409 '{op: "write", path: "l/x", content: ""}'
gives 'a folder that has something' 409 '{op: "delete", path: "a"}'
gives 'with all that is in it' 200 '{op: "delete", path: "a", recursive: true}, {op: "delete", path: "l"}'
is 'they are gone' "$(ls "$at" | tr '\n' ' ')" 'd n '
gives 'a name that is not UTF-8' 200 '{op: "write", path_b64: "Yf8=", content: "x"}' '.results[0].path_b64' 'Yf8='
gives 'no operation' 400 '' '.code' invalid
gives 'nested too deep' 400 "{op: $(printf '[%.0s' {1..40})1$(printf ']%.0s' {1..40})}" \
	'.message | test("nested more than 32 deep")' true
gives 'an unknown one' 400 '{op: "eat", path: "x"}'
gives 'an unknown member' 400 '{op: "delete", path: "n", force: true}'
gives 'a path out of it' 400 '{op: "delete", path: "../n"}' '.details.operation' 0
gives 'bad base64' 400 '{op: "write", path: "x", content_b64: "???"}'
is 'too much' "$(head -c 34000000 /dev/zero | curl -sS -m 200 --unix-socket "$sock" -o /dev/null -w '%{http_code}' --data-binary @- http://d/v1/workspaces/w/batch)" 413
is 'none of them made a workspace' "$(bough events | grep -c 'workspace.created')" 1
run bough set w --inodes 60
many() { jq -nc "[range(0; $1)] | map({op: \"write\", path: \"m/\(.)\", content: \"$2\"}) | .[]" | paste -sd,; }
gives 'over the quota' 507 "$(many 100 x)" '.code' quota
is 'nothing was done' "$(ls -d "$at/m" 2>/dev/null)" ''
run bough set w --inodes none
gives 'a thousand' 200 "$(many 1000 0)"
is 'are there' "$(ls "$at/m" | wc -l)" 1000
gives 'one more is too many' 400 "$(many 1001 0)"
run bough show w --json
is 'nothing without a name stays charged' "$(json .used_inodes)" "$(($(find "$at" -mindepth 1 | wc -l)))"

# ---- as a form

head -c 3000000 /dev/urandom >big
form() { # OPERATIONS, more of curl's arguments: $status
	status=$(curl -sS -m 200 --unix-socket "$sock" -o "$T/.body" -w '%{http_code}' "${@:2}" \
		-F "operations={\"operations\":[$1]};type=application/json" http://d/v1/workspaces/w/batch 2>&1)
}
form '{"op":"write","path":"form/big","part":"a"},{"op":"write","path":"form/again","part":"a","mode":"0600"},
	{"op":"write","path":"form/text","content":"text"},{"op":"write","path":"form/none","part":"b"}' -F a=@big -F 'b='
is 'a form' "$status" 200
cmp -s big "$at/form/big" && cmp -s big "$at/form/again"
is 'its parts are contents' $? 0
is 'beside others' "$(cat "$at/form/text")$(stat -c %s:%a "$at/form/none")$(stat -c %a "$at/form/again")" text0:644600
form '{"op":"write","path":"form/x","part":"a"},{"op":"write","path":"form/y","part":"other"}' -F a=@big
is 'a part that is not there' "$status $(jq -r .details.operation "$T/.body") $(ls "$at/form/x" 2>/dev/null)" '400 1 '
form '{"op":"write","path":"form/x","part":"a"},{"op":"check","path":"form/big","if_match":"\"no\""}' -F a=@big
is 'a condition that does not hold' "$status $(ls "$at/form/x" 2>/dev/null)" '412 '
form '{"op":"write","path":"form/x","part":"a","content":"b"}' -F a=@big
is 'two contents' "$status" 400
is 'no form at all' "$(curl -sS --unix-socket "$sock" -o /dev/null -w '%{http_code}' -H 'Content-Type: multipart/form-data; boundary=x' \
	--data-binary '{"operations":[]}' http://d/v1/workspaces/w/batch)" 400
used=$(bough show w --json | jq .used_bytes)
run bough set w --quota $((used + 1000))
form '{"op":"write","path":"form/x","content":"small"},{"op":"write","path":"form/z","part":"a"}' -F a=@big
is 'over the quota' "$status $(ls "$at/form/x" 2>/dev/null)" '507 '
is 'nothing stays charged' "$(bough show w --json | jq .used_bytes)" "$used"
run bough set w --quota none

# ---- killed in the middle, at any moment

all_same() { [ "$(cat "$at"/m/* | sort -u | wc -l)" = 1 ]; }
torn=0
for i in 1 2 3 4 5 6 7 8; do
	batch "$(many 300 $i)" &
	sleep "0.0$((RANDOM % 9))$((RANDOM % 9))"
	who=bough-fs
	[ $((i % 2)) = 0 ] || who=boughd
	kill_hard $who
	[ $who = bough-fs ] || wait_for 10 start 2>/dev/null
	wait $!
	wait_for 10 test -e "$at/m/1"
	[ "$(cat "$at"/m/{0..299} | tr -d '\n' | fold -w1 | sort -u | wc -l)" = 1 ] || torn=$((torn + 1))
done
is 'all or none, each time' $torn 0
fsck_clean
done_testing
