/* Why workspaces that should be mounted are not, or are read-only: known since boughd started. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapd/snapd.h"

struct problem {
	struct problem *next;
	char id[ID_SIZE];
	char text[BROKEN_SIZE];
};

struct problems {
	pthread_mutex_t lock;
	struct problem *first;
};

struct problems *problems_new(void)
{
	struct problems *p = calloc(1, sizeof(*p));
	if (p)
		pthread_mutex_init(&p->lock, NULL);
	return p;
}

void problems_free(struct problems *p)
{
	if (!p)
		return;
	for (struct problem *e = p->first, *next; e; e = next) {
		next = e->next;
		free(e);
	}
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static struct problem **find(struct problems *p, const char *id)
{
	struct problem **e = &p->first;
	while (*e && strcmp((*e)->id, id) != 0)
		e = &(*e)->next;
	return e;
}

void problems_set(struct problems *p, const char *id, const char *text)
{
	pthread_mutex_lock(&p->lock);
	struct problem **at = find(p, id), *e = *at;
	if (!text && e) {
		*at = e->next;
		free(e);
	} else if (text && (e || (e = calloc(1, sizeof(*e))))) { /* else: untold, no worse */
		if (!*at) {
			(void)snprintf(e->id, sizeof(e->id), "%s", id);
			*at = e;
		}
		(void)snprintf(e->text, sizeof(e->text), "%.*s", BROKEN_SIZE - 1, text);
	}
	pthread_mutex_unlock(&p->lock);
}

bool problems_get(struct problems *p, const char *id, char *out, size_t size)
{
	pthread_mutex_lock(&p->lock);
	const struct problem *e = *find(p, id);
	if (e)
		(void)snprintf(out, size, "%s", e->text);
	pthread_mutex_unlock(&p->lock);
	return e != NULL;
}

size_t problems_count(struct problems *p)
{
	size_t n = 0;
	pthread_mutex_lock(&p->lock);
	for (const struct problem *e = p->first; e; e = e->next)
		n++;
	pthread_mutex_unlock(&p->lock);
	return n;
}
