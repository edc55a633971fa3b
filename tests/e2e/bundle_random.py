"""Random changes on both sides of a base: bough-apply and `git cherry-pick --no-commit` make the same
tree of them, or both refuse. SEED ROUNDS; prints how many rounds agreed. (They differ in how much of a
file that was moved may be changed, and where it was made a link: so what moves stays as it was.)"""
import os, random, shutil, subprocess, sys

rnd = random.Random(int(sys.argv[1]))


def run(*args, **more):
    return subprocess.run(args, capture_output=True, text=True, **more)


def git(folder, *args):
    got = run("git", "-C", folder, *args)
    assert got.returncode == 0, (args, got.stderr)
    return got.stdout.strip()


def write(path, lines):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write("".join(line + "\n" for line in lines))


def files(folder):
    for at, dirs, names in os.walk(folder):
        if ".git" in dirs:
            dirs.remove(".git")
        yield from (os.path.join(at, n) for n in names)


def change(path, done):
    kind = rnd.randrange(6)
    done.add(path)
    lines = open(path).read().splitlines() or [""]
    at = rnd.randrange(len(lines))
    if kind == 0:
        os.remove(path)
    elif kind == 1:
        to = os.path.join("up.r", rnd.choice("mnd"), os.path.basename(path))
        if not os.path.lexists(to):
            os.makedirs(os.path.dirname(to), exist_ok=True)
            os.rename(path, to)
            done.add(to)
    elif kind == 2:
        os.chmod(path, os.stat(path).st_mode ^ 0o111)
    elif kind == 3:
        new = os.path.join("up.r", rnd.choice("mnd"), rnd.choice("pqr"))
        write(new, [f"n{rnd.randrange(3)}"] * rnd.randrange(1, 9))
    else:
        lines[at : at + (kind == 4)] = [lines[at] + rnd.choice("abc")]
        write(path, lines)


def side(name):
    git("up.r", "checkout", "-q", "-b", name, "main")
    done = set()
    for _ in range(rnd.randrange(1, 5)):
        there = sorted(set(files("up.r")) - done)
        if there:
            change(rnd.choice(there), done)
    git("up.r", "add", "-A")
    git("up.r", "commit", "-q", "--allow-empty", "-m", name)


def tree(folder, code, conflict):
    assert code in (0, conflict), code
    return git(folder, "write-tree") if code == 0 else "conflict"


agreed = 0
for _ in range(int(sys.argv[2])):
    for folder in ("up.r", "git.r", "bough.r"):
        shutil.rmtree(folder, ignore_errors=True)
    git(".", "init", "-q", "up.r")
    for i in range(rnd.randrange(4, 10)):
        write(f"up.r/{rnd.choice(['', 'd/', 'd/e/'])}f{i}", [f"{i} {j}" for j in range(rnd.choice([1, 3, 12, 30]))])
    git("up.r", "add", "-A")
    git("up.r", "commit", "-qm", "base")
    side("ours")
    side("theirs")
    for folder in ("git.r", "bough.r"):
        git(".", "clone", "-q", "-b", "ours", "up.r", folder)
    if not git("up.r", "diff", "--name-only", "main", "theirs"):
        agreed += 1
        continue
    git("up.r", "bundle", "create", "-q", "../r.bundle", "^main", "theirs")
    # It would have what is new in a folder of which all else moved move along.
    git("git.r", "config", "merge.directoryRenames", "false")
    judge = run("git", "-C", "git.r", "cherry-pick", "--no-commit", "origin/theirs")
    with open("r.bundle") as bundle:
        ours = run("bough-apply", "bough.r", stdin=bundle)
    got, want = tree("bough.r", ours.returncode, 4), tree("git.r", judge.returncode, 1)
    clean = "" if got == "conflict" else git("bough.r", "diff", "--cached", "--name-status", "--no-renames")
    status = git("bough.r", "status", "--porcelain", "--no-renames")
    assert status.count("\n") == clean.count("\n") and bool(status) == bool(clean), status
    if got == want:
        agreed += 1
    else:
        print(got, want, ours.stderr, judge.stdout, judge.stderr, file=sys.stderr)
print(agreed)
sys.exit(agreed != int(sys.argv[2]))
