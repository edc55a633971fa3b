// What client_js.t runs: client_js.mjs CLIENT SCRATCH HTTPS-URL REPOSITORY-URL. TAP.
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream, existsSync, readFileSync } from 'node:fs';
import net from 'node:net';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';

const [lib, T, URL_, REPO] = process.argv.slice(2);
const bough = await import(lib);
const SOCK = process.env.BOUGH_ROOT + '/run/boughd.sock';
const called = new Set();
let n = 0;

function ok(what, good, note = '') {
  console.log(`${good ? '' : 'not '}ok ${++n} - ${what}`);
  if (!good) console.log('# ' + String(note).slice(0, 1000));
}
const eq = (what, got, want) => ok(what, JSON.stringify(got) === JSON.stringify(want),
  `${JSON.stringify(got)} for ${JSON.stringify(want)}`);
async function throws(what, kind, call, code) {
  try {
    const got = await call();
    ok(what, false, `no exception, but ${got}`);
  } catch (e) {
    ok(what, e instanceof kind && (code === undefined || e.code === code), e.stack);
    return e;
  }
}
async function all(iterable) {
  const out = [];
  for await (const one of iterable) out.push(one);
  return out;
}
const sha = (data) => createHash('sha256').update(data).digest('hex');

// A socket in front of boughd's that cuts connections: each gets a number of bytes that may pass up and
// down (null: all), taken from `plan`.
const cutter = { path: T + '/cut.sock', plan: [], count: 0, heads: [] };
const proxy = net.createServer((near) => {
  cutter.count++;
  let [up, down] = cutter.plan.shift() ?? [null, null];
  const far = net.connect(SOCK);
  const end = () => { near.destroy(); far.destroy(); };
  let first = true;
  near.on('data', (d) => {
    if (first) cutter.heads.push(d.toString('latin1').split('\r\n\r\n')[0]);
    first = false;
    if (up !== null && d.length > up) {
      far.write(d.subarray(0, up), end);
      up = 0;
      return;
    }
    if (up !== null) up -= d.length;
    if (!far.write(d)) { near.pause(); far.once('drain', () => near.resume()); }
  });
  far.on('data', (d) => {
    if (down !== null && d.length > down) {
      if (down) near.write(d.subarray(0, down), end);
      else end();
      down = 0;
      return;
    }
    if (down !== null) down -= d.length;
    if (!near.write(d)) { far.pause(); near.once('drain', () => far.resume()); }
  });
  for (const s of [near, far]) s.on('close', end).on('error', end);
});
await new Promise((resolve) => proxy.listen(cutter.path, resolve));
const whole = [null, null];
/** A client whose connections are cut so. */
function through(...plan) {
  cutter.plan = plan;
  return new bough.Client({ socket: cutter.path });
}

const c = new bough.Client({ socket: SOCK, onRequest: (m, p) => called.add(`${m} ${p}`) });

// ---- who and what

eq('whoami', (await c.whoami()).admin, true);
eq('version', (await c.version()).api, 'v1');
for (let i = 0; i < 1200 && !(await c.health()).ok; i++) await sleep(100);
eq('health', (await c.health()).ok, true);
const doc = await c.openapi();
ok('metrics', (await c.metrics()).includes('bough_http_requests_total'));
eq('stats', (await c.stats()).catalog.workspaces, 0);
await throws('nobody listens', bough.ConnectionFailed,
  () => new bough.Client({ socket: T + '/none', retries: 1 }).version());

// ---- workspaces, with events from the beginning

