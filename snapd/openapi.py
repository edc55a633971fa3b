#!/usr/bin/env python3
"""Makes openapi.json: the table of routes (boughd --routes, on stdin) with what they answer,
which is said here. `make openapi` runs it; a test proves that the file is up to date."""

import json
import sys

S = {"type": "string"}
N = {"type": "integer", "minimum": 0}
B = {"type": "boolean"}
TIME = {"type": "string", "format": "date-time"}
LABELS = {"type": "object", "additionalProperties": S}
ANY = {"type": "object"}


def null(schema):
    return {"oneOf": [schema, {"type": "null"}]}


def ref(name):
    return {"$ref": "#/components/schemas/" + name}


def obj(needed, more=None, closed=True):
    o = {"type": "object", "properties": {**needed, **(more or {})}, "required": sorted(needed)}
    if closed:
        o["additionalProperties"] = False
    return o


def items(name):
    return obj({"items": {"type": "array", "items": ref(name)}}, {"next": S})


OWNED = {"owner": S, "visibility": {"enum": ["private", "team", "global"]}, "expires": null(TIME)}
OWNED_MORE = {"team": S, "team_id": S, "on_expiry": {"enum": ["delete", "save", "keep"]}}

# What is answered where a call fails, and by which codes.
ERRORS = {
    400: ("invalid", "unsupported"), 401: ("unauthenticated",), 403: ("forbidden", "refused"),
    404: ("not_found",), 405: ("invalid",),
    409: ("busy", "cancelled", "conflict", "exists", "in_flight", "not_mounted"), 410: ("gone",),
    412: ("changed",), 413: ("too_large",), 414: ("too_large",), 415: ("unsupported",),
    416: ("range",), 422: ("key_reused",), 423: ("locked",), 426: ("upgrade",),
    429: ("too_many",), 431: ("too_large",), 460: ("checksum",), 500: ("internal",),
    501: ("not_implemented",), 502: ("remote",), 503: ("overloaded", "unavailable"),
    505: ("unsupported",), 507: ("no_space", "quota"),
}
CODES = sorted({code for codes in ERRORS.values() for code in codes})
# A path that isn't UTF-8 stands in its *_b64 instead, wherever one is told.
PATHS = {"path": S, "path_b64": S}
LOST = obj({"sockets": N, "specials": N, "xattrs": N, "hard_links": N, "holes": N, "times": N})

