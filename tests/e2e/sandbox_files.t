#!/bin/bash
# Batches and watches by the paths of a sandbox: one shape with a workspace's.
. "${0%/*}/lib.sh"
need_sandboxes
. "$BOUGH_SRC/tests/e2e/ask.sh"

cat >"$T/files.py" <<'PY'
import json, os, threading, time
from ask import Unix, ask, check, must
from boxes import files, make, post, write
from deaf import deaf, hear

w = must(201, "POST", "workspaces", {"name": "w"})
v = must(201, "POST", "workspaces", {"name": "v"})
make("box", start=False, workspaces=[{"workspace": "w"}, {"workspace": "v", "target": "/v", "read_only": True}])
top = files("box")

def batch(*operations, key=None):
    return ask("POST", "sandboxes/box/batch", {"operations": list(operations)}, key)

def text(path):
    with open(path) as f:
        return f.read()

# ---- batches

got = batch({"op": "write", "path": "/root/a", "content": "x"}, {"op": "mkdir", "path": "root/d"},
            {"op": "move", "path": "root/a", "to": "root/d/b"})
check("a batch of its root", got[0] == 200 and text(top + "/root/d/b") == "x", got)
check("with paths as its processes see them",
      [r["path"] for r in got[1]["results"]] == ["root/a", "root/d", "root/d/b"], got)
got = batch({"op": "write", "path": "/workspace/n/a", "content": "y"},
            {"op": "symlink", "path": "workspace/l", "target": "workspace/n"},
            {"op": "move", "path": "workspace/n/a", "to": "workspace/b"})
check("one of what is attached", got[0] == 200 and text(w["path"] + "/b") == "y", got)
check("with such paths, too", [r["path"] for r in got[1]["results"]] ==
      ["workspace/n/a", "workspace/l", "workspace/b"] and got[1]["results"][2]["size"] == 1, got)
check("what a link says isn't one", os.readlink(w["path"] + "/l") == "workspace/n")
got = batch({"op": "write", "path": "workspace/c", "content": "y"}, {"op": "mkdir", "path": "root/e"})
check("one of both is refused", got[0] == 400 and "another workspace" in got[1]["message"], got)
check("and says where", got[1]["details"]["operation"] == 1 and got[1]["details"]["path"] == "root/e", got)
check("nothing of it is done", not os.path.exists(w["path"] + "/c") and not os.path.exists(top + "/root/e"))
got = batch({"op": "move", "path": "root/d/b", "to": "workspace/moved"})
check("nor is one moved from one to the other", got[0] == 400, got)
got = batch({"op": "mkdir", "path": "workspace/m"}, {"op": "chmod", "path": "workspace/none", "mode": "0600"})
check("all or none", got[0] == 404 and got[1]["details"]["path"] == "workspace/none" and
      not os.path.exists(w["path"] + "/m"), got)
for path, status in (("v/a", 403), ("proc/a", 403), ("usr/a", 403), ("workspace", 409), ("../a", 400)):
    got = batch({"op": "mkdir", "path": path})
    check("%s is refused" % path, got[0] == status, got)
tag = ask("POST", "sandboxes/box/batch", {"operations": [{"op": "check", "path": "workspace/b"}]})[1]["results"][0]["etag"]
got = batch({"op": "write", "path": "workspace/b", "content": "z", "if_match": tag})
check("with a condition", got[0] == 200 and text(w["path"] + "/b") == "z", got)
got = batch({"op": "write", "path": "workspace/b", "content": "!", "if_match": tag})
check("that doesn't hold", got[0] == 412 and text(w["path"] + "/b") == "z", got)
deaf()
first = batch({"op": "mkdir", "path": "workspace/once"}, key="once")
hear()
os.rmdir(w["path"] + "/once")
got = batch({"op": "mkdir", "path": "workspace/once"}, key="once")
check("asked again behind a kill it is told as it was", first[0] == 200 and got[1:] == (first[1], "true"), first, got)
check("and isn't done again", not os.path.exists(w["path"] + "/once"))

# ---- watches

class Watch:
    def __init__(self, query):
        self.c = Unix("d")
        self.c.request("GET", "/v1/sandboxes/box/watch" + query)
        self.r = self.c.getresponse()
        self.ended = False
        self.events = []
        if self.r.status == 200:
            self.r.readline() # it has begun
            self.t = threading.Thread(target=self.take)
            self.t.start()

    def take(self):
        while line := self.r.readline():
            if line.startswith(b"data: "):
                self.events.append(json.loads(line[6:]))
        self.ended = True

    def sees(self, **what):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if any(all(e.get(k) == x for k, x in what.items()) for e in self.events):
                return True
            time.sleep(0.02)
        return False

root, mine = Watch("?path=/root&recursive=true"), Watch("?path=workspace&recursive=true")
write(top + "/root/seen", "x")
write(w["path"] + "/n/seen", "x")
os.rename(w["path"] + "/n/seen", w["path"] + "/n/then")
check("a watch of its root", root.sees(event="created", path="root/seen"), root.events)
check("one of what is attached", mine.sees(event="created", path="workspace/n/seen"), mine.events)
check("of a rename both", mine.sees(event="renamed", path="workspace/n/then", old_path="workspace/n/seen"), mine.events)
check("neither tells of the other's", not any(e["path"].startswith("workspace") for e in root.events) and
      not any(e["path"].startswith("root") for e in mine.events), root.events, mine.events)
check("what has no files isn't watched", Watch("?path=/proc").r.status == 403)
must(200, "DELETE", "sandboxes/box/workspaces/w")
end = time.monotonic() + 60
while not mine.ended and time.monotonic() < end:
    write(w["path"] + "/later", str(end))
    time.sleep(0.2)
check("it ends when another has the path", mine.ended)
root.r.close()
must(204, "DELETE", "sandboxes/box")
os._exit(0)
PY

boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
asks 25 "$T/files.py"
fsck_clean
done_testing
