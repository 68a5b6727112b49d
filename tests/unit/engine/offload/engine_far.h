/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames of which most lies in memory of the offload: what their tests share. */
#ifndef FERRULE_TESTS_UNIT_ENGINE_OFFLOAD_ENGINE_FAR_H
#define FERRULE_TESTS_UNIT_ENGINE_OFFLOAD_ENGINE_FAR_H

#include "tests/unit/engine/offload/offload_fixture.h"

enum {
	NEAR = 64,       /* payload of a SEND in its near part, over IPv4 */
	NEAR_WRITE = 48, /* with a RETH */
	MS = 1000000,
};

static struct offload_pair pair;

static inline void open_far(bool has_icrc)
{
	offload_pair_open(&pair, &(struct offload_config){ .is_far = true, .has_icrc = has_icrc });
}

static inline void send_from_a(unsigned i, enum frl_wr_opcode opcode, uint32_t length)
{
	host_post(pair.a, i, (struct frl_send_wr){ .opcode = opcode, .wr_id = 1 }, 0, length, NULL);
}

static inline void write_to(
	unsigned i, const struct region *region, uint32_t offset, uint32_t length)
{
	const struct frl_send_wr wr = {
		.opcode = FRL_WR_RDMA_WRITE,
		.wr_id = 1,
		.remote_addr = region->iova + offset,
		.rkey = region->key,
	};

	host_post(pair.a, i, wr, 0, length, NULL);
}

static inline void release_all(void)
{
	pair.mock.speed = UINT32_MAX;
	offload_settle(&pair);
}

#endif
