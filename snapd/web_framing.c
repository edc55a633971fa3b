#include "snapd/web_framing.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "fs/base/clock.h"

enum { LINGER_MAX_MS = 60000 };

static const char *header(struct MHD_Connection *conn, const char *name)
{
	return MHD_lookup_connection_value(conn, MHD_HEADER_KIND, name);
}

uint64_t web_announced(struct MHD_Connection *conn)
{
	const char *s = header(conn, "Content-Length");
	return s ? strtoull(s, NULL, 10) : 0; /* libmicrohttpd has refused what is no number */
}

bool web_has_body(struct MHD_Connection *conn)
{
	return web_announced(conn) > 0 || header(conn, "Transfer-Encoding");
}

bool web_has_form(struct MHD_Connection *conn)
{
	const char *type = header(conn, "Content-Type");
	return type && strncasecmp(type, "multipart/", 10) == 0;
}

void web_linger(int fd, size_t most, int wait_ms)
{
	char scratch[16 * 1024];
	struct pollfd p = { .fd = fd, .events = POLLIN };
	if (fd < 0 || shutdown(fd, SHUT_WR) < 0)
		return;
	uint64_t begun = clock_ms();
	while (most > 0 && clock_ms() - begun < LINGER_MAX_MS) {
		if (poll(&p, 1, wait_ms) <= 0)
			return;
		ssize_t n = recv(fd, scratch, sizeof(scratch), MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return;
		if (n > 0)
			most -= (size_t)n < most ? (size_t)n : most;
	}
}

struct framing {
	unsigned lengths, encodings;
	bool odd; /* not just "chunked", no number, or a blank in a name */
};

static enum MHD_Result count_framing(void *arg, enum MHD_ValueKind kind, const char *key,
				     const char *value)
{
	struct framing *f = arg;
	/* "Transfer-Encoding :" is no header to us, but may be one to what stands in front. */
	f->odd |= !*key || key[strcspn(key, " \t\r\n\v\f")];
	if (strcasecmp(key, "Content-Length") == 0) {
		f->lengths++;
		f->odd |= !value || !*value || value[strspn(value, "0123456789")];
	} else if (strcasecmp(key, "Transfer-Encoding") == 0) {
		f->encodings++;
		f->odd |= !value || strcasecmp(value, "chunked") != 0;
	}
	return MHD_YES;
}

bool web_framing_is_clear(struct MHD_Connection *conn)
{
	struct framing f = { 0 };
	(void)MHD_get_connection_values(conn, MHD_HEADER_KIND, count_framing, &f);
	return f.lengths + f.encodings <= 1 && !f.odd;
}
