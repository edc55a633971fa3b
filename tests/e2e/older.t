#!/bin/bash
# Sandboxes that run since before an upgrade, whose bough-io, bough-init and boxes are of earlier
# versions, which this test plays; and shims of others. Each is served, or refused with a line that
# says why, and nobody waits for ever.
. "${0%/*}/lib.sh"
need_sandboxes

mkdir "$T/programs"
export BOUGH_PROGRAMS=$T/programs
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
api() { # METHOD TARGET [BODY] [HEADER]
	curl -sS -m 200 --unix-socket "$BOUGH_ROOT/run/boughd.sock" -X "$1" ${3:+--data-binary "$3"} \
		${4:+-H "$4"} "http://d$2"
}
id_of() { bough inspect "$1" | jq -r .id; }
bough_ok 'a workspace' create ws
echo file >"$out/file"
bough_ok 'and another' create more
echo more >"$out/file"

older_io() { # SANDBOX [mute]
	: >"$T/said"
	"$BOUGH_BIN/e2e/older_io" "$BOUGH_ROOT/io/$(id_of "$1")" ${2:+"$2"} >"$T/said" 2>&1 &
	older=$!
	wait_for 5 grep -q ready "$T/said" || diag "$(cat "$T/said")"
}
# What sandboxes share, as an earlier version made it: with room for few files.
share=$BOUGH_ROOT/box/.share
older_share() {
	local mode=nosuid,nodev,mode=755,size=4m,nr_inodes=16
	umount -l "$share"
	mount -t tmpfs -o $mode,noswap tmpfs "$share" || mount -t tmpfs -o $mode tmpfs "$share"
	cp "$BOUGH_BIN/bough-init" "$share/init"
}
# In the sandboxes that run: signals have no numbers, and nobody looks around.
older_init() {
	mv "$share/init" "$share/now"
	cat >"$share/init" <<-'SH'
		#!/bin/bash
		case $1 in
		-s) [ $# = 3 ] && exec -a /.bough/init /.bough/now -s "$2" "$3"; exit 125 ;;
		-f) exit 125 ;;
		esac
		exec -a /.bough/init /.bough/now "$@"
	SH
	chmod 755 "$share/init"
}
is_on() { [ "$(bough logs "$1" | head -n 1)" = on ]; } # EXEC
serves() { # SANDBOX WHAT
	local ex
	run bough exec "$1" -- sh -c 'echo out; echo err >&2; exit 5'
	is "$2: an exec" "$code $out $err" '5 out err'
	run bough exec -i "$1" -- sha256sum < <(head -c 300000 /dev/zero)
	is "$2: its input" "$out" "$(head -c 300000 /dev/zero | sha256sum)"
	run bough exec --timeout 500ms "$1" -- sleep 60
	is "$2: its time" "$code" 124
	ex=$(bough exec -d "$1" -- sh -c 'echo on; exec sleep 100')
	wait_for 10 is_on "$ex"
	api POST "/v1/sandboxes/$1/exec/$ex/signal" '{"signal": "TERM"}' "Idempotency-Key: $ex" >/dev/null
	is "$2: a signal" "$(api GET "/v1/sandboxes/$1/exec/$ex?wait=20" | jq -c '[.status, .exit_code]')" \
		'["exited",143]'
	ex=$(bough exec -d "$1" -- sh -c 'for i in 1 2 3 4 5 6; do echo line $i; sleep 0.2; done')
	kill_hard boughd
	is "$2: output while boughd is killed" "$(bough logs "$ex" -f)" \
		$'line 1\nline 2\nline 3\nline 4\nline 5\nline 6'
	is "$2: its code" "$(api GET "/v1/sandboxes/$1/exec/$ex?wait=20" | jq -c '[.status, .exit_code]')" \
		'["exited",0]'
}

