#!/bin/bash
# Forks: complete under writes (invariant 7), many, in long lines.
. "${0%/*}/lib.sh"
need_fuse

bough_ok 'create' create main
main=$out

# ---- invariant 7: a fork contains every write that was acknowledged before it began

# Writers number their writes, and tell the number only once the call has returned: appended to
# a log, made as files, and renamed over one file.
writer() { # NAME; in the background
	exec python3 - "$main" "$1" "$T/ack.$1" <<-'PY'
	import os, sys
	root, name, ack = sys.argv[1:]
	log = os.open(f"{root}/{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
	os.mkdir(f"{root}/{name}.d")
	told = os.open(ack, os.O_WRONLY | os.O_CREAT, 0o644)
	n = 0
	while True:
	    n += 1
	    os.write(log, b"%08d\n" % n)
	    fd = os.open(f"{root}/{name}.d/{n:08d}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
	    os.write(fd, b"%08d" % n)
	    os.close(fd)
	    with open(f"{root}/{name}.tmp", "w") as f:
	        f.write("%08d" % n)
	    os.rename(f"{root}/{name}.tmp", f"{root}/{name}.now")
	    if n > 50:
	        os.unlink(f"{root}/{name}.d/{n - 50:08d}")
	    os.pwrite(told, b"%08d" % n, 0)
	PY
}
writer a &
writer b &
wait_for 10 test -s "$T/ack.b" -a -s "$T/ack.a"

check_fork() { # PATH NAME ACKNOWLEDGED: prints what is wrong
	python3 - "$@" <<-'PY'
	import os, sys
	root, name, acked = sys.argv[1], sys.argv[2], int(sys.argv[3])
	log = open(f"{root}/{name}.log", "rb").read()
	n = len(log) // 9
	if len(log) % 9:
	    print("the log is torn")
	if n < acked:
	    print(f"the log has {n} of {acked}")
	if log != b"".join(b"%08d\n" % i for i in range(1, n + 1)):
	    print("the log has holes")
	files = sorted(int(f) for f in os.listdir(f"{root}/{name}.d"))
	if not files or files[-1] < acked or files != list(range(files[0], files[-1] + 1)):
	    print(f"files {files[:1]} to {files[-1:]}, {len(files)} of them, {acked} acknowledged")
	for i in files[:-1]:
	    if open(f"{root}/{name}.d/{i:08d}", "rb").read() != b"%08d" % i:
	        print(f"file {i} is wrong")
	now = int(open(f"{root}/{name}.now").read())
	if now < acked:
	    print(f"renamed {now} of {acked}")
	PY
}

wrong=
for i in $(seq 1 15); do
	acked_a=$((10#$(cat "$T/ack.a"))) acked_b=$((10#$(cat "$T/ack.b")))
	run bough fork main "f$i"
	[ $code = 0 ] || { wrong+="fork $i: $err;"; continue; }
	at=$(at "f$i")
	wrong+=$(check_fork "$at" a $acked_a)$(check_fork "$at" b $acked_b)
done
is '15 forks under write hold all that was acknowledged' "$wrong" ''
kill %1 %2 2>/dev/null
wait 2>/dev/null
diag "writes acknowledged: $(cat "$T/ack.a") and $(cat "$T/ack.b")"
before=$(ls "$(at f3)/a.d" | md5sum)
is 'a fork stays as it was' "$(ls "$(at f3)/a.d" | md5sum)" "$before"

# ---- forks of forks of forks

bough_ok 'a workspace for the line' create gen-0
for i in $(seq 1 40); do
	echo "$i" >"$(at gen-$((i - 1)))/by-$i"
	bough fork gen-$((i - 1)) "gen-$i" >/dev/null || { fail "generation $i"; break; }
done
is 'the 40th generation has what each before it wrote' \
	"$(cat "$(at gen-40)"/by-* | sort -n | tr '\n' ' ')" "$(seq -s ' ' 1 40) "
is 'the 20th has half, and what it wrote itself' "$(ls "$(at gen-20)" | wc -l)" 21
layers() { bough show gen-40 --json | jq .layers; }
ok 'its long line is flattened in time' wait_for 15 eval '[ "$(layers)" -le 12 ]'
diag "layers of the 40th: $(layers)"
is 'and shows the same' "$(cat "$(at gen-40)"/by-* | sort -n | tr '\n' ' ')" "$(seq -s ' ' 1 40) "

# ---- many at once

bough_ok '100 forks in one call' fork gen-40 crowd -n 100 --json
is 'all are mounted' "$(json '[.items[] | select(.mounted)] | length')" 100
for i in 1 50 100; do echo "$i" >"$(at crowd-$i)/mine"; done
is 'each has its own' "$(cat "$(at crowd-50)/mine")" 50
ok 'the others do not see it' test ! -e "$(at crowd-51)/mine"
bough_fails 'a name that is taken fails all' 4 'crowd-5' fork gen-1 new-1 crowd-5
bough_fails 'and makes none' 3 'new-1' path new-1

# ---- parallel forks of one parent

for i in $(seq 1 12); do bough fork gen-40 "par-$i" >"$T/par.$i" 2>&1 & pids[i]=$!; done
bad=0
for i in $(seq 1 12); do wait "${pids[i]}" || { bad=$((bad + 1)); diag "$(cat "$T/par.$i")"; }; done
is 'twelve forks of one parent at once' $bad 0

# ---- what a fork holds of open files

exec 7>"$main/open-file"
echo before >&7
rm "$main/open-file"
bough_ok 'fork with an unlinked open file' fork main orphan
ok 'the fork has no name for it' test ! -e "$(at orphan)/open-file"
echo after >&7 && exec 7>&-
ok 'the parent could write on' test $? = 0

# ---- mapped memory

bough_ok 'fork after msync' create maps
python3 - "$(at maps)" <<'PY'
import mmap, subprocess, sys
f = open(sys.argv[1] + "/map", "w+b"); f.truncate(1 << 20)
m = mmap.mmap(f.fileno(), 0)
m[0:5] = b"first"; m[99999:100003] = b"page"; m.flush()
subprocess.run(["bough", "fork", "maps", "maps-1"], check=True, stdout=subprocess.DEVNULL)
m[0:5] = b"later"; m.flush()
PY
is 'the fork has what was flushed' "$(head -c 5 "$(at maps-1)/map")" first
is 'and not what came later' "$(head -c 5 "$(at maps)/map")" later
fsck_clean
done_testing
