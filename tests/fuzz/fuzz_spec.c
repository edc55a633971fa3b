/* What a sandbox's row says, and the words and environments that callers send: any text is
 * refused, or gives what sandbox_spec.h promises and is written again the same. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "snapd/sandbox_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_words(const json_t *list)
{
	struct err err = { 0 };
	const json_t *lists[2] = { list, list };
	if (spec_env_check(list, &err) == 0) {
		assert(spec_words_check(list, 0, &err) == 0);
		json_t *names = spec_env_names(list);
		const char **both = spec_env_merge(lists, 2);
		size_t n = 0;
		assert(names && both);
		while (both[n])
			assert(strchr(both[n++], '='));
		assert(n == json_array_size(names)); /* each name once */
		json_decref(names);
		free(both);
	}
	if (spec_words_check(list, 1, &err) == 0) {
		const char **words = spec_words(list);
		assert(words && words[0] && !words[json_array_size(list)]);
		free(words);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct err err = { 0 };
	auto_spec s = { 0 };
	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	json_t *j = json_loads(text, JSON_DECODE_ANY, NULL);
	if (json_is_array(j))
		check_words(j);
	json_decref(j);
	int r = spec_read(&s, text, &err);
	assert(r == 0 || ((r == -EBADMSG || r == -ENOMEM) && err.text[0]));
	if (r == 0) {
		auto_spec again = { 0 };
		char *once = spec_text(&s), *twice;
		assert(once && spec_read(&again, once, &err) == 0);
		twice = spec_text(&again);
		assert(twice && strcmp(once, twice) == 0);
		free(once);
		free(twice);
	}
	free(text);
	return 0;
}
