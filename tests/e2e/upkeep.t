#!/bin/bash
# Upkeep of a repository, which may take long, gives way to who fetches it or pushes, and begins again.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/repo.sh"
cat >slow-git <<-END
	#!/bin/sh
	case " \$* " in *' repack '*) touch $T/upkeep && sleep 100 ;; esac
	exec $(command -v git) "\$@"
END
chmod +x slow-git
export BOUGH_GIT=$T/slow-git
under_way() { wait_for 30 test -e upkeep && rm upkeep; }

bough_ok 'repo add' repo add "$http/r.git" --name r --token-file "$T/token"
bough_ok 'create' create w --git r
echo x >>"$out/file"
bough_ok 'commit' commit w -m work
ok 'upkeep has begun' under_way
begin=$SECONDS
bough_ok 'a push meanwhile' push w
ok "doesn't wait for it" [ $((SECONDS - begin)) -lt 30 ]
is 'and is there' "$(git --git-dir="$srv/r.git" log -1 --format=%s main)" work
ok 'upkeep begins again' under_way
begin=$SECONDS
bough_ok 'a fetch meanwhile' repo fetch r
ok "doesn't wait either" [ $((SECONDS - begin)) -lt 30 ]
ok 'and upkeep begins again' under_way
begin=$SECONDS
bough_ok 'down' down
ok 'ends it' [ $((SECONDS - begin)) -lt 30 ]
done_testing
