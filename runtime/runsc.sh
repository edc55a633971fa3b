#!/bin/sh
# gVisor as sandboxes need it, for a shim that has no way of handing these flags on. The shim's
# environment names the program, a user namespace (below) and the network (runtime/launch.c): "none"
# is a loopback, "host" the host's. The third, gVisor's own stack on the interfaces of a network
# namespace, isn't for kernels of today: they show /proc/sys/net/core/rmem_default in every
# namespace, which runsc of 2024-07 takes for the sign of the host's.
#
# systrap needs no virtualization. Without overlay and with shared access every change is on the
# mount at once, and what changes on the mount is seen inside: the files are the workspace's.
# It keeps so many of them open after their last use, each with the folders that it is in, and a
# workspace is in use as long: less than INIT_N_LETTERS (runtime/init/init.h), or none of them would
# ever go. (A thousand are no faster; with none walks of a tree take half as much time again.)
#
# It makes the sandbox's user namespace as root: in one that is the sandbox's, so that what it uses
# up of the limits of users isn't root's of the host.
case " $* " in
*" create "*) user_ns=$BOUGH_USER_NS ;;
*) user_ns= ;;
esac
set -- "${BOUGH_RUNTIME:-runsc}" --platform=systrap --overlay2=none --file-access=shared \
	--file-access-mounts=shared --dcache=16 --network="${BOUGH_NETWORK:-none}" "$@"
[ -z "$user_ns" ] || set -- nsenter --user="$user_ns" "$@"
exec "$@"