SCHEMAS = {
    "Error": obj({"code": {"enum": CODES}, "message": S, "details": ANY}),
    # Of a checkout; `name` in workspaces alone.
    "Git": obj({"repo": N, "ref": null(S), "base": S, "anchor": S, "branch": null(S), "depth": N,
                "scopes": {"type": "array", "items": S}},
               {"name": null(S), "pending": S, "pending_branch": null(S)}),
    "Image": obj({}, {"env": {"type": "array", "items": S}, "user": S, "workdir": S,
                      "entrypoint": {"type": "array", "items": S},
                      "cmd": {"type": "array", "items": S}, "stop_signal": S, "labels": LABELS,
                      "digest": S, "architecture": S}, closed=False),
    "Workspace": obj(
        {"id": S, "name": S, "path": S, "mounted": B, "created": TIME, "base": null(S),
         "head": null(S), "labels": LABELS, "quota_bytes": N, "quota_inodes": N,
         "parent": null(S), "state": {"enum": ["ready", "read-only", "broken"]}, "description": null(S),
         **OWNED},
        {"used_bytes": {"type": "integer"}, "used_inodes": {"type": "integer"}, "layers": N,
         "records": N, "files": N, "xattrs": B, "error": S, "damage": S, "git": ref("Git"), "busy": B,
         "deleted": TIME, "purges": TIME,
         "checkout": obj({"files": N, "bytes": N, "submodules": N, "lfs": N, "built": B, "uid": N, "gid": N,
                          "submodule_paths": {"type": "array", "items": S},
                          "lfs_paths": {"type": "array", "items": S}}),
         "sandboxes": {"type": "array", "items": obj(
             {"id": S, "name": S, "owner": S, "target": S, "read_only": B, "exclusive": B})},
         **OWNED_MORE}),
    "Snapshot": obj(
        {"id": S, "names": {"type": "array", "items": S}, "message": null(S), "created": TIME,
         "workspace": null(S), "parent": null(S), "manifest": S, "files": N, "bytes": N,
         "stored_bytes": N, "labels": LABELS, **OWNED},
        {"git": ref("Git"), "image": ref("Image"), "unchanged": B, **OWNED_MORE}),
    "Forks": obj({"items": {"type": "array", "items": ref("Workspace")}, "pause_ns": N}),
    "Merged": obj({"workspace": ref("Workspace"), "added": N, "removed": N, "moved": N,
                   "changed": N, "merged": N}),
    "Branch": obj({"name": S, "upstream": null(S), "local": null(S), "ahead": null(N),
                   "behind": null(N)}),
    "Reset": obj({"branch": S, "was": null(S), "commit": null(S), "lost": N, "moved": B}),
    "Repository": obj(
        {"id": S, "number": N, "name": S, "kind": {"enum": ["url", "path"]}, "created": TIME,
         "fetched": TIME, "head": null(S), "owner": S,
         "visibility": {"enum": ["private", "global"]}},
        {"url": S, "path": S, "commit": null(S), "branches": N, "tags": N, "bytes": N,
         "workspaces": N, "snapshots": N, "auth": null(S), "error": S, "refs_changed": N,
         "objects": N, "bytes_received": N,
         "branch_list": {"type": "array", "items": ref("Branch")},
         "apart": {"type": "array", "items": ref("Branch")}}),
    "Usage": obj({"items": {"type": "array", "items": obj(
        {"id": S, "unique_bytes": null(N), "shared_bytes": null(N), "written_bytes": null(N)})},
        "owners": {"type": "array", "items": obj(
            {"owner": S, "workspaces": N, "snapshots": N, "bytes": N, "quota": ref("Quota")})}},
        {"next": S}),
    "Webhook": obj({"id": S, "owner": S, "url": S, "events": null({"type": "array", "items": S}),
                    "everybody": B, "active": B, "created": TIME}, {"secret": S}),
    "Delivery": obj({"id": S, "seq": N, "type": S, "created": TIME, "tries": N,
                     "state": {"enum": ["waiting", "delivered", "failed"]}, "status": null(N),
                     "error": null(S), "next": null(TIME)}),
    "Quota": obj({"owner": S, "workspaces": null(N), "snapshots": null(N), "bytes": null(N)}),
    "Names": obj({"items": {"type": "array", "items": S}}, {"next": S}),
    "Entry": obj({"size": N, "type": {"enum": ["file", "directory", "symlink", "fifo", "socket",
                                               "char", "block"]}, "modified_at": TIME, "mode": S},
                 {"name": S, "name_b64": S, "created_at": TIME, "target": S, "target_b64": S}),
    "Directory": obj({"entries": {"type": "array", "items": ref("Entry")}},
                     {**PATHS, "next": S}),
    "Stat": obj({"entry": ref("Entry"), "of": S, "inode": N, "at": TIME}, PATHS),
    "Looked": {"oneOf": [ref("Directory"), ref("Stat")]},
    "Done": {"oneOf": [obj({"entry": ref("Entry")}), ref("Signed")]},
    "Put": obj({"size": N, "mode": S, "etag": S, "created": B}, PATHS),
    "Extracted": obj({"members": N, "bytes": N, "ignored": obj({"xattrs": N, "acls": N})}),
    "Signed": obj({"url": S, "expires": TIME}),
    "Operations": obj({"operations": {"type": "array", "items": ref("Operation"), "minItems": 1,
                                      "maxItems": 1000}}),
    "Operation": obj(
        {"op": {"enum": ["write", "mkdir", "move", "delete", "symlink", "chmod", "check"]}},
        {**PATHS, "to": S, "to_b64": S, "target": S, "target_b64": S,
         "content": S, "content_b64": S, "mode": S, "parents": B, "replace": B, "recursive": B,
         "exist_ok": B, "if_match": S, "if_none_match": S}),
    "Batch": obj({"results": {"type": "array", "items": obj(
        {}, {**PATHS, "etag": S, "mode": S, "size": N})}}),
    # Lines of a diff; those of a checkout with its commit are as git sees them.
    "Side": obj({"type": {"enum": ["file", "dir", "symlink", "fifo", "socket", "char", "block"]},
                 "mode": S, "uid": N, "gid": N, "size": N, "mtime": TIME, "ino": N}),
    "Difference": obj(
        {"kind": {"enum": ["added", "deleted", "modified", "renamed", "type"]},
         "what": {"type": "array", "items": {
             "enum": ["content", "mode", "owner", "mtime", "xattr", "target"]}},
         "old": null(ref("Side")), "new": null(ref("Side"))},
        {**PATHS, "old_path": S, "old_path_b64": S}),
    "GitSide": obj({"mode": S}, {"oid": S}),
    "GitChange": obj(
        {"kind": {"enum": ["added", "deleted", "modified", "renamed", "type"]},
         "old": null(ref("GitSide")), "new": null(ref("GitSide"))},
        {**PATHS, "old_path": S, "old_path_b64": S, "similarity": N}),
    "Warning": obj({"kind": {"enum": ["warning"]}, "message": S}),
    "DiffLine": {"oneOf": [ref("Difference"), ref("GitChange"), ref("Warning")]},
    # Lines of a call that takes long, where the client accepts them: the last has its end.
    "Progress": obj({"done": N, "total": N, "unit": S, "what": S}),
    "Failure": obj({"code": {"enum": CODES}, "message": S, "details": ANY, "status": N}),
    "Line": {"oneOf": [obj({"progress": ref("Progress")}), obj({"result": ANY}),
                       obj({"error": ref("Failure")})]},
    # The data of server-sent events.
    "Event": obj({"type": S, "time": TIME, "object": null(S), "owner": S, "by": S}),
    "Happened": obj({"event": {"enum": ["created", "modified", "deleted", "renamed", "reset"]}},
                    {**PATHS, "old_path": S, "old_path_b64": S,
                     "type": {"enum": ["file", "directory", "symlink", "fifo", "socket", "char",
                                       "block"]}}),
    "Commit": obj({"commit": null(S), "parent": null(S), "tree": null(S), "branch": S, "files": N,
                   "unchanged": B, "branch_moved": B, "history": B, "synced": B,
                   "warnings": {"type": "array", "items": S}}),
    "Pushed": obj({"commit": S, "branch": S, "remote": S}),
    "Whoami": obj({"owner": S, "admin": B, "read_only": B, "uid": null(N), "token": null(S),
                   "workspace": null(S), "team": null(S), "path": null(S), "from": S}),
    "Token": obj({"id": S, "name": null(S), "owner": S, "scope": S, "path": null(S),
                  "read_only": B,
                  "created": TIME, "expires": null(TIME), "used": null(TIME)}, {"token": S}),
    "User": obj({"name": S, "owner": S, "uid": null(N), "admin": B, "created": TIME}),
    "Team": obj({"id": S, "owner": S, "name": S, "created": TIME, "members": {
        "type": "array", "items": obj({"owner": S, "role": {"enum": ["reader", "member", "admin"]}})}}),
    "Job": obj({"id": S, "state": {"enum": ["running", "done", "failed", "cancelled"]},
                "owner": S, "path": S, "created": TIME, "ended": null(TIME)},
               {"object": S, "progress": ref("Progress"),
                "status": N, "result": null(ANY), "error": null(ref("Error"))}),
    "Export": obj({"id": S, "format": S, "bytes": N, "created": TIME, "expires": TIME, "url": S},
                  {"members": N, "lost": LOST}),
    "Audit": obj({"seq": N, "time": TIME, "owner": S, "user": null(S), "token": null(S),
                  "from": S, "method": S, "path": S, "object": null(S), "status": N, "about": null(ANY)}),
    "Server": obj({"up": B, "pid": N, "starts": N, "deaths": N, "problem": S}),
    "Health": obj({"ok": B, "version": S, "pid": N, "root": S, "fs": ref("Server"),
                   "catalog": null(S)}),
    "Version": obj({"name": S, "version": S, "api": S}),
    "Collected": obj({"objects_live": N, "objects_dead": N, "bytes_freed": N,
                      "packs_rewritten": N, "packs_deleted": N, "images_deleted": N}),
    "Checked": obj({"faults": {"type": "array", "items": obj(
        {"where": S, "what": S, "object": null(S), "repaired": B,
         "workspaces": {"type": "array", "items": S}, "snapshots": {"type": "array", "items": S}})},
        "more_faults": N, "checked": obj({"objects": N, "packs": N, "images": N, "layers": N,
                                          "snapshots": N, "workspaces": N})}),
    "Stats": obj({"store": null(ANY), "fs": null(ANY), "fs_process": ref("Server"), "catalog": null(ANY),
                  "daemon": ANY}),
    "Ended": obj({"ok": B}, {"in_use": {"type": "array", "items": obj(
        {"workspace": S, "name": S, "processes": {"type": "array", "items": obj(
            {"pid": N, "program": S})}})}}),
    "Any": ANY,
}
ATTACHED = obj({"workspace": S, "name": null(S), "target": S, "read_only": B, "exclusive": B, "own": B})
WORDS = {"type": "array", "items": S}
SCHEMAS["Sandbox"] = obj(
    {"id": S, "name": S, "type": {"enum": ["sandbox"]},
     "status": {"enum": ["created", "running", "paused", "stopped", "hibernated", "failed"]},
     "created": TIME, "started": null(TIME), "ended": null(TIME), "last_activity": TIME,
     "exit_code": null(N), "reason": null(S), "root": null(S), "policy": null(S),
     "labels": LABELS, "description": null(S), "image": S, "snapshot": null(S), "runtime": S,
     "hostname": S, "user": null(S), "cwd": null(S), "command": null(WORDS), "env": WORDS,
     "secrets": WORDS, "secret_env": WORDS, "net": {"enum": ["none", "host"]}, "tty": B,
     "stdin": B, "auto_remove": B, "workspaces": {"type": "array", "items": ATTACHED},
     "limits": obj({"cpu_milli": N, "memory_bytes": N, "pids": N, "shm_bytes": N,
                    "disk_bytes": N, "inodes": N}), **OWNED},
    {"pid": N, "error": S, "unenforced": WORDS, **OWNED_MORE})
