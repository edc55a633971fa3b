#!/bin/bash
# What the kernel must be told after a change that it didn't ask for, when bough-fs (and boughd) die
# between the change and the telling: the next one tells it.
. "${0%/*}/lib.sh"
need_fuse

# Dies where it is about to tell: at the first notification, once the file $BOUGH_DIE is there.
cat >"$T/die.c" <<'EOF'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
ssize_t writev(int fd, const struct iovec *v, int n)
{
	struct { uint32_t len; int32_t error; uint64_t unique; } h = { 0 };
	static ssize_t (*next)(int, const struct iovec *, int);
	const char *file = getenv("BOUGH_DIE");
	if (!next)
		next = (ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
	if (n > 0 && v[0].iov_len >= sizeof(h))
		memcpy(&h, v[0].iov_base, sizeof(h));
	/* FUSE_NOTIFY_INVAL_INODE, _ENTRY, _DELETE */
	if (file && h.unique == 0 && h.len > sizeof(h) && (h.error == 2 || h.error == 3 || h.error == 6) &&
	    access(file, F_OK) == 0) {
		unlink(file);
		if (access(getenv("BOUGH_DIE_BOTH"), F_OK) == 0)
			poll(NULL, 0, -1); /* until it is killed: it may kill nobody else */
		raise(SIGKILL);
	}
	return next(fd, v, n);
}
EOF
${CC:-cc} -shared -fPIC -o "$T/die.so" "$T/die.c" || skip_all 'no C compiler'
export BOUGH_DIE=$T/die BOUGH_DIE_BOTH=$T/both
start() {
	ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0 LD_PRELOAD=$T/die.so \
		boughd --root "$BOUGH_ROOT" --daemon
}
start || bail 'boughd does not start'
sock=$BOUGH_ROOT/run/boughd.sock
call() { curl -sS -m 30 -o "$T/.body" -w '%{http_code}' --unix-socket "$sock" "$@" 2>/dev/null; }
files=http://d/v1/workspaces/w/files
api() { # CURL ARGUMENT…: $code; it ends with a death
	call "$@" >"$T/code" &
	ok "$what, and a death" wait_for 5 dies
	[ $who = fs ] || kill_hard boughd bough-fs
	wait $!
	code=$(<"$T/code")
	[ $who = fs ] || wait_for 10 start
	wait_for 10 alive
}
dies() { [ ! -e "$T/die" ]; }
alive() { [ -n "$(pids_of bough-fs)" ] && [ "$(cat "$at/before" 2>/dev/null)" = before ]; }

bough_ok 'a workspace' create w -q
at=$(at w)
echo before >"$at/before"
for who in fs both; do
	[ $who = fs ] || : >"$T/both"
	echo old >"$at/f-$who"
	echo old >"$at/g-$who"
	mkdir "$at/d-$who"
	exec 7<"$at/f-$who" # the kernel holds what is replaced
	is "$who: all is known to the kernel" "$(cat "$at/f-$who" "$at/g-$who"; ls "$at/d-$who"; ls "$at/e-$who" 2>/dev/null; cat "$at/d-$who/new" 2>&1 | grep -c 'No such')" $'old\nold\n1'
	: >"$T/die"
	what="$who: PUT"
	api -X PUT --data-binary new "$files/f-$who"
	[ $who = both ] || is 'is answered' "$code" 200
	new() { [ "$(cat "$at/$1")" = "$2" ]; }
	ok "$who: the new content is there" wait_for 5 new "f-$who" new
	exec 7<&-
	: >"$T/die"
	what="$who: PUT of a new one"
	api -X PUT --data-binary made "$files/d-$who/new"
	[ $who = both ] || like 'is answered' "$code" '^20[01]$' # which, the next server can't tell
	ok "$who: it is there" wait_for 5 new "d-$who/new" made
	tag=$(curl -sS -I --unix-socket "$sock" "$files/g-$who" | tr -d '\r' | sed -n 's/^[Ee][Tt]ag: //p')
	: >"$T/die"
	what="$who: DELETE"
	api -X DELETE -H "If-Match: $tag" "$files/g-$who"
	[ $who = both ] || is 'is answered' "$code" 204
	: >"$T/die"
	what="$who: a batch"
	api -X POST --data-binary '{"operations":[{"op":"write","path":"d-'$who'/new","content":"again"},{"op":"mkdir","path":"e-'$who'"}]}' \
		http://d/v1/workspaces/w/batch
	[ $who = both ] || is 'is answered' "$code" 200
	ok "$who: all of it is there" wait_for 5 new "d-$who/new" again
	ok "$who: the folder, too" test -d "$at/e-$who"
	absent() { [ ! -e "$at/$1" ]; }
	ok "$who: it is gone" wait_for 5 absent "g-$who"
done
done_testing
