/* Layers on a disk that dies: by a kill (what was written stays) or by a power cut (what
 * was not synced stays in part). Whatever the moment, the layer opens as one state that was
 * promised, and every block of it holds bytes that were written to it. */
#include "tests/unit/layer_kit.h"
#include "tests/unit/sim_disk.h"

enum { LIVES = 8 };

struct run {
	struct sim sim;
	struct kit k;
	uint8_t boot[16]; /* no two boots have the same */
	/* What a power cut may bring back: the state of the last commit that returned, or of one
	 * that began since. */
	struct kit_model maybe[LIVES + 1];
	unsigned nmaybe;
	uint64_t seed;
};

static void start(struct run *r, uint64_t seed)
{
	memset(r, 0, sizeof(*r));
	sim_init(&r->sim, seed);
	r->sim.tear = 4096; /* as the kernel cuts what a kill interrupts */
	int i = sim_new(&r->sim, "/root", true);
	r->sim.files[i].was_linked = r->sim.files[i].name_durable = true;
	i = sim_new(&r->sim, "/root/layers", true);
	r->sim.files[i].was_linked = r->sim.files[i].name_durable = true;
	r->seed = seed;
	r->k.rng = seed * 77 + 5;
	r->k.opt = (struct layer_options){ .io = &r->sim.io, .root = "/root", .boot_id = r->boot };
	assert_int_equal(layer_create(&r->k.layer, &r->k.opt, NULL), 0);
	/* Its name is durable from here on, so that there is something to open. */
	assert_int_equal(layer_commit(r->k.layer, NULL), 0);
	r->nmaybe = 1;
}

static void commit(struct run *r)
{
	assert_true(r->nmaybe <= LIVES);
	r->maybe[r->nmaybe++] = r->k.m;
	int e = r->seed % 4 ? layer_fsync(r->k.layer, 0, NULL) : layer_commit(r->k.layer, NULL);
	if (e == 0) {
		r->maybe[0] = r->k.m;
		r->nmaybe = 1;
	}
}

/* Runs until the disk dies. */
static void live(struct run *r, struct kit_model *in_flight)
{
	while (!r->sim.dead) {
		uint64_t what = kit_random(&r->k) % 64;
		*in_flight = r->k.m;
		if (what < 4)
			commit(r);
		else if (what == 4)
			layer_idle(r->k.layer);
		else
			(void)kit_step(&r->k);
		if (!r->sim.dead && r->k.steps % 32 == 0) {
			uint64_t at = r->sim.cut_at;
			r->sim.cut_at = 0; /* looking is no part of it */
			kit_check(&r->k);
			r->sim.cut_at = at;
		}
	}
}

static bool same_state(struct kit *k, const struct kit_model *m)
{
	/* Compares what differs between any two models of one run: the inodes' times. */
	for (unsigned i = 0; i < KIT_INODES; i++) {
		const struct kit_inode *in = &m->inode[i];
		const struct layer_inode *li = layer_inode(k->layer, KIT_FIRST + i);
		if ((li != NULL) != in->there || (li && li->dead != in->dead))
			return false;
		if (li && !li->dead && memcmp(&li->attr, &in->attr, sizeof(li->attr)) != 0)
			return false;
	}
	for (unsigned d = 0; d < KIT_DIRS; d++)
		for (unsigned c = 0; c < KIT_COOKIES; c++) {
			const struct layer_dirent *e = layer_dirent_ceil(k->layer, 2 + d, c);
			bool there = e && e->cookie == c;
			if (there != m->name[d][c].there)
				return false;
			if (there && (e->ino != m->name[d][c].ino ||
				      e->name_len != strlen(m->name[d][c].name) ||
				      memcmp(e->name, m->name[d][c].name, e->name_len) != 0))
				return false;
		}
	int64_t bytes, inodes;
	layer_usage(k->layer, &bytes, &inodes);
	return bytes == m->bytes && inodes == m->inodes;
}

static void reopen(struct run *r, void (*restart)(struct sim *s))
{
	struct layer_id id = *layer_id(r->k.layer);
	struct err err = { 0 };
	layer_unref(r->k.layer);
	restart(&r->sim);
	int e = layer_open(&r->k.layer, &r->k.opt, &id, true, &err);
	if (e < 0)
		print_error("seed %llu: %s\n", (unsigned long long)r->seed, err.text);
	assert_int_equal(e, 0);
	assert_int_equal(layer_lost(r->k.layer), 0);
}

/* After a kill: all that was acknowledged, and perhaps the operation that was under way. */
static void after_kill(struct run *r, const struct kit_model *acknowledged)
{
	reopen(r, sim_restart);
	r->k.m = same_state(&r->k, acknowledged) ? *acknowledged : r->k.tried;
	r->k.later_ok = true; /* the write under way may have been in place */
	kit_check(&r->k);
	r->k.later_ok = false;
}

/* After a power cut: the state of the last commit, or of the one that was under way. */
static void after_power(struct run *r)
{
	r->boot[0]++;
	reopen(r, sim_power_cut);
	unsigned i = 0;
	while (i + 1 < r->nmaybe && !same_state(&r->k, &r->maybe[i]))
		i++;
	r->k.m = r->maybe[0] = r->maybe[i];
	r->nmaybe = 1;
	r->k.later_ok = true;
	kit_check(&r->k);
}

/* What the driver can't know after a death: which version each block has. */
static void learn_versions(struct run *r)
{
	for (unsigned i = 0; i < KIT_INODES; i++) {
		const struct layer_inode *li = layer_inode(r->k.layer, KIT_FIRST + i);
		for (unsigned s = 0; li && !li->dead && s < KIT_SLOTS; s++) {
			uint8_t got[LAYER_BLOCK];
			uint64_t off = kit_block(s) * LAYER_BLOCK;
			const struct extent *e = layer_extent_ceil(li, off);
			if (r->k.m.inode[i].kind[s] != BLOCK_DATA)
				continue;
			assert_int_equal(layer_pread(e->layer, e->file, got, sizeof(got),
						     e->src + (off - e->off)),
					 0);
			/* A block that is torn is made whole, and what no operation
			 * acknowledged is written again, as its owner would. */
			memcpy(&r->k.m.inode[i].stamp[s], got, sizeof(struct kit_stamp));
			kit_fill(got, &r->k.m.inode[i].stamp[s]);
			assert_int_equal(layer_pwrite(r->k.layer, e->file, got, sizeof(got),
						      e->src + (off - e->off)),
					 0);
		}
	}
	r->k.later_ok = false;
	kit_check(&r->k);
}

static void deaths(void **state)
{
	(void)state;
	const char *env = getenv("SEED"), *count = getenv("RUNS");
	uint64_t first = env ? strtoull(env, NULL, 10) : 1,
		 runs = count ? strtoull(count, NULL, 10) : 40;
	static struct run r;
	static struct kit_model in_flight;
	for (uint64_t seed = first; seed < first + (env && !count ? 1 : runs); seed++) {
		if (env || count)
			print_message("seed %llu\n", (unsigned long long)seed);
		start(&r, seed);
		for (unsigned life = 0; life < LIVES; life++) {
			r.sim.cut_at = r.sim.calls + 1 + kit_random(&r.k) % 400;
			live(&r, &in_flight);
			if (kit_random(&r.k) % 2)
				after_kill(&r, &in_flight);
			else
				after_power(&r);
			learn_versions(&r);
		}
		layer_unref(r.k.layer);
		sim_done(&r.sim);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(deaths),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