SCHEMAS["SandboxForks"] = obj({"items": {"type": "array", "items": ref("Sandbox")},
                               "pause_ns": N})
SCHEMAS["SandboxSaved"] = obj({"root": ref("Snapshot"), "pause_ns": N,
                               "workspaces": {"type": "array", "items": ref("Snapshot")}})
SCHEMAS["SandboxStats"] = obj(
    {"running": B, "cpu_ns": N, "memory_bytes": N, "memory_peak_bytes": N,
     "memory_limit_bytes": N, "pids": N, "pids_limit": N, "oom_kills": N, "disk_bytes": N,
     "inodes": N})
OFFSETS = obj({"first": N, "end": N, "closed": B})
SCHEMAS["Exec"] = obj(
    {"id": S, "sandbox": S, "by": S, "status": {"enum": ["created", "running", "exited"]},
     "exit_code": null(N), "reason": null(S), "created": TIME, "started": null(TIME),
     "ended": null(TIME), "command": null(WORDS), "env": WORDS, "cwd": null(S), "user": null(S),
     "tty": B, "stdin": B, "timeout_ms": N},
    {"stdout": OFFSETS, "stderr": OFFSETS, "stdin_offset": N})
SCHEMAS["Input"] = obj({"offset": N, "closed": B})
SCHEMAS["Sandboxes"] = items("Sandbox")
SCHEMAS["Repositories"] = items("Repository")
for one in ("Workspace", "Snapshot", "Token", "User", "Team", "Job", "Audit", "Quota", "Webhook",
            "Exec"):
    SCHEMAS[one + "s"] = items(one)

