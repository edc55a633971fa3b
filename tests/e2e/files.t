#!/bin/bash
# Files over HTTP (snapd/API.md, "Files"), by curl: every status, conditions, ranges, codings,
# digests, hostile paths; and what a reader, a writer in the mount and a kill see of a PUT.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/ask.sh"

start() { boughd --root "$BOUGH_ROOT" --daemon; }
start || bail 'boughd does not start'
sock=$BOUGH_ROOT/run/boughd.sock

# http METHOD PATH [CURL ARGUMENT…]: $status, $body (without NULs) and $head are what it gave.
http() {
	local method=$1 path=$2
	shift 2
	rm -f "$T/.body" "$T/.head"
	status=$(curl -sS -m 200 --path-as-is --unix-socket "$sock" -X "$method" -o "$T/.body" -D "$T/.head" \
		-w '%{http_code}' "$@" "http://d$path" 2>"$T/.err")
	body=$([ ! -e "$T/.body" ] || tr -d "\0" <"$T/.body")
	head=$(tr -d '\r' <"$T/.head")
}
header() { sed -n "s/^$1: //Ip" <<<"$head" | head -n 1; } # NAME
of() { jq -r "$1" <<<"$body"; }
gives() { # DESCRIPTION STATUS METHOD PATH [CURL ARGUMENT…]
	local what=$1 want=$2
	shift 2
	http "$@"
	if [ "$status" = "$want" ]; then
		pass "$what"
	else
		fail "$what"
		diag "$*: status $status for $want: ${body:0:500} $(cat "$T/.err")"
	fi
}

bough_ok 'a workspace' create w -q
at=$(at w)
w=/v1/workspaces/w/files

# ---- PUT and GET

gives 'a new file' 201 PUT $w/a/b/c --data-binary 'hello'
is 'told with its size and mode' "$(of '[.path, .size, .mode, .created] | join(" ")')" 'a/b/c 5 0644 true'
tag=$(header ETag)
is 'and its ETag' "$(of .etag)" "$tag"
is 'it is there' "$(cat "$at/a/b/c")" hello
gives 'read' 200 GET $w/a/b/c
is 'its bytes' "$body" hello
is 'its ETag is the same' "$(header ETag)" "$tag"
is 'its length' "$(header Content-Length)" 5
like 'Last-Modified' "$(header Last-Modified)" '^[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT$'
gives 'HEAD' 200 HEAD $w/a/b/c -I
is 'without a body' "$(header Content-Length) $(header ETag) $(wc -c <"$T/.body")" "5 $tag $(wc -c <"$T/.head")"
gives 'replaced' 200 PUT "$w/a/b/c?mode=0600" --data-binary 'other'
is 'with a mode' "$(stat -c %a "$at/a/b/c")" 600
ok 'another ETag' test "$(header ETag)" != "$tag"
chmod 4751 "$at/a/b/c" && setfattr -n user.x -v y "$at/a/b/c" && ln "$at/a/b/c" "$at/hard"
gives 'replaced again' 200 PUT $w/a/b/c --data-binary 'third'
is 'keeps mode (but set-id) and xattrs' "$(stat -c %a "$at/a/b/c") $(getfattr --only-values -n user.x "$at/a/b/c")" '751 y'
is 'and breaks hard links' "$(cat "$at/hard") $(stat -c %h "$at/hard" "$at/a/b/c" | tr '\n' ' ')" 'other 1 1 '
if [ "$(id -u)" = 0 ]; then
	mkdir "$at/owned" && chown 12:34 "$at/owned"
	http PUT $w/owned/d/f --data-binary x
	is "what is new is its folder's owner's" "$(stat -c %u:%g "$at/owned/d/f" "$at/owned/d" | tr '\n' ' ')" '12:34 12:34 '
fi
gives 'an encoded / is one' 200 GET $w/a%2Fb%2fc
is 'its bytes' "$body" third
gives 'an empty file' 201 PUT $w/empty -T /dev/null
gives 'read' 200 GET $w/empty
is 'is empty' "$(header Content-Length)" 0
gives 'a name with odd bytes' 201 PUT "$w/%ff%20%c3%a9" --data-binary x
ok 'is there' test -f "$at/"$'\xff \xc3\xa9'
gives 'read' 200 GET "$w/%ff%20%c3%a9"
head -c 5000000 /dev/urandom >"$T/noise"
gives 'a larger one, in chunks' 201 PUT $w/noise -T - <"$T/noise"
gives 'back' 200 GET $w/noise
ok 'the same bytes' cmp -s "$T/noise" "$T/.body"

