/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives over networks that lose, double, overtake and damage frames, a world a seed.
 *   FRL_SEED_FROM=n FRL_SEEDS=n   which seeds (from 1, 200 of them; 50 under AddressSanitizer)
 *   FRL_SEED=n                    this one alone, with a trace of its packets
 */
#include "tests/sim/coll/coll_script.h"
#include "tests/sim/coll/coll_world.h"

#include "tests/sim/common/fail.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	SEEDS_FOR_EVERYTHING = 200, /* so many show everything for certain */
#ifdef __SANITIZE_ADDRESS__
	SEEDS = 50, /* four times as slow: the same code, for its memory errors */
#else
	SEEDS = SEEDS_FOR_EVERYTHING,
#endif
	MEASURE_ONE_IN = 8,    /* seeds: measure what messages cost, which takes many packets */
	RUN_TWICE_ONE_IN = 32, /* seeds: the second run must be the same as the first */
	NS_PER_S = 1000000000,
};

static uint64_t number_from_env(const char *name, uint64_t fallback)
{
	const char *text = getenv(name);
	char *end;
	uint64_t value;

	if (!text || !*text)
		return fallback;
	value = strtoull(text, &end, 10);
	if (*end) {
		fprintf(stderr, "sim: %s=%s is not a number\n", name, text);
		exit(1);
	}
	return value;
}

/* Every third world has no faults; the others have some. */
static uint32_t draw_ppm(struct random_state *random, uint32_t most)
{
	return random_below(random, 3) == 0 ? 0 : (uint32_t)random_below(random, most);
}

static void draw_link(struct random_state *random, bool has_faults, struct link_config *link)
{
	*link = (struct link_config){
		.delay_ns = random_below(random, 20000),
		.rate_bps = UINT64_C(1000000000) << random_below(random, 8),
		.queue_frames = 100000,
	};
	if (!has_faults)
		return;
	link->loss_ppm = draw_ppm(random, 10000);
	link->reorder_ppm = draw_ppm(random, 20000);
	link->reorder_ns = 1 + random_below(random, 50000);
	link->duplicate_ppm = draw_ppm(random, 10000);
	link->corrupt_ppm = draw_ppm(random, 5000);
	if (random_below(random, 8) == 0)
		link->queue_frames = 32 + (uint32_t)random_below(random, 64);
}

/* In half of the worlds all devices reduce what they receive; in a quarter none of them. */
static uint64_t draw_poor(struct random_state *random, int ranks)
{
	uint64_t all = (UINT64_C(1) << ranks) - 1;

	if (random_below(random, 2))
		return 0;
	return random_below(random, 2) ? all : random_u64(random) & all;
}

/* A rail dies; it may come back, and then the other one dies. */
static void draw_cuts(struct random_state *random, struct coll_config *config)
{
	uint64_t most_ns = UINT64_C(4000) << random_below(random, 12);
	struct coll_cut *cut = config->cuts;

	cut[0] = (struct coll_cut){
		.ns = 1 + random_below(random, most_ns),
		.rank = (int)random_below(random, (uint64_t)config->ranks),
		.rail = (int)random_below(random, (uint64_t)config->rails),
	};
	if (random_below(random, 2))
		return;
	cut[1] = cut[2] = cut[0];
	cut[1].ns += 1 + random_below(random, most_ns);
	cut[1].heals = true;
	cut[2].ns = cut[1].ns + 1 + random_below(random, most_ns);
	cut[2].rail = !cut[0].rail;
}

struct sums {
	struct script_tally tally;
	struct link_stats links;
	uint64_t events, cuts;
	uint64_t poor_worlds, mixed_worlds, bytes_reduced, partials;
};

static void add(uint64_t *sum, const uint64_t *numbers, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum[i] += numbers[i];
}

