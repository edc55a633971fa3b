#!/bin/bash
# URLs of repositories that callers with a token name: only public addresses, and what the
# configuration lets through; git connects to the address that was judged.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/repo.sh"

start() { # CONFIG
	mkdir -p "$BOUGH_ROOT"
	echo "$1" >"$BOUGH_ROOT/config.json"
	boughd --root "$BOUGH_ROOT" --daemon --listen 127.0.0.1:0 || bail 'boughd does not start'
	tcp=127.0.0.1:$(sed -n 's/.*listens on 127.0.0.1:0, port \([0-9]*\)$/\1/p' "$BOUGH_ROOT/run/boughd.log" | tail -n 1)
}
stop() { bough down >/dev/null 2>&1; }
ask() { # METHOD PATH [BODY]: $status and $body
	body=$(curl -sS -m 30 -X "$1" -H "Authorization: Bearer $key" ${3:+--data-binary "$3"} -w '\n%{http_code}' "http://$tcp$2")
	status=${body##*$'\n'} body=${body%$'\n'*}
}
add() { ask POST /v1/repos "$(jq -nc --arg u "$1" --arg n "$2" '{url: $u, name: $n} + $ARGS.named.more' --argjson more "${3:-{\}}")"; }
refused() { # DESCRIPTION URL WORDS
	add "$2" "no$RANDOM"
	is "$1" "$status" 403
	like "$1: says why" "$(jq -r ".message // .error.message" <<<"$body")" "$3"
}
port=${http##*:}

start '{}'
key=$(bough token create --name net --expires 1h)
for host in 127.0.0.1 localhost 127.1 2130706433 0 '[::1]' '[::ffff:127.0.0.1]' 10.0.0.1 169.254.169.254 '[fe80::1]' '[fd00::1]'; do
	refused "$host" "http://$host:$port/r.git" 'may not have boughd connect'
done
more='{"ssh_key": "k", "known_hosts": "h"}'
add "git@127.0.0.1:r.git" s "$more"
is 'ssh' "$status" 403
refused 'git://' "git://127.0.0.1/r.git" 'use https or ssh'
is 'nothing was asked' "$(cat "$srv/requests" 2>/dev/null)" ''
is 'no repository is left' "$(bough repo ls -q)" ''
no_trace 'no trace'
bough_ok 'who is on this host is not limited' repo add "$http/r.git" --name r
ask POST /v1/repos/r/fetch '{}'
is 'and a token fetches it no more than it adds it' "$status" 403
bough create w --git r >/dev/null && echo x >"$(bough path w)/x" && bough commit w -m x --branch x >/dev/null
ask POST /v1/workspaces/w/push '{}'
is 'nor pushes to it' "$status" 403
ask POST /v1/workspaces/w/push "{\"remote\": \"$http/other.git\"}"
is 'nor elsewhere' "$status" 403
stop

start '{"git_networks": ["127.0.0.1"]}'
add "$http/r.git" here
is 'what the configuration has is let through' "$status" 201
ask POST /v1/repos/here/fetch '{}'
is 'to be fetched' "$status" 200
ask POST /v1/workspaces/w/push '{}'
is 'and pushed to' "$status" 200
is 'which is there' "$(git -C "$srv/r.git" log -1 --format=%s x)" x
refused 'another of this host' "http://127.0.0.2:$port/r.git" 'may not have'
add "$http/moved/127.0.0.1:$port/r.git" moved
is 'no redirection is followed' "$((status >= 400)) $(bough repo ls -q | grep -c moved)" '1 0'
stop

# The address that was judged goes along, for curl and for ssh.
cat >fake-git <<'END'
#!/bin/bash
env >"$(dirname "$0")/env"
exit 1
END
chmod +x fake-git
export BOUGH_GIT=$T/fake-git
start '{"git_networks": ["127.0.0.0/8", "::1"]}'
add "http://localhost:$port/r.git" pinned
like 'curl is told the address' "$(cat env)" "http.curloptResolve.*localhost:$port:.*127.0.0.1"
like 'and to follow no redirection' "$(cat env)" 'http.followRedirects'
add "ssh://git@localhost:2222/r.git" pinned-ssh "$more"
like 'ssh too' "$(cat env)" 'BOUGH_SSH_ADDRESS=(127.0.0.1|::1)'
like 'under the name that its key is known by' "$(cat env)" 'BOUGH_SSH_ALIAS=\[localhost\]:2222'
rm env
bough repo add "$http/r.git" --name free >/dev/null 2>&1
is 'not for who is on this host' "$(grep -c curloptResolve env)" 0
stop
export BOUGH_GIT=$T/no-such-git
start '{"git_networks": ["127.0.0.0/8", "::1"]}'
refused 'without git, which keeps to it' "$http/r.git" 'has no git'
stop
echo '{"git_networks": ["nowhere"]}' >"$BOUGH_ROOT/config.json"
run boughd --root "$BOUGH_ROOT"
like 'a configuration that is none' "$err" 'git_networks.*is no network'
done_testing
