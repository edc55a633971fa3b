#!/bin/bash
# git's fsmonitor hook on a mount: with it `git status` says what it says without, after whatever
# was done to the tree, in forks, after a save, a restore and a restart of the server.
. "${0%/*}/lib.sh"
need_fuse
export GIT_CONFIG_GLOBAL=$T/gitconfig GIT_CONFIG_SYSTEM=/dev/null
git config --global user.name Test && git config --global user.email test@example.org
git config --global init.defaultBranch main && git config --global --add safe.directory '*'
git config --global gc.auto 0

# As in a checkout of ours.
set_up() { # FOLDER
	mkdir -p "$1/.git/bough" && cp "$BOUGH_BIN/bough-fsmonitor" "$1/.git/bough/fsmonitor" &&
		git -C "$1" config core.fsmonitor .git/bough/fsmonitor &&
		git -C "$1" config core.fsmonitorHookVersion 2 &&
		git -C "$1" config core.untrackedCache true
}
ask() { (cd "$1" && .git/bough/fsmonitor 2 "$2") | tr '\0' '\n'; } # FOLDER TOKEN
token() { ask "$1" "${2:-none}" | sed -n 1p; } # FOLDER [TOKEN]
now() { token "$1" "$(token "$1")"; }          # FOLDER: the token of now, of the ordinary kind
since() { ask "$1" "$2" | tail -n +2 | sort | xargs; } # FOLDER TOKEN: the paths

bough_ok 'create' create w
w=$out
git -C "$w" init -q && set_up "$w"
mkdir -p "$w/a/b/c" "$w/d" && for f in one a/two a/b/three a/b/c/four d/five; do echo $f >"$w/$f"; done
git -C "$w" add . && git -C "$w" commit -qm first

# ---- the answer itself

run ask "$w" none
is 'an unknown token: everything' "$(tail -n 1 <<<"$out")" /
like 'and a token of now' "$(head -n 1 <<<"$out")" '^e[0-9a-f]{32}\.[0-9]+$'
t=$(token "$w")
is 'the next answer names each folder, for the cache of untracked files' "$(since "$w" "$t")" \
	'a/b/c/~ a/b/~ a/~ d/~ ~'
t=$(token "$w" "$t")
like 'from then on only what changed' "$t" '^l'
is 'which is nothing' "$(since "$w" "$t")" ''
echo x >>"$w/a/two"
is 'a write' "$(since "$w" "$t")" 'a/two'
cat "$w/a/b/three" >/dev/null
is 'a read is none' "$(since "$w" "$t")" 'a/two'
is 'a newer token knows it' "$(since "$w" "$(now "$w")")" ''
t=$(now "$w") && touch "$w/new" && rm "$w/new"
is 'what came and went' "$(since "$w" "$t")" 'new'
t=$(now "$w") && rm "$w/d/five" && rmdir "$w/d"
is 'a folder that is gone, with its file' "$(since "$w" "$t")" 'd d/five'
t=$(now "$w") && mv "$w/a/b" "$w/moved"
is 'a folder that moved: all that is in it, there and here' "$(since "$w" "$t")" \
	'a/b a/b/ a/b/c a/b/c/four a/b/three moved moved/ moved/c moved/c/four moved/three'
echo y >>"$w/moved/c/four"
like 'and what changed in it then' "$(since "$w" "$t")" 'a/b/c/four.*moved/c/four'
t=$(now "$w") && chmod 700 "$w/moved"
is "a folder's mode" "$(since "$w" "$t")" 'moved/'
mkdir -p "$w/.git/x" && touch "$w/.git/x/y"
is 'nothing of .git' "$(since "$w" "$(token "$w" "$t")")" ''
t=$(now "$w") && ln "$w/one" "$w/two" && echo z >>"$w/two"
is 'a file of two names: everything' "$(since "$w" "$t")" /
rm "$w/two"
t=$(now "$w") && ln "$w/one" "$w/other" && rm "$w/one"
is 'one that was linked to another name' "$(since "$w" "$t")" 'one other'
t=$(now "$w")
mkdir "$w/many" && (cd "$w/many" && seq -f 'some-rather-long-name-of-a-file-%g' 3000 | xargs touch)
is 'too much: everything' "$(since "$w" "$t")" /
rm -r "$w/many"
is 'below a folder: paths relative to it' \
	"$(t=$(now "$w") && touch "$w/moved/c/new" "$w/out" &&
		cd "$w/moved" && ../.git/bough/fsmonitor 2 "$t" | tr '\0' '\n' | tail -n +2 | xargs)" \
	'c/new'
getfattr -n bough.changes.x "$w" >/dev/null 2>&1
is 'it can be asked for, and is not listed' "$?$(getfattr -d -m - "$w" 2>/dev/null)" 0
for bad in '' l i "$(printf 'l%032d.' 1)" "$(printf 'l%032d.-1' 1)" ixyz "$(printf 'x%.0s' {1..300})"; do
	[ "$(since "$w" "$bad")" = / ] || fail "token '$bad'"
