/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface: states, connections that fail, waiting and counters. */
#include "lib/api/connect/endpoint.h"
#include "lib/device/soft.h"

#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/program.h"

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
}
END_TEST

static const char NO_LINKS[] = "only the local fabric has links";
static const char NO_WAITING[] = "hardware is ready when it is told, wherever the peer is";

/* The second time also the local fabric's own. */
START_LOOP_TEST(bad_modify, 2)
{
	const uint32_t init = FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS;
	const uint32_t rtr = FRL_QP_STATE | FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN |
		FRL_QP_RQ_PSN | FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER;
	struct frl_qp_attr attr = { .state = FRL_QPS_RTS, .port_num = 1 };

	SOFTWARE_ONLY_IF(_i, NO_LINKS);
	open_end(&a, false, FRL_PROGRESS_INLINE);
	refused(frl_qp_modify(a.qp, &attr, FRL_QP_STATE), -EINVAL, "RESET to RTS");
	attr.state = FRL_QPS_INIT;
	refused(frl_qp_modify(a.qp, &attr, FRL_QP_STATE), -EINVAL, "access_flags");
	refused(frl_qp_modify(a.qp, &attr, init | FRL_QP_QKEY), -EINVAL, "does not take");
	attr.access_flags = 0x40;
	refused(frl_qp_modify(a.qp, &attr, init), -EINVAL, "bits");
	attr.access_flags = 0;
	ok(frl_qp_modify(a.qp, &attr, init));
	attr.state = FRL_QPS_RTR;
	attr.dest_qpn = 5;
	attr.path_mtu = 1024;
	attr.ah.sgid_index = 1;
	attr.ah.dgid = (struct frl_ip){ { 0xfd, [15] = 1 } };
	attr.ah.dmac[0] = 2;
	if (test_port()) {
		refused(frl_qp_modify(a.qp, &attr, rtr), -EINVAL, "dmac");
		attr.ah.dmac[0] = 0;
	}
	refused(frl_qp_modify(a.qp, &attr, rtr), -EINVAL, "family");
	if (_i) {
		attr.ah.dmac[0] = 0;
		refused(frl_qp_modify(a.qp, &attr, rtr), -EHOSTUNREACH, "fd00::1");
		attr.ah.dmac[0] = 2;
		attr.ah.dgid = (struct frl_ip){ { [10] = 0xff, 0xff, 169, 254, 1, 1 } };
		attr.ah.link = 1000;
		refused(frl_qp_modify(a.qp, &attr, rtr), -EINVAL, "no such link");
		attr.ah.link = 0;
	}
	refused(frl_qp_modify(a.qp, &attr, rtr & ~(uint32_t)FRL_QP_RQ_PSN), -EINVAL, "rq_psn");
	attr.path_mtu = 1000;
	refused(frl_qp_modify(a.qp, &attr, rtr), -EINVAL, "path_mtu");
	refused(frl_qp_endpoint(a.qp, &a.mine), -EINVAL, "INIT");
	attr.state = (enum frl_qp_state)77;
	refused(frl_qp_modify(a.qp, &attr, FRL_QP_STATE), -EINVAL, "state");
	refused(frl_qp_modify(a.qp, NULL, FRL_QP_STATE), -EINVAL, "attr");
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

	SOFTWARE_ONLY(NO_WAITING);
	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	other = add_qp(&a);
	refused(frl_qp_connect(other, &b.mine, NULL), -EINVAL, "frl_qp_endpoint");
	ok(frl_qp_endpoint(other, &own));
	ok(try_connect(&own, HANG_MS)); /* to a queue pair of the same device */
	refused(try_connect(&b.mine, SHORT_MS), -ETIMEDOUT, "30 ms");
	frl_connect_config_init(a.device, &config);
	config.timeout_ms = HANG_MS;
	config.interrupt = give_up;
	config.interrupt_arg = &asked;
	ck_assert_int_eq(frl_qp_connect(other, &b.mine, &config), -ECANCELED);
	ck_assert_int_eq(asked, 1);
	frl_qp_destroy(other);
}
END_TEST

