# For tests of damage: a tree, a root with it, and what of it can be read. Sourced after lib.sh.

# Five files of their own content, and a lot of others.
mkdir -p "$T/tree/many"
for i in 1 2 3 4 5; do head -c 100000 /dev/urandom >"$T/tree/file-$i"; done
for i in $(seq 1 300); do echo "small $i" >"$T/tree/many/$i"; done
(cd "$T/tree" && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"$T/sums"

# A fresh root with workspace w from snapshot s, and the daemons down.
fresh() {
	bough down >/dev/null 2>&1
	kill_hard boughd bough-fs
	rm -rf --one-file-system "$BOUGH_ROOT"
	bough create w --dir "$T/tree" >/dev/null && bough save w --as s -q >/dev/null &&
		bough down >/dev/null || bail 'no fresh root'
}
# Each file is right, or its reading fails: never other bytes. Prints "RIGHT FAILED WRONG".
read_all() { # FOLDER
	(cd "$1" 2>/dev/null || exit; sha256sum -c "$T/sums" 2>/dev/null) |
		awk -v n="$total" '/: OK$/ { right++ } /: FAILED$/ { wrong++ }
			END { print right + 0, n - right - wrong, wrong + 0 }'
}
# Two bits: a single one of a journal's header would be put right.
flip() { # FILE OFFSET
	python3 - "$1" "$2" <<-'PY'
	import os, sys
	f = os.open(sys.argv[1], os.O_RDWR); off = int(sys.argv[2])
	if off < 0: off += os.fstat(f).st_size
	b = os.pread(f, 1, off); os.pwrite(f, bytes([b[0] ^ 0x41]), off)
	PY
}

total=$(wc -l <"$T/sums")
