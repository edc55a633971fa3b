"""Workspaces and snapshots."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import (Any, BinaryIO, Dict, Iterator, List, Mapping, Optional, Sequence,
                    Tuple, Union, cast)

from . import uploads
from ._http import Body, Source
from ._transport import FilePath, Progress, Query, Transport
from .errors import NotFound, error_of
from .events import EventStream
from .files import SnapshotFiles, WorkspaceFiles
from .jobs import Job
from .types import CommitInfo, DiffEntry, MergeInfo, PushedInfo, SnapshotInfo, WorkspaceInfo

PAGE = 200
Labels = Mapping[str, str]


def pages(transport: Transport, template: str, query: Query, page: int,
          params: Optional[Mapping[str, FilePath]] = None) -> Iterator[Dict[str, Any]]:
    """What a list has, page by page as it is asked for."""
    cursor: Optional[str] = None
    while True:
        answer = transport.call("GET", template, params,
                                query={**query, "limit": page, "cursor": cursor})
        yield from answer["items"]
        cursor = answer.get("next")
        if cursor is None:
            return


def labels_query(labels: Union[None, Labels, Sequence[str]]) -> Optional[List[str]]:
    """{"a": "b"} is a=b; a list has keys that are there with any value."""
    if labels is None:
        return None
    if isinstance(labels, Mapping):
        return [f"{k}={v}" for k, v in labels.items()]
    return list(labels)


def _begun(name: str, labels: Optional[Labels], fields: Mapping[str, Any]) -> Dict[str, Any]:
    """The query of a workspace that begins with an archive."""
    said = {k: int(v) if isinstance(v, bool) else v for k, v in fields.items()}
    return {"name": name, "label": labels_query(labels), **said}


class Snapshot:
    """One snapshot, by its id, a beginning of it, or a name. `info` is what was last heard of it,
    and is asked for when nothing was."""

    def __init__(self, transport: Transport, ref: str, info: Optional[SnapshotInfo] = None) -> None:
        self._t, self.ref, self._info = transport, ref, info
        self.files = SnapshotFiles(transport, ref)

    def __repr__(self) -> str:
        return f"Snapshot({self.ref!r})"

    @property
    def _at(self) -> Dict[str, FilePath]:
        return {"snap": self.ref}

    @property
    def info(self) -> SnapshotInfo:
        return self._info if self._info is not None else self.refresh()

    @property
    def id(self) -> str:
        return self.info["id"]

    def _is(self, info: Any) -> SnapshotInfo:
        self._info = cast(SnapshotInfo, info)
        return self._info

    def refresh(self) -> SnapshotInfo:
        return self._is(self._t.call("GET", "/v1/snapshots/{snap}", self._at))

    def update(self, **fields: Any) -> SnapshotInfo:
        """message, add_names, remove_names, labels, visibility, team, ttl_s, on_expiry"""
        return self._is(self._t.call("PATCH", "/v1/snapshots/{snap}", self._at, json_body=fields,
                                     safe="remove_names" not in fields))

    def delete(self, *, cascade: bool = False, force: bool = False) -> None:
        """cascade: with all that were made from it; force: alone, and those stand on its parent."""
        self._t.call("DELETE", "/v1/snapshots/{snap}", self._at,
                     query={"cascade": cascade, "force": force})

    def log(self, *, page: int = PAGE) -> Iterator[Snapshot]:
        """It and its line of parents, newest first."""
        for one in pages(self._t, "/v1/snapshots/{snap}/log", {}, page, self._at):
            yield Snapshot(self._t, one["id"], cast(SnapshotInfo, one))

    def _diff(self, against: Optional[str]) -> Tuple[str, Dict[str, FilePath]]:
        if against is None:
            return "/v1/snapshots/{snap}/diff", self._at
        return "/v1/snapshots/{snap}/diff/{other}", {**self._at, "other": against}

    def diff(self, against: Optional[str] = None, *,
             since: Optional[str] = None) -> Iterator[DiffEntry]:
        """What changed since its parent, or the one given."""
        return diff_entries(self._t, *self._diff(against), None, since)

    def diff_text(self, format: str = "patch", against: Optional[str] = None, *,
                  since: Optional[str] = None) -> Body:
        """The same as "patch", "stat" or "name-status"."""
        return self._t.open("GET", *self._diff(against), query={"format": format, "since": since})

    def commit(self, message: str, *, progress: Optional[Progress] = None,
               **fields: Any) -> CommitInfo:
        """Of a checkout's: author, branch, squash, history, ignored."""
        return cast(CommitInfo, self._t.long("/v1/snapshots/{snap}/commit", self._at,
                                             json_body={"message": message, **fields},
                                             progress=progress))

    def bundle(self, *, message: Optional[str] = None, author: Optional[str] = None) -> Body:
        """A git bundle of its changes; empty (status 204) where there are none."""
        return self._t.open("GET", "/v1/snapshots/{snap}/bundle", self._at,
                            query={"message": message, "author": author})


