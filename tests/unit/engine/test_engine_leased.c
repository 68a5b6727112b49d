/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine's services for a control daemon: numbers out of a range, the reason for which a queue
 * pair waits, and when it failed. */
#include "tests/unit/engine/engine_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/wire/neighbor.h"
#include "tests/fixtures/program.h"
#include "tests/vectors/frame.h"

enum { MANY = 64 };

static struct host *host;

static void setup(void)
{
	host = host_new(NULL);
}

static void teardown(void)
{
	host_free(host);
}

static void set_range(uint32_t first, uint32_t count)
{
	host->engine.qpn_first = first;
	host->engine.qpn_count = count;
	host->engine.qp_cursor = 0;
}

/* Ranges of 8: which of the numbers are had, in order. */
static const struct {
	uint32_t first;
	uint32_t n;
	uint32_t numbers[8];
} ranges[] = {
	{ 0x100, 8, { 0x100, 0x101, 0x102, 0x103, 0x104, 0x105, 0x106, 0x107 } },
	/* Over the end of the slots, of which two are not for these. */
	{ 0x7ffc, 6, { 0x7ffc, 0x7ffd, 0x7ffe, 0x7fff, 0x8002, 0x8003 } },
	{ 0, 6, { 2, 3, 4, 5, 6, 7 } },
	/* Up to the last number that there is. */
	{ 0xfffffb, 4, { 0xfffffb, 0xfffffc, 0xfffffd, 0xfffffe } },
	{ UINT32_MAX - 3, 2, { 2, 3 } },
};

START_LOOP_TEST(numbers, ROWS(ranges))
{
	struct engine_qp qps[9];
	uint32_t n = 0;

	set_range(ranges[_i].first, 8);
	for (; n < 9 && host_add_small(host, &qps[n], FRL_QPT_RC) == 0; n++)
		ck_assert_uint_eq(qps[n].core.qpn, ranges[_i].numbers[n]);
	ck_assert_uint_eq(n, ranges[_i].n);
	/* Freed ones come again, the one that was freed first too. */
	engine_remove_qp(&host->engine, &qps[0]);
	engine_remove_qp(&host->engine, &qps[1]);
	ck_assert_int_eq(host_add_small(host, &qps[0], FRL_QPT_RC), 0);
	ck_assert_int_eq(host_add_small(host, &qps[1], FRL_QPT_RC), 0);
	ck_assert_int_eq(host_add_small(host, &qps[8], FRL_QPT_RC), -ENOSPC);
	while (n--)
		engine_remove_qp(&host->engine, &qps[n]);
}
END_TEST

/* A number is not given again while others have not been. */
START_TEST(reused_late)
{
	struct engine_qp qp;

	set_range(0x2000, MANY);
	for (uint32_t i = 0; i < 2 * MANY; i++) {
		ck_assert_int_eq(host_add_small(host, &qp, FRL_QPT_RC), 0);
		ck_assert_uint_eq(qp.core.qpn, 0x2000 + i % MANY);
		engine_remove_qp(&host->engine, &qp);
	}
}
END_TEST

/* More numbers than slots: all slots can be had, and no more. */
START_TEST(more_than_slots)
{
	struct engine_qp *qps = calloc(ENGINE_MAX_QPS, sizeof(*qps));
	uint32_t n = 0;

	ck_assert_ptr_nonnull(qps);
	set_range(0x10000, 4 * ENGINE_MAX_QPS);
	while (n < ENGINE_MAX_QPS && host_add_small(host, &qps[n], FRL_QPT_RC) == 0)
		n++;
	ck_assert_uint_eq(n, ENGINE_MAX_QPS - 2);
	while (n--)
		engine_remove_qp(&host->engine, &qps[n]);
	free(qps);
}
END_TEST

START_TEST(gsi_is_outside)
{
	struct engine_qp gsi, qp;

	set_range(0x4000, 4);
	ck_assert_int_eq(host_add_small(host, &gsi, FRL_QPT_GSI), 0);
	ck_assert_uint_eq(gsi.core.qpn, 1);
	ck_assert_int_eq(host_add_small(host, &qp, FRL_QPT_RC), 0);
	ck_assert_uint_eq(qp.core.qpn, 0x4002);
	ck_assert_ptr_eq(engine_find_qp(&host->engine, 0x4002), &qp);
	ck_assert_ptr_null(engine_find_qp(&host->engine, 0x8002));
	engine_remove_qp(&host->engine, &gsi);
	engine_remove_qp(&host->engine, &qp);
}
END_TEST

