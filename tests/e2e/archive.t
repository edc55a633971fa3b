#!/bin/bash
# Export and import, compared byte for byte: modes, times, owners, xattrs, hard links, holes,
# names of any byte.
. "${0%/*}/lib.sh"
need_fuse

# ---- a tree with all there can be

src=$T/src
mkdir -p "$src/dir/deep" "$src/empty"
python3 - "$src" <<'PY'
import os, sys
root = os.fsencode(sys.argv[1])
def put(name, data, mode=0o644):
    path = os.path.join(root, name)
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, mode)
put(b"plain", b"plain\n")
put(b"empty-file", b"")
put(b"executable", b"#!/bin/sh\n", 0o755)
put(b"unreadable", b"secret\n", 0o000)
put(b"set-id", b"x", 0o6755)
put(b"big", os.urandom(1 << 20) * 3 + b"tail")
put(b"n" * 255, b"long name")
put(b"latin-\xe9\xff", b"not UTF-8")
put("käse-\u20ac-\U0001f333".encode(), b"UTF-8")
put(b"new\nline\ttab \"quote\" \\back", b"odd")
put(b"-dash", b"x")
put(b" blank ", b"x")
deep = os.path.join(root, b"dir/deep")
for i in range(12):
    deep = os.path.join(deep, b"d%02d" % i + b"x" * 90)
    os.mkdir(deep)
put(os.path.relpath(os.path.join(deep, b"file"), root), b"a path of 1,000 bytes and more")
os.link(os.path.join(root, b"plain"), os.path.join(root, b"dir/linked"))
os.link(os.path.join(root, b"plain"), os.path.join(root, b"dir/deep/again"))
os.symlink(b"plain", os.path.join(root, b"symlink"))
os.symlink(b"/absolute/\xff/nowhere", os.path.join(root, b"dangling"))
os.symlink(b"t" * 4000, os.path.join(root, b"long-target"))
os.mkfifo(os.path.join(root, b"fifo"))
with open(os.path.join(root, b"sparse"), "wb") as f:
    f.seek(30 << 20); f.write(b"end"); f.truncate(50 << 20)
os.setxattr(os.path.join(root, b"plain"), "user.text", b"value")
os.setxattr(os.path.join(root, b"plain"), "user.binary", bytes(range(256)))
os.setxattr(os.path.join(root, b"dir"), "user.of-a-folder", b"x" * 2000)
os.chmod(os.path.join(root, b"empty"), 0o1777)
for i, name in enumerate([b"plain", b"big", b"fifo", b"dir", b"symlink"]):
    os.utime(os.path.join(root, name), ns=(1, 1_234_567_890_123_456_789 + i), follow_symlinks=False)
os.utime(os.path.join(root, b"empty-file"), ns=(0, -86400 * 10**9))
PY
if [ "$(id -u)" = 0 ]; then
	mknod "$src/char" c 1 3
	mknod "$src/block" b 7 200
	chown 1234:5678 "$src/executable"
	chown -h 4321:8765 "$src/symlink"
	setfattr -n trusted.note -v hidden "$src/plain"
	setcap cap_net_raw=ep "$src/executable" 2>/dev/null ||
		setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 "$src/executable"
fi
cd "$T" || exit 1

# ---- in by folder, out by tar, and in again

bough_ok 'create from the folder' create a --dir "$src"
a=$out
same_tree 'the workspace is the folder' "$src" "$a"
is 'holes are holes' "$(du -k "$a/sparse" | awk '{ print $1 < 100 }')" 1
bough_ok 'save' save a --as s
for f in tar tar.zst; do
	bough_ok "export as $f" export s -o "$T/s.$f"
	bough_ok "import of $f" import "$T/s.$f" --as "in-$f"
	bough_ok "create from it" create "w-${f//./-}" --from "in-$f"
	same_tree "$f round trip" "$src" "$out"
done
run rsync -aHAXn --delete --itemize-changes "$src/" "$(at w-tar)/"
is 'rsync finds no difference' "$out" ''

# Names of xattrs that tar can only hold encoded; GNU tar and libarchive do it differently.
mkdir "$T/odd"
python3 - "$T/odd/file" <<'PY'
import os, sys
open(sys.argv[1], "w").close()
for name in b"user. blank", b"user.100%", b"user.%41", b"user.a=b", b"user.\xff\n", b"user.\xc3\xbc":
    try:
        os.setxattr(sys.argv[1], name, b"odd")
    except OSError:
        pass # not every host takes every name
