#!/bin/bash
# The benchmark: how it judges and draws, and that it leaves nothing behind, also when it is interrupted.
. "${0%/*}/lib.sh"
need_fuse
export PYTHONDONTWRITEBYTECODE=1
bench=$BOUGH_SRC/tools/bench

run python3 - "$bench" <<'EOF'
import os, sys
os.environ.setdefault("BOUGH_BIN", "/nowhere")
sys.path.insert(0, sys.argv[1])
import xml.dom.minidom
import bench, chart, goals, report
row = dict(id="save.small", unit="ms", values={"bough": 10.0, "restic": 1000.0})
assert [v["met"] for v in goals.judge(row)] == [True, True]
row["values"] = {"bough": 30.0, "restic": 1000.0}
assert [v["met"] for v in goals.judge(row)] == [False, False]
row["values"] = {"bough": 10.0}
assert [v["met"] for v in goals.judge(row)] == [True, None]
fast = dict(id="fio.read.warm.1m", unit="MB/s", values={"bough": 90.0, "ext4": 100.0})
assert [v["met"] for v in goals.judge(fast)] == [False]
assert abs(report.slope([1, 10, 100], [2, 20, 200]) - 1) < 1e-9
assert abs(report.slope([1, 10, 100], [7, 7, 7])) < 1e-9
assert report.slope([1], [1]) is None
for svg in (chart.bars("a & b", "ms", [("x", {"bough": 0.2, "ext4": 3000.0})], ["bough", "ext4"]),
            chart.lines("t", [dict(name="c", unit="ms", x="files", xs=[1, 10], slopes={"s": 0.0},
                                   series={"s": [1.0, None], "t": [-0.5, 0.0]})])):
    xml.dom.minidom.parseString(svg)
for module in set(bench.PARTS.values()):
    assert hasattr(__import__(module), "run"), module
EOF
is 'goals are judged, slopes found, charts drawn' "$code$err" 0

mkdir "$T/tree" "$T/work"
for i in 1 2 3 4 5 6 7 8 9; do
	mkdir "$T/tree/d$i" && echo "$i" >"$T/tree/d$i/file"
done
measured() { # OPTION…
	BOUGH_BENCH_TREE=$T/tree BOUGH_BENCH_CACHE=$T/cache exec timeout 150 python3 "$bench/bench.py" --quick \
		--places none --work "$T/work" --json "$T/bench.json" "$@"
}
left() { # files, mounts, processes
	local line
	ls "$T/work"
	grep -F "$T/work/" /proc/self/mounts
	cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | while read -r line; do
		[[ $line != "$T/work/"* ]] || echo "$line"
	done
}

run eval '(measured --only pauses)'
is 'a part runs' "$code" 0
diag "$out"
ok 'its figures are written' jq -e '[.rows[].id] | contains(["fork.stream", "fork.pause"])' "$T/bench.json"
is 'nothing is left' "$(left)" ''

(measured --only passes --only pauses) >"$T/out" 2>&1 &
pid=$!
for _ in $(seq 400); do
	grep -qF "$T/work/" /proc/self/mounts && break
	sleep 0.05
done
kill "$pid"
wait "$pid"
is 'an interrupted one says so' "$?" 143
is 'and leaves nothing' "$(left)" ''
done_testing
