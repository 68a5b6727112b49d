/* SPDX-License-Identifier: BSD-3-Clause */
/* Internals of the plan checker: the world in which plans run. */
#ifndef FERRULE_TESTS_UNIT_COLLECTIVES_PLAN_PLAN_CHECKER_INTERNAL_H
#define FERRULE_TESTS_UNIT_COLLECTIVES_PLAN_PLAN_CHECKER_INTERNAL_H

#include "lib/base/random.h"
#include "tests/unit/collectives/plan/plan_checker.h"

#define NOBODY UINT32_MAX

/* The contents of one element, kept at the byte where the element begins. */
struct cell {
	uint64_t sum;
	uint64_t expression;
	uint16_t weight; /* contributions */
	uint8_t coded;   /* times that it was rounded to the wire's format */
	uint8_t format;  /* enum cell_format */
	bool is_scaled;
};

enum cell_format {
	CELL_NOTHING,
	CELL_REST, /* a further byte of an element */
	CELL_PLAIN,
	CELL_ENCODED,
};

struct node {
	struct plan_job job;
	struct plan plan;
	struct cell *memory; /* one address space: the buffers, as they overlap */
	size_t base[PLAN_BUFFERS];
	size_t size[PLAN_BUFFERS];
	size_t bytes;
	uint32_t first_step; /* of all steps of all ranks */
	uint32_t local;      /* the next local step, of the plan */
	size_t *counts;      /* ALLTOALLV: send_counts, send_displs, recv_counts, recv_displs */
};

/* A step while it runs. */
struct progress {
	uint32_t rank;
	uint32_t match;   /* the other end of a message */
	uint32_t next;    /* step on the same connection; NOBODY: the last */
	uint32_t done;    /* segments */
	uint32_t events;  /* where its segments begin in world.events_of, but for sends */
	uint32_t waiters; /* first candidate that waits for this step */
};

/* Events in their order. A message has two: when it may be sent, and when it is delivered. */
struct event {
	uint32_t before[5];
	uint32_t depth; /* messages that follow each other up to here */
	uint32_t rank;
	uint32_t from; /* of a delivery: who sent; otherwise NOBODY */
	uint64_t seen; /* scratch of the searches */
};

struct access {
	size_t low, high;    /* addresses */
	uint32_t start, end; /* events */
	uint32_t step;
	bool writes;
};

/* Something that can advance: the local steps of a rank, or a connection. */
struct candidate {
	uint32_t rank; /* of the local steps; NOBODY: a connection */
	uint32_t send; /* the step that is being sent, of all */
	uint32_t last_event;
	uint32_t next_waiter;
};

struct accesses {
	struct access *list;
	size_t n, capacity;
};

struct world {
	const struct check_case *c;
	struct check_result *result;
	struct random_state random;
	uint64_t short_bytes; /* messages up to so long may overtake others */
	struct node *nodes;
	struct progress *steps;
	uint32_t n_steps;
	uint32_t *events_of; /* that complete segments of steps */
	struct event *events;
	uint32_t n_events, events_capacity;
	struct candidate *candidates;
	uint32_t n_candidates;
	uint32_t *ready; /* candidates, in no order */
	uint32_t n_ready;
	struct accesses *accesses; /* by rank; of some only, if there are many */
};

/* Records the first mistake; returns false. */
bool check_fail(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

const struct plan_step *check_step(const struct world *w, uint32_t step);
uint32_t check_segments(const struct world *w, uint32_t step);

/* plan_checker_data.c */
bool check_ranges(struct world *w, uint32_t rank, uint32_t step);
bool check_move(struct world *w, uint32_t from_rank, uint32_t to_rank, uint32_t send, uint32_t step,
	uint32_t segment);
void check_fill(struct world *w, uint32_t rank);
bool check_results(struct world *w);
void check_addresses(const struct world *w, uint32_t rank, uint32_t step,
	const struct plan_range *range, uint32_t segment, size_t *ret_low, size_t *ret_high);

/* plan_checker_run.c */
bool check_run(struct world *w);

/* plan_checker_order.c */
bool check_order(struct world *w);
bool check_barrier(struct world *w);

#endif
