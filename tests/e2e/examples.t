#!/bin/bash
# The programs of tools/examples do what they say.
. "${0%/*}/lib.sh"
need_fuse
. "$BOUGH_SRC/tests/e2e/repo.sh"
examples=$BOUGH_SRC/tools/examples
export PYTHONPATH=$BOUGH_SRC/tools/clients/python PYTHONDONTWRITEBYTECODE=1
bough_ok 'up' up

# ---- an agent

(cd src && mkdir lib doc && echo teh >lib/text && echo doc >doc/text && git add -A && git commit -qm files) &&
	push main
run "$examples/agent.py" "$http/r.git" lib fix -- sh -c 'test ! -e doc && sed -i s/teh/the/ lib/text'
is 'the agent does its task' "$code$err" 0
like 'tells what changed' "$out" ' lib/text \| 2 \+-'
commit=$(sed -n 's/ on fix$//p' <<<"$out")
is 'its commit is on the branch' "$(tip r fix)" "$commit"
is 'with the change' "$(git --git-dir="$(mirror r)" show fix:lib/text)" the
is 'and all that it did not see' "$(git --git-dir="$(mirror r)" show fix:doc/text)" doc
is 'no workspace is left' "$(bough ls -q)" ''
run "$examples/agent.py" r lib other -- false
is 'a task that fails' "$code" 1
is 'commits nothing' "$(git --git-dir="$(mirror r)" branch --list other)" ''
is 'and leaves no workspace' "$(bough ls -q)" ''
run "$examples/agent.py" r lib other -- true
like 'a task without a change says so' "$code $err" '^1 the task changed nothing'
run "$examples/agent.py" /nowhere lib other -- true
is 'one without a repository, too, in a line' "$code $err" \
	'1 agent.py: "url": not a URL (https, http, ssh, git or user@host:path) (invalid)'

# ---- a chat

chat() { run node "$examples/chat.mjs" 17 "$1"; }
chat 'echo one >notes && mkfifo pipe && chmod 700 .'
is 'a chat begins' "$code$err" 0
chat 'cat notes'
is 'goes on' "$out" one
chat --rest
like 'rests' "$out" '^sn_'
is 'its sandbox is given back' "$(bough ls -q)" ''
chat 'cat notes && test -p pipe && stat -c %a .'
is 'and comes back whole' "$out" $'one\n700'
chat 'echo two >>notes'
chat --rest
is 'rests again' $code 0
chat 'rm notes'
chat --undo
chat 'cat notes'
is 'what went wrong is undone' "$out" $'one\ntwo'
is 'one snapshot has its name' "$(bough snapshots ls --json | jq -r '[.items[] | select(.names == ["chat-17"])] | length')" 1
chat 'exit 7'
is 'a command tells how it ended' $code 7
chat --rset
is 'an option that is none is not run' "$code" 2
bough rm --now chat-17 >/dev/null
run node "$examples/chat.mjs" 18 --undo
is 'nothing to go back to is said in a line' "$code $err" '1 chat.mjs: no snapshot "chat-18" (not_found)'
bough rm --now chat-18 >/dev/null

# ---- CI

mkdir app && echo 'int main(void) { return 0; }' >app/main.c && tar cf app.tar -C app .
run "$examples/ci.py" app.tar 'sleep 0.1; echo built >>out' 'grep -c built out' 'echo wild; rm -rf ./*; exit 3' 'test -e main.c'
is 'one job of three fails' $code 1
like 'the first is well' "$out" $'^ok +[0-9.]+ s  grep -c built out\nFAILED'
like 'the wild one told why' "$out" $'\nwild\n\(kept: sn_'
like 'it spoiled nothing of the others' "$out" $'ok +[0-9.]+ s  test -e main.c$'
kept=$(sed -n 's/^(kept: \(.*\))$/\1/p' <<<"$out")
like 'it can be looked into' "$(bough snapshots show "$kept" --json | jq -r .message)" '^echo wild; .*: exit 3$'
is 'nothing else is left' "$(bough ls -q)" ''
run "$examples/ci.py" app.tar 'sleep 0.1; echo built >>out' 'test "$(wc -l <out)" = 1'
is 'the second time nothing is prepared' "$code$err" 0
done_testing
