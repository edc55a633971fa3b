"""What client_python.t runs: client_python.py SCRATCH HTTPS-URL REPOSITORY-URL. TAP."""
import base64
import faulthandler
import hashlib
import io
import os
import resource
import socket
import sys
import tarfile
import threading
import time
import traceback

import bough

T, URL, REPO = sys.argv[1:]
SOCK = os.environ["BOUGH_ROOT"] + "/run/boughd.sock"
faulthandler.dump_traceback_later(200, exit=True)  # a test that hangs says where
n = 0
called = set()


def ok(what, good, note=""):
    global n
    n += 1
    print("%sok %d - %s" % ("" if good else "not ", n, what), flush=True)
    if not good:
        print("# " + str(note)[:1000])


def eq(what, got, want):
    ok(what, got == want, "%r for %r" % (got, want))


def raises(what, kind, call, code=None):
    try:
        got = call()
    except kind as e:
        ok(what, code is None or e.code == code, repr(e))
        return e
    except Exception as e:
        ok(what, False, repr(e))
        return e
    ok(what, False, "no exception, but %r" % (got,))


class Cutter:
    """A socket in front of boughd's that cuts connections: each gets a number of bytes that may
    pass up and down (None: all), taken from `plan`."""

    def __init__(self, path):
        self.path, self.plan, self.count, self.heads = path, [], 0, []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(50)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            conn, _ = self.listener.accept()
            self.count += 1
            up, down = self.plan.pop(0) if self.plan else (None, None)
            threading.Thread(target=self.serve, args=(conn, up, down), daemon=True).start()

    def serve(self, conn, up, down):
        far = socket.socket(socket.AF_UNIX)
        far.connect(SOCK)

        def pump(a, b, left):
            first = True
            try:
                while left is None or left > 0:
                    data = a.recv(65536 if left is None else min(left, 65536))
                    if not data:
                        break
                    if first and a is conn:
                        self.heads.append(data.split(b"\r\n\r\n")[0])
                    first = False
                    b.sendall(data)
                    if left is not None:
                        left -= len(data)
            except OSError:
                pass
            for s in (a, b):
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

        threads = [threading.Thread(target=pump, args=x, daemon=True)
                   for x in ((conn, far, up), (far, conn, down))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        conn.close()
        far.close()


class Terminals:
    """A server of terminals that fail as `plan` says, one a connection."""
    MUCH = 17 << 20  # more than boughd takes in a frame

    def __init__(self, path):
        self.path, self.plan, self.largest = path, [], 0
        self.heard = threading.Event()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            conn, _ = self.listener.accept()
            with conn, conn.makefile("rb") as f:
                key = next(line for line in f if line.startswith(b"Sec-WebSocket-Key: ")).split()[1]
                while f.readline().strip():
                    pass
                accept = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
                conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                             b"Upgrade: websocket\r\nSec-WebSocket-Accept: " + base64.b64encode(accept) +
                             b"\r\n\r\n")
                what = self.plan.pop(0)
                if what == "fail":
                    conn.sendall(b"\x88\x02\x03\xf3")  # 1011
                    f.read()
                elif what == "cut":
                    f.read(1000)
                elif what == "talk":  # one that reads when it was heard
                    known = b'{"type":"stdin","offset":0}'
                    for _ in range(20):
                        conn.sendall(bytes([0x81, len(known)]) + known)
                        time.sleep(0.02)
                    conn.sendall(b"\x82\x01x")
                    if self.heard.wait(60):
                        self.take(conn, f)
                else:
                    self.take(conn, f)

    def take(self, conn, f):
        got = 0
        while got < self.MUCH:
            n = f.read(2)[1] & 127
            n = int.from_bytes(f.read(2 if n == 126 else 8), "big") if n > 125 else n
            f.read(4 + n)
            got, self.largest = got + n, max(self.largest, n)
        end = b'{"type":"exit","exit_code":0,"reason":"exited"}'
        conn.sendall(bytes([0x81, len(end)]) + end)


def client(**more):
    return bough.Client(SOCK, on_request=lambda m, p: called.add((m, p)), **more)


