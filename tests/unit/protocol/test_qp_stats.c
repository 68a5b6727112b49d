/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue pair's counters, measurements and description of itself. */
#include "lib/protocol/qp_stats.h"
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

#include <string.h>

enum { MTU = 1024, US = 1000, SEQUENCE_NAK = 0x60, RNR_NAK = 0x20, ACK = 0x1f };

static struct qp_stats describe(const struct fixture *f)
{
	struct qp_stats stats;

	qp_describe(&f->qp, &stats);
	return stats;
}

static void expect_wait(const struct fixture *f, enum qp_wait wait)
{
	ck_assert_int_eq(describe(f).wait, wait);
}

START_TEST(counted)
{
	struct fixture *f = fixture_new(NULL);
	struct qp_stats stats;

	fixture_send(f, 1, FRL_WR_SEND, 2 * MTU + 5);
	fixture_output(f);
	fixture_recv(f, 2, 0, 100);
	f->now_ns += 7;
	fixture_arrive(f, OP_SEND_ONLY, 0, 60);
	fixture_output(f);
	f->now_ns += 7;
	fixture_ack(f, ACK, 2);
	stats = describe(f);
	ck_assert_uint_eq(stats.counts.tx_packets, 4); /* and an acknowledgement */
	ck_assert_uint_eq(stats.counts.tx_bytes, 2 * MTU + 5);
	ck_assert_uint_eq(stats.counts.rx_packets, 2);
	ck_assert_uint_eq(stats.counts.rx_bytes, 60);
	ck_assert_uint_eq(stats.counts.last_tx_ns, f->now_ns - 7);
	ck_assert_uint_eq(stats.counts.last_rx_ns, f->now_ns);
	ck_assert_uint_eq(stats.send_psn, 3);
	ck_assert_uint_eq(stats.acked_psn, 3);
	ck_assert_uint_eq(stats.recv_psn, 1);
	ck_assert_uint_eq(stats.send_queue + stats.recv_queue, 0);
	ck_assert_uint_eq(stats.deadline_ns, 0);
	/* All of it is forgotten. */
	fixture_move(f, FRL_QPS_RESET);
	stats = describe(f);
	ck_assert_uint_eq(stats.counts.tx_packets + stats.counts.rx_packets, 0);
	ck_assert_uint_eq(stats.counts.last_rx_ns + stats.counts.rtt_ns, 0);
}
END_TEST

START_TEST(queues_and_limits)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .retry_cnt = 5, .rnr_retry = 3 });
	struct qp_stats stats;

	fixture_send(f, 1, FRL_WR_SEND, 10);
	fixture_send(f, 2, FRL_WR_SEND, 10);
	fixture_recv(f, 3, 0, 10);
	fixture_output(f);
	stats = describe(f);
	ck_assert_uint_eq(stats.send_queue, 2);
	ck_assert_uint_eq(stats.recv_queue, 1);
	ck_assert_uint_eq(stats.retries_left, 5);
	ck_assert_uint_eq(stats.rnr_retries_left, 3);
	ck_assert_uint_eq(stats.deadline_ns, f->now_ns + F_TIMEOUT_NS);
	/* 1, 2, 4, 8, 16 and 16 times the timeout: as long as dead_peer() in test_recovery.c. */
	ck_assert_uint_eq(stats.give_up_ns, UINT64_C(47) * F_TIMEOUT_NS);
	ck_assert(!stats.lossless);
	fixture_deadline(f);
	ck_assert_uint_eq(describe(f).retries_left, 4);
	ck_assert_uint_eq(describe(f).counts.timeouts, 1);
	f = fixture_new(&(struct fixture_config){ .unlimited_retry = true });
	ck_assert_uint_eq(describe(f).give_up_ns, 0);
	ck_assert(describe(f).lossless);
}
END_TEST

/* One packet, acknowledged after `rtt_ns`. */
static void round_trip(struct fixture *f, uint32_t psn, uint64_t rtt_ns)
{
	fixture_send(f, psn, FRL_WR_SEND, 10);
	fixture_output(f);
	f->now_ns += rtt_ns;
	fixture_ack(f, ACK, psn);
	expect_wc(&f->send_cq, psn, FRL_WC_SUCCESS);
}

START_TEST(round_trip_time)
{
	struct fixture *f = fixture_new(NULL);

	ck_assert_uint_eq(describe(f).counts.rtt_ns, 0);
	round_trip(f, 0, 80 * US);
	ck_assert_uint_eq(describe(f).counts.rtt_ns, 80 * US);
	round_trip(f, 1, 160 * US);
	ck_assert_uint_eq(describe(f).counts.rtt_ns, 90 * US);
	/* And down again. */
	for (uint32_t i = 2; i < 60; i++)
		round_trip(f, i, 8 * US);
	ck_assert_uint_le(describe(f).counts.rtt_ns, 9 * US);
}
END_TEST

