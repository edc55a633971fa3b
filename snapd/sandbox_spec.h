/* What doesn't change about a sandbox, as its row keeps it, and the secrets that it keeps not. */
#ifndef BOUGH_SNAPD_SANDBOX_SPEC_H
#define BOUGH_SNAPD_SANDBOX_SPEC_H

#include <jansson.h>
#include "runtime/box.h"
#include "snapd/names.h"

enum {
	SANDBOX_WORDS_MAX = 4096,     /* of a command, of an environment */
	SANDBOX_TEXT_MAX = 512 << 10, /* bytes of one of those, all in all */
	SANDBOX_SECRETS_MAX = 64,
	SANDBOX_SECRET_MAX = 256 << 10, /* bytes of one */
};

struct sandbox_spec {
	json_t *j; /* what all below is borrowed from; NULL: an empty one */
	const char *image, *snapshot, *runtime, *hostname;
	const char *user, *cwd;             /* NULL: the image's */
	const json_t *command, *env;        /* words; names. NULL: none */
	const json_t *secrets, *secret_env; /* names; NULL: none */
	bool host_image, usr_local, net_host, tty, in, auto_remove;
	struct box_limits limits;
	uint64_t disk, inodes;
};
void spec_done(struct sandbox_spec *s);
#define auto_spec __attribute__((cleanup(spec_done))) struct sandbox_spec
/* Of a row. -EBADMSG: it is damaged. */
int spec_read(struct sandbox_spec *out, const char *text, struct err *err);
/* The text for a row; `j` isn't looked at. NULL: out of memory. The caller frees. */
char *spec_text(const struct sandbox_spec *s);
/* A list of strings with at least `min`, none of which holds a NUL, within the bounds above.
 * -EINVAL: it isn't. NULL is one of none. */
int spec_words_check(const json_t *list, size_t min, struct err *err);
/* "K=V" strings: the same, each with a name. */
int spec_env_check(const json_t *list, struct err *err);
/* The names of "K=V" strings, each once. NULL: out of memory. */
json_t *spec_env_names(const json_t *list);
/* Later ones win. Pointers are borrowed from the lists; ended by NULL; the caller frees the array.
 * NULL: out of memory. */
const char **spec_env_merge(const json_t *const *lists, size_t n);
/* Words as an array ended by NULL. */
const char **spec_words(const json_t *list);

/* Files that only their sandbox sees, each in memory (a memfd). */
struct secrets {
	size_t n;
	struct {
		char name[NAME_SIZE];
		int fd;
	} list[SANDBOX_SECRETS_MAX + 1];
};
void secrets_done(struct secrets *s);
#define auto_secrets __attribute__((cleanup(secrets_done))) struct secrets
int secrets_add(struct secrets *s, const char *name, const void *data, size_t len, struct err *err);

#endif
