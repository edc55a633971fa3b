#!/bin/bash
# What boughd does otherwise for Kata, whose guest sees no later mount and no restore: by a stand-in,
# runc's shim under the name of Kata's. (Where Kata itself is installed, shim.t runs it.)
. "${0%/*}/lib.sh"
need_sandboxes
shim=$(command -v containerd-shim-runc-v2) || skip_all 'no shim'
mkdir "$T/programs"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$shim" >"$T/programs/containerd-shim-kata-v2"
chmod +x "$T/programs/containerd-shim-kata-v2"
export BOUGH_PROGRAMS=$T/programs
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
run bough run --rm -- true
[ $code = 0 ] || bail "no sandboxes here: $err"
status() { bough inspect "$1" 2>/dev/null | jq -r "${2:-.status}"; } # SANDBOX [FILTER]

bough_ok 'a workspace' create ws
at=$out
bough_ok 'another' create data
echo one >"$at/file"
bough_ok 'saved' save ws --as one
bough_ok 'forked' fork ws forked
echo two >"$(at forked)/new"
bough_ok 'a sandbox' run --name k --runtime kata --workspace ws -d
is 'its files are not shifted' "$(bough exec k -- sh -c 'cat /proc/self/uid_map; cat file' | tr -s ' ')" $' 0 0 4294967295\none'
is 'what nobody enforces is told' "$(status k '.unenforced | map(select(. == "pids"))[]')" pids
bough_ok 'saved, too' save k --as saved
bough exec k -- sh -c 'echo changed >file; echo >/root/new'

# ---- while it runs

bough_fails 'nothing is attached' 5 'no other mounts: stop the sandbox first' attach-workspace k data:/data
bough_fails 'nor taken off' 5 'stop the sandbox first' detach-workspace k ws
bough_fails 'by force neither' 5 'stop the sandbox first' detach-workspace k ws --force
bough_fails 'nor restored under it' 5 'sandbox k runs by kata.*stop that first' restore k saved --live
bough_fails 'nor the workspace by itself' 5 'sandbox k runs by kata' restore ws one
bough_fails 'nor merged into' 5 'sandbox k runs by kata' merge forked --into ws
bough_ok 'frozen' pause k
bough_fails 'it sees no more' 5 'sandbox k runs by kata' restore k saved --live
bough_ok 'and goes on' resume k
bough_ok 'one that would see it' run --name r --workspace ws -d
bough_ok 'has been saved' save r --as both
bough_fails 'is not restored either' 5 'sandbox k runs by kata' restore r both
is 'and was not stopped for that' "$(bough exec r -- cat file)" changed
bough_ok 'it goes' rm --force r
is 'nothing was changed' "$(bough exec k -- cat file)" changed
bough_ok 'all of it is restored, which starts it anew' restore k saved
is 'as it was' "$(bough exec k -- sh -c 'cat file; ls /root')" one

# ---- when it has ended

bough_ok 'stopped' stop k --grace 0s
bough_ok 'a workspace is attached' attach-workspace k data:/data
bough_ok 'merged into' merge forked --into ws
bough_ok 'started' start k
is 'it sees both' "$(bough exec k -- sh -c 'cat new; ls -d /data')" $'two\n/data'
bough_ok 'stopped again' stop k --grace 0s
bough_ok 'restored' restore ws one
bough_ok 'and taken off' detach-workspace k data
bough_ok 'it goes, too' rm --force k
fsck_clean
done_testing
