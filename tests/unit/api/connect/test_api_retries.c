/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface: finite retries on the local fabric. */
#include "tests/fixtures/program.h"
#include "tests/fixtures/stopped_clock.h"
#include "tests/unit/api/connect/gid_fixture.h"

static uint8_t timeout_of(const struct end *end)
{
	struct frl_qp_attr attr;

	frl_qp_query(end->qp, &attr);
	return attr.timeout;
}

static const struct {
	bool is_finite;
	uint8_t asked, got;
} timeouts[] = {
	{ true, 1, 16 },
	{ true, 16, 16 },
	{ true, 20, 20 },
	{ true, 0, 0 },
	{ false, 1, 1 },
};

START_LOOP_TEST(timeout_of_finite_retries, ROWS(timeouts))
{
	open_both(FRL_QPT_RC, timeouts[_i].is_finite);
	ok(to_rtr(&a, gid_of(&b, 1), 5, MTU));
	to_rts(&a, timeouts[_i].asked);
	ck_assert_uint_eq(timeout_of(&a), timeouts[_i].got);
}
END_TEST

static void destroy_peer(void)
{
	frl_qp_destroy(b.qp);
	b.qp = NULL;
}

static void fail_peer(void)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };

	ok(frl_qp_modify(b.qp, &attr, FRL_QP_STATE));
}

static void reset_peer(void)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_RESET };

	ok(frl_qp_modify(b.qp, &attr, FRL_QP_STATE));
}

static void no_change(void)
{
}

/* The peer's queue pair is still in INIT, fails, is reset or destroyed: no answer comes, and the
 * request fails when the timeout has passed, and not before. */
START_LOOP_TEST(no_answer, 4)
{
	static void (*const ends[])(void) = { no_change, fail_peer, reset_peer, destroy_peer };
	struct frl_sge sge;
	struct frl_send_wr wr;
	struct frl_wc wc;

	open_both(FRL_QPT_RC, true);
	if (_i)
		connect_by_gid(&b);
	connect_by_gid(&a);
	ok(a.rc);
	ends[_i]();
	clock_stop();
	sge = sge_of(&a, 0, 100);
	wr = send_wr(7, FRL_WR_SEND, &sge);
	post_send(&wr);
	frl_progress(b.device);
	clock_advance_ms(200);
	ck_assert_int_eq(frl_poll_cq(a.cq, 1, &wc), 0);
	clock_advance_ms(100);
	clock_go_on();
	expect(&a, 7, FRL_WC_RETRY_EXC_ERR);
}
END_TEST

static void wait_until_link_is_gone(const struct end *end)
{
	uint64_t limit_ns = hang_limit_ns();

	do
		frl_progress(end->device);
	while (soft_qp(end->qp)->engine.path.link != ENGINE_NO_LINK && may_wait(limit_ns));
}

static enum frl_qp_state state_of(const struct end *end)
{
	struct frl_qp_attr attr;

	frl_qp_query(end->qp, &attr);
	return attr.state;
}

/* A dead peer fails requests at once, also without a timeout. A queue pair without requests does
 * not notice it, and its next request fails. */
START_LOOP_TEST(peer_ends_with_finite_retries, 2)
{
	struct frl_sge sge;
	struct frl_send_wr wr;

	open_both(FRL_QPT_RC, true);
	ok(to_rtr(&a, gid_of(&b, 1), frl_qp_num(b.qp), MTU));
	to_rts(&a, 0);
	sge = sge_of(&a, 0, 100);
	wr = send_wr(7, FRL_WR_SEND, &sge);
	if (_i == 0)
		post_send(&wr);
	close_end(&b);
	if (_i == 1) {
		wait_until_link_is_gone(&a);
		ck_assert_int_eq(state_of(&a), FRL_QPS_RTS);
		post_send(&wr);
	}
	expect(&a, 7, FRL_WC_REM_ABORT_ERR);
}
END_TEST

TEST_MAIN(api_retries)
{
	if (test_port()) {
		say_skipped("all_fn", 0, "networks have finite retries");
		return 0;
	}
	return run_suite_unforked(all_tests(NULL, close_ends));
}