const events = await c.events();
const heard = [];
const listening = (async () => { for await (const e of events) heard.push(e); })();
const one = await c.workspaces.create('one', { labels: { a: 'b' }, description: 'd' });
eq('create', [one.name, one.info.labels, one.info.mounted], ['one', { a: 'b' }, true]);
let e = await throws('the name is taken', bough.Conflict, () => c.workspaces.create('one'), 'exists');
eq('its status', e.status, 409);
e = await throws('a name that is none', bough.Invalid, () => c.workspaces.create('../x'));
eq('its details', e.details, { field: 'name' });
await throws('not there', bough.NotFound, () => c.workspaces.get('none'));
eq('get', (await c.workspaces.get('one')).id, one.id);
eq('update', (await one.update({ add_labels: { c: 'd' } })).labels, { a: 'b', c: 'd' });
await c.workspaces.temporary('passing', {}, (ws) => ok('a temporary one', existsSync(ws.path)));
await throws('is gone', bough.NotFound, () => c.workspaces.get('passing'));
const gone = await c.workspaces.create('gone');
await gone.delete();
eq('what was deleted', (await all(c.workspaces.list({ deleted: true }))).map((w) => w.name), ['gone']);
eq('is brought back', (await gone.undelete('back')).name, 'back');
await gone.delete({ purge: true });
const keyed = await c.workspaces.create('keyed', { key: 'k', mount: false });
eq('a key makes it count once', (await c.workspaces.create('keyed', { key: 'k', mount: false })).id,
  keyed.id);
await keyed.delete();
const forks = await one.fork({ name: 'f', count: 5, labels: { of: 'one' } });
eq('forks', forks.map((f) => f.name), ['f-1', 'f-2', 'f-3', 'f-4', 'f-5']);
eq('a list in pages', (await all(c.workspaces.list({ page: 2 }))).length, 6);
eq('by label', (await all(c.workspaces.list({ labels: { of: 'one' } }))).length, 5);
eq('umount', (await one.umount()).mounted, false);
eq('mount', (await one.mount()).mounted, true);

// ---- files

const f = one.files;
const put = await f.write('dir/hello.txt', 'hello\n', { mode: '0640', digest: true });
eq('write', [put.created, put.mode, put.size], [true, '0640', 6]);
eq('it is there', readFileSync(one.path + '/dir/hello.txt', 'utf8'), 'hello\n');
eq('read', await f.readText('dir/hello.txt'), 'hello\n');
eq('a range', await f.readText('dir/hello.txt', { start: 1, end: 3 }), 'el');
eq('its end', await f.readText('dir/hello.txt', { start: -3 }), 'lo\n');
await throws('behind the end', bough.Invalid, () => f.read('dir/hello.txt', { start: 100 }), 'range');
eq('head', (await f.head('dir/hello.txt')).etag, put.etag);
await throws('if it is as before', bough.Changed,
  () => f.write('dir/hello.txt', 'x', { ifMatch: '"1"' }));
await f.write('dir/hello.txt', 'hello again\n', { ifMatch: put.etag });
await throws('if nothing is there', bough.Changed,
  () => f.write('dir/hello.txt', 'x', { ifNoneMatch: '*' }));
const { etag } = await f.head('dir/hello.txt');
const same = await f.open('dir/hello.txt', { ifNoneMatch: etag });
eq('nothing new', [same.status, (await same.bytes()).length], [304, 0]);
await throws('a directory is not read', Error, () => f.read('dir'), 'EISDIR');
await f.writeForm('form', 'a form\r\n');
eq('a form', await f.readText('form'), 'a form\r\n');
const odd = Buffer.from('odd \xff%2F?#name', 'latin1');
await f.write(odd, 'x');
ok('a name that is not UTF-8', existsSync(Buffer.concat([Buffer.from(one.path + '/'), odd])));
const names = (await all(f.list())).map(bough.entryName);
ok('in the list', names.some((x) => Buffer.isBuffer(x) && x.equals(odd)));
const [odd2, odd3] = ['2', '3'].map((x) => Buffer.concat([odd, Buffer.from(x)]));
await f.copy(odd, odd2);
await f.move(odd, odd3);
await f.symlink(odd, odd2);
eq('copied, moved and linked by such names', [await f.exists(odd2), await f.exists(odd3),
  Buffer.from((await f.stat(odd)).target_b64, 'base64').equals(odd2)], [true, true, true]);
await f.batch([{ op: 'delete', path: odd }, { op: 'delete', path: odd2 },
  { op: 'move', path: odd3, to: odd }]);
