#!/bin/bash
# Files into sandboxes and out of them: of the root and of what is attached, running and stopped,
# folders, streams, and what is refused.
. "${0%/*}/lib.sh"
need_sandboxes
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
run bough run --rm -- true
[ $code = 0 ] || bail "no sandboxes here: $err"

mkdir -p src/sub/deep src/empty
echo one >src/sub/one && chmod 640 src/sub/one
printf '#!/bin/sh\necho ran\n' >src/tool && chmod 755 src/tool
ln -s sub/one src/link && ln src/sub/one src/hard
head -c 300000 /dev/urandom >src/sub/deep/noise
find src -depth -exec touch -hd '2001-02-03 04:05:06' {} +
bough_ok 'a workspace' create w
at=$out
bough_ok 'another' create data
bough_ok 'a sandbox with both' run --name s --workspace w --workspace data:/srv/data:ro -d
tree() { (cd "$1" && find . -printf '%y %m %n %T@ %l %P\n' | sort && find . -type f -print0 | sort -z | xargs -0 sha256sum); }
same() { is "$1" "$(tree "$3")" "$(tree "$2")"; } # DESCRIPTION DIR DIR

both() { # running|stopped: all that works in either
	bough_ok "$1: a file into the root" cp src/tool s:/opt/tool
	bough_ok 'and out' cp s:/opt/tool tool
	ok 'is the same' cmp tool src/tool
	is 'with its mode' "$(stat -c %a tool)" 755
	bough_ok 'a folder into the root' cp src "s:/var/lib/new-$1"
	bough_ok 'and out' cp "s:/var/lib/new-$1" "out-$1"
	same 'is the same' src "out-$1"
	bough_ok 'a folder into what is attached' cp src "s:/workspace/new-$1"
	same 'is there' src "$at/new-$1"
	bough_ok 'and out' cp "s:/workspace/new-$1" "ws-$1"
	same 'is the same' src "ws-$1"
	bough_ok 'from a sandbox to a workspace' cp "s:/var/lib/new-$1" "w:from-root-$1"
	same 'is the same' src "$at/from-root-$1"
	bough_ok 'and back' cp w:from-root-$1/tool s:/opt/
	bough cp "s:/var/lib/new-$1" - 2>/dev/null | tar tf - | sort | head -n 3 | tr '\n' ' ' >list
	is 'a folder to stdout is an archive' "$(cat list)" './ ./empty/ ./hard '
	tar cf - -C src . | bough cp - "s:/var/lib/tar-$1/"
	bough_ok 'an archive from stdin is a folder' cp "s:/var/lib/tar-$1" "tar-$1"
	ok 'with its files' cmp "tar-$1/sub/deep/noise" src/sub/deep/noise
	is 'a file to stdout' "$(bough cat s:/var/lib/new-$1/sub/one)" one
	run bough files ls s:/workspace/new-$1
	like 'a list' "$out" 'sub'

	bough_fails 'what is not there' 3 'nothing' cp s:/nothing x
	bough_fails 'not over what is attached read-only' 1 'read-only' cp src/tool s:/srv/data/tool
	for p in /proc/1/environ /sys/kernel/vmcoreinfo /dev/null /dev/shm/x /run/secrets/x /.bough/init; do
		bough_fails "not of $p" 1 'disk' cp "s:$p" x
		bough_fails "nor to it" 1 'disk' cp src/tool "s:$p"
	done
	bough_fails 'nor of the host' 1 "machine's own" cp s:/usr/bin/env x
	bough_fails 'nor a way to it' 2 '' cp s:/opt/../usr/bin/env x
	bough_fails 'a fifo is not opened' 4 'fifo, not a file' cp s:/opt/fifo x
	bough_fails 'nor printed' 4 'fifo, not a file' cat s:/opt/fifo
	bough_fails 'a device neither' 4 'char, not a file' cat s:/opt/device
	bough_fails 'a link is not a way out' 4 'symlink, not a file' cat s:/opt/out
	bough_fails 'nor one on the way' 4 "link, which isn't followed" cat s:/opt/etc/passwd
	bough_fails 'and no file is written through one' 4 "link, which isn't followed" \
		cp src/tool s:/opt/etc/bough-test
	ok 'nothing came of all that' test ! -e x -a ! -e /etc/bough-test
}
bough_ok 'a fifo in it' exec s -- mkfifo /opt/fifo
root=$(bough path s)
mknod "$root/opt/device" c 1 5
ln -s /etc/shadow "$root/opt/out"
ln -s /etc "$root/opt/etc"
both running
run bough exec s -- sh -c '/opt/tool; cat /workspace/new-running/sub/one; stat -c %u:%g /opt/tool'
is 'what was copied is used inside' "$out" $'ran\none\n0:0'
bough_ok 'what is written inside' exec s -- sh -c 'seq 100000 >/var/tmp/seq'
bough cp s:/var/tmp/seq - 2>/dev/null | cmp -s - <(seq 100000)
is 'comes out at once' "${PIPESTATUS[*]}" '0 0'
head -c 3000000 src/sub/deep/noise /dev/zero 2>/dev/null | tail -c 2000000 >big
bough_ok 'a pipe' cp - s:/var/tmp/big <big
run bough exec s -- sha256sum /var/tmp/big
is 'goes in' "${out%% *}" "$(sha256sum <big | cut -d' ' -f1)"
bough_ok 'frozen' pause s
bough_ok 'it can be read' cp s:/var/tmp/big big2
ok 'as it is' cmp big big2
bough_ok 'and goes on' resume s
bough_ok 'stopped' stop s --grace 0s
both stopped
bough_ok 'started again' start s
run bough exec s -- sh -c 'cat /var/lib/new-stopped/sub/one; ls /workspace/new-stopped'
is 'it has what came meanwhile' "$out" $'one\nempty\nhard\nlink\nsub\ntool'

