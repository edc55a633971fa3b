#!/bin/bash
# Quotas of bytes and inodes: hard, also for holes and many small files; shared content is free.
. "${0%/*}/lib.sh"
need_fuse

bough_ok 'create with a quota' create q --quota 10M --inodes 100
q=$out
is 'statfs shows it' $(($(stat -f -c '%b * %S' "$q"))) $((10 << 20))
run dd if=/dev/zero of="$q/file" bs=64K count=400
is 'a write above it fails' $code 1
like 'with the right error' "$err" '(Disk quota exceeded|No space left)'
size=$(stat -c %s "$q/file")
is 'up to the limit all was written' "$size" $((10 << 20))
run bash -c "echo x >>'$q/file2'"
ok 'not a byte more' test $code != 0 -o ! -s "$q/file2"
rm -f "$q/file" "$q/file2"
bough_ok 'used is told' show q --json
ok 'after a delete nothing is used' test "$(json .used_bytes)" -lt 65536
run dd if=/dev/zero of="$q/again" bs=1M count=9
is 'and can be written again' $code 0
rm "$q/again"

run bash -c "cd '$q' && seq 1 200 | xargs touch"
ok 'more files than the quota fail' test $code != 0
n=$(ls "$q" | wc -l)
ok "up to the limit they are there ($n)" test "$n" -ge 95 -a "$n" -le 100
find "$q" -mindepth 1 -delete
run bash -c "cd '$q' && seq 1 90 | xargs touch"
is 'deleted ones count no more' $code 0
find "$q" -mindepth 1 -delete

# To the byte: what has room of a write is written; pages of a map are written whole or not at all.
bough_ok 'create with an odd quota' create odd --quota 10001
run python3 - "$out" <<'PY'
import errno, mmap, os, sys
root = sys.argv[1]
def error(fn):
    try:
        return fn()
    except OSError as e:
        return errno.errorcode[e.errno]
f = os.open(root + "/f", os.O_CREAT | os.O_RDWR)
print(os.write(f, b"x" * 7000), os.write(f, b"y" * 7000), error(lambda: os.write(f, b"z")))
print(os.fstat(f).st_size, os.pread(f, 20000, 0) == b"x" * 7000 + b"y" * 3001)
print(error(lambda: os.pwrite(f, b"o" * 10, 9990)), error(lambda: os.pwrite(f, b"o" * 20, 9990)))
os.ftruncate(f, 0)
os.ftruncate(f, 3 * 4096)
m = mmap.mmap(f, 3 * 4096)
m[:8192] = b"m" * 8192
m.flush()
m[8192:] = b"n" * 4096
print(error(lambda: m.flush()), os.pread(f, 1, 8191))
PY
is 'a write ends where the room does' "$out" "7000 3001 EDQUOT
10001 True
10 EDQUOT
EDQUOT b'm'"

# Many small files, sparse growth, fallocate.
run python3 - "$q" <<'PY'
import errno, os, sys
root, total = sys.argv[1], 0
limits = (errno.EDQUOT, errno.ENOSPC)
with open(root + "/sparse", "wb", buffering=0) as f:
    f.truncate(1 << 40)                       # a hole costs nothing
    n = 0
    try:
        for i in range(100000):
            f.seek(i << 24); f.write(b"x"); n += 1
    except OSError as e:
        assert e.errno in limits, e
    assert n * 4096 <= 10 << 20, n            # whole blocks are counted
    print("blocks", n)
os.unlink(root + "/sparse")
with open(root + "/reserve", "wb") as f:
    try:
        os.posix_fallocate(f.fileno(), 0, 11 << 20)
        print("fallocate went through")
    except OSError as e:
        assert e.errno in limits, e
os.unlink(root + "/reserve")
PY
is 'holes and reservations' $code 0
like 'sparse growth was limited' "$out" 'blocks (2[0-9]{3}|1[0-9]{3})'
[[ $out != *'went through'* ]]
is 'so was fallocate' $? 0
[ $code = 0 ] || diag_run

# ---- what was removed counts no more, right away

# The kernel tells of it by a request of its own, which may come after the next one.
bough_ok 'create with little' create tight --quota 1M --inodes 3
tight=$out
bough_ok 'create with a little more' create tight-2 --quota 2M
run python3 - "$tight" "$BOUGH_ROOT/run/boughd.sock" "$out" <<'PY'
import ctypes, http.client, os, socket, sys, time
root, bad = sys.argv[1], []
for n in "abc":
    os.mkdir(f"{root}/{n}")
for i in range(300):
    os.rmdir(root + "/a")
    try:
        os.mkdir(root + "/a")
    except OSError as e:
        bad.append(e)
        break
# What a rename leaves in the old place is made, too.
libc = ctypes.CDLL(None, use_errno=True)
for i in range(100):
    os.rmdir(root + "/b")
    old, new = (f"{root}/{n}".encode() for n in ("a", "b"))
    if libc.renameat2(-100, old, -100, new, 4) < 0: # RENAME_WHITEOUT
        bad.append("whiteout: " + os.strerror(ctypes.get_errno()))
        break
    os.unlink(root + "/a")
    os.mkdir(root + "/a")
for n in os.listdir(root):
    os.rmdir(f"{root}/{n}")
half = 512 << 10
def filled(size):
    """All but `half` and the source; gone again, as the next call is made."""
    with open(root + "/fill", "wb", buffering=0) as g:
        for at in range(0, size, 65536):
            g.write(bytes(min(65536, size - at)))
    os.unlink(root + "/fill")
with open(root + "/src", "wb", buffering=0) as f:
    f.write(bytes(i % 251 for i in range(half)))