/* The packet that asks for an acknowledgement is timed, from its own sending. */
START_TEST(timed_packet)
{
	struct fixture *f = fixture_new(NULL);

	fixture_send(f, 1, FRL_WR_SEND, 3 * MTU);
	fixture_output(f);
	f->now_ns += 10 * US;
	fixture_ack(f, ACK, 0);
	ck_assert_uint_eq(describe(f).counts.rtt_ns, 0);
	/* Packets that are sent meanwhile do not start it anew. */
	fixture_send(f, 2, FRL_WR_SEND, 10);
	fixture_output(f);
	f->now_ns += 10 * US;
	fixture_ack(f, ACK, 2);
	ck_assert_uint_eq(describe(f).counts.rtt_ns, 20 * US);
}
END_TEST

START_TEST(read_response_is_timed)
{
	struct fixture *f = fixture_new(NULL);

	fixture_send(f, 1, FRL_WR_RDMA_READ, 2 * MTU);
	fixture_output(f);
	f->now_ns += 30 * US;
	fixture_arrive(f, OP_READ_RESP_FIRST, 0, MTU);
	ck_assert_uint_eq(describe(f).counts.rtt_ns, 30 * US);
}
END_TEST

/* Karn: whose acknowledgement it is nobody knows. */
START_LOOP_TEST(repeated_packet_is_not_timed, 2)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .retry_cnt = 7 });

	fixture_send(f, 1, FRL_WR_SEND, 10);
	fixture_output(f);
	if (_i == 0)
		fixture_deadline(f);
	else
		fixture_ack(f, SEQUENCE_NAK, 0);
	ck_assert_uint_eq(fixture_output(f), 1);
	f->now_ns += 5 * US;
	fixture_ack(f, ACK, 0);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(describe(f).counts.rtt_ns, 0);
	ck_assert_uint_eq(describe(f).counts.retransmits, 1);
	round_trip(f, 1, 50 * US);
	ck_assert_uint_eq(describe(f).counts.rtt_ns, 50 * US);
}
END_TEST

START_TEST(waits_for_acknowledgement)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .retry_cnt = 7 });
	uint64_t sent_ns;

	expect_wait(f, QP_WAIT_NOTHING);
	fixture_send(f, 1, FRL_WR_SEND, 2 * MTU);
	expect_wait(f, QP_WAIT_PROGRESS);
	fixture_output(f);
	sent_ns = f->now_ns;
	expect_wait(f, QP_WAIT_ACK);
	f->now_ns += 10;
	fixture_send(f, 2, FRL_WR_SEND, 10);
	fixture_output(f);
	ck_assert_uint_eq(describe(f).waiting_since_ns, sent_ns);
	f->now_ns += 10;
	fixture_ack(f, ACK, 0);
	ck_assert_uint_eq(describe(f).waiting_since_ns, f->now_ns);
	sent_ns = f->now_ns;
	/* It is not: */
	fixture_deadline(f);
	expect_wait(f, QP_WAIT_RETRY);
	fixture_output(f);
	expect_wait(f, QP_WAIT_RETRY);
	ck_assert_uint_eq(describe(f).waiting_since_ns, sent_ns);
	fixture_ack(f, ACK, 2);
	expect_wait(f, QP_WAIT_NOTHING);
	ck_assert_uint_eq(describe(f).waiting_since_ns, 0);
}
END_TEST

START_LOOP_TEST(waits_for_response, 2)
{
	static const enum frl_wr_opcode opcodes[] = { FRL_WR_RDMA_READ,
		FRL_WR_ATOMIC_FETCH_AND_ADD };
	struct fixture *f = fixture_new(NULL);

	fixture_send(f, 1, opcodes[_i], 8);
	fixture_output(f);
	expect_wait(f, QP_WAIT_READ);
	ck_assert_uint_eq(describe(f).waiting_since_ns, f->now_ns);
}
END_TEST

START_TEST(waits_for_receiver)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .retry_cnt = 7, .rnr_retry = 7 });

	fixture_send(f, 1, FRL_WR_SEND, 10);
	fixture_output(f);
	fixture_ack(f, RNR_NAK | 14, 0);
	expect_wait(f, QP_WAIT_RNR);
	ck_assert_uint_eq(describe(f).counts.rnr_received, 1);
	ck_assert_uint_eq(describe(f).deadline_ns, qp_next_deadline(&f->qp));
	/* The next try is on its way: it still waits for the same. */
	fixture_deadline(f);
	expect_wait(f, QP_WAIT_RNR);
	fixture_output(f);
	expect_wait(f, QP_WAIT_RNR);
	fixture_ack(f, RNR_NAK | 14, 0);
	expect_wait(f, QP_WAIT_RNR);
	fixture_deadline(f);
	fixture_output(f);
	/* That one is not answered at all. */
	fixture_deadline(f);
	expect_wait(f, QP_WAIT_RETRY);
	fixture_output(f);
	fixture_ack(f, RNR_NAK | 14, 0);
	expect_wait(f, QP_WAIT_RNR);
	fixture_deadline(f);
	fixture_output(f);
	fixture_ack(f, ACK, 0);
	expect_wait(f, QP_WAIT_NOTHING);
	fixture_send(f, 2, FRL_WR_SEND, 10);
	fixture_output(f);
	expect_wait(f, QP_WAIT_ACK);
}
END_TEST

