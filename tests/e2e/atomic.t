#!/bin/bash
# An archive extracted in one step: all of it or nothing.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/ask.sh"

start() { boughd --root "$BOUGH_ROOT" --daemon; }
start || bail 'boughd does not start'
sock=$BOUGH_ROOT/run/boughd.sock
put() { # NAME PATH FILE [QUERY]: $status
	status=$(curl -sS -m 200 --unix-socket "$sock" -o "$T/.body" -w '%{http_code}' -T "$3" "http://d/v1/workspaces/$1/archive/$2?${4-}" 2>"$T/.err")
}
gives() { # DESCRIPTION STATUS NAME PATH FILE [QUERY]
	local what=$1 want=$2
	shift 2
	put "$@"
	if [ "$status" = "$want" ]; then pass "$what"; else fail "$what"; diag "status $status: $(cat "$T/.body" "$T/.err")"; fi
}

mkdir -p tree/sub/deep tree/empty
for i in $(seq 300); do echo "file $i" >"tree/sub/f$i"; done
head -c 3000000 /dev/urandom >tree/large
ln -s ../large tree/sub/link
ln tree/sub/f1 tree/sub/deep/hard
mkfifo tree/fifo
truncate -s 1M tree/holes
chmod 0750 tree/sub
chmod 0600 tree/sub/f2
touch -d '2020-01-02 03:04:05.678' tree/sub tree/sub/f3 tree/empty
setfattr -n user.of -v dir tree/sub 2>/dev/null
setfattr -n user.of -v file tree/sub/f4 2>/dev/null
tar -C tree --xattrs -cf all.tar .
bough_ok 'a workspace' create w -q
at=$(at w)
mkdir "$at/to"
echo mine >"$at/to/mine"
ln -s nowhere "$at/to/large"
mkdir "$at/to/sub"
gives 'an archive in one step' 200 w to all.tar atomic=true
is 'its members are counted' "$(jq .members "$T/.body")" "$(tar tf all.tar | wc -l)"
is 'what was there stays' "$(cat "$at/to/mine")" mine
rm "$at/to/mine"
touch -r tree "$at/to"
same_tree 'the rest is the archive'\''s' tree "$at/to"
is 'hard links too' "$(stat -c %h "$at/to/sub/f1")" 2
is 'times of folders' "$(stat -c %Y "$at/to/sub")" "$(stat -c %Y tree/sub)"
gives 'once more' 200 w to all.tar atomic=true
touch -r tree "$at/to"
same_tree 'is the same' tree "$at/to"
find tree -depth -mindepth 1 -newermt '2000-01-01' -type p -delete
(cd tree && zip -qr ../all.zip . 2>/dev/null) || python3 -c "import shutil; shutil.make_archive('all', 'zip', 'tree')"
mkdir "$at/zip"
gives 'a zip' 200 w zip all.zip atomic=true
is 'is there' "$(cat "$at/zip/sub/f7")" 'file 7'
tar -C tree --format=newc -cf /dev/null . 2>/dev/null
(cd tree && find . | cpio -o -H newc >../all.cpio 2>/dev/null) && mkdir "$at/cpio" && {
	gives 'a cpio, whose links bring the content' 200 w cpio all.cpio atomic=true
	is 'it is there' "$(cat "$at/cpio/sub/deep/hard")" 'file 1'
}

# ---- what it costs

n=$(tar tf all.tar | wc -l)
pid=$(cat "$BOUGH_ROOT/run/boughd.pid" 2>/dev/null || pgrep -f -- "boughd --root $BOUGH_ROOT" | head -1)
before=$(ls "/proc/$pid/fd" | wc -l)
mkfifo slow
mkdir "$at/slow"
put w slow slow atomic=true &
exec 9>slow
head -c -10240 all.tar >&9 # all members, but not the end
sleep 1
while_open=$(ls "/proc/$pid/fd" | wc -l)
tail -c 10240 all.tar >&9
exec 9>&-
wait $!
is 'descriptors of boughd do not grow with the files' "$((while_open - before < 20))" 1
is 'it is there in the end' "$(find "$at/slow" -mindepth 1 | wc -l)" $((n - 1))

# ---- piece by piece, what comes before a failure stays

