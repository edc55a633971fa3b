#!/bin/bash
# The terminal of a process over WebSocket, by a client that speaks it by hand, and by `bough exec -it`:
# over the socket, TCP and TLS; broken connections, hostile frames, slow clients, boughd killed.
. "${0%/*}/lib.sh"
need_sandboxes

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$T/key.pem" \
	-out "$T/cert.pem" -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>"$T/.err" ||
	bail "no certificate: $(cat "$T/.err")"
mkdir -p "$BOUGH_ROOT"
echo '{"cors_origins": ["https://app.example.org"]}' >"$BOUGH_ROOT/config.json"
export BOUGH_WEB_STALL=2
begin() { # OPTION…
	boughd --root "$BOUGH_ROOT" --daemon "$@" || bail 'boughd does not start'
	sed -n 's/.*listens on 127.0.0.1:0, port \([0-9]*\).*/\1/p' "$BOUGH_ROOT/run/boughd.log" | tail -n 1
}
token() { # FIELDS
	curl -sS --unix-socket "$BOUGH_ROOT/run/boughd.sock" -X POST --data "$1" http://d/v1/tokens
}

bough_in_tty() { # COMMAND…: with a terminal of its own
	run script -qefc "$*" /dev/null </dev/null
}

# ---- in the clear

port=$(begin --listen 127.0.0.1:0)
run bough run --name box -d
[ $code = 0 ] || bail "no sandboxes here: $err"
bough user add ann >/dev/null
admin=$(token '{"scope":"admin"}' | jq -r .token)
reading=$(token '{"scope":"admin","read_only":true}' | jq -r .token)
other=$(token '{"owner":"ann"}' | jq -r .token)
brief=$(token '{"scope":"admin"}')
tokens=$(jq -n --arg admin "$admin" --arg reading "$reading" --arg other "$other" \
	--arg brief "$(jq -r .token <<<"$brief")" --arg brief_id "$(jq -r .id <<<"$brief")" \
	'$ARGS.named')
client=("$BOUGH_SRC/tests/e2e/terminal.py" "$BOUGH_ROOT/run/boughd.sock")
TOKENS=$tokens timeout 300 python3 "${client[@]}" "$port" "$BOUGH_WEB_STALL" "$T" \
	>"$T/checks" 2>"$T/checks.err" &
client_pid=$!
ready() { [ -e "$T/ready" ] || ! kill -0 "$client_pid" 2>/dev/null; } # or it has failed
wait_for 60 ready
kill "$(pids_of boughd)"
wait "$client_pid"
is 'the checks ran to their end' "$?$(tail -n 20 "$T/checks.err")" 0
take_tap "$T/checks"
is 'nothing went wrong inside' "$(grep -c 'ERROR' "$BOUGH_ROOT/run/boughd.log")" 0

# ---- with TLS, and boughd started anew

while [ -n "$(pids_of boughd)" ]; do sleep 0.02; done
port=$(begin --listen 127.0.0.1:0 --tls-cert "$T/cert.pem" --tls-key "$T/key.pem")
read -r exec at <"$T/ready"
TOKENS=$tokens timeout 200 python3 "${client[@]}" "$port" "$BOUGH_WEB_STALL" "$T" tls "$exec" "$at" \
	>"$T/checks" 2>"$T/checks.err"
is 'the checks with TLS ran to their end' "$?$(tail -n 20 "$T/checks.err")" 0
take_tap "$T/checks"

# ---- bough exec -it

bough_in_tty 'stty cols 91 rows 33; bough exec -it box -- sh -c "tty; stty size; exit 3"'
is 'bough exec -it: the exit code' "$code" 3
like 'a terminal' "$out" '/dev/pts/'
like 'of the size of ours' "$out" '33 91'
is 'input from a pipe, to its end' "$(echo 'echo $((3 * 14)); exit' | bough exec -it box -- sh | grep -c '42')" 1
cat >"$T/keys.py" <<'PY'
import os, pty, select, signal, struct, fcntl, termios, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.execvp("bough", ["bough", "shell", "box"])
seen, end = b"", time.monotonic() + 40
def until(word):
    global seen
    while word not in seen and time.monotonic() < end:
        if select.select([fd], [], [], 1)[0]:
            try:
                seen += os.read(fd, 65536)
            except OSError:
                break
    return word in seen
