#!/bin/bash
# Real programs on the mount: SQLite, a C build, tar, rsync, Python, folders of 20,000 entries.
. "${0%/*}/lib.sh"
need_fuse

bough_ok 'create' create w
w=$out

# ---- SQLite with a write-ahead log, several writers, forked while they write

cat >"$T/sql.py" <<'PY'
import sqlite3, sys
db, who, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
c = sqlite3.connect(db, timeout=60, isolation_level=None)
c.execute("pragma journal_mode=wal")
c.execute("create table if not exists t (who, i, pad, primary key (who, i))")
for i in range(n):
    c.execute("begin immediate")
    c.execute("insert into t values (?, ?, ?)", (who, i, "x" * (i % 2000)))
    c.execute("commit")
PY
python3 "$T/sql.py" "$w/db" 0 1
for who in 1 2 3; do python3 "$T/sql.py" "$w/db" $who 150 & pids[who]=$!; done
sleep 0.3
bough_ok 'fork while SQLite writes' fork w f
bad=0
for who in 1 2 3; do wait "${pids[who]}" || bad=$((bad + 1)); done
is 'three writers with a WAL' $bad 0
is 'the database is whole' "$(sqlite3 "$w/db" 'pragma integrity_check')" ok
is 'all rows are there' "$(sqlite3 "$w/db" 'select count(*) from t')" 451
f=$(at f)
is 'the fork of it is whole' "$(sqlite3 "$f/db" 'pragma integrity_check')" ok
rows=$(sqlite3 "$f/db" 'select count(*) from t')
ok "and has some of the rows ($rows)" test "$rows" -ge 1 -a "$rows" -le 451
is 'with no gap' "$(sqlite3 "$f/db" 'select count(*) from (select who, max(i) + 1 as n, count(*) as k from t group by who) where n <> k')" 0
run sqlite3 "$w/db" 'vacuum; pragma wal_checkpoint(truncate); reindex;'
is 'vacuum' $code 0
run sqlite3 "$w/mem.db" 'pragma mmap_size=100000000; create table a as with recursive c(x) as (select 1 union all select x + 1 from c where x < 20000) select x, randomblob(100) as b from c; pragma integrity_check;'
like 'with mapped memory' "$out" ok
kill_hard bough-fs
wait_for 20 bough path w >/dev/null 2>&1
wait_for 20 test -e "$w/db"
is 'whole after the server was killed' "$(sqlite3 "$w/db" 'pragma integrity_check; select count(*) from t')" $'ok\n451'

# ---- a C build

