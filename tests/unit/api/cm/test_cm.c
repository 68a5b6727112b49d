/* SPDX-License-Identifier: BSD-3-Clause */
/* Connection management: requests that are answered, refused, late and ended. */
#include <unistd.h>

#include "lib/api/cm/cm.h"
#include "lib/control/client.h"
#include "tests/unit/api/cm/cm_fixture.h"
#include "tests/fixtures/program.h"

enum { MANY = 300 };

START_TEST(ends_meet)
{
	struct frl_conn *active, *passive;
	struct frl_conn_peer peer;
	char data[32];
	int fd;

	ck_assert_str_eq(frl_listener_service(listener), "test");
	ck_assert(!readable(frl_listener_fd(listener)));
	active = ask(a.qp, "test");
	ck_assert(becomes_readable(frl_listener_fd(listener)));
	ck_assert(!readable(frl_conn_fd(active)));
	ck_assert_int_eq(frl_conn_test(active), -EAGAIN);
	passive = next_request();
	ck_assert(!readable(frl_listener_fd(listener)));
	ck_assert_int_eq(frl_get_request(listener, &passive), -EAGAIN);
	ck_assert_int_eq(frl_conn_test(passive), -EAGAIN);
	ck_assert_uint_eq(frl_conn_private_data(passive, data, sizeof(data)), 8);
	ck_assert_mem_eq(data, "question", 8);
	frl_conn_peer(passive, &peer);
	ck_assert_str_eq(peer.host, STUB_HOST);
	ck_assert_str_eq(peer.program, STUB_PROGRAM);
	ck_assert_uint_eq(peer.qpn, frl_qp_num(a.qp));
	ck_assert_uint_eq(peer.uid, 77);
	ok(frl_accept(passive, b.qp, "answer", 6, NULL));
	fd = frl_conn_fd(active);
	ck_assert(becomes_readable(fd));
	ok(frl_conn_test(active));
	ck_assert(!readable(fd));
	ok(frl_conn_wait(passive, HANG_MS));
	ck_assert_uint_eq(frl_conn_private_data(active, data, 3), 6);
	ck_assert_mem_eq(data, "ans", 3);
	frl_conn_peer(active, &peer);
	ck_assert_uint_eq(peer.qpn, frl_qp_num(b.qp));
	ck_assert_uint_eq(peer.pid, 4321);
	move_data();
	refused(frl_conn_wait_end(active, SHORT_MS), -ETIMEDOUT, "still established");
	/* One end leaves: the other one's queue pair is flushed. */
	frl_conn_close(passive);
	ck_assert(becomes_readable(frl_conn_fd(active)));
	refused(frl_conn_wait_end(active, HANG_MS), -ECONNRESET, "closed the connection");
	refused(frl_conn_test(active), -ECONNRESET, "closed the connection");
	ck_assert_int_eq(state_of(a.qp), FRL_QPS_ERR);
	ck_assert_int_eq(state_of(b.qp), FRL_QPS_ERR);
	ck_assert_ptr_nonnull(strstr(frl_qp_error(a.qp, data, sizeof(data)), "closed"));
	frl_conn_close(active);
}
END_TEST

/* A request that the peer has acknowledged has not failed, though its completion was not polled
 * since. */
START_TEST(acknowledged_before_the_end)
{
	struct frl_conn *active, *passive;
	struct frl_send_wr wr;
	struct frl_sge sge;

	meet(&active, &passive);
	sge = sge_of(&a, 0, MESSAGE);
	wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	a.memory[MESSAGE - 1] = 1;
	post_send(&wr);
	while (!((volatile uint8_t *)b.memory)[MESSAGE - 1]) {
		frl_progress(a.device);
		frl_progress(b.device);
	}
	frl_conn_close(passive);
	ck_assert(becomes_readable(frl_conn_fd(active)));
	wait_ended(active, -ECONNRESET, "closed the connection");
	ck_assert_int_eq(state_of(a.qp), FRL_QPS_ERR);
	expect(&a, 1, FRL_WC_SUCCESS);
	frl_conn_close(active);
}
END_TEST

