/* What every command of `bough` shares: the table's rows, the parsed arguments, the context.
 *
 * The tables in commands_*.c are the one place where a command is described: parsing, `--help`,
 * `bough help`, completion and the check of the man page are all made from it. */
#ifndef BOUGH_TOOLS_CLI_H
#define BOUGH_TOOLS_CLI_H

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include "fs/base/err.h"

/* The documented exit codes. */
enum exit_code {
	EXIT_CODE_OK = 0,
	EXIT_CODE_FAILED = 1,
	EXIT_CODE_USAGE = 2,
	EXIT_CODE_NOT_FOUND = 3,
	EXIT_CODE_EXISTS = 4, /* or conflict */
	EXIT_CODE_BUSY = 5,
	EXIT_CODE_SPACE = 6,  /* out of space or over a quota */
	EXIT_CODE_OURS = 125, /* of run, exec and shell: what failed wasn't the program */
};

/* What a word on the command line names: for completion. */
enum word_kind {
	WORD_NONE = 0,
	WORD_NEW = 'n', /* a name that is to be: nothing to offer */
	WORD_WORKSPACE = 'w',
	WORD_SNAPSHOT = 's',
	WORD_EITHER = 'e',
	WORD_REPO = 'r',
	WORD_SANDBOX = 'b',
	WORD_ANY = 'a',     /* a workspace or a sandbox */
	WORD_DELETED = 'u', /* a workspace that can be brought back */
	WORD_JOB = 'j',
	WORD_HOOK = 'h',
	WORD_TOKEN = 'T',
	WORD_USER = 'U',
	WORD_TEAM = 't',
	WORD_FILE = 'f',
	WORD_PLACE = 'p',        /* NAME:PATH */
	WORD_EITHER_PLACE = 'q', /* that, or a file */
	WORD_FOLDER = 'd',
	WORD_COMMAND = 'c',
	WORD_CHOICE = 'k', /* one of option.choices */
};

struct option_def {
	const char *name;  /* long name without dashes; NULL ends a table */
	char letter;       /* 0: none */
	const char *value; /* what it takes, as help shows it; NULL: a flag */
	const char *help;
	char kind;           /* enum word_kind of the value */
	const char *choices; /* WORD_CHOICE: words separated by blanks; others are refused */
	bool many;           /* may be given more than once; else twice is an error */
};

struct cli;
struct args;
struct remote;

struct command {
	const char *name;                 /* one word, or two: "snapshots ls" */
	const char *group;                /* heading in the overview */
	const char *operands;             /* as usage shows them */
	const char *summary;              /* one line without its full stop */
	const char *about;                /* more lines, ended by \n; NULL: none */
	const struct option_def *options; /* NULL: none of its own */
	const char *examples;             /* lines, ended by \n */
	unsigned min, max;                /* operands */
	const char *kinds;                /* enum word_kind of each operand; the last one repeats */
	int (*run)(struct cli *cli, const struct args *a, struct err *err);
	const char *local; /* why it is for a boughd on this machine alone; NULL: it isn't */
	bool begins;       /* a root that isn't there yet is made, also where it was named */
	bool as_program;   /* its exit code is that of a program, so each failure of ours is 125 */
};

/* Several tables, each ended by name NULL; the list of them by NULL. */
extern const struct command *const command_tables[];
#define commands_each(c)                                                  \
	for (const struct command *const *t_ = command_tables; *t_; t_++) \
		for (const struct command *c = *t_; c->name; c++)
extern const struct option_def common_options[];

/* ---- arguments ---- */

struct arg_value {
	const struct option_def *opt;
	const char *value; /* borrowed from argv; NULL: a flag */
};

struct args {
	const struct command *cmd; /* NULL: no command was named */
	const char **operands;     /* n of them, borrowed from argv */
	unsigned n;
	struct arg_value *values;
	unsigned values_n;
	bool help, version;
};

/* -EINVAL with a line that names the nearest right word. The caller calls args_done in any case. */
int args_parse(struct args *a, int argc, char **argv, struct err *err);
void args_done(struct args *a);
/* The option's (last) value, "" for a flag; NULL: not given. `name` must be in a table. */
const char *args_get(const struct args *a, const char *name);
/* The i-th value of an option that may come many times; NULL behind the last. */
const char *args_each(const struct args *a, const char *name, unsigned i);
/* "10G", "512K", "1.5M", "4096": bytes, powers of 1024. -EINVAL. `what` is for the message. */
int args_size(const char *text, const char *what, uint64_t *out, struct err *err);
/* The same for things that are counted: "4096", "10K". */
int args_count(const char *text, const char *what, uint64_t *out, struct err *err);
/* "500ms", "1.5s", "10m", "24h", "7d", and "90", which is seconds: in milliseconds. -EINVAL, also
 * where it is no whole number of them. */
