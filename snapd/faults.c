/* Workspaces whose disk failed (ws_fault) or that are damaged (ws_damage), as bough-fs told last:
 * told to who listens, once. */
#include <string.h>

#include "fs/base/log.h"
#include "snapd/layercache.h"
#include "snapd/outcome.h"
#include "snapd/snapd.h"

/* Whether that is news of the workspace ("": nothing is wrong); *had: something was before. */
static bool is_news(struct problems *known, const char *id, const char *text, bool *had)
{
	char was[BROKEN_SIZE] = "";
	*had = problems_get(known, id, was, sizeof(was));
	if (*had ? strcmp(was, text) == 0 : !*text)
		return false;
	problems_set(known, id, *text ? text : NULL);
	return true;
}

void faults_note(struct snapd *sd, const char *id, const char *text)
{
	auto_ws_row row = { 0 };
	bool had;
	if (!is_news(sd->faults, id, text, &had) || (had && *text))
		return;
	/* What is loaded of its layers may show what they don't have any more. */
	layercache_trim(sd->layers, 0);
	if (catalog_ws_get_any(sd->catalog, id, &row, NULL) < 0)
		return; /* it was removed just now */
	if (*text)
		log_error("workspace %s (%s) is %s", row.name, id, text);
	else
		log_info("workspace %s (%s) can be written to again", row.name, id);
	outcome_own(sd, *text ? "workspace.read_only" : "workspace.writable", &row.own, id, id);
}

void damage_note(struct snapd *sd, const char *id, const char *text)
{
	auto_ws_row row = { 0 };
	bool had;
	if (!is_news(sd->damage, id, text, &had) || !*text ||
	    catalog_ws_get_any(sd->catalog, id, &row, NULL) < 0)
		return; /* mounted anew, restored, or removed just now */
	log_error("workspace %s (%s) is damaged: %s", row.name, id, text);
	if (!had)
		outcome_own(sd, "workspace.damaged", &row.own, id, id);
}
