"""Reading over the tree in a fresh fork: the first time, and again."""

import os
import subprocess

from harness import measure

NO_LOCKS = {"GIT_OPTIONAL_LOCKS": "0"}
PASSES = [
    ("find", "find", ["find", ".", "-type", "f"]),
    ("stat", "stat of all", ["find", ".", "-type", "f", "-printf", "%s %T@ %m\n"]),
    ("status", "git status", ["git", "status", "--porcelain"]),
    ("rg", "rg", ["rg", "-c", "-uu", "-g", "!.git", "no_such_word_in_there", "."]),
    ("tar", "tar c", ["sh", "-c", "tar c --exclude=./.git . | cat >/dev/null"]),
]


def run(bench):
    places = bench.peers(tree=True)
    for place in places:  # each index knows its own files
        subprocess.run(["git", "-C", place.base, "status"], stdout=subprocess.DEVNULL)
    rounds = bench.scale(1, 2, 3)
    requests, cpu = 0, 0.0
    for id_, name, argv in PASSES:
        first = {p.name: [] for p in places}
        second = {p.name: [] for p in places}
        third = {p.name: [] for p in places}
        for i in range(rounds):
            k = i % len(places)
            for p in places[k:] + places[:k]:
                # A copy takes long, and its first pass isn't what a fork's is.
                copied = p.name in ("ext4", "xfs")
                if copied and p.name == "xfs" and i > 0:
                    continue
                at = p.base if p.name == "ext4" else p.fork(f"pass{i}")
                p.settle()
                used = [measure(p, argv, cwd=at, ok=(0, 1), env=NO_LOCKS) for _ in range(3)]
                if p.name == "bough":
                    requests += sum(sum(u.requests.values()) for u in used)
                    cpu += sum(u.server_user for u in used)
                if p.name != "ext4":
                    first[p.name].append(used[0])
                    p.drop(f"pass{i}")
                second[p.name].append(used[1])
                third[p.name].append(used[2])
        bench.timed(f"{id_}.first", f"{name}, first in a fork", first)
        bench.timed(f"{id_}.second", f"{name}, second", second)
        if id_ != "tar":
            bench.timed(f"{id_}.third", f"{name}, third", {"bough": third["bough"]})
    if requests:
        bench.report.row("server.request", "server's own CPU, for each request of these passes", "us",
                         {"bough": 1e6 * cpu / requests}, note=f"{requests} requests")
    copies(bench, places, rounds)


def copies(bench, places, rounds):
    """A part of the tree copied within a fork, as a user does."""
    part = bench.tree.folder_of(bench.scale(1000, 10000))

    def one(place, i):
        if place.name == "ext4":
            to = place.fresh("copied")
            used = measure(place, ["cp", "-a", os.path.join(place.base, part), to])
            place.drop("copied")
            return used
        at = place.fork("copied")
        place.settle()
        used = measure(place, ["cp", "-a", part, "the-copy"], cwd=at)
        place.drop("copied")
        return used

    some = [p for p in places if p.name != "xfs"]  # its fork takes longer than all the rest
    bench.compare("cp", f"cp -a of a folder ({part})", rounds, some, one)
