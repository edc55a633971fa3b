#!/bin/bash
# Idmapped clones of a workspace's mount, as containers see them: what is made, owned and changed on
# either side looks right on the other, also after the server was killed.
. "${0%/*}/lib.sh" || exit 1
need_fuse
[ "$(id -u)" = 0 ] || skip_all 'not root'
[ "$(uname -r | awk -F. '{ print $1 * 100 + $2 }')" -ge 612 ] || skip_all 'kernel older than 6.12'
[ "${VARIANT:-}" != tsan ] || skip_all "ThreadSanitizer's own thread" # no user namespace of its own

BASE=$((0x70050000))
chmod 711 "$T"
mkdir "$T/c"
inside() { "$BOUGH_BIN/e2e/idmap_clone" "$BASE" "$w" "$T/c" "$@"; }
as_stranger() { inside setpriv --reuid 1000 --regid 1000 --clear-groups "$@"; }
both() { # DESCRIPTION FILE WANTED: as stat has it
	is "$1, inside" "$(inside stat -c '%u:%g %a' "$2")" "$3"
	is "$1, outside" "$(stat -c '%u:%g %a' "$w/$2")" "$3"
}

bough_ok 'create' create w
w=$out
echo host >"$w/host" && chown 7:8 "$w/host"
both 'of the host' host '7:8 644'

rights() { # NAME of a folder to work in
	local d=$1
	ok "$d: what is made inside" inside sh -ec "
		umask 022; mkdir $d; cd $d; echo x >file; mkfifo fifo; ln -s file link; ln file hard
		mkdir -m 2775 group; chown 33:44 group; touch group/file; mkdir group/sub
		mkdir -m 1777 sticky; touch sticky/of-root
		cp /bin/true suid; chown 5:6 suid; chmod 6755 suid
		echo secret >private; chmod 600 private"
	both "$d: file" "$d/file" '0:0 644'
	both "$d: a setgid folder" "$d/group" '33:44 2775'
	both "$d: what is in it" "$d/group/file" '0:44 644'
	both "$d: a folder in it" "$d/group/sub" '0:44 2755'
	both "$d: setuid" "$d/suid" '5:6 6755'
	is "$d: another user's file" "$(inside setpriv --reuid 1000 --regid 1001 --clear-groups \
		sh -c "umask 077; touch $d/sticky/of-user && stat -c %u:%g:%a $d/sticky/of-user")" \
		1000:1001:600
	both "$d: and outside" "$d/sticky/of-user" '1000:1001 600'
	ok "$d: a stranger is kept out" not as_stranger cat "$d/private" 2>/dev/null
	ok "$d: the sticky bit holds" not as_stranger rm -f "$d/sticky/of-root" 2>/dev/null
	ok "$d: only an owner may chmod" not as_stranger chmod 777 "$d/file" 2>/dev/null
	ok "$d: nobody gives files away" not inside setpriv --reuid 5 --regid 6 --clear-groups \
		chown 7 "$d/suid" 2>/dev/null
	chmod 666 "$w/$d/suid" && chmod 6777 "$w/$d/suid"
	inside setpriv --reuid 1000 --regid 1000 --clear-groups sh -c "echo y >>$d/suid"
	both "$d: a write by a stranger ends suid and sgid" "$d/suid" '5:6 777'
	chmod 6777 "$w/$d/suid"
	inside setpriv --reuid 1000 --regid 1000 --clear-groups fallocate -l 100000 "$d/suid"
	both "$d: so does fallocate" "$d/suid" '5:6 777'
	ok "$d: chown from outside" chown 2000:2001 "$w/$d/file"
	both "$d: seen" "$d/file" '2000:2001 644'
	chown 70000 "$w/$d/hard"
	is "$d: whom the range lacks" "$(inside stat -c '%u' "$d/hard")" 65534
	chown 0 "$w/$d/hard"
	ok "$d: RENAME_EXCHANGE and removal" inside sh -ec "mv $d/link $d/l2; rm $d/l2 $d/hard"
}
rights one

