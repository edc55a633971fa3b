#!/bin/bash
# Making, attaching, detaching and clearing boxes while the n-th call that mounts, links or asks a
# device fails, for every n, once and for good: what failed is said, and nothing stays behind.
. "${0%/*}/lib.sh" || exit 1
. "$BOUGH_SRC/tests/e2e/boxes.sh"

fresh root
id=faults
box_dir=$T/boxes/$id
left() { # what a box leaves in this world
	awk -v t="$T/boxes/" 'index($2, t) == 1 && $2 !~ /\.share$/ { print $2 }' /proc/self/mounts
	[ ! -e "$box_dir" ] || echo "$box_dir"
	find /sys/fs/cgroup -maxdepth 4 -name "*$id*" 2>/dev/null
}
make() { run "$D" make -b "$BASE" -H -m "$w:/workspace" "$box_dir" "$root" -- true; }

for more in '' +; do
	n=1 wrong='' unsaid=''
	while :; do
		BOX_FAIL=$n$more make
		"$D" clear "$box_dir" 2>/dev/null
		[ -z "$(left)" ] || wrong+=" $n: $(left | tr '\n' ' ')"
		[[ $err =~ 'struck: 1' ]] || break
		[ $code = 0 ] || [[ $err =~ 'Operation not permitted' ]] || unsaid+=" $n: $err"
		n=$((n + 1))
	done
	is "make$more: nothing stays behind" "$wrong" ''
	is "make$more: what failed is said" "$unsaid" ''
	is "make$more: it works without" $code 0
	ok "make$more: there was something to fail ($((n - 1)))" test $n -gt 3
done

for more in '' +; do
	n=1 wrong=''
	while :; do
		make
		[ $code = 0 ] || bail 'no box'
		BOX_FAIL=$n$more run "$D" clear "$box_dir"
		struck=$err
		[ $code != 0 ] || [ -z "$(left)" ] || wrong+=" $n: $(left | tr '\n' ' ')"
		run "$D" clear "$box_dir"
		[ -z "$(left)" ] || wrong+=" $n, again: $(left | tr '\n' ' ')"
		[[ $struck =~ 'struck: 1' ]] || break
		n=$((n + 1))
	done
	is "clear$more: done, or done the next time" "$wrong" ''
	ok "clear$more: there was something to fail ($((n - 1)))" test $n -gt 1
done

# A running one: what couldn't be attached isn't there, what couldn't be taken off is.
make
cd "$box_dir" || bail 'no box'
sed -i 's/"true"/"sleep", "600"/' config.json
"${RUNC[@]}" run -d "$id" </dev/null >/dev/null 2>&1 || bail 'it does not run'
cd "$T" || exit 1
pid=$("${RUNC[@]}" state "$id" | jq -r .pid)
other=$(bough create other)
echo there >"$other/f"
seen() { "${RUNC[@]}" exec "$id" cat /extra/f 2>/dev/null; }
n=1 wrong=''
while :; do
	BOX_FAIL=$n run "$D" attach -b "$BASE" -p "$pid" -m "$other:/extra" "$box_dir" "$root"
	struck=$err
	if [ $code = 0 ]; then
		[ "$(seen)" = there ] || wrong+=" attach $n: done and not there"
		"$D" detach -b "$BASE" -p "$pid" -T /extra "$box_dir" "$root" || wrong+=" detach $n"
	fi
	[ -z "$(seen)" ] || wrong+=" attach $n: failed and there"
	[[ $struck =~ 'struck: 1' ]] || break
	n=$((n + 1))
done
is 'attach: there or not there' "$wrong" ''
ok "there was something to fail ($((n - 1)))" test $n -gt 1
n=1 wrong=''
while :; do
	"$D" attach -b "$BASE" -p "$pid" -m "$other:/extra" "$box_dir" "$root" || bail 'no attach'
	BOX_FAIL=$n run "$D" detach -b "$BASE" -p "$pid" -T /extra "$box_dir" "$root"
	struck=$err
	if [ $code != 0 ]; then
		[ "$(seen)" = there ] || wrong+=" $n: failed and not there"
		"$D" detach -b "$BASE" -p "$pid" -T /extra "$box_dir" "$root" || wrong+=" again $n"
	fi
	[ -z "$(seen)" ] || wrong+=" $n: done and there"
	[[ $struck =~ 'struck: 1' ]] || break
	n=$((n + 1))
done
is 'detach: there or not there' "$wrong" ''
ok "there was something to fail ($((n - 1)))" test $n -gt 1
"${RUNC[@]}" delete --force "$id" >/dev/null 2>&1
"$D" clear "$box_dir"
is 'nothing stays behind' "$(left)" ''
done_testing
