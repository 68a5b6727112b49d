/* SPDX-License-Identifier: BSD-3-Clause */
/* The probe inside the ACK timeout: when it is sent, and what its answers mean. */
#include "lib/protocol/qp_stats.h"
#include "lib/protocol/recovery.h"
#include "tests/fixtures/program.h"
#include "tests/unit/protocol/fixtures/qp_fixture.h"

enum {
	ACK = 0x1f,
	NAK_SEQ = 0x60,
	RNR_NAK = 0x20,
	MTU = 1024,
	RTT_NS = 800000,
	WAIT_NS = 2 * RTT_NS,
	LEAST_NS = 1000000,
	TIMEOUT_NS = 4096 << 14,
};

/* One packet has been acknowledged after `rtt_ns`: the next one has PSN 1. */
static struct fixture *timed(const struct fixture_config *config, uint64_t rtt_ns)
{
	struct fixture *f = fixture_new(config);

	f->qp.attr.timeout = 14;
	recovery_init(&f->qp);
	fixture_send(f, 100, FRL_WR_SEND, 10);
	fixture_output(f);
	f->now_ns += rtt_ns;
	fixture_ack(f, ACK, 0);
	expect_wc(&f->send_cq, 100, FRL_WC_SUCCESS);
	return f;
}

/* The next deadline is after so long, and sends this packet of a WRITE, as a probe. */
static void expect_probe(struct fixture *f, uint64_t wait_ns, uint8_t opcode, uint32_t psn)
{
	ck_assert_uint_eq(qp_next_deadline(&f->qp) - f->now_ns, wait_ns);
	fixture_deadline(f);
	ck_assert(qp_wants_output(&f->qp));
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_out(f, 0, opcode, psn, MTU, true);
	expect_silence(f);
}

/* All that is left of ten packets goes out, from `psn` on. */
static void expect_rest(struct fixture *f, uint32_t psn)
{
	ck_assert_uint_eq(fixture_output(f), 11 - psn);
	ck_assert_uint_eq(f->out[0].h.bth.psn.value, psn);
	expect_silence(f);
}

static struct fixture *ten_packets(const struct fixture_config *config)
{
	struct fixture *f = timed(config, RTT_NS);

	fixture_send(f, 1, FRL_WR_RDMA_WRITE, 10 * MTU);
	expect_rest(f, 1);
	return f;
}

/* The last one is acknowledged: there is nothing to wait for. */
static void finish(struct fixture *f)
{
	fixture_ack(f, ACK, 10);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
}

/* The acknowledgement ended with a probe: when nothing more comes, the rest is sent again. */
static void expect_suspicion(struct fixture *f)
{
	uint64_t rtt_ns = f->qp.counts.rtt_ns;

	expect_silence(f);
	ck_assert_uint_eq(
		qp_next_deadline(&f->qp) - f->now_ns, rtt_ns > LEAST_NS ? rtt_ns : LEAST_NS);
	fixture_deadline(f);
	ck_assert(qp_wants_output(&f->qp));
}

/* The first packet of a round, or its NAK, was lost: once it is there, so must be what followed. */
START_TEST(probe_fills_the_gap)
{
	struct fixture *f = ten_packets(&(struct fixture_config){ .retry_cnt = 2 });

	expect_probe(f, WAIT_NS, OP_WRITE_FIRST, 1);
	fixture_ack(f, ACK, 1);
	expect_suspicion(f);
	expect_rest(f, 2);
	ck_assert_uint_eq(f->qp.recovery.retries, 2);
	/* A NAK of something that was sent before: it is on its way already. */
	fixture_ack(f, NAK_SEQ, 2);
	expect_silence(f);
	ck_assert_uint_eq(f->qp.recovery.retries, 2);
	/* It comes, but the one behind it was lost again: a NAK tells of that, and counts. */
	fixture_ack(f, NAK_SEQ, 3);
	ck_assert_uint_eq(f->qp.recovery.retries, 1);
	expect_rest(f, 3);
	finish(f);
	ck_assert_uint_eq(f->stats.timeouts, 0);
}
END_TEST

/* Only the acknowledgement was lost, or is late: nothing is sent again. */
START_TEST(probe_was_a_duplicate)
{
	struct fixture *f = ten_packets(NULL);

	expect_probe(f, WAIT_NS, OP_WRITE_FIRST, 1);
	fixture_ack(f, ACK, 5);
	expect_silence(f);
	/* Nothing tells how long a round trip is by now. */
	expect_probe(f, 2 * WAIT_NS, OP_WRITE_MIDDLE, 6);
	finish(f);
	ck_assert_uint_eq(f->stats.retransmits, 2);
}
END_TEST

