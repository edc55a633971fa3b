/* Snapshots, what goes in and out of them, images, and files. */
#include "tools/bough/commands.h"

#define SNAPSHOT_COLUMNS                                                                          \
	"NEW is how much content was new or changed since the snapshot before, STORED what the\n" \
	"store grew by for it, compressed: nothing for what it had already.\n"

static const struct option_def watch_options[] = {
	{ .name = "here", .help = "only what is in that folder itself, nothing below its folders" },
	{ .name = "since",
	  .value = "ID",
	  .help = "what happened behind the event of that id (of the API's stream)" },
	{ .name = "count", .letter = 'n', .value = "N", .help = "end after so many events" },
	{ 0 }
};

static const struct option_def files_ls_options[] = {
	{ .name = "recursive", .letter = 'r', .help = "all that is below it, at one moment" }, { 0 }
};

static const struct option_def restore_options[] = {
	{ .name = "live", .help = "of a sandbox: only its workspaces, while it runs" }, { 0 }
};

static const struct option_def save_options[] = {
	OPT_MESSAGE,
	{ .name = "as", .value = "SNAPSHOT", .help = "a name for it" },
	OPT_BACKGROUND,
	{ 0 }
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
	  .help = "compare with this" },
	{ .name = "since",
	  .value = "WHAT",
	  .kind = WORD_CHOICE,
	  .choices = "base anchor",
	  .help = "of a checkout: base, where it began, or anchor, its last commit" },
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
	  .help = "tell its own git: the commit comes as bough/BRANCH, nothing else changes" },
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
	{ .name = "cascade", .help = "with all the snapshots that were made from it" },
	{ .name = "force",
	  .letter = 'f',
	  .help = "it alone; what was made from it is linked to its parent" },
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
	OPT_BACKGROUND,
	{ 0 }
};

static const struct option_def image_import_options[] = { OPT_MESSAGE, { 0 } };

static const struct option_def import_options[] = {
	{ .name = "as", .value = "SNAPSHOT", .help = "a name for the snapshot" }, OPT_MESSAGE,
	OPT_BACKGROUND, { 0 }
};

