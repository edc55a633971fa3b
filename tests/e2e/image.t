#!/bin/bash
# Images of containers: made from layouts, docker archives and root filesystems.
. "${0%/*}/lib.sh"
need_fuse

# A layout with two layers, as tools that build images write it.
cd "$T" || exit 1
mkdir -p l1/bin l1/etc l1/gone l2 layout/blobs/sha256
echo one >l1/etc/one; echo two >l1/etc/two; echo x >l1/gone/x; ln -s one l1/etc/link
echo tool >l1/bin/tool; chmod 4755 l1/bin/tool
mkdir -p l2/etc; : >l2/etc/.wh.two; : >l2/.wh.gone; echo three >l2/etc/three
blob() { # FILE: its digest; it is moved into the layout
	local d; d=$(sha256sum "$1" | cut -d' ' -f1)
	mv "$1" "layout/blobs/sha256/$d"; echo "sha256:$d"
}
tar czf 1.tgz -C l1 . && tar cf 2.tar -C l2 .
ids="\"sha256:$(zcat 1.tgz | sha256sum | cut -d' ' -f1)\",\"sha256:$(sha256sum <2.tar | cut -d' ' -f1)\""
d1=$(blob 1.tgz) d2=$(blob 2.tar)
printf '{"os":"linux","config":{"Env":["PATH=/bin","K=v w"],"User":"1000","WorkingDir":"/etc","Cmd":["tool","-x"]},"rootfs":{"diff_ids":[%s]}}' "$ids" >config
c=$(blob config)
printf '{"schemaVersion":2,"config":{"digest":"%s"},"layers":[{"digest":"%s"},{"digest":"%s"}]}' "$c" "$d1" "$d2" >manifest
m=$(blob manifest)
printf '{"schemaVersion":2,"manifests":[{"digest":"%s"}]}' "$m" >layout/index.json
echo '{"imageLayoutVersion":"1.0.0"}' >layout/oci-layout

bough_ok 'a layout as a folder' image import app "$T/layout"
like 'prints the snapshot' "$out" '^sn_'
tar cf layout.tar -C layout .
bough_ok 'and as an archive, from a pipe' image import again - <layout.tar
bough_ok 'a workspace of it' create w --from app
is 'layers lie over each other' "$(cd "$out" && find . -path ./.bough -o -path ./run -prune -o -path ./dev -prune -o \
	-path ./proc -o -path ./sys -o -path ./tmp -o -path ./workspace -o -print | sort | tr '\n' ' ')" \
	'. ./bin ./bin/tool ./etc ./etc/hostname ./etc/hosts ./etc/link ./etc/one ./etc/resolv.conf ./etc/three '
is 'what a sandbox needs besides is added' "$(cd "$out" && find .bough dev proc run sys tmp workspace | sort | tr '\n' ' ')" \
	'.bough dev dev/shm proc run run/secrets sys tmp workspace '
is 'modes are kept' "$(stat -c %a "$out/bin/tool")" 4755
is 'its configuration' "$(bough image show app --json | jq -c '.image|[.env,.user,.workdir,.cmd,.digest]')" \
	"[[\"PATH=/bin\",\"K=v w\"],\"1000\",\"/etc\",[\"tool\",\"-x\"],\"$m\"]"
run bough image show app
like 'is shown' "$out" $'command +tool -x\nuser +1000'

mkdir docker && cp "layout/blobs/sha256/${d2#*:}" docker/2.tar
zcat "layout/blobs/sha256/${d1#*:}" >docker/1.tar
cp "layout/blobs/sha256/${c#*:}" docker/c.json
echo '[{"Config":"c.json","RepoTags":["app:1"],"Layers":["1.tar","2.tar"]}]' >docker/manifest.json
tar cf docker.tar -C docker manifest.json c.json 1.tar 2.tar
gzip -k docker.tar
bough_ok 'what docker save writes' image import dock docker.tar
bough_ok 'also compressed' image import dockz docker.tar.gz
bough_ok 'is the same tree' diff --name-status w --against dock
is 'namely' "$out" ''

bough_ok 'a root filesystem as a folder' image import base l1
bough_ok 'as an archive' create w2 --from base
is 'is taken as it is' "$(cat "$out/gone/x")" x
echo more >"$(at w)/etc/more"
bough_ok 'a snapshot that is none' save w --as plain
is 'the list has images only' "$(bough image ls -q | sort | tr '\n' ' ')" 'again app base dock dockz '
bough_fails 'what is none can not be shown' 3 'not an image' image show plain

# ---- what is wrong is refused, and leaves nothing

before=$(bough snapshots ls -q | sort)
printf X >>"layout/blobs/sha256/${d2#*:}"
bough_fails 'a damaged layer' 1 'is damaged' image import bad "$T/layout"
rm "layout/blobs/sha256/${d2#*:}"
bough_fails 'a layer that is missing' 1 'lacks the layer' image import bad "$T/layout"
printf '{"manifests":[{"digest":"%s","platform":{"os":"linux","architecture":"vax"}}]}' "$m" >layout/index.json
bough_fails 'another machine' 1 'no image for linux on' image import bad "$T/layout"
echo nonsense >layout/index.json
bough_fails 'no JSON' 1 "'index.json': line 1" image import bad "$T/layout"
bough_fails 'no archive' 1 'no archive' image import bad "$BOUGH_SRC/LICENSE"
mkdir nothing
bough_fails 'an empty folder' 1 'nothing in it' image import bad nothing
bough_fails 'a file that is not there' 3 'No such file' image import bad nowhere
bough_fails 'a name that is taken' 4 'already' image import app l1
is 'nothing was left behind' "$(bough snapshots ls -q | sort)" "$before"
ok 'nor a temporary file' test -z "$(ls -A "$BOUGH_ROOT/tmp")"
bough_fails 'one that is not there' 3 'no image "nowhere": `bough image ls`' image rm nowhere
bough_fails 'what is no image stays, and all with it' 3 'not an image' image rm again plain
ok 'all are there' test "$(bough snapshots ls -q | sort)" = "$before"
bough_ok 'one is deleted' image rm again dockz
is 'and gone' "$(bough image ls -q | sort | tr '\n' ' ')" 'app base dock '
bough_ok 'the store is whole' fsck
done_testing
