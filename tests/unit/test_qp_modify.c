/* SPDX-License-Identifier: BSD-3-Clause */
/* States and attributes: all transitions, all masks, all ranges. */
#include "tests/unit/qp_fixture.h"

#include <errno.h>
#include <string.h>

enum {
	STATES = FRL_QPS_ERR + 1,
	RTR = FRL_QP_PATH | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN |
		FRL_QP_MIN_RNR_TIMER,
	RTS = FRL_QP_SQ_PSN | FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY,
	ALL = FRL_QP_CAPABILITIES * 2 - 1,
};

/* IBTA table 94, for RC, without what Ferrule lacks (alternate paths, SQD). */
static const struct transition_row {
	bool legal;
	uint32_t required;
	uint32_t optional;
} table[STATES][STATES] = {
	[FRL_QPS_RESET][FRL_QPS_RESET] = { true, 0, 0 },
	[FRL_QPS_RESET][FRL_QPS_INIT] = { true, FRL_QP_ACCESS_FLAGS, 0 },
	[FRL_QPS_INIT][FRL_QPS_RESET] = { true, 0, 0 },
	[FRL_QPS_INIT][FRL_QPS_INIT] = { true, 0, FRL_QP_ACCESS_FLAGS },
	[FRL_QPS_INIT][FRL_QPS_RTR] = { true, RTR, FRL_QP_ACCESS_FLAGS | FRL_QP_CAPABILITIES },
	[FRL_QPS_INIT][FRL_QPS_ERR] = { true, 0, 0 },
	[FRL_QPS_RTR][FRL_QPS_RESET] = { true, 0, 0 },
	[FRL_QPS_RTR][FRL_QPS_RTS] = { true, RTS, FRL_QP_ACCESS_FLAGS | FRL_QP_MIN_RNR_TIMER },
	[FRL_QPS_RTR][FRL_QPS_ERR] = { true, 0, 0 },
	[FRL_QPS_RTS][FRL_QPS_RESET] = { true, 0, 0 },
	[FRL_QPS_RTS][FRL_QPS_RTS] = { true, 0, FRL_QP_ACCESS_FLAGS | FRL_QP_MIN_RNR_TIMER },
	[FRL_QPS_RTS][FRL_QPS_ERR] = { true, 0, 0 },
	[FRL_QPS_ERR][FRL_QPS_RESET] = { true, 0, 0 },
	[FRL_QPS_ERR][FRL_QPS_ERR] = { true, 0, 0 },
};

static struct fixture *in_state(enum frl_qp_state state)
{
	struct fixture *f = fixture_new(
		&(struct fixture_config){ .state = state ? state : FRL_QPS_INIT,
			.sq_psn = 77,
			.rq_psn = 99,
			.rnr_retry = 7 });
	const char *why;

	if (state == FRL_QPS_RESET)
		ck_assert_int_eq(
			qp_modify(&f->qp, &(struct frl_qp_attr){ 0 }, FRL_QP_STATE, &why), 0);
	ck_assert_int_eq(f->qp.state, state);
	return f;
}

static void attributes(enum frl_qp_state to, struct frl_qp_attr *ret_attr)
{
	fixture_attr(
		&(struct fixture_config){
			.mtu = 2048, .sq_psn = 0xabcdef, .rq_psn = 0xfedcba, .retry_cnt = 3 },
		ret_attr);
	ret_attr->state = to;
	ret_attr->access_flags = FRL_ACCESS_LOCAL_WRITE;
	ret_attr->capabilities = FRL_CAP_NO_ICRC;
	ret_attr->min_rnr_timer = 31;
}

/* A refusal says why and leaves every byte as it was. */
static void refused(struct fixture *f, const struct frl_qp_attr *attr, uint32_t mask)
{
	static struct qp before;
	const char *why = NULL;

	before = f->qp;
	ck_assert_int_eq(qp_modify(&f->qp, attr, mask, &why), -EINVAL);
	ck_assert_mem_eq(&before, &f->qp, sizeof(before));
	ck_assert_ptr_nonnull(why);
	ck_assert_uint_gt(strlen(why), 5);
}

static void accepted(struct fixture *f, const struct frl_qp_attr *attr, uint32_t mask)
{
	const char *why = "";

	ck_assert_msg(qp_modify(&f->qp, attr, mask, &why) == 0, "%s", why);
	ck_assert_int_eq(f->qp.state, attr->state);
	check_invariants(f);
}