await f.delete(odd);
await f.mkdir('many');
for (let i = 0; i < 25; i++) await f.write(`many/ä "}${i}`, String(i));
eq('a directory in pages', (await all(f.list('many', { page: 10 }))).length, 25);
eq('all below', (await all(f.walk())).filter((x) => x.type === 'file').length, 27);
await f.symlink('link', 'dir/hello.txt');
eq('a link', (await f.stat('link')).target, 'dir/hello.txt');
eq('chmod', (await f.chmod('form', '0600')).mode, '0600');
await f.copy('form', 'form2');
await f.move('form2', 'moved/here');
ok('copied and moved', await f.exists('moved/here') && !(await f.exists('form2')));
await throws('it is not empty', bough.Conflict, () => f.delete('moved'));
await f.delete('moved', { recursive: true });
const watching = await one.watch({ path: 'seen', recursive: true });
await f.write('seen/this', 'x');
for await (const event of watching) if (event.data.path === 'seen/this') break;
ok('watched', true);

// ---- streams, in constant memory

const size = 64 << 20;
const block = randomBytes(1 << 20);
async function * noise() { for (let i = 0; i < size; i += block.length) yield block; }
const want = createHash('sha256');
for await (const b of noise()) want.update(b);
const digest = want.digest('hex');
global.gc?.();
const before = process.memoryUsage().rss;
await f.write('big', noise());
eq('a stream goes in', (await f.stat('big')).size, size);
const hash = createHash('sha256');
const reader = (await f.open('big')).stream().getReader();
for (;;) {
  const { done, value } = await reader.read();
  if (done) break;
  hash.update(value);
}
eq('and out, as a web stream', hash.digest('hex'), digest);
await f.upload(one.path + '/big', '/big2');
const grown = (process.memoryUsage().rss - before) >> 10;
ok(`in constant memory (${grown} KiB)`, grown < 150 << 10);
await f.delete('big2');
await throws('a source that fails', RangeError, () => f.write('half', (async function * () {
  yield block;
  throw new RangeError('the source fails');
})()));
ok('leaves nothing', !(await f.exists('half')));
// Node drops an answer that comes while it writes, when the connection has ended by then.
let early;
await c.workspaces('none').files.write('x', (async function * () { for (;;) yield block; })())
  .catch((e) => { early = e; });
ok('an endless body ends with an answer, or is cut',
  early instanceof bough.NotFound || early instanceof bough.ConnectionFailed);
eq('extract', (await f.extract(createReadStream(T + '/t.tar'))).members, 2);
const archive = await f.archive('', { format: 'tar' });
ok('an archive', (await archive.bytes()).length > size);
ok('its summary', archive.summary.members > 25);
const later = '2100-01-01T00:00:00.000000000Z';
ok('the rest of one', (await (await f.archiveRest('', later)).bytes()).length > size);

// ---- broken connections

let via = through([0, 0], [null, 0], [null, 40], whole);
eq('reading is tried again', (await via.workspaces('one').refresh()).name, 'one');
via = through([null, 0], [null, 30], whole);
eq('what makes something, too', (await via.workspaces.create('once', { mount: false })).name, 'once');
const keys = cutter.heads.slice(-3).map((h) => /Idempotency-Key: (.*)/i.exec(h)?.[1]);
ok('with the same key', keys[0] && new Set(keys).size === 1, keys);
via = through([null, 0], whole);
await via.workspaces('once').delete();
await throws('a deletion whose answer was lost is done', bough.NotFound,
  () => c.workspaces('once').refresh());
const now = (await f.head('dir/hello.txt')).etag;
via = through([null, 0]);
await throws('what may have been done is not repeated when that matters', bough.ConnectionFailed,
  () => via.workspaces('one').files.write('dir/hello.txt', 'y', { ifMatch: now }));
await f.write('dir/hello.txt', 'hello again\n');
via = through([null, 3 << 20], [null, 5 << 20], whole);
await via.workspaces('one').files.download('big', T + '/down');
eq('a download goes on', sha(readFileSync(T + '/down')), digest);
via = through([null, 100000]);
await throws('an answer that breaks off is no end', bough.AnswerCut,
  () => via.workspaces('one').files.read('big'));
const tries = cutter.count;
via = through([9 << 20, null], [1000, null], whole);
const at = [];
await via.workspaces('one').upload(T + '/down', 'up/loaded',
  { mode: '0600', progress: (x) => at.push(x) });
