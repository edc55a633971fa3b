#!/bin/bash
# Installs what Bough needs to build and to run its tests, on Debian 12 and 13.
#
#   tools/setup/setup.sh          packages, libfuse, shim and gVisor
#   tools/setup/setup.sh clang    also clang and clang-format (make fuzz, make format)
#
# Idempotent, and quick when there is nothing to do. As root, or as a user with sudo;
# a user without it is told which packages to ask for.
#
# Debian's libfuse is older than what the FUSE server needs, so a newer one is built from
# Debian's own source package into build/deps. The mirror is the machine's own; apt checks
# the signature of what it gets. All state of that stays under build/, nothing is added to
# the machine's apt sources. In the same way gVisor comes from a newer release, and of
# containerd only the shim is taken: installing the package would start its daemon.
set -euo pipefail
cd "$(dirname "$0")/../.."

FUSE_MIN=3.18.3
SUITES=(forky sid)
# Debian 12's own, of 2022, has neither systrap nor today's flags.
RUNSC_MIN=20240701
DEPS=$PWD/build/deps
WORK=$PWD/build/setup

PACKAGES=(
	# to build
	gcc make pkgconf meson ninja-build dpkg-dev ca-certificates
	libzstd-dev libxxhash-dev libssl-dev liblmdb-dev libsqlite3-dev libarchive-dev
	libmicrohttpd-dev libcurl4-openssl-dev libjansson-dev libgit2-dev libdeflate-dev zlib1g-dev liburing-dev libnuma-dev
	libseccomp-dev libprotobuf-c-dev protobuf-c-compiler python3-docutils
	# to run
	fuse3 runc
	# to test
	libcmocka-dev perl python3 python3-venv mypy nodejs git sqlite3 rsync jq attr acl
	tar cpio zip unzip zstd xz-utils curl procps openssl openssh-client e2fsprogs util-linux libcap2-bin
)
[ "${1:-}" != clang ] || PACKAGES+=(clang clang-format)

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# Runs a command as root, by sudo where needed; fails where that can't be.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
		sudo "$@"
	else
		return 126
	fi
}

# Names those of its arguments that are not installed.
missing_of() {
	local have
	have=" $(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
		sed -n 's/^installed //p' | tr '\n' ' ')" || true
	local p
	for p; do
		[[ $have == *" $p "* ]] || printf '%s\n' "$p"
	done
}

