#!/bin/bash
# Hostile and broken archives: refused with a line that says why, nothing outside touched,
# nothing left behind.
. "${0%/*}/lib.sh"
need_fuse

mkdir "$T/victim" "$T/bad"
echo safe >"$T/victim/file"
python3 - "$T/bad" "$T/victim" <<'PY'
import io, os, struct, sys, tarfile, zipfile
out, victim = sys.argv[1:]
def tar(name, *members, cut=None):
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode="w", format=tarfile.PAX_FORMAT) as t:
        for m in members:
            info = tarfile.TarInfo(m[0])
            info.type = m[1]
            data = m[2] if len(m) > 2 else b""
            if info.type == tarfile.REGTYPE:
                info.size = len(data)
                t.addfile(info, io.BytesIO(data))
            else:
                info.linkname = data.decode() if data else ""
                t.addfile(info)
    open(f"{out}/{name}.tar", "wb").write(b.getvalue()[:cut])
F, D, S, L = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
v = victim.encode()
tar("absolute", (f"{victim}/new", F, b"x"))
tar("dotdot", ("../new", F, b"x"))
tar("dotdot-inside", ("a/../../new", F, b"x"))
tar("through-symlink", ("link", S, v), ("link/new", F, b"x"))
tar("through-relative", ("link", S, b".."), ("link/new", F, b"x"))
tar("over-symlink-folder", ("link", S, v), ("link/file", F, b"changed"))
tar("hardlink-absolute", ("link", L, v + b"/file"))
tar("hardlink-dotdot", ("link", L, b"../victim/file"))
tar("hardlink-to-nothing", ("link", L, b"not-there"))
tar("hardlink-to-folder", ("d", D), ("link", L, b"d"))
tar("file-then-folder", ("x", F, b"1"), ("x", D))
tar("folder-then-file", ("x/y", F, b"1"), ("x", F, b"2"))
tar("below-a-file", ("x", F, b"1"), ("x/y", F, b"2"))
tar("long-name", ("n" * 256, F, b"x"))
tar("cut-head", ("a", F, b"x" * 5000), cut=700)
tar("cut-data", ("a", F, b"x" * 5000), ("b", F, b"y" * 50000), cut=20000)
open(f"{out}/noise.tar", "wb").write(os.urandom(100000))
open(f"{out}/x-and-noise.tar", "wb").write(b"x" * 512 + os.urandom(10000))
b = io.BytesIO()
with zipfile.ZipFile(b, "w") as z:
    z.writestr("../new", "x")
