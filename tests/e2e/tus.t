#!/bin/bash
# Uploads that can be resumed: tus 1.0.0 by curl, as its document has it.
. "${0%/*}/lib.sh"
need_fuse

mkdir -p "$BOUGH_ROOT"
echo '{"look_every_s": 1}' >"$BOUGH_ROOT/config.json"
start() { boughd --root "$BOUGH_ROOT" --daemon; }
start || bail 'boughd does not start'
sock=$BOUGH_ROOT/run/boughd.sock
tus() { # METHOD PATH [CURL ARGUMENT…]: $status and $head
	local method=$1 path=$2
	shift 2
	rm -f "$T/.body" "$T/.head"
	status=$(curl -sS -m 200 --unix-socket "$sock" -X "$method" -o "$T/.body" -D "$T/.head" -w '%{http_code}' \
		-H 'Tus-Resumable: 1.0.0' "$@" "http://d$path" 2>"$T/.err")
	head=$(tr -d '\r' <"$T/.head")
}
header() { sed -n "s/^$1: //Ip" <<<"$head" | tail -n 1; }
gives() { # DESCRIPTION STATUS METHOD PATH …
	local what=$1 want=$2
	shift 2
	tus "$@"
	if [ "$status" = "$want" ]; then pass "$what"; else
		fail "$what"
		diag "$*: status $status for $want: $(cat "$T/.body" "$T/.err" 2>/dev/null)"
	fi
}
patch() { # DESCRIPTION STATUS OFFSET FILE [CURL ARGUMENT…]: to $url
	local what=$1 want=$2 offset=$3 file=$4
	shift 4
	gives "$what" "$want" PATCH "$url" -H "Upload-Offset: $offset" -H 'Content-Type: application/offset+octet-stream' \
		--data-binary "@$file" "$@"
}
create() { # DESCRIPTION LENGTH PATH
	gives "$1" 201 POST /v1/workspaces/w/uploads -H "Upload-Length: $2" -H "Upload-Metadata: path $(printf %s "$3" | base64 -w0)"
	url=$(header Location)
}

bough_ok 'a workspace' create w -q
at=$(at w)
head -c 1000000 /dev/urandom >"$T/all"
head -c 300000 "$T/all" >"$T/one"
tail -c +300001 "$T/all" >"$T/rest"

gives 'OPTIONS' 204 OPTIONS /v1/workspaces/w/uploads
is 'tells what it can' "$(header Tus-Extension) $(header Tus-Version)" 'creation,checksum,expiration,termination 1.0.0'
announce() { # DESCRIPTION STATUS LENGTH: with a key
	gives "$1" "$2" POST /v1/workspaces/w/uploads -H "Upload-Length: $3" -H "Upload-Metadata: path $(printf key | base64)" \
		-H 'Idempotency-Key: k'
}
announce 'creation with a key' 201 10
first=$(header Location)
announce 'once more' 201 10
is 'tells where it was' "$(header Idempotency-Replayed) $(header Location)" "true $first"
gives 'which is there' 200 HEAD "$(header Location)" -I
announce 'of another length' 422 11
gives 'it goes' 204 DELETE "$first"
create 'creation' 1000000 up/load
like 'its Location' "$url" '^/v1/workspaces/ws_[a-z2-7]{10}/uploads/up_[a-z2-7]{10}$'
gives 'HEAD' 200 HEAD "$url" -I
is 'nothing yet' "$(header Upload-Offset) $(header Upload-Length) $(header Cache-Control)" '0 1000000 no-store'
like 'it expires' "$(header Upload-Expires)" ' GMT$'
patch 'the first bytes' 204 0 "$T/one"
is 'counted' "$(header Upload-Offset)" 300000
ok 'the file is not there yet' test ! -e "$at/up"
patch 'another offset' 409 0 "$T/one"
patch 'more than it has' 413 300000 "$T/all"
patch 'a wrong checksum' 460 300000 "$T/one" -H "Upload-Checksum: sha1 $(printf x | openssl dgst -sha1 -binary | base64)"
gives 'counts for nothing' 200 HEAD "$url" -I
is 'as before' "$(header Upload-Offset)" 300000
patch 'a checksum that is none' 400 300000 "$T/one" -H 'Upload-Checksum: sha1 x'
patch 'an algorithm that is none' 400 300000 "$T/one" -H 'Upload-Checksum: md5 aaaa'
gives 'another type' 415 PATCH "$url" -H 'Upload-Offset: 300000' --data-binary @"$T/rest"
kill_hard boughd
wait_for 10 start 2>/dev/null || bail 'boughd does not start again' # its last thread may hold the lock
gives 'HEAD after a kill' 200 HEAD "$url" -I
is 'is where it was' "$(header Upload-Offset)" 300000
patch 'the rest, with a checksum' 204 300000 "$T/rest" -H "Upload-Checksum: sha256 $(openssl dgst -sha256 -binary <"$T/rest" | base64)"
ok 'it is whole' cmp -s "$T/all" "$at/up/load"
gives 'HEAD of what is done' 200 HEAD "$url" -I
is 'says so' "$(header Upload-Offset)" 1000000
patch 'nothing can be added' 409 1000000 /dev/null
ok 'only the record is kept' test -z "$(ls "$BOUGH_ROOT/uploads" | grep data)"