START_TEST(held_up)
{
	struct engine_qp *qp = host_create(host, 0, NULL);

	/* It has no path yet. */
	host->port.state[0] = PORT_LINK_DOWN;
	ck_assert(!engine_is_held_up(&host->engine, qp));
	host->port.state[0] = PORT_LINK_UP;
	host_connect(host, 0, NULL);
	ck_assert(!engine_is_held_up(&host->engine, qp));
	host->port.state[0] = PORT_LINK_DOWN;
	ck_assert(engine_is_held_up(&host->engine, qp));
	host->port.state[0] = PORT_LINK_UP;
	/* The port takes nothing, and the queue fills up. */
	host->port.room[0] = 0;
	host_post_send(host, 0, 1, ENGINE_TX_QUEUE * HOST_MTU, 0);
	for (unsigned i = 0; i < 8; i++)
		host_poll(host);
	ck_assert(engine_is_held_up(&host->engine, qp));
	host->port.room[0] = FAKE_UNLIMITED;
	host_poll(host);
	ck_assert(!engine_is_held_up(&host->engine, qp));
}
END_TEST

START_TEST(failed_at)
{
	struct engine_qp *qp = host_add(host, 0, NULL);
	uint64_t failed_ns;

	host_poll(host);
	ck_assert_uint_eq(qp->failed_ns, 0);
	host->now_ns += 1000;
	host_poll(host);
	qp_fail(&qp->core, FRL_WC_REM_ABORT_ERR);
	engine_update(&host->engine, qp);
	failed_ns = qp->failed_ns;
	ck_assert_uint_eq(failed_ns, host->now_ns);
	host->now_ns += 1000;
	host_poll(host);
	engine_update(&host->engine, qp);
	ck_assert_uint_eq(qp->failed_ns, failed_ns);
	ck_assert_int_eq(host_modify(host, 0, &(struct frl_qp_attr){ .state = FRL_QPS_RESET },
				 FRL_QP_STATE, NULL),
		0);
	ck_assert_uint_eq(qp->failed_ns, 0);
}
END_TEST

static void receive_arp(void)
{
	struct neighbor_message message = {
		.request = true,
		.sender_ip = ip_from_v4((const uint8_t[]){ 10, 9, 0, 1 }),
		.target_ip = ip_from_v4((const uint8_t[]){ 10, 9, 0, 2 }),
	};
	uint8_t frame[NEIGHBOR_MAX_FRAME];

	memcpy(message.sender_mac, mac_a, 6);
	fake_port_receive(&host->port, 0, frame, (uint32_t)neighbor_encode(frame, &message));
	host_poll(host);
}

/* The lease has ended: the address may be another's, who is not to be disturbed. */
START_TEST(revoked)
{
	const struct frl_qp_attr reset = { .state = FRL_QPS_RESET };
	struct frl_qp_attr attr = host_attr(0, NULL);
	struct engine_qp *qp = host_add(host, 0, NULL);
	uint32_t init = host_mask(FRL_QPT_RC, FRL_QPS_INIT);
	uint32_t rtr = host_mask(FRL_QPT_RC, FRL_QPS_RTR);

	receive_arp();
	ck_assert_uint_eq(host->port.n_sent, 1);
	host->port.room[0] = 0;
	host_post_send(host, 0, 1, 64, FRL_SEND_SIGNALED);
	host_poll(host);
	host->port.room[0] = FAKE_UNLIMITED;
	engine_revoke(&host->engine);
	engine_revoke(&host->engine);
	ck_assert_int_eq(qp->core.state, FRL_QPS_ERR);
	ck_assert(!host->engine.port_up);
	receive_arp();
	host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 1);
	ck_assert_uint_eq(host->engine.stats.neighbor_requests, 1);
	ck_assert(!host->engine.port_up);
	ck_assert_int_eq(host_modify(host, 0, &reset, FRL_QP_STATE, NULL), 0);
	attr.state = FRL_QPS_INIT;
	ck_assert_int_eq(host_modify(host, 0, &attr, init, NULL), 0);
	attr.state = FRL_QPS_RTR;
	ck_assert_int_eq(host_modify(host, 0, &attr, rtr, NULL), -ENETDOWN);
}
END_TEST

TEST_MAIN(engine_leased)
{
	return run_suite(all_tests(setup, teardown));
}
