/* What may come next on a command line, for the shell: made from the table of commands, and
 * from the daemon's lists when one is running. Silence is always a right answer. */
#include <string.h>
#include "tools/bough/api.h"
#include "tools/bough/cli.h"
#include "tools/bough/json.h"
#include "tools/bough/list.h"
#include "tools/bough/start.h"

static void offer(const char *word, const char *begun)
{
	if (strncmp(word, begun, strlen(begun)) == 0)
		printf("%s\n", word);
}

/* Command names: first words, or the second words of a group. */
static void offer_commands(const char *group, const char *begun)
{
	size_t n = group ? strlen(group) : 0;
	const char *last = "";
	commands_each(c) {
		if (!c->summary)
			continue;
		if (group) {
			if (strncmp(c->name, group, n) == 0 && c->name[n] == ' ')
				offer(c->name + n + 1, begun);
			continue;
		}
		size_t k = strcspn(c->name, " ");
		if (strlen(last) >= k && strncmp(last, c->name, k) == 0 && strcspn(last, " ") == k)
			continue; /* its group was offered */
		last = c->name;
		if (strncmp(c->name, begun, strlen(begun)) == 0)
			printf("%.*s\n", (int)k, c->name);
	}
}

static void offer_options(const struct option_def *o, const char *begun)
{
	for (; o && o->name; o++) {
		char word[64];
		(void)snprintf(word, sizeof(word), "--%s", o->name);
		offer(word, begun);
	}
}

/* The name, with `behind` behind it. */
static void offer_with(const char *word, const char *behind, const char *begun)
{
	if (strncmp(word, begun, strlen(begun)) == 0)
		printf("%s%s\n", word, behind);
}

/* Names that are those of several owners' things, in an object of its own. */
static json_t *names_of_many(const json_t *items)
{
	json_t *first = json_object(), *many = json_object(), *item;
	size_t i;
	json_array_foreach(items, i, item) {
		const char *name = get_text(item, "name");
		/* Without memory for it a name is offered as it is. */
		(void)json_object_set_new(json_object_get(first, name) ? many : first, name,
					  json_true());
	}
	json_decref(first);
	return many;
}

/* OWNER/NAME. Where a path of this machine may stand, only what can't be one: "uid:N/NAME". */
static void offer_owned(const struct cli *cli, const json_t *item, const char *behind,
			const char *begun)
{
	char word[512];
	const char *owner = *behind ? get_text(item, "owner") : owner_name(cli, item, "owner");
	if (*behind && strncmp(owner, "uid:", 4) != 0)
		return;
	(void)snprintf(word, sizeof(word), "%s/%s", owner, get_text(item, "name"));
	offer_with(word, behind, begun);
}

/* Names that the running daemon knows. */
static void offer_items(struct cli *cli, const char *path, const char *behind, const char *begun)
{
	struct http *h = NULL;
	if (daemon_connect(cli, &h, NULL) < 0)
		return; /* a Tab starts no daemon */
	http_free(h);
	auto_target t = target_new(path);
	json_t *doc = NULL;
	if (api_call(cli, "GET", &t, NULL, &doc, NULL, NULL) < 0)
		return;
	size_t i, k;
	json_t *item, *name, *items = json_object_get(doc, "items");
	auto_json json_t *many = names_of_many(items);
	if (json_object_size(many) > 0)
		owners_load(cli);
	json_array_foreach(items, i, item) {
		if (*get_text(item, "name"))
			offer_with(get_text(item, "name"), behind, begun);
		if (json_object_get(many, get_text(item, "name")))
			offer_owned(cli, item, behind, begun);
		json_array_foreach(json_object_get(item, "names"), k, name)
			offer_with(json_string_value(name) ? json_string_value(name) : "", behind,
				   begun);
		if (!strncmp(begun, "sn_", 3) || !strncmp(begun, "ws_", 3) ||
		    !strncmp(begun, "sb_", 3))
			offer_with(get_text(item, "id"), behind, begun);
	}
	json_decref(doc);
}

static void offer_ids(struct cli *cli, const char *path, const char *begun)
{
	struct http *h = NULL;
	json_t *doc = NULL, *item;
	size_t i;
	if (daemon_connect(cli, &h, NULL) < 0)
		return; /* a Tab starts no daemon */
	http_free(h);
	auto_target t = target_new(path);
	if (api_call(cli, "GET", &t, NULL, &doc, NULL, NULL) < 0)
		return;
	json_array_foreach(json_object_get(doc, "items"), i, item)
		offer(get_text(item, "id"), begun);
	json_decref(doc);
}

