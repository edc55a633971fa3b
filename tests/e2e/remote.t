#!/bin/bash
# The command line with a boughd elsewhere: by TCP and by TLS, with a token out of a file.
. "${0%/*}/lib.sh"
need_fuse

mkdir -p "$BOUGH_ROOT"
chmod 711 "$T" "$BOUGH_ROOT" # to be passed through on the way to a sandbox's root
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out cert.pem \
	-days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>"$T/.err" ||
	bail "no certificate: $(cat "$T/.err")"
boughd --root "$BOUGH_ROOT" --daemon --listen 127.0.0.1:0 --tls-cert "$T/cert.pem" --tls-key "$T/key.pem" ||
	bail 'boughd does not start'
port=$(sed -n 's/.*, port \([0-9]*\) with TLS$/\1/p' "$BOUGH_ROOT/run/boughd.log")
(umask 077 && bough token create --scope admin >token && bough token create --read-only >reader) 2>/dev/null
secret=$(cat token)
# From here on nothing goes by the socket: the root is another's.
served=$BOUGH_ROOT EXTRA_ROOTS=$BOUGH_ROOT
export BOUGH_ROOT=$T/none BOUGH_URL=https://localhost:$port BOUGH_TOKEN_FILE=$T/token BOUGH_CA=$T/cert.pem

# ---- workspaces and files

mkdir -p tree/sub && seq 1 3000 >tree/a && echo b >tree/sub/b && ln -s a tree/link
run bough create app --dir tree
is 'a folder becomes a workspace there' "$code $out" '0 app'
is 'a file is read' "$(bough cat app:sub/b)" b
head -c 9000000 /dev/urandom >big
bough_ok 'a file goes in' cp -q big app:big
ok 'and comes back' cmp big <(bough cp app:big -)
bough_ok 'a folder goes in' cp tree app:copy
bough_ok 'and comes back' cp app:copy back
same_tree 'whole' tree back
bough_ok 'an archive comes out' export app -o app.tar
run bough create two --tar app.tar
is 'and becomes a workspace' "$code $out" '0 two'
bough_ok 'or a snapshot, of what is piped in' import - --as piped <app.tar
run bough diff piped --against two
is 'the same' "$code$out" 0
is 'a fork' "$(bough fork app app-2)" app-2
like 'a save' "$(bough save app-2 --as saved)" '^sn_'
run bough mount app
is 'mount tells the name, not a folder of that machine' "$code $out" '0 app'
like 'ls' "$(bough ls -q | sort | tr '\n' ' ')" '^app app-2 two $'
run bough apply app --to "$T"
like 'what asks boughd and then fails says why' "$code $err" "^[1-9]+ bough: apply: "
is 'nothing was started here' "$(ls "$BOUGH_ROOT" 2>&1 | tail -c 26)" 'No such file or directory'

# ---- what is for the machine itself

bough_fails 'a mount point is elsewhere' 2 'cp, cat, files ls and exec reach' path app
for c in up down upgrade doctor; do
	bough_fails "$c is local" 2 "^bough: $c: not with --url: " $c
done

# ---- who and where

run env -u BOUGH_TOKEN_FILE bough ls
like 'no token' "$code $err" '^1 bough: ls: a token is needed'
bough_fails 'a token that only reads' 1 '.' --auth reader rm app
is 'which it does' "$(bough --auth reader cat app:sub/b)" b
echo 'not-a-token' >wrong
bough_fails 'a wrong token' 1 '.' --auth wrong ls
bough_fails 'no file of a token' 2 "open $T/nowhere: No such file" --auth "$T/nowhere" ls
bough_fails 'a file that holds none' 2 "doesn't hold a token" --auth cert.pem ls
printf 'two\r\nX: y' >lines
bough_fails 'nor lines of a head' 2 "doesn't hold a token" --auth lines ls
run env -u BOUGH_CA bough ls
like 'a certificate that nobody here signed' "$code $err" "^1 bough: ls: https://localhost:$port: its certificate isn't good: self.signed.*: --ca FILE"
bough_fails 'a certificate of another name' 1 "isn't good: .*mismatch" --url "https://127.0.0.1:$port" ls
bough_fails 'no certificates' 1 'no certificates can be read' --ca token ls
bough_fails 'nobody there' 1 'https://127.0.0.1:1: .*refused' --url https://127.0.0.1:1 ls
bough_fails 'plain where TLS is spoken' 1 'closed the connection .*https alone' --url "http://127.0.0.1:$port" ls
while read -r url why; do
	bough_fails "no URL: $url" 2 "$why" --url "$url" ls
