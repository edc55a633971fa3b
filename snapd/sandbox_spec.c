#include "snapd/sandbox_spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fs/base/cleanup.h"
#include "fs/base/json.h"

void spec_done(struct sandbox_spec *s)
{
	json_decref(s->j);
	memset(s, 0, sizeof(*s));
}

static const json_t *list_of(const json_t *j, const char *key)
{
	const json_t *v = json_object_get(j, key);
	return json_is_array(v) ? v : NULL;
}

static const char *text_of(const json_t *j, const char *key)
{
	return json_string_value(json_object_get(j, key));
}

static bool flag_of(const json_t *j, const char *key)
{
	return json_is_true(json_object_get(j, key));
}

static uint64_t number_of(const json_t *j, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(j, key));
	return v > 0 ? (uint64_t)v : 0;
}

int spec_read(struct sandbox_spec *out, const char *text, struct err *err)
{
	json_t *j = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
	const json_t *limits = json_object_get(j, "limits");
	struct sandbox_spec s = {
		.j = j,
		.image = text_of(j, "image"),
		.snapshot = text_of(j, "snapshot"),
		.runtime = text_of(j, "runtime"),
		.hostname = text_of(j, "hostname"),
		.user = text_of(j, "user"),
		.cwd = text_of(j, "cwd"),
		.command = list_of(j, "command"),
		.env = list_of(j, "env"),
		.secrets = list_of(j, "secrets"),
		.secret_env = list_of(j, "secret_env"),
		.host_image = flag_of(j, "host_image"),
		.usr_local = flag_of(j, "usr_local"),
		.net_host = flag_of(j, "net_host"),
		.tty = flag_of(j, "tty"),
		.in = flag_of(j, "stdin"),
		.auto_remove = flag_of(j, "auto_remove"),
		.limits = { .cpu_milli = (uint32_t)number_of(limits, "cpu_milli"),
			    .memory = number_of(limits, "memory_bytes"),
			    .pids = (uint32_t)number_of(limits, "pids"),
			    .shm = number_of(limits, "shm_bytes") },
		.disk = number_of(limits, "disk_bytes"),
		.inodes = number_of(limits, "inodes"),
	};
	if (!s.image || !s.runtime || !s.hostname || !json_is_object(limits)) {
		json_decref(j);
		return err_set(err, -EBADMSG, "the sandbox's row is damaged");
	}
	*out = s;
	return 0;
}

static json_t *optional(const char *s)
{
	return s ? json_string(s) : json_null();
}

static json_t *optional_list(const json_t *list)
{
	return list ? json_deep_copy(list) : json_null();
}

char *spec_text(const struct sandbox_spec *s)
{
	json_t *j = json_pack(
		"{s:s, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:b, s:b, s:b, s:b,"
		" s:{s:I, s:I, s:I, s:I, s:I, s:I}}",
		"image", s->image, "snapshot", optional(s->snapshot), "runtime", s->runtime,
		"hostname", s->hostname, "user", optional(s->user), "cwd", optional(s->cwd),
		"command", optional_list(s->command), "env", optional_list(s->env), "secrets",
		optional_list(s->secrets), "secret_env", optional_list(s->secret_env), "host_image",
		s->host_image, "usr_local", s->usr_local, "net_host", s->net_host, "tty", s->tty,
		"stdin", s->in, "auto_remove", s->auto_remove, "limits", "cpu_milli",
		(json_int_t)s->limits.cpu_milli, "memory_bytes", (json_int_t)s->limits.memory,
		"pids", (json_int_t)s->limits.pids, "shm_bytes", (json_int_t)s->limits.shm,
		"disk_bytes", (json_int_t)s->disk, "inodes", (json_int_t)s->inodes);
	char *text = j ? json_text(j, JSON_COMPACT) : NULL;
	json_decref(j);
	return text;
}

/* ---- words ---- */