START_TEST(transitions)
{
	enum frl_qp_state from = (enum frl_qp_state)_i / STATES,
			  to = (enum frl_qp_state)_i % STATES;
	const struct transition_row *row = &table[from][to];
	uint32_t full = FRL_QP_STATE | row->required;
	struct frl_qp_attr attr;

	attributes(to, &attr);
	if (!row->legal) {
		refused(in_state(from), &attr, FRL_QP_STATE);
		refused(in_state(from), &attr, ALL);
		refused(in_state(from), &attr, FRL_QP_STATE | RTR);
		refused(in_state(from), &attr, FRL_QP_STATE | RTS);
		refused(in_state(from), &attr, FRL_QP_STATE | FRL_QP_ACCESS_FLAGS);
		return;
	}
	accepted(in_state(from), &attr, full);
	accepted(in_state(from), &attr, full | row->optional);
	for (uint32_t bit = FRL_QP_ACCESS_FLAGS; bit <= FRL_QP_CAPABILITIES << 2; bit <<= 1) {
		if (row->required & bit)
			refused(in_state(from), &attr, full & ~bit);
		else if (row->optional & bit)
			accepted(in_state(from), &attr, full | bit);
		else
			refused(in_state(from), &attr, full | bit);
	}
}
END_TEST

START_TEST(no_such_state)
{
	struct frl_qp_attr attr;

	for (int state = 0; state < STATES; state++) {
		attributes(FRL_QPS_ERR, &attr);
		attr.state = (enum frl_qp_state)(FRL_QPS_ERR + 1);
		refused(in_state((enum frl_qp_state)state), &attr, FRL_QP_STATE);
		attr.state = (enum frl_qp_state) - 1;
		refused(in_state((enum frl_qp_state)state), &attr, FRL_QP_STATE);
	}
}
END_TEST

/* Without STATE in the mask the state stays: only what X -> X takes. */
START_TEST(attributes_without_state)
{
	struct fixture *f = in_state(FRL_QPS_RTS);
	struct frl_qp_attr attr;
	const char *why;

	attributes(FRL_QPS_ERR, &attr);
	ck_assert_int_eq(qp_modify(&f->qp, &attr, FRL_QP_MIN_RNR_TIMER, &why), 0);
	ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
	ck_assert_uint_eq(f->qp.attr.min_rnr_timer, 31);
	refused(f, &attr, FRL_QP_SQ_PSN);
	refused(f, &attr, FRL_QP_TIMEOUT);
	refused(in_state(FRL_QPS_RTR), &attr, FRL_QP_MIN_RNR_TIMER);
	refused(in_state(FRL_QPS_RESET), &attr, FRL_QP_ACCESS_FLAGS);
}
END_TEST

#define FIELD(bit, to, name, value, ok)                                    \
	{                                                                  \
		bit, to, offsetof(struct frl_qp_attr, name),               \
			sizeof(((struct frl_qp_attr *)0)->name), value, ok \
	}

