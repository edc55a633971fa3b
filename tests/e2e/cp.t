#!/bin/bash
# bough cp of folders, archives and large files: trees as they were, hostile archives, connections
# that break.
. "${0%/*}/lib.sh"
need_fuse
export XDG_STATE_HOME=$T/state # of copies that broke off

# All that a copy keeps, one line for each file: type, mode, owner, size, links, time, target, name.
tree() { # DIR
	(cd "$1" && find . -printf '%y %m %U:%G %n %T@ %l %P\0' | sort -z | tr '\0\n' '\n?')
	(cd "$1" && find . -type f -print0 | sort -z | xargs -0r sha256sum)
}
same() { # DESCRIPTION DIR DIR
	is "$1" "$(tree "$3")" "$(tree "$2")"
}
no_such() { [ ! -e "$1" ] && [ ! -L "$1" ]; }

mkdir -p src/{sub/deep,empty,closed}
printf 'one\n' >src/sub/one && chmod 640 src/sub/one
printf '#!/bin/sh\n' >src/tool && chmod 4755 src/tool
ln src/sub/one src/hard && ln -s sub/one src/link && ln -s /nowhere src/sub/dangling
head -c 300000 /dev/urandom >src/sub/deep/noise
truncate -s 3M src/holes && printf x | dd of=src/holes bs=1 seek=1500000 conv=notrunc status=none
printf odd >src/$'odd\n\t%41 \xff name' && mkdir "src/ü e" && mkfifo src/fifo
setfattr -n user.k%=1 -v value src/sub/one 2>/dev/null
chmod 2751 src/sub && chmod 500 src/closed
find src -depth -exec touch -hd '2001-02-03 04:05:06.123456789' {} +
touch -d '1969-12-31 23:59:50.25' src/tool

bough_ok 'a workspace' create w -q
at=$(at w)
bough_ok 'a folder in, as what is not there' cp src w:new
same 'is the same' src "$at/new"
bough_ok 'out again' cp w:new out
same 'is the same' src out
is 'holes too' "$(($(stat -c %b out/holes) < 1000))" 1
is 'xattrs too' "$(getfattr --only-values -n user.k%=1 out/sub/one 2>/dev/null)" \
	"$(getfattr --only-values -n user.k%=1 src/sub/one 2>/dev/null)"
mkdir into
bough_ok 'into a folder that is there' cp w:new/ into
same 'under its name' src into/new
bough_ok 'into one of the workspace' cp src/ w:
same 'under its name' src "$at/src"
echo old >into/new/sub/one && touch into/new/more && ln -sf "$T/src/tool" into/new/sub/dangling
bough_ok 'over an older copy' cp w:new into
is 'files are replaced' "$(cat into/new/sub/one into/new/hard)" $'one\none'
ok 'what is not in it stays' test -e into/new/more
is 'and links are not written through' "$(readlink into/new/sub/dangling)" /nowhere
mkdir content && bough_ok 'the content of a folder' cp w:new/sub/. content
ok 'without its name' cmp -s content/deep/noise src/sub/deep/noise
is 'and without its mode' "$(stat -c %a content)" 755
bough_ok 'its content in' cp src/sub/. w:empty/
ok 'is there' cmp -s "$at/empty/deep/noise" src/sub/deep/noise

bough_ok 'save' save w --as s -q
bough_ok 'another' create v -q
bough_ok 'from a snapshot to a workspace' cp s:new v:
same 'is the same' src "$(at v)/new"
bough_ok 'a file from one to another' cp s:new/tool v:new/empty
is 'with its mode' "$(stat -c %a "$(at v)/new/empty/tool")" 755
bough_ok 'a workspace as a whole' cp s: whole
same 'its folder is the same' src whole/new
run bough cp w:new json --json
is 'as JSON' "$(json .to)" json
like 'its members' "$(json .members)" '^1[0-9]$'
bough cp w:new/sub - | tar tf - | sort | head -3 >list
is 'a folder to stdout is an archive' "$(tr '\n' ' ' <list)" './ ./dangling ./deep/ '
tar cf - -C src . | bough cp - w:tar/
ok 'an archive from stdin' cmp -s "$at/tar/sub/deep/noise" src/sub/deep/noise

