/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that may be posted to a send queue. */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

#include <errno.h>
#include <string.h>

enum key {
	LOCAL, /* the default */
	READ_ONLY,
	FOREIGN,
	MOVED, /* with an address of `memory`, which is none of its own */
	WINDOW,
	UNKNOWN,
};

enum objects {
	RIGHT,
	NONE,
	FOREIGN_AH,
	NO_PARENT,
	NO_WINDOW,
};

static const struct post_row {
	enum frl_qp_type type;
	enum frl_wr_opcode opcode;
	uint32_t length;
	int rc;
	uint32_t flags;
	enum key key;
	enum objects objects;
	uint32_t remote_addr;
	uint32_t remote_qpn; /* 0: F_PEER_QPN */
	bool no_rd_atomic;
} rows[] = {
	{ FRL_QPT_RC, FRL_WR_SEND, 100, .rc = 0 },
	{ FRL_QPT_RC, FRL_WR_SEND_WITH_IMM, 100, .rc = 0 },
	{ FRL_QPT_RC, FRL_WR_SEND_WITH_INV, 100, .rc = 0 },
	{ FRL_QPT_RC, FRL_WR_RDMA_WRITE, 100, .rc = 0 },
	{ FRL_QPT_RC, FRL_WR_RDMA_WRITE_WITH_IMM, 100, .rc = 0 },
	{ FRL_QPT_RC, FRL_WR_RDMA_READ, 100, .rc = 0 },
	{ FRL_QPT_RC, FRL_WR_RDMA_READ, 0, .rc = 0 },
	{ FRL_QPT_RC, FRL_WR_ATOMIC_CMP_AND_SWP, 8, .rc = 0 },
	{ FRL_QPT_RC, FRL_WR_ATOMIC_FETCH_AND_ADD, 8, .rc = 0 },
	{ FRL_QPT_RC, FRL_WR_LOCAL_INV, 0, .rc = 0 },
	{ FRL_QPT_RC, FRL_WR_BIND_MW, 0, .rc = 0 },
	{ FRL_QPT_RC, (enum frl_wr_opcode)10, 0, .rc = -EINVAL },
	{ FRL_QPT_RC, (enum frl_wr_opcode)256, 0, .rc = -EINVAL },
	{ FRL_QPT_RC, (enum frl_wr_opcode)UINT32_MAX, 0, .rc = -EINVAL },
	/* Requests that other types take. */
	{ FRL_QPT_UC, FRL_WR_SEND, 100, .rc = 0 },
	{ FRL_QPT_UC, FRL_WR_SEND_WITH_IMM, 100, .rc = 0 },
	{ FRL_QPT_UC, FRL_WR_SEND_WITH_INV, 100, .rc = -EINVAL },
	{ FRL_QPT_UC, FRL_WR_RDMA_WRITE, 100, .rc = 0 },
	{ FRL_QPT_UC, FRL_WR_RDMA_WRITE_WITH_IMM, 100, .rc = 0 },
	{ FRL_QPT_UC, FRL_WR_RDMA_READ, 100, .rc = -EINVAL },
	{ FRL_QPT_UC, FRL_WR_ATOMIC_CMP_AND_SWP, 8, .rc = -EINVAL },
	{ FRL_QPT_UC, FRL_WR_ATOMIC_FETCH_AND_ADD, 8, .rc = -EINVAL },
	{ FRL_QPT_UC, FRL_WR_LOCAL_INV, 0, .rc = 0 },
	{ FRL_QPT_UC, FRL_WR_BIND_MW, 0, .rc = 0 },
	{ FRL_QPT_UD, FRL_WR_SEND, 1024, .rc = 0 },
	{ FRL_QPT_UD, FRL_WR_SEND_WITH_IMM, 0, .rc = 0 },
	{ FRL_QPT_UD, FRL_WR_SEND_WITH_INV, 100, .rc = -EINVAL },
	{ FRL_QPT_UD, FRL_WR_RDMA_WRITE, 100, .rc = -EINVAL },
	{ FRL_QPT_UD, FRL_WR_RDMA_WRITE_WITH_IMM, 100, .rc = -EINVAL },
	{ FRL_QPT_UD, FRL_WR_RDMA_READ, 100, .rc = -EINVAL },
	{ FRL_QPT_UD, FRL_WR_ATOMIC_CMP_AND_SWP, 8, .rc = -EINVAL },
	{ FRL_QPT_UD, FRL_WR_LOCAL_INV, 0, .rc = -EINVAL },
	{ FRL_QPT_UD, FRL_WR_BIND_MW, 0, .rc = -EINVAL },
	{ FRL_QPT_GSI, FRL_WR_SEND, 256, .rc = 0 },
	{ FRL_QPT_GSI, FRL_WR_RDMA_WRITE, 256, .rc = -EINVAL },
	/* Flags. */
	{ FRL_QPT_RC, FRL_WR_SEND, 100, 0, .flags = 15 },
	{ FRL_QPT_RC, FRL_WR_SEND, 100, -EINVAL, .flags = 16 },
	{ FRL_QPT_RC, FRL_WR_SEND, 100, -EINVAL, .flags = 1u << 31 },
	{ FRL_QPT_RC, FRL_WR_RDMA_WRITE, 100, 0, .flags = FRL_SEND_INLINE },
	{ FRL_QPT_RC, FRL_WR_SEND, 100, 0, .flags = FRL_SEND_INLINE, .key = UNKNOWN },
	{ FRL_QPT_RC, FRL_WR_SEND, FRL_MAX_INLINE, 0, .flags = FRL_SEND_INLINE },
	{ FRL_QPT_RC, FRL_WR_SEND, FRL_MAX_INLINE + 1, -EINVAL, .flags = FRL_SEND_INLINE },
	{ FRL_QPT_RC, FRL_WR_SEND, 0x80000000, -EINVAL, .flags = FRL_SEND_INLINE },
	{ FRL_QPT_RC, FRL_WR_RDMA_READ, 8, -EINVAL, .flags = FRL_SEND_INLINE },
	{ FRL_QPT_RC, FRL_WR_ATOMIC_FETCH_AND_ADD, 8, -EINVAL, .flags = FRL_SEND_INLINE },
	{ FRL_QPT_RC, FRL_WR_LOCAL_INV, 0, -EINVAL, .flags = FRL_SEND_INLINE },
	{ FRL_QPT_UD, FRL_WR_SEND, 100, 0, .flags = FRL_SEND_INLINE | FRL_SEND_FENCE },
	/* Memory. */
	{ FRL_QPT_RC, FRL_WR_SEND, 100, 0, .key = READ_ONLY },
	{ FRL_QPT_RC, FRL_WR_SEND, 100, -EINVAL, .key = FOREIGN },
	{ FRL_QPT_RC, FRL_WR_SEND, 100, -EINVAL, .key = MOVED },
	{ FRL_QPT_RC, FRL_WR_SEND, 100, -EINVAL, .key = WINDOW },
	{ FRL_QPT_RC, FRL_WR_SEND, 100, -EINVAL, .key = UNKNOWN },
	{ FRL_QPT_RC, FRL_WR_SEND, 0, 0, .key = UNKNOWN },
	{ FRL_QPT_RC, FRL_WR_SEND, F_MEMORY, .rc = 0 },
	{ FRL_QPT_RC, FRL_WR_SEND, F_MEMORY + 1, .rc = -EINVAL },
	{ FRL_QPT_RC, FRL_WR_SEND, UINT32_MAX, .rc = -EINVAL },
	{ FRL_QPT_RC, FRL_WR_RDMA_READ, 100, -EINVAL, .key = READ_ONLY },
	{ FRL_QPT_RC, FRL_WR_ATOMIC_FETCH_AND_ADD, 8, -EINVAL, .key = READ_ONLY },
	{ FRL_QPT_UD, FRL_WR_SEND, 1025, .rc = -EINVAL },
	{ FRL_QPT_GSI, FRL_WR_SEND, 1025, .rc = -EINVAL },
	/* READs and atomics. */
	{ FRL_QPT_RC, FRL_WR_ATOMIC_FETCH_AND_ADD, 7, .rc = -EINVAL },
	{ FRL_QPT_RC, FRL_WR_ATOMIC_FETCH_AND_ADD, 9, .rc = -EINVAL },
	{ FRL_QPT_RC, FRL_WR_ATOMIC_CMP_AND_SWP, 0, .rc = -EINVAL },
	{ FRL_QPT_RC, FRL_WR_ATOMIC_FETCH_AND_ADD, 8, -EINVAL, .remote_addr = 0x1004 },
	{ FRL_QPT_RC, FRL_WR_ATOMIC_CMP_AND_SWP, 8, -EINVAL, .remote_addr = 0x1001 },
	{ FRL_QPT_RC, FRL_WR_RDMA_READ, 8, 0, .remote_addr = 0x1001 },
	{ FRL_QPT_RC, FRL_WR_RDMA_READ, 8, -EINVAL, .no_rd_atomic = true },
	{ FRL_QPT_RC, FRL_WR_ATOMIC_FETCH_AND_ADD, 8, -EINVAL, .no_rd_atomic = true },
	{ FRL_QPT_RC, FRL_WR_SEND, 8, 0, .no_rd_atomic = true },
	/* Objects that handles stand for. */
	{ FRL_QPT_UD, FRL_WR_SEND, 100, -EINVAL, .objects = NONE },
	{ FRL_QPT_UD, FRL_WR_SEND, 100, -EINVAL, .objects = FOREIGN_AH },
	{ FRL_QPT_UD, FRL_WR_SEND, 100, 0, .remote_qpn = QPN_GSI },
	{ FRL_QPT_UD, FRL_WR_SEND, 100, 0, .remote_qpn = QPN_MULTICAST },
	{ FRL_QPT_UD, FRL_WR_SEND, 100, -EINVAL, .remote_qpn = QPN_MULTICAST + 1 },
	{ FRL_QPT_UD, FRL_WR_SEND, 100, -EINVAL, .remote_qpn = UINT32_MAX },
	{ FRL_QPT_RC, FRL_WR_BIND_MW, 0, -EINVAL, .objects = NONE },
	{ FRL_QPT_RC, FRL_WR_BIND_MW, 0, -EINVAL, .objects = NO_PARENT },
	{ FRL_QPT_RC, FRL_WR_BIND_MW, 0, -EINVAL, .objects = NO_WINDOW },
	{ FRL_QPT_RC, FRL_WR_LOCAL_INV, 0, 0, .objects = NONE },
};

