"""fio: sequential and random, 4 KiB to 1 MiB, buffered, direct, mapped, with fsync each."""

import json
import os
import subprocess

from harness import evict, measure, say

# id: (name, unit, cold, options). MB/s of what goes in sequence, else operations a second.
SEQUENTIAL = {"read", "write"}
WORK = {
    "write.seq.1m": ("write in sequence, 1 MiB", dict(rw="write", bs="1m")),
    "read.cold.1m": ("read in sequence, cold, 1 MiB", dict(rw="read", bs="1m", cold=True)),
    "read.warm.1m": ("read in sequence, warm, 1 MiB", dict(rw="read", bs="1m")),
    "write.seq.64k": ("write in sequence, 64 KiB", dict(rw="write", bs="64k")),
    "write.seq.4k": ("write in sequence, 4 KiB", dict(rw="write", bs="4k")),
    "read.warm.4k": ("read in sequence, warm, 4 KiB", dict(rw="read", bs="4k")),
    "write.rand.4k": ("random write, 4 KiB", dict(rw="randwrite", bs="4k", seconds=True)),
    "write.rand.4k.fsync": ("random write, 4 KiB, fsync each", dict(rw="randwrite", bs="4k", fsync="1",
                                                                    seconds=True)),
    "write.rand.64k": ("random write, 64 KiB", dict(rw="randwrite", bs="64k", seconds=True)),
    "read.rand.4k": ("random read, warm, 4 KiB", dict(rw="randread", bs="4k", seconds=True)),
    "read.rand.4k.cold": ("random read, cold, 4 KiB", dict(rw="randread", bs="4k", cold=True, seconds=True)),
    "read.direct.1m": ("read, direct, 1 MiB", dict(rw="read", bs="1m", direct="1", cold=True)),
    "write.direct.4k": ("random write, direct, 4 KiB", dict(rw="randwrite", bs="4k", direct="1",
                                                            seconds=True)),
    "read.mmap.4k": ("random read, mapped, 4 KiB", dict(rw="randread", bs="4k", ioengine="mmap",
                                                        seconds=True)),
    "write.mmap.4k": ("random write, mapped, 4 KiB", dict(rw="randwrite", bs="4k", ioengine="mmap",
                                                          seconds=True)),
}
FULL = ["write.seq.64k", "write.rand.64k", "read.rand.4k.cold", "read.direct.1m"]
QUICK = ["write.seq.1m", "read.cold.1m", "read.warm.1m", "write.rand.4k", "write.rand.4k.fsync"]


def command(file, size, out, options, seconds):
    o = dict(options)
    cold, timed = o.pop("cold", False), o.pop("seconds", False)
    argv = ["fio", "--name=x", f"--filename={file}", f"--size={size}m", "--output-format=json",
            f"--output={out}", "--fallocate=none", "--overwrite=0", "--allow_file_create=1",
            f"--invalidate={int(cold)}", "--ioengine=" + o.pop("ioengine", "psync")]
    if timed:
        argv += ["--time_based", f"--runtime={seconds}"]
    return argv + [f"--{k}={v}" for k, v in o.items()]


def run(bench):
    places = bench.peers()
    size, seconds = bench.scale(128, 1024), bench.scale(1, 3)
    rounds = bench.scale(1, 2, 3)
    at = {p.name: p.fresh("fio") for p in places}
    out = os.path.join(bench.work.path, "fio.json")
    try:
        usual = [w for w in WORK if w not in FULL]
        for id_ in bench.scale(QUICK, usual, list(WORK)):
            name, options = WORK[id_]
            usage = {p.name: [] for p in places}

            def one(place, i):
                file = os.path.join(at[place.name], "file")
                place.settle()
                if options.get("cold"):
                    evict(at[place.name], *cold_places(bench, place))
                elif options["rw"].endswith("read"):
                    subprocess.run(["cat", file], stdout=subprocess.DEVNULL, check=True)
                elif options["rw"] == "write" and os.path.exists(file):
                    os.unlink(file)  # new blocks each time
                usage[place.name].append(measure(place, command(file, size, out, options, seconds)))
                with open(out, encoding="utf-8") as f:
                    job = json.load(f)["jobs"][0]
                side = job["read" if options["rw"].endswith("read") else "write"]
                return side["bw_bytes"] / 1e6 if options["rw"] in SEQUENTIAL else side["iops"] / 1e3

            try:
                found = bench.alternate(rounds, places, one)
            except RuntimeError as e:  # one that a place doesn't have
                say(f"  {name}: {e}")
                continue
            unit = "MB/s" if options["rw"] in SEQUENTIAL else "1,000/s"
            bench.report.row(f"fio.{id_}", name, unit, found, usage)
    finally:
        for p in places:
            p.drop("fio")


def cold_places(bench, place):
    """What lies below: the server's own files, or the file that a filesystem is in."""
    if place.name == "bough":
        return [os.path.join(bench.service.root, d) for d in ("layers", "store", "ws", "workspaces")
                if os.path.isdir(os.path.join(bench.service.root, d))]
    return [os.path.dirname(place.image)] if hasattr(place, "image") else []