static void offer_kind(struct cli *cli, char kind, const struct option_def *opt, const char *begun)
{
	switch (kind) {
	case WORD_HOOK:
		offer_ids(cli, "/v1/webhooks", begun);
		break;
	case WORD_TOKEN:
		offer_ids(cli, "/v1/tokens", begun);
		break;
	case WORD_USER:
		offer_items(cli, "/v1/users", "", begun);
		break;
	case WORD_TEAM:
		offer_items(cli, "/v1/teams", "", begun);
		break;
	case WORD_JOB:
		offer_ids(cli, "/v1/jobs", begun);
		break;
	case WORD_DELETED:
		offer_items(cli, "/v1/workspaces?deleted=true", "", begun);
		break;
	case WORD_WORKSPACE:
	case WORD_EITHER:
		offer_items(cli, "/v1/workspaces", "", begun);
		if (kind == WORD_WORKSPACE)
			break;
		/* fall through */
	case WORD_SNAPSHOT:
		offer_items(cli, "/v1/snapshots", "", begun);
		break;
	case WORD_SANDBOX:
	case WORD_ANY:
		offer_items(cli, "/v1/sandboxes", "", begun);
		if (kind == WORD_ANY)
			offer_items(cli, "/v1/workspaces", "", begun);
		break;
	case WORD_REPO:
		offer_items(cli, "/v1/repos", "", begun);
		break;
	case WORD_PLACE:
	case WORD_EITHER_PLACE: /* what is behind the ':' isn't completed */
		offer_items(cli, "/v1/workspaces", ":", begun);
		offer_items(cli, "/v1/snapshots", ":", begun);
		offer_items(cli, "/v1/sandboxes", ":", begun);
		if (kind == WORD_EITHER_PLACE)
			printf("\t%c\n", WORD_FILE);
		break;
	case WORD_COMMAND:
		offer_commands(NULL, begun);
		break;
	case WORD_CHOICE:
		for (const char *p = opt->choices; *p;) {
			size_t n = strcspn(p, " ");
			if (strncmp(p, begun, strlen(begun)) == 0)
				printf("%.*s\n", (int)n, p);
			p += n + (p[n] == ' ');
		}
		break;
	case WORD_FILE:
	case WORD_FOLDER:
		printf("\t%c\n", kind); /* the shell knows files better */
		break;
	default:
		break;
	}
}

struct position {
	const struct command *cmd;
	const char *group;
	unsigned operand;             /* which operand would stand here */
	const struct option_def *opt; /* whose value would stand here; NULL: none */
	bool raw;                     /* behind "--" */
};

static const struct option_def *option_of(const struct command *cmd, const char *word)
{
	const struct option_def *tables[] = { cmd ? cmd->options : NULL, common_options };
	for (unsigned i = 0; i < 2; i++)
		for (const struct option_def *o = tables[i]; o && o->name; o++)
			if (word[1] == '-' ? !strcmp(word + 2, o->name)
					   : word[1] == o->letter && !word[2])
				return o;
	return NULL;
}

static void walk(struct position *p, char **words, unsigned at)
{
	for (unsigned i = 1; i < at; i++) {
		const char *w = words[i];
		if (p->opt) {
			p->opt = NULL;
		} else if (!p->raw && !strcmp(w, "--")) {
			p->raw = true;
		} else if (!p->raw && w[0] == '-' && w[1]) {
			const struct option_def *o = option_of(p->cmd, w);
			if (o && o->value)
				p->opt = o;
		} else if (p->cmd) {
			p->operand++;
		} else if (p->group) {
			p->cmd = command_find(p->group, w);
		} else if (command_is_group(w)) {
			p->group = w;
		} else {
			p->cmd = command_find(w, NULL);
		}
	}
}

/* Prints what may stand at word `at` of the command line `words` (n of them, the program's own
 * name is words[0]): one candidate a line. Never starts a daemon; silent when unsure. */
static void complete_words(struct cli *cli, char **words, unsigned n, unsigned at)
{
	const char *begun = at < n ? words[at] : "";
	struct position p = { 0 };
	walk(&p, words, at < n ? at : n);
	if (p.opt) {
		offer_kind(cli, p.opt->kind, p.opt, begun);
	} else if (!p.raw && begun[0] == '-') {
		offer_options(p.cmd ? p.cmd->options : NULL, begun);
		offer_options(common_options, begun);
	} else if (!p.cmd) {
		offer_commands(p.group, begun);
	} else if (p.cmd->run == cmd_help && p.operand == 1) {
		offer_commands(words[(at < n ? at : n) - 1], begun);
	} else if (p.cmd->kinds && p.operand < p.cmd->max) {
		size_t k = strlen(p.cmd->kinds);
		offer_kind(cli, p.cmd->kinds[p.operand < k ? p.operand : k - 1], NULL, begun);
	}
}

int cmd_complete(struct cli *cli, const struct args *a, struct err *err)
{
	uint64_t at;
	int r = args_number(a->operands[0], "__complete", 0, INT_MAX, &at, err);
	if (r < 0)
		return r;
	complete_words(cli, (char **)(a->operands + 1), a->n - 1, (unsigned)at);
	return 0;
}
