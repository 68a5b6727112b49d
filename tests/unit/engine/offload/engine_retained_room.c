/* SPDX-License-Identifier: BSD-3-Clause */
/* How much is retained, and the frames that go when the room is needed. */
#include <string.h>

#include "lib/engine/offload/transfers.h"
#include "tests/unit/engine/offload/engine_retained.h"

enum {
	/* In which packets are kept, at most. */
	SLABS_KEPT = 128,
	BUFFERS = 2048,
};

/* The oldest ones go, and not all frames that may be held are for this. */
START_LOOP_TEST(too_many, KINDS)
{
	static const uint32_t most[] = { OFFLOAD_HELD / 2 + BUFFERS, SLABS_KEPT + BUFFERS,
		BUFFERS };
	const uint32_t batch = OFFLOAD_HELD, length = OFFLOAD_HELD * HOST_MTU;
	uint32_t batches = most[_i] / batch + 2, gone = batches * batch - most[_i];

	retained_open(_i, &(struct offload_config){ .memory = batches * length });
	for (uint32_t k = 0; k < batches; k++)
		retained_receive(k * length, length, KEEP);
	ck_assert_uint_eq(
		retained_pair.b->port.n_out, retained_test == FRAMES ? OFFLOAD_HELD / 2 : 0);
	for (uint32_t k = 0; k < batches; k++) {
		uint32_t first = gone < batch ? gone : batch;

		gone -= first;
		retained_post(k * length, length, KEEP);
		retained_check(length, first * HOST_MTU, length);
	}
	ck_assert_uint_eq(retained_count(), most[_i] * HOST_MTU);
	offload_pair_close(&retained_pair);
}
END_TEST

static struct mock_offload other;
static struct mock_memory *other_memory;
static struct region other_region;

/* Receives for another GPU, by queue pair 3 of `b`, and nothing is done there. */
static void add_other(uint32_t length)
{
	const struct frl_send_wr send = { .wr_id = 1, .opcode = FRL_WR_SEND };
	struct frl_sge sge = { .length = length };
	struct frl_recv_wr wr = { .wr_id = 7, .sge = &sge, .n_sge = 1, .keep = KEEP };
	const char *why = "";

	mock_offload_init(&other, 2);
	other.reaches_one_in = retained_pair.mock.reaches_one_in;
	ck_assert_int_eq(mock_offload_attach(&other, &retained_pair.b->engine), 0);
	other_memory = mock_offload_memory(&other, length);
	other_region = retained_pair.region;
	other_region.addr = other_memory->there;
	other_region.length = length;
	other_region.iova = (uintptr_t)other_memory->there;
	other_region.owner = &other.base;
	ck_assert_int_eq(engine_add_region(&retained_pair.b->engine, &other_region), 0);
	sge.addr = other_memory->there;
	sge.lkey = other_region.key;
	if (retained_test == RESULTS)
		wr.action = (struct frl_recv_action){
			.type = FRL_ACTION_REDUCE, .dtype = FRL_FLOAT32, .op = FRL_SUM
		};
	host_pair(retained_pair.a, 3, retained_pair.b, 3, NULL);
	ck_assert_msg(qp_post_recv(&retained_pair.b->qps[3].qp.core, &wr, &why) == 0, "%s", why);
	engine_update(&retained_pair.b->engine, &retained_pair.b->qps[3].qp);
	for (uint32_t i = 0; i < length / sizeof(float); i++) {
		const float one = retained_value(i);

		memcpy(retained_pair.a->memory + i * sizeof(one), &one, sizeof(one));
	}
	host_post(retained_pair.a, 3, send, 0, length, NULL);
	offload_settle(&retained_pair);
}

static void remove_other(void)
{
	engine_remove_region(&retained_pair.b->engine, &other_region);
	mock_offload_detach(&other, &retained_pair.b->engine);
	mock_offload_fini(&other);
}

/* Received payload of the other one is sent as it came, when it is there. */
static void finish_other(uint32_t length)
{
	struct frl_sge sge = { other_memory->there, length, other_region.key };
	const struct frl_send_wr wr = { .wr_id = 2,
		.opcode = FRL_WR_SEND,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1,
		.keep = KEEP };
	const struct wr_objects none = { 0 };
	const char *why = "";

	other.speed = UINT32_MAX;
	offload_settle(&retained_pair);
	host_expect_wc(&retained_pair.a->cqs[3], 1, FRL_WC_SUCCESS);
	host_expect_wc(&retained_pair.b->cqs[3], 7, FRL_WC_SUCCESS);
	memset(other_memory->view, CHANGED, length);
	host_post_recv(retained_pair.a, 2, 6, 32768, length);
	ck_assert_msg(
		qp_post_send(&retained_pair.b->qps[2].qp.core, &wr, &none, &why) == 0, "%s", why);
	engine_update(&retained_pair.b->engine, &retained_pair.b->qps[2].qp);
	retained_check(length, 0, length);
}

