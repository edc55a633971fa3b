// Types of bough's client. Those of answers are all that snapd/openapi.json says (a test compares
// them); snapd/API.md says what the fields mean.

import type { Readable } from 'node:stream';

export type Path = string | Uint8Array;
export type Bytes = string | ArrayBuffer | ArrayBufferView | Blob | ReadableStream<Uint8Array>
  | Readable | AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
export type Labels = Record<string, string>;
export interface ProgressInfo { done: number; total: number; unit: string; what: string }
export type Progress = (at: ProgressInfo) => void;
type Lists<T> = AsyncIterableIterator<T>;

export interface Owned {
  visibility?: 'private' | 'team' | 'global';
  team?: string;
  ttl_s?: number;
  on_expiry?: 'delete' | 'save' | 'keep';
}
export interface GitInfo {
  repo: number; ref: string | null; base: string; anchor: string; branch: string | null;
  depth: number; scopes: string[];
  /** Of workspaces only. */
  name?: string | null;
  pending?: string; pending_branch?: string;
}
export interface ImageInfo {
  env?: string[]; user?: string; workdir?: string; entrypoint?: string[]; cmd?: string[];
  stop_signal?: string; labels?: Labels; digest?: string; architecture?: string;
}
export interface WorkspaceInfo {
  id: string; name: string; path: string; mounted: boolean; created: string;
  base: string | null; head: string | null; parent: string | null; labels: Labels;
  quota_bytes: number; quota_inodes: number; state: 'ready' | 'read-only' | 'broken'; owner: string;
  visibility: 'private' | 'team' | 'global'; description: string | null; expires: string | null;
  team?: string; team_id?: string; on_expiry?: string; error?: string; damage?: string;
  busy?: boolean; deleted?: string; purges?: string; used_bytes?: number; used_inodes?: number;
  layers?: number; records?: number; files?: number; xattrs?: boolean; git?: GitInfo;
  checkout?: Record<string, unknown>;
  /** Where the caller may change it. */
  sandboxes?: { id: string; name: string; owner: string; target: string; read_only: boolean;
    exclusive: boolean }[];
}
export interface SnapshotInfo {
  id: string; names: string[]; message: string | null; created: string; workspace: string | null;
  parent: string | null; manifest: string; files: number; bytes: number; stored_bytes: number;
  labels: Labels; owner: string; visibility: string; expires: string | null; unchanged?: boolean;
  team?: string; team_id?: string; on_expiry?: string; git?: GitInfo; image?: ImageInfo;
}
export interface Entry {
  /** Or name_b64, where it isn't UTF-8; so are other paths. */
  name?: string;
  name_b64?: string; size: number; modified_at: string; mode: string;
  type: 'file' | 'directory' | 'symlink' | 'fifo' | 'socket' | 'char' | 'block';
  /** Of walk() only. */
  created_at?: string;
  target?: string; target_b64?: string;
}
export interface PutInfo {
  path?: string; path_b64?: string; size: number; mode: string; etag: string; created: boolean;
}
export interface DiffEntry {
  kind: 'added' | 'deleted' | 'modified' | 'renamed' | 'type' | 'warning';
  path?: string; path_b64?: string; old_path?: string; old_path_b64?: string; what?: string[];
  message?: string;
  old?: Record<string, unknown> | null; new?: Record<string, unknown> | null; similarity?: number;
}
export interface MergeInfo {
  workspace: WorkspaceInfo; added: number; removed: number; moved: number; changed: number;
  merged: number;
}
export interface CommitInfo {
  commit: string | null; parent: string | null; tree: string | null; branch: string; files: number;
  unchanged: boolean; branch_moved: boolean; history: boolean; synced: boolean; warnings: string[];
}
export interface BranchInfo {
  name: string; upstream: string | null; local: string | null; ahead: number | null;
  behind: number | null;
}
export interface ResetInfo {
  branch: string; was: string | null; commit: string | null; lost: number; moved: boolean;
}
export interface PushedInfo { commit: string; branch: string; remote: string }
export interface RepositoryInfo {
  id: string; number: number; name: string; kind: 'url' | 'path'; created: string; fetched: string;
  head: string | null; owner: string; visibility: string; url?: string; path?: string;
  commit?: string | null; branches?: number; tags?: number; bytes?: number; workspaces?: number;
  snapshots?: number; auth?: string | null; error?: string; refs_changed?: number;
  objects?: number; bytes_received?: number; branch_list?: BranchInfo[]; apart?: BranchInfo[];
}
export interface TokenInfo {
  id: string; name: string | null; owner: string; scope: string; path: string | null;
  read_only: boolean; created: string; expires: string | null; used: string | null;
  token?: string;
}
export interface UserInfo {
  name: string; owner: string; uid: number | null; admin: boolean; created: string;
}
export interface TeamInfo {
  id: string; owner: string; name: string; created: string;
  members: { owner: string; role: 'reader' | 'member' | 'admin' }[];
}
export interface QuotaInfo {
  owner: string; workspaces: number | null; snapshots: number | null; bytes: number | null;
}
export interface ExportInfo {
  id: string; format: string; bytes: number; created: string; expires: string; url: string;
  members?: number; lost?: Record<string, number>;
}
export interface JobInfo {
  id: string; state: 'running' | 'done' | 'failed' | 'cancelled'; owner: string; path: string;
  object?: string; created: string; ended: string | null; progress?: ProgressInfo;
  status?: number; result?: Record<string, unknown> | null;
  error?: { code: string; message: string; details: Record<string, unknown> } | null;
}
export interface AuditInfo {
  seq: number; time: string; owner: string; user: string | null; token: string | null;
  from: string; method: string;
  path: string; object: string | null; status: number; about: Record<string, unknown> | null;
}
export interface UsageInfo {
  id: string; unique_bytes: number | null; shared_bytes: number | null;
  written_bytes: number | null;
}
export interface WhoamiInfo {
  owner: string; admin: boolean; read_only: boolean; uid: number | null; token: string | null;
  workspace: string | null; team: string | null; path: string | null; from: string;
}
export interface WebhookInfo {
  id: string; owner: string; url: string; events: string[] | null; everybody: boolean;
  active: boolean; created: string;
  /** Of create() only. */
  secret?: string;
}
export interface DeliveryInfo {
  id: string; seq: number; type: string; created: string; tries: number;
  state: 'waiting' | 'delivered' | 'failed'; status: number | null; error: string | null;
  next: string | null;
}
export interface SandboxInfo {
  id: string; name: string; type: 'sandbox';
  status: 'created' | 'running' | 'paused' | 'stopped' | 'hibernated' | 'failed';
  created: string; started: string | null; ended: string | null; last_activity: string;
  exit_code: number | null; reason: string | null; root: string | null; policy: string | null;
  labels: Labels; description: string | null; image: string; snapshot: string | null;
  runtime: string; hostname: string; user: string | null; cwd: string | null;
  command: string[] | null; env: string[];
  /** Their names. */
  secrets: string[];
  secret_env: string[]; net: 'none' | 'host'; tty: boolean; stdin: boolean; auto_remove: boolean;
  workspaces: { workspace: string; name: string | null; target: string; read_only: boolean;
    exclusive: boolean; own: boolean }[];
  limits: { cpu_milli: number; memory_bytes: number; pids: number; shm_bytes: number;
    disk_bytes: number; inodes: number };
  owner: string; visibility: 'private' | 'team' | 'global'; expires: string | null; team?: string;
  team_id?: string; on_expiry?: string; pid?: number; error?: string; unenforced?: string[];
}
export interface SandboxStatsInfo {
  running: boolean; cpu_ns: number; memory_bytes: number; memory_peak_bytes: number;
  memory_limit_bytes: number; pids: number; pids_limit: number; oom_kills: number;
  disk_bytes: number; inodes: number;
}
export interface SandboxSavedInfo {
  root: SnapshotInfo; workspaces: SnapshotInfo[]; pause_ns: number;
}
export interface OutputInfo { first: number; end: number; closed: boolean }
export interface ExecInfo {
  id: string; sandbox: string; by: string; status: 'created' | 'running' | 'exited';
  exit_code: number | null; reason: string | null; created: string; started: string | null;
  ended: string | null; command: string[] | null;
  /** Names. */
  env: string[];
  cwd: string | null; user: string | null; tty: boolean; stdin: boolean; timeout_ms: number;
  stdout?: OutputInfo; stderr?: OutputInfo; stdin_offset?: number;
}
export interface InputInfo { offset: number; closed: boolean }
export interface SignedInfo { url: string; expires: string }
export interface ExtractedInfo {
  members: number; bytes: number; ignored: { xattrs: number; acls: number };
}
export interface CollectedInfo {
  objects_live: number; objects_dead: number; bytes_freed: number; packs_rewritten: number;
  packs_deleted: number; images_deleted: number;
}
export interface CheckedInfo {
  faults: Record<string, unknown>[]; more_faults: number; checked: Record<string, number>;
}
export interface VersionInfo { name: string; version: string; api: string }
export interface ServerInfo {
  up: boolean; pid: number; starts: number; deaths: number; problem: string;
}
export interface HealthInfo {
  ok: boolean; version: string; pid: number; root: string; fs: ServerInfo; catalog: string | null;
}
export interface StatsInfo {
  store: Record<string, any> | null; fs: Record<string, any> | null; fs_process: ServerInfo;
  catalog: Record<string, any> | null; daemon: Record<string, any>;
}
export interface EventInfo { id: string; type: string; data: Record<string, any> }

