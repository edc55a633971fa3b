#!/bin/bash
# The life of sandboxes: boughd killed while one is being started, what was made for one, and what
# commands of workspaces say of them.
. "${0%/*}/lib.sh"
need_sandboxes
shim=$(command -v containerd-shim-runc-v2) || skip_all 'no shim'

# A shim that takes its time while there is a file "hold".
mkdir "$T/programs"
cat >"$T/programs/containerd-shim-runc-v2" <<END
#!/bin/bash
[ ! -e "$T/hold" ] || touch "$T/held"
while [ -e "$T/hold" ]; do sleep 0.05; done
exec "$shim" "\$@"
END
chmod +x "$T/programs/containerd-shim-runc-v2"
# And a runc that tells where an exec was written down.
cat >"$T/programs/$MAIN_RT" <<END
#!/bin/bash
while [ \$# -gt 0 ]; do [ "\$1" != --process ] || echo "\$2" >>"$T/written"; args+=("\$1"); shift; done
exec "$(command -v "$MAIN_RT")" "\${args[@]}"
END
chmod +x "$T/programs/$MAIN_RT"
export PATH=$T/programs:$PATH
export BOUGH_PROGRAMS=$T/programs
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
api() { # METHOD TARGET [BODY]
	curl -sS -m 200 --unix-socket "$BOUGH_ROOT/run/boughd.sock" -X "$1" ${3:+--data "$3"} "http://d$2"
}
status() { bough inspect "$1" 2>/dev/null | jq -r "${2:-.status}"; } # SANDBOX [FILTER]
run bough run --rm -- true
[ $code = 0 ] || bail "no sandboxes here: $err"
run bough image ls
like 'the built-in image is listed' "$out" $'\nhost +sn_'
run bough image show host
like 'and shown' "$out" $'name +host\nneeds +this machine'

# ---- boughd killed in the middle of a start

held() { [ -e "$T/held" ]; }
kill_in_start() { # COMMAND…
	touch "$T/hold"
	"$@" >/dev/null 2>&1 &
	wait_for 60 held || bail 'no start'
	kill_hard boughd
	rm "$T/hold" "$T/held"
	wait $! 2>/dev/null
}
kill_in_start api POST /v1/sandboxes '{"name":"new", "command":["sleep", "100"]}'
is 'one that was being made has failed' "$(status new)" failed
like 'and says why' "$(status new .error)" 'boughd ended while it was being started'
is 'nothing of it runs' "$(ls "$BOUGH_ROOT/box" | grep -c sb_)" 0
bough_ok 'it can be started' start new
is 'and runs' "$(status new '.status + (.error // "")')" running
bough_ok 'an exec' exec new -- true
like 'is written down in its own folder, which goes with it' "$(cat "$T/written")" \
	"^$BOUGH_ROOT/box/$(status new .id)/"
bough_ok 'stopped' stop new --grace 0s
kill_in_start api POST /v1/sandboxes/new/start '{}'
is 'one that was being started again has failed, too' "$(status new)" failed
api POST /v1/sandboxes '{"name":"idle", "start":false}' >/dev/null
kill_hard boughd
is 'one that was to wait does so' "$(status idle)" created
bough_ok 'they go' rm new idle

# ---- one that goes at its end

kill_in_start api POST /v1/sandboxes '{"name":"once", "command":["sleep", "100"], "auto_remove":true}'
is 'one for once, killed in its start' "$(status once)" failed
like 'goes, too' "$(status once .expires)" ^20
bough_ok 'unless it is started again' start once
is 'then it stays' "$(status once '.status + (.expires // "")')" running
api POST /v1/sandboxes/once/snapshots '{"name":"once-saved"}' >/dev/null
is 'also by a restore' "$(api POST /v1/sandboxes/once/restore '{"snapshot":"once-saved"}' |
	jq -r '.status + (.expires // "")')" running
bough_ok 'stopped' stop once --grace 0s
like 'it goes' "$(status once .expires)" ^20
bough_ok 'at once when asked to' rm once
run bough snapshots rm once-saved

# ---- what was made for one

bough_ok 'a workspace' create from
echo x >"$out/file"
bough_ok 'one for a moment' run --rm --name moment --from from -- cat file
is 'has a copy of it' "$out" x
there() { bough ls -q | sort | tr '\n' ' '; }
is 'which goes with it' "$(there)" 'from '
git init -q src && mkdir src/d && echo x >src/d/f && git -C src add . &&
	git -C src -c user.name=t -c user.email=t@t commit -qm 1 || bail 'no repository'
bough_ok 'repo add' repo add "$T/src"
bough_ok 'one of a commit' run --name co --git src -d
run bough exec co -- sh -c 'cd /workspace && GIT_TRACE2_PERF=/tmp/p git status --porcelain && grep -c opendir:0 /tmp/p'
is 'whose git opens no folder at its first status, at /workspace' "$code$out" 01
bough_ok 'it goes' rm --force --workspaces co
bough_ok 'one that stays' run --name dev --from from -d
bough_ok 'is forked' fork dev dev2
is 'each has its own' "$(there)" 'dev-ws dev2-ws from '
is 'and says so' "$(status dev2 '.workspaces[0].own')" true
bough_ok 'one goes' rm --force dev
is 'and tells what stays' "$err" 'bough: what was made for dev stays: `bough rm dev-ws`'
bough_fails 'which is in the way of another, with how to go on' 125 \
	'"dev-ws", of a sandbox before this one: --workspace dev-ws goes on with it, `bough rm dev-ws` removes it$' \
	run --name dev --from from -d