/* Both ends take the smaller capabilities. */
START_TEST(terms)
{
	struct frl_connect_config ca, cb;
	struct frl_conn *active, *passive;
	struct frl_qp_attr attr, peer;
	struct frl_device_config device;
	Ctl__Envelope *request;

	frl_device_config_init(&device);
	close_end(&a);
	device.path_mtu = 1024;
	a = (struct end){ 0 };
	ok(frl_device_open(&device, &a.device));
	ok(frl_pd_create(a.device, &a.pd));
	ok(frl_cq_create(a.device, DEPTH, &a.cq));
	a.memory = calloc(1, MEMORY);
	ok(frl_reg_mr(a.pd, a.memory, MEMORY, ALL_ACCESS, &a.mr));
	a.qp = add_qp(&a);
	frl_connect_config_init(a.device, &ca);
	frl_connect_config_init(b.device, &cb);
	ca.max_rd_atomic = 3;
	cb.max_rd_atomic = 7;
	ca.timeout = 18;
	cb.timeout = 12;
	ca.min_rnr_timer = 5;
	cb.min_rnr_timer = 0; /* 655 ms */
	ca.rnr_retry = 2;
	ck_assert(!ca.any_user);
	ca.any_user = true;
	cb.rnr_retry = 6;
	ok(frl_connect(a.qp, "localhost", "test", NULL, 0, &ca, &active));
	ck_assert_int_eq(frl_conn_query(active, &attr), -EAGAIN);
	passive = next_request();
	ok(frl_accept(passive, b.qp, NULL, 0, &cb));
	ok(frl_conn_wait(active, HANG_MS));
	ok(frl_conn_wait(passive, HANG_MS));
	ok(frl_conn_query(active, &attr));
	ok(frl_conn_query(passive, &peer));
	ck_assert_uint_eq(attr.path_mtu, 1024);
	ck_assert_uint_eq(attr.max_rd_atomic, 3);
	ck_assert_uint_eq(attr.max_dest_rd_atomic, 3);
	ck_assert_uint_eq(attr.timeout, 18);
	ck_assert_uint_eq(attr.min_rnr_timer, 0);
	ck_assert_uint_eq(attr.rnr_retry, 6);
	ck_assert_uint_eq(attr.capabilities, FRL_CAP_NO_ICRC);
	ck_assert_uint_eq(peer.path_mtu, 1024);
	ck_assert_uint_eq(peer.max_rd_atomic, 3);
	ck_assert_uint_eq(peer.max_dest_rd_atomic, 3);
	ck_assert_uint_eq(peer.timeout, 18);
	ck_assert_uint_eq(peer.min_rnr_timer, 0);
	ck_assert_uint_eq(peer.rnr_retry, 6);
	request = stub_last(CTL__ENVELOPE__BODY_CONN_REQUEST);
	ck_assert(request->conn_request->any_user);
	ctl__envelope__free_unpacked(request, NULL);
	frl_qp_query(a.qp, &attr);
	frl_qp_query(b.qp, &peer);
	ck_assert_uint_eq(attr.path_mtu, 1024);
	ck_assert_uint_eq(peer.path_mtu, 1024);
	move_data();
	frl_conn_close(active);
	frl_conn_close(passive);
}
END_TEST

START_TEST(rejected)
{
	struct frl_conn *active, *passive;
	char data[8];

	active = ask(a.qp, "test");
	passive = next_request();
	ok(frl_reject(passive, "come back\ntomorrow", "no", 2));
	refused(frl_reject(passive, NULL, NULL, 0), -ECONNRESET, "ended");
	refused(frl_accept(passive, b.qp, NULL, 0, NULL), -ECONNRESET, "ended");
	frl_conn_close(passive);
	refused(frl_conn_wait(active, HANG_MS), -ECONNREFUSED, "come back?tomorrow");
	ck_assert_uint_eq(frl_conn_private_data(active, data, sizeof(data)), 2);
	ck_assert_mem_eq(data, "no", 2);
	ck_assert_int_eq(state_of(a.qp), FRL_QPS_RESET);
	refused(frl_connect(a.qp, NULL, "test", NULL, 0, NULL, &passive), -EINVAL, "close that");
	frl_conn_close(active);
	/* The queue pair can be used again. */
	meet(&active, &passive);
	move_data();
	frl_conn_close(active);
	refused(frl_conn_wait_end(passive, HANG_MS), -ECONNRESET, "closed");
	frl_conn_close(passive);
}
END_TEST

START_TEST(no_service)
{
	struct frl_conn *active;

	active = ask(a.qp, "other");
	refused(frl_conn_wait(active, HANG_MS), -ECONNREFUSED, "no such service");
	frl_conn_close(active);
	refused(frl_listen(a.device, "test", NULL, &(struct frl_listener *){ NULL }), -EADDRINUSE,
		"offered");
}
END_TEST

