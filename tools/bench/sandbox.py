"""The sandboxes' benchmark: see sandbox.sh. Only Python's own library."""

import argparse
import glob
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from harness import (BIN, BOUGH, Workdir, call, client_library, machine, median, process_memory,
                     say, servers_of)

GOALS = {"run_true": 150, "run_true_workspace": 150, "destroy": 40, "save_pause": 20}
RATIOS = {"exec_true": 1.25, "copy_in_tree": 1.5, "copy_out_tree": 1.5, "copy_in_file": 1.5,
          "copy_out_file": 1.5}
MEMORY_GOAL_KIB = 4096
DOERS = 8  # clients that start sandboxes at once


class Bench:
    def __init__(self, args, work):
        self.args, self.work = args, work
        self.figures = {}
        self.bough = [BOUGH, "--root", work.root]
        self.client = client_library.Client(os.path.join(work.root, "run", "boughd.sock"))

    def run(self, *argv):
        return call(*self.bough, *argv)

    def start(self, name, *more):
        self.run("run", "-d", "--runtime", self.args.runtime, "--name", name, *more)

    def put(self, name, values, **more):
        """Milliseconds."""
        one = {"median_ms": round(median(values), 2), "min_ms": round(min(values), 2),
               "max_ms": round(max(values), 2), "n": len(values), **more}
        if name in GOALS:
            one["goal_ms"] = GOALS[name]
        self.figures[name] = one
        show(name, one)

    def pair(self, name, ours, other, theirs, rounds):
        """Two commands by turns, with the median of their ratios pair by pair."""
        a, b = [], []
        for i in range(rounds + 1):
            turn = [(a, ours), (b, theirs)]
            for found, argv in turn if i % 2 else reversed(turn):
                took = timed(argv)
                if i > 0:  # the first one warms up
                    found.append(took)
        ratio = median([x / y for x, y in zip(a, b)])
        self.put(name, a, beside=other, beside_ms=round(median(b), 2), ratio=round(ratio, 3),
                 **({"goal_ratio": RATIOS[name]} if name in RATIOS else {}))


def show(name, one):
    text = (f"{name:22} {one['median_ms']:9.1f} ms  "
            f"(min {one['min_ms']:.1f}, max {one['max_ms']:.1f}, n {one['n']})")
    if "ratio" in one:
        text += f"  {one['beside']} {one['beside_ms']:.1f} ms, ratio {one['ratio']:.2f}"
        text += f" (goal {one['goal_ratio']})" if "goal_ratio" in one else ""
    if "goal_ms" in one:
        text += f"  goal {one['goal_ms']}"
    print(text, flush=True)