# ---- multipart

gives 'a form' 201 PUT $w/form -F other=no -F "file=@$T/noise"
ok 'its file' cmp -s "$T/noise" "$at/form"
gives 'without a file in it' 400 PUT $w/form -F other=no
like 'says so' "$body" 'no part named'
gives 'POSTed, as curl -F does by itself' 415 POST $w/form -F "file=@$T/noise"
like 'says what to do' "$body" 'PUT.*curl -T'
ok 'changes nothing' cmp -s "$T/noise" "$at/form"

# ---- ranges

while read -r what range want bytes cr; do
	gives "range $what" "$want" GET $w/a/b/c -H "Range: $range"
	if [ "$want" != 416 ]; then is "  its bytes" "$body" "$bytes"; fi
	is '  Content-Range' "$(header Content-Range)" "${cr//_/ }"
done <<-'END'
	of-the-middle bytes=1-3 206 hir bytes_1-3/5
	to-the-end bytes=2- 206 ird bytes_2-4/5
	of-the-end bytes=-2 206 rd bytes_3-4/5
	beyond-the-end bytes=4-99 206 d bytes_4-4/5
	none bytes=5- 416 - bytes_*/5
	several bytes=0-0,2-2 200 third
	malformed bytes=x 200 third
END
http GET $w/a/b/c
tag=$(header ETag)
gives 'If-Range of this version' 206 GET $w/a/b/c -H 'Range: bytes=0-0' -H "If-Range: $tag"
gives 'If-Range of another' 200 GET $w/a/b/c -H 'Range: bytes=0-0' -H 'If-Range: "x"'

# ---- conditions

gives 'If-None-Match: it has it' 304 GET $w/a/b/c -H "If-None-Match: \"x\", $tag"
is 'without a body' "$body" ''
gives 'If-None-Match: *' 304 GET $w/a/b/c -H 'If-None-Match: *'
gives 'If-Match of another' 412 GET $w/a/b/c -H 'If-Match: "x"'
gives 'a malformed list' 400 GET $w/a/b/c -H 'If-Match: x'
gives 'PUT If-Match of this version' 200 PUT $w/a/b/c -H "If-Match: $tag" --data-binary 'new'
new=$(header ETag)
gives 'PUT If-Match of the one before' 412 PUT $w/a/b/c -H "If-Match: $tag" --data-binary 'bad'
gives 'PUT If-None-Match: * of what is there' 412 PUT $w/a/b/c -H 'If-None-Match: *' --data-binary 'bad'
gives 'PUT If-None-Match of this version' 412 PUT $w/a/b/c -H "If-None-Match: $new" --data-binary 'bad'
gives 'PUT If-Match: * of what is not' 412 PUT $w/new/x -H 'If-Match: *' --data-binary 'bad'
ok 'makes no folders' test ! -e "$at/new"
gives 'PUT If-None-Match: * of what is not' 201 PUT $w/new/x -H 'If-None-Match: *' --data-binary 'first'
is 'nothing bad was written' "$(cat "$at/a/b/c")" new
printf N | dd of="$at/a/b/c" conv=notrunc status=none
gives 'a write of one byte in the mount is seen' 412 PUT $w/a/b/c -H "If-Match: $new" --data-binary 'bad'
http HEAD $w/a/b/c -I
new=$(header ETag)
touch -r "$at/a/b/c" "$at/a/b/c"
gives 'and a touch' 412 PUT $w/a/b/c -H "If-Match: $new" --data-binary 'bad'
http HEAD $w/a/b/c -I
new=$(header ETag)
cat "$at/a/b/c" >/dev/null
gives 'reading is none' 200 PUT $w/a/b/c -H "If-Match: \"x\", $new" --data-binary 'good'
for method in PUT DELETE; do
	gives "$method by a date" 501 $method $w/a/b/c -H 'If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT' --data-binary 'bad'