static const struct range_row {
	uint32_t bit;
	enum frl_qp_state to;
	size_t offset;
	size_t size;
	uint32_t value;
	bool ok;
} ranges[] = {
	FIELD(FRL_QP_ACCESS_FLAGS, FRL_QPS_INIT, access_flags, 0, true),
	FIELD(FRL_QP_ACCESS_FLAGS, FRL_QPS_INIT, access_flags, 3, true),
	FIELD(FRL_QP_ACCESS_FLAGS, FRL_QPS_INIT, access_flags, 4, false),
	FIELD(FRL_QP_ACCESS_FLAGS, FRL_QPS_INIT, access_flags, 0x80000000, false),
	FIELD(FRL_QP_PATH_MTU, FRL_QPS_RTR, path_mtu, 0, false),
	FIELD(FRL_QP_PATH_MTU, FRL_QPS_RTR, path_mtu, 3, false),
	FIELD(FRL_QP_PATH_MTU, FRL_QPS_RTR, path_mtu, 128, false),
	FIELD(FRL_QP_PATH_MTU, FRL_QPS_RTR, path_mtu, 256, true),
	FIELD(FRL_QP_PATH_MTU, FRL_QPS_RTR, path_mtu, 512, true),
	FIELD(FRL_QP_PATH_MTU, FRL_QPS_RTR, path_mtu, 768, false),
	FIELD(FRL_QP_PATH_MTU, FRL_QPS_RTR, path_mtu, 1024, true),
	FIELD(FRL_QP_PATH_MTU, FRL_QPS_RTR, path_mtu, 1500, false),
	FIELD(FRL_QP_PATH_MTU, FRL_QPS_RTR, path_mtu, 2048, true),
	FIELD(FRL_QP_PATH_MTU, FRL_QPS_RTR, path_mtu, 4096, true),
	FIELD(FRL_QP_PATH_MTU, FRL_QPS_RTR, path_mtu, 8192, false),
	FIELD(FRL_QP_DEST_QPN, FRL_QPS_RTR, dest_qpn, 0, false),
	FIELD(FRL_QP_DEST_QPN, FRL_QPS_RTR, dest_qpn, 1, true),
	FIELD(FRL_QP_DEST_QPN, FRL_QPS_RTR, dest_qpn, 0xfffffe, true),
	FIELD(FRL_QP_DEST_QPN, FRL_QPS_RTR, dest_qpn, 0xffffff, false),
	FIELD(FRL_QP_DEST_QPN, FRL_QPS_RTR, dest_qpn, 0x1000011, false),
	FIELD(FRL_QP_RQ_PSN, FRL_QPS_RTR, rq_psn, 0xffffff, true),
	FIELD(FRL_QP_RQ_PSN, FRL_QPS_RTR, rq_psn, 0x1000000, false),
	FIELD(FRL_QP_MIN_RNR_TIMER, FRL_QPS_RTR, min_rnr_timer, 0, true),
	FIELD(FRL_QP_MIN_RNR_TIMER, FRL_QPS_RTR, min_rnr_timer, 31, true),
	FIELD(FRL_QP_MIN_RNR_TIMER, FRL_QPS_RTR, min_rnr_timer, 32, false),
	FIELD(FRL_QP_MIN_RNR_TIMER, FRL_QPS_RTR, min_rnr_timer, 255, false),
	FIELD(FRL_QP_CAPABILITIES, FRL_QPS_RTR, capabilities, 1, true),
	FIELD(FRL_QP_CAPABILITIES, FRL_QPS_RTR, capabilities, 2, false),
	FIELD(FRL_QP_SQ_PSN, FRL_QPS_RTS, sq_psn, 0xffffff, true),
	FIELD(FRL_QP_SQ_PSN, FRL_QPS_RTS, sq_psn, 0x1000000, false),
	FIELD(FRL_QP_TIMEOUT, FRL_QPS_RTS, timeout, 0, true),
	FIELD(FRL_QP_TIMEOUT, FRL_QPS_RTS, timeout, 31, true),
	FIELD(FRL_QP_TIMEOUT, FRL_QPS_RTS, timeout, 32, false),
	FIELD(FRL_QP_RETRY_CNT, FRL_QPS_RTS, retry_cnt, 7, true),
	FIELD(FRL_QP_RETRY_CNT, FRL_QPS_RTS, retry_cnt, 8, false),
	FIELD(FRL_QP_RNR_RETRY, FRL_QPS_RTS, rnr_retry, 7, true),
	FIELD(FRL_QP_RNR_RETRY, FRL_QPS_RTS, rnr_retry, 8, false),
};

START_TEST(value_ranges)
{
	const struct range_row *row = &ranges[_i];
	enum frl_qp_state from = row->to - 1;
	uint32_t mask = FRL_QP_STATE | table[from][row->to].required | row->bit;
	struct fixture *f = in_state(from);
	struct frl_qp_attr attr;
	uint8_t small = (uint8_t)row->value;

	attributes(row->to, &attr);
	memcpy((char *)&attr + row->offset, row->size == 1 ? &small : (const void *)&row->value,
		row->size);
	if (row->ok) {
		accepted(f, &attr, mask);
		ck_assert_mem_eq(
			(char *)&f->qp.attr + row->offset, (char *)&attr + row->offset, row->size);
	} else {
		refused(f, &attr, mask);
	}
	/* What the mask does not name is not looked at. */
	if (!row->ok && row->bit == FRL_QP_CAPABILITIES)
		accepted(f, &attr, mask & ~row->bit);
}
END_TEST

START_TEST(attributes_take_effect)
{
	struct fixture *f = in_state(FRL_QPS_INIT);
	struct frl_qp_attr attr;

	attributes(FRL_QPS_RTR, &attr);
	attr.remote_mac[5] = 9;
	attr.link = 3;
	attr.traffic_class = 4;
	attr.hop_limit = 5;
	accepted(f, &attr, FRL_QP_STATE | RTR | FRL_QP_CAPABILITIES);
	ck_assert_uint_eq(f->qp.path_mtu, 2048);
	ck_assert_uint_eq(f->qp.dest_qpn, F_PEER_QPN);
	ck_assert_uint_eq(f->qp.capabilities, FRL_CAP_NO_ICRC);
	ck_assert_uint_eq(f->qp.responder.epsn.value, 0xfedcba);
	ck_assert_mem_eq(&f->qp.remote_ip, &attr.remote_ip, sizeof(attr.remote_ip));
	ck_assert_mem_eq(f->qp.attr.remote_mac, attr.remote_mac, 6);
	ck_assert_uint_eq(f->qp.attr.link, 3);
	ck_assert_uint_eq(f->qp.attr.traffic_class, 4);
	ck_assert_uint_eq(f->qp.attr.hop_limit, 5);
	attr.state = FRL_QPS_RTS;
	accepted(f, &attr, FRL_QP_STATE | RTS);
	ck_assert_uint_eq(f->qp.requester.una.value, 0xabcdef);
	ck_assert_uint_eq(f->qp.requester.end.value, 0xabcdef);
	ck_assert_uint_eq(f->qp.recovery.retries, 3);
	ck_assert_uint_eq(f->qp.recovery.ack_timeout_ns, F_TIMEOUT_NS);
	/* None of it outlives RESET. */
	attr.state = FRL_QPS_RESET;
	accepted(f, &attr, FRL_QP_STATE);
	ck_assert_uint_eq(f->qp.capabilities, 0);
	ck_assert_uint_eq(f->qp.attr.access_flags, 0);
}
END_TEST