class Workspace(uploads.Uploads):
    """One workspace, by its id or name. `info` is what was last heard of it, and is asked for when
    nothing was."""

    _uploads = "workspaces"

    def __init__(self, transport: Transport, ref: str,
                 info: Optional[WorkspaceInfo] = None) -> None:
        self._t, self.ref, self._info = transport, ref, info
        self.files = WorkspaceFiles(transport, ref)

    def __repr__(self) -> str:
        return f"Workspace({self.ref!r})"

    @property
    def _at(self) -> Dict[str, FilePath]:
        return {"ws": self.ref}

    @property
    def info(self) -> WorkspaceInfo:
        return self._info if self._info is not None else self.refresh()

    @property
    def id(self) -> str:
        return self.info["id"]

    @property
    def name(self) -> str:
        return self.info["name"]

    @property
    def path(self) -> str:
        """Where it is mounted, on boughd's machine."""
        return self.info["path"]

    def _is(self, info: Any) -> WorkspaceInfo:
        self._info = cast(WorkspaceInfo, info)
        return self._info

    def refresh(self) -> WorkspaceInfo:
        return self._is(self._t.call("GET", "/v1/workspaces/{ws}", self._at))

    def update(self, **fields: Any) -> WorkspaceInfo:
        """name, labels, add_labels, remove_labels, quota_bytes, quota_inodes, description,
        visibility, team, ttl_s, on_expiry"""
        return self._is(self._t.call("PATCH", "/v1/workspaces/{ws}", self._at, json_body=fields))

    def delete(self, *, purge: bool = False, force: bool = False) -> None:
        """It can be brought back for a while, unless it is purged: also when it was deleted
        before. force: also one that programs use, or sandboxes have."""
        self._t.call("DELETE", "/v1/workspaces/{ws}", self._at,
                     query={"purge": purge, "force": force})

    def undelete(self, name: Optional[str] = None) -> WorkspaceInfo:
        return self._is(self._t.call("POST", "/v1/workspaces/{ws}/undelete", self._at,
                                     json_body={"name": name}))

    def watch(self, path: FilePath = "", *, recursive: bool = False,
              since: Optional[str] = None) -> EventStream:
        """What happens to its files, from now on or behind the event `since`. An event `reset`
        says that its record began anew: list, and go on."""
        return EventStream(self._t, "/v1/workspaces/{ws}/watch", self._at, {
            "path": os.fsdecode(path) or None, "recursive": recursive}, since)

    def fork(self, *names: str, name: Optional[str] = None, count: Optional[int] = None,
             labels: Optional[Labels] = None, key: Optional[str] = None,
             **owned: Any) -> "List[Workspace]":
        """One fork for each name, or NAME-1 … NAME-COUNT. `owned`: visibility, team, ttl_s,
        on_expiry."""
        answer = self._t.call("POST", "/v1/workspaces/{ws}/fork", self._at, key=key, json_body={
            "names": list(names) or None, "name": name, "count": count, "labels": labels, **owned})
        return [Workspace(self._t, one["id"], one) for one in answer["items"]]

    def save(self, name: Optional[str] = None, *, message: Optional[str] = None,
             key: Optional[str] = None, progress: Optional[Progress] = None) -> Snapshot:
        """Where nothing changed this is the last snapshot, with `unchanged` in its info."""
        info = self._t.long("/v1/workspaces/{ws}/snapshots", self._at, key=key, progress=progress,
                            json_body={"name": name, "message": message})
        return Snapshot(self._t, info["id"], info)

    def save_job(self, name: Optional[str] = None, *, message: Optional[str] = None,
                 key: Optional[str] = None) -> Job:
        return Job(self._t, self._t.job("/v1/workspaces/{ws}/snapshots", self._at, key=key,
                                        json_body={"name": name, "message": message}))

    def restore(self, snapshot: Union[str, Snapshot]) -> WorkspaceInfo:
        ref = snapshot.ref if isinstance(snapshot, Snapshot) else snapshot
        return self._is(self._t.call("POST", "/v1/workspaces/{ws}/restore", self._at,
                                     json_body={"snapshot": ref}))

    def merge(self, source: "Union[str, Workspace, Snapshot]") -> MergeInfo:
        ref = source if isinstance(source, str) else source.ref
        return cast(MergeInfo, self._t.call("POST", "/v1/workspaces/{ws}/merge", self._at,
                                            json_body={"from": ref}))

    def mount(self) -> WorkspaceInfo:
        return self._is(self._t.call("POST", "/v1/workspaces/{ws}/mount", self._at, json_body={}))

    def umount(self) -> WorkspaceInfo:
        return self._is(self._t.call("POST", "/v1/workspaces/{ws}/umount", self._at, json_body={}))

    def log(self, *, page: int = PAGE) -> Iterator[Snapshot]:
        """Its line of snapshots, newest first."""
        for one in pages(self._t, "/v1/workspaces/{ws}/log", {}, page, self._at):
            yield Snapshot(self._t, one["id"], cast(SnapshotInfo, one))

    def diff(self, against: Optional[str] = None, *,
             since: Optional[str] = None) -> Iterator[DiffEntry]:
        """What changed since its head, or what is given; of a checkout, since its commit."""
        return diff_entries(self._t, "/v1/workspaces/{ws}/diff", self._at, against, since)

    def diff_text(self, format: str = "patch", against: Optional[str] = None, *,
                  since: Optional[str] = None) -> Body:
        """The same as "patch", "stat" or "name-status"."""
        return self._t.open("GET", "/v1/workspaces/{ws}/diff", self._at,
                            query={"against": against, "format": format, "since": since})

    # -- back to git, of checkouts

    def commit(self, message: Optional[str] = None, *, key: Optional[str] = None,
               progress: Optional[Progress] = None, **fields: Any) -> CommitInfo:
        """author, branch, squash, history, sync, ignored"""
        return cast(CommitInfo, self._t.long("/v1/workspaces/{ws}/commit", self._at, key=key,
                                             json_body={"message": message, **fields},
                                             progress=progress))

    def commit_job(self, message: Optional[str] = None, **fields: Any) -> Job:
        return Job(self._t, self._t.job("/v1/workspaces/{ws}/commit", self._at,
                                        json_body={"message": message, **fields}))

    def push(self, *, key: Optional[str] = None, progress: Optional[Progress] = None,
             **fields: Any) -> PushedInfo:
        """branch, remote, force_with_lease, any_names"""
        return cast(PushedInfo, self._t.long("/v1/workspaces/{ws}/push", self._at, key=key,
                                             json_body=fields, progress=progress))

    def push_job(self, **fields: Any) -> Job:
        return Job(self._t, self._t.job("/v1/workspaces/{ws}/push", self._at, json_body=fields))

    def bundle(self, *, message: Optional[str] = None, author: Optional[str] = None) -> Body:
        """A git bundle of its changes; empty (status 204) where there are none."""
        return self._t.open("GET", "/v1/workspaces/{ws}/bundle", self._at,
                            query={"message": message, "author": author})

    def resume(self, url: str, source: BinaryIO, *, piece: int = uploads.PIECE,
               patience: float = 60.0) -> uploads.Upload:
        """Goes on with an upload, of another process perhaps."""
        return self.resume_upload(url, source, piece=piece, patience=patience)