SCHEMAS["Deliveries"] = items("Delivery")
SCHEMAS["Exports"] = items("Export")

BYTES, TEXT, NDJSON, SSE = ("application/octet-stream", "text/plain", "application/x-ndjson",
                            "text/event-stream")


def lines(name, kind=NDJSON):
    """A stream: the schema is that of each line, or of each event's data."""
    return (kind, name)


WS, SNAP, REPO = "/v1/workspaces", "/v1/snapshots", "/v1/repos"
SB = "/v1/sandboxes"

# Bodies that come as a stream, and are JSON all the same.
BODIES = {"POST " + WS + "/{}/batch": "Operations", "POST " + SB + "/{}/batch": "Operations"}

# "METHOD path": what it does; status: a schema, a content type, or None for an empty answer.
ANSWERS = {
    "GET /v1/health": ("How the service is", {200: "Health"}),
    "GET /v1/version": ("Which version it is", {200: "Version"}),
    "GET /v1/openapi.json": ("This document", {200: "Any"}),
    "GET " + WS: ("List workspaces", {200: "Workspaces"}),
    "POST " + WS: ("Make a workspace", {201: "Workspace"}),
    "POST " + WS + "/import": ("Make one that begins with an archive", {201: "Workspace"}),
    "GET " + WS + "/{}": ("One workspace", {200: "Workspace"}),
    "PATCH " + WS + "/{}": ("Change a workspace", {200: "Workspace"}),
    "DELETE " + WS + "/{}": ("Delete a workspace", {204: None}),
    "POST " + WS + "/{}/undelete": ("Bring a deleted one back", {200: "Workspace"}),
    "POST " + WS + "/{}/fork": ("Fork a workspace", {201: "Forks"}),
    "POST " + WS + "/{}/snapshots": ("Save a workspace", {200: "Snapshot", 201: "Snapshot"}),
    "POST " + WS + "/{}/restore": ("Turn a workspace back into a snapshot", {200: "Workspace"}),
    "POST " + WS + "/{}/merge": ("Merge what another one changed", {200: "Merged"}),
    "POST " + WS + "/{}/commit": ("Commit a checkout", {200: "Commit", 201: "Commit"}),
    "POST " + WS + "/{}/push": ("Push a checkout", {200: "Pushed"}),
    "GET " + WS + "/{}/bundle": ("A checkout's changes as a git bundle", {200: BYTES, 204: None}),
    "GET " + WS + "/{}/diff": ("What changed", {200: [lines("DiffLine"), TEXT]}),
    "GET " + WS + "/{}/log": ("The line of snapshots", {200: "Snapshots"}),
    "POST " + WS + "/{}/mount": ("Mount", {200: "Workspace"}),
    "POST " + WS + "/{}/umount": ("Unmount", {200: "Workspace"}),
    "GET " + WS + "/{}/archive/{...}": ("A folder as an archive", {200: BYTES}),
    "POST " + WS + "/{}/archive/{...}": ("The rest of it, without what is listed", {200: BYTES}),
    "PUT " + WS + "/{}/archive/{...}": ("Extract an archive", {200: "Extracted"}),
    "GET " + WS + "/{}/files/{...}": ("A file, or a folder's list", {200: [BYTES, "Looked"],
                                                                   206: BYTES, 304: None}),
    "HEAD " + WS + "/{}/files/{...}": ("The same without a body", {200: None, 206: None,
                                                                  304: None}),
    "PUT " + WS + "/{}/files/{...}": ("Write a file", {200: "Put", 201: "Put"}),
    "DELETE " + WS + "/{}/files/{...}": ("Remove a file or folder", {204: None}),
    "POST " + SNAP + "/{}/files/{...}": ("Sign a URL of a file", {200: "Signed"}),
    "GET /v1/signed/{}/{...}": ("A file, by a signed URL", {200: BYTES, 206: BYTES, 304: None}),
    "HEAD /v1/signed/{}/{...}": ("The same without a body", {200: None, 206: None, 304: None}),
    "POST " + WS + "/{}/batch": ("Change many files, all or none", {200: "Batch"}),
    "GET " + WS + "/{}/watch": ("What happens in a workspace, as it does",
                              {200: lines("Happened", SSE)}),
    "POST " + WS + "/{}/files/{...}": ("Make, move, copy, link, chmod, sign", {200: "Done",
                                                                           201: "Done", 204: None}),
    "OPTIONS " + WS + "/{}/uploads": ("What of tus is spoken", {204: None}),
    "POST " + WS + "/{}/uploads": ("Begin an upload (tus)", {201: None}),
    "HEAD " + WS + "/{}/uploads/{}": ("How far it is (tus)", {200: None}),
    "PATCH " + WS + "/{}/uploads/{}": ("The next bytes (tus)", {204: None}),
    "DELETE " + WS + "/{}/uploads/{}": ("End an upload (tus)", {204: None}),
    "POST /v1/import": ("Make a snapshot from an archive", {201: "Snapshot"}),
    "POST /v1/exports": ("Make an archive that is kept for a day", {201: "Export"}),
    "GET /v1/exports": ("List one's exports", {200: "Exports"}),
    "GET /v1/exports/{}": ("An export's bytes", {200: BYTES, 206: BYTES}),
    "HEAD /v1/exports/{}": ("An export's head", {200: None, 206: None}),
    "DELETE /v1/exports/{}": ("Delete an export", {204: None}),
    "GET " + SNAP: ("List snapshots", {200: "Snapshots"}),
    "GET " + SNAP + "/{}": ("One snapshot", {200: "Snapshot"}),
    "PATCH " + SNAP + "/{}": ("Change a snapshot", {200: "Snapshot"}),
    "DELETE " + SNAP + "/{}": ("Delete a snapshot", {204: None}),
    "POST " + SNAP + "/{}/commit": ("Commit a checkout's snapshot", {200: "Commit",
                                                                   201: "Commit"}),
    "GET " + SNAP + "/{}/bundle": ("Its changes as a git bundle", {200: BYTES, 204: None}),
    "GET " + SNAP + "/{}/diff": ("What changed", {200: [lines("DiffLine"), TEXT]}),
    "GET " + SNAP + "/{}/diff/{}": ("What changed since another one",
                                    {200: [lines("DiffLine"), TEXT]}),
    "GET " + SNAP + "/{}/log": ("It and its line of parents", {200: "Snapshots"}),
    "GET " + SNAP + "/{}/archive/{...}": ("A folder as an archive", {200: BYTES}),
    "POST " + SNAP + "/{}/archive/{...}": ("The rest of it, without what is listed", {200: BYTES}),
    "GET " + SNAP + "/{}/files/{...}": ("A file, or a folder's list", {200: [BYTES, "Looked"],
                                                                     206: BYTES, 304: None}),
    "HEAD " + SNAP + "/{}/files/{...}": ("The same without a body", {200: None, 206: None,
                                                                    304: None}),
    "GET " + REPO: ("List repositories", {200: "Repositories"}),
    "POST " + REPO: ("Mirror a repository", {201: "Repository"}),
    "POST " + REPO + "/import": ("Take a repository's files", {201: "Repository"}),
    "GET " + REPO + "/{}": ("One repository", {200: "Repository"}),
    "DELETE " + REPO + "/{}": ("Delete a mirror", {204: None}),
    "POST " + REPO + "/{}/fetch": ("Bring a mirror up to date", {200: "Repository"}),
    "POST " + REPO + "/{}/reset": ("Put a branch to where upstream's is", {200: "Reset"}),
    "POST " + REPO + "/{}/import": ("Take its files again", {200: "Repository"}),
    "GET " + REPO + "/{}/packs": ("Which packs were taken", {200: "Names"}),
    "GET " + SB: ("List sandboxes", {200: "Sandboxes"}),
    "POST " + SB: ("Make a sandbox, and start it", {201: "Sandbox"}),
    "GET " + SB + "/{}": ("One sandbox", {200: "Sandbox"}),
    "PATCH " + SB + "/{}": ("Change a sandbox", {200: "Sandbox"}),
    "DELETE " + SB + "/{}": ("Remove a sandbox", {204: None}),
    "POST " + SB + "/{}/start": ("Start it", {200: "Sandbox"}),
    "POST " + SB + "/{}/stop": ("End its processes", {200: "Sandbox"}),
    "POST " + SB + "/{}/kill": ("Send it a signal", {200: "Sandbox"}),
    "POST " + SB + "/{}/pause": ("Freeze it", {200: "Sandbox"}),
    "POST " + SB + "/{}/resume": ("Let it go on", {200: "Sandbox"}),
    "POST " + SB + "/{}/snapshots": ("Save it", {201: "SandboxSaved"}),
    "POST " + SB + "/{}/fork": ("Fork it", {201: "SandboxForks"}),
    "POST " + SB + "/{}/restore": ("Turn it back into what was saved", {200: "Sandbox"}),
    "POST " + SB + "/{}/workspaces": ("Attach a workspace", {201: "Sandbox"}),
    "DELETE " + SB + "/{}/workspaces/{}": ("Detach a workspace", {200: "Sandbox", 204: None}),
    "GET " + SB + "/{}/stats": ("What it uses", {200: "SandboxStats"}),
    "POST " + SB + "/{}/exec": ("Start a process in it", {201: "Exec"}),
    "GET " + SB + "/{}/exec": ("List its processes", {200: "Execs"}),
    "GET " + SB + "/{}/exec/{}": ("One process", {200: "Exec"}),
    "GET " + SB + "/{}/exec/{}/output": ("What it printed, and prints",
                                          {200: ["application/vnd.bough.output", BYTES]}),
    "GET " + SB + "/{}/exec/{}/terminal": ("Its terminal, as a WebSocket (bough.terminal.v1)",
                                            {101: None}),
    "POST " + SB + "/{}/exec/{}/stdin": ("Give it input", {200: "Input"}),
    "POST " + SB + "/{}/exec/{}/signal": ("Send it a signal", {204: None}),
    "POST " + SB + "/{}/exec/{}/resize": ("Resize its terminal", {204: None}),
    "GET " + SB + "/{}/files/{...}": ("A file, or a folder's list", {200: [BYTES, "Looked"],
                                                                   206: BYTES, 304: None}),
    "HEAD " + SB + "/{}/files/{...}": ("The same without a body", {200: None, 206: None,
                                                                  304: None}),
    "PUT " + SB + "/{}/files/{...}": ("Write a file", {200: "Put", 201: "Put"}),
    "DELETE " + SB + "/{}/files/{...}": ("Remove a file or folder", {204: None}),
    "POST " + SB + "/{}/files/{...}": ("Make, move, copy, link, chmod, sign", {200: "Done",
                                                                           201: "Done", 204: None}),
    "GET " + SB + "/{}/archive/{...}": ("A folder as an archive", {200: BYTES}),
    "POST " + SB + "/{}/archive/{...}": ("The rest of it, without what is listed", {200: BYTES}),
    "PUT " + SB + "/{}/archive/{...}": ("Extract an archive", {200: "Extracted"}),
    "POST " + SB + "/{}/batch": ("Change many files of one workspace, all or none",
                                 {200: "Batch"}),
    "GET " + SB + "/{}/watch": ("What happens to its files, as it does",
                              {200: lines("Happened", SSE)}),
    "OPTIONS " + SB + "/{}/uploads": ("What of tus is spoken", {204: None}),
    "POST " + SB + "/{}/uploads": ("Begin an upload (tus)", {201: None}),
    "HEAD " + SB + "/{}/uploads/{}": ("How far it is (tus)", {200: None}),
    "PATCH " + SB + "/{}/uploads/{}": ("The next bytes (tus)", {204: None}),
    "DELETE " + SB + "/{}/uploads/{}": ("End an upload (tus)", {204: None}),
    "GET /v1/whoami": ("Who the caller is", {200: "Whoami"}),
    "GET /v1/tokens": ("List tokens", {200: "Tokens"}),
    "POST /v1/tokens": ("Make a token", {201: "Token"}),
    "DELETE /v1/tokens/{}": ("Make a token invalid", {204: None}),
    "GET /v1/users": ("List users", {200: "Users"}),
    "POST /v1/users": ("Add a user", {201: "User"}),
    "DELETE /v1/users/{}": ("Delete a user", {204: None}),
    "GET /v1/quotas": ("List quotas", {200: "Quotas"}),
    "GET /v1/quotas/{}": ("What an owner may have", {200: "Quota"}),
    "PUT /v1/quotas/{}": ("Say what an owner may have", {200: "Quota"}),
    "DELETE /v1/quotas/{}": ("Take a quota away", {204: None}),
    "GET /v1/teams": ("List teams", {200: "Teams"}),
    "POST /v1/teams": ("Make a team", {201: "Team"}),
    "GET /v1/teams/{}": ("One team", {200: "Team"}),
    "DELETE /v1/teams/{}": ("Delete a team", {204: None}),
    "PUT /v1/teams/{}/members/{}": ("Add somebody to a team", {200: "Team"}),
    "DELETE /v1/teams/{}/members/{}": ("Take somebody out", {204: None}),
    "GET /metrics": ("Figures for Prometheus", {200: TEXT}),
    "GET /v1/audit": ("Who did what", {200: ["Audits", lines("Audit")]}),
    "GET /v1/usage": ("What each of them holds alone", {200: "Usage"}),
    "GET /v1/events": ("What happens, as it does", {200: lines("Event", SSE)}),
    "GET /v1/webhooks": ("List webhooks", {200: "Webhooks"}),
    "POST /v1/webhooks": ("Have events sent somewhere", {201: "Webhook"}),
    "GET /v1/webhooks/{}": ("One webhook", {200: "Webhook"}),
    "PATCH /v1/webhooks/{}": ("Change a webhook", {200: "Webhook"}),
    "DELETE /v1/webhooks/{}": ("Remove a webhook", {204: None}),
    "POST /v1/webhooks/{}/test": ("Send it a ping", {202: "Delivery"}),
    "GET /v1/webhooks/{}/deliveries": ("What was sent, and how it went", {200: "Deliveries"}),
    "GET /v1/jobs": ("List jobs", {200: "Jobs"}),
    "GET /v1/jobs/{}": ("One job", {200: "Job"}),
    "POST /v1/jobs/{}/cancel": ("Ask a job to end", {202: "Job"}),
    "POST /v1/gc": ("Free what nothing refers to", {200: "Collected"}),
    "POST /v1/fsck": ("Prove that all is whole", {200: "Checked"}),
    "GET /v1/stats": ("Counters", {200: "Stats"}),
    "POST /v1/shutdown": ("Unmount all and end", {200: "Ended"}),
}
# Calls that may run as a job, with `Prefer: respond-async`.
JOBS = {"/snapshots", "/commit", "/push", "/fetch", "/gc", "/fsck", "/v1/repos", "/v1/import",
        "/v1/workspaces/import", "/v1/exports"}