START_TEST(bad_arguments)
{
	struct frl_connect_config config;
	struct frl_listen_config listen = { 0 };
	struct frl_conn *conn, *passive;
	struct frl_listener *other;
	char text[300];

	memset(text, 'x', sizeof(text));
	text[299] = '\0';
	refused(frl_listen(NULL, "x", NULL, &other), -EINVAL, "device");
	refused(frl_listen(a.device, "x y", NULL, &other), -EINVAL, "'x y'");
	refused(frl_listen(a.device, text + 299 - 65, NULL, &other), -EINVAL, "64");
	refused(frl_listen(a.device, "x", &listen, &other), -EINVAL, "backlog");
	refused(frl_connect(NULL, NULL, "x", NULL, 0, NULL, &conn), -EINVAL, "qp");
	refused(frl_connect(a.qp, NULL, NULL, NULL, 0, NULL, &conn), -EINVAL, "service");
	refused(frl_connect(a.qp, NULL, "", NULL, 0, NULL, &conn), -EINVAL, "service");
	refused(frl_connect(a.qp, text, "x", NULL, 0, NULL, &conn), -EINVAL, "255");
	refused(frl_connect(a.qp, "a b", "x", NULL, 0, NULL, &conn), -EINVAL, "blank");
	refused(frl_connect(a.qp, NULL, "x", text, 197, NULL, &conn), -EINVAL, "197");
	refused(frl_connect(a.qp, NULL, "x", NULL, 1, NULL, &conn), -EINVAL, "private");
	frl_connect_config_init(a.device, &config);
	config.max_rd_atomic = 33;
	refused(frl_connect(a.qp, NULL, "x", NULL, 0, &config, &conn), -EINVAL, "max_rd_atomic");
	config.max_rd_atomic = 1;
	config.timeout_ms = -1;
	refused(frl_connect(a.qp, NULL, "x", NULL, 0, &config, &conn), -EINVAL, "timeout_ms");
	refused(frl_accept(NULL, a.qp, NULL, 0, NULL), -EINVAL, "conn");
	conn = ask(a.qp, "test");
	refused(frl_accept(conn, a.qp, NULL, 0, NULL), -EINVAL, "request");
	frl_listener_close(NULL);
	passive = next_request();
	refused(frl_accept(passive, a.qp, NULL, 0, NULL), -EINVAL, "another device");
	frl_conn_close(passive);
	frl_conn_close(conn);
	frl_conn_close(NULL);
	refused(frl_device_close(b.device), -EBUSY, "listener");
	refused(frl_wait_request(listener, 1, &conn), -ETIMEDOUT, "1 ms");
}
END_TEST

/* The requester gives up, before or after the request was fetched. */
START_LOOP_TEST(cancelled, 2)
{
	struct frl_conn *active, *passive;

	active = ask(a.qp, "test");
	if (_i) {
		passive = next_request();
		frl_conn_close(active);
		wait_ended(passive, -ECONNRESET, "cancelled");
		refused(frl_accept(passive, b.qp, NULL, 0, NULL), -ECONNRESET, "cancelled");
		frl_conn_close(passive);
	} else {
		ck_assert(becomes_readable(frl_listener_fd(listener)));
		frl_conn_close(active);
		for (uint64_t limit_ns = hang_limit_ns();
			readable(frl_listener_fd(listener)) && may_wait(limit_ns);)
			;
		ck_assert_int_eq(frl_get_request(listener, &passive), -EAGAIN);
	}
	meet(&active, &passive);
	frl_conn_close(passive);
	frl_conn_close(active);
}
END_TEST

/* The time limit of a connection is over. */
static void let_time_pass(struct frl_conn *conn)
{
	pthread_mutex_lock(&cm.mutex);
	conn->deadline_ns = cm.next_deadline_ns = 0;
	control_wake();
	pthread_mutex_unlock(&cm.mutex);
}

/* The queue pair can send and receive. */
static void await_made(struct frl_conn *conn)
{
	bool is_made = false;

	for (uint64_t limit_ns = hang_limit_ns(); !is_made && may_wait(limit_ns);) {
		pthread_mutex_lock(&cm.mutex);
		is_made = conn->connecting.stage == CONNECTING_DONE;
		pthread_mutex_unlock(&cm.mutex);
		usleep(1000);
	}
	ck_assert(is_made);
}

/* The held messages, the error at the time limit, and the error of either end. */
static const struct {
	uint64_t hold;
	Ctl__Envelope__BodyCase last;
	const char *active, *passive;
} silences[] = {
	{ STUB_BIT(CONN_REQUEST), CTL__ENVELOPE__BODY_CONN_REQUEST,
		"'test' on this host did not answer within 30 ms", NULL },
	{ STUB_BIT(CONN_REPLY) | STUB_BIT(CONN_END), CTL__ENVELOPE__BODY_CONN_REPLY,
		"'test' on this host did not answer within 30 ms", "30 ms" },
	{ STUB_BIT(CONN_READY), CTL__ENVELOPE__BODY_CONN_READY, "did not get ready within 30 ms",
		"did not get ready within 30 ms" },
};

