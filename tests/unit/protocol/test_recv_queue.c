/* SPDX-License-Identifier: BSD-3-Clause */
/* Posting receives, to a queue pair and to a shared queue, and taking them. */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

#include <errno.h>
#include <string.h>

enum { MTU = 256, ACK = 0x1f, RNR = 0x20 | 14 };

static struct fixture *new_srq(uint32_t size, uint32_t limit)
{
	return fixture_new(&(struct fixture_config){
		.mtu = MTU, .srq = true, .n_recv = size, .srq_limit = limit });
}

static int post(struct fixture *f, const struct frl_recv_wr *wr, const char **ret_why)
{
	*ret_why = NULL;
	return f->qp.responder.srq ? recv_queue_post(&f->srq.queue, wr, ret_why)
				   : qp_post_recv(&f->qp, wr, ret_why);
}

enum key { LOCAL, READ_ONLY, FOREIGN, MOVED, WINDOW, WRONG };

static uint32_t key_of(const struct fixture *f, enum key key)
{
	const uint32_t keys[] = { f->local.key, f->read_only.key, f->foreign.key, f->moved.key,
		f->window.key, 0 };

	return keys[key];
}

static const struct sge_row {
	int n_sge;
	uint32_t length; /* of the last element; those before it have 1 */
	int64_t offset;  /* of all of them, in the memory of the key */
	enum key key;
	const char *why; /* part of the sentence; NULL: taken */
} sge_rows[] = {
	{ 0, 0, 0, WRONG, NULL },
	{ 1, 0, 0, WRONG, NULL }, /* an element of nothing needs no memory */
	{ 1, F_MEMORY, 0, LOCAL, NULL },
	{ 4, 100, 0, LOCAL, NULL },
	{ 4, 100, 0, MOVED, NULL },
	{ 5, 1, 0, LOCAL, "max_recv_sge" },
	{ 17, 1, 0, LOCAL, "max_recv_sge" },
	{ -1, 1, 0, LOCAL, "max_recv_sge" },
	{ 1, 1, 0, WRONG, "names no memory region" },
	{ 1, 1, 0, READ_ONLY, "local write" },
	{ 1, 1, 0, FOREIGN, "protection domain" },
	{ 1, 1, 0, WINDOW, "is not inside" },
	{ 1, F_MEMORY, 1, LOCAL, "is not inside" },
	{ 1, 1, -1, LOCAL, "is not inside" },
	{ 1, 1, F_MEMORY, MOVED, "is not inside" },
	{ 2, 1, F_MEMORY - 1, LOCAL, NULL },
	{ 3, 2, F_MEMORY - 1, LOCAL, "is not inside" },
};

START_LOOP_TEST(elements, ROWS(sge_rows))
{
	const struct sge_row *row = &sge_rows[_i];

	for (int srq = 0; srq < 2; srq++) {
		struct fixture *f = fixture_new(
			&(struct fixture_config){ .mtu = MTU, .max_recv_sge = 4, .srq = srq });
		uint64_t base = row->key == MOVED ? F_IOVA : (uintptr_t)f->memory;
		struct frl_sge sge[FRL_MAX_SGE + 1];
		struct frl_recv_wr wr = { .sge = sge, .n_sge = row->n_sge };
		const char *why;
		int rc;

		for (int i = 0; i < FRL_MAX_SGE + 1; i++)
			sge[i] = (struct frl_sge){ (void *)(uintptr_t)(base +
							   (uint64_t)row->offset),
				i == row->n_sge - 1 ? row->length : 1, key_of(f, row->key) };
		rc = post(f, &wr, &why);
		if (!row->why) {
			ck_assert_int_eq(rc, 0);
			ck_assert(receive_available(&f->qp));
			ck_assert_uint_eq(receive_peek(&f->qp)->n_sge,
				row->length ? (uint32_t)row->n_sge : 0);
			continue;
		}
		ck_assert_int_eq(rc, -EINVAL);
		ck_assert_msg(strstr(why, row->why), "%s", why);
		ck_assert(!receive_available(&f->qp));
		ck_assert_ptr_null(receive_peek(&f->qp));
	}
}
END_TEST

START_TEST(message_of_2_gib)
{
	struct fixture *f = fixture_new(NULL);
	struct frl_sge sge[2] = { { f->huge.addr, 0x80000000, f->huge.key },
		{ f->memory, 1, f->local.key } };
	struct frl_recv_wr wr = { .sge = sge, .n_sge = 1 };
	const char *why;

	ck_assert_int_eq(post(f, &wr, &why), 0);
	wr.n_sge = 2;
	ck_assert_int_eq(post(f, &wr, &why), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "2^31"));
	wr = (struct frl_recv_wr){ .sge = NULL, .n_sge = 1 };
	ck_assert_int_eq(post(f, &wr, &why), -EINVAL);
}
END_TEST

