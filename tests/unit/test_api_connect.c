/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface: states, connections that fail, waiting and counters. */
#include "tests/unit/api_fixture.h"

START_TEST(wait_times_out)
{
	struct timespec from, to;
	struct frl_wc wc;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	clock_gettime(CLOCK_MONOTONIC, &from);
	ck_assert_int_eq(frl_cq_wait(a.cq, 1, &wc, SHORT_MS), 0);
	clock_gettime(CLOCK_MONOTONIC, &to);
	ck_assert_int_ge((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000,
		SHORT_MS - 1);
	ck_assert_int_eq(frl_cq_wait(a.cq, 1, &wc, 0), 0);
	ck_assert_int_eq(frl_poll_cq(a.cq, 1, &wc), 0);
	close_end(&a);
}
END_TEST

START_TEST(bad_modify)
{
	struct frl_qp_attr attr = { .state = FRL_QPS_RTS };
	uint32_t rtr = FRL_QP_STATE | FRL_QP_PATH | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN |
		FRL_QP_RQ_PSN | FRL_QP_MIN_RNR_TIMER;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	refused(frl_qp_modify(a.qp, &attr, FRL_QP_STATE), -EINVAL, "RESET to RTS");
	attr.state = FRL_QPS_INIT;
	refused(frl_qp_modify(a.qp, &attr, FRL_QP_STATE), -EINVAL, "access_flags");
	attr.access_flags = 0x40;
	refused(frl_qp_modify(a.qp, &attr, FRL_QP_STATE | FRL_QP_ACCESS_FLAGS), -EINVAL, "bits");
	attr.access_flags = 0;
	ok(frl_qp_modify(a.qp, &attr, FRL_QP_STATE | FRL_QP_ACCESS_FLAGS));
	attr.state = FRL_QPS_RTR;
	attr.dest_qpn = 5;
	attr.path_mtu = 1024;
	attr.remote_ip = (struct frl_ip){ { 0xfd, [15] = 1 } };
	refused(frl_qp_modify(a.qp, &attr, rtr), -EINVAL, "family");
	attr.remote_ip = (struct frl_ip){ { [10] = 0xff, 0xff, 169, 254, 1, 1 } };
	attr.link = 1000;
	refused(frl_qp_modify(a.qp, &attr, rtr), -EINVAL, "no such link");
	attr.link = 0;
	attr.path_mtu = 1000;
	refused(frl_qp_modify(a.qp, &attr, rtr), -EINVAL, "path_mtu");
	refused(frl_qp_endpoint(a.qp, &a.mine), -EINVAL, "INIT");
	attr.state = (enum frl_qp_state)77;
	refused(frl_qp_modify(a.qp, &attr, FRL_QP_STATE), -EINVAL, "state");
	close_end(&a);
}
END_TEST

static int give_up(void *arg)
{
	++*(int *)arg;
	return -ECANCELED;
}

static int try_connect(const struct frl_endpoint *endpoint, int timeout_ms)
{
	struct frl_connect_config config;
	struct frl_endpoint mine;
	int rc;

	frl_connect_config_init(a.device, &config);
	config.timeout_ms = timeout_ms;
	frl_qp_destroy(a.qp);
	a.qp = add_qp(&a);
	ok(frl_qp_endpoint(a.qp, &mine));
	rc = frl_qp_connect(a.qp, endpoint, &config);
	ck_assert(rc == 0 || *frl_last_error());
	return rc;
}

START_TEST(connect_fails)
{
	struct frl_connect_config config;
	struct frl_endpoint own;
	struct frl_qp *other;
	int asked = 0;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	other = add_qp(&a);
	refused(frl_qp_connect(other, &b.mine, NULL), -EINVAL, "frl_qp_endpoint");
	ok(frl_qp_endpoint(other, &own));
	refused(try_connect(&own, SHORT_MS), -EINVAL, "itself");
	refused(try_connect(&b.mine, SHORT_MS), -ETIMEDOUT, "30 ms");
	frl_connect_config_init(a.device, &config);
	config.interrupt = give_up;
	config.interrupt_arg = &asked;
	ck_assert_int_eq(frl_qp_connect(other, &b.mine, &config), -ECANCELED);
	ck_assert_int_eq(asked, 1);
	frl_qp_destroy(other);
	finish();
}
END_TEST

/* The peer's endpoint comes from a network: whatever is in it, it is refused or times out. */
START_TEST(damaged_endpoint)
{
	static const uint8_t masks[] = { 0xff, 0x01, 0x80 };

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	for (int at = 0; at < FRL_ENDPOINT_SIZE; at++) {
		struct frl_endpoint damaged = b.mine;
		int rc;

		damaged.bytes[at] ^= masks[_i];
		rc = try_connect(&damaged, 1);
		ck_assert_msg(rc < 0, "byte %d", at);
		/* Magic, version; and IPv4 is written as an IPv6 address. */
		if (at < 6 || (at >= 24 && at < 36))
			ck_assert_msg(rc == -EPROTO, "byte %d: %d", at, rc);
	}
	memset(&b.mine, 0, sizeof(b.mine));
	refused(try_connect(&b.mine, 1), -EPROTO, "Ferrule");
	finish();
}
END_TEST

START_TEST(stats_walk)
{
	const char *name, *what;
	struct frl_stats stats;
	struct frl_sge sge;
	struct frl_send_wr wr;
	uint64_t value, packets = 0;
	size_t n = 0;

	start(false, FRL_PROGRESS_INLINE);
	sge = (struct frl_sge){ a.memory, 100, frl_mr_lkey(a.mr) };
	wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	post_send(&wr);
	expect(&a, 1, FRL_WC_SUCCESS);
	frl_device_stats(a.device, &stats);
	for (; frl_stats_entry(&stats, n, &name, &what, &value) == 0; n++) {
		ck_assert(*name && *what);
		if (strcmp(name, "tx_packets") == 0)
			packets = value;
	}
	ck_assert_uint_eq(n, sizeof(stats) / sizeof(uint64_t));
	ck_assert_uint_eq(packets, stats.tx_packets);
	ck_assert_uint_ge(packets, 1);
	ck_assert_int_eq(frl_stats_entry(&stats, n, NULL, NULL, NULL), -ENOENT);
	ck_assert_int_eq(frl_stats_entry(&stats, 0, NULL, NULL, NULL), 0);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("api_connect");
	TCase *tcase = tcase_create("api_connect");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, wait_times_out);
	tcase_add_test(tcase, bad_modify);
	tcase_add_test(tcase, connect_fails);
	tcase_add_loop_test(tcase, damaged_endpoint, 0, 3);
	tcase_add_test(tcase, stats_walk);
	/* EAL starts once a process. */
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
