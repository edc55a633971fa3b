#!/bin/bash
# bough-jail, in which git reads what a workspace brought: what it can reach, and what it can't.
. "${0%/*}/lib.sh"

mkdir w r outside && echo readable >r/f && echo hidden >outside/f
exe=$(command -v boughd)
ln -s "$exe" bough-jail
cd w || exit 1
jail() { run "$T/bough-jail" -w "$T/w" -r "$T/r" "$@"; }
sh() { jail /bin/sh -c "$1"; }
py() { jail /usr/bin/python3 -IS -c "$1"; }

jail "$(command -v git)" --version
is 'git runs' "$code" 0
sh 'pwd; cat ../r/f; echo new >made; cat made'
is 'in its folder, reads and writes' "$out" "$T/w"$'\nreadable\nnew'
is 'which stays' "$(cat made)" new
# Namespaces may be nobody's to make here; then the rest holds all the same.
if unshare -mn true 2>/dev/null || unshare -Umn true 2>/dev/null; then
	sh 'echo x >../r/f; echo x >../r/new; cat ../outside/f; cat /etc/passwd; ls /proc /sys /root /home; echo x >/new
		echo x >/usr/new; ls /'
	is 'nothing else is there' "$(grep -vxE 'bin|sbin|lib[0-9x]*|usr' <<<"$out" | tr '\n' ' ')" "dev etc $(cut -d/ -f2 <<<"$T") "
	is 'what is to be read is not written' "$(ls "$T/r"):$(cat "$T/r/f")" f:readable
	not_there=$(grep -c 'No such file\|nonexistent\|cannot' <<<"$err")
	ok 'and says so' test "$not_there" -ge 8
	py 'import os; print(sorted(os.listdir("/dev")))'
	is 'two devices' "$out" "['null', 'urandom']"
fi
py 'import socket; socket.socket()'
like 'no socket' "$err" 'OSError'
py 'import socket; socket.socketpair()'
like 'no pair of them' "$err" 'OSError'
calls='import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
def call(n, *a):
    r = c.syscall(n, *[ctypes.c_long(x) for x in a]); return "ok" if r >= 0 else os.strerror(ctypes.get_errno())
'
case $(uname -m) in
x86_64) unshare=272 ptrace=101 mount=165 bpf=321 kill=62 keyctl=250 uring=425 ;;
*) unshare=97 ptrace=117 mount=40 bpf=280 kill=129 keyctl=219 uring=425 ;;
esac
for n in $unshare $ptrace $mount $bpf $kill $keyctl $uring; do
	py "$calls"'print(call('$n', 0, 0, 0, 0))'
	is "call $n is not there" "$out" 'Function not implemented'
done
py 'import threading; t = threading.Thread(target=lambda: print("thread")); t.start(); t.join()'
is 'threads are' "$out" thread
py 'import subprocess; print(subprocess.run(["/bin/echo", "child"], capture_output=True).stdout)'
like 'and children' "$out" child
py 'import resource as r; print(r.getrlimit(r.RLIMIT_AS)[0] >> 30, r.getrlimit(r.RLIMIT_CPU)[0], r.getrlimit(r.RLIMIT_CORE)[0])'
is 'bounds' "$out" '4 300 0'
py 'print([l.split()[1] for l in open("/proc/self/status") if l.startswith("CapEff")])' 2>/dev/null
if [ "$(id -u)" = 0 ]; then
	jail /usr/bin/python3 -IS -c 'import os; os.chown("made", 1, 1)'
	like 'root is nobody there' "$err" 'Operation not permitted|Function not implemented'
fi
jail /no/such/program
is 'a program that is not there' "$code" 127
done_testing
