#!/bin/bash
# What the table of threats (fs/DESIGN.md) promises and no other test tries: odd calls of a hostile
# program in a workspace, devices and set-uid files, what lies open to other users of the machine,
# and what a neighbour on the same store learns.
. "${0%/*}/lib.sh"
need_fuse
need_root # to become somebody else

chmod 711 "$T"
umask 0 # what is private isn't so by luck
sock=$BOUGH_ROOT/run/boughd.sock
boughd --root "$BOUGH_ROOT" --daemon --multi-user || bail 'boughd does not start'
umask 022
as() { # UID METHOD TARGET [BODY]: $body
	body=$(setpriv --reuid="$1" --regid="$1" --clear-groups curl -sS -m 200 -X "$2" --unix-socket "$sock" \
		${4:+--data-binary "$4"} "http://d$3" 2>&1)
}
of() { jq -r "$1" <<<"$body"; }
# The first python on the path may be nobody else's to run.
py=/usr/bin/python3
[ -x $py ] || py=$(command -v python3)
# Runs a command as one who is neither root nor in any group.
other() { setpriv --reuid=30002 --regid=30002 --clear-groups "$@" 2>/dev/null; }

as 30001 POST /v1/workspaces '{"name":"mine","quota_bytes":50000000}' # what reserves space gets no more
mine=$(of .path) id=$(of .id)
[ -d "$mine" ] || bail "no workspace: $body"

# ---- set-uid files and devices

options=$(awk -v at="$mine" '$2 == at { print $4 }' /proc/self/mounts)
like 'a mount has no devices' "$options" '(^|,)nodev(,|$)'
like 'and no set-uid' "$options" '(^|,)nosuid(,|$)'
cp "$(command -v id)" "$mine/id" && chown root "$mine/id" && chmod 6755 "$mine/id"
is 'a set-uid program of root runs as who started it' "$(setpriv --reuid=30001 --regid=30001 --clear-groups "$mine/id" -u)" 30001
mknod "$mine/null" c 1 3 && chmod 666 "$mine/null"
ok 'a device opens for nobody' not sh -c "exec 3<>'$mine/null'" 2>/dev/null

# ---- odd calls: each is answered, and the server is the same one afterwards

server=$(pids_of bough-fs)
cat >"$T/odd.py" <<'PY'
import ctypes, errno, fcntl, os, random, sys
libc = ctypes.CDLL(None, use_errno=True)
root, seed = sys.argv[1], int(sys.argv[2])
r = random.Random(seed)
os.chdir(root)
os.makedirs("odd", exist_ok=True)
file, folder = os.open("odd/f", os.O_RDWR | os.O_CREAT, 0o644), os.open("odd", os.O_RDONLY)
os.write(file, b"x" * 10000)
sizes = [0, 1, 100, 4096, 65535, 65536]
tokens = ["", "0", "-1", "\xff" * 9, "f" * 200, "e" + "0" * 16, "../..", "%n%s", "1.2.3.4", "9" * 100]
numbers = [0, 1, 4095, 4096, 2**31 - 1, 2**31, 2**32 - 1, 2**40 + 1, 2**62, 2**63 - 1, -1]
done = {}
def count(what, fn):
    try:
        fn()
        e = "good"
    except OSError as x:
        e = errno.errorcode[x.errno]
        if x.errno in (errno.EIO, errno.ENOTCONN, errno.ECONNABORTED, errno.EPROTO):
            print(f"{what}: {e}")
            sys.exit(1)
    except (ValueError, OverflowError):
        e = "python"
    done[what] = done.get(what, 0) + 1
def ioctl():
    # Direction, size, type and number at will; what the mount itself knows, too.
    size = r.choice([0, 1, 8, 200, 4096, 16000, 16383])
    code = r.randrange(4) << 30 | size << 16 | r.choice([ord("f"), ord("b"), 0x94, r.randrange(256)]) << 8 | r.randrange(256)
    if code in (0x40086602, 0xC0045877, 0xC0045878):  # flags; freeze and thaw
        return
    buf = bytearray(max(size, 16384))
    buf[:32] = r.choice(tokens).encode("latin-1", "replace")[:32].ljust(32, b"\0")
    fcntl.ioctl(r.choice([file, folder]), code, buf)
