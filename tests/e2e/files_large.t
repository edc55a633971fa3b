#!/bin/bash
# Files over HTTP in bounded memory: a large file both ways, plain and coded, a directory of very
# many entries, an archive of them. BOUGH_LARGE=1: 1 GiB and 500,000 entries.
. "${0%/*}/lib.sh"
need_fuse

mib=200 entries=50000
[ -z "${BOUGH_LARGE:-}" ] || mib=1024 entries=500000
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
sock=$BOUGH_ROOT/run/boughd.sock
call() { curl -sSf -m 600 --unix-socket "$sock" "$@"; }
bough_ok 'a workspace' create w -q
at=$(at w) f=http://d/v1/workspaces/w/files s=http://d/v1/snapshots/s/files
boughd=$(pids_of boughd)
peak() { awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/$boughd/status"; } # MiB
reset_peak() { echo 5 >"/proc/$boughd/clear_refs" 2>/dev/null; }
bounded() { # DESCRIPTION: no more than 60 MiB more than at the start
	local now
	now=$(peak)
	ok "$1 in bounded memory" test "$now" -le $((start + 60))
	diag "peak $now MiB, $start MiB at the start"
}
call $f/ >/dev/null
reset_peak
start=$(peak)

# What is random in parts, and no repetition for the store.
openssl enc -aes-128-ctr -nosalt -K 00 -iv 00 -in /dev/zero 2>/dev/null | head -c ${mib}M >"$T/big"
sum=$(sha256sum <"$T/big")
ok "PUT of $mib MiB" call -o /dev/null -T "$T/big" $f/big
is 'the same bytes' "$(sha256sum <"$at/big")" "$sum"
is 'GET' "$(call $f/big | sha256sum)" "$sum"
bounded 'both ways'
ok 'a copy is made in no time' call -o /dev/null -X POST --data-binary '{"to":"copy"}' "$f/big?op=copy"
is 'GET in zstd' "$(call -H 'Accept-Encoding: zstd' $f/copy | zstd -dc | sha256sum)" "$sum"
ok 'PUT in gzip' call -o /dev/null -H 'Content-Encoding: gzip' -T - $f/gz < <(gzip -1c "$T/big")
is 'is decoded' "$(sha256sum <"$at/gz")" "$sum"
is 'its digest' "$(call -D - -o /dev/null -H 'Want-Repr-Digest: sha-256=1' $f/gz | tr -d '\r' |
	sed -n 's/^Repr-Digest: sha-256=:\(.*\):/\1/p' | base64 -d | od -An -v -tx1 | tr -d ' \n')  -" "$sum"
bounded 'coded'
# A slow client holds up nobody, and costs no memory.
curl -sS --limit-rate 10k --unix-socket "$sock" -o /dev/null $f/big &
slow=$!
is 'beside a slow one' "$(call $f/big | sha256sum)" "$sum"
kill $slow 2>/dev/null
bough rm w -q && bough create w -q >/dev/null
at=$(at w)

mkdir "$at/many"
python3 - "$at/many" $entries <<-'END'
	import os, sys
	for i in range(int(sys.argv[2])):
	    os.mknod(f"{sys.argv[1]}/file-{i:07}")
END
# The kernel isn't asked for each of them, and so bough-fs keeps nothing of them.
asked() { bough stats --json | jq '.fs.opcodes | [.READDIR, .READDIRPLUS, .LOOKUP, .GETATTR] | map(. // 0) | add'; }
before=$(asked)
is "$entries entries" "$(call $f/many | jq '.entries | length')" $entries
ok 'not asked for through the mount' test $(($(asked) - before)) -lt 50
is 'in pages' "$(
	next= n=0
	while true; do
		page=$(call "$f/many?limit=20000${next:+&cursor=$next}")
		n=$((n + $(jq '.entries | length' <<<"$page")))
		next=$(jq -r '.next // empty' <<<"$page")
		[ -n "$next" ] || break
	done
	echo $n
)" $entries
is 'all below' "$(call "$f/?recursive=1" | jq '.entries | length')" $((entries + 1))
bough_ok 'save' save w --as s -q
is 'of a snapshot' "$(call $s/many | jq '.entries | length')" $entries
now=$(peak)
diag "peak $now MiB with the layers of $entries files loaded"
ok 'removed' call -X DELETE "$f/many?recursive=true"
ok 'all of it' test ! -e "$at/many"
done_testing
