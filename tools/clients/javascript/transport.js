// Requests: connections that are kept, keys that make a call count once, tries after failures.

import http from 'node:http';
import https from 'node:https';
import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { setImmediate as immediate, setTimeout as sleep } from 'node:timers/promises';
import { AnswerCut, ApiError, BadAnswer, ConnectionFailed, NotFound, errorOf } from './errors.js';

const JSON_MAX = 64 << 20;
const PIECE = 256 << 10;
const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 5000;
// Failures that another try may change, and that left nothing done.
const again = new Set(['429 too_many', '503 unavailable', '409 in_flight']);

/** Part by part; bytes that aren't UTF-8 as a Buffer. */
export function quotePath(path) {
  const bytes = typeof path === 'string' ? Buffer.from(path) : Buffer.from(path);
  let out = '';
  for (const b of bytes) {
    out += /[A-Za-z0-9\-._~/]/.test(String.fromCharCode(b))
      ? String.fromCharCode(b)
      : '%' + b.toString(16).toUpperCase().padStart(2, '0');
  }
  return out.replace(/^\/+/, '');
}

const fill = (template, params) => template.replace(/\{(\w+)\}/g, (_, name) =>
  name === 'path' ? quotePath(params[name]) : encodeURIComponent(params[name]));

function queryString(query) {
  const out = new URLSearchParams();
  for (const [key, value] of Object.entries(query ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    for (const one of Array.isArray(value) ? value : [value]) out.append(key, String(one));
  }
  const text = out.toString();
  return text ? '?' + text : '';
}

const defined = (o) => Object.fromEntries(
  Object.entries(o).filter(([, v]) => v !== undefined && v !== null));

/** What is sent: {length, again, open()}; of a stream the length isn't known, and it is sent once. */
function payloadOf(body) {
  if (typeof body === 'string') body = Buffer.from(body);
  if (body instanceof ArrayBuffer) body = new Uint8Array(body);
  if (ArrayBuffer.isView(body)) {
    const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
    if (bytes.length <= PIECE) return { length: bytes.length, again: true, bytes };
    return { length: bytes.length, again: true, open: () => slices(bytes) };
  }
  if (typeof Blob !== 'undefined' && body instanceof Blob) {
    return { length: body.size, again: true, open: () => Readable.fromWeb(body.stream()) };
  }
  if (body && typeof body.getReader === 'function') {
    return { again: false, open: () => Readable.fromWeb(body) };
  }
  if (body instanceof Readable) return { again: false, open: () => body };
  if (body && (body[Symbol.asyncIterator] || body[Symbol.iterator])) {
    return { again: false, open: () => body };
  }
  throw new TypeError('a body is text, bytes, a Blob, a stream or an iterable of bytes');
}

/** A form of [name, content]: in one piece, which can be sent once more, unless a stream is in it. */
export function formOf(parts) {
  const boundary = randomUUID();
  const payloads = parts.map(([name, content]) => [name, payloadOf(content)]);
  async function * pieces() {
    for (const [name, payload] of payloads) {
      yield Buffer.from(`--${boundary}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n`);
      if (payload.open) yield* payload.open();
      else yield payload.bytes;
      yield Buffer.from('\r\n');
    }
    yield Buffer.from(`--${boundary}--\r\n`);
  }
  const again = payloads.every(([, payload]) => payload.again);
  return { payload: { again, open: pieces },
    headers: { 'Content-Type': `multipart/form-data; boundary=${boundary}` } };
}

/**
 * The bytes of an answer. One of: `for await (const chunk of body)`, `bytes()`, `text()`, `json()`,
 * `stream()` (a web ReadableStream), or `close()`, which gives the rest up.
 */
export class Body {
  #message;
  #begun = false;

  constructor(message) {
    this.#message = message;
    this.status = message.statusCode;
    this.headers = message.headers;
    message.on('error', () => {}); // whoever reads hears it
  }

  /** Behind its end. */
  get trailers() { return this.#message.trailers; }

  /** What an archive or a patch that was read to its end tells. */
  get summary() { return JSON.parse(this.trailers['bough-summary'] ?? '{}'); }

  async * [Symbol.asyncIterator]() {
    if (this.#begun) throw new TypeError('the body was read already');
    this.#begun = true;
    try {
      for await (const chunk of this.#message) yield chunk;
    } catch (e) {
      throw new AnswerCut(`the answer broke off: ${e.message}`, { cause: e });
    } finally {
      this.close();
    }
    if (!this.#message.complete) throw new AnswerCut('the answer broke off');
  }

  async bytes(max = Infinity) {
    const parts = [];
    let size = 0;
    for await (const chunk of this) {
      size += chunk.length;
      if (size > max) throw new BadAnswer('the answer is too large');
      parts.push(chunk);
    }
    return Buffer.concat(parts);
  }

  async text() { return (await this.bytes()).toString(); }

  async json() {
    const text = (await this.bytes(JSON_MAX)).toString();
    if (!text.trim()) return null;
    try {
      return JSON.parse(text);
    } catch (e) {
      throw new BadAnswer(`no JSON: ${e.message}`, { cause: e });
    }
  }

  stream() {
    const chunks = this[Symbol.asyncIterator]();
    return new ReadableStream({
      async pull(to) {
        const { done, value } = await chunks.next();
        if (done) to.close();
        else to.enqueue(new Uint8Array(value));
      },
      cancel: () => this.close(),
    }, { highWaterMark: 0 });
  }

  /** The lines, without their ends. */
  async * lines() {
    const decoder = new TextDecoder();
    let rest = '';
    for await (const chunk of this) {
      const parts = (rest + decoder.decode(chunk, { stream: true })).split('\n');
      rest = parts.pop();
      yield* parts;
    }
    if (rest) yield rest;
  }

  close() {
    if (!this.#message.complete || !this.#message.readableEnded) this.#message.destroy();
  }
}

export class Transport {
  #agent;
  #where;
  #http;

  constructor({ socket, url, token, ca, insecure = false, timeout = 600_000, retries = 5,
    retryFor = 30_000, onRequest }) {
    // A file that a token is read from ends with a newline.
    Object.assign(this, { token: token?.trim(), timeout, retries, retryFor, onRequest });
    let Agent = http.Agent;
    this.#http = http;
    if (url !== undefined) {
      const u = new URL(url);
      if (!/^https?:$/.test(u.protocol) || u.pathname !== '/') {
        throw new TypeError(`${url}: http://HOST:PORT or https://HOST:PORT is expected`);
      }
      if (u.protocol === 'https:') {
        this.#http = https;
        Agent = https.Agent;
      }
      const host = u.hostname.replace(/^\[|\]$/g, '');
      const here = /^127\.[0-9.]+$|^::1$|^localhost$/.test(host);
      if (token && u.protocol === 'http:' && !here && !insecure) {
        throw new TypeError(`${url}: the token would go there in the clear: use https, or insecure`);
      }
      this.#where = { host, port: u.port || undefined, ca, minVersion: 'TLSv1.2' };
    } else {
      this.#where = { socketPath: socket };
    }
    // boughd closes after 60 s.
    this.#agent = new Agent({ keepAlive: true, maxFreeSockets: 8, timeout: 45_000 });
  }

  close() { this.#agent.destroy(); }

  /** One try: an answer, whatever its status. */
  #once(method, path, headers, payload, signal) {
    return new Promise((resolve, reject) => {
      const sent = { ...headers };
      if (this.token) sent.Authorization = `Bearer ${this.token}`;
      if (payload?.length !== undefined) sent['Content-Length'] = payload.length;
      else if (!payload && /^(POST|PUT|PATCH)$/.test(method)) sent['Content-Length'] = 0;
      let answered = false;
      let given = false; // the request was handed to a connection
      const req = this.#http.request({ ...this.#where, method, path, headers: sent, signal,
        agent: this.#agent });
      req.setTimeout(this.timeout, () => req.destroy(new Error('no byte came in time')));
      req.on('socket', (s) => {
        if (req.reusedSocket || !(s.connecting || s.secureConnecting)) given = true;
        else s.once(this.#http === https ? 'secureConnect' : 'connect', () => { given = true; });
      });
      req.on('response', (message) => {
        answered = true;
        resolve(new Body(message));
      });
      req.on('error', (e) => {
        if (answered) return;
        if (signal?.aborted || e.cause instanceof SourceFailed) {
          reject(e.cause instanceof SourceFailed ? e.cause.cause : e);
        } else if (/CERT|SELF_SIGNED|ALTNAME|UNABLE_TO/.test(e.code ?? '')) {
          reject(new BadAnswer(e.message, { cause: e }));
        } else {
          const hint = ['ENOENT', 'ECONNREFUSED'].includes(e.code) ?
            ': does boughd run? `bough up` starts it' : '';
          reject(new ConnectionFailed((e.message || e.code) + hint, { sent: given, cause: e }));
        }
      });
      this.#send(req, payload, () => answered);
    });
  }

  #send(req, payload, answered) {
    if (!payload?.open) {
      req.end(payload?.bytes);
      return;
    }
    req.on('response', (message) => {
      // An answer that comes before the end of the body stops it.
      message.once('end', () => { if (!req.writableEnded) req.destroy(); });
    });
    pump(payload.open(), req, answered).catch((e) => {
      if (!answered()) req.destroy(Object.assign(new Error('the source failed'), {
        cause: new SourceFailed(e) }));
    });
  }

  /** A connection of its own that speaks another protocol from here on: {socket, headers, head}. */
  upgrade(template, params, query, headers) {
    this.onRequest?.('GET', template);
    const sent = { ...headers };
    if (this.token) sent.Authorization = `Bearer ${this.token}`;
    return new Promise((resolve, reject) => {
      const req = this.#http.request({ ...this.#where, method: 'GET', agent: false, headers: sent,
        path: fill(template, params) + queryString(query) });
      req.setTimeout(this.timeout, () => req.destroy(new Error('no byte came in time')));
      req.on('upgrade', (message, socket, head) => resolve({ socket, headers: message.headers, head }));
      req.on('response', (message) => errorIn(new Body(message)).then(reject, reject));
      req.on('error', (e) => reject(new ConnectionFailed(e.message || e.code, { sent: true, cause: e })));
      req.end();
    });
  }

  /**
   * A request that went well, with its body to be read; or the error that was answered. What can be
   * repeated without harm is: reading, what is marked by a key (every POST), and writing what ends the
   * same however often it is done. `safe` says otherwise.
   */
  async open(method, template, params = {}, options = {}) {
    const { query, json, body, key, ok = [], signal } = options;
    const headers = { ...options.headers };
    let { payload } = options; // of formOf
    if (json !== undefined) {
      payload = payloadOf(JSON.stringify(defined(json)));
      headers['Content-Type'] = 'application/json';
    } else if (body !== undefined) {
      payload = payloadOf(body);
      headers['Content-Type'] ??= 'application/octet-stream';
      if (options.length !== undefined) payload.length = options.length;
    }
    if (method === 'POST') headers['Idempotency-Key'] = key ?? randomUUID();
    const safe = options.safe ?? (/^(GET|HEAD)$/.test(method) ||
      !(headers['If-Match'] || headers['If-None-Match']));
    this.onRequest?.(method, template);
    const path = fill(template, params) + queryString(query);
    const begun = Date.now();
    let wait = FIRST_WAIT_MS;
    let unsure = false;
    for (let left = this.retries; ; left--) {
      const pause = wait * (0.5 + Math.random() / 2);
      const late = left <= 0 || Date.now() + pause - begun > this.retryFor;
      try {
        const answer = await this.#once(method, path, headers, payload, signal);
        if (answer.status < 300 || ok.includes(answer.status)) return answer;
        const error = await errorIn(answer);
        // The try whose answer was lost has done it.
        if (unsure && method === 'DELETE' && error instanceof NotFound) return nothing;
        if (late || payload?.again === false || !again.has(`${error.status} ${error.code}`)) {
          throw error;
        }
      } catch (e) {
        if (e instanceof ApiError && again.has(`${e.status} ${e.code}`) && !late &&
            payload?.again !== false) {
          // another try
        } else if (!(e instanceof ConnectionFailed)) {
          throw e;
        } else {
          if (late || (e.sent && !(safe && payload?.again !== false))) throw e;
          unsure ||= e.sent;
        }
      }
      await sleep(pause, undefined, { signal });
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    }
  }

  /** The same for answers in JSON; null where it is empty. */
  async call(method, template, params, options) {
    return (await this.open(method, template, params, options)).json();
  }

  /** A POST that takes long: `progress` is called with {done, total, unit, what} as it goes on. */
  async long(template, params, { progress, headers, ...options } = {}) {
    if (!progress) return this.call('POST', template, params, { headers, ...options });
    const answer = await this.open('POST', template, params, {
      ...options, headers: { ...headers, Accept: 'application/x-ndjson' } });
    if (!/x-ndjson/.test(answer.headers['content-type'] ?? '')) return answer.json();
    for await (const line of answer.lines()) {
      const said = JSON.parse(line);
      if (said.progress) progress(said.progress);
      else if (said.error) throw errorOf(said.error, 0);
      else if ('result' in said) return said.result;
    }
    throw new BadAnswer('a stream of progress without a result');
  }

  /** The same as a job, which goes on when its caller is gone. */
  job(template, params, options = {}) {
    return this.call('POST', template, params, {
      json: {}, ...options, headers: { Prefer: 'respond-async' } });
  }

  /** What a list has, page by page as it is asked for. */
  async * pages(template, params, query, page = 200) {
    let cursor;
    do {
      const answer = await this.call('GET', template, params,
        { query: { ...query, limit: page, cursor } });
      yield* answer.items;
      cursor = answer.next;
    } while (cursor !== undefined);
  }
}

class SourceFailed extends Error {
  constructor(cause) {
    super('the source of the body failed', { cause });
  }
}

const nothing = { status: 204, headers: {}, json: async () => null, bytes: async () => Buffer.alloc(0) };

/** Sends as fast as it is taken, and looks between two pieces whether an answer has come. */
async function pump(source, req, answered) {
  for await (const chunk of source) {
    if (answered() || req.destroyed) return;
    if (req.write(chunk)) {
      await immediate();
    } else {
      await new Promise((resolve) => {
        const events = ['drain', 'close', 'error', 'response'];
        const done = () => {
          for (const name of events) req.off(name, done);
          resolve();
        };
        for (const name of events) req.on(name, done);
      });
    }
  }
  if (!answered()) req.end();
}

function * slices(bytes) {
  for (let at = 0; at < bytes.length; at += PIECE) yield bytes.subarray(at, at + PIECE);
}

async function errorIn(answer) {
  try {
    return errorOf(await answer.json(), answer.status);
  } catch {
    return errorOf(null, answer.status);
  }
}

export { FIRST_WAIT_MS, LONGEST_WAIT_MS };