done
is 'changes nothing' "$(cat "$at/a/b/c")" good
gives 'DELETE If-Match of another' 412 DELETE $w/a/b/c -H "If-Match: $new"
gives 'DELETE If-Match of this' 204 DELETE $w/new/x -H "If-Match: *"

# ---- digests and codings

sum=$(printf 'some bytes' | openssl dgst -sha256 -binary | base64)
gives 'a digest' 201 PUT $w/sum -H "Content-Digest: sha-256=:$sum:" --data-binary 'some bytes'
gives 'another one' 400 PUT $w/sum -H "Repr-Digest: sha-256=:$sum:" --data-binary 'other bytes'
like 'is told' "$body" 'SHA-256'
is 'and nothing was written' "$(cat "$at/sum")" 'some bytes'
gives 'a malformed one' 400 PUT $w/sum -H 'Content-Digest: sha-256=:x:' --data-binary 'x'
gives 'asked for' 200 GET $w/sum -H 'Want-Repr-Digest: sha-256=9' -H 'Accept-Encoding: gzip'
is 'it comes' "$(header Repr-Digest)" "sha-256=:$sum:"
gives 'of a part' 206 GET $w/sum -H 'Range: bytes=0-3' -H 'Want-Content-Digest: sha-256=1' -H 'Want-Repr-Digest: sha-256=1'
is 'is of the part' "$(header Content-Digest)" "sha-256=:$(printf some | openssl dgst -sha256 -binary | base64):"
is 'and of the whole' "$(header Repr-Digest)" "sha-256=:$sum:"
seq 100000 >"$T/seq"
for coding in gzip zstd; do
	gives "PUT in $coding" 201 PUT $w/$coding -H "Content-Encoding: $coding" --data-binary "@-" < <($coding -c "$T/seq")
	ok '  is decoded' cmp -s "$T/seq" "$at/$coding"
	gives "  GET in $coding" 200 GET $w/$coding -H "Accept-Encoding: $coding"
	is '  Content-Encoding' "$(header Content-Encoding)" $coding
	like '  its ETag says so' "$(header ETag)" "-$coding\"$"
	ok '  the same bytes' cmp -s "$T/seq" <($coding -dc <"$T/.body")
	gives '  304 by that tag' 304 GET $w/$coding -H "Accept-Encoding: $coding" -H "If-None-Match: $(header ETag)"
	gives '  but not for another coding' 200 GET $w/$coding -H "If-None-Match: $(header ETag)"
	http GET $w/$coding -H "Accept-Encoding: $coding"
	gives '  PUT If-Match by that tag' 200 PUT $w/$coding -H "If-Match: $(header ETag)" --data-binary x
	gives "  what isn't $coding" 400 PUT $w/$coding -H "Content-Encoding: $coding" --data-binary 'not at all'
	gives '  cut off' 400 PUT $w/$coding -H "Content-Encoding: $coding" --data-binary @- < <($coding -c "$T/seq" | head -c 9000)
	is '  is not written' "$(cat "$at/$coding")" x
done
gzip -nc "$T/seq" >"$T/seq.gz"
coded=$(openssl dgst -sha256 -binary <"$T/seq.gz" | base64)
plain=$(openssl dgst -sha256 -binary <"$T/seq" | base64)
gives 'digests of a coded body are of what is sent' 201 PUT $w/digested -H 'Content-Encoding: gzip' \
	-H "Content-Digest: sha-256=:$coded:" -H "Repr-Digest: sha-256=:$coded:" --data-binary "@$T/seq.gz"
ok 'which is decoded' cmp -s "$T/seq" "$at/digested"
gives 'not of what comes of it' 400 PUT $w/digested -H 'Content-Encoding: gzip' \
	-H "Repr-Digest: sha-256=:$plain:" --data-binary "@$T/seq.gz"
gives 'and asked for, it is of the file' 200 GET $w/digested -H 'Want-Repr-Digest: sha-256=1' -H 'Accept-Encoding: gzip'
is 'as it is sent' "$(header Repr-Digest)$(header Content-Encoding)" "sha-256=:$plain:"
gives 'another coding' 415 PUT $w/br -H 'Content-Encoding: br' --data-binary x

# ---- what isn't a file