install_packages() {
	local missing
	mapfile -t missing < <(missing_of "$@")
	[ ${#missing[@]} -gt 0 ] || return 0
	say "installing ${missing[*]}"
	local get=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=600
		--no-install-recommends install "${missing[@]}")
	# The lists that are there often do; they are fetched anew when they don't.
	as_root "${get[@]}" >"$WORK/apt.log" 2>&1 && return 0
	as_root apt-get -q -o DPkg::Lock::Timeout=600 update >>"$WORK/apt.log" 2>&1 || true
	if ! as_root "${get[@]}" >>"$WORK/apt.log" 2>&1; then
		if as_root true 2>/dev/null; then
			tail -n 20 "$WORK/apt.log" >&2
			die "apt-get failed (see $WORK/apt.log)"
		fi
		die "missing packages and no sudo; as root: apt-get install ${missing[*]}"
	fi
}

at_least() { dpkg --compare-versions "$1" ge "$2"; }

# The version of the libfuse that the build would take: build/deps first, then the system's.
fuse_version() {
	PKG_CONFIG_PATH=$DEPS/lib/pkgconfig pkg-config --modversion fuse3 2>/dev/null || echo 0
}

# The mirrors that this machine gets its own release from, out of both formats of apt
# sources; all others but the security archive after them.
mirrors() {
	local files=(/etc/apt/sources.list.d/*.sources /etc/apt/sources.list
		/etc/apt/sources.list.d/*.list)
	local codename f
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
	for f in "${files[@]}"; do
		[ ! -r "$f" ] || cat "$f"
		printf '\n\n' # ends a stanza
	done | awk -v own="$codename" '
		function flush(   n, i, uri, rank) {
			rank = index(" " suites " ", " " own " ") || suites ~ /stable/ ? 1 : 2
			n = split(uris, uri, " ")
			for (i = 1; enabled && i <= n; i++)
				print rank, uri[i]
			uris = suites = ""; enabled = 1
		}
		BEGIN { enabled = 1 }
		/^[ \t]*$/ { flush(); next }
		/^#/ { next }
		tolower($1) == "uris:" { sub(/^[^:]*:/, ""); uris = $0; next }
		tolower($1) == "suites:" { sub(/^[^:]*:/, ""); suites = $0; next }
		tolower($1) == "enabled:" { enabled = tolower($2) != "no"; next }
		$1 == "deb" {
			sub(/\[[^]]*\]/, ""); $0 = $0
			print ($3 == own || $3 == "stable") ? 1 : 2, $2
		}
	' | grep -v security | sort -u -k1,1n -k2 | cut -d' ' -f2- | awk '!seen[$0]++'
}

# apt with sources and state of its own, which trusts nothing but Debian's keys.
private_apt() {
	apt-get -q -o Dir::Etc::sourcelist="$WORK/debian.sources" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::lists="$WORK/lists" -o Dir::Cache="$WORK/cache" \
		-o APT::Sandbox::User="$(id -un)" \
		-o Acquire::AllowInsecureRepositories=false \
		-o Acquire::AllowDowngradeToInsecureRepositories=false \
		-o APT::Get::AllowUnauthenticated=false \
		-o Acquire::Languages=none -o Acquire::Retries=3 "$@"
}

# Points the private apt at one suite of a mirror; false: it isn't to be had there.
point_apt() { # deb|deb-src MIRROR SUITE LOG
	rm -rf "$WORK/lists" "$WORK/cache" "$WORK/src"
	mkdir -p "$WORK/lists/partial" "$WORK/cache/archives/partial" "$WORK/src"
	{
		printf 'Types: %s\nURIs: %s\nSuites: %s\nComponents: main\n' "$1" "$2" "$3"
		local key=/usr/share/keyrings/debian-archive-keyring.gpg
		[ ! -e $key ] || echo "Signed-By: $key"
	} >"$WORK/debian.sources"
	private_apt update >>"$4" 2>&1
}

forget_apt() { rm -rf "$WORK/lists" "$WORK/cache" "$WORK/src" "$WORK/debian.sources"; }

# Downloads the source package from the suite into build/setup; false: not to be had there.
fetch_source() { # MIRROR SUITE
	point_apt deb-src "$1" "$2" "$WORK/fuse.log" || return 1
	(cd "$WORK/src" && private_apt source --download-only fuse3) >>"$WORK/fuse.log" 2>&1 ||
		return 1
	local dsc version
	dsc=$(echo "$WORK"/src/fuse3_*.dsc)
	version=$(sed -n 's/^Version: //p' "$dsc" | head -n 1)
	at_least "${version:-0}" $FUSE_MIN
}

find_source() {
	local mirror suite found
	mapfile -t found < <(mirrors)
	[ ${#found[@]} -gt 0 ] || die "no Debian mirror among this machine's apt sources"
	for mirror in "${found[@]}"; do
		for suite in "${SUITES[@]}"; do
			fetch_source "$mirror" "$suite" && return 0
		done
	done
	tail -n 20 "$WORK/fuse.log" >&2
	die "none of this machine's apt mirrors has fuse3 $FUSE_MIN or newer in ${SUITES[*]}"
}

build_fuse() {
	say "building libfuse $FUSE_MIN or newer, which this machine lacks"
	: >"$WORK/fuse.log"
	find_source
	rm -rf "$WORK/fuse3" "$WORK/fuse3.build"
	# fusermount3 and its configuration stay the system's.
	if ! {
		dpkg-source --no-copy -x "$WORK"/src/fuse3_*.dsc "$WORK/fuse3" &&
			meson setup "$WORK/fuse3.build" "$WORK/fuse3" --prefix="$DEPS" --libdir=lib \
				--bindir=/usr/bin --sbindir=/usr/sbin --sysconfdir=/etc \
				--buildtype=debugoptimized --default-library=static \
				-Dexamples=false -Dutils=false -Dtests=false &&
			ninja -C "$WORK/fuse3.build" install
	} >>"$WORK/fuse.log" 2>&1; then
		tail -n 20 "$WORK/fuse.log" >&2
		die "libfuse could not be built (see $WORK/fuse.log)"
	fi
	# The checkout may be moved or copied to another place.
	sed -i 's|^prefix=.*|prefix=${pcfiledir}/../..|' "$DEPS/lib/pkgconfig/fuse3.pc"
	at_least "$(fuse_version)" $FUSE_MIN || die "libfuse was built, but pkg-config finds $(fuse_version)"
	rm -rf "$WORK/fuse3" "$WORK/fuse3.build"
	forget_apt
}

# Takes one program out of the package in build/setup/src into build/deps/bin.
take_program() { # NAME
	rm -rf "$WORK/deb"
	dpkg -x "$WORK"/src/*.deb "$WORK/deb" && mkdir -p "$DEPS/bin" &&
		mv "$WORK/deb/usr/bin/$1" "$DEPS/bin/.$1" && mv "$DEPS/bin/.$1" "$DEPS/bin/$1"
	local r=$?
	rm -rf "$WORK/deb"
	return $r
}

have_program() { command -v "$1" >/dev/null || [ -x "$DEPS/bin/$1" ]; }

# The shim of this machine's own release. Without it there are workspaces, but no sandboxes.
fetch_shim() {
	say "fetching containerd's shim"
	rm -rf "$WORK/src" && mkdir -p "$WORK/src"
	local get=(apt-get -q -o APT::Sandbox::User="$(id -un)" download containerd)
	(cd "$WORK/src" && "${get[@]}") >"$WORK/shim.log" 2>&1 || {
		as_root apt-get -q -o DPkg::Lock::Timeout=600 update >>"$WORK/shim.log" 2>&1 || true
		(cd "$WORK/src" && "${get[@]}") >>"$WORK/shim.log" 2>&1
	} && take_program containerd-shim-runc-v2 >>"$WORK/shim.log" 2>&1 ||
		say "no containerd-shim-runc-v2 (see $WORK/shim.log): sandboxes can't run"
	forget_apt
}

runsc_at_least() { # PROGRAM
	local version
	version=$("$1" --version 2>/dev/null | sed -n 's/^runsc version [^0-9]*//p' |
		grep -oE '20[0-9]{6}' | head -n 1)
	[ "${version:-0}" -ge $RUNSC_MIN ]
}

have_runsc() { runsc_at_least runsc || runsc_at_least "$DEPS/bin/runsc"; }

# gVisor from the first suite that has a new one.
fetch_runsc() {
	local codename mirror suite found
	say "fetching gVisor"
	: >"$WORK/runsc.log"
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
	mapfile -t found < <(mirrors)
	for mirror in "${found[@]}"; do
		for suite in "$codename-backports" trixie forky sid; do
			point_apt deb "$mirror" "$suite" "$WORK/runsc.log" &&
				(cd "$WORK/src" && private_apt download runsc) >>"$WORK/runsc.log" 2>&1 &&
				take_program runsc >>"$WORK/runsc.log" 2>&1 && have_runsc && break 2
		done
	done
	forget_apt
	have_runsc || say "no runsc of $RUNSC_MIN or newer (see $WORK/runsc.log): gVisor can't run"
}

have_sshd() { [ -x /usr/sbin/sshd ] || [ -x "$DEPS/sshd/usr/sbin/sshd" ]; }

# A server to test ssh with: unpacked, not installed, since Debian's package starts one.
# Downloads packages and unpacks them into build/setup/sshd.
unpack_debs() { # NAME…
	local get=(apt-get -q -o APT::Sandbox::User="$(id -un)" download "$@") deb
	rm -rf "$WORK/src" && mkdir -p "$WORK/src"
	(cd "$WORK/src" && "${get[@]}") >>"$WORK/sshd.log" 2>&1 || {
		as_root apt-get -q -o DPkg::Lock::Timeout=600 update >>"$WORK/sshd.log" 2>&1 || true
		(cd "$WORK/src" && "${get[@]}") >>"$WORK/sshd.log" 2>&1
	} || true
	for deb in "$WORK"/src/*.deb; do
		[ ! -e "$deb" ] || dpkg -x "$deb" "$WORK/sshd" >>"$WORK/sshd.log" 2>&1 || true
	done
}

fetch_sshd() {
	say "fetching a server of ssh for the tests"
	rm -rf "$WORK/sshd" "$WORK/sshd.log" && mkdir -p "$WORK/sshd"
	local names=(openssh-server)
	compgen -G '/usr/lib/*/libwrap.so.0' >/dev/null || names+=(libwrap0)
	unpack_debs "${names[@]}"
	# Newer ones are several programs, which want this besides.
	local session=$WORK/sshd/usr/lib/openssh/sshd-session
	if [ -x "$session" ] && ldd "$session" | grep -q 'libwtmpdb.so.0 => not found'; then
		unpack_debs libwtmpdb0
	fi
	forget_apt
	mkdir -p "$DEPS"
	[ ! -x "$WORK/sshd/usr/sbin/sshd" ] || { rm -rf "$DEPS/sshd" && mv "$WORK/sshd" "$DEPS/sshd"; }
	have_sshd || die "no server of ssh (see $WORK/sshd.log)"
}

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
	die "this is not Debian; install by hand: ${PACKAGES[*]} and libfuse $FUSE_MIN"
mkdir -p "$WORK"
exec 9>"$WORK/lock"
flock 9 # two makes at once

install_packages "${PACKAGES[@]}"
if [ "${1:-}" = clang ]; then
	# The fuzzers' runtime is a package of its own, named after the version.
	install_packages "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
fi
at_least "$(fuse_version)" $FUSE_MIN || build_fuse
have_program containerd-shim-runc-v2 || fetch_shim
have_runsc || fetch_runsc
have_sshd || fetch_sshd