def getxattr():
    name = r.choice(["bough.changes.", "bough.", "user.", "system.posix_acl_access", "security.capability", ""])
    os.getxattr(r.choice(["odd", "odd/f", "."]), name + r.choice(tokens).replace("\0", ""))
def setxattr():
    name = r.choice(["user." + "n" * r.randrange(260), "bough.changes.1", "system.posix_acl_access", "system.posix_acl_default", "security.capability"])
    os.setxattr(r.choice(["odd", "odd/f"]), name, r.randbytes(r.choice(sizes)))
def rw():
    at, n = r.choice(numbers), r.choice(sizes)
    r.choice([lambda: os.pread(file, n, at), lambda: os.pwrite(file, b"y" * n, at if at < 2**41 else -1),
              lambda: os.lseek(file, at, r.choice([0, 1, 2, os.SEEK_DATA, os.SEEK_HOLE]))])()
def allocate():
    if libc.fallocate(file, r.randrange(128), ctypes.c_long(r.choice(numbers)), ctypes.c_long(r.choice(numbers))) < 0:
        raise OSError(ctypes.get_errno(), "")
    os.ftruncate(file, 10000)
def copy():
    os.copy_file_range(file, file, r.choice(sizes), r.choice(numbers), r.choice(numbers))
def name():
    n = bytes(r.choices(range(1, 256), k=r.choice([1, 2, 254, 255, 256, 4000]))).replace(b"/", b".")
    r.choice([lambda: os.mkdir(b"odd/" + n), lambda: os.symlink(n, b"odd/l" + n[:200]), lambda: os.stat(b"odd/" + n),
              lambda: os.rename(b"odd/f2", b"odd/" + n)])()
def listing():
    fd = os.open("odd", os.O_RDONLY)
    try:
        os.lseek(fd, r.choice(numbers), 0)
        libc.getdents64(fd, ctypes.create_string_buffer(4096), r.choice([1, 24, 100, 4096]))
    finally:
        os.close(fd)
calls = [ioctl, getxattr, setxattr, rw, allocate, copy, name, listing]
for i in range(4000):
    f = r.choice(calls)
    count(f.__name__, f)
assert len(done) == len(calls)
print("done")
PY
seed=${BOUGH_SEED:-$RANDOM}
diag "BOUGH_SEED=$seed"
is 'odd calls of a program are answered' "$(setpriv --reuid=30001 --regid=30001 --clear-groups $py "$T/odd.py" "$mine" "$seed" 2>&1)" 'done'
is 'by root, too' "$($py "$T/odd.py" "$mine" "$seed" 2>&1)" 'done'
is 'and the server is the one it was' "$(pids_of bough-fs)" "$server"
bough_ok 'what they left can be saved' save uid:30001/mine --as odd

# ---- other users of the machine

is 'what is of the service alone' "$(cd "$BOUGH_ROOT" && stat -c '%n %a' store images layers catalog.db run/fs.sock 2>&1 |
	awk '$2 ~ /00$/ { n++ } END { print n }')" 5
for d in store images layers catalog.db run/fs.sock run/boughd.log; do
	ok "another user can't read $d" not other sh -c "ls '$BOUGH_ROOT/$d'/ || cat '$BOUGH_ROOT/$d'"
