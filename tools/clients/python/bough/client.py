"""The client."""

from __future__ import annotations

import ipaddress
import json
import os
import ssl
import urllib.parse
from typing import Any, Callable, Dict, Iterator, List, Optional, cast

from ._http import Body, Target
from ._transport import Progress, Transport, parse
from .admin import Exports, Quotas, Repositories, Teams, Tokens, Users, Webhooks
from .errors import error_of
from .events import EventStream
from .jobs import Job
from .sandboxes import Sandboxes
from .types import (AuditInfo, CheckedInfo, CollectedInfo, HealthInfo, JobInfo, StatsInfo, UsageInfo,
                    WhoamiInfo)
from .workspaces import PAGE, Snapshots, Workspaces, pages


def default_socket() -> str:
    """Where the command line looks, too."""
    root = os.environ.get("BOUGH_ROOT")
    if not root and os.geteuid() == 0:
        root = "/var/lib/bough"
    if not root:
        state = os.environ.get("XDG_STATE_HOME")
        root = os.path.join(state or os.path.expanduser("~/.local/state"), "bough")
    return os.path.join(root, "run", "boughd.sock")


class Client:
    """A boughd: by its unix socket, else by a URL (http or https) with a token.

    timeout: seconds without a byte, None: for ever; what takes long answers nothing before its
    end, unless its progress is asked for. retries: how often what can be repeated without harm is,
    within retry_for seconds. ca: a file of certificates that sign the server's. insecure: let the
    token go by http beyond this machine, where nobody listens in. on_request is
    called with method and path template before each request.

    Threads may share one; each request has a connection of its own."""

    def __init__(self, socket: Optional[str] = None, *, url: Optional[str] = None,
                 token: Optional[str] = None, ca: Optional[str] = None, insecure: bool = False,
                 timeout: Optional[float] = 600.0, connect_timeout: Optional[float] = 10.0,
                 retries: int = 5, retry_for: float = 30.0,
                 on_request: Optional[Callable[[str, str], None]] = None) -> None:
        if socket is not None and url is not None:
            raise ValueError("a socket or a URL")
        target = _target(url, ca) if url is not None else Target(path=socket or default_socket())
        if token is not None and url is not None and not (insecure or target.tls or
                                                          _is_here(target.host)):
            raise ValueError(f"{url}: the token would go there in the clear: use https, or insecure")
        self._t = Transport(target, token, timeout=timeout, connect_timeout=connect_timeout,
                            retries=retries, retry_for=retry_for, on_request=on_request)
        self.workspaces = Workspaces(self._t)
        self.snapshots = Snapshots(self._t)
        self.repos = Repositories(self._t)
        self.tokens = Tokens(self._t)
        self.users = Users(self._t)
        self.teams = Teams(self._t)
        self.quotas = Quotas(self._t)
        self.exports = Exports(self._t)
        self.webhooks = Webhooks(self._t)
        self.sandboxes = Sandboxes(self._t)

    def close(self) -> None:
        self._t.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    # -- who and what

    def whoami(self) -> WhoamiInfo:
        return cast(WhoamiInfo, self._t.call("GET", "/v1/whoami"))

    def version(self) -> Dict[str, str]:
        return cast(Dict[str, str], self._t.call("GET", "/v1/version"))

    def health(self) -> HealthInfo:
        return cast(HealthInfo, self._t.call("GET", "/v1/health"))

    def openapi(self) -> Dict[str, Any]:
        return cast(Dict[str, Any], self._t.call("GET", "/v1/openapi.json"))

    def usage(self) -> List[UsageInfo]:
        return cast(List[UsageInfo], self._t.call("GET", "/v1/usage")["items"])

    def stats(self) -> StatsInfo:
        return cast(StatsInfo, self._t.call("GET", "/v1/stats"))

    def metrics(self) -> str:
        with self._t.open("GET", "/metrics") as answer:
            return answer.read().decode()

    def open_signed(self, url: str, method: str = "GET") -> Body:
        """What a signed URL leads to, as `files.open` gives it."""
        parts = urllib.parse.urlsplit(url)
        _, version, signed, id, path = (parts.path + "/").split("/", 4)
        if (version, signed) != ("v1", "signed"):
            raise ValueError(f"{url}: no signed URL")
        return self._t.open(method, "/v1/signed/{id}/{path}", {
            "id": id, "path": urllib.parse.unquote_to_bytes(path[:-1])},
            query=dict(urllib.parse.parse_qsl(parts.query)),
            headers={"Accept-Encoding": "identity"})

    # -- what happens, and happened

    def events(self, since: Optional[str] = None) -> EventStream:
        """What happens to all that the caller sees, from now on or behind the event `since`."""
        return EventStream(self._t, "/v1/events", {}, {}, since)

    def audit(self, object: Optional[str] = None, *, page: int = PAGE,
              **filters: str) -> Iterator[AuditInfo]:
        """`filters`: owner, token, method, since and until (times), failed="1" """
        for one in pages(self._t, "/v1/audit", {"object": object, **filters}, page):
            yield cast(AuditInfo, one)

    def audit_export(self, object: Optional[str] = None, **filters: str) -> Iterator[AuditInfo]:
        """All of it in one stream."""
        with self._t.open("GET", "/v1/audit",
                          query={"object": object, "format": "ndjson", **filters}) as answer:
            for line in answer.lines():
                said = json.loads(line)
                if "error" in said:
                    raise error_of(said["error"], 0)
                yield cast(AuditInfo, said)

    # -- jobs

    def job(self, id: str) -> Job:
        return Job(self._t, self._t.call("GET", "/v1/jobs/{id}", {"id": id}))

    def jobs(self, *, page: int = PAGE) -> Iterator[Job]:
        for one in pages(self._t, "/v1/jobs", {}, page):
            yield Job(self._t, cast(JobInfo, one))

    # -- the service

    def gc(self, *, progress: Optional[Progress] = None) -> CollectedInfo:
        return cast(CollectedInfo, self._t.long("/v1/gc", json_body={}, progress=progress))

    def gc_job(self) -> Job:
        return Job(self._t, self._t.job("/v1/gc"))

    def fsck(self, *, repair: bool = False,
             progress: Optional[Progress] = None) -> CheckedInfo:
        return cast(CheckedInfo, self._t.long("/v1/fsck", json_body={"repair": repair},
                                              progress=progress))

    def fsck_job(self, *, repair: bool = False) -> Job:
        return Job(self._t, self._t.job("/v1/fsck", json_body={"repair": repair}))

    def shutdown(self, *, grace_ms: Optional[int] = None) -> None:
        """Stops sandboxes (grace_ms from TERM to KILL), unmounts all, and ends boughd and
        bough-fs."""
        self._t.call("POST", "/v1/shutdown", json_body={"grace_ms": grace_ms})

    # -- what this library has no method for

    def call(self, method: str, path: str, body: Optional[Dict[str, Any]] = None) -> Any:
        """Any request in JSON: path with its query, quoted already."""
        with self._t.open(method, path, json_body=body) as answer:
            return parse(answer)


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _target(url: str, ca: Optional[str]) -> Target:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError(f"{url}: http://HOST:PORT or https://HOST:PORT is expected")
    tls = ssl.create_default_context(cafile=ca) if parts.scheme == "https" else None
    if tls is not None:
        tls.minimum_version = ssl.TLSVersion.TLSv1_2
    return Target(host=parts.hostname, port=parts.port or (443 if tls else 80), tls=tls)
