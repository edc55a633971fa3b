#!/bin/bash
# Every call as every kind of token: what it may, what it may not, what isn't there for it. A route
# that the table doesn't have is a failure.
. "${0%/*}/lib.sh"
need_fuse
command -v python3 >/dev/null || skip_all 'needs python3'

boughd --root "$BOUGH_ROOT" --daemon --listen 127.0.0.1:0 || bail 'boughd does not start'
port=$(sed -n 's/.*listens on 127.0.0.1:0, port \([0-9]*\)$/\1/p' "$BOUGH_ROOT/run/boughd.log")
tar cf "$T/t.tar" -C "$BOUGH_SRC" LICENSE
boughd --routes >"$T/routes.json"

cat >"$T/table.py" <<'EOF'
import base64, http.client, json, socket, sys
sock, port, tar, routes = sys.argv[1], int(sys.argv[2]), open(sys.argv[3], "rb").read(), json.load(open(sys.argv[4]))

class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sock)

conns, tokens, n = {}, {}, 0

def call(who, method, target, body=None, headers={}):
    if who not in conns:
        conns[who] = Unix("d", timeout=30) if who == "root" else http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    c, h = conns[who], dict(headers)
    if who in tokens:
        h["Authorization"] = "Bearer " + tokens[who]
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    for again in (True, False):
        try:
            try:
                c.request(method, target, data, h)
            except (BrokenPipeError, ConnectionResetError):
                pass # it was refused before the body was read: the answer is there
            r = c.getresponse()
            if r.getheader("Content-Type") == "text/event-stream" and r.status == 200:
                c.close()
                return 200, None
            text = r.read()
            break
        except (http.client.HTTPException, ConnectionError, BrokenPipeError):
            c.close()
            if not again:
                raise
    try:
        return r.status, json.loads(text) if text else None
    except ValueError:
        return r.status, None

def make(who, method, target, body=None, headers={}):
    status, doc = call(who, method, target, body, headers)
    if status >= 300:
        sys.exit("%s %s as %s: %d %s" % (method, target, who, status, doc))
    return doc

def ok(good, what, why=""):
    global n
    n += 1
    print("%sok %d - %s" % ("" if good else "not ", n, what))
    if not good:
        print("# " + why)

WS, SN = "/v1/workspaces", "/v1/snapshots"
for name in ("ann", "ben", "cai", "dan"):
    make("root", "POST", "/v1/users", {"name": name})
    tokens[{"ann": "owner", "ben": "mate", "cai": "guest", "dan": "other"}[name]] = \
        make("root", "POST", "/v1/tokens", {"owner": name})["token"]
make("owner", "POST", "/v1/teams", {"name": "web"})
make("owner", "PUT", "/v1/teams/web/members/ben", {"role": "member"})
make("owner", "PUT", "/v1/teams/web/members/cai", {"role": "reader"})
p = make("owner", "POST", WS, {"name": "p"})["id"]
make("owner", "POST", WS, {"name": "g", "visibility": "global"})
make("owner", "POST", WS, {"name": "t", "visibility": "team", "team": "web"})
make("owner", "PUT", WS + "/p/files/dir/f", b"bytes")
make("owner", "PUT", WS + "/p/files/secret", b"bytes")
make("owner", "PUT", WS + "/p/files/directory", b"bytes")
sp = make("owner", "POST", WS + "/p/snapshots", {})["id"]
for who, body in (("reading", {"read_only": True}), ("one", {"scope": p}), ("path", {"scope": p, "path": "/dir/"}),
                  ("team", {"scope": "team:ann/web"}),
                  ("admin", {"scope": "admin"})):
    tokens[who] = make("root", "POST", "/v1/tokens", dict(body, owner=None if who == "admin" else "ann"))["token"]