const struct command commands_snap[] = {
	{ .name = "save",
	  .group = G_SNAP,
	  .operands = "NAME",
	  .summary = "keep a workspace or sandbox as it is now, as a snapshot",
	  .about =
		  "Takes as long as what changed since the last save. Prints the snapshot's id.\n"
		  "When nothing has changed, the last snapshot is the answer. Of a sandbox: its\n"
		  "root and its workspaces at one moment, for which it is paused; the root's id\n"
		  "is told.\n",
	  .options = save_options,
	  .examples = "bough save app -m \"tests pass\" --as green\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "a",
	  .run = cmd_save },
	{ .name = "restore",
	  .group = G_SNAP,
	  .operands = "NAME SNAPSHOT",
	  .summary = "turn a workspace back into a snapshot, in place",
	  .about =
		  "It stays mounted, with the same id. What wasn't saved is gone; programs that\n"
		  "hold files open get ESTALE from them. A sandbox that runs is stopped, and\n"
		  "started again under the same name; with --live its workspaces alone are\n"
		  "turned back, under its running processes (not by Kata, which wouldn't\n"
		  "see it).\n",
	  .options = restore_options,
	  .examples = "bough restore app green\n",
	  .min = 2,
	  .max = 2,
	  .kinds = "as",
	  .run = cmd_restore },
	{ .name = "diff",
	  .group = G_SNAP,
	  .operands = "WORKSPACE|SNAPSHOT|SANDBOX",
	  .summary = "show what changed in a workspace, a snapshot or a sandbox's root",
	  .about = "Takes as long as what changed. Without --against a checkout is compared with\n"
		   "the commit it was made from, another workspace with the last snapshot saved\n"
		   "or restored, a snapshot with its parent. Letters: A added, D deleted,\n"
		   "M modified, R renamed, T another type of file. A patch tells of fifos,\n"
		   "sockets and devices in lines that `git apply` passes over.\n",
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
	  .about = SNAPSHOT_COLUMNS,
	  .examples = "bough log app\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "a",
	  .run = cmd_log },
	{ .name = "snapshots ls",
	  .group = G_SNAP,
	  .operands = "",
	  .summary = "list the snapshots",
	  .about = SNAPSHOT_COLUMNS,
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
	  .about = "Refused while a workspace stands on it or another snapshot was made from it,\n"
		   "unless --cascade or --force is given; workspaces stay as they are even then.\n"
		   "`bough gc` frees the space.\n",
	  .options = snapshots_rm_options,
	  .examples = "bough snapshots rm green\nbough snapshots rm --cascade old\n",
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
	  .operands = "SNAPSHOT|WORKSPACE|EXPORT",
	  .summary = "write a snapshot or a workspace as an archive",
	  .about = "A workspace is exported as it is now. Owners, modes, times, links, xattrs,\n"
		   "devices and holes are kept where the format can hold them: tar and tar.zst\n"
		   "hold all but sockets; zip no devices, fifos, hard links and xattrs, cpio no\n"
		   "xattrs, and neither what is below a second of a time. What wasn't kept is\n"
		   "counted on stderr, by `bough jobs wait` of one in the background.\n\n"
		   "With --background boughd writes it and keeps it for a day; the job's result\n"
		   "has the id of it, an EXPORT, which is then fetched by that id.\n",
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
		   "leaves its tree is refused whole. Prints the snapshot's id.\n\n"
		   "With --background it ends once all is sent; a job imports it then.\n",
	  .options = import_options,
	  .examples = "bough import app.tar.gz --as app-1.0\n"
		      "docker export c1 | bough import - --as image\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "f",
	  .run = cmd_import,
	  .begins = true },

	{ .name = "image import",
	  .group = G_IMAGE,
	  .operands = "NAME FILE|DIR|-",
	  .summary = "make an image of containers",
	  .about = "Of an OCI image layout, of what `docker save` or `podman save` writes, or\n"
		   "of a root filesystem as archive or folder. An image is a snapshot that also\n"
		   "says how a container of it begins; what images share is stored once.\n",
	  .options = image_import_options,
	  .examples = "bough image import debian debian.tar\n"
		      "docker save web:1 | bough image import web -\n"
		      "bough image import base ./rootfs\n",
	  .min = 2,
	  .max = 2,
	  .kinds = "nf",
	  .run = cmd_image_import,
	  .begins = true },
	{ .name = "image ls",
	  .group = G_IMAGE,
	  .operands = "",
	  .summary = "list the images",
	  .about = "SANDBOX is the one whose files, saved, are an image, too. NEW is what an\n"
		   "image holds beside that which it was saved from, STORED what that took.\n",
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
	  .about = "As `bough snapshots rm`: workspaces and sandboxes made of it stay.\n",
	  .options = snapshots_rm_options,
	  .examples = "bough image rm debian\n",
	  .min = 1,
	  .max = ANY,
	  .kinds = "s",
	  .run = cmd_image_rm },

	{ .name = "cp",
	  .group = G_FILE,
	  .operands = "SOURCE TARGET",
	  .summary = "copy files and folders into a workspace, out of one, or from one to another",
	  .about = "SOURCE is a path of this host, or NAME:PATH of a workspace, snapshot or\n"
		   "sandbox; TARGET the same, but no snapshot. A folder that is there gets the\n"
		   "copy under its name; else TARGET becomes it. Of FOLDER/. and NAME: the\n"
		   "content is copied. - is stdin or stdout: bytes of a file, or a tar stream\n"
		   "where the other side is a folder.\n"
		   "\n"
		   "A folder is copied with modes, owners (as root), times, links, xattrs and\n"
		   "holes. What is there and has no file of its name in SOURCE stays. Nobody\n"
		   "sees half of a file: it takes the place of an older one when it is whole.\n"
		   "Folders that are missing in a workspace are made.\n"
		   "\n"
		   "A copy whose connection breaks goes on by itself: of a single file where it\n"
		   "was (from 32 MiB on), of a folder without the files that are there. One that\n"
		   "was killed the same command goes on with: of a folder within a week, where\n"
		   "files that came and haven't changed in SOURCE since aren't sent again; of a\n"
		   "file from 32 MiB on, which goes in, within a day, where it is as it was. It\n"
		   "keeps a note until then, in $XDG_STATE_HOME/bough/cp or\n"
		   "~/.local/state/bough/cp.\n",
	  .examples = "bough cp src app:\nbough cp app:build/out out\nbough cp green:etc/. ./etc\n"
		      "bough cp app:logs - | tar tf -\n"
		      "bough cp build.log app:logs/\nbough cp green:bin/tool .\n"
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
	  .about = "A name with bytes that a terminal can't show is shown as a shell reads it:\n"
		   "$'a\\377b'. With -q a program gets the names themselves, a line each.\n",
	  .options = files_ls_options,
	  .examples = "bough files ls app:\nbough files ls green:src --recursive --json\n",
	  .min = 1,
	  .max = 1,
	  .kinds = "p",
	  .run = cmd_files_ls },
	{ .name = "watch",
	  .group = G_FILE,
	  .operands = "WORKSPACE [PATH]",
	  .summary = "show what happens to the files of a workspace, as it does",
	  .about =
		  "A line for each event: created, modified, deleted, renamed OLD -> NEW; reset:\n"
		  "what happened isn't known (a restore), look again. A folder that is renamed\n"
		  "is one event. With --json each line is a JSON document. It goes on when boughd\n"
		  "is restarted.\n",
	  .options = watch_options,
	  .examples = "bough watch app\nbough watch app src --json\n",
	  .min = 1,
	  .max = 2,
	  .kinds = "w",
	  .run = cmd_watch },
	{ 0 }
};
