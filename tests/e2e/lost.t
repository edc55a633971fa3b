#!/bin/bash
# ROOT is removed under the daemons: they end, and harm nobody who begins anew at the same path.
. "${0%/*}/lib.sh"
need_fuse

bough_ok 'create' create old
daemon=$(pids_of boughd)
rm -rf --one-file-system "$BOUGH_ROOT" 2>/dev/null
bough_ok 'somebody begins anew' create new
new=$out
echo mine >"$new/file"
# The old daemon must not take this server for its own: no workspace in it is one that it knows.
kill_hard bough-fs
ok 'the new workspace is back after a kill' wait_for 20 test -s "$new/file"
ended() { ! grep -qs boughd "/proc/$1/comm"; } # PID
ok 'the old daemon ends' wait_for 15 ended "$daemon"
is 'the new workspace is there' "$(cat "$new/file")" mine
is 'and the only one' "$(bough ls -q)" new
is 'no second daemon is left' "$(pids_of boughd | wc -l) $(pids_of bough-fs | wc -l)" '1 1'
fsck_clean

daemon=$(pids_of boughd)
rm -rf --one-file-system "$BOUGH_ROOT" 2>/dev/null
ok 'without anybody else the daemon ends too' wait_for 15 ended "$daemon"
gone() { [ -z "$(pids_of bough-fs)" ] && ! grep -q " $T/" /proc/self/mounts; }
ok 'with its server and all mounts' wait_for 15 gone
done_testing
