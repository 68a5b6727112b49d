/* SPDX-License-Identifier: BSD-3-Clause */
/* Timers and retry counts. */
#include "lib/protocol/recovery.h"
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

/* IBTA table 46, in units of 10 us. */
static const uint32_t rnr_table[32] = { 65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128,
	192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576,
	32768, 49152 };

START_LOOP_TEST(rnr_timer_codes, 32)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .rnr_retry = 7 });
	uint64_t wait = rnr_table[_i] * UINT64_C(10000);

	ck_assert_uint_eq(rnr_timer_ns((uint8_t)_i), wait);
	fixture_send(f, 1, FRL_WR_SEND, 10);
	fixture_output(f);
	fixture_ack(f, 0x20 | (uint8_t)_i, 0);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns + wait);
	expect_silence(f);
	fixture_deadline(f);
	ck_assert_uint_eq(fixture_output(f), 1);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns + F_TIMEOUT_NS);
}
END_TEST

static void expect_failure(struct fixture *f, enum frl_wc_status status)
{
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	expect_silence(f);
	expect_wc(&f->send_cq, 1, status);
	expect_wc(&f->send_cq, 2, FRL_WC_WR_FLUSH_ERR);
	expect_wc(&f->send_cq, 3, FRL_WC_WR_FLUSH_ERR);
	expect_no_wc(&f->send_cq);
	expect_wc(&f->recv_cq, 4, FRL_WC_WR_FLUSH_ERR);
	expect_no_wc(&f->recv_cq);
}

/* Three requests, the middle one unsignaled, and a receive. */
static struct fixture *three_requests(const struct fixture_config *config)
{
	struct fixture *f = fixture_new(config);

	fixture_send(f, 1, FRL_WR_SEND, 10);
	fixture_send_flags(f, 2, 10, 0);
	fixture_send(f, 3, FRL_WR_RDMA_WRITE, 10);
	fixture_recv(f, 4, 0, 10);
	return f;
}

/* rc_timeout_retry_exceeded: the first try and retry_cnt more, each after twice the time up to 16
 * times. */
START_LOOP_TEST(dead_peer, 8)
{
	struct fixture *f = three_requests(
		&(struct fixture_config){ .retry_cnt = (uint8_t)_i, .sq_psn = 0xffffff });

	for (int try = 0; try <= _i; try++) {
		uint64_t before = f->now_ns;

		ck_assert_uint_eq(fixture_output(f), 3);
		expect_out(f, 0, OP_SEND_ONLY, 0xffffff, 10, true);
		fixture_deadline(f);
		ck_assert_uint_eq(f->now_ns - before, F_TIMEOUT_NS << (try < 4 ? try : 4));
	}
	ck_assert_uint_eq(f->stats.timeouts, (unsigned)_i + 1);
	ck_assert_uint_eq(f->stats.retransmits, (unsigned)_i * 3);
	expect_failure(f, FRL_WC_RETRY_EXC_ERR);
}
END_TEST

START_TEST(unlimited_retry_never_gives_up)
{
	struct fixture *f = three_requests(&(struct fixture_config){ .unlimited_retry = true });

	for (int try = 0; try < 300; try++) {
		ck_assert_uint_eq(fixture_output(f), 3);
		if (try & 1)
			fixture_ack(f, 0x60, 0);
		fixture_output(f);
		ck_assert_uint_le(qp_next_deadline(&f->qp) - f->now_ns, F_TIMEOUT_NS << 4);
		fixture_deadline(f);
	}
	fixture_output(f);
	fixture_ack(f, 0x1f, 2);
	ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	expect_wc(&f->send_cq, 3, FRL_WC_SUCCESS);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
}
END_TEST

START_TEST(no_timer_when_timeout_is_0)
{
	struct fixture *f = three_requests(
		&(struct fixture_config){ .no_timeout = true, .retry_cnt = 1 });

	fixture_output(f);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
	fixture_ack(f, 0x60, 1);
	ck_assert_uint_eq(fixture_output(f), 2);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
}
END_TEST