export class BoughError extends Error {}
export class ConnectionFailed extends BoughError { sent: boolean }
export class AnswerCut extends ConnectionFailed {}
export class BadAnswer extends BoughError {}
export class ApiError extends BoughError {
  code: string; reason: string; details: Record<string, any>; status: number;
}
export class Invalid extends ApiError {}
export class Unauthenticated extends ApiError {}
export class Forbidden extends ApiError {}
export class NotFound extends ApiError {}
export class Conflict extends ApiError {}
export class Busy extends Conflict {}
export class Gone extends ApiError {}
export class Changed extends ApiError {}
export class TooLarge extends ApiError {}
export class TooMany extends ApiError {}
export class NoSpace extends ApiError {}
export class Unavailable extends ApiError {}

/** The bytes of an answer: read them once, or close it. */
export class Body implements AsyncIterable<Buffer> {
  readonly status: number;
  readonly headers: Record<string, string | undefined>;
  /** Behind its end. */
  readonly trailers: Record<string, string | undefined>;
  /** What an archive or a patch that was read to its end tells. */
  readonly summary: Record<string, any>;
  [Symbol.asyncIterator](): AsyncIterableIterator<Buffer>;
  bytes(max?: number): Promise<Buffer>;
  text(): Promise<string>;
  json(): Promise<any>;
  lines(): AsyncIterableIterator<string>;
  stream(): ReadableStream<Uint8Array>;
  close(): void;
}