def say(what, good):
    print("%sok 1 - %s" % ("" if good else "not ", what))
    if not good:
        print("# %r" % seen[-300:])
os.write(fd, b"stty -echo; echo x$((40+2))\n")
say("bough shell: a command", until(b"x42"))
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
os.kill(pid, signal.SIGWINCH)
# It is told by a signal, which may come behind what is typed.
os.write(fd, b"until stty size | grep '5[0] 120'; do sleep 0.1; done\n")
say("a new size of our terminal", until(b"50 120"))
os.write(fd, b"sleep 100; echo in$((1+1))\n")
time.sleep(0.5)
os.write(fd, b"\x03\n echo y$((50+5))\n")
say("^C is the program's", until(b"y55"))
os.system("kill -9 " + sys.argv[1])
os.write(fd, b"echo kept-$((6*9))\n")
os.system(sys.argv[2])
say("boughd killed meanwhile: it goes on, and what was typed isn't lost", until(b"kept-54"))
os.write(fd, b"exit 9\n")
until(b"never")
say("its exit code", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9)
PY
timeout 200 python3 "$T/keys.py" "$(pids_of boughd)" "boughd --root '$BOUGH_ROOT' --daemon" \
	>"$T/checks" 2>&1
is 'the checks of bough shell ran to their end' $? 0
take_tap "$T/checks"

# ---- the clients

cat >"$T/client.py" <<'PY'
import os, sys
import bough
with bough.Client() as c:
    ex = c.sandboxes("box").exec(["sh", "-c", "stty -echo; exec sh"], tty=True, stdin=True)
    seen = b""
    with ex.terminal() as t:
        t.resize(100, 30)
        t.send(b"stty size\n")
        for data in t:
            seen += data
            if b"30 100" in seen:
                break
        os.system(sys.argv[1])
        t.send(b"echo kept-$((6*9)); exit 4\n")
        for data in t:
            seen += data
    print(seen.count(b"30 100"), seen.count(b"kept-54"), t.exit, len(seen) == t.offset)
PY
cat >"$T/client.mjs" <<'JS'
import { execSync } from 'node:child_process';
const bough = await import(process.argv[2]);
const c = new bough.Client();
const ex = await c.sandboxes('box').exec(['sh', '-c', 'stty -echo; exec sh'], { tty: true, stdin: true });
const t = await ex.terminal();
t.resize(100, 30);
t.send('stty size\n');
let seen = '', again = false;
for await (const data of t) {
	seen += data;
	if (again || !seen.includes('30 100')) continue;
	again = true;
	execSync(process.argv[3], { stdio: 'ignore' });
	t.send('echo kept-$((6*9)); exit 4\n');
}
const count = (s) => seen.split(s).length - 1;
console.log(count('30 100'), count('kept-54'), JSON.stringify(t.exit), seen.length === t.offset);
c.close?.();
JS
again() { # what kills boughd, and starts it anew
	echo "kill -9 $(pids_of boughd); exec boughd --root '$BOUGH_ROOT' --daemon >/dev/null 2>&1"
}
export PYTHONPATH=$BOUGH_SRC/tools/clients/python PYTHONDONTWRITEBYTECODE=1
run timeout 100 python3 "$T/client.py" "$(again)"
is 'python: boughd killed meanwhile' "$out$err" "1 1 {'exit_code': 4, 'reason': 'exited'} True"
if command -v node >/dev/null; then
	run timeout 100 node "$T/client.mjs" "$BOUGH_SRC/tools/clients/javascript/index.js" "$(again)"
	is 'javascript: likewise' "$out$err" '1 1 {"exit_code":4,"reason":"exited"} true'
fi

bough_ok 'the sandbox goes' rm --force box
fsck_clean
done_testing
