/* Sandboxes. */
#include "tools/bough/commands.h"

#define OPT_ENV                                                                                  \
	{ .name = "env",                                                                         \
	  .letter = 'e',                                                                         \
	  .value = "K[=V]",                                                                      \
	  .many = true,                                                                          \
	  .help = "a variable of its environment, no secret (may be repeated)" },                \
	{                                                                                        \
		.name = "env-file", .value = "FILE|-", .kind = WORD_FILE, .many = true,          \
		.help = "lines K=V, which are kept nowhere but in the sandbox (may be repeated)" \
	}
#define OPT_SECRET                                                                    \
	{                                                                             \
		.name = "secret", .value = "NAME=FILE", .many = true,                 \
		.help = "a file that it finds as /run/secrets/NAME, and nobody else " \
			"(may be repeated)"                                           \
	}
#define OPTS_TERMINAL                                                                 \
	{ .name = "interactive", .letter = 'i', .help = "stdin is its input" },       \
	{                                                                             \
		.name = "tty", .letter = 't', .help = "it gets a terminal of its own" \
	}
#define OPT_USER                                                                     \
	{                                                                            \
		.name = "user", .letter = 'u', .value = "USER[:GROUP]",              \
		.help = "as whom: names of the sandbox's own, or numbers; else root" \
	}
#define OPT_CWD(missing)                                                           \
	{                                                                          \
		.name = "cwd", .letter = 'w', .value = "PATH",                     \
		.help = "where it begins" missing                                  \
			"; else /workspace, or where the image says"               \
	}

static const struct option_def run_options[] = {
	{ .name = "name", .value = "NAME", .help = "what it is called" },
	{ .name = "workspace",
	  .value = "W[:PATH][:ro][:exclusive]",
	  .many = true,
	  .help = "a workspace that it sees at /workspace, or PATH (may be repeated)" },
	{ .name = "from",
	  .value = "SNAPSHOT|WORKSPACE",
	  .kind = WORD_EITHER,
	  .help = "a new workspace that begins with this; it is called NAME-ws" },
	{ .name = "git",
	  .value = "REPO",
	  .kind = WORD_REPO,
	  .help = "the same, with a commit of a repository" },
	{ .name = "ref", .value = "REF|COMMIT", .help = "which commit of it" },
	{ .name = "scope", .value = "DIR", .many = true, .help = "only this folder of it" },
	{ .name = "depth", .value = "N", .help = "so many commits of its history" },
	{ .name = "branch", .value = "NAME", .help = "on a new branch of this name" },
	{ .name = "image",
	  .value = "IMAGE",
	  .kind = WORD_SNAPSHOT,
	  .help = "what its root begins with; \"host\" (the default) is this machine's /usr" },
	{ .name = "runtime",
	  .value = "RUNTIME",
	  .kind = WORD_CHOICE,
	  .choices = "runc runsc crun kata",
	  .help = "what runs it: runc, runsc, crun, kata; runc (or else crun) by default" },
	{ .name = "entrypoint",
	  .value = "PROGRAM",
	  .help = "in place of the image's own; \"\": none" },
	{ .name = "image-command", .help = "the command is the one that the image tells" },
	{ .name = "cpus", .value = "N", .help = "cores, 0.5 or 2; 1" },
	{ .name = "memory", .value = "SIZE", .help = "with swap; 2G" },
	{ .name = "pids", .value = "N", .help = "processes and threads; 512" },
	{ .name = "disk", .value = "SIZE", .help = "of its root; 10G" },
	{ .name = "inodes", .value = "N", .help = "files of its root; 1M" },
	{ .name = "shm-size", .value = "SIZE", .help = "of /dev/shm; 64M" },
	OPT_ENV,
	OPT_SECRET,
	OPT_USER,
	OPT_CWD(" (made if it isn't there)"),
	{ .name = "hostname", .value = "NAME", .help = "as it sees it" },
	{ .name = "net",
	  .value = "none|host",
	  .kind = WORD_CHOICE,
	  .choices = "none host",
	  .help = "none but a loopback (the default), or this machine's: for admins" },
	{ .name = "usr-local", .help = "of the image \"host\": its /usr/local, too" },
	OPT_LABEL,
	OPTS_KEEPING,
	{ .name = "rm",
	  .help = "remove it when its command has ended, with the workspace made for it" },
	{ .name = "detach", .letter = 'd', .help = "don't wait; print its name" },
	OPTS_TERMINAL,
	{ 0 }
};