int args_duration(const char *text, const char *what, uint64_t *out, struct err *err);
/* The same in seconds: part of one counts as one. */
int args_seconds(const char *text, const char *what, uint64_t *out, struct err *err);
int args_number(const char *text, const char *what, uint64_t min, uint64_t max, uint64_t *out,
		struct err *err);
/* The command with that name, of one word or two; NULL. */
const struct command *command_find(const char *first, const char *second);
/* True where some command's name begins with this word and a blank. */
bool command_is_group(const char *word);
/* The command (of a group; NULL: any) whose name is nearest to `word`, when near enough; NULL. */
const char *nearest_command(const char *group, const char *word);

/* ---- help and completion, made from the table ---- */

void help_overview(void);
void help_command(const struct command *cmd);
int help_group(const char *group); /* -ENOENT: no such */

/* ---- context ---- */

struct cli {
	char *root;            /* absolute */
	bool root_there;       /* it has to be there: a slip of the pen makes no other one */
	struct remote *remote; /* a boughd elsewhere, instead of root's; NULL: none */
	bool json;             /* one JSON document on stdout */
	bool quiet;            /* no progress, no notes */
	bool bytes;            /* exact sizes */
	char *detail;          /* JSON of the API's last error; NULL */
	json_t *users;         /* whom owners_load asked for; NULL: it didn't yet */
	/* What api_kind found last: of kind_of, the name is of `kind`. NULL: nothing. */
	char *kind_name;
	unsigned kind_of, kind;
	bool background;  /* the next request is to become a job */
	bool uploading;   /* the last request carried a stream */
	bool sandbox_too; /* where the command takes a workspace, it takes a sandbox as well */
	bool reported;    /* the JSON document on stdout tells of the error already */
};

int cli_exit_code(int code); /* from -errno */
/* Where the state lives: `opt` (--root, NULL), BOUGH_ROOT, /var/lib/bough as root, the XDG state
 * folder. Absolute; the caller frees. -ENOENT: nothing tells where home is. */
int cli_root(const char *opt, char **out, struct err *err);
/* A boughd elsewhere: --url, or without --root BOUGH_URL; --auth or BOUGH_TOKEN_FILE; --ca or
 * BOUGH_CA. *out is NULL where none is named; remote_free. */
int cli_remote(const struct args *a, struct remote **out, struct err *err);

/* ---- the commands, by file ---- */

typedef int command_fn(struct cli *cli, const struct args *a, struct err *err);
/* ws.c */
command_fn cmd_create, cmd_path, cmd_ls, cmd_show, cmd_fork, cmd_rename, cmd_set, cmd_rm,
	cmd_undelete, cmd_mount, cmd_umount;
/* snap.c */
command_fn cmd_save, cmd_restore, cmd_log, cmd_snapshots_ls, cmd_snapshots_show, cmd_snapshots_rm,
	cmd_snapshots_tag;
/* image.c */
command_fn cmd_image_import, cmd_image_ls, cmd_image_show, cmd_image_rm;
/* jobs.c */
command_fn cmd_jobs_ls, cmd_jobs_show, cmd_jobs_wait, cmd_jobs_cancel, cmd_events, cmd_audit;
/* hooks.c */
command_fn cmd_webhook_add, cmd_webhook_ls, cmd_webhook_log, cmd_webhook_test, cmd_webhook_rm;
/* access.c */
command_fn cmd_token_create, cmd_token_ls, cmd_token_rm, cmd_user_add, cmd_user_ls, cmd_user_quota,
	cmd_user_rm, cmd_team_add, cmd_team_ls, cmd_team_join, cmd_team_leave, cmd_team_rm;
/* merge.c, apply.c */
command_fn cmd_merge, cmd_apply;
/* diff.c */
command_fn cmd_diff;
/* repo.c */
command_fn cmd_repo_add, cmd_repo_fetch, cmd_repo_ls, cmd_repo_show, cmd_repo_rm;
command_fn cmd_repo_reset;
/* git.c */
command_fn cmd_commit, cmd_push;
/* transfer.c */
command_fn cmd_export, cmd_import;
/* files.c */
command_fn cmd_cat, cmd_cp, cmd_files_ls;
/* run.c, sandbox.c */
command_fn cmd_run, cmd_exec, cmd_shell, cmd_logs, cmd_ps, cmd_inspect, cmd_stats_of,
	cmd_attach_workspace, cmd_detach_workspace, cmd_pause, cmd_resume, cmd_stop, cmd_start,
	cmd_kill;
/* watch.c */
command_fn cmd_watch;
/* service.c */
command_fn cmd_gc, cmd_fsck, cmd_stats, cmd_up, cmd_down, cmd_upgrade;
/* doctor.c */
command_fn cmd_doctor;
/* help.c, complete.c */
command_fn cmd_help, cmd_complete;

#endif