def diff_entries(transport: Transport, template: str, at: Mapping[str, FilePath],
                 against: Optional[str], since: Optional[str]) -> Iterator[DiffEntry]:
    with transport.open("GET", template, at, query={"against": against, "since": since}) as answer:
        for line in answer.lines():
            said = json.loads(line)
            if "error" in said and "kind" not in said:
                raise error_of(said["error"], 0)
            yield cast(DiffEntry, said)


class Workspaces:
    def __init__(self, transport: Transport) -> None:
        self._t = transport

    def __call__(self, ref: str) -> Workspace:
        """One by its id or name, without asking whether it is there."""
        return Workspace(self._t, ref)

    def __iter__(self) -> Iterator[Workspace]:
        return self.list()

    def list(self, *, labels: Union[None, Labels, Sequence[str]] = None, usage: bool = False,
             deleted: bool = False, page: int = PAGE) -> Iterator[Workspace]:
        """`deleted`: those that can be brought back."""
        for one in pages(self._t, "/v1/workspaces", {
                "label": labels_query(labels), "usage": usage, "deleted": deleted}, page):
            yield Workspace(self._t, one["id"], cast(WorkspaceInfo, one))

    def get(self, ref: str) -> Workspace:
        ws = Workspace(self._t, ref)
        return Workspace(self._t, ws.refresh()["id"], ws.info)

    def create(self, name: str, *, source: "Union[None, str, Workspace, Snapshot]" = None,
               git: Optional[Mapping[str, Any]] = None, labels: Optional[Labels] = None,
               mount: Optional[bool] = None, key: Optional[str] = None,
               progress: Optional[Progress] = None, **fields: Any) -> Workspace:
        """An empty one; a copy of a `source`; or a checkout: `git` is {"repo", "ref", "scopes",
        "depth", "branch", "seen_at"}. `fields`: quota_bytes, quota_inodes, xattrs, uid, gid, description,
        visibility, team, ttl_s, on_expiry."""
        ref = source if source is None or isinstance(source, str) else source.ref
        info = self._t.long("/v1/workspaces", key=key, progress=progress, json_body={
            "name": name, "from": ref, "git": git, "labels": labels, "mount": mount, **fields})
        return Workspace(self._t, info["id"], info)

    def create_from(self, name: str, archive: Source, *, labels: Optional[Labels] = None,
                    length: Optional[int] = None, key: Optional[str] = None,
                    progress: Optional[Progress] = None, **fields: Any) -> Workspace:
        """One that begins with an archive: tar, tar.gz, tar.zst, zip, cpio …; whole, or none is made.
        `fields` as in create, with `mount`."""
        info = self._t.long("/v1/workspaces/import", body=archive, length=length, key=key,
                            progress=progress, query=_begun(name, labels, fields))
        return Workspace(self._t, info["id"], info)

    def create_from_job(self, name: str, archive: Source, *, labels: Optional[Labels] = None,
                        length: Optional[int] = None, key: Optional[str] = None,
                        **fields: Any) -> Job:
        """The same once all is sent, as a job whose result is the workspace."""
        return Job(self._t, self._t.call(
            "POST", "/v1/workspaces/import", query=_begun(name, labels, fields), body=archive,
            length=length, key=key, headers={"Prefer": "respond-async"}))

    @contextmanager
    def temporary(self, name: str, **fields: Any) -> Iterator[Workspace]:
        """As create; it is deleted for good at the end of the `with`."""
        ws = self.create(name, **fields)
        try:
            yield ws
        finally:
            try:
                ws.delete(purge=True, force=True)
            except NotFound:
                pass