START_LOOP_TEST(timed_out, 3)
{
	struct frl_connect_config config;
	struct frl_conn *active, *passive = NULL;

	frl_connect_config_init(a.device, &config);
	config.timeout_ms = SHORT_MS;
	stub_hold(silences[_i].hold);
	ok(frl_connect(a.qp, NULL, "test", NULL, 0, &config, &active));
	if (silences[_i].passive) {
		passive = next_request();
		ok(frl_accept(passive, b.qp, NULL, 0, &config));
	}
	ck_assert(stub_wait(silences[_i].last, 1));
	if (silences[_i].last == CTL__ENVELOPE__BODY_CONN_READY)
		await_made(passive);
	if (passive) {
		let_time_pass(passive);
		wait_ended(passive, -ETIMEDOUT, silences[_i].passive);
		ck_assert_int_eq(state_of(b.qp), FRL_QPS_ERR);
	}
	let_time_pass(active);
	wait_ended(active, -ETIMEDOUT, silences[_i].active);
	frl_conn_close(active);
	frl_conn_close(passive);
}
END_TEST

static atomic_uint n_said;

static void count_said(enum frl_log_level level, const char *line, void *arg)
{
	if (level == FRL_LOG_WARNING &&
		strstr(line, "service 'test' on this host: waiting for an answer"))
		n_said++;
}

/* The event that is waited for is logged after a while, once for all waiters. */
START_TEST(a_long_wait_is_said)
{
	struct frl_connect_config config;
	uint64_t limit_ns = hang_limit_ns();
	struct frl_conn *conns[2];

	frl_connect_config_init(a.device, &config);
	config.timeout_ms = HANG_MS;
	stub_hold(STUB_BIT(CONN_REQUEST));
	frl_set_log(count_said, FRL_LOG_WARNING, NULL);
	ok(frl_connect(a.qp, NULL, "test", NULL, 0, &config, &conns[0]));
	ok(frl_connect(b.qp, NULL, "test", NULL, 0, &config, &conns[1]));
	ck_assert(stub_wait(CTL__ENVELOPE__BODY_CONN_REQUEST, 2));
	pthread_mutex_lock(&cm.mutex);
	for (int i = 0; i < 2; i++)
		conns[i]->reminder.due_ns = 0;
	cm.next_deadline_ns = 0;
	pthread_mutex_unlock(&cm.mutex);
	control_wake();
	while (may_wait(limit_ns) && !n_said)
		usleep(1000);
	frl_conn_close(conns[0]);
	frl_conn_close(conns[1]);
	ck_assert_uint_eq(n_said, 1);
	frl_set_log(NULL, FRL_LOG_WARNING, NULL);
}
END_TEST

/* A request without an answer is gone when its time limit is over. */
START_TEST(unanswered)
{
	struct frl_connect_config config;
	struct frl_conn *active, *passive;

	frl_connect_config_init(a.device, &config);
	config.timeout_ms = SHORT_MS;
	stub_hold(STUB_BIT(CONN_END));
	ok(frl_connect(a.qp, NULL, "test", NULL, 0, &config, &active));
	passive = next_request();
	let_time_pass(active);
	let_time_pass(passive);
	wait_ended(active, -ETIMEDOUT, "slow to accept");
	wait_ended(passive, -ETIMEDOUT, "30 ms");
	frl_conn_close(active);
	frl_conn_close(passive);
}
END_TEST

START_TEST(self)
{
	struct frl_conn *active, *passive;
	struct frl_qp *other;
	char data[8];

	other = add_qp(&b);
	active = ask(other, "test");
	passive = next_request();
	ok(frl_accept(passive, b.qp, "x", 1, NULL));
	ok(frl_conn_wait(active, HANG_MS));
	ok(frl_conn_wait(passive, HANG_MS));
	ck_assert_uint_eq(frl_conn_private_data(active, data, 8), 1);
	ck_assert_uint_eq(frl_conn_private_data(passive, data, 8), 8);
	frl_conn_close(active);
	wait_ended(passive, -ECONNRESET, "closed");
	frl_conn_close(passive);
	frl_qp_destroy(other);
}
END_TEST

