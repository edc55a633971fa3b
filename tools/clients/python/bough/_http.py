"""HTTP/1.1 over a unix socket, TCP or TLS, as much as boughd speaks.

http.client would do for most, but it throws trailers and the extensions of chunks away (there the
summary of an archive and the reason of a cut stream stand), and can't take an answer that comes
before the whole body was sent.
"""

from __future__ import annotations

import io
import select
import socket
import ssl
import urllib.parse
from typing import (Any, BinaryIO, Callable, Dict, Iterable, Iterator, List, Optional, Tuple,
                    Union, cast)

from .errors import AnswerCut, BadAnswer, ConnectionFailed, make_error

BLOCK = 256 * 1024
LINE_MAX = 64 * 1024
HEADERS_MAX = 200

Source = Union[bytes, bytearray, memoryview, BinaryIO, Iterable[bytes]]


class Target:
    """Where boughd listens."""

    def __init__(self, *, path: Optional[str] = None, host: str = "", port: int = 0,
                 tls: Optional[ssl.SSLContext] = None) -> None:
        self.path, self.host, self.port, self.tls = path, host, port, tls

    def __str__(self) -> str:
        return self.path if self.path is not None else f"{self.host}:{self.port}"

    def connect(self, timeout: Optional[float]) -> socket.socket:
        try:
            if self.path is not None:
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    sock.settimeout(timeout)
                    sock.connect(self.path)
                except BaseException:
                    sock.close()
                    raise
                return sock
            sock = socket.create_connection((self.host, self.port), timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is None:
                return sock
            try:
                return self.tls.wrap_socket(sock, server_hostname=self.host)
            except BaseException:
                sock.close()
                raise
        except ssl.SSLCertVerificationError as e:
            raise BadAnswer(f"{self}: {e}") from e
        except (FileNotFoundError, ConnectionRefusedError) as e:
            raise ConnectionFailed(f"{self}: {e}: does boughd run? `bough up` starts it") from e
        except OSError as e:
            raise ConnectionFailed(f"{self}: {e}") from e


class Payload:
    """A request's body: how long it is, and whether it can be sent once more."""

    def __init__(self, source: Source, length: Optional[int] = None) -> None:
        self._start = 0
        self._source = source
        self.length = length
        self.again = False
        if isinstance(source, (bytes, bytearray, memoryview)):
            self.length = memoryview(source).nbytes
            self.again = True
        elif hasattr(source, "read"):
            self._look(cast(BinaryIO, source))

    def _look(self, file: BinaryIO) -> None:
        try:
            if not file.seekable():
                return
            self._start = file.tell()
            if self.length is None:
                self.length = max(file.seek(0, 2) - self._start, 0)
                file.seek(self._start)
            self.again = True
        except (OSError, AttributeError):
            self.again = False

    def blocks(self) -> Iterator[Any]:
        source = self._source
        if isinstance(source, (bytes, bytearray, memoryview)):
            view = memoryview(source).cast("B")
            for at in range(0, len(view), BLOCK):
                yield view[at:at + BLOCK]
            return
        if not hasattr(source, "read"):
            for piece in source:
                if piece:
                    yield piece
            return
        file = cast(BinaryIO, source)
        if self.again:
            file.seek(self._start)
        left = self.length
        while left is None or left > 0:
            piece = file.read(BLOCK if left is None else min(BLOCK, left))
            if not piece:
                break
            if left is not None:
                left -= len(piece)
            yield piece


class Headers(Dict[str, str]):
    """By name in lower case."""

    def find(self, name: str) -> Optional[str]:
        return self.get(name.lower())


class Connection:
    def __init__(self, target: Target, connect_timeout: Optional[float],
                 timeout: Optional[float]) -> None:
        self.sock = target.connect(connect_timeout)
        self.sock.settimeout(timeout)
        self.file = cast(io.BufferedReader, self.sock.makefile("rb", buffering=64 * 1024))
        self.plain = target.tls is None
        self.keep = True  # another request may follow
        self.idle_since = 0.0

    def close(self) -> None:
        self.keep = False
        try:
            self.file.close()
        except OSError:
            pass
        self.sock.close()

    def abort(self) -> None:
        """Ends a read that another thread waits in."""
        self.keep = False
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def has_input(self) -> bool:
        """Bytes have come, or the end. Over TLS that can't be told from its own messages."""
        poll = select.poll()
        poll.register(self.sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    # -- sending

    def send(self, method: str, path: str, headers: List[Tuple[str, str]],
             payload: Optional[Payload]) -> None:
        """Sends a request. An answer that comes before the end of the body stops it; so does a
        peer that closes: then the answer is read."""
        lines = [f"{method} {path} HTTP/1.1"] + [f"{k}: {v}" for k, v in headers]
        chunked = payload is not None and payload.length is None
        if chunked:
            lines.append("Transfer-Encoding: chunked")
        elif payload is not None:
            lines.append(f"Content-Length: {payload.length}")
        elif method in ("POST", "PUT", "PATCH"):
            lines.append("Content-Length: 0")
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a line break in a header")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")
        try:
            self._send(head, payload, chunked)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            self.keep = False  # there may be an answer all the same
        except OSError as e:
            self.close()
            raise ConnectionFailed(f"while sending: {e}", sent=True) from e
        except BaseException:  # the source of the body failed: what was sent is half a request
            self.close()
            raise

    def _send(self, head: bytes, payload: Optional[Payload], chunked: bool) -> None:
        if payload is None:
            self.sock.sendall(head)
            return
        sent = 0
        for block in payload.blocks():
            data = b"%x\r\n" % len(block) + bytes(block) + b"\r\n" if chunked else block
            if head:
                self.sock.sendall(head + bytes(data) if len(data) <= 65536 else head)
                data, head = (b"" if len(data) <= 65536 else data), b""
            elif self.plain and self.has_input():
                self.keep = False
                return
            if data:
                self.sock.sendall(data)
            sent += len(block)
        if head:
            self.sock.sendall(head)
        if chunked:
            self.sock.sendall(b"0\r\n\r\n")
        elif sent != payload.length:
            raise ValueError(f"the body has {sent} bytes in place of {payload.length}")

    # -- receiving

    def line(self) -> bytes:
        try:
            text = self.file.readline(LINE_MAX + 1)
        except (OSError, ValueError) as e:
            raise AnswerCut(f"the connection broke off: {e}") from e
        if not text.endswith(b"\n"):
            if len(text) > LINE_MAX:
                raise BadAnswer("a line without an end")
            raise AnswerCut("the connection was closed")
        return text.rstrip(b"\r\n")

    def read(self, n: int) -> bytes:
        try:
            return self.file.read1(n)
        except (OSError, ValueError) as e:
            raise AnswerCut(f"the connection broke off: {e}") from e

    def fields(self) -> Headers:
        out = Headers()
        for _ in range(HEADERS_MAX + 1):
            line = self.line()
            if not line:
                return out
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon:
                raise BadAnswer("a header without a colon")
            name, value = name.strip().lower(), value.strip()
            out[name] = f"{out[name]}, {value}" if name in out else value
        raise BadAnswer("too many headers")

    def head(self) -> Tuple[int, Headers]:
        while True:
            parts = self.line().split(None, 2)
            if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit():
                raise BadAnswer("what answers doesn't speak HTTP")
            status = int(parts[1])
            headers = self.fields()
            if status >= 200 or status == 101:
                if headers.get("connection", "").lower() == "close" or parts[0] == b"HTTP/1.0":
                    self.keep = False
                return status, headers


class Body:
    """The bytes of an answer, as they come: `read(n)` (at most n of them, b"" at the end), or
    iterate over it. Close it, or use it in a `with`, unless it was read to its end.

    `status` and `headers` are there from the beginning, `trailers` after the end."""

    def __init__(self, conn: Connection, status: int, headers: Headers, *, empty: bool,
                 done: Callable[[Connection], None]) -> None:
        self.status, self.headers, self.trailers = status, headers, Headers()
        self._conn: Optional[Connection] = conn
        self._done = done
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._left: Optional[int] = None  # of this chunk, or of all; None: until it closes
        if empty:
            self._left, self._chunked = 0, False
        elif self._chunked:
            self._left = 0
        elif "content-length" in headers:
            if not headers["content-length"].isdigit():
                conn.close()
                raise BadAnswer("a bad Content-Length")
            self._left = int(headers["content-length"])
        else:
            conn.keep = False
        self._first = True
        if not self._chunked and self._left == 0:
            self._finish()

    def _finish(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            self._done(conn)

    def close(self) -> None:
        """Gives the rest up."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def abort(self) -> None:
        """The same from another thread, while one reads."""
        conn = self._conn
        if conn is not None:
            conn.abort()

    def __enter__(self) -> "Body":
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def _next_chunk(self, conn: Connection) -> None:
        if not self._first and conn.line():
            raise BadAnswer("a chunk without an end")
        self._first = False
        size, _, more = conn.line().partition(b";")
        if more.startswith(b"code="):
            raise _reason(more.decode("latin-1"))
        try:
            self._left = int(size.strip(), 16)
        except ValueError:
            raise BadAnswer("a chunk without a size") from None
        if self._left == 0:
            self.trailers = conn.fields()
            self._finish()

    def read(self, n: int = -1) -> bytes:
        if n < 0:
            return b"".join(self)
        conn = self._conn
        if conn is None or n == 0:
            return b""
        try:
            if self._chunked and self._left == 0:
                self._next_chunk(conn)
                if self._conn is None:
                    return b""
            data = conn.read(n if self._left is None else min(n, self._left))
            if not data and self._left is not None:
                raise AnswerCut("the answer broke off")
        except BaseException:
            self.close()
            raise
        if self._left is not None:
            self._left -= len(data)
        if not data or (self._left == 0 and not self._chunked):
            self._finish()
        return data

    def __iter__(self) -> Iterator[bytes]:
        while True:
            data = self.read(BLOCK)
            if not data:
                return
            yield data

    def lines(self) -> Iterator[bytes]:
        """The lines, without their ends."""
        rest: List[bytes] = []
        for data in self:
            first, *more = data.split(b"\n")
            rest.append(first)
            for part in more:
                yield b"".join(rest)
                rest = [part]
        if any(rest):
            yield b"".join(rest)


def _reason(extension: str) -> Exception:
    """Why a stream is cut, as boughd says it in a chunk that never comes."""
    fields = dict(part.partition("=")[::2] for part in extension.split(";"))
    return make_error(fields.get("code", ""), urllib.parse.unquote(fields.get("error", "")))