t = tokens["owner"]
tokens["bad"] = t[:-1] + ("1" if t[-1] == "0" else "0")
tus = {"Tus-Resumable": "1.0.0", "Upload-Length": "1"}
def upload(path):
    h = dict(tus, **{"Upload-Metadata": "path " + base64.b64encode(path.encode()).decode()})
    c = Unix("d")
    c.request("POST", WS + "/%s/uploads" % p, None, h)
    return c.getresponse().getheader("Location").rsplit("/", 1)[1]
ups = {who: (upload("dir/up-" + who), upload("up-" + who)) for who in ("any",)}

CALLERS = ("root", "admin", "owner", "reading", "one", "path", "team", "mate", "guest", "other", "bad", "none")
def who(ok=(), no=(), hidden=()):
    return {**{w: None for w in ok}, **{w: 403 for w in no}, **{w: 404 for w in hidden}}
A = ("root", "admin")
O = A + ("owner",)
STRANGERS = ("mate", "guest", "other", "team") # the token of a team is one to what the team isn't shown
# What such a token is for: all else is forbidden to it, there or not.
TEAMS = (WS, SN, "/v1/jobs", "/v1/events", "/v1/usage", "/v1/audit", "/v1/signed", "/v1/health", "/v1/version",
         "/v1/openapi.json", "/v1/whoami")
CLASSES = {
    "any": who(CALLERS),
    "admin": who(A, ("owner", "reading", "one", "path") + STRANGERS),
    # Of a private workspace, reading and changing; the same of what is below the token's path.
    "read": who(O + ("reading", "one"), ("path",), STRANGERS),
    "write": who(O + ("one",), ("reading", "path"), STRANGERS),
    "read_path": who(O + ("reading", "one", "path"), (), STRANGERS),
    "write_path": who(O + ("one", "path"), ("reading",), STRANGERS),
    # Those that make something of it beside it.
    "use": who(O, ("reading", "one", "path"), STRANGERS),
    "see_global": who(O + ("reading", "mate", "guest", "other"), ("path",), ("one", "team")),
    "write_global": who(O, ("reading", "path", "mate", "guest", "other"), ("one", "team")),
    "use_global": who(O + ("mate", "guest", "other"), ("reading", "one", "path"), ("team",)),
    "see_team": who(O + ("reading", "mate", "guest", "team"), ("path",), ("one", "other")),
    "use_team": who(O + ("mate", "guest", "team"), ("reading", "one", "path"), ("other",)),
    "beside_global": who(O + ("reading",), ("path",), ("one",) + STRANGERS),
    "beside_team": who(O, ("reading", "path", "guest"), ("one", "mate", "other", "team")),
    "write_team": who(O + ("mate", "team"), ("reading", "path", "guest"), ("one", "other")),
    # What is each caller's own, but for tokens of a workspace; reading, and changing.
    "own": who(O + ("reading",) + STRANGERS, ("one", "path")),
    "own_change": who(O + STRANGERS, ("reading", "one", "path")),
    "scoped": who(O + ("reading", "one") + STRANGERS, ("path",)),
    "scoped_change": who(O + ("one",) + STRANGERS, ("reading", "path")),
    "team": who(O + ("reading", "mate", "guest"), ("one", "path"), ("other",)),
    "team_admin": who(O, ("reading", "one", "path", "mate", "guest"), ("other",)),
    "token": who(A, ("owner", "reading", "one", "path") + STRANGERS),
    "repo": who(A, ("one", "path"), ("owner", "reading") + STRANGERS),
    "repo_change": who(A, ("reading", "one", "path"), ("owner",) + STRANGERS),
    "repo_add": who(O + STRANGERS, ("reading", "one", "path")),
}
# METHOD target class status [body [headers]]; NEW is another name each time. 0: any but 401 to 404.
# A sandbox that doesn't run: a token of a workspace is good for none.
SB = "/v1/sandboxes"
sb = call("owner", "POST", SB, {"name": "box", "start": False})[1].get("id", "none")
CLASSES["see_box"] = who(O + ("reading",), ("one", "path"), STRANGERS)