static uint32_t key_of(const struct fixture *f, enum key key)
{
	switch (key) {
	case LOCAL: return f->local.key;
	case READ_ONLY: return f->read_only.key;
	case FOREIGN: return f->foreign.key;
	case MOVED: return f->moved.key;
	case WINDOW: return f->window.key;
	default: return f->local.key ^ 1;
	}
}

static struct wr_objects objects_of(
	struct fixture *f, enum objects objects, struct address_handle *foreign)
{
	*foreign = f->ah;
	foreign->pd = foreign;
	switch (objects) {
	case NONE: return (struct wr_objects){ 0 };
	case FOREIGN_AH: return (struct wr_objects){ .ah = foreign };
	case NO_PARENT: return (struct wr_objects){ .window = &f->window };
	case NO_WINDOW: return (struct wr_objects){ .parent = &f->local };
	default: return (struct wr_objects){ &f->ah, &f->window, &f->local };
	}
}

START_LOOP_TEST(what_is_taken, ROWS(rows))
{
	const struct post_row *row = &rows[_i];
	struct fixture *f = fixture_new(
		&(struct fixture_config){ .type = row->type, .no_rd_atomic = row->no_rd_atomic });
	struct frl_sge sge = { f->memory, row->length, key_of(f, row->key) };
	struct frl_send_wr wr = { .wr_id = 1,
		.opcode = row->opcode,
		.flags = row->flags,
		.sge = &sge,
		.n_sge = 1,
		.remote_addr = row->remote_addr,
		.remote_qpn = row->remote_qpn ? row->remote_qpn : F_PEER_QPN,
		.bind.rkey = f->window.key ^ 1 };
	struct address_handle foreign;
	struct wr_objects objects = objects_of(f, row->objects, &foreign);

	ck_assert_int_eq(fixture_try_post(f, &wr, &objects), row->rc);
	/* A refused request leaves nothing behind. */
	ck_assert_uint_eq(f->qp.requester.tail, row->rc ? 0 : 1);
	ck_assert_int_eq(qp_wants_output(&f->qp), row->rc == 0);
	if (row->rc)
		ck_assert_uint_eq(f->qp.requester.end.value, 0);
	expect_no_wc(&f->send_cq);
}
END_TEST