eq('an upload goes on', (await f.stat('up/loaded')).mode, '0600');
eq('after it was broken off', [cutter.count - tries >= 3, at.at(-1)], [true, size]);
eq('and is the same', sha(readFileSync(one.path + '/up/loaded')), digest);
let up = await one.beginUpload('later', 20);
await throws('the source ends early', RangeError, () => up.send(T + '/port', { piece: 20 }));
await up.cancel();
up = await one.beginUpload('later', 10);
await one.resume(up.url, Buffer.from('0123456789'));
eq('resumed by its address', await f.readText('later'), '0123456789');
ok('what tus can', (await one.uploadAbilities())['tus-extension'].includes('creation'));

// ---- save, restore, diff

const told = [];
const snap = await one.save('s', { message: 'm', progress: (p) => told.push(p) });
eq('save', [snap.info.names, snap.info.message], [['s'], 'm']);
ok('with its progress', told.length > 0);
eq('nothing new', [(await one.save()).id, (await one.save()).info.unchanged], [snap.id, true]);
await f.delete('dir/hello.txt');
eq('diff', (await all(one.diff())).map((d) => `${d.kind} ${d.path}`), ['deleted dir/hello.txt']);
eq('as text', await (await one.diffText('name-status')).text(), 'D\tdir/hello.txt\n');
await throws('a failure in a stream of progress', bough.Conflict,
  () => one.save('s', { progress() {} }), 'exists');
await one.restore(snap);
eq('restore', await f.readText('dir/hello.txt'), 'hello again\n');
eq("a snapshot's files", await snap.files.readText('dir/hello.txt'), 'hello again\n');
eq('their heads', (await snap.files.head('dir/hello.txt'))['content-length'], '12');
ok('its list', (await all(snap.files.list())).some((x) => x.name === 'dir'));
ok('the rest of it', (await (await snap.files.archiveRest('', later, 'dir')).text()).includes('./'));
eq('its archive', (await (await snap.files.archive('dir', { format: 'zip' })).text()).slice(0, 2), 'PK');
ok('its diff', (await all(snap.diff())).some((d) => d.path === 'big'));
ok('as text, too', (await (await snap.diffText('stat')).text()).includes('dir/hello.txt'));
eq('against itself there is none', (await all(snap.diff({ against: snap.id }))).length, 0);
eq('its line', (await all(snap.log({ page: 1 }))).map((s) => s.id), [snap.id]);
eq('log', (await all(one.log({ page: 1 }))).map((s) => s.id), [snap.id]);
await f.write('more', 'x');
const job = await one.saveJob('s2');
eq('a job', (await job.wait(200_000)).names, ['s2']);
eq('by its id', (await c.job(job.id)).state, 'done');
const kept = await (await c.exports.createJob(one, { format: 'zip' })).wait(200_000);
eq('an export', kept.format, 'zip');
const bytes = await (await c.exports.open(kept.id)).bytes();
eq('its bytes', bytes.length, kept.bytes);
eq('from the middle', (await (await c.exports.open(kept.id, { start: 10 })).bytes()).length, kept.bytes - 10);
eq('its head', (await c.exports.head(kept.id))['content-length'], String(kept.bytes));
eq('among the exports', (await c.exports.list()).map((x) => x.id), [kept.id]);
const byJob = await (await c.snapshots.createJob(bytes, { name: 'in-job' })).wait(200_000);
eq('imported by a job', byJob.names, ['in-job']);
await c.snapshots('in-job').delete();
await c.exports.delete(kept.id);
eq('deleted', await c.exports.list(), []);
ok('made at once', (await c.exports.create('one', { path: 'dir' })).bytes > 0);
ok('among the jobs', (await all(c.jobs({ page: 1 }))).some((j) => j.id === job.id));
await throws('it has ended', bough.Conflict, () => job.cancel());
ok('snapshots', (await all(c.snapshots.list({ workspace: 'one' }))).length >= 2);
eq('update', (await snap.update({ add_names: ['s3'], labels: { k: 'v' } })).labels, { k: 'v' });
eq('get', (await c.snapshots.get('s3')).id, snap.id);
await throws('in use', bough.Conflict, () => c.snapshots('s').delete());
const made = await c.snapshots.create(createReadStream(T + '/t.tar'), { name: 'in' });
eq('import', made.info.names, ['in']);
const begun = await c.workspaces.createFrom('begun', createReadStream(T + '/t.tar'),
  { labels: { k: 'v' }, mount: false });
