"""The terminal of a process in a sandbox, over a WebSocket (RFC 6455)."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
import threading
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, cast

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
        self._sending = threading.Lock()  # of who sends; whoever reads never waits for it
        self._lock = threading.Lock()  # all below
        self._conn: Optional[Connection] = None
        self._kept = bytearray()  # input that isn't known to be given
        self._sent = 0  # of it, over this connection
        self._words: List[bytes] = []  # to be said behind it
        self._pong: Optional[bytes] = None
        self._kept_at: Optional[int] = None
        self._size: Optional[Tuple[int, int]] = None
        self._ended = self._closed = False
        self._open()

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # -- what is sent

    @staticmethod
    def _frame(conn: Connection, op: int, data: bytes) -> None:
        """`_sending` is held. What can't be sent is sent again by the next connection."""
        n, mask = len(data), os.urandom(4)
        head = struct.pack("!BB", 128 | op, 128 | n) if n < 126 else \
            struct.pack("!BBH", 128 | op, 254, n) if n < 65536 else \
            struct.pack("!BBQ", 128 | op, 255, n)
        key = int.from_bytes((mask * (n // 4 + 1))[:n], "big")
        masked = (int.from_bytes(data, "big") ^ key).to_bytes(n, "big")
        try:
            conn.sock.sendall(head + mask + masked)
        except OSError:
            conn.abort()

    def _take(self) -> Optional[Tuple[Connection, int, bytes]]:
        """What is to be sent next."""
        with self._lock:
            if self._conn is None:
                return None
            if self._pong is not None:
                pong, self._pong = self._pong, None
                return self._conn, PONG, pong
            if self._sent < len(self._kept):
                piece = bytes(self._kept[self._sent:self._sent + FRAME_MAX])
                self._sent += len(piece)
                return self._conn, BINARY, piece
            return (self._conn, TEXT, self._words.pop(0)) if self._words else None

    def _pump(self, wait: bool = True) -> None:
        """Sends what there is, unless (without `wait`) another thread does."""
        while self._pending() and self._sending.acquire(blocking=wait):
            try:
                frame = self._take()
                if frame is not None:
                    self._frame(*frame)
            finally:
                self._sending.release()

    def _pending(self) -> bool:
        with self._lock:
            return self._conn is not None and (
                self._pong is not None or self._sent < len(self._kept) or bool(self._words))

    def _say(self, **words: Any) -> None:
        with self._lock:
            self._words.append(json.dumps(words).encode())
        self._pump()

    def send(self, data: bytes) -> None:
        """Input, as if it were typed."""
        with self._lock:
            self._kept += data
        self._pump()

    def end(self) -> None:
        """No input follows: ^D is typed."""
        self._ended = True
        self._say(type="eof")

    def _resize(self) -> Dict[str, Any]:
        columns, rows = cast(Tuple[int, int], self._size)
        return {"type": "resize", "columns": columns, "rows": rows}

    def resize(self, columns: int, rows: int) -> None:
        self._size = columns, rows
        self._say(**self._resize())

    def signal(self, signal: str) -> None:
        self._say(type="signal", signal=signal)

    def close(self) -> None:
        """Lets go of it; the process goes on."""
        with self._lock:
            self._closed = True
            conn, self._conn = self._conn, None
        if conn is None:
            return
        if self._sending.acquire(blocking=False):
            try:
                self._frame(conn, CLOSE, struct.pack("!H", 1000))
            finally:
                self._sending.release()
        else:
            conn.abort()
        conn.close()

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
            self._conn, self._sent, self._pong = conn, 0, None
            self._words = [json.dumps(self._resize()).encode()] if self._size is not None else []
            if self._ended:
                self._words.append(b'{"type": "eof"}')
        # Not on this thread, which reads: all of it may only fit when somebody does.
        if self._pending():
            threading.Thread(target=self._pump, daemon=True).start()

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
                if self._kept_at is None:
                    self._kept_at = at
                # What was given to the connection before is sent to this one all the same: its
                # input begins where it was said to.
                given = max(0, min(at - self._kept_at, self._sent))
                del self._kept[:given]
                self._sent -= given
                self._kept_at += given

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
                    self._pong = data
                self._pump(wait=False)  # who sends already sends this, too
            elif op == CLOSE:
                conn.close()
                code = int.from_bytes(data[:2], "big")
                if code in FAULTS:
                    raise BadAnswer(f"the terminal was closed with {code}")
                self._again()  # boughd ends; or an error says why it may no longer be
        self.close()
