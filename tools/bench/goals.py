"""What each figure should be. A figure that isn't named here has no goal, and is shown all the same.

Goal(op, bound, against): Bough's figure, divided by that of the place `against` when there is one,
should be `op` bound. "first overlayfs" in words: at most 1.0 times overlayfs's first pass."""

from collections import namedtuple

Goal = namedtuple("Goal", "op bound against", defaults=[None])


def at_most(bound, against=None):
    return Goal("<=", bound, against)


def at_least(bound, against=None):
    return Goal(">=", bound, against)


GOALS = {
    "fork.clean": [at_most(5)],
    "fork.dirty": [at_most(5)],
    "fork.stream": [at_most(25)],
    "fork.pause": [at_most(5)],
    "fork.ratio": [at_most(1.5)],
    "save.small": [at_most(20), at_most(1 / 40, "restic")],
    "save.full": [at_most(1 / 3, "restic")],
    "save.store": [at_most(1.0, "restic")],
    "save.beside": [at_most(150)],
    "find.first": [at_most(1.0, "overlayfs")],
    "stat.first": [at_most(1.0, "overlayfs")],
    "status.first": [at_most(1.0, "overlayfs")],
    "rg.first": [at_most(1.0, "overlayfs")],
    "find.second": [at_most(1.1, "ext4")],
    "stat.second": [at_most(1.1, "ext4")],
    "status.second": [at_most(1.1, "ext4")],
    "rg.second": [at_most(1.1, "ext4")],
    "tar.second": [at_most(1.1, "ext4")],
    "untar": [at_most(1.5, "ext4")],
    "npm": [at_most(1.5, "ext4")],
    "rm": [at_most(2.0, "ext4")],
    "checkout": [at_most(2.0, "ext4")],
    "make": [at_most(1.05, "ext4")],
    "venv": [at_most(1.05, "ext4")],
    "fio.write.seq.1m": [at_least(0.8, "ext4")],
    "fio.read.cold.1m": [at_least(0.4, "ext4")],
    "fio.read.warm.1m": [at_least(0.95, "ext4")],
    "fio.write.rand.4k": [at_least(0.6, "ext4")],
    "fio.write.rand.4k.fsync": [at_least(0.7, "ext4")],
    "sqlite.insert": [at_least(0.8, "ext4")],
    "sqlite.update": [at_least(0.8, "ext4")],
    "fsync.dirty": [at_most(1.5, "ext4")],
    "server.request": [at_most(5)],
    "idle.memory": [at_most(64)],
    "idle.threads": [at_most(0.1)],
    "bigfile.space": [at_most(64)],
    "forks.1000.p99": [at_most(50)],
}


def judge(row):
    """(text, ratio or value, met) for each goal of a row."""
    found = []
    ours = row["values"].get("bough")
    for goal in GOALS.get(row["id"], []):
        value = ours
        if goal.against is not None:
            theirs = row["values"].get(goal.against)
            value = ours / theirs if ours is not None and theirs else None
        sign = "≤" if goal.op == "<=" else "≥"
        text = f"{sign} {goal.bound:.3g}" + (f" × {goal.against}" if goal.against else f" {row['unit']}")
        met = None
        if value is not None:
            met = value <= goal.bound if goal.op == "<=" else value >= goal.bound
        found.append(dict(goal=text, value=value, met=met, against=goal.against))
    return found
