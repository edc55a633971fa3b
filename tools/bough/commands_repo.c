/* Repositories. */
#include "tools/bough/commands.h"

#define OPT_SECRETS                                                                 \
	{ .name = "token-file",                                                     \
	  .value = "FILE|-",                                                        \
	  .kind = WORD_FILE,                                                        \
	  .help = "a token for http(s), or USER:PASSWORD, on one line" },           \
		{ .name = "ssh-key",                                                \
		  .value = "FILE",                                                  \
		  .kind = WORD_FILE,                                                \
		  .help = "a private key for ssh, without a passphrase" },          \
	{                                                                           \
		.name = "known-hosts", .value = "FILE", .kind = WORD_FILE,          \
		.help = "keys that the ssh host may have, as in ~/.ssh/known_hosts" \
	}

static const struct option_def repo_add_options[] = {
	{ .name = "name", .value = "REPO", .help = "its name; else the last part of URL or PATH" },
	OPT_SECRETS,
	{ 0 }
};

static const struct option_def repo_fetch_options[] = { OPT_SECRETS, { 0 } };

static const struct option_def repo_reset_options[] = {
	{ .name = "force", .help = "also when it has commits that upstream's lacks" }, { 0 }
};

const struct command commands_repo[] = {
	{ .name = "repo add",
	  .group = G_REPO,
	  .operands = "URL|PATH",
	  .summary = "keep a mirror of a git repository",
	  .about = "URL is https, http, ssh or git; PATH a repository on this machine, which is\n"
		   "read with your rights. The mirror has the full history. What the options give\n"
		   "is kept for later fetches and never shown; it is seen by nothing in a\n"
		   "workspace. ssh needs a key and the known hosts. Prints the name.\n",
	  .options = repo_add_options,
	  .examples = "bough repo add https://example.org/app.git --token-file token\n"
		      "bough repo add git@example.org:app.git --ssh-key key --known-hosts hosts\n"
		      "bough repo add ~/src/app --name app\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "d",
	  .run = cmd_repo_add,
	  .begins = true },
	{ .name = "repo fetch",
	  .group = G_REPO,
	  .operands = "REPO",
	  .summary = "bring a mirror up to date",
	  .about = "All of it or nothing: what breaks off leaves the mirror as it was. Options\n"
		   "replace what the mirror was added with. Branches to which `bough commit` put\n"
		   "commits stay apart from upstream's, and are named.\n",
	  .options = repo_fetch_options,
	  .examples = "bough repo fetch app\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "r",
	  .run = cmd_repo_fetch },
	{ .name = "repo ls",
	  .group = G_REPO,
	  .operands = "",
	  .summary = "list the mirrors",
	  .examples = "bough repo ls\n",
	  .max = 0,
	  .run = cmd_repo_ls },
	{ .name = "repo show",
	  .group = G_REPO,
	  .operands = "REPO",
	  .summary = "tell all about a mirror",
	  .examples = "bough repo show app\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "r",
	  .run = cmd_repo_show },
	{ .name = "repo reset",
	  .group = G_REPO,
	  .operands = "REPO BRANCH",
	  .summary = "put a mirror's local branch to where upstream's is",
	  .about = "A mirror has upstream's branches, as the last fetch or push saw them, and\n"
		   "local ones of the same names, to which `bough commit` puts commits. Refused\n"
		   "when commits would leave the branch, unless --force is given; they can still\n"
		   "be reached by id. With --force a branch that upstream hasn't is removed.\n",
	  .options = repo_reset_options,
	  .examples = "bough repo reset app main\nbough repo reset --force app main\n",
	  .min = 2,
	  .max = 2,
	  .kinds = "r",
	  .run = cmd_repo_reset },
	{ .name = "repo rm",
	  .group = G_REPO,
	  .operands = "REPO…",
	  .summary = "delete mirrors",
	  .about = "Refused while a workspace or snapshot was made from it.\n",
	  .examples = "bough repo rm app\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "r",
	  .run = cmd_repo_rm },
	{ 0 }
};