REST = "?before=2100-01-01T00:00:00.000000000Z"
TABLE = [
    ("GET", "/v1/health", "any", 200), ("GET", "/v1/version", "any", 200),
    ("GET", "/v1/openapi.json", "any", 200), ("GET", "/v1/whoami", "any", 200),
    ("GET", WS, "scoped", 200), ("GET", WS + "?deleted=true", "scoped", 200),
    ("POST", WS, "own_change", 201, {"name": "NEW", "mount": False}),
    ("POST", WS + "/import?name=NEW&mount=false", "own_change", 201, tar),
    ("POST", WS + "/import?name=NEW&mount=false&uid=1&gid=1", "admin", 201, tar),
    ("POST", WS + "/import?name=NEW&visibility=team&team=none", "own_change", 400, tar),
    ("POST", WS, "use_global", 201, {"name": "NEW", "mount": False, "from": "g"}),
    ("POST", WS, "use", 201, {"name": "NEW", "mount": False, "from": p}),
    ("POST", WS, "use", 201, {"name": "NEW", "mount": False, "from": sp}),
    ("GET", WS + "/" + p, "read_path", 200), ("GET", WS + "/ann%2Fg", "see_global", 200, None, {}, {"path": 404}),
    ("GET", WS + "/ann%2Ft", "see_team", 200, None, {}, {"path": 404}),
    ("PATCH", WS + "/" + p, "write", 200, {"labels": {"a": "b"}}),
    ("PATCH", WS + "/" + p, "write", 200, {"visibility": "private"}, {}, {"one": 403, "team": 403}),
    ("PATCH", WS + "/ann%2Fg", "write_global", 200, {"labels": {}}),
    ("PATCH", WS + "/ann%2Ft", "write_team", 200, {"labels": {}}),
    ("PATCH", WS + "/ann%2Ft", "write_team", 200, {"visibility": "team", "team": "ann/web"}, {}, {"mate": 403, "team": 403, "one": 403}),
    ("POST", WS + "/%s/fork" % p, "use", 201, {"names": ["NEW"]}),
    ("POST", WS + "/ann%2Ft/fork", "use_team", 201, {"names": ["NEW"]}),
    ("POST", WS + "/ann%2Ft/snapshots", "write_team", 0, {}),
    ("POST", WS, "use_team", 201, {"name": "NEW", "mount": False, "from": "ann/t"}),
    ("POST", WS, "own_change", 400, {"name": "NEW", "visibility": "team", "team": "none"}),
    ("POST", WS, "own_change", 201, {"name": "NEW", "mount": False, "visibility": "private"}, {}, {"team": 403}),
    ("PUT", WS + "/ann%2Ft/files/NEW", "write_team", 201, b"x"),
    ("POST", WS + "/ann%2Fg/fork", "use_global", 201, {"names": ["NEW"]}),
    ("POST", WS + "/%s/snapshots" % p, "write", 0, {}),
    ("POST", WS + "/ann%2Fg/snapshots", "write_global", 0, {}),
    ("POST", WS + "/%s/restore" % p, "write", 200, {"snapshot": sp}),
    ("POST", WS + "/%s/merge" % p, "write", 0, {"from": p}),
    ("POST", WS + "/%s/commit" % p, "write", 0, {"message": "m"}),
    ("POST", WS + "/%s/push" % p, "write", 0, {}),
    ("GET", WS + "/%s/bundle" % p, "read", 0), ("GET", WS + "/%s/diff" % p, "read", 200),
    ("GET", WS + "/%s/log" % p, "read", 200), ("GET", WS + "/%s/watch" % p, "read", 200),
    ("POST", WS + "/%s/umount" % p, "write", 200, {}), ("POST", WS + "/%s/mount" % p, "write", 200, {}),
    ("GET", WS + "/%s/archive" % p, "read", 200), ("GET", WS + "/%s/archive/dir" % p, "read_path", 200),
    ("POST", WS + "/%s/archive" % p + REST, "read", 200, b""), ("POST", WS + "/%s/archive/dir" % p + REST, "read_path", 200, b""),
    ("PUT", WS + "/%s/archive" % p, "write", 200, tar), ("PUT", WS + "/%s/archive/dir" % p, "write_path", 200, tar),
    ("GET", WS + "/%s/files" % p, "read", 200), ("GET", WS + "/%s/files/dir" % p, "read_path", 200),
    ("GET", WS + "/%s/files/dir/f" % p, "read_path", 200), ("GET", WS + "/%s/files/secret" % p, "read", 200),
    ("GET", WS + "/%s/files/directory" % p, "read", 200), ("GET", WS + "/%s/files/dir/../secret" % p, "any", 400),
    ("GET", WS + "/%s/files/dir%%2Ff" % p, "read_path", 200), ("GET", WS + "/%s/files/dir%%2F..%%2Fsecret" % p, "any", 400),
    ("HEAD", WS + "/%s/files/dir/f" % p, "read_path", 200), ("HEAD", WS + "/%s/files/secret" % p, "read", 200),
    ("PUT", WS + "/%s/files/dir/NEW" % p, "write_path", 201, b"x"), ("PUT", WS + "/%s/files/NEW" % p, "write", 201, b"x"),
    ("POST", WS + "/%s/files/dir/NEW?op=mkdir" % p, "write_path", 201, {}),
    ("POST", WS + "/%s/files/NEW?op=mkdir" % p, "write", 201, {}),
    ("POST", WS + "/%s/files/dir/f?op=copy" % p, "write_path", 201, {"to": "dir/NEW"}),
    ("POST", WS + "/%s/files/dir/f?op=copy" % p, "write", 201, {"to": "NEW"}),
    ("POST", WS + "/%s/files/secret?op=copy" % p, "write", 201, {"to": "dir/NEW"}),
    ("DELETE", WS + "/%s/files/dir/none" % p, "write_path", 404), ("DELETE", WS + "/%s/files/none" % p, "write", 404),
    ("OPTIONS", WS + "/%s/uploads" % p, "write_path", 204),
    ("POST", WS + "/%s/uploads" % p, "write_path", 201, None, dict(tus, **{"Upload-Metadata": "path ZGlyL3g="})),
    ("POST", WS + "/%s/uploads" % p, "write", 201, None, dict(tus, **{"Upload-Metadata": "path c2VjcmV0"})),
    ("HEAD", WS + "/%s/uploads/%s" % (p, ups["any"][0]), "read_path", 200, None, tus),
    ("HEAD", WS + "/%s/uploads/%s" % (p, ups["any"][1]), "read", 200, None, tus),
    ("PATCH", WS + "/%s/uploads/%s" % (p, ups["any"][1]), "write", 409, b"x",
     {"Tus-Resumable": "1.0.0", "Upload-Offset": "7", "Content-Type": "application/offset+octet-stream"}),
    ("DELETE", WS + "/%s/uploads/up_aaaaaaaaaa" % p, "write_path", 404, None, tus),
    ("POST", "/v1/import", "own_change", 201, tar),
    ("GET", SN, "scoped", 200), ("GET", SN + "/" + sp, "read", 200), ("GET", SN + "/%s/diff" % sp, "read", 200),
    ("GET", SN + "/%s/diff/%s" % (sp, p), "read", 200), ("GET", SN + "/%s/log" % sp, "read", 200),
    ("GET", SN + "/%s/diff/none" % sp, "read", 404),
    ("PATCH", SN + "/" + sp, "write", 200, {"message": "m"}), ("DELETE", SN + "/" + sp, "write", 409),
    ("POST", SN + "/%s/commit" % sp, "write", 0, {"message": "m"}), ("GET", SN + "/%s/bundle" % sp, "read", 0),
    ("POST", SN + "/%s/archive" % sp + REST, "read", 200, b""), ("POST", SN + "/%s/archive/dir" % sp + REST, "read_path", 200, b""),
    ("GET", SN + "/%s/archive" % sp, "read", 200), ("GET", SN + "/%s/archive/dir" % sp, "read_path", 200),
    ("GET", SN + "/%s/files/dir/f" % sp, "read_path", 200), ("GET", SN + "/%s/files/secret" % sp, "read", 200),
    ("HEAD", SN + "/%s/files/dir/f" % sp, "read_path", 200), ("HEAD", SN + "/%s/files/secret" % sp, "read", 200),
    ("GET", "/v1/repos", "own", 200), ("GET", "/v1/repos/none", "repo", 404), ("GET", "/v1/repos/none/packs", "repo", 404),
    ("POST", "/v1/repos", "repo_add", 0, {"url": "/no/url"}), ("POST", "/v1/repos/import", "repo_add", 400, b""),
    ("DELETE", "/v1/repos/none", "repo_change", 404), ("POST", "/v1/repos/none/fetch", "repo_change", 404, {}),
    ("POST", "/v1/repos/none/reset", "repo_change", 404, {"branch": "b"}),
    ("POST", "/v1/repos/none/import", "repo_change", 404, b""),
    ("GET", "/v1/tokens", "own", 200), ("POST", "/v1/tokens", "token", 201, {}),
    ("POST", "/v1/tokens", "token", 201, {"scope": p, "path": "dir"}),
    ("DELETE", "/v1/tokens/tk_aaaaaaaaaa", "own_change", 404),
    ("GET", "/v1/users", "admin", 200), ("POST", "/v1/users", "admin", 201, {"name": "NEW"}),
    ("DELETE", "/v1/users/none", "admin", 404),
    ("GET", "/v1/quotas", "admin", 200), ("GET", "/v1/quotas/ann", "admin", 200),
    ("PUT", "/v1/quotas/dan", "admin", 200, {"workspaces": 100}), ("DELETE", "/v1/quotas/ben", "admin", 404),
    ("GET", "/v1/webhooks", "own", 200), ("POST", "/v1/webhooks", "own_change", 201, {"url": "https://x.invalid/"}),
    ("POST", "/v1/webhooks", "admin", 201, {"url": "https://x.invalid/", "everybody": True}),
    ("GET", "/v1/webhooks/wh_aaaaaaaaaa", "own", 404), ("PATCH", "/v1/webhooks/wh_aaaaaaaaaa", "own_change", 404, {}),
    ("DELETE", "/v1/webhooks/wh_aaaaaaaaaa", "own_change", 404),
    ("POST", "/v1/webhooks/wh_aaaaaaaaaa/test", "own_change", 404, {}),
    ("GET", "/v1/webhooks/wh_aaaaaaaaaa/deliveries", "own", 404),
    ("GET", "/v1/teams", "own", 200), ("POST", "/v1/teams", "own_change", 201, {"name": "NEW"}),
    ("GET", "/v1/teams/web", "team", 200), ("DELETE", "/v1/teams/none", "own_change", 404),
    ("PUT", "/v1/teams/web/members/uid:9", "team_admin", 200, {"role": "reader"}),
    ("DELETE", "/v1/teams/web/members/uid:8", "team_admin", 404),
    ("GET", "/metrics", "admin", 200), ("GET", "/v1/stats", "admin", 200),
    ("GET", "/v1/audit", "scoped", 200), ("GET", "/v1/audit?object=" + p, "read", 200),
    ("GET", "/v1/usage", "scoped", 200), ("GET", "/v1/events", "scoped", 200),
    # Its signature is what counts, not who brings it: this one is nobody's.
    ("GET", "/v1/signed/%s/dir/f?expires=1&sig=x" % p, "any", 410, None, {}, {"bad": 410, "none": 410}),
    ("HEAD", "/v1/signed/%s/dir/f?expires=1&sig=x" % p, "any", 410, None, {}, {"bad": 410, "none": 410}),
    ("POST", SN + "/%s/files/dir/f?op=sign" % sp, "write_path", 0, {}), ("POST", SN + "/%s/files/secret?op=sign" % sp, "write", 0, {}),
    ("POST", WS + "/%s/batch" % p, "write_path", 0, {}),
    ("GET", "/v1/exports", "own", 200), ("POST", "/v1/exports", "own_change", 404, {"from": "nothing"}),
    # What is named beside the path isn't anybody's either.
    ("POST", "/v1/exports", "use", 201, {"from": p}), ("POST", "/v1/exports", "use", 201, {"from": "ann/p"}),
    ("POST", "/v1/exports", "use", 201, {"from": sp}), ("POST", "/v1/exports", "use_global", 201, {"from": "ann/g"}),
    ("GET", WS + "/ann%2Fg/diff?against=" + p, "beside_global", 200), ("GET", WS + "/ann%2Fg/diff?against=" + sp, "beside_global", 200),
    ("POST", WS + "/ann%2Ft/merge", "beside_team", 0, {"from": p}), ("POST", WS + "/ann%2Ft/restore", "beside_team", 200, {"snapshot": sp}),
    ("GET", "/v1/exports/ex_aaaaaaaaaa", "own", 404), ("HEAD", "/v1/exports/ex_aaaaaaaaaa", "own", 404),
    ("DELETE", "/v1/exports/ex_aaaaaaaaaa", "own_change", 404),
    ("GET", "/v1/jobs", "scoped", 200), ("GET", "/v1/jobs/jb_aaaaaaaaaa", "scoped", 404),
    ("POST", "/v1/jobs/jb_aaaaaaaaaa/cancel", "scoped_change", 404, {}),
    ("POST", "/v1/gc", "admin", 200, {}), ("POST", "/v1/fsck", "admin", 200, {}),
    ("POST", WS + "/ws_aaaaaaaaaa/undelete", "scoped_change", 404, {}),
    ("DELETE", WS + "/ws_aaaaaaaaaa", "scoped_change", 404),
    ("DELETE", WS + "/ann%2Fg?purge=true", "write_global", 204, None, {}, {w: 404 for w in A}),
    ("GET", SB, "own", 200), ("POST", SB, "own_change", 201, {"name": "NEW", "start": False}),
    ("GET", SB + "/" + sb, "see_box", 200), ("PATCH", SB + "/" + sb, "use", 200, {"description": "d"}),
    ("GET", SB + "/%s/stats" % sb, "see_box", 200), ("POST", SB + "/%s/start" % sb, "use", 400, {"secrets": {"a": 1}}),
    ("POST", SB + "/%s/stop" % sb, "use", 409, {}), ("POST", SB + "/%s/kill" % sb, "use", 409, {}),
    ("POST", SB + "/%s/pause" % sb, "use", 409, {}), ("POST", SB + "/%s/resume" % sb, "use", 409, {}),
    ("POST", SB + "/%s/snapshots" % sb, "use", 201, {}), ("POST", SB + "/%s/fork" % sb, "use", 201, {"names": ["NEW"]}),
    ("POST", SB + "/%s/restore" % sb, "use", 400, {"snapshot": sp}),
    ("POST", SB + "/%s/workspaces" % sb, "use", 201, {"workspace": p, "target": "/NEW"}),
    ("DELETE", SB + "/%s/workspaces/none" % sb, "use", 404),
    ("POST", SB + "/%s/exec" % sb, "use", 409, {"command": ["true"]}), ("GET", SB + "/%s/exec" % sb, "see_box", 200),
    ("GET", SB + "/%s/exec/main" % sb, "see_box", 200), ("GET", SB + "/%s/exec/main/output" % sb, "see_box", 200),
    ("GET", SB + "/%s/exec/main/terminal" % sb, "use", 409), # it has none
    ("POST", SB + "/%s/exec/main/stdin" % sb, "use", 200, b""),
    ("POST", SB + "/%s/exec/main/signal" % sb, "use", 409, {"signal": "TERM"}),
    ("POST", SB + "/%s/exec/main/resize" % sb, "use", 409, {"columns": 1, "rows": 1}),
    ("GET", SB + "/%s/files/etc/passwd" % sb, "see_box", 200), ("HEAD", SB + "/%s/files/etc/passwd" % sb, "see_box", 200),
    ("PUT", SB + "/%s/files/tmp/NEW" % sb, "use", 201, b"x"), ("POST", SB + "/%s/files/tmp/NEW?op=mkdir" % sb, "use", 201, {}),
    ("DELETE", SB + "/%s/files/tmp/none" % sb, "use", 404), ("GET", SB + "/%s/archive/etc" % sb, "see_box", 200),
    ("POST", SB + "/%s/archive/etc" % sb + REST, "see_box", 200, b""),
    ("PUT", SB + "/%s/archive/tmp" % sb, "use", 200, tar), ("DELETE", SB + "/sb_aaaaaaaaaa", "own_change", 404),
    ("POST", SB + "/%s/batch" % sb, "use", 200, {"operations": [{"op": "mkdir", "path": "tmp/NEW"}]}),
    ("GET", SB + "/%s/watch" % sb, "see_box", 200),
    ("OPTIONS", SB + "/%s/uploads" % sb, "use", 204),
    ("POST", SB + "/%s/uploads" % sb, "use", 201, None, dict(tus, **{"Upload-Metadata": "path dG1wL3g="})),
    ("HEAD", SB + "/%s/uploads/up_aaaaaaaaaa" % sb, "see_box", 404, None, tus),
    ("PATCH", SB + "/%s/uploads/up_aaaaaaaaaa" % sb, "use", 404, b"x",
     {"Tus-Resumable": "1.0.0", "Upload-Offset": "7", "Content-Type": "application/offset+octet-stream"}),
    ("DELETE", SB + "/%s/uploads/up_aaaaaaaaaa" % sb, "use", 404, None, tus),
    ("POST", "/v1/shutdown", "admin", None, {}),
]

