"""What a fork costs a program that writes meanwhile."""

import array
import os
import subprocess
import sys
import time

from harness import median, percentile

BLOCK = 256 << 10
# A process of its own: a thread would wait for this one's interpreter lock, up to 5 ms.
WRITER = """
import array, gc, os, signal, sys, time
gc.disable()
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
block = os.urandom(int(sys.argv[2]))
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
times = array.array("d")
n = 0
while not stop:
    began = time.perf_counter()
    os.pwrite(fd, block, n % 1024 * len(block))
    times.append(began)
    times.append(time.perf_counter() - began)
    n += 1
os.close(fd)
sys.stdout.buffer.write(times.tobytes())
"""


class Stream:
    """A program that writes all the time, and notes how long each write took."""

    def __init__(self, path):
        self.path, self.writes = path, []

    def __enter__(self):
        self.began = time.perf_counter()
        self.process = subprocess.Popen([sys.executable, "-c", WRITER, self.path, str(BLOCK)],
                                        stdout=subprocess.PIPE)
        return self

    def __exit__(self, *exc):
        """Ends it; then `writes` are (when it began, how long it took), on perf_counter's clock."""
        self.took = time.perf_counter() - self.began
        self.process.terminate()
        times = array.array("d")
        times.frombytes(self.process.communicate()[0])
        self.writes = list(zip(times[0::2], times[1::2]))

    def rate(self):
        return len(self.writes) * BLOCK / self.took

    def longest(self, begin, end):
        """The longest write that overlaps the time."""
        return max((took for t, took in self.writes if t < end and t + took > begin), default=0.0)


def run(bench):
    bough, = bench.places.get("bough", tree=True)
    parent = bench.service.client.workspaces("tree")
    path = os.path.join(bough.base, "stream")
    windows, times, held = [], [], []
    with Stream(path) as stream:
        time.sleep(bench.scale(1, 2))
        quiet = time.perf_counter()
        for i in range(bench.scale(20, 120)):
            began = time.perf_counter()
            answer = bench.service.client.call("POST", f"/v1/workspaces/{parent.ref}/fork",
                                               {"names": [f"busy{i}"]})
            os.listdir(answer["items"][0]["path"])
            times.append((time.perf_counter() - began) * 1000)
            windows.append((began, time.perf_counter()))
            held.append(answer["pause_ns"] / 1e6)
            time.sleep(0.02)
            bough.drop(f"busy{i}")
    os.unlink(path)
    base = percentile([w for t, w in stream.writes if t < quiet], 99) * 1000
    pauses = [stream.longest(a, b) * 1000 for a, b in windows]
    bench.report.row("fork.stream", "fork + ls while the parent is written to", "ms", {"bough": times},
                     note=f"p99 {percentile(times, 99):.1f}; writer {stream.rate() / 1e6:.0f} MB/s")
    bench.report.row("fork.pause", "  the writer's longest pause, p99", "ms", {"bough": percentile(pauses, 99)},
                     note=f"median {median(pauses):.2f}; p99 of any write before {base:.2f}")
    bench.report.row("fork.held", "  how long the server held writers, p99", "ms",
                     {"bough": percentile(held, 99)}, note=f"median {median(held):.3f}")
