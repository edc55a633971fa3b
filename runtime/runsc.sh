#!/bin/sh
# gVisor as sandboxes need it, for a shim that has no way of handing these flags on. The shim's
# environment names the program and the network (runtime/launch.c): "none" is a loopback, "host"
# the host's. The third, gVisor's own stack on the interfaces of a network namespace, isn't for
# kernels of today: they show /proc/sys/net/core/rmem_default in every namespace, which runsc of
# 2024-07 takes for the sign of the host's.
#
# systrap needs no virtualization. Without overlay and with shared access every change is on the
# mount at once, and what changes on the mount is seen inside: the files are the workspace's.
exec "${BOUGH_RUNTIME:-runsc}" --platform=systrap --overlay2=none --file-access=shared \
	--file-access-mounts=shared --network="${BOUGH_NETWORK:-none}" "$@"
