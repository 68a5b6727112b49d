/* SPDX-License-Identifier: BSD-3-Clause */
/* States and attributes: all transitions, all masks, all ranges. */
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

#include <errno.h>
#include <string.h>

enum {
	STATES = FRL_QPS_ERR + 1,
	TYPES = 4,
	INIT = FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS,
	INIT_UD = FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_QKEY,
	RTR_UC = FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN,
	RTR = RTR_UC | FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER,
	RTS = FRL_QP_SQ_PSN | FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY |
		FRL_QP_MAX_QP_RD_ATOMIC,
	LIVE_UC = FRL_QP_CUR_STATE | FRL_QP_ACCESS_FLAGS,
	LIVE = LIVE_UC | FRL_QP_MIN_RNR_TIMER,
	LIVE_UD = FRL_QP_CUR_STATE | FRL_QP_QKEY,
	SQD_UC = FRL_QP_PORT | FRL_QP_AV | FRL_QP_ACCESS_FLAGS | FRL_QP_PKEY_INDEX,
	SQD = SQD_UC | FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY |
		FRL_QP_MAX_QP_RD_ATOMIC | FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER,
	ALL = FRL_QP_CAPABILITIES * 2u - 1,
};

static const enum frl_qp_type types[TYPES] = { FRL_QPT_RC, FRL_QPT_UC, FRL_QPT_UD, FRL_QPT_GSI };

/* IBTA table 94 without alternate paths: what RC, UC and datagrams need, and what they may have. */
struct masks {
	bool legal;
	uint32_t required;
	uint32_t optional;
};

static const struct masks table[3][STATES][STATES] = {
	{
		[FRL_QPS_RESET][FRL_QPS_INIT] = { true, INIT, 0 },
		[FRL_QPS_INIT][FRL_QPS_INIT] = { true, 0, INIT },
		[FRL_QPS_INIT][FRL_QPS_RTR] = { true, RTR,
			FRL_QP_ACCESS_FLAGS | FRL_QP_PKEY_INDEX | FRL_QP_CAPABILITIES },
		[FRL_QPS_RTR][FRL_QPS_RTS] = { true, RTS, LIVE },
		[FRL_QPS_RTS][FRL_QPS_RTS] = { true, 0, LIVE },
		[FRL_QPS_RTS][FRL_QPS_SQD] = { true, 0, FRL_QP_EN_SQD_ASYNC_NOTIFY },
		[FRL_QPS_SQD][FRL_QPS_SQD] = { true, 0, SQD },
		[FRL_QPS_SQD][FRL_QPS_RTS] = { true, 0, LIVE },
	},
	{
		[FRL_QPS_RESET][FRL_QPS_INIT] = { true, INIT, 0 },
		[FRL_QPS_INIT][FRL_QPS_INIT] = { true, 0, INIT },
		[FRL_QPS_INIT][FRL_QPS_RTR] = { true, RTR_UC,
			FRL_QP_ACCESS_FLAGS | FRL_QP_PKEY_INDEX | FRL_QP_CAPABILITIES },
		[FRL_QPS_RTR][FRL_QPS_RTS] = { true, FRL_QP_SQ_PSN, LIVE_UC },
		[FRL_QPS_RTS][FRL_QPS_RTS] = { true, 0, LIVE_UC },
		[FRL_QPS_RTS][FRL_QPS_SQD] = { true, 0, FRL_QP_EN_SQD_ASYNC_NOTIFY },
		[FRL_QPS_SQD][FRL_QPS_SQD] = { true, 0, SQD_UC },
		[FRL_QPS_SQD][FRL_QPS_RTS] = { true, 0, LIVE_UC },
		[FRL_QPS_SQE][FRL_QPS_RTS] = { true, 0, LIVE_UC },
	},
	{
		[FRL_QPS_RESET][FRL_QPS_INIT] = { true, INIT_UD, 0 },
		[FRL_QPS_INIT][FRL_QPS_INIT] = { true, 0, INIT_UD },
		[FRL_QPS_INIT][FRL_QPS_RTR] = { true, 0, FRL_QP_PKEY_INDEX | FRL_QP_QKEY },
		[FRL_QPS_RTR][FRL_QPS_RTS] = { true, FRL_QP_SQ_PSN, LIVE_UD },
		[FRL_QPS_RTS][FRL_QPS_RTS] = { true, 0, LIVE_UD },
		[FRL_QPS_RTS][FRL_QPS_SQD] = { true, 0, FRL_QP_EN_SQD_ASYNC_NOTIFY },
		[FRL_QPS_SQD][FRL_QPS_SQD] = { true, 0, FRL_QP_PKEY_INDEX | FRL_QP_QKEY },
		[FRL_QPS_SQD][FRL_QPS_RTS] = { true, 0, LIVE_UD },
		[FRL_QPS_SQE][FRL_QPS_RTS] = { true, 0, LIVE_UD },
	},
};