def timed(argv):
    """Milliseconds. A shell's line where it is one text."""
    shell = isinstance(argv, str)
    began = time.perf_counter()
    r = subprocess.run(argv, shell=shell, executable="/bin/bash" if shell else None,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    took = 1000 * (time.perf_counter() - began)
    if r.returncode != 0:
        raise RuntimeError(f"{argv}: {r.returncode}: {r.stderr[-300:].decode(errors='replace')}")
    return took


# ---- the parts

def starts(b):
    b.run("create", "ws")
    true = ["--rm", "--runtime", b.args.runtime, "--", "true"]
    for name, more in (("run_true", []), ("run_true_workspace", ["--workspace", "ws"])):
        argv = [*b.bough, "run", *more, *true]
        timed(argv)
        b.put(name, [timed(argv) for _ in range(b.args.rounds)])
    beside(b, [*b.bough, "run", *true])


def beside(b, ours):
    """`runc run` and podman without a registry: a root of one program, and what walls they have by
    themselves."""
    bundle = os.path.join(b.work.path, "bundle")
    root = os.path.join(bundle, "rootfs")
    os.makedirs(root)
    shutil.copy(os.path.join(BIN, "bough-init"), os.path.join(root, "init"))  # static
    subprocess.run(["runc", "spec"], cwd=bundle, check=True)
    with open(os.path.join(bundle, "config.json"), encoding="utf-8") as f:
        spec = json.load(f)
    spec["process"].update(args=["/init", "-h"], terminal=False, rlimits=[])
    with open(os.path.join(bundle, "config.json"), "w", encoding="utf-8") as f:
        json.dump(spec, f)
    ended = " || [ $? = 125 ]"  # it says how it is used
    b.pair("run_beside_runc", ours, "runc run",
           f"runc --root {b.work.path}/runc run --bundle {bundle} beside-$$" + ended, b.args.rounds)
    podman(b, ours, root, ended)


def podman(b, ours, root, ended):
    program = os.environ.get("BOUGH_PODMAN") or shutil.which("podman")
    if not program:
        say("no podman: nothing beside `run`")
        return
    limits = []  # its own may be more than this process may give
    for name, which in ("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC):
        most = resource.getrlimit(which)[1]
        n = 512 if most == resource.RLIM_INFINITY else min(most, 512)
        limits += ["--ulimit", f"{name}={n}:{n}"]
    theirs = [program, "run", "--rm", "--network", "none", *limits, "--rootfs", root, "/init", "-h"]
    said = subprocess.run(theirs, capture_output=True, check=False).stderr
    if b"usage: bough-init" not in said:
        say(f"podman doesn't run here: {said[-200:]!r}")
        return
    b.pair("run_beside_podman", ours, "podman run", " ".join(theirs) + ended, b.args.rounds)


def executes(b):
    """Beside the runtime's own exec of the same program in the same container."""
    b.start("s")
    sandbox = b.client.sandboxes("s").info["id"]
    ours = [*b.bough, "exec", "s", "--", "true"]
    state = glob.glob(f"/run/bough/*/{sandbox}")
    if b.args.runtime != "runc" or not state:
        b.put("exec_true", [timed(ours) for _ in range(b.args.rounds)])
        return
    runc = ["runc", "--root", os.path.dirname(state[0]), "exec", sandbox, "true"]
    b.pair("exec_true", ours, "runc exec", runc, 2 * b.args.rounds)


def saves(b):
    pauses, took = [], []
    box = b.client.sandboxes("s")
    for i in range(b.args.rounds):
        b.run("exec", "s", "--", "sh", "-c", f"echo {i} >/root/x")
        began = time.perf_counter()
        pauses.append(box.save(f"s-{i}")["pause_ns"] / 1e6)
        took.append(1000 * (time.perf_counter() - began))
    b.put("save_pause", pauses)
    b.put("save", took)


def destroys(b):
    names = [f"d{i}" for i in range(b.args.rounds)]
    for name in names:
        b.start(name)
    b.put("destroy", [timed([*b.bough, "rm", "--force", name]) for name in names])


def copies(b):
    """In and out beside tar to tar, on the same disk."""
    tree, out = (os.path.join(b.work.path, name) for name in ("tree", "out"))
    for i in range(b.args.files):
        folder = os.path.join(tree, f"{i // 1000}", f"{i % 1000 // 50}")
        if i % 50 == 0:
            os.makedirs(folder)
        with open(os.path.join(folder, f"{i}"), "wb") as f:
            f.write(b"%d\n" % i * (1 + i % 700))
    large = os.path.join(b.work.path, "large")
    block = os.urandom(1 << 20)
    with open(large, "wb") as f:
        for i in range(64 if b.args.quick else 1024):
            f.write(i.to_bytes(4, "big") + block[4:])
    os.mkdir(out)
    rounds = 1 if b.args.quick else 3
    for what, path in (("tree", tree), ("file", large)):
        name = os.path.basename(path)
        tar = f"rm -rf {out}/{name}; tar c -C {b.work.path} {name} | tar x -C {out}"
        shell = " ".join(b.bough)
        b.pair(f"copy_in_{what}", f"{shell} exec s -- rm -rf /root/{name}; "
               f"{shell} cp {path} s:/root/{name}", "tar | tar", tar, rounds)
        b.pair(f"copy_out_{what}", f"rm -rf {out}/{name}; {shell} cp s:/root/{name} {out}/{name}",
               "tar | tar", tar, rounds)


def memory(b):
    """Of shims, bough-io and boughd, for each of many that wait."""
    def all_kib():
        own = servers_of(b.work.root, ("boughd", "bough-fs", "bough-io"))
        return sum(process_memory(p)[0] for p in own + shims(b))
    before = all_kib()
    names = [f"m{i}" for i in range(b.args.alive)]
    began = time.perf_counter()
    with ThreadPoolExecutor(DOERS) as pool:
        list(pool.map(b.start, names))
    started = time.perf_counter() - began
    each = (all_kib() - before) / len(names)
    began = time.perf_counter()
    with ThreadPoolExecutor(DOERS) as pool:
        list(pool.map(lambda name: b.run("rm", "--force", name), names))
    gone = time.perf_counter() - began
    b.figures["alive"] = {"n": len(names), "kib_each": round(each), "goal_kib": MEMORY_GOAL_KIB,
                          "start_each_ms": round(1000 * started / len(names), 1),
                          "destroy_each_ms": round(1000 * gone / len(names), 1)}
    print(f"{len(names)} alive: {each:.0f} KiB each (goal {MEMORY_GOAL_KIB}), started in "
          f"{started:.1f} s, destroyed in {gone:.1f} s, {DOERS} at a time", flush=True)


def shims(b):
    """Their command line names the namespace and the sandbox, not the root."""
    ours = {os.path.basename(p) for p in glob.glob(os.path.join(b.work.root, "box", "sb_*"))}
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "shim" in words[0] and "-id" in words and words[words.index("-id") + 1] in ours:
            found.append(int(pid))
    return found


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--quick", action="store_true")
    p.add_argument("--runtime", default="runc")
    p.add_argument("--alive", type=int)
    p.add_argument("--rounds", type=int)
    p.add_argument("--files", type=int)
    p.add_argument("--json")
    p.add_argument("--work", default="/var/tmp")
    args = p.parse_args()
    args.alive = args.alive or (8 if args.quick else 40)
    args.rounds = args.rounds or (5 if args.quick else 21)
    args.files = args.files or (1000 if args.quick else 20000)
    if os.geteuid() != 0:
        sys.exit("sandbox.sh: sandboxes want root")
    work = Workdir(args.work)
    try:
        os.chmod(work.path, 0o711)
        b = Bench(args, work)
        b.run("up")
        for part in (starts, executes, saves, destroys, copies, memory):
            part(b)
        b.run("rm", "--force", "s")
        if args.json:
            with open(args.json, "w", encoding="utf-8") as f:
                json.dump({"machine": machine(), "runtime": args.runtime, **b.figures}, f, indent=1)
    finally:
        work.clear()


if __name__ == "__main__":
    main()
