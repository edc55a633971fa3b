#!/bin/bash
# Two hundred clients at once for five seconds: no error, and nothing stays behind.
. "${0%/*}/lib.sh"
need_fuse
[ "${VARIANT:-release}" = release ] || skip_all 'memory under a sanitizer'
run timeout 200 "$BOUGH_SRC/tools/bench/load.sh" --quick --work "$T" --json "$T/load.json"
is 'no error, no thread, descriptor or memory that stays' "$code$err" 0
diag "$out"
many='.mixed.results["200 clients"]'
holds() { jq -e "$1" "$T/load.json" >/dev/null; }
ok 'every kind of call was made' holds "[$many.ops | has(\"get\", \"put\", \"fork\", \"save\", \"create\", \"delete\")] | all"
ok 'and many of them' holds "$many.requests > 200"
ok 'none waited for more than 30 s' holds "[$many.ops[].max_us] | max < 30000000"
is 'nothing goes on' "$(BOUGH_ROOT=$T pids_of boughd)" ''
done_testing
