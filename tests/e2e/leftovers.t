#!/bin/bash
# What a kill leaves behind: gone with the next start, or with gc once nobody can be writing it.
. "${0%/*}/lib.sh"
need_fuse

bough_ok 'create' create w
echo data >"$out/file"
bough_ok 'save' save w --as s
id=$(bough show w --json | jq -r .id)
bough_ok 'down' down
R=$BOUGH_ROOT
layer=$(ls -d "$R"/layers/*/ | head -n 1)
mkdir -p "$R/repos/00000007.checkouts" "$R/uploads" "$R/tmp/import.x/in" "$R/ws/.tmp-ws_gone-1"
ours=(tmp/sync.abcdef tmp/import.x images/.tmp-image-0123 snapshots/.tmp-sn_x.json-0123
	uploads/.tmp-up_x-0123 repos/.tmp-00000007.secret-0123 repos/00000007.checkouts/.tmp-x-0123)
shared=(.tmp-x-0123 store/.tmp-version-0123 store/index/.tmp-state-0123 "ws/$id/.tmp-meta.json-0123"
	"${layer#"$R"/}.tmp-saved-0123")
versions=("ws/$id/stack-0000000000000001" "ws/$id/.tmp-stack-0123" "ws/.tmp-ws_gone-1")
plant() { # FILE…
	local f
	for f; do [ -d "$R/$f" ] || echo token >"$R/$f"; done
}
left() { # FILE…: those that are there
	local f
	for f; do [ ! -e "$R/$f" ] || printf '%s ' "$f"; done
}
plant "${ours[@]}" "${shared[@]}" "${versions[@]}"
bough_ok 'up' up
is 'the folders of boughd alone are clean' "$(left "${ours[@]}")" ''
is 'so is the workspace that bough-fs opened' "$(left "${versions[@]}")" ''
is 'what somebody may be writing stays' "$(left "${shared[@]}")" "${shared[*]} "
for f in "${shared[@]}"; do touch -d '1 hour ago' "$R/$f"; done
touch "$R/store/.tmp-version-4567"
bough_ok 'gc' gc
is 'when it is old it goes with gc' "$(left "${shared[@]}")" ''
is 'what is new stays' "$(left store/.tmp-version-4567)" 'store/.tmp-version-4567 '
bough_ok 'another start' down
for f in "${shared[@]}"; do plant "$f" && touch -d '1 hour ago' "$R/$f"; done
bough_ok 'takes old ones too' up
is 'all of them' "$(left "${shared[@]}")" ''
is 'the file is there' "$(cat "$(at w)/file")" data
is 'and the snapshot' "$(bough export s | tar xO ./file)" data
fsck_clean
done_testing
