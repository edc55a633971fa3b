#include "fs/mount/request.h"

static _Thread_local struct request now;

void request_begin(uint64_t tag, bool again)
{
	now = (struct request){ tag, again };
}

void request_end(void)
{
	now = (struct request){ 0 };
}

struct request request_now(void)
{
	return now;
}
