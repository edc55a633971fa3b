#!/bin/bash
# bough cp, cat and files ls.
. "${0%/*}/lib.sh"
need_fuse

bough_ok 'a workspace' create w -q
at=$(at w)
head -c 3000000 /dev/urandom >"$T/noise"
printf '#!/bin/sh\n' >"$T/tool" && chmod 755 "$T/tool"

bough_ok 'cp in' cp "$T/noise" w:a/b/noise
ok 'the same bytes' cmp -s "$T/noise" "$at/a/b/noise"
bough_ok 'cp into a folder' cp "$T/tool" w:a
is 'with its name and mode' "$(stat -c %a "$at/a/tool")" 755
bough_ok 'cp into a folder to be' cp "$T/tool" w:new/
ok 'is made' test -x "$at/new/tool"
bough_ok 'cp into the root' cp "$T/tool" w:
ok 'is there' test -x "$at/tool"
echo hello | bough cp - w:/hello
is 'cp of stdin' "$(cat "$at/hello")" hello
bough_ok 'cp out' cp w:a/b/noise "$T/out"
ok 'the same bytes' cmp -s "$T/noise" "$T/out"
mkdir "$T/d"
bough_ok 'cp out into a folder' cp w:a/tool "$T/d"
is 'with its mode' "$(stat -c %a "$T/d/tool")" 755
is 'cp to stdout' "$(bough cp w:hello -)" hello
is 'cat' "$(bough cat w:hello w:./hello | tr '\n' ' ')" 'hello hello '
run bough cp "$T/noise" w:again --json
is 'as JSON' "$(json '.to, .bytes' | tr '\n' ' ')" 'again 3000000 '
cp "$T/tool" "$T/a:b" && cd "$T"
bough_ok 'a name with a colon' cp ./a:b 'w:a:b'
ok 'is there' test -f "$at/a:b"
printf x >"$at/"$'odd\nname %'
is 'odd names' "$(bough cat w:$'odd\nname %')" x

is 'and as a shell has them' "$(bough files ls w: | grep -o "[$]'.*")" "\$'odd\\012name %'"
printf y >"$at/"$'\xff'"it's"
odd=$(bough files ls w: | grep -o "[$]'.*s'")
is 'what is not UTF-8, too' "$odd" "\$'\\377it\\'s'"
is 'which it takes' "$(eval "bough cat w:$odd")" y
is 'a program gets the bytes' "$(bough files ls -q w: | tail -n 1)" $'\xff'"it's"
run bough files ls w:a
like 'files ls' "$out" $'^MODE +TYPE +SIZE +AGE +NAME\n'
like 'its rows' "$out" $'0755 +file +10 +[a-z0-9]+ +tool'
is 'quiet' "$(bough files ls -q w:a/ | tr '\n' ' ')" 'b tool '
is 'all below' "$(bough files ls -qr w:a | tr '\n' ' ')" 'b b/noise tool '
mkdir "$at/n" && touch "$at/n/"{z,m,a,k,c,x,b}
is 'in order' "$(bough files ls -q w:n | tr '\n' ' ')" 'a b c k m x z '
run bough files ls w: --json
is 'as JSON' "$(json '.entries | length')" "$(find "$at" -mindepth 1 -maxdepth 1 -printf x | wc -c)"

bough_ok 'save' save w --as s -q
is 'cat from a snapshot' "$(bough cat s:hello)" hello
is 'files ls of a snapshot' "$(bough files ls -q s:a | tr '\n' ' ')" 'b tool '
bough_ok 'umount' umount w
is 'cat without a mount' "$(bough cat w:hello)" hello
bough_fails 'cp in without a mount' 5 'bough mount' cp "$T/tool" w:x
bough_ok 'mount' mount w

bough_fails 'no such file' 3 'none' cat w:none
bough_fails 'no such workspace' 3 'none' cat none:x
bough_fails 'no such workspace to cp into' 3 'none' cp "$T/tool" none:x
bough_fails 'cat of a folder' 1 'folder' cat w:a
bough_fails 'ls of a file' 1 'is a file' files ls w:hello
bough_fails 'cat of no place' 2 'WORKSPACE:PATH' cat hello
bough_fails 'cp on one host' 2 'WORKSPACE:PATH' cp "$T/tool" "$T/x"
bough_fails 'a path out of it' 2 '\.\.' cat w:../x
bough_fails 'no such file here' 3 'open' cp "$T/none" w:x
bough_ok 'a small one' create q --quota 1M -q
bough_fails 'more than fits' 6 "bytes don't fit: " cp "$T/noise" q:x
ok 'leaves nothing' test ! -e "$(at q)/x"
done_testing