/* Busy in every way: RESET drops all without a completion, and the queue pair is as new. */
START_TEST(reset_from_every_state)
{
	struct fixture *f = in_state((enum frl_qp_state)_i);
	const char *why;

	if (_i != FRL_QPS_RESET)
		fixture_recv(f, 1, 0, 100);
	if (_i == FRL_QPS_RTS) {
		fixture_send(f, 2, FRL_WR_SEND, 5000);
		fixture_send(f, 3, FRL_WR_SEND, 5000);
		fixture_output(f);
		fixture_ack(f, 0x3f, 77 + 2);
	}
	if (_i == FRL_QPS_RTR || _i == FRL_QPS_RTS) {
		fixture_arrive_write(
			f, OP_WRITE_FIRST, 99, 1024, (uintptr_t)f->memory, f->local.key, 4000);
		fixture_arrive(f, OP_WRITE_MIDDLE, 101, 1024);
		ck_assert(f->qp.responder.ack_pending);
	}
	f->recv_cq.head = f->recv_cq.tail;
	ck_assert_int_eq(qp_modify(&f->qp, &(struct frl_qp_attr){ 0 }, FRL_QP_STATE, &why), 0);
	check_invariants(f);
	expect_silence(f);
	expect_no_wc(&f->send_cq);
	expect_no_wc(&f->recv_cq);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
	/* A second life, with other numbers. */
	fixture_bring_up(f, &(struct fixture_config){ .sq_psn = 5, .rq_psn = 6 });
	fixture_recv(f, 4, 0, 100);
	fixture_arrive(f, OP_SEND_ONLY, 6, 100);
	expect_answer(f, 0x1f, 6, 1);
	expect_wc(&f->recv_cq, 4, FRL_WC_SUCCESS);
	fixture_send(f, 5, FRL_WR_SEND, 10);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_SEND_ONLY, 5, 10, true);
	fixture_ack(f, 0x1f, 5);
	expect_wc(&f->send_cq, 5, FRL_WC_SUCCESS);
}
END_TEST

START_TEST(err_flushes_in_every_state)
{
	struct fixture *f = in_state((enum frl_qp_state)_i);
	struct frl_qp_attr attr = { .state = FRL_QPS_ERR };

	fixture_recv(f, 1, 0, 100);
	fixture_recv(f, 2, 0, 100);
	if (_i == FRL_QPS_RTS) {
		fixture_send_flags(f, 3, 5000, 0);
		fixture_send(f, 4, FRL_WR_SEND, 5000);
		fixture_output(f);
	}
	accepted(f, &attr, FRL_QP_STATE);
	expect_silence(f);
	if (_i == FRL_QPS_RTS) {
		expect_wc(&f->send_cq, 3, FRL_WC_WR_FLUSH_ERR);
		expect_wc(&f->send_cq, 4, FRL_WC_WR_FLUSH_ERR);
	}
	expect_no_wc(&f->send_cq);
	expect_wc(&f->recv_cq, 1, FRL_WC_WR_FLUSH_ERR);
	expect_wc(&f->recv_cq, 2, FRL_WC_WR_FLUSH_ERR);
	expect_no_wc(&f->recv_cq);
	accepted(f, &attr, FRL_QP_STATE);
	expect_no_wc(&f->recv_cq);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("qp_modify");
	TCase *tc = tcase_create("qp_modify");

	tcase_add_loop_test(tc, transitions, 0, STATES * STATES);
	tcase_add_test(tc, no_such_state);
	tcase_add_test(tc, attributes_without_state);
	tcase_add_loop_test(tc, value_ranges, 0, sizeof(ranges) / sizeof(ranges[0]));
	tcase_add_test(tc, attributes_take_effect);
	tcase_add_loop_test(tc, reset_from_every_state, 0, STATES);
	tcase_add_loop_test(tc, err_flushes_in_every_state, FRL_QPS_INIT, STATES);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
