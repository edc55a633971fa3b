// Sandboxes: containers on workspaces, and what runs in them.

import { setTimeout as sleep } from 'node:timers/promises';
import { AnswerCut, BadAnswer, ConnectionFailed } from './errors.js';
import { EventStream } from './events.js';
import { Upload, WorkspaceFiles, resumeUpload, upload, uploadAbilities } from './files.js';
import { Terminal } from './terminal.js';
import { FIRST_WAIT_MS, LONGEST_WAIT_MS } from './transport.js';

const ONE = '/v1/sandboxes/{sandbox}';
const FRAME_MAX = 16 << 20; // ours have 128 KiB
const [STDOUT, STDERR, END] = [1, 2, 4];

/** As the sandbox sees them. A batch is of one workspace, or of the sandbox's root. */
export class SandboxFiles extends WorkspaceFiles {
  _file = ONE + '/files/{path}';
  _archive = ONE + '/archive/{path}';
  _batch = ONE + '/batch';
  _param = 'sandbox';
}

/** A process in a sandbox. Its output is kept: it can be read from any offset, and again. */
export class Exec {
  #t;
  #at;

  constructor(transport, sandbox, info) {
    this.#t = transport;
    this.#at = { sandbox, exec: info.id };
    this.info = info;
  }

  get id() { return this.info.id; }

  /** Asks for it, and waits up to so many seconds for its end. */
  async refresh(waitS) {
    this.info = await this.#t.call('GET', ONE + '/exec/{exec}', this.#at,
      { query: { wait: waitS || undefined } });
    return this.info;
  }

  /** What it wrote: of one stream ('stdout', 'stderr'), or of both, in frames. */
  output({ stream, follow, stdoutOffset, stderrOffset, signal } = {}) {
    return this.#t.open('GET', ONE + '/exec/{exec}/output', this.#at, { signal, query: {
      stream, follow, stdout_offset: stdoutOffset, stderr_offset: stderrOffset } });
  }

  /**
   * What it writes from there on, as { stream: 'stdout' or 'stderr', data }, until it has ended: then
   * `info` has its exit_code and reason. A connection that breaks is made again, and goes on at its byte.
   */
  async * stream({ stdoutOffset = 0, stderrOffset = 0, signal } = {}) {
    const at = [0, stdoutOffset, stderrOffset];
    for (let wait = FIRST_WAIT_MS; ; wait *= 2) {
      try {
        let rest = Buffer.alloc(0);
        const body = await this.output(
          { follow: true, stdoutOffset: at[1], stderrOffset: at[2], signal });
        for await (const piece of body) {
          rest = Buffer.concat([rest, piece]);
          for (let size; rest.length >= 16 && rest.length >= 16 + (size = rest.readUInt32BE(4));) {
            const kind = rest[0];
            const data = rest.subarray(16, 16 + size);
            const end = Number(rest.readBigUInt64BE(8)) + size;
            rest = rest.subarray(16 + size);
            wait = FIRST_WAIT_MS / 2;
            if (kind === STDOUT || kind === STDERR) {
              at[kind] = end;
              yield { stream: kind === STDOUT ? 'stdout' : 'stderr', data };
            } else if (kind === END) {
              Object.assign(this.info, JSON.parse(data));
              return;
            }
          }
          if (rest.length > FRAME_MAX) throw new BadAnswer('a frame that is too large');
        }
      } catch (e) {
        if (!(e instanceof ConnectionFailed) || wait > LONGEST_WAIT_MS) throw e;
      }
      if (wait > LONGEST_WAIT_MS) throw new AnswerCut('the output broke off');
      await sleep(wait);
    }
  }

  /** To its stdin; with `offset` (bytes that were sent before) nothing comes twice. */
  write(data, { offset, last } = {}) {
    return this.#t.call('POST', ONE + '/exec/{exec}/stdin', this.#at,
      { body: data, query: { offset, last } });
  }

  /** Its terminal, where it was started with `tty`: input, output from that offset on. */
  terminal({ offset = 0 } = {}) {
    return new Terminal(this.#t, ONE + '/exec/{exec}/terminal', this.#at, offset)._open();
  }

  resize(columns, rows) {
    return this.#t.call('POST', ONE + '/exec/{exec}/resize', this.#at, { json: { columns, rows } });
  }

  signal(signal) {
    return this.#t.call('POST', ONE + '/exec/{exec}/signal', this.#at, { json: { signal } });
  }
}

