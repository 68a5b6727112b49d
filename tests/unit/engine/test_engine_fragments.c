/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving into packet buffers: armed parts, arriving pieces, and refusals. */
#include <errno.h>
#include <string.h>

#include "lib/engine/fragments.h"
#include "tests/unit/engine/offload/offload_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/vectors/frame.h"

enum {
	KEPT = 24,      /* frames that the port spares for shares */
	QUOTA = 16,     /* of those: this share's */
	NAMED = 100000, /* bytes of the region */
	PSN = 7000,     /* of host_pair() */
};

/* Kept in its frame; between queue pairs of one engine; out of the sender's memory. */
enum way { FRAME, LOOP, IN_PLACE };

static struct host *a, *b;
static struct fragments share;
static struct region region;
static struct frl_fragment list[64];

/* A name for what nobody may touch. */
static uint8_t *const name = (uint8_t *)(uintptr_t)0x7000000000000040;

static void add_share(struct host *host)
{
	host->port.base.caps.max_kept = KEPT;
	ck_assert_int_eq(fragments_init(&host->engine, &share, QUOTA), 0);
	region = (struct region){
		.addr = name,
		.length = NAMED,
		.iova = (uintptr_t)name,
		.access = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE,
		.pd = &host->pd,
		.fragments = &share,
	};
	ck_assert_int_eq(engine_add_region(&host->engine, &region), 0);
}

/* Queue pair 0 of a writes to 1 of b. */
static void open_pair(enum way way)
{
	bool in_place = way == IN_PLACE;
	const struct host_config hosts[] = {
		{ .in_place = in_place, .on_demand = in_place, .second = true },
		{ .in_place = in_place, .on_demand = in_place },
	};
	const struct host_qp_config qp = { .capabilities = in_place ? FRL_CAP_NO_ICRC : 0 };

	b = host_new(&hosts[1]);
	a = way == LOOP ? b : host_new(&hosts[0]);
	host_pair(a, 0, b, 1, &qp);
	add_share(b);
	offload_fill(a->memory, sizeof(a->memory));
}

static void close_pair(void)
{
	engine_remove_region(&b->engine, &region);
	fragments_fini(&b->engine, &share);
	ck_assert_uint_eq(b->port.n_out, 0);
	ck_assert_uint_eq(fragments_left(&b->engine), KEPT);
	if (a != b)
		host_free(a);
	host_free(b);
}

static int try_arm(uint32_t offset, size_t length, struct frl_fragment *to, uint32_t frames,
	uint32_t *ret_token)
{
	const struct fragments_part part = { &region, name + offset, length, to, frames };

	return fragments_arm(&share, &part, ret_token);
}

static uint32_t arm(uint32_t offset, size_t length, struct frl_fragment *to, uint32_t frames)
{
	uint32_t token = 0;

	ck_assert_int_eq(try_arm(offset, length, to, frames, &token), 0);
	return token;
}

static void post_write_by(uint32_t rkey, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	const struct frl_send_wr wr = {
		.wr_id = wr_id,
		.opcode = FRL_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = 77,
		.remote_addr = (uintptr_t)name + offset,
		.rkey = rkey,
	};

	host_post(a, 0, wr, 0, length, NULL);
}

static void post_write(uint64_t wr_id, uint32_t offset, uint32_t length)
{
	post_write_by(region.key, wr_id, offset, length);
}

/* The pieces are what a has sent, one after the other. */
static void check_list(const struct frl_fragment *from, uint32_t token, uint32_t length)
{
	const struct armed *armed = fragments_find(&share, token);
	uint32_t at = 0;

	ck_assert_ptr_nonnull(armed);
	ck_assert_uint_eq(armed->bytes, length);
	ck_assert_uint_eq(armed->n, (length + HOST_MTU - 1) / HOST_MTU);
	for (uint32_t i = 0; i < armed->n; i++) {
		const uint8_t *bytes = from[i].addr;

		ck_assert_uint_eq(from[i].offset, at);
		ck_assert_uint_eq(from[i].length, length - at < HOST_MTU ? length - at : HOST_MTU);
		for (uint32_t k = 0; k < from[i].length; k++)
			ck_assert_uint_eq(bytes[k], offload_byte(at + k));
		at += from[i].length;
	}
}