PY
bough_ok 'odd names of xattrs' create odd --dir "$T/odd"
same_tree 'from a folder' "$T/odd" "$out"
bough_ok 'export' export odd -o "$T/odd.tar"
bough_ok 'and import' create odd-2 --tar "$T/odd.tar"
same_tree 'keep them' "$T/odd" "$out"
tar --xattrs --numeric-owner -cf "$T/odd-gnu.tar" --format=pax -C "$T/odd" .
bough_ok 'as GNU tar writes them' create odd-3 --tar "$T/odd-gnu.tar"
same_tree 'they are the same' "$T/odd" "$out"

mkdir "$T/by-tar"
tar --xattrs --xattrs-include='*' -xpf "$T/s.tar" -C "$T/by-tar" --numeric-owner
same_tree 'GNU tar reads what was exported' "$src" "$T/by-tar"
tar --xattrs --xattrs-include='*' --numeric-owner -cSf "$T/gnu.tar" --format=pax -C "$src" .
bough_ok 'GNU tar is read' create gnu --tar "$T/gnu.tar"
same_tree 'pax of GNU tar' "$src" "$(at gnu)"
tar --numeric-owner -cSf "$T/old.tar" --format=gnu -C "$src" .
bough_ok "GNU tar's own format is read" create old --tar "$T/old.tar"
is 'its files are there' "$(cd "$(at old)" && find . -type f -print0 | sort -z | xargs -0 sha256sum)" \
	"$(cd "$src" && find . -type f -print0 | sort -z | xargs -0 sha256sum)"
bough_ok 'the tar of a workspace as it is' export a -o "$T/live.tar"
cmp -s "$T/live.tar" "$T/s.tar"
is 'is the tar of its snapshot' $? 0

# ---- streams

run bash -c "bough export s | bough import - --as piped"
is 'export into import' $code 0
is 'gives one content' "$(bough snapshots show piped --json | jq .stored_bytes | awk '{ print $1 < 300000 }')" 1
for z in gzip 'xz -0' 'zstd -q'; do
	$z -c "$T/s.tar" >"$T/z"
	bough_ok "a tar of ${z%% *}" import "$T/z" --as "z-${z%% *}"
done
run bash -c "bough export s | head -c 1000 | wc -c"
is 'a reader that leaves' "$out" 1000
bough_ok 'the daemon goes on' ls

# ---- zip and cpio hold less. libarchive reads a backslash in a zip's name as a slash, since
# there are programs that write it so.

contents() { (cd "$1" && find . -type f ! -name '*back' -print0 | sort -z | xargs -0 sha256sum); }
for f in zip cpio; do
	bough_ok "export as $f" export s --format $f -o "$T/s.$f"
	bough_ok "import of $f" import "$T/s.$f" --as "in-$f"
	bough_ok 'create from it' create "w-$f" --from "in-$f"
	is "$f: contents and names" "$(contents "$out")" "$(contents "$src")"
	is "$f: symlinks" "$(readlink "$(at "w-$f")/symlink")" plain
	is "$f: modes" "$(stat -c %a "$(at "w-$f")/executable")" 755
	is "$f: times" "$(stat -c %Y "$(at "w-$f")/dir/linked")" 1234567890
	is "$f: a time before 1970 is the first there is" "$(stat -c %Y "$(at "w-$f")/empty-file")" 0
done
mkdir "$T/by-cpio" && (cd "$T/by-cpio" && cpio -idm --quiet <"$T/s.cpio")
is 'cpio reads what was exported' "$(sha256sum <"$T/by-cpio/big")" "$(sha256sum <"$src/big")"
ok 'unzip finds it whole' unzip -tq "$T/s.zip"

# ---- the output file

bough_fails 'export to nowhere' 3 'nowhere' export s -o "$T/nowhere/x"
bough_fails 'export of nothing' 3 'no workspace, snapshot or sandbox' export nothing -o "$T/no.tar"
ok 'leaves no file' test ! -e "$T/no.tar"
is 'nor a temporary one' "$(find "$T" -maxdepth 1 -name '.*.tmp')" ''
run script -qec 'bough export s' /dev/null
like 'export to a terminal is refused' "$out" 'stdout is a terminal'
bough_ok 'export with JSON' export s -o "$T/j.tar" --json
is 'its size' "$(json .bytes)" "$(stat -c %s "$T/j.tar")"
run bash -c 'bough export s >/dev/full'
is 'export to a full disk' $code 6
bough_ok 'to a device as it is' export s -o /dev/null
ok 'which is still one' test -c /dev/null

# ---- what the caller may not read

