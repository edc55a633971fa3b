/* The table of commands. Help, completion and the man page's test are made from it. */
#include "tools/bough/cli.h"

#define ANY UINT_MAX

const struct option_def common_options[] = {
	{ .name = "root",
	  .value = "DIR",
	  .kind = WORD_FOLDER,
	  .help = "where all state lies (BOUGH_ROOT; /var/lib/bough, or ~/.local/state/bough)" },
	{ .name = "json", .help = "one JSON document on stdout, errors too" },
	{ .name = "bytes", .help = "exact sizes and times" },
	{ .name = "quiet", .letter = 'q', .help = "no progress, no notes; lists print names only" },
	{ .name = "help", .letter = 'h', .help = "this help" },
	{ .name = "version", .help = "the version" },
	{ 0 }
};

#define OPT_LABEL                                                             \
	{                                                                     \
		.name = "label", .letter = 'l', .value = "K=V", .many = true, \
		.help = "a label of the new workspace (may be repeated)"      \
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
	{ .name = "label", .letter = 'l', .value = "K=V", .help = "only those with this label" },
	{ .name = "deleted", .help = "those that `bough undelete` can bring back" },
	{ 0 }
};

static const struct option_def rm_options[] = {
	{ .name = "now", .help = "for good, also one that was deleted before" }, { 0 }
};

static const struct option_def undelete_options[] = {
	{ .name = "as", .value = "NEW", .help = "under this name; else the one it had" }, { 0 }
};

static const struct option_def files_ls_options[] = {
	{ .name = "recursive", .letter = 'r', .help = "all that is below it, at one moment" }, { 0 }
};

static const struct option_def fork_options[] = {
	{ .name = "count",
	  .letter = 'n',
	  .value = "COUNT",
	  .help = "make NEW-1 … NEW-COUNT, at most 1000" },
	OPT_LABEL,
	{ 0 }
};

static const struct option_def save_options[] = {
	OPT_MESSAGE, { .name = "as", .value = "SNAPSHOT", .help = "a name for it" }, { 0 }
};

static const struct option_def apply_options[] = {
	{ .name = "to", .value = "CHECKOUT", .help = "a git checkout", .kind = WORD_FOLDER },
	{ .name = "commit", .help = "and commit there" },
	{ .name = "patch", .help = "write the files only, not the index" },
	{ .name = "message", .letter = 'm', .value = "TEXT", .help = "what the commit is about" },
	{ .name = "author", .value = "AUTHOR", .help = "\"Name <address>\" of the commit" },
	{ 0 },
};
static const struct option_def merge_options[] = {
	{ .name = "into",
	  .value = "OTHER",
	  .help = "the workspace that gets the changes",
	  .kind = WORD_WORKSPACE },
	{ 0 },
};
static const struct option_def diff_options[] = {
	{ .name = "against",
	  .value = "SNAPSHOT|WORKSPACE",
	  .kind = WORD_EITHER,
	  .help = "compare with this; else a checkout with its commit, others with the last "
		  "snapshot saved or restored, and a snapshot with its parent" },
	{ .name = "since",
	  .value = "WHAT",
	  .kind = WORD_CHOICE,
	  .choices = "base anchor",
	  .help = "of a checkout: the commit it was made from (base), or the last one that "
		  "`bough commit` made (anchor)" },
	{ .name = "name-status", .help = "a letter and the path of each file (the default)" },
	{ .name = "stat", .help = "how many lines of each file" },
	{ .name = "patch",
	  .letter = 'p',
	  .help = "the changes themselves, as git diff shows them" },
	{ 0 }
};

static const struct option_def commit_options[] = {
	{ .name = "message", .letter = 'm', .value = "TEXT", .help = "what the commit is about" },
	{ .name = "author",
	  .value = "NAME <ADDRESS>",
	  .help = "whose it is; else GIT_AUTHOR_NAME and GIT_AUTHOR_EMAIL, else Bough's own" },
	{ .name = "branch",
	  .letter = 'b',
	  .value = "BRANCH",
	  .help = "of the repository; else the one it was made with, else bough/NAME" },
	{ .name = "squash",
	  .help = "its own git has commits: take the files alone, as one commit" },
	{ .name = "history", .help = "its own git has commits: take these over" },
	{ .name = "sync",
	  .help = "tell its own git: the commit comes as origin/BRANCH, nothing else changes" },
	{ .name = "ignored", .help = "also untracked files that .gitignore leaves out" },
	{ 0 }
};

