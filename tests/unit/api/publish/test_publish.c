/* SPDX-License-Identifier: BSD-3-Clause */
/* The information that the daemon, which is the test, gets about devices, and its actions on
 * them. */
#include "lib/api/objects.h"
#include "lib/api/publish/publish.h"
#include "lib/device/soft.h"

#include <stdio.h>
#include <unistd.h>

#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/unit/api/publish/publish_fixture.h"

enum { MANY_QPS = 100 };

START_TEST(nobody_to_tell)
{
	fake_stop_listening(&daemon_fake);
	open_end(&a, false, FRL_PROGRESS_INLINE);
	ck_assert_ptr_null(a.device->publication);
	close_end(&a);
}
END_TEST

START_TEST(told)
{
	struct known port;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	fake_greet(&daemon_fake);
	read_port(&port);
	ck_assert_str_eq(port.fabric, "");
	ck_assert(!port.has_lease);
	ck_assert_str_eq(port.device, "ring");
	ck_assert_ptr_nonnull(strstr(port.address, "169.254."));
	ck_assert_ptr_nonnull(strstr(port.address, "/16"));
	ck_assert_uint_eq(port.path_mtu, 4096);
	close_end(&a);
	read_close(&port);
	fake_expect_end(&daemon_fake);
}
END_TEST

static void expect_wait(const struct known *port, struct frl_qp *qp, enum page_wait wait)
{
	struct page_qp seen;

	publish_now();
	ck_assert(find_qp(port, frl_qp_num(qp), &seen));
	ck_assert_int_eq(seen.wait, wait);
}

static void send_message(uint64_t wr_id)
{
	struct frl_sge sge = sge_of(&a, 0, MESSAGE);
	struct frl_send_wr wr = send_wr(wr_id, FRL_WR_SEND, &sge);

	post_send(&wr);
}

static struct frl_qp *connect_to_itself(void)
{
	struct frl_qp *qp = add_qp(&a);
	struct frl_endpoint endpoint;

	ok(frl_qp_endpoint(qp, &endpoint));
	ok(frl_qp_connect(qp, &endpoint, NULL));
	return qp;
}

static void send_from(struct frl_qp *qp)
{
	const struct frl_send_wr wr = { .opcode = FRL_WR_SEND };

	ck_assert_int_eq(frl_post_send(qp, &wr, 1, NULL), 1);
}

