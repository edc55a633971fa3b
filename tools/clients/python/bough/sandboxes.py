"""Sandboxes: containers on workspaces, and what runs in them."""

from __future__ import annotations

import json
import os
import struct
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union, cast

from ._http import Body, Source
from ._transport import FIRST_WAIT_S, LONGEST_WAIT_S, FilePath, Progress, Transport
from .errors import AnswerCut, BadAnswer, ConnectionFailed, NotFound
from .events import EventStream
from .files import WorkspaceFiles
from .jobs import Job
from .terminal import Terminal
from .types import ExecInfo, InputInfo, SandboxInfo, SandboxSavedInfo, SandboxStatsInfo
from .uploads import Uploads
from .workspaces import PAGE, Labels, Workspace, labels_query, pages

ONE = "/v1/sandboxes/{sandbox}"
FRAME_MAX = 16 << 20  # ours have 128 KiB
STREAMS = {1: "stdout", 2: "stderr"}
END = 4


def exactly(body: Body, n: int) -> bytes:
    parts = []
    while n > 0:
        data = body.read(n)
        if not data:
            raise AnswerCut("the output broke off")
        parts.append(data)
        n -= len(data)
    return b"".join(parts)


class SandboxFiles(WorkspaceFiles):
    """As the sandbox sees them. A batch is of one workspace, or of the sandbox's root."""

    _file = ONE + "/files/{path}"
    _archive = ONE + "/archive/{path}"
    _batch = ONE + "/batch"
    _param = "sandbox"


class Exec:
    """A process in a sandbox. Its output is kept: it can be read from any offset, and again."""

    def __init__(self, transport: Transport, sandbox: str, info: Any) -> None:
        self._t, self.sandbox = transport, sandbox
        self.info = cast(ExecInfo, info)

    def __repr__(self) -> str:
        return f"Exec({self.id!r})"

    @property
    def id(self) -> str:
        return self.info["id"]

    @property
    def _at(self) -> Dict[str, FilePath]:
        return {"sandbox": self.sandbox, "exec": self.id}

    def refresh(self, wait_s: int = 0) -> ExecInfo:
        """Asks for it, and waits up to so many seconds for its end."""
        self.info = cast(ExecInfo, self._t.call("GET", ONE + "/exec/{exec}", self._at,
                                                query={"wait": wait_s or None}))
        return self.info

    def output(self, stream: Optional[str] = None, *, follow: bool = False,
               stdout_offset: Optional[int] = None,
               stderr_offset: Optional[int] = None) -> Body:
        """What it wrote: of one `stream` ("stdout", "stderr"), or of both, in frames. `follow`
        waits for what it will write."""
        return self._t.open("GET", ONE + "/exec/{exec}/output", self._at, query={
            "stream": stream, "follow": follow, "stdout_offset": stdout_offset,
            "stderr_offset": stderr_offset})

    def stream(self, stdout_offset: int = 0,
               stderr_offset: int = 0) -> Iterator[Tuple[str, bytes]]:
        """What it writes from there on, as ("stdout" or "stderr", bytes), until it has ended: then
        `info` has its exit_code and reason. A connection that breaks is made again, and goes on at
        its byte."""
        at = {1: stdout_offset, 2: stderr_offset}
        wait = FIRST_WAIT_S
        while True:
            try:
                with self.output(follow=True, stdout_offset=at[1], stderr_offset=at[2]) as body:
                    while True:
                        kind, size, offset = struct.unpack("!B3xIQ", exactly(body, 16))
                        if size > FRAME_MAX:
                            raise BadAnswer("a frame of %d bytes" % size)
                        data = exactly(body, size)
                        wait = FIRST_WAIT_S
                        if kind in at:
                            at[kind] = offset + size
                            yield STREAMS[kind], data
                        elif kind == END:
                            self.info.update(json.loads(data))
                            return
            except ConnectionFailed:
                if wait > LONGEST_WAIT_S:
                    raise
            time.sleep(wait)
            wait *= 2

    def write(self, data: Source, *, offset: Optional[int] = None,
              last: bool = False) -> InputInfo:
        """To its stdin; with `offset` (bytes that were sent before) nothing comes twice."""
        return cast(InputInfo, self._t.call(
            "POST", ONE + "/exec/{exec}/stdin", self._at, body=data,
            query={"offset": offset, "last": last}))

    def terminal(self, offset: int = 0) -> Terminal:
        """Its terminal, where it was started with `tty`: input, output from that offset on."""
        return Terminal(self._t, ONE + "/exec/{exec}/terminal", self._at, offset)

    def resize(self, columns: int, rows: int) -> None:
        self._t.call("POST", ONE + "/exec/{exec}/resize", self._at,
                     json_body={"columns": columns, "rows": rows})

    def signal(self, signal: str) -> None:
        self._t.call("POST", ONE + "/exec/{exec}/signal", self._at, json_body={"signal": signal})