static const struct option_def exec_options[] = {
	OPT_ENV,
	OPT_USER,
	OPT_CWD(""),
	{ .name = "timeout",
	  .value = "TIME",
	  .help = "then (500ms, 2m) all of it is ended, exit code 124; 0: never" },
	{ .name = "detach", .letter = 'd', .help = "don't wait; print its id" },
	OPTS_TERMINAL,
	{ 0 }
};

static const struct option_def shell_options[] = {
	OPT_USER,
	OPT_CWD(""),
	OPT_ENV,
	{ .name = "shell", .value = "PATH", .help = "which; else bash where there is one" },
	{ .name = "timeout", .value = "TIME", .help = "then it is ended" },
	{ 0 }
};

static const struct option_def ps_options[] = {
	{ .name = "label", .letter = 'l', .value = "K[=V]", .help = "only those with this label" },
	{ .name = "running", .help = "only those that run" },
	{ 0 }
};

static const struct option_def logs_options[] = {
	{ .name = "follow", .letter = 'f', .help = "go on until the process has ended" },
	{ .name = "since-byte", .value = "N", .help = "of stdout, from this byte on" },
	{ .name = "exec", .value = "EXEC", .help = "of this process, not the sandbox's own" },
	{ 0 }
};

static const struct option_def start_options[] = { OPT_SECRET,
						   { .name = "env-file",
						     .value = "FILE|-",
						     .kind = WORD_FILE,
						     .many = true,
						     .help = "as of run: it isn't kept" },
						   { 0 } };

static const struct option_def stop_options[] = { OPT_GRACE, { 0 } };

static const struct option_def kill_options[] = {
	{ .name = "signal", .letter = 's', .value = "SIGNAL", .help = "which; KILL" }, { 0 }
};

static const struct option_def detach_options[] = {
	{ .name = "target", .value = "PATH", .help = "which, where it is attached twice" },
	{ .name = "force", .help = "also while something uses it: that keeps it until it ends" },
	{ 0 }
};

