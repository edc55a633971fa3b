# Boxes on fresh forks of the host image, for the tests of their walls. Sourced after lib.sh.
need_fuse
# What box_driver forks has that thread from its beginning, and a process of two gets no namespace.
[ "${VARIANT:-}" != tsan ] || skip_all "ThreadSanitizer's own thread"
[ "$(id -u)" = 0 ] || skip_all 'not root'
[ "$(uname -r | awk -F. '{ print $1 * 100 + $2 }')" -ge 612 ] || skip_all 'kernel older than 6.12'
need_runtime

D=$BOUGH_BIN/e2e/box_driver
export BOUGH_INIT=$BOUGH_BIN/bough-init
# Ids and cgroups that no other test has at the same time.
BASE=$((0x7f000000 + $$ % 240 * 65536))
export BOX_NS=test-$$
chmod 711 "$T"
mkdir -m 711 "$T/boxes"
RUNC=("$MAIN_RT" --root "$T/runc")
RUNSC=(runsc --root "$T/runsc" --platform=systrap --overlay2=none --file-access=shared
	--network=none)
runtimes=("$MAIN_RT")
! runsc --version >/dev/null 2>&1 || runtimes+=(runsc)

oci() { # RUNTIME ARGUMENT…
	local rt=$1
	shift
	case $rt in
	runsc) "${RUNSC[@]}" "$@" ;;
	*) "${RUNC[@]}" "$@" ;;
	esac
}
# Makes a box on a fresh fork of the image, runs the command in it, ends it: $code, $out, $err.
box() { # RUNTIME NAME OPTION… -- COMMAND…
	local rt=$1 name=$2 opts=()
	shift 2
	while [ "$1" != -- ]; do opts+=("$1") && shift; done
	shift
	run "$D" make -r "$rt" -b "$BASE" -H "${opts[@]}" "$T/boxes/$name" "$root" -- "$@"
	[ "$code" = 0 ] || return
	cd "$T/boxes/$name" || return
	# gVisor's workspaces come between creation and start.
	[ "$rt" != runsc ] || add_hook "$D" first -r "$rt" -b "$BASE" -H "${opts[@]}" \
		"$T/boxes/$name" "$root"
	run timeout 60 "$BASH" -c '"$@" </dev/null' - "${rt_cmd[@]}" run "$name"
	cd "$T" || exit 1
	timeout 20 "${rt_cmd[@]}" delete --force "$name" >/dev/null 2>&1
	"$D" clear "$T/boxes/$name" || diag "clear $name failed"
}
add_hook() { # COMMAND…: into config.json
	printf '%s\n' "$@" | jq -Rs 'split("\n")[:-1]' |
		jq --slurpfile c config.json --arg ns "BOX_NS=$BOX_NS" '. as $args | $c[0] |
			.hooks.createRuntime = [{path: $args[0], args: $args, env: [$ns]}]' >config.new &&
		mv config.new config.json
}
fresh() { # NAME OPTION…: a root of its own
	run bough create "$@" --from host
	root=$out
}

# The host image, and a workspace to work in.
bough create base >/dev/null && "$D" fill "$(bough path base)" &&
	bough save base --as host >/dev/null || bail 'no host image'
w=$(bough create w)

each_runtime() { # COMMAND…: with $rt, and its command line in $rt_cmd
	for rt in "${runtimes[@]}"; do
		rt_cmd=("${RUNC[@]}")
		[ "$rt" != runsc ] || rt_cmd=("${RUNSC[@]}")
		"$@"
	done
	rt=$MAIN_RT rt_cmd=("${RUNC[@]}")
}
