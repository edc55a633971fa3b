/* bough-tls HOST PORT [CA]: a connection by TLS, for `bough --url https://…`.
 *
 * A program of its own, because `bough` starts once for every fork and a TLS library would cost it
 * more than all the rest. Its stdin is one end of a pair of sockets whose other end `bough` has: it
 * connects, checks the server's certificate (signed by what is in the file CA, else by what this
 * machine trusts; made out for HOST), says so in one line, and carries bytes in both directions
 * until one end is closed. The line is empty when all is well, else it says what is wrong. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include "fs/base/cleanup.h"
#include "fs/base/err.h"
#include "fs/base/sock.h"

enum {
	PIECE = 64 * 1024,
	GREET_S = 30, /* for the handshake */
	LINGER_S = 5, /* for what is left once one side has ended */
};

/* Bytes on their way in one direction. */
struct lane {
	uint8_t data[PIECE];
	size_t from, to;
	bool eof;  /* nothing more comes in */
	bool shut; /* nothing more goes out: what comes in is left there */
	short wants; /* of the TLS side, before it can go on: POLLIN, POLLOUT */
};

static const char *tls_reason(void)
{
	if (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_WRONG_VERSION_NUMBER)
		return "what answers there doesn't speak it: is it http?";
	const char *s = ERR_reason_error_string(ERR_peek_last_error());
	return s ? s : "the connection was closed";
}

static int check_server(SSL_CTX *ctx, SSL *ssl, const char *host, const char *ca, struct err *err)
{
	uint8_t address[sizeof(struct in6_addr)];
	bool number = inet_pton(AF_INET, host, address) == 1 ||
		      inet_pton(AF_INET6, host, address) == 1;
	if ((ca ? SSL_CTX_load_verify_locations(ctx, ca, NULL)
		: SSL_CTX_set_default_verify_paths(ctx)) != 1)
		return err_set(err, -EINVAL, "%s: no certificates can be read from it",
			       ca ? ca : "this machine's own");
	int good = number ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host)
			  : SSL_set1_host(ssl, host) && SSL_set_tlsext_host_name(ssl, host);
	return good ? 0 : err_set(err, -EINVAL, "%s: no name of a server", host);
}

static void set_timeouts(int fd, int seconds)
{
	struct timeval tv = { .tv_sec = seconds };
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
}

/* What the certificates of --ca could mend. */
static bool unknown_signer(long why)
{
	return why == X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT ||
	       why == X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN ||
	       why == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY;
}

static int greet(SSL *ssl, int fd, struct err *err)
{
	if (SSL_set_fd(ssl, fd) != 1)
		return err_no_memory(err);
	set_timeouts(fd, GREET_S);
	ERR_clear_error();
	if (SSL_connect(ssl) != 1) {
		long why = SSL_get_verify_result(ssl);
		if (why != X509_V_OK)
			return err_set(err, -EACCES, "its certificate isn't good: %s%s",
				       X509_verify_cert_error_string(why),
				       unknown_signer(why) ? ": --ca FILE names who signs it" : "");
		return err_set(err, -EPROTO, "TLS: %s", tls_reason());
	}
	set_timeouts(fd, 0);
	return 0;
}

/* ---- carrying ---- */

/* What TLS said to a call that gave n: the bytes; 0: it must wait for l->wants; -1: it is over. */
static int judged(SSL *ssl, struct lane *l, int n)
{
	l->wants = 0;
	if (n > 0)
		return n;
	int why = SSL_get_error(ssl, n);
	if (why == SSL_ERROR_WANT_READ)
		l->wants = POLLIN;
	else if (why == SSL_ERROR_WANT_WRITE)
		l->wants = POLLOUT;
	return l->wants ? 0 : -1;
}

static bool waits(void)
{
	return errno == EAGAIN || errno == EINTR;
}