mkdir "$at/dir" && mkfifo "$at/fifo" && ln -s /etc/passwd "$at/link" && ln -s /etc "$at/etc" && ln -s . "$at/self"
python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind("s")' 2>/dev/null
gives 'GET of a fifo' 409 GET $w/fifo
is 'its type' "$(of .details.type)" fifo
gives 'GET of a link' 409 GET $w/link
is 'its target' "$(of .details.target)" /etc/passwd
gives 'GET through a link' 409 GET $w/etc/passwd
gives 'GET through a link to within' 409 GET $w/self/a/b/c
gives 'GET below a file' 404 GET $w/a/b/c/d
gives 'GET of nothing' 404 GET $w/none
gives 'GET in no workspace' 404 GET /v1/workspaces/none/files/x
gives 'PUT over a folder' 409 PUT $w/dir --data-binary x
gives 'PUT over a link' 409 PUT $w/link --data-binary x
gives 'PUT over a fifo' 409 PUT $w/fifo --data-binary x
gives 'PUT through a link' 409 PUT $w/etc/bough-test --data-binary x
ok 'wrote nothing there' test ! -e /etc/bough-test
gives 'PUT below a file' 409 PUT $w/a/b/c/d --data-binary x
gives 'PUT of the root' 409 PUT $w/ --data-binary x
gives 'a bad mode' 400 PUT "$w/x?mode=9" --data-binary x
gives 'a mode too large' 400 PUT "$w/x?mode=17777" --data-binary x
gives 'a part of a file' 400 PUT $w/x -H 'Content-Range: bytes 0-0/2' --data-binary x
for path in .. a/.. a/../../etc/passwd %2e%2e/x a/./b . a%2f..%2fb %2fetc/passwd a%2f%2fb a%00 //etc/passwd a//b; do
	gives "hostile: $path" 400 GET "$w/$path"
	gives "hostile PUT: $path" 400 PUT "$w/$path" --data-binary x
done
long=$(printf 'x%.0s' {1..256})
gives 'a name too long' 400 PUT "$w/$long" --data-binary x
gives 'a path too long' 400 PUT "$w/$(printf '%.255s/' $(for i in {1..17}; do echo "${long:1}"; done))" --data-binary x
gives 'a method' 405 PATCH $w/x
like 'tells which there are' "$(header Allow)" 'GET, HEAD, PUT, DELETE, POST'

# ---- directories

gives 'a listing' 200 GET $w/
is 'of the root' "$(of '.path, ([.entries[] | select(.name == "a" or .name == "fifo" or .name == "link" or .name == "sum")
	| "\(.name) \(.type) \(.mode)"] | sort | join(";"))')" $'\na directory 0755;fifo fifo 0644;link symlink 0777;sum file 0644'
is 'odd names in base64' "$(of '.entries[] | select(.name_b64) | .name_b64')" "$(printf '\xff \xc3\xa9' | base64)"
like 'times' "$(of '.entries[0].modified_at')" '^20[0-9-]+T[0-9:]+\.[0-9]{9}Z$'
is 'all of them' "$(of '.entries | length')" "$(ls -A "$at" | wc -l)"
gives 'recursive' 200 GET "$w/a?recursive=true"
is 'paths below it' "$(of '[.entries[].name] | join(" ")')" 'b b/c'
gives 'HEAD of a folder' 200 HEAD $w/a -I
gives 'pages' 200 GET "$w/?limit=3"
all=$(of '.entries[] | .name // .name_b64')
while next=$(of '.next // empty') && [ -n "$next" ]; do
	http GET "$w/?limit=3&cursor=$next"
	all+=$'\n'$(of '.entries[] | .name // .name_b64')
done
is 'have each once' "$(sort <<<"$all" | wc -l) $(sort -u <<<"$all" | wc -l)" "$(ls -A "$at" | wc -l) $(ls -A "$at" | wc -l)"
gives 'a bad cursor' 400 GET "$w/?cursor=xyz"
gives 'a bad limit' 400 GET "$w/?limit=0"
gives 'pages of all below' 400 GET "$w/?limit=3&recursive=true"
gives 'one entry' 200 GET "$w/link?stat=1"
is 'with its target' "$(of '.path, .entry.name, .entry.type, .entry.target' | tr '\n' ' ')" 'link link symlink /etc/passwd '

