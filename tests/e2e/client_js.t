#!/bin/bash
# The JavaScript client against a real boughd: each operation of the contract is called, over the
# socket and TLS, and what breaks off is gone on with.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/repo.sh"

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem \
	-days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 2>/dev/null
boughd --root "$BOUGH_ROOT" --daemon --listen 127.0.0.1:0 --tls-cert "$T/cert.pem" --tls-key "$T/key.pem" ||
	bail 'boughd does not start'
port=$(sed -n 's/.*, port \([0-9]*\) with TLS$/\1/p' "$BOUGH_ROOT/run/boughd.log")
tar cf "$T/t.tar" -C "$BOUGH_SRC" LICENSE README.md
bough-pack --git "$T/src" >"$T/git.tar" 2>/dev/null || bail 'no bough-pack'

client=$BOUGH_SRC/tools/clients/javascript
timeout 280 node "$BOUGH_SRC/tests/e2e/client_js.mjs" "$client/index.js" "$T" "https://127.0.0.1:$port" \
	"$http/r.git" >"$T/out" 2>"$T/.err"
is 'the checks ran to their end' "$?$(tail -n 20 "$T/.err")" 0
take_tap "$T/out"

# The types name what the code has, and what the contract says.
python3 "$BOUGH_SRC/tests/e2e/contract_types.py" "$BOUGH_SRC/snapd/openapi.json" "$client/index.d.ts" >"$T/out" 2>"$T/.err"
is 'types are compared with the contract' "$?$(tail -n 20 "$T/.err")" 0
take_tap "$T/out"
for class in Client Workspace Snapshot WorkspaceFiles SnapshotFiles Upload Job EventStream Body Sandbox Exec Terminal; do
	run node --input-type=module -e "
		import { readFileSync } from 'node:fs';
		const all = await import('$client/index.js');
		const text = readFileSync('$client/index.d.ts', 'utf8');
		const part = text.slice(text.indexOf('export class $class ')).split('\n}')[0];
		const have = Object.getOwnPropertyNames(all.$class.prototype)
			.filter((n) => n !== 'constructor' && !n.startsWith('_'));
		console.log(have.filter((n) => !new RegExp('^  (readonly )?' + n + '[(?:]', 'm').test(part)).join(' '));"
	is "types of $class" "$code$out$err" 0
done
done_testing
