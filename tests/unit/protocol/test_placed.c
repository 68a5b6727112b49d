/* SPDX-License-Identifier: BSD-3-Clause */
/* The byte_len of a receive that fails: how much of its message it had taken. */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

#include <string.h>

#include <ferrule/reduce.h>

enum { MTU = 256, ROOM = 5 * MTU };

static void expect_placed(struct cq *cq, uint64_t wr_id, enum frl_wc_status status, uint32_t placed)
{
	struct frl_wc wc;

	ck_assert_msg(cq_pop(cq, &wc), "no completion of request %d", (int)wr_id);
	ck_assert_uint_eq(wc.wr_id, wr_id);
	ck_assert_int_eq(wc.status, status);
	ck_assert_uint_eq(wc.byte_len, placed);
}

/* The first packets of a message of more than so many; returns the next PSN. */
static uint32_t begin_message(struct fixture *f, uint32_t packets)
{
	for (uint32_t psn = 0; psn < packets; psn++) {
		fixture_arrive(f, psn ? OP_SEND_MIDDLE : OP_SEND_FIRST, psn, MTU);
		fixture_place(f);
	}
	return packets;
}

static void arrive_unplaced(struct fixture *f, uint8_t opcode, uint32_t psn, uint32_t length)
{
	struct wire_packet packet = fixture_packet(f, opcode, psn, length);

	fixture_input_unplaced(f, &packet);
}

/* By packets that had come: 0 to 3. */
START_LOOP_TEST(flushed, 4)
{
	for (int srq = 0; srq < 2; srq++) {
		struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU, .srq = srq });

		fixture_recv(f, 1, 0, ROOM);
		fixture_recv(f, 2, 0, ROOM);
		fixture_send(f, 3, FRL_WR_SEND, 100);
		begin_message(f, (uint32_t)_i);
		fixture_move(f, FRL_QPS_ERR);
		if (!srq || _i > 0)
			expect_placed(&f->recv_cq, 1, FRL_WC_WR_FLUSH_ERR, (uint32_t)_i * MTU);
		if (!srq)
			expect_placed(&f->recv_cq, 2, FRL_WC_WR_FLUSH_ERR, 0);
		expect_no_wc(&f->recv_cq);
		expect_placed(&f->send_cq, 3, FRL_WC_WR_FLUSH_ERR, 0);
		if (srq)
			continue;
		/* Later receives and packets have nothing to do with it. */
		fixture_arrive(f, OP_SEND_MIDDLE, (uint32_t)_i, MTU);
		ck_assert_uint_eq(f->placements.count, 0);
		fixture_recv(f, 4, 0, ROOM);
		expect_placed(&f->recv_cq, 4, FRL_WC_WR_FLUSH_ERR, 0);
	}
}
END_TEST

/* Between two messages, or in a WRITE, nothing has begun. */
START_LOOP_TEST(nothing_begun, 2)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });

	fixture_recv(f, 1, 0, ROOM);
	fixture_recv(f, 2, 0, ROOM);
	fixture_arrive(f, OP_SEND_LAST, begin_message(f, 2), 10);
	expect_placed(&f->recv_cq, 1, FRL_WC_SUCCESS, 2 * MTU + 10);
	if (_i)
		fixture_arrive_write(
			f, OP_WRITE_FIRST, 3, MTU, fixture_va(f, 0), f->local.key, 2 * MTU);
	qp_fail(&f->qp, FRL_WC_RETRY_EXC_ERR);
	expect_placed(&f->recv_cq, 2, FRL_WC_WR_FLUSH_ERR, 0);
}
END_TEST

/* Refused: the bytes before the packet count. */
static const struct {
	uint8_t opcode;
	uint32_t length;
	bool gone; /* the memory */
	enum frl_wc_status status;
} refusals[] = {
	{ OP_SEND_MIDDLE, MTU, false, FRL_WC_LOC_LEN_ERR },
	{ OP_SEND_LAST, 0, false, FRL_WC_REM_INV_REQ_ERR },
	{ OP_SEND_ONLY, 10, false, FRL_WC_REM_INV_REQ_ERR },
	{ OP_SEND_LAST_INV, 10, false, FRL_WC_REM_INV_REQ_ERR }, /* of no window */
	{ OP_SEND_MIDDLE, MTU, true, FRL_WC_LOC_PROT_ERR },
};

START_LOOP_TEST(refused, ROWS(refusals))
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });

	fixture_recv(f, 1, 0, _i == 0 ? 3 * MTU : ROOM);
	fixture_recv(f, 2, 0, ROOM);
	begin_message(f, 3);
	if (refusals[_i].gone)
		region_remove(&f->table, &f->local);
	fixture_arrive(f, refusals[_i].opcode, 3, refusals[_i].length);
	ck_assert_uint_eq(f->placements.count, 0);
	expect_placed(&f->recv_cq, 1, refusals[_i].status, 3 * MTU);
	expect_placed(&f->recv_cq, 2, FRL_WC_WR_FLUSH_ERR, 0);
}
END_TEST

/* With the first packet, and with the end of a WRITE of which much has come. */
START_LOOP_TEST(refused_at_once, 2)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });

	fixture_recv(f, 1, 0, 10);
	if (_i == 0) {
		fixture_arrive(f, OP_SEND_FIRST, 0, MTU);
		expect_placed(&f->recv_cq, 1, FRL_WC_LOC_LEN_ERR, 0);
		return;
	}
	fixture_arrive_write(f, OP_WRITE_FIRST, 0, MTU, fixture_va(f, 0), f->local.key, 2 * MTU);
	fixture_arrive(f, OP_WRITE_LAST_IMM, 1, 10);
	expect_placed(&f->recv_cq, 1, FRL_WC_REM_INV_REQ_ERR, 0);
}
END_TEST

