/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface: links of the local fabric to many devices. */
#include "drivers/local/internal.h"
#include "lib/device/soft.h"
#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/program.h"

enum {
	PEERS = 40,
	FEW = 5,
};

/* The peers of `a`, the middle of a star. */
static struct end peers[PEERS];

static void setup(void)
{
	open_end(&a, false, FRL_PROGRESS_INLINE);
	for (int i = 0; i < PEERS; i++)
		open_end(&peers[i], false, FRL_PROGRESS_THREAD);
}

static void teardown(void)
{
	for (int i = 0; i < PEERS; i++)
		close_end(&peers[i]);
	close_end(&a);
	local_max_links = PORT_MAX_LINKS;
}

static void renew(struct end *end)
{
	frl_qp_destroy(end->qp);
	end->qp = add_qp(end);
	ok(frl_qp_endpoint(end->qp, &end->mine));
}

static void start_connecting(struct end *peer, int timeout_ms)
{
	struct frl_connect_config config;

	frl_connect_config_init(a.device, &config);
	config.timeout_ms = timeout_ms;
	a.rc = frl_qp_connect_start(a.qp, &peer->mine, &config);
	if (a.rc)
		return;
	ok(frl_qp_connect_start(peer->qp, &a.mine, &config));
	a.rc = peer->rc = -EAGAIN;
}

/* Asks both ends. Returns -EAGAIN: not yet. */
static int test_connecting(struct end *peer)
{
	if (a.rc == -EAGAIN)
		a.rc = frl_qp_connect_test(a.qp);
	if (peer->rc == -EAGAIN)
		peer->rc = frl_qp_connect_test(peer->qp);
	if (a.rc && a.rc != -EAGAIN)
		return a.rc;
	return peer->rc ? peer->rc : a.rc;
}

static int end_connecting(struct end *peer)
{
	int rc;

	do
		rc = test_connecting(peer);
	while (rc == -EAGAIN);
	return rc;
}

static int connect_to(struct end *peer, int timeout_ms)
{
	start_connecting(peer, timeout_ms);
	return end_connecting(peer);
}

/* The link of a peer that has gone exists a moment longer. */
static int connect_until_there_is_room(struct end *peer)
{
	int rc;

	while ((rc = connect_to(peer, HANG_MS)) == -ENOSPC) {
		frl_progress(a.device);
		renew(peer);
		renew(&a);
	}
	return rc;
}

static void write_to(struct end *peer)
{
	struct frl_sge sge = sge_of(&a, 0, 100);
	struct frl_send_wr wr = {
		.wr_id = 1,
		.opcode = FRL_WR_RDMA_WRITE,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1,
		.remote_addr = (uintptr_t)peer->memory,
		.rkey = frl_mr_rkey(peer->mr),
	};
	struct frl_wc wc = { .wr_id = 0 };

	post_on(a.qp, &wr);
	ck_assert_int_eq(frl_cq_wait(a.cq, 1, &wc, HANG_MS), 1);
	ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
}

static void exchange(struct end *peer)
{
	renew(&a);
	renew(peer);
	ok(connect_to(peer, HANG_MS));
	write_to(peer);
}

/* An unused link is kept for the next queue pair. */
START_TEST(one_after_the_other)
{
	for (int i = 0; i < 2 * PEERS; i++)
		exchange(&peers[i % PEERS]);
	ck_assert_uint_eq(soft_device(a.device)->n_links, PEERS);
}
END_TEST

START_TEST(at_the_same_time)
{
	struct frl_qp *qps[PEERS];

	for (int i = 0; i < PEERS; i++) {
		exchange(&peers[i]);
		qps[i] = a.qp;
		a.qp = add_qp(&a);
	}
	for (int i = 0; i < PEERS; i++) {
		struct frl_qp *spare = a.qp;

		a.qp = qps[i];
		write_to(&peers[i]);
		a.qp = spare;
		frl_qp_destroy(qps[i]);
	}
}
END_TEST

/* All links that a device can have: the next one is refused, until a peer has gone. */
START_TEST(too_many)
{
	local_max_links = FEW;
	for (int i = 0; i < FEW; i++)
		exchange(&peers[i]);
	renew(&a);
	refused(connect_to(&peers[FEW], HANG_MS), -ENOSPC, "5 local links");
	close_end(&peers[2]);
	renew(&peers[FEW]);
	renew(&a);
	ok(connect_until_there_is_room(&peers[FEW]));
	write_to(&peers[FEW]);
	open_end(&peers[2], false, FRL_PROGRESS_THREAD);
}
END_TEST

TEST_MAIN(api_links)
{
	return run_suite_unforked(all_tests(setup, teardown));
}