eq('a workspace of an archive', [begun.info.labels, begun.info.mounted, await all(begun.diff())],
  [{ k: 'v' }, false, []]);
await begun.delete({ purge: true, force: true });
const begunByJob = await (await c.workspaces.createFromJob('begun', createReadStream(T + '/t.tar'),
  { labels: { k: 'v' }, mount: false })).wait(200_000);
eq('the same as a job', [begunByJob.labels, begunByJob.mounted], [{ k: 'v' }, false]);
await c.workspaces('begun').delete({ purge: true, force: true });
const above = await c.workspaces.create('above', { source: made });
await above.files.write('x', 'x');
await above.save('above');
await made.delete({ cascade: true });
await throws('what was made from it goes, too', bough.NotFound, () => c.snapshots.get('above'));
const [side] = await one.fork({ names: ['side'] });
await side.files.write('merged', 'here');
eq('merge', (await one.merge(side)).added, 1);
ok('usage', (await c.usage()).some((u) => u.id === one.id));

const aborted = new AbortController();
const slow = f.write('slow', (async function * () { yield block; aborted.abort(); await sleep(50); yield block; })(),
  { signal: aborted.signal });
await throws('an aborted call', Error, () => slow);

// ---- git

eq('add a repository', (await c.repos.add(REPO, { name: 'r' })).name, 'r');
eq('list', (await c.repos.list()).map((r) => r.name), ['r']);
eq('one', (await c.repos.get('r')).head, 'main');
eq('fetch', (await c.repos.fetch('r')).refs_changed, 0);
eq('as a job', (await (await c.repos.fetchJob('r')).wait()).name, 'r');
eq('from files', (await c.repos.create(createReadStream(T + '/git.tar'), T + '/src', { name: 'p' })).kind,
  'path');
eq('again', (await c.repos.update('p', createReadStream(T + '/git.tar'))).refs_changed, 0);
ok('its packs', Array.isArray(await c.repos.packs('p')));
const work = await c.workspaces.create('work', { git: { repo: 'r', branch: 'fix' } });
await work.files.write('file', 'changed\n');
eq('its diff', (await all(work.diff())).map((d) => d.path), ['file']);
ok('its bundle', (await (await work.bundle({ message: 'b' })).text()).startsWith('# v2 git bundle'));
const wsnap = await work.save('w');
ok("a snapshot's", (await (await wsnap.bundle({ message: 'b' })).text()).startsWith('# v2 git bundle'));
ok("a snapshot's commit", (await wsnap.commit('from the snapshot', { branch: 'snap' })).commit);
const commit = await work.commit('a change', { author: 'A <a@example.org>' });
eq('commit', commit.branch, 'fix');
eq('push', (await work.push()).commit, commit.commit);
eq('reset', (await c.repos.reset('r', 'fix')).moved, false);
await throws('in use', bough.Busy, () => c.repos.delete('r'));
await c.repos.delete('p');

// ---- signed URLs

await f.write('signed ä?', 'x');
const { url } = await f.sign('signed ä?', { expiresIn: 60 });
eq('a signed URL', await (await c.openSigned(url)).text(), 'x');
const signedHead = await c.openSigned(url, { method: 'HEAD' });
await signedHead.bytes();
eq('its head', signedHead.headers['content-length'], '1');
await throws('another one', bough.Forbidden, () => c.openSigned(url.slice(0, -4) + '0000'));
const ofSnap = await c.openSigned((await snap.files.sign('form')).url);
eq('of a snapshot', await ofSnap.text(), 'a form\r\n');

// ---- batches, webhooks, sandboxes

const done = await f.batch([{ op: 'write', path: 'b/1', content: 'x' }, { op: 'mkdir', path: 'b/2' }]);
eq('a batch', done.map((x) => x.path), ['b/1', 'b/2']);
const piece = randomBytes(3 << 20);
const large = await f.batch([
  { op: 'write', path: 'b/stream', content: Readable.from([piece.subarray(0, 5), piece.subarray(5)]) },
  { op: 'write', path: 'b/bytes', content: piece.subarray(0, 100) },
  { op: 'write', path: 'b/blob', content: new Blob([piece]) },
  { op: 'write', path: 'b/text', content: '\u00e4'.repeat(100000) },
  { op: 'write', path: 'b/small', content: 'small' }]);
