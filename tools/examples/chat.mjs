#!/usr/bin/env node
// A chat service: each chat has a workspace that is saved when the chat rests, and comes back whole.
//
//     chat.mjs CHAT 'shell command'     runs it in the chat's workspace, which is made or brought back
//     chat.mjs CHAT --rest              saves the workspace and gives it back
//     chat.mjs CHAT --undo              the workspace as it was at the last save
//
// The chat's snapshots have the label `chat`; its latest has the name chat-CHAT. The command is a program of
// this machine; a real service runs it in a sandbox on the workspace:
// client.sandboxes.create({ image: 'host', workspaces: [{ workspace: ws.id }] }), then its exec().
import { spawnSync } from 'node:child_process';
import { BoughError, Client, NotFound } from '../clients/javascript/index.js';

const client = new Client();
const found = (promise) => promise.catch((e) => {
  if (e instanceof NotFound) return null;
  throw e;
});

/** The chat's workspace: the one that is there, else from its last save, else a new one. */
async function resume(chat) {
  const name = `chat-${chat}`;
  const there = await found(client.workspaces.get(name));
  if (there) return there;
  const saved = await found(client.snapshots.get(name));
  // One that nobody comes back to is saved and given back by boughd itself.
  return client.workspaces.create(name, {
    source: saved ?? undefined, labels: { chat }, quota_bytes: 1 << 30,
    ttl_s: 24 * 3600, on_expiry: 'save',
  });
}

/** Saves, and has the chat's name mean what was saved. */
async function save(ws, chat) {
  const name = `chat-${chat}`;
  const saved = await ws.save(undefined, { message: `chat ${chat}` });
  if (saved.info.names.includes(name)) return saved;
  const last = await found(client.snapshots.get(name));
  if (last) await last.update({ remove_names: [name] });
  await saved.update({ add_names: [name], labels: { chat } });
  return saved;
}

const [chat, command] = process.argv.slice(2);
if (!chat || !command || (command.startsWith('--') && !['--rest', '--undo'].includes(command))) {
  console.error('usage: chat.mjs CHAT COMMAND|--rest|--undo');
  process.exit(2);
}
try {
  const ws = await resume(chat);
  if (command === '--rest') {
    console.log((await save(ws, chat)).id);
    await ws.delete({ purge: true });
  } else if (command === '--undo') {
    await ws.restore(`chat-${chat}`);
  } else {
    process.exitCode = spawnSync('sh', ['-c', command], { cwd: ws.path, stdio: 'inherit' }).status ?? 1;
  }
} catch (e) {
  if (!(e instanceof BoughError)) throw e;
  console.error(`chat.mjs: ${e.message}`);
  process.exitCode = 1;
}
client.close();