mkdir "$at/part"
mkdir -p clash/sub/f1
tar -C tree -cf part.tar sub/f2 sub/f3 && tar -C clash -rf part.tar sub/f1
tar -C tree -cf with.tar sub/f1
gives 'a file, first' 200 w part with.tar
gives 'members of which the last can not be' 409 w part part.tar
like 'it is named' "$(cat "$T/.body")" "'part/sub/f1': what is no folder is in its place"
is 'those before it stay' "$(ls "$at/part/sub" | tr '\n' ' ')" 'f1 f2 f3 '
used=$(bough show w --json | jq .used_bytes)
run bough set w --quota $((used + 2000))
mkdir "$at/full"
gives 'over the quota of bytes' 507 w full all.tar
left=$(bough show w --json | jq .used_bytes)
is 'the quota holds' "$((left <= used + 2000))" 1
is 'what had room is there' "$(($(find "$at/full" -type f | wc -l) > 0))" 1
gives 'in one step it is refused whole' 507 w full all.tar atomic=true
is 'and nothing is charged for it' "$(bough show w --json | jq .used_bytes)" "$left"
run bough set w --quota none

# ---- nothing

mkdir "$at/none"
nothing() { is "$1: nothing is there" "$(ls "$at/none")" ''; }
head -c 2000000 all.tar >cut.tar
gives 'one that is cut off' 400 w none cut.tar atomic=true
nothing 'cut off'
cat >"$T/cut.py" <<'PY'
import re, sys, time
from ask import Unix, check

data = open(sys.argv[2], "rb").read()
PUTS = r'bough_http_requests_total{method="PUT",path="/v1/workspaces/{}/archive/{...}",status="%s"} '
PUTS = re.compile(re.escape(PUTS).replace("%s", r"(\dxx)") + r"(\d+)")

def ended():
    """How many puts of archives, by the class of their status."""
    c = Unix("d")
    c.request("GET", "/metrics")
    text = c.getresponse().read().decode()
    c.close()
    return {s: int(n) for s, n in PUTS.findall(text)}

for chunked in (False, True):
    was, c = ended(), Unix("d")
    c.putrequest("PUT", "/v1/workspaces/w/archive/none?atomic=true")
    c.putheader(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(data)))))
    c.endheaders(b"%x\r\n" % len(data) + data[:-512] if chunked else data[:-512])
    time.sleep(1) # for all of that to be read
    c.close()
    until = time.monotonic() + 30
    while sum(ended().values()) == sum(was.values()) and time.monotonic() < until:
        time.sleep(0.02)
    now = ended()
    check("an upload that breaks off in the padding of its archive is none", now["2xx"] == was["2xx"] and
          sum(now.values()) == sum(was.values()) + 1, was, now)
