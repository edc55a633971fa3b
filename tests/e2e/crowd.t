#!/bin/bash
# More uploads at once than bough-fs takes connections: each ends well, and meanwhile others are
# served.
. "${0%/*}/lib.sh"
need_fuse
ulimit -n 4096
bough_ok 'a workspace' create w -q
at=$(at w)
for i in $(seq 480); do mkdir "$at/$i"; done
python3 - "$BOUGH_ROOT/run/boughd.sock" "$(pids_of bough-fs)" >"$T/out" 2>"$T/.err" <<'PY'
import collections, io, os, signal, socket, subprocess, sys, tarfile, time

tar = io.BytesIO()
with tarfile.open(fileobj=tar, mode="w") as t:
    member = tarfile.TarInfo("f")
    member.size = 300000
    t.addfile(member, io.BytesIO(b"x" * member.size))
tar = tar.getvalue()
crowd = []
for n in range(1, 481):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(200)
    s.connect(sys.argv[1])
    s.sendall(b"PUT /v1/workspaces/w/archive/%d HTTP/1.1\r\nHost: d\r\nContent-Length: %d\r\n\r\n" %
              (n, len(tar)) + tar[:200000])
    crowd.append(s)
for what in (("create", "other"), ("fork", "w", "child"), ("save", "w")):
    r = subprocess.run(("bough",) + what, capture_output=True, text=True)
    print("ok" if r.returncode == 0 else "not ok", what[0], "beside them", r.stderr)
# Their last calls come to it together.
os.kill(int(sys.argv[2]), signal.SIGSTOP)
for s in crowd:
    s.sendall(tar[200000:])
time.sleep(2)
os.kill(int(sys.argv[2]), signal.SIGCONT)
got = collections.Counter(s.recv(1000)[:12] for s in crowd)
print("ok" if got == {b"HTTP/1.1 200": 480} else "not ok", "all end well", dict(got))
PY
while read -r line; do ok "${line#*ok }" test "${line%% *}" = ok; done <"$T/out"
is 'what they brought is there' "$(find "$at" -name f -size 300000c | wc -l)" 480
done_testing
