"""Files of a workspace or snapshot."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import uuid
from typing import (Any, BinaryIO, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union,
                    cast)

from ._http import Body, Payload, Source
from ._transport import FilePath, Transport
from .errors import AnswerCut, BadAnswer, NotFound
from .types import EntryInfo, ExtractedInfo, PutInfo, SignedInfo

PAGE = 10000
INLINE = 64 << 10  # of a content: what is in the JSON of a batch
Results = List[Dict[str, Any]]


def entry_name(entry: EntryInfo) -> str:
    """A name as os.fsdecode gives it: what isn't UTF-8 has surrogates, and every path of this
    library takes it back."""
    if "name_b64" in entry:
        return os.fsdecode(base64.b64decode(entry["name_b64"]))
    return entry["name"]


def _field(name: str, value: FilePath) -> Dict[str, str]:
    """A path in a body: in base64 where it isn't UTF-8."""
    raw = os.fsencode(value)
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {name + "_b64": base64.b64encode(raw).decode()}


def _parts(operations: Sequence[Mapping[str, Any]]) -> Tuple[List[Dict[str, Any]],
                                                             List[Tuple[str, Any]]]:
    """The operations of a batch, and the contents that are parts of its form."""
    plain: List[Dict[str, Any]] = []
    parts: List[Tuple[str, Any]] = []
    for one in operations:
        operation = dict(one)
        for name in ("path", "to", "target"):
            if operation.get(name) is not None:
                operation.update(_field(name, operation.pop(name)))
        content = operation.get("content")
        if content is not None and not (isinstance(content, str) and len(content) <= INLINE):
            operation["part"] = "content-%d" % len(parts)
            del operation["content"]
            parts.append((operation["part"],
                          content.encode() if isinstance(content, str) else content))
        plain.append(operation)
    return plain, parts


def _form(boundary: str, parts: Sequence[Tuple[str, Any]]) -> Source:
    """In one piece, which can be sent once more, unless there are files in it."""
    def pieces() -> Iterator[bytes]:
        for name, content in parts:
            yield ("--%s\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\n" % (
                boundary, name)).encode()
            yield from Payload(content).blocks()
            yield b"\r\n"
        yield ("--%s--\r\n" % boundary).encode()
    if any(hasattr(content, "read") for _, content in parts):
        return pieces()
    return b"".join(pieces())