# ---- DELETE

gives 'DELETE' 204 DELETE $w/form
ok 'it is gone' test ! -e "$at/form"
gives 'DELETE again' 404 DELETE $w/form
gives 'DELETE of a link' 204 DELETE $w/link
ok 'leaves its target' test -f /etc/passwd
gives 'DELETE of a folder with something in it' 409 DELETE $w/a
gives 'DELETE of an empty one' 204 DELETE $w/dir
gives 'DELETE of the root' 409 DELETE $w/
gives 'DELETE through a link' 409 DELETE $w/self/a/b/c
mkdir -p "$at/deep" && (cd "$at/deep" && for i in {1..200}; do mkdir d && echo x >f && builtin cd d; done)
ln -s /etc "$at/deep/etc"
gives 'DELETE of all below' 204 DELETE "$w/deep?recursive=true"
ok 'it is gone' test ! -e "$at/deep"
ok 'links in it were not followed' test -f /etc/passwd

# ---- POST

op() { # DESCRIPTION STATUS PATH OP BODY
	gives "$1" "$2" POST "$w/$3?op=$4" --data-binary "$5"
}
op 'mkdir' 201 m/n mkdir '{"mode":"0700"}'
is 'with its mode' "$(stat -c %a "$at/m/n" "$at/m" | tr '\n' ' ')" '700 755 '
op 'mkdir again' 409 m/n mkdir '{}'
op 'mkdir without parents' 404 p/q mkdir '{"parents":false}'
op 'copy' 201 sum copy '{"to":"m/copy"}'
is 'it is one' "$(cat "$at/m/copy")" 'some bytes'
op 'copy onto it' 409 sum copy '{"to":"/m/copy"}'
op 'copy in its place' 200 empty copy '{"to":"/m/copy","replace":true}'
is 'is done' "$(wc -c <"$at/m/copy")" 0
op 'copy of a folder' 409 m copy '{"to":"m2"}'
op 'copy out of it' 400 sum copy '{"to":"../x"}'
op 'move' 200 m/copy move '{"to":"moved/to"}'
ok 'it is' test -f "$at/moved/to" -a ! -e "$at/m/copy"
op 'move onto something' 409 sum move '{"to":"moved/to"}'
op 'move in its place' 200 sum move '{"to":"moved/to","replace":true}'
op 'move of nothing' 404 sum move '{"to":"x"}'
op 'move into itself' 409 m move '{"to":"m/n/o"}'
op 'symlink' 201 s/l symlink '{"target":"../a"}'
is 'it is one' "$(readlink "$at/s/l")" ../a
b64() { printf "$1" | base64; }
op 'copy to a name that is not UTF-8' 201 moved/to copy "{\"to_b64\":\"$(b64 '/m/\xff')\"}"
is 'its name is told so' "$(of .entry.name_b64)" "$(b64 'm/\xff')"
op 'move to one' 200 'm/%ff' move "{\"to_b64\":\"$(b64 'm/\xfe')\"}"
is 'as well' "$(of .entry.name_b64)" "$(b64 'm/\xfe')"
is 'it is there' "$(cat "$at/m/"$'\xfe')" 'some bytes'
gives 'and in the audit log' 200 GET '/v1/audit?limit=1'
is 'by that name' "$(of '.items[0].about.made_b64')" "$(b64 'm/\xfe')"
op 'a link to what is not UTF-8' 201 'm/%ff' symlink "{\"target_b64\":\"$(b64 '\xfe')\"}"
is 'which is told' "$(of .entry.target_b64)" "$(b64 '\xfe')"
is 'and there' "$(readlink "$at/m/"$'\xff')" $'\xfe'
op 'two targets' 400 moved/to move '{"to":"x","to_b64":"eA=="}'
is 'is told as a field' "$(of .details.field)" to
op 'bad base64' 400 moved/to copy '{"to_b64":"?"}'
op 'a NUL in it' 400 moved/to copy '{"to_b64":"YQBi"}'
op 'out of it' 400 moved/to copy "{\"to_b64\":\"$(b64 ../x)\"}"
op 'a target with a NUL' 400 s/m symlink '{"target_b64":"YQBi"}'
op 'no target' 400 s/m symlink '{}'
op 'symlink again' 409 s/l symlink '{"target":"x"}'
op 'chmod' 200 moved/to chmod '{"mode":"2755"}'
is 'is done' "$(stat -c %a "$at/moved/to")" 2755
op 'chmod of a link' 409 s/l chmod '{"mode":"0644"}'
op 'no mode' 400 moved/to chmod '{}'
op 'no such op' 400 moved/to odd '{}'
op 'no such field' 400 moved/to chmod '{"x":1}'
gives 'a condition that is not looked at' 501 POST "$w/moved/to?op=move" -H 'If-Match: *' --data-binary '{"to":"x"}'

