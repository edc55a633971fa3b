/* Texts about repositories: what a person gives as a URL, what git says, a record on disk. Any
 * bytes give what the headers promise. The first byte says which. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gitops/transport.h"
#include "snapd/repos.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool printable(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || (unsigned char)*s >= 0x7f)
			return false;
	return true;
}

static void check_url(const char *text)
{
	struct git_url u = { 0 };
	struct err err = { 0 };
	char name[32];
	int r = git_url_parse(&u, text, &err);
	assert(r == 0 || (r == -EINVAL && err.text[0]));
	if (r == 0) {
		assert(text[0] != '-' && u.host[0] && u.host[0] != '-');
		assert(!strchr(text, ' ') && !strchr(text, '\n') && strchr(text, ':')[1] != ':');
		assert(u.kind == GIT_URL_SSH || !strchr(u.host, '@'));
	}
	git_url_name(name, sizeof(name), text);
	assert(!name[0] || (name[0] != '-' && name[0] != '.' && !strchr(name, '/')));
}

static void check_saying(char *text)
{
	static const char *const secrets[] = { "secret", NULL };
	struct err err = { 0 };
	uint64_t done, total;
	const char *what = "";
	if (transport_progress(text, &done, &total, &what))
		assert(what[0]);
	int r = transport_explain(text, 1, &err);
	assert(r < 0 && err.text[0] && !strchr(err.text, '\n'));
	text_scrub(err.text, secrets, 2);
	assert(printable(err.text) && !strstr(err.text, "secret"));
}

static void check_record(const uint8_t *data, size_t size)
{
	struct repo_row row = { 0 };
	int r = repo_record_decode(&row, data, size);
	assert(r == 0 || r == -EBADMSG || r == -ENOMEM);
	if (r == 0)
		assert(row.number > 0 && row.url && name_check(row.name, NULL) == 0);
	repo_row_done(&row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	char *text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (data[0] == 'u')
		check_url(text);
	else if (data[0] == 's')
		check_saying(text);
	else
		check_record(data + 1, size - 1);
	free(text);
	return 0;
}
