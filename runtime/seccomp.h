/* The system calls that a sandbox may make: an allowlist of our own. All else is answered with
 * ENOSYS, so that programs fall back to what they did before the call was there. Only the native
 * architecture; no namespaces, no mounts, and of sockets only families that end in the sandbox
 * (AF_VSOCK would reach the host past the network namespace).
 *
 * Source: the lists of Docker and podman, with what this project's walls don't want taken out. */
#ifndef BOUGH_RUNTIME_SECCOMP_H
#define BOUGH_RUNTIME_SECCOMP_H

#include <jansson.h>

/* OCI's linux.seccomp; NULL: out of memory. The caller decrefs. */
json_t *seccomp_filter(void);
/* The n-th call that is allowed without a condition; NULL past the last. */
const char *seccomp_allowed(size_t n);

#endif