done
is 'elsewhere: everything' "$(cd "$T" && "$BOUGH_BIN/bough-fsmonitor" 2 x | tr '\0' ' ')" '0 / '
if [ "$(id -u)" = 0 ]; then
	chmod 755 "$w/.git" "$w/.git/bough"
	is 'somebody else is told nothing' \
		"$(cd "$w" && setpriv --reuid 65534 --regid 65534 --clear-groups \
			.git/bough/fsmonitor 2 "$t" | tr '\0' ' ')" '0 / '
fi

# ---- tokens live on

t=$(now "$w")
bough_ok 'fork' fork w f1
f=$(at f1)
touch "$f/in-fork" && touch "$w/in-parent"
is 'a fork answers for a token of its parent' "$(since "$f" "$t")" 'in-fork'
is 'so does the parent' "$(since "$w" "$t")" 'in-parent'
bough_ok 'save' save w
echo x >>"$w/one-more"
is 'after a save' "$(since "$w" "$t")" 'in-parent one-more'
kill_hard bough-fs
wait_for 10 test -e "$w/one-more"
is 'after a restart of the server' "$(since "$f" "$t")" 'in-fork'
like 'also where layers were saved' "$(since "$w" "$t")" '^(/|in-parent one-more)$'

# ---- without xattrs the kernel asks for none, and the question goes another way

bough_ok 'create without xattrs' create bare --no-xattrs
b=$out
git -C "$b" init -q && set_up "$b" && mkdir -p "$b/d"
(cd "$b/d" && seq -f 'folder-%g' 900 | xargs mkdir && echo x >f)
getfattr -n security.capability "$b/d/f" >/dev/null 2>&1
t=$(token "$b")
like 'it answers' "$t" '^e'
is 'each folder is named, over several answers' "$(ask "$b" "$t" | grep -c '~$')" 902
t=$(now "$b") && echo y >>"$b/d/f"
is 'and what changed' "$(since "$b" "$t")" 'd/f'
run python3 -c 'import fcntl, os, sys; fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x5401, b"x" * 64)' "$b/d/f"
like 'no other ioctl is known' "$err" 'Inappropriate ioctl'

# ---- git believes it

cat >"$T/play.py" <<'PY'
import os, random, shutil, subprocess, sys
top, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rnd = random.Random(seed)
os.chdir(top)
env = dict(os.environ, GIT_OPTIONAL_LOCKS='0')
def git(*a, check=True, **k):
    return subprocess.run(['git', *a], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=check, **k).stdout
def below(which): # in an order that a seed gives again
    return sorted(os.path.join(at[0], n) for at in os.walk('.') if '.git' not in at[0].split('/')
                  for n in at[which] if n != '.git')
def has_file(d): return git('ls-files', '-o', '--exclude-standard', '--', d) != b''
def dirs(): return ['.'] + below(1)
def files(): return below(2)
def name():
    return rnd.choice('abcdefgh') + rnd.choice(['', '1', '.o', ' x'])
def path():
    return os.path.join(rnd.choice(dirs()), name())
def some():
    return rnd.choice(files() or ['none'])
def write():
    with open(path(), 'a') as f: f.write('%d\n' % rnd.randrange(1000))
def change():
    with open(some(), 'r+') as f:
        f.write('%d\n' % rnd.randrange(1000))
def replace(): # as editors do
    p = some()
    with open(p + '~', 'w') as f: f.write('%d\n' % rnd.randrange(1000))
    os.rename(p + '~', p)
def link(): os.link(some(), path())
def symlink(): os.symlink('x%d' % rnd.randrange(3), path())
def remove(): os.unlink(some())
def mkdir(): os.makedirs(path() + '/' + name(), exist_ok=True)
def rmtree():
    d = rnd.choice(dirs())
    if d != '.': shutil.rmtree(d)
def rename(): os.rename(some(), path())
def move():
    d = rnd.choice(dirs())
    if d != '.': os.rename(d, path())
def chmod(): os.chmod(some(), rnd.choice([0o644, 0o755]))
def touch(): os.utime(some(), (1, rnd.randrange(2 ** 30)))
def come_and_go():
    p = path()
    if os.path.lexists(p): return
    open(p, 'w').close(); git('add', '-f', '--', p, check=False); os.unlink(p)
def add(): git('add', '--', path(), check=False)
def add_all(): git('add', '-A', check=False)
def commit(): git('commit', '-qm', 'x', '--allow-empty', check=False)
def checkout(): git('checkout', '-qf', rnd.choice(['HEAD~2', 'main', 'HEAD@{1}']), check=False)
def stash(): git('stash', '-qu', check=False); rnd.random() < .7 and git('stash', 'pop', '-q', check=False)
def reset(): git('reset', '-q', rnd.choice(['--hard', '--mixed']), check=False)
def clean(): git('clean', '-qfd', check=False)
def ignore():
    with open(os.path.join(rnd.choice(dirs()), '.gitignore'), 'w') as f: f.write(rnd.choice(['*.o\n', 'a*\n', '']))
