#!/bin/bash
# A flipped byte in a journal: what its record was about is lost and says so, everything else is served.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/damage.sh"

# ---- of the layer that is written to
fresh
bough up >/dev/null
(cd "$(at w)" && echo one >later && echo two >after)
bough down >/dev/null
j=$(find "$BOUGH_ROOT/layers" -name journal -size +8 -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d' ' -f2)
flip "$j" 4116
bough_ok 'up with a damaged record' up
read -r right failed wrong < <(read_all "$(at w)")
is 'the other files are there' "$right $failed $wrong" "$total 0 0"
is 'also in the same journal' "$(cat "$(at w)/after")" two
run cat "$(at w)/later"
is 'what it was about is not' "$code $out" '1 '
like 'show names the layer' "$(bough show w)" $'\ndamage +layers/[0-9a-f]{32}: 1 records'
like 'and the log' "$(grep ERROR "$BOUGH_ROOT/run/bough-fs.log")" 'workspace ws_[a-z2-7]{10}: layers/'
ok 'who listens is told' wait_for 15 eval 'bough events | grep -q workspace.damaged'

# ---- the bytes of a file that was empty when it was sealed

fresh
bough up >/dev/null
: >"$(at w)/filled"
bough fork w v >/dev/null
echo content >"$(at w)/filled"
bough down >/dev/null
j=$(find "$BOUGH_ROOT/layers" -name journal -printf '%T@ %s %p\n' | awk '$2 > 4096' | sort -n | tail -n 1 | cut -d' ' -f3)
flip "$j" 4116
bough_ok 'up with it' up
run cat "$(at w)/filled"
is 'never empty as if that were all' "$code $out" '1 '
rm "$(at w)/filled"
is 'and it can be removed' $? 0

done_testing