try() { # RUNTIME
	local rt=$1 id
	bough_ok "$rt: a sandbox" run --name "$rt" --runtime "$rt" --workspace ws -d
	older_io "$rt"
	chmod 711 "$BOUGH_ROOT/box/$(id_of "$rt")"
	serves "$rt" "$rt, bough-io"
	is "$rt: its box isn't open to others any more" "$(stat -c %a "$BOUGH_ROOT/box/$(id_of "$rt")")" 710
	older_share
	bough_ok "$rt: one beside it, where there was room for few files" run --rm --runtime "$rt" -- true
	# That one put the newest of it there, but these have what was there at their start.
	umount -l "$share"
	bough_ok "$rt: one that stays" run --name beside --runtime "$rt" -d
	older_init
	serves beside "$rt, bough-init"
	run bough stop --grace 20s beside
	is "$rt: its process 1 gets a signal, too" "$code $err" '0 '
	like "$rt: and ends by that" "$(bough inspect beside | jq -c '[.status, .exit_code]')" '"stopped",143'
	bough_ok "$rt: it starts with the newest" start beside
	ok "$rt: which is put there" cmp "$share/init" "$BOUGH_BIN/bough-init"
	bough_ok "$rt: gone" rm --force beside
	if [ "$rt" = runsc ]; then # it had slots for workspaces
		id=$(id_of "$rt")
		mkdir "$BOUGH_ROOT/box/$id/slots"
		run bough attach-workspace "$rt" more:/more
		like "$rt: nothing is attached to one with slots" "$code $err" \
			'^[1-9][0-9]* bough: .*since before an upgrade: stop and start it first'
		run bough detach-workspace "$rt" ws
		like "$rt: or detached" "$code $err" '^[1-9][0-9]* bough: .*since before an upgrade'
		kill_hard boughd
		is "$rt: what it has it keeps" "$(bough exec "$rt" -- cat file) $(bough inspect "$rt" | jq -c '[.workspaces[].name]')" \
			'file ["ws"]'
	fi
	bough_ok "$rt: stopped" stop "$rt"
	ok "$rt: and its bough-io with it" wait_for 5 not kill -0 "$older"
	bough_ok "$rt: started" start "$rt"
	bough_ok "$rt: it takes workspaces" attach-workspace "$rt" more:/more
	is "$rt: which are seen" "$(bough exec "$rt" -- cat /more/file)" more
	# One that says nothing to what it doesn't know: no version did, but then nobody waits for it.
	older_io "$rt" mute
	run timeout 60 bough exec "$rt" -- true
	like "$rt: a bough-io that doesn't answer" "$code $err" "^125 bough: .*doesn't answer"
	kill "$older" && wait "$older" 2>/dev/null
	mv "$BOUGH_ROOT/io/$(id_of "$rt")/io.now" "$BOUGH_ROOT/io/$(id_of "$rt")/io.sock"
	serves "$rt" "$rt, as it was"
	bough_ok "$rt: all gone" rm --force "$rt"
}

by_each_runtime try

# Shims that say with which version of the service they speak.
shim=containerd-shim-runc-v2
real=$(PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin command -v $shim)
cat >"$T/programs/$shim" <<SH
#!/bin/bash
[ "\${!#}" = start ] || exec "$real" "\$@"
said=\$("$real" "\$@") || exit
address=\$(jq -r .address <<<"\$said" 2>/dev/null) || address=\$said
printf '{"version": %s, "address": "%s", "protocol": "ttrpc"}\n' "\$(cat "$T/version")" "\$address"
SH
chmod +x "$T/programs/$shim"
is_gone() { ! pgrep -f -- "$BOUGH_ROOT/box/" >/dev/null; }
echo 2 >"$T/version"
run bough run --rm -- echo served
is 'a shim of version 2, by JSON' "$code $out" '0 served'
echo 9 >"$T/version"
run timeout 60 bough run --rm -- true
like 'one of a version that nobody knows' "$code $err" '^125 bough: .*speaks version 9 of the task service'
ok 'is ended' wait_for 10 is_gone
rm "$T/programs/$shim"
bough_ok 'a sandbox' run --name record -d
id=$(id_of record)
kill_hard boughd
sed -i 's/^[23] /9 /' "$BOUGH_ROOT/box/$id/shim"
bough_ok 'boughd starts beside one' up
like 'which has failed, and says why' "$(bough inspect record | jq -r '[.status, .error] | join(" ")')" \
	'^failed .*speaks version 9 of the task service'
ok 'its processes are ended' wait_for 10 is_gone
bough_ok 'it can be started' start record
bough_ok 'and runs' exec record -- true
bough_ok 'gone' rm --force record
done_testing
