#!/bin/bash
# Sandboxes: their life, how they end, saving and forking, workspaces that come and go, boughd killed
# under them, what they leave behind.
. "${0%/*}/lib.sh"
need_sandboxes


api() { # METHOD TARGET [BODY]
	curl -sS -m 200 --unix-socket "$BOUGH_ROOT/run/boughd.sock" -X "$1" ${3:+--data "$3"} "http://d$2"
}
status() { bough inspect "$1" 2>/dev/null | jq -r "${2:-.status}"; } # SANDBOX [FILTER]
traces() { # what sandboxes of this root have on this machine: mounts, processes, cgroups, folders
	grep -c "$BOUGH_ROOT/box/sb_" /proc/self/mountinfo
	awk '$5 ~ "^/usr" && /,uid=[12][0-9]+,/' /proc/self/mountinfo # what crun may mount on the host
	pgrep -fc -- "bough-io --dir $BOUGH_ROOT/"
	grep -als "$ns" /proc/[0-9]*/cgroup | wc -l
	find /sys/fs/cgroup -maxdepth 4 -path "*/$ns-sb_*" | wc -l
	ls "$BOUGH_ROOT/box" "$BOUGH_ROOT/io" 2>/dev/null | grep -c sb_
}
ns=none

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
before=$'0\n0\n0\n0\n0'

# ---- how a command ends

bough_fails 'to be removed at an end that nothing has' 125 'rm without a COMMAND' run --rm
is 'nothing is made' "$(bough ps -q)" ''
run bough run --rm -- echo hello
is 'a command in a sandbox' "$code $out" '0 hello'
[ $code = 0 ] || bail "no sandboxes here: $err"
run bough run --rm -- sh -c 'echo out; echo err >&2; exit 7'
is 'its exit code, stdout and stderr' "$code $out $err" '7 out err'
run bough run --rm -- printf '[%s]' a '' b
is 'its words may be empty' "$code $out" '0 [a][][b]'
run bough run --rm ls -l
is 'its options are taken for none of ours' "$code $err" \
	'125 bough: run: -l: a command with options goes behind --'
run bough run --rm -- no-such-program
is 'one that is not there' "$code" 127
like 'is named' "$err" no-such-program
run bough run --rm -- /etc/passwd
is 'one that can not be executed' "$code" 126
run bough run --rm -- sh -c 'kill -9 $$'
is 'one that is killed' "$code" 137
run bough run --rm --memory 32M -- sh -c 'tail /dev/zero'
is 'one that runs out of memory' "$code" 137
like 'and it is said' "$err" 'out of memory'
run bough run --runtime none -- true
is 'a runtime that there is not: no program ended so' "$code" 125
run bough exec --no-such-option dev -- true
is 'nor by an option that there is not' "$code" 125
run bough exec
is 'nor without a sandbox' "$code" 125
run bough run --help
is 'but help is help' "$code" 0
run bough run --image nothing -- true
is 'an image that there is not: ours failed' "$code" 125
like 'and it is named' "$err" 'no image "nothing"'
run bough run --workspace nothing -- true
is 'nor a workspace' "$code" 125
is 'what could not be made left nothing' "$(api GET /v1/sandboxes | jq '.items | length')" 0
is 'nor did what was removed' "$(traces)" "$before"

# ---- life

# A checkout of an ordinary user's, in a sandbox whose root is somebody else.
theirs=$(bough create theirs) && git init -q "$theirs" && chown -R 1234:1234 "$theirs"
run bough run --rm --workspace theirs -- git status -sb
like 'git takes the checkout of an ordinary user' "$code $out" '^0 ## '
bough rm theirs
bough_ok 'a workspace' create ws
ws=$out
bough_ok 'a sandbox that waits' run --name dev --workspace ws --label a=b --description 'of a test' -d
is 'its name is told' "$out" dev
is 'it runs' "$(status dev)" running
ns=$(grep -o 'bough-[0-9a-f]*' "/proc/$(status dev .pid)/cgroup" | head -n 1)
like 'its cgroup is below one of this root' "$ns" '^bough-'
run bough exec dev -- sh -c 'pwd; hostname; id -u; umask; echo x >file; cat /proc/1/comm'
is 'an exec in it' "$out" $'/workspace\ndev\n0\n0022\ninit'
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then # version 2 alone
	run bough exec dev -- cat /sys/fs/cgroup/pids.max
	is 'it can read its limits' "$code $out" '0 512'
	above=$(sed -n 's|^0::\(.*\)/.*|\1|p' "/proc/$(status dev .pid)/cgroup")
	like 'which systemd can not take off by taking a controller off the top' \
		"$(cat "/sys/fs/cgroup$above/cgroup.subtree_control")" 'cpu.*memory.*pids'
