/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The choice of an algorithm, by a cost model or by FRL_ALGO. All ranks must choose the same, so
 * they use the same costs. Pure except for error texts, and read-only in use: any thread.
 *
 * The model is Hockney's, "The communication challenge for MPP", 1994, with terms for large
 * messages, several messages at once, and local work: see tuner_time_ns(). With oversubscription it
 * adds the common work of the ranks on a processor.
 */
#ifndef FERRULE_COLLECTIVES_TUNE_TUNER_H
#define FERRULE_COLLECTIVES_TUNE_TUNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/plan/plan.h"

/* Costs in nanoseconds. The first three are between ranks of one host, the next three between
 * hosts. */
enum tuner_cost {
	TUNER_LATENCY, /* a small message, one way, including software */
	TUNER_BYTE,    /* one more byte of a large message, over all rails */
	TUNER_LARGE,   /* additional cost of a large message */
	TUNER_FAR_LATENCY,
	TUNER_FAR_BYTE,
	TUNER_FAR_LARGE,
	TUNER_MESSAGE, /* one more small message at the same time */
	TUNER_REDUCE,  /* reducing or copying a byte locally */
	TUNER_COSTS,
	/* difference between a cost between hosts and the same within a host */
	TUNER_FAR = TUNER_FAR_LATENCY,
};

/*
 * Costs as powers of the square root of two: repeated measurements mostly give the same steps, and
 * therefore the same choices. Also the form between ranks and in files.
 */
struct tuner_costs {
	uint8_t step[TUNER_COSTS]; /* 0: not known */
};

enum tuner_source {
	TUNER_DEFAULTS, /* constants */
	TUNER_LOCAL,    /* constants, because all rails are local */
	TUNER_MEASURED, /* when the communicator was created */
	TUNER_KEPT,     /* measured earlier, from a file */
	TUNER_GIVEN,    /* FRL_TUNER_COSTS */
	TUNER_SOURCES,
};

enum {
	TUNER_TEXT = 256,                   /* size of costs as text */
	TUNER_STEP_LEAST = 32,              /* 2^-12 ns */
	TUNER_STEP_ONE = 56,                /* 1 ns */
	TUNER_STEP_MOST = 136,              /* 2^40 ns */
	TUNER_OVERSUBSCRIPTION_MOST = 4096, /* ranks per processor */
};

struct tuner {
	struct tuner_costs costs; /* including defaults for unknown costs */
	struct tuner_costs known; /* without defaults */
	enum tuner_source source;
	int64_t made_s; /* TUNER_KEPT: time of the measurement, seconds since 1970 */
	bool is_due;    /* TUNER_KEPT: the costs should be checked */
	bool is_staged; /* a rank stages data to be reduced: net/staging.h */
	/* ranks per processor on the host where it is highest; at least 1 */
	double oversubscription;
	size_t segment_bytes; /* the longest segment */
	/* From FRL_ALGO, by collective: the algorithm, and whether the collective was named. */
	enum frl_algo forced[FRL_COLLS];
	bool is_strict[FRL_COLLS];
};

/*
 * Initializes a tuner with default costs and FRL_ALGO: "auto", an algorithm for all collectives
 * that it supports ("ring"), algorithms for some ("allreduce=ring,broadcast=tree"), or both,
 * separated by commas. Fails with -EINVAL and the thread's last error.
 */
int tuner_init(struct tuner *tuner, const char *algos, size_t segment_bytes);

/* Sets the known costs; the others are the defaults. */
void tuner_set_costs(
	struct tuner *tuner, const struct tuner_costs *costs, enum tuner_source source);

/*
 * Chooses the algorithm for a job, and the longest segment, to which the caller sets
 * job->segment_bytes. Fails with -ENOTSUP and the thread's last error if no algorithm, or not the
 * one that FRL_ALGO names for this collective, can do the job.
 */
int tuner_choose(const struct tuner *tuner, const struct plan_job *job, enum frl_algo *ret_algo,
	size_t *ret_segment_bytes);

/* Returns the expected time of an algorithm that can do the job. */
double tuner_time_ns(const struct tuner *tuner, enum frl_algo algo, const struct plan_job *job);

/* For frl_comm_explain(): writes one line per algorithm that can do the job, and one about the
 * costs, as snprintf(). */
int tuner_explain(const struct tuner *tuner, const struct plan_job *job, char *text, size_t size);

/* Copies the costs of the parent communicator's tuner. */
void tuner_take_costs(struct tuner *tuner, const struct tuner *from);

/* ---- costs.c */

/* Convert to the nearest step (0 if not positive) and back (0 for 0). */
uint8_t tuner_step(double ns);
double tuner_step_ns(uint8_t step);

/* Returns whether costs from another rank or a file are valid: each is a step or unknown. */
bool tuner_costs_are_plausible(const struct tuner_costs *costs);

/* Parses costs: "latency=2896,byte=0.25" in any order, not necessarily all, or "default".
 * Unnamed costs are unknown. Fails with -EINVAL and the thread's last error. */
int tuner_read_costs(const char *text, struct tuner_costs *ret_costs);
/* Writes the known costs in the same form. */
void tuner_write_costs(const struct tuner_costs *costs, char text[TUNER_TEXT]);

#endif