bough_fails 'no such folder' 3 'none' cp w:none x
bough_fails 'nor here' 3 'none' cp none w:
bough_fails 'no folder to put it into' 3 'nowhere' cp w:new nowhere/x
ok 'makes nothing' no_such nowhere
echo x >file
bough_fails 'a folder over a file' 1 'file' cp w:new file
bough_fails 'a folder over a file of a workspace' 1 'new/tool' cp src w:new/tool
bough_fails 'into itself' 2 'itself' cp w:new w:new/sub
bough_fails 'over itself' 2 'itself' cp w:new w:
bough_fails 'an archive that is none' 1 'archive' cp - w:new </dev/null
mkdir -p in2/new && ln -s "$T" in2/new/sub
run bough cp w:new in2
is 'a link where a folder is to be' "$code" 1
like 'is told' "$err" "'./sub/': a file is in its place"
ok 'is not followed' no_such "$T/deep"
ln -s "$T/content" in2/trap && mkdir in3 && ln -s "$T/content" in3/new
bough_fails 'nor at the top' 1 'no folder' cp w:new in3

# Hostile streams: what boughd never sends.
cat >hostile.py <<'EOF'
import io, sys, tarfile
def add(t, name, kind=tarfile.REGTYPE, data=b'', link=''):
    m = tarfile.TarInfo(name)
    m.type, m.size, m.linkname, m.mode = kind, len(data), link, 0o755
    t.addfile(m, io.BytesIO(data))
kinds = {
    'up': lambda t: add(t, '../evil', data=b'x'),
    'deep': lambda t: add(t, 'a/../../evil', data=b'x'),
    'absolute': lambda t: add(t, sys.argv[2] + '/evil', data=b'x'),
    'link': lambda t: (add(t, 'l', tarfile.SYMTYPE, link='..'), add(t, 'l/evil', data=b'x')),
    'linkdir': lambda t: (add(t, 'l', tarfile.SYMTYPE, link='..'), add(t, 'l', tarfile.DIRTYPE)),
    'hard': lambda t: add(t, 'h', tarfile.LNKTYPE, link='../file'),
    'hardlink': lambda t: (add(t, 'l', tarfile.SYMTYPE, link='..'),
                           add(t, 'h', tarfile.LNKTYPE, link='l/file')),
    'top': lambda t: add(t, './', tarfile.SYMTYPE, link='..'),
}
t = tarfile.open(fileobj=sys.stdout.buffer, mode='w|')
kinds[sys.argv[1]](t)
t.close()
EOF
for kind in up deep absolute link linkdir hard hardlink top; do
	mkdir "h-$kind"
	python3 hostile.py $kind "$T" >h.tar
	run bough-pack --extract "h-$kind" <h.tar
	is "hostile: $kind" "$code" 1
	ok 'and nothing came of it' no_such "$T/evil"
	ok 'nor of what is there' [ "$(stat -c %h file)" = 1 ]
done
bough-pack src >whole.tar && mkdir cut
head -c 200000 whole.tar >cut.tar
run bough-pack --extract cut <cut.tar
is 'a stream that is cut' "$code" 1

# Connections that break: boughd goes, and another one answers.
head -c 120000000 /dev/urandom >big && chmod 600 big
daemon=$(pids_of boughd)
bough cp big w:big -q &
pid=$!
until [ -n "$(find "$BOUGH_ROOT/uploads" -name '*.data' -size +1000k 2>/dev/null)" ] ||
	[ ! -d "/proc/$pid" ]; do :; done
kill -9 "$daemon"
came=$(find "$BOUGH_ROOT/uploads" -name '*.data' -printf %s)
wait $pid
is 'an upload outlives boughd' "$?" 0
like 'that ended in its middle' "$((${came:-0} > 0 && ${came:-0} < 120000000))" 1
ok 'its bytes are the same' cmp -s big "$(at w)/big"
is 'its mode too' "$(stat -c %a "$(at w)/big")" 600
is 'nothing is kept' "$(find "$BOUGH_ROOT/uploads" -name '*.data' | wc -l)" 0
bough cp w:big - | { head -c 5000000; kill_hard boughd; cat; } >got
ok 'a download outlives it' cmp -s big got
bough_ok 'boughd is back' ls -q
bough cp src w:dies &
kill_hard boughd
wait $!
bough_ok 'a folder can be copied once more' cp src/. w:dies
ok 'and is whole' diff -r --no-dereference -x fifo src "$at/dies"
done_testing