fi
is 'the host sees its file' "$(stat -c %a:%u "$ws/file")" 644:0
bough_fails 'a name can be had once' 125 'already' run --name dev -- true
bough_ok 'ps' ps -q
is 'lists it' "$out" dev
is 'with its labels' "$(status dev '.labels.a + .description + .owner')" 'bof a testuid:0'
bough_ok 'pause' pause dev
is 'it is paused' "$(status dev)" paused
run bough exec dev -- true
is 'nothing is executed then' "$code" 125
bough_ok 'resume' resume dev
run bough exec dev -- true
is 'then again' "$code" 0
bough_ok 'figures' stats dev --json
is 'of memory' "$(json '.memory_limit_bytes')" 2147483648
bough_fails 'one that runs is not removed' 5 'stop. it first, or use --force$' rm dev
run bough rm none-1 dev none-2
is 'of several each is told, in their order' "$code $err" '3 bough: rm: no workspace or sandbox "none-1": `bough ls` and `bough ps` show what there is
bough: rm: sandbox dev runs: `bough stop` it first, or use --force
bough: rm: no workspace or sandbox "none-2": `bough ls` and `bough ps` show what there is'
bough_fails 'a limit as it was typed' 125 '--memory takes 6.0M to 1.0P, not 1K$' run --memory 1K -- true
bough_fails 'of what is counted, too' 125 '--pids takes 4 to 4194304, not 1$' run --pids 1 -- true
bough_fails 'a user that is not, without a name that nobody gave' 125 "^bough: run: there is no user 'nobody-x' in the sandbox$" run --user nobody-x -- true
bough_fails 'no exec' 3 'no exec "ex_nosuch"' logs ex_nosuch
bough_fails 'nor the workspace below it' 5 'sandbox dev uses it' rm ws
bough_ok 'stop' stop dev
bough_ok 'figures of it' stats dev
is 'are its files alone' "$(awk '{ print $1 }' <<<"$out" | tr '\n' ' ')" 'running disk '
is 'it is stopped' "$(status dev)" stopped
bough_fails 'twice' 4 "doesn't run" stop dev
bough_fails 'what is left by one that is stopped is its files' 125 'start it first' exec dev -- true
bough_ok 'start' start dev
is 'and has not ended' "$(bough inspect dev | jq -c '[.ended, .exit_code, .reason]')" '[null,null,null]'
run bough exec dev -- cat file
is 'its files are there' "$out" x
bough_ok 'a file into it' cp "$BOUGH_SRC/LICENSE" dev:/etc/license
bough_ok 'and out of it' cp dev:/etc/license "$T/license"
ok 'it is the same' cmp "$T/license" "$BOUGH_SRC/LICENSE"
run bough exec dev -- sh -c 'cmp /etc/license /usr/share/common-licenses/Apache-2.0; echo root >/etc/mark'
bough_ok 'of its workspace' cat dev:/workspace/file
is 'too' "$out" x
bough_fails 'not of /proc' 1 'disk' cat dev:/proc/1/status
api GET "/v1/sandboxes/dev/files/etc?stat=1" >/dev/null
bough_ok 'renamed' set ws --label x=y

# ---- saving, forking, restoring

