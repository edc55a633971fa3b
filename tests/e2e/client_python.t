#!/bin/bash
# The Python client against a real boughd: each operation of the contract is called, over the
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

client=$BOUGH_SRC/tools/clients/python
export PYTHONPATH=$client PYTHONDONTWRITEBYTECODE=1
run python3 -m doctest -o ELLIPSIS "$client/README.md"
is 'the session of its README goes as it says' "$code$out" 0
bough rm --now app try-1 try-2 >/dev/null
bough snapshots rm base
python3 "$BOUGH_SRC/tests/e2e/client_python.py" "$T" "https://127.0.0.1:$port" "$http/r.git" >"$T/out" 2>"$T/.err"
is 'the checks ran to their end' "$?$(tail -n 20 "$T/.err")" 0
take_tap "$T/out"

python3 -m venv "$T/venv"
cp -r "$client" "$T/client" # pip leaves files behind
run "$T/venv/bin/pip" -q --disable-pip-version-check install --no-index "$T/client"
is 'pip installs it without a network' "$code$out" 0
run env -u PYTHONPATH "$T/venv/bin/python" -c 'import bough; print(bough.__version__)'
is 'as it should be' "$out" 0.1.0
python3 "$BOUGH_SRC/tests/e2e/contract_types.py" "$BOUGH_SRC/snapd/openapi.json" >"$T/out" 2>"$T/.err"
is 'types are compared with the contract' "$?$(tail -n 20 "$T/.err")" 0
take_tap "$T/out"
run mypy --strict --python-version 3.9 --cache-dir "$T/mypy" "$client/bough"
is 'mypy --strict finds nothing' "$code$err" 0
[ "$code" = 0 ] || diag "$out"
done_testing
