/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which algorithm: by a model of what each would cost, or as FRL_ALGO says. All ranks must come to
 * the same, so they give the same numbers to the model. Pure but for error texts; only read while
 * it is used, so any thread.
 *
 * The model is the one of Hockney, "The communication challenge for MPP", 1994, with terms for
 * large messages, several at once, and local work; see tuner_time_ns(). Where ranks are more than
 * processors it adds their common work.
 */
#ifndef FERRULE_COLLECTIVES_TUNER_H
#define FERRULE_COLLECTIVES_TUNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/plan.h"

/* What the model must know, in nanoseconds. The first three are of ranks on one host, those that
 * follow of ranks on several. */
enum tuner_cost {
	TUNER_LATENCY, /* a small message, one way, with what the software takes */
	TUNER_BYTE,    /* one more byte of a large message; all rails together */
	TUNER_LARGE,   /* what a large message takes more than latency and bytes */
	TUNER_FAR_LATENCY,
	TUNER_FAR_BYTE,
	TUNER_FAR_LARGE,
	TUNER_MESSAGE, /* one more small message at the same time */
	TUNER_REDUCE,  /* reducing or copying a byte locally */
	TUNER_COSTS,
	TUNER_FAR = TUNER_FAR_LATENCY, /* from a number of one host to that of several */
};

/*
 * As steps of a factor of the square root of two: so that what is measured again is mostly the
 * same, and choices with it. Also their form between ranks and in files.
 */
struct tuner_costs {
	uint8_t step[TUNER_COSTS]; /* 0: not known */
};

enum tuner_source {
	TUNER_DEFAULTS, /* fixed numbers */
	TUNER_LOCAL,    /* defaults, chosen because all rails are local */
	TUNER_MEASURED, /* when the communicator was made */
	TUNER_KEPT,     /* in a file, earlier */
	TUNER_GIVEN,    /* FRL_TUNER_COSTS */
	TUNER_SOURCES,
};

enum {
	TUNER_TEXT = 256,        /* for costs as text */
	TUNER_STEP_LEAST = 32,   /* 2^-12 ns */
	TUNER_STEP_ONE = 56,     /* 1 ns */
	TUNER_STEP_MOST = 136,   /* 2^40 ns */
	TUNER_CROWD_MOST = 4096, /* ranks for a processor */
};

struct tuner {
	struct tuner_costs costs; /* all of them */
	struct tuner_costs known; /* but for the defaults */
	enum tuner_source source;
	int64_t made_s;       /* TUNER_KEPT: when they were measured, seconds since 1970 */
	bool is_due;          /* the same: they are to be checked */
	bool is_staged;       /* at some rank what is reduced goes through a ring: staging.h */
	double crowd;         /* ranks for a processor, where they are most; at least 1 */
	size_t segment_bytes; /* the longest segment */
	/* By FRL_ALGO: for each collective, and whether it was named or goes for all. */
	enum frl_algo forced[FRL_COLLS];
	bool is_strict[FRL_COLLS];
};

/*
 * With the default costs, and what FRL_ALGO says: "auto", an algorithm for all collectives that it
 * can do ("ring"), algorithms for some ("allreduce=ring,broadcast=tree"), or both, separated by
 * commas. -EINVAL with the thread's last error.
 */
int tuner_init(struct tuner *tuner, const char *algos, size_t segment_bytes);

/* Takes the costs that are known; the others are the defaults. */
void tuner_set_costs(
	struct tuner *tuner, const struct tuner_costs *costs, enum tuner_source source);

/*
 * The algorithm for the job, and the longest segment: job->segment_bytes is not looked at, the
 * caller sets it to what is returned. -ENOTSUP with the thread's last error: none can, or the one
 * that FRL_ALGO names for this collective cannot.
 */
int tuner_choose(const struct tuner *tuner, const struct plan_job *job, enum frl_algo *ret_algo,
	size_t *ret_segment_bytes);

/* What the algorithm, which can do the job, is expected to take. */
double tuner_time_ns(const struct tuner *tuner, enum frl_algo algo, const struct plan_job *job);

/* For frl_comm_explain(): one line for each algorithm that can do the job, and one about the
 * costs, as snprintf(). */
int tuner_explain(const struct tuner *tuner, const struct plan_job *job, char *text, size_t size);

/* The costs of another one, which a communicator was made out of. */
void tuner_take_costs(struct tuner *tuner, const struct tuner *from);

/* ---- tuner_costs.c */

/* The nearest step; 0 for what is no positive number. And back: 0 for 0. */
uint8_t tuner_step(double ns);
double tuner_step_ns(uint8_t step);

/* May another rank or a file say so? Each is a step or not known. */
bool tuner_costs_are_plausible(const struct tuner_costs *costs);

/* "latency=2896,byte=0.25", in any order and not all of them; or "default". -EINVAL with the
 * thread's last error. What is not named is not known. */
int tuner_read_costs(const char *text, struct tuner_costs *ret_costs);
/* Those that are known, in the same form. */
void tuner_write_costs(const struct tuner_costs *costs, char text[TUNER_TEXT]);

#endif