START_RANGE_TEST(stays_in_buffers, FRAME, IN_PLACE)
{
	enum { LENGTH = 3 * HOST_MTU + 10 };
	uint32_t first, second;

	open_pair((enum way)_i);
	first = arm(64, LENGTH, list, 4);
	second = arm(64 + LENGTH, LENGTH, list + 8, 5);
	for (unsigned i = 0; i < 2; i++)
		host_post_recv(b, 1, 5 + i, 0, 0);
	post_write(1, 64, LENGTH);
	host_settle(a, b);
	host_expect_wc(&a->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_wc(&b->cqs[1], 5, FRL_WC_SUCCESS);
	ck_assert_uint_eq(b->port.n_out, 4);
	check_list(list, first, LENGTH);
	/* Later messages go elsewhere. */
	post_write(2, 64 + LENGTH, LENGTH);
	host_settle(a, b);
	host_expect_wc(&b->cqs[1], 6, FRL_WC_SUCCESS);
	ck_assert_uint_eq(b->port.n_out, 8);
	check_list(list, first, LENGTH);
	check_list(list + 8, second, LENGTH);
	ck_assert_uint_eq(b->engine.stats.bytes_placed, 2 * LENGTH);
	ck_assert_int_eq(fragments_release(&b->engine, &share, first), 0);
	ck_assert_uint_eq(b->port.n_out, 4);
	check_list(list + 8, second, LENGTH);
	ck_assert_int_eq(fragments_release(&b->engine, &share, second), 0);
	ck_assert_uint_eq(b->port.n_out, 0);
	ck_assert_uint_eq(share.reserved, 0);
	close_pair();
}
END_TEST

/* Payload in the sender's memory is copied once. If it was not the sender's any more it is none of
 * the message's pieces. Other refusals (2) are reported first. */
START_LOOP_TEST(in_place_payload, 3)
{
	const int told[] = { FRL_WC_SUCCESS, FRL_WC_REM_ABORT_ERR, FRL_WC_LOC_PROT_ERR };
	struct wire_headers h = { .bth = { .opcode = OP_WRITE_ONLY_IMM, .pkey = PKEY_DEFAULT },
		.reth = { .va = (uintptr_t)name, .dma_length = HOST_MTU } };
	uint8_t payload[HOST_MTU];
	struct frame frame;
	uint32_t token;

	open_pair(IN_PLACE);
	token = arm(0, HOST_MTU, list, _i < 2);
	host_post_recv(b, 1, 5, 0, 0);
	offload_fill(payload, sizeof(payload));
	h.reth.rkey = region.key;
	h.bth.dest_qpn = b->qps[1].qp.core.qpn;
	h.bth.psn = psn_make(PSN);
	frame = make_frame(0, &h, HOST_MTU, false);
	b->port.lost = _i > 0;
	fake_port_receive_split(
		&b->port, 0, frame.bytes, (uint32_t)frame.payload, payload, HOST_MTU);
	host_poll(b);
	ck_assert_uint_eq(b->port.asked, 1);
	memset(payload, 0xee, sizeof(payload));
	host_expect_wc(&b->cqs[1], 5, told[_i]);
	check_list(list, token, _i ? 0 : HOST_MTU);
	ck_assert_uint_eq(b->port.n_out, _i ? 0 : 1);
	if (!_i)
		ck_assert_uint_eq((uintptr_t)list[0].addr % 64, 0);
	close_pair();
}
END_TEST

static const struct refusal {
	uint32_t offset, length; /* that are armed; no length: nothing is */
	uint32_t frames;
	bool no_buffer;
	uint32_t kept; /* packets that had room */
	const char *word;
} refusals[] = {
	{ .word = "not armed" },
	{ 0, 3 * HOST_MTU - 1, 3, .kept = 2, .word = "not armed" },
	{ 1, 3 * HOST_MTU, 4, .word = "not armed" },
	{ 0, 3 * HOST_MTU, 2, .kept = 2, .word = "more packets" },
	{ 0, 3 * HOST_MTU, 0, .word = "more packets" },
	{ 0, 3 * HOST_MTU, 3, .no_buffer = true, .word = "no free packet buffer" },
};

/* Nothing is lost silently: nobody is told that it has come. */
START_LOOP_TEST(refused, ROWS(refusals))
{
	const struct refusal *row = &refusals[_i];
	uint32_t token = 0;
	struct frl_wc wc;

	open_pair(row->no_buffer ? LOOP : FRAME);
	b->port.has_no_buffer = row->no_buffer;
	if (row->length)
		token = arm(row->offset, row->length, list, row->frames);
	host_post_recv(b, 1, 5, 0, 0);
	post_write(1, 0, 3 * HOST_MTU);
	host_settle(a, b);
	host_expect_wc(&b->cqs[1], 5, row->kept == 2 ? FRL_WC_LOC_PROT_ERR : FRL_WC_WR_FLUSH_ERR);
	host_expect_no_wc(&b->cqs[1]);
	ck_assert_int_eq(b->qps[1].qp.core.state, FRL_QPS_ERR);
	ck_assert_ptr_nonnull(strstr(b->qps[1].qp.core.error, row->word));
	/* Its sender is not told that it has arrived. */
	while (cq_pop(&a->cqs[0], &wc))
		ck_assert_int_ne(wc.status, FRL_WC_SUCCESS);
	ck_assert_uint_eq(b->port.n_out, row->kept);
	if (row->length)
		check_list(list, token, row->kept * HOST_MTU);
	close_pair();
}
END_TEST

/* The region is for peers' writes and nothing else. */
START_LOOP_TEST(no_other_use, 4)
{
	static const enum frl_wr_opcode opcodes[] = { FRL_WR_RDMA_READ, FRL_WR_ATOMIC_FETCH_AND_ADD,
		FRL_WR_RDMA_WRITE, FRL_WR_RDMA_WRITE };
	static const uint64_t shifts[] = { 0, 0, NAMED, UINT64_MAX - 0x7000000000000000 };
	struct frl_send_wr wr = {
		.wr_id = 1, .opcode = opcodes[_i], .remote_addr = (uintptr_t)name + shifts[_i]
	};

	open_pair(FRAME);
	arm(0, NAMED, list, QUOTA);
	wr.rkey = region.key;
	host_post(a, 0, wr, 0, 8, NULL);
	host_settle(a, b);
	host_expect_wc(&a->cqs[0], 1, FRL_WC_REM_ACCESS_ERR);
	ck_assert_uint_eq(b->port.n_out, 0);
	close_pair();
}
END_TEST

START_TEST(no_local_use)
{
	const struct frl_sge sge = { name, 8, 0 };
	struct frl_sge own;
	struct frl_recv_wr recv = { .n_sge = 1, .sge = &own };
	struct frl_send_wr send = { .opcode = FRL_WR_SEND, .n_sge = 1, .sge = &own };
	const struct wr_objects none = { 0 };
	struct qp *qp;
	const char *why = "";

	open_pair(FRAME);
	qp = &b->qps[1].qp.core;
	own = sge;
	own.lkey = region.key;
	ck_assert_int_eq(qp_post_recv(qp, &recv, &why), -EINVAL);
	ck_assert_int_eq(qp_post_send(qp, &send, &none, &why), -EINVAL);
	send.flags = FRL_SEND_INLINE;
	ck_assert_int_eq(qp_post_send(qp, &send, &none, &why), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "host memory"));
	send = (struct frl_send_wr){ .opcode = FRL_WR_RDMA_READ,
		.n_sge = 1,
		.sge = &own,
		.remote_addr = (uintptr_t)a->memory,
		.rkey = a->region.key };
	ck_assert_int_eq(qp_post_send(qp, &send, &none, &why), -EINVAL);
	close_pair();
}
END_TEST

