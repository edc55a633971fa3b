/* What boughd is told by ROOT/config.json and, before that, by its options. */
#ifndef BOUGH_SNAPD_CONFIG_H
#define BOUGH_SNAPD_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "fs/base/err.h"
#include "fs/base/netaddr.h"
#include "snapd/policy.h"
#include "snapd/web.h"

enum { CONFIG_ORIGINS_MAX = 32 };

struct config {
	char *listen[WEB_TCP_MAX]; /* ADDRESS:PORT */
	size_t nlisten;
	char *tls_cert, *tls_key;           /* paths; NULL: none */
	char *tls_cert_text, *tls_key_text; /* what is in them */
	bool insecure;                      /* tokens in the clear beyond this machine */
	bool multi_user;                    /* the socket is every user's */
	char *origins[CONFIG_ORIGINS_MAX];  /* whose pages may call (web.h) */
	size_t norigins;
	struct policy policy;
	/* Networks that URLs of callers over the network may lead to, beside the public one. */
	struct netrules git_networks;
};
void config_done(struct config *c);
/* One more address; -EINVAL: too many. */
int config_listen(struct config *c, const char *address, struct err *err);
/* Adds what ROOT/config.json has (no file: nothing) to what the options said, which wins, and reads
 * the certificate. The file must be boughd's own or root's, and not writable by others. */
int config_read(struct config *c, const char *root, struct err *err);
/* After that: whether boughd could serve with it: addresses, a certificate and its key. What only
 * trying shows (an address that another program has) isn't looked at. */
int config_check(const struct config *c, struct err *err);
/* The pure half, for tests and fuzzing: any bytes. */
int config_parse(struct config *c, const void *data, size_t len, struct err *err);

#endif
