#!/bin/bash
# The contract (snapd/openapi.json) and the server agree: on each path, method and parameter, since
# the one is made from the other; on statuses and fields, by calls whose answers are checked.
. "${0%/*}/lib.sh"
need_fuse
command -v python3 >/dev/null || skip_all 'needs python3'
. "$BOUGH_SRC/tests/e2e/repo.sh"

boughd --routes | python3 "$BOUGH_SRC/snapd/openapi.py" >"$T/made.json"
is 'openapi.py knows all routes' $? 0
ok 'openapi.json is up to date (else: make openapi)' cmp "$T/made.json" "$BOUGH_SRC/snapd/openapi.json"
boughd --root "$BOUGH_ROOT" --daemon || bail 'boughd does not start'
curl -sS --unix-socket "$BOUGH_ROOT/run/boughd.sock" http://d/v1/openapi.json >"$T/served.json"
ok 'it is what boughd serves' cmp "$T/served.json" "$BOUGH_SRC/snapd/openapi.json"
if python3 -c 'import openapi_spec_validator' 2>/dev/null; then
	is 'it is OpenAPI' "$(python3 -m openapi_spec_validator "$T/served.json" 2>&1 | tail -n 1)" "$T/served.json: OK"
else
	pass 'it is OpenAPI # SKIP no openapi-spec-validator'
fi
tar cf "$T/t.tar" -C "$BOUGH_SRC" LICENSE
(cd "$srv/r.git" && tar cf "$T/r.tar" -- *)

cat >"$T/check.py" <<'EOF'
import glob, http.client, json, re, socket, sys, urllib.parse
doc = json.load(open(sys.argv[1]))
sock, tar, url, repo = sys.argv[2:6]

class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sock)

def resolve(s, at):
    """Where a schema's fields are: the last name that it has, and the way from there."""
    while "$ref" in s:
        at = s["$ref"].rsplit("/", 1)[1]
        s, parts = doc, s["$ref"][2:].split("/")
        for part in parts:
            s = s[part]
    return s, at

KINDS = {"string": str, "object": dict, "array": list, "boolean": bool, "integer": int}

def faults(v, s, where, at, met):
    """What of the value isn't as the schema says; the fields that it has are put into `met`."""
    s, at = resolve(s, at)
    for one in s.get("allOf", ()):
        yield from faults(v, one, where, at, met)
    if "oneOf" in s:
        for one in s["oneOf"]:
            tried = set()
            if not list(faults(v, one, where, at, tried)):
                met.update(tried)
                return
        yield "%s: %r fits none" % (where, v)
        return
    if "enum" in s:
        if v not in s["enum"]:
            yield "%s: %r is none of %r" % (where, v, s["enum"])
        return
    kind = s.get("type")
    if kind == "null":
        if v is not None:
            yield "%s: not null" % where
        return
    if kind and (not isinstance(v, KINDS[kind]) or kind == "integer" and isinstance(v, bool)):
        yield "%s: %r is no %s" % (where, v, kind)
        return
    if kind == "integer" and v < s.get("minimum", v):
        yield "%s: %r is too small" % (where, v)
    if s.get("format") == "date-time" and not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", v):
        yield "%s: %r is no time" % (where, v)
    if kind == "array":
        for i, one in enumerate(v):
            yield from faults(one, s["items"], "%s[%d]" % (where, i), at, met)
    if kind == "object":
        props = s.get("properties", {})
        more = s.get("additionalProperties", True)
        for name in s.get("required", ()):
            if name not in v:
                yield "%s: without %s" % (where, name)
        for name, one in v.items():
            if name in props:
                met.add((at, name))
                yield from faults(one, props[name], where + "." + name, at + "." + name, met)
            elif more is False:
                yield "%s: %s isn't in the contract" % (where, name)
            elif isinstance(more, dict):
                yield from faults(one, more, where + "." + name, at + "." + name, met)

def fields(s, at, out, done):
    """All that a value may have."""
    s, at = resolve(s, at)
    if (id(s), at) in done:
        return
    done.add((id(s), at))
    for one in s.get("oneOf", []) + s.get("allOf", []) + ([s["items"]] if "items" in s else []):
        fields(one, at, out, done)
    for name, one in s.get("properties", {}).items():
        out.add((at, name))
        fields(one, at + "." + name, out, done)

