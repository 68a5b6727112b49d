/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What messages cost over a network, measured when the first communicator of a bootstrap is made,
 * unless FRL_TUNER_COSTS says it or a file still knows it: see docs/collectives.md.
 */
#ifndef FERRULE_COLLECTIVES_MEASURE_H
#define FERRULE_COLLECTIVES_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/tuner.h"

struct frl_comm;

/*
 * Measures, together with the others, what the tuner does not know and this topology needs; all
 * ranks that have agreed (agree.c) call it, and all have the same costs afterwards. Ranks that have
 * no part in it wait in the bootstrap's allgather. 0 or an error with the thread's last error.
 */
int comm_measure(struct frl_comm *comm);

/* ---- measure_pair.c: between two ranks */

enum { MEASURE_BUFFER = 1024 * 1024 };

/* What a rank has found out, and tells the others. */
struct measured {
	struct tuner_costs costs;
	uint8_t is_calm; /* nothing has disturbed it, as far as can be seen */
};

/*
 * Measures between the two ranks, with a buffer of MEASURE_BUFFER bytes; others may call it, too.
 * Adds to what the first of the two has measured, the costs from TUNER_FAR on where `far` is that.
 * 0 or the communicator's error.
 */
int measure_pair(struct frl_comm *comm, int lead_rank, int other, int far, uint8_t *buffer,
	struct measured *measured);

/* The time, or the shortest one that has a step: what is measured may be nothing. */
static inline double measure_least(double ns)
{
	double least = tuner_step_ns(TUNER_STEP_LEAST);

	return ns > least ? ns : least;
}

/* ---- measure_file.c: costs that were measured earlier */

/* Which they are: of what they depend on. */
enum { MEASURE_KEY = 384, MEASURE_KINDS = 128 };
/* The kinds of the rails' devices: "ring", "verbs:mlx5", "pci+net_tap". */
void measure_kinds(const struct frl_comm *comm, char kinds[MEASURE_KINDS]);
void measure_key(const struct frl_comm *comm, char key[MEASURE_KEY]);

struct measure_kept {
	struct tuner_costs costs;
	/* Seconds since 1970: when they were measured, and when it was seen last that they are
	 * right. */
	int64_t made_s, checked_s;
};

/*
 * The costs in the file for `key` in `folder`. -ENOENT: there are none, or none that can be
 * believed: of somebody else, open to others, a link, damaged, for another key, or older than a
 * week at `now_s`.
 */
int measure_file_read(
	const char *folder, const char *key, int64_t now_s, struct measure_kept *ret_kept);

/* To be looked after: they were checked more than an hour ago. */
bool measure_is_due(const struct measure_kept *kept, int64_t now_s);

/* Writes the file anew, at once or not at all, and removes what writers left that were killed. A
 * negative errno value; nobody needs to care. */
int measure_file_write(const char *folder, const char *key, const struct measure_kept *kept);

#endif
