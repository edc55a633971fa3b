/**
 * Bough's client: workspaces for AI agents, chats and CI, over boughd's HTTP API.
 *
 *     import { Client } from 'bough';
 *     const client = new Client();
 *     const ws = await client.workspaces.create('try', { source: 'base' });
 *     await ws.files.write('hello.txt', 'hello\n');
 *     console.log((await ws.save('greeting')).id);
 */
import { homedir } from 'node:os';
import { join } from 'node:path';
import { NotFound, errorOf } from './errors.js';
import { EventStream } from './events.js';
import {
  SnapshotFiles, Upload, WorkspaceFiles, resumeUpload, upload, uploadAbilities,
} from './files.js';
import { sandboxClasses } from './sandboxes.js';
import { Transport } from './transport.js';

export * from './errors.js';
export { Body } from './transport.js';
export { EventStream } from './events.js';
export { SnapshotFiles, Upload, WorkspaceFiles, entryName } from './files.js';
export { Exec, SandboxFiles } from './sandboxes.js';
export { Terminal } from './terminal.js';

const asyncDispose = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose');

/** Where the command line looks, too. */
export function defaultSocket() {
  const state = process.env.XDG_STATE_HOME || join(homedir(), '.local/state');
  const root = process.env.BOUGH_ROOT ||
    (process.geteuid?.() === 0 ? '/var/lib/bough' : join(state, 'bough'));
  return join(root, 'run/boughd.sock');
}

/** {a: 'b'} is a=b; a list has keys that are there with any value. */
const labelsQuery = (labels) => (labels && !Array.isArray(labels)
  ? Object.entries(labels).map(([k, v]) => `${k}=${v}`) : labels);
/** The query of a workspace that begins with an archive. */
const begun = (name, labels, fields) => ({ name, label: labelsQuery(labels), ...Object.fromEntries(
  Object.entries(fields).map(([k, v]) => [k, typeof v === 'boolean' ? Number(v) : v])) });

/** Bytes, whatever their encoding. */
const unquote = (text) => Buffer.from(text.replace(/%([0-9A-Fa-f]{2})/g,
  (_, hex) => String.fromCharCode(parseInt(hex, 16))), 'latin1');

const refOf = (x) => (typeof x === 'object' && x !== null ? x.ref : x);

async function * diffEntries(transport, template, params, query) {
  for await (const line of (await transport.open('GET', template, params, { query })).lines()) {
    const said = JSON.parse(line);
    if (said.error && !said.kind) throw errorOf(said.error, 0);
    yield said;
  }
}

/** Work that goes on when its caller is gone. */
export class Job {
  #t;

  constructor(transport, info) {
    this.#t = transport;
    // What was done before, by the same key, is answered as it was.
    this.info = /^jb_/.test(info.id ?? '') ? info : { id: '', state: 'done', result: info };
  }

  get id() { return this.info.id; }
  get state() { return this.info.state; }

  /** Asks for it, and waits up to so many seconds (60) for its end. */
  async refresh(waitS) {
    if (this.id) {
      this.info = await this.#t.call('GET', '/v1/jobs/{id}', { id: this.id },
        { query: { wait: waitS || undefined } });
    }
    return this.info;
  }

  /** Its result, as the call itself would have answered; or its error, thrown. */
  async wait(timeoutMs = Infinity) {
    const end = Date.now() + timeoutMs;
    while (this.state === 'running') {
      const left = Math.min(30, Math.ceil((end - Date.now()) / 1000));
      if (left <= 0) throw new Error(`${this.id} still runs`);
      await this.refresh(left);
    }
    if (this.state !== 'done') {
      throw errorOf(this.info.error ?? { code: this.state, message: this.state },
        this.info.status ?? 0);
    }
    return this.info.result ?? {};
  }

  async cancel() {
    this.info = await this.#t.call('POST', '/v1/jobs/{id}/cancel', { id: this.id }, { json: {} });
    return this.info;
  }
}

