/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that turns out to be unmapped. A packet whose placement fails has the effect that it has
 * if the region was gone before, and requests whose payload cannot be read fail in order. */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

#include <string.h>

enum { MTU = 256, ROOM = 5 * MTU, COMPLETIONS = 8, LARGE = 4 * MTU };

static const struct {
	enum frl_qp_type type; /* 0: RC */
	bool srq;
	uint8_t opcode;
	uint32_t begun; /* packets of the message before this one */
	uint32_t length;
	enum frl_wr_opcode request; /* answered by it; WRITE: none */
} packets[] = {
	{ 0, false, OP_SEND_ONLY, 0, 10, FRL_WR_RDMA_WRITE },
	{ 0, true, OP_SEND_ONLY, 0, 10, FRL_WR_RDMA_WRITE },
	{ 0, false, OP_SEND_FIRST, 0, MTU, FRL_WR_RDMA_WRITE },
	{ 0, false, OP_SEND_MIDDLE, 2, MTU, FRL_WR_RDMA_WRITE },
	{ 0, true, OP_SEND_LAST, 2, 10, FRL_WR_RDMA_WRITE },
	{ 0, false, OP_SEND_ONLY_INV, 0, 10, FRL_WR_RDMA_WRITE },
	{ 0, true, OP_SEND_LAST_INV, 2, 10, FRL_WR_RDMA_WRITE },
	{ 0, false, OP_WRITE_ONLY, 0, 10, FRL_WR_RDMA_WRITE },
	{ 0, false, OP_WRITE_MIDDLE, 2, MTU, FRL_WR_RDMA_WRITE },
	{ 0, false, OP_WRITE_LAST, 2, MTU, FRL_WR_RDMA_WRITE },
	{ 0, false, OP_WRITE_ONLY_IMM, 0, 10, FRL_WR_RDMA_WRITE },
	{ 0, true, OP_WRITE_LAST_IMM, 3, MTU, FRL_WR_RDMA_WRITE },
	{ 0, false, OP_FETCH_ADD, 0, 0, FRL_WR_RDMA_WRITE },
	{ 0, false, OP_CMP_SWAP, 0, 0, FRL_WR_RDMA_WRITE },
	{ 0, false, OP_READ_RESP_ONLY, 0, 10, FRL_WR_RDMA_READ },
	{ 0, false, OP_READ_RESP_FIRST, 0, MTU, FRL_WR_RDMA_READ },
	{ 0, false, OP_ATOMIC_ACK, 0, 0, FRL_WR_ATOMIC_FETCH_AND_ADD },
	{ FRL_QPT_UC, false, OP_SEND_ONLY | TRANSPORT_UC, 0, 10, FRL_WR_RDMA_WRITE },
	{ FRL_QPT_UC, true, OP_SEND_MIDDLE | TRANSPORT_UC, 2, MTU, FRL_WR_RDMA_WRITE },
	{ FRL_QPT_UC, false, OP_WRITE_ONLY | TRANSPORT_UC, 0, 10, FRL_WR_RDMA_WRITE },
	{ FRL_QPT_UC, false, OP_WRITE_LAST | TRANSPORT_UC, 2, MTU, FRL_WR_RDMA_WRITE },
	{ FRL_QPT_UD, false, OP_SEND_ONLY | TRANSPORT_UD, 0, 10, FRL_WR_RDMA_WRITE },
	{ FRL_QPT_UD, true, OP_SEND_ONLY | TRANSPORT_UD, 0, 10, FRL_WR_RDMA_WRITE },
};

struct outcome {
	struct frl_wc received[COMPLETIONS], sent[COMPLETIONS];
	enum frl_qp_state state;
	uint32_t n_out, n_windows;
	struct psn psn;
	struct aeth aeth;
};

static void arrive(struct fixture *f, uint32_t psn, uint8_t opcode, uint32_t length)
{
	struct wire_packet packet = fixture_packet(f, opcode, psn, length);

	if (packet.op->headers & HEADER_RETH)
		packet.h.reth = (struct reth){ fixture_va(f, 0), f->local.key, length };
	if (packet.op->operation == OPERATION_ATOMIC)
		packet.h.atomic = (struct atomic_eth){ fixture_va(f, 0), f->local.key, 1, 2 };
	if (packet.op->headers & HEADER_IETH)
		packet.h.invalidate_rkey = f->window.key;
	fixture_input_unplaced(f, &packet);
}

/* The first packets of the same message. */
static void begin(struct fixture *f, int row)
{
	uint8_t opcode = packets[row].opcode;
	bool send = opcode_table[opcode].operation == OPERATION_SEND;
	uint8_t transport = packets[row].type == FRL_QPT_UC ? TRANSPORT_UC : TRANSPORT_RC;

	for (uint32_t k = 0; k < packets[row].begun; k++) {
		uint8_t first = send ? OP_SEND_FIRST : OP_WRITE_FIRST;
		uint8_t middle = send ? OP_SEND_MIDDLE : OP_WRITE_MIDDLE;
		struct wire_packet packet = fixture_packet(
			f, (k ? middle : first) | transport, k, MTU);
		bool is_last = opcode_table[opcode].flags & OPCODE_LAST;

		packet.h.reth = (struct reth){ fixture_va(f, 0), f->local.key,
			(packets[row].begun + 1 + !is_last) * MTU };
		fixture_input(f, &packet);
	}
}