START_TEST(page)
{
	struct known ports[2];
	struct page_qp qp;
	struct frl_qp *extra;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	fake_greet(&daemon_fake);
	read_port(&ports[0]);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	read_port(&ports[1]);
	ck_assert_uint_ne(ports[0].number, ports[1].number);
	expect_wait(&ports[0], a.qp, PAGE_WAIT_NOT_CONNECTED);
	frl_qp_set_peer(a.qp, 3, "node-2");
	frl_qp_set_peer(b.qp, 3, "node-2");
	frl_qp_set_peer(b.qp, -1, NULL);
	connect_both();
	post_recv(1, 0, MESSAGE, false);
	send_message(2);
	expect(&b, 1, FRL_WC_SUCCESS);
	expect(&a, 2, FRL_WC_SUCCESS);
	publish_now();
	ck_assert(find_qp(&ports[0], frl_qp_num(a.qp), &qp));
	ck_assert_int_eq(qp.type, FRL_QPT_RC);
	ck_assert_int_eq(qp.state, FRL_QPS_RTS);
	ck_assert_int_eq(qp.wait, PAGE_WAIT_NOTHING);
	ck_assert_uint_eq(qp.dest_qpn, frl_qp_num(b.qp));
	ck_assert_uint_eq(qp.peer_rank, 3 + 1);
	ck_assert_str_eq(qp.peer_host, "node-2");
	ck_assert_int_eq(memcmp(qp.remote_ip, &b.device->attr.ip, 16), 0);
	ck_assert_uint_eq(qp.tx_bytes, MESSAGE);
	ck_assert_uint_ge(qp.rx_packets, 1);
	ck_assert_uint_ne(qp.last_rx_ns, 0);
	ck_assert_uint_ne(qp.rtt_ns, 0);
	ck_assert_uint_eq(qp.send_psn, qp.acked_psn);
	ck_assert_uint_eq(qp.error[0], 0);
	ck_assert_uint_ge(counter(&ports[0], "tx_packets"), 1);
	ck_assert_uint_eq(counter(&ports[1], "bytes_placed"), MESSAGE);
	ck_assert_uint_ne(page_published_ns(&ports[0].page), 0);
	extra = add_qp(&a);
	publish_now();
	ck_assert_uint_eq(count_qps(&ports[0]), 2);
	frl_qp_destroy(extra);
	publish_now();
	ck_assert_uint_eq(count_qps(&ports[0]), 1);
	/* Another one has more to send than the call sends, so this one's request waits for the
	 * thread that drives the device. */
	extra = connect_to_itself();
	for (int i = 0; i < 3; i++)
		send_from(extra);
	send_message(3);
	expect_wait(&ports[0], a.qp, PAGE_WAIT_PROGRESS);
	/* Its peer does not drive its device, and posts nothing. */
	frl_progress(a.device);
	expect_wait(&ports[0], a.qp, PAGE_WAIT_ACK);
	frl_qp_destroy(extra);
	close_end(&a);
	read_close(&ports[0]);
	close_end(&b);
	read_close(&ports[1]);
}
END_TEST

START_TEST(many)
{
	struct frl_qp *qps[MANY_QPS];
	struct known port;
	struct page_qp qp;

	open_end(&a, false, FRL_PROGRESS_THREAD);
	fake_greet(&daemon_fake);
	read_port(&port);
	for (unsigned i = 0; i < MANY_QPS; i++)
		qps[i] = add_qp(&a);
	publish_now();
	ck_assert_uint_eq(count_qps(&port), MANY_QPS + 1);
	for (unsigned i = 0; i < MANY_QPS; i++) {
		ck_assert(find_qp(&port, frl_qp_num(qps[i]), &qp));
		frl_qp_destroy(qps[i]);
	}
	publish_now();
	ck_assert_uint_eq(count_qps(&port), 1);
	close_end(&a);
	read_close(&port);
}
END_TEST

static void write_fail_qp(uint32_t port, uint32_t qpn)
{
	Ctl__FailQp message = CTL__FAIL_QP__INIT;
	Ctl__Envelope envelope;
	char reason[] = "an operator said so";

	envelope_init(&envelope);
	message.port = port;
	message.qpn = qpn;
	message.error = ECANCELED;
	message.reason = reason;
	envelope.body_case = CTL__ENVELOPE__BODY_FAIL_QP;
	envelope.fail_qp = &message;
	fake_write(&daemon_fake, &envelope);
}

START_TEST(killed)
{
	struct frl_async_event event;
	struct known ports[2];
	struct page_qp qp;
	struct frl_wc wc;
	char text[80];

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	connect_both();
	fake_greet(&daemon_fake);
	read_port(&ports[0]);
	read_port(&ports[1]);
	post_recv(9, 0, MESSAGE, false);
	ck_assert_str_eq(frl_qp_error(b.qp, text, sizeof(text)), "");
	/* No such port, no such queue pair. */
	write_fail_qp(99, frl_qp_num(b.qp));
	write_fail_qp(ports[1].number, frl_qp_num(b.qp) ^ 0x40000);
	write_fail_qp(ports[1].number, frl_qp_num(b.qp));
	ok(frl_get_async_event(b.device, HANG_MS, &event));
	ck_assert_int_eq(event.type, FRL_EVENT_QP_FATAL);
	ck_assert_ptr_eq(event.qp, b.qp);
	ck_assert_int_eq(frl_poll_cq(b.cq, 1, &wc), 1);
	ck_assert_int_eq(wc.status, FRL_WC_WR_FLUSH_ERR);
	ck_assert_str_eq(frl_qp_error(b.qp, text, sizeof(text)), "an operator said so");
	publish_now();
	ck_assert(find_qp(&ports[1], frl_qp_num(b.qp), &qp));
	ck_assert_int_eq(qp.state, FRL_QPS_ERR);
	ck_assert_int_eq(qp.wait, PAGE_WAIT_ERROR);
	ck_assert_str_eq(qp.error, "an operator said so");
	ck_assert_uint_ne(qp.error_ns, 0);
	close_end(&a);
	read_close(&ports[0]);
	close_end(&b);
	read_close(&ports[1]);
}
END_TEST