START_TEST(element_counts)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .max_send_sge = 3 });
	struct frl_sge sge[4] = { { f->memory, 1, f->local.key }, { f->memory, 1, f->local.key },
		{ f->memory, 1, f->local.key }, { f->memory, 1, f->local.key } };
	struct frl_send_wr wr = { .opcode = FRL_WR_SEND, .sge = sge };

	for (int flags = 0; flags <= FRL_SEND_INLINE; flags += FRL_SEND_INLINE) {
		wr.flags = (uint32_t)flags;
		for (wr.n_sge = 0; wr.n_sge <= 3; wr.n_sge++)
			ck_assert_int_eq(fixture_try_post(f, &wr, NULL), 0);
		ck_assert_int_eq(wr.n_sge, 4);
		ck_assert_int_eq(fixture_try_post(f, &wr, NULL), -EINVAL);
		wr.n_sge = -1;
		ck_assert_int_eq(fixture_try_post(f, &wr, NULL), -EINVAL);
	}
	wr = (struct frl_send_wr){ .opcode = FRL_WR_SEND, .n_sge = 1 };
	ck_assert_int_eq(fixture_try_post(f, &wr, NULL), -EINVAL);
	wr.n_sge = 0;
	ck_assert_int_eq(fixture_try_post(f, &wr, NULL), 0);
}
END_TEST

