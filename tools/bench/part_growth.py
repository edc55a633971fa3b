"""Growth: what an operation costs by the number of files, forks, layers, snapshots, and the size of
the store; each a curve with its exponent."""

import io
import os
import tarfile
import time

from harness import BOUGH, call, median, percentile, process_memory
from tree import change


def run(bench):
    by_files(bench)
    by_forks(bench)
    by_layers(bench)
    by_snapshots(bench)
    by_store(bench)


def ms(what):
    began = time.perf_counter()
    what()
    return (time.perf_counter() - began) * 1000


def made_tar(path, files):
    """An archive of small files, 100 a folder."""
    with tarfile.open(path, "w") as tar:
        for i in range(files):
            info = tarfile.TarInfo(f"d{i // 10000}/d{i // 100 % 100}/f{i % 100}")
            data = b"%d\n" % i
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def by_files(bench):
    xs = bench.scale([1000, 5000], [1000, 10000, 100000], [1000, 10000, 100000, 1000000])
    names = ("fork", "save after 10", "diff", "create", "first ls")
    series = {k: [] for k in names}
    tar = os.path.join(bench.work.path, "growth.tar")
    for n in xs:
        made_tar(tar, n)
        call(BOUGH, "create", "growth", "--tar", tar)
        ws = bench.service.client.workspaces("growth")
        files = [f"d{i // 10000}/d{i // 100 % 100}/f{i % 100}" for i in range(0, n, max(1, n // 10))][:10]
        snapshot = ws.save()
        found = {k: [] for k in names}
        for i in range(bench.scale(3, 9)):
            change(ws.path, files)
            found["diff"].append(ms(lambda: list(ws.diff())))
            found["save after 10"].append(ms(ws.save))
            found["fork"].append(ms(lambda: ws.fork("growth-f")))
            child = bench.service.client.workspaces.get("growth-f")
            found["first ls"].append(ms(lambda: os.listdir(os.path.join(child.path, "d0", "d0"))))
            child.delete(purge=True)
            found["create"].append(
                ms(lambda: bench.service.client.workspaces.create("growth-c", source=snapshot)))
            bench.service.client.workspaces("growth-c").delete(purge=True)
        for k in names:
            series[k].append(median(found[k]))
        ws.delete(purge=True)
    os.unlink(tar)
    bench.report.curve("growth.files", "By files", "files", xs, series)


def by_forks(bench):
    """Mounted forks of one workspace: the next fork, any API call beside them, memory of each."""
    xs = bench.scale([1, 50], [1, 10, 100, 300], [1, 10, 100, 300, 1000])
    client = bench.service.client
    base = client.workspaces.create("forks")
    for i in range(100):
        with open(f"{base.path}/f{i}", "w") as f:
            f.write("x" * 100)
    series = {"fork": [], "GET, p99": [], "KiB a fork": []}
    count, empty = 0, process_memory(bench.service.pids()[1])[0]
    calls = []
    for n in xs:
        while count < n:
            step = min(50, n - count)
            base.fork(name=f"many-{count}", count=step)
            count += step
        for ws in list(client.workspaces)[:n]:
            if ws.name.startswith("many-"):
                os.listdir(ws.path)
        series["fork"].append(median(next_forks(base, 15)))
        calls = [ms(client.workspaces("forks").refresh) for _ in range(100)]
        series["GET, p99"].append(percentile(calls, 99))
        series["KiB a fork"].append((process_memory(bench.service.pids()[1])[0] - empty) / n)
    if count >= 1000:
        bench.report.row("forks.1000.p99", "an API call beside 1,000 mounted forks, p99", "ms",
                         {"bough": percentile(calls, 99)})
    bench.report.curve("growth.forks", "By mounted forks", "forks", xs, series, "ms; KiB")
    for ws in list(client.workspaces):
        if ws.name.startswith("many-"):
            ws.delete(purge=True)
    base.delete(purge=True)


def next_forks(base, n):
    found = []
    for i in range(n):
        began = time.perf_counter()
        child = base.fork(f"next-{i}")[0]
        found.append((time.perf_counter() - began) * 1000)
        child.delete(purge=True)
    return found


def by_layers(bench):
    """A line of forks, each with a change: the background flattens it meanwhile, as it always does."""
    xs = bench.scale([1, 8], [1, 4, 16, 64], [1, 2, 4, 8, 16, 32, 64, 100])
    names = ("fork", "find, first", "save")
    series = {k: [] for k in names}
    client = bench.service.client
    client.workspaces.create("layer-0")
    at = client.workspaces.get("layer-0").path
    for i in range(1000):
        os.makedirs(f"{at}/d{i // 100}", exist_ok=True)
        with open(f"{at}/d{i // 100}/f{i}", "w") as f:
            f.write("x" * 100)
    made = 0
    for n in xs:
        while made < n:
            parent = client.workspaces.get(f"layer-{made}")
            child = parent.fork(f"layer-{made + 1}")[0]
            change(child.path, [f"d{made % 10}/f{made % 10 * 100 + made % 100}"])
            made += 1
        top = client.workspaces.get(f"layer-{made}")
        series["fork"].append(median(next_forks(top, 7)))
        probe = top.fork("layer-probe")[0]
        series["find, first"].append(ms(lambda: call("find", probe.path)))
        probe.delete(purge=True)
        change(top.path, ["d0/f0"])
        series["save"].append(ms(top.save))
    for i in range(made + 1):
        client.workspaces(f"layer-{i}").delete(purge=True)
    bench.report.curve("growth.layers", "By forks of forks", "depth", xs, series)


def by_snapshots(bench):
    xs = bench.scale([1, 50], [1, 10, 100, 1000], [1, 10, 100, 1000, 10000])
    series = {"save": [], "fork": [], "log of 100": [], "gc": []}
    client = bench.service.client
    ws = client.workspaces.create("snapshots")
    made, lately = 0, []
    for n in xs:
        while made < n:
            with open(f"{ws.path}/file-{made % 100}", "w") as f:
                f.write(f"{made}\n")
            lately.append(ms(ws.save))
            made += 1
        series["save"].append(median(lately[-15:]))
        series["fork"].append(median(next_forks(ws, 7)))
        series["log of 100"].append(ms(lambda: [s for s, _ in zip(ws.log(page=100), range(100))]))
        series["gc"].append(ms(client.gc))
    ws.delete(purge=True)
    bench.report.curve("growth.snapshots", "By snapshots", "snapshots", xs, series)


def by_store(bench):
    """Contents that don't compress, saved 256 MiB at a time."""
    step = bench.scale(16, 256) << 20
    xs = bench.scale([1, 4], [1, 4, 16], [4, 16, 64, 200])
    series = {"save of 10 files": [], "fork": [], "gc": []}
    client = bench.service.client
    ws = client.workspaces.create("store")
    made = 0
    for n in xs:
        while made < n:
            block = bytearray(os.urandom(1 << 20))
            with open(f"{ws.path}/big-{made}", "wb") as f:
                for k in range(step >> 20):
                    block[:16] = os.urandom(16)  # shifts where chunks are cut
                    f.write(bytes(a ^ k & 255 for a in block[:4096]) + block[4096:])
            ws.save()
            made += 1
        saves = []
        for i in range(5):
            for k in range(10):
                with open(f"{ws.path}/small-{k}", "w") as f:
                    f.write(f"{made} {i} {k}\n")
            saves.append(ms(ws.save))
        series["save of 10 files"].append(median(saves))
        series["fork"].append(median(next_forks(ws, 7)))
        series["gc"].append(ms(client.gc))
    ws.delete(purge=True)
    bench.report.curve("growth.store", "By the store's size", "MiB", [x * step >> 20 for x in xs], series)