def pattern(target):
    parts = target.split("?")[0].split("/")
    best = None
    for r in routes:
        want = r["path"].split("/")
        tail = want[-1] == "{...}"
        head = want[:-1] if tail else want
        if (len(parts) < len(head) if tail else len(parts) != len(head)):
            continue
        if all(w == "{}" or w == x for w, x in zip(head, parts)):
            score = sum(w not in ("{}", "{...}") for w in want)
            if best is None or score > best[0]:
                best = (score, r["path"])
    return best and best[1]

seen, count = set(), 0
for row in TABLE:
    method, target, kind, want = row[:4]
    body, headers, apart = (row + (None,) * 3)[4:7]
    seen.add((method, pattern(target)))
    wrong = []
    for w in CALLERS if method != "DELETE" else reversed(CALLERS): # who may comes last
        status = apart[w] if apart and w in apart else 401 if w in ("bad", "none") else \
            403 if w == "team" and kind != "any" and not target.startswith(TEAMS) else CLASSES[kind][w]
        status = want if status is None else status
        if status is None:
            continue # what ends the service isn't tried by whoever may
        count += 1
        new = "x%d" % count
        b = json.loads(json.dumps(body).replace("NEW", new)) if isinstance(body, dict) else body
        got, doc = call(w, method, target.replace("NEW", new), b, headers or {})
        if got != status if status else got in (401, 403, 404):
            wrong.append("%s: %d for %d: %s" % (w, got, status, json.dumps(doc)[:300]))
    ok(not wrong, "%s %s" % (method, target.replace(p, "p").replace(sp, "sp")), "\n# ".join(wrong))
left = sorted("%s %s" % (r["method"], r["path"]) for r in routes if (r["method"], r["path"]) not in seen)
ok(not left, "every route is in the table", ", ".join(left))
print("# %d calls" % count)
print("1..%d" % n)
EOF
python3 "$T/table.py" "$BOUGH_ROOT/run/boughd.sock" "$port" "$T/t.tar" "$T/routes.json" >"$T/out" 2>"$T/.err"
take_tap "$T/out"
is 'the table ran to its end' "$(tail -n 5 "$T/.err")" ''
ok 'with calls' grep -q '^# [0-9]* calls' "$T/out"
done_testing
