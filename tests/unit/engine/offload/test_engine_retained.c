/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Payload that arrived for memory that the processor does not reach, and leaves from there again.
 * The memory is changed behind the engine's back in between, which shows the source of sent bytes:
 * packets or memory.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/offload/engine_retained.h"
#include "tests/fixtures/program.h"
#include "tests/vectors/frame.h"

enum {
	LENGTH = 6 * HOST_MTU, /* fewer than half of the frames that the port spares */
	FROM = 8192 - 300,     /* where that lies: over a border that the entries are sorted by */
};

struct offload_pair retained_pair;
enum retained_test retained_test;

void retained_open(enum retained_test as, const struct offload_config *config)
{
	static const struct offload_config plain;

	retained_test = as;
	offload_pair_open(&retained_pair, config ? config : &plain);
	retained_pair.mock.reaches_one_in = retained_test == FRAMES;
	retained_pair.mock.speed = UINT32_MAX;
	host_pair(retained_pair.a, 2, retained_pair.b, 2, NULL);
}

/* Floats, which are small integers: the sum of two is what the other kinds receive. */
float retained_value(uint32_t i)
{
	return (float)(i % 1000);
}

static void post_receive(uint32_t offset, uint32_t length, uint64_t keep)
{
	struct frl_sge sge = { retained_pair.memory->there + offset, length,
		retained_pair.region.key };
	struct frl_recv_wr wr = { .wr_id = 5, .sge = &sge, .n_sge = 1, .keep = keep };
	const char *why = "";

	if (retained_test == RESULTS)
		wr.action = (struct frl_recv_action){
			.type = FRL_ACTION_REDUCE, .dtype = FRL_FLOAT32, .op = FRL_SUM
		};
	ck_assert_msg(qp_post_recv(&retained_pair.b->qps[1].qp.core, &wr, &why) == 0, "%s", why);
	engine_update(&retained_pair.b->engine, &retained_pair.b->qps[1].qp);
}

static void put_source(uint32_t offset, uint32_t length)
{
	for (uint32_t i = 0; i < length / sizeof(float); i++) {
		float half = retained_test == RESULTS ? retained_value(i) / 2 : retained_value(i);

		memcpy(retained_pair.a->memory + i * sizeof(half), &half, sizeof(half));
		if (retained_test == RESULTS)
			memcpy(retained_pair.memory->view + offset + i * sizeof(half), &half,
				sizeof(half));
	}
}