/* Nothing was behind it when it was sent: what follows has nothing to do with that. */
START_TEST(probe_of_the_last_packet)
{
	struct fixture *f = timed(NULL, RTT_NS);

	fixture_send(f, 1, FRL_WR_RDMA_WRITE, MTU);
	fixture_output(f);
	expect_probe(f, WAIT_NS, OP_WRITE_ONLY, 1);
	fixture_send(f, 2, FRL_WR_RDMA_WRITE, MTU);
	ck_assert_uint_eq(fixture_output(f), 1);
	fixture_ack(f, ACK, 1);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	expect_silence(f);
	fixture_ack(f, ACK, 2);
	expect_wc(&f->send_cq, 2, FRL_WC_SUCCESS);
}
END_TEST

static uint64_t nth_wait(unsigned probes, uint64_t timeout_ns)
{
	uint64_t wait_ns = WAIT_NS;

	while (probes-- && wait_ns < timeout_ns)
		wait_ns *= 2;
	return wait_ns < timeout_ns ? wait_ns : timeout_ns;
}

/* A peer that never answers: probes after 1, 2, 4 ... times the wait, until the
 * timeout, which is when it would have been without them. */
START_LOOP_TEST(timeout_stays_what_it_is, 8)
{
	struct fixture *f = ten_packets(&(struct fixture_config){ .retry_cnt = (uint8_t)_i });

	for (int try = 0; try <= _i; try++) {
		uint64_t start_ns = f->now_ns,
			 timeout_ns = (uint64_t)TIMEOUT_NS << (try < 4 ? try : 4);

		/* The first try has sent them already. */
		if (try)
			expect_rest(f, 1);
		while (f->now_ns != start_ns + timeout_ns) {
			uint64_t left_ns = start_ns + timeout_ns - f->now_ns;
			uint64_t wait_ns = nth_wait(f->qp.recovery.probes, timeout_ns);

			ck_assert_uint_eq(f->qp.recovery.retries, (unsigned)(_i - try));
			if (wait_ns < left_ns) {
				expect_probe(f, wait_ns, OP_WRITE_FIRST, 1);
				continue;
			}
			ck_assert_uint_eq(qp_next_deadline(&f->qp) - f->now_ns, left_ns);
			fixture_deadline(f);
		}
		ck_assert_uint_eq(f->stats.timeouts, (unsigned)try + 1);
	}
	ck_assert_uint_gt(f->qp.recovery.probes, 4);
	ck_assert_int_eq(f->qp.state, FRL_QPS_ERR);
	expect_wc(&f->send_cq, 1, FRL_WC_RETRY_EXC_ERR);
	expect_silence(f);
}
END_TEST

/* Not where nothing is lost, without a timer, when the timeout comes first, or before there is a
 * round trip time. */
START_LOOP_TEST(no_probe, 4)
{
	const struct fixture_config config = { .unlimited_retry = _i == 0 };
	struct fixture *f = timed(&config, _i == 3 ? 0 : RTT_NS);
	uint64_t timeout_ns = TIMEOUT_NS;

	if (_i == 1 || _i == 2) {
		f->qp.attr.timeout = _i == 1 ? 0 : 8;
		recovery_init(&f->qp);
		timeout_ns = _i == 1 ? 0 : 4096 << 8;
	}
	fixture_send(f, 1, FRL_WR_RDMA_WRITE, 10 * MTU);
	expect_rest(f, 1);
	if (!timeout_ns) {
		ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
		return;
	}
	ck_assert_uint_eq(qp_next_deadline(&f->qp) - f->now_ns, timeout_ns);
}
END_TEST

/* A short round trip does not make it impatient: processors are busy. */
START_TEST(least_wait)
{
	struct fixture *f = timed(NULL, 10000);

	fixture_send(f, 1, FRL_WR_RDMA_WRITE, MTU);
	fixture_output(f);
	expect_probe(f, LEAST_NS, OP_WRITE_ONLY, 1);
	/* It is not timed: either may have been acknowledged. */
	f->now_ns += 10;
	fixture_ack(f, ACK, 1);
	ck_assert_uint_eq(f->qp.counts.rtt_ns, 10000);
	/* But one that has grown is learnt: the wait does, until there is one to be timed. */
	for (unsigned i = 0; i < 2; i++) {
		fixture_send(f, 2, FRL_WR_RDMA_WRITE, MTU);
		fixture_output(f);
		expect_probe(f, (uint64_t)LEAST_NS << (i + 1), OP_WRITE_ONLY, 2 + i);
		f->now_ns += LEAST_NS;
		fixture_ack(f, ACK, 2 + i);
	}
	fixture_send(f, 3, FRL_WR_RDMA_WRITE, MTU);
	fixture_output(f);
	f->now_ns += 3 * LEAST_NS;
	fixture_ack(f, ACK, 4);
	ck_assert_uint_eq(f->qp.counts.rtt_ns, 3 * LEAST_NS);
	fixture_send(f, 4, FRL_WR_RDMA_WRITE, MTU);
	fixture_output(f);
	expect_probe(f, 6 * LEAST_NS, OP_WRITE_ONLY, 5);
}
END_TEST

