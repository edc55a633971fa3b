#include "snapd/web_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/log.h"
#include "snapd/web_cors.h"

enum { STACK_BYTES = 512 * 1024 };

/* ---- the handshake ---- */

static const char *header(struct MHD_Connection *conn, const char *name)
{
	const char *s = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, name);
	return s ? s : "";
}

struct word {
	const char *name, *text;
	bool begins; /* the text is how it begins */
	const char *found;
	size_t len;
};

/* Looks for a word in a list with commas, which may come in several lines. */
static enum MHD_Result look(void *arg, enum MHD_ValueKind kind, const char *key,
			    const char *value)
{
	struct word *w = arg;
	if (!value || strcasecmp(key, w->name) != 0)
		return MHD_YES;
	for (const char *p = value; *p && !w->found;) {
		p += strspn(p, ", \t");
		size_t n = strcspn(p, ","), all = n, k = strlen(w->text);
		while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
			n--;
		if ((n == k || (w->begins && n > k)) && strncasecmp(p, w->text, k) == 0) {
			w->found = p;
			w->len = n;
		}
		p += all;
	}
	return w->found ? MHD_NO : MHD_YES;
}

static bool has_word(struct MHD_Connection *conn, const char *name, const char *text)
{
	struct word w = { .name = name, .text = text };
	(void)MHD_get_connection_values(conn, MHD_HEADER_KIND, look, &w);
	return w.found;
}

const char *web_socket_bearer(struct MHD_Connection *conn, char out[WEB_BEARER_SIZE])
{
	static const char before[] = "bough.bearer.";
	struct word w = { .name = "Sec-WebSocket-Protocol", .text = before, .begins = true };
	(void)MHD_get_connection_values(conn, MHD_HEADER_KIND, look, &w);
	if (!w.found || w.len >= WEB_BEARER_SIZE)
		return NULL;
	(void)snprintf(out, WEB_BEARER_SIZE, "Bearer %.*s", (int)(w.len - (sizeof(before) - 1)),
		       w.found + sizeof(before) - 1);
	return out;
}

static bool refuse(struct web_refusal *why, unsigned status, const char *code, const char *text)
{
	*why = (struct web_refusal){ status, code, text };
	return false;
}

bool web_socket_asked(const struct web_options *o, struct MHD_Connection *conn,
		      const char *version, const char *protocol, char accept[WS_ACCEPT_SIZE],
		      struct web_refusal *why)
{
	const char *key = header(conn, "Sec-WebSocket-Key"), *body = header(conn, "Content-Length");
	if (strcmp(version, "HTTP/1.1") != 0 || !has_word(conn, "Connection", "upgrade") ||
	    !has_word(conn, "Upgrade", "websocket"))
		return refuse(why, 426, "upgrade", "this is a WebSocket");
	if (strcmp(header(conn, "Sec-WebSocket-Version"), "13") != 0)
		return refuse(why, 426, "upgrade", "Sec-WebSocket-Version: 13 is expected");
	if (!ws_key_is(key) || (*body && strcmp(body, "0") != 0) ||
	    *header(conn, "Transfer-Encoding"))
		return refuse(why, 400, "invalid",
			      "Sec-WebSocket-Key: 16 bytes in base64, and no body are expected");
	if (!has_word(conn, "Sec-WebSocket-Protocol", protocol))
		return refuse(why, 400, "invalid", "Sec-WebSocket-Protocol lacks the one there is");
	/* A page of any site may ask a browser for a WebSocket: no CORS is in its way. */
	if (!web_cors_may(o, conn))
		return refuse(why, 403, "forbidden", "pages of that origin may not call");
	ws_accept(key, accept);
	return true;
}

struct MHD_Response *web_socket_answer(const char *protocol, const char *accept,
				       MHD_UpgradeHandler upgraded, void *arg)
{
	struct MHD_Response *r = MHD_create_response_for_upgrade(upgraded, arg);
	if (!r)
		return NULL;
	if (MHD_add_response_header(r, "Upgrade", "websocket") == MHD_YES &&
	    MHD_add_response_header(r, "Sec-WebSocket-Accept", accept) == MHD_YES &&
	    MHD_add_response_header(r, "Sec-WebSocket-Protocol", protocol) == MHD_YES)
		return r;
	MHD_destroy_response(r);
	return NULL;
}

/* ---- its thread ---- */

struct upgraded {
	struct reply reply;
	struct doing *doing;
	struct task_count *count;
	struct web_socket socket;
	struct MHD_UpgradeResponseHandle *handle;
	uint8_t early[];
};

static void finish(struct upgraded *u)
{
	struct task_count *count = u->count;
	if (u->reply.task_free)
		u->reply.task_free(u->reply.task);
	doing_unref(u->doing);
	(void)MHD_upgrade_action(u->handle, MHD_UPGRADE_ACTION_CLOSE);
	free(u);
	task_count_add(count, -1);
}

static void *run(void *arg)
{
	struct upgraded *u = arg;
	(void)doing_set(u->doing);
	u->reply.socket(u->reply.task, &u->socket);
	(void)doing_set(NULL);
	finish(u);
	return NULL;
}

void web_socket_run(const struct reply *rp, struct doing *doing, struct task_count *count,
		    unsigned stall_s, int fd, const char *early, size_t nearly,
		    struct MHD_UpgradeResponseHandle *handle)
{
	pthread_attr_t attr;
	pthread_t thread;
	struct upgraded *u = malloc(sizeof(*u) + nearly);
	if (!u) {
		if (rp->task_free)
			rp->task_free(rp->task);
		(void)MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
		return;
	}
	*u = (struct upgraded){ .reply = *rp,
				.doing = doing_ref(doing),
				.count = count,
				.handle = handle,
				.socket = { .fd = fd, .nearly = nearly, .stall_s = stall_s } };
	u->socket.early = u->early;
	if (nearly)
		memcpy(u->early, early, nearly);
	task_count_add(count, 1);
	int flags = fcntl(fd, F_GETFL);
	int r = flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	if (r == 0)
		r = -pthread_create(&thread, &attr, run, u);
	pthread_attr_destroy(&attr);
	if (r < 0) {
		log_warn("a thread for a WebSocket: %s", strerror(-r));
		finish(u);
	}
}
