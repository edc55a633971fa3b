#!/bin/bash
# What README.md shows is what happens: its tour, command by command.
. "${0%/*}/lib.sh"
need_sandboxes
[ "$MAIN_RT" = runc ] || skip_all 'another runtime than the page has'
. "$BOUGH_SRC/tests/e2e/repo.sh"

# What the tour begins with: a project in ~/src/app, files in ~/data, and a repository on a server.
export HOME=$T/home
mkdir -p "$HOME/src/app" "$HOME/data"
cd "$HOME" || exit 1
seq 1000 >data/numbers
echo hello >src/app/notes
printf 'all:\n\tmkdir -p build && echo done >build/out\n' >src/app/Makefile
cp -r "$BOUGH_SRC/tools/examples" src/app
(cd "$T/src" && mkdir -p tools/bough fs && cp "$BOUGH_SRC"/fs/base/*.[ch] fs && cp "$BOUGH_SRC"/tools/bough/*.h tools/bough &&
	cp ~/src/app/Makefile . && echo /build/ >.gitignore && git add . && git commit -qm all && git clone -q --bare . "$srv/bough.git")
echo one >build.log
head -c 1000 /dev/urandom >part.bin
python3 "$BOUGH_SRC/tests/e2e/readme.py" "$BOUGH_SRC/README.md" \
	"https://example.org/bough.git --token-file token=$http/bough.git" \
	"/var/lib/bough=$BOUGH_ROOT" >"$T/tap" 2>&1
take_tap "$T/tap"
ok 'to the end' grep -q '^1\.\.[4-9][0-9]$' "$T/tap"
done_testing