/* Messages without bytes need no room. */
START_TEST(nothing_comes)
{
	uint32_t token;

	open_pair(FRAME);
	token = arm(0, 0, NULL, 0);
	host_post_recv(b, 1, 5, 0, 0);
	post_write(1, 0, 0);
	host_settle(a, b);
	host_expect_wc(&b->cqs[1], 5, FRL_WC_SUCCESS);
	check_list(list, token, 0);
	/* Nor is it in the way. */
	arm(0, 100, list, 1);
	close_pair();
}
END_TEST

START_TEST(arming)
{
	uint32_t tokens[FRL_MAX_ARMED], token, stale;

	open_pair(FRAME);
	tokens[0] = arm(0, 100, list, QUOTA - 1);
	/* Parts that are not armed are not reported. */
	ck_assert_int_eq(try_arm(100, 100, list, 2, &token), -EAGAIN);
	ck_assert_int_eq(try_arm(99, 100, list, 1, &token), -EBUSY);
	ck_assert_int_eq(try_arm(0, 1, list, 0, &token), -EBUSY);
	tokens[1] = arm(100, 100, list, 1);
	ck_assert_int_eq(try_arm(200, 1, list, 1, &token), -EAGAIN);
	ck_assert(fragments_region_armed(&region));
	stale = tokens[0];
	ck_assert_int_eq(fragments_release(&b->engine, &share, stale), 0);
	ck_assert_ptr_null(fragments_find(&share, stale));
	ck_assert_int_eq(fragments_release(&b->engine, &share, stale), -EINVAL);
	ck_assert_ptr_nonnull(fragments_find(&share, tokens[1]));
	tokens[0] = arm(0, 100, list, 1);
	ck_assert_uint_ne(tokens[0], stale);
	for (unsigned i = 2; i < FRL_MAX_ARMED; i++) {
		tokens[i] = arm(100 * i, 100, NULL, 0);
		ck_assert_uint_ne(tokens[i], stale);
	}
	ck_assert_int_eq(try_arm(5000, 100, NULL, 0, &token), -EAGAIN);
	/* Also when its place is in use again. */
	ck_assert_ptr_null(fragments_find(&share, stale));
	ck_assert_int_eq(fragments_release(&b->engine, &share, stale), -EINVAL);
	for (unsigned i = FRL_MAX_ARMED; i > 0; i--)
		ck_assert_int_eq(fragments_release(&b->engine, &share, tokens[i - 1]), 0);
	ck_assert(!fragments_region_armed(&region));
	ck_assert_uint_eq(share.reserved, 0);
	/* Numbers that nobody was given. */
	for (token = 0; token < 64; token++)
		ck_assert_int_eq(fragments_release(&b->engine, &share, token), -EINVAL);
	close_pair();
}
END_TEST