# Beside jobs and uploads those that tell how far they are, in lines, to who accepts them.
LONG = {"POST " + WS, "GET /v1/usage"}
# Whose body or query names something.
NAMING = {"POST " + WS, "POST " + WS + "/import", "POST " + SB, "POST /v1/tokens",
          "POST /v1/exports", "GET /v1/audit", "GET " + SNAP, "POST /v1/import", "POST /v1/users"}
PARAMS = {"sandboxes": "sandbox", "exec": "exec", "workspaces": "ws", "snapshots": "snap",
          "repos": "repo", "tokens": "id", "users": "name", "quotas": "owner", "teams": "team",
          "members": "owner", "jobs": "id", "webhooks": "id", "uploads": "up",
          "exports": "id", "signed": "id", "diff": "other"}
TYPES = {"string": S, "number": N, "bool": B, "strings": {"type": "array", "items": S},
         "labels": LABELS, "object": ANY, "objects": {"type": "array", "items": ANY}}
MANY = {"label"}
NUMBERS = {"limit", "wait", "offset", "stdin_offset", "stdout_offset", "stderr_offset", "max_bytes",
           "max_inodes"}


def template(path):
    parts = path.split("/")
    for i, part in enumerate(parts):
        if part == "{}":
            parts[i] = "{%s}" % PARAMS[parts[i - 1]]
        elif part == "{...}":
            parts[i] = "{path}"
    return "/".join(parts)