/* `length` bytes come and are placed; afterwards the memory is another one. */
void retained_receive(uint32_t offset, uint32_t length, uint64_t keep)
{
	const struct frl_send_wr send = { .wr_id = 1, .opcode = FRL_WR_SEND };

	put_source(offset, length);
	post_receive(offset, length, keep);
	host_post(retained_pair.a, 0, send, 0, length, NULL);
	offload_settle(&retained_pair);
	host_expect_wc(&retained_pair.a->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_wc(&retained_pair.b->cqs[1], 5, FRL_WC_SUCCESS);
	for (uint32_t i = 0; i < length / sizeof(float); i++) {
		float got;

		memcpy(&got, retained_pair.memory->view + offset + i * sizeof(got), sizeof(got));
		ck_assert(got == retained_value(i));
	}
	memset(retained_pair.memory->view + offset, CHANGED, length);
}

void retained_post(uint32_t offset, uint32_t length, uint64_t keep)
{
	const struct frl_send_wr send = { .wr_id = 2, .opcode = FRL_WR_SEND, .keep = keep };

	host_post_recv(retained_pair.a, 2, 6, 32768, length);
	offload_post(retained_pair.b, 2, send, offset, length);
}

static bool is_retained(uint32_t i)
{
	float got;

	memcpy(&got, retained_pair.a->memory + 32768 + i, sizeof(got));
	return got == retained_value(i / sizeof(got));
}

/* The arrived bytes are those of packets from `first` to `end`, and those of the memory
 * elsewhere. */
void retained_check(uint32_t length, uint32_t first, uint32_t end)
{
	offload_settle(&retained_pair);
	host_expect_wc(&retained_pair.b->cqs[2], 2, FRL_WC_SUCCESS);
	host_expect_wc(&retained_pair.a->cqs[2], 6, FRL_WC_SUCCESS);
	for (uint32_t i = 0; i < length; i += sizeof(float)) {
		bool retained = i >= first && i < end;

		ck_assert_msg(is_retained(i) == retained, "byte %u", i);
		ck_assert(retained || retained_pair.a->memory[32768 + i] == CHANGED);
	}
	ck_assert_uint_eq(retained_pair.a->engine.stats.drop_bad_icrc, 0);
}

uint64_t retained_count(void)
{
	const struct frl_stats *stats = &retained_pair.b->engine.stats;

	return retained_test == RESULTS ? stats->offload_fused : stats->offload_forwarded;
}

/* It leaves without the offload, and once. */
START_LOOP_TEST(leaves_as_it_came, KINDS)
{
	retained_open(_i % KINDS, &(struct offload_config){ .loop = _i >= KINDS });
	/* Packets to this engine itself are on its stack. */
	retained_receive(FROM, LENGTH, KEEP);
	retained_post(FROM, LENGTH, KEEP);
	retained_check(LENGTH, 0, LENGTH);
	ck_assert_uint_eq(retained_count(), LENGTH);
	ck_assert_uint_eq(retained_pair.b->engine.stats.offload_forwarded +
			retained_pair.b->engine.stats.offload_fused,
		LENGTH);
	ck_assert_uint_eq(retained_pair.b->engine.stats.offload_gathered, 0);
	ck_assert_uint_eq(retained_pair.b->engine.stats.retained_missed, 0);
	ck_assert_uint_eq(retained_pair.b->port.n_out, 0);
	retained_post(FROM, LENGTH, KEEP);
	retained_check(LENGTH, 0, 0);
	ck_assert_uint_eq(retained_count(), LENGTH);
	ck_assert_uint_eq(retained_pair.b->engine.stats.retained_missed, LENGTH / HOST_MTU);
	ck_assert_uint_eq(retained_pair.b->engine.stats.offload_gathered, LENGTH);
	offload_pair_close(&retained_pair);
}
END_TEST

/* In the round in which it was posted: it has nothing to wait for. */
START_LOOP_TEST(leaves_at_once, KINDS)
{
	retained_open(_i, NULL);
	retained_receive(FROM, LENGTH, KEEP);
	retained_post(FROM, LENGTH, KEEP);
	host_poll(retained_pair.b);
	ck_assert_uint_eq(retained_pair.b->port.n_sent, LENGTH / HOST_MTU);
	retained_check(LENGTH, 0, LENGTH);
	offload_pair_close(&retained_pair);
}
END_TEST

/* Another number is of other bytes at the same address; none is of none. */
START_LOOP_TEST(other_numbers, KINDS)
{
	retained_open(_i, NULL);
	retained_receive(FROM, LENGTH, KEEP);
	retained_post(FROM, LENGTH, KEEP + 1);
	retained_check(LENGTH, 0, 0);
	ck_assert_uint_eq(retained_pair.b->engine.stats.retained_missed, LENGTH / HOST_MTU);
	retained_post(FROM, LENGTH, 0);
	retained_check(LENGTH, 0, 0);
	ck_assert_uint_eq(retained_pair.b->engine.stats.retained_missed, LENGTH / HOST_MTU);
	retained_receive(FROM, LENGTH, 0);
	retained_post(FROM, LENGTH, KEEP);
	retained_check(LENGTH, 0, 0);
	ck_assert_uint_eq(retained_count(), 0);
	offload_pair_close(&retained_pair);
}
END_TEST

/* A message that is sent without acknowledgements has its bytes fetched. */
START_LOOP_TEST(only_reliably, KINDS)
{
	static const struct host_qp_config config = { .type = FRL_QPT_UC };
	const struct frl_send_wr send = { .wr_id = 2, .opcode = FRL_WR_SEND, .keep = KEEP };

	retained_open(_i, NULL);
	host_pair(retained_pair.a, 3, retained_pair.b, 3, &config);
	retained_receive(FROM, LENGTH, KEEP);
	host_post_recv(retained_pair.a, 3, 6, 32768, LENGTH);
	offload_post(retained_pair.b, 3, send, FROM, LENGTH);
	offload_settle(&retained_pair);
	host_expect_wc(&retained_pair.a->cqs[3], 6, FRL_WC_SUCCESS);
	for (uint32_t i = 0; i < LENGTH; i += 4)
		ck_assert(!is_retained(i));
	ck_assert_uint_eq(retained_pair.b->engine.stats.retained_missed, 0);
	offload_pair_close(&retained_pair);
}
END_TEST

/* Lost packets are fetched the second time. */
START_LOOP_TEST(lost_on_the_way, KINDS)
{
	retained_open(_i, NULL);
	retained_receive(FROM, LENGTH, KEEP);
	retained_post(FROM, LENGTH, KEEP);
	host_poll(retained_pair.b);
	ck_assert_uint_eq(retained_pair.b->port.n_sent, LENGTH / HOST_MTU);
	retained_pair.b->port.n_sent = 0;
	retained_pair.a->now_ns += UINT64_C(4096) << 15;
	retained_check(LENGTH, 0, 0);
	ck_assert_uint_eq(retained_pair.b->engine.stats.retransmits, LENGTH / HOST_MTU);
	ck_assert_uint_eq(retained_pair.b->engine.stats.retained_missed, 0);
	offload_pair_close(&retained_pair);
}
END_TEST

/* A READ gets the bytes that are there; a WRITE takes the packets only where it says so. */
START_LOOP_TEST(reads_and_writes, KINDS)
{
	struct frl_send_wr read = { .wr_id = 3, .opcode = FRL_WR_RDMA_READ };
	struct frl_send_wr write = { .wr_id = 2, .opcode = FRL_WR_RDMA_WRITE };

	retained_open(_i, NULL);
	retained_receive(FROM, LENGTH, KEEP);
	read.remote_addr = (uintptr_t)retained_pair.memory->there + FROM;
	read.rkey = retained_pair.region.key;
	host_post(retained_pair.a, 2, read, 32768, LENGTH, NULL);
	offload_settle(&retained_pair);
	host_expect_wc(&retained_pair.a->cqs[2], 3, FRL_WC_SUCCESS);
	for (uint32_t i = 0; i < LENGTH; i++)
		ck_assert_uint_eq(retained_pair.a->memory[32768 + i], CHANGED);
	write.remote_addr = (uintptr_t)retained_pair.a->memory + 32768;
	write.rkey = retained_pair.a->region.key;
	for (unsigned k = 0; k < 2; k++) {
		write.keep = k ? KEEP : 0;
		offload_post(retained_pair.b, 2, write, FROM, LENGTH);
		offload_settle(&retained_pair);
		host_expect_wc(&retained_pair.b->cqs[2], 2, FRL_WC_SUCCESS);
		for (uint32_t i = 0; i < LENGTH; i += 4)
			ck_assert(is_retained(i) == (k == 1));
	}
	ck_assert_uint_eq(retained_pair.b->engine.stats.retained_missed, 0);
	offload_pair_close(&retained_pair);
}
END_TEST

/* Writes over kept bytes: from there on, so many, and the packets that they are in. */
static const struct {
	uint32_t at, length, first, end;
} writes[] = {
	{ FROM - 8, 8, 0, 0 },
	{ FROM + LENGTH, HOST_MTU, 0, 0 },
	{ FROM - 8, 9, 0, HOST_MTU },
	{ FROM + HOST_MTU - 1, 1, 0, HOST_MTU },
	{ FROM + HOST_MTU, 1, HOST_MTU, 2 * HOST_MTU },
	{ FROM + LENGTH - 1, HOST_MTU, LENGTH - HOST_MTU, LENGTH },
	{ 8192, 4, HOST_MTU, 2 * HOST_MTU },
	{ FROM, LENGTH, 0, LENGTH },
	{ FROM - 5000, 20000, 0, LENGTH },
};

enum { WRITES = sizeof(writes) / sizeof(writes[0]) };

START_LOOP_TEST(written_over, PAIRS(KINDS, WRITES))
{
	struct frl_send_wr write = { .wr_id = 4, .opcode = FRL_WR_RDMA_WRITE };
	uint32_t row = (uint32_t)_i % WRITES, end = writes[row].end, first = writes[row].first;

	retained_open((unsigned)_i / WRITES, NULL);
	retained_receive(FROM, LENGTH, KEEP);
	memset(retained_pair.a->memory, CHANGED, writes[row].length);
	write.remote_addr = (uintptr_t)retained_pair.memory->there + writes[row].at;
	write.rkey = retained_pair.region.key;
	host_post(retained_pair.a, 0, write, 0, writes[row].length, NULL);
	offload_settle(&retained_pair);
	host_expect_wc(&retained_pair.a->cqs[0], 4, FRL_WC_SUCCESS);
	retained_post(FROM, LENGTH, KEEP);
	offload_settle(&retained_pair);
	host_expect_wc(&retained_pair.a->cqs[2], 6, FRL_WC_SUCCESS);
	for (uint32_t i = 0; i < LENGTH; i += 4)
		ck_assert_msg(is_retained(i) == !(i >= first && i < end), "byte %u", i);
	ck_assert_uint_eq(retained_pair.b->engine.stats.retained_missed, (end - first) / HOST_MTU);
	offload_pair_close(&retained_pair);
}
END_TEST

enum ending { REGION, QUEUE_PAIR, LINK, OFFLOAD, ENDINGS };

static void end(enum ending ending)
{
	struct engine *e = &retained_pair.b->engine;

	if (ending == REGION)
		engine_release_region(e, &retained_pair.region);
	else if (ending == QUEUE_PAIR)
		engine_remove_qp(e, &retained_pair.b->qps[1].qp);
	else if (ending == LINK)
		engine_drop_link(e, 0);
	else
		retained_pair.mock.error = "the GPU is gone";
	host_poll(retained_pair.b);
}

/* Frames go back at once, nothing waits for what is kept, and nobody gets it. */
START_LOOP_TEST(ends_with_it, PAIRS(KINDS, ENDINGS))
{
	enum ending ending = (unsigned)_i % ENDINGS;

	retained_open((unsigned)_i / ENDINGS, NULL);
	retained_receive(FROM, LENGTH, KEEP);
	ck_assert_uint_eq(
		retained_pair.b->port.n_out, retained_test == FRAMES ? LENGTH / HOST_MTU : 0);
	ck_assert(!engine_region_queued(&retained_pair.b->engine, &retained_pair.region));
	/* The failure of the offload is noticed when it is used. */
	if (ending == OFFLOAD)
		offload_post(
			retained_pair.b, 2, (struct frl_send_wr){ .opcode = FRL_WR_SEND }, 0, 4);
	end(ending);
	host_poll(retained_pair.b);
	host_poll(retained_pair.b);
	ck_assert_uint_eq(retained_pair.b->port.n_out, 0);
	if (ending <= QUEUE_PAIR) {
		retained_post(FROM, LENGTH, KEEP);
		retained_check(LENGTH, 0, 0);
	}
	ck_assert_uint_eq(retained_count(), 0);
	offload_pair_close(&retained_pair);
}
END_TEST

/* A queue pair that begins anew takes nothing with it: what it received is still there. */
START_LOOP_TEST(outlives_a_reset, 2 * KINDS)
{
	static const enum frl_qp_state states[] = { FRL_QPS_ERR, FRL_QPS_RESET };
	const struct frl_qp_attr attr = { .state = states[_i % 2] };

	retained_open((unsigned)_i / 2, NULL);
	retained_receive(FROM, LENGTH, KEEP);
	ck_assert_int_eq(host_modify(retained_pair.b, 1, &attr, FRL_QP_STATE, NULL), 0);
	host_poll(retained_pair.b);
	retained_post(FROM, LENGTH, KEEP);
	retained_check(LENGTH, 0, LENGTH);
	offload_pair_close(&retained_pair);
}
END_TEST

/* Bytes that are still being written stay until they are not, and are not lost; nor are they sent
 * before. */
START_LOOP_TEST(while_it_is_written, 2)
{
	const struct frl_send_wr send = { .wr_id = 1, .opcode = FRL_WR_SEND };

	retained_open(RESULTS, NULL);
	for (unsigned k = 0; k < 100; k++) {
		retained_pair.mock.speed = 0;
		put_source(FROM, LENGTH);
		post_receive(FROM, LENGTH, KEEP);
		host_post(retained_pair.a, 0, send, 0, LENGTH, NULL);
		offload_settle(&retained_pair);
		if (_i)
			retained_post(FROM, LENGTH, KEEP);
		else
			engine_release_region(&retained_pair.b->engine, &retained_pair.region);
		host_poll(retained_pair.b);
		ck_assert_uint_eq(retained_pair.b->port.n_sent, 0);
		retained_pair.mock.speed = UINT32_MAX;
		offload_settle(&retained_pair);
		host_expect_wc(&retained_pair.a->cqs[0], 1, FRL_WC_SUCCESS);
		host_expect_wc(&retained_pair.b->cqs[1], 5, FRL_WC_SUCCESS);
		if (!_i)
			continue;
		host_expect_wc(&retained_pair.b->cqs[2], 2, FRL_WC_SUCCESS);
		host_expect_wc(&retained_pair.a->cqs[2], 6, FRL_WC_SUCCESS);
		for (uint32_t i = 0; i < LENGTH; i += 4)
			ck_assert(is_retained(i));
	}
	ck_assert_uint_eq(retained_count(), 0);
	retained_receive(FROM, LENGTH, KEEP);
	retained_post(FROM, LENGTH, KEEP);
	retained_check(LENGTH, 0, LENGTH);
	offload_pair_close(&retained_pair);
}
END_TEST

/* Payload that its sender took back was never there. */
START_LOOP_TEST(taken_back, 4)
{
	struct wire_headers h = { .bth = { .opcode = OP_SEND_ONLY, .pkey = PKEY_DEFAULT } };
	float payload[HOST_MTU / sizeof(float)];
	struct frame frame;

	retained_open(_i / 2 ? RESULTS : COPIES, &(struct offload_config){ .in_place = true });
	for (uint32_t i = 0; i < HOST_MTU / sizeof(float); i++)
		payload[i] = retained_value(i);
	post_receive(FROM, HOST_MTU, KEEP);
	h.bth.dest_qpn = retained_pair.b->qps[1].qp.core.qpn;
	h.bth.psn = retained_pair.b->qps[1].qp.core.responder.epsn;
	frame = make_frame(0, &h, HOST_MTU, false);
	retained_pair.b->port.lost = _i % 2;
	fake_port_receive_split(&retained_pair.b->port, 0, frame.bytes, (uint32_t)frame.payload,
		(const uint8_t *)payload, HOST_MTU);
	for (unsigned k = 0; k < 4; k++)
		host_poll(retained_pair.b);
	retained_pair.b->port.n_sent = 0;
	host_expect_wc(&retained_pair.b->cqs[1], 5, _i % 2 ? FRL_WC_REM_ABORT_ERR : FRL_WC_SUCCESS);
	memset(retained_pair.memory->view + FROM, CHANGED, HOST_MTU);
	retained_post(FROM, HOST_MTU, KEEP);
	retained_check(HOST_MTU, 0, _i % 2 ? 0 : HOST_MTU);
	offload_pair_close(&retained_pair);
}
END_TEST

/* A message that is cut in another way, or begins elsewhere, is fetched. */
START_LOOP_TEST(cut_in_another_way, KINDS)
{
	static const struct host_qp_config config = { .path_mtu = 2 * HOST_MTU };

	retained_open(_i, NULL);
	host_pair(retained_pair.a, 3, retained_pair.b, 3, &config);
	retained_receive(FROM, LENGTH, KEEP);
	host_post_recv(retained_pair.a, 3, 6, 32768, LENGTH);
	offload_post(retained_pair.b, 3,
		(struct frl_send_wr){ .wr_id = 2, .opcode = FRL_WR_SEND, .keep = KEEP }, FROM,
		LENGTH);
	offload_settle(&retained_pair);
	host_expect_wc(&retained_pair.a->cqs[3], 6, FRL_WC_SUCCESS);
	for (uint32_t i = 0; i < LENGTH; i += 4)
		ck_assert(!is_retained(i));
	ck_assert_uint_eq(retained_pair.b->engine.stats.retained_missed, LENGTH / 2 / HOST_MTU);
	retained_post(FROM + 4, LENGTH - 4, KEEP);
	retained_check(LENGTH - 4, 0, 0);
	ck_assert_uint_eq(retained_count(), 0);
	offload_pair_close(&retained_pair);
}
END_TEST

/* Packets that no port takes keep nothing of the port's, and leave as they are. */
START_LOOP_TEST(blocked, KINDS)
{
	retained_open(_i, NULL);
	retained_receive(FROM, LENGTH, KEEP);
	retained_pair.b->port.room[0] = 0;
	retained_post(FROM, LENGTH, KEEP);
	host_poll(retained_pair.b);
	ck_assert_uint_eq(retained_pair.b->port.n_out, 0);
	retained_pair.b->port.room[0] = FAKE_UNLIMITED;
	retained_check(LENGTH, 0, LENGTH);
	offload_pair_close(&retained_pair);
}
END_TEST

TEST_MAIN(engine_retained)
{
	return run_suite(retained_add_room(all_tests(NULL, NULL)));
}
