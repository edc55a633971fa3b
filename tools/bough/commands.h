/* What the tables of commands share: commands_*.c, one for each few groups of the overview. */
#ifndef BOUGH_TOOLS_COMMANDS_H
#define BOUGH_TOOLS_COMMANDS_H

#include "tools/bough/cli.h"

#define ANY UINT_MAX /* operands */

/* Groups, in the overview's order. */
#define G_WS     "Workspaces"
#define G_SNAP   "Snapshots"
#define G_IMAGE  "Images"
#define G_SANDBOX "Sandboxes"
#define G_REPO   "Repositories"
#define G_FILE   "Files"
#define G_ACCESS "Users and tokens"
#define G_SYS    "The service"

#define OPT_LABEL                                                             \
	{                                                                     \
		.name = "label", .letter = 'l', .value = "K=V", .many = true, \
		.help = "a label of what is made (may be repeated)"      \
	}

#define OPT_MESSAGE                                                                                \
	{                                                                                          \
		.name = "message", .letter = 'm', .value = "TEXT", .help = "what this snapshot is" \
	}

#define OPT_QUOTA                                                                                  \
	{                                                                                          \
		.name = "quota", .value = "SIZE|none", .help = "limit of its own bytes: 512M, 10G" \
	}

#define OPT_INODES                                                                                \
	{                                                                                         \
		.name = "inodes", .value = "N|none", .help = "limit of its own files: 5000, 100K" \
	}

#define OPTS_KEEPING                                                             \
	{ .name = "description", .value = "TEXT", .help = "what it is for" },    \
		{ .name = "visibility",                                          \
		  .value = "WHO",                                                \
		  .help = "who else sees it: private, team:TEAM or global" },    \
		{ .name = "ttl",                                                 \
		  .value = "TIME|none",                                          \
		  .help = "how long from now it is kept: 30m, 24h, 7d" },        \
	{                                                                        \
		.name = "on-expiry", .value = "WHAT", .kind = WORD_CHOICE,       \
		.choices = "delete save keep",                                   \
		.help = "then: delete it, save it first, or keep and unmount it" \
	}

#define OPT_BACKGROUND                                                                 \
	{                                                                              \
		.name = "background", .help = "as a job, which goes on: prints its id" \
	}

#define OPT_GRACE                                                                               \
	{                                                                                       \
		.name = "grace", .value = "TIME", .help = "of sandboxes, from TERM to KILL; 10s" \
	}

/* In the overview's order; each is ended by name NULL. */
extern const struct command commands_ws[], commands_snap[], commands_sandbox[], commands_repo[],
	commands_sys[];

#endif
