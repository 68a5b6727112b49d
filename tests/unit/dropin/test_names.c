/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts of all numbers, and conversions of rates in both directions. */
#include <check.h>
#include <infiniband/verbs.h>
#include <string.h>

#include "dropin/ibverbs/newer.h"

#include "tests/fixtures/program.h"

static const char *node_type(int value)
{
	return ibv_node_type_str((enum ibv_node_type)value);
}

static const char *port_state(int value)
{
	return ibv_port_state_str((enum ibv_port_state)value);
}

static const char *event(int value)
{
	return ibv_event_type_str((enum ibv_event_type)value);
}

static const char *status(int value)
{
	return ibv_wc_status_str((enum ibv_wc_status)value);
}

static const char *opcode(int value)
{
	return ibv_wr_opcode_str((enum ibv_wr_opcode)value);
}

/* `last` is the last value of its enumeration. */
static const struct text_row {
	const char *(*text)(int value);
	int first, last;
} text_rows[] = {
	{ node_type, IBV_NODE_CA, IBV_NODE_UNSPECIFIED },
	{ port_state, IBV_PORT_NOP, IBV_PORT_ACTIVE_DEFER },
	{ event, IBV_EVENT_CQ_ERR, IBV_EVENT_WQ_FATAL },
	{ status, IBV_WC_SUCCESS, IBV_WC_TM_RNDV_INCOMPLETE },
	{ opcode, IBV_WR_RDMA_WRITE, IBV_WR_DRIVER1 },
	{ opcode, IBV_WR_ATOMIC_WRITE, IBV_WR_ATOMIC_WRITE },
};

/* All values have a text, and no two of them the same. */
START_LOOP_TEST(all_values_have_a_text, ROWS(text_rows))
{
	const struct text_row *row = &text_rows[_i];

	for (int value = row->first; value <= row->last; value++) {
		ck_assert_str_ne(row->text(value), "unknown");
		for (int other = row->first; other < value; other++)
			ck_assert_str_ne(row->text(value), row->text(other));
	}
}
END_TEST

START_LOOP_TEST(other_values_are_unknown, ROWS(text_rows))
{
	const struct text_row *row = &text_rows[_i];

	ck_assert_str_eq(row->text(row->last + 1), "unknown");
	ck_assert_str_eq(row->text(-1), "unknown");
	ck_assert_str_eq(row->text(INT32_MIN), "unknown");
	ck_assert_str_eq(row->text(INT32_MAX), "unknown");
}
END_TEST

START_TEST(some_texts)
{
	ck_assert_str_eq(node_type(IBV_NODE_CA), "channel adapter");
	ck_assert_str_eq(port_state(IBV_PORT_ACTIVE), "active");
	ck_assert_str_eq(event(IBV_EVENT_PORT_ERR), "port down");
	ck_assert_str_eq(status(IBV_WC_RNR_RETRY_EXC_ERR), "RNR retries exceeded");
	ck_assert_str_eq(opcode(IBV_WR_SEND_WITH_INV), "SEND with invalidate");
}
END_TEST

/* Rates as IBTA has them. mult 0: no multiple of 2.5 Gb/s. */
static const struct rate_row {
	enum ibv_rate rate;
	int mult, mbps;
} rate_rows[] = {
	{ IBV_RATE_2_5_GBPS, 1, 2500 },
	{ IBV_RATE_120_GBPS, 48, 120000 },
	{ IBV_RATE_14_GBPS, 0, 14062 },
	{ IBV_RATE_100_GBPS, 0, 103125 },
	{ IBV_RATE_28_GBPS, 11, 28125 },
	{ IBV_RATE_1200_GBPS, 480, 1275000 },
};

START_LOOP_TEST(rates, ROWS(rate_rows))
{
	const struct rate_row *row = &rate_rows[_i];

	ck_assert_int_eq(ibv_rate_to_mbps(row->rate), row->mbps);
	ck_assert_int_eq(mbps_to_ibv_rate(row->mbps), row->rate);
	ck_assert_int_eq(ibv_rate_to_mult(row->rate), row->mult ? row->mult : -1);
	if (row->mult)
		ck_assert_int_eq(mult_to_ibv_rate(row->mult), row->rate);
}
END_TEST

START_RANGE_TEST(rates_are_converted_back, IBV_RATE_2_5_GBPS, IBV_RATE_1200_GBPS + 1)
{
	enum ibv_rate rate = (enum ibv_rate)_i;
	int mult = ibv_rate_to_mult(rate), mbps = ibv_rate_to_mbps(rate);

	ck_assert_int_gt(mbps, 0);
	ck_assert_int_eq(mbps_to_ibv_rate(mbps), rate);
	if (mult != -1) {
		ck_assert_int_gt(mult, 0);
		ck_assert_int_eq(mult_to_ibv_rate(mult), rate);
	}
}
END_TEST

START_TEST(other_rates)
{
	ck_assert_int_eq(ibv_rate_to_mult(IBV_RATE_MAX), -1);
	ck_assert_int_eq(ibv_rate_to_mbps(IBV_RATE_MAX), -1);
	ck_assert_int_eq(ibv_rate_to_mbps((enum ibv_rate)1), -1);
	ck_assert_int_eq(mult_to_ibv_rate(0), IBV_RATE_MAX);
	ck_assert_int_eq(mult_to_ibv_rate(3), IBV_RATE_MAX);
	ck_assert_int_eq(mbps_to_ibv_rate(0), IBV_RATE_MAX);
	ck_assert_int_eq(mbps_to_ibv_rate(25000), IBV_RATE_MAX);
}
END_TEST

TEST_FILE(names)