/** What workspaces and snapshots have in common: a reference, and what was last heard of it. */
class Named {
  constructor(transport, ref, info) {
    this._t = transport;
    this.ref = ref;
    this.info = info;
  }

  /** Its id: of one that was made, listed or asked for. */
  get id() { return this.info?.id ?? this.ref; }

  async _is(promise) {
    this.info = await promise;
    return this.info;
  }
}

export class Snapshot extends Named {
  constructor(transport, ref, info) {
    super(transport, ref, info);
    this.files = new SnapshotFiles(transport, ref);
  }

  get #at() { return { snap: this.ref }; }

  refresh() { return this._is(this._t.call('GET', '/v1/snapshots/{snap}', this.#at)); }

  /** message, add_names, remove_names, labels, visibility, team, ttl_s, on_expiry */
  update(fields) {
    return this._is(this._t.call('PATCH', '/v1/snapshots/{snap}', this.#at,
      { json: fields, safe: !fields.remove_names }));
  }

  /** cascade: with all that were made from it; force: alone, and those stand on its parent */
  delete({ cascade, force } = {}) {
    return this._t.call('DELETE', '/v1/snapshots/{snap}', this.#at, { query: { cascade, force } });
  }

  /** It and its line of parents, newest first. */
  async * log({ page } = {}) {
    for await (const one of this._t.pages('/v1/snapshots/{snap}/log', this.#at, {}, page)) {
      yield new Snapshot(this._t, one.id, one);
    }
  }

  #diff(against) {
    return against ? ['/v1/snapshots/{snap}/diff/{other}', { ...this.#at, other: against }]
      : ['/v1/snapshots/{snap}/diff', this.#at];
  }

  /** What changed since its parent, or `against`. */
  diff({ against, since } = {}) {
    return diffEntries(this._t, ...this.#diff(against), { since });
  }

  /** The same as 'patch', 'stat' or 'name-status'. */
  diffText(format = 'patch', { against, since } = {}) {
    return this._t.open('GET', ...this.#diff(against), { query: { format, since } });
  }

  /** Of a checkout's: author, branch, squash, history, ignored. */
  commit(message, { progress, key, ...fields } = {}) {
    return this._t.long('/v1/snapshots/{snap}/commit', this.#at,
      { json: { message, ...fields }, progress, key });
  }

  /** A git bundle of its changes; status 204 where there are none. */
  bundle({ message, author } = {}) {
    return this._t.open('GET', '/v1/snapshots/{snap}/bundle', this.#at,
      { query: { message, author } });
  }
}

export class Workspace extends Named {
  constructor(transport, ref, info) {
    super(transport, ref, info);
    this.files = new WorkspaceFiles(transport, ref);
  }

  get #at() { return { ws: this.ref }; }
  get name() { return this.info?.name; }
  /** Where it is mounted, on boughd's machine. */
  get path() { return this.info?.path; }

  refresh() { return this._is(this._t.call('GET', '/v1/workspaces/{ws}', this.#at)); }

  /**
   * name, labels, add_labels, remove_labels, quota_bytes, quota_inodes, description, visibility, team,
   * ttl_s, on_expiry
   */
  update(fields) {
    return this._is(this._t.call('PATCH', '/v1/workspaces/{ws}', this.#at, { json: fields }));
  }

  /**
   * It can be brought back for a while, unless it is purged: also when it was deleted before.
   * force: also one that programs use, or sandboxes have
   */
  delete({ purge, force } = {}) {
    return this._t.call('DELETE', '/v1/workspaces/{ws}', this.#at, { query: { purge, force } });
  }

  undelete(name) {
    return this._is(this._t.call('POST', '/v1/workspaces/{ws}/undelete', this.#at,
      { json: { name } }));
  }

  /** Of `await using`: it is deleted for good. */
  async [asyncDispose]() {
    await this.delete({ purge: true, force: true }).catch((e) => {
      if (!(e instanceof NotFound)) throw e;
    });
  }

  /** names: one fork for each; or name and count: NAME-1 … And labels, visibility, ttl_s … */
  async fork({ key, ...fields }) {
    const { items } = await this._t.call('POST', '/v1/workspaces/{ws}/fork', this.#at,
      { json: fields, key });
    return items.map((one) => new Workspace(this._t, one.id, one));
  }

  /** Where nothing changed this is the last snapshot, with `unchanged` in its info. */
  async save(name, { message, key, progress } = {}) {
    const info = await this._t.long('/v1/workspaces/{ws}/snapshots', this.#at,
      { json: { name, message }, key, progress });
    return new Snapshot(this._t, info.id, info);
  }

  async saveJob(name, { message, key } = {}) {
    return new Job(this._t, await this._t.job('/v1/workspaces/{ws}/snapshots', this.#at,
      { json: { name, message }, key }));
  }

  restore(snapshot) {
    return this._is(this._t.call('POST', '/v1/workspaces/{ws}/restore', this.#at,
      { json: { snapshot: refOf(snapshot) } }));
  }

  merge(source) {
    return this._t.call('POST', '/v1/workspaces/{ws}/merge', this.#at,
      { json: { from: refOf(source) } });
  }

  mount() {
    return this._is(this._t.call('POST', '/v1/workspaces/{ws}/mount', this.#at, { json: {} }));
  }

  umount() {
    return this._is(this._t.call('POST', '/v1/workspaces/{ws}/umount', this.#at, { json: {} }));
  }

  /** Its line of snapshots, newest first. */
  async * log({ page } = {}) {
    for await (const one of this._t.pages('/v1/workspaces/{ws}/log', this.#at, {}, page)) {
      yield new Snapshot(this._t, one.id, one);
    }
  }

  /** What changed since its head, or `against`; of a checkout, since its commit. */
  diff({ against, since } = {}) {
    return diffEntries(this._t, '/v1/workspaces/{ws}/diff', this.#at, { against, since });
  }

  /** The same as 'patch', 'stat' or 'name-status'. */
  diffText(format = 'patch', { against, since } = {}) {
    return this._t.open('GET', '/v1/workspaces/{ws}/diff', this.#at,
      { query: { against, format, since } });
  }

  /** What happens to its files, from now on or behind the event `since`. */
  watch({ path, recursive, since } = {}) {
    return EventStream.begin(this._t, '/v1/workspaces/{ws}/watch', this.#at,
      { path, recursive }, since);
  }

  /** Of checkouts: author, branch, squash, history, sync, ignored. */
  commit(message, { progress, key, ...fields } = {}) {
    return this._t.long('/v1/workspaces/{ws}/commit', this.#at,
      { json: { message, ...fields }, progress, key });
  }

  async commitJob(message, fields = {}) {
    return new Job(this._t, await this._t.job('/v1/workspaces/{ws}/commit', this.#at,
      { json: { message, ...fields } }));
  }

  /** branch, remote, force_with_lease, any_names */
  push({ progress, key, ...fields } = {}) {
    return this._t.long('/v1/workspaces/{ws}/push', this.#at, { json: fields, progress, key });
  }

  async pushJob(fields = {}) {
    return new Job(this._t, await this._t.job('/v1/workspaces/{ws}/push', this.#at,
      { json: fields }));
  }

  /** A git bundle of its changes; status 204 where there are none. */
  bundle({ message, author } = {}) {
    return this._t.open('GET', '/v1/workspaces/{ws}/bundle', this.#at,
      { query: { message, author } });
  }

  /** A local file (its path) or bytes, in pieces; it goes on after connections that break off. */
  upload(source, path, options) {
    return upload(this._t, 'workspaces', this.ref, source, path, options);
  }

  beginUpload(path, length, { mode } = {}) {
    return Upload.create(this._t, 'workspaces', this.ref, path, length, mode);
  }

  /** Goes on with an upload, of another process perhaps. */
  resume(url, source, options) { return resumeUpload(this._t, url, source, options); }

  /** What of tus is spoken. */
  uploadAbilities() { return uploadAbilities(this._t, 'workspaces', this.ref); }
}

/** One sandbox: a container on workspaces. */
export const { Sandbox } = sandboxClasses({ Job, Named, NotFound, asyncDispose, refOf });

/**
 * A boughd: by its unix socket, else by a URL with a token. timeout and retryFor in milliseconds; ca: PEM
 * of certificates that sign the server's; onRequest is called with method and path template.
 */
export class Client {
  #t;

  constructor({ socket, url, ...options } = {}) {
    if (socket !== undefined && url !== undefined) throw new TypeError('a socket or a URL');
    const t = new Transport({ ...options, url,
      socket: url === undefined ? socket ?? defaultSocket() : undefined });
    this.#t = t;
    const list = (path) => async () => {
      const all = [];
      for await (const one of t.pages(path, {}, {})) all.push(one);
      return all;
    };

    this.workspaces = Object.assign((ref) => new Workspace(t, ref), {
      get: async (ref) => {
        const info = await new Workspace(t, ref).refresh();
        return new Workspace(t, info.id, info);
      },
      async * list({ labels, usage, deleted, page } = {}) {
        for await (const one of t.pages('/v1/workspaces', {},
          { label: labelsQuery(labels), usage, deleted }, page)) {
          yield new Workspace(t, one.id, one);
        }
      },
      create: async (name, { source, key, progress, ...fields } = {}) => {
        const info = await t.long('/v1/workspaces', {},
          { json: { name, from: refOf(source), ...fields }, key, progress });
        return new Workspace(t, info.id, info);
      },
      createFrom: async (name, archive, { labels, length, key, progress, ...fields } = {}) => {
        const info = await t.long('/v1/workspaces/import', {},
          { query: begun(name, labels, fields), body: archive, length, key, progress });
        return new Workspace(t, info.id, info);
      },
      createFromJob: async (name, archive, { labels, length, key, ...fields } = {}) =>
        new Job(t, await t.job('/v1/workspaces/import', {}, {
          json: undefined, query: begun(name, labels, fields), body: archive, length, key })),
      temporary: async (name, fields, use) => {
        const ws = await this.workspaces.create(name, fields);
        try {
          return await use(ws);
        } finally {
          await ws[asyncDispose]();
        }
      },
    });

    this.snapshots = Object.assign((ref) => new Snapshot(t, ref), {
      get: async (ref) => {
        const info = await new Snapshot(t, ref).refresh();
        return new Snapshot(t, info.id, info);
      },
      async * list({ workspace, labels, image, page } = {}) {
        for await (const one of t.pages('/v1/snapshots', {},
          { workspace, label: labelsQuery(labels), image }, page)) {
          yield new Snapshot(t, one.id, one);
        }
      },
      create: async (archive, { length, key, progress, ...query } = {}) => {
        const info = await t.long('/v1/import', {},
          { query, body: archive, length, key, progress });
        return new Snapshot(t, info.id, info);
      },
      createJob: async (archive, { length, ...query } = {}) =>
        new Job(t, await t.job('/v1/import', {}, { json: undefined, query, body: archive, length })),
    });

    this.repos = {
      list: list('/v1/repos'),
      get: (repo) => t.call('GET', '/v1/repos/{repo}', { repo }),
      add: (url, { progress, key, ...fields } = {}) =>
        t.long('/v1/repos', {}, { json: { url, ...fields }, progress, key }),
      addJob: async (url, fields) =>
        new Job(t, await t.job('/v1/repos', {}, { json: { url, ...fields } })),
      create: (files, path, { name, length, progress } = {}) =>
        t.long('/v1/repos/import', {}, { query: { path, name }, body: files, length, progress }),
      update: (repo, files, { length, progress } = {}) =>
        t.long('/v1/repos/{repo}/import', { repo }, { body: files, length, progress }),
      packs: async (repo) => {
        const all = [];
        for await (const one of t.pages('/v1/repos/{repo}/packs', { repo }, {})) all.push(one);
        return all;
      },
      fetch: (repo, { progress, ...secrets } = {}) =>
        t.long('/v1/repos/{repo}/fetch', { repo }, { json: secrets, progress }),
      fetchJob: async (repo, secrets = {}) =>
        new Job(t, await t.job('/v1/repos/{repo}/fetch', { repo }, { json: secrets })),
      reset: (repo, branch, { force } = {}) =>
        t.call('POST', '/v1/repos/{repo}/reset', { repo }, { json: { branch, force } }),
      delete: (repo) => t.call('DELETE', '/v1/repos/{repo}', { repo }),
    };

    this.tokens = {
      list: ({ page } = {}) => t.pages('/v1/tokens', {}, {}, page),
      create: (fields = {}) => t.call('POST', '/v1/tokens', {}, { json: fields }),
      delete: (id) => t.call('DELETE', '/v1/tokens/{id}', { id }),
    };
    this.users = {
      list: list('/v1/users'),
      create: (name, fields) => t.call('POST', '/v1/users', {}, { json: { name, ...fields } }),
      delete: (name) => t.call('DELETE', '/v1/users/{name}', { name }),
    };
    const member = '/v1/teams/{team}/members/{owner}';
    this.teams = {
      list: list('/v1/teams'),
      get: (team) => t.call('GET', '/v1/teams/{team}', { team }),
      create: (name) => t.call('POST', '/v1/teams', {}, { json: { name } }),
      delete: (team) => t.call('DELETE', '/v1/teams/{team}', { team }),
      add: (team, owner, role = 'member') =>
        t.call('PUT', member, { team, owner }, { json: { role } }),
      remove: (team, owner) => t.call('DELETE', member, { team, owner }),
    };
    this.exports = {
      list: list('/v1/exports'),
      create: (source, { key, progress, ...fields } = {}) =>
        t.long('/v1/exports', {}, { json: { from: refOf(source), ...fields }, key, progress }),
      createJob: async (source, { key, ...fields } = {}) =>
        new Job(t, await t.job('/v1/exports', {}, { json: { from: refOf(source), ...fields }, key })),
      open: (id, { start, signal } = {}) => t.open('GET', '/v1/exports/{id}', { id },
        { headers: start ? { Range: `bytes=${start}-` } : {}, signal }),
      head: async (id) => {
        const answer = await t.open('HEAD', '/v1/exports/{id}', { id });
        await answer.bytes();
        return answer.headers;
      },
      delete: (id) => t.call('DELETE', '/v1/exports/{id}', { id }),
    };
    this.webhooks = {
      list: list('/v1/webhooks'),
      get: (id) => t.call('GET', '/v1/webhooks/{id}', { id }),
      create: (url, fields) => t.call('POST', '/v1/webhooks', {}, { json: { url, ...fields } }),
      update: (id, fields) => t.call('PATCH', '/v1/webhooks/{id}', { id }, { json: fields }),
      delete: (id) => t.call('DELETE', '/v1/webhooks/{id}', { id }),
      test: (id) => t.call('POST', '/v1/webhooks/{id}/test', { id }, { json: {} }),
      deliveries: (id, { page } = {}) =>
        t.pages('/v1/webhooks/{id}/deliveries', { id }, {}, page),
    };
    this.sandboxes = Object.assign((ref) => new Sandbox(t, ref), {
      get: async (ref) => {
        const info = await new Sandbox(t, ref).refresh();
        return new Sandbox(t, info.id, info);
      },
      async * list({ labels, status, page } = {}) {
        for await (const one of t.pages('/v1/sandboxes', {},
          { label: labelsQuery(labels), status }, page)) {
          yield new Sandbox(t, one.id, one);
        }
      },
      /** (name, fields, options), or without the name. */
      create: async (...given) => {
        const name = typeof given[0] === 'string' ? given.shift() : undefined;
        const [fields, { key } = {}] = given;
        const info = await t.call('POST', '/v1/sandboxes', {}, { json: { name, ...fields }, key });
        return new Sandbox(t, info.id, info);
      },
      /** As create, with `use` at the end; it is deleted, with all that runs in it, behind that. */
      temporary: async (...given) => {
        const use = given.pop();
        const box = await this.sandboxes.create(...given);
        try {
          return await use(box);
        } finally {
          await box[asyncDispose]();
        }
      },
    });
    this.quotas = {
      list: list('/v1/quotas'),
      get: (owner) => t.call('GET', '/v1/quotas/{owner}', { owner }),
      set: (owner, fields) => t.call('PUT', '/v1/quotas/{owner}', { owner }, { json: fields }),
      delete: (owner) => t.call('DELETE', '/v1/quotas/{owner}', { owner }),
    };
  }

  close() { this.#t.close(); }

  whoami() { return this.#t.call('GET', '/v1/whoami'); }
  version() { return this.#t.call('GET', '/v1/version'); }
  health() { return this.#t.call('GET', '/v1/health'); }
  openapi() { return this.#t.call('GET', '/v1/openapi.json'); }
  stats() { return this.#t.call('GET', '/v1/stats'); }
  async usage() { return (await this.#t.call('GET', '/v1/usage')).items; }
  async metrics() { return (await this.#t.open('GET', '/metrics')).text(); }

  /** What a signed URL leads to, as `files.open` gives it. */
  openSigned(url, { method = 'GET' } = {}) {
    const { pathname, searchParams } = new URL(url, 'http://bough');
    const [, id, path] = /^\/v1\/signed\/([^/]+)\/(.+)$/.exec(pathname) ?? [];
    if (!id) throw new TypeError(`${url}: no signed URL`);
    return this.#t.open(method, '/v1/signed/{id}/{path}', { id, path: unquote(path) },
      { query: Object.fromEntries(searchParams), headers: { 'Accept-Encoding': 'identity' } });
  }

  /** What happens to all that the caller sees, from now on or behind the event `since`. */
  events({ since } = {}) { return EventStream.begin(this.#t, '/v1/events', {}, {}, since); }

  /** filters: object, owner, token, method, since, until, failed */
  audit({ page, ...filters } = {}) { return this.#t.pages('/v1/audit', {}, filters, page); }

  /** All of it in one stream. */
  async * auditExport(filters = {}) {
    const answer = await this.#t.open('GET', '/v1/audit', {},
      { query: { ...filters, format: 'ndjson' } });
    for await (const line of answer.lines()) {
      const said = JSON.parse(line);
      if (said.error) throw errorOf(said.error, 0);
      yield said;
    }
  }

  async job(id) { return new Job(this.#t, await this.#t.call('GET', '/v1/jobs/{id}', { id })); }
  async * jobs({ page } = {}) {
    for await (const one of this.#t.pages('/v1/jobs', {}, {}, page)) yield new Job(this.#t, one);
  }

  gc({ progress } = {}) { return this.#t.long('/v1/gc', {}, { json: {}, progress }); }
  async gcJob() { return new Job(this.#t, await this.#t.job('/v1/gc')); }
  fsck({ repair = false, progress } = {}) {
    return this.#t.long('/v1/fsck', {}, { json: { repair }, progress });
  }
  async fsckJob({ repair = false } = {}) {
    return new Job(this.#t, await this.#t.job('/v1/fsck', {}, { json: { repair } }));
  }

  /** Stops sandboxes (graceMs from TERM to KILL), unmounts all, and ends boughd and bough-fs. */
  shutdown({ graceMs } = {}) {
    return this.#t.call('POST', '/v1/shutdown', {}, { json: { grace_ms: graceMs } });
  }

  /** Any request in JSON that this library has no method for: path with its query, quoted. */
  call(method, path, json) { return this.#t.call(method, path, {}, { json }); }
}