done <<-END
	ftp://h no.URL
	localhost no.URL
	https:// no.right.host
	https://-h no.right.host
	https://h:0 no.right.host
	https://h:99999 no.right.host
	https://h:1x no.right.host
	https://[::1 no.right.host
	https://h/v1 ends.behind
	https://u:$secret@h isn't.taken
END
is 'the secret in it is not repeated' "${err//"$secret"/}" "$err"
bough_fails 'two places' 2 'one of --root and --url' --url https://h --root "$T" ls
run env -u BOUGH_URL bough --auth token ls
is 'a token without a place' "$code" 2
is '--root goes before BOUGH_URL' "$(bough --root "$served" cat app:sub/b)" b
is 'its own boughd answers with JSON, too' "$(bough whatever --json 2>/dev/null | jq -r .exit)" 2

# ---- in the clear

BOUGH_ROOT=$served kill_hard boughd
boughd --root "$served" --daemon --listen '127.0.0.1:0' || bail 'boughd does not start'
plain=$(sed -n 's/.*listens on 127.0.0.1:0, port \([0-9]*\).*/\1/p' "$served/run/boughd.log" | tail -n 1)
is 'by http' "$(bough --url "http://127.0.0.1:$plain/" cat app:sub/b)" b
for there in http://192.0.2.1:1 http://host.invalid http://localhost.invalid http://127.0.0.1.invalid http://[2001:db8::1]:1; do
	bough_fails "no token to $there" 2 'would go there in the clear: use https' --url "$there" --auth token ls
done
bough_fails 'but where it is said' 1 '.' --url http://host.invalid --auth token --insecure ls
BOUGH_INSECURE=1 bough_fails 'or set' 1 '.' --url http://host.invalid --auth token ls
bough_fails 'of a place' 2 'go with --url' --root "$T" --insecure ls
bough_fails 'where certificates mean nothing' 2 'goes with https' --url "http://127.0.0.1:$plain" --ca cert.pem ls
bough_fails 'TLS where it is plain' 1 'TLS: ' --url "https://127.0.0.1:$plain" ls

# ---- sandboxes

if [ "$(id -u)" = 0 ] && command -v "$MAIN_RT" >/dev/null; then
	BOUGH_ROOT=$served kill_hard boughd
	boughd --root "$served" --daemon --listen "127.0.0.1:$port" --tls-cert "$T/cert.pem" \
		--tls-key "$T/key.pem" || bail 'boughd does not start'
	run bough run --rm -i --workspace app -- cat <<<'through'
	is 'run, with what it reads and prints' "$code $out" '0 through'
	bough_ok 'one that stays' run -d --name dev --workspace app
	run bough exec dev -- sh -c 'echo out; echo err >&2; exit 7'
	is 'exec ends as its command does' "$code $out $err" '7 out err'
	head -c 3000000 big >part
	ok 'its streams are whole' cmp part <(bough exec -i dev -- cat <part)
	# An input that doesn't end: script(1) would write what ends a terminal's, which may be echoed.
	mkfifo "$T/typed"
	run script -qefc 'bough exec -it dev -- sh -c "test -t 0 && echo tty; exit 9"' /dev/null <>"$T/typed"
	like 'a terminal' "$code $out" '^9 tty'
	id=$(bough exec -d dev -- sh -c 'echo later; sleep 0.2; echo last')
	is 'what was printed is followed' "$(bough logs -f "$id")" $'later\nlast'
	bough_ok 'a folder goes into a sandbox' cp tree dev:/root/tree
	bough_ok 'and comes back' cp dev:/root/tree again
	same_tree 'whole' tree again
	timeout 30 bough exec dev -- sleep 20 &
	pid=$!
	wait_for 10 pgrep -P $pid >/dev/null
	ok 'no argument holds the secret' \
		not grep -qaF "$secret" $(pgrep -P $pid | sed 's|.*|/proc/&/cmdline|') /proc/$pid/cmdline
	kill $pid
	wait $pid 2>/dev/null
	bough_ok 'rm' rm --force dev
fi
own=$(pgrep -f "^bough-tls localhost $port " | wc -l)
wait_for 10 eval "! pgrep -f '^bough-tls localhost $port ' >/dev/null"
ok "no bough-tls is left ($own a moment ago)" not pgrep -f "^bough-tls localhost $port "
export BOUGH_ROOT=$served
unset BOUGH_URL
done_testing