def body_of(route):
    if route["upload"]:
        kind = BODIES.get(route["method"] + " " + route["path"])
        content = ({"application/json": {"schema": ref(kind)}, "multipart/form-data": {}} if kind
                   else {BYTES: {}})
        return {"content": content, "required": True}
    if route["fields"] is None:
        return None
    props, needed = {}, []
    for f in route["fields"]:
        schema = dict(TYPES[f["type"]])
        if f["max"]:
            schema["maxItems" if f["type"] == "strings" else "maxLength"] = f["max"]
        props[f["name"]] = schema
        if f["needed"]:
            needed.append(f["name"])
    schema = {"type": "object", "properties": props, "additionalProperties": False}
    if needed:
        schema["required"] = needed
    return {"content": {"application/json": {"schema": schema}}, "required": bool(needed)}


def query_of(field):
    """A field of an upload, whose body is no JSON: one of the query."""
    if field["type"] == "labels":
        return {"name": "label", "in": "query", "schema": {"type": "array", "items": S}}
    schema = dict(TYPES[field["type"]])
    if field["max"]:
        schema["maxLength"] = field["max"]
    return {"name": field["name"], "in": "query", "required": field["needed"], "schema": schema}


def answer(kinds):
    if kinds is None:
        return {"description": "nothing"}
    content = {}
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if isinstance(kind, tuple):
            content[kind[0]] = {"schema": ref(kind[1])}
        elif "/" in kind:
            content[kind] = {}
        else:
            content["application/json"] = {"schema": ref(kind)}
    return {"description": "done", "content": content}


