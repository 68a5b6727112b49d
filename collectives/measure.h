/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What messages cost, measured when the first communicator of a bootstrap is made, unless
 * FRL_TUNER_COSTS says it or a file still knows it: see docs/collectives.md.
 */
#ifndef FERRULE_COLLECTIVES_MEASURE_H
#define FERRULE_COLLECTIVES_MEASURE_H

#include <stdint.h>

#include "collectives/tuner.h"

struct frl_comm;

/*
 * Measures, together with the others, what the tuner does not know and this topology needs; all
 * ranks that have agreed (agree.c) call it, and all have the same costs afterwards. Ranks that have
 * no part in it wait in the bootstrap's allgather. 0 or an error with the thread's last error.
 */
int comm_measure(struct frl_comm *comm);

/* ---- measure_file.c: costs that were measured earlier */

/* Which they are: of what they depend on. */
enum { MEASURE_KEY = 256 };
void measure_key(const struct frl_comm *comm, char key[MEASURE_KEY]);

/*
 * The costs in the file for `key` in `folder`, and when they were measured, seconds since 1970.
 * -ENOENT: there is none, or none that can be believed: of somebody else, open to others, a link,
 * damaged, for another key, or older than a week at `now_s`.
 */
int measure_file_read(const char *folder, const char *key, int64_t now_s,
	struct tuner_costs *ret_costs, int64_t *ret_made_s);

/* Writes the file anew, at once or not at all. A negative errno value; nobody needs to care. */
int measure_file_write(
	const char *folder, const char *key, const struct tuner_costs *costs, int64_t made_s);

#endif