def operation(method, target):
    path = target.split("?")[0]
    best = None
    for template, ops in doc["paths"].items():
        rx = re.sub(r"/\\\{path\\\}", "(/.*)?", re.escape(template)) # the root has no path
        rx = re.sub(r"\\\{[a-z]+\\\}", "[^/]+", rx)
        # the one with the fewest parameters is meant
        if re.fullmatch(rx, path) and method.lower() in ops:
            if best is None or template.count("{") < best[0].count("{"):
                best = (template, ops[method.lower()])
    return best

n = failed = 0
seen, answers, errors, met, heads = set(), set(), set(), set(), set()
# HTTP's own, whatever is answered.
ALWAYS = {"Connection", "Content-Length", "Content-Type", "Date", "Trailer", "Transfer-Encoding"}

def values(kind, text):
    """What is JSON of an answer: all, each line, or each event's data."""
    if kind == "application/json":
        return [json.loads(text)]
    if kind == "application/x-ndjson":
        return [json.loads(line) for line in text.splitlines() if line]
    if kind == "text/event-stream":
        return [json.loads(line[6:]) for line in text.decode().splitlines() if line.startswith("data: ")]
    return []

def ask(method, target, body, headers, until=b""):
    """What has no end is read until it has said that."""
    conn = Unix("d", timeout=60)
    data = json.dumps(body) if isinstance(body, dict) else body
    try:
        conn.request(method, target, data, headers)
    except (BrokenPipeError, ConnectionResetError):
        pass # it was refused before the body was read: the answer is there
    r = conn.getresponse()
    endless = "/watch" in target and r.status == 200
    text = b"" if endless else r.read()
    while endless and (not text.endswith(b"\n\n") or until not in text):
        text += r.read1(1 << 16)
    conn.close()
    return r, text

def without_secret(text):
    doc = json.loads(text) if text else {}
    return {k: v for k, v in doc.items() if k not in ("token", "secret")}

def repeated(r, text, *asked):
    """What is wrong with the answer to the same call, with the same key."""
    again, more = ask(*asked)
    if again.getheader("Idempotency-Replayed") != "true":
        yield "repeated, it isn't the first answer: %d %s" % (again.status, more[:300])
    elif again.status != r.status or without_secret(more) != without_secret(text):
        yield "repeated: %d %s for %s" % (again.status, more[:300], text[:300])

def call(status, method, target, body=None, headers={}, until=b""):
    """Each POST that does something is asked for twice, with a key."""
    global n, failed
    n += 1
    twice = method == "POST" and status in (200, 201, 204) and not headers and \
        "/archive" not in target and target != "/v1/shutdown" # a reading; and the end
    if twice:
        headers = {"Idempotency-Key": "call-%d" % n}
    r, text = ask(method, target, body, headers, until)
    call.head, call.text = r.headers, text
    template, op = operation(method, target)
    seen.add((method, template))
    bad = [] if r.status == status else ["status %d for %d: %s" % (r.status, status, text[:300])]
    answer = op["responses"].get(str(r.status))
    found = []
    if answer is None:
        bad.append("status %d isn't in the contract" % r.status)
    else:
        content = resolve(answer, "")[0].get("content", {})
        kind = (r.getheader("Content-Type") or "").split(";")[0]
        if kind not in content and kind.startswith("application/") and "application/octet-stream" in content:
            kind = "application/octet-stream"
        if text and kind not in content:
            bad.append("%s isn't in the contract" % kind)
        if text and r.status < 400:
            answers.add((method, template, str(r.status), kind))
        if text:
            found = values(kind, text)
        known = resolve(answer, "")[0].get("headers", {})
        for name in r.headers.keys() if r.status < 400 else ():
            if name not in known and name not in ALWAYS:
                bad.append("the header %s isn't in the contract" % name)
            heads.add(name)
        for v in found:
            bad += faults(v, content.get(kind, {}).get("schema", {}), "answer", "", met)
    if not text or r.status < 400:
        answers.add((method, template, str(r.status), ""))
    if r.status >= 400:
        errors.add(str(r.status))
    if twice and not bad:
        bad += repeated(r, text, method, target, body, headers)
    print("%sok %d - %s %s" % ("not " if bad else "", n, method, target))
    for b in bad:
        print("# " + b)
        failed += 1
    return found[0] if found else {}

def told(method, target, body=None, headers={}, fails=False):
    """The same in lines, which end with how it did."""
    call(200, method, target, body, {**headers, "Accept": "application/x-ndjson"})
    last = json.loads(call.text.splitlines()[-1])
    if ("error" if fails else "result") not in last:
        print("not ok - %s %s in lines: %r" % (method, target, last))