/* A peer that acknowledges each packet and was slow for once: nothing but the probe is sent
 * again. */
START_TEST(each_acknowledged)
{
	struct fixture *f = timed(NULL, RTT_NS);

	for (unsigned i = 1; i <= 12; i++)
		fixture_send(f, i, FRL_WR_SEND, 64);
	ck_assert_uint_eq(fixture_output(f), 12);
	fixture_deadline(f);
	ck_assert_uint_eq(fixture_output(f), 1);
	for (unsigned i = 1; i <= 12; i++) {
		f->now_ns += LEAST_NS / 2;
		fixture_ack(f, ACK, i);
		ck_assert_uint_gt(qp_next_deadline(&f->qp), f->now_ns);
		expect_silence(f);
		expect_wc(&f->send_cq, i, FRL_WC_SUCCESS);
	}
	ck_assert_uint_eq(f->stats.retransmits, 1);
}
END_TEST

/* The peer is at a READ that came with it: that does not run again before the timeout. */
START_LOOP_TEST(read_behind, 3)
{
	struct fixture *f = timed(&(struct fixture_config){ .retry_cnt = 7 }, RTT_NS);
	uint32_t last = _i < 2 ? 1 : 2; /* the last SEND */

	for (uint32_t i = 1; i <= last; i++)
		fixture_send(f, i, FRL_WR_SEND, MTU);
	fixture_send(f, 9, FRL_WR_RDMA_READ, 40 * MTU);
	ck_assert_uint_eq(fixture_output(f), last + 1);
	fixture_deadline(f);
	ck_assert_uint_eq(fixture_output(f), 1);
	ck_assert_uint_eq(f->out[0].h.bth.psn.value, 1);
	if (_i == 0)
		fixture_arrive(f, OP_READ_RESP_FIRST, 2, MTU);
	else
		fixture_ack(f, ACK, 1);
	while (qp_next_deadline(&f->qp) < f->qp.recovery.ack_expires_ns) {
		uint32_t n;

		fixture_deadline(f);
		n = fixture_output(f);
		for (uint32_t i = 0; i < n; i++)
			ck_assert_uint_ne(f->out[i].h.bth.opcode, OP_READ_REQUEST);
	}
	ck_assert_uint_eq(f->stats.timeouts, 0);
	fixture_deadline(f);
	ck_assert_uint_eq(f->stats.timeouts, 1);
	ck_assert_uint_eq(fixture_output(f), last);
}
END_TEST

/* All was lost: what each probe brings back does not put off the timeout for ever. That there is
 * progress counts, though: it uses up no retry. */
START_TEST(read_behind_many)
{
	struct fixture *f = timed(&(struct fixture_config){ .retry_cnt = 0 }, RTT_NS);
	uint64_t start_ns = 0;
	uint32_t psn = 1;

	fixture_send(f, 1, FRL_WR_RDMA_WRITE, 20 * MTU);
	fixture_send(f, 2, FRL_WR_RDMA_READ, MTU);
	ck_assert_uint_eq(fixture_output(f), 21);
	for (;;) {
		fixture_deadline(f);
		if (f->stats.timeouts)
			break;
		ck_assert_uint_eq(fixture_output(f), 1);
		ck_assert_uint_eq(f->out[0].h.bth.psn.value, psn);
		/* The first one may be from a peer that was only slow. */
		if (psn == 1)
			start_ns = f->now_ns;
		fixture_ack(f, ACK, psn++);
		ck_assert_uint_lt(psn, 20);
	}
	ck_assert_uint_gt(psn, 3);
	ck_assert_uint_eq(f->now_ns - start_ns, TIMEOUT_NS);
	ck_assert_uint_eq(fixture_output(f), 22 - psn);
}
END_TEST

/* Messages take longer than at first, though less than the timeout: that is learnt, and each is
 * sent once then. */