/* A fence, or as many READs as may be. */
START_LOOP_TEST(waits_for_reads, 2)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .max_rd_atomic = 1 });

	fixture_send(f, 1, FRL_WR_RDMA_READ, 8);
	if (_i == 0)
		fixture_send(f, 2, FRL_WR_RDMA_READ, 8);
	else
		fixture_send_flags(f, 2, 8, FRL_SEND_FENCE | FRL_SEND_SIGNALED);
	expect_wait(f, QP_WAIT_PROGRESS);
	fixture_output(f);
	expect_wait(f, QP_WAIT_FENCE);
	ck_assert_uint_eq(describe(f).waiting_since_ns, f->now_ns);
	fixture_arrive(f, OP_READ_RESP_ONLY, 0, 8);
	expect_wait(f, QP_WAIT_PROGRESS);
	fixture_output(f);
	expect_wait(f, _i == 0 ? QP_WAIT_READ : QP_WAIT_ACK);
}
END_TEST

START_TEST(refuses_sender)
{
	struct fixture *f = fixture_new(NULL);

	fixture_arrive(f, OP_SEND_ONLY, 0, 10);
	ck_assert_uint_eq(describe(f).counts.rnr_sent, 1);
	/* The refusal is still to be sent. */
	expect_wait(f, QP_WAIT_PROGRESS);
	fixture_output(f);
	expect_wait(f, QP_WAIT_NOTHING);
}
END_TEST

START_TEST(states)
{
	struct fixture *f = fixture_new(NULL);

	fixture_move(f, FRL_QPS_SQD);
	expect_wait(f, QP_WAIT_NOTHING);
	fixture_send(f, 1, FRL_WR_SEND, 10);
	expect_wait(f, QP_WAIT_DRAINING);
	fixture_move(f, FRL_QPS_ERR);
	expect_wait(f, QP_WAIT_ERROR);
	fixture_move(f, FRL_QPS_RESET);
	expect_wait(f, QP_WAIT_NOT_CONNECTED);
}
END_TEST

static void expect_status(const struct fixture *f, enum frl_wc_status status)
{
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	ck_assert_int_eq(describe(f).error_status, status);
	ck_assert_ptr_null(describe(f).error);
}

START_TEST(errors_of_requests)
{
	struct fixture *f = fixture_new(NULL);

	ck_assert_int_eq(describe(f).error_status, FRL_WC_SUCCESS);
	fixture_send(f, 1, FRL_WR_SEND, 10);
	fixture_output(f);
	fixture_deadline(f);
	expect_status(f, FRL_WC_RETRY_EXC_ERR);
	fixture_move(f, FRL_QPS_RESET);
	ck_assert_int_eq(describe(f).error_status, FRL_WC_SUCCESS);
	f = fixture_new(NULL);
	fixture_send(f, 1, FRL_WR_SEND, 10);
	fixture_output(f);
	fixture_ack(f, 0x62, 0);
	expect_status(f, FRL_WC_REM_ACCESS_ERR);
	f = fixture_new(NULL);
	qp_fail(&f->qp, FRL_WC_REM_ABORT_ERR);
	expect_status(f, FRL_WC_REM_ABORT_ERR);
	/* Its owner's wish is no error. */
	f = fixture_new(NULL);
	fixture_move(f, FRL_QPS_ERR);
	expect_status(f, FRL_WC_SUCCESS);
}
END_TEST

static void expect_sentence(const struct fixture *f, const char *word)
{
	ck_assert_ptr_nonnull(describe(f).error);
	ck_assert_msg(strstr(describe(f).error, word) != NULL, "%s", describe(f).error);
}

START_TEST(errors_of_the_peer)
{
	struct fixture *f = fixture_new(
		&(struct fixture_config){ .deny = FRL_ACCESS_REMOTE_WRITE });

	fixture_arrive_write(f, OP_WRITE_ONLY, 0, 10, fixture_va(f, 0), f->local.key, 10);
	expect_sentence(f, "access flags");
	f = fixture_new(NULL);
	fixture_arrive_write(f, OP_WRITE_ONLY, 0, 10, fixture_va(f, 0), f->read_only.key, 10);
	expect_sentence(f, "may not access");
	fixture_move(f, FRL_QPS_RESET);
	ck_assert_ptr_null(describe(f).error);
}
END_TEST

START_TEST(first_reason_stays)
{
	struct fixture *f = fixture_new(NULL);

	qp_explain(&f->qp, "one");
	qp_explain(&f->qp, "two");
	qp_fail(&f->qp, FRL_WC_REM_ABORT_ERR);
	expect_sentence(f, "one");
}
END_TEST

START_TEST(overrun)
{
	struct fixture *f = fixture_new(&(struct fixture_config){ .n_cq = 1 });

	fixture_send(f, 1, FRL_WR_SEND, 10);
	fixture_send(f, 2, FRL_WR_SEND, 10);
	fixture_output(f);
	fixture_ack(f, ACK, 1);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	expect_sentence(f, "overran");
}
END_TEST

TEST_FILE(qp_stats)
