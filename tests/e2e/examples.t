#!/bin/bash
# The programs of tools/examples do what they say, each in sandboxes.
. "${0%/*}/lib.sh"
need_sandboxes
. "$BOUGH_SRC/tests/e2e/repo.sh"
examples=$BOUGH_SRC/tools/examples
export PYTHONPATH=$BOUGH_SRC/tools/clients/python PYTHONDONTWRITEBYTECODE=1
bough_ok 'up' up

# ---- an agent

(cd src && mkdir lib doc && echo teh >lib/text && echo doc >doc/text && git add -A && git commit -qm files) &&
	push main
run "$examples/agent.py" --patch fix.patch "$http/r.git" lib fix -- sh -c \
	"test ! -e doc && test ! -e $T && git status -sb && sed -i s/teh/the/ lib/text && echo done >&2"
is 'the agent does its task in a sandbox' "$code $err" '0 done'
like 'tells what is said there' "$out" '^## fix'
like 'and what changed' "$out" ' lib/text \| 2 \+-'
ok 'as a patch, too' git -C src apply --check "$T/fix.patch"
commit=$(sed -n 's/ on fix$//p' <<<"$out")
is 'its commit is on the branch' "$(tip r fix)" "$commit"
is 'with the change' "$(git --git-dir="$(mirror r)" show fix:lib/text)" the
is 'and all that it did not see' "$(git --git-dir="$(mirror r)" show fix:doc/text)" doc
is 'no workspace is left' "$(bough ls -q)$(bough ps -q)" ''
run "$examples/agent.py" r lib fix -- echo begun
is 'a branch that is there is told of before the task' "$code $out$err" \
	'1 there is a branch fix already: BRANCH is a new one'
run "$examples/agent.py" r lib other -- sh -c 'exit 9'
is 'a task that fails' "$code $err" '1 the task failed (9): nothing is committed'
is 'commits nothing' "$(git --git-dir="$(mirror r)" branch --list other)" ''
is 'and leaves no workspace' "$(bough ls -q)$(bough ps -q)" ''

# boughd is killed while tasks run: their output goes on at its byte.
begun() { [ -s agent.out ] && [ -s chat.out ]; }
node "$examples/chat.mjs" 16 'echo begun; for i in 1 2 3 4 5; do sleep 0.4; echo "$i"; done' >chat.out 2>&1 &
chat=$!
"$examples/agent.py" r lib long -- sh -c 'echo begun; for i in 1 2 3 4 5; do sleep 0.3; echo "$i"; done; echo x >lib/x' \
	>agent.out 2>&1 &
pid=$!
wait_for 20 begun
kill_hard boughd
bough up -q
ok 'a task outlives boughd' wait $pid
ok 'a chat, too' wait $chat
is 'and is heard to its end, once' "$(cat chat.out)" $'begun\n1\n2\n3\n4\n5'
bough rm --force chat-16 >/dev/null
like 'and is heard to its end, once' "$(cat agent.out)" $'^begun\n1\n2\n3\n4\n5\n lib/x '
run "$examples/agent.py" r lib other -- true
like 'a task without a change says so' "$code $err" '^1 the task changed nothing'
run "$examples/agent.py" /nowhere lib other -- true
is 'one without a repository, too, in a line' "$code $err" \
	'1 agent.py: "url": not a URL (https, http, ssh, git or user@host:path) (invalid)'

# ---- a chat

chat() { run node "$examples/chat.mjs" 17 "$1"; }
chat 'echo one >notes && mkfifo pipe && chmod 700 . && useradd -m somebody 2>/dev/null || echo "somebody:x:1000:1000::/:/bin/sh" >>/etc/passwd; hostname'
is 'a chat begins' "$code$err $out" '0 chat'
chat 'cat notes'
is 'goes on' "$out" one
chat --rest
like 'rests' "$out" '^sn_'
is 'its sandbox is given back' "$(bough ps -q)$(bough ls -q)" ''
chat 'cat notes && test -p pipe && stat -c %a . && id -u somebody'
is 'and comes back as it was, all of its root' "$out" $'one\n700\n1000'
chat 'echo two >>notes; echo said >&2'
is 'what is said comes where it belongs' "$out$err" said
chat --save
is 'is saved beside' $code 0
chat 'rm -rf notes /etc /usr/bin 2>/dev/null; ls /etc/passwd'
is 'has a bad day' "$code" 2
chat --undo
chat 'cat notes && id -un'
is 'what went wrong is undone' "$out" $'one\ntwo\nroot'
chat 'exit 7'
is 'a command tells how it ended' $code 7
bough stop chat-17
chat 'cat notes'
is 'one that was stopped goes on, too' "$out" $'one\ntwo'
chat --rset
is 'an option that is none is not run' "$code" 2
# Nobody comes back for a day: boughd saves it and gives it back.
chat 'echo three >>notes'
bough set chat-17 --ttl 1s
gone() { [ -z "$(bough ps -q)" ]; }
ok 'it is cleaned up' wait_for 40 gone
chat 'cat notes'
is 'and comes back with all that it had' "$out" $'one\ntwo\nthree'
bough rm --force chat-17 >/dev/null
run node "$examples/chat.mjs" 18 --undo
is 'nothing to go back to is said in a line' "$code $err" '1 chat.mjs: chat 18 was never saved'
bough rm --force chat-18 >/dev/null

# ---- CI

mkdir app && echo 'int main(void) { return 0; }' >app/main.c && tar cf app.tar -C app .
run "$examples/ci.py" app.tar 'sleep 0.1; echo built >>out' 'grep -c built out' 'echo wild; rm -rf ./* /root; exit 3' 'test -e main.c'
is 'one job of three fails' $code 1
like 'the first is well' "$out" $'^ok +[0-9.]+ s  grep -c built out\nFAILED'
like 'the wild one told why' "$out" $'\nwild\n\(kept: sn_'
like 'it spoiled nothing of the others' "$out" $'ok +[0-9.]+ s  test -e main.c$'
kept=$(sed -n 's/^(kept: \(.*\))$/\1/p' <<<"$out")
like 'it can be looked into' "$(bough snapshots show "$kept" --json | jq -r .message)" '^echo wild; .*: exit 3$'
is 'nothing else is left' "$(bough ls -q)$(bough ps -q)" ''
run "$examples/ci.py" app.tar 'sleep 0.1; echo built >>out' 'test "$(wc -l <out)" = 1'
is 'the second time nothing is prepared' "$code$err" 0
done_testing