class SnapshotFiles:
    """Reading, which works without a mount."""

    _file = "/v1/snapshots/{snap}/files/{path}"
    _archive = "/v1/snapshots/{snap}/archive/{path}"
    _param = "snap"

    def __init__(self, transport: Transport, ref: str) -> None:
        self._t, self._ref = transport, ref

    def _at(self, path: FilePath) -> Dict[str, FilePath]:
        return {self._param: self._ref, "path": path}

    def open(self, path: FilePath, *, start: Optional[int] = None, end: Optional[int] = None,
             coding: Optional[str] = None, if_none_match: Optional[str] = None,
             digest: bool = False) -> Body:
        """A file's bytes, streamed: from `start`, up to but not including `end`; a negative start
        counts from the file's end. `coding` "gzip" leaves the decoding to the caller. With
        `if_none_match` (an ETag) its `status` may be 304, without bytes. `digest` asks for
        Repr-Digest in its headers. A directory raises
        IsADirectoryError: `list` reads it."""
        headers = {"Accept-Encoding": coding or "identity"}
        if start is not None or end is not None:
            first = start or 0
            if first < 0:
                headers["Range"] = f"bytes={first}"
            else:
                headers["Range"] = f"bytes={first}-" + ("" if end is None else str(end - 1))
        if if_none_match is not None:
            headers["If-None-Match"] = if_none_match
        if digest:
            headers["Want-Repr-Digest"] = "sha-256=1"
        answer = self._t.open("GET", self._file, self._at(path), headers=headers, ok=(304,))
        if answer.headers.get("content-type", "").startswith("application/json"):
            answer.close()
            raise IsADirectoryError(os.fsdecode(path))
        return answer

    def read(self, path: FilePath, *, start: Optional[int] = None,
             end: Optional[int] = None) -> bytes:
        with self.open(path, start=start, end=end) as answer:
            return answer.read()

    def read_text(self, path: FilePath, encoding: str = "utf-8") -> str:
        return self.read(path).decode(encoding)

    def download(self, path: FilePath, to: "Union[str, os.PathLike[str], BinaryIO]") -> str:
        """Into a local file, or what is opened for writing; the ETag. Where the connection
        breaks off, it goes on from there, as long as the file is the same."""
        if not isinstance(to, (str, os.PathLike)):
            return self._download(path, to)
        with open(to, "wb") as out:
            return self._download(path, out)

    def _download(self, path: FilePath, out: BinaryIO) -> str:
        did, etag, tries = 0, "", 0
        while True:
            headers = {"Accept-Encoding": "identity"}
            if did:
                headers.update({"Range": f"bytes={did}-", "If-Range": etag})
            answer = self._t.open("GET", self._file, self._at(path), headers=headers)
            with answer:
                if answer.headers.get("content-type", "").startswith("application/json"):
                    raise IsADirectoryError(os.fsdecode(path))
                if did and answer.status != 206:
                    raise BadAnswer("the file has changed while it was read")
                etag = answer.headers.get("etag", "")
                try:
                    for data in answer:
                        out.write(data)
                        did, tries = did + len(data), 0
                    return etag
                except AnswerCut:
                    tries += 1
                    if tries > 3 or not etag:
                        raise

    def head(self, path: FilePath) -> Dict[str, str]:
        """The headers: etag, content-length, last-modified."""
        with self._t.open("HEAD", self._file, self._at(path),
                          headers={"Accept-Encoding": "identity"}) as answer:
            return dict(answer.headers)

    def stat(self, path: FilePath) -> EntryInfo:
        """Of whatever is there: links, too, with their target."""
        answer = self._t.call("GET", self._file, self._at(path), query={"stat": True})
        return cast(EntryInfo, answer["entry"])

    def exists(self, path: FilePath) -> bool:
        try:
            self.stat(path)
            return True
        except NotFound:
            return False

    def list(self, path: FilePath = "", *, page: int = PAGE) -> Iterator[EntryInfo]:
        """A directory's entries, page by page, however many there are."""
        cursor: Optional[str] = None
        while True:
            answer = self._t.call("GET", self._file, self._at(path),
                                  query={"limit": page, "cursor": cursor})
            if "entries" not in answer:
                raise NotADirectoryError(os.fsdecode(path))
            yield from answer["entries"]
            cursor = answer.get("next")
            if cursor is None:
                return

    def walk(self, path: FilePath = "") -> Iterator[EntryInfo]:
        """All that is below, at one moment; names are paths."""
        with self._t.open("GET", self._file, self._at(path), query={"recursive": True}) as answer:
            yield from _entries(answer)

    def archive(self, path: FilePath = "", *, format: str = "tar") -> Body:
        """A directory as a "tar", "tar.zst", "zip" or "cpio". Behind its end `summary` of it says
        what the format couldn't hold."""
        return self._t.open("GET", self._archive, self._at(path), query={"format": format})

    def archive_rest(self, have: Source, before: str, path: FilePath = "", *,
                     format: str = "tar") -> Body:
        """The same without the files that the list `have` names (API.md, "Archives of the rest"),
        as they were `before`."""
        return self._t.open("POST", self._archive, self._at(path), body=have, safe=True,
                            query={"format": format, "before": before})

    def sign(self, path: FilePath, *, expires_in: Optional[int] = None,
             method: Optional[str] = None, pin: Optional[bool] = None) -> SignedInfo:
        """A `url` by which whoever has it reads this file, without a token: to be put behind where
        boughd is reached. `pin`: this version alone."""
        return cast(SignedInfo, self._t.call(
            "POST", self._file, self._at(path), query={"op": "sign"},
            json_body={"expires_in": expires_in, "method": method, "pin": pin}))


def summary(body: Body) -> Dict[str, Any]:
    """What an archive or a patch that was read to its end tells in its trailer."""
    return cast(Dict[str, Any], json.loads(body.trailers.get("bough-summary", "{}")))


def _entries(answer: Body) -> Iterator[EntryInfo]:
    """Takes {"path": …, "entries": [{…}, …]} apart as it comes."""
    decoder, text, begun = json.JSONDecoder(), "", False
    pending = b""
    for data in answer:
        pending += data
        cut = len(pending)  # not inside of a character
        while cut and cut > len(pending) - 4 and pending[cut - 1] & 0xC0 == 0x80:
            cut -= 1
        if cut and pending[cut - 1] >= 0xC0:
            cut -= 1
        else:
            cut = len(pending)
        text += pending[:cut].decode()
        pending = pending[cut:]
        if not begun:
            at = text.find('"entries":')
            if at < 0:
                continue
            text, begun = text[text.index("[", at) + 1:], True
        at = 0
        while True:
            while at < len(text) and text[at] in ", \n":
                at += 1
            if at < len(text) and text[at] != "{":
                return
            try:
                entry, at = decoder.raw_decode(text, at)
            except ValueError:
                break
            yield cast(EntryInfo, entry)
        text = text[at:]