/* The payload of the last packet that was placed was not the sender's any more. */
START_LOOP_TEST(payload_lost, 3)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	uint32_t psn;

	fixture_recv(f, 1, 0, ROOM);
	fixture_recv(f, 2, 0, ROOM);
	fixture_send(f, 3, FRL_WR_RDMA_READ, 100);
	fixture_output(f);
	psn = begin_message(f, 3);
	if (_i == 1)
		arrive_unplaced(f, OP_SEND_LAST, psn, 10);
	else if (_i == 2)
		arrive_unplaced(f, OP_READ_RESP_ONLY, 0, 100);
	qp_payload_lost(&f->qp, &f->packet, &f->placements);
	switch (_i) {
	case 0: expect_placed(&f->recv_cq, 1, FRL_WC_REM_ABORT_ERR, 2 * MTU); break;
	case 2: expect_placed(&f->recv_cq, 1, FRL_WC_WR_FLUSH_ERR, 3 * MTU); break;
	default: expect_placed(&f->recv_cq, 1, FRL_WC_REM_ABORT_ERR, 3 * MTU); break;
	}
	expect_placed(&f->recv_cq, 2, FRL_WC_WR_FLUSH_ERR, 0);
	expect_no_wc(&f->recv_cq);
	expect_wc(&f->send_cq, 3, FRL_WC_REM_ABORT_ERR);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	ck_assert_int_eq(f->placements.completes, COMPLETES_NONE);
}
END_TEST

/* A WRITE with immediate data has its receive request fail, which has none of the bytes. */
START_TEST(payload_lost_of_write)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	struct wire_packet packet = fixture_packet(f, OP_WRITE_ONLY_IMM, 0, 10);

	packet.h.reth = (struct reth){ fixture_va(f, 0), f->local.key, 10 };
	fixture_recv(f, 1, 0, ROOM);
	fixture_input_unplaced(f, &packet);
	qp_payload_lost(&f->qp, &f->packet, &f->placements);
	expect_placed(&f->recv_cq, 1, FRL_WC_REM_ABORT_ERR, 0);
	expect_no_wc(&f->recv_cq);
}
END_TEST

/* Nobody can be told any more, and nothing breaks. */
START_LOOP_TEST(payload_lost_and_queue_full, 2)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU, .n_cq = 1 });

	fixture_recv(f, 1, 0, ROOM);
	fixture_recv(f, 2, 0, ROOM);
	fixture_arrive(f, OP_SEND_ONLY, 0, 10);
	fixture_arrive(f, OP_SEND_FIRST, 1, MTU);
	if (_i)
		arrive_unplaced(f, OP_SEND_LAST, 2, 10);
	qp_payload_lost(&f->qp, &f->packet, &f->placements);
	expect_placed(&f->recv_cq, 1, FRL_WC_SUCCESS, 10);
	expect_no_wc(&f->recv_cq);
}
END_TEST

/* Messages that may come in part have no byte_len. */
START_LOOP_TEST(unreliable, 2)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .type = FRL_QPT_UC, .mtu = MTU });

	fixture_recv(f, 1, 0, ROOM);
	begin_message(f, 2);
	if (_i)
		qp_payload_lost(&f->qp, &f->packet, &f->placements);
	else
		fixture_move(f, FRL_QPS_ERR);
	expect_placed(&f->recv_cq, 1, FRL_WC_WR_FLUSH_ERR, 0);
}
END_TEST

/* Reduced in place: the first byte_len bytes once, the others not at all. */
START_RANGE_TEST(reduced, 1, 4)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	float *dst = (float *)(void *)f->memory, *peer = (float *)(void *)f->peer;
	struct frl_sge sge = { f->memory, ROOM, f->local.key };
	const struct frl_recv_wr wr = {
		.wr_id = 1,
		.sge = &sge,
		.n_sge = 1,
		.action = { .type = FRL_ACTION_REDUCE, .dtype = FRL_FLOAT32, .op = FRL_SUM },
	};
	const char *why = "";
	uint32_t psn;

	for (int i = 0; i < ROOM / 4; i++)
		dst[i] = (float)i;
	for (int i = 0; i < MTU / 4; i++)
		peer[i] = 0.5f;
	ck_assert_msg(qp_post_recv(&f->qp, &wr, &why) == 0, "%s", why);
	psn = begin_message(f, (uint32_t)_i);
	/* Repeated packets, and some that are ahead, change nothing. */
	for (uint32_t k = 0; k < 6; k++) {
		if (k == psn)
			continue;
		fixture_arrive(f, k ? OP_SEND_MIDDLE : OP_SEND_FIRST, k, MTU);
		fixture_place(f);
	}
	fixture_move(f, FRL_QPS_ERR);
	expect_placed(&f->recv_cq, 1, FRL_WC_WR_FLUSH_ERR, (uint32_t)_i * MTU);
	for (int i = 0; i < ROOM / 4; i++)
		ck_assert_float_eq(dst[i], (float)i + (i < _i * MTU / 4 ? 0.5f : 0.0f));
}
END_TEST

TEST_FILE(placed)
