/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows: the tuner in the plugin's file. An excluded entry is -1.0 in NCCL's table of costs, and
 * NCCL skips it (topoGetAlgoInfo() of src/enqueue.cc, v2.22.3 to v2.30.7).
 */
#include <string.h>

#include "tests/nccl/caller/row.h"
#include "tests/nccl/caller/tuner.h"

enum { TREE, RING, NVLS = 4, ALL_GATHER = 2, ALL_REDUCE = 4, LL = 0, LL128 = 1, SIMPLE = 2 };

#define IGNORED (-1.0f)

static void set_costs(float costs[TUNER_ALGORITHMS][TUNER_PROTOCOLS])
{
	for (int a = 0; a < TUNER_ALGORITHMS; a++)
		for (int p = 0; p < TUNER_PROTOCOLS; p++)
			costs[a][p] = a > RING ? IGNORED : 100;
}

/* An NCCL that takes tuner v3 takes no net table with which UNPACK needs a tuner. */
static bool excludes_ll(struct side *side, int version)
{
	return version >= 4 && strcmp(expected(side, "excluded"), "ll+ll128") == 0;
}

static void check_excluded(
	struct side *side, int version, float costs[TUNER_ALGORITHMS][TUNER_PROTOCOLS])
{
	bool excludes_ll128 = strcmp(expected(side, "excluded"), "none") != 0;

	for (int a = 0; a < TUNER_ALGORITHMS; a++) {
		for (int p = 0; p < TUNER_PROTOCOLS; p++) {
			bool is_out = a > RING || (p == LL && excludes_ll(side, version)) ||
				(p == LL128 && excludes_ll128);

			REQUIRE((costs[a][p] == IGNORED) == is_out,
				"algorithm %d, protocol %d costs %g", a, p, (double)costs[a][p]);
		}
	}
}

/* A ring of four hosts has three steps between them and two times as many for a sum; a tree has two
 * times two (the latencies of ncclTopoTuneModel(), src/graph/tuning.cc, v2.28.9). */
static void check_costs(struct side *side, struct tuner *tuner)
{
	float costs[TUNER_ALGORITHMS][TUNER_PROTOCOLS];
	float step;

	set_costs(costs);
	MUST(tuner_ask(tuner, ALL_REDUCE, costs[0], TUNER_ALGORITHMS, TUNER_PROTOCOLS));
	check_excluded(side, tuner->version, costs);
	step = (costs[RING][SIMPLE] - 100) / 6;
	REQUIRE(step >= 0 && (costs[TREE][SIMPLE] - 100) == 4 * step, "a ring costs %g, a tree %g",
		(double)costs[RING][SIMPLE], (double)costs[TREE][SIMPLE]);
	REQUIRE((step > 0) == (strcmp(expected(side, "step"), "0") != 0), "a step costs %g us",
		(double)step);
	set_costs(costs);
	MUST(tuner_ask(tuner, ALL_GATHER, costs[0], TUNER_ALGORITHMS, TUNER_PROTOCOLS));
	REQUIRE(costs[RING][SIMPLE] == 100 + 3 * step, "a ring costs %g",
		(double)costs[RING][SIMPLE]);
}

/* The user's NCCL_PROTO leaves no other protocol: NCCL would fail with an empty table. */
static void check_last(struct tuner *tuner)
{
	float costs[TUNER_ALGORITHMS][TUNER_PROTOCOLS];

	set_costs(costs);
	for (int a = 0; a < TUNER_ALGORITHMS; a++)
		costs[a][LL] = costs[a][SIMPLE] = IGNORED;
	MUST(tuner_ask(tuner, ALL_REDUCE, costs[0], TUNER_ALGORITHMS, TUNER_PROTOCOLS));
	REQUIRE(costs[RING][LL128] >= 100, "nothing is left to NCCL");
}

static void check_one_host(struct tuner *tuner)
{
	float costs[TUNER_ALGORITHMS][TUNER_PROTOCOLS], before[TUNER_ALGORITHMS][TUNER_PROTOCOLS];

	set_costs(costs);
	set_costs(before);
	MUST(tuner_ask(tuner, ALL_REDUCE, costs[0], TUNER_ALGORITHMS, TUNER_PROTOCOLS));
	REQUIRE(memcmp(costs, before, sizeof(costs)) == 0, "costs within a host were changed");
}

static void check_version(struct side *side, int version)
{
	struct tuner tuner, alone;

	if (!tuner_load(&tuner, side->net->library, version))
		skip("there is no tuner");
	alone = tuner;
	MUST(tuner_init(&tuner, 7, 4, harness_log));
	MUST(tuner_init(&alone, 8, 1, harness_log));
	check_costs(side, &tuner);
	check_last(&tuner);
	check_one_host(&alone);
	MUST(tuner_end(&alone));
	check_costs(side, &tuner);
	MUST(tuner_end(&tuner));
}

static void tuner(struct side *side)
{
	struct plugin net = { 0 };

	if (!expected(side, "excluded"))
		skip("it is not said what the tuner excludes");
	side_open(side, &net);
	for (int version = TUNER_OLDEST; version <= TUNER_NEWEST; version++)
		check_version(side, version);
	side_close(side);
	plugin_close(&net);
}

const struct row tuner_rows[] = {
	{ .name = "tuner", .what = "what the tuner excludes, and what it adds", .solo = tuner },
	{ .name = NULL },
};