eq('one with large contents', large.map((x) => x.path),
  ['b/stream', 'b/bytes', 'b/blob', 'b/text', 'b/small']);
ok('all of them', piece.equals(await f.read('b/stream')) && piece.equals(await f.read('b/blob')) &&
  piece.subarray(0, 100).equals(await f.read('b/bytes')) &&
  (await f.read('b/text')).toString() === '\u00e4'.repeat(100000));
e = await throws('all or none', bough.NotFound, () => f.batch([
  { op: 'write', path: 'b/3', content: 'x' }, { op: 'chmod', path: 'b/none', mode: '0600' }]));
eq('which it was', [e.details.operation, await f.exists('b/3')], [1, false]);
const hook = await c.webhooks.create('http://127.0.0.1:9/x', { events: ['workspace.created'] });
ok('a webhook', hook.secret);
eq('as it is', (await c.webhooks.get(hook.id)).url, 'http://127.0.0.1:9/x');
eq('changed', (await c.webhooks.update(hook.id, { active: false })).active, false);
await c.webhooks.update(hook.id, { active: true });
ok('tried', await c.webhooks.test(hook.id));
ok('with its deliveries', (await all(c.webhooks.deliveries(hook.id, { page: 1 }))).length >= 1);
eq('all of them', (await c.webhooks.list()).length, 1);
await c.webhooks.delete(hook.id);
eq('no sandbox', await all(c.sandboxes.list({ page: 5 })), []);
await throws('nor one to be made of nothing', bough.ApiError,
  () => c.sandboxes.create({ image: 'none', workspaces: [] }));
e = await throws('by its name', bough.ApiError, () => c.sandboxes.create('no/name'));
eq('which is looked at', e.details.field, 'name');
await throws('for a while', bough.ApiError, () => c.sandboxes.temporary('no/name', {}, () => 0));
// What they do is their own test's; here, that each call is one that boughd knows.
const box = c.sandboxes('none');
const proc = new bough.Exec(box._t, 'none', { id: 'none' });
for (const [what, call] of Object.entries({
  refresh: () => box.refresh(), update: () => box.update({ description: 'd' }),
  delete: () => box.delete({ force: true }), start: () => box.start(), stop: () => box.stop({ graceMs: 1 }),
  kill: () => box.kill('KILL'), pause: () => box.pause(), resume: () => box.resume(), stats: () => box.stats(),
  fork: () => box.fork(['x']), save: () => box.save('x'), saveJob: () => box.saveJob('x'),
  restore: () => box.restore('s'), attach: () => box.attach(one, '/w'), detach: () => box.detach(one),
  exec: () => box.exec(['true'], { cwd: '/' }), execs: () => all(box.execs()), getExec: () => box.getExec('x'),
  output: () => proc.output({ stream: 'stdout', stdoutOffset: 0 }), write: () => proc.write('x', { offset: 0 }),
  resize: () => proc.resize(80, 25), signal: () => proc.signal('TERM'), terminal: () => proc.terminal(), list: () => all(box.files.list()),
  head: () => box.files.head('x'), put: () => box.files.write('x', 'x'), remove: () => box.files.delete('x'),
  batch: () => box.files.batch([{ op: 'mkdir', path: 'x' }]), watch: () => box.watch({ path: 'x' }),
  mkdir: () => box.files.mkdir('x'), archive: () => box.files.archive(), rest: () => box.files.archiveRest('', later),
  patch: () => box._t.open('PATCH', '/v1/sandboxes/{sandbox}/uploads/{up}', { sandbox: 'none', up: 'up_aaaaaaaaaa' },
    { body: 'x', headers: { 'Tus-Resumable': '1.0.0', 'Upload-Offset': 0, 'Content-Type': 'application/offset+octet-stream' } }),
  extract: () => box.files.extract('x'),
  beginUpload: () => box.beginUpload('x', 1), uploadAbilities: () => box.uploadAbilities(),
  offset: () => new bough.Upload(box._t, '/v1/sandboxes/none/uploads/up_aaaaaaaaaa').offset(),
  cancel: () => new bough.Upload(box._t, '/v1/sandboxes/none/uploads/up_aaaaaaaaaa').cancel(),
  resumeUpload: () => box.resumeUpload('/v1/sandboxes/none/uploads/up_aaaaaaaaaa', Buffer.from('x')),
})) {
  await throws(`a sandbox that isn't there: ${what}`, bough.NotFound, call);
}