static const struct option_def push_options[] = {
	{ .name = "branch",
	  .letter = 'b',
	  .value = "BRANCH",
	  .help = "of the other side; else the one that was committed to" },
	{ .name = "remote",
	  .value = "URL",
	  .help = "push there; the repository's credentials are used for its own host only" },
	{ .name = "force-with-lease",
	  .help = "also where it is no fast-forward, if the branch is where it was last seen" },
	{ .name = "force-with-lease-of",
	  .value = "COMMIT",
	  .help = "the same, if the branch is at this commit (40 digits)" },
	{ .name = "any-names",
	  .help = "also names that other systems can't hold (con, a., A beside a)" },
	{ 0 }
};

static const struct option_def snapshots_ls_options[] = {
	{ .name = "workspace",
	  .letter = 'w',
	  .value = "NAME",
	  .kind = WORD_WORKSPACE,
	  .help = "only those that were saved from it" },
	{ 0 }
};

static const struct option_def snapshots_rm_options[] = {
	{ .name = "force",
	  .letter = 'f',
	  .help = "also when others were made from it; they are linked to its parent" },
	{ 0 }
};

static const struct option_def snapshots_tag_options[] = {
	{ .name = "remove",
	  .letter = 'r',
	  .value = "NAME",
	  .many = true,
	  .help = "take this name away (may be repeated)" },
	{ .name = "message", .letter = 'm', .value = "TEXT", .help = "replace its message" },
	{ 0 }
};

static const struct option_def export_options[] = {
	{ .name = "format",
	  .value = "FORMAT",
	  .kind = WORD_CHOICE,
	  .choices = "tar tar.zst zip cpio",
	  .help = "tar, tar.zst, zip or cpio; else by FILE's ending (.tzst too), else tar" },
	{ .name = "output",
	  .letter = 'o',
	  .value = "FILE",
	  .kind = WORD_FILE,
	  .help = "write to FILE, which appears only when it is whole; else to stdout" },
	{ 0 }
};

static const struct option_def image_import_options[] = { OPT_MESSAGE, { 0 } };
static const struct option_def import_options[] = {
	{ .name = "as", .value = "SNAPSHOT", .help = "a name for the snapshot" }, OPT_MESSAGE, { 0 }
};

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

static const struct option_def fsck_options[] = {
	{ .name = "repair", .help = "rebuild what can be rebuilt" }, { 0 }
};

