"""What boughd answers. snapd/API.md says what the fields mean; those that not every answer has
are left out where they don't apply."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, TypedDict


class _Owned(TypedDict, total=False):
    owner: str
    visibility: str  # "private", "team", "global"
    team: str        # its name; its id is below
    team_id: str
    expires: Optional[str]
    on_expiry: str   # "delete", "save", "keep"
    labels: Dict[str, str]


class WorkspaceInfo(_Owned, total=False):
    id: str
    name: str
    path: str
    mounted: bool
    created: str
    base: Optional[str]
    head: Optional[str]
    parent: Optional[str]
    quota_bytes: int
    quota_inodes: int
    state: str       # "ready", "read-only", "broken"
    description: Optional[str]
    error: str
    damage: str
    busy: bool
    deleted: str
    purges: str
    used_bytes: int
    used_inodes: int
    layers: int
    records: int
    files: int
    xattrs: bool
    git: Optional[Dict[str, Any]]
    checkout: Dict[str, Any]


class SnapshotInfo(_Owned, total=False):
    id: str
    names: List[str]
    message: Optional[str]
    created: str
    workspace: Optional[str]
    parent: Optional[str]
    manifest: str
    image: Dict[str, Any]
    files: int
    bytes: int
    stored_bytes: int
    unchanged: bool
    git: Optional[Dict[str, Any]]


class EntryInfo(TypedDict, total=False):
    name: str
    name_b64: str
    size: int
    type: str        # "file", "directory", "symlink", "fifo", "socket", "char", "block"
    modified_at: str
    mode: str
    etag: str
    target: str
    target_b64: str


class PutInfo(TypedDict, total=False):
    path: str
    size: int
    mode: str
    etag: str
    created: bool


class DiffEntry(TypedDict, total=False):
    kind: str        # "added", "deleted", "modified", "renamed", "type", "warning"
    path: str
    path_b64: str    # instead, where it isn't UTF-8
    old_path: str
    old_path_b64: str
    what: List[str]
    old: Optional[Dict[str, Any]]
    new: Optional[Dict[str, Any]]
    similarity: int
    message: str


class MergeInfo(TypedDict):
    workspace: WorkspaceInfo
    added: int
    removed: int
    moved: int
    changed: int
    merged: int


class CommitInfo(TypedDict, total=False):
    commit: Optional[str]
    parent: Optional[str]
    tree: str
    branch: str
    files: int
    unchanged: bool
    branch_moved: bool
    history: bool
    synced: bool
    warnings: List[str]


class RepositoryInfo(TypedDict, total=False):
    id: str
    number: int
    name: str
    kind: str        # "url", "path"
    url: str
    path: str
    created: str
    fetched: str
    head: Optional[str]
    owner: str
    visibility: str
    commit: Optional[str]
    branches: int
    branch_list: List[Dict[str, Any]]
    apart: List[Dict[str, Any]]
    tags: int
    bytes: int
    workspaces: int
    snapshots: int
    auth: Optional[str]
    error: str
    refs_changed: int
    objects: int
    bytes_received: int


class TokenInfo(TypedDict, total=False):
    id: str
    name: Optional[str]
    owner: str
    scope: str
    path: Optional[str]
    read_only: bool
    created: str
    expires: Optional[str]
    used: Optional[str]
    token: str       # of create() only


class UserInfo(TypedDict):
    name: str
    owner: str
    uid: Optional[int]
    admin: bool
    created: str


class QuotaInfo(TypedDict):
    owner: str
    workspaces: Optional[int]  # None: no limit
    snapshots: Optional[int]
    bytes: Optional[int]


class SandboxInfo(TypedDict, total=False):
    id: str
    name: Optional[str]
    status: str
    created: str
    owner: str
    labels: Dict[str, str]
    workspaces: List[Dict[str, Any]]
    visibility: str
    expires: Optional[str]


class ExecInfo(TypedDict, total=False):
    id: str
    status: str
    command: List[str]
    exit_code: Optional[int]


class WebhookInfo(TypedDict, total=False):
    id: str
    owner: str
    url: str
    events: Optional[List[str]]
    everybody: bool
    active: bool
    created: str
    secret: str      # of create() only


class DeliveryInfo(TypedDict, total=False):
    id: str
    seq: Optional[int]
    type: str
    created: str
    tries: int
    state: str       # "waiting", "delivered", "failed"
    status: Optional[int]
    error: Optional[str]
    next: Optional[str]


class MemberInfo(TypedDict):
    owner: str
    role: str        # "reader", "member", "admin"


class TeamInfo(TypedDict):
    id: str
    owner: str
    name: str
    created: str
    members: List[MemberInfo]


class ExportInfo(TypedDict, total=False):
    id: str
    format: str
    bytes: int       # of the archive
    created: str
    expires: str
    url: str
    members: int     # these two only where it was just made
    lost: Dict[str, int]


class JobInfo(TypedDict, total=False):
    id: str
    state: str       # "running", "done", "failed", "cancelled"
    owner: str
    path: str
    object: str
    created: str
    ended: Optional[str]
    progress: Dict[str, Any]
    status: int
    result: Optional[Dict[str, Any]]
    error: Optional[Dict[str, Any]]


class AuditInfo(TypedDict, total=False):
    seq: int
    time: str
    owner: str
    user: Optional[str]
    token: Optional[str]
    method: str
    path: str
    object: Optional[str]
    status: int
    about: Optional[Dict[str, Any]]


class WhoamiInfo(TypedDict, total=False):
    owner: str
    admin: bool
    read_only: bool
    uid: Optional[int]
    token: Optional[str]
    workspace: Optional[str]


class UsageInfo(TypedDict):
    id: str
    unique_bytes: Optional[int]
    shared_bytes: Optional[int]
    written_bytes: Optional[int]