static struct masks masks_of(enum frl_qp_type type, enum frl_qp_state from, enum frl_qp_state to)
{
	struct masks masks = table[type == FRL_QPT_RC ? 0 : type == FRL_QPT_UC ? 1 : 2][from][to];

	/* RESET and ERR take nothing but the state. */
	if (to == FRL_QPS_RESET || (to == FRL_QPS_ERR && from != FRL_QPS_RESET))
		masks.legal = true;
	/* QP1 has a Q_Key and a port without being told. */
	if (type == FRL_QPT_GSI && from == FRL_QPS_RESET && to == FRL_QPS_INIT) {
		masks.required = FRL_QP_PKEY_INDEX;
		masks.optional = FRL_QP_PORT | FRL_QP_QKEY;
	}
	return masks;
}

/* SQE is for a send request that failed; RC never gets there. */
static bool has_state(enum frl_qp_type type, enum frl_qp_state state)
{
	return state != FRL_QPS_SQE || type != FRL_QPT_RC;
}

static struct fixture *in_state_of(enum frl_qp_type type, enum frl_qp_state state)
{
	enum frl_qp_state first = state > FRL_QPS_RTS ? FRL_QPS_RTS : state ? state : FRL_QPS_INIT;
	struct fixture *f = fixture_new(&(struct fixture_config){
		.type = type, .state = first, .sq_psn = 77, .rq_psn = 99, .rnr_retry = 7 });

	if (state == FRL_QPS_SQE) {
		fixture_send(f, 1, FRL_WR_SEND, 10);
		qp_fail_send(&f->qp, FRL_WC_LOC_PROT_ERR);
		expect_wc(&f->send_cq, 1, FRL_WC_LOC_PROT_ERR);
	} else if (first != state) {
		fixture_move(f, state);
	}
	ck_assert_int_eq(f->qp.state, state);
	return f;
}

static struct fixture *in_state(enum frl_qp_state state)
{
	return in_state_of(FRL_QPT_RC, state);
}