/* A working connection is not affected, nor one that another thread is about to make. */
START_TEST(connect_twice)
{
	struct frl_endpoint mine;
	struct frl_qp_attr attr;
	struct frl_send_wr wr;
	struct frl_sge sge;

	start(false, FRL_PROGRESS_INLINE);
	refused(frl_qp_connect(a.qp, &b.mine, NULL), -EINVAL, "RTS");
	refused(frl_qp_endpoint(a.qp, &mine), -EINVAL, "RTS");
	frl_qp_query(a.qp, &attr);
	ck_assert_int_eq(attr.state, FRL_QPS_RTS);
	sge = sge_of(&a, 0, 100);
	wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	post_send(&wr);
	expect(&a, 1, FRL_WC_SUCCESS);
	/* From the start if possible. */
	attr.state = FRL_QPS_RESET;
	ok(frl_qp_modify(a.qp, &attr, FRL_QP_STATE));
	ok(frl_qp_modify(b.qp, &attr, FRL_QP_STATE));
	refused(frl_qp_connect(a.qp, &b.mine, NULL), -EINVAL, "frl_qp_endpoint");
	ok(frl_qp_endpoint(a.qp, &a.mine));
	ok(frl_qp_endpoint(b.qp, &b.mine));
	connect_both();
	post_send(&wr);
	expect(&a, 1, FRL_WC_SUCCESS);
}
END_TEST

/* Called while a.qp is being connected. */
static int connect_again(void *arg)
{
	refused(frl_qp_connect(a.qp, &b.mine, NULL), -EINVAL, "being connected");
	return give_up(arg);
}

START_TEST(connect_while_connecting)
{
	struct frl_connect_config config;
	int asked = 0;

	SOFTWARE_ONLY(NO_WAITING);
	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	frl_connect_config_init(a.device, &config);
	config.timeout_ms = HANG_MS;
	config.interrupt = connect_again;
	config.interrupt_arg = &asked;
	ck_assert_int_eq(frl_qp_connect(a.qp, &b.mine, &config), -ECANCELED);
	ck_assert_int_eq(asked, 1);
}
END_TEST

static int open_link_to_b(void)
{
	struct endpoint remote;
	int link;

	ok(endpoint_decode(&b.mine, &remote));
	device_enter(a.device);
	link = soft_link_open(a.device, &remote.addresses[0].ip, remote.mac, remote.nonce);
	device_leave(a.device);
	return link;
}

static void let_go_of_link(uint16_t link, bool failed)
{
	device_enter(a.device);
	soft_link_release(a.device, link, failed);
	device_leave(a.device);
}

static enum port_link_state state_of_link(uint16_t link)
{
	struct port *port = soft_device(a.device)->port;
	enum port_link_state state;

	device_enter(a.device);
	state = port->ops->link_state(port, link);
	device_leave(a.device);
	return state;
}

/* One connection over a link fails while another one over it has only begun. */
START_LOOP_TEST(link_of_two_connections, 2)
{
	int link;

	SOFTWARE_ONLY(NO_LINKS);
	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	link = open_link_to_b();
	ck_assert_int_ge(link, 0);
	refused(try_connect(&b.mine, 1), -ETIMEDOUT, "1 ms");
	ck_assert_int_eq(state_of_link((uint16_t)link), PORT_LINK_CONNECTING);
	ck_assert_int_eq(open_link_to_b(), link);
	let_go_of_link((uint16_t)link, true);
	ck_assert_int_eq(state_of_link((uint16_t)link), PORT_LINK_CONNECTING);
	let_go_of_link((uint16_t)link, _i);
	ck_assert_int_eq(
		state_of_link((uint16_t)link), _i ? PORT_LINK_CLOSED : PORT_LINK_CONNECTING);
}
END_TEST

static void start_connecting(struct end *end, const struct end *other, int timeout_ms)
{
	struct frl_connect_config config;

	frl_connect_config_init(end->device, &config);
	config.timeout_ms = timeout_ms;
	ok(frl_qp_connect_start(end->qp, &other->mine, &config));
}

static int test_until_over(struct end *end, const struct end *other)
{
	uint64_t limit_ns = hang_limit_ns();
	int rc = -EAGAIN;

	while (rc == -EAGAIN && may_wait(limit_ns)) {
		rc = frl_qp_connect_test(end->qp);
		if (other)
			frl_qp_connect_test(other->qp);
	}
	return rc;
}

static void write_something(void)
{
	struct frl_sge sge = sge_of(&a, 0, 100);
	struct frl_send_wr wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);

	post_send(&wr);
	expect(&a, 1, FRL_WC_SUCCESS);
}

