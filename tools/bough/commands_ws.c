/* Workspaces. */
#include "tools/bough/commands.h"

static const struct option_def create_options[] = {
	{ .name = "from",
	  .value = "SNAPSHOT|WORKSPACE",
	  .kind = WORD_EITHER,
	  .help = "begin with what it shows (a workspace: as it is now)" },
	{ .name = "dir",
	  .value = "PATH",
	  .kind = WORD_FOLDER,
	  .help = "begin with a copy of a folder" },
	{ .name = "tar",
	  .value = "FILE|-",
	  .kind = WORD_FILE,
	  .help = "begin with an archive: tar (also compressed), zip, cpio; - is stdin" },
	{ .name = "git",
	  .value = "REPO",
	  .kind = WORD_REPO,
	  .help = "begin with a commit of a repository that `bough repo` knows" },
	{ .name = "ref",
	  .value = "REF|COMMIT",
	  .help = "which: a branch, a tag, a commit's id; else what its HEAD says" },
	{ .name = "scope",
	  .value = "DIR",
	  .many = true,
	  .help = "only this folder, and the files of those above it (may be repeated)" },
	{ .name = "depth", .value = "N", .help = "so many commits of its history; else all" },
	{ .name = "branch", .value = "NAME", .help = "on a new branch of this name" },
	{ .name = "seen-at",
	  .value = "PATH",
	  .help = "where git will see it, in a container: its first status is quick there" },
	OPT_QUOTA,
	OPT_INODES,
	OPT_LABEL,
	OPTS_KEEPING,
	{ .name = "no-mount", .help = "don't mount it yet" },
	{ .name = "no-xattrs",
	  .help = "no extended attributes: fewer questions of the kernel (untar, chown)" },
	{ 0 }
};

static const struct option_def set_options[] = {
	OPT_QUOTA,
	OPT_INODES,
	{ .name = "label",
	  .letter = 'l',
	  .value = "K=V",
	  .many = true,
	  .help = "give it this label, or another value (may be repeated)" },
	{ .name = "no-label",
	  .value = "K",
	  .many = true,
	  .help = "take the label away (may be repeated)" },
	OPTS_KEEPING,
	{ 0 }
};

static const struct option_def ls_options[] = {
	{ .name = "label", .letter = 'l', .value = "K[=V]", .help = "only those with this label" },
	{ .name = "deleted", .help = "those that `bough undelete` can bring back" },
	{ 0 }
};

static const struct option_def rm_options[] = {
	{ .name = "now", .help = "for good, also one that was deleted before" },
	{ .name = "force",
	  .help = "also a sandbox that runs, and a workspace that programs use or sandboxes have" },
	{ .name = "workspaces", .help = "of a sandbox: also those that were made for it" },
	{ 0 }
};

static const struct option_def undelete_options[] = {
	{ .name = "as", .value = "NEW", .help = "under this name; else the one it had" }, { 0 }
};

static const struct option_def fork_options[] = {
	{ .name = "count",
	  .letter = 'n',
	  .value = "COUNT",
	  .help = "make NEW-1 … NEW-COUNT, at most 1000" },
	OPT_LABEL,
	OPTS_KEEPING,
	{ .name = "start", .help = "of a sandbox: start the copies" },
	{ 0 }
};

