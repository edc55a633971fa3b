#!/bin/bash
# Repositories by ssh, with a real server on this host: add, fetch, push; only the given key, only
# known hosts, no agent, no configuration of the user's.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/repo.sh"

sshd=/usr/sbin/sshd
[ -x $sshd ] || sshd=$BOUGH_SRC/build/deps/sshd/usr/sbin/sshd
[ -x "$sshd" ] || bail 'no sshd: tools/setup/setup.sh fetches one'
deps=${sshd%/usr/sbin/sshd}
port=$(free_port)
for k in host other good bad; do ssh-keygen -q -t ed25519 -N '' -C $k -f $k || bail 'no key'; done
ssh-keygen -q -t rsa -b 2048 -N '' -f rsa
cat good.pub rsa.pub >authorized
chmod 755 "$T" && chmod 644 authorized
cat >sshd.conf <<END
Port $port
ListenAddress 127.0.0.1
HostKey $T/host
AuthorizedKeysFile $T/authorized
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin no
LogLevel VERBOSE
END
# From OpenSSH 9.8 on the server is several programs.
for p in session auth; do
	[ ! -x "$deps/usr/lib/openssh/sshd-$p" ] || [ -z "$deps" ] ||
		echo "Sshd${p^}Path $deps/usr/lib/openssh/sshd-$p" >>sshd.conf
done
libs=$(echo "$deps"/usr/lib/*-linux-gnu)
export LD_LIBRARY_PATH=$libs
if [ "$(id -u)" = 0 ]; then
	# Users of its own, and a folder that it wants, where nobody else sees them.
	user=git
	{ cat /etc/passwd && echo "git:x:65533:65534::$T:/bin/sh" &&
		{ grep -q ^sshd: /etc/passwd || echo 'sshd:x:65532:65534::/run/sshd:/usr/sbin/nologin'; }; } >passwd
	chown -R 65533:65534 "$srv/r.git"
	unshare -m sh -c "mount --bind passwd /etc/passwd && mount -t tmpfs run /run && mkdir /run/sshd &&
		exec '$sshd' -D -f sshd.conf -E sshd.log" &
else
	user=$(id -un)
	"$sshd" -D -f sshd.conf -E sshd.log &
fi
server=$!
unset LD_LIBRARY_PATH
wait_for 10 sh -c "(exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null || bash -c '(exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null'" ||
	{ cat sshd.log; bail 'sshd does not start'; }
entry() { echo "[$1]:$port $(cut -d' ' -f1,2 "$2.pub")"; } # HOST KEY: a line of known hosts
entry 127.0.0.1 host >known
entry 127.0.0.1 other >wrong
echo "elsewhere.example $(cut -d' ' -f1,2 host.pub)" >nobody
url=ssh://$user@127.0.0.1:$port$srv/r.git

# A user's own settings and agent, of which nothing may be used.
export HOME=$T/home
mkdir -p "$HOME/.ssh" && chmod 700 "$HOME/.ssh" && cp known "$HOME/.ssh/known_hosts" && cp good "$HOME/.ssh/id_ed25519"
printf 'Host *\n\tProxyCommand touch %s/ran\n\tPermitLocalCommand yes\n\tLocalCommand touch %s/ran\n' "$T" "$T" >"$HOME/.ssh/config"
eval "$(ssh-agent -s)" >/dev/null && ssh-add -q good 2>/dev/null || bail 'no agent'

add() { run bough repo add "$url" --name "$1" --ssh-key "$2" --known-hosts "$3"; } # NAME KEY HOSTS
refused() { # DESCRIPTION KEY HOSTS WORDS
	add no "$2" "$3"
	is "$1" "$code" 1
	like "$1: says why" "$err" "$4"
	is "$1: one line" "$(wc -l <<<"$err")" 1
}
add s good known
is 'add' "$code" 0
[ "$code" = 0 ] || { diag_run; tail -n 20 sshd.log; }
is 'all is there' "$(tip s)" "$(git -C src rev-parse main)"
add rsa rsa known
is 'with an RSA key' "$code" 0
refused 'a host with another key' good wrong 'known hosts'
refused 'a host that is not known' good nobody 'known hosts'
refused 'a key that is not let in, though the agent has one that is' bad known 'refused'
is 'nothing of the user was run' "$(ls "$T/ran" 2>/dev/null)" ''
[ "$(id -u)" != 0 ] || chown -R 0:0 "$srv/r.git"
commit three && push main
[ "$(id -u)" != 0 ] || chown -R 65533:65534 "$srv/r.git"
bough_ok 'fetch' repo fetch s
is 'brings the commit' "$(tip s)" "$(git -C src rev-parse main)"
bough create w --git s >/dev/null && echo x >"$(bough path w)/x" && bough commit w -m x --branch topic-x >/dev/null
bough_ok 'push' push w
is 'is there' "$(git -c safe.directory='*' -C "$srv/r.git" log -1 --format=%s topic-x)" x
is 'no secret is left in the open' "$(grep -rlF -e "$(sed -n 2p good)" "$BOUGH_ROOT" 2>/dev/null | grep -v '\.secret$')" ''
bough down

# For a caller from elsewhere ssh is told the address, and knows the host by its name all the same.
mkdir -p "$BOUGH_ROOT" && echo '{"git_networks": ["127.0.0.0/8", "::1"]}' >"$BOUGH_ROOT/config.json"
listen=(boughd --root "$BOUGH_ROOT" --daemon --listen 127.0.0.1:0)
if [ "$(id -u)" = 0 ]; then
	# A name that only this server knows, first by an address where nobody listens.
	name=git.test
	cp -a /etc "$T/etc" && printf '::1 git.test\n127.0.0.1 git.test\n' >"$T/etc/hosts" &&
		unshare -m sh -c 'mount --bind "$1/etc" /etc && shift && exec "$@"' - "$T" "${listen[@]}"
else
	name=localhost # which it may have by another address, or not at all
	"${listen[@]}"
fi || bail 'boughd does not start'
tcp=127.0.0.1:$(sed -n 's/.*listens on 127.0.0.1:0, port \([0-9]*\)$/\1/p' "$BOUGH_ROOT/run/boughd.log" | tail -n 1)
key=$(bough token create --name net --expires 1h)
by_token() { # NAME HOST HOSTS: the status
	jq -nc --arg u "ssh://$user@$2:$port$srv/r.git" --arg n "$1" --rawfile k good --rawfile h "$3" \
		'{url: $u, name: $n, ssh_key: $k, known_hosts: $h}' |
		curl -sS -m 30 -H "Authorization: Bearer $key" --data-binary @- -o "$T/answer" -w '%{http_code}' "http://$tcp/v1/repos"
}
entry $name host >known-name
if [ $name = git.test ] || getent ahostsv4 $name | grep -q '^127\.0\.0\.1 '; then
	is 'by a name, to the address that it had' "$(by_token name $name known-name)" 201
	is 'whose key is known by that name' "$(by_token other $name known)" 403
fi
kill $server "$SSH_AGENT_PID"
done_testing
