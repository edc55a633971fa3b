#!/bin/bash
# The JavaScript client's types as TypeScript's compiler reads them, fetched from npm: `make check-npm`.
. "${0%/*}/e2e/lib.sh"
command -v npm >/dev/null && command -v node >/dev/null || skip_all 'no npm'

mkdir "$T/ts" && builtin cd "$T/ts" || exit 1
npm install --silent --no-audit --no-fund typescript@5 @types/node@20 >/dev/null 2>&1 || skip_all 'npm gives no typescript'
client=$BOUGH_SRC/tools/clients/javascript
cat >use.ts <<'TS'
import { Client, NotFound, entryName } from 'bough';

export async function use(): Promise<void> {
  const client = new Client({ socket: '/run/socket' });
  const ws = await client.workspaces.create('w', { quota_bytes: 1 << 30, labels: { of: 'test' } });
  const etag: string = (await ws.files.write('a', 'text', { ifNoneMatch: '*' })).etag;
  for await (const entry of ws.files.list()) {
    const name: string | Buffer | undefined = entryName(entry);
    const size: number = entry.size;
    console.log(name, size, etag);
  }
  for await (const change of ws.diff()) console.log(change.kind, change.path ?? change.path_b64);
  for await (const event of await client.events()) console.log(event.id, event.data['type']);
  const [fork] = await ws.fork({ names: ['f'] });
  const parent: string | null = fork!.info.parent;
  const box = await client.sandboxes.create('b', { image: 'host' });
  if (box.info.status === 'running') console.log(box.info.limits.memory_bytes, parent);
  const exec = await box.exec(['true']);
  for await (const { stream, data } of exec.stream()) console.log(stream, data.length);
  const code: number | null = (await exec.refresh()).exit_code;
  const job = await ws.saveJob('s');
  const done: number | undefined = job.info.progress?.done;
  const up: boolean = (await client.health()).fs.up;
  console.log(code, done, up, NotFound.name);
  // @ts-expect-error entries have no tag
  for await (const entry of ws.files.list()) console.log(entry.etag);
  // @ts-expect-error there is no such status
  if (box.info.status === 'asleep') console.log();
  // @ts-expect-error a quota is a number
  await client.workspaces.create('w', { quota_bytes: '1G' });
}
TS
cat >tsconfig.json <<END
{ "compilerOptions": { "strict": true, "noEmit": true, "target": "es2022", "module": "nodenext", "noUncheckedIndexedAccess": true,
  "moduleResolution": "nodenext", "types": ["node"], "typeRoots": ["./node_modules/@types"], "skipLibCheck": false,
  "lib": ["es2022", "dom", "dom.asynciterable"], "paths": { "bough": ["$client/index.d.ts"] } },
  "files": ["use.ts"] }
END
run npx --no-install tsc -p .
is "TypeScript $(node -p 'require("typescript/package.json").version') finds nothing wrong" "$code$out$err" 0
done_testing