PY
asks 2 "$T/cut.py" all.tar
nothing 'broken off in the padding'
tar -C tree -b 1 -cf bare.tar .
gives 'one without padding is whole' 200 w none bare.tar atomic=true
rm -r "$at/none" && mkdir "$at/none"
cp all.tar bad.tar
ln -sfn /etc evil
tar -rf bad.tar -P --transform 's,evil,../evil,' evil
gives 'one with a hostile name at its end' 400 w none bad.tar atomic=true
nothing 'hostile'
mkdir -p clash/sub/f1
tar -C tree -cf clash.tar sub/f2 && tar -C clash -rf clash.tar sub/f1
mkdir "$at/none/sub"
echo old >"$at/none/sub/f1"
gives 'a folder where a file is' 409 w none clash.tar atomic=true
is 'only what was there is' "$(cd "$at/none" && find . -type f)" ./sub/f1
rm -r "$at/none/sub"
used=$(bough show w --json | jq .used_inodes)
run bough set w --inodes $((used + 200))
gives 'over the quota of files' 507 w none all.tar atomic=true
nothing 'over the quota'
is 'and nothing is charged' "$(bough show w --json | jq .used_inodes)" "$used"
run bough set w --inodes none
torn=0
for i in 1 2 3 4 5 6; do
	put w none all.tar atomic=true &
	sleep "0.$((RANDOM % 4))$((RANDOM % 9))"
	who=bough-fs
	[ $((i % 2)) = 0 ] || who=boughd
	kill_hard $who
	[ $who = bough-fs ] || wait_for 10 start 2>/dev/null
	wait $!
	wait_for 10 test -e "$at/none"
	n=$(find "$at/none" -mindepth 1 | wc -l)
	[ "$n" = 0 ] || [ "$n" = "$(($(tar tf all.tar | wc -l) - 1))" ] || torn=$((torn + 1))
	rm -rf "$at/none"/*
done
is 'killed in the middle: all or nothing' $torn 0

# ---- its room in the quota is kept while it comes

bough_ok 'one with a quota' create kept --quota 10M -q
kept=$(at kept)
head -c 6000000 /dev/urandom >six
head -c 1000000 /dev/urandom >one
tar -cf kept.tar six one
begin() { # the archive, but for its end
	rm -f slow && mkfifo slow && mkdir -p "$kept/to"
	put kept to slow atomic=true &
	putting=$!
	exec 9>slow
	head -c 6500000 kept.tar >&9
	wait_for 20 not room 3500000
}
room() { # BYTES: whether so many can be written
	local r=0
	head -c "$1" /dev/zero >"$kept/mine" 2>/dev/null || r=1
	rm -f "$kept/mine"
	return $r
}
ok 'there is room' room 10485760
begin
is 'nothing is there yet' "$(ls "$kept/to")" ''
ok 'what is left can be written' wait_for 10 room 3485760
ok 'and not a byte more' not room 3485761
head -c 3000000 /dev/zero >"$kept/before"
tail -c +6500001 kept.tar >&9
exec 9>&-
wait $putting
ok 'the archive comes, beside that' cmp six "$kept/to/six"
is 'and counts as it is' "$(bough show kept --json | jq .used_bytes)" 10000000
ok 'what is left is there for all' wait_for 10 room 485760
ok 'and no more' not room 485761
rm -r "$kept/before" "$kept/to"
bough_ok 'one that has room for just one block' create block --quota 4K -q
printf 'ten bytes.' >hole && truncate -s 100000 hole
tar -S --hole-detection=raw -cf hole.tar hole # in units of 512 bytes
mkdir "$(at block)/to"
gives 'a file that ends in a hole fits to the byte' 200 block to hole.tar atomic=true
ok 'and is there' cmp hole "$(at block)/to/hole"
is 'it counts as its block' "$(bough show block --json | jq .used_bytes)" 4096
python3 - <<'END'
import tarfile
with tarfile.open('vast.tar', 'w', format=tarfile.PAX_FORMAT) as t:
    t.add('one')
    vast = tarfile.TarInfo('vast')
    vast.pax_headers = {'size': str(2 ** 63 - 1024)}
    t.fileobj.write(vast.tobuf(tarfile.PAX_FORMAT))
END
mkdir "$kept/to"
gives 'a head that says all but 2^63 bytes is over the quota' 507 kept to vast.tar atomic=true
is 'and nothing of it is there' "$(ls "$kept/to")" ''
for how in client boughd bough-fs; do
	begin
	[ $how = client ] || kill_hard $how
	[ $how != boughd ] || wait_for 10 start 2>/dev/null
	exec 9>&-
	wait $putting
	ok "cut off ($how): all room is free again" wait_for 20 room 10485760
	is "nothing of it is there ($how)" "$(ls "$kept/to")" ''
done

# ---- folders and links count in it, too

bough_ok 'one with a quota of files' create few -q
few=$(at few)
mkdir "$few/to" links
for i in $(seq 20); do mkdir "links/d$i" && ln -s nowhere "links/d$i/l"; done
(cd links && tar -cf ../links.tar d*/l) # the names alone lead through the folders
tar -C links -cf whole.tar .
used=$(bough show few --json | jq .used_inodes)
run bough set few --inodes $((used + 61))
makes() { # COUNT: whether so many files can be made
	local i r=0
	for i in $(seq "$1"); do { : >"$few/mine$i"; } 2>/dev/null || r=1; done
	rm -f "$few"/mine*
	return $r
}
ok 'there is room for files' makes 61
rm -f slow && mkfifo slow
put few to slow atomic=true &
putting=$!
exec 9>slow
head -c -1024 links.tar >&9
ok 'room is kept for folders and links as they come' wait_for 10 not makes 22
ok 'what is left can be made' wait_for 10 makes 21
for i in $(seq 21); do : >"$few/mine$i"; done
is 'nothing is there yet' "$(ls "$few/to")" ''
tail -c 1024 links.tar >&9
exec 9>&-
wait $putting
is 'the archive comes, beside that' "$(find "$few/to" -type l | wc -l)" 20
is 'and counts as it is' "$(bough show few --json | jq .used_inodes)" $((used + 61))
rm "$few"/mine*
gives 'folders that are there need no room' 200 few to whole.tar atomic=true
fsck_clean
done_testing
