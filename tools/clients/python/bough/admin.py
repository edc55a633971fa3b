"""Repositories; tokens, users and teams."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, cast

from ._http import Body, Source
from ._transport import Progress, Transport
from .jobs import Job
from .types import (DeliveryInfo, ExportInfo, QuotaInfo, RepositoryInfo, ResetInfo, TeamInfo,
                    TokenInfo, UserInfo, WebhookInfo)
from .workspaces import PAGE, pages


class Repositories:
    """Mirrors of git repositories. Secrets (token, ssh_key) are sent in bodies, and never come
    back."""

    def __init__(self, transport: Transport) -> None:
        self._t = transport

    def list(self) -> List[RepositoryInfo]:
        return cast(List[RepositoryInfo], self._t.call("GET", "/v1/repos")["items"])

    def get(self, repo: str) -> RepositoryInfo:
        return cast(RepositoryInfo, self._t.call("GET", "/v1/repos/{repo}", {"repo": repo}))

    def add(self, url: str, *, progress: Optional[Progress] = None, key: Optional[str] = None,
            **fields: Any) -> RepositoryInfo:
        """name, token, ssh_key, known_hosts"""
        return cast(RepositoryInfo, self._t.long("/v1/repos", json_body={"url": url, **fields},
                                                 progress=progress, key=key))

    def add_job(self, url: str, **fields: Any) -> Job:
        return Job(self._t, self._t.job("/v1/repos", json_body={"url": url, **fields}))

    def create(self, files: Source, path: str, *, name: Optional[str] = None,
               length: Optional[int] = None, progress: Optional[Progress] = None) -> RepositoryInfo:
        """From a repository's files as a tar stream (bough-pack --git); `path` is where they
        lie."""
        return cast(RepositoryInfo, self._t.long(
            "/v1/repos/import", query={"path": path, "name": name}, body=files, length=length,
            progress=progress))

    def update(self, repo: str, files: Source, *, length: Optional[int] = None,
               progress: Optional[Progress] = None) -> RepositoryInfo:
        """Its files again, of one that was made by create()."""
        return cast(RepositoryInfo, self._t.long("/v1/repos/{repo}/import", {"repo": repo},
                                                 body=files, length=length, progress=progress))

    def packs(self, repo: str) -> List[str]:
        """Checksums of the packs that it has, which update() needn't send."""
        return cast(List[str], list(pages(self._t, "/v1/repos/{repo}/packs", {}, PAGE,
                                          {"repo": repo})))

    def fetch(self, repo: str, *, progress: Optional[Progress] = None,
              **secrets: str) -> RepositoryInfo:
        return cast(RepositoryInfo, self._t.long("/v1/repos/{repo}/fetch", {"repo": repo},
                                                 json_body=secrets, progress=progress))

    def fetch_job(self, repo: str, **secrets: str) -> Job:
        return Job(self._t, self._t.job("/v1/repos/{repo}/fetch", {"repo": repo},
                                        json_body=secrets))

    def reset(self, repo: str, branch: str, *, force: bool = False) -> ResetInfo:
        return cast(ResetInfo, self._t.call("POST", "/v1/repos/{repo}/reset", {"repo": repo},
                                            json_body={"branch": branch, "force": force}))

    def delete(self, repo: str) -> None:
        self._t.call("DELETE", "/v1/repos/{repo}", {"repo": repo})


class Tokens:
    def __init__(self, transport: Transport) -> None:
        self._t = transport

    def list(self, *, page: int = PAGE) -> Iterator[TokenInfo]:
        for one in pages(self._t, "/v1/tokens", {}, page):
            yield cast(TokenInfo, one)

    def create(self, name: Optional[str] = None, *, scope: Optional[str] = None,
               read_only: Optional[bool] = None, expires_s: Optional[int] = None,
               owner: Optional[str] = None, path: Optional[str] = None) -> TokenInfo:
        """`scope`: "owner", "admin", "team:TEAM", or a workspace, with a `path` in it that it is
        for. Its `token` is told this once."""
        return cast(TokenInfo, self._t.call("POST", "/v1/tokens", json_body={
            "name": name, "scope": scope, "read_only": read_only, "expires_s": expires_s,
            "owner": owner, "path": path}))

    def delete(self, id: str) -> None:
        self._t.call("DELETE", "/v1/tokens/{id}", {"id": id})


class Users:
    def __init__(self, transport: Transport) -> None:
        self._t = transport

    def list(self) -> List[UserInfo]:
        return cast(List[UserInfo], [*pages(self._t, "/v1/users", {}, PAGE)])

    def create(self, name: str, *, uid: Optional[int] = None,
               admin: Optional[bool] = None, owner: Optional[str] = None) -> UserInfo:
        return cast(UserInfo, self._t.call("POST", "/v1/users", json_body={
            "name": name, "uid": uid, "admin": admin, "owner": owner}))

    def delete(self, name: str) -> None:
        self._t.call("DELETE", "/v1/users/{name}", {"name": name})


