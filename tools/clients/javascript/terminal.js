// The terminal of a process in a sandbox, over a WebSocket (RFC 6455).

import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { ApiError, BadAnswer, ConnectionFailed } from './errors.js';
import { FIRST_WAIT_MS, LONGEST_WAIT_MS } from './transport.js';

const PROTOCOL = 'bough.terminal.v1';
const FRAME_MAX = 1 << 20; // ours have 32 KiB
const FAULTS = [1002, 1007, 1009, 1011]; // what a new connection would only be closed with again
const WAITING_MAX = 1 << 20; // of output that nobody takes; then the socket isn't read
const [TEXT, BINARY, CLOSE, PING, PONG] = [1, 2, 8, 9, 10];

/**
 * What the process writes, by iterating over it (Buffers, as they come); `send` gives it input. A
 * connection that breaks is made again, and both directions go on at their byte. After the end `exit`
 * is {exit_code, reason}.
 */
export class Terminal {
  #t;
  #template;
  #params;
  #socket;
  #in = Buffer.alloc(0);
  #kept = Buffer.alloc(0); // input that isn't known to be given
  #keptAt;
  #size;
  #inputEnds = false;
  #closed = false;
  #wake;

  constructor(transport, template, params, offset) {
    this.#t = transport;
    this.#template = template;
    this.#params = params;
    /** Of the next byte of output. */
    this.offset = offset;
    this.exit = undefined;
  }

  // ---- what is sent

  /** What can't be sent is sent again by the next connection. */
  #frame(op, data) {
    if (!this.#socket || this.#socket.destroyed) return;
    const n = data.length;
    const head = Buffer.alloc(n < 126 ? 2 : n < 65536 ? 4 : 10);
    head[0] = 128 | op;
    head[1] = 128 | (n < 126 ? n : n < 65536 ? 126 : 127);
    if (head.length === 4) head.writeUInt16BE(n, 2);
    if (head.length === 10) head.writeBigUInt64BE(BigInt(n), 2);
    const mask = randomBytes(4);
    const masked = Buffer.from(data);
    for (let i = 0; i < n; i++) masked[i] ^= mask[i & 3];
    this.#socket.write(Buffer.concat([head, mask, masked]));
  }

  #input(bytes) {
    for (let at = 0; at < bytes.length; at += FRAME_MAX) {
      this.#frame(BINARY, bytes.subarray(at, at + FRAME_MAX));
    }
  }

  #say(words) { this.#frame(TEXT, Buffer.from(JSON.stringify(words))); }

  /** Input, as if it were typed. */
  send(data) {
    const bytes = Buffer.from(data);
    this.#kept = Buffer.concat([this.#kept, bytes]);
    this.#input(bytes);
  }

  /** No input follows: ^D is typed. */
  end() {
    this.#inputEnds = true;
    this.#say({ type: 'eof' });
  }

  resize(columns, rows) {
    this.#size = { type: 'resize', columns, rows };
    this.#say(this.#size);
  }

  signal(signal) { this.#say({ type: 'signal', signal }); }

  /** Lets go of it; the process goes on. */
  close() {
    this.#closed = true;
    this.#frame(CLOSE, Buffer.from([0x03, 0xe8]));
    this.#socket?.end();
    this.#wake?.();
  }

  // ---- connections

  async _open() {
    const key = randomBytes(16).toString('base64');
    const { socket, headers, head } = await this.#t.upgrade(this.#template, this.#params,
      { offset: this.offset, stdin_offset: this.#keptAt },
      { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Version': '13',
        'Sec-WebSocket-Key': key, 'Sec-WebSocket-Protocol': PROTOCOL });
    const accept = createHash('sha1').update(key + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11')
      .digest('base64');
    if (headers['sec-websocket-accept'] !== accept) {
      socket.destroy();
      throw new BadAnswer("an answer that is no WebSocket's");
    }
    this.#socket = socket;
    this.#in = head;
    socket.setNoDelay?.(true);
    socket.setTimeout(this.#t.timeout, () => socket.destroy());
    socket.on('data', (data) => {
      this.#in = Buffer.concat([this.#in, data]);
      if (this.#in.length > WAITING_MAX) socket.pause();
      this.#wake?.();
    });
    for (const name of ['end', 'close', 'error']) {
      socket.on(name, () => {
        socket.destroy();
        this.#wake?.();
      });
    }
    this.#input(this.#kept);
    if (this.#size) this.#say(this.#size);
    if (this.#inputEnds) this.end();
    return this;
  }

  async #again() {
    const begun = Date.now();
    for (let wait = FIRST_WAIT_MS; ; wait = Math.min(wait * 2, LONGEST_WAIT_MS)) {
      try {
        await this._open();
        return;
      } catch (e) {
        const passes = e instanceof ConnectionFailed || (e instanceof ApiError && e.status === 503);
        if (!passes || Date.now() + wait - begun > this.#t.retryFor) throw e;
      }
      await sleep(wait);
    }
  }

  // ---- what comes

  /** [op, data], or undefined: more is needed. */
  #next() {
    const b = this.#in;
    if (b.length < 2) return undefined;
    let n = b[1];
    let at = 2;
    if (n > 127 || b[0] & 0x70 || !(b[0] & 0x80)) throw new BadAnswer('no frame of ours');
    if (n >= 126) {
      at = n === 126 ? 4 : 10;
      if (b.length < at) return undefined;
      n = at === 4 ? b.readUInt16BE(2) : Number(b.readBigUInt64BE(2));
    }
    if (n > FRAME_MAX) throw new BadAnswer('a frame above 1 MiB');
    if (b.length < at + n) return undefined;
    this.#in = b.subarray(at + n);
    return [b[0] & 15, b.subarray(at, at + n)];
  }

  #heard({ type, ...words }) {
    if (type === 'gap') {
      this.offset = words.offset;
    } else if (type === 'exit') {
      this.exit = { exit_code: words.exit_code, reason: words.reason };
    } else if (type === 'ready' || type === 'stdin') {
      const at = type === 'ready' ? words.stdin_offset : words.offset;
      this.#kept = this.#kept.subarray(Math.max(0, at - (this.#keptAt ?? at)));
      this.#keptAt = Math.max(at, this.#keptAt ?? at);
    }
  }

  async * [Symbol.asyncIterator]() {
    try {
      while (!this.exit && !this.#closed) {
        const frame = this.#next();
        if (!frame && this.#socket.destroyed) {
          await this.#again();
        } else if (!frame) {
          this.#socket.resume();
          await new Promise((resolve) => { this.#wake = resolve; });
        } else if (frame[0] === BINARY) {
          this.offset += frame[1].length;
          yield frame[1];
        } else if (frame[0] === TEXT) {
          this.#heard(JSON.parse(frame[1].toString()));
        } else if (frame[0] === PING) {
          this.#frame(PONG, frame[1]);
        } else if (frame[0] === CLOSE) { // boughd ends; or an error says why it may no longer be
          this.#socket.destroy();
          this.#in = Buffer.alloc(0);
          const code = frame[1].length < 2 ? 0 : frame[1].readUInt16BE(0);
          if (FAULTS.includes(code)) throw new BadAnswer(`the terminal was closed with ${code}`);
        }
      }
    } finally {
      this.close();
    }
  }
}