/** Ends when it is closed, or a loop over it is left; resumes where it was broken off. */
export class EventStream implements AsyncIterableIterator<EventInfo> {
  readonly lastId?: string;
  [Symbol.asyncIterator](): this;
  next(): Promise<IteratorResult<EventInfo>>;
  return(value?: any): Promise<IteratorResult<EventInfo>>;
  close(): void;
}

export interface ReadOptions {
  /** Negative: from the file's end. */
  start?: number;
  /** Not included. */
  end?: number;
  coding?: string;
  ifNoneMatch?: string;
  digest?: boolean;
  signal?: AbortSignal;
}
export class SnapshotFiles {
  open(path: Path, options?: ReadOptions): Promise<Body>;
  read(path: Path, options?: ReadOptions): Promise<Buffer>;
  readText(path: Path, options?: ReadOptions): Promise<string>;
  /** Into a local file; the ETag. Goes on after a connection that broke off. */
  download(path: Path, to: string): Promise<string>;
  head(path: Path): Promise<Record<string, string | undefined>>;
  stat(path: Path): Promise<Entry>;
  exists(path: Path): Promise<boolean>;
  list(path?: Path, options?: { page?: number }): Lists<Entry>;
  walk(path?: Path): Lists<Entry>;
  sign(path: Path, options?: { expiresIn?: number; method?: 'GET'; pin?: boolean }): Promise<SignedInfo>;
  archive(path?: Path, options?: {
    format?: 'tar' | 'tar.zst' | 'zip' | 'cpio'; signal?: AbortSignal }): Promise<Body>;
  archiveRest(have: string | Uint8Array, before: string, path?: Path, options?: {
    format?: 'tar' | 'tar.zst'; signal?: AbortSignal }): Promise<Body>;
}
export interface WriteOptions {
  mode?: string; ifMatch?: string; ifNoneMatch?: string; coding?: string; length?: number;
  digest?: boolean; signal?: AbortSignal;
}
export class WorkspaceFiles extends SnapshotFiles {
  write(path: Path, data: Bytes, options?: WriteOptions): Promise<PutInfo>;
  writeForm(path: Path, data: string | Uint8Array, options?: { mode?: string }): Promise<PutInfo>;
  upload(local: string, path: Path, options?: WriteOptions): Promise<PutInfo>;
  delete(path: Path, options?: { recursive?: boolean; ifMatch?: string }): Promise<null>;
  mkdir(path: Path, options?: { mode?: string; parents?: boolean }): Promise<Entry>;
  move(path: Path, to: Path, options?: { replace?: boolean }): Promise<Entry>;
  copy(path: Path, to: Path, options?: { replace?: boolean }): Promise<Entry>;
  symlink(path: Path, target: Path): Promise<Entry>;
  chmod(path: Path, mode: string): Promise<Entry>;
  batch(operations: BatchOperation[]): Promise<{
    path?: string; path_b64?: string; etag?: string; mode?: string; size?: number }[]>;
  extract(archive: Bytes, path?: Path, options?: {
    atomic?: boolean; length?: number; signal?: AbortSignal }): Promise<ExtractedInfo>;
}
export interface BatchOperation {
  op: 'write' | 'mkdir' | 'move' | 'delete' | 'symlink' | 'chmod' | 'check';
  path?: Path; path_b64?: string; content?: Bytes; content_b64?: string; mode?: string;
  to?: Path; to_b64?: string; target?: Path; target_b64?: string; replace?: boolean;
  recursive?: boolean; exist_ok?: boolean; parents?: boolean; if_match?: string;
  if_none_match?: string;
}
export class SandboxFiles extends WorkspaceFiles {}
export function entryName(entry: Entry): string | Buffer;