ws, sn = "/v1/workspaces", "/v1/snapshots"
for t in ("/v1/health", "/v1/version", "/v1/openapi.json", "/v1/whoami", "/v1/stats", "/metrics"):
    call(200, "GET", t)
one = call(201, "POST", ws, {"name": "one", "labels": {"a": "b"}, "ttl_s": 1000, "on_expiry": "save", "description": "d"})
call(409, "POST", ws, {"name": "one"})
call(400, "POST", ws, {"name": "../"})
call(404, "GET", ws + "/none")
call(200, "GET", ws + "?usage=1")
call(200, "GET", ws + "/one")
call(200, "PATCH", ws + "/one", {"visibility": "global", "quota_bytes": 10000000})
call(201, "PUT", ws + "/one/files/dir/file", "bytes")
call(200, "PUT", ws + "/one/files/dir/file", "other bytes")
call(200, "GET", ws + "/one/files/dir/file")
def parts(path):
    part, fresh = {"Range": "bytes=0-1"}, {"If-None-Match": "*"}
    for method in "GET", "HEAD":
        call(200, method, path)
        call(206, method, path, None, part)
        call(304, method, path, None, fresh)
parts(ws + "/one/files/dir/file")
call(200, "GET", ws + "/one/files/dir")
call(200, "GET", ws + "/one/files/dir?recursive=true")
call(200, "GET", ws + "/one/files/dir/file?stat=1")
call(201, "PUT", ws + "/one/files/%ff", "x")
call(200, "PUT", ws + "/one/files/%ff", "y")
call(200, "GET", ws + "/one/files/%ff?stat=1")
call(200, "GET", ws + "/one/files/")
call(204, "DELETE", ws + "/one/files/%ff")
call(201, "POST", ws + "/one/files/new?op=mkdir", {})
call(200, "POST", ws + "/one/files/new?op=chmod", {"mode": "0700"})
call(201, "POST", ws + "/one/files/new%2Flink?op=symlink", {"target": "x"})
call(200, "POST", ws + "/one/files/new%2Flink?op=move", {"to": "link"})
call(204, "DELETE", ws + "/one/files/link")
call(200, "GET", ws + "/one/watch")
since = re.findall(r"^id: (.*)$", call.text.decode(), re.M)[-1]
call(400, "GET", ws + "/one/watch?since=x")
call(204, "DELETE", ws + "/one/files/new")
call(201, "POST", ws + "/one/files/%ff?op=mkdir", {})
call(200, "GET", ws + "/one/files/%ff")
call(200, "POST", ws + "/one/batch", {"operations": [
    {"op": "write", "path": "odd/a", "content": "x"}, {"op": "symlink", "path": "odd/link", "target_b64": "/w=="},
    {"op": "move", "path_b64": "/w==", "to_b64": "/g=="}, {"op": "move", "path": "odd/a", "to": "odd/b"}]})
