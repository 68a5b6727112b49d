/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/engine/offload/offload_fixture.h"

#include <errno.h>
#include <string.h>

enum { QUIET = 200 }; /* rounds: what is done out of order is seen late */

static struct offload_pair *current;

uint8_t offload_byte(uint32_t i)
{
	return (uint8_t)(i * 7 + i / 251 + 1);
}

void offload_fill(uint8_t *bytes, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		bytes[i] = offload_byte(i);
}

static void add_region(struct offload_pair *pair, const struct offload_config *config)
{
	struct host *host = pair->b;

	mock_offload_init(&pair->mock, 1);
	host->port.base.caps.max_held = config->held ? config->held : OFFLOAD_HELD;
	if (config->is_far) {
		pair->far = mock_offload_memory(
			&pair->mock, (size_t)FAKE_FAR_SLOTS * FAKE_FAR_SLOT);
		host->port.far_there = pair->far->there;
		host->port.far_view = pair->far->view;
	}
	ck_assert_int_eq(mock_offload_attach(&pair->mock, &host->engine), 0);
	pair->memory = mock_offload_memory(
		&pair->mock, config->memory ? config->memory : OFFLOAD_MEMORY);
	pair->region = (struct region){
		.addr = pair->memory->there,
		.length = pair->memory->size,
		.iova = (uintptr_t)pair->memory->there,
		.access = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE |
			FRL_ACCESS_REMOTE_READ | FRL_ACCESS_REMOTE_ATOMIC | FRL_ACCESS_MW_BIND,
		.pd = &host->pd,
		.owner = &pair->mock.base,
	};
	ck_assert_int_eq(engine_add_region(&host->engine, &pair->region), 0);
}

void offload_pair_open(struct offload_pair *pair, const struct offload_config *config)
{
	const struct host_config hosts[] = {
		{ .in_place = config->in_place, .on_demand = config->in_place, .second = true },
		{ .in_place = config->in_place, .on_demand = config->in_place },
	};
	const struct host_qp_config qp = {
		.type = config->type,
		.capabilities = config->in_place || (config->is_far && !config->has_icrc)
			? FRL_CAP_NO_ICRC
			: 0,
	};

	current = pair;
	pair->b = host_new(&hosts[1]);
	pair->b->port.map_error = config->copies ? -ENOTSUP : 0;
	pair->a = config->loop ? pair->b : host_new(&hosts[0]);
	pair->a->port.base.caps.has_far = pair->b->port.base.caps.has_far = config->is_far;
	/* One that is there already, and one that comes later. */
	if (config->loop)
		add_region(pair, config);
	host_pair(pair->a, 0, pair->b, 1, &qp);
	if (!config->loop)
		add_region(pair, config);
}

void offload_pair_close(struct offload_pair *pair)
{
	engine_remove_region(&pair->b->engine, &pair->region);
	pair->mock.speed = UINT32_MAX;
	offload_settle(pair);
	ck_assert(!engine_offloads_busy(&pair->b->engine));
	mock_offload_detach(&pair->mock, &pair->b->engine);
	if (pair->a != pair->b)
		host_free(pair->a);
	host_free(pair->b);
	mock_offload_fini(&pair->mock);
}

void offload_settle(struct offload_pair *pair)
{
	struct host *a = pair->a, *b = pair->b;

	for (unsigned quiet = 0; quiet < QUIET; quiet++) {
		if (host_step(a, b))
			quiet = 0;
	}
}

void offload_post_reduce(struct host *host, unsigned i, uint64_t wr_id, uint32_t offset,
	uint32_t length, int32_t src)
{
	struct frl_sge sge = { current->memory->there + offset, length, current->region.key };
	struct frl_recv_wr wr = { .wr_id = wr_id, .sge = &sge, .n_sge = 1 };
	const char *why = "";

	wr.action = (struct frl_recv_action){ .type = FRL_ACTION_REDUCE,
		.dtype = FRL_FLOAT32,
		.op = FRL_SUM,
		.src = src < 0 ? NULL : current->memory->there + src,
		.src_lkey = current->region.key };
	ck_assert_msg(qp_post_recv(&host->qps[i].qp.core, &wr, &why) == 0, "%s", why);
}

void offload_post_recv(
	struct host *host, unsigned i, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	struct frl_sge sge = { current->memory->there + offset, length, current->region.key };
	struct frl_recv_wr wr = { .wr_id = wr_id, .sge = &sge, .n_sge = 1 };
	const char *why = "";

	ck_assert_msg(qp_post_recv(&host->qps[i].qp.core, &wr, &why) == 0, "%s", why);
	engine_update(&host->engine, &host->qps[i].qp);
}

void offload_post(
	struct host *host, unsigned i, struct frl_send_wr wr, uint32_t offset, uint32_t length)
{
	struct frl_sge sge = { current->memory->there + offset, length, current->region.key };
	const struct wr_objects objects = { 0 };
	const char *why = "";

	wr.flags |= FRL_SEND_SIGNALED;
	wr.sge = &sge;
	wr.n_sge = 1;
	ck_assert_msg(qp_post_send(&host->qps[i].qp.core, &wr, &objects, &why) == 0, "%s", why);
	engine_update(&host->engine, &host->qps[i].qp);
}

void offload_expect(const uint8_t *bytes, uint32_t from, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		ck_assert_uint_eq(bytes[i], offload_byte(from + i));
}

void offload_add_ah(struct offload_pair *pair, struct engine_ah *ah)
{
	struct frl_ah_attr attr = { .sgid_index = HOST_GID_V4 };
	const char *why;

	attr.dgid = pair->b->engine.gids.gids[HOST_GID_V4].ip;
	memcpy(attr.dmac, pair->b->port.base.caps.mac, 6);
	memset(ah, 0, sizeof(*ah));
	ah->core.pd = &pair->a->pd;
	ck_assert_int_eq(engine_add_ah(&pair->a->engine, ah, &attr, pair->a->now_ns, &why), 0);
}