export interface UploadOptions {
  piece?: number;
  /** Milliseconds without any progress. */
  patience?: number;
  progress?: (at: number, length: number) => void;
}
export class Upload {
  readonly url: string;
  readonly length?: number;
  offset(): Promise<number>;
  send(source: string | Uint8Array, options?: UploadOptions): Promise<void>;
  cancel(): Promise<null>;
}

export class Job {
  info: JobInfo;
  readonly id: string;
  readonly state: JobInfo['state'];
  refresh(waitS?: number): Promise<JobInfo>;
  wait(timeoutMs?: number): Promise<Record<string, any>>;
  cancel(): Promise<JobInfo>;
}

interface Long { key?: string; progress?: Progress }
interface Against { against?: string; since?: string }
interface CommitFields {
  author?: string; branch?: string; squash?: boolean; history?: boolean; sync?: boolean;
  ignored?: boolean;
}
type TextFormat = 'patch' | 'stat' | 'name-status';

export class Snapshot {
  readonly ref: string;
  readonly id: string;
  info: SnapshotInfo;
  readonly files: SnapshotFiles;
  refresh(): Promise<SnapshotInfo>;
  update(fields: Owned & {
    message?: string; add_names?: string[]; remove_names?: string[]; labels?: Labels;
  }): Promise<SnapshotInfo>;
  delete(options?: { cascade?: boolean; force?: boolean }): Promise<null>;
  log(options?: { page?: number }): Lists<Snapshot>;
  diff(options?: Against): Lists<DiffEntry>;
  diffText(format?: TextFormat, options?: Against): Promise<Body>;
  commit(message: string, options?: CommitFields & Long): Promise<CommitInfo>;
  bundle(options?: { message?: string; author?: string }): Promise<Body>;
}

