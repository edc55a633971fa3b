#include "snapd/stackop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/base/buf.h"
#include "fs/base/cleanup.h"
#include "fs/base/hash.h"

int stack_rebase(struct stack *out, const struct stack *s, const struct stack *old,
		 const struct stack *with)
{
	auto_stack res = { 0 };
	int r = stack_copy(&res, with);
	for (uint32_t i = old->nlayers; i < s->nlayers && r >= 0; i++) {
		const struct stack_layer *l = &s->layers[i];
		r = stack_push(&res, &l->id, l->local, l->parts, l->nparts);
	}
	if (r < 0)
		return r;
	*out = res;
	res = (struct stack){ 0 };
	return 0;
}

json_t *stack_to_json(const struct stack *s)
{
	auto_buf b = { 0 };
	stack_encode(s, &b);
	auto_free char *hex = buf_error(&b) ? NULL : malloc(2 * b.len + 1);
	if (!hex)
		return NULL;
	hex_encode(hex, b.data, b.len);
	return json_string(hex);
}

int stack_from_json(struct stack *out, const json_t *j)
{
	const char *hex = json_string_value(j);
	size_t len = hex ? strlen(hex) / 2 : 0;
	auto_free uint8_t *bytes = malloc(len ? len : 1);
	if (!bytes)
		return -ENOMEM;
	if (len == 0 || strlen(hex) % 2 || hex_decode(bytes, len, hex) < 0)
		return -EBADMSG;
	return stack_decode(out, bytes, len);
}
