# What the tests of mirrors share, sourced after lib.sh: a repository ($T/src), its bare clone behind
# our web server ($srv/r.git, $http/r.git), and looks into mirrors.

export BOUGH_GIT_STALL=4 # long enough for a busy machine to answer
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org
export GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org
token=t0ken-of-$RANDOM$RANDOM
srv=$T/srv
mkdir "$srv"
echo "$token" >"$srv/token"
echo "$token" >"$T/token"
echo 'robot:'"$token" >"$T/robot"
echo wrong-token >"$T/wrong"

git init -q -b main "$T/src"
commit() { # MESSAGE
	echo "$1 $RANDOM" >"$T/src/file"
	git -C "$T/src" add . && git -C "$T/src" commit -qm "$1"
}
head -c 300000 /dev/urandom >"$T/src/big"
commit one
commit two
git -C "$T/src" tag -a v1 -m v1 HEAD~1
git -C "$T/src" branch topic HEAD~1
git clone -q --bare "$T/src" "$srv/r.git"
push() { git -C "$T/src" push -q --force "$srv/r.git" "$@"; }

python3 "$BOUGH_SRC/tests/e2e/git_http.py" "$srv" "$T/port" &
wait_for 20 test -s "$T/port" || bail 'no web server'
http=http://127.0.0.1:$(cat "$T/port")
mirror() { # REPO: its folder
	echo "$BOUGH_ROOT/repos/$(bough repo show "$1" --json | jq -r .id | cut -d_ -f2)"
}
tip() { git --git-dir="$(mirror "$1")" rev-parse "${2:-main}"; } # REPO [REF]
# Nothing of a failed transfer is left: mirrors, their records and secrets, nothing else.
no_trace() { # DESCRIPTION
	is "$1" "$(ls -A "$BOUGH_ROOT/repos" | grep -vxE '[0-9a-f]{8}(\.json|\.secret|\.run-.*)?')" ''
	is "$1: as many mirrors as are listed" "$(ls "$BOUGH_ROOT/repos" | grep -cxE '[0-9a-f]{8}')" \
		"$(bough repo ls -q | wc -l)"
}
# git finds no fault in a mirror. Where upkeep replaces packs below it fsck fails: once more, then.
whole() { # GIT-DIR
	local i
	for i in 1 2 3 4 5; do
		git --git-dir="$1" fsck --strict --no-dangling >"$T/.fsck" 2>&1 && return
		sleep 0.5
	done
	diag "$(cat "$T/.fsck")"
	return 1
}