START_TEST(told_again)
{
	struct known port, again;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	fake_greet(&daemon_fake);
	read_port(&port);
	forget(&port);
	fake_greet(&daemon_fake); /* the connection before it ends */
	read_port(&again);
	ck_assert_uint_eq(again.number, port.number);
	ck_assert(!again.has_lease);
	publish_now();
	ck_assert_uint_eq(count_qps(&again), 1);
	close_end(&a);
	read_close(&again);
}
END_TEST

START_TEST(required)
{
	uint32_t number, same;
	struct known port;

	fake_close(&daemon_fake);
	open_end(&a, false, FRL_PROGRESS_INLINE);
	ck_assert_ptr_null(a.device->publication);
	fake_listen(&daemon_fake);
	ok(publish_require(a.device, &number));
	ok(publish_require(a.device, &same));
	ck_assert_uint_eq(number, same);
	fake_greet(&daemon_fake);
	read_port(&port);
	ck_assert_uint_eq(port.number, number);
	ok(publish_require(a.device, &same));
	ck_assert_uint_eq(number, same);
	close_end(&a);
	read_close(&port);
}
END_TEST

/* The protocol's reasons, and others. */
START_TEST(reasons)
{
	char text[200];

	fake_stop_listening(&daemon_fake);
	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	qp_fail_with(a.qp, ECONNRESET, "not connected yet");
	ck_assert_int_eq(soft_qp_state(a.qp), FRL_QPS_RESET);
	ck_assert_str_eq(frl_qp_error(a.qp, text, sizeof(text)), "");
	connect_both();
	qp_fail_with(a.qp, ECONNRESET, NULL);
	ck_assert_int_eq(soft_qp_state(a.qp), FRL_QPS_ERR);
	ck_assert_str_eq(frl_qp_error(a.qp, text, sizeof(text)), strerror(ECONNRESET));
	/* The first one stays, truncated if there is no room. */
	qp_fail_with(a.qp, ECANCELED, "another");
	ck_assert_str_eq(frl_qp_error(a.qp, text, 5), "Conn");
	/* The link's information is less than the daemon's. */
	close_end(&a);
	for (uint64_t limit_ns = hang_limit_ns();
		may_wait(limit_ns) && soft_qp_state(b.qp) != FRL_QPS_ERR;)
		frl_progress(b.device);
	ck_assert_ptr_nonnull(strstr(frl_qp_error(b.qp, text, sizeof(text)), "link"));
	qp_fail_with(b.qp, ECONNRESET, "process 123 (x) on host y has ended");
	ck_assert_ptr_nonnull(strstr(frl_qp_error(b.qp, text, sizeof(text)), "process 123"));
	ok(frl_qp_modify(b.qp, &(struct frl_qp_attr){ .state = FRL_QPS_RESET }, FRL_QP_STATE));
	ck_assert_str_eq(frl_qp_error(b.qp, text, sizeof(text)), "");
	close_end(&b);
}
END_TEST

TEST_MAIN(publish)
{
	fake_folder();
	return run_suite(all_tests(publish_setup, publish_teardown));
}