/* rc_rnr_retry_exceeded: the first try and rnr_retry more. */
START_LOOP_TEST(receiver_never_ready, 7)
{
	struct fixture *f = three_requests(&(struct fixture_config){ .rnr_retry = (uint8_t)_i });

	for (int try = 0; try <= _i; try++) {
		ck_assert_uint_eq(fixture_output(f), 3);
		fixture_ack(f, 0x20 | 14, 0);
		if (try == _i)
			break;
		/* rxe quirk 5, and refusals of what followed: no tries of their own. */
		fixture_ack(f, 0x60, 0);
		fixture_ack(f, 0x60, 2);
		fixture_ack(f, 0x20 | 14, 0);
		expect_silence(f);
		expect_no_wc(&f->send_cq);
		ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns + 1280000);
		fixture_deadline(f);
	}
	expect_failure(f, FRL_WC_RNR_RETRY_EXC_ERR);
	ck_assert_uint_eq(f->stats.timeouts, 0);
}
END_TEST

START_TEST(rnr_retry_7_is_for_ever)
{
	struct fixture *f = three_requests(&(struct fixture_config){ .rnr_retry = 7 });

	for (int try = 0; try < 100; try++) {
		fixture_output(f);
		fixture_ack(f, 0x20 | 1, 0);
		fixture_ack(f, 0x60, 0);
		fixture_deadline(f);
	}
	ck_assert_uint_eq(fixture_output(f), 3);
	fixture_ack(f, 0x1f, 2);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	expect_wc(&f->send_cq, 3, FRL_WC_SUCCESS);
}
END_TEST

/* Sequence NAKs without progress: one rewind, one retry; the timer decides after that. */
START_TEST(nak_rewinds_once)
{
	struct fixture *f = three_requests(&(struct fixture_config){ .retry_cnt = 2 });

	fixture_output(f);
	fixture_ack(f, 0x60, 0);
	ck_assert_uint_eq(f->qp.recovery.retries, 1);
	ck_assert_uint_eq(fixture_output(f), 3);
	for (int i = 0; i < 5; i++) {
		fixture_ack(f, 0x60, 0);
		expect_silence(f);
	}
	ck_assert_uint_eq(f->qp.recovery.retries, 1);
	fixture_ack(f, 0x60, 1); /* progress: counts are full again, minus this one */
	ck_assert_uint_eq(f->qp.recovery.retries, 1);
	ck_assert_uint_eq(fixture_output(f), 2);
	fixture_deadline(f);
	ck_assert_uint_eq(f->qp.recovery.retries, 0);
	ck_assert_uint_eq(fixture_output(f), 2);
	fixture_ack(f, 0x60, 1); /* after a timeout a NAK counts again */
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	expect_wc(&f->send_cq, 2, FRL_WC_RETRY_EXC_ERR);
	expect_wc(&f->send_cq, 3, FRL_WC_WR_FLUSH_ERR);
}
END_TEST

START_TEST(progress_restarts_timer_and_counts)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = 256, .retry_cnt = 2 });

	fixture_send(f, 1, FRL_WR_SEND, 10 * 256);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE); /* nothing sent */
	fixture_output(f);
	for (uint32_t i = 0; i < 9; i++) {
		fixture_deadline(f);
		fixture_output(f);
		fixture_deadline(f);
		fixture_output(f);
		f->now_ns += 100;
		fixture_ack(f, 0x1f, i);
		ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns + F_TIMEOUT_NS);
		ck_assert_uint_eq(f->qp.recovery.retries, 2);
		/* Stale or malformed acknowledgements are no progress. */
		f->now_ns += 100;
		fixture_ack(f, 0x1f, i);
		fixture_ack(f, 0x40, i + 1);
		ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns - 100 + F_TIMEOUT_NS);
	}
	fixture_ack(f, 0x1f, 9);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
	/* And the next request starts it anew. */
	f->now_ns += 5000;
	fixture_send(f, 2, FRL_WR_SEND, 1);
	fixture_output(f);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns + F_TIMEOUT_NS);
	f->now_ns += 5000;
	fixture_send(f, 3, FRL_WR_SEND, 1); /* which later ones do not move */
	fixture_output(f);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns - 5000 + F_TIMEOUT_NS);
}
END_TEST