bough_ok 'a save' save dev --as saved
like 'is an image that says whose' "$(bough image ls)" $'\nsaved +sn_[a-z2-7]+ +dev '
like 'of which the pause is told' "$err" 'paused for'
pause=$(api POST /v1/sandboxes/dev/snapshots '{}' | jq .pause_ns)
ok "a pause is short ($((pause / 1000)) us)" test "$pause" -lt 1000000000
run bough exec dev -- sh -c 'rm /etc/mark file; echo new >other'
bough_ok 'forks' fork dev f1 f2 --start
is 'their names' "$out" $'f1\nf2'
run bough exec f1 -- sh -c 'ls; hostname; ls /etc/mark'
is 'a fork has the files of that moment' "$out" $'other\ndev'
run bough exec f1 -- sh -c 'echo changed >other'
is 'and changes its own alone' "$(cat "$ws/other")" new
id=$(status dev .id)
bough_ok 'restore' restore dev saved
run bough exec dev -- sh -c 'ls; cat /etc/mark; hostname'
is 'all is back' "$out" $'file\nroot\ndev'
is 'under the same id' "$(status dev '.id + .status')" "${id}running"
run bough exec dev -- rm file
bough_ok 'a live restore' restore dev saved --live
is 'turns its workspace back' "$(cat "$ws/file")" x
bough_ok 'another of what was saved' run --name again --image saved -d
run bough exec again -- cat /etc/mark
is 'has its root' "$out" root
bough_fails 'so it is needed' 4 'sandbox (again|dev) stands on it' image rm saved
bough_ok 'it is called otherwise' rename again more
bough_ok 'and labelled' set more --label k=v --ttl 1h
is 'as it says' "$(status more '[.name, .labels.k, .on_expiry] | join(" ")')" 'more v delete'
bough_fails 'its limits stay' 2 'limits' set more --quota 1G
bough_ok 'the old name again' rename more again
bough_ok 'they go' rm --force again f1 f2
bough_fails 'and are not there' 3 'no sandbox "again": `bough ps`' stop again
bough cp "$BOUGH_SRC/LICENSE" dev:/root/new
like 'diff of a sandbox is that of its root' "$(bough diff dev)" $'(^|\n)A\troot/new($|\n)'
bough_ok 'a fresh one' run --name fresh -d
run bough diff fresh
is 'has none' "$code$out" 0
bough rm --force fresh >/dev/null
id=$(bough inspect dev | jq -r .id)
is 'what was done to it is found by its name' "$(bough audit dev --json | jq -r '.items[] | select(.path == "/v1/sandboxes/dev/exec") | .object' | sort -u)" "$id"
is 'and by its id' "$(bough audit "$id" -q | wc -l)" "$(bough audit dev -q | wc -l)"

# ---- what an image says

mkdir -p "$T/root" "$T/docker"
tools='/bin/echo /bin/cat /bin/ls /bin/sh'
for f in $tools $(ldd $tools | grep -o '/[^ :]*' | sort -u); do
	cp -L --parents "$f" "$T/root"
done
mknod -m 666 "$T/root/memory" c 1 1 # what a hostile image brings
mknod -m 666 "$T/root/disk" b 254 0
tar cf "$T/docker/1.tar" -C "$T/root" .
printf '{"os":"linux","config":{"Entrypoint":["/bin/echo","from"],"Cmd":["the image"]},"rootfs":{"diff_ids":["sha256:%s"]}}' \
	"$(sha256sum <"$T/docker/1.tar" | cut -d' ' -f1)" >"$T/docker/c.json"
echo '[{"Config":"c.json","RepoTags":["echo:1"],"Layers":["1.tar"]}]' >"$T/docker/manifest.json"
tar cf "$T/echo.tar" -C "$T/docker" manifest.json c.json 1.tar
bough_ok 'an image' image import echo "$T/echo.tar"
run bough run --rm --image echo --image-command
is 'runs its command' "$code $out" '0 from the image'
run bough run --rm --image echo -- me
is 'or its entrypoint with another' "$code $out" '0 from me'
printf '{"os":"linux","config":{"Env":["K=of the image"],"User":"1000:50","WorkingDir":"/etc","Cmd":["/bin/sh","-c","pwd; echo $K; cat /proc/self/status"]},"rootfs":{"diff_ids":["sha256:%s"]}}' \
	"$(sha256sum <"$T/docker/1.tar" | cut -d' ' -f1)" >"$T/docker/c.json"
tar cf "$T/conf.tar" -C "$T/docker" manifest.json c.json 1.tar
bough_ok 'the same with another configuration' image import conf "$T/conf.tar"
is 'stores its layer once' "$(bough image show conf --json | jq '.stored_bytes < 100000')" true
run bough run --rm --image conf --image-command
like 'environment, user and folder are those that it tells' "$out" $'^/etc\nof the image\n.*Uid:\t1000\t.*Gid:\t50\t'
run bough run --rm --image conf -e K=mine --user 7 --cwd /tmp -- /bin/sh -c 'pwd; echo $K; cat /proc/self/status'
like 'unless others are asked for' "$out" $'^/tmp\nmine\n.*Uid:\t7\t'
bough_fails 'not both' 125 'either' run --image echo --image-command -- me
run bough run --name bare --image echo --entrypoint '' -d
is 'one that waits, of an image that has next to nothing' "$code" 0
run bough exec bare -- cat /etc/hosts
like 'finds localhost' "$out" $'127.0.0.1\tlocalhost'
run bough exec bare -- sh -c 'echo x >/dev/null && echo y >/tmp/y && [ -d /proc/1 ] && [ -d /sys/kernel ] && ls -A /etc /workspace'
is 'has its places' "$code $out" $'0 /etc:\nhostname\nhosts\nresolv.conf\n\n/workspace:'
run bough exec bare -- sh -c 'echo z >/etc/resolv.conf; mount; : >/proc/sys/kernel/hostname'
ok 'and the same walls' test "$code" != 0
for f in memory disk; do
	run bough exec bare -- sh -c "[ -e /$f ] && cat /$f"
	like "its device $f is there and opens for nobody" "$code$err" '1.*Permission denied'
