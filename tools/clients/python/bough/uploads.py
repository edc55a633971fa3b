"""Uploads that go on where they were broken off: tus 1.0.0."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import time
from typing import BinaryIO, Callable, Dict, Optional, Union

from ._transport import FilePath, Transport
from .errors import ApiError, BadAnswer, BoughError, Conflict, ConnectionFailed

PIECE = 8 << 20
TUS = {"Tus-Resumable": "1.0.0"}
ALL = {"workspaces": ("/v1/workspaces/{ws}/uploads", "ws"),
       "sandboxes": ("/v1/sandboxes/{sandbox}/uploads", "sandbox")}


class Upload:
    """One upload. `url` is all that a later process needs: Workspace.resume(url, source), or
    the sandbox's."""

    def __init__(self, transport: Transport, url: str, length: Optional[int] = None) -> None:
        parts = url.rstrip("/").split("/")
        if len(parts) < 4 or parts[-2] != "uploads" or parts[-4] not in ALL:
            raise ValueError(f"{url}: no upload's address")
        self._t, self.url, self.length = transport, url, length
        all_of, param = ALL[parts[-4]]
        self._one = all_of + "/{up}"
        self._at: Dict[str, FilePath] = {param: parts[-3], "up": parts[-1]}

    def offset(self) -> int:
        """How many bytes have come."""
        with self._t.open("HEAD", self._one, self._at, headers=TUS) as answer:
            self.length = int(answer.headers.get("upload-length", self.length or 0))
            return int(answer.headers["upload-offset"])

    def cancel(self) -> None:
        self._t.call("DELETE", self._one, self._at, headers=TUS)

    def _patch(self, at: int, data: bytes) -> int:
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        headers = {**TUS, "Upload-Offset": str(at), "Upload-Checksum": f"sha256 {digest}",
                   "Content-Type": "application/offset+octet-stream"}
        with self._t.open("PATCH", self._one, self._at, headers=headers, body=data, safe=False) as answer:
            return int(answer.headers.get("upload-offset", at + len(data)))

    def send(self, source: BinaryIO, *, piece: int = PIECE, patience: float = 60.0,
             progress: Optional[Callable[[int, int], None]] = None) -> None:
        """Sends what is missing, in pieces with a checksum each, of which one is held in memory.
        The source stands where the upload does, or can be sought (then its beginning is the
        upload's). When a connection breaks off it asks how far the upload is and goes on, until
        nothing has come for `patience` seconds."""
        at = self.offset()
        assert self.length is not None
        if source.seekable():
            source.seek(at)
        data, first = b"", at  # the piece in hand, and where it begins
        waits, since = 0, time.monotonic()
        if at == self.length:
            self._finish()  # asks for what failed behind the last byte
            return
        while at < self.length:
            if at < first or (at > first + len(data)):
                raise BadAnswer(f"the upload is at {at}, the source at {first}")
            if at == first + len(data):
                first = at
                data = _read_full(source, min(piece, self.length - at))
                if not data:
                    raise ValueError(f"the source ends at {at} of {self.length} bytes")
            try:
                at = self._patch(at, data[at - first:])
                waits, since = 0, time.monotonic()
            except (ConnectionFailed, ApiError) as e:
                if not _passes(e) or time.monotonic() - since > patience:
                    raise
                time.sleep(min(0.1 * 2 ** waits, 5.0) * random.uniform(0.5, 1.0))
                waits += 1
                was, at = at, self._ask(at)
                if isinstance(e, ApiError) and e.code == "conflict" and was == at:
                    raise
                if at == self.length:
                    self._finish()
            if progress is not None:
                progress(at, self.length)

    def _finish(self) -> None:
        """All bytes are there; whether they became the file isn't known."""
        assert self.length is not None
        try:
            self._patch(self.length, b"")
        except Conflict as e:
            if not e.message.startswith("the upload is at byte"):
                raise

    def _ask(self, at: int) -> int:
        try:
            return self.offset()
        except ConnectionFailed:
            return at  # it will be asked again


def _passes(e: BoughError) -> bool:
    """The connection broke off, perhaps without the other side having noticed yet (`locked`), or a
    piece was damaged on its way (`checksum`), or more has come than we know of (`conflict`)."""
    return isinstance(e, ConnectionFailed) or (
        isinstance(e, ApiError) and e.code in ("locked", "checksum", "conflict", "unavailable"))


def _read_full(source: BinaryIO, n: int) -> bytes:
    parts = []
    while n > 0:
        data = source.read(n)
        if not data:
            break
        parts.append(data)
        n -= len(data)
    return b"".join(parts)


def _length_of(source: BinaryIO) -> int:
    at = source.tell()
    end = source.seek(0, os.SEEK_END)
    source.seek(at)
    return end


def create(transport: Transport, kind: str, of: str, path: FilePath, length: int,
           mode: Optional[str] = None) -> Upload:
    """`kind` is "workspaces" or "sandboxes"."""
    meta = "path " + base64.b64encode(os.fsencode(path).lstrip(b"/")).decode()
    if mode is not None:
        meta += ",mode " + base64.b64encode(mode.encode()).decode()
    headers = {**TUS, "Upload-Length": str(length), "Upload-Metadata": meta}
    template, param = ALL[kind]
    with transport.open("POST", template, {param: of}, headers=headers) as answer:
        return Upload(transport, answer.headers["location"], length)


def abilities(transport: Transport, kind: str, of: str) -> Dict[str, str]:
    template, param = ALL[kind]
    with transport.open("OPTIONS", template, {param: of}) as answer:
        return {k: v for k, v in answer.headers.items() if k.startswith("tus-")}


def upload(transport: Transport, kind: str, of: str,
           source: "Union[str, os.PathLike[str], BinaryIO]", path: FilePath, *, mode: Optional[str] = None, length: Optional[int] = None,
           piece: int = PIECE, patience: float = 60.0,
           progress: Optional[Callable[[int, int], None]] = None) -> Upload:
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as f:
            return upload(transport, kind, of, f, path, mode=mode, piece=piece, patience=patience,
                          progress=progress)
    if length is None:
        length = _length_of(source)
    up = create(transport, kind, of, path, length, mode)
    if length:
        up.send(source, piece=piece, patience=patience, progress=progress)
    return up


class Uploads:
    """What workspaces and sandboxes share."""

    _uploads: str
    _t: Transport
    ref: str

    def upload(self, source: "Union[str, os.PathLike[str], BinaryIO]", path: FilePath, *,
               mode: Optional[str] = None, length: Optional[int] = None,
               piece: int = PIECE, patience: float = 60.0,
               progress: Optional[Callable[[int, int], None]] = None) -> Upload:
        """A local file, or what is opened for reading (with `length` where it can't be sought),
        in pieces. It goes on after connections that break off."""
        return upload(self._t, self._uploads, self.ref, source, path, mode=mode, length=length,
                      piece=piece, patience=patience, progress=progress)

    def begin_upload(self, path: FilePath, length: int, *, mode: Optional[str] = None) -> Upload:
        return create(self._t, self._uploads, self.ref, path, length, mode)

    def resume_upload(self, url: str, source: BinaryIO, *, piece: int = PIECE,
                      patience: float = 60.0) -> Upload:
        """Goes on with an upload, of another process perhaps."""
        up = Upload(self._t, url)
        up.send(source, piece=piece, patience=patience)
        return up

    def upload_abilities(self) -> Dict[str, str]:
        return abilities(self._t, self._uploads, self.ref)