done
ok 'nor talk to bough-fs' not other $py -c "
import socket; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect('$BOUGH_ROOT/run/fs.sock')"
# Files are as open as their modes, like those of a home folder.
chmod 700 "$mine"
ok 'nor look into a workspace whose owner has closed it' not other ls "$mine"
ok 'which its owner can' sh -c "setpriv --reuid=30001 --regid=30001 --clear-groups ls '$mine' >/dev/null"
ok 'nor list where the workspaces are' not other ls "$BOUGH_ROOT/mnt"
is 'nor trace the servers' "$(for p in $(pids_of bough-fs) $(pids_of boughd); do other cat "/proc/$p/environ" "/proc/$p/maps"; done)" ''
# A folder that lies there already, open to all.
mkdir -m 777 "$T/loose" && mkdir -m 777 "$T/loose/run"
EXTRA_ROOTS=$T/loose
boughd --root "$T/loose" --daemon >/dev/null
is 'a root that others could write to is closed' "$(stat -c %a "$T/loose" "$T/loose/run" | tr '\n' ' ')" '755 700 '
sock= BOUGH_ROOT=$T/loose bough down >/dev/null 2>&1

# ---- a neighbour on the same store

secret=$(head -c 20000 /dev/urandom | base64 -w 0)
printf %s "$secret" >"$mine/secret"
as 30001 POST /v1/workspaces/mine/snapshots '{"name":"private"}'
snapshot=$(of .id) manifest=$(of .manifest)
as 30002 POST /v1/workspaces '{"name":"yours"}'
yours=$(of .path)
sum=$(sha256sum "$mine/secret" | cut -d' ' -f1)
for what in "$sum" "$manifest" "$snapshot" "$id"; do
	for path in "/v1/snapshots/$what" "/v1/snapshots/$what/files/secret" "/v1/workspaces/$what" "/v1/snapshots/$what/export"; do
		as 30002 GET "$path"
		code=$(of .code 2>/dev/null)
		[ "$code" = not_found ] || [ "$code" = bad_request ] || diag "$path: $body"
		echo "$code"
	done
	as 30002 POST /v1/workspaces "{\"name\":\"w${what:0:8}\",\"from\":\"$what\"}"
	of .code 2>/dev/null
done | sort | uniq -c | sort -rn >"$T/answers"
is 'what is asked for by its hash or id is not there' "$(grep -cvE ' (not_found|bad_request)$' "$T/answers")" 0
diag "$(cat "$T/answers")"
printf %s "$secret" >"$yours/guess"
as 30002 POST /v1/workspaces/yours/snapshots '{"name":"guess"}'
# That a guess was right shows in what the save stored: DESIGN.md says so.
diag "a guess that was right stored $(of .stored_bytes) bytes of $(stat -c %s "$yours/guess")"
as 30002 GET /v1/usage
is 'usage names nothing of others' "$(jq -r '.items[].id' <<<"$body" | grep -cE "$id|$snapshot")" 0
as 30003 POST /v1/workspaces '{"name":"third"}'
printf %s "$secret" >"$(of .path)/guess"
as 30003 POST /v1/workspaces/third/snapshots '{"name":"guess"}'
as 30003 DELETE /v1/workspaces/third # so that nothing of his own shares it
as 30003 GET /v1/usage
is 'what only neighbours have too is not shared' "$(jq '[.items[].shared_bytes // 0] | add' <<<"$body")" 0
ok 'but his own' test "$(jq '[.items[].unique_bytes // 0] | add' <<<"$body")" -gt 20000

# ---- a mirror of somebody else's

git init -q "$T/src" && echo text >"$T/src/file" && git -C "$T/src" add file &&
	git -C "$T/src" -c user.name=a -c user.email=a@example.org commit -qm first
bough_ok 'a mirror' repo add "$T/src" --name src
as 30002 GET /v1/repos
is 'is listed to nobody else' "$(jq '.items | length' <<<"$body")" 0
as 30002 POST /v1/workspaces '{"name":"theirs","git":{"repo":"src"}}'
is 'nor checked out' "$(of .code)" not_found
as 30002 GET /v1/repos/src
is 'nor shown' "$(of .code)" not_found
bough_ok 'but by whose it is' create checkout --git src
fsck_clean
done_testing
