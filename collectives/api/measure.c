/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ranks measure, and how all ranks agree on the results: they must use the same costs. */
#include "collectives/api/measure.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "collectives/api/internal.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

enum {
	REDUCES = 4,
	REDUCE_BYTES = MEASURE_BUFFER / 2,
	STEPS_CLEAR = 3, /* a cost that is lower by this many steps is clearly better */
};

/* ---- costs and pairs */

static uint8_t reduce_step(uint8_t *buffer)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < REDUCES; i++) {
		uint64_t since_ns = clock_now_ns(), time_ns;

		frl_reduce_local(buffer, buffer, buffer + REDUCE_BYTES,
			REDUCE_BYTES / sizeof(float), FRL_FLOAT32, FRL_SUM);
		time_ns = clock_now_ns() - since_ns;
		least = time_ns < least ? time_ns : least;
	}
	return tuner_step(measure_least((double)least / REDUCE_BYTES));
}

/* Finds the first two ranks, in topology order, on one host. */
static bool find_near(const struct topology *topology, int *ret_lead, int *ret_other)
{
	for (uint32_t i = 1; i < topology->ranks; i++) {
		uint32_t lead = topology->order[i - 1], other = topology->order[i];

		if (topology->locations[lead].host != topology->locations[other].host)
			continue;
		*ret_lead = (int)lead;
		*ret_other = (int)other;
		return true;
	}
	return false;
}

/* Finds the first rank on another host than rank 0. */
static bool find_far(const struct topology *topology, int *ret_other)
{
	for (uint32_t rank = 1; rank < topology->ranks; rank++) {
		if (topology->locations[rank].host == topology->locations[0].host)
			continue;
		*ret_other = (int)rank;
		return true;
	}
	return false;
}

/* ---- measuring */

struct pairs {
	bool has_near, has_far;
	int near_lead, near_other, far_other;
};

static bool is_known(const struct tuner *tuner, const struct pairs *pairs)
{
	if (tuner->source == TUNER_GIVEN || tuner->source == TUNER_LOCAL)
		return true;
	if (tuner->is_due)
		return false;
	return (!pairs->has_near || tuner->known.step[TUNER_LATENCY]) &&
		(!pairs->has_far || tuner->known.step[TUNER_FAR_LATENCY]);
}

static int measure(struct frl_comm *comm, const struct pairs *pairs, struct measured *measured)
{
	uint8_t *buffer = calloc(1, MEASURE_BUFFER);
	int err = 0;

	if (!buffer)
		return frl_fail(-ENOMEM, "no memory for a measurement");
	if (comm->rank == 0)
		measured->costs.step[TUNER_REDUCE] = reduce_step(buffer);
	if (pairs->has_near)
		err = measure_pair(comm, pairs->near_lead, pairs->near_other, 0, buffer, measured);
	if (!err && pairs->has_far)
		err = measure_pair(comm, 0, pairs->far_other, TUNER_FAR, buffer, measured);
	free(buffer);
	return err;
}

/*
 * Returns whether measured costs are about a third of the kept ones or less, for a latency or a
 * byte: the kept ones were then measured under load. The cost of a reduction is ignored, since it
 * may differ by two with processor clocks and placement.
 */
static bool is_clearly_better(const struct tuner_costs *costs, const struct tuner_costs *kept)
{
	static const enum tuner_cost compared[] = { TUNER_LATENCY, TUNER_BYTE, TUNER_FAR_LATENCY,
		TUNER_FAR_BYTE };

	for (size_t i = 0; i < sizeof(compared) / sizeof(compared[0]); i++) {
		uint8_t step = costs->step[compared[i]], before = kept->step[compared[i]];

		if (step && before && step + STEPS_CLEAR <= before)
			return true;
	}
	return false;
}

/* Returns all known costs; where both are known, those of `first`. */
static struct tuner_costs merge(const struct tuner_costs *first, const struct tuner_costs *second)
{
	struct tuner_costs costs = *first;

