/* The model of several processes: random system calls on mounted workspaces and the same on plain
 * directories; results, errors, what is read and whole trees must be the same. While the clients
 * are at it, bough-fs is killed and workspaces are forked, saved and collected beside them (and
 * flattened, since each fork lengthens the stack); in between there are forks to go on in,
 * restores, unmounts, ends of boughd and of all.
 *
 *     procs [--ops N] [--seconds N] [--seed S] [--clients N] [--shrink-s N] [--sabotage]
 *     procs --replay FILE
 *
 * Each client has a folder of its own, so that what its calls give depends on nobody else. What is
 * done is a script (procs_op.h): of a run that fails it is made as short as will still fail, and
 * printed. `--sabotage` leaves a call out on one side now and then, to try just that. */
#include "tests/model/procs_run.h"
#include "tests/seed.h"

/* ---- choosing ---- */

/* A path of few names; its folders are mostly there. */
static void pick_path(uint64_t *rng, int host, char out[OP_PATH])
{
	struct stat st;
	unsigned len = 0;
	for (unsigned depth = below(rng, 4); depth > 0; depth--) {
		unsigned was = len;
		for (unsigned tries = 0; tries < 5; tries++) {
			len = was + (unsigned)snprintf(out + was, OP_PATH - was, "%c%u/",
						       'a' + below(rng, 3), below(rng, 3));
			if (fstatat(host, out, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			    S_ISDIR(st.st_mode))
				break;
		}
	}
	(void)snprintf(out + len, OP_PATH - len, "%c%u", 'a' + below(rng, 3), below(rng, 5));
}

static uint32_t pick_off(uint64_t *rng)
{
	switch (below(rng, 8)) {
	case 0:
		return below(rng, 16) * 4096;
	case 1:
		return below(rng, 16) * 4096 + below(rng, 40);
	case 2:
		return below(rng, 30) ? below(rng, 65536) : (1 << 20) - 8192 + below(rng, 16384);
	default:
		return below(rng, 6000);
	}
}

static uint32_t pick_len(uint64_t *rng)
{
	return below(rng, 5)    ? below(rng, 5000)
	       : below(rng, 10) ? 4096 * (1 + below(rng, 4))
				: below(rng, OP_BYTES);
}

static void pick_op(struct op *o, uint64_t *rng, const int host[PAIRS])
{
	unsigned total = 0, kind = 0;
	for (unsigned i = 0; i < OP_KINDS; i++)
		total += op_kinds[i].weight;
	for (unsigned x = below(rng, total); x >= op_kinds[kind].weight; kind++)
		x -= op_kinds[kind].weight;
	*o = (struct op){ .kind = (uint8_t)kind };
	do
		o->ws = (uint8_t)below(rng, PAIRS);
	while (host[o->ws] < 0);
	pick_path(rng, host[o->ws], o->a);
	for (unsigned tries = 0; tries < 3 && kind != OP_CREATE && kind != OP_MKDIR; tries++)
		if (faccessat(host[o->ws], o->a, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			pick_path(rng, host[o->ws], o->a); /* mostly what is there */
	pick_path(rng, host[o->ws], o->b);
	o->x = pick_off(rng);
	o->y = pick_len(rng);
	o->z = (uint32_t)next(rng) >> 1;
	if (kind == OP_COPY) {
		o->y = pick_off(rng);
		o->z = below(rng, 4) ? o->z % 70000 : OP_CONTENT - 1;
	}
	if (kind == OP_CHMOD || kind == OP_MKDIR)
		o->x = (o->z & 07777) | 0700;
	if (kind == OP_MKNOD || kind == OP_RENAME || kind == OP_CREATE || kind == OP_CHOWN ||
	    kind == OP_SETXATTR || kind == OP_GETXATTR || kind == OP_NOXATTR)
		o->x = o->z / 8;
	if (kind == OP_TMPFILE && below(rng, 3)) {
		char *slash = strrchr(o->a, '/');
		(void)snprintf(slash ? slash : o->a, 2, "%s", slash ? "" : ".");
	}
	if (geteuid() != 0 && kind == OP_CHOWN)
		o->kind = OP_STAT;
}

/* ---- a client ---- */

static void client_folder(char out[24], unsigned id)
{
	(void)snprintf(out, 24, "client-%u", id);
}

/* Its folder in a fork, or in a workspace made from a snapshot, of this moment: nobody else changes
 * it, whatever the others do in theirs. What a kill broke off tells nothing. */
static void check_copy(unsigned id, const struct op *o, uint32_t n)
{
	struct pair *p = &m.pairs[o->ws];
	char name[60], snap[60], mnt[PATH_MAX], folder[24];
	client_folder(folder, id);
	(void)snprintf(name, sizeof(name), "t%u-%u-%u", m.serial, id, n);
	(void)snprintf(snap, sizeof(snap), "s%u-%u-%u", m.serial, id, n);
	bool saved = o->kind == OP_SAVED;
	if (saved && BOUGH("save", p->name, "--as", snap) != 0)
		return;
	int r = saved ? bough(mnt, sizeof(mnt), "create", name, "--from", snap, NULL)
		      : bough(NULL, 0, "fork", p->name, name, NULL);
	if (r == 0 && bough(mnt, sizeof(mnt), "path", name, NULL) == 0 && mnt[0] == '/') {
		compare(saved ? "a snapshot" : "a fork", mnt, p->dir, folder);
		atomic_fetch_add(saved ? &shared->saves : &shared->forks, 1);
	}
	(void)BOUGH("rm", name);
	if (saved)
		(void)BOUGH("snapshots", "rm", snap);
}

static void one_op(unsigned id, const struct op *o, uint32_t n, const int mine[PAIRS],
		   const int host[PAIRS], int held[2][PAIRS][OP_HELD])
{
	static struct op_out a, b;
	char line[OP_LINE];
	if (o->kind == OP_FORKED || o->kind == OP_SAVED) {
		check_copy(id, o, n);
		return;
	}
	if (o->ws >= PAIRS || mine[o->ws] < 0)
		return;
	long h = op_do(host[o->ws], o, held[1][o->ws], &b, true);
	if (m.sabotage && o->kind == OP_WRITE && o->y % 13 == 5 && h > 100)
		return;
	long r = op_do(mine[o->ws], o, held[0][o->ws], &a, false);
	op_print(line, o);
	if (r != h)
		differ("client %u, %s: %ld (%s), host %ld (%s)", id, line, r,
		       r < 0 ? strerrorname_np((int)-r) : "ok", h,
		       h < 0 ? strerrorname_np((int)-h) : "ok");
	if (a.n != b.n || memcmp(a.data, b.data, a.n) != 0)
		differ("client %u, %s: other bytes than the host%s%.*s%s%.*s", id, line,
		       o->kind == OP_STAT ? ": " : "", o->kind == OP_STAT ? (int)a.n : 0, a.data,
		       o->kind == OP_STAT ? ", host " : "", o->kind == OP_STAT ? (int)b.n : 0,
		       b.data);
}

static void client(unsigned id)
{
	int mine[PAIRS], host[PAIRS], held[2][PAIRS][OP_HELD];
	char path[PATH_MAX + 30], folder[24];
	uint64_t rng = m.seed ^ m.serial * UINT64_C(1000003) ^ id * UINT64_C(0x9e3779b97f4a7c15);
	struct segment *s = &shared->now;
	memset(held, -1, sizeof(held));
	client_folder(folder, id);
	for (unsigned i = 0; i < PAIRS; i++) {
		mine[i] = host[i] = -1;
		if (!m.pairs[i].used)
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", m.pairs[i].mnt, folder);
		mine[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (mine[i] < 0)
			differ("open %s: %s", path, strerror(errno));
		(void)snprintf(path, sizeof(path), "%s/%s", m.pairs[i].dir, folder);
		host[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	for (uint32_t n = 0; n < (shared->generate ? SEGMENT : s->n[id]); n++) {
		if (atomic_load(&shared->failed))
			_exit(0);
		if (shared->generate)
			pick_op(&s->ops[id][n], &rng, host);
		atomic_store(&shared->at[id], n + 1);
		one_op(id, &s->ops[id][n], n, mine, host, held);
	}
	_exit(0);
}

/* ---- what happens beside them ---- */

static void disturber(void)
{
	uint64_t rng = clock_ns();
	char name[40], snap[40];
	for (unsigned n = 0; !atomic_load(&shared->over); n++) {
		(void)poll(NULL, 0, 100 + (int)below(&rng, 500));
		if (atomic_load(&shared->over))
			break;
		struct pair *p = &m.pairs[below(&rng, PAIRS)];
		(void)snprintf(name, sizeof(name), "d%u-%u", m.serial, n);
		(void)snprintf(snap, sizeof(snap), "e%u-%u", m.serial, n);
		unsigned what = 1u << below(&rng, 4);
		if (!p->used || !(shared->now.disturb & what))
			continue;
		if (what == D_KILL)
			kill_program("bough-fs");
		else if (what == D_FORK && BOUGH("fork", p->name, name) == 0)
			(void)BOUGH("rm", name);
		else if (what == D_SAVE && BOUGH("save", p->name, "--as", snap) == 0)
			(void)BOUGH("snapshots", "rm", snap);
		else if (what == D_GC)
			(void)BOUGH("gc");
	}
	_exit(0);
}

/* ---- barriers ---- */

static void drop_pair(struct pair *p)
{
	if (!p->used)
		return;
	MUST("rm", p->name);
	remove_dir(p->dir);
	p->used = false;
}

static void name_pair(struct pair *p)
{
	(void)snprintf(p->name, sizeof(p->name), "w%u", m.serial);
	(void)snprintf(p->dir, sizeof(p->dir), "%s/d%u", m.base, m.serial++);
}

static void find_mount(struct pair *p)
{
	if (bough(p->mnt, sizeof(p->mnt), "path", p->name, NULL) != 0)
		differ("bough path %s failed", p->name);
	p->used = true;
}

static void act_fork(struct pair *from, struct pair *to)
{
	if (from == to)
		return;
	drop_pair(to);
	name_pair(to);
	MUST("fork", from->name, to->name);
	copy_dir(from->dir, to->dir);
	find_mount(to);
}

static void act_snapshot(const struct pair *p, unsigned k)
{
	if (m.snaps[k].used) {
		MUST("snapshots", "rm", "--force", m.snaps[k].name);
		remove_dir(m.snaps[k].dir);
	}
	(void)snprintf(m.snaps[k].name, sizeof(m.snaps[k].name), "s%u", m.serial);
	(void)snprintf(m.snaps[k].dir, sizeof(m.snaps[k].dir), "%s/s%u", m.base, m.serial++);
	MUST("save", p->name, "--as", m.snaps[k].name);
	copy_dir(p->dir, m.snaps[k].dir);
	m.snaps[k].used = true;
}

static void act_on(unsigned act, struct pair *p, struct pair *q, unsigned snap)
{
	switch (act) {
	case ACT_FORK:
		act_fork(p, q);
		break;
	case ACT_SNAPSHOT:
		act_snapshot(p, snap);
		break;
	case ACT_RESTORE:
		if (!m.snaps[snap].used)
			break;
		MUST("restore", p->name, m.snaps[snap].name);
		remove_dir(p->dir);
		copy_dir(m.snaps[snap].dir, p->dir);
		break;
	case ACT_CREATE:
		if (!m.snaps[snap].used || p == q)
			break;
		drop_pair(q);
		name_pair(q);
		MUST("create", q->name, "--from", m.snaps[snap].name);
		copy_dir(m.snaps[snap].dir, q->dir);
		find_mount(q);
		break;
	case ACT_REMOUNT:
		MUST("umount", p->name);
		MUST("mount", p->name);
		break;
	case ACT_KILL_ALL:
		kill_program("boughd");
		kill_program("bough-fs");
		break;
	case ACT_KILL:
		kill_program("bough-fs");
		break;
	case ACT_BOUNCE:
		MUST("down");
		MUST("up");
		break;
	case ACT_GC:
		MUST("gc");
		break;
	default:
		break;
	}
}

/* ---- a segment ---- */

static bool all_done(pid_t pids[CLIENTS_MAX])
{
	bool done = true;
	for (unsigned i = 0; i < m.clients; i++) {
		int status;
		if (!pids[i])
			continue;
		if (waitpid(pids[i], &status, WNOHANG) == 0) {
			done = false;
			continue;
		}
		pids[i] = 0;
		if (!(WIFEXITED(status) && WEXITSTATUS(status) <= 1))
			note("client %u ended with status %x", i, (unsigned)status);
	}
	return done;
}

static void run_clients(void)
{
	pid_t pids[CLIENTS_MAX] = { 0 };
	atomic_store(&shared->over, false);
	for (unsigned i = 0; i < m.clients; i++) {
		atomic_store(&shared->at[i], 0);
		if ((pids[i] = fork()) == 0)
			client(i);
	}
	pid_t other = fork();
	if (other == 0)
		disturber();
	for (uint64_t end = clock_ms() + WAIT_S * 1000; !all_done(pids);) {
		for (unsigned i = 0; i < m.clients && clock_ms() > end; i++)
			if (pids[i]) {
				note("client %u hangs", i);
				(void)kill(pids[i], SIGKILL);
			}
		(void)poll(NULL, 0, 10);
	}
	atomic_store(&shared->over, true);
	(void)waitpid(other, NULL, 0);
	for (unsigned i = 0; i < m.clients; i++) {
		shared->now.n[i] = atomic_load(&shared->at[i]);
		atomic_fetch_add(&shared->ops, shared->now.n[i]);
	}
}

/* What comes behind a segment's operations. */
static void run_barrier(void)
{
	const struct segment *s = &shared->now;
	if (atomic_load(&shared->failed))
		_exit(1);
	await_service();
	compare_all("after a segment");
	act_on(s->act, &m.pairs[s->from % PAIRS], &m.pairs[s->to % PAIRS], s->to % SNAPSHOTS);
	await_service();
	compare_all(act_names[s->act]);
}

static void start_root(void)
{
	char path[PATH_MAX + 40], folder[24];
	(void)snprintf(m.root, sizeof(m.root), "%s/root", m.base);
	(void)setenv("BOUGH_ROOT", m.root, 1);
	struct pair *p = &m.pairs[0];
	name_pair(p);
	MUST("create", p->name);
	find_mount(p);
	if (mkdir(p->dir, 0755) < 0)
		differ("mkdir %s: %s", p->dir, strerror(errno));
	for (unsigned i = 0; i < m.clients; i++) {
		client_folder(folder, i);
		(void)snprintf(path, sizeof(path), "%s/%s", p->mnt, folder);
		int r = mkdir(path, 0755);
		(void)snprintf(path, sizeof(path), "%s/%s", p->dir, folder);
		if (r < 0 || mkdir(path, 0755) < 0)
			differ("mkdir: %s", strerror(errno));
	}
	/* The workspace's own folder has an owner and a mode of its own. */
	run_tool((const char *const[]){ "chmod", "--reference", p->mnt, p->dir, NULL });
}

static void pick_segment(void)
{
	struct segment *s = &shared->now;
	memset(s, 0, sizeof(*s));
	s->disturb = below(&m.rng, 4) ? below(&m.rng, D_ALL + 1) : 0;
	s->act = below(&m.rng, ACT_KINDS);
	s->from = m.pairs[1].used ? below(&m.rng, PAIRS) : 0;
	s->to = below(&m.rng, PAIRS);
}

/* ---- a root ---- */

static void clean_up(void)
{
	char line[2 * PATH_MAX], at[PATH_MAX];
	(void)BOUGH("down");
	static const char *const all[] = { "boughd", "bough-fs", "bough-hold" };
	for (unsigned i = 0; i < 3; i++)
		kill_program(all[i]);
	auto_file *f = fopen("/proc/self/mounts", "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*s %4000s", at) == 1 && strncmp(at, m.base, strlen(m.base)) == 0)
			(void)umount2(at, MNT_DETACH);
	(void)io_remove_tree(AT_FDCWD, m.base, NULL); /* what is left lies in a scratch folder */
}

static void __attribute__((noreturn)) epoch_main(const struct segment *script, unsigned segments)
{
	(void)umask(0);
	(void)setpgid(0, 0);
	start_root();
	for (unsigned i = 0; i < segments; i++) {
		shared->generate = !script;
		if (script)
			shared->now = script[i];
		else
			pick_segment();
		if (!script)
			shared->segments = i + 1;
		run_clients();
		if (!script)
			shared->script[i] = shared->now;
		run_barrier();
	}
	MUST("fsck");
	_exit(0);
}

/* One root from its making to its end; true when all was the same. `script` NULL: what comes. */
static bool epoch(const struct segment *script, unsigned segments)
{
	const char *tmp = getenv("TMPDIR");
	int status = -1;
	(void)snprintf(m.base, sizeof(m.base), "%s/procs.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(m.base))
		return false;
	(void)snprintf(m.root, sizeof(m.root), "%s/root", m.base);
	(void)setenv("BOUGH_ROOT", m.root, 1);
	atomic_store(&shared->failed, false);
	shared->why[0] = '\0';
	(void)fflush(NULL);
	pid_t pid = fork();
	if (pid == 0)
		epoch_main(script, segments);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return false;
	(void)kill(-pid, SIGKILL); /* clients and what disturbs them, where it ended early */
	if (status != 0 && !shared->why[0])
		(void)snprintf(shared->why, sizeof(shared->why), "ended with status %x",
			       (unsigned)status);
	clean_up();
	return status == 0;
}

/* ---- scripts ---- */

static void print_script(FILE *f, const struct segment *s, unsigned n)
{
	char line[OP_LINE];
	for (unsigned i = 0; i < n; i++) {
		(void)fprintf(f, "segment %u %s %u %u\n", s[i].disturb, act_names[s[i].act],
			      s[i].from, s[i].to);
		for (unsigned c = 0; c < CLIENTS_MAX; c++)
			for (uint32_t k = 0; k < s[i].n[c]; k++) {
				op_print(line, &s[i].ops[c][k]);
				(void)fprintf(f, "c%u %s\n", c, line);
			}
	}
}

static bool read_line(struct segment *s, unsigned *n, const char *line)
{
	char act[16];
	unsigned disturb, from, to, c;
	int at = 0;
	if (*line == '#' || *line == '\n')
		return true;
	if (sscanf(line, "segment %u %15s %u %u", &disturb, act, &from, &to) == 4 && *n < EPOCH) {
		struct segment *now = &s[(*n)++];
		memset(now, 0, sizeof(*now));
		now->disturb = disturb, now->from = from, now->to = to;
		while (now->act < ACT_KINDS && strcmp(act_names[now->act], act) != 0)
			now->act++;
		return now->act < ACT_KINDS;
	}
	if (*n == 0 || sscanf(line, "c%u %n", &c, &at) != 1 || c >= CLIENTS_MAX ||
	    s[*n - 1].n[c] == SEGMENT)
		return false;
	struct segment *now = &s[*n - 1];
	return op_scan(&now->ops[c][now->n[c]++], line + at);
}

static int replay(const char *path)
{
	char line[OP_LINE + 20];
	auto_free struct segment *s = calloc(EPOCH, sizeof(*s));
	unsigned n = 0;
	auto_file *f = fopen(path, "re");
	while (f && s && fgets(line, sizeof(line), f))
		if (!read_line(s, &n, line)) {
			(void)fprintf(stderr, "%s: not a line of a script: %s", path, line);
			return 2;
		}
	bool good = f && s && epoch(s, n);
	(void)printf("%s\n", !f || !s ? strerror(errno) : good ? "all is the same" : shared->why);
	return good ? 0 : 1;
}

/* ---- making a script shorter ---- */

static struct shrink {
	struct segment *now, *try; /* EPOCH of each */
	unsigned n;
	uint64_t end_ms;
	char why[900];
} sh;

static size_t count_ops(const struct segment *s, unsigned n)
{
	size_t sum = 0;
	for (unsigned i = 0; i < n; i++)
		for (unsigned c = 0; c < CLIENTS_MAX; c++)
			sum += s[i].n[c];
	return sum;
}

/* Takes over sh.try where it fails, too. */
static bool still_fails(unsigned n)
{
	for (unsigned i = 0; i < TRIES && clock_ms() < sh.end_ms; i++) {
		if (epoch(sh.try, n))
			continue;
		struct segment *was = sh.now;
		sh.now = sh.try;
		sh.try = was;
		sh.n = n;
		(void)snprintf(sh.why, sizeof(sh.why), "%s", shared->why);
		return true;
	}
	return false;
}

/* sh.try becomes sh.now without its operations from number `from` on, `count` of them. */
static void without(size_t from, size_t count)
{
	size_t at = 0;
	for (unsigned i = 0; i < sh.n; i++) {
		struct segment *t = &sh.try[i];
		const struct segment *s = &sh.now[i];
		*t = *s;
		for (unsigned c = 0; c < CLIENTS_MAX; c++) {
			t->n[c] = 0;
			for (uint32_t k = 0; k < s->n[c]; k++, at++)
				if (at < from || at >= from + count)
					t->ops[c][t->n[c]++] = s->ops[c][k];
		}
	}
}

static void copy_now(void)
{
	memcpy(sh.try, sh.now, sh.n * sizeof(*sh.now));
}

/* Whole segments first, what happens beside and at the end of them, then operations, in parts that
 * get smaller. */
static void shrink_more(void)
{
	for (unsigned i = sh.n; i-- > 0;) {
		copy_now();
		memmove(&sh.try[i], &sh.try[i + 1], (sh.n - i - 1) * sizeof(*sh.try));
		(void)still_fails(sh.n - 1);
	}
	for (unsigned i = 0; i < sh.n; i++) {
		copy_now();
		sh.try[i].disturb = 0;
		(void)still_fails(sh.n);
		copy_now();
		sh.try[i].act = ACT_NONE;
		(void)still_fails(sh.n);
	}
	for (size_t part = count_ops(sh.now, sh.n) / 2; part > 0; part /= 2)
		for (size_t from = 0; from < count_ops(sh.now, sh.n) && clock_ms() < sh.end_ms;) {
			without(from, part);
			if (!still_fails(sh.n))
				from += part;
		}
}

static void shrink(const char *to)
{
	sh.now = calloc(EPOCH, sizeof(*sh.now));
	sh.try = calloc(EPOCH, sizeof(*sh.try));
	if (!sh.now || !sh.try)
		return;
	sh.n = shared->segments;
	memcpy(sh.now, shared->script, sh.n * sizeof(*sh.now));
	(void)snprintf(sh.why, sizeof(sh.why), "%s", shared->why);
	sh.end_ms = clock_ms() + m.shrink_s * UINT64_C(1000);
	size_t before = count_ops(sh.now, sh.n);
	shrink_more();
	auto_file *f = fopen(to, "we");
	if (f)
		print_script(f, sh.now, sh.n);
	(void)printf("# %zu operations of %zu still fail: %s\n# script: %s\n",
		     count_ops(sh.now, sh.n), before, sh.why, to);
	if (count_ops(sh.now, sh.n) <= 60)
		print_script(stdout, sh.now, sh.n);
	free(sh.now);
	free(sh.try);
}

/* ---- the run ---- */

static int run(uint64_t seconds)
{
	uint64_t start = clock_ms(), epochs = 0;
	char to[PATH_MAX];
	bool good = true;
	(void)printf("1..1\n");
	while (good && (seconds ? clock_ms() - start < seconds * 1000
				: atomic_load(&shared->ops) < m.max_ops)) {
		m.serial = 0;
		m.rng = m.seed + epochs++;
		good = epoch(NULL, EPOCH);
	}
	(void)printf("# %" PRIu64 " operations on %" PRIu64 " roots in %.1f s, %" PRIu64
		     " trees compared; "
		     "%" PRIu64 " kills; %" PRIu64 " forks and %" PRIu64 " snapshots looked at\n",
		     atomic_load(&shared->ops), epochs, (double)(clock_ms() - start) / 1e3,
		     atomic_load(&shared->checks), atomic_load(&shared->kills),
		     atomic_load(&shared->forks), atomic_load(&shared->saves));
	if (!good) {
		(void)printf("# root %" PRIu64 ": %s\n", epochs, shared->why);
		(void)snprintf(to, sizeof(to), "%s/procs-%" PRIu64 ".script",
			       getenv("PROCS_KEEP") ? getenv("PROCS_KEEP") : "/tmp", m.seed);
		shrink(to);
	}
	(void)printf("%sok 1 - workspaces and directories are the same\n", good ? "" : "not ");
	return good ? 0 : 1;
}

int main(int argc, char **argv)
{
	const char *bin = getenv("BOUGH_BIN"), *script = NULL;
	uint64_t seconds = 0;
	for (int i = 1; i < argc; i++) {
		uint64_t v = i + 1 < argc ? strtoull(argv[i + 1], NULL, 10) : 0;
		if (strcmp(argv[i], "--sabotage") == 0) {
			m.sabotage = true;
			continue;
		}
		if (i + 1 == argc)
			return 2;
		if (strcmp(argv[i], "--ops") == 0)
			m.max_ops = v;
		else if (strcmp(argv[i], "--seconds") == 0)
			seconds = v;
		else if (strcmp(argv[i], "--seed") == 0)
			m.seed = v;
		else if (strcmp(argv[i], "--clients") == 0)
			m.clients = v < CLIENTS_MAX ? (unsigned)v : CLIENTS_MAX;
		else if (strcmp(argv[i], "--shrink-s") == 0)
			m.shrink_s = (unsigned)v;
		else if (strcmp(argv[i], "--replay") == 0)
			script = argv[i + 1];
		else
			return 2;
		i++;
	}
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (access("/dev/fuse", R_OK | W_OK) < 0) {
		(void)printf("1..0 # SKIP no /dev/fuse\n");
		return 0;
	}
	if (!realpath(bin ? bin : "build/release", m.bin))
		return 2;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 2;
	if (!script && !m.seed)
		m.seed = test_seed();
	return script ? replay(script) : run(seconds);
}
