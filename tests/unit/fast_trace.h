/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs of the same steps, one on the general path and one on the fast path: the first run records
 * what it does, the second one must do the same. One pair of runs in a process.
 */
#ifndef FERRULE_TESTS_FAST_TRACE_H
#define FERRULE_TESTS_FAST_TRACE_H

#include "lib/base/random.h"
#include "tests/unit/qp_fixture.h"

/* Runs `run(general, seed)` twice, and prints the seed of the first difference. Values that are
 * noted in between must be the same, in the same order. */
void trace_compare(void (*run)(bool general, uint64_t seed), uint64_t seed);

/* The seed of case `i`: FRL_SEED, if it is set. */
uint64_t trace_seed(int i);
/* `n` cases, or one if FRL_SEED is set. */
int trace_cases(int n);

/* A step begins; differences are reported with its number. */
void trace_step(uint32_t step);
void trace_note(const char *what, uint64_t value);
/* The queue pair, field by field, its queues, and the counters. */
void trace_qp(const struct fixture *f);
/* Headers as they are on the wire, and where the payload is. */
void trace_packet(const struct fixture *f, const struct packet_out *out);
void trace_placements(const struct fixture *f);
/* Takes all completions. Returns how many. */
uint32_t trace_completions(struct fixture *f);

#endif