/* Returns the hash of the trace. */
static uint64_t run(uint64_t seed, bool is_traced, struct sums *sums)
{
	struct coll_script script = { .seed = seed };
	struct coll_config config = { .seed = seed, .run = coll_script_run, .arg = &script };
	struct coll_world world;
	struct random_state random;
	bool has_faults;
	uint64_t hash;

	random_seed(&random, seed ^ UINT64_C(0xc0113c71));
	config.ranks = 2 + (int)random_below(&random, 7);
	config.rails = random_below(&random, 4) == 0 ? 2 : 1;
	config.ranks_per_host = 1 + (int)random_below(&random, 4);
	config.mtu = UINT32_C(256) << random_below(&random, 7);
	config.mail_ns = 1000 + random_below(&random, 1000000);
	config.deadline_ns = UINT64_C(600) * NS_PER_S;
	config.is_traced = is_traced;
	config.measures = seed % MEASURE_ONE_IN == 0;
	script.rails = config.rails;
	config.progresses = script.stays_outside = config.rails > 1 && seed % 2 == 0;
	script.batches = 1 + (int)random_below(&random, 3);
	script.bytes_max = UINT64_C(4096) << random_below(&random, 6);
	has_faults = random_below(&random, 3) != 0;
	draw_link(&random, has_faults, &config.to);
	draw_link(&random, has_faults, &config.from);
	if (config.rails > 1 && random_below(&random, 2))
		draw_cuts(&random, &config);
	config.poor = draw_poor(&random, config.ranks);
	config.poor_tell = random_below(&random, 2);
	coll_world_run(&world, &config);
	sums->cuts += (uint64_t)world.cuts;
	sums->poor_worlds += config.poor == (UINT64_C(1) << config.ranks) - 1;
	sums->mixed_worlds += config.poor && config.poor != (UINT64_C(1) << config.ranks) - 1;
	sums->bytes_reduced += world.bytes_reduced;
	sums->partials += world.poor_partials;
	hash = world.trace.hash;
	add((uint64_t *)&sums->tally, (const uint64_t *)&script.tally,
		sizeof(script.tally) / sizeof(uint64_t));
	add((uint64_t *)&sums->links, (const uint64_t *)&world.stats,
		sizeof(world.stats) / sizeof(uint64_t));
	sums->events += world.clock.next_order;
	coll_world_free(&world);
	return hash;
}

static int print_row(const char *name, uint64_t value)
{
	printf(" %s=%" PRIu64, name, value);
	return value == 0;
}

/* Returns how many things have never happened. */
static int print_sums(const struct sums *sums)
{
	const struct script_tally *tally = &sums->tally;
	const struct link_stats *links = &sums->links;
	int missing = 0;

	printf("collectives:");
	for (int i = 0; i < FRL_RECV; i++)
		missing += print_row(frl_coll_name((enum frl_coll)i), tally->collectives[i]);
	missing += print_row("in_place", tally->in_place);
	missing += print_row("at_once", tally->at_once) + print_row("splits", tally->splits);
	printf("\ntypes:");
	for (int i = 0; i < FRL_DTYPES; i++)
		missing += print_row(frl_dtype_name((enum frl_dtype)i), tally->dtypes[i]);
	printf("\noperations:");
	for (int i = 0; i < FRL_OPS; i++)
		missing += print_row(frl_op_name((enum frl_op)i), tally->ops[i]);
	printf("\nwire types:");
	for (int i = 0; i < FRL_WIRES; i++)
		missing += print_row(frl_wire_name((enum frl_wire)i), tally->wires[i]);
	printf("\nasked for:");
	for (int i = 0; i < FRL_ALGOS; i++)
		missing += print_row(frl_algo_name((enum frl_algo)i), tally->algos[i]);
	printf("\nframes:");
	print_row("sent", links->sent);
	missing += print_row("lost", links->lost) + print_row("overflowed", links->overflowed);
	missing += print_row("reordered", links->reordered);
	missing += print_row("duplicated", links->duplicated);
	missing += print_row("corrupted", links->corrupted);
	missing += print_row("rails_cut", sums->cuts);
	printf("\ndevices that do not reduce:");
	missing += print_row("all", sums->poor_worlds) + print_row("some", sums->mixed_worlds);
	missing += print_row("rings", tally->rings);
	print_row("cut_messages", sums->partials);
	missing += print_row("bytes_reduced_by_others", sums->bytes_reduced);
	printf("\nevents: %" PRIu64 "\n", sums->events);
	return missing;
}

int main(void)
{
	uint64_t from = number_from_env("FRL_SEED_FROM", 1);
	uint64_t seeds = number_from_env("FRL_SEEDS", SEEDS);
	uint64_t one = number_from_env("FRL_SEED", 0);
	struct sums sums = { 0 };

	setenv("FRL_CONTROL", "off", 1);
	setenv("FRL_SEGMENT_KB", "16", 1);
	setenv("FRL_TUNER_CACHE", "", 1);
	if (one) {
		run(one, true, &sums);
		return 0;
	}
	for (uint64_t seed = from; seed < from + seeds; seed++) {
		uint64_t hash = run(seed, false, &sums);

		if (seed % RUN_TWICE_ONE_IN == 0 && run(seed, false, &sums) != hash) {
			fprintf(stderr, "sim: seed %" PRIu64 " does not repeat itself\n", seed);
			return 1;
		}
	}
	if (print_sums(&sums) && seeds >= SEEDS_FOR_EVERYTHING) {
		fprintf(stderr, "sim: something has never happened\n");
		return 1;
	}
	return 0;
}