/* One thread connects both ends. */
START_TEST(connect_in_steps)
{
	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	refused(frl_qp_connect_test(a.qp), -EINVAL, "not being connected");
	refused(frl_qp_connect_start(a.qp, NULL, NULL), -EINVAL, "remote");
	refused(frl_qp_connect_start(NULL, &b.mine, NULL), -EINVAL, "qp");
	refused(frl_qp_connect_test(NULL), -EINVAL, "qp");
	start_connecting(&a, &b, 10000);
	refused(frl_qp_connect_start(a.qp, &b.mine, NULL), -EINVAL, "being connected");
	refused(frl_qp_connect(a.qp, &b.mine, NULL), -EINVAL, "being connected");
	/* Hardware does not wait for the peer. */
	ck_assert_int_eq(frl_qp_connect_test(a.qp), test_port() ? 0 : -EAGAIN);
	ok(frl_qp_connect_start(b.qp, &a.mine, NULL));
	ok(test_until_over(&a, &b));
	ok(test_until_over(&b, &a));
	ok(frl_qp_connect_test(a.qp));
	refused(frl_qp_connect_start(a.qp, &b.mine, NULL), -EINVAL, "RTS");
	write_something();
}
END_TEST

START_TEST(connect_in_steps_fails)
{
	const struct frl_endpoint none = { { 0 } };
	struct frl_connect_config config;

	SOFTWARE_ONLY(NO_WAITING);
	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	frl_connect_config_init(a.device, &config);
	config.timeout_ms = -1;
	refused(frl_qp_connect_start(a.qp, &b.mine, &config), -EINVAL, "timeout_ms");
	refused(frl_qp_connect_start(a.qp, &none, NULL), -EPROTO, "Ferrule");
	start_connecting(&a, &b, SHORT_MS);
	refused(test_until_over(&a, NULL), -ETIMEDOUT, "30 ms");
	refused(frl_qp_connect_test(a.qp), -EINVAL, "ERR");
}
END_TEST

/* The original error is reported, not one of giving up. */
START_TEST(connect_reason)
{
	struct frl_connect_config config;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	frl_connect_config_init(a.device, &config);
	config.access_flags = 0x4000;
	refused(frl_qp_connect(a.qp, &b.mine, &config), -EINVAL, "access_flags");
}
END_TEST

/* A queue pair that is reset or destroyed gives up the connection that it began, and its link. Both
 * ends can be connected again, over a new link. */
START_LOOP_TEST(connect_abandoned, 2)
{
	struct frl_qp_attr attr = { .state = FRL_QPS_RESET };
	int link;

	SOFTWARE_ONLY(NO_LINKS);
	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	start_connecting(&a, &b, 10000);
	link = open_link_to_b();
	ck_assert_int_ge(link, 0);
	ck_assert_int_eq(frl_qp_connect_test(a.qp), -EAGAIN);
	if (_i) {
		ok(frl_qp_modify(a.qp, &attr, FRL_QP_STATE));
		refused(frl_qp_connect_test(a.qp), -EINVAL, "RESET");
		refused(frl_qp_connect(a.qp, &b.mine, NULL), -EINVAL, "frl_qp_endpoint");
	} else {
		frl_qp_destroy(a.qp);
		a.qp = add_qp(&a);
	}
	ck_assert_int_eq(state_of_link((uint16_t)link), PORT_LINK_CONNECTING);
	let_go_of_link((uint16_t)link, true);
	ck_assert_int_eq(state_of_link((uint16_t)link), PORT_LINK_CLOSED);
	ok(frl_qp_endpoint(a.qp, &a.mine));
	connect_both();
	write_something();
}
END_TEST

/* A connection whose link is gone while it is being made does not use another one's link. */
START_TEST(link_that_goes_down)
{
	int link, other;

	SOFTWARE_ONLY(NO_LINKS);
	start(false, FRL_PROGRESS_INLINE);
	link = open_link_to_b();
	ck_assert_int_ge(link, 0);
	ck_assert_int_eq(state_of_link((uint16_t)link), PORT_LINK_UP);
	close_end(&b);
	for (uint64_t limit_ns = hang_limit_ns();
		state_of_link((uint16_t)link) == PORT_LINK_UP && may_wait(limit_ns);)
		frl_progress(a.device);
	ck_assert_int_eq(state_of_link((uint16_t)link), PORT_LINK_DOWN);
	ck_assert_int_eq(open_link_to_b(), -EADDRINUSE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	ck_assert_int_eq(state_of_link((uint16_t)link), PORT_LINK_DOWN);
	other = open_link_to_b();
	ck_assert_int_ge(other, 0);
	ck_assert_int_ne(other, link);
	let_go_of_link((uint16_t)link, true);
	ck_assert_int_eq(open_link_to_b(), other);
	ck_assert_int_eq(state_of_link((uint16_t)link), PORT_LINK_CLOSED);
}
END_TEST

/* The name of the link between two endpoints, where `low` has the lower address. */
static int take_name(const struct frl_endpoint *low, const struct frl_endpoint *high)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char *name = address.sun_path + 1;
	size_t size = sizeof(address.sun_path) - 1;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0), n;

	n = snprintf(name, size, "ferrule-link/ferrule/");
	for (int i = 0; i < 8; i++)
		n += snprintf(name + n, size - (size_t)n, "%02x", low->bytes[44 + i]);
	n += snprintf(name + n, size - (size_t)n, "-");
	for (int i = 0; i < 8; i++)
		n += snprintf(name + n, size - (size_t)n, "%02x", high->bytes[44 + i]);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)),
		0);
	return fd;
}

