"""Builds: git's source by make -j2, npm ci of an application, a Python venv."""

import glob
import os
import shutil

from harness import call, measure, say

MAKE = ["make", "-s", "-j2", "NO_TCLTK=1", "NO_EXPAT=1", "NO_GETTEXT=1", "NO_PERL=1", "NO_PYTHON=1",
        "NO_OPENSSL=1", "NO_CURL=1", "CFLAGS=-O0"]
# Enough of it for a quick run.
PART = ["xdiff/lib.a", "reftable/libreftable.a"]


def run(bench):
    cache = os.environ["BOUGH_BENCH_CACHE"]
    places = bench.places.get("bough", "ext4", "overlayfs")
    rounds = bench.scale(1, 2, 3)
    source = os.path.join(cache, "git-source")
    if os.path.isdir(source):
        make(bench, places, source, rounds)
    app = os.path.join(cache, "app")
    if os.path.exists(app + "/filled"):
        npm(bench, places, app, os.path.join(cache, "npm"), rounds)
    else:
        say("  no packages of npm")
    venv(bench, places, rounds)
    crates = glob.glob("/usr/share/cargo/registry/*/Cargo.toml")
    if not crates or not shutil.which("cargo"):
        say("  no crates at hand: no cargo build")


def in_fresh(bench, places, id_, name, rounds, fill, argv, **options):
    """A row of a program that is run in a folder filled before."""
    def one(place, i):
        at = place.fresh("build")
        fill(at)
        place.settle()
        try:
            return measure(place, argv(at), cwd=at, **options)
        finally:
            place.drop("build")

    bench.compare(id_, name, rounds, places, one)


def make(bench, places, source, rounds):
    argv = MAKE + (PART if bench.args.quick else [])
    in_fresh(bench, places, "make", "make -j2 of git", rounds,
             lambda at: call("cp", "-a", source + "/.", at), lambda at: argv)


def npm(bench, places, app, cache, rounds):
    def fill(at):
        for name in ("package.json", "package-lock.json"):
            shutil.copy(os.path.join(app, name), at)

    in_fresh(bench, places, "npm", "npm ci of an application", rounds, fill,
             lambda at: ["npm", "ci", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", cache],
             env={"HOME": bench.work.path})


def venv(bench, places, rounds):
    """With pip, from the wheels that Python (Debian's: python3-venv) brings."""
    in_fresh(bench, places, "venv", "python3 -m venv, with pip", rounds, lambda at: None,
             lambda at: ["python3", "-m", "venv", os.path.join(at, "venv")])
