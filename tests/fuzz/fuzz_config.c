/* config.json, tokens and ids of events: any bytes are taken or refused with words. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "snapd/access.h"
#include "snapd/config.h"
#include "snapd/events.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct events *events;
	struct config c = { 0 };
	struct err err = { 0 };
	char id[ID_SIZE];
	uint64_t seq;
	if (!events)
		events = events_new();
	int r = config_parse(&c, data, size, &err);
	assert(r == 0 || (r == -EINVAL && err.text[0]) || r == -ENOMEM);
	assert(c.nlisten <= WEB_TCP_MAX);
	config_done(&c);
	char *text = strndup((const char *)data, size);
	if (!text || !events) {
		free(text);
		return 0;
	}
	if (auth_token_id(text, id) == 0)
		assert(id_is(id, "tk") && strlen(text) == TOKEN_TEXT - 1);
	r = event_id_parse(events, text, &seq);
	assert(r == 0 || r == -EINVAL || r == -EKEYEXPIRED);
	free(text);
	return 0;
}
