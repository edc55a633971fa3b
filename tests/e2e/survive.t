#!/bin/bash
# The mounts outlive their server: bough-fs, boughd and bough-hold are killed, and replaced by an
# upgrade, while programs have files open, build and write.
#
#     KILLS=600 GAP=1 tests/e2e/survive.t       a long run: ten minutes of builds and kills
#     NPM=1 …                                   with `npm ci`, which asks npm's registry
. "${0%/*}/lib.sh" || exit 1
need_fuse

KILLS=${KILLS:-6} GAP=${GAP:-0.3}

# An installation of our own, which can be upgraded.
mkdir "$T/bin"
cp "$BOUGH_BIN"/{bough,boughd,bough-fs,bough-hold,bough-pack} "$T/bin"
export PATH=$T/bin:$PATH
bough_ok 'create' create w
w=$out

# Says what it is told to check, line by line, on files that it opened before all kills.
cat >"$T/user.py" <<'PY'
import fcntl, mmap, os, sys
root = sys.argv[1]
os.chdir(root)
os.makedirs("d/e")
os.chdir("d/e")
kept = os.open("kept", os.O_RDWR | os.O_CREAT)
os.write(kept, b"0" * 8192)
gone = os.open("gone", os.O_RDWR | os.O_CREAT)
os.write(gone, b"still here")
os.unlink("gone")
tmp = os.open(".", os.O_TMPFILE | os.O_RDWR)
os.write(tmp, b"never had a name")
made = os.open(root + "/d/rmdir", os.O_RDONLY) if os.mkdir(root + "/d/rmdir") is None else -1
os.rmdir(root + "/d/rmdir")
mapped = mmap.mmap(kept, 8192)
lock = os.open("lock", os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
posix = os.open("posix", os.O_RDWR | os.O_CREAT)
fcntl.lockf(posix, fcntl.LOCK_EX)
listing = os.open(root + "/d", os.O_RDONLY)
print("ready", flush=True)
n = 0
for line in sys.stdin:
    n += 1
    wrong = []
    def check(what, got, want):
        if got != want:
            wrong.append(f"{what}: {got!r} for {want!r}")
    try:
        check("cwd", os.getcwd(), root + "/d/e")
        check("unlinked", os.pread(gone, 100, 0), b"still here")
        check("unlinked links", os.fstat(gone).st_nlink, 0)
        check("O_TMPFILE", os.pread(tmp, 100, 0), b"never had a name")
        check("removed folder", os.fstat(made).st_nlink, 0)
        check("list", os.listdir(listing), ["e"])
        mapped[0:8] = b"%08d" % n
        mapped.flush()
        check("map", os.pread(kept, 8, 0), b"%08d" % n)
        os.pwrite(kept, b"%08d" % n, 4096)
        check("write", mapped[4096:4104], b"%08d" % n)
        os.close(os.open(f"new{n}", os.O_CREAT | os.O_EXCL))
        check("size", os.fstat(kept).st_size, 8192)
    except Exception as e:
        wrong.append(repr(e))
    print("; ".join(wrong) or "good", flush=True)
PY
coproc USER { python3 "$T/user.py" "$w" 2>"$T/user.err"; }
read -r -t 20 line <&"${USER[0]}"
is 'a program has files open' "$line" ready
check() { # DESCRIPTION
	local line=
	echo >&"${USER[1]}"
	read -r -t 30 line <&"${USER[0]}"
	is "$1" "$line" good
}
locked() { # DESCRIPTION
	ok "$1: flock" not flock -n "$w/d/e/lock" true
	ok "$1: POSIX lock" python3 - "$w/d/e/posix" <<-'PY'
	import fcntl, os, sys
	try:
	    fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
	except BlockingIOError:
	    sys.exit(0)
	sys.exit(1)
	PY
}
check 'before any kill'

kill_hard bough-fs
check 'bough-fs killed'
locked 'bough-fs killed'
for i in 1 2 3 4 5 6; do kill_hard bough-fs; stat -f "$w" >/dev/null; done
check 'bough-fs killed again and again'

kill_hard boughd bough-fs
ok 'with both dead the mount is there' mountpoint -q "$w"
bough_ok 'a new boughd comes' ls
check 'boughd and bough-fs killed together'
locked 'boughd and bough-fs killed together'
# Faster than kill_hard, which looks at every process of the machine.
kill_now() { # NAME
	local p
	for p in $(pgrep -x "$1"); do
		! grep -qazxF "$BOUGH_ROOT" "/proc/$p/cmdline" 2>/dev/null || kill -9 "$p"
	done
}
# boughd in the moment when it has just started another: two may come up then, and one serves.
for i in 0 1 2 3; do
	kill_now bough-fs
	sleep "0.0$i"
	kill_now boughd
	wait_for 20 bough ls -q >/dev/null 2>&1 || fail 'a boughd comes'
	stat -f "$w" >/dev/null
	kill_now bough-fs
	stat -f "$w" >/dev/null
done
check 'boughd killed while it starts bough-fs'
ok 'none of them seems to have ended by its own fault' not grep -q 'ended with status' "$BOUGH_ROOT/run/boughd.log"

holder=$(pids_of bough-hold)
kill -9 "$holder"
another() { local now; now=$(pids_of bough-hold); [ -n "$now" ] && [ "$now" != "$holder" ]; }
ok 'another holder comes when it is killed' wait_for 10 another
kill_hard bough-fs
check 'bough-fs killed after that'

# ---- upgrade

before=$(pids_of boughd),$(pids_of bough-fs),$(pids_of bough-hold)
for p in bough boughd bough-fs bough-hold; do
	cp "$T/bin/$p" "$T/bin/$p.new" && mv "$T/bin/$p.new" "$T/bin/$p"
done
bough_ok 'upgrade' upgrade
check 'after an upgrade'
locked 'after an upgrade'
one_holder() { [ "$(pids_of bough-hold | wc -l)" = 1 ]; }
ok 'one holder is left' wait_for 10 one_holder
after=$(pids_of boughd),$(pids_of bough-fs),$(pids_of bough-hold)
changed=0
for i in 1 2 3; do
	[ "$(cut -d, -f$i <<<"$before")" = "$(cut -d, -f$i <<<"$after")" ] || changed=$((changed + 1))
done
is 'three programs were replaced' "$changed" 3
bough_ok 'upgrade to the same' upgrade
is 'replaces boughd alone' "$(pids_of bough-fs),$(pids_of bough-hold)" "${after#*,}"
kill_hard bough-fs
check 'bough-fs killed after an upgrade'

# ---- mounts inside, when we may

if [ "$(id -u)" = 0 ]; then
	mkdir "$w/inside" "$T/other" && echo 'from outside' >"$T/other/file"
	mount --bind "$T/other" "$w/inside"
	kill_hard bough-fs
	is 'a mount inside the workspace' "$(cat "$w/inside/file")" 'from outside'
	umount "$w/inside"
fi

# ---- programs at work

mkdir "$w/src"
(cd "$BOUGH_SRC" && find fs/base -name '*.[ch]' | cpio -pdm --quiet "$w/src")
cat >"$w/src/Makefile" <<'MK'
CFLAGS = -O1 -std=gnu17 -D_GNU_SOURCE -I.
SRC = $(filter-out %/hash.c,$(wildcard fs/base/*.c))
lib.a: $(SRC:.c=.o)
	ar rcD $@ $^
clean:
	rm -f $(SRC:.c=.o) lib.a
MK
cp -r "$w/src" "$T/undisturbed"
make -sC "$T/undisturbed" >"$T/make.log" 2>&1 || bail "the sources don't build: $(tail -3 "$T/make.log")"
want=$(sha256sum <"$T/undisturbed/lib.a")
builder() {
	local n=0
	until [ -e "$T/stop" ]; do
		make -s -C "$w/src" clean && make -s -j2 -C "$w/src" lib.a || return 1
		[ "$(sha256sum <"$w/src/lib.a")" = "$want" ] || { echo 'another library'; return 1; }
		n=$((n + 1))
	done
	echo "$n builds"
}
database() {
	local n=0
	sqlite3 "$w/db" 'pragma journal_mode=wal; create table t(n integer primary key, x text)' >/dev/null || return 1
	until [ -e "$T/stop" ]; do
		n=$((n + 1))
		sqlite3 "$w/db" "insert into t values($n, hex(randomblob(2000)))" || return 1
	done
	[ "$(sqlite3 "$w/db" 'pragma integrity_check; select count(*) from t')" = $'ok\n'"$n" ] || return 1
	echo "$n rows"
}
cat >"$T/syncer.py" <<'PY'
import os, sys, time
fd, n, worst = os.open(sys.argv[1] + "/synced", os.O_CREAT | os.O_APPEND | os.O_RDWR), 0, 0.0
while not os.path.exists(sys.argv[2]):
    start = time.monotonic()
    n += 1
    os.write(fd, b"%07d\n" % n)
    if n % 20 == 0:
        os.fsync(fd)
    worst = max(worst, time.monotonic() - start)
assert os.pread(fd, 8 * n + 1, 0) == b"".join(b"%07d\n" % i for i in range(1, n + 1))
print(f"{n} appends, longest {worst * 1000:.0f} ms")
PY
syncer() { python3 "$T/syncer.py" "$w" "$T/stop"; }
# Each of its calls has a result that is right only once.
counter() { "$BOUGH_BIN/crash/count_ws" --at "$w/count" --until "$T/stop" --clients 2; }
git -C "$T/undisturbed" init -q && git -C "$T/undisturbed" add . &&
	git -C "$T/undisturbed" -c user.name=t -c user.email=t@t commit -qm all || bail 'no repository'
git clone -q "$T/undisturbed" "$T/clone" || bail 'no clone'
all_of() { (cd "$1" && find . -name .git -prune -o -printf '%y %m %p %l\n' | sort && # FOLDER
	find . -name .git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum) | sha256sum; }
cloned=$(all_of "$T/clone")
cloner() {
	local n=0
	until [ -e "$T/stop" ]; do
		git clone -q --no-local "$T/undisturbed" "$w/clone" && git -C "$w/clone" fsck --strict &&
			[ -z "$(git -C "$w/clone" status --porcelain)" ] || return 1
		[ "$(all_of "$w/clone")" = "$cloned" ] || { echo 'another clone'; return 1; }
		rm -r "$w/clone" || return 1
		n=$((n + 1))
	done
	echo "$n clones"
}
installer() {
	local n=0
	until [ -e "$T/stop" ]; do
		npm ci --silent --no-audit --no-fund --prefix "$w/npm" || return 1
		[ "$(all_of "$w/npm")" = "$installed" ] || { echo 'something else is installed'; return 1; }
		n=$((n + 1))
	done
	echo "$n installations"
}
mkdir "$w/count"
programs=(builder cloner database syncer)
if [ -n "${NPM:-}" ]; then
	mkdir "$T/npm"
	echo '{"name":"t","version":"1.0.0","dependencies":{"express":"4","eslint":"8"}}' >"$T/npm/package.json"
	(cd "$T/npm" && npm install --silent --no-audit --no-fund) || bail 'npm does not install'
	cp -r "$T/npm" "$w/npm" && rm -r "$T/npm/node_modules" "$w/npm/node_modules"
	npm ci --silent --no-audit --no-fund --prefix "$T/npm" || bail 'npm ci'
	installed=$(all_of "$T/npm")
	programs+=(installer)
fi
[ ! -x "$BOUGH_BIN/crash/count_ws" ] || programs+=(counter)
declare -A pid=()
for p in "${programs[@]}"; do
	$p >"$T/$p.out" 2>&1 &
	pid[$p]=$!
done
for ((i = 1; i <= KILLS; i++)); do
	sleep "$GAP"
	kill_now bough-fs
	[ $((i % 6)) = 0 ] || continue
	kill_now boughd
	wait_for 10 bough ls -q >/dev/null 2>&1 || diag 'boughd does not come'
done
touch "$T/stop"
for p in "${programs[@]}"; do
	wait "${pid[$p]}"
	is "$p ends well under $KILLS kills" $? 0
	diag "$p: $(tail -n 3 "$T/$p.out")"
done
check 'and the first program'
locked 'and the first program'

# ---- what nobody holds any more

exec {USER[1]}>&-
wait "$USER_PID" 2>/dev/null
head -c 64M /dev/zero | tr '\0' x >"$w/big"
kill_hard bough-fs
used() { bough show w --json | jq .used_bytes; }
before=$(used)
rm "$w/big"
less() { [ "$(used)" -lt $((before - 60000000)) ]; }
ok 'what is removed after a kill gives its space back' wait_for 15 less
bough_ok 'save' save w
bough_ok 'fork' fork w f
forked=$(at f)
fsck_clean

# ---- restores under kills: whatever was told to the kernel, it shows what is there

echo 1 >"$forked/v" && mkdir "$forked/only-1" && echo one >"$forked/only-1/file"
bough_ok 'save the first' save f --as s1
echo 2 >"$forked/v" && rm -r "$forked/only-1" && mkdir "$forked/only-2"
bough_ok 'save the second' save f --as s2
wrong=
for i in 1 2 1 2 1 2; do
	cat "$forked/v" "$forked"/only-*/* >/dev/null 2>&1
	bough restore f s$i >/dev/null 2>"$T/restore.err" &
	sleep "0.0$((RANDOM % 9))"
	kill_hard bough-fs
	wait $! || wrong+=" restore $i: $(cat "$T/restore.err");"
	[ "$(cat "$forked/v")" = $i ] || wrong+=" v is $(cat "$forked/v") for $i;"
	[ "$(cd "$forked" && echo only-*)" = only-$i ] || wrong+=" only $(cd "$forked" && echo only-*) for $i;"
done
is 'restores under kills' "$wrong" ''

# ---- a server whose end takes long, as one that writes a core

cat >"$T/slow_end.py" <<'PY'
import ctypes, os, signal, sys
pid = int(sys.argv[1])
if ctypes.CDLL(None).ptrace(0x4206, pid, None, None) < 0:  # PTRACE_SEIZE
    sys.exit("can't trace bough-fs")
os.kill(pid, signal.SIGKILL)
os.statvfs(sys.argv[2])  # the next one answers
print("answered", flush=True)
os.waitpid(pid, 0)  # its parent is told of the end only now
PY
old=$(pids_of bough-fs | head -n 1)
run python3 "$T/slow_end.py" "$old" "$w"
is 'the next server waits for no zombie' "$out$err" answered
reaped() { [ ! -d "/proc/$old" ]; }
ok 'which is reaped when it can be' wait_for 10 reaped

# ---- while nobody serves

echo here >"$w/gap" && echo here >"$forked/gap"
daemon=$(pids_of boughd)
kill -STOP "$daemon"
kill_hard bough-fs
stat -f "$w" >/dev/null 2>&1 &
waiter=$!
sleep 0.2
kill -9 $waiter
start=$SECONDS
wait $waiter 2>/dev/null
ok 'who waits for a server can be killed' test $((SECONDS - start)) -lt 20
if [ "$(id -u)" = 0 ]; then
	stat -f "$forked" >/dev/null 2>&1 &
	waiter=$!
	timeout 10 umount -f "$forked" 2>/dev/null # in use, it stays; its connection ends
	ok 'umount -f lets go who waits' wait_for 5 not kill -0 $waiter 2>/dev/null
fi
kill -CONT "$daemon"
back() { [ "$(cat "$w/gap" "$forked/gap" 2>/dev/null)" = $'here\nhere' ]; }
ok 'both are there when somebody serves again' wait_for 15 back

# ---- a server that can't live

cat >"$T/bin/fs" <<SH
#!/bin/sh
[ ! -e "$T/broken" ] || exit 9
exec "$T/bin/bough-fs" "\$@"
SH
chmod +x "$T/bin/fs"
bough_ok 'down' down
gone() { [ -z "$(pids_of bough-hold)" ]; }
ok 'after down no holder is left' wait_for 10 gone
export BOUGH_FS=$T/bin/fs
bough_ok 'up' up
touch "$T/broken"
kill_hard bough-fs
start=$SECONDS
run timeout 40 stat -f "$w"
is 'who waits for a server that only dies gets an error' $code 1
ok 'in bounded time' test $((SECONDS - start)) -lt 30
like 'and the log says so' "$(cat "$BOUGH_ROOT/run/boughd.log")" 'died again and again without being of use'
rm "$T/broken"
run bough down
bough_ok 'and with one that lives' up
is 'all is there' "$(sqlite3 "$w/db" 'pragma integrity_check')" ok

# ---- a boughd that waits on a mount itself, killed with the server that has read its request

bough_ok 'a workspace' create own-write
own=$(bough path own-write)
echo here >"$own/file"
exec 8<"$own/file"
mkdir "$T/large" && head -c 64M /dev/zero >"$T/large/f" && tar cf "$T/large.tar" -C "$T/large" f
waited=0
for i in 0 1 2 3 4 5 6 7; do
	server=$(pids_of bough-fs)
	curl -s --unix-socket "$BOUGH_ROOT/run/boughd.sock" -X PUT --data-binary @"$T/large.tar" \
		'http://x/v1/workspaces/own-write/archive/' >/dev/null 2>&1 &
	putter=$!
	sleep 0.1$i
	boughd=$(pids_of boughd)
	kill -STOP $server $boughd
	timeout 150 bough ls >/dev/null 2>&1 & # has connected to who is about to die
	asker=$!
	sleep 0.2
	kill -9 $boughd $server
	start=$SECONDS
	wait $asker
	[ $((SECONDS - start)) -le $waited ] || waited=$((SECONDS - start))
	run timeout 150 bough ls
	wait $putter
	[ $waited -lt 20 ] || break
done
ok 'is followed by one that serves' test $waited -lt 20 -a "$code" = 0
is 'and programs go on' "$(cat <&8)" here
exec 8<&-
done_testing
