#!/bin/bash
# Uploads with tus-js-client, fetched from npm: `make check-npm`. Not part of `make check`, which needs
# no npm and no network.
. "${0%/*}/e2e/lib.sh"
need_fuse
command -v npm >/dev/null && command -v node >/dev/null || skip_all 'no npm'

mkdir "$T/js" && builtin cd "$T/js" || exit 1
npm install --silent --no-audit --no-fund tus-js-client@4 >/dev/null 2>&1 || skip_all 'npm gives no tus-js-client'
diag "tus-js-client $(node -p 'require("tus-js-client/package.json").version'), node $(node --version)"
port=$(free_port)
boughd --root "$BOUGH_ROOT" --daemon --listen "127.0.0.1:$port" || bail 'boughd does not start'
bough create w -q || bail 'no workspace'
BOUGH_TOKEN=$(bough token create --scope w --json | jq -r .token) BOUGH_URL=http://127.0.0.1:$port BOUGH_AT=$(at w)
export BOUGH_TOKEN BOUGH_URL BOUGH_AT
node "$BOUGH_SRC/tests/tus-js.mjs"
code=$?
[ $code = 0 ] || end_of_logs
exit $code