class WorkspaceFiles(SnapshotFiles):
    _file = "/v1/workspaces/{ws}/files/{path}"
    _archive = "/v1/workspaces/{ws}/archive/{path}"
    _batch = "/v1/workspaces/{ws}/batch"
    _param = "ws"

    def write(self, path: FilePath, data: "Union[str, Source]", *, mode: Optional[str] = None,
              if_match: Optional[str] = None, if_none_match: Optional[str] = None,
              coding: Optional[str] = None, length: Optional[int] = None,
              digest: bool = False) -> PutInfo:
        """Writes a file in one step: text, bytes, an open file, or an iterable of bytes, sent as
        they come. Directories are made. `if_match` (an ETag) replaces only that version,
        `if_none_match` "*" only what isn't there: else Changed. `digest` (of text and bytes) has
        boughd compare what came."""
        if isinstance(data, str):
            data = data.encode()
        headers = {}
        for name, value in (("If-Match", if_match), ("If-None-Match", if_none_match),
                            ("Content-Encoding", coding)):
            if value is not None:
                headers[name] = value
        if digest:
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise TypeError("digest is for text and bytes")
            hashed = base64.b64encode(hashlib.sha256(data).digest()).decode()
            headers["Content-Digest"] = f"sha-256=:{hashed}:"
        return cast(PutInfo, self._t.call("PUT", self._file, self._at(path), query={"mode": mode},
                                          headers=headers, body=data, length=length))

    def write_form(self, path: FilePath, data: bytes, *, mode: Optional[str] = None) -> PutInfo:
        """The same as a browser's form sends it: multipart, with a part `file`."""
        mark = base64.b16encode(os.urandom(16)).decode()
        head = (f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="file"\r\n'
                "Content-Type: application/octet-stream\r\n\r\n").encode()
        return cast(PutInfo, self._t.call(
            "PUT", self._file, self._at(path), query={"mode": mode},
            body=head + data + f"\r\n--{mark}--\r\n".encode(),
            headers={"Content-Type": f"multipart/form-data; boundary={mark}"}))

    def upload(self, local: "Union[str, os.PathLike[str]]", path: FilePath, *,
               mode: Optional[str] = None) -> PutInfo:
        """A local file, by one PUT. Workspace.upload can be resumed."""
        with io.open(local, "rb") as f:
            return self.write(path, f, mode=mode)

    def copy_to(self, path: FilePath, out: BinaryIO) -> None:
        with self.open(path) as body:
            shutil.copyfileobj(cast(BinaryIO, body), out, 1 << 18)

    def delete(self, path: FilePath, *, recursive: bool = False,
               if_match: Optional[str] = None) -> None:
        headers = {"If-Match": if_match} if if_match is not None else None
        self._t.call("DELETE", self._file, self._at(path), query={"recursive": recursive},
                     headers=headers)

    def _op(self, path: FilePath, op: str, body: Dict[str, Any]) -> EntryInfo:
        answer = self._t.call("POST", self._file, self._at(path), query={"op": op}, json_body=body)
        return cast(EntryInfo, answer["entry"])

    def mkdir(self, path: FilePath, *, mode: Optional[str] = None,
              parents: Optional[bool] = None) -> EntryInfo:
        return self._op(path, "mkdir", {"mode": mode, "parents": parents})

    def move(self, path: FilePath, to: FilePath, *, replace: bool = False) -> EntryInfo:
        return self._op(path, "move", {**_field("to", to), "replace": replace})

    def copy(self, path: FilePath, to: FilePath, *, replace: bool = False) -> EntryInfo:
        return self._op(path, "copy", {**_field("to", to), "replace": replace})

    def symlink(self, path: FilePath, target: FilePath) -> EntryInfo:
        return self._op(path, "symlink", _field("target", target))

    def chmod(self, path: FilePath, mode: str) -> EntryInfo:
        return self._op(path, "chmod", {"mode": mode})

    def batch(self, operations: "Sequence[Mapping[str, Any]]") -> "Results":
        """Many changes, all or none: [{"op": "write", "path": "a", "content": "x"}, {"op":
        "delete", "path": "b", "if_match": etag}, …]. A `content` is text, bytes or an open file, of
        any size: what is more than a little goes as a part of a form. A failure's details say
        which."""
        plain, parts = _parts(operations)
        where, params = self._batch, {self._param: self._ref}
        if not parts:
            answer = self._t.call("POST", where, params, json_body={"operations": plain})
        else:
            boundary = uuid.uuid4().hex
            body = _form(boundary, [("operations", json.dumps({"operations": plain}).encode()),
                                    *parts])
            answer = self._t.call(
                "POST", where, params, body=body,
                headers={"Content-Type": "multipart/form-data; boundary=" + boundary})
        return cast(Results, answer["results"])

    def extract(self, archive: Source, path: FilePath = "", *,
                atomic: bool = False, length: Optional[int] = None) -> ExtractedInfo:
        """Unpacks a tar, tar.gz, tar.zst, zip … below a directory that is there."""
        return cast(ExtractedInfo, self._t.call(
            "PUT", self._archive, self._at(path), query={"atomic": atomic}, body=archive,
            length=length))