	for (int c = 0; c < TUNER_COSTS; c++) {
		if (costs.step[c] == 0)
			costs.step[c] = second->step[c];
	}
	return costs;
}

/*
 * Sets the tuner's costs from the measurements, identically on all ranks. When kept costs were only
 * checked, they stay, so that choices do not change, unless they are clearly wrong. Kept costs that
 * were not measured stay.
 */
static int take(struct frl_comm *comm, const struct pairs *pairs, const struct measured all[],
	bool *ret_is_calm)
{
	struct tuner *tuner = &comm->tuner;
	const struct tuner_costs kept = tuner->known;
	struct measured sum = { .is_calm = 1 };
	int near = pairs->has_near ? pairs->near_lead : 0;

	for (int i = 0; i < 2; i++) {
		const struct measured *from = &all[i == 0 ? 0 : near];

		if (!tuner_costs_are_plausible(&from->costs))
			return frl_fail(-EPROTO,
				"rank %d sent invalid measurements: use the same Ferrule on all "
				"ranks",
				i == 0 ? 0 : near);
		sum.costs = merge(&sum.costs, &from->costs);
		sum.is_calm = sum.is_calm && from->is_calm;
	}
	*ret_is_calm = sum.is_calm;
	if (tuner->is_due && !is_clearly_better(&sum.costs, &kept)) {
		sum.costs = merge(&kept, &sum.costs);
		tuner_set_costs(tuner, &sum.costs, TUNER_KEPT);
	} else {
		sum.costs = merge(&sum.costs, &kept);
		tuner_set_costs(tuner, &sum.costs, TUNER_MEASURED);
	}
	tuner->is_due = false;
	return 0;
}

/* Returns whether a pair has a latency but no cost of a byte. */
static bool is_incomplete(const struct tuner_costs *costs)
{
	return (costs->step[TUNER_LATENCY] && !costs->step[TUNER_BYTE]) ||
		(costs->step[TUNER_FAR_LATENCY] && !costs->step[TUNER_FAR_BYTE]);
}

/* Stores the costs. Clearly better costs replace the kept ones even if the measurement was
 * disturbed. */
static void keep(const struct frl_comm *comm, bool was_due, bool is_calm)
{
	struct measure_kept kept = { .costs = comm->tuner.known, .checked_s = time(NULL) };
	bool is_new = comm->tuner.source == TUNER_MEASURED;
	char key[MEASURE_KEY];

	if (is_incomplete(&kept.costs) || !(is_calm || (was_due && is_new)))
		return;
	if (comm->rank != 0 || comm->config.tuner_folder[0] == '\0')
		return;
	kept.made_s = is_new ? kept.checked_s : comm->tuner.made_s;
	measure_key(comm, key);
	measure_file_write(comm->config.tuner_folder, key, &kept);
}

int comm_measure(struct frl_comm *comm)
{
	const struct topology *topology = &comm->topology;
	struct pairs pairs = { .has_near = false };
	struct measured mine = { .is_calm = 1 }, *all;
	bool was_due = comm->tuner.is_due, is_calm = false;
	int err;

	pairs.has_near = find_near(topology, &pairs.near_lead, &pairs.near_other);
	pairs.has_far = find_far(topology, &pairs.far_other);
	if (comm->ranks == 1 || is_known(&comm->tuner, &pairs))
		return 0;
	all = calloc((size_t)comm->ranks, sizeof(*all));
	if (!all)
		return frl_fail(-ENOMEM, "no memory for the costs of %d ranks", comm->ranks);
	err = measure(comm, &pairs, &mine);
	if (!err)
		err = comm->bootstrap->allgather(comm->bootstrap->ctx, &mine, sizeof(mine), all);
	if (!err)
		err = take(comm, &pairs, all, &is_calm);
	if (!err)
		keep(comm, was_due, is_calm);
	else if (!comm->error)
		comm_fail(comm, err, "measuring the costs of messages: %s", frl_last_error());
	free(all);
	return err;
}
