#!/bin/bash
# An ordinary user: mounts by fusermount3, state in the XDG folder, and nobody else gets in.
# Where /dev/fuse is root's alone, the test runs in a mount name space with an open one.
if [ "$(id -u)" = 0 ] && [ -c /dev/fuse ] && [ -z "${BOUGH_TEST_OWN_FUSE:-}" ] &&
	[ "$(stat -c %a /dev/fuse)" != 666 ] && unshare -m true 2>/dev/null; then
	exec env BOUGH_TEST_OWN_FUSE=1 unshare -m "$0" "$@"
fi
. "${0%/*}/lib.sh"
need_fuse
need_root # to become somebody else

if [ -n "${BOUGH_TEST_OWN_FUSE:-}" ]; then
	mknod -m 666 "$T/fuse" c 10 229 && mount --bind "$T/fuse" /dev/fuse || skip_all 'no /dev/fuse'
fi
uid=65534 # fusermount3 wants a user that has a name: nobody
chmod 711 "$T"
mkdir -m 700 "$T/home" && chown $uid:$uid "$T/home"
cp "$BOUGH_BIN"/bough "$BOUGH_BIN"/boughd "$BOUGH_BIN"/bough-fs "$BOUGH_BIN"/bough-pack "$T" ||
	skip_all 'needs root and the programs'
chmod 755 "$T"/bough*
unset BOUGH_ROOT
export HOME=$T/home PATH=$T:/usr/bin:/bin
user() { # a command as that user
	setpriv --reuid=$uid --regid=$uid --clear-groups --inh-caps=-all "$@"
}
state=$T/home/.local/state/bough
EXTRA_ROOTS=$state
BOUGH_ROOT=/nowhere # what clean_up looks at; never exported

run user fusermount3 --version
[ $code = 0 ] || skip_all 'not root: no fusermount3'

# ---- the state's place

run user env -u BOUGH_ROOT bough create w
is 'create' $code 0
[ $code = 0 ] || { diag_run; bail 'no workspace'; }
w=$out
like 'the state is in the XDG folder' "$w" "^$state/"
ok 'owned by the user' test "$(stat -c %u "$state")" = $uid
is 'root is the user inside' "$(user stat -c %u:%g "$w")" "$uid:$uid"
run user env XDG_STATE_HOME="$T/home/xdg" bough ls -q
is 'XDG_STATE_HOME is honoured' "$(ls "$T/home/xdg")" bough
run user env XDG_STATE_HOME="$T/home/xdg" bough down
like 'mounted by fusermount3' "$(grep " $w " /proc/self/mounts)" "user_id=$uid"
like 'without devices and set-id' "$(grep " $w " /proc/self/mounts)" 'nosuid,nodev'

# ---- work

user sh -c "cd '$w' && mkdir d && echo data >d/file && ln -s file d/link && ln d/file d/hard"
is 'write and read' "$(user cat "$w/d/link")" data
run user bough fork w f -n 2 --json
is 'fork' $code 0
f=$(json '.items[1].path')
is 'the fork has it' "$(user cat "$f/d/file")" data
user sh -c "echo changed >'$f/d/file'"
is 'the parent is as it was' "$(user cat "$w/d/file")" data
tar cf "$T/root.tar" --owner=0 --group=0 -C "$BOUGH_SRC" LICENSE
chmod 644 "$T/root.tar"
run user bough create theirs --tar "$T/root.tar"
is 'an archive of what others own' $code 0
is 'belongs to the user' "$(user stat -c %u:%g "$out/LICENSE")" "$uid:$uid"
ok 'who can write to it' user sh -c "echo more >>'$out/LICENSE'"
run user bough rm theirs
run user bough save w --as s
is 'save' $code 0
user rm -r "$w/d"
run user bough restore w s
is 'restore' $code 0
is 'it is back' "$(user cat "$w/d/hard")" data
run user bough diff f-2 --against w
is 'diff' "$out" $'M\td/file\nM\td/hard'
run user sh -c 'bough export w | tar tf - | sort | tr "\n" " "'
is 'export' "$out" './ ./d/ ./d/file ./d/hard ./d/link '
mkdir -p "$T/src/open" && echo x >"$T/src/open/file" && echo secret >"$T/src/secret"
chmod 600 "$T/src/secret"
run user bough create no --dir "$T/src"
is "a folder with what the user can't read isn't taken" $code 1
like 'it says what' "$err" 'secret'
is 'and nothing is made' "$(user bough ls -q | sort | tr '\n' ' ')" 'f-1 f-2 w '
rm "$T/src/secret"
run user bough create yes --dir "$T/src"
is 'without that it is' $code 0
is 'its files are the user'"'"'s to read' "$(user cat "$out/open/file")" x

# ---- nobody else

chmod 711 "$T/home" "$T/home/.local" "$T/home/.local/state" # not the home protects it
other() { setpriv --reuid=1 --regid=1 --clear-groups "$@" 2>/dev/null; }
ok 'another user cannot look in' not other ls "$w"
ok 'nor talk to the daemon' not other bough --root "$state" ls
run user bough doctor
is 'doctor' $code 0
[ $code = 0 ] || diag_run

# ---- kill, down, up

BOUGH_ROOT=$state kill_hard bough-fs
is 'after a kill of the server' "$(wait_for 20 user stat -f "$w" >/dev/null 2>&1; user cat "$w/d/file")" data
run user bough down
is 'down' $code 0
is 'no mount is left' "$(grep -c " $state/" /proc/self/mounts)" 0
run bough --root "$state" up
is 'root starts no daemon whose files the user could not read' $code 1
like 'and says why' "$err" "belongs to user $uid"
is 'nothing of it is root'"'"'s' "$(find "$state" -user 0)" ''
run user bough up
is 'up' $code 0
is 'it is all back' "$(user cat "$f/d/file")" changed
run user bough fsck
is 'fsck' $code 0
setpriv --reuid=$uid --regid=$uid --clear-groups sh -c "exec sleep 300 <$f/d/file" &
sleeps() { [ "$(cat /proc/$!/comm)" = sleep ]; }
wait_for 10 sleeps
run user bough rm f-2
is 'rm of one that is in use' $code 5
like 'names who' "$err" "^bough: rm: workspace \"f-2\" is in use by sleep \\(pid $!\\); .*--force"
kill $!
wait $! 2>/dev/null
run user bough rm w f-1 f-2 yes
is 'rm' $code 0
run user bough down
is 'the end' $code 0
done_testing
