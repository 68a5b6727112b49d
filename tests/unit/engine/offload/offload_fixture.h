/* SPDX-License-Identifier: BSD-3-Clause */
/* Two hosts, one of which works with memory that the processor does not reach. */
#ifndef FERRULE_TESTS_UNIT_ENGINE_OFFLOAD_OFFLOAD_FIXTURE_H
#define FERRULE_TESTS_UNIT_ENGINE_OFFLOAD_OFFLOAD_FIXTURE_H

#include "tests/unit/engine/engine_fixture.h"
#include "tests/fakes/mock_offload.h"

enum {
	OFFLOAD_MEMORY = 131072,
	OFFLOAD_HELD = 16, /* frames that the port spares */
};

struct offload_config {
	enum frl_qp_type type; /* RC */
	bool loop;             /* both are one */
	bool in_place;         /* and on demand, without ICRC */
	bool copies;           /* the port refers to no memory */
	/* The offload's memory gets most of what `b` receives; without an ICRC, or with one; and
	 * the frames that the port spares (OFFLOAD_HELD). */
	bool is_far;
	bool has_icrc;
	uint32_t held;
	uint32_t memory; /* bytes (OFFLOAD_MEMORY) */
};

/* Queue pair 0 of `a` is connected with 1 of `b`, whose the memory is. */
struct offload_pair {
	struct host *a, *b;
	struct mock_offload mock;
	struct mock_memory *memory, *far;
	struct region region;
};

/* Launched work is done when the test says so: mock.speed is 0. */
void offload_pair_open(struct offload_pair *pair, const struct offload_config *config);
/* Nothing may be under way. */
void offload_pair_close(struct offload_pair *pair);

/* Polls both until nothing has moved for some rounds, whatever is under way. */
void offload_settle(struct offload_pair *pair);

/* Requests about `length` bytes at `offset` of the memory. */
void offload_post_recv(
	struct host *host, unsigned i, uint64_t wr_id, uint32_t offset, uint32_t length);
/* Sums of floats; the first operand is at `src`, or, if that is negative, the element itself. */
void offload_post_reduce(struct host *host, unsigned i, uint64_t wr_id, uint32_t offset,
	uint32_t length, int32_t src);
void offload_post(
	struct host *host, unsigned i, struct frl_send_wr wr, uint32_t offset, uint32_t length);

uint8_t offload_byte(uint32_t i);
void offload_fill(uint8_t *bytes, uint32_t length);
/* Checks that the bytes are those of offload_fill(), from number `from` on. */
void offload_expect(const uint8_t *bytes, uint32_t from, uint32_t length);

/* An address handle of `a`, in a pair of the type UD, for `b`. */
void offload_add_ah(struct offload_pair *pair, struct engine_ah *ah);

#endif