class Snapshots:
    def __init__(self, transport: Transport) -> None:
        self._t = transport

    def __call__(self, ref: str) -> Snapshot:
        """One by its id or name, without asking whether it is there."""
        return Snapshot(self._t, ref)

    def __iter__(self) -> Iterator[Snapshot]:
        return self.list()

    def list(self, *, workspace: Optional[str] = None,
             labels: Union[None, Labels, Sequence[str]] = None, image: bool = False,
             page: int = PAGE) -> Iterator[Snapshot]:
        """`image`: those of containers' images alone."""
        for one in pages(self._t, "/v1/snapshots", {
                "workspace": workspace, "label": labels_query(labels), "image": image}, page):
            yield Snapshot(self._t, one["id"], cast(SnapshotInfo, one))

    def get(self, ref: str) -> Snapshot:
        snap = Snapshot(self._t, ref)
        return Snapshot(self._t, snap.refresh()["id"], snap.info)

    def create(self, archive: Source, *, name: Optional[str] = None, message: Optional[str] = None,
               format: Optional[str] = None, max_bytes: Optional[int] = None,
               max_inodes: Optional[int] = None, length: Optional[int] = None,
               key: Optional[str] = None, progress: Optional[Progress] = None) -> Snapshot:
        """From an archive: tar, tar.gz, tar.zst, zip, cpio …"""
        info = self._t.long("/v1/import", body=archive, length=length, key=key, progress=progress,
                            query={"name": name, "message": message, "format": format,
                                   "max_bytes": max_bytes, "max_inodes": max_inodes})
        return Snapshot(self._t, info["id"], info)

    def create_job(self, archive: Source, *, name: Optional[str] = None,
                   message: Optional[str] = None, length: Optional[int] = None) -> Job:
        """The same once all is sent, as a job whose result is the snapshot."""
        return Job(self._t, self._t.call(
            "POST", "/v1/import", query={"name": name, "message": message}, body=archive,
            length=length, headers={"Prefer": "respond-async"}))