done
run bough diff "$(status bare .root)" --name-status --against echo
is 'and differs from its image by what was written alone' "$out" $'M\tetc/resolv.conf\nA\ttmp/y'
bough_ok 'it goes' rm --force bare
run bough run --rm --image-command
is 'there is none in the host image' "$code" 125

# ---- workspaces that come and go

bough_ok 'another workspace' create data
bough_ok 'attached while it runs' attach-workspace dev data:/data
run bough exec dev -- sh -c 'echo d >/data/file; cat /data/file'
is 'is written to' "$out $(cat "$(at data)/file")" 'd d'
bough_fails 'one thing at a place' 4 '/data already: choose another path' \
	attach-workspace dev data:/data
bough_ok 'detached' detach-workspace dev data
bough_fails 'once' 3 "data isn't attached there: .bough inspect" detach-workspace dev data
run bough exec dev -- ls /data
is 'it is gone' "$out" ''
bough_ok 'read-only' attach-workspace dev data:/data:ro
run bough exec dev -- sh -c 'cat /data/file; echo >/data/new'
like 'it can not be written to' "$out $err" 'd.*Read-only'
bough_fails 'not for itself alone while another has it' 4 'uses the workspace' \
	attach-workspace dev data:/more:exclusive
run bough exec dev -- printf '[%s]' ''
is 'a word of a command may be empty' "$code $out" '0 []'
run bough exec dev -- pwd
is 'who comes begins at /workspace all the same' "$out" /workspace
bough_ok 'a fork shares what is read alone' fork dev f4
is 'and has its own of the other, under the usual name' \
	"$(status f4 '[.workspaces[].name] | sort | join(" ")')" 'data f4-ws'
bough_ok 'it goes' rm --force --now f4 f4-ws
bough_ok 'at a second place it is written to' attach-workspace dev data:/writable
bough_ok 'then a fork has its own of it' fork dev f5 --start
is 'at both places' "$(status f5 '[.workspaces[] | .target + " " + .name] | join(",")')" \
	'/data f5-ws2,/workspace f5-ws1,/writable f5-ws2'
bough_ok 'what it writes there' exec f5 -- sh -c 'echo f >/writable/of-f5 && cat /data/of-f5'
is 'is not in what it was forked from' "$(ls "$(at data)")" file
bough_ok 'it goes, too' rm --force --now f5 f5-ws1 f5-ws2
bough_fails 'one of two places' 4 '2 places; target .--target. says which' detach-workspace dev data
bough_ok 'not any more' detach-workspace dev data --target /writable
bough_ok 'a program in it' exec dev --cwd /data -d -- sleep 100
bough_fails 'keeps it there' 5 'something in the sandbox uses /data' detach-workspace dev data
is 'as it was' "$(bough exec dev -- cat /data/file)" d
bough_ok 'but by force' detach-workspace dev data --force
bough_ok 'for itself alone' attach-workspace dev data:/only:ro:exclusive
kept() { ls "$BOUGH_ROOT/io" | grep -c sb_; }
n=$(kept)
bough_fails 'so a fork can not read it' 4 'alone' fork dev f3
bough_fails 'nor another sandbox' 125 'alone' run --name f3 --workspace data:/data:ro -d
is 'nothing is left of that fork' "$(kept) $(bough ps -q | grep -c f3)" "$n 0"
bough_ok 'detached, too' detach-workspace dev data

# ---- boughd killed under them

bough_ok 'one that goes on' exec -d dev -- sh -c 'sleep 1; echo end; exit 3'
ex=$out
kill_hard boughd
run bough exec dev -- echo after
is 'boughd finds it running' "$code $out" '0 after'
[ $code = 0 ] || diag_run
run bough logs "$ex" -f
is 'and the output of what ran' "$out" end
is 'and how it ended' "$(api GET "/v1/sandboxes/dev/exec/$ex" | jq -c '[.status, .exit_code]')" '["exited",3]'
bough_ok 'one whose command ends meanwhile' run --name short -d -- sh -c 'sleep 0.3; exit 4'
kill_hard boughd
sleep 0.6
over() { [ "$(status short)" = stopped ]; }
wait_for 10 over
is 'its code is known' "$(status short '.status + (.exit_code | tostring)')" stopped4

# ---- a shim that dies