// ---- tokens, TLS, people

await c.users.create('ann', { uid: 12345 });
await c.users.create('bot');
eq('users', (await c.users.list()).map((u) => u.name).sort(), ['ann', 'bot']);
const token = await c.tokens.create({ name: 't', owner: 'bot', expires_s: 1000 });
ok('tokens', (await all(c.tokens.list({ page: 1 }))).some((t) => t.id === token.id));
await throws('no token goes out in the clear', TypeError,
  async () => new bough.Client({ url: 'http://192.0.2.1:1', token: 'bough_x' }));
ok('but where it is said', new bough.Client({ url: 'http://192.0.2.1:1', token: 'bough_x', insecure: true }));
ok('or stays here', new bough.Client({ url: 'http://[::1]:1', token: 'bough_x' }));
const far = new bough.Client({ url: URL_, token: token.token + '\n', ca: readFileSync(T + '/cert.pem') });
eq('over TLS', (await far.whoami()).owner, 'bot');
await far.workspaces.temporary('mine', {}, async (ws) => {
  await ws.files.write('big', noise());
  eq('a stream over TLS', (await ws.files.stat('big')).size, size);
});
await throws('not its to do', bough.Forbidden, () => far.gc());
await throws('no certificate that we trust', bough.BadAnswer,
  () => new bough.Client({ url: URL_, token: token.token }).whoami());
await c.tokens.delete(token.id);
await throws('a token that is gone', bough.Unauthenticated, () => far.whoami());
eq('a quota', (await c.quotas.set('ann', { workspaces: 5 })).workspaces, 5);
eq('as it is', (await c.quotas.get('ann')).snapshots, null);
eq('all of them', (await c.quotas.list()).length, 1);
await c.quotas.delete('ann');
eq('a team', (await c.teams.create('web')).name, 'web');
eq('a member', (await c.teams.add('web', 'ann', 'reader')).members.length, 2);
eq('teams', (await c.teams.list()).length, 1);
eq('one', (await c.teams.get('web')).members.length, 2);
await c.teams.remove('web', 'ann');
await c.teams.delete('web');
await c.users.delete('ann');

// ---- the service, and events

await c.gc({ progress: (p) => told.push(p) });
ok('gc as a job', 'bytes_freed' in await (await c.gcJob()).wait());
eq('fsck', (await c.fsck()).faults, []);
for await (const a of c.audit({ object: one.id })) {
  eq('audit', a.object, one.id);
  break;
}
ok('its export', (await all(c.auditExport())).at(-1).seq === 1);
eq('what has no method', (await c.call('GET', '/v1/version')).api, 'v1');
for (let i = 0; i < 1200 && !heard.some((x) => x.type === 'workspace.pushed'); i++) await sleep(50);
const types = heard.map((x) => x.type);
ok('events', types[0] === 'workspace.created' && types.includes('workspace.pushed'), types);
events.close();
await listening;
ok('a stream that is closed ends', true);
via = through([null, 700], [null, 700], [null, 700], whole);
const resumed = await via.events({ since: heard[0].id });
const ids = [];
while (ids.length < heard.length - 1) ids.push((await resumed.next()).value.id);
resumed.close();
eq('resumed, none is missed and none comes twice', ids, heard.slice(1).map((x) => x.id));
await throws('what is not known any longer', bough.Gone, () => c.events({ since: '00000000.1' }));

// ---- all of the contract

await c.shutdown();
const table = Object.entries(doc.paths).flatMap(([p, ops]) =>
  Object.keys(ops).map((m) => `${m.toUpperCase()} ${p}`));
const left = table.filter((x) => !called.has(x));
ok('each operation of openapi.json has a method that was called', left.length === 0,
  `add them to tools/clients/javascript and to this test: ${left}`);
eq('no other is called', [...called].filter((x) => !table.includes(x)), []);
proxy.close();
process.exit(0);
