"""The console blocks of README.md, run as they stand: readme.py README FROM=TO…

Each command must end with 0 and say what the page says, but for ids, numbers, times and how columns are
filled up. Ids that the page repeats are those that came. FROM=TO replaces what no test can have; a
command with one of SKIP in it is left out."""

import re
import subprocess
import sys

SKIP = ("docker save", "--image web", "BOUGH_URL", "exec -it")
ID = re.compile(r"\b[a-z]{2}_[a-z2-7]{10}\b")
HEX = re.compile(r"\b[0-9a-f]{40}\b|\b[0-9a-f]{7}\b")


def commands(text):
    """(command, lines that it prints); each block begins at home."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        found = ("cd", [])
        for line in block.splitlines():
            if line.startswith("$ "):
                yield found
                found = (re.sub(r"\s{2,}#.*|\s# .*", "", line[2:]), [])
            else:
                found[1].append(line)
        yield found


def plain(line):
    line = re.sub(r"\(Debian [^)]*\) [0-9.]+", "(SYSTEM)", HEX.sub("HEX", ID.sub("ID", line)))
    line = re.sub(r"\b(now|[0-9][0-9.]*([KMGT]|ns|us|ms|[smh]|))(?=\s|$)", "N", line)
    return " ".join(line.split())


class Shell:
    def __init__(self):
        self.p = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)

    def run(self, command):
        self.p.stdin.write("{ %s\n} </dev/null; printf '\\nends with %%d\\n' $?\n" % command)
        self.p.stdin.flush()
        out = []
        for line in self.p.stdout:
            end = re.fullmatch(r"ends with (\d+)\n", line)
            if end:
                if out and out[-1] == "":
                    out.pop()
                return int(end[1]), out
            out.append(line.rstrip("\n"))
        return -1, out


def main():
    text = open(sys.argv[1]).read()
    swaps = [a.split("=", 1) for a in sys.argv[2:]]
    shell, ids, n = Shell(), {}, 0
    for command, says in commands(text):
        if any(s in command for s in SKIP):
            continue
        for old, new in swaps:
            command = command.replace(old, new)
            says = [line.replace(old, new) for line in says]
        code, out = shell.run(ID.sub(lambda m: ids.get(m[0], m[0]), command))
        while says and not says[-1]:
            says.pop()
        same = len(says) == len(out) and all(plain(a) == plain(b) for a, b in zip(says, out))
        for a, b in zip(says, out):
            ids.update(zip(ID.findall(a), ID.findall(b)))
        n += 1
        good = code == 0 and (same or not says)
        print("%sok %d - %s" % ("" if good else "not ", n, command.replace("#", "")))
        if not good:
            for line in ["exit %d" % code, "said:"] + out[:30] + ["and not:"] + says:
                print("# " + line)
    print("1..%d" % n)


main()