if [ "$(id -u)" = 0 ] && setpriv --reuid=65534 --clear-groups true 2>/dev/null; then
	mkdir -m 777 "$T/user"
	chmod 711 "$T"
	run setpriv --reuid=65534 --regid=65534 --clear-groups \
		env BOUGH_ROOT="$T/user/root" "$(command -v bough-pack)" "$src"
	is 'a folder with an unreadable file is not packed' $code 1
fi
fsck_clean

# ---- what a format can't hold is counted

bough_ok 'a workspace with a socket' create sock
(cd "$(at sock)" && python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("s")' &&
	mkfifo fifo && echo x >one && ln one two && setfattr -n user.x -v 1 one)
bough_ok 'export as tar' export sock -o "$T/sock.tar"
is 'tells of the socket' "$err" "bough: export: tar can't hold it all: 1 socket left out"
bough_ok 'export as zip' export sock -o "$T/sock.zip"
like 'tells of all that is lost' "$err" "^bough: export: zip can't hold it all: 1 socket left out, \
1 device or fifo left out, [0-9]+ extended attributes? dropped, 1 hard link became a file of its own, [0-9]+ times cut to whole seconds$"
bough_ok 'quiet' export sock -q -o "$T/sock.zip"
is 'it is' "$err" ''
run bash -c 'bough export sock | tar tf - | wc -l'
is 'to stdout' "$out:$err" "4:bough: export: tar can't hold it all: 1 socket left out"
bough_ok 'with JSON' export sock --json -o "$T/sock.zip"
is 'in the document' "$(json '.lost | "\(.sockets) \(.specials) \(.hard_links) \(.holes)"')" '1 1 1 0'
bough_ok 'nothing to tell' export sock --format cpio -o "$T/sock.cpio" --json
is 'cpio holds hard links and fifos' "$(json '.lost | "\(.sockets) \(.specials) \(.hard_links)"')" '1 0 0'

# ---- broken off in the middle: by a byte of the store that went bad

mkdir "$T/bad" && head -c 3000000 /dev/urandom >"$T/bad/noise"
(cd "$T/bad" && seq 200 | xargs touch)
bough_ok 'a snapshot' import - --as bad < <(tar cf - -C "$T/bad" .)
bough_ok 'down' down
pack=$(find "$BOUGH_ROOT/store/packs" -type f -printf '%T@ %s %p\n' | awk '$2 > 2000000' | sort -n | tail -n 1 | cut -d' ' -f3)
at=$(($(stat -c %s "$pack") - 1500000)) # in the noise, which came last
printf '\x55\xaa\x55\xaa' | dd of="$pack" bs=1 seek="$at" conv=notrunc status=none
bough_ok 'up' up
echo precious >"$T/bad.tar"
bough_fails 'export of what is damaged says why' 1 "the archive isn't whole: .*noise" export bad -o "$T/bad.tar"
is 'the file is what it was' "$(cat "$T/bad.tar")" precious
is 'no half one is there' "$(find "$T" -maxdepth 1 -name '.*.tmp')" ''
run bash -c 'bough export bad | wc -c; exit ${PIPESTATUS[0]}'
is 'to stdout, it fails too' $code 1
like 'with the reason' "$err" "^bough: export: the archive isn't whole: .*noise.*"
run bough export bad -o "$T/new.tar" --json
is 'the error in JSON' "$(json '"\(.exit) \(.error.code)"')" '1 internal'
ok 'and no file' test ! -e "$T/new.tar"

# An export that is killed leaves nothing, where files without a name exist.
bough export bad -o "$T/killed.tar" & pid=$!
kill -9 $pid
wait $pid 2>/dev/null
is 'nothing of a killed one' "$(find "$T" -maxdepth 1 -name '*killed*')" ''

# An archive that is cut keeps what came whole before, wherever the cut is.
bough_ok 'a workspace for what is cut' create cut -q
mkdir "$T/whole" && for i in $(seq 100 399); do printf '%3000s' "$i" >"$T/whole/f$i"; done
bough-pack "$T/whole" >"$T/whole.tar"
for n in 1000000 1000512 1001024 1001536 1002048 1002560 1003072 1003584 1004096; do
	mkdir "$(at cut)/$n"
	head -c $n "$T/whole.tar" | curl -sS -o /dev/null --unix-socket "$BOUGH_ROOT/run/boughd.sock" -T - \
		"http://d/v1/workspaces/cut/archive/$n"
	is "cut at $n" "$(($(find "$(at cut)/$n" -type f -size 3000c | wc -l) >= 215)) $(find "$(at cut)/$n" -type f -not -size 3000c | wc -l)" '1 0'
done
done_testing
