// Files of a workspace or snapshot; uploads that can be resumed (tus 1.0.0).

import { createHash, randomBytes } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { open as openFile, stat } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { AnswerCut, ApiError, BadAnswer, Conflict, ConnectionFailed, NotFound } from './errors.js';
import { formOf } from './transport.js';

const PIECE = 8 << 20;
const INLINE = 64 << 10; // of a content: what is in the JSON of a batch
const TUS = { 'Tus-Resumable': '1.0.0' };

/** A name as text, or as a Buffer where it isn't UTF-8; every path of this library takes both. */
export function entryName(entry) {
  return entry.name_b64 === undefined ? entry.name : Buffer.from(entry.name_b64, 'base64');
}

/** A path in a body: in base64 where it isn't text. */
const field = (name, path) => (typeof path === 'string' ? { [name]: path }
  : { [`${name}_b64`]: Buffer.from(path).toString('base64') });

const isDirectory = (answer) => /^application\/json/.test(answer.headers['content-type'] ?? '');
const directory = (path) => Object.assign(new Error(`${path} is a directory`), { code: 'EISDIR' });

/** Reading, which works without a mount. */
export class SnapshotFiles {
  _file = '/v1/snapshots/{snap}/files/{path}';
  _archive = '/v1/snapshots/{snap}/archive/{path}';
  _param = 'snap';

  constructor(transport, ref) {
    this._t = transport;
    this._ref = ref;
  }

  _at(path) { return { [this._param]: this._ref, path }; }

  /**
   * A file's bytes, streamed: from `start`, up to but not including `end`; a negative start counts from
   * the file's end. With `ifNoneMatch` (an ETag) its `status` may be 304.
   */
  async open(path, { start, end, coding = 'identity', ifNoneMatch, digest, signal } = {}) {
    const headers = { 'Accept-Encoding': coding };
    if (start !== undefined || end !== undefined) {
      headers.Range = start < 0 ? `bytes=${start}`
        : `bytes=${start ?? 0}-${end === undefined ? '' : end - 1}`;
    }
    if (ifNoneMatch !== undefined) headers['If-None-Match'] = ifNoneMatch;
    if (digest) headers['Want-Repr-Digest'] = 'sha-256=1';
    const answer = await this._t.open('GET', this._file, this._at(path),
      { headers, ok: [304], signal });
    if (isDirectory(answer)) {
      answer.close();
      throw directory(path);
    }
    return answer;
  }

  async read(path, options) { return (await this.open(path, options)).bytes(); }
  async readText(path, options) { return (await this.read(path, options)).toString(); }

  /**
   * Into a local file; its ETag. Where the connection breaks off, it goes on from there, as long as the
   * file is the same.
   */
  async download(path, to) {
    const out = createWriteStream(to);
    let did = 0;
    let etag = '';
    let tries = 0;
    try {
      for (;;) {
        const headers = { 'Accept-Encoding': 'identity' };
        if (did) Object.assign(headers, { Range: `bytes=${did}-`, 'If-Range': etag });
        const answer = await this._t.open('GET', this._file, this._at(path), { headers });
        if (isDirectory(answer)) {
          answer.close();
          throw directory(path);
        }
        if (did && answer.status !== 206) {
          answer.close();
          throw new BadAnswer('the file has changed while it was read');
        }
        etag = answer.headers.etag ?? '';
        try {
          for await (const chunk of answer) {
            if (!out.write(chunk)) await new Promise((resolve) => out.once('drain', resolve));
            did += chunk.length;
            tries = 0;
          }
          return etag;
        } catch (e) {
          if (!(e instanceof AnswerCut) || ++tries > 3 || !etag) throw e;
        }
      }
    } finally {
      await new Promise((resolve, reject) => out.end((e) => (e ? reject(e) : resolve())));
    }
  }

  /** The headers: etag, content-length, last-modified. */
  async head(path) {
    const answer = await this._t.open('HEAD', this._file, this._at(path),
      { headers: { 'Accept-Encoding': 'identity' } });
    await answer.bytes();
    return answer.headers;
  }

  /** Of whatever is there: links, too, with their target. */
  async stat(path) {
    return (await this._t.call('GET', this._file, this._at(path), { query: { stat: true } })).entry;
  }

