"""Checkouts measured beside git's own: tools/bench/git.sh.

A repository of a large tree with some commits of 100 changed files each is made once (or --repo
names one), then, alternating in the same minutes on the same disk:
  - create --git: the first of all, other commits of the repository, known ones; git clone --shared;
  - git status: the first in a fresh workspace, the next, one with 10 changed files; on ext4 warm,
    without fsmonitor.
Figures are medians; requests are what bough-fs counted."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BOUGH = os.path.join(os.environ["BOUGH_BIN"], "bough")
COMMITS = 6  # of the repository: the first holds the tree, each other one changes 100 files


def say(text):
    print(f"# {text}", file=sys.stderr, flush=True)


def run(*argv, cwd=None):
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, cwd=cwd).stdout.strip()


def timed(*argv, cwd=None):
    before = time.perf_counter()
    out = run(*argv, cwd=cwd)
    return time.perf_counter() - before, out


def requests():
    ops = json.loads(run(BOUGH, "stats", "--json"))["fs"]["opcodes"]
    return {k: v for k, v in ops.items() if isinstance(v, int) and "FORGET" not in k}


def between(before, after):
    diff = {k: v - before.get(k, 0) for k, v in after.items()}
    return {k: v for k, v in sorted(diff.items(), key=lambda kv: -kv[1]) if v}


def make_repo(tree, at):
    say(f"a repository of {tree}")
    git = ["git", "-c", "user.name=B", "-c", "user.email=b@example.org", "-c", "core.fsync=none",
           "-c", "gc.auto=0", f"--git-dir={at}", f"--work-tree={tree}"]
    env = dict(os.environ, GIT_AUTHOR_DATE="1670000000 +0000", GIT_COMMITTER_DATE="1670000000 +0000")
    run("git", "init", "-q", "--bare", "-b", "main", at)
    subprocess.run([*git, "add", "-f", "-A", "."], check=True, env=env, stderr=subprocess.DEVNULL)
    subprocess.run([*git, "commit", "-q", "-m", "import"], check=True, env=env)
    names = run(*git, "ls-files", "-s").splitlines()
    files = [n for n in names if n.startswith("100644")]
    step = max(1, len(files) // (100 * COMMITS))
    for c in range(1, COMMITS):
        lines = []
        for entry in files[c * 7 % step::step][:100]:
            meta, path = entry.split("\t", 1)
            blob = subprocess.run([*git, "cat-file", "blob", meta.split()[1]], check=True,
                                  stdout=subprocess.PIPE).stdout
            new = subprocess.run([*git, "hash-object", "-w", "--stdin"], check=True,
                                 input=blob + b"/* %d */\n" % c, stdout=subprocess.PIPE).stdout
            lines.append(b"100644 " + new.strip() + b"\t" + path.encode() + b"\n")
        subprocess.run([*git, "update-index", "--index-info"], input=b"".join(lines), check=True)
        subprocess.run([*git, "commit", "-q", "-m", f"change {c}"], check=True, env=env)
    run(*git, "repack", "-q", "-a", "-d")


def drop_ignore_all(repo, work):
    """Debian's kernel has a .gitignore that ends in "/*", by which git status looks into no folder:
    then one more commit is made, without that line."""
    git = ["git", f"--git-dir={repo}", "-c", "user.name=B", "-c", "user.email=b@example.org"]
    ls = run(*git, "ls-tree", "HEAD", ".gitignore")
    text = run(*git, "cat-file", "blob", ls.split()[2]).splitlines() if ls else []
    if "/*" not in text:
        return
    env = dict(os.environ, GIT_INDEX_FILE=os.path.join(work, "index"))
    rest = "\n".join(line for line in text if line != "/*") + "\n"
    blob = subprocess.run([*git, "hash-object", "-w", "--stdin"], check=True, input=rest, text=True,
                          stdout=subprocess.PIPE).stdout.strip()
    for argv in (["read-tree", "HEAD"],
                 ["update-index", "--cacheinfo", f"100644,{blob},.gitignore"]):
        subprocess.run([*git, *argv], check=True, env=env)
    tree = subprocess.run([*git, "write-tree"], check=True, env=env, text=True,
                          stdout=subprocess.PIPE).stdout.strip()
    run(*git, "update-ref", "HEAD", run(*git, "commit-tree", tree, "-p", "HEAD", "-m", "no /*"))
    run(*git, "repack", "-q", "-a", "-d")


class Bench:
    def __init__(self, args, work):
        self.work, self.rounds = work, args.rounds
        self.repo = os.path.join(work, "repo.git")
        self.result = {}
        if args.repo:
            run("git", "clone", "-q", "--mirror", args.repo, self.repo)
        else:
            make_repo(args.tree, self.repo)
        drop_ignore_all(self.repo, work)
        self.commits = run("git", "-C", self.repo, "rev-list", "--reverse",
                           f"--max-count={COMMITS}", "HEAD").split()
        self.n = 0

    def create(self, commit):
        self.n += 1
        name = f"w{self.n}"
        took, path = timed(BOUGH, "create", name, "--git", "bench", "--ref", commit)
        return took, name, path

    def note(self, name, times, **more):
        self.result[name] = {"median_ms": round(statistics.median(times) * 1e3, 2),
                             "all_ms": [round(t * 1e3, 2) for t in times], **more}
        extra = "".join(f"  {k}: {v}" for k, v in more.items())
        print(f"{name:42} {self.result[name]['median_ms']:10.1f} ms{extra}", flush=True)

    def creating(self):
        run(BOUGH, "repo", "add", self.repo, "--name", "bench")
        took, _, _ = self.create(self.commits[0])
        self.note("create: the first of the repository", [took])
        others = [self.create(c)[0] for c in self.commits[1:]]
        self.note("create: another commit (100 files)", others)
        self.note("create: a commit seen before",
                  [self.create(self.commits[-1])[0] for _ in range(3 * self.rounds)])
        clone = os.path.join(self.work, "clone")
        took, _ = timed("git", "clone", "-q", "--shared", self.repo, clone)
        self.note("git clone --shared on ext4", [took])
        return clone

    def status(self, clone):
        times = {k: [] for k in ("first", "second", "changed", "ext4", "ext4 changed")}
        counts = {}

        def one(kind, cwd, count=True):
            before = requests()
            took, _ = timed("git", "status", "--porcelain", cwd=cwd)
            times[kind].append(took)
            counts[kind] = between(before, requests())

        changed = run("git", "ls-files", cwd=clone).splitlines()[::5000][:10]
        for _ in range(2):  # its stat data and its pages are warm
            run("git", "-c", "core.untrackedCache=true", "status", cwd=clone)
        for _ in range(self.rounds):
            _, name, path = self.create(self.commits[-1])
            one("first", path)
            one("second", path)
            one("ext4", clone)
            for where in (path, clone):
                for file in changed:
                    with open(os.path.join(where, file), "a", encoding="utf-8") as f:
                        f.write("changed\n")
            one("changed", path)
            one("ext4 changed", clone)
            run("git", "checkout", "-q", ".", cwd=clone)
            run(BOUGH, "rm", name)
        self.note("git status: first in a fresh workspace", times["first"], requests=counts["first"])
        self.note("git status: second", times["second"], requests=counts["second"])
        self.note("git status: 10 changed files", times["changed"], requests=counts["changed"])
        self.note("git status: ext4, warm, no fsmonitor", times["ext4"])
        self.note("git status: ext4, 10 changed files", times["ext4 changed"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", default=os.environ.get("BOUGH_BENCH_TREE"),
                        help="a folder that becomes the repository")
    parser.add_argument("--repo", help="a repository whose last commits change some files each")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", help="write the figures to this file too")
    parser.add_argument("--work", help="a folder for all that is made (default: below TMPDIR)")
    args = parser.parse_args()
    if not args.repo and not args.tree:
        parser.error("--repo, --tree or BOUGH_BENCH_TREE says what to measure")
    work = tempfile.mkdtemp(prefix="bough-git.", dir=args.work)
    os.environ.update(BOUGH_ROOT=os.path.join(work, "root"), HOME=work, GIT_CONFIG_NOSYSTEM="1",
                      GIT_CONFIG_GLOBAL=os.path.join(work, "gitconfig"), GIT_OPTIONAL_LOCKS="1")
    try:
        run("git", "config", "--global", "safe.directory", "*")
        bench = Bench(args, work)
        bench.status(bench.creating())
        if args.json:
            with open(args.json, "w", encoding="utf-8") as f:
                json.dump(bench.result, f, indent=1)
    finally:
        subprocess.run([BOUGH, "down"], check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