# ---- large files: they go on where they were
bough run --name t --workspace w:/srv/w -d -q >/dev/null 2>&1
sock=$BOUGH_ROOT/run/boughd.sock
url=
tus() { # DESCRIPTION STATUS METHOD TARGET [CURL ARGUMENT…]: $head
	local what=$1 want=$2 method=$3 target=$4
	shift 4
	is "$what" "$(curl -sS -m 200 --unix-socket "$sock" -X "$method" -o "$T/.body" -D "$T/.head" -w '%{http_code}' \
		-H 'Tus-Resumable: 1.0.0' "$@" "http://d$target" 2>"$T/.err")" "$want"
	head=$(tr -d '\r' <"$T/.head")
}
begin() { # DESCRIPTION STATUS PATH LENGTH: $url
	tus "$1" "$2" POST /v1/sandboxes/s/uploads -H "Upload-Length: $4" -H "Upload-Metadata: path $(printf %s "$3" | base64 -w0),mode $(printf 0600 | base64)"
	url=$(sed -n 's/^Location: //Ip' <<<"$head")
}
add() { # DESCRIPTION STATUS OFFSET DATA
	tus "$1" "$2" PATCH "$url" -H "Upload-Offset: $3" -H 'Content-Type: application/offset+octet-stream' --data-binary "$4"
}
tus 'what of tus is spoken' 204 OPTIONS /v1/sandboxes/s/uploads
begin 'an upload' 201 var/up/load 10
like 'its place' "$url" '^/v1/sandboxes/sb_[a-z2-7]{10}/uploads/up_[a-z2-7]{10}$'
add 'its first bytes' 204 0 01234
tus 'how far it is' 200 HEAD "$url" -I
like 'is told' "$head" 'Upload-Offset: 5'
add 'the rest' 204 5 56789
run bough exec s -- sh -c 'cat /var/up/load; stat -c " %a %u" /var/up/load'
is 'it is there, inside' "$out" '0123456789 600 0'
begin 'one into what is attached' 201 workspace/up 4
tus 'isnt the workspaces own' 404 HEAD "/v1/workspaces/w/uploads/${url##*/}" -I
tus 'nor another sandboxs' 404 HEAD "/v1/sandboxes/t/uploads/${url##*/}" -I
add 'its first bytes' 204 0 01
bough_ok 'detached' detach-workspace s w --force
add 'no byte goes elsewhere' 409 2 23
bough_ok 'attached again' attach-workspace s w:/workspace
add 'it goes on' 204 2 23
is 'it is there' "$(cat "$at/up")" 0123
begin 'one to be ended' 201 workspace/no 4
tus 'ends' 204 DELETE "$url"
tus 'for good' 404 HEAD "$url" -I
begin 'not to what is read-only' 403 srv/data/x 4
begin 'nor to what is on no disk' 403 proc/x 4
begin 'nor out of it' 400 ../x 4
bough_ok 'stopped' stop s --grace 0s
begin 'one into a stopped one' 201 var/stopped 2
add 'at once' 204 0 ab
is 'is there' "$(bough cat s:/var/stopped)" ab
head -c 60000000 /dev/urandom >large
bough cp large s:/var/large -q &
pid=$!
until [ -n "$(find "$BOUGH_ROOT/uploads" -name '*.data' -size +1000k 2>/dev/null)" ] || [ ! -d "/proc/$pid" ]; do :; done
kill_hard boughd
wait $pid
is 'a large file outlives boughd' "$?" 0
bough cp s:/var/large - 2>/dev/null | cmp -s - large
is 'and is the same' "${PIPESTATUS[*]}" '0 0'
is 'nothing is kept' "$(find "$BOUGH_ROOT/uploads" -name '*.data' | wc -l)" 0
bough_ok 'all go' rm --force s t
done_testing
