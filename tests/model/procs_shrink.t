#!/bin/bash
# A difference that is made on purpose is found, and its script gets short and still shows it.
. "${0%/*}/../e2e/lib.sh"
need_fuse

procs=$BOUGH_BIN/model/procs
export PROCS_KEEP=$T TMPDIR=$T
[ "${VARIANT:-release}" = release ] && seconds=20 || seconds=200
run timeout 400 "$procs" --sabotage --seed 1 --shrink-s $seconds </dev/null
is 'the run fails' $code 1
like 'and says where' "$out" '# root 1: '
like 'it is made shorter' "$out" '# ([0-9]+) operations of ([0-9]+) still fail'
left=${BASH_REMATCH[1]:-1} all=${BASH_REMATCH[2]:-1}
ok "to less than half ($left of $all)" test $((left * 2)) -lt "$all"
ok 'the script is there' test -s "$T/procs-1.script"
run timeout 100 "$procs" --replay "$T/procs-1.script" </dev/null
is 'without the sabotage all is the same' "$code $out" '0 all is the same'
run timeout 100 "$procs" --replay "$T/procs-1.script" --sabotage </dev/null
like 'and with it not' "$code $out" '^1 .*host'
echo 'segment 0 none 0 0
c0 w0 no-such-call a b 1 2 3' >"$T/bad.script"
run timeout 10 "$procs" --replay "$T/bad.script" </dev/null
is 'a script that is none is refused' $code 2
echo 'segment 0 none 0 0
c0 w0 mknod c0 a0 1 0 0
c0 w0 mknod c1 a0 9 0 0
c0 w0 sync c0 a0 0 0 0
c0 w0 sync c1 a0 0 0 0' >"$T/fifo.script"
run timeout 100 "$procs" --replay "$T/fifo.script" </dev/null
is 'fsync of a FIFO gives what it gives on the host' "$code $out" '0 all is the same'
done_testing
