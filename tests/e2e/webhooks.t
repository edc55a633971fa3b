#!/bin/bash
# Events that are sent to somebody's address: signed, tried again, nowhere inside; and CORS.
. "${0%/*}/lib.sh"
need_fuse
command -v python3 >/dev/null || skip_all 'needs python3'

cat >"$T/receiver.py" <<'EOF'
# Writes each POST as a line; answers what the file "answer" says.
import base64, hashlib, hmac, http.server, json, sys, time
at, port_file, secret = sys.argv[1:4]
key = base64.b64decode(secret[6:]) if secret.startswith("whsec_") else secret.encode()
class H(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        signed = "%s.%s." % (self.headers["webhook-id"], self.headers["webhook-timestamp"])
        mac = base64.b64encode(hmac.new(key, signed.encode() + body, hashlib.sha256).digest()).decode()
        try:
            status = int(open(at + "/answer").read())
        except OSError:
            status = 200
        with open(at + "/got", "a") as f:
            f.write(json.dumps({"good": self.headers["webhook-signature"] == "v1," + mac, "path": self.path,
                                "id": self.headers["webhook-id"], "status": status, "event": json.loads(body)}) + "\n")
        if self.path == "/slow":
            time.sleep(20)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
    def log_message(self, *a):
        pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
open(port_file, "w").write(str(s.server_port))
s.serve_forever()
EOF
secret=a-secret-of-the-test
echo $secret >"$T/secret"
python3 "$T/receiver.py" "$T" "$T/port" $secret 2>/dev/null &
wait_for 10 test -s "$T/port" || bail 'no receiver'
url=http://127.0.0.1:$(<"$T/port")/hook
got() { jq -rs "$1" "$T/got" 2>/dev/null; }
config() { mkdir -p "$BOUGH_ROOT"; echo "$1" >"$BOUGH_ROOT/config.json"; }
sock=$BOUGH_ROOT/run/boughd.sock
as() { # TOKEN METHOD TARGET [BODY]
	curl -sS -m 20 --unix-socket "$sock" -H "Authorization: Bearer $1" -X "$2" ${4:+--data-binary "$4"} "http://d$3"
}

# ---- nowhere inside, unless it is said

config '{"webhook_retry_s": 1}'
bough_ok 'a webhook' webhook add "$url" --secret-file "$T/secret" --event workspace.created
hook=${out%%$'\n'*}
like 'its id, and no secret that was given' "$out" '^wh_[a-z2-7]{10}$'
bough create a --no-mount >/dev/null
here() { [ "$(got length)" = 1 ]; }
ok 'of an admin it may lead to this machine' wait_for 10 here
for bad in ftp://example.org/ http://u:p@example.org/ 'http://' nonsense 'https://example.org/#x'; do
	bough_fails "$bad" 2 'url' webhook add "$bad"
done
# A typo would never come.
for bad in workspace.svaed workspace 'sandbox.*' '' workspace.saved. created upload.created; do
	bough_fails "no event: $bad" 2 'no event' webhook add "$url" --event "$bad"
done
kinds=$(sed -nE 's/^- `([a-z]+)\.` (.*)/\1 \2/p' "$BOUGH_SRC/snapd/API.md" | tr -d , |
	awk '{ for (i = 2; i <= NF; i++) print $1 "." $i }')
ok 'the manual names them' test "$(wc -l <<<"$kinds")" -gt 60
bough_ok 'each of those can be had' webhook add http://127.0.0.1:9/ $(printf -- '--event %s ' $kinds)
bough webhook rm "${out%%$'\n'*}"
bough user add ci
ci=$(bough token create --owner ci -q)
for inside in http://127.1/ http://localhost:1/ http://a.LocalHost./ http://[::1]/ http://[::ffff:127.0.0.1]/ http://0x7f000001/ \
	http://2130706433/ http://10.0.0.1/ http://169.254.169.254/ http://0/; do
	is "not of others: $inside" "$(as "$ci" POST /v1/webhooks "{\"url\":\"$inside\"}" | jq -r .code)" refused
done
is 'an address of the internet may be' "$(as "$ci" POST /v1/webhooks '{"url":"https://192.88.99.1.example.org/"}' | jq -r .code)" null
# One that was allowed, and isn't any longer.
bough down
config '{"webhook_retry_s": 1, "webhook_allow": ["127.0.0.0/8"]}'
bough ls >/dev/null
id=$(as "$ci" POST /v1/webhooks "{\"url\":\"$url\",\"events\":[\"gc.done\"]}" | jq -r .id)
like 'where it is allowed' "$id" '^wh_'
is 'only that' "$(as "$ci" PATCH "/v1/webhooks/$id" '{"url":"http://[::1]:1/"}' | jq -r .code)" refused
bough down
config '{"webhook_retry_s": 1}'
bough ls >/dev/null
as "$ci" POST "/v1/webhooks/$id/test" '{}' >/dev/null
why() { as "$ci" GET "/v1/webhooks/$id/deliveries" | jq -e '.items[0].error | test("none that may be connected")' >/dev/null; }
ok 'it is looked at when it is connected to' wait_for 10 why
bough webhook rm "$id" >/dev/null
here2() { [ "$(got length)" = 1 ]; }
ok 'nothing more came' here2
bough user rm ci

# ---- sent

bough down
config '{"webhook_retry_s": 1, "webhook_allow": ["127.0.0.0/8"], "listen": "127.0.0.1:0", "cors_origins": ["https://app.example.org"]}'
bough_ok 'allowed' webhook ls
like 'the list' "$out" "$hook +$url +workspace.created +yes"
bough create b --no-mount >/dev/null
came() { [ "$(got '[.[] | select(.status < 300)] | length')" -ge "$1" ]; }
ok 'it is told, and what waited too' wait_for 20 came 2
is 'signed' "$(got '[.[].good] | unique | tostring')" '[true]'
is 'what happened' "$(got '[.[].event.type] | unique | join(" ")')" workspace.created
like 'with its id' "$(got '.[0].event.id')" '^[0-9a-f]{8}\.[0-9]+$'
delivered() { [ "$(bough webhook log "$hook" --json | jq '[.items[] | select(.state == "delivered")] | length')" = 2 ]; }
ok 'the log says so' wait_for 10 delivered
bough rm b
bough_ok 'a test' webhook test "$hook"
pinged() { [ "$(got '[.[] | select(.event.type == "ping")] | length')" = 1 ]; }
ok 'comes' wait_for 10 pinged
is 'other events do not' "$(got '[.[] | select(.event.type == "workspace.deleted")] | length')" 0
is 'it is told as what it is' "$(bough events | grep -oE 'webhook[.][a-z]+' | sort | uniq -c | xargs)" \
	'1 webhook.tested'

# ---- tried again

echo 500 >"$T/answer"
bough create c --no-mount >/dev/null
again() { [ "$(got '[.[] | select(.status == 500)] | length')" -ge 2 ]; }
ok 'again, where it fails' wait_for 15 again
like 'why' "$(bough webhook log "$hook")" 'workspace.created .* waiting +[0-9]+ +it answered 500'
kill_hard boughd
echo 204 >"$T/answer"
bough ls >/dev/null
ok 'over a kill of boughd' wait_for 20 came 4
is 'as one and the same' "$(got '[.[] | select(.status == 500 or .status == 204) | .id] | unique | length')" 1
echo 302 >"$T/answer"
bough create d --no-mount >/dev/null
moved() { [ "$(got '[.[] | select(.status == 302)] | length')" -ge 1 ]; }
wait_for 10 moved
is 'a redirect is not followed' "$(got '[.[] | select(.path != "/hook")] | length')" 0
rm "$T/answer"

# ---- whose

bough user add ann
ann=$(bough token create --owner ann -q)
theirs=$(as "$ann" POST /v1/webhooks "{\"url\":\"$url\"}")
like 'a fresh secret' "$(jq -r .secret <<<"$theirs")" '^whsec_[A-Za-z0-9+/]{43}=$'
id=$(jq -r .id <<<"$theirs")
is 'is told once' "$(as "$ann" GET "/v1/webhooks/$id" | jq -r .secret)" null
is 'nobody is told of others' "$(as "$ann" POST /v1/webhooks "{\"url\":\"$url\",\"everybody\":true}" | jq -r .code)" forbidden
is 'nor sees theirs' "$(as "$ann" GET "/v1/webhooks/$hook" | jq -r .code)" not_found
secret=$(jq -r .secret <<<"$theirs")
ok 'no secret is on the disk' not grep -rqaF -e "${secret#whsec_}" -e a-secret-of-the-test "$BOUGH_ROOT/catalog.db" "$BOUGH_ROOT/catalog.db-wal"
is 'the key is its own user'"'"'s' "$(stat -c %a "$BOUGH_ROOT/secrets.key")" 600
bough create mine --no-mount >/dev/null
as "$ann" POST /v1/workspaces '{"name":"hers","mount":false}' >/dev/null
hers=$(as "$ann" GET /v1/workspaces/hers | jq -r .id)
heard() { [ "$(as "$ann" GET "/v1/webhooks/$id/deliveries" | jq '[.items[] | select(.type == "workspace.created")] | length')" = 1 ]; }
ok 'she hears of hers' wait_for 10 heard
is 'and of nothing else' "$(got "[.[] | select(.event.by == \"ann\" and .event.type == \"workspace.created\") | .event.object] | unique | join(\" \")")" "$hers"
deliveries=$(as "$ann" GET "/v1/webhooks/$id/deliveries" | jq -r '[.items[].type] | sort | join(" ")')
is 'as the log tells' "$deliveries" 'webhook.created workspace.created'
as "$ann" PATCH "/v1/webhooks/$id" '{"active":false}' >/dev/null
is 'put to rest' "$(as "$ann" POST "/v1/webhooks/$id/test" '{}' | jq -r .code)" conflict
# Others needn't wait for hers, however slowly they answer.
for i in {1..12}; do
	as "$ann" POST /v1/webhooks "{\"url\":\"${url%hook}slow\",\"events\":[\"workspace.created\"]}" >/dev/null
done
as "$ann" POST /v1/workspaces '{"name":"more","mount":false}' >/dev/null
slow() { [ "$(got '[.[] | select(.path == "/slow")] | length')" -ge 2 ]; }
ok 'hers are told' wait_for 10 slow
before=$(got '[.[] | select(.path == "/hook" and .event.type == "workspace.created")] | length')
bough create quick --no-mount >/dev/null
quick() { [ "$(got '[.[] | select(.path == "/hook" and .event.type == "workspace.created")] | length')" -gt "$before" ]; }
ok 'another owner beside them' wait_for 8 quick
bough user rm ann
is 'it goes with her' "$(bough webhook ls -q)" "$hook"
bough_ok 'removed' webhook rm "$hook"
bough_fails 'once' 3 'no webhook' webhook rm "$hook"

# ---- CORS

tcp=http://127.0.0.1:$(sed -n 's/.*listens on 127.0.0.1:0, port \([0-9]*\)$/\1/p' "$BOUGH_ROOT/run/boughd.log" | tail -n 1)
head() { curl -sS -m 10 -o /dev/null -D - "$@" | tr -d '\r'; }
asks=(-X OPTIONS -H 'Access-Control-Request-Method: PUT' -H 'Access-Control-Request-Headers: authorization')
out=$(head "${asks[@]}" -H 'Origin: https://app.example.org' "$tcp/v1/workspaces/x/files/y")
like 'what a browser asks first' "$out" '^HTTP/1.1 204'
like 'is allowed to that origin' "$out" $'\nAccess-Control-Allow-Origin: https://app.example.org\n'
like 'with its headers' "$out" 'Access-Control-Allow-Headers: [^'$'\n'']*Authorization'
out=$(head "${asks[@]}" -H 'Origin: https://other.example.org' "$tcp/v1/workspaces")
like 'not to another' "$out" '^HTTP/1.1 401'
ok 'which is told nothing' not grep -q Allow-Origin <<<"$out"
out=$(head -H 'Origin: https://app.example.org' "$tcp/v1/workspaces")
like 'a refusal can be read by the page' "$out" $'^HTTP/1.1 401.*\nAccess-Control-Allow-Origin: https://app.example.org\n'
like 'caches know' "$out" $'\nVary: Origin\n'
fsck_clean
done_testing