/** Made with the classes that it needs of index.js, which needs it. */
export const sandboxClasses = ({ Job, Named, asyncDispose, refOf, NotFound }) => {
  class Sandbox extends Named {
    constructor(transport, ref, info) {
      super(transport, ref, info);
      this.files = new SandboxFiles(transport, ref);
    }

    get #at() { return { sandbox: this.ref }; }

    #post(what, json = {}) {
      return this._is(this._t.call('POST', `${ONE}/${what}`, this.#at, { json }));
    }

    refresh() { return this._is(this._t.call('GET', ONE, this.#at)); }

    /** name, description, labels, add_labels, remove_labels, visibility, team, ttl_s, on_expiry */
    update(fields) { return this._is(this._t.call('PATCH', ONE, this.#at, { json: fields })); }

    /** What happens to files, as a workspace's: of the workspace that the path lies on, or the root. */
    watch({ path, recursive, since } = {}) {
      return EventStream.begin(this._t, ONE + '/watch', this.#at, { path, recursive }, since);
    }

    /** force: also one that runs; workspaces: with those that were made for it */
    delete({ force, workspaces } = {}) {
      return this._t.call('DELETE', ONE, this.#at, { query: { force, workspaces } });
    }

    async [asyncDispose]() {
      await this.delete({ force: true }).catch((e) => {
        if (!(e instanceof NotFound)) throw e;
      });
    }

    /** secrets, secret_env */
    start(fields) { return this.#post('start', fields); }
    stop({ graceMs } = {}) { return this.#post('stop', { grace_ms: graceMs }); }
    kill(signal) { return this.#post('kill', { signal }); }
    pause() { return this.#post('pause'); }
    resume() { return this.#post('resume'); }

    /** As those of a workspace; resume() is another thing here. */
    upload(source, path, options) {
      return upload(this._t, 'sandboxes', this.ref, source, path, options);
    }

    beginUpload(path, length, { mode } = {}) {
      return Upload.create(this._t, 'sandboxes', this.ref, path, length, mode);
    }

    resumeUpload(url, source, options) { return resumeUpload(this._t, url, source, options); }
    uploadAbilities() { return uploadAbilities(this._t, 'sandboxes', this.ref); }

    stats() { return this._t.call('GET', ONE + '/stats', this.#at); }

    async fork(names, { start } = {}) {
      const { items } = await this._t.call('POST', ONE + '/fork', this.#at,
        { json: { names, start } });
      return items.map((one) => new Sandbox(this._t, one.id, one));
    }

    save(name, { message, progress, key } = {}) {
      return this._t.long(ONE + '/snapshots', this.#at, { json: { name, message }, progress, key });
    }

    async saveJob(name, { message, key } = {}) {
      return new Job(this._t, await this._t.job(ONE + '/snapshots', this.#at,
        { json: { name, message }, key }));
    }

    restore(snapshot, { live } = {}) { return this.#post('restore', { snapshot, live }); }

    attach(workspace, target, { readOnly, exclusive } = {}) {
      return this.#post('workspaces',
        { workspace: refOf(workspace), target, read_only: readOnly, exclusive });
    }

    detach(workspace, { target, force } = {}) {
      return this._is(this._t.call('DELETE', ONE + '/workspaces/{ws}',
        { ...this.#at, ws: refOf(workspace) }, { query: { target, force } }));
    }

    /** Starts a process: cwd, env, user, tty, rows, columns, stdin, timeout_ms. */
    async exec(command, fields = {}) {
      return new Exec(this._t, this.ref, await this._t.call('POST', ONE + '/exec', this.#at,
        { json: { command, ...fields } }));
    }

    async * execs({ page } = {}) {
      for await (const one of this._t.pages(ONE + '/exec', this.#at, {}, page)) {
        yield new Exec(this._t, this.ref, one);
      }
    }

    async getExec(id) {
      const one = new Exec(this._t, this.ref, { id });
      await one.refresh();
      return one;
    }
  }
  return { Sandbox };
};
