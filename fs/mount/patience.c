#include "fs/mount/patience.h"

#include <poll.h>
#include "fs/base/clock.h"
#include "fs/mount/ops.h"

enum { PATIENCE_MS = 30 };

struct patience patience_begin(struct ws *ws, struct mounted *m)
{
	return (struct patience){ .ws = ws, .m = m, .seen = ws_ended(ws) };
}

bool patience_more(struct patience *p, int r)
{
	if (r != -EDQUOT)
		return false;
	uint64_t now = clock_ms();
	if (!p->until_ms) {
		p->until_ms = now + PATIENCE_MS;
		if (p->m && p->m->hand_on && ws_has_orphans(p->ws))
			p->m->hand_on(p->m);
	}
	if (now >= p->until_ms)
		return false;
	while (ws_ended(p->ws) == p->seen && ws_has_orphans(p->ws) && now < p->until_ms) {
		(void)poll(NULL, 0, 1);
		now = clock_ms();
	}
	uint64_t ended = ws_ended(p->ws);
	bool more = ended != p->seen;
	p->seen = ended;
	return more;
}
