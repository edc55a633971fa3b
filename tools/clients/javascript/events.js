// Server-sent events that go on where they were broken off.

import { setTimeout as sleep } from 'node:timers/promises';
import { ConnectionFailed, Unavailable } from './errors.js';
import { FIRST_WAIT_MS, LONGEST_WAIT_MS } from './transport.js';

/**
 * An async iterable of {id, type, data}, which ends when it is closed (or a loop over it left). When the
 * connection breaks off it asks for what came behind `lastId`; Gone says that this isn't known any
 * longer.
 */
export class EventStream {
  #open;
  #body;
  #closed = new AbortController();
  #events;

  constructor(open, lastId) {
    this.#open = open;
    this.lastId = lastId;
    this.#events = this.#run();
  }

  /** What happens from now on is in it. */
  static async begin(transport, template, params, query, since) {
    const stream = new EventStream((lastId, signal) => transport.open('GET', template, params, {
      query, signal,
      headers: { Accept: 'text/event-stream', ...(lastId && { 'Last-Event-ID': lastId }) },
    }), since);
    stream.#body = await stream.#open(since, stream.#closed.signal);
    return stream;
  }

  close() {
    this.#closed.abort();
    this.#body?.close();
  }

  [Symbol.asyncIterator]() { return this; }
  next() { return this.#events.next(); }
  async return(value) {
    this.close();
    await this.#events.return();
    return { done: true, value };
  }

  async * #run() {
    const { signal } = this.#closed;
    let wait = FIRST_WAIT_MS;
    while (!signal.aborted) {
      try {
        this.#body ??= await this.#open(this.lastId, signal);
        for await (const event of this.#parse(this.#body)) {
          wait = FIRST_WAIT_MS;
          yield event;
        }
      } catch (e) {
        if (signal.aborted) return;
        if (!(e instanceof ConnectionFailed || e instanceof Unavailable)) throw e;
      } finally {
        this.#body?.close();
        this.#body = undefined;
      }
      await sleep(wait * (0.5 + Math.random() / 2), undefined, { signal }).catch(() => {});
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    }
  }

  async * #parse(body) {
    let id = this.lastId; // counts when its empty line has come
    let type = '';
    let data = [];
    for await (const raw of body.lines()) {
      const line = raw.replace(/\r$/, '');
      if (line === '') {
        this.lastId = id;
        if (data.length) yield { id, type, data: JSON.parse(data.join('\n')) };
        type = '';
        data = [];
        continue;
      }
      const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line);
      if (field === 'id') id = value;
      else if (field === 'event') type = value;
      else if (field === 'data') data.push(value);
    }
  }
}
