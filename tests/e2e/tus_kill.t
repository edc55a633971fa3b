#!/bin/bash
# Large uploads whose end boughd and bough-fs don't live to see: each becomes its file once, whole, and
# nothing of it is left over.
. "${0%/*}/lib.sh"
need_fuse
RANDOM=${BOUGH_SEED:-$$}
diag "BOUGH_SEED=${BOUGH_SEED:-$$}"
start() { boughd --root "$BOUGH_ROOT" --daemon; }
mkdir "$BOUGH_ROOT" && echo '{"look_every_s": 1}' >"$BOUGH_ROOT/config.json"
start || bail 'boughd does not start'
sock=$BOUGH_ROOT/run/boughd.sock
size=3000000 rounds=6
bough_ok 'a workspace' create w -q
at=$(at w)

call() { # METHOD PATH [CURL ARGUMENT…]: $status, $head
	local method=$1 path=$2 at=$T/head.$BASHPID
	shift 2
	: >"$at"
	status=$(curl -sS -m 200 --unix-socket "$sock" -X "$method" -o /dev/null -D "$at" -w '%{http_code}' \
		-H 'Tus-Resumable: 1.0.0' "$@" "http://d$path" 2>/dev/null)
	head=$(tr -d '\r' <"$at")
}
header() { sed -n "s/^$1: //Ip" <<<"$head" | tail -n 1; }
send() { # FROM: the rest
	local rest=$T/rest.$BASHPID # expanded here: a redirection's would be another process's
	tail -c +$(($1 + 1)) "$T/up" >"$rest"
	call PATCH "$url" -H "Upload-Offset: $1" \
		-H 'Content-Type: application/offset+octet-stream' --data-binary "@$rest"
}
# Until it is heard that the file is there: by a PATCH that ends well, or by one of which nothing is left.
finished() {
	call HEAD "$url" -I
	[ "$status" != 000 ] || start 2>/dev/null
	[ "$status" = 200 ] || return 1
	local offset
	offset=$(header Upload-Offset)
	send "$offset"
	[ "$status" = 204 ] || [ "$status/$offset" = "409/$size" ]
}
left_over() { find "$BOUGH_ROOT/layers" -type f -name 'f[0-9a-f]*' ! -name failed -links +1; find "$BOUGH_ROOT/uploads" -name '*.data'; }

wrong='' twice=''
for ((i = 0; i < rounds; i++)); do
	head -c "$size" /dev/urandom >"$T/up"
	call POST /v1/workspaces/w/uploads -H "Upload-Length: $size" -H "Upload-Metadata: path $(printf "f$i" | base64 -w0)"
	url=$(header Location)
	[ "$status" = 201 ] || diag "round $i: $status"
	send 0 &
	pid=$!
	sleep "0.0$((RANDOM % 10))$((RANDOM % 10))"
	case $((i % 4)) in
	0) kill_hard boughd ;;
	3) kill_hard boughd bough-fs ;;
	*) kill_hard bough-fs ;;
	esac
	wait $pid
	wait_for 30 finished || wrong+=" $i:$status"
	cmp -s "$T/up" "$at/f$i" || wrong+=" $i"
	# A program's change isn't undone by who asks once more.
	printf changed | dd of="$at/f$i" bs=1 conv=notrunc status=none
	call PATCH "$url" -H "Upload-Offset: $size" -H 'Content-Type: application/offset+octet-stream' --data-binary ''
	[ "$(head -c 7 "$at/f$i")" = changed ] || twice+=" $i:$status"
done
is 'each is there, and whole' "$wrong" ''
is 'and put once' "$twice" ''
is 'nothing of them is left over' "$(left_over)" ''
is 'each has a file of its own' "$(find "$BOUGH_ROOT/layers" -type f -name 'f[0-9a-f]*' ! -name failed -size "${size}c" | wc -l)" "$rounds"
# boughd ends when it has written down that one is done, and hasn't removed what came: that counts as
# announced, and keeps the bytes of the file when that is deleted.
left=$BOUGH_ROOT/uploads/${url##*/}.data
mark=$BOUGH_ROOT/uploads/$(basename "$at")/${url##*/}.$size
leave() {
	ln "$(find "$BOUGH_ROOT/layers" -type f -name 'f[0-9a-f]*' -size "${size}c" | head -n 1)" "$left" &&
		mkdir -p "${mark%/*}" && : >"$mark"
}
gone() { [ ! -e "$left" ] && [ ! -e "$mark" ]; }
ok 'one that is done is left over' leave
call HEAD "$url" -I
is 'told of as done' "$status $(header Upload-Offset)" "200 $size"
ok 'it goes' gone
ok 'again' leave
kill_hard boughd
start
ok 'it goes, though nobody asks' wait_for 30 gone
call HEAD "$url" -I
is 'that it is done is known' "$status $(header Upload-Offset)" "200 $size"
rm -f "$at"/f?
freed() { sync -f "$BOUGH_ROOT/layers" && [ -z "$(find "$BOUGH_ROOT/layers" -type f -name 'f[0-9a-f]*' ! -name failed)" ]; }
ok 'deleted, their bytes go' wait_for 15 freed
fsck_clean
done_testing