def errors_of(method, path):
    """Which statuses a failure may have, beside 405, 414, 431 and 505, which no route answers."""
    tail = path.split("/")[3:]
    e = {400, 401, 403, 429, 500, 503}
    if "{" in path or method + " " + path in NAMING:
        e |= {404, 409}
    if method in ("POST", "PUT", "PATCH"):
        e |= {409, 413, 415}
    if method not in ("GET", "HEAD", "OPTIONS"):
        e |= {409, 507}
    if "{" in path:
        e.add(507)  # to read, a workspace may have to be sealed
    if path == "/v1/usage" or method + " " + path == "DELETE " + SNAP + "/{}":
        e.add(413)  # of what there is
    if method == "POST":
        e.add(422)
    if "files" in tail or "signed" in path:
        e |= {412, 416} if method in ("GET", "HEAD") else {412, 501}
    if "archive" in tail and method == "PUT" or "batch" in tail:
        e |= {412, 501}
    if "uploads" in tail:
        e |= {409, 410, 412, 423, 460} if "{}" in tail[-1] else {412}
    if "watch" in tail or path == "/v1/events" or "signed" in path:
        e.add(410)
    if path == "/v1/exports/{}" or "exec" in tail:
        e.add(416)
    if tail[-1:] == ["terminal"]:
        e.add(426)
    if method == "POST" and (path == REPO or tail[-1:] in (["fetch"], ["push"])):
        e.add(502)
    return sorted(e)


def headers_of(method, path):
    """Which headers of a request the handler looks at."""
    part = ["If-Range", "Range"]
    conditions = ["If-Match", "If-None-Match"]
    tus = ["Tus-Resumable"]
    if "/files/" in path or "/signed/" in path:
        return {"GET": ["Accept-Encoding", *conditions, *part, "Want-Content-Digest",
                        "Want-Repr-Digest"],
                "PUT": ["Content-Digest", "Content-Encoding", *conditions, "Repr-Digest"],
                "DELETE": conditions}.get("GET" if method == "HEAD" else method, [])
    if "/uploads" in path and method != "OPTIONS":
        return tus + {"POST": ["Upload-Length", "Upload-Metadata"],
                      "PATCH": ["Upload-Checksum", "Upload-Offset"]}.get(method, [])
    if path.endswith("/watch") or path == "/v1/events":
        return ["Last-Event-ID"]
    return part if path == "/v1/exports/{}" and method != "DELETE" else []


