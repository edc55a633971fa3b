#!/bin/bash
# Installs what the benchmark compares with, and fetches the sources that it builds; quick when nothing
# is missing. A peer that can't be had is left out, and the report says so. See run.sh.
set -euo pipefail
cache=${BOUGH_BENCH_CACHE:?}
mkdir -p "$cache"
quick=0
for a; do [ "$a" != --quick ] || quick=1; done

packages=(fuse-overlayfs btrfs-progs xfsprogs restic borgbackup casync ostree fio ripgrep sqlite3 git
	python3-venv)
[ $quick = 1 ] || packages+=(gcc make libz-dev libssl-dev libcurl4-openssl-dev)
[ $quick = 1 ] || [ -d "${BOUGH_BENCH_TREE:-/nowhere}" ] || packages+=(linux-source)

say() { printf 'bench: %s\n' "$*" >&2; }
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=()
for p in "${packages[@]}"; do installed "$p" || missing+=("$p"); done
get=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600 --no-install-recommends)
if [ ${#missing[@]} -gt 0 ]; then
	say "installing ${missing[*]}"
	"${get[@]}" install "${missing[@]}" >"$cache/apt.log" 2>&1 || {
		apt-get -q update >>"$cache/apt.log" 2>&1 || true
		for p in "${missing[@]}"; do
			"${get[@]}" install "$p" >>"$cache/apt.log" 2>&1 || say "no $p (see $cache/apt.log)"
		done
	}
fi
[ $quick = 0 ] || exit 0

# Git's source package, from where this machine gets its own packages.
fetch_git() {
	local apt=$cache/apt f
	rm -rf "$apt" && mkdir -p "$apt/parts" "$apt/lists/partial" "$apt/cache/archives/partial"
	for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
		[ ! -r "$f" ] || grep -qs debian "$f" || continue
		[ ! -r "$f" ] || sed -e 's/^deb /deb-src /' -e 's/^Types:.*/Types: deb-src/' "$f" >"$apt/parts/${f##*/}"
	done
	local own=(-q -o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$apt/parts"
		-o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o "APT::Sandbox::User=$(id -un)")
	apt-get "${own[@]}" update && cd "$apt" && apt-get "${own[@]}" source --download-only git &&
		tar xf "$apt"/git_*.orig.tar.* -C "$apt" && mv "$apt"/git-*/ "$cache/git-source"
}
if [ ! -d "$cache/git-source" ]; then
	say "fetching git's source"
	(fetch_git) >"$cache/git.log" 2>&1 || say "no source of git (see $cache/git.log): no C project is built"
	rm -rf "$cache/apt"
fi

# What npm ci installs: an application of some 1,300 packages. The lock is made once, the cache filled.
if [ ! -e "$cache/app/filled" ] && command -v npm >/dev/null; then
	say "fetching an application's packages"
	mkdir -p "$cache/app"
	cat >"$cache/app/package.json" <<-'EOF'
		{"name": "app", "version": "1.0.0", "private": true, "dependencies": {
		"react": "18.3.1", "react-dom": "18.3.1", "react-scripts": "5.0.1"}}
	EOF
	(cd "$cache/app" && npm install --package-lock-only --ignore-scripts --no-audit --no-fund \
		--cache "$cache/npm" && npm ci --ignore-scripts --no-audit --no-fund --cache "$cache/npm" &&
		rm -rf node_modules && touch filled) >"$cache/npm.log" 2>&1 ||
		say "no packages of npm (see $cache/npm.log): npm ci is left out"
fi