START_RANGE_TEST(grown, 1, 16)
{
	struct fixture *f = timed(NULL, 500000);
	uint64_t takes_ns = (uint64_t)(4096 << 12) / 16 * (uint64_t)_i, retransmits = 0;

	f->qp.attr.timeout = 12;
	recovery_init(&f->qp);
	for (uint32_t psn = 1; psn <= 10; psn++) {
		uint64_t end_ns = f->now_ns + takes_ns;

		retransmits = f->stats.retransmits;
		fixture_send(f, psn, FRL_WR_RDMA_WRITE, MTU);
		fixture_output(f);
		while (qp_next_deadline(&f->qp) < end_ns) {
			fixture_deadline(f);
			fixture_output(f);
		}
		f->now_ns = end_ns;
		fixture_ack(f, ACK, psn);
		expect_wc(&f->send_cq, psn, FRL_WC_SUCCESS);
	}
	ck_assert_uint_eq(f->qp.counts.rtt_ns, takes_ns);
	ck_assert_uint_eq(f->stats.retransmits, retransmits);
	ck_assert_uint_eq(f->stats.timeouts, 0);
}
END_TEST

/* An element without bytes needs no memory: posting has left it out. */
START_TEST(empty_element)
{
	struct fixture *f = timed(NULL, RTT_NS);
	struct frl_sge sge[2] = { { NULL, 0, 0xdead }, { f->memory, MTU, f->local.key } };
	const struct frl_send_wr wr = { .wr_id = 1,
		.opcode = FRL_WR_RDMA_WRITE,
		.flags = FRL_SEND_SIGNALED,
		.sge = sge,
		.n_sge = 2,
		.remote_addr = 0x700000,
		.rkey = 0x55 };

	fixture_post(f, &wr, NULL);
	ck_assert_uint_eq(fixture_output(f), 1);
	expect_probe(f, WAIT_NS, OP_WRITE_ONLY, 1);
}
END_TEST

/* READs and atomics are not probed for, nor what is to be sent again anyway. */
START_LOOP_TEST(nothing_to_probe, 3)
{
	struct fixture *f = timed(&(struct fixture_config){ .retry_cnt = 7 }, RTT_NS);

	if (_i == 0) {
		fixture_send(f, 1, FRL_WR_RDMA_READ, 10 * MTU);
		fixture_output(f);
	} else if (_i == 1) {
		fixture_send(f, 1, FRL_WR_ATOMIC_FETCH_AND_ADD, 8);
		fixture_output(f);
	} else {
		fixture_send(f, 1, FRL_WR_RDMA_WRITE, 10 * MTU);
		expect_rest(f, 1);
		fixture_ack(f, NAK_SEQ, 1); /* and there is no room at the port since */
	}
	fixture_deadline(f);
	ck_assert_uint_eq(f->stats.timeouts, 0);
	ck_assert(!f->qp.recovery.probe_due);
	if (_i == 2)
		expect_rest(f, 1);
	else
		expect_silence(f);
}
END_TEST

/* It was due, and something else happens before it can leave. */
START_LOOP_TEST(overtaken, 5)
{
	struct fixture *f = ten_packets(&(struct fixture_config){ .retry_cnt = 7, .rnr_retry = 7 });

	fixture_deadline(f);
	ck_assert(f->qp.recovery.probe_due);
	switch (_i) {
	case 0: fixture_ack(f, ACK, 1); break;
	case 1: fixture_ack(f, RNR_NAK | 1, 1); break;
	case 2: qp_fail(&f->qp, FRL_WC_WR_FLUSH_ERR); break;
	case 3: fixture_ack(f, ACK, 10); break;
	default: fixture_ack(f, NAK_SEQ, 1); expect_rest(f, 1);
	}
	ck_assert(!f->qp.recovery.probe_due);
	expect_silence(f);
}
END_TEST

/* A NAK, or a wait for the receiver, ends what a probe says. */
START_LOOP_TEST(probe_and_refusal, 2)
{
	struct fixture *f = ten_packets(&(struct fixture_config){ .retry_cnt = 7, .rnr_retry = 7 });

	expect_probe(f, WAIT_NS, OP_WRITE_FIRST, 1);
	if (_i == 0) {
		fixture_ack(f, NAK_SEQ, 2);
		expect_rest(f, 2);
	} else {
		fixture_ack(f, RNR_NAK | 1, 2);
		expect_silence(f);
		fixture_deadline(f);
		expect_rest(f, 2);
	}
	fixture_ack(f, ACK, 2);
	expect_silence(f);
	finish(f);
}
END_TEST