def main():
    c = client()
    cutter = Cutter(T + "/cut.sock")

    def through(*plan):
        """A client whose connections are cut so."""
        cutter.plan = list(plan)
        return bough.Client(cutter.path)

    # -- who and what

    eq("whoami", c.whoami()["admin"], True)
    eq("version", c.version()["api"], "v1")
    deadline = time.time() + 60
    while not c.health()["ok"] and time.time() < deadline:
        time.sleep(0.1)
    eq("health", c.health()["ok"], True)
    doc = c.openapi()
    ok("metrics", "bough_http_requests_total" in c.metrics())
    ok("stats", c.stats()["catalog"]["workspaces"] == 0)
    raises("nobody listens", bough.ConnectionFailed, lambda: bough.Client(
        T + "/none", retries=1).version())

    # -- workspaces, with events from the beginning

    stream = c.events()
    heard = []
    listener = threading.Thread(target=lambda: heard.extend(
        e for e in stream), daemon=True)
    listener.start()
    one = c.workspaces.create("one", labels={"a": "b"}, description="d", quota_bytes=10 ** 9)
    eq("create", (one.name, one.info["labels"], one.info["mounted"]), ("one", {"a": "b"}, True))
    e = raises("the name is taken", bough.Conflict, lambda: c.workspaces.create("one"), "exists")
    eq("its status", e.status, 409)
    e = raises("a name that is none", bough.Invalid, lambda: c.workspaces.create("../x"))
    eq("its details", e.details, {"field": "name"})
    raises("not there", bough.NotFound, lambda: c.workspaces.get("none"))
    eq("get", c.workspaces.get("one").id, one.id)
    eq("update", one.update(add_labels={"c": "d"})["labels"], {"a": "b", "c": "d"})
    with c.workspaces.temporary("passing") as passing:
        ok("a temporary one is there", os.path.isdir(passing.path))
    raises("and gone behind the with", bough.NotFound, lambda: c.workspaces.get("passing"))
    try:
        with c.workspaces.temporary("passing") as passing:
            raise KeyError
    except KeyError:
        pass
    raises("after an exception, too", bough.NotFound, passing.refresh)
    gone = c.workspaces.create("gone")
    gone.delete()
    eq("what was deleted", [w.name for w in c.workspaces.list(deleted=True)], ["gone"])
    eq("is brought back", gone.undelete("back")["name"], "back")
    gone.delete(purge=True)
    eq("or not", list(c.workspaces.list(deleted=True)), [])
    key = "key-1"
    first = c.workspaces.create("keyed", key=key, mount=False)
    eq("a key makes it count once", c.workspaces.create("keyed", key=key, mount=False).id, first.id)
    first.delete()
    forks = one.fork(name="f", count=5, labels={"of": "one"})
    eq("forks", [f.name for f in forks], ["f-%d" % i for i in range(1, 6)])
    eq("a list in pages", sorted(w.name for w in c.workspaces.list(page=2)),
       ["f-1", "f-2", "f-3", "f-4", "f-5", "one"])
    eq("by label", sum(1 for _ in c.workspaces.list(labels={"of": "one"})), 5)
    eq("by two", sum(1 for _ in c.workspaces.list(labels=["a", "c"])), 1)
    eq("umount", one.umount()["mounted"], False)
    eq("mount", one.mount()["mounted"], True)

    # -- files

    f = one.files
    put = f.write("dir/hello.txt", "hello\n", mode="0640", digest=True)
    eq("write", (put["created"], put["mode"], put["size"]), (True, "0640", 6))
    eq("it is there", open(one.path + "/dir/hello.txt").read(), "hello\n")
    eq("read", f.read_text("dir/hello.txt"), "hello\n")
    eq("a range", f.read("dir/hello.txt", start=1, end=3), b"el")
    eq("its end", f.read("dir/hello.txt", start=-3), b"lo\n")
    raises("behind the end", bough.Invalid, lambda: f.read("dir/hello.txt", start=100), "range")
    eq("head", f.head("dir/hello.txt")["etag"], put["etag"])
    raises("if it is as before", bough.Changed,
           lambda: f.write("dir/hello.txt", "x", if_match='"1"'))
    f.write("dir/hello.txt", "hello again\n", if_match=put["etag"])
    raises("if nothing is there", bough.Changed,
           lambda: f.write("dir/hello.txt", "x", if_none_match="*"))
    with f.open("dir/hello.txt", if_none_match=f.head("dir/hello.txt")["etag"]) as body:
        eq("nothing new", (body.status, body.read()), (304, b""))
    with f.open("dir/hello.txt", digest=True) as body:
        eq("its digest", body.headers["repr-digest"],
           "sha-256=:%s:" % base64.b64encode(hashlib.sha256(body.read()).digest()).decode())
    raises("a directory isn't read", IsADirectoryError, lambda: f.read("dir"))
    f.write_form("form", b"a form\r\n")
    eq("a form", f.read("form"), b"a form\r\n")
    odd = b"odd \xff%2F?#name"
    f.write(odd, b"x")
    ok("a name that isn't UTF-8", os.path.exists(os.fsencode(one.path) + b"/" + odd))
    eq("in the list", sorted(os.fsencode(bough.entry_name(e)) for e in f.list())[-1], odd)
    eq("it can be read by that", f.read(odd), b"x")
    f.copy(odd, odd + b"2")
    f.move(odd, os.fsdecode(odd + b"3"))
    f.symlink(odd, odd + b"2")
    eq("copied, moved and linked by such names",
       sorted(os.fsencode(bough.entry_name(e)) for e in f.list()
              if "name_b64" in e and e["size"] == 1),
       [odd + b"2", odd + b"3"])
    eq("a link's target that isn't", base64.b64decode(f.stat(odd)["target_b64"]), odd + b"2")
    f.batch([{"op": "delete", "path": odd}, {"op": "delete", "path": odd + b"2"},
             {"op": "move", "path": odd + b"3", "to": odd}])
    f.delete(odd)
    f.mkdir("many")
    for i in range(25):
        f.write("many/\u00e4 %d" % i, b"%d" % i)
    eq("a directory in pages", sorted(e["name"] for e in f.list("many", page=10)),
       sorted("\u00e4 %d" % i for i in range(25)))
    eq("all below", sum(1 for e in f.walk() if e["type"] == "file"), 27)
    f.symlink("link", "dir/hello.txt")
    eq("a link's target", f.stat("link")["target"], "dir/hello.txt")
    eq("chmod", f.chmod("form", "0600")["mode"], "0600")
    f.copy("form", "form2")
    f.move("form2", "moved/here")
    eq("copied and moved", f.read("moved/here"), b"a form\r\n")
    ok("exists", f.exists("moved/here") and not f.exists("form2"))
    raises("it isn't empty", bough.Conflict, lambda: f.delete("moved"))
    f.delete("moved", recursive=True)
    one.refresh()

    watching = one.watch("seen", recursive=True)
    f.mkdir("seen")
    f.write("seen/this", "x")
    seen = []
    while not seen or seen[-1] != ("created", "seen/this"):
        event = next(watching)
        seen.append((event.type, event.data["path"]))
    eq("watched", seen[0], ("created", "seen"))
    watching.close()

    # -- streams, in constant memory

    size = 64 << 20
    block = os.urandom(1 << 20)

    def noise():
        for _ in range(size >> 20):
            yield block

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    f.write("big", noise())
    eq("a stream goes in", f.stat("big")["size"], size)
    hashed = hashlib.sha256()
    with f.open("big") as body:
        for data in body:
            hashed.update(data)
    want = hashlib.sha256()
    for data in noise():
        want.update(data)
    eq("and out", hashed.digest(), want.digest())
    up = one.upload(one.path + "/big", "/big2")
    ok("and is uploaded in pieces", f.stat("big2")["size"] == size)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    ok("in constant memory (%d KiB)" % grown, grown < 40 << 10)
    f.delete("big2")

    def broken():
        yield block
        raise KeyError("the source fails")
    raises("a source that fails", KeyError, lambda: f.write("half", broken()))
    ok("leaves nothing", not f.exists("half"))
    with open(T + "/t.tar", "rb") as a:
        eq("extract", f.extract(a)["members"], 2)
    ok("it is there", os.path.exists(one.path + "/LICENSE"))
    with f.archive(format="tar") as body:
        names = tarfile.open(fileobj=body, mode="r|").getnames()
        body.read()
        eq("its summary", bough.summary(body)["members"] > 30, True)
    ok("an archive", "./dir/hello.txt" in names)
    with f.archive_rest(b"", "2100-01-01T00:00:00.000000000Z", "dir") as body:
        ok("the rest of one", b"hello.txt" in body.read())

    # -- broken connections

    whole = (None, None)
    via = through((0, 0), (None, 0), (None, 40), whole)
    eq("reading is tried again", via.workspaces("one").refresh()["name"], "one")
    via = through((None, 0), (None, 30), whole)
    made = via.workspaces.create("once", mount=False)
    eq("what makes something, too", made.name, "once")
    keys = [x for h in cutter.heads[-3:] for x in h.split(b"\r\n")
            if x.startswith(b"Idempotency-Key")]
    # What was cut at once may not have been read.
    ok("with the same key", len(keys) >= 2 and len(set(keys)) == 1, keys)
    via = through((None, 0), whole)
    via.workspaces("once").delete()
    raises("a deletion whose answer was lost is done", bough.NotFound,
           c.workspaces("once").refresh)
    via = through((None, 0)).workspaces("one").files
    raises("what may have been done isn't repeated when that matters", bough.ConnectionFailed,
           lambda: via.write("dir/hello.txt", "y", if_match=f.head("dir/hello.txt")["etag"]))
    f.write("dir/hello.txt", "hello again\n")
    via = through((None, 3 << 20), (None, 5 << 20), whole)
    out = io.BytesIO()
    via.workspaces("one").files.download("big", out)
    eq("a download goes on", hashlib.sha256(out.getvalue()).digest(), want.digest())
    del out
    via = through((None, 100000))
    raises("an answer that breaks off is no end", bough.AnswerCut,
           lambda: via.workspaces("one").files.read("big") and None)
    tries = cutter.count
    via = through((9 << 20, None), (1000, None), whole)
    told = []
    via.workspaces("one").upload(one.path + "/big", "up/loaded", mode="0600",
                                 progress=lambda at, size: told.append(at))
    eq("an upload goes on", f.stat("up/loaded")["mode"], "0600")
    eq("after it was broken off", (cutter.count - tries, told[-1], sorted(told) == told),
       (3, size, True))
    with open(one.path + "/up/loaded", "rb") as a, open(one.path + "/big", "rb") as b:
        eq("and is the same", hashlib.sha256(a.read()).digest(), hashlib.sha256(b.read()).digest())
    f.delete("up", recursive=True)
    up = one.begin_upload("later", 20)
    raises("the source ends early", ValueError, lambda: up.send(io.BytesIO(b"0123456789")))
    eq("how far it is", up.offset(), 10)
    one.resume(up.url, io.BytesIO(b"01234567890123456789"))
    eq("resumed by its address", f.read("later"), b"01234567890123456789")
    ok("what tus can", "creation" in one.upload_abilities()["tus-extension"])
    up = one.begin_upload("never", 20)
    up.cancel()
    raises("cancelled", bough.NotFound, up.offset)

    # -- save, restore, diff

    told = []
    snap = one.save("s", message="m", progress=told.append)
    eq("save", (snap.info["names"], snap.info["message"]), (["s"], "m"))
    ok("with its progress", told and told[0]["unit"] in ("files", "bytes"), told)
    eq("nothing new", (one.save().id, one.save().info["unchanged"]), (snap.id, True))
    f.delete("dir/hello.txt")
    eq("diff", [(d["kind"], d["path"]) for d in one.diff()], [("deleted", "dir/hello.txt")])
    eq("as text", one.diff_text("name-status").read(), b"D\tdir/hello.txt\n")
    raises("a failure in a stream of progress", bough.Conflict,
           lambda: one.save("s", progress=told.append), "exists")
    one.restore(snap)
    eq("restore", f.read("dir/hello.txt"), b"hello again\n")
    eq("a snapshot's files", snap.files.read("dir/hello.txt"), b"hello again\n")
    eq("their heads", snap.files.head("dir/hello.txt")["content-length"], "12")
    ok("its list", any(e["name"] == "dir" for e in snap.files.list()))
    with snap.files.archive("dir", format="zip") as body:
        eq("its archive", body.read(2), b"PK")
    with snap.files.archive_rest(b"", "2100-01-01T00:00:00.000000000Z", "dir") as body:
        ok("the rest of it", b"./" in body.read())
    ok("its diff", any(d["path"] == "big" for d in snap.diff()))
    ok("as text, too", b"dir/hello.txt" in snap.diff_text("stat").read())
    eq("against itself there is none", list(snap.diff(snap.id)), [])
    eq("its line", [s.id for s in snap.log(page=1)], [snap.id])
    eq("log", [s.id for s in one.log(page=1)], [snap.id])
    f.write("more", "x")
    job = one.save_job("s2")
    eq("a job", job.wait(200)["names"], ["s2"])
    eq("by its id", c.job(job.id).state, "done")
    made = c.exports.create_job("one", format="tar.zst").wait(200)
    eq("an export", made["format"], "tar.zst")
    data = c.exports.open(made["id"]).read()
    eq("its bytes", len(data), made["bytes"])
    eq("from the middle", c.exports.open(made["id"], start=100).read(), data[100:])
    eq("its head", c.exports.head(made["id"])["content-length"], str(made["bytes"]))
    eq("among the exports", [x["id"] for x in c.exports.list()], [made["id"]])
    again = c.snapshots.create_job(data, name="in-job").wait(200)
    eq("imported by a job", again["names"], ["in-job"])
    c.snapshots("in-job").delete()
    c.exports.delete(made["id"])
    eq("deleted", c.exports.list(), [])
    ok("made at once", c.exports.create("one", path="dir", progress=lambda p: None)["bytes"] > 0)
    eq("among the jobs", [j.id for j in c.jobs(page=1)][-1], job.id)
    raises("it has ended", bough.Conflict, job.cancel)
    raises("what can't be is told at once", bough.Conflict, lambda: one.save_job("s"), "exists")
    eq("snapshots", {s.id for s in c.snapshots.list(workspace="one", page=1)} >= {snap.id}, True)
    eq("update", snap.update(add_names=["s3"], labels={"k": "v"})["labels"], {"k": "v"})
    eq("by label", [s.id for s in c.snapshots.list(labels={"k": "v"})], [snap.id])
    eq("get", c.snapshots.get("s3").id, snap.id)
    raises("in use", bough.Conflict, c.snapshots("s").delete)
    with open(T + "/t.tar", "rb") as a:
        made = c.snapshots.create(a, name="in")
    eq("import", made.info["names"], ["in"])
    raises("no archive", bough.Invalid, lambda: c.snapshots.create(b"no archive"))
    with open(T + "/t.tar", "rb") as a:
        begun = c.workspaces.create_from("begun", a, labels={"k": "v"}, mount=False)
    eq("a workspace of an archive", [begun.info["labels"], begun.info["mounted"], list(begun.diff())],
       [{"k": "v"}, False, []])
    begun.delete(purge=True, force=True)
    with open(T + "/t.tar", "rb") as a:
        begun = c.workspaces.create_from_job("begun", a, labels={"k": "v"}, mount=False).wait(200)
    eq("the same as a job", [begun["labels"], begun["mounted"]], [{"k": "v"}, False])
    c.workspaces("begun").delete(purge=True, force=True)
    above = c.workspaces.create("above", source=made)
    above.files.write("x", "x")
    above.save("above")
    made.delete(cascade=True)
    raises("what was made from it goes, too", bough.NotFound, lambda: c.snapshots.get("above"))
    eq("its workspace stays", above.files.read("x"), b"x")
    forks = one.fork("side")
    forks[0].files.write("merged", "here")
    eq("merge", one.merge(forks[0])["added"], 1)
    ok("usage", any(u["id"] == one.id for u in c.usage()))

    # -- an answer that comes before the body was read

    raises("an early answer is heard", bough.NotFound,
           lambda: c.workspaces("none").files.write("x", iter(lambda: block, None)))

    # -- git

    eq("add a repository", c.repos.add(REPO, name="r")["name"], "r")
    ok("list", [r["name"] for r in c.repos.list()] == ["r"])
    eq("one", c.repos.get("r")["head"], "main")
    eq("fetch", c.repos.fetch("r")["refs_changed"], 0)
    eq("as a job", c.repos.fetch_job("r").wait(200)["name"], "r")
    with open(T + "/git.tar", "rb") as a:
        eq("from files", c.repos.create(a, T + "/src", name="p")["kind"], "path")
    with open(T + "/git.tar", "rb") as a:
        eq("again", c.repos.update("p", a)["refs_changed"], 0)
    ok("its packs", isinstance(c.repos.packs("p"), list))
    work = c.workspaces.create("work", git={"repo": "r", "branch": "fix"})
    ok("a checkout", work.info["checkout"]["files"] == 2 and os.path.isdir(work.path + "/.git"))
    work.files.write("file", "changed\n")
    eq("its diff", [d["path"] for d in work.diff()], ["file"])
    ok("its bundle", work.bundle(message="b").read().startswith(b"# v2 git bundle"))
    wsnap = work.save("w")
    ok("a snapshot's", wsnap.bundle(message="b").read().startswith(b"# v2 git bundle"))
    ok("a snapshot's commit", wsnap.commit("from the snapshot", branch="snap")["commit"])
    commit = work.commit("a change", author="A <a@example.org>")
    eq("commit", commit["branch"], "fix")
    eq("push", work.push()["commit"], commit["commit"])
    clean = c.workspaces.create("clean", git={"repo": "r"})
    eq("nothing to bundle", clean.bundle().status, 204)
    eq("reset", c.repos.reset("r", "fix")["moved"], False)
    raises("in use", bough.Busy, lambda: c.repos.delete("r"))
    c.repos.delete("p")

    # -- signed URLs

    f.write("signed \u00e4?", "x")
    url = f.sign("signed \u00e4?", expires_in=60)["url"]
    eq("a signed URL", c.open_signed(url).read(), b"x")
    eq("its head", c.open_signed(url, "HEAD").headers["content-length"], "1")
    raises("another one", bough.Forbidden, lambda: c.open_signed(url[:-4] + "0000"))
    eq("of a snapshot", c.open_signed(snap.files.sign("form")["url"]).read(), b"a form\r\n")

    # -- batches, webhooks, sandboxes

    done = f.batch([{"op": "write", "path": "b/1", "content": "x"}, {"op": "mkdir", "path": "b/2"}])
    eq("a batch", [x["path"] for x in done], ["b/1", "b/2"])
    piece = os.urandom(3 << 20)
    with open("batched", "wb") as out:
        out.write(piece)
    with open("batched", "rb") as source:
        done = f.batch([{"op": "write", "path": "b/file", "content": source},
                        {"op": "write", "path": "b/bytes", "content": piece[:100]},
                        {"op": "write", "path": "b/text", "content": "\u00e4" * 100000},
                        {"op": "write", "path": "b/small", "content": "small"}])
    eq("one with large contents", [x["path"] for x in done],
       ["b/file", "b/bytes", "b/text", "b/small"])
    eq("all of them", (f.read("b/file") == piece, f.read("b/bytes") == piece[:100],
                       f.read("b/text").decode() == "\u00e4" * 100000, f.read("b/small")),
       (True, True, True, b"small"))
    e = raises("all or none", bough.NotFound, lambda: f.batch([
        {"op": "write", "path": "b/3", "content": "x"},
        {"op": "chmod", "path": "b/none", "mode": "0600"}]))
    eq("which it was", (e.details["operation"], f.exists("b/3")), (1, False))
    hook = c.webhooks.create("http://127.0.0.1:9/x", events=["workspace.created"])
    ok("a webhook", hook["secret"])
    eq("as it is", c.webhooks.get(hook["id"])["url"], "http://127.0.0.1:9/x")
    eq("changed", c.webhooks.update(hook["id"], active=False)["active"], False)
    c.webhooks.update(hook["id"], active=True)
    ok("tried", c.webhooks.test(hook["id"]))
    ok("with its deliveries", list(c.webhooks.deliveries(hook["id"], page=1)))
    eq("all of them", len(c.webhooks.list()), 1)
    c.webhooks.delete(hook["id"])
    eq("no sandbox", list(c.sandboxes.list(page=5)), [])
    raises("nor one to be made of nothing", bough.ApiError,
           lambda: c.sandboxes.create(image="none", workspaces=[]))
    # What they do is their own test's; here, that each call is one that boughd knows.
    box = c.sandboxes("none")
    proc = bough.Exec(box._t, "none", {"id": "none"})
    for what, call in {
            "refresh": box.refresh, "update": lambda: box.update(description="d"),
            "delete": lambda: box.delete(force=True), "start": box.start,
            "stop": lambda: box.stop(grace_ms=1), "kill": lambda: box.kill("KILL"),
            "pause": box.pause, "resume": box.resume, "stats": box.stats,
            "fork": lambda: box.fork("x"), "save": lambda: box.save("x"),
            "save_job": lambda: box.save_job("x"), "restore": lambda: box.restore("s"),
            "attach": lambda: box.attach(one, "/w"), "detach": lambda: box.detach(one),
            "exec": lambda: box.exec(["true"], cwd="/"), "execs": lambda: list(box.execs()),
            "get_exec": lambda: box.get_exec("x"),
            "output": lambda: proc.output("stdout", stdout_offset=0),
            "write": lambda: proc.write(b"x", offset=0), "resize": lambda: proc.resize(80, 25),
            "signal": lambda: proc.signal("TERM"), "terminal": proc.terminal, "list": lambda: list(box.files.list()),
            "head": lambda: box.files.head("x"), "put": lambda: box.files.write("x", "x"),
            "remove": lambda: box.files.delete("x"), "mkdir": lambda: box.files.mkdir("x"),
            "batch": lambda: box.files.batch([{"op": "mkdir", "path": "x"}]), "watch": lambda: next(box.watch("x")),
            "archive": box.files.archive, "rest": lambda: box.files.archive_rest(b"", "2100-01-01T00:00:00.000000000Z"),
            "patch": lambda: bough.Upload(box._t, "/v1/sandboxes/none/uploads/up_aaaaaaaaaa")._patch(0, b"x"),
            "extract": lambda: box.files.extract(b"x"),
            "begin_upload": lambda: box.begin_upload("x", 1), "upload_abilities": box.upload_abilities,
            "offset": lambda: bough.Upload(box._t, "/v1/sandboxes/none/uploads/up_aaaaaaaaaa").offset(),
            "cancel": lambda: bough.Upload(box._t, "/v1/sandboxes/none/uploads/up_aaaaaaaaaa").cancel(),
            "resume_upload": lambda: box.resume_upload("/v1/sandboxes/none/uploads/up_aaaaaaaaaa", io.BytesIO(b"x"))}.items():
        raises("a sandbox that isn't there: " + what, bough.NotFound, call)

    # -- tokens, TLS, people

    c.users.create("ann", uid=12345)
    c.users.create("bot")
    eq("users", sorted(u["name"] for u in c.users.list()), ["ann", "bot"])
    token = c.tokens.create("t", owner="bot", expires_s=1000)
    ok("tokens", token["id"] in [t["id"] for t in c.tokens.list(page=1)])
    raises("no token goes out in the clear", ValueError,
           lambda: bough.Client(url="http://192.0.2.1:1", token="bough_x"))
    eq("but where it is said", bough.Client(url="http://192.0.2.1:1", token="bough_x",
                                            insecure=True) is not None, True)
    eq("or stays here", bough.Client(url="http://127.1.2.3:1", token="bough_x") is not None, True)
    far = bough.Client(url=URL, token=token["token"] + "\n", ca=T + "/cert.pem")
    eq("over TLS", far.whoami()["owner"], "bot")
    mine = far.workspaces.create("mine")
    mine.files.write("big", noise())
    eq("a stream over TLS", mine.files.stat("big")["size"], size)
    mine.delete()
    raises("not its to do", bough.Forbidden, far.gc)
    raises("no certificate that we trust", bough.BoughError,
           lambda: bough.Client(url=URL, token=token["token"], retries=0).whoami())
    listening = far.events()
    c.tokens.delete(token["id"])
    raises("a token that is gone", bough.Unauthenticated, far.whoami)
    time.sleep(1.1)  # which look once a second, when something happens
    one.update(description="e")
    raises("ends its events", bough.Unauthenticated, lambda: next(listening))
    eq("a quota", c.quotas.set("ann", workspaces=5)["workspaces"], 5)
    eq("as it is", c.quotas.get("ann")["snapshots"], None)
    eq("all of them", [q["workspaces"] for q in c.quotas.list()], [5])
    c.quotas.delete("ann")
    eq("a team", c.teams.create("web")["name"], "web")
    eq("a member", len(c.teams.add("web", "ann", "reader")["members"]), 2)
    eq("teams", [t["name"] for t in c.teams.list()], ["web"])
    eq("one", len(c.teams.get("web")["members"]), 2)
    c.teams.remove("web", "ann")
    c.teams.delete("web")
    c.users.delete("ann")

    # -- the service

    c.gc(progress=told.append)
    ok("gc as a job", "bytes_freed" in c.gc_job().wait(200))
    eq("fsck", c.fsck()["faults"], [])
    eq("audit", next(c.audit(one.id))["object"], one.id)
    lines = list(c.audit_export())
    ok("its export", len(lines) > 30 and lines[-1]["seq"] == 1)
    eq("what has no method", c.call("GET", "/v1/version")["api"], "v1")

    # -- events

    deadline = time.time() + 60
    while time.time() < deadline and not any(e.data["object"] == work.id and
                                             e.type == "workspace.pushed" for e in heard):
        time.sleep(0.05)
    types = [e.type for e in heard]
    ok("events", types[:2] == ["workspace.created", "workspace.changed"] and
       "workspace.pushed" in types, types)
    stream.close()
    listener.join(10)
    ok("a stream that is closed ends", not listener.is_alive())
    via = through((None, 700), (None, 700), (None, 700), whole)
    stream = via.events(since=heard[0].id)
    again = [next(stream).id for _ in heard[1:]]
    stream.close()
    eq("resumed, none is missed and none comes twice", again, [e.id for e in heard[1:]])
    raises("what isn't known any longer", bough.Gone, lambda: c.events(since="00000000.1"))
    ok("a stream that heard nothing yet knows where it is", quiet_resumes(c))

    # -- terminals

    fake = Terminals(T + "/terminal.sock")
    proc = bough.Exec(bough.Client(fake.path).sandboxes("x")._t, "x", {"id": "y"})
    fake.plan = ["fail"]
    raises("a terminal that fails isn't tried for ever", bough.BadAnswer, lambda: list(proc.terminal()))
    fake.plan = ["cut", "read"]
    with proc.terminal() as term:
        term.send(bytes(fake.MUCH))
        list(term)
    eq("input that is sent again comes in frames as small", fake.largest, 1 << 20)
    fake.plan = ["talk"]
    with proc.terminal() as term:
        sender = threading.Thread(target=term.send, args=(bytes(fake.MUCH),), daemon=True)
        sender.start()
        output = iter(term)
        reader = threading.Thread(target=lambda: next(output) and fake.heard.set(), daemon=True)
        reader.start()
        reader.join(15)
        ok("output is read while input waits for its reader", fake.heard.is_set())
        if fake.heard.is_set():
            list(output)
            sender.join(15)
            ok("and all of it is sent", not sender.is_alive())

    # -- all of the contract

    c.shutdown()
    tables = {(m.upper(), p) for p, ops in doc["paths"].items() for m in ops}
    left = sorted(tables - called)
    ok("each operation of openapi.json has a method that was called", not left,
       "add them to tools/clients/python and to this test: %s" % left)
    unknown = sorted(called - tables)
    eq("no other is called", [u for u in unknown if "?" not in u[1]], [])


def quiet_resumes(c):
    """Cut before the first event: what happens meanwhile is heard."""
    stream, got = c.events(), []
    t = threading.Thread(target=lambda: got.append(next(stream)), daemon=True)
    t.start()
    deadline = time.time() + 60
    while stream.last_id is None and time.time() < deadline:
        time.sleep(0.02)
    stream._body.abort()
    c.workspaces("one").update(labels={"q": "r"})
    t.join(10)
    stream.close()
    return bool(got) and got[0].type == "workspace.changed"


try:
    main()
except Exception:
    traceback.print_exc()
    sys.exit(1)