const struct command commands_sandbox[] = {
	{ .name = "run",
	  .group = G_SANDBOX,
	  .operands = "[-- COMMAND…]",
	  .summary = "run a command in a new sandbox",
	  .about =
		  "A container whose root is a fork of an image, and whose /workspace is a\n"
		  "workspace. It has no network, its own users, and limits. All that it changes\n"
		  "can be saved, forked and restored. It is there until `bough rm`: it outlives\n"
		  "this program, the connection and boughd. Without a COMMAND it waits for\n"
		  "`bough exec`, but with --image-command. The exit code is the command's: 126\n"
		  "can't be executed, 127 isn't there, 128 + N ended by signal N; 125: what\n"
		  "failed was ours, or the command line. A lost connection is made again, and\n"
		  "output goes on at its byte.\n",
	  .options = run_options,
	  .examples = "bough run -- gcc --version\n"
		      "bough run --name dev --workspace app -d\n"
		      "bough run --rm --git app --ref v1.2 -- make test\n"
		      "bough run -it --image debian --secret key=key.pem -- bash\n"
		      "bough run -d --image web --image-command\n",
	  .min = 0,
	  .max = ANY,
	  .run = cmd_run,
	  .begins = true,
	  .as_program = true },
	{ .name = "exec",
	  .group = G_SANDBOX,
	  .operands = "SANDBOX -- COMMAND…",
	  .summary = "run a command in a sandbox that runs",
	  .about = "Exit codes as of `bough run`; 124: its time was over. A signal reaches all\n"
		   "that it has started. What it prints is kept, see `bough logs`.\n",
	  .options = exec_options,
	  .examples = "bough exec dev -- make -j2\nbough exec -it dev -- bash\n"
		      "bough exec -i dev -- tar x <src.tar\n",
	  .min = 2,
	  .max = ANY,
	  .kinds = "b0",
	  .run = cmd_exec,
	  .as_program = true },
	{ .name = "shell",
	  .group = G_SANDBOX,
	  .operands = "SANDBOX",
	  .summary = "a shell in a sandbox",
	  .options = shell_options,
	  .examples = "bough shell dev\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "b",
	  .run = cmd_shell,
	  .as_program = true },
	{ .name = "ps",
	  .group = G_SANDBOX,
	  .operands = "",
	  .summary = "list sandboxes",
	  .options = ps_options,
	  .examples = "bough ps\nbough ps --running -q\n",
	  .min = 0,
	  .max = 0,
	  .run = cmd_ps },
	{ .name = "inspect",
	  .group = G_SANDBOX,
	  .operands = "SANDBOX",
	  .summary = "all that is known of a sandbox and its processes, as JSON",
	  .examples = "bough inspect dev | jq .limits\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "b",
	  .run = cmd_inspect },
	{ .name = "logs",
	  .group = G_SANDBOX,
	  .operands = "SANDBOX|EXEC",
	  .summary = "print what a process in a sandbox has printed",
	  .about = "The newest 16 MiB of each stream are kept, also of a process that has ended, "
		   "and of all of\na sandbox's 256 MiB, those that ended first go first.\n",
	  .options = logs_options,
	  .examples = "bough logs dev -f\nbough logs ex_abcdefghij --since-byte 4096\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "b",
	  .run = cmd_logs },
	{ .name = "attach-workspace",
	  .group = G_SANDBOX,
	  .operands = "SANDBOX WORKSPACE[:PATH][:ro][:exclusive]",
	  .summary = "let a sandbox see a workspace, also while it runs",
	  .about =
		  "At /workspace, or PATH. A workspace may be attached to several; `exclusive`:\n"
		  "to this one alone.\n",
	  .examples = "bough attach-workspace dev data:/data:ro\n",
	  .min = 2,
	  .max = 2,
	  .kinds = "bw",
	  .run = cmd_attach_workspace },
	{ .name = "detach-workspace",
	  .group = G_SANDBOX,
	  .operands = "SANDBOX WORKSPACE",
	  .summary = "take a workspace away from a sandbox",
	  .about =
		  "Also from another's sandbox, if the workspace is yours: `bough show` of it\n"
		  "tells which have it. By its id, where it isn't shown to you any longer.\n",
	  .options = detach_options,
	  .examples = "bough detach-workspace dev data\n",
	  .min = 2,
	  .max = 2,
	  .kinds = "bw",
	  .run = cmd_detach_workspace },
	{ .name = "pause",
	  .group = G_SANDBOX,
	  .operands = "SANDBOX…",
	  .summary = "freeze the processes of sandboxes",
	  .examples = "bough pause dev\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "b",
	  .run = cmd_pause },
	{ .name = "resume",
	  .group = G_SANDBOX,
	  .operands = "SANDBOX…",
	  .summary = "let them go on",
	  .examples = "bough resume dev\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "b",
	  .run = cmd_resume },
	{ .name = "start",
	  .group = G_SANDBOX,
	  .operands = "SANDBOX…",
	  .summary = "start sandboxes that were stopped",
	  .about =
		  "With the files that they have, and the command that they were made with.\n"
		  "Secrets aren't kept: one that had some needs them again.\n",
	  .options = start_options,
	  .examples = "bough start dev\nbough start dev --secret key=key.pem\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "b",
	  .run = cmd_start },
	{ .name = "stop",
	  .group = G_SANDBOX,
	  .operands = "SANDBOX…",
	  .summary = "end the processes of sandboxes; their files stay",
	  .options = stop_options,
	  .examples = "bough stop dev\nbough stop dev --grace 1m\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "b",
	  .run = cmd_stop },
	{ .name = "kill",
	  .group = G_SANDBOX,
	  .operands = "SANDBOX…",
	  .summary = "send sandboxes a signal",
	  .options = kill_options,
	  .examples = "bough kill dev\nbough kill dev -s HUP\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "b",
	  .run = cmd_kill },
	{ 0 }
};