static void attributes(enum frl_qp_state to, struct frl_qp_attr *ret_attr)
{
	fixture_attr(
		&(struct fixture_config){
			.mtu = 2048, .sq_psn = 0xabcdef, .rq_psn = 0xfedcba, .retry_cnt = 3 },
		ret_attr);
	ret_attr->state = to;
	ret_attr->port_num = 1;
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

START_LOOP_TEST(transitions, PAIRS(TYPES, PAIRS(STATES, STATES)))
{
	enum frl_qp_type type = types[_i / STATES / STATES];
	enum frl_qp_state from = (enum frl_qp_state)(_i / STATES % STATES);
	enum frl_qp_state to = (enum frl_qp_state)(_i % STATES);
	struct masks masks = masks_of(type, from, to);
	uint32_t full = FRL_QP_STATE | masks.required;
	struct frl_qp_attr attr;

	if (!has_state(type, from))
		return;
	attributes(to, &attr);
	attr.cur_state = from;
	if (!masks.legal) {
		refused(in_state_of(type, from), &attr, FRL_QP_STATE);
		refused(in_state_of(type, from), &attr, ALL);
		refused(in_state_of(type, from), &attr, FRL_QP_STATE | INIT);
		refused(in_state_of(type, from), &attr, FRL_QP_STATE | RTR);
		refused(in_state_of(type, from), &attr, FRL_QP_STATE | RTS);
		refused(in_state_of(type, from), &attr, FRL_QP_STATE | FRL_QP_SQ_PSN);
		return;
	}
	accepted(in_state_of(type, from), &attr, full);
	accepted(in_state_of(type, from), &attr, full | masks.optional);
	for (uint32_t bit = FRL_QP_CUR_STATE; bit <= FRL_QP_CAPABILITIES; bit <<= 1) {
		if (masks.required & bit)
			refused(in_state_of(type, from), &attr, full & ~bit);
		else if (masks.optional & bit)
			accepted(in_state_of(type, from), &attr, full | bit);
		else
			refused(in_state_of(type, from), &attr, full | bit);
	}
	/* A wrong current state is refused, with the reason. */
	attr.cur_state = (enum frl_qp_state)((from + 1) % STATES);
	refused(in_state_of(type, from), &attr, full | FRL_QP_CUR_STATE);
}
END_TEST

START_TEST(no_such_state)
{
	struct frl_qp_attr attr;

	for (int state = 0; state < STATES; state++) {
		if (!has_state(FRL_QPT_RC, (enum frl_qp_state)state))
			continue;
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
	FIELD(FRL_QP_ACCESS_FLAGS, FRL_QPS_INIT, access_flags, 31, true),
	FIELD(FRL_QP_ACCESS_FLAGS, FRL_QPS_INIT, access_flags, 32, false),
	FIELD(FRL_QP_ACCESS_FLAGS, FRL_QPS_INIT, access_flags, 0x80000000, false),
	FIELD(FRL_QP_PKEY_INDEX, FRL_QPS_INIT, pkey_index, 1, false),
	FIELD(FRL_QP_PORT, FRL_QPS_INIT, port_num, 0, false),
	FIELD(FRL_QP_PORT, FRL_QPS_INIT, port_num, 2, false),
	FIELD(FRL_QP_AV, FRL_QPS_RTR, ah.sl, 7, true),
	FIELD(FRL_QP_AV, FRL_QPS_RTR, ah.sl, 8, false),
	FIELD(FRL_QP_AV, FRL_QPS_RTR, ah.flow_label, 0xfffff, true),
	FIELD(FRL_QP_AV, FRL_QPS_RTR, ah.flow_label, 0x100000, false),
	FIELD(FRL_QP_AV, FRL_QPS_RTR, ah.dgid.bytes[12], 0xe0, false),
	FIELD(FRL_QP_MAX_DEST_RD_ATOMIC, FRL_QPS_RTR, max_dest_rd_atomic, 0, true),
	FIELD(FRL_QP_MAX_DEST_RD_ATOMIC, FRL_QPS_RTR, max_dest_rd_atomic, 32, true),
	FIELD(FRL_QP_MAX_DEST_RD_ATOMIC, FRL_QPS_RTR, max_dest_rd_atomic, 33, false),
	FIELD(FRL_QP_MAX_QP_RD_ATOMIC, FRL_QPS_RTS, max_rd_atomic, 0, true),
	FIELD(FRL_QP_MAX_QP_RD_ATOMIC, FRL_QPS_RTS, max_rd_atomic, 32, true),
	FIELD(FRL_QP_MAX_QP_RD_ATOMIC, FRL_QPS_RTS, max_rd_atomic, 33, false),
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
	FIELD(FRL_QP_PATH_MTU, FRL_QPS_RTR, path_mtu, 8192, true),
	FIELD(FRL_QP_PATH_MTU, FRL_QPS_RTR, path_mtu, 12288, false),
	FIELD(FRL_QP_PATH_MTU, FRL_QPS_RTR, path_mtu, 16384, true),
	FIELD(FRL_QP_PATH_MTU, FRL_QPS_RTR, path_mtu, 32768, false),
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

START_LOOP_TEST(value_ranges, ROWS(ranges))
{
	const struct range_row *row = &ranges[_i];
	enum frl_qp_state from = row->to - 1;
	uint32_t mask = FRL_QP_STATE | table[0][from][row->to].required | row->bit;
	struct fixture *f = in_state(from);
	struct frl_qp_attr attr;
	uint8_t small = (uint8_t)row->value;

	attributes(row->to, &attr);
	memcpy((char *)&attr + row->offset, row->size == 1 ? &small : (const void *)&row->value,
		row->size); /* of two bytes: this machine is little-endian */
	if (row->ok) {
		accepted(f, &attr, mask);
		ck_assert_mem_eq(
			(char *)&f->qp.attr + row->offset, (char *)&attr + row->offset, row->size);
	} else {
		refused(f, &attr, mask);
	}
	/* Attributes that the mask does not name are not looked at. */
	if (!row->ok && row->bit == FRL_QP_CAPABILITIES)
		accepted(f, &attr, mask & ~row->bit);
}
END_TEST

START_TEST(attributes_take_effect)
{
	struct fixture *f = in_state(FRL_QPS_INIT);
	struct frl_qp_attr attr;

	attributes(FRL_QPS_RTR, &attr);
	attr.ah.dmac[5] = 9;
	attr.ah.link = 3;
	attr.ah.traffic_class = 4;
	attr.ah.hop_limit = 5;
	attr.max_dest_rd_atomic = 7;
	accepted(f, &attr, FRL_QP_STATE | RTR | FRL_QP_CAPABILITIES);
	ck_assert_uint_eq(f->qp.path_mtu, 2048);
	ck_assert_uint_eq(f->qp.dest_qpn, F_PEER_QPN);
	ck_assert_uint_eq(f->qp.capabilities, FRL_CAP_NO_ICRC);
	ck_assert_uint_eq(f->qp.responder.epsn.value, 0xfedcba);
	ck_assert_mem_eq(&f->qp.remote_ip, &attr.ah.dgid, sizeof(attr.ah.dgid));
	ck_assert_mem_eq(&f->qp.attr.ah, &attr.ah, sizeof(attr.ah));
	ck_assert_uint_eq(f->qp.attr.max_dest_rd_atomic, 7);
	ck_assert_uint_eq(f->qp.responder.n_resources, 8); /* what rxe makes of it */
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
	ck_assert_uint_eq(f->qp.dest_qpn, 0);
	ck_assert(!ip_equal(&f->qp.remote_ip, &attr.ah.dgid));
	ck_assert_uint_eq(f->qp.attr.access_flags, 0);
}
END_TEST

/* Busy in every way: RESET drops all without a completion, and the queue pair is as new. */
START_LOOP_TEST(reset_from_every_state, STATES)
{
	struct fixture *f;
	const char *why;

	if (!has_state(FRL_QPT_RC, (enum frl_qp_state)_i))
		return;
	f = in_state((enum frl_qp_state)_i);
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

START_RANGE_TEST(err_flushes_in_every_state, FRL_QPS_INIT, STATES)
{
	struct frl_qp_attr attr = { .state = FRL_QPS_ERR };
	struct fixture *f;

	if (!has_state(FRL_QPT_RC, (enum frl_qp_state)_i))
		return;
	f = in_state((enum frl_qp_state)_i);
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

/* Messages under way when the state becomes SQD are finished, and nothing else is started. */
START_TEST(sqd_drains)
{
	struct fixture *f = fixture_new(NULL);
	struct frl_qp_attr attr = {
		.state = FRL_QPS_SQD, .en_sqd_async_notify = true, .timeout = 9
	};
	const char *why;

	fixture_send(f, 1, FRL_WR_SEND, 10);
	ck_assert_uint_eq(fixture_output(f), 1);
	fixture_send(f, 2, FRL_WR_SEND, 10);
	accepted(f, &attr, FRL_QP_STATE | FRL_QP_EN_SQD_ASYNC_NOTIFY);
	expect_silence(f);
	expect_no_event(&f->qp.events);
	qp_query(&f->qp, &attr);
	ck_assert(attr.sq_draining);
	ck_assert_int_eq(attr.cur_state, FRL_QPS_SQD);
	attr.timeout = 9;
	refused(f, &attr, FRL_QP_TIMEOUT);
	fixture_ack(f, 0x1f, 0);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	expect_event(&f->qp.events, FRL_EVENT_SQ_DRAINED);
	expect_no_event(&f->qp.events);
	qp_query(&f->qp, &attr);
	ck_assert(!attr.sq_draining);
	attr.timeout = 9;
	ck_assert_int_eq(qp_modify(&f->qp, &attr, FRL_QP_TIMEOUT, &why), 0);
	ck_assert_uint_eq(f->qp.recovery.ack_timeout_ns, 4096 << 9);
	expect_silence(f);
	attr.state = FRL_QPS_RTS;
	accepted(f, &attr, FRL_QP_STATE);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, OP_SEND_ONLY, 1, 10, true);
}
END_TEST

/* Nothing is under way: drained at once; the event only if it is wanted. */
START_LOOP_TEST(sqd_when_idle, 2 * TYPES)
{
	struct fixture *f = in_state_of(types[_i / 2], FRL_QPS_RTS);
	struct frl_qp_attr attr = { .state = FRL_QPS_SQD, .en_sqd_async_notify = _i & 1 };

	accepted(f, &attr, FRL_QP_STATE | FRL_QP_EN_SQD_ASYNC_NOTIFY);
	if (_i & 1)
		expect_event(&f->qp.events, FRL_EVENT_SQ_DRAINED);
	expect_no_event(&f->qp.events);
}
END_TEST

START_TEST(q_keys)
{
	struct fixture *f = in_state_of(FRL_QPT_UD, FRL_QPS_RTS);
	struct frl_qp_attr attr = { .qkey = 0x12345678 };
	const char *why;

	ck_assert_uint_eq(f->qp.qkey, F_QKEY);
	ck_assert_int_eq(qp_modify(&f->qp, &attr, FRL_QP_QKEY, &why), 0);
	ck_assert_uint_eq(f->qp.qkey, 0x12345678);
	f = in_state_of(FRL_QPT_GSI, FRL_QPS_RTS);
	ck_assert_uint_eq(f->qp.qkey, 0x80010000);
	ck_assert_int_eq(qp_modify(&f->qp, &attr, FRL_QP_QKEY, &why), 0);
	ck_assert_uint_eq(f->qp.qkey, 0x80010000);
}
END_TEST

TEST_FILE(qp_modify)