/* Both request at the same time. */
START_TEST(crosswise)
{
	struct frl_conn *active[2], *passive[2];
	struct frl_listener *other;
	struct frl_qp *qps[2];

	ok(frl_listen(a.device, NULL, NULL, &other));
	ck_assert_str_eq(frl_listener_service(other), "chosen");
	qps[0] = add_qp(&a);
	qps[1] = add_qp(&b);
	active[0] = ask(a.qp, "test");
	active[1] = ask(b.qp, "chosen");
	passive[0] = next_request();
	ok(frl_wait_request(other, HANG_MS, &passive[1]));
	ok(frl_accept(passive[0], qps[1], NULL, 0, NULL));
	ok(frl_accept(passive[1], qps[0], NULL, 0, NULL));
	for (int i = 0; i < 2; i++) {
		ok(frl_conn_wait(active[i], HANG_MS));
		ok(frl_conn_wait(passive[i], HANG_MS));
	}
	frl_qp_destroy(qps[0]);
	frl_qp_destroy(qps[1]);
	for (int i = 0; i < 2; i++) {
		wait_ended(active[i], -ECONNRESET, "destroyed");
		frl_conn_close(active[i]);
		wait_ended(passive[i], -ECANCELED, "this end");
		frl_conn_close(passive[i]);
	}
	frl_listener_close(other);
}
END_TEST

START_TEST(many)
{
	struct frl_listen_config config;
	struct frl_conn *active[MANY], *passive[MANY];
	struct frl_listener *other;
	struct frl_qp *qps[MANY];

	frl_listen_config_init(&config);
	config.backlog = MANY - 1;
	ok(frl_listen(b.device, "many", &config, &other));
	for (int i = 0; i < MANY; i++) {
		qps[i] = add_qp(&a);
		active[i] = ask(qps[i], "many");
	}
	for (int i = 0; i < MANY - 1; i++)
		ok(frl_wait_request(other, HANG_MS, &passive[i]));
	wait_ended(active[MANY - 1], -ECONNREFUSED, "299 requests");
	ck_assert_int_eq(frl_get_request(other, &passive[MANY - 1]), -EAGAIN);
	for (int i = 0; i < MANY - 2; i++)
		frl_conn_close(passive[i]);
	for (int i = 0; i < MANY - 2; i++)
		wait_ended(active[i], -ECONNREFUSED, "not answered");
	/* There is room again. */
	frl_conn_close(active[0]);
	active[0] = ask(qps[0], "many");
	ok(frl_wait_request(other, HANG_MS, &passive[0]));
	frl_conn_close(passive[0]);
	/* Its listener is gone, and it can still be answered. */
	frl_listener_close(other);
	ok(frl_accept(passive[MANY - 2], b.qp, NULL, 0, NULL));
	ok(frl_conn_wait(active[MANY - 2], HANG_MS));
	frl_conn_close(passive[MANY - 2]);
	for (int i = 0; i < MANY; i++) {
		frl_conn_close(active[i]);
		frl_qp_destroy(qps[i]);
	}
}
END_TEST

/* Queue pairs that are destroyed while a connection owns them. */
START_LOOP_TEST(destroyed, 2)
{
	struct frl_conn *active, *passive;

	active = ask(a.qp, "test");
	passive = next_request();
	if (_i) {
		stub_hold(STUB_BIT(CONN_REPLY));
		ok(frl_accept(passive, b.qp, NULL, 0, NULL));
		ck_assert(stub_wait(CTL__ENVELOPE__BODY_CONN_REPLY, 1));
		frl_qp_destroy(b.qp);
		b.qp = add_qp(&b);
		wait_ended(passive, -ECANCELED, "this end");
		wait_ended(active, -ECONNRESET, "cancelled");
		stub_hold(0);
	} else {
		frl_qp_destroy(a.qp);
		a.qp = add_qp(&a);
		wait_ended(active, -ECANCELED, "this end");
		wait_ended(passive, -ECONNRESET, "cancelled");
	}
	frl_conn_close(active);
	frl_conn_close(passive);
	meet(&active, &passive);
	move_data();
	frl_conn_close(active);
	frl_conn_close(passive);
}
END_TEST

START_TEST(closed_listener)
{
	struct frl_conn *active;

	active = ask(a.qp, "test");
	ck_assert(becomes_readable(frl_listener_fd(listener)));
	frl_listener_close(listener);
	refused(frl_conn_wait(active, HANG_MS), -ECONNREFUSED, "has been closed");
	frl_conn_close(active);
	ok(frl_listen(b.device, "test", NULL, &listener));
}
END_TEST

TEST_MAIN(cm)
{
	return run(all_tests(begin, end));
}