src = os.open(root + "/src", os.O_RDONLY)
copy = os.open(root + "/copy", os.O_RDWR | os.O_CREAT)
for i in range(100):
    filled(half)
    try:
        n = os.copy_file_range(src, copy, half, 0, 0)
        if n != half:
            bad.append(f"copy {i}: {n} bytes")
    except OSError as e:
        bad.append(f"copy {i}: {e}")
        break
    os.ftruncate(copy, 0)
# The rest of a block counts from when the file's end is behind it.
os.write(copy, b"x")
for i in range(100):
    filled(half - 1)
    try:
        os.ftruncate(copy, 4096)
    except OSError as e:
        bad.append(f"truncate {i}: {e}")
        break
    os.ftruncate(copy, 1)
os.close(copy)
os.unlink(root + "/copy")
# What comes by the API waits as programs do.
def ask(method, path, body, headers={}):
    c = http.client.HTTPConnection("d")
    c.sock = socket.socket(socket.AF_UNIX)
    c.sock.connect(sys.argv[2])
    c.request(method, path, body, headers | {"Tus-Resumable": "1.0.0"})
    answer = c.getresponse()
    return answer.status, answer.headers, answer.read()
def wait_for_room(size): # boughd looks before it takes anything
    while os.statvfs(root).f_bavail < size // 4096:
        time.sleep(0.001)
for i in range(30):
    filled(half)
    wait_for_room(half)
    status, _, text = ask("PUT", "/v1/workspaces/tight/files/copy", bytes(half))
    if status not in (200, 201, 204):
        bad.append(f"put {i}: {status} {text}")
        break
    os.unlink(root + "/copy")
# Of an upload the data become the file, by one call; the last byte is sent once there is no room.
tight, root = root, sys.argv[3]
for i in range(30):
    wait_for_room(4 * half)
    status, head, text = ask("POST", "/v1/workspaces/tight-2/uploads", b"",
                             {"Upload-Length": str(4 * half), "Upload-Metadata": "path Y29weQ=="})
    url, kind = head["Location"], {"Content-Type": "application/offset+octet-stream"}
    ask("PATCH", url, bytes(4 * half - 1), kind | {"Upload-Offset": "0"})
    filled(4 * half)
    status, _, text = ask("PATCH", url, b"x", kind | {"Upload-Offset": str(4 * half - 1)})
    if status != 204:
        bad.append(f"upload {i}: {status} {text}")
        break
    os.unlink(root + "/copy")
root = tight
os.close(src)
os.unlink(root + "/src")
for i in range(100):
    try:
        with open(root + "/f", "wb", buffering=0) as f:
            for k in range(16):
                f.write(bytes(65536))
    except OSError as e:
        bad.append(e)
    os.unlink(root + "/f")
# One that is open counts, and who meets the limit hears so soon.
held = open(root + "/held", "wb", buffering=0)
held.write(bytes(1 << 20))
os.unlink(root + "/held")
try:
    with open(root + "/g", "wb", buffering=0) as f:
        f.write(b"x")
    bad.append("an open file counts no more")
except OSError as e:
    pass
print(bad)
PY
is 'folders and files in the place of removed ones' "$out" '[]'

# ---- what is shared isn't counted

bough_ok 'a big one' create big
head -c 30000000 /dev/urandom >"$(at big)/data"
bough_ok 'save' save big --as s
bough_ok 'create below its size' create small --from s --quota 1M
small=$out
is 'all of it can be read' "$(sha256sum <"$small/data")" "$(sha256sum <"$(at big)/data")"
run bash -c "printf x | dd of='$small/data' bs=1 seek=15000000 conv=notrunc"
is 'a byte of it can be changed' $code 0
run dd if=/dev/zero of="$small/data" bs=64K conv=notrunc
ok 'but not all' test $code != 0
bough_ok 'a fork' fork small small-2 --json
is 'has the quota' "$(json '.items[0].quota_bytes')" 1048576
is 'and nothing used' "$(bough show small-2 --json | jq .used_bytes)" 0
run dd if=/dev/zero of="$(at small-2)/mine" bs=1000K count=1
is 'so it can write' $code 0
bough_ok 'show for people' show small-2
like 'tells used and limit' "$out" 'written +(1000K|9[0-9]{2}K|1\.0M) of 1\.0M'

# ---- what was saved is still one's own

bough_ok 'one of its own' create own --quota 10M --inodes 50
own=$out
mkdir "$own/d" && seq 1 9 | (cd "$own/d" && xargs touch)
head -c 6000000 /dev/urandom >"$own/d/6M"
bough_ok 'saved' save own --as own-6
rm "$own/d/9"
head -c 1000000 /dev/urandom >"$own/1M"
used() { bough show "$1" --json | jq -r '"\(.used_bytes) \(.used_inodes) \(.files)"'; }
is 'used with more' "$(used own)" '7000000 11 12'
bough_ok 'restore' restore own own-6
is 'is charged for what it had' "$(used own)" '6000000 11 12'
run dd if=/dev/zero of="$own/no" bs=1M count=5
ok 'there is no room for as much again' test $code != 0
rm "$own/no"
bough_ok 'unmounted' umount own
bough_ok 'and mounted' mount own
is 'it is the same' "$(used own)" '6000000 11 12'
bough_ok 'what is made from it' create from-own --from own-6
is 'has it for nothing' "$(used from-own)" '0 0 12'
bough_ok 'a fork' fork own own-2
head -c 2000000 /dev/urandom >"$(at own-2)/2M"
bough_ok 'is merged' merge own-2 --into own
is 'then it is charged' "$(used own)" '8000000 12 13'
head -c 5000000 /dev/urandom >"$(at own-2)/5M"
run bough merge own-2 --into own
is 'what is above the quota is not merged' $code 6
is 'and nothing is done' "$(used own)" '8000000 12 13'
fsck_clean
done_testing