static const struct action_row {
	int type, dtype, op;
	uint32_t lengths[2];
	int32_t src_offset; /* negative: no src */
	enum key src_key;
	bool taken;
} action_rows[] = {
	{ FRL_ACTION_COPY, 99, 99, { 3, 5 }, 0, WRONG, true },
	{ 2, 0, 0, { 4, 4 }, -1, LOCAL, false },
	{ -1, 0, 0, { 4, 4 }, -1, LOCAL, false },
	{ FRL_ACTION_REDUCE, FRL_FLOAT32, 0, { 4, 8 }, -1, WRONG, true },
	{ FRL_ACTION_REDUCE, FRL_FLOAT32, 0, { 4, 8 }, 0, READ_ONLY, true }, /* is only read */
	{ FRL_ACTION_REDUCE, FRL_FLOAT32, 0, { 4, 8 }, F_MEMORY - 12, LOCAL, true },
	{ FRL_ACTION_REDUCE, FRL_FLOAT32, 0, { 4, 8 }, F_MEMORY - 11, LOCAL, false },
	{ FRL_ACTION_REDUCE, FRL_FLOAT32, 0, { 4, 8 }, 0, FOREIGN, false },
	{ FRL_ACTION_REDUCE, FRL_FLOAT32, 0, { 4, 8 }, 0, WRONG, false },
	{ FRL_ACTION_REDUCE, FRL_FLOAT32, 0, { 0, 0 }, 0, WRONG, true },
	{ FRL_ACTION_REDUCE, FRL_FLOAT32, 0, { 4, 6 }, -1, LOCAL, false },
	{ FRL_ACTION_REDUCE, FRL_FLOAT32, 0, { 2, 6 }, -1, LOCAL, false },
	{ FRL_ACTION_REDUCE, FRL_DTYPES, 0, { 4, 8 }, -1, LOCAL, false },
	{ FRL_ACTION_REDUCE, FRL_FLOAT32, FRL_MIN, { 4, 8 }, -1, LOCAL, true },
	{ FRL_ACTION_REDUCE, FRL_FLOAT32, FRL_AVG, { 4, 8 }, -1, LOCAL, false },
	{ FRL_ACTION_REDUCE, FRL_FLOAT32, FRL_OPS, { 4, 8 }, -1, LOCAL, false },
	{ FRL_ACTION_REDUCE, FRL_BFLOAT16, 0, { 4, 6 }, -1, LOCAL, true },
	{ FRL_ACTION_REDUCE, FRL_UINT8, 0, { 3, 5 }, -1, LOCAL, true },
	{ FRL_ACTION_REDUCE, FRL_FLOAT64, 0, { 4, 12 }, -1, LOCAL, false },
	{ FRL_ACTION_REDUCE, FRL_FLOAT32, -1, { 4, 8 }, -1, LOCAL, false },
};

START_LOOP_TEST(actions, ROWS(action_rows))
{
	const struct action_row *row = &action_rows[_i];

	for (int srq = 0; srq < 2; srq++) {
		struct fixture *f = fixture_new(&(struct fixture_config){ .srq = srq });
		struct frl_sge sge[2] = { { f->memory, row->lengths[0], f->local.key },
			{ f->memory + 64, row->lengths[1], f->local.key } };
		struct frl_recv_wr wr = { .sge = sge,
			.n_sge = 2,
			.action = { .type = (enum frl_action_type)row->type,
				.dtype = (enum frl_dtype)row->dtype,
				.op = (enum frl_op)row->op,
				.src = row->src_offset < 0 ? NULL : f->memory + row->src_offset,
				.src_lkey = key_of(f, row->src_key) } };
		const char *why;

		ck_assert_int_eq(post(f, &wr, &why), row->taken ? 0 : -EINVAL);
		ck_assert_int_eq(why != NULL, !row->taken);
	}
}
END_TEST

/* As many as were asked for, also when there are more slots; over and over. */
START_LOOP_TEST(sizes, 2)
{
	static const uint32_t lengths[] = { 1, 2, 3, 5, 8 };

	for (unsigned i = 0; i < ROWS(lengths); i++) {
		struct fixture *f = fixture_new(
			&(struct fixture_config){ .mtu = MTU, .n_recv = lengths[i], .srq = _i });
		struct frl_recv_wr wr = { 0 };
		uint32_t in = 0, out = 0;
		const char *why;

		for (int round = 0; round < 20; round++) {
			while (in - out < lengths[i])
				fixture_recv(f, in++, 0, 8);
			ck_assert_int_eq(post(f, &wr, &why), -ENOMEM);
			ck_assert_ptr_nonnull(strstr(why, "full"));
			for (int n = round % 3; n >= 0 && out < in; n--) {
				fixture_arrive(f, OP_SEND_ONLY, out, 8);
				expect_wc(&f->recv_cq, out++, FRL_WC_SUCCESS);
			}
		}
	}
}
END_TEST