/* By another region of the same memory, whose key a peer may have. */
START_TEST(other_region)
{
	struct region other;
	uint32_t token;

	open_pair(FRAME);
	other = region;
	ck_assert_int_eq(engine_add_region(&b->engine, &other), 0);
	token = arm(0, 100, list, 1);
	ck_assert(!fragments_region_armed(&other));
	host_post_recv(b, 1, 5, 0, 0);
	post_write_by(other.key, 1, 0, 100);
	host_settle(a, b);
	host_expect_wc(&b->cqs[1], 5, FRL_WC_LOC_PROT_ERR);
	check_list(list, token, 0);
	engine_remove_region(&b->engine, &other);
	close_pair();
}
END_TEST

/* One that lets its buffers lie stops nobody: each has its own, and finds them. */
START_LOOP_TEST(shares_are_apart, 2)
{
	enum { OWN = KEPT - QUOTA };
	struct fragments own, third;
	struct region other;
	uint32_t lying, token;

	open_pair(_i ? LOOP : FRAME);
	ck_assert_int_eq(fragments_init(&b->engine, &third, OWN + 1), -ENOSPC);
	ck_assert_int_eq(fragments_init(&b->engine, &own, OWN), 0);
	ck_assert_int_eq(fragments_init(&b->engine, &third, 1), -ENOSPC);
	other = region;
	other.fragments = &own;
	ck_assert_int_eq(engine_add_region(&b->engine, &other), 0);
	for (unsigned i = 0; i < 4; i++)
		host_post_recv(b, 1, 5 + i, 0, 0);
	lying = arm(0, QUOTA * HOST_MTU, list, QUOTA);
	post_write(1, 0, QUOTA * HOST_MTU);
	for (unsigned i = 0; i < 3; i++) {
		const struct fragments_part part = { &other, name, OWN * HOST_MTU, list + QUOTA,
			OWN };

		ck_assert_int_eq(fragments_arm(&own, &part, &token), 0);
		post_write_by(other.key, 2, 0, OWN * HOST_MTU);
		host_settle(a, b);
		ck_assert_uint_eq(b->port.n_out, KEPT);
		ck_assert_uint_eq(fragments_find(&own, token)->n, OWN);
		ck_assert_int_eq(fragments_release(&b->engine, &own, token), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		host_expect_wc(&b->cqs[1], 5 + i, FRL_WC_SUCCESS);
	check_list(list, lying, QUOTA * HOST_MTU);
	engine_remove_region(&b->engine, &other);
	fragments_fini(&b->engine, &own);
	close_pair();
}
END_TEST

struct slot {
	uint32_t token, length, frames;
	enum { IDLE, ARMED, COMPLETE } state;
};

/* Frames get lost, come twice, and in another order. */
static void carry_badly(struct random_state *random)
{
	uint8_t frame[FAKE_MAX_FRAME];

	for (uint32_t k = 0; k < a->port.n_sent; k++) {
		uint64_t fate = random_below(random, 40);
		uint32_t n = fate == 0 ? 0 : 1 + (fate == 1);
		uint32_t at = fate == 2 ? (uint32_t)random_below(random, a->port.n_sent) : k;
		size_t len = fake_port_flatten(&a->port.sent[at].packet, frame);

		for (; n; n--)
			fake_port_receive(&b->port, 0, frame, (uint32_t)len);
	}
	a->port.n_sent = 0;
	host_carry(b, a);
}

static void poll_at(struct random_state *random, uint64_t *now_ns)
{
	*now_ns += 1 + random_below(random, 300000);
	a->now_ns = b->now_ns = *now_ns;
	engine_poll(&a->engine, *now_ns);
	if (a == b)
		return;
	engine_poll(&b->engine, *now_ns);
	carry_badly(random);
}

/* Arms it, and has it written to. */
static void begin_slot(struct slot *slot, uint32_t i, struct random_state *random)
{
	uint32_t length = (uint32_t)random_below(random, 5 * HOST_MTU);
	uint32_t frames = (length + HOST_MTU - 1) / HOST_MTU + (uint32_t)random_below(random, 2);
	uint32_t offset = i * 8 * HOST_MTU + (uint32_t)random_below(random, 64), reserved;
	int rc;

	reserved = share.reserved;
	rc = try_arm(offset, length, &list[8 * i], frames, &slot->token);
	ck_assert_int_eq(rc, frames > QUOTA - reserved ? -EAGAIN : 0);
	if (rc)
		return;
	*slot = (struct slot){ slot->token, length, frames, ARMED };
	host_post_recv(b, 1, i, 0, 0);
	post_write(100 + i, offset, length);
}

static void step_slot(struct slot *slot, uint32_t i, struct random_state *random)
{
	if (slot->state == IDLE) {
		begin_slot(slot, i, random);
	} else if (slot->state == COMPLETE) {
		check_list(&list[8 * i], slot->token, slot->length);
		ck_assert_int_eq(fragments_release(&b->engine, &share, slot->token), 0);
		slot->state = IDLE;
	}
}

/* Each message is there once, whole, whatever the network does and in whatever order they are
 * released; no more buffers are kept than there are pieces of armed parts. */
START_LOOP_TEST(at_random, 6)
{
	enum { SLOTS = 8, STEPS = 4000 };
	struct slot slots[SLOTS] = { 0 };
	struct random_state random;
	uint64_t now_ns = 2000000000;
	uint32_t complete = 0;
	struct frl_wc wc;

	open_pair(_i % 2 ? LOOP : FRAME);
	random_seed(&random, (uint64_t)_i);
	for (uint32_t step = 0; step < STEPS; step++) {
		uint32_t i = (uint32_t)random_below(&random, SLOTS), kept = 0;

		step_slot(&slots[i], i, &random);
		poll_at(&random, &now_ns);
		while (cq_pop(&b->cqs[1], &wc)) {
			ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
			slots[wc.wr_id].state = COMPLETE;
			complete++;
		}
		while (cq_pop(&a->cqs[0], &wc))
			ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
		for (i = 0; i < SLOTS; i++)
			if (slots[i].state != IDLE)
				kept += fragments_find(&share, slots[i].token)->n;
		ck_assert_uint_eq(b->port.n_out, kept);
		ck_assert_uint_le(kept, share.reserved);
	}
	ck_assert_uint_gt(complete, STEPS / 20);
	close_pair();
}
END_TEST

/* Half of a message has arrived when its queue pair ends: that half stays until the release. */
START_LOOP_TEST(queue_pair_ends, 4)
{
	const struct frl_qp_attr reset = { .state = FRL_QPS_RESET };
	struct wire_headers h = { .bth = { .opcode = OP_WRITE_FIRST, .pkey = PKEY_DEFAULT },
		.reth = { .va = (uintptr_t)name, .dma_length = 2 * HOST_MTU } };
	const struct armed *armed;
	struct frame frame;
	uint32_t token;

	open_pair(FRAME);
	token = arm(0, 2 * HOST_MTU, list, 2);
	h.reth.rkey = region.key;
	h.bth.dest_qpn = b->qps[1].qp.core.qpn;
	h.bth.psn = psn_make(PSN);
	frame = make_frame(0, &h, HOST_MTU, true);
	/* A repetition is no second piece. */
	for (unsigned i = 0; i < 2; i++)
		fake_port_receive(&b->port, 0, frame.bytes, (uint32_t)frame.len);
	host_poll(b);
	switch (_i) {
	case 0: engine_remove_qp(&b->engine, &b->qps[1].qp); break;
	case 1: ck_assert_int_eq(host_modify(b, 1, &reset, FRL_QP_STATE, NULL), 0); break;
	case 2: engine_drop_link(&b->engine, 0); break;
	default: engine_revoke(&b->engine); break;
	}
	host_poll(b);
	armed = fragments_find(&share, token);
	ck_assert_uint_eq(armed->n, 1);
	ck_assert_uint_eq(armed->bytes, HOST_MTU);
	ck_assert_uint_eq(b->port.n_out, 1);
	for (uint32_t i = 0; i < HOST_MTU; i++)
		ck_assert_uint_eq(((const uint8_t *)list[0].addr)[i], (uint8_t)(i + 1));
	if (_i)
		ck_assert_int_eq(fragments_release(&b->engine, &share, token), 0);
	close_pair();
}
END_TEST

/* In the same bursts as frames that wait for an offload. */
START_LOOP_TEST(beside_an_offload, 2)
{
	struct offload_pair p;
	uint32_t token;

	offload_pair_open(&p, &(struct offload_config){ .loop = _i });
	a = p.a;
	b = p.b;
	add_share(b);
	offload_fill(a->memory, HOST_MEMORY);
	token = arm(0, HOST_MTU, list, 1);
	offload_post_recv(b, 1, 5, 0, HOST_MTU);
	host_post(a, 0, (struct frl_send_wr){ .opcode = FRL_WR_SEND }, 0, HOST_MTU, NULL);
	host_post_recv(b, 1, 6, 0, 0);
	post_write(1, 0, HOST_MTU);
	offload_settle(&p);
	ck_assert_uint_eq(b->port.n_out, _i ? 1 : 2);
	check_list(list, token, HOST_MTU);
	mock_offload_step(&p.mock, 1);
	offload_settle(&p);
	host_expect_wc(&b->cqs[1], 5, FRL_WC_SUCCESS);
	host_expect_wc(&b->cqs[1], 6, FRL_WC_SUCCESS);
	ck_assert_uint_eq(b->port.n_out, 1);
	engine_remove_region(&b->engine, &region);
	fragments_fini(&b->engine, &share);
	offload_pair_close(&p);
}
END_TEST

TEST_FILE(engine_fragments)