int spec_words_check(const json_t *list, size_t min, struct err *err)
{
	size_t i, bytes = 0;
	json_t *one;
	if (!list || json_is_null(list))
		return min ? err_set(err, -EINVAL, "it is missing") : 0;
	if (!json_is_array(list) || json_array_size(list) < min)
		return err_set(err, -EINVAL, "a list of%s strings is expected",
			       min ? " one or more" : "");
	if (json_array_size(list) > SANDBOX_WORDS_MAX)
		return err_set(err, -EINVAL, "at most %d of them", SANDBOX_WORDS_MAX);
	json_array_foreach((json_t *)(uintptr_t)list, i, one) {
		const char *s = json_string_value(one);
		if (!s || strlen(s) != json_string_length(one))
			return err_set(err, -EINVAL, "strings without a NUL are expected");
		bytes += strlen(s) + 1;
	}
	if (bytes > SANDBOX_TEXT_MAX)
		return err_set(err, -EINVAL, "%d KiB at most, all together",
			       SANDBOX_TEXT_MAX >> 10);
	return 0;
}

int spec_env_check(const json_t *list, struct err *err)
{
	size_t i;
	json_t *one;
	int r = spec_words_check(list, 0, err);
	if (r < 0 || !json_is_array(list))
		return r;
	json_array_foreach((json_t *)(uintptr_t)list, i, one) {
		const char *s = json_string_value(one), *eq = strchr(s, '=');
		if (!eq || eq == s)
			return err_set(err, -EINVAL, "NAME=VALUE is expected");
	}
	return 0;
}

static size_t name_length(const char *s)
{
	return (size_t)(strchrnul(s, '=') - s);
}

json_t *spec_env_names(const json_t *list)
{
	json_t *seen = json_object(), *names = json_array(), *one;
	size_t i;
	int bad = !seen || !names;
	json_array_foreach((json_t *)(uintptr_t)list, i, one) {
		const char *s = json_string_value(one);
		size_t n = name_length(s);
		if (json_object_getn(seen, s, n))
			continue;
		bad |= json_object_setn_new(seen, s, n, json_true());
		bad |= json_array_append_new(names, json_stringn(s, n));
	}
	json_decref(seen);
	if (!bad)
		return names;
	json_decref(names);
	return NULL;
}

const char **spec_env_merge(const json_t *const *lists, size_t n)
{
	size_t most = 1, count = 0;
	for (size_t i = 0; i < n; i++)
		most += json_array_size(lists[i]);
	const char **out = calloc(most, sizeof(*out));
	json_t *at = json_object(); /* name: where it stands */
	int bad = !out || !at;
	for (size_t i = 0; i < n && !bad; i++) {
		for (size_t k = 0; k < json_array_size(lists[i]) && !bad; k++) {
			const char *s = json_string_value(json_array_get(lists[i], k));
			if (!s)
				continue;
			const json_t *had = json_object_getn(at, s, name_length(s));
			if (had) {
				out[json_integer_value(had)] = s;
				continue;
			}
			bad = json_object_setn_new(at, s, name_length(s),
						   json_integer((json_int_t)count));
			out[count++] = s;
		}
	}
	json_decref(at);
	if (!bad)
		return out;
	free(out);
	return NULL;
}

const char **spec_words(const json_t *list)
{
	size_t n = json_array_size(list);
	const char **out = calloc(n + 1, sizeof(*out));
	for (size_t i = 0; out && i < n; i++)
		out[i] = json_string_value(json_array_get(list, i));
	return out;
}

/* ---- secrets ---- */

void secrets_done(struct secrets *s)
{
	for (size_t i = 0; i < s->n; i++)
		cleanup_close(&s->list[i].fd);
	s->n = 0;
}

int secrets_add(struct secrets *s, const char *name, const void *data, size_t len, struct err *err)
{
	if (s->n == SANDBOX_SECRETS_MAX + 1)
		return err_set(err, -EINVAL, "at most %d secrets", SANDBOX_SECRETS_MAX);
	auto_fd fd = memfd_create("secret", MFD_CLOEXEC);
	if (fd < 0)
		return err_sys(err, -errno, "keep a secret");
	for (size_t did = 0; did < len;) {
		ssize_t n = pwrite(fd, (const char *)data + did, len - did, (off_t)did);
		if (n < 0)
			return err_sys(err, -errno, "keep a secret");
		did += (size_t)n;
	}
	(void)snprintf(s->list[s->n].name, NAME_SIZE, "%s", name);
	s->list[s->n++].fd = steal_fd(&fd);
	return 0;
}
