"""What boughd answers: all that snapd/openapi.json says of each, and nothing else (a test compares
them). snapd/API.md says what the fields mean; those that not every answer has are left out where
they don't apply."""

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


class GitInfo(TypedDict, total=False):
    repo: int
    name: Optional[str]  # of workspaces only
    ref: Optional[str]
    base: str
    anchor: str
    branch: Optional[str]
    depth: int
    scopes: List[str]
    pending: str
    pending_branch: str


class ImageInfo(TypedDict, total=False):
    env: List[str]
    user: str
    workdir: str
    entrypoint: List[str]
    cmd: List[str]
    stop_signal: str
    labels: Dict[str, str]
    digest: str
    architecture: str


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
    git: GitInfo
    checkout: Dict[str, Any]
    sandboxes: List[Dict[str, Any]]  # where the caller may change it


class SnapshotInfo(_Owned, total=False):
    id: str
    names: List[str]
    message: Optional[str]
    created: str
    workspace: Optional[str]
    parent: Optional[str]
    manifest: str
    image: ImageInfo
    files: int
    bytes: int
    stored_bytes: int
    unchanged: bool
    git: GitInfo


class EntryInfo(TypedDict, total=False):
    name: str
    name_b64: str
    size: int
    type: str        # "file", "directory", "symlink", "fifo", "socket", "char", "block"
    modified_at: str
    created_at: str  # of walk() only
    mode: str
    target: str
    target_b64: str


class PutInfo(TypedDict, total=False):
    path: str
    path_b64: str    # instead, where it isn't UTF-8
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
    branch_list: List[BranchInfo]
    apart: List[BranchInfo]
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


class LimitsInfo(TypedDict):
    cpu_milli: int
    memory_bytes: int
    pids: int
    shm_bytes: int
    disk_bytes: int
    inodes: int


class AttachedInfo(TypedDict):
    workspace: str
    name: Optional[str]
    target: str
    read_only: bool
    exclusive: bool
    own: bool


class SandboxInfo(_Owned, total=False):
    id: str
    name: str
    type: str        # "sandbox"
    status: str      # "created", "running", "paused", "stopped", "hibernated", "failed"
    error: str
    created: str
    started: Optional[str]
    ended: Optional[str]
    last_activity: str
    exit_code: Optional[int]
    reason: Optional[str]
    pid: int
    root: Optional[str]
    image: str
    snapshot: Optional[str]
    runtime: str
    workspaces: List[AttachedInfo]
    command: Optional[List[str]]
    env: List[str]
    secrets: List[str]     # their names
    secret_env: List[str]
    user: Optional[str]
    cwd: Optional[str]
    hostname: str
    net: str         # "none", "host"
    tty: bool
    stdin: bool
    auto_remove: bool
    limits: LimitsInfo
    unenforced: List[str]
    description: Optional[str]
    policy: Optional[str]


class SandboxStatsInfo(TypedDict):
    running: bool
    cpu_ns: int
    memory_bytes: int
    memory_peak_bytes: int
    memory_limit_bytes: int
    pids: int
    pids_limit: int
    oom_kills: int
    disk_bytes: int
    inodes: int


class SandboxSavedInfo(TypedDict):
    root: SnapshotInfo
    workspaces: List[SnapshotInfo]
    pause_ns: int


class ExecInfo(TypedDict, total=False):
    id: str
    sandbox: str
    by: str
    status: str      # "created", "running", "exited"
    exit_code: Optional[int]
    reason: Optional[str]
    created: str
    started: Optional[str]
    ended: Optional[str]
    command: Optional[List[str]]
    env: List[str]   # names
    cwd: Optional[str]
    user: Optional[str]
    tty: bool
    stdin: bool
    timeout_ms: int
    stdout: Dict[str, Any]  # first, end, closed
    stderr: Dict[str, Any]
    stdin_offset: int


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
    seq: int
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


class ProgressInfo(TypedDict):
    done: int
    total: int       # 0: nobody knows
    unit: str
    what: str


class JobInfo(TypedDict, total=False):
    id: str
    state: str       # "running", "done", "failed", "cancelled"
    owner: str
    path: str
    object: str
    created: str
    ended: Optional[str]
    progress: ProgressInfo
    status: int
    result: Optional[Dict[str, Any]]
    error: Optional[Dict[str, Any]]


_From = TypedDict("_From", {"from": str})  # the process or address: a word of the language


class AuditInfo(_From):
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


class WhoamiInfo(_From):
    owner: str
    admin: bool
    read_only: bool
    uid: Optional[int]
    token: Optional[str]
    workspace: Optional[str]
    team: Optional[str]
    path: Optional[str]


class UsageInfo(TypedDict):
    id: str
    unique_bytes: Optional[int]
    shared_bytes: Optional[int]
    written_bytes: Optional[int]


class SignedInfo(TypedDict):
    url: str         # a path, to put behind where boughd is reached
    expires: str


class ExtractedInfo(TypedDict):
    members: int
    bytes: int
    ignored: Dict[str, int]


class PushedInfo(TypedDict):
    commit: str
    branch: str
    remote: str


class BranchInfo(TypedDict):
    name: str
    upstream: Optional[str]
    local: Optional[str]
    ahead: Optional[int]
    behind: Optional[int]


class ResetInfo(TypedDict):
    branch: str
    was: Optional[str]
    commit: Optional[str]
    lost: int
    moved: bool


class InputInfo(TypedDict):
    offset: int
    closed: bool


class CollectedInfo(TypedDict):
    objects_live: int
    objects_dead: int
    bytes_freed: int
    packs_rewritten: int
    packs_deleted: int
    images_deleted: int


class CheckedInfo(TypedDict):
    faults: List[Dict[str, Any]]
    more_faults: int
    checked: Dict[str, int]


class ServerInfo(TypedDict):
    up: bool
    pid: int
    starts: int
    deaths: int
    problem: str


class HealthInfo(TypedDict):
    ok: bool
    version: str
    pid: int
    root: str
    fs: ServerInfo
    catalog: Optional[str]


class StatsInfo(TypedDict):
    store: Optional[Dict[str, Any]]
    fs: Optional[Dict[str, Any]]
    fs_process: ServerInfo
    catalog: Optional[Dict[str, Any]]
    daemon: Dict[str, Any]