/* New packets leave behind it as ever, and are sent again with what was lost before them. */
START_TEST(packets_behind_a_probe)
{
	struct fixture *f = ten_packets(NULL);

	fixture_deadline(f);
	fixture_send(f, 2, FRL_WR_SEND, MTU);
	ck_assert_uint_eq(fixture_output(f), 2);
	expect_out(f, 0, OP_WRITE_FIRST, 1, MTU, true);
	expect_out(f, 1, OP_SEND_ONLY, 11, MTU, true);
	fixture_ack(f, ACK, 1);
	expect_suspicion(f);
	ck_assert_uint_eq(fixture_output(f), 10);
	ck_assert_uint_eq(f->out[0].h.bth.psn.value, 2);
	expect_out(f, 9, OP_SEND_ONLY, 11, MTU, true);
	fixture_ack(f, ACK, 11);
	expect_wc(&f->send_cq, 1, FRL_WC_SUCCESS);
	expect_wc(&f->send_cq, 2, FRL_WC_SUCCESS);
}
END_TEST

/* A fault of it is found when it has to be sent again; and fetching would take too long. */
START_LOOP_TEST(not_at_hand, 2)
{
	static int somewhere;
	struct fixture *f = ten_packets(&(struct fixture_config){ .retry_cnt = 7 });

	if (_i == 0)
		region_remove(&f->table, &f->local);
	else
		f->local.owner = &somewhere;
	fixture_deadline(f);
	expect_silence(f);
	ck_assert_int_eq(f->qp.state, FRL_QPS_RTS);
	ck_assert_uint_eq(f->stats.timeouts, 0);
}
END_TEST

/* This end has kept the peer from answering: that moves a probe, but only a timeout that is due. */
START_TEST(held)
{
	struct fixture *f = ten_packets(&(struct fixture_config){ .retry_cnt = 7 });
	uint64_t expires_ns = f->now_ns + TIMEOUT_NS;

	for (unsigned i = 0; i < 1000 && qp_next_deadline(&f->qp) < expires_ns; i++) {
		f->now_ns = qp_next_deadline(&f->qp);
		qp_hold_timer(&f->qp, f->now_ns);
		ck_assert_uint_gt(qp_next_deadline(&f->qp), f->now_ns);
		expect_silence(f);
	}
	ck_assert_uint_eq(qp_next_deadline(&f->qp), expires_ns);
	f->now_ns = expires_ns;
	qp_hold_timer(&f->qp, f->now_ns);
	expect_probe(f, WAIT_NS, OP_WRITE_FIRST, 1);
	ck_assert_uint_eq(f->stats.timeouts, 0);
}
END_TEST

/* The packet leaves only now: all of the timeout is the peer's, whatever was due meanwhile. */
START_TEST(left_late)
{
	struct fixture *f = ten_packets(NULL);

	f->now_ns += TIMEOUT_NS - 1;
	qp_restart_timer(&f->qp, f->now_ns);
	ck_assert_uint_eq(f->qp.recovery.ack_expires_ns - f->now_ns, TIMEOUT_NS);
	ck_assert_uint_eq(qp_next_deadline(&f->qp) - f->now_ns, WAIT_NS);
	fixture_ack(f, ACK, 10);
	qp_restart_timer(&f->qp, f->now_ns);
	ck_assert_uint_eq(qp_next_deadline(&f->qp), DEADLINE_NONE);
}
END_TEST

/* Probes of many queue pairs wait for each other; a timeout does not. */
START_TEST(next_look)
{
	struct fixture *f = ten_packets(NULL);
	uint64_t probe_ns = qp_next_deadline(&f->qp), expires_ns = f->now_ns + TIMEOUT_NS;

	ck_assert_uint_eq(qp_next_look(&f->qp, 0), probe_ns);
	ck_assert_uint_eq(qp_next_look(&f->qp, probe_ns + 1), probe_ns + 1);
	ck_assert_uint_eq(qp_next_look(&f->qp, expires_ns + 1), expires_ns);
	fixture_ack(f, ACK, 10);
	ck_assert_uint_eq(qp_next_look(&f->qp, expires_ns), DEADLINE_NONE);
}
END_TEST

/* An operator is shown the event that ends a wait, not probes. */
START_TEST(described)
{
	struct fixture *f = ten_packets(&(struct fixture_config){ .rnr_retry = 7 });
	struct qp_stats stats;

	qp_describe(&f->qp, &stats);
	ck_assert_uint_eq(stats.deadline_ns, f->now_ns + TIMEOUT_NS);
	fixture_ack(f, RNR_NAK | 1, 1);
	qp_describe(&f->qp, &stats);
	ck_assert_uint_eq(stats.deadline_ns, f->qp.recovery.rnr_deadline_ns);
	fixture_ack(f, ACK, 10);
	qp_describe(&f->qp, &stats);
	ck_assert_uint_eq(stats.deadline_ns, 0);
}
END_TEST

TEST_FILE(probe)
