#include "fs/mount/counters.h"

#include <stddef.h>

/* By number, since the headers of the build host may be older than the kernel. */
static const char *const names[OPCODES] = {
	[0] = "OTHER",         [1] = "LOOKUP",
	[2] = "FORGET",        [3] = "GETATTR",
	[4] = "SETATTR",       [5] = "READLINK",
	[6] = "SYMLINK",       [8] = "MKNOD",
	[9] = "MKDIR",         [10] = "UNLINK",
	[11] = "RMDIR",        [12] = "RENAME",
	[13] = "LINK",         [14] = "OPEN",
	[15] = "READ",         [16] = "WRITE",
	[17] = "STATFS",       [18] = "RELEASE",
	[20] = "FSYNC",        [21] = "SETXATTR",
	[22] = "GETXATTR",     [23] = "LISTXATTR",
	[24] = "REMOVEXATTR",  [25] = "FLUSH",
	[26] = "INIT",         [27] = "OPENDIR",
	[28] = "READDIR",      [29] = "RELEASEDIR",
	[30] = "FSYNCDIR",     [31] = "GETLK",
	[32] = "SETLK",        [33] = "SETLKW",
	[34] = "ACCESS",       [35] = "CREATE",
	[36] = "INTERRUPT",    [37] = "BMAP",
	[38] = "DESTROY",      [39] = "IOCTL",
	[40] = "POLL",         [41] = "NOTIFY_REPLY",
	[42] = "BATCH_FORGET", [43] = "FALLOCATE",
	[44] = "READDIRPLUS",  [45] = "RENAME2",
	[46] = "LSEEK",        [47] = "COPY_FILE_RANGE",
	[48] = "SETUPMAPPING", [49] = "REMOVEMAPPING",
	[50] = "SYNCFS",       [51] = "TMPFILE",
	[52] = "STATX",        [53] = "COPY_FILE_RANGE_64",
};

const char *opcode_name(unsigned opcode)
{
	return opcode < OPCODES ? names[opcode] : NULL;
}

void counters_add(struct counters *to, const struct counters *from)
{
	for (size_t i = 0; i < OPCODES; i++)
		counter_add(&to->requests[i], counter_get(&from->requests[i]));
	counter_add(&to->errors, counter_get(&from->errors));
	counter_add(&to->bytes_read, counter_get(&from->bytes_read));
	counter_add(&to->bytes_written, counter_get(&from->bytes_written));
}

uint64_t counters_total(const struct counters *c)
{
	uint64_t n = 0;
	for (size_t i = 0; i < OPCODES; i++)
		n += counter_get(&c->requests[i]);
	return n;
}
