/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures the costs of messages over a network, when the first communicator of a bootstrap is
 * created. FRL_TUNER_COSTS or a file with earlier costs replaces the measurement: see
 * docs/design/algorithm-choice.md.
 */
#ifndef FERRULE_COLLECTIVES_API_MEASURE_H
#define FERRULE_COLLECTIVES_API_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/tune/tuner.h"

struct frl_comm;

/*
 * Measures the costs that this topology needs and the tuner does not know. All ranks call it after
 * agree.c, and all have the same costs afterwards. Ranks that do not measure wait in the
 * bootstrap's allgather. Returns 0, or an error with the thread's last error.
 */
int comm_measure(struct frl_comm *comm);

/* ---- measure_pair.c: measures between two ranks */

enum { MEASURE_BUFFER = 1024 * 1024 };

/* The results of a rank, published to the others. */
struct measured {
	struct tuner_costs costs;
	uint8_t is_calm; /* no disturbance was detected */
};

/*
 * Measures between two ranks, with a buffer of MEASURE_BUFFER bytes. Does nothing on other ranks.
 * Adds the results to `measured` on the lead rank, to the costs from TUNER_FAR on if `far` is
 * TUNER_FAR. Returns 0 or the communicator's error.
 */
int measure_pair(struct frl_comm *comm, int lead_rank, int other, int far, uint8_t *buffer,
	struct measured *measured);

/* Returns the time, or the shortest time that has a step: a measured time may be 0. */
static inline double measure_least(double ns)
{
	double least = tuner_step_ns(TUNER_STEP_LEAST);

	return ns > least ? ns : least;
}

/* ---- measure_file.c: costs that were measured earlier */

/* The key of kept costs: everything that they depend on. */
enum { MEASURE_KEY = 384, MEASURE_KINDS = 128 };
/* Writes the kinds of the rails' devices: "ring", "verbs:mlx5", "pci+net_tap". */
void measure_kinds(const struct frl_comm *comm, char kinds[MEASURE_KINDS]);
void measure_key(const struct frl_comm *comm, char key[MEASURE_KEY]);

struct measure_kept {
	struct tuner_costs costs;
	/* Seconds since 1970 of the measurement, and of the last check that confirmed it. */
	int64_t made_s, checked_s;
};

/*
 * Reads the costs for `key` from a file in `folder`. Fails with -ENOENT if there is no file, or if
 * it is not trustworthy: of another owner, writable by others, a link, damaged, for another key, or
 * older than a week at `now_s`.
 */
int measure_file_read(
	const char *folder, const char *key, int64_t now_s, struct measure_kept *ret_kept);

/* Returns whether the last check was more than an hour ago. */
bool measure_is_due(const struct measure_kept *kept, int64_t now_s);

/* Replaces the file atomically, and removes temporary files of writers that were killed. Fails
 * with a negative errno value, which callers may ignore. */
int measure_file_write(const char *folder, const char *key, const struct measure_kept *kept);

#endif
