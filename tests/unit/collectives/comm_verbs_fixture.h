/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators over hardware devices of tests/fakes/verbs/fake_verbs.h: device i of rank r is
 * "nic<r><i>", with its first port. */
#ifndef FERRULE_TESTS_UNIT_COLLECTIVES_COMM_VERBS_FIXTURE_H
#define FERRULE_TESTS_UNIT_COLLECTIVES_COMM_VERBS_FIXTURE_H

#include "tests/unit/collectives/comm_fixture.h"
#include "tests/fakes/verbs/fake_verbs.h"

enum { PLUG_RANKS = 3, PLUG_RAILS = 2 };

/* Options; zeros are defaults. */
struct plug {
	bool is_one_device;  /* rails are the ports of one device, "nic<r>0" */
	bool tells_late;     /* completions that nobody wants any more: see fake_verbs.h */
	bool is_mixed;       /* rank 1 has devices of another kind, "rxe<r><i>" */
	uint64_t memlock;    /* bytes */
	bool has_few_inline; /* `max_inline` bytes, which may be 0 */
	uint32_t max_inline;
};

/* Plugs in the devices of all ranks, on a wire where retries are soon exhausted. */
void plug_in(const struct plug *plug);
/* Checks that they have no objects left. */
void plug_out(void);
/* For job->port: of the last plug_in(). */
const char *plug_port(int rank, int rail);
/* The device that a rank's rail is on, and its port. */
const char *plug_device(int rank, int rail);
uint8_t plug_port_number(int rail);

/* Starts an allreduce of `count` int32, whose sums plug_sums_are_right() expects. */
int plug_start(struct rank *rank, int32_t *values, size_t count, struct frl_request **ret_request);
bool plug_sums_are_right(struct rank *rank, const int32_t *values, size_t count);
/* Runs all of it. Returns what waiting returned. */
int plug_allreduce(struct rank *rank, int32_t *values, size_t count);

#endif
