"""Server-sent events that go on where they were broken off."""

from __future__ import annotations

import json
import random
import threading
from typing import Any, Dict, Iterator, List, Mapping, Optional

from ._http import Body
from ._transport import FIRST_WAIT_S, LONGEST_WAIT_S, FilePath, Query, Transport
from .errors import ConnectionFailed, Unavailable


class Event:
    def __init__(self, id: str, type: str, data: Dict[str, Any]) -> None:
        self.id, self.type, self.data = id, type, data

    def __repr__(self) -> str:
        return f"Event({self.id!r}, {self.type!r}, {self.data!r})"


class EventStream:
    """Iterate over it: it ends when it is closed, from whatever thread. When the connection breaks
    off it asks for what came behind `last_id`; Gone says that this isn't known any longer."""

    def __init__(self, transport: Transport, template: str, params: Mapping[str, FilePath],
                 query: Query, last_id: Optional[str]) -> None:
        self._t, self._template, self._params = transport, template, params
        self._query, self.last_id = query, last_id
        self._closed = threading.Event()
        self._body: Optional[Body] = self._open()  # what happens from now on is in it
        self._events = self._run()

    def _open(self) -> Body:
        headers = {"Accept": "text/event-stream"}
        if self.last_id is not None:
            headers["Last-Event-ID"] = self.last_id
        return self._t.open("GET", self._template, self._params, query=self._query,
                            headers=headers)

    def close(self) -> None:
        self._closed.set()
        body = self._body
        if body is not None:
            body.abort()

    def __enter__(self) -> "EventStream":
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        return next(self._events)

    def _run(self) -> Iterator[Event]:
        wait = FIRST_WAIT_S
        while not self._closed.is_set():
            try:
                if self._body is None:
                    self._body = self._open()
                for event in self._parse(self._body):
                    wait = FIRST_WAIT_S
                    yield event
                    if self._closed.is_set():
                        break
            except (ConnectionFailed, Unavailable):
                pass
            finally:
                body, self._body = self._body, None
                if body is not None:
                    body.close()
            self._closed.wait(wait * random.uniform(0.5, 1.0))
            wait = min(wait * 2, LONGEST_WAIT_S)

    def _parse(self, body: Body) -> Iterator[Event]:
        id, kind = self.last_id, ""  # counts when its empty line has come
        data: List[str] = []
        for raw in body.lines():
            line = raw.rstrip(b"\r").decode("utf-8", "replace")
            if not line:
                self.last_id = id
                if data:
                    yield Event(self.last_id or "", kind, json.loads("\n".join(data)))
                kind, data = "", []
                continue
            field, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if field == "id":
                id = value
            elif field == "event":
                kind = value
            elif field == "data":
                data.append(value)
