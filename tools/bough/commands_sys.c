/* Users, tokens and the service. */
#include "tools/bough/commands.h"

static const struct option_def fsck_options[] = {
	{ .name = "repair", .help = "rebuild what can be rebuilt" }, { 0 }
};

static const struct option_def token_create_options[] = {
	{ .name = "scope",
	  .value = "SCOPE",
	  .help = "admin, one workspace, or WORKSPACE:PATH for what is below PATH in it; else "
		  "all that its owner may" },
	{ .name = "read-only", .help = "it changes nothing" },
	{ .name = "expires", .value = "TIME", .help = "how long it is good for: 30m, 24h, 7d" },
	{ .name = "name", .value = "NAME", .help = "what it is for" },
	{ .name = "owner",
	  .value = "USER",
	  .help = "whose it is: a user's name or uid:N (admins only; else yours)" },
	{ 0 }
};

static const struct option_def user_add_options[] = {
	{ .name = "uid", .value = "N", .help = "who that is on this machine" },
	{ .name = "admin", .help = "may do and see all" },
	{ .name = "owner",
	  .value = "OWNER",
	  .help = "takes over what was of this owner, who is no user any more" },
	{ 0 }
};
static const struct option_def user_quota_options[] = {
	{ .name = "workspaces", .value = "N|none", .help = "how many it may have" },
	{ .name = "snapshots", .value = "N|none", .help = "likewise" },
	{ .name = "size",
	  .value = "SIZE|none",
	  .help = "that its workspaces have written and its snapshots hold" },
	{ 0 }
};

static const struct option_def team_join_options[] = {
	{ .name = "role",
	  .value = "ROLE",
	  .kind = WORD_CHOICE,
	  .choices = "reader member admin",
	  .help = "reader, member (the default) or admin" },
	{ 0 }
};

