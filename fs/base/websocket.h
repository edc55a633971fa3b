/* WebSocket (RFC 6455): frames to and from bytes, and the key of the handshake. Pure: no sockets,
 * no clock. No extensions.
 *
 * Reading is strict. What breaks the rules is -EPROTO with the code of the Close frame that is due
 * for it: 1002 a wrong frame, 1007 text that isn't UTF-8, 1009 more than is taken. Nothing is to be
 * read after a failure or a Close.
 *
 *     struct ws_reader w = { .masked = true };        a server's: clients mask, servers don't
 *     while ((r = ws_next(&w, &p, &n, &ev)) > 0) …    bytes as they came, until it wants more
 *
 * Binary messages come in pieces as they are received, so that none has to fit anywhere; text comes
 * whole, and is small here. Control frames come whole, also between the fragments of a message. */
#ifndef BOUGH_BASE_WEBSOCKET_H
#define BOUGH_BASE_WEBSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	WS_HEAD_MAX = 14,          /* of a frame, with its mask */
	WS_CONTROL_MAX = 125,      /* bytes in a control frame (5.5) */
	WS_TEXT_MAX = 4096,        /* of a message: the words beside the bytes are short */
	WS_FRAME_MAX = 16 << 20,   /* of a binary frame: nobody sane sends more at once */
	WS_FRAGMENTS_MAX = 4096,   /* of a text: empty ones would go on for ever */
	WS_PIECE = 4096,           /* of what is unmasked at a time */
	WS_KEY_CHARS = 24,         /* base64 of 16 bytes */
	WS_ACCEPT_SIZE = 28 + 1,   /* base64 of a SHA-1, with NUL */
};

enum ws_op { WS_MORE = 0, WS_TEXT = 1, WS_BINARY = 2, WS_CLOSE = 8, WS_PING = 9, WS_PONG = 10 };

enum ws_close_code {
	WS_CLOSE_NORMAL = 1000,
	WS_CLOSE_AWAY = 1001,     /* the server ends: come back */
	WS_CLOSE_PROTOCOL = 1002,
	WS_CLOSE_NONE = 1005,     /* said where there was no code; never sent */
	WS_CLOSE_TEXT = 1007,
	WS_CLOSE_POLICY = 1008,
	WS_CLOSE_LARGE = 1009,
	WS_CLOSE_FAILED = 1011,
};

struct ws_event {
	enum ws_op op;       /* TEXT, BINARY, CLOSE, PING, PONG */
	const uint8_t *data; /* borrowed until the next call; of a Close its reason */
	size_t len;          /* of a binary piece: may be 0 at its end */
	bool last;           /* BINARY: the message ends behind this piece */
	unsigned code;       /* CLOSE: WS_CLOSE_NONE where it has none */
};

struct ws_reader {
	bool masked; /* the peer's frames must be; else they mustn't */
	/* Its own: */
	uint8_t head[WS_HEAD_MAX];
	unsigned nhead;
	bool in_frame, closed;
	uint8_t op; /* of the frame */
	bool fin;
	uint64_t left; /* of the frame's payload */
	uint8_t mask[4];
	unsigned mask_at;
	uint8_t message; /* the message under way: WS_TEXT, WS_BINARY, 0 none */
	unsigned fragments;
	size_t ntext, ncontrol;
	uint8_t text[WS_TEXT_MAX], control[WS_CONTROL_MAX];
	uint8_t piece[WS_PIECE];
	unsigned fault; /* the code of the failure */
};

/* The next event in the n bytes at *p, which it moves on. 1; 0: all are used up; -EPROTO. */
int ws_next(struct ws_reader *w, const uint8_t **p, size_t *n, struct ws_event *out);

/* The head of a frame that is a message by itself: its length. `mask`: of a client's; else NULL. */
size_t ws_put_head(uint8_t out[WS_HEAD_MAX], enum ws_op op, uint64_t len, const uint8_t mask[4]);
/* Masks or unmasks what lies `at` bytes behind the payload's beginning. */
void ws_mask(uint8_t *data, size_t n, const uint8_t mask[4], size_t at);
/* The payload of a Close; `reason` is cut where it doesn't fit. */
size_t ws_put_close(uint8_t out[WS_CONTROL_MAX], unsigned code, const char *reason);

/* What a server answers to Sec-WebSocket-Key. */
void ws_accept(const char *key, char out[WS_ACCEPT_SIZE]);
/* Whether it is 16 bytes in base64. */
bool ws_key_is(const char *key);

#endif