# ---- snapshots, and workspaces that aren't mounted

bough_ok 'save' save w --as s -q
s=/v1/snapshots/s/files
gives 'a file of a snapshot' 200 GET $s/gzip
is 'its bytes' "$body" x
http GET $w/noise
tag=$(header ETag)
gives 'a large one' 200 GET $s/noise
ok 'the same bytes' cmp -s "$T/noise" "$T/.body"
gives 'a range of it' 206 GET $s/noise -H 'Range: bytes=1000000-1000099'
ok 'the same bytes' cmp -s <(tail -c +1000001 "$T/noise" | head -c 100) "$T/.body"
gives 'through a link' 409 GET $s/self/a/b/c
gives 'below a file' 404 GET $s/a/b/c/d
gives 'a listing' 200 GET $s/
is 'of the root' "$(of '.entries | length')" "$(ls -A "$at" | wc -l)"
gives 'all below' 200 GET "$s/?recursive=1"
is 'is all' "$(of '.entries | length')" "$(find "$at" -mindepth 1 | wc -l)"
gives 'writing is no method' 405 PUT $s/x --data-binary x
bough_ok 'umount' umount w
gives 'reading without a mount' 200 GET $w/noise
ok 'the same bytes' cmp -s "$T/noise" "$T/.body"
is 'the same ETag' "$(header ETag)" "$tag"
gives 'pages without a mount' 200 GET "$w/?limit=2"
gives 'go on' 200 GET "$w/?limit=2&cursor=$(of .next)"
is 'with others' "$(of '.entries | length')" 2
gives 'writing' 409 PUT $w/x --data-binary x
is 'says what is missing' "$(of .code)" not_mounted
gives 'removing' 409 DELETE $w/noise
bough_ok 'mount' mount w

# ---- a restore changes the version, though not the times

echo changed >"$at/noise"
bough_ok 'restore' restore w s
http GET $w/noise
ok 'the file is another version than before' test "$(header ETag)" != "$tag"

# ---- archives of directories, and into them

a=/v1/workspaces/w/archive
mkdir -p "$at/tree/sub/deep" && cp "$T/noise" "$at/tree/sub/noise" && ln "$at/tree/sub/noise" "$at/tree/hard"
ln -s /etc "$at/tree/sub/out" && mkfifo "$at/tree/sub/fifo" && setfattr -n user.k -v v "$at/tree/sub"
chmod 2750 "$at/tree/sub/deep" && truncate -s 1M "$at/tree/hole" && touch -d 2001-02-03 "$at/tree/sub/deep" "$at/tree/sub" "$at/tree"
gives 'an archive of a directory' 200 GET "$a/tree/sub?format=tar"
is 'its members' "$(tar tf "$T/.body" | sort | tr '\n' ' ')" './ ./deep/ ./fifo ./noise ./out '
gives 'of a file' 409 GET "$a/tree/hole"
gives 'of nothing' 404 GET "$a/none"
gives 'through a link' 409 GET "$a/etc"
bough_ok 'a snapshot of it' save w --as tree -q
gives 'of a directory of a snapshot' 200 GET "/v1/snapshots/tree/archive/tree?format=tar"
mv "$T/.body" "$T/tree.tar"
for format in tar tar.zst zip; do
	gives "$format of it" 200 GET "$a/tree?format=$format"
	mv "$T/.body" "$T/tree.$format"
	mkdir -p "$at/into/$format"
	gives "  back into a directory" 200 PUT "$a/into/$format" -T - <"$T/tree.$format"
