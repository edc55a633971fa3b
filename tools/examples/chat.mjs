#!/usr/bin/env node
// A chat service: each chat has a sandbox that is saved when the chat rests, and comes back as it was.
//
//     chat.mjs CHAT 'shell command'     runs it in the chat's sandbox, which is made or brought back
//     chat.mjs CHAT --save              keeps it as it is now, and goes on
//     chat.mjs CHAT --rest              saves the sandbox and gives it back
//     chat.mjs CHAT --undo              the sandbox as it was at the last save
//
// The sandbox is chat-CHAT. All that is in it lies in its root, which is what a save holds: files, installed
// programs, users; no processes. A save says which sandbox it is of, so the last one is found by that, also
// when boughd made it because nobody had come back for a day.
import { BoughError, Client, NotFound } from '../clients/javascript/index.js';

const client = new Client();
const found = (promise) => promise.catch((e) => {
  if (e instanceof NotFound) return null;
  throw e;
});

/** The latest save of the chat's sandbox. */
async function lastSave(name) {
  for await (const save of client.snapshots.list({ image: true })) { // the newest first
    if (save.info.image.sandbox?.name === name) return save;
  }
  return null;
}

/** The chat's sandbox, running: the one that is there, else from its last save, else a new one. */
async function resume(name) {
  const there = await found(client.sandboxes.get(name));
  if (there) {
    if (there.info.status !== 'running') await there.start();
    return there;
  }
  const saved = await lastSave(name);
  return client.sandboxes.create({
    name, image: saved?.id ?? 'host', hostname: 'chat', memory_bytes: 1 << 30, disk_bytes: 2 ** 31,
    ttl_s: 24 * 3600, on_expiry: 'save',
  });
}

/** To its end, in front of whoever looks on; its exit code. */
async function run(box, command) {
  const process_ = await box.exec(['sh', '-c', command], { cwd: '/root', timeout_ms: 600_000 });
  for await (const { stream, data } of process_.stream()) process[stream].write(data);
  return process_.info.exit_code;
}

const [chat, command] = process.argv.slice(2);
if (!chat || !command || (command.startsWith('--') && !['--save', '--rest', '--undo'].includes(command))) {
  console.error('usage: chat.mjs CHAT COMMAND|--save|--rest|--undo');
  process.exit(2);
}
try {
  const name = `chat-${chat}`;
  const box = await resume(name);
  if (command === '--undo') {
    const saved = await lastSave(name);
    if (!saved) throw new BoughError(`chat ${chat} was never saved`);
    await box.restore(saved.id);
  } else if (command.startsWith('--')) {
    console.log((await box.save(undefined, { message: `chat ${chat}` })).root.id);
    if (command === '--rest') await box.delete({ force: true });
  } else {
    process.exitCode = await run(box, command);
  }
} catch (e) {
  if (!(e instanceof BoughError)) throw e;
  console.error(`chat.mjs: ${e.message}`);
  process.exitCode = 1;
}
client.close();