bough_ok 'what it was made for is attached elsewhere, too' attach-workspace dev2 dev-ws:/old
bough_ok 'the other goes with what is its own' rm --workspaces dev2
is 'that alone' "$(there)" 'dev-ws from '
bough_ok 'but not for good' undelete dev2-ws
is 'its files are there' "$(cat "$(at dev2-ws)/file")" x
bough_ok 'two of one' run --name a --from from -d
bough_ok 'share what was made for the first' run --name b --workspace a-ws -d
bough_ok 'while one needs it' rm --force --workspaces a
is 'it stays' "$(bough exec b -- cat file)" x
bough_fails 'also when it is asked for' 5 'sandbox b uses it: .bough detach-workspace b a-ws. first, or use --force$' rm a-ws
bough_ok 'unless by force' rm --force a-ws
is 'then it is off' "$(status b '.workspaces | length')" 0

# ---- limits that only the runtime's own kernel can keep

is 'what nobody enforces is told' "$(status b '.unenforced | map(select(. == "pids"))')" '[]'
if runsc --version >/dev/null 2>&1 || "$BOUGH_BIN/runsc" --version >/dev/null 2>&1; then
	bough_ok 'gVisor with few processes' run --name g --runtime runsc --pids 20 -d
	run timeout 60 bough exec g -- python3 -c '
import subprocess
n = 0
try:
    for i in range(60):
        subprocess.Popen(["sleep", "100"])
        n += 1
except BlockingIOError:
    print("no more", 10 < n < 20)
'
	is 'runs no more than that' "$out" 'no more True'
	is 'and goes on' "$(status g) $(bough exec g -- echo yes)" 'running yes'
	is 'so it is enforced' "$(status g '.unenforced | map(select(. == "pids"))')" '[]'
	bough_ok 'it goes' rm --force g
	# It hands on more of an attribute than there is.
	bough_ok 'gVisor with a checkout' run --name g --runtime runsc --git src -d
	run bough exec g -- sh -c 'cd /workspace && git status --porcelain && echo >new && echo >>d/f && git status --porcelain'
	is 'git status there' "$out" $' M d/f\n?? new'
	run bough exec g -- sh -c 'cd /workspace && .git/bough/fsmonitor 2 "" >/tmp/all &&
		.git/bough/fsmonitor 2 "$(tr "\0" "\n" </tmp/all | head -n 1)" | tr "\0" "\n" >/tmp/next; wc -c </tmp/all; cat /tmp/next'
	ok 'the answer is no longer than that' test "${out%%$'\n'*}" -lt 100
	like 'and one in parts is told whole' "$out" $'\nd/~(\n|$)'
	bough_ok 'it goes, too' rm --force --workspaces g
	# Its kernel is what takes the memory, and what is killed for it.
	bough_ok 'gVisor with little memory' run --name g --runtime runsc --memory 128M -d
	run timeout 60 bough exec g -- python3 -c 'bytearray(600 << 20)'
	is 'a program that takes more is killed' "$code" 137
	like 'and it is said why' "$err" 'it was killed: out of memory'
	wait_for 10 eval '[ "$(status g)" = stopped ]'
	is 'with all that runs there' "$(status g .reason)" oom
	bough_ok 'it begins anew' start g
	run bough exec g -- sh -c 'exit 128'
	is 'who says so by himself is believed' "$code" 128
	bough_ok 'and goes' rm --force g
fi

# ---- its name where a workspace's is expected

bough_ok 'a save' save b --as saved -m 'of b'
run bough show b
like 'show' "$out" $'name +b\n.*status +running\n.*root +/.*\nhead +sn_'
bough_ok 'show, as JSON' show b --json
is 'is the sandbox' "$(json .type)" sandbox
bough_ok 'path' path b
ok 'is that of its root' test -f "$out/etc/passwd"
bough_ok 'log' log b
like 'is its line of saves' "$out" 'saved .* of b'
for c in 'umount b' 'merge b --into from' 'create c --from b' 'push b' 'restore from b'; do
	bough_fails "but not ${c%% *}" 3 '"b" is a sandbox: .bough inspect b' $c
done
bough_fails 'what is neither' 3 'no workspace or sandbox "nobody"' show nobody
bough_ok 'a workspace tells who has it' attach-workspace b from:/from:ro
run bough show from
like 'by name' "$out" $'sandbox +uid:0/b at /from, ro\n'

# ---- boughd finds one again, though it lacks something at first

ex=$(bough exec -d b -- sh -c 'sleep 1000')
io=$BOUGH_ROOT/io/$(bough inspect b | jq -r .id)
kill_hard boughd
kill -9 "$(pgrep -f -- "bough-io --dir $io")"
mkdir "$io/io.sock.new" # nobody can listen there
(sleep 1; rmdir "$io/io.sock.new") &
bough_ok 'boughd starts again' up
is 'what runs goes on' "$(status b) $(bough exec b -- sh -c 'cat /proc/[0-9]*/comm | grep -c sleep')" 'running 1'
is 'and is known' "$(curl -sS --unix-socket "$BOUGH_ROOT/run/boughd.sock" "http://d/v1/sandboxes/b/exec/$ex" | jq -r .status)" running
bough_ok 'all go' rm --force b
done_testing