/* Another process has the link's name: the caller waits for it, and its callback is called all the
 * time. */
START_TEST(name_of_link_in_use)
{
	struct frl_connect_config config;
	struct end *low = &a, *high = &b;
	int asked = 0, fd;

	SOFTWARE_ONLY(NO_LINKS);
	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	if (memcmp(a.mine.bytes + 24, b.mine.bytes + 24, 16) > 0)
		low = &b, high = &a;
	fd = take_name(&low->mine, &high->mine);
	frl_connect_config_init(low->device, &config);
	config.timeout_ms = SHORT_MS;
	refused(frl_qp_connect(low->qp, &high->mine, &config), -ETIMEDOUT, "30 ms");
	config.timeout_ms = HANG_MS;
	config.interrupt = give_up;
	config.interrupt_arg = &asked;
	ck_assert_int_eq(frl_qp_connect(low->qp, &high->mine, &config), -ECANCELED);
	ck_assert_int_eq(asked, 1);
	close(fd);
	connect_both();
}
END_TEST

/* The peer's endpoint comes from a network: whatever is in it, it is refused or times out. */
START_LOOP_TEST(damaged_endpoint, 3)
{
	static const uint8_t masks[] = { 0xff, 0x01, 0x80 };

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	for (int at = 0; at < FRL_ENDPOINT_SIZE; at++) {
		struct frl_endpoint damaged = b.mine;
		int rc;

		/* Magic, version; and IPv4 is written as an IPv6 address. */
		bool noticed = at < 6 || (at >= 24 && at < 36);

		/* Hardware does not check that the peer exists, and may have an IPv6 address,
		 * too. */
		if (at >= 6 && test_port())
			continue;
		damaged.bytes[at] ^= masks[_i];
		rc = try_connect(&damaged, 1);
		ck_assert_msg(rc < 0, "byte %d", at);
		if (noticed)
			ck_assert_msg(rc == -EPROTO, "byte %d: %d", at, rc);
	}
	memset(&b.mine, 0, sizeof(b.mine));
	refused(try_connect(&b.mine, 1), -EPROTO, "Ferrule");
}
END_TEST

/* Both ends are on local fabrics of different hosts: refused at once; the error names the setting
 * to use. */
START_TEST(elsewhere)
{
	struct frl_endpoint there;

	SOFTWARE_ONLY("only the local fabric ends with its host");
	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	there = b.mine;
	there.bytes[ENDPOINT_AT_HOST] ^= 1;
	refused(try_connect(&there, HANG_MS), -EHOSTUNREACH, "FRL_FABRIC");
	/* A peer that does not know its host is tried. */
	memset(there.bytes + ENDPOINT_AT_HOST, 0, ENDPOINT_HOST_SIZE);
	ck_assert_int_eq(try_connect(&there, 1), -ETIMEDOUT);
}
END_TEST

START_TEST(stats_walk)
{
	const char *name, *what;
	struct frl_stats stats;
	struct frl_sge sge;
	struct frl_send_wr wr;
	uint64_t value, packets = 0, limit_ns = hang_limit_ns();
	size_t n = 0;

	start(false, FRL_PROGRESS_INLINE);
	sge = (struct frl_sge){ a.memory, 100, frl_mr_lkey(a.mr) };
	wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	post_send(&wr);
	expect(&a, 1, FRL_WC_SUCCESS);
	/* The kernel updates counters of hardware with a delay. */
	do
		frl_device_stats(a.device, &stats);
	while (test_port() && stats.tx_packets == 0 && may_wait(limit_ns));
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
}
END_TEST

TEST_MAIN(api_connect)
{
	return run_rows(all_tests(NULL, close_ends));
}