static void run(int row, bool is_gone_before, struct outcome *out)
{
	struct fixture *f = fixture_new(&(struct fixture_config){
		.type = packets[row].type, .mtu = MTU, .srq = packets[row].srq });

	memset(out, 0, sizeof(*out));
	f->local.access |= FRL_ACCESS_MAY_UNMAP;
	fixture_recv(f, 1, 0, ROOM);
	fixture_recv(f, 2, 0, ROOM);
	fixture_bind_window(f);
	if (packets[row].request != FRL_WR_RDMA_WRITE) {
		uint32_t length = packets[row].opcode == OP_READ_RESP_FIRST ? LARGE
			: packets[row].length                               ? packets[row].length
									    : 8;

		fixture_send(f, 3, packets[row].request, length);
		fixture_output(f);
	}
	begin(f, row);
	atomic_store(&f->local.is_gone, is_gone_before);
	arrive(f, packets[row].begun, packets[row].opcode, packets[row].length);
	if (!is_gone_before) {
		ck_assert(f->placements.count || f->placements.atomic.addr);
		atomic_store(&f->local.is_gone, true);
		qp_memory_gone(&f->qp, &f->packet, &f->placements);
	}
	ck_assert_int_eq(f->placements.completes, COMPLETES_NONE);
	check_invariants(f);
	for (int i = 0; i < COMPLETIONS; i++) {
		cq_pop(&f->recv_cq, &out->received[i]);
		cq_pop(&f->send_cq, &out->sent[i]);
	}
	out->state = f->qp.state;
	out->n_windows = f->local.windows;
	out->n_out = fixture_output(f);
	if (out->n_out) {
		out->psn = f->out[0].h.bth.psn;
		out->aeth = f->out[0].h.aeth;
	}
}

START_LOOP_TEST(placement_fails, ROWS(packets))
{
	struct outcome before, after;

	run(_i, true, &before);
	run(_i, false, &after);
	ck_assert_mem_eq(before.received, after.received, sizeof(before.received));
	ck_assert_mem_eq(before.sent, after.sent, sizeof(before.sent));
	ck_assert_int_eq(before.state, after.state);
	ck_assert_uint_eq(before.n_out, after.n_out);
	ck_assert_uint_eq(after.n_windows, 1);
	ck_assert(psn_equal(before.psn, after.psn));
	ck_assert_uint_eq(before.aeth.syndrome, after.aeth.syndrome);
	ck_assert_uint_eq(before.aeth.msn, after.aeth.msn);
}
END_TEST

/* ---- payload that cannot be read */

static const enum frl_qp_type types[] = { FRL_QPT_RC, FRL_QPT_UC, FRL_QPT_UD };

/* Three requests; the second one's packet and all later ones come back. */
START_LOOP_TEST(taken_back, ROWS(types))
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .type = types[_i], .mtu = MTU });
	struct frl_sge gone = { f->memory, 100, f->moved.key };
	struct frl_send_wr wr = { .wr_id = 2,
		.opcode = FRL_WR_SEND,
		.flags = FRL_SEND_SIGNALED,
		.sge = &gone,
		.n_sge = 1,
		.remote_qpn = F_PEER_QPN };
	const struct wr_objects objects = { .ah = &f->ah };
	bool rc = types[_i] == FRL_QPT_RC;

	gone.addr = (void *)(uintptr_t)F_IOVA;
	f->moved.access |= FRL_ACCESS_MAY_UNMAP;
	fixture_send(f, 1, FRL_WR_SEND, 100);
	fixture_post(f, &wr, &objects);
	fixture_send(f, 3, FRL_WR_SEND, 100);
	ck_assert_uint_eq(fixture_output(f), 3);
	atomic_store(&f->moved.is_gone, true);
	qp_take_back(&f->qp, 2, f->now_ns);
	check_invariants(f);
	/* RC sends the first one again, and waits for its acknowledgement. */
	ck_assert_uint_eq(fixture_output(f), rc ? 1 : 0);
	expect_no_wc(&f->send_cq);
	if (rc)
		fixture_ack(f, AETH_ACK | AETH_CREDITS_NONE, 0);
	else
		fixture_transmitted(f, 1);
	ck_assert_uint_eq(fixture_output(f), 0);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	expect_wc(&f->send_cq, 2, FRL_WC_LOC_PROT_ERR);
	expect_wc(&f->send_cq, 3, FRL_WC_WR_FLUSH_ERR);
	ck_assert_int_eq(f->qp.state, rc ? FRL_QPS_ERR : FRL_QPS_SQE);
}
END_TEST

/* The second of four responses. */
START_TEST(response_cannot_be_read)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = MTU });
	struct wire_packet packet = fixture_packet(f, OP_READ_REQUEST, 0, 0);

	packet.h.reth = (struct reth){ fixture_va(f, 0), f->local.key, LARGE };
	fixture_input(f, &packet);
	ck_assert_uint_eq(fixture_output(f), LARGE / MTU);
	qp_response_gone(&f->qp, psn_make(1));
	check_invariants(f);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	expect_event(&f->qp.events, FRL_EVENT_QP_ACCESS_ERR);
	expect_answer(f, AETH_NAK | NAK_REMOTE_ACCESS, 1, 1);
	expect_silence(f);
}
END_TEST

TEST_FILE(memory_gone)