static const struct option_def token_create_options[] = {
	{ .name = "scope",
	  .value = "SCOPE",
	  .help = "admin, or one workspace; else all that its owner may" },
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

#define G_WS     "Workspaces"
#define G_SNAP   "Snapshots"
#define G_IMAGE  "Images"
#define G_REPO   "Repositories"
#define G_FILE   "Files"
#define G_ACCESS "Users and tokens"
#define G_SYS    "The service"

const struct command commands[] = {
	{ .name = "create",
	  .group = G_WS,
	  .operands = "NAME",
	  .summary = "make a workspace and mount it",
	  .about = "Prints its mount point. Without --from, --dir, --tar or --git it is empty. A\n"
		   "folder or an archive is first imported as a snapshot, so each content is\n"
		   "stored once. A checkout has a .git of its own with the history of its commit\n"
		   "and nothing else of the repository; the second one of a commit is there at\n"
		   "once.\n",
	  .options = create_options,
	  .examples = "bough create app --dir ~/src/app\n"
		      "bough create try --from app --quota 2G --label task=42\n"
		      "bough create fix --git linux --ref v6.1 --scope drivers/net --branch fix\n"
		      "curl -sL https://example.org/app.tar.gz | bough create app --tar -\n",
	  .min = 1,
	  .max = 1,
	  .run = cmd_create },
	{ .name = "path",
	  .group = G_WS,
	  .operands = "NAME",
	  .summary = "print where it is mounted",
	  .examples = "cd \"$(bough path app)\"\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "w",
	  .run = cmd_path },
	{ .name = "ls",
	  .group = G_WS,
	  .operands = "",
	  .summary = "list the workspaces",
	  .about = "USED is what a workspace wrote itself; what it shares isn't counted.\n",
	  .options = ls_options,
	  .examples = "bough ls\nbough ls --label task=42 --json\nbough ls -q | xargs bough rm\n",
	  .max = 0,
	  .run = cmd_ls },
	{ .name = "show",
	  .group = G_WS,
	  .operands = "NAME",
	  .summary = "tell all about a workspace",
	  .examples = "bough show app\nbough show app --json\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "w",
	  .run = cmd_show },
	{ .name = "fork",
	  .group = G_WS,
	  .operands = "NAME [NEW…]",
	  .summary = "copy a workspace as it is now, in milliseconds",
	  .about = "The copies hold every write that has returned, also while others write, and\n"
		   "share all content until it is changed. Prints the new names.\n",
	  .options = fork_options,
	  .examples = "bough fork app try-a try-b\n"
		      "bough fork app ci -n 100            # ci-1 … ci-100\n"
		      "bough fork app -n 3                 # app-1 … app-3\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "w.",
	  .run = cmd_fork },
	{ .name = "rename",
	  .group = G_WS,
	  .operands = "NAME NEW",
	  .summary = "give it another name",
	  .about = "Its id stays. It stays mounted where it is.\n",
	  .examples = "bough rename try-a app-2\n",
	  .min = 2,
	  .max = 2,
	  .kinds = "w.",
	  .run = cmd_rename },
	{ .name = "set",
	  .group = G_WS,
	  .operands = "NAME",
	  .summary = "change its quota, its labels, who sees it, how long it is kept",
	  .about = "It may stay mounted and in use. A limit below what the workspace has written\n"
		   "lets it write no more until it has freed enough.\n",
	  .options = set_options,
	  .examples = "bough set app --quota 20G --inodes none\n"
		      "bough set app --label task=43 --no-label draft\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "w",
	  .run = cmd_set },
	{ .name = "rm",
	  .group = G_WS,
	  .operands = "NAME…",
	  .summary = "unmount and delete workspaces",
	  .about =
		  "Their names are free at once. For an hour (one that expired: a day; boughd(8)\n"
		  "says how to change that) `bough undelete` brings one back; until then it takes\n"
		  "its space. With --now, or while the disk is nearly full, it is gone. What was\n"
		  "saved stays as snapshots in any case.\n",
	  .options = rm_options,
	  .examples = "bough rm try-a try-b\nbough rm --now big\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "w",
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

	{ .name = "save",
	  .group = G_SNAP,
	  .operands = "NAME",
	  .summary = "keep a workspace as it is now, as a snapshot",
	  .about = "Takes as long as what changed since the last save. Prints the snapshot's id.\n"
		   "When nothing has changed, the last snapshot is the answer.\n",
	  .options = save_options,
	  .examples = "bough save app -m \"tests pass\" --as green\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "w",
	  .run = cmd_save },
	{ .name = "restore",
	  .group = G_SNAP,
	  .operands = "NAME SNAPSHOT",
	  .summary = "turn a workspace back into a snapshot, in place",
	  .about = "It stays mounted, with the same id. What wasn't saved is gone; programs that\n"
		   "hold files open get ESTALE from them.\n",
	  .examples = "bough restore app green\n",
	  .min = 2,
	  .max = 2,
	  .kinds = "ws",
	  .run = cmd_restore },
	{ .name = "diff",
	  .group = G_SNAP,
	  .operands = "WORKSPACE|SNAPSHOT",
	  .summary = "show what changed in a workspace or a snapshot",
	  .about = "Takes as long as what changed. Letters: A added, D deleted, M modified,\n"
		   "R renamed, T another type of file. A patch tells of fifos, sockets and\n"
		   "devices in lines that `git apply` passes over.\n",
	  .options = diff_options,
	  .examples = "bough diff app\nbough diff try-a --against app --patch\n"
		      "bough diff app --against green --stat\n"
		      "bough diff green --against blue     # two snapshots\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "e",
	  .run = cmd_diff },
	{ .name = "commit",
	  .group = G_SNAP,
	  .operands = "NAME",
	  .summary = "make a commit in the repository of what a checkout changed",
	  .about = "NAME is a workspace or snapshot that was made with --git. One commit, on the\n"
		   "last one made so (at first the one it began with), moves BRANCH of bough's\n"
		   "mirror; `bough push` sends it on. Nothing in the workspace is run or changed.\n"
		   "When commits were made with git inside of it, that is said, with exit code 4,\n"
		   "until --squash or --history decides. Prints the commit's id; when nothing has\n"
		   "changed, the last one's.\n",
	  .options = commit_options,
	  .examples = "bough commit fix -m \"net: free the skb once\"\n"
		      "bough commit fix -m \"wip\" --author \"Jo <jo@example.org>\"\n"
		      "bough commit fix --history\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "e",
	  .run = cmd_commit },
	{ .name = "push",
	  .group = G_SNAP,
	  .operands = "NAME",
	  .summary = "send a workspace's last commit to where its repository came from",
	  .about = "A fast-forward or a new branch only. With the credentials that the repository\n"
		   "was added with; none of them ever is in a workspace.\n",
	  .options = push_options,
	  .examples = "bough push fix\nbough push fix --branch net-fix\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "w",
	  .run = cmd_push },
	{ .name = "apply",
	  .group = G_SNAP,
	  .operands = "NAME --to CHECKOUT",
	  .summary = "bring a checkout's changes into another checkout of the repository",
	  .about =
		  "NAME is a workspace or snapshot that was made with --git. What it changed\n"
		  "since its commit is merged into HEAD of CHECKOUT three ways and written with\n"
		  "your rights: all of it, or with conflicts or local changes in the way nothing,\n"
		  "and the exit code is 4. No hook runs.\n",
	  .options = apply_options,
	  .examples = "bough apply task-7 --to ~/src/project\n"
		      "bough apply task-7 --to ~/src/project --commit -m parser\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "e",
	  .run = cmd_apply },
	{ .name = "merge",
	  .group = G_SNAP,
	  .operands = "NAME --into OTHER",
	  .summary = "bring what a workspace or snapshot changed into another workspace",
	  .about = "Both come from a common origin: a fork, a snapshot or a commit. What NAME\n"
		   "changed since then is done to OTHER, wherever OTHER has moved it to; texts\n"
		   "that both changed are merged line by line. With conflicts, which are listed,\n"
		   "nothing is changed, and the exit code is 4. OTHER stays mounted. Checkouts\n"
		   "of one repository that are no forks of one are merged as git does.\n",
	  .options = merge_options,
	  .examples = "bough merge try-a --into app\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "e",
	  .run = cmd_merge },
	{ .name = "log",
	  .group = G_SNAP,
	  .operands = "NAME",
	  .summary = "show its line of snapshots",
	  .examples = "bough log app\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "w",
	  .run = cmd_log },
	{ .name = "snapshots ls",
	  .group = G_SNAP,
	  .operands = "",
	  .summary = "list the snapshots",
	  .options = snapshots_ls_options,
	  .examples = "bough snapshots ls\nbough snapshots ls --workspace app\n",
	  .max = 0,
	  .run = cmd_snapshots_ls },
	{ .name = "snapshots show",
	  .group = G_SNAP,
	  .operands = "SNAPSHOT",
	  .summary = "tell all about a snapshot",
	  .about =
		  "A snapshot is named by one of its names, by its id, or by 6 or more characters\n"
		  "of the id.\n",
	  .examples = "bough snapshots show green\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "s",
	  .run = cmd_snapshots_show },
	{ .name = "snapshots rm",
	  .group = G_SNAP,
	  .operands = "SNAPSHOT…",
	  .summary = "delete snapshots",
	  .about = "Refused while a workspace stands on it or another snapshot was made from it.\n"
		   "`bough gc` frees the space.\n",
	  .options = snapshots_rm_options,
	  .examples = "bough snapshots rm green\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "s",
	  .run = cmd_snapshots_rm },
	{ .name = "snapshots tag",
	  .group = G_SNAP,
	  .operands = "SNAPSHOT [NAME…]",
	  .summary = "give a snapshot names, or take them away",
	  .options = snapshots_tag_options,
	  .examples = "bough snapshots tag sn_k3v6q2 release\n"
		      "bough snapshots tag release release-1 --remove release\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "s.",
	  .run = cmd_snapshots_tag },
	{ .name = "export",
	  .group = G_SNAP,
	  .operands = "SNAPSHOT|WORKSPACE",
	  .summary = "write a snapshot or a workspace as an archive",
	  .about = "A workspace is exported as it is now. Owners, modes, times, links, xattrs,\n"
		   "devices and holes are kept where the format can hold them: tar and tar.zst "
		   "hold\nall but sockets. What couldn't be kept is counted on stderr.\n",
	  .options = export_options,
	  .examples = "bough export green -o green.tar.zst\nbough export app | ssh host tar x\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "e",
	  .run = cmd_export },
	{ .name = "import",
	  .group = G_SNAP,
	  .operands = "FILE|-",
	  .summary = "make a snapshot from an archive",
	  .about = "tar (also compressed), zip or cpio; - is stdin. An archive with a path that\n"
		   "leaves its tree is refused whole. Prints the snapshot's id.\n",
	  .options = import_options,
	  .examples = "bough import app.tar.gz --as app-1.0\n"
		      "docker export c1 | bough import - --as image\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "f",
	  .run = cmd_import },

	{ .name = "image import",
	  .group = G_IMAGE,
	  .operands = "NAME FILE|DIR|-",
	  .summary = "make an image of containers",
	  .about = "Of an OCI image layout, of what `docker save` or `podman save` writes, or of a\n"
		   "root filesystem as archive or folder. An image is a snapshot that also says\n"
		   "how a container of it begins; what images have in common is stored once.\n",
	  .options = image_import_options,
	  .examples = "bough image import debian debian.tar\n"
		      "docker save app:1 | bough image import app -\n"
		      "bough image import base ./rootfs\n",
	  .min = 2,
	  .max = 2,
	  .kinds = "nf",
	  .run = cmd_image_import },
	{ .name = "image ls",
	  .group = G_IMAGE,
	  .operands = "",
	  .summary = "list the images",
	  .examples = "bough image ls\n",
	  .max = 0,
	  .run = cmd_image_ls },
	{ .name = "image show",
	  .group = G_IMAGE,
	  .operands = "IMAGE",
	  .summary = "tell how a container of an image begins",
	  .examples = "bough image show debian\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "s",
	  .run = cmd_image_show },
	{ .name = "image rm",
	  .group = G_IMAGE,
	  .operands = "IMAGE…",
	  .summary = "delete images",
	  .about = "As `bough snapshots rm`: sandboxes and workspaces that were made of it stay.\n",
	  .options = snapshots_rm_options,
	  .examples = "bough image rm debian\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "s",
	  .run = cmd_snapshots_rm },

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
	  .run = cmd_repo_add },
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

	{ .name = "cp",
	  .group = G_FILE,
	  .operands = "FILE WORKSPACE:PATH | WORKSPACE:PATH FILE",
	  .summary = "copy a file into a workspace, or out of one",
	  .about = "Out of a snapshot, too. - is stdin or stdout; a folder, or a path that ends\n"
		   "with /, gets the file under its name. Nobody sees half of it: it takes the\n"
		   "place of an older one when it is whole. Folders that are missing in the\n"
		   "workspace are made.\n",
	  .examples = "bough cp build.log app:logs/\nbough cp green:bin/tool .\n"
		      "make 2>&1 | bough cp - app:make.log\n",
	  .min = 2,
	  .max = 2,
	  .kinds = "q",
	  .run = cmd_cp },
	{ .name = "cat",
	  .group = G_FILE,
	  .operands = "WORKSPACE:PATH|SNAPSHOT:PATH…",
	  .summary = "print files",
	  .about = "Nothing is mounted for it. Symbolic links aren't followed.\n",
	  .examples = "bough cat app:Makefile\nbough cat green:etc/hosts green:etc/passwd\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "p",
	  .run = cmd_cat },
	{ .name = "files ls",
	  .group = G_FILE,
	  .operands = "WORKSPACE:[PATH]|SNAPSHOT:[PATH]",
	  .summary = "list a folder of a workspace or a snapshot",
	  .about = "In the order that the file system has them in.\n",
	  .options = files_ls_options,
	  .examples = "bough files ls app:\nbough files ls green:src --recursive --json\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "p",
	  .run = cmd_files_ls },

	{ .name = "token create",
	  .group = G_ACCESS,
	  .operands = "",
	  .summary = "make a token for calls over the network",
	  .about = "Prints it, this once: only its hash is kept. Clients send it as\n"
		   "`Authorization: Bearer TOKEN`.\n",
	  .options = token_create_options,
	  .examples = "bough token create --name ci --expires 24h\n"
		      "bough token create --scope app --read-only\n",
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
	{ .name = "user rm",
	  .group = G_ACCESS,
	  .operands = "NAME…",
	  .summary = "delete users, with their tokens and memberships",
	  .about = "What they made stays.\n",
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
	{ .name = "__complete", .operands = "N WORD…", .min = 1, .max = ANY, .run = cmd_complete },
	{ 0 }
};