/* Elements that are each short enough, but not together. */
START_TEST(inline_elements)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .max_inline = 100 });
	struct frl_sge sge[2] = { { f->memory, 60, 0 }, { f->memory, 40, 0 } };
	struct frl_send_wr wr = {
		.opcode = FRL_WR_SEND, .flags = FRL_SEND_INLINE, .sge = sge, .n_sge = 2
	};

	ck_assert_int_eq(fixture_try_post(f, &wr, NULL), 0);
	sge[1].length = 41;
	ck_assert_int_eq(fixture_try_post(f, &wr, NULL), -EINVAL);
}
END_TEST

START_TEST(datagram_to_nobody)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .type = FRL_QPT_UD });
	struct frl_send_wr wr = { .opcode = FRL_WR_SEND };

	ck_assert_int_eq(fixture_try_post(f, &wr, &(struct wr_objects){ .ah = &f->ah }), -EINVAL);
}
END_TEST

/* Elements that are each within their region, but too long together. */
START_LOOP_TEST(longest_message, 5)
{
	static const enum frl_wr_opcode opcodes[] = { FRL_WR_SEND, FRL_WR_RDMA_READ };

	for (int i = 0; i < 2; i++) {
		uint32_t mtu = 256u << _i;
		struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = mtu });
		struct frl_sge sge[2] = { { f->huge.addr, 0x7fffffff, f->huge.key },
			{ f->huge.addr, 1, f->huge.key } };
		struct frl_send_wr wr = { .opcode = opcodes[i], .sge = sge, .n_sge = 2 };

		/* 2^31 bytes are 2^23 packets of 256 bytes, one too many. */
		ck_assert_int_eq(fixture_try_post(f, &wr, NULL), mtu == 256 ? -EINVAL : 0);
		sge[1].length = 2;
		ck_assert_int_eq(fixture_try_post(f, &wr, NULL), -EINVAL);
		sge[1].length = UINT32_MAX;
		ck_assert_int_eq(fixture_try_post(f, &wr, NULL), -EINVAL);
	}
}
END_TEST