class Teams:
    def __init__(self, transport: Transport) -> None:
        self._t = transport

    def list(self) -> List[TeamInfo]:
        return cast(List[TeamInfo], [*pages(self._t, "/v1/teams", {}, PAGE)])

    def get(self, team: str) -> TeamInfo:
        return cast(TeamInfo, self._t.call("GET", "/v1/teams/{team}", {"team": team}))

    def create(self, name: str) -> TeamInfo:
        return cast(TeamInfo, self._t.call("POST", "/v1/teams", json_body={"name": name}))

    def delete(self, team: str) -> None:
        self._t.call("DELETE", "/v1/teams/{team}", {"team": team})

    def add(self, team: str, owner: str, role: str = "member") -> TeamInfo:
        """`owner` is a user's name or uid:N; `role` "reader", "member" or "admin"."""
        return cast(TeamInfo, self._t.call("PUT", "/v1/teams/{team}/members/{owner}",
                                           {"team": team, "owner": owner},
                                           json_body={"role": role}))

    def remove(self, team: str, owner: str) -> None:
        self._t.call("DELETE", "/v1/teams/{team}/members/{owner}",
                     {"team": team, "owner": owner})


class Quotas:
    """Of owners: users' names or uid:N."""

    def __init__(self, transport: Transport) -> None:
        self._t = transport

    def list(self) -> List[QuotaInfo]:
        return cast(List[QuotaInfo], [*pages(self._t, "/v1/quotas", {}, PAGE)])

    def get(self, owner: str) -> QuotaInfo:
        return cast(QuotaInfo, self._t.call("GET", "/v1/quotas/{owner}", {"owner": owner}))

    def set(self, owner: str, *, workspaces: Optional[int] = None,
            snapshots: Optional[int] = None, bytes: Optional[int] = None) -> QuotaInfo:
        """What isn't given has no limit."""
        return cast(QuotaInfo, self._t.call("PUT", "/v1/quotas/{owner}", {"owner": owner},
                                            json_body={"workspaces": workspaces,
                                                       "snapshots": snapshots, "bytes": bytes}))

    def delete(self, owner: str) -> None:
        self._t.call("DELETE", "/v1/quotas/{owner}", {"owner": owner})


class Exports:
    """Archives of workspaces and snapshots that boughd made and keeps for a day, to be fetched in
    parts. Their bytes are in their owner's quota meanwhile."""

    def __init__(self, transport: Transport) -> None:
        self._t = transport

    def list(self) -> List[ExportInfo]:
        return cast(List[ExportInfo], [*pages(self._t, "/v1/exports", {}, PAGE)])

    def create(self, source: str, *, format: Optional[str] = None, path: Optional[str] = None,
               key: Optional[str] = None, progress: Optional[Progress] = None) -> ExportInfo:
        """Of a workspace or snapshot; `format` is as that of `files.archive`."""
        return cast(ExportInfo, self._t.long(
            "/v1/exports", json_body={"from": source, "format": format, "path": path}, key=key,
            progress=progress))

    def create_job(self, source: str, *, format: Optional[str] = None, path: Optional[str] = None,
                   key: Optional[str] = None) -> Job:
        return Job(self._t, self._t.job(
            "/v1/exports", json_body={"from": source, "format": format, "path": path}, key=key))

    def open(self, id: str, *, start: int = 0) -> Body:
        """Its bytes, from that one on."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        return self._t.open("GET", "/v1/exports/{id}", {"id": id}, headers=headers)

    def head(self, id: str) -> Dict[str, str]:
        with self._t.open("HEAD", "/v1/exports/{id}", {"id": id}) as answer:
            return dict(answer.headers)

    def delete(self, id: str) -> None:
        self._t.call("DELETE", "/v1/exports/{id}", {"id": id})


class Webhooks:
    """boughd calls a URL for each event."""

    def __init__(self, transport: Transport) -> None:
        self._t = transport

    def list(self) -> List[WebhookInfo]:
        return cast(List[WebhookInfo], self._t.call("GET", "/v1/webhooks")["items"])

    def get(self, id: str) -> WebhookInfo:
        return cast(WebhookInfo, self._t.call("GET", "/v1/webhooks/{id}", {"id": id}))

    def create(self, url: str, **fields: Any) -> WebhookInfo:
        """events (absent: all), secret (else one is made, and told this once), active,
        everybody"""
        return cast(WebhookInfo, self._t.call("POST", "/v1/webhooks",
                                              json_body={"url": url, **fields}))

    def update(self, id: str, **fields: Any) -> WebhookInfo:
        """url, events, secret, active"""
        return cast(WebhookInfo, self._t.call("PATCH", "/v1/webhooks/{id}", {"id": id},
                                              json_body=fields))

    def delete(self, id: str) -> None:
        self._t.call("DELETE", "/v1/webhooks/{id}", {"id": id})

    def test(self, id: str) -> DeliveryInfo:
        return cast(DeliveryInfo, self._t.call("POST", "/v1/webhooks/{id}/test", {"id": id},
                                               json_body={}))

    def deliveries(self, id: str, *, page: int = PAGE) -> Iterator[DeliveryInfo]:
        for one in pages(self._t, "/v1/webhooks/{id}/deliveries", {}, page, {"id": id}):
            yield cast(DeliveryInfo, one)