START_TEST(storage)
{
	struct recv_queue queue;
	const char *why;

	ck_assert_uint_eq(recv_queue_storage(0, 16), 0);
	recv_queue_init(&queue, NULL, 0, 16, NULL, NULL);
	ck_assert(recv_queue_empty(&queue));
	ck_assert_int_eq(recv_queue_post(&queue, &(struct frl_recv_wr){ 0 }, &why), -ENOMEM);
	for (uint32_t size = 1; size < 40; size++)
		for (uint32_t sge = 1; sge <= FRL_MAX_SGE; sge++) {
			static _Alignas(16) uint8_t memory[F_STORAGE];
			size_t bytes = recv_queue_storage(size, sge);
			const struct recv_wqe *last;

			ck_assert_uint_le(bytes, sizeof(memory));
			ck_assert_uint_eq(bytes % 16, 0);
			recv_queue_init(&queue, memory, size, sge, NULL, NULL);
			ck_assert_uint_ge(queue.mask + 1, size);
			last = &queue.wqes[queue.mask];
			ck_assert_ptr_eq(queue.wqes[0].sge, queue.wqes + queue.mask + 1);
			ck_assert_uint_le((size_t)((uint8_t *)(last->sge + sge) - memory), bytes);
		}
}
END_TEST

static const struct state_row {
	enum frl_qp_type type;
	enum frl_qp_state state;
	bool flushed;
} state_rows[] = {
	{ FRL_QPT_RC, FRL_QPS_INIT, false },
	{ FRL_QPT_RC, FRL_QPS_RTR, false },
	{ FRL_QPT_RC, FRL_QPS_RTS, false },
	{ FRL_QPT_RC, FRL_QPS_SQD, false },
	{ FRL_QPT_RC, FRL_QPS_ERR, true },
	{ FRL_QPT_UD, FRL_QPS_INIT, false },
	{ FRL_QPT_UC, FRL_QPS_ERR, true },
};

START_LOOP_TEST(states, ROWS(state_rows))
{
	const struct state_row *row = &state_rows[_i];
	struct fixture *f = fixture_new(
		&(struct fixture_config){ .type = row->type, .state = row->state });
	struct frl_sge sge = { f->memory, 8, f->local.key };
	struct frl_recv_wr wr = { .wr_id = 4, .sge = &sge, .n_sge = 1 };
	const char *why;

	ck_assert_int_eq(qp_post_recv(&f->qp, &wr, &why), 0);
	if (row->flushed)
		expect_wc(&f->recv_cq, 4, FRL_WC_WR_FLUSH_ERR);
	else
		ck_assert(receive_available(&f->qp));
	expect_no_wc(&f->recv_cq);
	wr.action.type = FRL_ACTION_REDUCE;
	ck_assert_int_eq(qp_post_recv(&f->qp, &wr, &why), row->type == FRL_QPT_RC ? 0 : -EINVAL);
	fixture_move(f, FRL_QPS_RESET);
	wr.action.type = FRL_ACTION_COPY;
	ck_assert_int_eq(qp_post_recv(&f->qp, &wr, &why), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "RESET"));
	ck_assert(!receive_available(&f->qp));
	/* With a shared queue there is no other. */
	f = new_srq(4, 0);
	ck_assert_int_eq(qp_post_recv(&f->qp, &wr, &why), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "shared"));
}
END_TEST

/* A receive that was taken is the message's, whatever is posted, taken and even posted again
 * meanwhile. */
START_TEST(taken_from_a_shared_queue)
{
	struct fixture *f = new_srq(2, 0);
	struct recv_wqe other = { .sge = (struct frl_sge[FRL_MAX_SGE]){ { 0 } } };

	fixture_recv(f, 1, 1000, 3 * MTU);
	fixture_recv(f, 2, 9000, 1);
	fixture_arrive(f, OP_SEND_FIRST, 0, MTU);
	srq_take(&f->srq, &other);
	ck_assert_uint_eq(other.wr_id, 2);
	ck_assert_ptr_eq(other.sge[0].addr, f->memory + 9000);
	for (uint32_t i = 3; i < 5; i++)
		fixture_recv(f, i, 20000, 1);
	fixture_arrive(f, OP_SEND_MIDDLE, 1, MTU);
	ck_assert_ptr_eq(f->placements.list[0].dst, f->memory + 1000 + MTU);
	fixture_arrive(f, OP_SEND_LAST, 2, 1);
	expect_answer(f, ACK, 2, 1);
	expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
	/* A WRITE takes one with its immediate only. */
	fixture_arrive_write(
		f, OP_WRITE_FIRST, 3, MTU, (uintptr_t)f->memory, f->local.key, MTU + 1);
	ck_assert_uint_eq(f->srq.queue.tail - f->srq.queue.head, 2);
	fixture_arrive(f, OP_WRITE_LAST_IMM, 4, 1);
	ck_assert_uint_eq(f->srq.queue.tail - f->srq.queue.head, 1);
	expect_wc(&f->recv_cq, 3, FRL_WC_SUCCESS);
}
END_TEST