done
gzip -c "$T/tree.tar" >"$T/tree.tar.gz"
mkdir "$at/into/gz"
gives 'a tar.gz' 200 PUT "$a/into/gz/" -T - <"$T/tree.tar.gz"
touch -r "$at/tree" "$at"/into/*
for format in tar tar.zst gz; do same_tree "$format: the same tree" "$at/tree" "$at/into/$format"; done
ok 'zip: the same content' cmp -s "$at/tree/sub/noise" "$at/into/zip/sub/noise"
echo old >"$at/into/tar/hole" && ln -sf /etc/passwd "$at/into/tar/hard" && touch "$at/into/tar/mine"
gives 'once more over it' 200 PUT "$a/into/tar" -T "$T/tree.tar"
ok 'what has no member stays' test -f "$at/into/tar/mine"
rm -f "$at/into/tar/mine" && touch -r "$at/tree" "$at/into/tar"
same_tree 'the rest is the same again' "$at/tree" "$at/into/tar"
gives 'into the root' 200 PUT "$a" -T - < <(mkdir -p "$T/r" && echo x >"$T/r/from-root" && tar c -C "$T/r" from-root)
is 'it is there' "$(cat "$at/from-root")" x
gives 'into a file' 409 PUT "$a/gzip" -T "$T/tree.tar"
gives 'no archive' 400 PUT "$a/into" --data-binary 'this is none'
mkdir -p "$at/into/cut"
gives 'cut off' 400 PUT "$a/into/cut" -T - < <(head -c 3000000 "$T/tree.tar")
gives 'in one step' 200 PUT "$a/into?atomic=true" -T "$T/tree.tar"
gives 'or not, but nothing else' 400 PUT "$a/into?atomic=yes" -T "$T/tree.tar"
python3 - "$T" <<-'END'
	import io, sys, tarfile
	def make(name, *members):
	    with tarfile.open(f"{sys.argv[1]}/evil-{name}.tar", "w") as t:
	        for m in members:
	            i = tarfile.TarInfo(m[0])
	            i.type, i.linkname = m[1], m[2] if len(m) > 2 else ""
	            data = b"evil" if m[1] == tarfile.REGTYPE else b""
	            i.size = len(data)
	            t.addfile(i, io.BytesIO(data))
	R, S, L, D = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE
	make("absolute", ("/tmp/bough-evil", R))
	make("dots", ("a/../../bough-evil", R))
	make("link", ("l", S, "/tmp"), ("l/bough-evil", R))
	make("inner", ("d", D), ("l", S, "d"), ("l/bough-evil", R))
	make("hardlink", ("h", L, "../../../etc/passwd"))
	make("hardabs", ("h", L, "/etc/passwd"))
	make("hardthrough", ("l", S, "/etc"), ("h", L, "l/passwd"))
	make("harddir", ("d", D), ("h", L, "d"))
	make("hardnone", ("h", L, "nothing"))
	make("over", ("sub", R))
END
mkdir "$at/evil" "$at/evil/sub"
for name in absolute dots link inner hardlink hardabs hardthrough harddir hardnone; do
	gives "hostile archive: $name" 400 PUT "$a/evil" -T "$T/evil-$name.tar"
done
gives 'a file in the place of a folder' 409 PUT "$a/evil" -T "$T/evil-over.tar"
ok 'none got out' test ! -e /tmp/bough-evil -a ! -e "$at/bough-evil"
rm -rf "$at/into" "$at/evil" "$at/tree"

# ---- quota

bough_ok 'a small one' create q --quota 1M -q
gives 'more than fits, told before' 507 PUT /v1/workspaces/q/files/x -T "$T/noise"
gives 'found out on the way' 507 PUT /v1/workspaces/q/files/x -T - <"$T/noise"
is 'its code' "$(of .code)" quota
ok 'leaves nothing' test ! -e "$(at q)/x"
gives 'and the space is free' 201 PUT /v1/workspaces/q/files/x --data-binary "@$BOUGH_SRC/Makefile"
rm "$(at q)/x"
cat >"$T/again.py" <<'PY'
import os, sys, threading
from ask import Unix, check

at, data, said = sys.argv[2], bytes(900000), []
for i in range(20):
    f = open(at + "/mine", "wb")
    f.write(data)
    f.flush()
    os.unlink(at + "/mine")
    let_go = threading.Timer(0.005, f.close) # as the kernel does, which is faster
    let_go.start()
    c = Unix("d")
    c.request("PUT", "/v1/workspaces/q/files/x", data)
    r = c.getresponse()
    said.append((r.status, r.read()))
    c.close()
    let_go.join()
    if r.status == 201:
        os.unlink(at + "/x")
# On a busy machine some of them close it later than anybody waits for.
check("what is let go of just now leaves its room", sum(s[0] == 201 for s in said) >= 10, said)
PY
asks 1 "$T/again.py" "$(at q)"

# ---- a reader never sees half

printf 'A%.0s' {1..300000} >"$T/A"
printf 'B%.0s' {1..300000} >"$T/B"
http PUT $w/half --data-binary "@$T/A"
(
	end=$((SECONDS + 3)) bad=0 n=0
	while [ $SECONDS -lt $end ]; do
		got=$(tr -s AB <"$at/half" 2>&1)
		[ "$got" = A ] || [ "$got" = B ] || bad=$((bad + 1))
		[ "$(stat -c %s "$at/half")" = 300000 ] || bad=$((bad + 1))
		n=$((n + 1))
	done
	echo $bad $n >"$T/reader"
) &
reader=$!
while kill -0 $reader 2>/dev/null; do
	http PUT $w/half --data-binary "@$T/B"
	http PUT $w/half --data-binary "@$T/A"
done
wait $reader
like 'a reader beside PUTs sees whole files' "$(cat "$T/reader")" '^0 [1-9]'

# ---- compare and replace, with a program that writes in the mount and others that PUT

echo 0 >"$at/count"
adds() { # each adds 8 to the number by If-Match
	local i tag n code done=0
	while [ $done -lt 8 ]; do
		n=$(curl -sS --unix-socket "$sock" -D "$T/.h$1" "http://d$w/count")
		tag=$(tr -d '\r' <"$T/.h$1" | sed -n 's/^ETag: //p')
		code=$(curl -sS --unix-socket "$sock" -o /dev/null -w '%{http_code}' -X PUT \
			-H "If-Match: $tag" --data-binary $((n + 1)) "http://d$w/count")
		[ "$code" = 200 ] && done=$((done + 1))
	done
}
adds 1 &
adds 2 &
adds 3 &
wait
is 'three clients count by If-Match' "$(cat "$at/count")" 24

# ---- kill -9 in the middle of a PUT

before=$(ls -A "$at" | sort)
mkfifo "$T/pipe"
exec 5<>"$T/pipe" # so that its end never comes
curl -sS --unix-socket "$sock" -X PUT -T "$T/pipe" "http://d$w/killed" >/dev/null 2>&1 5>&- &
curl=$!
timeout 20 head -c 3000000 "$T/noise" >&5
sleep 0.5
kill_hard boughd
kill $curl 2>/dev/null
exec 5>&-
is 'nothing is to be seen' "$(ls -A "$at" | sort)" "$before"
wait_for 10 start 2>/dev/null || bail 'boughd does not start again' # its last thread may hold the lock
http GET $w/gzip
is 'the files are there' "$body" x
used=$(curl -sS --unix-socket "$sock" http://d/v1/workspaces/w | jq .used_bytes)
ok 'and the space is free again' test "$used" -lt 9000000
fsck_clean
# The kernel's view and the disk's agree.
bough_ok 'down' down
bough_ok 'up' up
is 'after all that' "$(cat "$at/count") $(ls -A "$at" | sort)" "24 $before"
# An upload that is refused before its body, by who doesn't ask first: each one hears why.
head -c 8000000 /dev/zero >"$T/large"
mkdir -p "$(at w)/refusing"
heard=0
for i in 1 2 3 4 5 6 7 8; do
	s=$(curl -sS -m 20 --unix-socket "$BOUGH_ROOT/run/boughd.sock" -H 'Expect:' -o /dev/null -w '%{http_code}' -T "$T/large" \
		http://d/v1/workspaces/w/files/refusing 2>/dev/null)
	[ "$s" != 409 ] || heard=$((heard + 1))
done
is 'a refusal is heard, though the body is on its way' $heard 8
done_testing
