"""Requests: connections that are kept, keys that make a call count once, tries after failures."""

from __future__ import annotations

import json
import os
import random
import threading
import time
import urllib.parse
import uuid
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ._http import Body, Connection, Headers, Payload, Source, Target
from .errors import (ApiError, BadAnswer, ConnectionFailed, NotFound, error_of)

Query = Mapping[str, Union[None, bool, int, str, Sequence[str]]]
Progress = Callable[[Dict[str, Any]], None]
FilePath = Union[str, bytes, "os.PathLike[str]"]

IDLE_S = 45.0   # boughd closes after 60
POOL = 8
JSON_MAX = 64 << 20
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0
# A failure that another try may change, and that left nothing done.
AGAIN = {(429, "too_many"), (503, "unavailable"), (409, "in_flight")}


def quote_path(path: FilePath) -> str:
    """For behind `files/`: any bytes, part by part."""
    raw = os.fsencode(path).lstrip(b"/")
    return urllib.parse.quote_from_bytes(raw, safe="/")


def fill(template: str, params: Mapping[str, FilePath]) -> str:
    out = template
    for name, value in params.items():
        quoted = quote_path(value) if name == "path" else urllib.parse.quote(
            os.fsencode(value), safe="")
        out = out.replace("{%s}" % name, quoted)
    return out


def query_string(query: Optional[Query]) -> str:
    pairs: List[Tuple[str, str]] = []
    for key, value in (query or {}).items():
        if value is None or value is False:
            continue
        if value is True:
            pairs.append((key, "true"))
        elif isinstance(value, (int, str)):
            pairs.append((key, str(value)))
        else:
            pairs += [(key, one) for one in value]
    return "?" + urllib.parse.urlencode(pairs, quote_via=urllib.parse.quote) if pairs else ""


