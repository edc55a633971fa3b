"""Benchmarks that are programs of their own: checkouts beside git (git.sh), boughd under many clients
(load.sh), sandboxes (sandbox.sh). What they print is shown; their JSON is read for the rows it has."""

import os
import subprocess
import sys

from harness import HERE, load_json, say


def arguments(bench, part, out):
    work = ["--json", out, "--work", bench.work.path]
    if part == "git":
        bench.places.get("ext4", tree=True)
        return ["--tree", bench.tree.path, "--rounds", str(bench.scale(2, 5)), *work]
    return [*(["--quick"] if bench.args.quick else []), *work]


def run(bench):
    part = bench.report.part
    script = os.path.join(HERE, f"{part}.sh")
    if not os.path.exists(script):
        say(f"  no {part}.sh")
        return
    out = os.path.join(bench.work.path, f"{part}.json")
    # With a root and a configuration of git of its own: the program makes them.
    env = {k: v for k, v in os.environ.items() if k not in ("BOUGH_ROOT", "GIT_CONFIG_GLOBAL")}
    r = subprocess.run([script, *arguments(bench, part, out)], env=env, stdout=sys.stdout, check=False)
    if os.path.exists(out):
        found = load_json(out)
        bench.report.parts[part]["figures"] = found
        for name, one in found.items() if isinstance(found, dict) else []:
            if isinstance(one, dict) and "median_ms" in one:
                place = "ext4" if "ext4" in name else "bough"
                bench.report.row(f"{part}.{name}", name, "ms", {place: one["median_ms"]})
    if r.returncode != 0:
        raise RuntimeError(f"{part}.sh ended with {r.returncode}")
