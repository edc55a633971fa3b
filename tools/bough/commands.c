/* The tables of commands. Help, completion and the man page's test are made from them. */
#include "tools/bough/commands.h"

const struct option_def common_options[] = {
	{ .name = "root",
	  .value = "DIR",
	  .kind = WORD_FOLDER,
	  .help = "where all state lies (BOUGH_ROOT; /var/lib/bough, or ~/.local/state/bough)" },
	{ .name = "url",
	  .value = "URL",
	  .help = "a boughd elsewhere, instead of --root: https://HOST[:PORT] (BOUGH_URL)" },
	{ .name = "auth",
	  .value = "FILE",
	  .kind = WORD_FILE,
	  .help = "that holds the token for it (BOUGH_TOKEN_FILE)" },
	{ .name = "ca",
	  .value = "FILE",
	  .kind = WORD_FILE,
	  .help = "that holds the certificates which sign its own (BOUGH_CA)" },
	{ .name = "insecure",
	  .help = "let the token go by http:// beyond this machine (BOUGH_INSECURE=1)" },
	{ .name = "json", .help = "one JSON document on stdout, errors too" },
	{ .name = "bytes", .help = "exact sizes and times" },
	{ .name = "quiet", .letter = 'q', .help = "no progress, no notes; lists print names only" },
	{ .name = "help", .letter = 'h', .help = "this help" },
	{ .name = "version", .help = "the version" },
	{ 0 }
};

const struct command *const command_tables[] = { commands_ws,      commands_snap, commands_sandbox,
						 commands_repo,    commands_sys,  NULL };