ops = [write] * 6 + [change] * 6 + [replace] * 4 + [symlink, link] + [remove] * 3 + [mkdir] * 3 + [rmtree,
    rename, rename, rename, move, move, move, chmod, touch, come_and_go, come_and_go, add, add, add_all,
    commit, checkout, stash, reset, clean, ignore]
for i in range(steps):
    done = []
    for _ in range(rnd.randrange(1, 5)):
        op = rnd.choice(ops)
        done.append(op.__name__)
        try: op()
        except OSError: pass
    e = dict(env, GIT_INDEX_FILE=os.environ['T'] + '/truth')
    shutil.copy2('.git/index', e['GIT_INDEX_FILE']) # with its time, which git compares
    truth = git('-c', 'core.fsmonitor=false', '-c', 'core.untrackedCache=false', 'status', '--porcelain', env=e)
    told = git('status', '--porcelain', env=env if rnd.random() < .4 else None)
    # Git's untracked cache keeps a folder whose last file, deeper in it, is gone or
    # ignored; without us too.
    told = b''.join(l for l in told.splitlines(True) if not (l.startswith(b'?? ') and
        l.rstrip().strip(b'?" ').endswith(b'/') and not has_file(l.rstrip().strip(b'?" '))))
    if truth != told:
        print('seed %d step %d: %s' % (seed, i, done))
        print('without:\n%s\nwith:\n%s' % (truth.decode(), told.decode()))
        sys.exit(1)
PY
export T
play() { # DESCRIPTION FOLDER STEPS
	local seed=${BOUGH_SEED:-$RANDOM}
	run python3 "$T/play.py" "$2" "$seed" "$3"
	ok "$1 (seed $seed)" test $code = 0
	[ $code = 0 ] || diag_run
}
play 'status agrees after each of many changes' "$w" 150
git -C "$w" status >/dev/null # the cache is in the index, and stays as it is
git -C "$w" config core.untrackedCache keep
play 'and where git keeps its cache as it is' "$w" 40
git -C "$w" config core.untrackedCache true
bough_ok 'fork' fork w f2
play 'in a fork' "$(at f2)" 40
play 'and in its parent' "$w" 30
bough_ok 'save' save w --as s1
play 'after a save' "$w" 30
bough_ok 'restore' restore w s1
play 'after a restore' "$w" 30
kill_hard bough-fs
wait_for 10 ls "$w" >/dev/null
play 'after a restart of the server' "$w" 30

# ---- a checkout, whose cache of untracked files is ours, of small parts of the tree only the top

git init -q "$T/src" && (
	cd "$T/src" || exit 1
	for d in {a..e}/{a..d}/{a,b} f/{a..c} g h/a/b/c/d/e; do mkdir -p $d && echo $d >$d/a; done
	for d in . a a/b b/a c/d/a d e/a/a f/a h/a/b; do echo '*.o' >$d/.gitignore; done
	git add -A && git commit -qm first && git rm -qr b/a f && echo x >c/x && git add c/x &&
		git commit -qm second && git branch third && git commit -qm last --allow-empty
)
bough_ok 'a mirror' repo add "$T/src" --name src
bough_ok 'a checkout' create c1 --git src
c=$out
gstatus() { git -C "$c" --no-optional-locks "$@" status --porcelain | xargs; } # [-c SETTING]
is 'it is clean' "$(gstatus)" ''
echo x >"$c/h/a/b/c/d/e/new.x" && echo x >"$c/h/a/b/c/d/new.o" && rm "$c/a/b/a/a"
is 'what changed deep in it' "$(gstatus)" 'D a/b/a/a ?? h/a/b/c/d/e/new.x'
is 'also where git looks for itself' "$(gstatus -c core.fsmonitor=false)" \
	'D a/b/a/a ?? h/a/b/c/d/e/new.x'
: >"$c/h/a/b/.gitignore" && : >"$c/.gitignore"
is 'what its .gitignore ignored' "$(gstatus)" \
	'M .gitignore D a/b/a/a M h/a/b/.gitignore ?? h/a/b/c/d/e/new.x ?? h/a/b/c/d/new.o'
is 'here too' "$(gstatus -c core.fsmonitor=false)" "$(gstatus)"
bough_ok 'another' create c2 --git src
d=$out
lookups() { bough stats --json | jq '.fs.opcodes.LOOKUP'; }
: >"$d/d/d/b/.gitignore" && git -C "$d" status >/dev/null
n=$(lookups) && ls -l "$d/d/d/a" >/dev/null
is 'a walk of git is for names: who wants more of a file asks' "$(($(lookups) - n > 0))" 1
n=$(lookups) && ls -l "$d/e/a" "$d/e/b" >/dev/null
is 'that of others is not' "$(($(lookups) - n <= 3))" 1 # the three folders
play 'status agrees in a checkout' "$c" 25
play 'and in another' "$d" 25
done_testing