  async exists(path) {
    try {
      await this.stat(path);
      return true;
    } catch (e) {
      if (e instanceof NotFound) return false;
      throw e;
    }
  }

  /** A directory's entries, page by page, however many there are. */
  async * list(path = '', { page = 10_000 } = {}) {
    let cursor;
    do {
      const answer = await this._t.call('GET', this._file, this._at(path),
        { query: { limit: page, cursor } });
      if (!answer.entries) throw Object.assign(new Error(`${path} is no directory`), { code: 'ENOTDIR' });
      yield* answer.entries;
      cursor = answer.next;
    } while (cursor !== undefined);
  }

  /** All that is below, at one moment, as it comes; names are paths. */
  async * walk(path = '') {
    const answer = await this._t.open('GET', this._file, this._at(path),
      { query: { recursive: true } });
    yield* entries(answer);
  }

  /**
   * A `url` by which whoever has it reads this file, without a token: to be put behind where boughd is
   * reached. `pin`: this version alone.
   */
  sign(path, { expiresIn, method, pin } = {}) {
    return this._t.call('POST', this._file, this._at(path), { query: { op: 'sign' },
      json: { expires_in: expiresIn, method, pin } });
  }

  /** A directory as a tar, tar.zst, zip or cpio. */
  archive(path = '', { format = 'tar', signal } = {}) {
    return this._t.open('GET', this._archive, this._at(path), { query: { format }, signal });
  }

  /**
   * The same without the files that the list `have` names (API.md, "Archives of the rest"), as they
   * were `before`.
   */
  archiveRest(have, before, path = '', { format = 'tar', signal } = {}) {
    return this._t.open('POST', this._archive, this._at(path),
      { body: have, query: { format, before }, signal });
  }
}

/** Takes {"path": …, "entries": [{…}, …]} apart as it comes. */
async function * entries(body) {
  const decoder = new TextDecoder();
  let text = '';
  let begun = false;
  let at = 0; // what was looked at
  let depth = 0;
  let quoted = false;
  let from = 0;
  for await (const chunk of body) {
    text += decoder.decode(chunk, { stream: true });
    if (!begun) {
      const found = text.indexOf('"entries":');
      const bracket = found < 0 ? -1 : text.indexOf('[', found);
      if (bracket < 0) continue;
      text = text.slice(bracket + 1);
      begun = true;
    }
    for (; at < text.length; at++) {
      const c = text[at];
      if (quoted) {
        if (c === '\\') {
          if (at + 1 === text.length) break; // what is escaped hasn't come yet
          at++;
        } else if (c === '"') {
          quoted = false;
        }
      } else if (c === '"') {
        quoted = true;
      } else if (c === '{' && depth++ === 0) {
        from = at;
      } else if (c === '}' && --depth === 0) {
        yield JSON.parse(text.slice(from, at + 1));
        from = at + 1;
      }
    }
    text = text.slice(from);
    at -= from;
    from = 0;
  }
}

export class WorkspaceFiles extends SnapshotFiles {
  _file = '/v1/workspaces/{ws}/files/{path}';
  _archive = '/v1/workspaces/{ws}/archive/{path}';
  _batch = '/v1/workspaces/{ws}/batch';
  _param = 'ws';

  /**
   * Writes a file in one step: text, bytes, a Blob, a stream or an (async) iterable of bytes, sent as they
   * come. Directories are made. `ifMatch` (an ETag) replaces only that version, `ifNoneMatch` '*' only
   * what isn't there: else Changed. `digest` (of text and bytes) has boughd compare what came.
   */
  write(path, data, { mode, ifMatch, ifNoneMatch, coding, length, digest, signal } = {}) {
    const headers = {};
    if (ifMatch !== undefined) headers['If-Match'] = ifMatch;
    if (ifNoneMatch !== undefined) headers['If-None-Match'] = ifNoneMatch;
    if (coding !== undefined) headers['Content-Encoding'] = coding;
    if (digest) {
      headers['Content-Digest'] =
        `sha-256=:${createHash('sha256').update(data).digest('base64')}:`;
    }
    return this._t.call('PUT', this._file, this._at(path),
      { query: { mode }, headers, body: data, length, signal });
  }

