#!/bin/bash
# Every call as every kind of caller: what it may, what it may not, what isn't there for it. What a route
# names is there, and somebody's: where nothing is named by it, nothing is proved. A route that the
# table doesn't have is a failure.
. "${0%/*}/lib.sh"
need_fuse
command -v python3 >/dev/null || skip_all 'needs python3'

export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
git init -q -b main "$T/src" && echo x >"$T/src/file" && git -C "$T/src" add file &&
	git -C "$T/src" -c user.name=A -c user.email=a@example.org commit -qm one &&
	git clone -q --bare "$T/src" "$T/r.git" && (cd "$T/r.git" && tar cf "$T/r.tar" -- *) || bail 'no git'
chmod 711 "$T" # another user comes by the socket
boughd --root "$BOUGH_ROOT" --daemon --multi-user --listen 127.0.0.1:0 || bail 'boughd does not start'
port=$(sed -n 's/.*listens on 127.0.0.1:0, port \([0-9]*\)$/\1/p' "$BOUGH_ROOT/run/boughd.log")
tar cf "$T/t.tar" -C "$BOUGH_SRC" LICENSE
boughd --routes >"$T/routes.json"

cat >"$T/table.py" <<'EOF'
import base64, http.client, json, os, socket, sys, time
sock, port, tar, routes = sys.argv[1], int(sys.argv[2]), open(sys.argv[3], "rb").read(), json.load(open(sys.argv[4]))
git, contract = open(sys.argv[5], "rb").read(), json.load(open(sys.argv[6]))["paths"]

class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sock)

class Peer(Unix):
    """Somebody else of this machine: the kernel tells boughd who connects."""
    def connect(self):
        os.setegid(31000)
        os.seteuid(31000)
        try:
            super().connect()
        finally:
            os.seteuid(0)
            os.setegid(0)

SOCKETS = {"root": Unix, "peer": Peer}
conns, tokens, n = {}, {}, 0

def call(who, method, target, body=None, headers={}):
    if who not in conns:
        conns[who] = SOCKETS[who]("d", timeout=30) if who in SOCKETS else http.client.HTTPConnection("127.0.0.1", port, timeout=30)
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
# What there is of each kind of thing: the owner's, of whom nobody is told but whom it is shown.
made = {}
made["token"] = make("root", "POST", "/v1/tokens", {"owner": "ann"})["id"]
made["hook"] = make("owner", "POST", "/v1/webhooks", {"url": "https://x.invalid/"})["id"]
made["export"] = make("owner", "POST", "/v1/exports", {"from": p})["id"]
made["job"] = make("owner", "POST", WS + "/p/snapshots", {}, {"Prefer": "respond-async"})["id"]
make("owner", "GET", "/v1/jobs/%s?wait=30" % made["job"])
made["deleted"] = make("owner", "POST", WS, {"name": "deleted", "mount": False})["id"]
make("owner", "DELETE", WS + "/deleted")
made["repo"] = make("owner", "POST", "/v1/repos/import?path=/r.git&name=r", git)["id"]
made["team"] = make("owner", "POST", "/v1/teams", {"name": "gone"})["id"]
for name, role in ("ben", "member"), ("cai", "reader"):
    make("owner", "PUT", "/v1/teams/gone/members/" + name, {"role": role})
