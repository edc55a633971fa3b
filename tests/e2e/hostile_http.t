#!/bin/bash
# Clients that lie, stall, flood and vanish: each is answered or cut, and boughd is as it was.
. "${0%/*}/lib.sh"
need_fuse
export PYTHONPATH=$BOUGH_SRC/tools/clients/python PYTHONDONTWRITEBYTECODE=1

boughd --root "$BOUGH_ROOT" --daemon --listen 127.0.0.1:0 || bail 'boughd does not start'
port=$(sed -n 's/.*listens on 127.0.0.1:0, port \([0-9]*\)$/\1/p' "$BOUGH_ROOT/run/boughd.log")
python3 "$BOUGH_SRC/tests/e2e/hostile_http.py" "$port" >"$T/out" 2>"$T/.err"
is 'the checks ran to their end' "$?$(tail -n 20 "$T/.err")" 0
take_tap "$T/out"
is 'nothing went wrong inside' "$(grep -c 'ERROR' "$BOUGH_ROOT/run/boughd.log")" 0
fsck_clean
done_testing