call(200, "GET", ws + "/one/files/odd/link?stat=1")
call(200, "GET", ws + "/one/files/odd?limit=1")
call(200, "GET", ws + "/one/watch?recursive=1&since=" + since, until=b'"old_path')
since = re.findall(r"^id: (.*)$", call.text.decode(), re.M)[-1]
call(200, "POST", ws + "/one/files/odd/b?op=move", {"to": "odd/c"})
call(200, "POST", ws + "/one/files/odd/c?op=move", {"to": "odd/b"})
call(200, "GET", ws + "/one/watch?recursive=1&since=" + since, until=b'"old_path')
tus = {"Tus-Resumable": "1.0.0"}
call(201, "POST", ws + "/one/files/dir/file?op=copy", {"to": "dir/copy"})
call(201, "PUT", ws + "/one/files/dir/long", "long " * 1000)
call(200, "GET", ws + "/one/files/dir/long", None, {"Accept-Encoding": "zstd"})
call(200, "GET", ws + "/one/files/dir/long", None, {"Want-Repr-Digest": "sha-256=1", "Want-Content-Digest": "sha-256=1"})
signed = call(200, "POST", ws + "/one/files/dir/file?op=sign", {})
parts(signed["url"])
call(400, "POST", ws + "/one/files/dir/file?op=sign", {"expires_in": 0})
call(200, "POST", ws + "/one/batch", {"operations": [{"op": "write", "path": "batch/x", "content": "x"}]})
call(404, "POST", ws + "/one/batch", {"operations": [{"op": "delete", "path": "none"}]})
call(204, "OPTIONS", ws + "/one/uploads")
call(201, "POST", ws + "/one/uploads", None, {**tus, "Upload-Length": "3", "Upload-Metadata": "path dXA="})
up = call.head["Location"]
call(200, "HEAD", up, None, tus)
call(409, "PATCH", up, "x", {**tus, "Upload-Offset": "1", "Content-Type": "application/offset+octet-stream"})
call(204, "PATCH", up, "abc", {**tus, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"})
call(204, "DELETE", up, None, tus)
call(412, "HEAD", up)
call(201, "POST", ws + "/one/uploads", None, {**tus, "Upload-Length": "3", "Upload-Metadata": "path dXA="})
up = call.head["Location"]
piece = {**tus, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"}
call(460, "PATCH", up, "abc", {**piece, "Upload-Checksum": "sha1 AAAAAAAAAAAAAAAAAAAAAAAAAAA="})
told("PATCH", up, "abc", piece)
call(412, "PUT", ws + "/one/files/dir/file", "x", {"If-Match": '"x"'})
call(416, "GET", ws + "/one/files/dir/file", None, {"Range": "bytes=100-"})
call(415, "PUT", ws + "/one/files/dir/file", "x", {"Content-Encoding": "br"})
call(501, "POST", ws + "/one/files/dir/file?op=chmod", {"mode": "0644"}, {"If-Match": "*"})
call(400, "PUT", ws + "/one/archive/", b"no archive")
told("PUT", ws + "/one/files/dir/told", "bytes")
told("POST", ws + "/one/batch", {"operations": [{"op": "delete", "path": "dir/told"}]})
call(413, "PATCH", ws + "/one", {"description": "x" * (1 << 20)})
key = {"Idempotency-Key": "k"}
call(201, "POST", ws, {"name": "keyed", "mount": False, "quota_bytes": 1}, key)
call(201, "POST", ws, {"name": "keyed", "mount": False, "quota_bytes": 1}, key) # replayed
call(422, "POST", ws, {"name": "other", "mount": False}, key)
call(200, "POST", ws + "/keyed/mount", {})
call(507, "PUT", ws + "/keyed/files/x", b"x" * 8192)
call(204, "DELETE", ws + "/keyed?purge=1")
call(410, "GET", "/v1/events?since=00000000.1")
call(201, "POST", ws + "/one/snapshots", {"name": "s", "message": "m"})
call(200, "POST", ws + "/one/snapshots", {})
later = {"Prefer": "respond-async"}
def job(method, target, body=None):
    call(200, "GET", "/v1/jobs/%s?wait=30" % call(202, method, target, body, later)["id"])
job("POST", ws + "/one/snapshots", {})
told("POST", ws + "/one/snapshots", {})
job("POST", "/v1/import", b"this is none") # which fails
told("POST", "/v1/import", b"this is none", fails=True)
call(200, "POST", ws + "/one/batch", {"operations": [
    {"op": "move", "path_b64": "/g==", "to_b64": "/w=="}, {"op": "move", "path": "odd/b", "to": "odd/a"},
    {"op": "chmod", "path": "dir", "mode": "0700"}]})
call(200, "GET", ws + "/one/log")
call(200, "GET", ws + "/one/diff")
call(200, "GET", ws + "/one/diff?format=stat")
call(200, "GET", ws + "/one/archive")
call(201, "POST", ws + "/one/fork", {"name": "f", "count": 2})
call(200, "POST", ws + "/one/archive?before=2100-01-01T00:00:00.000000000Z", b"")
call(200, "PUT", ws + "/f-1/archive/", open(tar, "rb").read())
told("PUT", ws + "/f-1/archive/", open(tar, "rb").read())
call(200, "POST", ws + "/one/merge", {"from": "f-1"})
call(200, "POST", ws + "/one/restore", {"snapshot": "s"})
with open(one["path"] + "/dir/file"):
    call(200, "POST", ws + "/one/umount", {})
call(200, "POST", ws + "/one/mount", {})
call(200, "GET", sn)
call(200, "GET", sn + "/s")
call(200, "POST", sn + "/s/files/dir/file?op=sign", {})
call(200, "GET", sn + "/s/diff")
call(200, "GET", sn + "/s/diff?format=stat")
call(201, "PUT", ws + "/one/files/differs", "x")
call(200, "GET", sn + "/s/diff/one")
call(200, "GET", sn + "/s/diff/one?format=name-status")
call(200, "GET", sn + "/s/log?limit=1")
call(200, "GET", sn + "/s/archive")
call(200, "POST", sn + "/s/archive?before=2100-01-01T00:00:00.000000000Z", b"")
parts(sn + "/s/files/dir/file")
call(200, "GET", sn + "/s/files/?stat=1")
call(200, "PATCH", sn + "/s", {"labels": {"k": "v"}, "ttl_s": 1000})
call(201, "POST", ws + "/import?name=begun&label=k=v&mount=0", open(tar, "rb").read())
told("POST", ws + "/import?name=begun2&mount=0", open(tar, "rb").read())
job("POST", ws + "/import?name=begun3&mount=0", open(tar, "rb").read())
for name in "begun", "begun2", "begun3":
    call(204, "DELETE", ws + "/%s?purge=1" % name)
call(201, "POST", "/v1/import?name=in", open(tar, "rb").read())
job("POST", "/v1/import", open(tar, "rb").read())
told("POST", "/v1/import", open(tar, "rb").read())
call(204, "DELETE", sn + "/in")
call(409, "DELETE", sn + "/s")
repos = "/v1/repos"
call(404, "GET", repos + "/none")
call(201, "POST", repos, {"url": url, "name": "r"})
job("POST", repos, {"url": url, "name": "r2"})
told("POST", repos, {"url": url, "name": "r3"})
call(502, "POST", repos, {"url": "http://127.0.0.1:1/r", "name": "nobody"})
call(200, "GET", repos)
call(200, "GET", repos + "/r")
call(200, "POST", repos + "/r/fetch", {})
job("POST", repos + "/r/fetch", {})
told("POST", repos + "/r/fetch", {})
call(201, "POST", repos + "/import?name=files&path=/r.git", open(repo, "rb").read())
call(200, "GET", repos + "/files/packs")
told("POST", repos + "/import?name=files2&path=/r2.git", open(repo, "rb").read())
call(200, "POST", repos + "/files/import", open(repo, "rb").read())
told("POST", repos + "/files/import", open(repo, "rb").read())
call(201, "POST", ws, {"name": "fix", "git": {"repo": "r", "branch": "fix"}})
call(204, "GET", ws + "/fix/bundle")
call(201, "POST", ws + "/fix/snapshots", {"name": "clean"})
call(204, "GET", sn + "/clean/bundle")
call(200, "POST", sn + "/clean/commit", {"message": "m"})
call(201, "PUT", ws + "/fix/files/new", "bytes")
call(200, "POST", ws + "/fix/files/big?op=move", {"to": "moved"})
call(201, "PUT", ws + "/fix/files/%ff", "bytes")
call(201, "PUT", ws + "/fix/files/sub/.GIT/x", "no tree can have it")
call(200, "GET", ws + "/fix/diff")
call(200, "GET", ws + "/fix/diff?format=stat")
call(204, "DELETE", ws + "/fix/files/sub?recursive=1")
told("POST", ws, {"name": "fix2", "mount": False, "git": {"repo": "r"}})
call(200, "GET", ws + "/fix/bundle")
call(201, "POST", ws + "/fix/snapshots", {"name": "more"})
call(200, "GET", sn + "/more/bundle")
call(201, "POST", ws + "/fix/commit", {"message": "m"})
call(200, "POST", ws + "/fix/commit", {"message": "m"})
job("POST", ws + "/fix/commit", {"message": "m"})
told("POST", ws + "/fix/commit", {"message": "m"})
call(201, "POST", sn + "/more/commit", {"message": "m", "branch": "else"})
job("POST", sn + "/more/commit", {"message": "m", "branch": "else"})
told("POST", sn + "/more/commit", {"message": "m", "branch": "else"})
call(200, "POST", ws + "/fix/push", {})
job("POST", ws + "/fix/push", {})
told("POST", ws + "/fix/push", {})
call(200, "POST", repos + "/r/reset", {"branch": "main"})
call(409, "DELETE", repos + "/r")
call(204, "DELETE", repos + "/r2")
call(201, "POST", "/v1/users", {"name": "ann", "uid": 12345})
call(201, "POST", "/v1/users", {"name": "bot"})
call(200, "GET", "/v1/users")
t = call(201, "POST", "/v1/tokens", {"name": "t", "owner": "bot", "expires_s": 100, "read_only": True})
call(200, "GET", "/v1/tokens")
call(401, "GET", "/v1/whoami", None, {"Authorization": "Bearer no"})
call(200, "GET", "/v1/whoami", None, {"Authorization": "Bearer " + t["token"]})
call(403, "GET", "/v1/users", None, {"Authorization": "Bearer " + t["token"]})
call(204, "DELETE", "/v1/tokens/" + t["id"])
call(201, "POST", "/v1/teams", {"name": "team"})
call(200, "PUT", "/v1/teams/team/members/ann", {"role": "reader"})
call(200, "GET", "/v1/teams/team")
hook = call(201, "POST", "/v1/webhooks", {"url": "https://example.org/x", "events": ["shutdown.done"]})["id"]
call(200, "GET", "/v1/webhooks")
call(200, "GET", "/v1/webhooks/" + hook)
call(202, "POST", "/v1/webhooks/%s/test" % hook, {})
call(200, "PATCH", "/v1/webhooks/" + hook, {"active": False})
call(200, "GET", "/v1/webhooks/%s/deliveries" % hook)
call(204, "DELETE", "/v1/webhooks/" + hook)
call(200, "PUT", "/v1/quotas/uid:7", {"workspaces": 5, "bytes": 1 << 40})
call(200, "GET", "/v1/quotas/uid:7")
call(200, "GET", "/v1/quotas")
call(204, "DELETE", "/v1/quotas/uid:7")
call(200, "GET", "/v1/teams")
call(204, "DELETE", "/v1/teams/team/members/ann")
call(204, "DELETE", "/v1/teams/team")
call(204, "DELETE", "/v1/users/ann")
old = call(202, "POST", "/v1/gc", {}, later)
call(200, "GET", "/v1/jobs/%s?wait=30" % old["id"])
call(200, "GET", "/v1/jobs")
call(409, "POST", "/v1/jobs/%s/cancel" % old["id"])
job("POST", "/v1/fsck", {})
for path in "/v1/gc", "/v1/fsck":
    told("POST", path, {})
told("GET", "/v1/usage")
told("POST", "/v1/exports", {"from": "one"})
kept = call(201, "POST", "/v1/exports", {"from": "one"})
call(200, "GET", "/v1/exports")
job("POST", "/v1/exports", {"from": "one"})
for method in "GET", "HEAD":
    call(200, method, "/v1/exports/%s" % kept["id"])
    call(206, method, "/v1/exports/%s" % kept["id"], None, {"Range": "bytes=0-0"})
call(204, "DELETE", "/v1/exports/%s" % kept["id"])
call(200, "POST", "/v1/gc", {})
call(200, "POST", "/v1/fsck", {})
call(200, "GET", "/v1/usage")
call(200, "GET", "/v1/usage?limit=1")
call(200, "GET", "/v1/events?since=0&follow=false")
call(200, "GET", "/v1/audit?limit=1000")
call(200, "GET", "/v1/audit?format=ndjson")
call(204, "DELETE", ws + "/f-1")
call(200, "GET", ws + "?deleted=true")
call(200, "POST", ws + "/f-1/undelete", {"name": "f-back"})
call(204, "DELETE", ws + "/f-back?purge=true")
sb = "/v1/sandboxes"
call(201, "POST", sb, {"name": "box", "start": False, "workspaces": [{"workspace": "one", "target": "/one"}],
                       "command": ["true"], "env": ["A=b"], "cpu_milli": 500, "labels": {"a": "b"}})
call(409, "POST", sb, {"name": "box"})
call(400, "POST", sb, {"net": "all"})
call(200, "GET", sb)
call(200, "GET", sb + "/box")
call(200, "PATCH", sb + "/box", {"description": "d", "ttl_s": 1000})
call(200, "GET", sb + "/box/stats")
call(409, "POST", sb + "/box/stop", {})
call(409, "POST", sb + "/box/kill", {"signal": "TERM"})
call(409, "POST", sb + "/box/pause", {})
call(409, "POST", sb + "/box/resume", {})
call(400, "POST", sb + "/box/start", {"secret_env": ["x"]})
call(201, "POST", sb + "/box/snapshots", {"name": "box-saved"})
told("POST", sb + "/box/snapshots", {})
call(200, "GET", ws + "/one") # which it has
call(201, "POST", "/v1/teams", {"name": "crew"})
call(201, "POST", "/v1/teams", {"name": "crew-2"})
for path in ws + "/one", sn + "/s", sb + "/box":
    call(200, "PATCH", path, {"visibility": "team", "team": "crew"})
call(201, "POST", sb + "/box/fork", {"names": ["box-2"]})
call(200, "POST", sb + "/box/restore", {"snapshot": "box-saved"})
call(200, "DELETE", sb + "/box/workspaces/one")
call(201, "POST", sb + "/box/workspaces", {"workspace": "one", "read_only": True})
call(409, "POST", sb + "/box/exec", {"command": ["true"]})
call(200, "GET", sb + "/box/exec")
call(200, "GET", sb + "/box/exec/main")
call(200, "GET", sb + "/box/exec/main/output")
call(200, "GET", sb + "/box/exec/main/output?stream=stdout")
call(409, "GET", sb + "/box/exec/main/terminal")
call(200, "POST", sb + "/box/exec/main/stdin", b"")
told("POST", sb + "/box/exec/main/stdin", b"")
call(409, "POST", sb + "/box/exec/main/signal", {"signal": "INT"})
call(409, "POST", sb + "/box/exec/main/resize", {"columns": 80, "rows": 24})
parts(sb + "/box/files/etc/passwd")
call(200, "POST", sb + "/box/batch", {"operations": [{"op": "mkdir", "path": "tmp/d"}, {"op": "mkdir", "path": "/tmp/e"}]})
call(403, "POST", sb + "/box/batch", {"operations": [{"op": "mkdir", "path": "workspace/f"}]})
call(200, "GET", sb + "/box/watch")
since = re.findall(r"^id: (.*)$", call.text.decode(), re.M)[-1]
told("POST", sb + "/box/batch", {"operations": [{"op": "mkdir", "path": "tmp/f"}]})
call(200, "GET", sb + "/box/watch?recursive=1&since=" + since)
told("PUT", sb + "/box/files/tmp/told", "bytes")
call(200, "GET", sb + "/box/files/etc")
call(201, "PUT", sb + "/box/files/tmp/x", "bytes")
call(200, "PUT", sb + "/box/files/tmp/x", "bytes")
call(201, "POST", sb + "/box/files/tmp/y?op=mkdir", {})
call(200, "POST", sb + "/box/files/tmp/y?op=chmod", {"mode": "0700"})
job("POST", sb + "/box/snapshots", {})
call(204, "DELETE", sb + "/box/files/tmp/y")
call(403, "GET", sb + "/box/files/proc/1")
call(200, "GET", sb + "/box/archive/etc")
call(200, "POST", sb + "/box/archive/etc?before=2100-01-01T00:00:00.000000000Z", b"")
call(204, "OPTIONS", sb + "/box/uploads")
call(201, "POST", sb + "/box/uploads", None, {**tus, "Upload-Length": "1", "Upload-Metadata": "path dG1wL3VwCg=="})
up = call.head["Location"]
call(200, "HEAD", up, None, tus)
call(204, "PATCH", up, "a", {**tus, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"})
call(204, "DELETE", up, None, tus)
call(201, "POST", sb + "/box/uploads", None, {**tus, "Upload-Length": "1", "Upload-Metadata": "path dG1wL3VwCg=="})
told("PATCH", call.head["Location"], "a", {**tus, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"})
call(200, "PUT", sb + "/box/archive/tmp", open(tar, "rb").read())
told("PUT", sb + "/box/archive/tmp", open(tar, "rb").read())
for name, uid in ("u1", 1), ("u2", 2):
    call(201, "POST", "/v1/users", {"name": name})
    call(201, "POST", "/v1/tokens", {"name": name})
    call(200, "PUT", "/v1/quotas/uid:%d" % uid, {"workspaces": 5})
    call(201, "POST", "/v1/webhooks", {"url": "https://example.org/" + name, "events": ["shutdown.done"]})
call(200, "GET", "/v1/audit?limit=1")
for path in (ws, sn, sn + "/s/log", sb, repos, "/v1/tokens", "/v1/users", "/v1/teams", "/v1/jobs", "/v1/quotas", "/v1/webhooks",
             "/v1/exports", "/v1/usage"):
    whole, pages, cursor = call(200, "GET", path)["items"], [], ""
    while cursor is not None: # one by one it is the same
        page = call(200, "GET", path + "?limit=1" + cursor)
        pages += page["items"]
        cursor = "&cursor=" + urllib.parse.quote(page["next"]) if "next" in page else None
    key = lambda one: one.get("id") or one.get("name") or one["owner"]
    if [*map(key, pages)] != [*map(key, whole)] or not whole:
        print("not ok - %s in pages: %r for %r" % (path, [*map(key, pages)], [*map(key, whole)]))
call(204, "DELETE", sb + "/box-2")
call(204, "DELETE", sb + "/box")
call(200, "POST", "/v1/shutdown", {})
n += 1
left = sorted("%s %s" % (m.upper(), t) for t, ops in doc["paths"].items() for m in ops if (m.upper(), t) not in seen)
print("%sok %d - every operation was called" % ("not " if left else "", n))
for x in left:
    print("# " + x)
# What nothing here can bring about: what terminal.t and sandbox_owners.t do, a sandbox that runs, a file that
# goes between a change and its answer, a job that can be cancelled.
apart = {("POST", "start", "200"), ("POST", "stop", "200"), ("POST", "kill", "200"), ("POST", "pause", "200"),
         ("POST", "resume", "200"), ("POST", "exec", "201"), ("POST", "signal", "204"), ("POST", "resize", "204"),
         ("GET", "terminal", "101"), ("DELETE", "{ws}", "204"), ("POST", "{path}", "204"), ("POST", "cancel", "202")}
want, have, may, sent, asked = [], set(), set(), set(), set()
for t, ops in doc["paths"].items():
    for m, op in ops.items():
        asked.update(p["name"] for p in op["parameters"] if p.get("in") == "header")
        for status, answer in op["responses"].items():
            sent.update(answer.get("headers", {}))
            content = resolve(answer, "")[0].get("content", {})
            for kind, of in content.items():
                fields(of.get("schema", {}), "", have, set())
            if status >= "400":
                may.add(status)
            elif (m.upper(), t.rsplit("/", 1)[1], status) not in apart:
                want += [(m.upper(), t, status, kind) for kind in content or [""]
                         if not (kind and t.endswith("/output") and "octet" in kind)]

def all_of(what, left):
    global n
    n += 1
    print("%sok %d - %s" % ("not " if left else "", n, what))
    for x in left:
        print("# " + (x if isinstance(x, str) else " ".join(x)))

all_of("every status was seen, with each kind of body", sorted(x for x in want if x not in answers))
# Others' tests have these: two who send one upload, no WebSocket, floods, and faults of the machine.
all_of("and every status of a failure", sorted(may - errors - {"423", "426", "429", "500", "503"}))
# Damage, what runs, and what a moment decides; where a table of a sample has more than the sample.
all_of("and every field", sorted(x for x in have - met if x[0] != "Image" and x not in {
    ("Workspace", "error"), ("Workspace", "damage"), ("Git", "pending"), ("Git", "pending_branch"),
    ("Sandbox", "pid"), ("Sandbox", "error"), ("Sandbox", "unenforced"), ("Job", "progress"), ("Repository", "error"),
    ("Exec", "stdin_offset"), ("Exec", "stdout"), ("Exec", "stderr"),
    ("GitChange", "old_path_b64"), ("Execs", "next"), ("Deliveries", "next"), ("Names", "next")}
    and not x[0].startswith(("Checked.faults", "Ended.in_use", "Exec.std"))))
all_of("and every header of an answer", sorted(sent - heads))
# What the source says: the headers that it asks for, and its table of codes, are the contract's.
source = "".join(open(path).read() for path in glob.glob(sys.argv[6] + "/*.c"))
looks = set(re.findall(r'request_header\([^,()]+, "([^"]+)"\)', source)) - {"Content-Type", "Content-Range", "Prefer", "If-Unmodified-Since"}
all_of("headers that are asked for", sorted(looks - asked if len(looks) > 9 else ["none was found"]))
all_of("and no others", sorted(name for name in asked if '"%s"' % name not in source))
table = set(re.findall(r'\{ -E\w+, (\d+), "(\w+)" \}', source))
known = {(status, code) for status, r in doc["components"]["responses"].items()
         for code in r["content"]["application/json"]["schema"]["allOf"][1]["properties"]["code"]["enum"]}
all_of("every code of a failure is in the contract", sorted(table - known) if len(table) > 25 else ["none was found"])
EOF
python3 "$T/check.py" "$T/served.json" "$BOUGH_ROOT/run/boughd.sock" "$T/t.tar" "$http/r.git" "$T/r.tar" \
	"$BOUGH_SRC/snapd" >"$T/out" 2>"$T/.err"
take_tap "$T/out"
is 'the checks ran to their end' "$(tail -n 5 "$T/.err")" ''
done_testing
