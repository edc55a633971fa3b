#!/bin/bash
# What a reader gets as of one moment, while programs write: archives and listings of all below. And
# what nobody gets: a PUT that is on its way is in no listing, diff, save, fork or archive, and neither
# watch nor git hears of it.
. "${0%/*}/lib.sh"
need_fuse
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_OPTIONAL_LOCKS=0
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
sock=$BOUGH_ROOT/run/boughd.sock
api() { curl -sS -m 200 --unix-socket "$sock" "$@"; }

# ---- one moment

bough_ok 'a workspace' create live -q
live=$(at live)
echo 00000000 >"$live/a"
for i in $(seq 8); do head -c 1000000 /dev/urandom >"$live/noise$i"; done
echo 00000000 >"$live/z"
# A number in the first file, and then in the last: at each moment they are the same, or one apart.
python3 - "$live/a" "$live/z" <<'PY' &
import os, sys
a, z = (os.open(path, os.O_WRONLY) for path in sys.argv[1:])
for i in range(1, 100000000):
    for fd in a, z:
        os.pwrite(fd, b"%08d" % i, 0)
PY
writer=$!
apart() { # A Z NOW: whether they are of one moment, and that is past
	[ $((10#$1 - 10#$2)) = 0 ] || [ $((10#$1 - 10#$2)) = 1 ] || return 1
	[ $((10#$3)) -gt $((10#$1)) ]
}
wait_for 10 eval '[ "$(cat "$live/a")" != 00000000 ]'
for format in tar tar.zst zip; do
	for i in 1 2 3; do
		mkdir -p "$T/x"
		api -o "$T/x/archive" "http://d/v1/workspaces/live/archive?format=$format"
		now=$(<"$live/a")
		case $format in
		tar) tar xf "$T/x/archive" -C "$T/x" ;;
		tar.zst) zstd -dqc "$T/x/archive" | tar xf - -C "$T/x" ;;
		zip) unzip -q "$T/x/archive" -d "$T/x" ;;
		esac
		ok "$format: a and z are of one moment ($(cat "$T/x/a") $(cat "$T/x/z") $now)" apart "$(cat "$T/x/a")" "$(cat "$T/x/z")" "$now"
		rm -rf "$T/x"
	done
done
kill $writer
wait $writer 2>/dev/null
# One byte more each: of the first, and then of the last.
python3 - "$live/a" "$live/z" <<'PY' &
import os, sys
a, z = (os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_APPEND) for path in sys.argv[1:])
while True:
    for fd in a, z:
        os.write(fd, b"x")
PY
writer=$!
wait_for 10 eval '[ "$(stat -c %s "$live/z")" -gt 10 ] && [ "$(stat -c %s "$live/z")" -lt 1000000 ]'
size() { jq ".entries[] | select(.name == \"$1\") | .size" "$T/list"; }
for i in 1 2 3 4 5; do
	api -o "$T/list" "http://d/v1/workspaces/live/files/?recursive=1"
	ok "a listing of all below, too ($(size a) $(size z))" apart "$(size a)" "$(size z)" "$(stat -c %s "$live/a")"
done
kill $writer
wait $writer 2>/dev/null
bough_ok 'rm' rm live --now -q

# ---- what is on its way

bough_ok 'a workspace' create w
w=$out
echo old >"$w/file"
git -C "$w" init -q && git -C "$w" add file && git -C "$w" commit -qm mine || bail 'git does not commit'
bough_ok 'a snapshot' save w --as s -q
api -m 300 -N 'http://d/v1/workspaces/w/watch?recursive=1' >"$T/events" 2>/dev/null &
wait_for 10 grep -q '^id: ' "$T/events"
head -c 3000000 /dev/urandom >"$T/body"
before=$(cd "$w" && find . -path ./.git -prune -o -print | sort)
count=$(api 'http://d/v1/workspaces/w/files/?recursive=1' | jq '.entries | length')
used() { api http://d/v1/workspaces/w | jq .used_bytes; }
was=$(used)
mkfifo "$T/new" "$T/file"
exec 5<>"$T/new" 6<>"$T/file" # so that their ends come when we say
for name in new file; do
	path=$name
	[ $name = file ] || path=dir/new
	api -o "$T/put-$name" -w '%{http_code}' -T "$T/$name" "http://d/v1/workspaces/w/files/$path" >"$T/code-$name" 5>&- 6>&- &
done
timeout 20 cat "$T/body" >&5
timeout 20 cat "$T/body" >&6
came() { [ "$(used)" -gt $((was + 5500000)) ]; }
ok 'two uploads are on their way' wait_for 20 came
is 'in no folder' "$(cd "$w" && find . -path ./.git -prune -o -print | sort)" "$before"
is 'in no listing' "$(api 'http://d/v1/workspaces/w/files/?recursive=1' | jq '.entries | length')" "$count"
is 'what is replaced is what it was' "$(cat "$w/file")" old
is 'git sees nothing' "$(git -C "$w" status --porcelain)" ''
is 'no difference' "$(bough diff w --against s)" ''
is 'a save has nothing new' "$(api -X POST --data '{}' http://d/v1/workspaces/w/snapshots | jq .unchanged)" true
echo x >"$w/beside"
bough_ok 'one with something else' save w --as more -q
rm "$w/beside"
is 'is that alone' "$(bough diff more --against s)" $'A\tbeside'
bough_ok 'a fork' fork w child -q
is 'has none of it' "$(cd "$(at child)" && find . -path ./.git -prune -o -print | sort)" "$before"
is 'nor has an archive' "$(bough export w | tar tf - | grep -vc '^./.git/')" "$(wc -l <<<"$before")"
is 'nobody heard of it' "$(sed -n 's/^data: //p' "$T/events" | grep -cv beside)" 0
exec 5>&- 6>&-
done_both() { [ "$(cat "$T/code-new" "$T/code-file")" = 201200 ]; }
ok 'they end' wait_for 20 done_both
ok 'whole' cmp -s "$T/body" "$w/dir/new"
ok 'both' cmp -s "$T/body" "$w/file"
heard() { sed -n 's/^data: //p' "$T/events" | grep -v beside | jq -r '.event + " " + .path' | grep -vx 'modified dir' | sort | paste -sd,; }
all='created dir,created dir/new,modified file'
wait_for 10 eval '[ "$(heard)" = "$all" ]'
is 'and are heard of once each' "$(heard)" "$all"
is 'git sees them' "$(git -C "$w" status --porcelain | sort | paste -sd,)" ' M file,?? dir/'
fsck_clean
done_testing
