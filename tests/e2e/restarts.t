#!/bin/bash
# Calls on files while bough-fs is killed again and again: they wait for the next one, and none fails.
. "${0%/*}/lib.sh"
need_fuse

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
files=http://d/v1/workspaces/w/files
api() { curl -sS -m 200 -o /dev/null -w '%{http_code}\n' --unix-socket "$BOUGH_ROOT/run/boughd.sock" "$@" 2>&1; }
bough_ok 'a workspace' create w -q
: >codes
calls() {
	local i
	for i in $(seq 40); do
		{
			echo "PUT $(api -X PUT --data-binary "$i" "$files/d$1/f$i")"
			echo "GET $(api "$files/d$1/f$i")"
			echo "LIST $(api "$files/d$1")"
			echo "DELETE $(api -X DELETE -H "If-Match: *" "$files/d$1/f$i")"
			echo "MKDIR $(api -X POST -d '{}' "$files/d$1/g$i?op=mkdir")"
		} >>codes
	done
}
calls 1 &
one=$!
calls 2 &
two=$!
kills=0
while kill -0 $one 2>/dev/null || kill -0 $two 2>/dev/null; do
	sleep 0.15
	kill_hard bough-fs
	kills=$((kills + 1))
done
wait
diag "$kills kills"
is 'each is answered as if nothing had been' "$(sed 's/20[014]$/2xx/' codes | sort | uniq -c | tr -s ' ')" \
	"$(printf ' 80 %s 2xx\n' DELETE GET LIST MKDIR PUT)"
# With the holder the mounts are gone, too, until they are made anew.
kill_hard bough-fs bough-hold
is 'a write after the mount itself died' "$(api -X PUT --data-binary x "$files/after")" 201
kill_hard bough-fs bough-hold
is 'a read' "$(api "$files/after")" 200
done_testing