class Sandbox(Uploads):
    """One sandbox, by its id or name."""

    _uploads = "sandboxes"

    def __init__(self, transport: Transport, ref: str,
                 info: Optional[SandboxInfo] = None) -> None:
        self._t, self.ref, self._info = transport, ref, info
        self.files = SandboxFiles(transport, ref)

    def __repr__(self) -> str:
        return f"Sandbox({self.ref!r})"

    @property
    def _at(self) -> Dict[str, FilePath]:
        return {"sandbox": self.ref}

    @property
    def info(self) -> SandboxInfo:
        return self._info if self._info is not None else self.refresh()

    @property
    def id(self) -> str:
        return self.info["id"]

    def _is(self, info: Any) -> SandboxInfo:
        self._info = cast(SandboxInfo, info)
        return self._info

    def _post(self, what: str, body: Optional[Mapping[str, Any]] = None) -> SandboxInfo:
        return self._is(self._t.call("POST", ONE + "/" + what, self._at, json_body=body or {}))

    def refresh(self) -> SandboxInfo:
        return self._is(self._t.call("GET", ONE, self._at))

    def update(self, **fields: Any) -> SandboxInfo:
        """name, description, labels, add_labels, remove_labels, visibility, team, ttl_s,
        on_expiry"""
        return self._is(self._t.call("PATCH", ONE, self._at, json_body=fields))

    def delete(self, *, force: bool = False, workspaces: bool = False) -> None:
        """force: also one that runs; workspaces: with those that were made for it."""
        self._t.call("DELETE", ONE, self._at, query={"force": force, "workspaces": workspaces})

    def start(self, **fields: Any) -> SandboxInfo:
        """secrets, secret_env"""
        return self._post("start", fields)

    def stop(self, *, grace_ms: Optional[int] = None) -> SandboxInfo:
        return self._post("stop", {"grace_ms": grace_ms})

    def kill(self, signal: Optional[str] = None) -> SandboxInfo:
        return self._post("kill", {"signal": signal})

    def pause(self) -> SandboxInfo:
        return self._post("pause")

    def resume(self) -> SandboxInfo:
        return self._post("resume")

    def watch(self, path: FilePath = "", *, recursive: bool = False,
              since: Optional[str] = None) -> EventStream:
        """What happens to files, as Workspace.watch: of the workspace that the path lies on, or the
        root."""
        return EventStream(self._t, ONE + "/watch", self._at, {
            "path": os.fsdecode(path) or None, "recursive": recursive}, since)

    def stats(self) -> SandboxStatsInfo:
        return cast(SandboxStatsInfo, self._t.call("GET", ONE + "/stats", self._at))

    def fork(self, *names: str, start: Optional[bool] = None) -> "List[Sandbox]":
        answer = self._t.call("POST", ONE + "/fork", self._at,
                              json_body={"names": list(names), "start": start})
        return [Sandbox(self._t, one["id"], one) for one in answer["items"]]

    def save(self, name: Optional[str] = None, *, message: Optional[str] = None,
             progress: Optional[Progress] = None) -> SandboxSavedInfo:
        return cast(SandboxSavedInfo, self._t.long(
            ONE + "/snapshots", self._at, json_body={"name": name, "message": message},
            progress=progress))

    def save_job(self, name: Optional[str] = None, *, message: Optional[str] = None) -> Job:
        return Job(self._t, self._t.job(ONE + "/snapshots", self._at,
                                        json_body={"name": name, "message": message}))

    def restore(self, snapshot: Optional[str] = None, *,
                live: Optional[bool] = None) -> SandboxInfo:
        return self._post("restore", {"snapshot": snapshot, "live": live})

    # -- workspaces in it

    def attach(self, workspace: "Union[str, Workspace]", target: str, *,
               read_only: Optional[bool] = None, exclusive: Optional[bool] = None) -> SandboxInfo:
        ref = workspace if isinstance(workspace, str) else workspace.ref
        return self._post("workspaces", {"workspace": ref, "target": target,
                                         "read_only": read_only, "exclusive": exclusive})

    def detach(self, workspace: "Union[str, Workspace]", *, target: Optional[str] = None,
               force: bool = False) -> SandboxInfo:
        ref = workspace if isinstance(workspace, str) else workspace.ref
        return self._is(self._t.call("DELETE", ONE + "/workspaces/{ws}", {**self._at, "ws": ref},
                                     query={"target": target, "force": force}))

    # -- processes in it

    def exec(self, command: Sequence[str], **fields: Any) -> Exec:
        """Starts a process: cwd, env, user, tty, rows, columns, stdin, timeout_ms."""
        return Exec(self._t, self.ref, self._t.call(
            "POST", ONE + "/exec", self._at, json_body={"command": list(command), **fields}))

    def execs(self, *, page: int = PAGE) -> Iterator[Exec]:
        for one in pages(self._t, ONE + "/exec", {}, page, self._at):
            yield Exec(self._t, self.ref, one)

    def get_exec(self, id: str) -> Exec:
        one = Exec(self._t, self.ref, {"id": id})
        one.refresh()
        return one


class Sandboxes:
    def __init__(self, transport: Transport) -> None:
        self._t = transport

    def __call__(self, ref: str) -> Sandbox:
        """One by its id or name, without asking whether it is there."""
        return Sandbox(self._t, ref)

    def list(self, *, labels: Union[None, Labels, Sequence[str]] = None,
             status: Optional[str] = None, page: int = PAGE) -> Iterator[Sandbox]:
        for one in pages(self._t, "/v1/sandboxes",
                         {"label": labels_query(labels), "status": status}, page):
            yield Sandbox(self._t, one["id"], cast(SandboxInfo, one))

    def get(self, ref: str) -> Sandbox:
        one = Sandbox(self._t, ref)
        return Sandbox(self._t, one.refresh()["id"], one.info)

    def create(self, name: Optional[str] = None, *, key: Optional[str] = None,
               **fields: Any) -> Sandbox:
        """image, command, env, workspaces, runtime, memory_bytes, net … (snapd/API.md)"""
        info = self._t.call("POST", "/v1/sandboxes", key=key, json_body={"name": name, **fields})
        return Sandbox(self._t, info["id"], info)

    @contextmanager
    def temporary(self, name: Optional[str] = None, **fields: Any) -> Iterator[Sandbox]:
        """As create; it is deleted, with all that runs in it, at the end of the `with`."""
        box = self.create(name, **fields)
        try:
            yield box
        finally:
            try:
                box.delete(force=True)
            except NotFound:
                pass