mkdir "$w/src"
(cd "$BOUGH_SRC" && find fs/base -name '*.[ch]' | cpio -pdm --quiet "$w/src")
cat >"$w/src/Makefile" <<'MK'
CFLAGS = -O1 -std=gnu17 -D_GNU_SOURCE -I.
SRC = $(filter-out %/hash.c,$(wildcard fs/base/*.c))
lib.a: $(SRC:.c=.o)
	ar rcs $@ $^
%.o: %.c
	$(CC) $(CFLAGS) -MMD -c -o $@ $<
-include $(wildcard fs/base/*.d)
MK
run make -s -j2 -C "$w/src"
is 'a C build' $code 0
[ $code = 0 ] || diag_run
run make -q -C "$w/src"
is 'is up to date' $code 0
bough_ok 'fork of the build' fork w f2
run make -q -C "$(at f2)/src"
is 'is up to date in the fork' $code 0
touch "$(at f2)/src/fs/base/err.h"
run make -q -C "$(at f2)/src"
is 'until a header is touched' $code 1

# ---- tar and rsync round trips

mkdir "$T/real"
(cd /usr/share && find doc/b* doc/c* zoneinfo/[A-C]* -print0 2>/dev/null | head -z -n 4000 |
	cpio -0 -pdm --quiet "$T/real" 2>/dev/null)
ok "a real tree ($(find "$T/real" | wc -l) files)" test "$(find "$T/real" | wc -l)" -gt 300
mkdir "$w/by-tar" "$w/by-rsync" "$w/by-cp"
tar cpf - --format=pax -C "$T/real" . | tar xpf - -C "$w/by-tar"
same_tree 'tar in' "$T/real" "$w/by-tar"
mkdir "$T/out" && tar cpf - --format=pax -C "$w/by-tar" . | tar xpf - -C "$T/out"
same_tree 'tar out' "$T/real" "$T/out"
run rsync -aHAX "$T/real/" "$w/by-rsync/"
is 'rsync in' $code 0
run rsync -aHAXnc --delete --itemize-changes "$T/real/" "$w/by-rsync/"
is 'rsync finds no difference' "$out" ''
cp -a "$w/by-tar/." "$w/by-cp/"
same_tree 'cp within' "$T/real" "$w/by-cp"
run rm -rf "$w/by-cp" "$w/by-rsync"
is 'rm -rf' $code 0
ok 'leaves nothing' test ! -e "$w/by-cp" -a ! -e "$w/by-rsync"

# ---- Python

py=python3
for p in /usr/bin/python3 python3; do "$p" -c 'import ensurepip' 2>/dev/null && py=$p && break; done
run "$py" -m venv "$w/venv"
is 'python3 -m venv' $code 0
[ $code = 0 ] || diag_run
is 'runs' "$("$w/venv/bin/python" -c 'import json, sys; print(sys.prefix)')" "$w/venv"
bough_ok 'fork of a venv' fork w f3
run "$(at f3)/venv/bin/python" -c 'import pip; print("pip")'
is 'its pip can be imported in the fork' "$out" pip

# ---- a folder of 20,000 entries

mkdir "$w/many"
python3 - "$w/many" <<'PY'
import os, sys
root = sys.argv[1]
for i in range(20000):
    os.close(os.open(f"{root}/entry-{i:05d}", os.O_CREAT | os.O_WRONLY, 0o644))
names = os.listdir(root)
assert len(names) == len(set(names)) == 20000, (len(names), len(set(names)))
# Reading while entries come and go: what stays is seen exactly once.
seen = []
for i, e in enumerate(os.scandir(root)):
    seen.append(e.name)
    if i % 10 == 0:
        victim = f"{root}/entry-{i // 10 * 7 % 2000 + 10000:05d}"
        if os.path.exists(victim):
            os.unlink(victim)
        os.close(os.open(f"{root}/new-{i:05d}", os.O_CREAT, 0o644))
old = [n for n in seen if n.startswith("entry-")]
assert len(old) == len(set(old)), "seen twice"
stay = {f"entry-{i:05d}" for i in list(range(10000)) + list(range(12000, 20000))}
assert stay <= set(old), "missed"
PY
is 'a folder of 20,000 entries, read while it changes' $? 0
bough_ok 'fork of it' fork w f4
is 'the fork has them all' "$(ls -f "$(at f4)/many" | wc -l)" "$(ls -f "$w/many" | wc -l)"
rm -rf "$w/many"
ok 'it can be removed' test ! -e "$w/many"

# ---- locks, mmap, append, odd calls

run python3 - "$w" <<'PY'
import fcntl, mmap, os, subprocess, sys, tempfile
root = sys.argv[1]
p = root + "/locks"
f = open(p, "w+b")
fcntl.flock(f, fcntl.LOCK_EX)
r = subprocess.run(["flock", "-n", p, "true"])
assert r.returncode != 0, "flock doesn't exclude"
fcntl.flock(f, fcntl.LOCK_UN)
assert subprocess.run(["flock", "-n", p, "true"]).returncode == 0
fcntl.lockf(f, fcntl.LOCK_EX, 10, 0)
code = "import fcntl,sys\nf=open(sys.argv[1],'r+b')\ntry:\n fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB,10,5)\nexcept OSError: sys.exit(7)"
assert subprocess.run([sys.executable, "-c", code, p]).returncode == 7, "POSIX locks don't exclude"
f.truncate(1 << 20)
m = mmap.mmap(f.fileno(), 0)
m[12345:12350] = b"hello"
m.flush()
assert open(p, "rb").read()[12345:12350] == b"hello"
a, b = open(root + "/app", "ab", 0), open(root + "/app", "ab", 0)
for i in range(100):
    a.write(b"a\n"); b.write(b"b\n")
assert open(root + "/app", "rb").read() == b"a\nb\n" * 100
fd = os.open(root, os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(fd, b"no name"); subprocess.run(["ln", "-L", f"/proc/{os.getpid()}/fd/{fd}", root + "/named"], check=True)
assert open(root + "/named").read() == "no name"
s = open(root + "/named", "rb"); d = open(root + "/copy", "wb")
assert os.copy_file_range(s.fileno(), d.fileno(), 7) == 7
d.close(); assert open(root + "/copy").read() == "no name"
with open(root + "/sparse", "w+b") as g:
    g.truncate(5 << 30)
    g.seek(4 << 30); g.write(b"x"); g.flush()
    assert os.lseek(g.fileno(), 0, os.SEEK_DATA) == 4 << 30
    assert os.lseek(g.fileno(), 0, os.SEEK_HOLE) == 0
PY
is 'locks, mapped memory, appends, O_TMPFILE, copies, files over 4 GiB' $code 0
[ $code = 0 ] || diag_run
fsck_clean
done_testing