/* All PSNs of a queue compare with each other. */
START_TEST(psns_in_the_queue)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = 512 });
	struct frl_sge sge = { f->huge.addr, 0x80000000, f->huge.key };
	struct frl_send_wr wr = { .opcode = FRL_WR_RDMA_READ, .sge = &sge, .n_sge = 1 };

	ck_assert_int_eq(fixture_try_post(f, &wr, NULL), 0); /* 2^22 packets */
	ck_assert_int_eq(fixture_try_post(f, &wr, NULL), -ENOMEM);
	sge.length -= 512;
	ck_assert_int_eq(fixture_try_post(f, &wr, NULL), 0);
	wr.opcode = FRL_WR_SEND;
	wr.n_sge = 0;
	ck_assert_int_eq(fixture_try_post(f, &wr, NULL), -ENOMEM);
	ck_assert_uint_eq(f->qp.requester.end.value, (1 << 23) - 1);
	wr.opcode = FRL_WR_LOCAL_INV; /* which has none */
	ck_assert_int_eq(fixture_try_post(f, &wr, NULL), 0);
}
END_TEST

START_LOOP_TEST(as_many_as_asked_for, 5)
{
	static const uint32_t sizes[] = { 1, 2, 3, 5, 64 };
	struct fixture *f = fixture_new(&(struct fixture_config){ .n_send = sizes[_i] });
	struct frl_send_wr wr = { .opcode = FRL_WR_SEND };

	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < sizes[_i]; i++)
			fixture_send(f, i, FRL_WR_SEND, 1);
		ck_assert_int_eq(fixture_try_post(f, &wr, NULL), -ENOMEM);
		fixture_output(f);
		fixture_ack(f, 0x1f, (round + 1) * sizes[_i] - 1);
		for (uint32_t i = 0; i < sizes[_i]; i++)
			expect_wc(&f->send_cq, i, FRL_WC_SUCCESS);
	}
}
END_TEST

/* Requests of each kind are taken back, behind one that stays, which is sent or not. */
START_LOOP_TEST(taken_back, 4)
{
	static const enum frl_wr_opcode opcodes[] = { FRL_WR_SEND, FRL_WR_RDMA_READ,
		FRL_WR_LOCAL_INV, FRL_WR_ATOMIC_FETCH_AND_ADD, FRL_WR_RDMA_WRITE };
	struct fixture *f = fixture_new(&(struct fixture_config){ .sq_psn = 0xfffffe });
	struct frl_sge sge = { f->memory, 8, 0 };
	struct frl_send_wr into = {
		.opcode = FRL_WR_SEND, .flags = FRL_SEND_INLINE, .sge = &sge, .n_sge = 1
	};
	struct wr_objects objects = { .window = &f->window, .parent = &f->local };
	struct requester before;

	if (_i & 1)
		fixture_send(f, 1, FRL_WR_SEND, 3000);
	if (_i & 2)
		fixture_output(f);
	before = f->qp.requester;
	for (uint32_t i = 0; i < ROWS(opcodes); i++)
		fixture_send(f, 10 + i, opcodes[i],
			opcodes[i] == FRL_WR_ATOMIC_FETCH_AND_ADD ? 8 : 2000);
	fixture_post(f, &into, NULL);
	fixture_post(f,
		&(struct frl_send_wr){ .opcode = FRL_WR_BIND_MW, .bind.rkey = f->window.key ^ 1 },
		&objects);
	qp_undo_posts(&f->qp, 0);
	qp_undo_posts(&f->qp, ROWS(opcodes) + 2);
	ck_assert_int_eq(memcmp(&before, &f->qp.requester, sizeof(before)), 0);
	ck_assert_uint_eq(fixture_output(f), _i == 1 ? 3 : 0);
	expect_no_wc(&f->send_cq);
	fixture_send(f, 2, FRL_WR_SEND, 10);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_SEND_ONLY, 0xfffffe + (_i & 1 ? 3 : 0), 10, true);
}
END_TEST