  /** The same as a browser's form sends it: multipart, with a part `file`. */
  writeForm(path, data, { mode } = {}) {
    const mark = randomBytes(16).toString('hex');
    const head = `--${mark}\r\nContent-Disposition: form-data; name="file"; filename="file"\r\n` +
      'Content-Type: application/octet-stream\r\n\r\n';
    const body = Buffer.concat([Buffer.from(head), Buffer.from(data),
      Buffer.from(`\r\n--${mark}--\r\n`)]);
    return this._t.call('PUT', this._file, this._at(path), { query: { mode }, body,
      headers: { 'Content-Type': `multipart/form-data; boundary=${mark}` } });
  }

  /** A local file, by one PUT. Workspace.upload can be resumed. */
  async upload(local, path, options) {
    const { size } = await stat(local);
    return this.write(path, createReadStream(local), { ...options, length: size });
  }

  delete(path, { recursive, ifMatch } = {}) {
    return this._t.call('DELETE', this._file, this._at(path), { query: { recursive },
      headers: ifMatch === undefined ? {} : { 'If-Match': ifMatch } });
  }

  async #op(path, op, json) {
    return (await this._t.call('POST', this._file, this._at(path), { query: { op }, json })).entry;
  }

  mkdir(path, { mode, parents } = {}) { return this.#op(path, 'mkdir', { mode, parents }); }
  move(path, to, { replace } = {}) {
    return this.#op(path, 'move', { ...field('to', to), replace });
  }

  copy(path, to, { replace } = {}) {
    return this.#op(path, 'copy', { ...field('to', to), replace });
  }

  symlink(path, target) { return this.#op(path, 'symlink', field('target', target)); }
  chmod(path, mode) { return this.#op(path, 'chmod', { mode }); }

  /**
   * Many changes, all or none: [{op: 'write', path: 'a', content: 'x'}, {op: 'delete', path: 'b',
   * if_match: etag}, …]. A `content` is text, bytes, a Blob, a stream or an iterable of bytes, of any
   * size: what is more than a little goes as a part of a form. A failure's details say which.
   */
  async batch(operations) {
    const parts = [];
    const plain = operations.map(({ content, ...said }) => {
      const operation = said;
      for (const name of ['path', 'to', 'target']) {
        if (operation[name] === undefined) continue;
        const value = operation[name];
        delete operation[name];
        Object.assign(operation, field(name, value));
      }
      if (content === undefined) return operation;
      if (typeof content === 'string' && content.length <= INLINE) return { ...operation, content };
      const part = `content-${parts.length}`;
      parts.push([part, content]);
      return { ...operation, part };
    });
    const sent = parts.length === 0 ? { json: { operations: plain } }
      : formOf([['operations', JSON.stringify({ operations: plain })], ...parts]);
    return (await this._t.call('POST', this._batch, { [this._param]: this._ref }, sent)).results;
  }

  /** Unpacks a tar, tar.gz, tar.zst, zip … below a directory that is there. */
  extract(archive, path = '', { atomic, length, signal } = {}) {
    return this._t.call('PUT', this._archive, this._at(path),
      { query: { atomic }, body: archive, length, signal });
  }
}

const ALL = {
  workspaces: ['/v1/workspaces/{ws}/uploads', 'ws'],
  sandboxes: ['/v1/sandboxes/{sandbox}/uploads', 'sandbox'],
};

/**
 * One upload. `url` is all that a later process needs: Workspace.resume(url, file), or
 * Sandbox.resumeUpload(url, file).
 */
export class Upload {
  #t;
  #at;
  #one;

  constructor(transport, url, length) {
    const [, kind, of, up] = /\/([^/]+)\/([^/]+)\/uploads\/([^/]+)$/.exec(url) ?? [];
    if (!ALL[kind]) throw new TypeError(`${url}: no upload's address`);
    this.#t = transport;
    this.url = url;
    this.length = length;
    const [all, param] = ALL[kind];
    this.#at = { [param]: decodeURIComponent(of), up };
    this.#one = all + '/{up}';
  }

  /** `kind` is "workspaces" or "sandboxes". */
  static async create(transport, kind, of, path, length, mode) {
    const base64 = (v) => Buffer.from(v).toString('base64');
    const bytes = Buffer.from(path), name = bytes.subarray(bytes.findIndex((b) => b !== 0x2f)); // as elsewhere
    const meta = `path ${base64(name)}` + (mode === undefined ? '' : `,mode ${base64(mode)}`);
    const [all, param] = ALL[kind];
    const answer = await transport.open('POST', all, { [param]: of }, {
      headers: { ...TUS, 'Upload-Length': length, 'Upload-Metadata': meta } });
    await answer.bytes();
    return new Upload(transport, answer.headers.location, length);
  }

  /** How many bytes have come. */
  async offset() {
    const answer = await this.#t.open('HEAD', this.#one, this.#at, { headers: TUS });
    await answer.bytes();
    this.length = Number(answer.headers['upload-length'] ?? this.length);
    return Number(answer.headers['upload-offset']);
  }

  cancel() {
    return this.#t.call('DELETE', this.#one, this.#at, { headers: TUS });
  }

  async #patch(at, data) {
    const sum = createHash('sha256').update(data).digest('base64');
    const answer = await this.#t.open('PATCH', this.#one, this.#at, {
      body: data, safe: false,
      headers: { ...TUS, 'Upload-Offset': at, 'Upload-Checksum': `sha256 ${sum}`,
        'Content-Type': 'application/offset+octet-stream' },
    });
    await answer.bytes();
    return Number(answer.headers['upload-offset'] ?? at + data.length);
  }

  /** All bytes are there; whether they became the file isn't known. */
  async #finish() {
    try {
      await this.#patch(this.length, Buffer.alloc(0));
    } catch (e) {
      if (!(e instanceof Conflict) || !e.reason.startsWith('the upload is at byte')) throw e;
    }
  }

  /**
   * Sends what is missing of a local file (its path) or bytes, in pieces with a checksum each. When a
   * connection breaks off it asks how far the upload is and goes on, until nothing has come for
   * `patience` milliseconds.
   */
  async send(source, { piece = PIECE, patience = 60_000, progress } = {}) {
    const file = typeof source === 'string' ? await openFile(source, 'r') : null;
    try {
      const read = async (at, n) => {
        if (!file) return Buffer.from(source.buffer, source.byteOffset + at, n);
        const data = Buffer.allocUnsafe(n);
        const { bytesRead } = await file.read(data, 0, n, at);
        if (!bytesRead) throw new RangeError(`the source ends at ${at} of ${this.length} bytes`);
        return data.subarray(0, bytesRead);
      };
      await this.#sendAll(read, piece, patience, progress);
    } finally {
      await file?.close();
    }
  }

  async #sendAll(read, piece, patience, progress) {
    let at = await this.offset();
    let since = Date.now();
    let waits = 0;
    if (at === this.length) await this.#finish();
    while (at < this.length) {
      const data = await read(at, Math.min(piece, this.length - at));
      try {
        at = await this.#patch(at, data);
        since = Date.now();
        waits = 0;
      } catch (e) {
        // It broke off, perhaps without the other side having noticed yet (locked), or was damaged on
        // its way (checksum), or more has come than we know of (conflict).
        const passes = e instanceof ConnectionFailed || (e instanceof ApiError &&
          ['locked', 'checksum', 'conflict', 'unavailable'].includes(e.code));
        if (!passes || Date.now() - since > patience) throw e;
        await sleep(Math.min(100 * 2 ** waits++, 5000) * (0.5 + Math.random() / 2));
        const was = at;
        at = await this.offset().catch((e2) => {
          if (e2 instanceof ConnectionFailed) return at; // it will be asked again
          throw e2;
        });
        if (e.code === 'conflict' && was === at) throw e;
        if (at === this.length) await this.#finish();
      }
      progress?.(at, this.length);
    }
  }
}

/** A local file (its path) or bytes, in pieces; it goes on after connections that break off. */
export async function upload(transport, kind, of, source, path, { mode, ...options } = {}) {
  const length = typeof source === 'string' ? (await stat(source)).size : source.byteLength;
  const up = await Upload.create(transport, kind, of, path, length, mode);
  if (length) await up.send(source, options);
  return up;
}

/** Goes on with an upload, of another process perhaps. */
export async function resumeUpload(transport, url, source, options) {
  const up = new Upload(transport, url);
  await up.send(source, options);
  return up;
}

/** What of tus is spoken. */
export async function uploadAbilities(transport, kind, of) {
  const [all, param] = ALL[kind];
  const answer = await transport.open('OPTIONS', all, { [param]: of });
  await answer.bytes();
  return answer.headers;
}
