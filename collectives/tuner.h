/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which algorithm: by a model of what each would cost, or as FRL_ALGO says. All ranks must come to
 * the same, so they give the same numbers to the model. Pure but for error texts; only read while
 * it is used, so any thread.
 *
 * The model is the one of Hockney, "The communication challenge for MPP", 1994, with terms for
 * local work and for connections:
 *
 *     time = rounds * latency + bytes sent / bandwidth + bytes reduced * cost + peers * cost
 */
#ifndef FERRULE_COLLECTIVES_TUNER_H
#define FERRULE_COLLECTIVES_TUNER_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/plan.h"

/* What is measured when a communicator is made. Zero or less: not measured. */
struct tuner_measured {
	double latency_ns;    /* of a small message, one way, with what the software takes */
	double byte_ns;       /* of one more byte of a large one; all rails together */
	double reduce_ns;     /* of reducing or copying a byte locally */
	double connection_ns; /* of one more connection that messages go over at the same time */
};

struct tuner {
	struct tuner_measured costs;
	size_t segment_bytes; /* the longest segment */
	/* By FRL_ALGO: for each collective, and whether it was named or goes for all. */
	enum frl_algo forced[FRL_COLLS];
	bool is_strict[FRL_COLLS];
};

/*
 * With what was measured (NULL: nothing) and what FRL_ALGO says: "auto", an algorithm for all
 * collectives that it can do ("ring"), algorithms for some ("allreduce=ring,broadcast=tree"), or
 * both, separated by commas. -EINVAL with the thread's last error.
 */
int tuner_init(struct tuner *tuner, const struct tuner_measured *measured, const char *algos,
	size_t segment_bytes);

/*
 * The algorithm for the job, and the longest segment: job->segment_bytes is not looked at, the
 * caller sets it to what is returned. -ENOTSUP with the thread's last error: none can, or the one
 * that FRL_ALGO names for this collective cannot.
 */
int tuner_choose(const struct tuner *tuner, const struct plan_job *job, enum frl_algo *ret_algo,
	size_t *ret_segment_bytes);

/* What the algorithm, which can do the job, is expected to take. */
double tuner_time_ns(const struct tuner *tuner, enum frl_algo algo, const struct plan_job *job);

/* For frl_comm_explain(): writes one line for each algorithm that can do the job, as snprintf(). */
int tuner_explain(const struct tuner *tuner, const struct plan_job *job, char *text, size_t size);

#endif