/* One turn from `bough` to the server; true when something moved. */
static bool move_up(SSL *ssl, int near, struct lane *l)
{
	bool moved = false;
	if (l->shut)
		return false;
	if (l->from == l->to && !l->eof) {
		ssize_t n = recv(near, l->data, sizeof(l->data), MSG_DONTWAIT);
		l->from = l->to = 0;
		if (n > 0)
			l->to = (size_t)n;
		else if (n == 0 || !waits())
			l->eof = true;
		moved = l->eof || l->to;
		if (l->eof)
			alarm(LINGER_S);
	}
	if (l->from < l->to) {
		ERR_clear_error();
		int n = judged(ssl, l, SSL_write(ssl, l->data + l->from, (int)(l->to - l->from)));
		if (n < 0) { /* nobody listens: what it said before is still to be carried */
			l->shut = true;
			alarm(LINGER_S);
		}
		l->from += n > 0 ? (size_t)n : 0;
		moved = moved || n != 0;
	}
	return moved;
}

/* And back. */
static bool move_down(SSL *ssl, int near, struct lane *l)
{
	bool moved = false;
	if (l->from == l->to && !l->eof) {
		ERR_clear_error();
		int n = judged(ssl, l, SSL_read(ssl, l->data, sizeof(l->data)));
		l->from = 0;
		l->to = n > 0 ? (size_t)n : 0;
		l->eof = n < 0;
		moved = n != 0;
	}
	if (l->from < l->to) {
		ssize_t n = send(near, l->data + l->from, l->to - l->from,
				 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && !waits()) {
			l->eof = true;
			l->from = l->to = 0;
		}
		l->from += n > 0 ? (size_t)n : 0;
		moved = moved || n > 0 || l->eof;
	}
	return moved;
}

/* Until the server has ended and all of it has arrived, or `bough` has and all of it is sent. */
static void carry(SSL *ssl, int near, int far)
{
	static struct lane up, down;
	(void)fcntl(far, F_SETFL, fcntl(far, F_GETFL) | O_NONBLOCK);
	SSL_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	for (;;) {
		bool moved = move_up(ssl, near, &up);
		moved = move_down(ssl, near, &down) || moved;
		if ((up.eof && up.from == up.to) || (down.eof && down.from == down.to))
			return;
		if (moved)
			continue;
		bool full = down.from < down.to;
		bool empty = up.from == up.to && !up.shut;
		short near_wants = (empty ? POLLIN : 0) | (full ? POLLOUT : 0);
		struct pollfd p[] = {
			/* Else that it was closed would be told again and again. */
			{ .fd = near_wants ? near : -1, .events = near_wants },
			{ .fd = far, .events = (short)(up.wants | (full ? 0 : down.wants)) },
		};
		(void)poll(p, 2, -1); /* a signal is one more turn */
	}
}

static int open_tls(SSL_CTX *ctx, SSL *ssl, char **argv, int *far, struct err *err)
{
	int r = check_server(ctx, ssl, argv[1], argv[3], err);
	if (r < 0)
		return r;
	*far = sock_connect_tcp(argv[1], argv[2], err);
	return *far < 0 ? *far : greet(ssl, *far, err);
}

int main(int argc, char **argv)
{
	struct err err = { 0 };
	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: bough-tls HOST PORT [CA], by bough\n");
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN); /* TLS writes by write(2) */
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	if (ctx) {
		SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
		(void)SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
	}
	SSL *ssl = ctx ? SSL_new(ctx) : NULL;
	auto_fd far = -1;
	int r = ssl ? open_tls(ctx, ssl, argv, &far, &err)
		    : err_set(&err, -ENOMEM, "TLS: %s", tls_reason());
	char line[sizeof(err.text) + 2];
	int n = snprintf(line, sizeof(line), "%s\n", r < 0 ? err.text : "");
	if (send(STDIN_FILENO, line, (size_t)n, MSG_NOSIGNAL) == n && r == 0) {
		carry(ssl, STDIN_FILENO, far);
		(void)SSL_shutdown(ssl); /* where it can't be told, the server sees it end */
	}
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	return r < 0;
}