START_TEST(shared_queue_empty)
{
	struct fixture *f = new_srq(4, 0);

	fixture_arrive(f, OP_SEND_FIRST, 0, MTU);
	expect_answer(f, RNR, 0, 0);
	fixture_recv(f, 1, 0, 2 * MTU);
	fixture_arrive(f, OP_SEND_FIRST, 0, MTU);
	ck_assert(receive_available(&f->qp)); /* the one that is taken */
	fixture_arrive(f, OP_SEND_LAST, 1, MTU);
	expect_answer(f, ACK, 1, 1);
	expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
	ck_assert(!receive_available(&f->qp));
	fixture_arrive(f, OP_SEND_ONLY, 2, 0);
	expect_answer(f, RNR, 2, 1);
}
END_TEST

/* In ERR the one that is taken comes back, and only that; an error takes one to tell of itself. */
START_LOOP_TEST(shared_queue_and_errors, 3)
{
	struct fixture *f = new_srq(4, 0);

	for (uint32_t i = 1; i < 5; i++)
		fixture_recv(f, i, 0, 2 * MTU);
	fixture_arrive(f, OP_SEND_FIRST, 0, MTU);
	if (_i == 0) {
		fixture_move(f, FRL_QPS_ERR);
		expect_wc(&f->recv_cq, 1, FRL_WC_WR_FLUSH_ERR);
		expect_silence(f);
	} else if (_i == 1) {
		fixture_arrive(f, OP_SEND_LAST, 1, MTU + 1);
		expect_wc(&f->recv_cq, 1, FRL_WC_REM_INV_REQ_ERR);
		expect_answer(f, 0x61, 1, 0);
	} else {
		fixture_arrive(f, OP_SEND_LAST, 1, MTU);
		expect_wc(&f->recv_cq, 1, FRL_WC_SUCCESS);
		fixture_arrive(f, OP_SEND_ONLY, 2, MTU + 1);
		expect_wc(&f->recv_cq, 2, FRL_WC_REM_INV_REQ_ERR);
		expect_answer(f, 0x61, 2, 1);
	}
	expect_no_wc(&f->recv_cq);
	ck_assert_uint_eq(f->srq.queue.tail - f->srq.queue.head, _i == 2 ? 2 : 3);
	expect_event(&f->qp.events, FRL_EVENT_QP_LAST_WQE_REACHED);
	expect_no_event(&f->qp.events);
	/* Nothing of it is left after RESET. */
	fixture_move(f, FRL_QPS_RESET);
	ck_assert_ptr_null(f->qp.responder.recv);
	expect_no_wc(&f->recv_cq);
}
END_TEST

/* Once, when fewer are left after one was taken; then it must be armed again. */
START_TEST(limit_event)
{
	struct fixture *f = new_srq(8, 3);
	uint32_t psn = 0;

	expect_no_event(&f->srq.events); /* fewer, but none was taken */
	for (uint32_t i = 0; i < 8; i++)
		fixture_recv(f, i, 0, MTU);
	for (; psn < 5; psn++) {
		fixture_arrive(f, OP_SEND_ONLY, psn, 1);
		expect_no_event(&f->srq.events);
		ck_assert_uint_eq(f->srq.limit, 3);
	}
	fixture_arrive(f, OP_SEND_ONLY, psn++, 1);
	expect_event(&f->srq.events, FRL_EVENT_SRQ_LIMIT_REACHED);
	ck_assert_uint_eq(f->srq.limit, 0);
	fixture_arrive(f, OP_SEND_ONLY, psn++, 1);
	expect_no_event(&f->srq.events);
	f->srq.limit = 1;
	fixture_arrive(f, OP_SEND_FIRST, psn, MTU); /* when it is taken, not when it completes */
	expect_event(&f->srq.events, FRL_EVENT_SRQ_LIMIT_REACHED);
}
END_TEST

TEST_FILE(recv_queue)