def headers_sent(method, path, status):
    """Those of an answer that went well, beside HTTP's own."""
    reads = method in ("GET", "HEAD")
    if status == 202:
        return ["Location"]
    if ("/files/" in path or "/signed/" in path) and reads:
        h = ["ETag", "Vary"]
        h += ["Accept-Ranges", "Content-Digest", "Last-Modified", "Repr-Digest"] * (status != 304)
        h += ["Content-Encoding"] * (status == 200) + ["Content-Range"] * (status == 206)
        return h + ["Cache-Control", "Referrer-Policy"] * ("/signed/" in path)
    if "/files/" in path and (method == "PUT" or method == "POST" and SNAP not in path):
        return ["ETag"] * (status != 204)
    if path == "/v1/exports/{}" and reads:
        return ["Accept-Ranges", "Content-Disposition", "ETag"] + ["Content-Range"] * (status == 206)
    if "/uploads" in path:
        return ["Tus-Resumable", "Tus-Version"] + (
            ["Tus-Checksum-Algorithm", "Tus-Extension"] if method == "OPTIONS" else
            ["Cache-Control"] + ["Upload-Expires", "Upload-Length", "Upload-Offset"] *
            (method != "DELETE") + ["Location"] * (method == "POST"))
    return ["Cache-Control"] * (path.endswith("/watch") or path == "/v1/events")


def with_headers(answer, names):
    if names:
        answer["headers"] = {name: {"schema": S} for name in names}
    return answer


def operation(route):
    key = route["method"] + " " + route["path"]
    if key not in ANSWERS:
        sys.exit("openapi.py: say in ANSWERS what %s answers" % key)
    summary, answers = ANSWERS[key]
    path = template(route["path"])
    params = [{"name": p[1:-1], "in": "path", "required": True, "schema": S}
              for p in path.split("/") if p.startswith("{")]
    params += [{"name": q, "in": "query", "schema": {"type": "array", "items": S} if q in MANY
                else B if q in route["flags"] else N if q in NUMBERS else S}
               for q in route["query"]]
    if route["upload"]:
        params += [query_of(f) for f in route["fields"] or []]
    params += [{"name": h, "in": "header", "schema": S}
               for h in headers_of(route["method"], route["path"])]
    if route["method"] == "POST":
        params.append({"$ref": "#/components/parameters/IdempotencyKey"})
    responses = {str(status): answer(kinds) for status, kinds in answers.items()}
    job = route["method"] == "POST" and any(route["path"].endswith(j) for j in JOBS)
    sends_list = route["method"] == "POST" and "/archive/" in route["path"]
    if job or key in LONG or (route["upload"] and not sends_list):
        told = responses.setdefault("200", answer([]))
        told.setdefault("content", {}).update(answer(lines("Line"))["content"])
    if job:
        params.append({"$ref": "#/components/parameters/Prefer"})
        responses["202"] = answer("Job")
    for status in responses:
        sent = headers_sent(route["method"], route["path"], int(status))
        sent += ["Idempotency-Replayed"] * (route["method"] == "POST")
        with_headers(responses[status], sent)
    for status in errors_of(route["method"], route["path"]):
        responses[str(status)] = {"$ref": "#/components/responses/%d" % status}
    op = {"summary": summary, "parameters": params, "responses": responses}
    body = body_of(route)
    if body:
        op["requestBody"] = body
    return path, route["method"].lower(), op


def failure(status):
    schema = {"allOf": [ref("Error"), obj({"code": {"enum": list(ERRORS[status])}}, closed=False)]}
    return {"description": "a failure: " + " or ".join(ERRORS[status]),
            "content": {"application/json": {"schema": schema}}}


def text(v, indent="", key=""):
    """JSON; what fits on a line stands on one."""
    line = indent + key + json.dumps(v, sort_keys=True)
    if len(line) < 100 or not isinstance(v, (dict, list)):
        return line
    deeper = indent + " "
    inner = ([text(v[k], deeper, json.dumps(k) + ": ") for k in sorted(v)] if isinstance(v, dict)
             else [text(one, deeper) for one in v])
    first, last = "{}" if isinstance(v, dict) else "[]"
    return indent + key + first + "\n" + ",\n".join(inner) + "\n" + indent + last


def main():
    paths = {}
    routes = json.load(sys.stdin)
    for route in routes:
        path, method, op = operation(route)
        paths.setdefault(path, {})[method] = op
    known = {r["method"] + " " + r["path"] for r in routes}
    for key in ANSWERS:
        if key not in known:
            sys.exit("openapi.py: there is no route %s" % key)
    header = {"in": "header", "schema": S}
    doc = {
        "openapi": "3.1.0",
        "info": {"title": "Bough", "version": "1",
                 "description": "Workspaces and snapshots. snapd/API.md says what it means. A "
                                "method that a path hasn't is 405; what is no HTTP, or too large "
                                "a head, 400, 413, 414, 431 or 505."},
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "parameters": {
                "IdempotencyKey": {"name": "Idempotency-Key", **header},
                "Prefer": {"name": "Prefer", **header},
            },
            "responses": {str(status): failure(status) for status in ERRORS},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    print(text(doc))


main()
