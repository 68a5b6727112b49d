/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a round has anything to do, taking frames before it, and sending without one. */
#include <stdlib.h>

#include "tests/unit/engine/engine_fixture.h"
#include "tests/fixtures/program.h"

enum { LENGTH = 100 };

static struct host *host;

static void start(void)
{
	host = host_new(NULL);
	host_add(host, 0, NULL);
	host_poll(host);
	ck_assert(!engine_has_work(&host->engine));
	ck_assert_uint_eq(engine_fetch(&host->engine), 0);
}

static void stop(void)
{
	host_free(host);
}

/* A message was sent, and its acknowledgement is at the port. */
static void send_one(void)
{
	host_post_send(host, 0, 1, LENGTH, 0);
	host_poll(host);
	host_acknowledge(host, 0, 0, true);
}

/* A frame stays at the port until it is fetched, and is handled in the next round. */
START_TEST(frames)
{
	send_one();
	ck_assert(!engine_has_work(&host->engine));
	ck_assert_uint_eq(host->port.n_rx, 1);
	ck_assert_uint_eq(engine_fetch(&host->engine), 1);
	ck_assert_uint_eq(host->port.n_rx, 0);
	ck_assert(engine_has_work(&host->engine));
	host_expect_no_wc(&host->cqs[0]);
	host_poll(host);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_no_wc(&host->cqs[0]);
	ck_assert_uint_eq(host->port.n_out, 0);
	ck_assert_uint_eq(host->engine.stats.rx_packets, 1);
	ck_assert(!engine_has_work(&host->engine));
	ck_assert_uint_eq(engine_fetch(&host->engine), 0);
}
END_TEST

/* Fetched frames, and those that come after them, are handled in order. */
START_TEST(more_frames)
{
	host_post_send(host, 0, 1, LENGTH, 0);
	host_post_send(host, 0, 2, LENGTH, 0);
	host_poll(host);
	host_acknowledge(host, 0, 0, true);
	ck_assert_uint_eq(engine_fetch(&host->engine), 1);
	host_acknowledge(host, 0, 1, true);
	ck_assert_uint_eq(engine_fetch(&host->engine), 1);
	host_poll(host);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(engine_fetch(&host->engine), 1);
	host_poll(host);
	host_expect_wc(&host->cqs[0], 2, FRL_WC_SUCCESS);
	ck_assert_uint_eq(host->engine.stats.rx_packets, 2);
	ck_assert_uint_eq(host->engine.stats.stale_acks, 0);
}
END_TEST

START_TEST(posted)
{
	host_post_send(host, 0, 1, LENGTH, 0);
	ck_assert(engine_has_work(&host->engine));
	ck_assert_uint_eq(host->port.n_sent, 0);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 1);
	ck_assert(!engine_has_work(&host->engine));
}
END_TEST

START_TEST(not_taken)
{
	host->port.room[0] = 1;
	host_post_send(host, 0, 1, LENGTH, 0);
	host_post_send(host, 0, 2, LENGTH, 0);
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 1);
	ck_assert(engine_has_work(&host->engine));
	host_poll(host);
	ck_assert(engine_has_work(&host->engine));
	host->port.room[0] = FAKE_UNLIMITED;
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 2);
	ck_assert(!engine_has_work(&host->engine));
}
END_TEST

/* A queue that lost completions is dealt with in the next round. */
START_TEST(overrun)
{
	host->engine.stats.cq_overruns++;
	ck_assert(engine_has_work(&host->engine));
	host_poll(host);
	ck_assert(!engine_has_work(&host->engine));
}
END_TEST

/* Arrived frames stay where they are. */
START_TEST(sends_alone)
{
	send_one();
	host_post_send(host, 0, 2, LENGTH, 0);
	engine_send(&host->engine, host->now_ns + 1000);
	ck_assert_uint_eq(host->port.n_sent, 2);
	host_expect_no_wc(&host->cqs[0]);
	host_poll(host);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
}
END_TEST

/* So its timer runs from then on. */
START_TEST(deadline_of_what_was_sent_alone)
{
	host_post_send(host, 0, 1, LENGTH, 0);
	engine_send(&host->engine, host->now_ns);
	ck_assert_uint_gt(engine_next_deadline(&host->engine), host->now_ns);
	ck_assert_uint_lt(engine_next_deadline(&host->engine), DEADLINE_NONE);
	ck_assert(!engine_has_work(&host->engine));
	host->now_ns = engine_next_deadline(&host->engine);
	host_poll(host);
	ck_assert_uint_eq(host->engine.stats.timeouts, 1);
}
END_TEST

static void post_each(uint64_t apart_ns)
{
	for (unsigned i = 0; i < HOST_QPS; i++) {
		host_post_send(host, i, 1, LENGTH, 0);
		host_poll(host);
		host->now_ns += apart_ns;
	}
}

/* Peers that are slow one after the other are not each worth a look at all queue pairs; what has a
 * time of its own is. */
START_TEST(probes_together)
{
	uint64_t apart_ns = 20000, first_ns, due_ns, last_ns, walks = 0;

	for (unsigned i = 1; i < HOST_QPS; i++)
		host_add(host, i, NULL);
	post_each(0);
	host->now_ns += 10000;
	for (unsigned i = 0; i < HOST_QPS; i++)
		host_acknowledge(host, i, 0, true);
	host_poll(host);
	host->port.n_sent = 0;
	post_each(apart_ns);
	/* A walk for what has been acknowledged, and mends that. */
	host->now_ns = engine_next_deadline(&host->engine);
	first_ns = qp_next_deadline(&host->qps[0].qp.core);
	last_ns = qp_next_deadline(&host->qps[HOST_QPS - 1].qp.core);
	ck_assert_uint_ge(last_ns - first_ns, (HOST_QPS - 1) * apart_ns);
	for (; host->engine.stats.retransmits < HOST_QPS; walks++) {
		ck_assert_uint_lt(host->engine.now_ns, last_ns + 250000);
		host->now_ns = engine_next_deadline(&host->engine);
		host_poll(host);
	}
	ck_assert_uint_le(walks, 3);
	/* A timeout does not wait for that. */
	due_ns = host->now_ns + 5000;
	host->qps[3].qp.core.recovery.ack_deadline_ns = due_ns;
	host->qps[3].qp.core.recovery.ack_expires_ns = due_ns;
	engine_update(&host->engine, &host->qps[3].qp);
	ck_assert_uint_eq(engine_next_deadline(&host->engine), due_ns);
}
END_TEST

TEST_MAIN(engine_rounds)
{
	return run_suite(all_tests(start, stop));
}