/* A slot keeps nothing of the request that had it before. */
START_TEST(slots_are_used_again)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .n_send = 1 });
	struct frl_sge sge = { f->memory, 10, f->local.key };
	struct frl_send_wr wr = { .opcode = FRL_WR_SEND, .sge = &sge, .n_sge = 1 };

	for (uint32_t i = 0; i < 20; i++) {
		sge.addr = f->memory + 100 * i;
		wr.flags = i % 3 ? 0 : FRL_SEND_INLINE;
		fixture_post(f, &wr, NULL);
		ck_assert_uint_eq(fixture_output(f), 1);
		expect_out(f, 0, OP_SEND_ONLY, i, 10, true);
		ck_assert_uint_eq(f->out[0].n_pieces, 1);
		if (i % 3)
			ck_assert_ptr_eq(f->out[0].pieces[0].addr, f->memory + 100 * i);
		fixture_ack(f, 0x1f, i);
	}
}
END_TEST

START_LOOP_TEST(states, 5)
{
	static const struct {
		enum frl_qp_state state;
		int rc;
		bool flushed;
	} state_rows[] = { { FRL_QPS_INIT, -EINVAL, false }, { FRL_QPS_RTR, -EINVAL, false },
		{ FRL_QPS_RTS, 0, false }, { FRL_QPS_SQD, 0, false }, { FRL_QPS_ERR, 0, true } };
	struct fixture *f = fixture_new(&(struct fixture_config){ .state = state_rows[_i].state });
	struct frl_send_wr wr = { .wr_id = 7, .opcode = FRL_WR_SEND };

	ck_assert_int_eq(fixture_try_post(f, &wr, NULL), state_rows[_i].rc);
	if (state_rows[_i].flushed)
		expect_wc(&f->send_cq, 7, FRL_WC_WR_FLUSH_ERR);
	expect_no_wc(&f->send_cq);
	fixture_move(f, FRL_QPS_RESET);
	ck_assert_int_eq(fixture_try_post(f, &wr, NULL), -EINVAL);
}
END_TEST

/* IBTA 10.2.5: bit 31 asks for the queue pair's own. */
START_LOOP_TEST(qkeys, 5)
{
	static const struct {
		uint32_t given, sent;
	} key_rows[] = { { 0, 0 }, { 0x7fffffff, 0x7fffffff }, { 0x80000000, F_QKEY },
		{ 0xffffffff, F_QKEY }, { QKEY_GSI, F_QKEY } };
	struct fixture *f = fixture_new(&(struct fixture_config){ .type = FRL_QPT_UD });
	struct frl_send_wr wr = { .opcode = FRL_WR_SEND,
		.remote_qpn = QPN_MULTICAST,
		.remote_qkey = key_rows[_i].given };

	fixture_post(f, &wr, &(struct wr_objects){ .ah = &f->ah });
	ck_assert_uint_eq(fixture_output(f), 1);
	ck_assert_uint_eq(f->out[0].h.deth.qkey, key_rows[_i].sent);
	ck_assert_uint_eq(f->out[0].h.bth.dest_qpn, QPN_MULTICAST);
}
END_TEST

/* The flow label of the handle decides the source port, if it has one. */
START_TEST(source_port_of_a_datagram)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .type = FRL_QPT_UD });
	const uint8_t *port;

	f->ah.flow_label = 0x12345;
	fixture_send(f, 1, FRL_WR_SEND, 1);
	ck_assert_uint_eq(fixture_output(f), 1);
	port = f->out[0].target->path.headers + f->out[0].target->path.headers_len - UDP_LEN;
	ck_assert_uint_eq(port[0] << 8 | port[1], 0xe341);
}
END_TEST

TEST_FILE(send_queue)