shim=$(pgrep -f "containerd-shim.*$(status dev .id)" | head -n 1)
kill -9 "$shim"
failed() { [ "$(status dev)" = failed ]; }
ok 'one whose shim dies has failed' wait_for 10 failed
like 'and says so' "$(status dev .error)" shim
bough_ok 'it can be started again' start dev
run bough exec dev -- cat file
is 'with its files' "$out" x

# ---- whose time is up

bough_ok 'one with an end' run --name brief --ttl 6s -d
bough_ok 'one that is kept' run --name kept --ttl 6s --on-expiry keep -d
over() { [ "$(status brief)" = '' ] && [ "$(status kept)" = stopped ]; }
ok 'it is removed, and the other stopped' wait_for 25 over

# ---- secrets

printf 'of nobody' >"$T/key"
printf 'TOKEN=t0ps3cret\n' >"$T/env"
bough_ok 'with secrets' run --name secret --secret "key=$T/key" --env-file "$T/env" -e PLAIN=seen -d -- \
	sh -c 'cat /run/secrets/key; echo " $TOKEN $PLAIN"; sleep 100'
printed() { bough logs secret | grep -q seen; }
wait_for 10 printed
is 'it has them' "$(bough logs secret)" 'of nobody t0ps3cret seen'
ok 'nothing else does' not grep -raqs 't0ps3cret\|of nobody' "$BOUGH_ROOT/run" "$BOUGH_ROOT/catalog.db" \
	"$BOUGH_ROOT/catalog.db-wal" "$BOUGH_ROOT/box/$(status secret .id)/config.json" \
	"$BOUGH_ROOT/io/$(status secret .id)/process.json"
ok 'nor do processes show it' not grep -qs t0ps3cret /proc/[0-9]*/cmdline
for rt in "$MAIN_RT" runsc; do
	command -v $rt >/dev/null || continue
	bough_ok "$rt: with a secret, and a workspace" run --name mine --runtime $rt --secret "key=$T/key" --workspace ws -d
	ok "$rt: who is somebody else in it reads it" bough exec --user 1000 mine -- grep -q nobody /run/secrets/key
	box=$BOUGH_ROOT/box/$(status mine .id)
	out=$(setpriv --reuid=30017 --regid=30017 --clear-groups sh -c "cat '$box'/secrets/key '$box'/config.json
		ls '$box'/secrets '$box'/rootfs '$box'/mnt/0 '$box'/shm" 2>/dev/null)
	is "$rt: who is somebody else outside reads nothing" "$out" ''
	bough_ok "$rt: gone" rm --force mine
done
bough_ok 'stopped' stop secret --grace 0s
bough_fails 'without them it is not started' 2 'give them again' start secret
printf 'A=1\nexport B=hidden-too\n' >bad.env
bough_fails 'a line that is none of a variable is told, not passed over, and not shown' 125 \
	"bad.env: line 2 isn't K=V$" run --rm --env-file bad.env -- true
bough_ok 'with them it is' start secret --secret "key=$T/key" --env-file "$T/env"

# ---- down, and the first call after it

ready() { [ "$(bough logs "$1")" = ready ]; }
loop='echo ready; while :; do sleep 0.1; done'
bough_ok 'one that has something to end' run --name last -d --workspace ws -- \
	sh -c "trap 'echo bye >bye; exit 3' TERM; $loop"
wait_for 10 ready last
bough_ok 'and is frozen' pause last
bough_ok 'down ends them' down
is 'which each was told of' "$(status last '.status + (.exit_code | tostring)')$(bough cat ws:bye)" stopped3bye
bough_ok 'one that is deaf' run --name deaf -d -- sh -c "trap '' TERM; $loop"
wait_for 10 ready deaf
bough_fails 'a grace without bound' 2 'grace takes at most 10m' down --grace 1h
bough_ok 'down does not wait for ever' down --grace 1s
is 'but kills it' "$(status deaf '.status + (.exit_code | tostring)')" stopped137
bough_ok 'which is the start of one' start dev
run bough exec dev -- hostname
is 'it runs' "$code $out" '0 dev'

# ---- no trace

bough_ok 'all go' rm --force $(bough ps -q)
is 'nothing is left behind' "$(traces)" "$before"
is 'no root either' "$(api GET '/v1/workspaces?roots=1' | jq '[.items[] | select(.name | test("^sb_"))] | length')" 0
bough_ok 'the workspace is there' rm ws
fsck_clean
bough_ok 'down' down
not_there() { ! grep -q " $BOUGH_ROOT/" /proc/self/mountinfo; }
ok 'leaves no mount' wait_for 5 not_there
done_testing
