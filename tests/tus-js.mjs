// Uploads with the npm package tus-js-client, a client that others wrote: tests/tus-js.sh runs it.
import fs from 'node:fs'
import http from 'node:http'
import crypto from 'node:crypto'
import { createRequire } from 'node:module'
const tus = createRequire(process.cwd() + '/')('tus-js-client')

const { BOUGH_URL: base, BOUGH_TOKEN: token, BOUGH_AT: at } = process.env
const endpoint = base + '/v1/workspaces/w/uploads'
const headers = { Authorization: 'Bearer ' + token }
let n = 0, failed = 0
function ok(what, good, more) {
  console.log(`${good ? 'ok' : 'not ok'} ${++n} - ${what}`)
  if (!good) { failed++; console.log('# ' + (more ?? '')) }
}
const sum = data => crypto.createHash('sha256').update(data).digest('hex')
const same = (name, data) => sum(fs.readFileSync(`${at}/${name}`)) === sum(data)
const upload = (source, options) => new Promise((resolve, reject) => {
  const up = new tus.Upload(source, {
    endpoint, headers, retryDelays: [0, 200, 500, 1000],
    onError: reject, onSuccess: () => resolve(up), ...options,
  })
  options.begun?.(up)
  up.start()
})
const file = `${at}/../../../source`
const data = crypto.randomBytes(20 << 20)
fs.writeFileSync(file, data)

// A file, in pieces and at once.
for (const chunkSize of [3 << 20, Infinity]) {
  const name = `up/${chunkSize}`
  try {
    await upload(fs.createReadStream(file), { chunkSize: chunkSize === Infinity ? 8 << 20 : chunkSize,
      uploadSize: data.length, metadata: { filename: name, mode: '0640' } })
    ok(`a file, in pieces of ${chunkSize}`, same(name, data))
  } catch (e) { ok(`a file, in pieces of ${chunkSize}`, false, e) }
}
ok('with its mode', (fs.statSync(`${at}/up/Infinity`).mode & 0o777) === 0o640)

// Broken off in the middle, and resumed from where the server is by another object.
try {
  let url
  await new Promise((resolve, reject) => {
    const up = new tus.Upload(data, { endpoint, headers, retryDelays: null, chunkSize: 4 << 20,
      metadata: { filename: 'resumed' }, onError: reject, onSuccess: reject,
      onChunkComplete: (size, sent) => {
        if (sent >= 8 << 20 && sent < data.length) { url = up.url; up.abort().then(resolve) }
      } })
    up.start()
  })
  let first = -1
  await upload(data, { uploadUrl: url, metadata: {}, chunkSize: 4 << 20,
    onProgress: sent => { if (first < 0) first = sent } })
  ok('resumed by its URL', same('resumed', data))
  ok('from where it was', first >= 8 << 20, first)
} catch (e) { ok('resumed by its URL', false, e) }

// A connection that dies while bytes are on their way: the client tries again by itself.
try {
  let cut = 0
  const agent = new http.Agent()
  const proxy = http.createServer((rq, rs) => {
    const to = new URL(base)
    const out = http.request({ host: to.hostname, port: to.port, method: rq.method, path: rq.url,
      headers: rq.headers, agent }, back => { rs.writeHead(back.statusCode, back.headers); back.pipe(rs) })
    out.on('error', () => rq.destroy())
    let seen = 0
    rq.on('data', piece => {
      seen += piece.length
      if (rq.method === 'PATCH' && cut < 2 && seen > 1 << 20) { cut++; out.destroy(); rq.destroy() } else out.write(piece)
    })
    rq.on('end', () => out.end())
  })
  await new Promise(done => proxy.listen(0, '127.0.0.1', done))
  await upload(data, { endpoint: `http://127.0.0.1:${proxy.address().port}/v1/workspaces/w/uploads`,
    chunkSize: 20 << 20, metadata: { filename: 'cut' } })
  ok('cut twice, it goes on by itself', same('cut', data) && cut === 2, cut)
  proxy.close()
} catch (e) { ok('cut twice, it goes on by itself', false, e) }

// Ended.
try {
  const up = await new Promise((resolve, reject) => {
    const u = new tus.Upload(data, { endpoint, headers, chunkSize: 4 << 20, retryDelays: null,
      metadata: { filename: 'ended' }, onError: reject, onSuccess: reject,
      onChunkComplete: () => u.abort(true).then(() => resolve(u), reject) })
    u.start()
  })
  const status = await new Promise(done => http.request(up.url, { method: 'HEAD',
    headers: { ...headers, 'Tus-Resumable': '1.0.0' } }, r => done(r.statusCode)).end())
  ok('terminated', status === 404, status)
  ok('nothing of it is there', !fs.existsSync(`${at}/ended`))
} catch (e) { ok('terminated', false, e) }

// What is refused is told.
try {
  await upload(Buffer.from('x'), { metadata: { filename: '../out' }, retryDelays: null })
  ok('a path out of it is refused', false)
} catch (e) { ok('a path out of it is refused', /400/.test(String(e)), e) }
try { // an empty one
  await upload(Buffer.alloc(0), { metadata: { filename: 'empty' } })
  ok('an empty file', fs.statSync(`${at}/empty`).size === 0)
} catch (e) { ok('an empty file', false, e) }

fs.unlinkSync(file)
console.log(`1..${n}`)
process.exit(failed ? 1 : 0)