export class Workspace {
  readonly ref: string;
  readonly id: string;
  readonly name: string;
  readonly path: string;
  info: WorkspaceInfo;
  readonly files: WorkspaceFiles;
  refresh(): Promise<WorkspaceInfo>;
  update(fields: Owned & {
    name?: string; labels?: Labels; add_labels?: Labels; remove_labels?: string[];
    quota_bytes?: number; quota_inodes?: number; description?: string;
  }): Promise<WorkspaceInfo>;
  delete(options?: { purge?: boolean; force?: boolean }): Promise<null>;
  undelete(name?: string): Promise<WorkspaceInfo>;
  fork(fields: Owned & {
    names?: string[]; name?: string; count?: number; labels?: Labels; description?: string;
    key?: string;
  }): Promise<Workspace[]>;
  save(name?: string, options?: { message?: string } & Long): Promise<Snapshot>;
  saveJob(name?: string, options?: { message?: string; key?: string }): Promise<Job>;
  restore(snapshot: string | Snapshot): Promise<WorkspaceInfo>;
  merge(source: string | Workspace | Snapshot): Promise<MergeInfo>;
  mount(): Promise<WorkspaceInfo>;
  umount(): Promise<WorkspaceInfo>;
  log(options?: { page?: number }): Lists<Snapshot>;
  diff(options?: Against): Lists<DiffEntry>;
  diffText(format?: TextFormat, options?: Against): Promise<Body>;
  watch(options?: { path?: string; recursive?: boolean; since?: string }): Promise<EventStream>;
  commit(message?: string, options?: CommitFields & Long): Promise<CommitInfo>;
  commitJob(message?: string, fields?: CommitFields): Promise<Job>;
  push(options?: {
    branch?: string; remote?: string; force_with_lease?: string; any_names?: boolean;
  } & Long): Promise<PushedInfo>;
  pushJob(fields?: Record<string, unknown>): Promise<Job>;
  bundle(options?: { message?: string; author?: string }): Promise<Body>;
  upload(source: string | Uint8Array, path: Path,
    options?: UploadOptions & { mode?: string }): Promise<Upload>;
  beginUpload(path: Path, length: number, options?: { mode?: string }): Promise<Upload>;
  resume(url: string, source: string | Uint8Array, options?: UploadOptions): Promise<Upload>;
  uploadAbilities(): Promise<Record<string, string | undefined>>;
}

export interface CreateFields extends Owned {
  source?: string | Workspace | Snapshot;
  git?: { repo: string; ref?: string; scopes?: string[]; depth?: number; branch?: string; seen_at?: string };
  labels?: Labels; mount?: boolean; quota_bytes?: number; quota_inodes?: number;
  xattrs?: boolean; uid?: number; gid?: number; description?: string;
}

export class Exec {
  readonly id: string;
  info: ExecInfo;
  refresh(waitS?: number): Promise<ExecInfo>;
  output(options?: {
    stream?: 'stdout' | 'stderr'; follow?: boolean; stdoutOffset?: number; stderrOffset?: number;
    signal?: AbortSignal;
  }): Promise<Body>;
  stream(options?: { stdoutOffset?: number; stderrOffset?: number; signal?: AbortSignal }):
    AsyncGenerator<{ stream: 'stdout' | 'stderr'; data: Buffer }, void>;
  write(data: Bytes, options?: { offset?: number; last?: boolean }): Promise<InputInfo>;
  terminal(options?: { offset?: number }): Promise<Terminal>;
  resize(columns: number, rows: number): Promise<null>;
  signal(signal: string): Promise<null>;
}
/** The terminal of a process: iterate over what it writes. */
export class Terminal implements AsyncIterable<Uint8Array> {
  /** Of the next byte of output. */
  offset: number;
  /** After the end. */
  exit?: { exit_code: number; reason: string };
  send(data: string | Uint8Array): void;
  end(): void;
  resize(columns: number, rows: number): void;
  signal(signal: string): void;
  close(): void;
  [Symbol.asyncIterator](): AsyncIterator<Uint8Array>;
}
export class Sandbox {
  readonly ref: string;
  readonly id: string;
  info: SandboxInfo;
  readonly files: SandboxFiles;
  refresh(): Promise<SandboxInfo>;
  update(fields: Record<string, unknown>): Promise<SandboxInfo>;
  delete(options?: { force?: boolean; workspaces?: boolean }): Promise<null>;
  watch(options?: { path?: string; recursive?: boolean; since?: string }): Promise<EventStream>;
  start(fields?: Record<string, unknown>): Promise<SandboxInfo>;
  stop(options?: { graceMs?: number }): Promise<SandboxInfo>;
  kill(signal?: string): Promise<SandboxInfo>;
  pause(): Promise<SandboxInfo>;
  resume(): Promise<SandboxInfo>;
  upload(source: string | Uint8Array, path: Path,
    options?: UploadOptions & { mode?: string }): Promise<Upload>;
  beginUpload(path: Path, length: number, options?: { mode?: string }): Promise<Upload>;
  resumeUpload(url: string, source: string | Uint8Array, options?: UploadOptions): Promise<Upload>;
  uploadAbilities(): Promise<Record<string, string | undefined>>;
  stats(): Promise<SandboxStatsInfo>;
  fork(names: string[], options?: { start?: boolean }): Promise<Sandbox[]>;
  save(name?: string, options?: { message?: string } & Long): Promise<SandboxSavedInfo>;
  saveJob(name?: string, options?: { message?: string; key?: string }): Promise<Job>;
  restore(snapshot?: string, options?: { live?: boolean }): Promise<SandboxInfo>;
  attach(workspace: string | Workspace, target: string, options?: {
    readOnly?: boolean; exclusive?: boolean }): Promise<SandboxInfo>;
  detach(workspace: string | Workspace, options?: {
    target?: string; force?: boolean }): Promise<SandboxInfo>;
  exec(command: string[], fields?: Record<string, unknown>): Promise<Exec>;
  execs(options?: { page?: number }): Lists<Exec>;
  getExec(id: string): Promise<Exec>;
}