# ---- xattrs and capabilities

if inside sh -c 'setfattr -n user.a -v b one/file' 2>/dev/null; then
	is 'user. outside' "$(getfattr --absolute-names --only-values -n user.a "$w/one/file")" b
	ok 'a file capability inside' inside setcap cap_net_bind_service=ep one/suid
	like 'is told of inside' "$(inside getcap one/suid)" cap_net_bind_service
	like 'is of the file, for whoever has the range' \
		"$(getfattr --absolute-names --only-values -n security.capability "$w/one/suid" |
			od -An -tx1 | head -n 1)" ' 01 00 00 0[23]'
	ok 'trusted. is not for them' not inside setfattr -n trusted.a -v b one/file 2>/dev/null
	setfattr -n trusted.t -v b "$w/one/file"
	is 'nor listed' "$(inside getfattr -d -m trusted one/file 2>/dev/null)" ''
	like 'but for root outside' "$(getfattr --absolute-names -d -m trusted "$w/one/file")" \
		trusted.t
	ok 'ACLs are refused, not lost' not inside setfacl -m u:33:r one/file 2>/dev/null
fi
mkdir "$w/dev" && mknod "$w/dev/null" c 1 3
ok 'a device in it opens nothing' not inside sh -c 'echo >dev/null' 2>/dev/null

# ---- a second clone, and the mount itself, are one filesystem

inside flock -n one/file sh -c 'touch one/held; while [ -e one/held ]; do sleep 0.05; done' &
wait_for 10 test -e "$w/one/held"
ok 'locks hold across' not flock -n "$w/one/file" true
rm -f "$w/one/held"
wait $!

# ---- who asks what changed: the owner and root, on either side

ask() { getfattr -n bough.changes.x "$@" >/dev/null 2>&1; }
chown 1000:1000 "$w"
ok 'root may ask' ask "$w"
ok 'root inside may' inside sh -c 'getfattr -n bough.changes.x . >/dev/null'
for u in 1000:0 1001:1; do
	setpriv --reuid "${u%:*}" --regid 1000 --clear-groups "$BASH" -c \
		'getfattr -n bough.changes.x "$1"' - "$w" >/dev/null 2>&1
	is "user $u outside" $? "${u#*:}"
	inside setpriv --reuid "${u%:*}" --regid 1000 --clear-groups \
		getfattr -n bough.changes.x . >/dev/null 2>&1
	is "user $u inside" $? "${u#*:}"
done

# ---- it goes on when the server is killed, with clones and new ones

inside sh -c 'exec 9>held; while [ ! -e stop ]; do date >&9 || exit 1; sleep 0.05; done; echo ok' \
	>"$T/out" 2>&1 &
going_on=$!
wait_for 10 test -s "$w/held"
for i in 1 2 3; do kill_hard bough-fs; stat -f "$w" >/dev/null; sleep 0.1; done
rights two
touch "$w/stop"
wait "$going_on"
is 'a clone that was there' "$?$(cat "$T/out")" 0ok
bough_ok 'fork' fork w w2
w=$(bough path w2)
both 'in a fork' one/group '33:44 2775'
rights three

# ---- where the kernel hasn't got it

mkdir "$T/m"
"$BOUGH_BIN/bough-fs" --root "$T/other" --foreground --mount "ws_other=$T/m" --mask-cap idmap \
	2>"$T/fs.log" &
server=$!
ok 'a server without' wait_for 10 mountpoint -q "$T/m"
run "$BOUGH_BIN/e2e/idmap_clone" "$BASE" "$T/m" "$T/c" true
is 'makes no clones' "$code" 125
like 'as the kernel says' "$err" 'mount_setattr.*Invalid argument'
chown 1000 "$T/m"
ok 'the kernel says who asks' setpriv --reuid 1000 --regid 0 --clear-groups \
	sh -c 'getfattr --absolute-names -n bough.changes.x "$1" >/dev/null' - "$T/m"
kill "$server"
wait "$server"
done_testing