for who, body in (("reading", {"read_only": True}), ("one", {"scope": p}), ("path", {"scope": p, "path": "/dir/"}),
                  ("team", {"scope": "team:ann/web"}), ("one_reading", {"scope": p, "read_only": True}),
                  ("path_reading", {"scope": p, "path": "/dir/", "read_only": True}),
                  ("team_reading", {"scope": "team:ann/web", "read_only": True}), ("expired", {"expires_s": 1}),
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

time.sleep(1.1) # the one that expires
CALLERS = ("root", "admin", "owner", "reading", "one", "path", "team", "mate", "guest", "other", "peer", "one_reading",
           "path_reading", "team_reading", "expired", "bad", "none")
CALLERS = tuple(w for w in CALLERS if w != "peer" or os.geteuid() == 0)
UNKNOWN = ("expired", "bad", "none")
# Who is to others as another one is, or may only read what that one may.
LIKE = {"peer": "other", "one_reading": "one", "path_reading": "path", "team_reading": "team"}
def who(ok=(), no=(), hidden=()):
    return {**{w: None for w in ok}, **{w: 403 for w in no}, **{w: 404 for w in hidden}}
A = ("root", "admin")
O = A + ("owner",)
STRANGERS = ("mate", "guest", "other", "team") # the token of a team is one to what the team isn't shown
# What such a token is for: all else is forbidden to it, there or not.
TEAMS = (WS, SN, "/v1/jobs", "/v1/events", "/v1/usage", "/v1/audit", "/v1/signed", "/v1/health", "/v1/version",
         "/v1/openapi.json", "/v1/whoami")
CLASSES = {
    "any": who(("root", "admin", "owner", "reading", "one", "path", "team", "mate", "guest", "other")),
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
    # Of what is the owner's: a token of a workspace is good for none of it. An export is its maker's alone.
    "mine": who(O + ("reading",), ("one", "path"), STRANGERS),
    "mine_change": who(O, ("reading", "one", "path"), STRANGERS),
    "maker": who(("owner", "reading"), ("one", "path"), A + STRANGERS),
    "maker_change": who(("owner",), ("reading", "one", "path"), A + STRANGERS),
    "undelete": who(O, ("reading", "path"), ("one",) + STRANGERS),
}
GONE = {w: 404 for w in A} # who comes later finds it no more
# METHOD target class status [body [headers]]; NEW is another name each time. 0: any but 401 to 404.
# A sandbox that doesn't run: a token of a workspace is good for none.
SB = "/v1/sandboxes"
sb = call("owner", "POST", SB, {"name": "box", "start": False})[1].get("id", "none")
made["box"] = make("owner", "POST", SB, {"name": "to-remove", "start": False})["id"]
make("owner", "POST", SB + "/%s/workspaces" % sb, {"workspace": p, "target": "/real"})
c = Unix("d")
c.request("POST", SB + "/%s/uploads" % sb, None, dict(tus, **{"Upload-Metadata": "path dG1wL3VwMg=="}))
box_up = c.getresponse().getheader("Location")
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
    ("POST", WS + "/%s/files/dir/f?op=copy" % p, "write_path", 0, {"to_b64": "ZGlyL29sZA==", "replace": True}),
    ("POST", WS + "/%s/files/dir/f?op=copy" % p, "write", 0, {"to_b64": "b2xk", "replace": True}),
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
    ("GET", "/v1/repos/" + made["repo"], "mine", 200), ("GET", "/v1/repos/%s/packs" % made["repo"], "mine", 200),
    ("POST", "/v1/repos/%s/fetch" % made["repo"], "mine_change", 0, {}),
    ("POST", "/v1/repos/%s/import" % made["repo"], "mine_change", 200, git),
    ("POST", "/v1/repos/%s/reset" % made["repo"], "mine_change", 0, {"branch": "main"}),
    ("POST", WS, "mine_change", 201, {"name": "NEW", "mount": False, "git": {"repo": made["repo"]}}, {}, {"team": 404}),
    ("DELETE", "/v1/repos/" + made["repo"], "mine_change", 409),
    ("GET", "/v1/repos", "own", 200), ("GET", "/v1/repos/none", "repo", 404), ("GET", "/v1/repos/none/packs", "repo", 404),
    ("POST", "/v1/repos", "repo_add", 0, {"url": "/no/url"}), ("POST", "/v1/repos/import", "repo_add", 400, b""),
    ("DELETE", "/v1/repos/none", "repo_change", 404), ("POST", "/v1/repos/none/fetch", "repo_change", 404, {}),
    ("POST", "/v1/repos/none/reset", "repo_change", 404, {"branch": "b"}),
    ("POST", "/v1/repos/none/import", "repo_change", 404, b""),
    ("GET", "/v1/tokens", "own", 200), ("POST", "/v1/tokens", "token", 201, {}, {}, {"peer": 201}),
    ("POST", "/v1/tokens", "token", 201, {"scope": p, "path": "dir"}, {}, {"peer": 404}),
    ("DELETE", "/v1/tokens/" + made["token"], "mine_change", 204, None, {}, GONE),
    ("DELETE", "/v1/tokens/tk_aaaaaaaaaa", "own_change", 404),
    ("GET", "/v1/users", "admin", 200), ("POST", "/v1/users", "admin", 201, {"name": "NEW"}),
    ("DELETE", "/v1/users/none", "admin", 404),
    ("GET", "/v1/quotas", "admin", 200), ("GET", "/v1/quotas/ann", "admin", 200),
    ("PUT", "/v1/quotas/dan", "admin", 200, {"workspaces": 100}), ("DELETE", "/v1/quotas/ben", "admin", 404),
    ("GET", "/v1/webhooks", "own", 200), ("POST", "/v1/webhooks", "own_change", 201, {"url": "https://x.invalid/"}),
    ("POST", "/v1/webhooks", "admin", 201, {"url": "https://x.invalid/", "everybody": True}),
    ("GET", "/v1/webhooks/" + made["hook"], "mine", 200), ("PATCH", "/v1/webhooks/" + made["hook"], "mine_change", 200, {}),
    ("POST", "/v1/webhooks/%s/test" % made["hook"], "mine_change", 202, {}),
    ("GET", "/v1/webhooks/%s/deliveries" % made["hook"], "mine", 200),
    ("DELETE", "/v1/webhooks/" + made["hook"], "mine_change", 204, None, {}, GONE),
    ("GET", "/v1/webhooks/wh_aaaaaaaaaa", "own", 404), ("PATCH", "/v1/webhooks/wh_aaaaaaaaaa", "own_change", 404, {}),
    ("DELETE", "/v1/webhooks/wh_aaaaaaaaaa", "own_change", 404),
    ("POST", "/v1/webhooks/wh_aaaaaaaaaa/test", "own_change", 404, {}),
    ("GET", "/v1/webhooks/wh_aaaaaaaaaa/deliveries", "own", 404),
    ("GET", "/v1/teams", "own", 200), ("POST", "/v1/teams", "own_change", 201, {"name": "NEW"}),
    ("DELETE", "/v1/teams/" + made["team"], "team_admin", 204, None, {}, GONE),
    ("GET", "/v1/teams/web", "team", 200), ("DELETE", "/v1/teams/none", "own_change", 404),
    ("PUT", "/v1/teams/web/members/uid:9", "team_admin", 200, {"role": "reader"}),
    ("DELETE", "/v1/teams/web/members/uid:8", "team_admin", 404),
    ("GET", "/metrics", "admin", 200), ("GET", "/v1/stats", "admin", 200),
    ("GET", "/v1/audit", "scoped", 200), ("GET", "/v1/audit?object=" + p, "read", 200),
    ("GET", "/v1/usage", "scoped", 200), ("GET", "/v1/events", "scoped", 200),
    # Its signature is what counts, not who brings it: this one is nobody's.
    ("GET", "/v1/signed/%s/dir/f?expires=1&sig=x" % p, "any", 410, None, {}, {w: 410 for w in UNKNOWN}),
    ("HEAD", "/v1/signed/%s/dir/f?expires=1&sig=x" % p, "any", 410, None, {}, {w: 410 for w in UNKNOWN}),
    ("POST", SN + "/%s/files/dir/f?op=sign" % sp, "write_path", 0, {}), ("POST", SN + "/%s/files/secret?op=sign" % sp, "write", 0, {}),
    ("POST", WS + "/%s/batch" % p, "write_path", 0, {}),
    ("GET", "/v1/exports", "own", 200), ("POST", "/v1/exports", "own_change", 404, {"from": "nothing"}),
    # What is named beside the path isn't anybody's either.
    ("POST", "/v1/exports", "use", 201, {"from": p}), ("POST", "/v1/exports", "use", 201, {"from": "ann/p"}),
    ("POST", "/v1/exports", "use", 201, {"from": sp}), ("POST", "/v1/exports", "use_global", 201, {"from": "ann/g"}),
    ("GET", WS + "/ann%2Fg/diff?against=" + p, "beside_global", 200), ("GET", WS + "/ann%2Fg/diff?against=" + sp, "beside_global", 200),
    ("POST", WS + "/ann%2Ft/merge", "beside_team", 0, {"from": p}), ("POST", WS + "/ann%2Ft/restore", "beside_team", 200, {"snapshot": sp}),
    ("GET", "/v1/exports/" + made["export"], "maker", 200), ("HEAD", "/v1/exports/" + made["export"], "maker", 200),
    ("DELETE", "/v1/exports/" + made["export"], "maker_change", 204),
    ("GET", "/v1/exports/ex_aaaaaaaaaa", "own", 404), ("HEAD", "/v1/exports/ex_aaaaaaaaaa", "own", 404),
    ("DELETE", "/v1/exports/ex_aaaaaaaaaa", "own_change", 404),
    ("GET", "/v1/jobs/" + made["job"], "read", 200), ("POST", "/v1/jobs/%s/cancel" % made["job"], "write", 409, {}),
    ("GET", "/v1/jobs", "scoped", 200), ("GET", "/v1/jobs/jb_aaaaaaaaaa", "scoped", 404),
    ("POST", "/v1/jobs/jb_aaaaaaaaaa/cancel", "scoped_change", 404, {}),
    ("POST", "/v1/gc", "admin", 200, {}), ("POST", "/v1/fsck", "admin", 200, {}),
    ("POST", WS + "/%s/undelete" % made["deleted"], "undelete", 400, {"name": "a b"}),
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
    ("DELETE", SB + "/%s/workspaces/%s?target=/real" % (sb, p), "use", 200, None, {}, GONE),
    ("DELETE", SB + "/" + made["box"], "use", 204, None, {}, GONE),
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
    ("HEAD", box_up, "see_box", 200, None, tus),
    ("PATCH", box_up, "use", 409, b"x", {"Tus-Resumable": "1.0.0", "Upload-Offset": "7", "Content-Type": "application/offset+octet-stream"}),
    ("DELETE", box_up, "use", 204, None, tus, GONE),
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

def reads(method, target):
    """As access_only_reads of boughd has it."""
    return method == "HEAD" or method == "GET" and not target.endswith("/terminal") or \
        method == "POST" and "/archive" in target

def expected(w, row):
    """0: any but 401 to 404. None: it isn't tried."""
    method, target, kind, want, body, headers, apart = (row + (None,) * 3)[:7]
    if apart and w in apart:
        return apart[w]
    if w in UNKNOWN:
        return 401
    if w.endswith("_reading") and not reads(method, target) and "/v1/signed/" not in target:
        return 403
    like = LIKE.get(w, w)
    if w != like and apart and like in apart:
        return apart[like]
    if like == "team" and kind != "any" and not target.startswith(TEAMS):
        return 403
    status = CLASSES[kind][like]
    return want if status is None else status

def in_contract(method, path, status):
    """Whether it is a status that the contract has for the operation."""
    for template, ops in contract.items():
        if [x if x[:1] != "{" else "{}" for x in template.split("/")] == \
           ["{}" if x == "{...}" else x for x in path.split("/")] and method.lower() in ops:
            return str(status) in ops[method.lower()]["responses"]
    return False

seen, count = set(), 0
for row in TABLE:
    method, target, kind, want = row[:4]
    body, headers, apart = (row + (None,) * 3)[4:7]
    seen.add((method, pattern(target)))
    wrong = []
    for w in CALLERS if method != "DELETE" else reversed(CALLERS): # who may comes last
        status = expected(w, row)
        if status is None:
            continue # what ends the service isn't tried by whoever may
        count += 1
        new = "x%d" % count
        b = json.loads(json.dumps(body).replace("NEW", new)) if isinstance(body, dict) else body
        got, doc = call(w, method, target.replace("NEW", new), b, headers or {})
        if got != status if status else got in (401, 403, 404):
            wrong.append("%s: %d for %d: %s" % (w, got, status, json.dumps(doc)[:300]))
        if not in_contract(method, pattern(target), got):
            wrong.append("%s: %d isn't in the contract" % (w, got))
    ok(not wrong, "%s %s" % (method, target.replace(p, "p").replace(sp, "sp")), "\n# ".join(wrong))
left = sorted("%s %s" % (r["method"], r["path"]) for r in routes if (r["method"], r["path"]) not in seen)
ok(not left, "every route is in the table", ", ".join(left))
print("# %d calls" % count)
print("1..%d" % n)
EOF
python3 "$T/table.py" "$BOUGH_ROOT/run/boughd.sock" "$port" "$T/t.tar" "$T/routes.json" "$T/r.tar" \
	"$BOUGH_SRC/snapd/openapi.json" >"$T/out" 2>"$T/.err"
take_tap "$T/out"
is 'the table ran to its end' "$(tail -n 5 "$T/.err")" ''
ok 'with calls' grep -q '^# [0-9]* calls' "$T/out"
done_testing