export interface ClientOptions {
  /** Default: where `bough` looks, too. */
  socket?: string;
  /** http://HOST:PORT or https://HOST:PORT, with a token. */
  url?: string;
  token?: string;
  /** PEM of certificates that sign the server's. */
  ca?: string | Buffer;
  /** Let the token go by http beyond this machine, where nobody listens in. */
  insecure?: boolean;
  /** Milliseconds without a byte. */
  timeout?: number;
  retries?: number;
  /** Milliseconds. */
  retryFor?: number;
  onRequest?: (method: string, template: string) => void;
}

export class Client {
  constructor(options?: ClientOptions);
  close(): void;
  readonly workspaces: {
    /** One by its id or name, without asking whether it is there. */
    (ref: string): Workspace;
    get(ref: string): Promise<Workspace>;
    list(options?: {
      labels?: Labels | string[]; usage?: boolean; deleted?: boolean; page?: number;
    }): Lists<Workspace>;
    create(name: string, fields?: CreateFields & Long): Promise<Workspace>;
    /** One that begins with an archive; whole, or none is made. */
    createFrom(name: string, archive: Bytes, fields?: Omit<CreateFields, 'source' | 'git'> & Long & {
      length?: number }): Promise<Workspace>;
    /** The same as a job, once all is sent; its result is the workspace. */
    createFromJob(name: string, archive: Bytes, fields?: Omit<CreateFields, 'source' | 'git'> & {
      key?: string; length?: number }): Promise<Job>;
    /** Deleted for good when `use` has ended. */
    temporary<T>(name: string, fields: CreateFields,
      use: (ws: Workspace) => Promise<T> | T): Promise<T>;
  };
  readonly snapshots: {
    (ref: string): Snapshot;
    get(ref: string): Promise<Snapshot>;
    list(options?: {
      workspace?: string; labels?: Labels | string[]; image?: boolean; page?: number;
    }): Lists<Snapshot>;
    create(archive: Bytes, options?: {
      name?: string; message?: string; format?: string; max_bytes?: number; max_inodes?: number;
      length?: number;
    } & Long): Promise<Snapshot>;
    createJob(archive: Bytes, options?: {
      name?: string; message?: string; length?: number }): Promise<Job>;
  };
  readonly repos: {
    list(): Promise<RepositoryInfo[]>;
    get(repo: string): Promise<RepositoryInfo>;
    add(url: string, options?: {
      name?: string; token?: string; ssh_key?: string; known_hosts?: string;
    } & Long): Promise<RepositoryInfo>;
    addJob(url: string, fields?: {
      name?: string; token?: string; ssh_key?: string; known_hosts?: string;
    }): Promise<Job>;
    create(files: Bytes, path: string, options?: {
      name?: string; length?: number; progress?: Progress }): Promise<RepositoryInfo>;
    update(repo: string, files: Bytes, options?: {
      length?: number; progress?: Progress }): Promise<RepositoryInfo>;
    packs(repo: string): Promise<string[]>;
    fetch(repo: string, options?: {
      token?: string; ssh_key?: string; known_hosts?: string; progress?: Progress;
    }): Promise<RepositoryInfo>;
    fetchJob(repo: string, secrets?: {
      token?: string; ssh_key?: string; known_hosts?: string }): Promise<Job>;
    reset(repo: string, branch: string, options?: {
      force?: boolean }): Promise<ResetInfo>;
    delete(repo: string): Promise<null>;
  };
  readonly tokens: {
    list(options?: { page?: number }): Lists<TokenInfo>;
    create(fields?: {
      name?: string; scope?: string; path?: string; read_only?: boolean; expires_s?: number;
      owner?: string;
    }): Promise<TokenInfo>;
    delete(id: string): Promise<null>;
  };
  readonly users: {
    list(): Promise<UserInfo[]>;
    create(name: string, fields?: {
      uid?: number; admin?: boolean; owner?: string }): Promise<UserInfo>;
    delete(name: string): Promise<null>;
  };
  readonly teams: {
    list(): Promise<TeamInfo[]>;
    get(team: string): Promise<TeamInfo>;
    create(name: string): Promise<TeamInfo>;
    delete(team: string): Promise<null>;
    add(team: string, owner: string, role?: 'reader' | 'member' | 'admin'): Promise<TeamInfo>;
    remove(team: string, owner: string): Promise<null>;
  };
  readonly exports: {
    list(): Promise<ExportInfo[]>;
    create(source: string | Workspace | Snapshot,
      options?: { format?: string; path?: string } & Long): Promise<ExportInfo>;
    createJob(source: string | Workspace | Snapshot,
      options?: { format?: string; path?: string; key?: string }): Promise<Job>;
    open(id: string, options?: { start?: number; signal?: AbortSignal }): Promise<Body>;
    head(id: string): Promise<Record<string, string | undefined>>;
    delete(id: string): Promise<null>;
  };
  readonly webhooks: {
    list(): Promise<WebhookInfo[]>;
    get(id: string): Promise<WebhookInfo>;
    create(url: string, fields?: {
      events?: string[]; secret?: string; active?: boolean; everybody?: boolean;
    }): Promise<WebhookInfo>;
    update(id: string, fields: {
      url?: string; events?: string[]; secret?: string; active?: boolean }): Promise<WebhookInfo>;
    delete(id: string): Promise<null>;
    test(id: string): Promise<DeliveryInfo>;
    deliveries(id: string, options?: { page?: number }): Lists<DeliveryInfo>;
  };
  readonly sandboxes: {
    /** One by its id or name, without asking whether it is there. */
    (ref: string): Sandbox;
    get(ref: string): Promise<Sandbox>;
    list(options?: { labels?: Labels | string[]; status?: string; page?: number }): Lists<Sandbox>;
    create(fields?: Record<string, unknown>, options?: { key?: string }): Promise<Sandbox>;
    create(name: string, fields?: Record<string, unknown>,
      options?: { key?: string }): Promise<Sandbox>;
    temporary<T>(fields: Record<string, unknown>,
      use: (box: Sandbox) => Promise<T> | T): Promise<T>;
    temporary<T>(name: string, fields: Record<string, unknown>,
      use: (box: Sandbox) => Promise<T> | T): Promise<T>;
  };
  readonly quotas: {
    list(): Promise<QuotaInfo[]>;
    get(owner: string): Promise<QuotaInfo>;
    set(owner: string, fields: {
      workspaces?: number; snapshots?: number; bytes?: number }): Promise<QuotaInfo>;
    delete(owner: string): Promise<null>;
  };
  whoami(): Promise<WhoamiInfo>;
  version(): Promise<VersionInfo>;
  health(): Promise<HealthInfo>;
  openapi(): Promise<Record<string, any>>;
  stats(): Promise<StatsInfo>;
  usage(): Promise<UsageInfo[]>;
  metrics(): Promise<string>;
  openSigned(url: string, options?: { method?: 'GET' | 'HEAD' }): Promise<Body>;
  events(options?: { since?: string }): Promise<EventStream>;
  audit(options?: {
    page?: number; object?: string; owner?: string; token?: string; method?: string;
    since?: string; until?: string; failed?: string;
  }): Lists<AuditInfo>;
  auditExport(filters?: Record<string, string>): Lists<AuditInfo>;
  job(id: string): Promise<Job>;
  jobs(options?: { page?: number }): Lists<Job>;
  gc(options?: { progress?: Progress }): Promise<CollectedInfo>;
  gcJob(): Promise<Job>;
  fsck(options?: { repair?: boolean; progress?: Progress }): Promise<CheckedInfo>;
  fsckJob(options?: { repair?: boolean }): Promise<Job>;
  shutdown(options?: { graceMs?: number }): Promise<null>;
  call(method: string, path: string, json?: Record<string, unknown>): Promise<any>;
}
export function defaultSocket(): string;