# ---- what breaks off is kept; two at once

create 'another' 1000000 two
mkfifo "$T/pipe" && exec 5<>"$T/pipe"
curl -sS --unix-socket "$sock" -X PATCH -T "$T/pipe" -H 'Tus-Resumable: 1.0.0' -H 'Upload-Offset: 0' \
	-H 'Content-Type: application/offset+octet-stream' "http://d$url" >/dev/null 2>&1 5>&- &
curl=$!
timeout 20 cat "$T/one" >&5
has() { tus HEAD "$url" -I; [ "$(header Upload-Offset)" -gt 0 ]; }
ok 'bytes are kept as they come' wait_for 10 has
patch 'a second one meanwhile' 423 "$(header Upload-Offset)" "$T/rest"
gives 'nor can it be ended' 423 DELETE "$url"
kill $curl
wait $curl 2>/dev/null
exec 5>&-
all_of_it() { tus HEAD "$url" -I; [ "$(header Upload-Offset)" = 300000 ]; }
ok 'what came before it broke off is kept' wait_for 10 all_of_it
patch 'it goes on' 204 300000 "$T/rest"
ok 'it is whole' cmp -s "$T/all" "$at/two"

# ---- a large one becomes the file, without a copy, once

head -c 3000000 /dev/urandom >"$T/large"
head -c 300000 "$T/large" >"$T/one"
tail -c +300001 "$T/large" >"$T/rest"
create 'a large one' 3000000 large
inode=$(stat -c %i "$BOUGH_ROOT/uploads/${url##*/}.data")
patch 'a part' 204 0 "$T/one"
patch 'the rest' 204 300000 "$T/rest"
ok 'it is whole' cmp -s "$T/large" "$at/large"
of_inode() { find "$BOUGH_ROOT/$1" -inum "$inode" | wc -l; }
is 'its bytes are those that came' "$(of_inode layers) $(of_inode uploads)" '1 0'
printf x | dd of="$at/large" bs=1 seek=5 conv=notrunc status=none
patch 'nothing can be added' 409 3000000 /dev/null
is 'nor is it put again' "$(head -c 6 "$at/large" | tail -c 1)" x
rm "$at/large"
freed() { sync -f "$BOUGH_ROOT/layers" && [ "$(of_inode layers)" = 0 ]; }
ok 'deleted, its bytes go' wait_for 15 freed
create 'one that is put by two servers' 3000000 large
data=$BOUGH_ROOT/uploads/${url##*/}.data
patch 'a part' 204 0 "$T/one"
patch 'the rest' 204 300000 "$T/rest"
# As if boughd had been killed before it noted that: the record says what was asked for.
record=$BOUGH_ROOT/uploads/${url##*/}.json
inode=$(stat -c %i "$(find "$BOUGH_ROOT/layers" -type f -name 'f[0-9a-f]*' -size 3000000c)")
ln "$(find "$BOUGH_ROOT/layers" -inum "$inode")" "$data"
sed -i 's/,"done":true//' "$record" # jq would round the tag
printf x | dd of="$at/large" bs=1 seek=5 conv=notrunc status=none
gives 'what has two names is whole' 200 HEAD "$url" -I
is 'but for what is done with it' "$(header Upload-Offset)" 2999999
truncate -s 100 "$at/large"
patch 'nobody writes to it' 409 100 "$T/one"
printf z >"$T/last"
patch 'asked again' 204 2999999 "$T/last"
is 'it was done: the program has the last word' "$(stat -c %s "$at/large")" 100
ok 'only the record is kept' test ! -e "$data"
rm -f "$at/large"

create 'a name that is not UTF-8' 10 $'odd\xff'
head -c 10 "$T/all" >"$T/ten"
patch 'comes' 204 0 "$T/ten"
ok 'and is there' cmp -s "$T/ten" "$at/"$'odd\xff'
is 'as the log says' "$(curl -sS --unix-socket "$sock" 'http://d/v1/audit?limit=1' | jq -r '.items[0].about.made_b64')" \
	"$(printf 'odd\xff' | base64)"
rm "$at/"$'odd\xff'

# ---- termination, expiration, refusals

create 'to be ended' 10 three
gives 'DELETE' 204 DELETE "$url"
gives 'HEAD' 404 HEAD "$url" -I
create 'to expire' 10 three
# Too old by less than the minute for which boughd's own look for such leaves them be.
touch -d '86405 seconds ago' "$BOUGH_ROOT"/uploads/"${url##*/}".*
gives 'it is gone' 410 HEAD "$url" -I
gives 'for good' 404 HEAD "$url" -I
create 'an empty file' 0 empty
ok 'is there at once' test -f "$at/empty"
ups=/v1/workspaces/w/uploads
gives 'without a length' 400 POST $ups -H "Upload-Metadata: path $(printf x | base64)"
gives 'without a path' 400 POST $ups -H 'Upload-Length: 1'
gives 'a path out of it' 400 POST $ups -H 'Upload-Length: 1' -H "Upload-Metadata: path $(printf ../x | base64)"
gives 'a path from the root' 400 POST $ups -H 'Upload-Length: 1' -H "Upload-Metadata: path $(printf /x | base64)"
gives 'no base64' 400 POST $ups -H 'Upload-Length: 1' -H 'Upload-Metadata: path ???'
gives 'a bad mode' 400 POST $ups -H 'Upload-Length: 1' -H "Upload-Metadata: filename $(printf x | base64),mode $(printf 9 | base64)"
gives 'no such workspace' 404 POST /v1/workspaces/none/uploads -H 'Upload-Length: 1'
gives 'no such upload' 404 HEAD $ups/up_aaaaaaaaaa -I
gives 'no id' 404 HEAD "$ups/..%2fx" -I
bough_ok 'another workspace' create other -q
create 'one of this' 10 x
gives 'is none of another' 404 HEAD "/v1/workspaces/other/uploads/${url##*/}" -I
status=$(curl -sS --unix-socket "$sock" -o /dev/null -w '%{http_code}' -I "http://d$url")
is 'without Tus-Resumable' "$status" 412
# What can't be finished now is finished later.
bough_ok 'umount' umount w
printf 0123456789 >"$T/ten"
patch 'all bytes, but no mount' 409 0 "$T/ten"
# Who asks how far it is, and hears that all has come, takes the file to be there, and goes.
told() { # DESCRIPTION OFFSET
	gives "$1" 200 HEAD "$url" -I
	is "$1: by all bytes but one" "$(header Upload-Offset)" "$2"
}
told 'told that it is not done' 9
printf 9 >"$T/last"
printf '99' >"$T/more"
patch 'the last byte again, and still no mount' 409 9 "$T/last"
bough_ok 'mount' mount w
patch 'with another sum' 460 9 "$T/last" -H "Upload-Checksum: sha1 $(printf 8 | openssl sha1 -binary | base64)"
patch 'more than there is' 413 9 "$T/more"
patch 'more than there is, unannounced' 413 9 "$T/more" -H 'Transfer-Encoding: chunked'
told 'told once more' 9
patch 'the last byte again' 204 9 "$T/last"
is 'told that all is there' "$(header Upload-Offset)" 10
is 'it is there' "$(cat "$at/x")" 0123456789
create 'another' 10 y
bough_ok 'umount' umount w
patch 'no mount' 409 0 "$T/ten"
bough_ok 'mount again' mount w
patch 'asked again without a byte' 204 10 /dev/null
is 'it is there, too' "$(cat "$at/y")" 0123456789

# ---- what was announced counts; what is nobody's goes

run bough set w --quota 5M
create 'one of two megabytes' 2000000 big
keep=$url
gives 'another beside it' 507 POST $ups -H 'Upload-Length: 2000000' -H "Upload-Metadata: path $(printf big2 | base64)"
create 'a small one' 1000 small
gives 'the first one ends' 204 DELETE "$keep"
create 'now there is room' 2000000 big2
is 'each has its mark' "$(ls "$BOUGH_ROOT/uploads/${at##*/}" | wc -l)" "$(ls "$BOUGH_ROOT"/uploads/*.data | wc -l)"
# Those that are done are many, and those of others, and cost who announces another one nothing.
others=$(basename "$(at other)")
for ((i = 0; i < 5000; i++)); do
	printf -v id up_zz%08d "$i"
	if ((i % 2)); then
		printf '{"workspace":"%s","path":"x","length":5,"created":1,"done":true}' "${at##*/}"
	else
		printf '{"workspace":"%s","path":"x","length":5,"created":1}' "$others"
		: >"$BOUGH_ROOT/uploads/$id.data"
	fi >"$BOUGH_ROOT/uploads/$id.json"
done
# What a kill may leave of one that ended counts for nothing.
mark=$BOUGH_ROOT/uploads/${at##*/}/up_zzzzzzzzzz.9000000
: >"$mark"
ticks() { awk '{ print $14 + $15 }' "/proc/$(pids_of boughd)/stat"; }
spent=$(ticks)
for i in {1..60}; do
	tus POST "$ups" -H 'Upload-Length: 10' -H "Upload-Metadata: path $(printf many | base64)"
	[ "$status" = 201 ] || diag "status $status"
done
spent=$(($(ticks) - spent))
ok "and 60 take little time ($spent hundredths)" test "$spent" -lt 150
ok 'nor is that kept' test ! -e "$mark"
rm -f "$BOUGH_ROOT"/uploads/up_zz*
bough_ok 'rm' rm w --now -q
is 'with the workspace its uploads go' "$(grep -l '"path":"big2"' "$BOUGH_ROOT"/uploads/*.json 2>/dev/null | wc -l)" 0
bough_ok 'a third' create third -q
gives 'one to expire' 201 POST /v1/workspaces/third/uploads -H 'Upload-Length: 10' -H "Upload-Metadata: path $(printf x | base64)"
touch -d '25 hours ago' "$BOUGH_ROOT"/uploads/*
# What can't be read says nothing of whose it is.
odd=$BOUGH_ROOT/uploads/up_odd
printf '{' >"$odd.json"
: >"$odd.data"
# Its data as a kill leaves them once they are a file's content too, to which a program writes.
ln "$BOUGH_ROOT/uploads/$(basename "$(header Location)").data" "$T/second"
printf written >"$T/second"
none() { [ -z "$(find "$BOUGH_ROOT/uploads" -mindepth 1 ! -name 'up_odd.*')" ]; }
ok 'what expires goes by itself' wait_for 10 none
ok 'what a record that is damaged belongs to stays' test -e "$odd.data"
touch -d '25 hours ago' "$odd".*
none() { [ -z "$(ls "$BOUGH_ROOT/uploads")" ]; }
ok 'until it expires' wait_for 10 none
done_testing