const struct command commands_sys[] = {
	{ .name = "token create",
	  .group = G_ACCESS,
	  .operands = "",
	  .summary = "make a token for calls over the network",
	  .about = "Prints it, this once: only its hash is kept. Clients send it as\n"
		   "`Authorization: Bearer TOKEN`.\n",
	  .options = token_create_options,
	  .examples = "bough token create --name ci --expires 24h\n"
		      "bough token create --scope app --read-only\n"
		      "bough token create --scope app:docs\n",
	  .max = 0,
	  .run = cmd_token_create },
	{ .name = "token ls",
	  .group = G_ACCESS,
	  .operands = "",
	  .summary = "list the tokens",
	  .examples = "bough token ls\n",
	  .max = 0,
	  .run = cmd_token_ls },
	{ .name = "token rm",
	  .group = G_ACCESS,
	  .operands = "ID…",
	  .summary = "make tokens invalid, at once",
	  .examples = "bough token rm tk_k3v6q2abcd\n",
	  .min = 1,
	  .max = ANY,
	  .run = cmd_token_rm },
	{ .name = "user add",
	  .group = G_ACCESS,
	  .operands = "NAME",
	  .summary = "name a user of the service",
	  .about =
		  "A user of this machine (--uid) needs no entry: what uid N makes is owned by\n"
		  "\"uid:N\". An entry gives that owner a name, or makes an owner without a uid.\n",
	  .options = user_add_options,
	  .examples = "bough user add alice --uid 1000\nbough user add ci\n",
	  .min = 1,
	  .max = 1,
	  .run = cmd_user_add },
	{ .name = "user ls",
	  .group = G_ACCESS,
	  .operands = "",
	  .summary = "list the users",
	  .examples = "bough user ls\n",
	  .max = 0,
	  .run = cmd_user_ls },
	{ .name = "user quota",
	  .group = G_ACCESS,
	  .operands = "[USER]",
	  .summary = "show or change what an owner may have",
	  .about = "USER is a user's name or uid:N; without it all quotas are listed. At its\n"
		   "limit an owner gets nothing new (exit code 6); what programs write in\n"
		   "workspaces goes on until those' own quotas. Deleted workspaces count as bytes\n"
		   "until they are gone. For admins.\n",
	  .options = user_quota_options,
	  .examples = "bough user quota ci --workspaces 100 --size 200G\n"
		      "bough user quota ci --snapshots none\n",
	  .max = 1,
	  .run = cmd_user_quota },
	{ .name = "user rm",
	  .group = G_ACCESS,
	  .operands = "NAME…",
	  .summary = "delete users, with their tokens and memberships",
	  .about = "What they made stays. A new user of the same name without a uid is somebody\n"
		   "else, and gets none of it, unless `bough user add --owner` says so.\n",
	  .examples = "bough user rm ci\n",
	  .min = 1,
	  .max = ANY,
	  .run = cmd_user_rm },
	{ .name = "team add",
	  .group = G_ACCESS,
	  .operands = "TEAM",
	  .summary = "make a team, whose admin you are",
	  .about = "`bough set NAME --visibility team:TEAM` lets its members see a workspace, and\n"
		   "change it unless they are readers.\n",
	  .examples = "bough team add web\n",
	  .min = 1,
	  .max = 1,
	  .run = cmd_team_add },
	{ .name = "team join",
	  .group = G_ACCESS,
	  .operands = "TEAM USER",
	  .summary = "add somebody to a team, or change the role",
	  .options = team_join_options,
	  .examples = "bough team join web alice --role reader\n",
	  .min = 2,
	  .max = 2,
	  .run = cmd_team_join },
	{ .name = "team leave",
	  .group = G_ACCESS,
	  .operands = "TEAM USER",
	  .summary = "take somebody out of a team",
	  .examples = "bough team leave web alice\n",
	  .min = 2,
	  .max = 2,
	  .run = cmd_team_leave },
	{ .name = "team ls",
	  .group = G_ACCESS,
	  .operands = "",
	  .summary = "list your teams and who is in them",
	  .examples = "bough team ls\n",
	  .max = 0,
	  .run = cmd_team_ls },
	{ .name = "team rm",
	  .group = G_ACCESS,
	  .operands = "TEAM…",
	  .summary = "delete teams; what they saw is private then",
	  .examples = "bough team rm web\n",
	  .min = 1,
	  .max = ANY,
	  .run = cmd_team_rm },

	{ .name = "up",
	  .group = G_SYS,
	  .operands = "",
	  .summary = "start the service and mount what was",
	  .about = "Any other command does this too when the service isn't running.\n",
	  .examples = "bough up\n",
	  .max = 0,
	  .run = cmd_up },
	{ .name = "down",
	  .group = G_SYS,
	  .operands = "",
	  .summary = "unmount all and stop the service",
	  .about = "Nothing is lost; `bough up` brings it all back.\n",
	  .examples = "bough down\n",
	  .max = 0,
	  .run = cmd_down },
	{ .name = "upgrade",
	  .group = G_SYS,
	  .operands = "",
	  .summary = "run what is installed now; programs on workspaces go on",
	  .about = "Ends boughd and starts the one beside bough. That one replaces bough-fs and\n"
		   "bough-hold where other programs lie in their places. Open files, working\n"
		   "folders, maps and locks stay; requests wait for some milliseconds. With the\n"
		   "transport ring bough-fs stays as it is until `bough down`.\n",
	  .examples = "make install && bough upgrade\n",
	  .max = 0,
	  .run = cmd_upgrade },
	{ .name = "gc",
	  .group = G_SYS,
	  .operands = "",
	  .summary = "free the space of what nothing refers to any more",
	  .examples = "bough gc\n",
	  .max = 0,
	  .run = cmd_gc },
	{ .name = "fsck",
	  .group = G_SYS,
	  .operands = "",
	  .summary = "prove that everything stored is whole",
	  .about = "Reads all there is. Ends with 1 when there is a fault that wasn't repaired.\n",
	  .options = fsck_options,
	  .examples = "bough fsck\nbough fsck --repair\n",
	  .max = 0,
	  .run = cmd_fsck },
	{ .name = "stats",
	  .group = G_SYS,
	  .operands = "",
	  .summary = "show counters: store, filesystem requests, catalog",
	  .examples = "bough stats\nbough stats --json\n",
	  .max = 0,
	  .run = cmd_stats },
	{ .name = "doctor",
	  .group = G_SYS,
	  .operands = "",
	  .summary = "tell what this machine offers and what is missing",
	  .about = "Works without the service. Ends with 0 when workspaces can run here, else\n"
		   "with 1.\n",
	  .examples = "bough doctor\n",
	  .max = 0,
	  .run = cmd_doctor },
	{ .name = "help",
	  .group = G_SYS,
	  .operands = "[COMMAND]",
	  .summary = "show help",
	  .examples = "bough help fork\n",
	  .max = 2,
	  .kinds = "c",
	  .run = cmd_help },

	/* For the shell's completion: __complete N WORD…; hidden, since it has no summary. */

	/* For the shell's completion: __complete N WORD…; hidden, since it has no summary. */
	{ .name = "__complete", .operands = "N WORD…", .min = 1, .max = ANY, .run = cmd_complete },
	{ 0 }
};