/* The refusal counts from the refused packet: what it acknowledges is progress. */
START_TEST(rnr_nak_acknowledges_what_came_before)
{
	struct fixture *f = three_requests(&(struct fixture_config){ .rnr_retry = 1 });

	fixture_output(f);
	fixture_ack(f, 0x20 | 1, 0);
	fixture_deadline(f);
	fixture_output(f);
	fixture_ack(f, 0x20 | 1, 1);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns + 10000);
	fixture_deadline(f);
	ck_assert_uint_eq(fixture_output(f), 2);
	expect_out(f, 0, OP_SEND_ONLY, 1, 10, false); /* it is not signaled */
	expect_out(f, 1, OP_WRITE_ONLY, 2, 10, true);
	fixture_ack(f, 0x20 | 1, 1);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	expect_wc(&f->send_cq, 2, FRL_WC_RNR_RETRY_EXC_ERR);
}
END_TEST

/* While waiting: the ACK timer rests; progress (a copy of the refused packet got through) ends it.
 * */
START_TEST(progress_ends_the_rnr_wait)
{
	struct fixture *f = three_requests(&(struct fixture_config){ .rnr_retry = 7 });

	fixture_output(f);
	fixture_ack(f, 0x20 | 0, 0); /* 655 ms */
	fixture_ack(f, 0x1f, 0);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	ck_assert(!recovery_waits_for_receiver(&f->qp));
	ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns + F_TIMEOUT_NS);
	ck_assert_uint_eq(fixture_output(f), 2);
	/* All acknowledged while waiting: a new request must not wait for nobody. */
	fixture_ack(f, 0x20 | 0, 1);
	fixture_ack(f, 0x1f, 2);
	expect_wc(&f->send_cq, 3, FRL_WC_SUCCESS);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
	fixture_send(f, 5, FRL_WR_SEND, 10);
	ck_assert_uint_eq(fixture_output(f), 1);
	/* A refusal of a later packet is one of its own. */
	fixture_send(f, 6, FRL_WR_SEND, 10);
	fixture_output(f);
	fixture_ack(f, 0x20 | 0, 3);
	fixture_ack(f, 0x20 | 1, 4);
	expect_wc(&f->send_cq, 5, FRL_WC_SUCCESS);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns + 10000);
}
END_TEST

/* Each response of a READ is progress: the timer starts anew, and retries are full again. */
START_TEST(every_response_is_progress)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .mtu = 256, .retry_cnt = 2 });

	fixture_send(f, 1, FRL_WR_RDMA_READ, 5 * 256);
	fixture_output(f);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns + F_TIMEOUT_NS);
	for (uint32_t i = 0; i < 4; i++) {
		fixture_deadline(f);
		fixture_output(f);
		fixture_deadline(f);
		ck_assert_uint_eq(fixture_output(f), 1);
		ck_assert_uint_eq(f->out[0].h.reth.dma_length, (5 - i) * 256);
		ck_assert_uint_eq(f->qp.recovery.retries, 0);
		f->now_ns += 100;
		fixture_arrive(f, OP_READ_RESP_MIDDLE, i, 256);
		ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns + F_TIMEOUT_NS);
		ck_assert_uint_eq(f->qp.recovery.retries, 2);
	}
	fixture_arrive(f, OP_READ_RESP_LAST, 4, 256);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
	ck_assert_uint_eq(f->stats.timeouts, 8);
	ck_assert_uint_eq(f->stats.retransmits, 8);
}
END_TEST