open(f"{out}/zip-dotdot.zip", "wb").write(b.getvalue())
b = io.BytesIO()
with zipfile.ZipFile(b, "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("a", "x" * 100000)
open(f"{out}/zip-cut.zip", "wb").write(b.getvalue()[:-30])
open(f"{out}/zip-flipped.zip", "wb").write(b.getvalue().replace(b"\x78", b"\x79", 1)[:60] + b"\xff" * 20 + b.getvalue()[80:])
def cpio(name, data):
    n = name.encode() + b"\0"
    f = [0o100644, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(n), 0]
    h = b"070701" + b"00000001" + b"".join(b"%08x" % x for x in f)
    def pad(x): return x + b"\0" * (-len(x) % 4)
    return pad(h + n) + pad(data)
open(f"{out}/cpio-dotdot.cpio", "wb").write(cpio("../new", b"x") + cpio("TRAILER!!!", b""))
open(f"{out}/cpio-cut.cpio", "wb").write(cpio("a", b"x" * 9000)[:5000])
PY

bough_ok 'up' up
before=$(bough snapshots ls -q)
for f in "$T"/bad/*; do
	name=$(basename "$f")
	run bough import "$f" --as bad
	if [ $code = 1 ] && [[ $err == "bough: import: "* ]] && [ "$(wc -l <"$T/.err")" = 1 ]; then
		pass "$name is refused"
		diag "$err"
	else
		fail "$name is refused"
		diag_run
	fi
	run bough create bad --tar "$f"
	is "$name makes no workspace" $code 1
done
is 'no snapshot is left' "$(bough snapshots ls -q)" "$before"
is 'no workspace is left' "$(bough ls -q)" ''
is 'nothing outside was touched' "$(ls "$T/victim"; cat "$T/victim/file")" $'file\nsafe'
ok 'nothing beside the root' test ! -e "$T/new" -a ! -e "$T/root/new" -a ! -e "$T/root/mnt/new"

# ---- bombs

dd if=/dev/zero bs=1M count=3000 status=none | zstd -q -3 >"$T/zeros.zst"
(cd "$T" && mkdir bomb && truncate -s 3G bomb/zeros && tar cSf - bomb | zstd -q >sparse.tar.zst)
python3 - "$T/many.tar" "$T/deep.tar" "$T/dense.tar" <<'PY'
import io, sys, tarfile
with tarfile.open(sys.argv[1], "w") as t:
    for i in range(20000):
        t.addfile(tarfile.TarInfo("f%d" % i))
with tarfile.open(sys.argv[2], "w") as t:
    t.addfile(tarfile.TarInfo("d/" * 1500 + "f"))
class Zeros(io.RawIOBase):
    def readable(self):
        return True
    def readinto(self, b):
        b[:] = bytes(len(b)); return len(b)
with tarfile.open(sys.argv[3], "w") as t:
    i = tarfile.TarInfo("zeros"); i.size = 600 << 20
    t.addfile(i, io.BufferedReader(Zeros()))
PY
zstd -q --rm "$T/dense.tar"
bough_fails 'more bytes than the quota' 6 '' create bomb --tar "$T/dense.tar.zst" --quota 100M
bough_fails 'more files than the quota' 6 '' create bomb --tar "$T/many.tar" --inodes 1000
is 'nothing is left of them' "$(bough ls -q; bough snapshots ls -q)" "$before"
bough_ok 'holes cost nothing' create holes --tar "$T/sparse.tar.zst" --quota 100M
is 'and read as zeros' "$(head -c 1000 "$(at holes)/bomb/zeros" | tr -d '\0' | wc -c)" 0
run bough import "$T/deep.tar"
ok 'a path of 3,000 bytes is taken or refused' test $code = 0 -o $code = 1
run bough import "$T/zeros.zst" --json
ok 'three gigabytes of nothing are no archive, or an empty one' \
	test $code = 1 -o "$(json .files)" = 1
[ $code != 0 ] || bough snapshots rm "$(json .id)" >/dev/null

# ---- what inflates to more than its head says, which no quota would have counted

bough_ok 'a workspace' create small --quota 1M
python3 - "$T/lies.zip" <<'PY'
import struct, sys, zlib
c = zlib.compressobj(9, zlib.DEFLATED, -15)
zeros = bytes(64 << 20)
data = c.compress(zeros) + c.flush()
crc, name = zlib.crc32(zeros), b"f"
head = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0x21, crc, len(data), 10, len(name), 0)
at = b"PK\3\4" + head + name + data
entry = b"PK\1\2" + struct.pack("<H", 0x314) + head + struct.pack("<HHHII", 0, 0, 0, 0o100644 << 16, 0) + name
end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(entry), len(at), 0)
open(sys.argv[1], "wb").write(at + entry + end)
PY
for q in '' '?atomic=true'; do
	run curl -sS --unix-socket "$BOUGH_ROOT/run/boughd.sock" -X PUT --data-binary @"$T/lies.zip" "http://x/v1/workspaces/small/archive/$q"
	like "a zip that lies about a size is refused at once${q:+, in one step}" "$out" 'longer than it says'
done
bough_ok 'it goes' rm small

# ---- an import that is broken off leaves nothing

before=$(bough snapshots ls -q)
(head -c 1000000 "$T/many.tar"; sleep 5) | bough import - --as cut >/dev/null 2>&1 &
sleep 1
kill -9 "$(pgrep -f -n 'bough import - --as cut')" 2>/dev/null
wait 2>/dev/null
is 'an import whose caller was killed' "$(bough snapshots ls -q)" "$before"
bough_ok 'the same name is free' import "$T/many.tar" --as cut
fsck_clean
done_testing