const struct command commands_ws[] = {
	{ .name = "create",
	  .group = G_WS,
	  .operands = "NAME",
	  .summary = "make a workspace and mount it",
	  .about = "Prints its mount point. Without --from, --dir, --tar or --git it is empty. A\n"
		   "folder or an archive becomes a snapshot with it, so each content is stored\n"
		   "once; it is made whole or not at all. A checkout has a .git of its own with\n"
		   "the history of its commit and nothing else of the repository; the second one\n"
		   "of a commit is there at once.\n",
	  .options = create_options,
	  .examples = "bough create app --dir ~/src/app\n"
		      "bough create try --from app --quota 2G --label task=42\n"
		      "bough create fix --git linux --ref v6.1 --scope drivers/net --branch fix\n"
		      "curl -sL https://example.org/app.tar.gz | bough create app --tar -\n",
	  .min = 1,
	  .max = 1,
	  .run = cmd_create,
	  .begins = true },
	{ .name = "path",
	  .group = G_WS,
	  .operands = "NAME",
	  .summary = "print where it is mounted; of a sandbox, its root",
	  .local = "a mount point is on boughd's machine; cp, cat, files ls and exec reach "
		   "its files",
	  .examples = "cd \"$(bough path app)\"\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "a",
	  .run = cmd_path },
	{ .name = "ls",
	  .group = G_WS,
	  .operands = "",
	  .summary = "list the workspaces",
	  .about = "WRITTEN is what has been written in a workspace, and is still there; what it\n"
		   "shares with others isn't counted.\n",
	  .options = ls_options,
	  .examples = "bough ls\nbough ls --label task=42 --json\nbough ls -q | xargs bough rm\n",
	  .max = 0,
	  .run = cmd_ls },
	{ .name = "show",
	  .group = G_WS,
	  .operands = "NAME",
	  .summary = "tell all about a workspace or sandbox",
	  .examples = "bough show app\nbough show app --json\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "a",
	  .run = cmd_show },
	{ .name = "fork",
	  .group = G_WS,
	  .operands = "NAME [NEW…]",
	  .summary = "copy a workspace or sandbox as it is now, in milliseconds",
	  .about =
		  "The copies hold every write that has returned, also while others write, and\n"
		  "share all content until it is changed. Prints the new names. Of a sandbox: its\n"
		  "files and those of its workspaces at one moment; the copies have no processes,\n"
		  "as after a power cut, until they are started. How long it was paused is told.\n",
	  .options = fork_options,
	  .examples = "bough fork app try-a try-b\n"
		      "bough fork app ci -n 100 --ttl 1h   # ci-1 … ci-100\n"
		      "bough fork app -n 3                 # app-1 … app-3\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "a.",
	  .run = cmd_fork },
	{ .name = "rename",
	  .group = G_WS,
	  .operands = "NAME NEW",
	  .summary = "give it another name",
	  .about = "Of a workspace or sandbox. Its id stays. It stays mounted where it is.\n",
	  .examples = "bough rename try-a app-2\n",
	  .min = 2,
	  .max = 2,
	  .kinds = "a.",
	  .run = cmd_rename },
	{ .name = "set",
	  .group = G_WS,
	  .operands = "NAME",
	  .summary = "change its quota, its labels, who sees it, how long it is kept",
	  .about = "It may stay mounted and in use. A limit below what the workspace has written\n"
		   "lets it write no more until it has freed enough. Of a sandbox all but the\n"
		   "limits can be changed.\n",
	  .options = set_options,
	  .examples = "bough set app --quota 20G --inodes none\n"
		      "bough set app --label task=43 --no-label draft\n"
		      "bough set dev --ttl 2h --on-expiry save\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "a",
	  .run = cmd_set },
	{ .name = "rm",
	  .group = G_WS,
	  .operands = "NAME…",
	  .summary = "delete workspaces and sandboxes",
	  .about =
		  "Their names are free at once. For an hour (one that expired: a day; boughd(8)\n"
		  "says how to change that) `bough undelete` brings one back; until then it takes\n"
		  "its space. With --now, or while the disk is nearly full, it is gone. What was\n"
		  "saved stays as snapshots in any case. A sandbox is gone at once; the\n"
		  "workspaces that it used stay, also those that `bough run` and `bough fork`\n"
		  "made for it (NAME-ws), unless it was run to be removed; --workspaces takes\n"
		  "these, too. A workspace that programs use, or sandboxes have attached, stays\n"
		  "(exit code 5); with --force the programs get errors from what they have open\n"
		  "there, and it is taken from all sandboxes first, also from those of others.\n",
	  .options = rm_options,
	  .examples = "bough rm try-a try-b\nbough rm --now big\nbough rm --force dev\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "a",
	  .run = cmd_rm },
	{ .name = "undelete",
	  .group = G_WS,
	  .operands = "NAME",
	  .summary = "bring back a workspace that was deleted or has expired",
	  .about = "NAME is its name or id; of several the one that was deleted last. It is as it\n"
		   "was, and mounted where it was. `bough ls --deleted` lists what there is.\n",
	  .options = undelete_options,
	  .examples = "bough undelete try-a\nbough undelete try-a --as try-a-old\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "u",
	  .run = cmd_undelete },
	{ .name = "mount",
	  .group = G_WS,
	  .operands = "NAME…",
	  .summary = "mount workspaces",
	  .about = "Prints the mount points. They are mounted again whenever the service starts.\n",
	  .examples = "bough mount app\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "w",
	  .run = cmd_mount },
	{ .name = "umount",
	  .group = G_WS,
	  .operands = "NAME…",
	  .summary = "unmount workspaces",
	  .about = "Nothing is lost; they stay unmounted until `bough mount`.\n",
	  .examples = "bough umount app\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "w",
	  .run = cmd_umount },
	{ 0 }
};
