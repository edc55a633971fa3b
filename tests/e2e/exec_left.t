#!/bin/bash
# What execs leave running, and the output of those that have ended: nothing is ended or cut by the
# end of the exec's own process, nobody else waits for it, and the latest ends are kept.
. "${0%/*}/lib.sh"
need_sandboxes

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
api() { # METHOD TARGET
	curl -sS -m 200 --unix-socket "$BOUGH_ROOT/run/boughd.sock" -X "$1" "http://d$2"
}
start() { # SANDBOX COMMAND: the exec's id
	bough exec -d "$1" -- sh -c "$2"
}
ended() { # SANDBOX EXEC: how
	api GET "/v1/sandboxes/$1/exec/$2?wait=20" | jq -c '[.status, .exit_code]'
}
logs_say() { bough logs "$1" | grep -q "$2"; } # EXEC WORD
bough_ok 'a sandbox' run --name left -d
bough_ok 'another' run --name other -d

# The shim would close what it reads from two seconds after the exec was deleted.
ex=$(start left '(sleep 9; echo late; sleep 1; echo later) & echo early; exit 3')
is 'an exec that leaves something running ends' "$(ended left "$ex")" '["exited",3]'
ok 'which goes on, and is heard' wait_for 20 logs_say "$ex" later
is 'to its last word' "$(bough logs "$ex")" $'early\nlate\nlater'
ok 'then its output has ended' wait_for 10 sh -c \
	"bough logs '$ex' >/dev/null && curl -sS --unix-socket '$BOUGH_ROOT/run/boughd.sock' http://d/v1/sandboxes/left/exec/$ex | jq -e .stdout.closed"

# More of them than boughd has threads for the ends of processes.
held=()
t0=$(date +%s%N)
bough_ok 'an exec beside none' exec other -- true
usual=$((($(date +%s%N) - t0) / 1000000)) # more where the machine has other work
for i in 1 2 3 4 5 6 7 8; do held+=("$(start left 'sleep 1000 & echo up')"); done
sleep 0.5
t0=$(date +%s%N)
bough_ok "another sandbox's exec" exec other -- true
took=$((($(date +%s%N) - t0) / 1000000))
ok "isn't held up by them ($took ms)" test $took -lt $((3000 + 10 * usual))
is 'each has ended' "$(for ex in "${held[@]}"; do ended left "$ex"; done | sort | uniq -c | tr -s ' ')" \
	' 8 ["exited",0]'
is 'and what it left runs' "$(bough exec left -- sh -c 'cat /proc/[0-9]*/comm | grep -c sleep')" 8

# One that was begun before many others, and ends behind them.
ex=$(start left 'echo long; while [ ! -e /tmp/go ]; do sleep 0.1; done; exit 7')
for _ in $(seq 140); do bough exec left -- true; done
bough exec left -- touch /tmp/go
is 'one of before 140 others ends' "$(ended left "$ex")" '["exited",7]'
bough exec left -- true
is 'and is known behind that' "$(ended left "$ex") $(bough logs "$ex")" '["exited",7] long'
ok 'what is held is kept as well' logs_say "${held[0]}" up

# The sandbox's end is theirs, too, and nothing of it waits.
t0=$(date +%s%N)
bough_ok 'stopped' stop --grace 500ms left
took=$((($(date +%s%N) - t0) / 1000000))
ok "at once ($took ms)" test $took -lt $((8000 + 10 * usual))
bough_ok 'started again' start left
bough_ok 'it takes execs' exec left -- true
bough_ok 'gone' rm --force left other
done_testing
