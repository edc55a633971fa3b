#!/bin/bash
# A file above 2 GiB in a commit: it goes through the daemon as a stream.
. "${0%/*}/lib.sh"
need_fuse
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1

# 2 GiB and 64 MiB of zeros and a last line, which git would take half a minute to add. The pack is
# made by hand: one piece of compressed zeros, again and again.
cat >make.py <<'PY'
import hashlib, os, struct, sys, zlib
def entry(kind, size, data):
    head = [kind << 4 | size & 15]
    size >>= 4
    while size:
        head[-1] |= 128
        head.append(size & 127)
        size >>= 7
    return bytes(head) + data
def named(kind, data):
    return hashlib.sha1(b"%s %d\0" % (kind, len(data)) + data).digest()
CHUNK, N, END = 64 << 20, 33, b"the end\n"
size = CHUNK * N + len(END)
deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
zeros = bytes(CHUNK)
chunk = deflate.compress(zeros) + deflate.flush(zlib.Z_FULL_FLUSH)
last = zlib.compressobj(9, zlib.DEFLATED, -15)
last = last.compress(END) + last.flush()
sha = hashlib.sha1(b"blob %d\0" % size)
for _ in range(N):
    sha.update(zeros)
sha.update(END)
adler = zlib.adler32(END, (CHUNK * N % 65521) << 16 | 1)
blob = sha.digest()
tree = b"100644 huge\0" + blob
commit = b"tree %s\nauthor A <a@b> 1700000000 +0000\ncommitter A <a@b> 1700000000 +0000\n\nm\n" % \
    named(b"tree", tree).hex().encode()
entries = [(named(b"commit", commit), entry(1, len(commit), zlib.compress(commit))),
           (named(b"tree", tree), entry(2, len(tree), zlib.compress(tree))),
           (blob, entry(3, size, b"\x78\xda" + chunk * N + last + struct.pack(">I", adler)))]
pack, places = b"PACK" + struct.pack(">II", 2, len(entries)), {}
for oid, data in entries:
    places[oid] = (len(pack), zlib.crc32(data))
    pack += data
pack += hashlib.sha1(pack).digest()
order = sorted(places)
idx = b"\377tOc" + struct.pack(">I", 2)
idx += b"".join(struct.pack(">I", sum(o[0] <= i for o in order)) for i in range(256))
idx += b"".join(order) + b"".join(struct.pack(">I", places[o][1]) for o in order)
idx += b"".join(struct.pack(">I", places[o][0]) for o in order) + pack[-20:]
idx += hashlib.sha1(idx).digest()
name = os.path.join(sys.argv[1], "objects/pack/pack-" + pack[-20:].hex())
for suffix, data in (".pack", pack), (".idx", idx):
    with open(name + suffix, "wb") as f:
        f.write(data)
with open(os.path.join(sys.argv[1], "refs/heads/main"), "w", encoding="ascii") as f:
    f.write(named(b"commit", commit).hex() + "\n")
PY
git init -q --bare -b main r.git && python3 make.py r.git || bail 'no repository'
size=$((64 * 33 * 1024 * 1024 + 8))
is 'git takes it for a blob of that size' "$(git -C r.git cat-file -s main:huge)" "$size"

bough_ok 'repo add' repo add "$T/r.git" --name r
bough_ok 'create' create w --git r
w=$out
is 'it has its size' "$(stat -c %s "$w/huge")" "$size"
is 'and its end' "$(tail -c 12 "$w/huge" | tr '\0' 0)" '0000the end'
is 'and zeros before it' "$(head -c 1000000 "$w/huge" | tr -d '\0' | wc -c)" 0
is 'git status is clean' "$(git -c safe.directory='*' -C "$w" status --porcelain 2>&1)" ''
peak=$(awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/$(pids_of boughd)/status")
ok "the daemon held little of it ($peak MiB)" [ "${peak:-9999}" -lt 1000 ]
done_testing
