"""The terminal of a process in a sandbox, over a WebSocket (RFC 6455)."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
import threading
import time
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple, cast

from ._http import Connection
from ._transport import FIRST_WAIT_S, LONGEST_WAIT_S, FilePath, Transport
from .errors import AnswerCut, ApiError, BadAnswer, ConnectionFailed

PROTOCOL = "bough.terminal.v1"
FRAME_MAX = 1 << 20  # ours have 32 KiB
FAULTS = (1002, 1007, 1009, 1011)  # what a new connection would only be closed with again
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Terminal:
    """What the process writes, by iterating over it (bytes, as they come); `send` gives it input,
    from this thread or another. A connection that breaks is made again, and both directions go on
    at their byte. After the end `exit` is {exit_code, reason}."""

    def __init__(self, transport: Transport, template: str, params: Mapping[str, FilePath],
                 offset: int = 0) -> None:
        self._t, self._template, self._params = transport, template, params
        self.offset = offset  # of the next byte of output
        self.exit: Optional[Dict[str, Any]] = None
        self._lock = threading.Lock()
        self._conn: Optional[Connection] = None
        self._kept = bytearray()  # input that isn't known to be given
        self._kept_at: Optional[int] = None
        self._size: Optional[Tuple[int, int]] = None
        self._ended = self._closed = False
        self._open()

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # -- what is sent

    def _frame(self, op: int, data: bytes) -> None:
        """The lock is held. What can't be sent is sent again by the next connection."""
        if self._conn is None:
            return
        n, mask = len(data), os.urandom(4)
        head = struct.pack("!BB", 128 | op, 128 | n) if n < 126 else \
            struct.pack("!BBH", 128 | op, 254, n) if n < 65536 else \
            struct.pack("!BBQ", 128 | op, 255, n)
        key = int.from_bytes((mask * (n // 4 + 1))[:n], "big")
        masked = (int.from_bytes(data, "big") ^ key).to_bytes(n, "big")
        try:
            self._conn.sock.sendall(head + mask + masked)
        except OSError:
            self._conn.abort()

    def _input(self, data: bytes) -> None:
        """The lock is held."""
        for at in range(0, len(data), FRAME_MAX):
            self._frame(BINARY, data[at:at + FRAME_MAX])

    def _say(self, **words: Any) -> None:
        with self._lock:
            self._frame(TEXT, json.dumps(words).encode())

    def send(self, data: bytes) -> None:
        """Input, as if it were typed."""
        with self._lock:
            self._kept += data
            self._input(data)

    def end(self) -> None:
        """No input follows: ^D is typed."""
        self._ended = True
        self._say(type="eof")

    def resize(self, columns: int, rows: int) -> None:
        self._size = columns, rows
        self._say(type="resize", columns=columns, rows=rows)

    def signal(self, signal: str) -> None:
        self._say(type="signal", signal=signal)

    def close(self) -> None:
        """Lets go of it; the process goes on."""
        with self._lock:
            self._closed = True
            if self._conn is not None:
                self._frame(CLOSE, struct.pack("!H", 1000))
                self._conn.close()
                self._conn = None

    # -- connections

    def _open(self) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        conn, headers = self._t.upgrade(self._template, self._params, query={
            "offset": self.offset, "stdin_offset": self._kept_at}, headers={
            "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": key, "Sec-WebSocket-Protocol": PROTOCOL})
        guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1((key + guid).encode()).digest()).decode()
        if headers.find("Sec-WebSocket-Accept") != accept:
            conn.close()
            raise BadAnswer("an answer that is no WebSocket's")
        with self._lock:
            self._conn = conn
            self._input(bytes(self._kept))
        if self._size is not None:
            self.resize(*self._size)
        if self._ended:
            self.end()

    def _again(self) -> None:
        begun, wait = time.monotonic(), FIRST_WAIT_S
        while True:
            try:
                self._open()
                return
            except ConnectionFailed:
                if time.monotonic() + wait - begun > self._t.retry_for:
                    raise
            except ApiError as e:
                if e.status != 503 or time.monotonic() + wait - begun > self._t.retry_for:
                    raise
            time.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT_S)

    # -- what comes

    def _exactly(self, conn: Connection, n: int) -> bytes:
        out = b""
        while len(out) < n:
            piece = conn.read(n - len(out))
            if not piece:
                raise AnswerCut("the connection was closed")
            out += piece
        return out

    def _next(self, conn: Connection) -> Tuple[int, bytes]:
        op, n = self._exactly(conn, 2)
        if n > 127 or op & 0x70 or not op & 0x80:
            raise BadAnswer("no frame of ours")
        if n >= 126:
            n = int.from_bytes(self._exactly(conn, 2 if n == 126 else 8), "big")
        if n > FRAME_MAX:
            raise BadAnswer("a frame above 1 MiB")
        return op & 15, self._exactly(conn, n)

    def _heard(self, words: Dict[str, Any]) -> None:
        kind = words.get("type")
        if kind == "gap":
            self.offset = int(words["offset"])
        elif kind == "exit":
            self.exit = {"exit_code": words["exit_code"], "reason": words["reason"]}
        elif kind in ("ready", "stdin"):
            at = int(words["stdin_offset" if kind == "ready" else "offset"])
            with self._lock:
                if self._kept_at is not None:
                    del self._kept[:max(0, at - self._kept_at)]
                self._kept_at = at if self._kept_at is None else max(at, self._kept_at)

    def __iter__(self) -> Iterator[bytes]:
        while self.exit is None and not self._closed:
            conn = self._conn
            if conn is None:
                return
            try:
                op, data = self._next(conn)
            except (ConnectionFailed, OSError):
                if self._closed:
                    return
                conn.abort()
                self._again()
                continue
            if op == BINARY:
                self.offset += len(data)
                yield data
            elif op == TEXT:
                self._heard(cast(Dict[str, Any], json.loads(data)))
            elif op == PING:
                with self._lock:
                    self._frame(PONG, data)
            elif op == CLOSE:
                conn.close()
                code = int.from_bytes(data[:2], "big")
                if code in FAULTS:
                    raise BadAnswer(f"the terminal was closed with {code}")
                self._again()  # boughd ends; or an error says why it may no longer be
        self.close()