/* Responses that were missing before a refused packet do not end its wait; taking it does. */
START_LOOP_TEST(responses_while_waiting, 2)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .rnr_retry = 1 });
	uint64_t deadline;

	fixture_send(f, 1, FRL_WR_RDMA_READ, 8);
	fixture_send(f, 2, FRL_WR_SEND, 8);
	fixture_send(f, 3, FRL_WR_SEND, 8);
	fixture_output(f);
	fixture_ack(f, 0x20 | 14, 1);
	deadline = f->now_ns + 1280000;
	f->now_ns += 1000;
	fixture_ack(f, 0x1f, 1); /* implies that the response was lost: known already */
	ck_assert_uint_eq(f->stats.implied_naks, 0);
	fixture_arrive(f, OP_READ_RESP_ONLY, 0, 8);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), deadline);
	expect_silence(f);
	if (_i) {
		fixture_ack(f, 0x1f, 1);
		expect_wc(&f->send_cq, 2, FRL_WC_SUCCESS);
		ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns + F_TIMEOUT_NS);
		ck_assert_uint_eq(fixture_output(f), 1);
		return;
	}
	fixture_deadline(f);
	ck_assert_uint_eq(f->stats.timeouts, 0);
	ck_assert_uint_eq(fixture_output(f), 2);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns + F_TIMEOUT_NS);
}
END_TEST

/* No timer of UC or UD. */
START_LOOP_TEST(unreliable_never_waits, 2)
{
	struct fixture *f = fixture_new(
		&(struct fixture_config){ .type = _i ? FRL_QPT_UD : FRL_QPT_UC });

	fixture_send(f, 1, FRL_WR_SEND, 8);
	ck_assert_uint_eq(fixture_output(f), 1);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
	fixture_transmitted(f, 1);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
	ck_assert_uint_eq(f->stats.rx_acks, 0);
}
END_TEST

START_TEST(posts_while_waiting_stay)
{
	struct fixture *f = three_requests(&(struct fixture_config){ .rnr_retry = 7 });

	fixture_output(f);
	fixture_ack(f, 0x20 | 14, 0);
	fixture_send(f, 5, FRL_WR_SEND, 10);
	expect_silence(f);
	fixture_deadline(f);
	ck_assert_uint_eq(fixture_output(f), 4);
	ck_assert_uint_eq(f->stats.retransmits, 3);
}
END_TEST

/* An early call does nothing. */
START_TEST(no_deadline_no_effect)
{
	struct fixture *f = three_requests(NULL);

	qp_on_deadline(&f->qp, UINT64_MAX - 1);
	ck_assert_uint_eq(f->stats.timeouts, 0);
	fixture_output(f);
	qp_on_deadline(&f->qp, f->now_ns);
	ck_assert_uint_eq(f->stats.timeouts, 0);
	expect_silence(f);
}
END_TEST

/* Time without room at the port counts, but not as that of packets which were not sent then. */
START_TEST(room_comes_late)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .retry_cnt = 1 });

	fixture_send(f, 1, FRL_WR_SEND, 10);
	qp_not_taken(&f->qp, f->now_ns);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns + F_TIMEOUT_NS);
	f->now_ns += F_TIMEOUT_NS - 1;
	ck_assert_uint_eq(fixture_output(f), 1);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), f->now_ns + F_TIMEOUT_NS);
}
END_TEST

/* The longest timeout with the longest backoff does not wrap. */
START_TEST(longest_timeout)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .unlimited_retry = true });

	f->qp.attr.timeout = 31;
	recovery_init(&f->qp);
	f->now_ns = UINT64_C(1) << 62;
	fixture_send(f, 1, FRL_WR_SEND, 1);
	for (int i = 0; i < 10; i++) {
		fixture_output(f);
		ck_assert_uint_eq(qp_next_deadline(&f->qp) - f->now_ns,
			(UINT64_C(4096) << 31) << (i < 4 ? i : 4));
		fixture_deadline(f);
	}
}
END_TEST

TEST_FILE(recovery)
