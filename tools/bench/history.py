#!/usr/bin/env python3
"""A repository with a long history and deep chains of deltas, always the same one:

    tools/bench/history.py REPOSITORY.git [COMMITS]      (60,000; some 20 s, 100 MB)

Bare, branch main, one pack as git fast-import leaves it: each version of a file or folder is a
delta against the one before, 200 deep, the oldest whole. 4,000 files in 441 folders four deep; a
commit changes two to four of them, and each 40th is a merge."""

import random
import subprocess
import sys

TOP, SUB, LEAF, FILES = 20, 5, 4, 10  # folders in the root, in each of those …; files in the last
DEPTH = 200


def path(n):
    n, file = divmod(n, FILES)
    n, leaf = divmod(n, LEAF)
    top, sub = divmod(n, SUB)
    return f"part{top:02}/module{sub}/unit{leaf}/file{file}.c"


class Tree:
    """The files' lines; one line of a file changes at a time."""

    def __init__(self, rnd):
        self.rnd = rnd
        self.lines = [[f"static int f{n}_{i}(void) {{ return {rnd.getrandbits(48)}; }}\n"
                       for i in range(20 + n % 60)] for n in range(TOP * SUB * LEAF * FILES)]

    def pick(self):
        """Two to four files that lie near each other, mostly the same few."""
        first = int(self.rnd.expovariate(8) * len(self.lines))
        return {(first + self.rnd.randrange(2 * FILES)) % len(self.lines)
                for _ in range(self.rnd.randrange(2, 5))}

    def change(self, n, commit):
        lines = self.lines[n]
        lines[self.rnd.randrange(len(lines))] = f"int g{commit} = {self.rnd.getrandbits(48)};\n"

    def put(self, out, n):
        text = "".join(self.lines[n]).encode()
        out.write(b"M 100644 inline %s\ndata %d\n%s\n" % (path(n).encode(), len(text), text))


def commits(out, count):
    rnd = random.Random(7)
    tree = Tree(rnd)
    for c in range(count):
        text = f"part: change {c}\n\nWhy it was done, in a line or two of {rnd.getrandbits(64)}.\n"
        when = f"A U Thor {rnd.randrange(50)} <a@example.org> {1300000000 + c * 600} +0000\n"
        merged = c > 0 and c % 40 == 0
        out.write(f"commit refs/heads/main\nmark :{c + 1}\nauthor {when}committer {when}"
                  f"data {len(text)}\n{text}".encode())
        if merged:
            out.write(b"from :%d\nmerge :%d\n" % (c, c - 20))
        for n in range(len(tree.lines)) if c == 0 else sorted(tree.pick()):
            if c:
                tree.change(n, c)
            tree.put(out, n)


def main():
    repo, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 60000
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", repo], check=True)
    with subprocess.Popen(["git", "-C", repo, "-c", "core.fsync=none", "-c", "pack.compression=1",
                           "fast-import", "--quiet", f"--depth={DEPTH}"],
                          stdin=subprocess.PIPE) as git:
        commits(git.stdin, count)
        git.stdin.close()
    sys.exit(git.returncode)


if __name__ == "__main__":
    main()