/* The writes of a slow GPU are all unfinished, and they came first. The other one retains nothing
 * while one looks past them, and then its own oldest go as usual. */
START_TEST(another_is_behind)
{
	enum { BATCH = OFFLOAD_HELD, LENGTH_OF_ONE = BATCH * HOST_MTU };
	enum { OTHERS = 4 * BATCH, FULL = (BUFFERS - OTHERS) / BATCH };

	retained_open(RESULTS, &(struct offload_config){ .memory = (FULL + 2) * LENGTH_OF_ONE });
	add_other(OTHERS * HOST_MTU);
	for (uint32_t k = 0; k < FULL + 2; k++)
		retained_receive(k * LENGTH_OF_ONE, LENGTH_OF_ONE, KEEP);
	for (uint32_t k = 0; k < FULL + 2; k++) {
		bool is_gone = k == 0 || k == FULL;

		retained_post(k * LENGTH_OF_ONE, LENGTH_OF_ONE, KEEP);
		retained_check(LENGTH_OF_ONE, 0, is_gone ? 0 : LENGTH_OF_ONE);
	}
	finish_other(OTHERS * HOST_MTU);
	remove_other();
	offload_pair_close(&retained_pair);
}
END_TEST

/* A WRITE of `length` bytes elsewhere finds room at once, and stays on its way. */
static void write_beside(uint32_t length)
{
	struct frl_send_wr write = { .wr_id = 4, .opcode = FRL_WR_RDMA_WRITE };

	retained_pair.mock.speed = 0;
	write.remote_addr = (uintptr_t)retained_pair.memory->there + 65536;
	write.rkey = retained_pair.region.key;
	host_post(retained_pair.a, 0, write, 0, length, NULL);
	offload_settle(&retained_pair);
	ck_assert_uint_eq(retained_pair.b->engine.stats.offload_waits, 0);
}

/* Frames that one GPU still uses are passed over, though they are the oldest, for unused ones. */
START_LOOP_TEST(another_needs_the_room, RESULTS)
{
	enum { MINE = 40 * HOST_MTU };
	uint32_t share, length;

	retained_open(_i, &(struct offload_config){ .held = 192 });
	share = retained_test == FRAMES ? 96 : SLABS_KEPT;
	length = share * HOST_MTU;
	add_other(length);
	retained_receive(0, MINE, KEEP);
	write_beside(length);
	ck_assert_uint_eq(retained_pair.b->port.n_out, retained_test == FRAMES ? 2 * share : 0);
	ck_assert_uint_eq(transfers_of(&retained_pair.b->engine)->n_free_slabs,
		retained_test == FRAMES ? SLABS : 0);
	retained_pair.mock.speed = UINT32_MAX;
	offload_settle(&retained_pair);
	host_expect_wc(&retained_pair.a->cqs[0], 4, FRL_WC_SUCCESS);
	retained_post(0, MINE, KEEP);
	retained_check(MINE, 0, MINE);
	finish_other(length);
	ck_assert_uint_eq(retained_pair.b->port.n_out, 0);
	remove_other();
	offload_pair_close(&retained_pair);
}
END_TEST

/* A user that needs the room gets it: frames are held and slabs found as if nothing were retained.
 * Retained payload moves on. */
START_LOOP_TEST(others_need_the_room, RESULTS)
{
	enum { SLABS_ALL = 256 };
	uint32_t kept, length;

	retained_open(_i, NULL);
	kept = retained_test == FRAMES ? OFFLOAD_HELD / 2 * HOST_MTU : SLABS_KEPT / 4 * HOST_MTU;
	length = retained_test == FRAMES ? OFFLOAD_HELD * HOST_MTU : SLABS_ALL * HOST_MTU;
	for (unsigned k = 0; k < 4; k++)
		retained_receive(k * 8192, kept, KEEP);
	write_beside(length);
	ck_assert_uint_eq(retained_pair.b->port.n_out, retained_test == FRAMES ? OFFLOAD_HELD : 0);
	retained_pair.mock.speed = UINT32_MAX;
	offload_settle(&retained_pair);
	host_expect_wc(&retained_pair.a->cqs[0], 4, FRL_WC_SUCCESS);
	ck_assert_uint_eq(retained_pair.b->port.n_out, 0);
	retained_post(3 * 8192, kept, KEEP);
	retained_check(kept, 0, kept);
	offload_pair_close(&retained_pair);
}
END_TEST

Suite *retained_add_room(Suite *suite)
{
	return add_tests(suite, NULL, NULL);
}
