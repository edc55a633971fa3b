#!/bin/bash
# `bough down` while a sandbox is being started: it is waited for, and told to end like any other.
. "${0%/*}/lib.sh"
need_sandboxes

# A runtime that takes its time to create the first one.
mkdir "$T/slow"
export BOUGH_PROGRAMS=$T/slow
cat >"$T/slow/$MAIN_RT" <<-SH
	#!/bin/sh
	case " \$* " in *' create '*) ;; *) exec "$(command -v "$MAIN_RT")" "\$@" ;; esac
	! mkdir "$T/first" 2>/dev/null || while [ -e "$T/hold" ]; do : >"$T/reached"; sleep 0.02; done
	exec "$(command -v "$MAIN_RT")" "\$@"
SH
chmod +x "$T/slow/$MAIN_RT"
post() { curl -s -X POST -d "$2" --unix-socket "$BOUGH_ROOT/run/boughd.sock" "http://d/v1/$1"; }

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
: >"$T/hold"
post sandboxes '{"name": "late", "command": ["sleep", "1000"]}' >"$T/late" &
ok 'a sandbox is being started' wait_for 20 test -e "$T/reached"
bough down --grace 20s >"$T/down" 2>&1 &
down=$!
# Those that came before it run, and end with it.
refused() { post sandboxes '{"command": ["sleep", "1000"]}' >"$T/other" && grep -q 'boughd ends' "$T/other"; }
ok 'none is started once it is to go down' wait_for 20 refused
rm "$T/hold"
wait "$down"
is 'it goes down' "$? $(cat "$T/down")" '0 '
wait
is 'what was being started runs until then' "$(jq -r .status "$T/late")" running
unset BOUGH_PROGRAMS
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start again'
run bough inspect late
is 'and has ended by TERM, not by KILL' "$(jq -r '"\(.status) \(.exit_code)"' <<<"$out")" 'stopped 143'
is 'nothing runs' "$(bough ps --json | jq -r '[.. | .status? // empty | select(. == "running")] | length')" 0
done_testing
