#!/bin/bash
# A virtual machine with Debian 13 as it comes: its own kernel, systemd, cgroups of version 2
# alone, AppArmor, runc and crun. For what a container can't show: sandboxes on such a host, and
# what a power cut leaves. QEMU emulates the processor (TCG) where there is no KVM it can use, so
# it is slow, but runs anywhere. As root.
#
#   tools/vm/vm.sh make            the disk: Debian, and this checkout built and installed in it;
#                                  again after a change, with a new disk
#   tools/vm/vm.sh start           boots it, waits until it answers
#   tools/vm/vm.sh sh COMMAND      runs a command in it; without one a shell. There:
#                                  cd /src && BOUGH_DEFAULT_RUNTIME=crun tests/run.sh e2e/sandbox
#   tools/vm/vm.sh stop            shuts it down
#   tools/vm/vm.sh cut             a power cut: the machine is gone at once
#
# The environment: VM (its folder, build/vm), VM_PORT (ssh, 2290), VM_SUITE (trixie),
# VM_ACCEL (tcg,thread=single). Needs debootstrap, qemu-system-x86 and openssh-client; all of
# it takes 5 GB.
# Emulated on several threads the guest's kernel panicked where it patches itself, when the first
# sandbox got its limit of CPU ("Oops: int3" in the console; two boots of three with QEMU 7.2).
set -euo pipefail
cd "$(dirname "$0")/../.."

VM=${VM:-build/vm} PORT=${VM_PORT:-2290} SUITE=${VM_SUITE:-trixie}
ACCEL=${VM_ACCEL:-tcg,thread=single}
mkdir -p "$VM" && VM=$(cd "$VM" && pwd)
SIZE=10G MEMORY=3072 CPUS=2
BOOT_S=600
SYSTEM=(systemd systemd-sysv udev dbus kmod iproute2 apparmor initramfs-tools linux-image-amd64
	openssh-server ca-certificates make sudo crun runc)
ROOT=$VM/root
BUILD='cd /src && make -j"$(nproc)" all helpers && make install PREFIX=/usr'

say() { printf 'vm: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# This machine's own mirror of Debian.
mirror() {
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' |
		grep -v security | head -n 1
}

in_root() { # COMMAND…
	env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
		DEBIAN_FRONTEND=noninteractive chroot "$ROOT" "$@"
}

configure() {
	echo vm >"$ROOT/etc/hostname"
	printf '127.0.0.1 localhost vm\n' >"$ROOT/etc/hosts"
	printf 'nameserver 10.0.2.3\n' >"$ROOT/etc/resolv.conf"
	printf '/dev/vda / ext4 defaults 0 1\n' >"$ROOT/etc/fstab"
	printf '[Match]\nType=ether\n[Network]\nDHCP=yes\n' >"$ROOT/etc/systemd/network/all.network"
	in_root systemctl -q enable systemd-networkd ssh
	in_root passwd -q -d root
	in_root id -u agent >/dev/null 2>&1 || in_root useradd -m -s /bin/bash agent
	[ -e "$VM/key" ] || ssh-keygen -q -t ed25519 -N '' -f "$VM/key"
	mkdir -p -m 700 "$ROOT/root/.ssh"
	cp "$VM/key.pub" "$ROOT/root/.ssh/authorized_keys"
	mkdir -p "$ROOT/src"
}

pack() { tar cf - --exclude=./build --exclude=./.git .; }

make_disk() {
	local at
	[ "$(id -u)" = 0 ] || die 'needs root'
	! running || die 'stop it first'
	if [ ! -e "$ROOT/etc/made" ]; then
		say "installing Debian $SUITE"
		debootstrap --variant=minbase --include="$(IFS=,; echo "${SYSTEM[*]}")" \
			"$SUITE" "$ROOT" "$(mirror)" >"$VM/debootstrap.log" 2>&1 ||
			die "debootstrap failed (see $VM/debootstrap.log)"
		touch "$ROOT/etc/made"
	fi
	configure
	say 'building'
	pack | tar xf - -C "$ROOT/src"
	# A newer libfuse than Debian's is there already; it is static and of plain C.
	mkdir -p "$ROOT/src/build/deps"
	cp -a build/deps/lib build/deps/include "$ROOT/src/build/deps/"
	sed -i 's|^prefix=.*|prefix=${pcfiledir}/../..|' "$ROOT/src/build/deps/lib/pkgconfig/fuse3.pc"
	unshare --mount --propagation private "$0" build "$ROOT" >"$VM/build.log" 2>&1 ||
		die "the build failed (see $VM/build.log)"
	say 'writing the disk'
	at=$(echo "$ROOT"/boot/vmlinuz-*)
	cp "$at" "$VM/vmlinuz"
	cp "$ROOT/boot/initrd.img-${at##*/vmlinuz-}" "$VM/initrd"
	rm -f "$VM/disk"
	truncate -s "$SIZE" "$VM/disk"
	mke2fs -q -t ext4 -d "$ROOT" "$VM/disk"
}

# In a mount namespace of its own.
build_inside() { # ROOT
	ROOT=$1
	mount -t proc proc "$ROOT/proc"
	mount --rbind /dev "$ROOT/dev"
	mount --bind /etc/resolv.conf "$ROOT/etc/resolv.conf"
	in_root sh -c "$BUILD"
}

# ---- the machine

ssh_to() {
	ssh -q -i "$VM/key" -p "$PORT" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
		-o ConnectTimeout=30 -o ServerAliveInterval=30 -o ServerAliveCountMax=20 root@127.0.0.1 "$@"
}

running() { [ -e "$VM/pid" ] && kill -0 "$(cat "$VM/pid")" 2>/dev/null; }

start() {
	! running || die 'it runs already'
	[ -e "$VM/disk" ] || die "no disk: $0 make"
	# Writes are in this machine's page cache when the guest is told so; a flush is an fdatasync.
	nice -n 10 qemu-system-x86_64 -accel "$ACCEL" -cpu max -smp $CPUS -m $MEMORY -nodefaults \
		-display none -serial "file:$VM/console" -no-reboot -pidfile "$VM/pid" -daemonize \
		-kernel "$VM/vmlinuz" -initrd "$VM/initrd" \
		-append 'root=/dev/vda rw console=ttyS0 mitigations=off panic=10' \
		-drive "file=$VM/disk,format=raw,if=virtio,cache=writeback" -device virtio-rng-pci \
		-netdev "user,id=net,hostfwd=tcp:127.0.0.1:$PORT-:22" -device virtio-net-pci,netdev=net
	local end=$((SECONDS + BOOT_S))
	until ssh_to true 2>/dev/null; do
		running || die "it ended (see $VM/console)"
		[ $SECONDS -lt $end ] || die "it doesn't answer (see $VM/console)"
		sleep 2
	done
}

wait_end() { # SECONDS
	local end=$((SECONDS + $1))
	while running; do
		[ $SECONDS -lt $end ] || return 1
		sleep 1
	done
	rm -f "$VM/pid"
}

stop() {
	running || return 0
	ssh_to systemctl poweroff || true
	wait_end 300 || die 'it does not shut down: cut'
}

cut_power() {
	running || die 'it does not run'
	kill -9 "$(cat "$VM/pid")"
	wait_end 30
}

case ${1:-} in
make) make_disk ;;
build) build_inside "$2" ;;
start) start ;;
sh) shift && ssh_to "$@" ;;
stop) stop ;;
cut) cut_power ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
