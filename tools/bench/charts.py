"""Which charts are drawn of a run's figures."""

import os

from chart import bars, lines

PEERS = ["bough", "ext4", "overlayfs", "fuse-overlayfs", "btrfs", "xfs"]
# file, title, subtitle, places, ids of rows (with the names they get)
BARS = [
    ("workspaces.svg", "A workspace with all of the tree", "milliseconds, less is better",
     ["bough", "overlayfs", "fuse-overlayfs", "btrfs", "xfs", "worktree", "clone --shared"],
     {"fork.clean": "fork", "fork.hundred": "100 forks", "checkout.create": "checkout"}),
    ("save.svg", "Saving", "milliseconds, less is better", ["bough", "restic", "borg", "casync", "ostree"],
     {"save.full": "the tree", "save.small": "10 changed files"}),
    ("passes.svg", "Over the tree, in a fork", "seconds, less is better", PEERS,
     {"find.first": "find, first", "find.second": "find, second", "status.first": "git status, first",
      "status.second": "git status, second", "rg.first": "rg, first", "rg.second": "rg, second",
      "untar": "untar", "rm": "rm -rf", "checkout": "git checkout"}),
    ("throughput.svg", "Reading and writing", "MB/s or 1,000 operations/s, more is better", PEERS,
     {"fio.write.seq.1m": "write, 1 MiB", "fio.read.cold.1m": "read, cold", "fio.read.warm.1m": "read, warm",
      "fio.write.rand.4k": "random 4 KiB", "fio.write.rand.4k.fsync": "4 KiB, fsync each"}),
]


def draw(data, folder):
    """The paths of what was drawn; charts without a figure are left out."""
    rows = {r["id"]: r for r in data["rows"]}
    written = []

    def write(name, svg):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(svg)
        written.append(path)

    for name, title, subtitle, places, wanted in BARS:
        shown = [(label, {p: v for p, v in rows[i]["values"].items() if p in places and v})
                 for i, label in wanted.items() if i in rows]
        shown = [(label, by) for label, by in shown if by]
        if shown:
            write(name, bars(title, subtitle, shown, [p for p in places if any(p in by for _, by in shown)]))
    if data["curves"]:
        write("growth.svg", lines("Growth, with the exponent of each (0: flat, 1: linear)", data["curves"]))
    return written