class Transport:
    def __init__(self, target: Target, token: Optional[str], *, timeout: Optional[float],
                 connect_timeout: Optional[float], retries: int, retry_for: float,
                 on_request: Optional[Callable[[str, str], None]]) -> None:
        # A file that a token is read from ends with a newline.
        self.target, self.token = target, token.strip() if token else None
        self.timeout, self.connect_timeout = timeout, connect_timeout
        self.retries, self.retry_for = retries, retry_for
        self.on_request = on_request
        self._lock = threading.Lock()
        self._pool: List[Connection] = []
        self._closed = False

    # -- connections

    def _take(self) -> Connection:
        while True:
            with self._lock:
                if self._closed:
                    raise ValueError("the client is closed")
                conn = self._pool.pop() if self._pool else None
            if conn is None:
                return Connection(self.target, self.connect_timeout, self.timeout)
            if time.monotonic() - conn.idle_since < IDLE_S and not conn.has_input():
                return conn
            conn.close()

    def _give(self, conn: Connection) -> None:
        with self._lock:
            if conn.keep and not self._closed and len(self._pool) < POOL:
                conn.idle_since = time.monotonic()
                self._pool.append(conn)
                return
        conn.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, []
        for conn in pool:
            conn.close()

    # -- one try

    def _head(self, headers: List[Tuple[str, str]]) -> List[Tuple[str, str]]:
        host = "bough" if self.target.path is not None else str(self.target)
        head = [("Host", host)] + headers
        if self.token is not None:
            head.append(("Authorization", f"Bearer {self.token}"))
        return head

    def upgrade(self, template: str, params: Mapping[str, FilePath], *, query: Query,
                headers: Mapping[str, str]) -> Tuple[Connection, Headers]:
        """A connection of its own that speaks another protocol from here on."""
        if self.on_request:
            self.on_request("GET", template)
        conn = Connection(self.target, self.connect_timeout, self.timeout)
        try:
            conn.send("GET", fill(template, params) + query_string(query),
                      self._head(list(headers.items())), None)
            status, answered = conn.head()
        except BaseException:
            conn.close()
            raise
        if status == 101:
            return conn, answered
        raise self._error(Body(conn, status, answered, done=Connection.close, empty=False))

    def once(self, method: str, path: str, headers: List[Tuple[str, str]],
             payload: Optional[Payload]) -> Body:
        conn = self._take()
        conn.send(method, path, self._head(headers), payload)
        try:
            status, answered = conn.head()
        except BaseException:
            conn.close()
            raise
        return Body(conn, status, answered, done=self._give,
                    empty=method == "HEAD" or status in (204, 304))

    # -- requests

    def open(self, method: str, template: str, params: Optional[Mapping[str, FilePath]] = None, *,
             query: Optional[Query] = None, headers: Optional[Mapping[str, str]] = None,
             json_body: Optional[Mapping[str, Any]] = None, body: Optional[Source] = None,
             length: Optional[int] = None, key: Optional[str] = None, safe: Optional[bool] = None,
             ok: Sequence[int] = ()) -> Body:
        """A request that went well, with its body to be read; or the error that was answered.
        What can be repeated without harm is, a few times: reading, what is marked by a key
        (every POST), and writing what ends the same however often it is done. `safe` says
        otherwise."""
        path = fill(template, params or {}) + query_string(query)
        sent = dict(headers or {})
        payload = None
        if json_body is not None:
            body = json.dumps({k: v for k, v in json_body.items() if v is not None}).encode()
            sent["Content-Type"] = "application/json"
        if body is not None:
            payload = Payload(body, length)
            sent.setdefault("Content-Type", "application/octet-stream")
        if method == "POST":
            sent["Idempotency-Key"] = key or uuid.uuid4().hex
        if safe is None:
            safe = not any(k.lower() in ("if-match", "if-none-match") for k in sent) or \
                method in ("GET", "HEAD")
        if self.on_request:
            self.on_request(method, template)
        return self._tries(method, path, list(sent.items()), payload, safe, ok)

    def _tries(self, method: str, path: str, headers: List[Tuple[str, str]],
               payload: Optional[Payload], safe: bool, ok: Sequence[int]) -> Body:
        begun = time.monotonic()
        wait, unsure = FIRST_WAIT_S, False
        again = payload is None or payload.again
        for left in range(self.retries, -1, -1):
            pause = wait * random.uniform(0.5, 1.0)
            late = left == 0 or time.monotonic() + pause - begun > self.retry_for
            try:
                answer = self.once(method, path, headers, payload)
            except ConnectionFailed as e:
                if late or (e.sent and not (safe and again)):
                    raise
                unsure = unsure or e.sent
            else:
                if answer.status < 300 or answer.status in ok:
                    return answer
                error = self._error(answer)
                if unsure and method == "DELETE" and isinstance(error, NotFound):
                    return answer  # the try whose answer was lost has done it
                if late or not again or (error.status, error.code) not in AGAIN:
                    raise error
            time.sleep(pause)
            wait = min(wait * 2, LONGEST_WAIT_S)
        raise AssertionError("unreachable")

    @staticmethod
    def _error(answer: Body) -> ApiError:
        try:
            text = b"".join(answer)
            return error_of(json.loads(text) if text else None, answer.status)
        except (ValueError, BadAnswer, ConnectionFailed):
            return error_of(None, answer.status)
        finally:
            answer.close()

    def call(self, method: str, template: str, params: Optional[Mapping[str, FilePath]] = None, *,
             query: Optional[Query] = None, headers: Optional[Mapping[str, str]] = None,
             json_body: Optional[Mapping[str, Any]] = None, body: Optional[Source] = None,
             length: Optional[int] = None, key: Optional[str] = None,
             safe: Optional[bool] = None) -> Any:
        """The same for answers in JSON; None where it is empty."""
        with self.open(method, template, params, query=query, headers=headers,
                       json_body=json_body, body=body, length=length, key=key,
                       safe=safe) as answer:
            return parse(answer)

    def long(self, template: str, params: Optional[Mapping[str, FilePath]] = None, *,
             query: Optional[Query] = None, json_body: Optional[Mapping[str, Any]] = None,
             body: Optional[Source] = None, length: Optional[int] = None,
             key: Optional[str] = None, progress: Optional[Progress] = None) -> Any:
        """A POST that takes long: with `progress`, which is called with {done, total, unit, what}
        as it goes on."""
        if progress is None:
            return self.call("POST", template, params, query=query, json_body=json_body, body=body,
                             length=length, key=key)
        with self.open("POST", template, params, query=query, json_body=json_body, body=body,
                       length=length, key=key,
                       headers={"Accept": "application/x-ndjson"}) as answer:
            if "x-ndjson" not in answer.headers.get("content-type", ""):
                return parse(answer)  # the answer of a try before
            for line in answer.lines():
                said = json.loads(line)
                if "progress" in said:
                    progress(said["progress"])
                elif "error" in said:
                    raise error_of(said["error"], 0)
                elif "result" in said:
                    return said["result"]
            raise BadAnswer("a stream of progress without a result")

    def job(self, template: str, params: Optional[Mapping[str, FilePath]] = None, *,
            json_body: Optional[Mapping[str, Any]] = None, key: Optional[str] = None) -> Any:
        """The same as a job, which goes on when its caller is gone."""
        return self.call("POST", template, params, json_body=json_body or {}, key=key,
                         headers={"Prefer": "respond-async"})


def parse(answer: Body) -> Any:
    parts, size = [], 0
    for data in answer:
        size += len(data)
        if size > JSON_MAX:
            raise BadAnswer("an answer in JSON above 64 MiB")
        parts.append(data)
    text = b"".join(parts)
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except ValueError as e:
        raise BadAnswer(f"no JSON: {e}") from e
