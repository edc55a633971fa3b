#!/bin/bash
# A flipped byte in a pack of a mirror that workspaces lean on: fsck names repository and object, the
# read that needs it is EIO, that one alone, and nobody ever gets other bytes.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/repo.sh"

for i in $(seq 20); do
	head -c 3000 /dev/urandom | base64 >"$T/src/text-$i"
done
commit texts
push main
git --git-dir="$srv/r.git" repack -adq
bough_ok 'a mirror' repo add "$http/r.git"
m=$(mirror r)
bough_ok 'a checkout' create w --git r
w=$(at w)
bough_ok 'saved' save w --as s
bough_ok 'clean before' fsck

find_in_pack() { # OBJECT: $pack, and the middle of its bytes there
	local idx
	for idx in "$m"/objects/pack/*.idx; do
		at=$(git verify-pack -v "$idx" | awk -v o="$1" '$1 == o { print int($5 + $4 / 2) }')
		pack=${idx%.idx}.pack
		[ -z "$at" ] || return 0
	done
	bail "no pack has $1"
}
flip() { # once more: back
	python3 - "$pack" "$at" <<-'PY'
	import os, sys
	os.chmod(sys.argv[1], 0o600)
	f = os.open(sys.argv[1], os.O_RDWR); at = int(sys.argv[2])
	b = os.pread(f, 1, at); os.pwrite(f, bytes([b[0] ^ 0x10]), at)
	PY
}
blob=$(git --git-dir="$m" rev-parse main:text-7)
bough_ok 'down: nothing is in memory' down
find_in_pack "$blob"
flip
bough_ok 'up' up
w=$(at w)
right=0 failed='' wrong=0
for i in $(seq 20); do
	if got=$(sha256sum 2>/dev/null <"$w/text-$i") && [ -n "$got" ]; then
		if [ "$got" = "$(sha256sum <"$T/src/text-$i")" ]; then
			right=$((right + 1))
		else
			wrong=$((wrong + 1))
		fi
	else
		failed+=" $i"
	fi
done
is 'no read gives other bytes' $wrong 0
is 'one file fails, that one' "$failed" ' 7'
is 'all others are right' $right 19
run cat "$w/text-7"
like 'by EIO' "$err" 'Input/output error'
run bough fsck
is 'fsck ends with 1' $code 1
like 'it names the repository' "$out" "repos/${m##*/}|repository ${m##*/}"
like 'and the object' "$out" "$blob"
run bough fsck --json
is 'once' "$(json '.faults | length')" 1
is 'with who needs it' "$(json '.faults[0].workspaces[0]')" w
like 'snapshots too' "$(json '.faults[0].snapshots[0]')" '^sn_'
echo new >"$w/text-7"
is 'it can be written anew' "$(cat "$w/text-7")" new
bough_ok 'and the workspace saved' save w --as t
flip
bough_ok 'once the byte is right, all is' fsck
run bough export s -o "$T/s.tar"
is 'the old snapshot is whole' "$(tar xOf "$T/s.tar" ./text-7 | sha256sum)" \
	"$(sha256sum <"$T/src/text-7")"
done_testing
