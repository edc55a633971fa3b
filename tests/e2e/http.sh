# boughd's HTTP by curl, for tests of the API: behind lib.sh.
sock=$BOUGH_ROOT/run/boughd.sock
tcp= # HOST:PORT where it listens besides, when a token's calls shall go there

# as WHO METHOD TARGET [BODY] [CURL ARGUMENT…]: $status, $body, and the headers in $T/head (but
# uid:N's). Who: root or uid:N (by the socket), none (without a token), else whose token is in token[WHO].
declare -A token=()
as() {
	local who=$1 method=$2 target=$3 data=${4-} run=() via=(--unix-socket "$sock") base=http://d
	shift 3
	[ $# = 0 ] || shift
	case $who in
	root) ;;
	uid:*) run=(setpriv --reuid="${who#uid:}" --regid="${who#uid:}" --clear-groups) ;;
	*)
		[ -z "$tcp" ] || via=() base=http://$tcp
		[ "$who" = none ] || via+=(-H "Authorization: Bearer ${token[$who]}")
		;;
	esac
	[ ${#run[@]} != 0 ] || via+=(-D "$T/head")
	[ "$method" = HEAD ] && via+=(-I) || via+=(-X "$method")
	body=$("${run[@]}" curl -sS -m 200 "${via[@]}" ${data:+--data-binary "$data"} \
		-w '\n%{http_code}' "$@" "$base$target" 2>"$T/.err")
	status=${body##*$'\n'}
	body=${body%$'\n'*}
	body=${body%$'\n'}
}
api() { as root "$@"; }
of() { jq -r "$1" <<<"$body"; } # FILTER: of what came

gives() { # DESCRIPTION STATUS JQ-FILTER WANTED [WHO] METHOD TARGET [BODY] [CURL ARGUMENT…]
	local what=$1 want=$2 filter=$3 value=$4 got=
	shift 4
	[[ $1 =~ ^[A-Z]+$ ]] && set -- root "$@"
	as "$@"
	[ -z "$filter" ] || got=$(jq -r "$filter" <<<"$body" 2>&1)
	if [ "$status" = "$want" ] && [ "$got" = "$value" ]; then
		pass "$what"
	else
		fail "$what"
		diag "$*"
		diag "status $status for $want, \"$got\" for \"$value\": $body"
	fi
}
ws=/v1/workspaces snap=/v1/snapshots
