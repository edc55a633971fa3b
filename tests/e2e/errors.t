#!/bin/bash
# What every command says and how it ends when it can't do what was asked: one line, and the
# documented code. 2 usage, 3 not found, 4 exists or conflict, 5 busy, 6 space.
. "${0%/*}/lib.sh"
need_fuse

bough_ok 'a workspace' create w
w=$out
echo x >"$w/file"
bough_ok 'a snapshot' save w --as s
like 'show names its workspace' "$(bough snapshots show s)" $'\nworkspace +w \\(ws_[a-z2-7]{10}\\)\n'
bough_fails 'fork of a snapshot says how' 3 '`bough create new --from s` makes' fork s new
snap=$out

# ---- not found

for c in path show mount umount rm save log diff export 'fork %s new' 'rename %s new' \
	'restore %s s' 'restore w %s' 'create new --from %s' 'diff w --against %s' \
	'snapshots show' 'snapshots rm' 'snapshots tag %s name'; do
	[[ $c == *%s* ]] || c+=' %s'
	[[ $c != export* ]] || c+=' -o /dev/null'
	bough_fails "$c: not found" 3 'nothing-here' ${c//%s/nothing-here}
done
bough_fails 'an id that is not' 3 ws_aaaaaaaaaa show ws_aaaaaaaaaa
bough_fails 'import of no file' 3 'No such file' import "$T/none.tar"
bough_fails 'rm of a snapshot says how' 3 'is a snapshot: `bough snapshots rm s`$' rm s
bough_fails 'import of nothing' 1 'there is nothing in it' import /dev/null
bough_fails 'create from no folder' 3 'No such file' create new --dir "$T/none"
bough_fails 'create from no archive' 3 'No such file' create new --tar "$T/none.tar"

# ---- exists, conflict

bough_fails 'create of what exists' 4 'w' create w
mkdir "$T/folder" && echo x >"$T/folder/file"
bough_fails 'create of what exists, from a folder' 4 'w' create w --dir "$T/folder"
bough_ok 'another' create v
bough_fails 'fork to what exists' 4 'v' fork w v
bough_fails 'rename to what exists' 4 'v' rename w v
bough_ok 'rename to itself or a refusal' ls
echo y >"$w/file"
bough_fails 'save as a name that is taken' 4 's' save w --as s
tar cf "$T/t.tar" -C "$T" --exclude root --exclude t.tar .
bough_fails 'import as a name that is taken' 4 's' import "$T/t.tar" --as s
bough_fails 'rm of a snapshot that is a head' 4 '' snapshots rm s

# ---- usage: names and values

for name in -x .hidden 'a/b' 'a b' '..' 'naïve' ws_aaaaaaaaaa "$(printf 'n%.0s' $(seq 101))" $'a\nb' $'\xff'; do
	shown=${name:0:20} shown=${shown//[^ -~]/?}
	bough_fails "a wrong name: $shown" 2 '' create -- "$name"
	bough_fails "a wrong new name: $shown" 2 '' fork w -- "$name"
	bough_fails "a wrong name to rename to: $shown" 2 '' rename w -- "$name"
done
bough_fails 'a wrong snapshot name' 2 '' save w --as 'a/b'
bough_fails 'a wrong name of an import' 2 '' import "$T/t.tar" --as 'a/b'
bough_fails 'a wrong label key' 2 '' create new --label 'a b=c'
bough_fails 'twice the same fork' 2 '' fork w new new
bough_fails 'too many forks' 2 '' fork w new -n 100000000
is 'none of them was made' "$(bough ls -q | sort | tr '\n' ' ')" 'v w '

# ---- failed

echo 'not an archive' >"$T/no.tar"
bough_fails 'no archive' 1 'no.tar' import "$T/no.tar"
bough_fails 'an import of a folder' 2 '--dir' import "$T"
bough_fails 'a folder that is a file' 2 '--tar' create new --dir "$T/no.tar"
bough_fails 'export into a folder' 2 'name a file' export s -o "$T"

# ---- no rights on /dev/fuse

if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
	mkdir -m 777 "$T/user" && chmod 711 "$T" && mknod -m 600 "$T/nofuse" c 10 229
	cat >"$T/as-user" <<-'END'
		mount --bind "$1/nofuse" /dev/fuse
		export BOUGH_ROOT=$1/user/root
		setpriv --reuid=65534 --regid=65534 --clear-groups bough create mine
		code=$?
		setpriv --reuid=65534 --regid=65534 --clear-groups bough down
		exit $code
	END
	run unshare -m bash "$T/as-user" "$T"
	is 'a user who may not open /dev/fuse: failed' $code 1
	like 'and is told who knows more' "$err" '/dev/fuse: Permission denied: `bough doctor` tells'
	run setpriv --reuid=65534 --regid=65534 --clear-groups bough ls
	like 'nor is let in here' "$code $err" '^1 .*: Permission denied: boughd lets in .* --multi-user'
fi

# ---- busy, in use

at=$(at v)
bough_ok 'umount' umount v
mkdir -p "$at" && echo mine >"$at/file"
run bough mount v
ok 'a mount point that holds files is refused, or hidden and kept' \
	test "$code" != 0 -o -n "$(bough path v 2>/dev/null)"
[ $code = 0 ] || like 'and it says why' "$err" 'bough: mount: .+'
bough umount v >/dev/null 2>&1
is 'the files are there still' "$(cat "$at/file" 2>/dev/null || echo gone)" mine
rm -rf "$at"
bough_ok 'then it mounts' mount v

# ---- a second daemon on the same state

run timeout 60 boughd --root "$BOUGH_ROOT"
ok 'a second daemon refuses' test $code != 0 -a $code != 124
like 'and says why' "$err" 'boughd.*'
bough_ok 'the first goes on' ls

# ---- a daemon that doesn't answer

pid=$(pids_of boughd)
kill -STOP "$pid"
bough ls -q >"$T/quiet.out" 2>"$T/quiet.err" &
quiet=$!
bough create late --json >"$T/create.out" 2>"$T/create.err" &
create=$!
bough show w >"$T/show.out" 2>"$T/show.err" &
show=$!
wait_for 8 test -s "$T/show.err"
is 'who waits for a stopped boughd is told' "$(cat "$T/show.err")" \
	"bough: boughd (pid $pid) is stopped: \`kill -CONT $pid\` lets it go on"
is 'not with -q' "$(cat "$T/quiet.err")" ''
is 'nor a script, of what may take long' "$(cat "$T/create.err")" ''
kill -CONT "$pid"
wait $quiet && wait $create && wait $show
is 'then all is answered' "$?:$(jq -r .name "$T/create.out"):$(grep -c . "$T/show.out")" "0:late:$(bough show w | grep -c .)"
is 'and nothing more said' "$(wc -l <"$T/show.err")" 1
bough_ok 'rm it' rm late

# ---- JSON of errors

for c in 'show nothing' 'create w' 'save nothing' 'diff nothing' 'export nothing -o /dev/null' \
	'rm nothing' 'snapshots rm nothing' 'fork w v' 'restore w nothing'; do
	run bough $c --json
	ok "$c --json: one document with the reason" test -n "$(jq -r '.error.message // .error' <<<"$out")"
	is "$c --json: the exit code is there" "$(json .exit)" $code
done

# ---- several at once

run bough rm nothing v nothing-2
is 'rm goes on behind a failure, and fails' $code 3
is 'what could be removed is' "$(bough ls -q)" w
is 'each failure has its line' "$(wc -l <"$T/.err")" 2
bough_ok 'in the end all works' show w
is 'the file is there' "$(cat "$w/file")" y
fsck_clean
done_testing
