/* SPDX-License-Identifier: BSD-3-Clause */
/* Connection management with a daemon that ends, and with one that sends wrong messages. */
#include "tests/unit/api/cm/cm_fixture.h"
#include "tests/fixtures/program.h"

/* ---- the daemon goes away */

static void restart(void)
{
	stub_stop();
	stub_start();
}

/* Established connections live on, and the next daemon is notified. */
START_TEST(daemon_restarts)
{
	struct frl_conn *active, *passive, *pending, *late;
	struct frl_qp *other, *third;
	Ctl__Envelope *last;

	begin();
	other = add_qp(&a);
	third = add_qp(&a);
	meet(&active, &passive);
	pending = ask(other, "test");
	late = next_request();
	restart();
	wait_ended(pending, -ENOTCONN, "went away");
	wait_ended(late, -ENOTCONN, "went away");
	frl_conn_close(pending);
	frl_conn_close(late);
	ck_assert(stub_wait(CTL__ENVELOPE__BODY_CONN_RESUME, 2));
	ck_assert(stub_wait(CTL__ENVELOPE__BODY_LISTEN, 1));
	last = stub_last(CTL__ENVELOPE__BODY_CONN_RESUME);
	ck_assert(last->conn_resume->established);
	ck_assert_str_eq(last->conn_resume->service, "test");
	ck_assert_str_eq(last->conn_resume->who->program, STUB_PROGRAM);
	ck_assert_uint_eq(
		last->conn_resume->qpn, frl_qp_num(last->conn_resume->passive ? b.qp : a.qp));
	ck_assert_uint_eq(
		last->conn_resume->peer_qpn, frl_qp_num(last->conn_resume->passive ? a.qp : b.qp));
	ctl__envelope__free_unpacked(last, NULL);
	ck_assert_int_eq(frl_conn_test(active), 0);
	move_data();
	/* Its information is enough for more connections, and for the end of these. */
	pending = ask(third, "test");
	late = next_request();
	frl_conn_close(late);
	wait_ended(pending, -ECONNREFUSED, "not answered");
	frl_conn_close(pending);
	frl_conn_close(active);
	wait_ended(passive, -ECONNRESET, "closed");
	frl_conn_close(passive);
	frl_qp_destroy(other);
	frl_qp_destroy(third);
}
END_TEST

/* It no longer offers the service. */
START_TEST(listen_refused)
{
	struct frl_conn *conn;
	struct frl_listener *other;

	begin();
	stub_refuse_listens(EDQUOT);
	refused(frl_listen(a.device, "x", NULL, &other), -EDQUOT, "does not want");
	stub_stop();
	ck_assert_int_eq(frl_get_request(listener, &conn), -EAGAIN);
	stub_refuse_listens(EBUSY);
	stub_start();
	ck_assert(becomes_readable(frl_listener_fd(listener)));
	refused(frl_get_request(listener, &conn), -EBUSY, "does not want");
	refused(frl_wait_request(listener, HANG_MS, &conn), -EBUSY, "does not want");
}
END_TEST

/* The call does not wait for the answer; there is not even a daemon at that time. */
START_TEST(listen_without_waiting)
{
	struct frl_listener *other;
	struct frl_conn *active;

	begin();
	stub_stop();
	ok(frl_listen_start(a.device, NULL, NULL, &other));
	ck_assert_int_eq(frl_listener_test(other), -EAGAIN);
	ck_assert(!readable(frl_listener_fd(other)));
	stub_start();
	ck_assert(becomes_readable(frl_listener_fd(other)));
	ok(frl_listener_test(other));
	ck_assert(!readable(frl_listener_fd(other)));
	ck_assert_str_eq(frl_listener_service(other), "chosen");
	active = ask(b.qp, "chosen");
	ck_assert(becomes_readable(frl_listener_fd(other)));
	frl_conn_close(active);
	frl_listener_close(other);
	stub_refuse_listens(EDQUOT);
	ok(frl_listen_start(a.device, "x", NULL, &other));
	ck_assert(becomes_readable(frl_listener_fd(other)));
	refused(frl_listener_test(other), -EDQUOT, "does not want");
	frl_listener_close(other);
	refused(frl_listener_test(NULL), -EINVAL, "no listener");
}
END_TEST

START_TEST(no_daemon)
{
	struct frl_listener *other;
	struct frl_conn *conn;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	refused(frl_listen(a.device, "x", NULL, &other), -ENOTCONN, "daemon");
	conn = ask(a.qp, "x");
	wait_ended(conn, -ENOTCONN, "daemon");
	frl_conn_close(conn);
	ck_assert_int_eq(state_of(a.qp), FRL_QPS_RESET);
	/* Later there is one. */
	stub_start();
	ok(frl_listen(b.device, "test", NULL, &listener));
	conn = ask(a.qp, "test");
	frl_conn_close(next_request());
	wait_ended(conn, -ECONNREFUSED, "not answered");
	frl_conn_close(conn);
}
END_TEST

/* ---- a daemon, or a peer, that says what it should not */

static void send_end(const Ctl__ConnRequest *request, bool to_passive, int error, const char *why)
{
	Ctl__ConnEnd message = CTL__CONN_END__INIT;
	Ctl__Envelope envelope;

	message.uuid = request->uuid;
	message.to_passive = to_passive;
	message.error = (uint32_t)error;
	message.reason = (char *)(uintptr_t)why;
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_CONN_END;
	envelope.conn_end = &message;
	stub_send(&envelope);
}

static void send_reply(const Ctl__ConnRequest *request, const uint8_t *endpoint, uint32_t path_mtu)
{
	Ctl__ConnReply message = CTL__CONN_REPLY__INIT;
	Ctl__ConnParams params = *request->params;
	Ctl__Envelope envelope;

	message.uuid = request->uuid;
	message.endpoint.len = FRL_ENDPOINT_SIZE;
	message.endpoint.data = (uint8_t *)(uintptr_t)endpoint;
	params.path_mtu = path_mtu;
	message.params = &params;
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_CONN_REPLY;
	envelope.conn_reply = &message;
	stub_send(&envelope);
}

static void send_ready(const Ctl__ConnRequest *request)
{
	Ctl__ConnReady message = CTL__CONN_READY__INIT;
	Ctl__Envelope envelope;

	message.uuid = request->uuid;
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_CONN_READY;
	envelope.conn_ready = &message;
	stub_send(&envelope);
}

/* The number of the latest listener. */
static uint32_t listener_number(void)
{
	Ctl__Envelope *last = stub_last(CTL__ENVELOPE__BODY_LISTEN);
	uint32_t number = last->listen->listener;

	ctl__envelope__free_unpacked(last, NULL);
	return number;
}

static void send_request(const Ctl__ConnRequest *request, uint32_t to)
{
	Ctl__ConnRequest message = *request;
	Ctl__Envelope envelope;

	message.listener = to;
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_CONN_REQUEST;
	envelope.conn_request = &message;
	stub_send(&envelope);
}

START_LOOP_TEST(bad_reply, 2)
{
	static const uint8_t zeros[FRL_ENDPOINT_SIZE];
	struct frl_conn *conn;
	Ctl__Envelope *last;
	unsigned ends;

	begin();
	stub_hold(STUB_BIT(CONN_REQUEST));
	conn = ask(a.qp, "test");
	ck_assert(stub_wait(CTL__ENVELOPE__BODY_CONN_REQUEST, 1));
	last = stub_last(CTL__ENVELOPE__BODY_CONN_REQUEST);
	if (_i)
		send_reply(last->conn_request, b.mine.bytes, 1000);
	else
		send_reply(last->conn_request, zeros, 1024);
	wait_ended(conn, -EPROTO, _i ? "invalid" : "not one of Ferrule");
	ck_assert(stub_wait(CTL__ENVELOPE__BODY_CONN_END, 1));
	frl_conn_close(conn);
	/* A message about a missing object gets an answer, or none. */
	ends = stub_count(CTL__ENVELOPE__BODY_CONN_END);
	send_reply(last->conn_request, b.mine.bytes, 1024);
	ck_assert(stub_wait(CTL__ENVELOPE__BODY_CONN_END, ends + 1));
	send_end(last->conn_request, false, ECONNRESET, "late");
	send_end(last->conn_request, true, ECONNRESET, "late");
	send_ready(last->conn_request);
	ctl__envelope__free_unpacked(last, NULL);
}
END_TEST

/* The peer may request smaller packets than both ports carry. */
START_TEST(smaller_mtu)
{
	struct frl_qp_attr attr;
	struct frl_conn *conn;
	Ctl__Envelope *last;

	begin();
	stub_hold(STUB_BIT(CONN_REQUEST));
	conn = ask(a.qp, "test");
	ck_assert(stub_wait(CTL__ENVELOPE__BODY_CONN_REQUEST, 1));
	last = stub_last(CTL__ENVELOPE__BODY_CONN_REQUEST);
	send_reply(last->conn_request, b.mine.bytes, 512);
	ctl__envelope__free_unpacked(last, NULL);
	for (uint64_t limit_ns = hang_limit_ns();
		state_of(a.qp) != FRL_QPS_RTS && may_wait(limit_ns);)
		;
	frl_qp_query(a.qp, &attr);
	ck_assert_uint_eq(attr.path_mtu, 512);
	ck_assert_int_eq(frl_conn_test(conn), -EAGAIN); /* b makes no link */
	frl_conn_close(conn);
	ck_assert_int_eq(state_of(a.qp), FRL_QPS_ERR);
}
END_TEST

START_TEST(bad_request)
{
	struct frl_conn *conn, *passive, *other;
	Ctl__Envelope *last;

	begin();
	conn = ask(a.qp, "test");
	passive = next_request();
	last = stub_last(CTL__ENVELOPE__BODY_CONN_REQUEST);
	/* The same again; ready before there was an answer. */
	send_request(last->conn_request, listener_number());
	send_ready(last->conn_request);
	send_end(last->conn_request, false, ECANCELED, "an operator's wish");
	wait_ended(conn, -ECANCELED, "operator");
	ck_assert_int_eq(frl_get_request(listener, &other), -EAGAIN);
	ck_assert_int_eq(frl_conn_test(passive), -EAGAIN);
	/* For no listener of the process; damaged. */
	frl_conn_close(passive);
	ck_assert(stub_wait(CTL__ENVELOPE__BODY_CONN_END, 1));
	send_request(last->conn_request, 4711);
	ck_assert(stub_wait(CTL__ENVELOPE__BODY_CONN_END, 2));
	memset(last->conn_request->endpoint.data, 0, 16);
	send_request(last->conn_request, listener_number());
	ck_assert(stub_wait(CTL__ENVELOPE__BODY_CONN_END, 3));
	ctl__envelope__free_unpacked(last, NULL);
	last = stub_last(CTL__ENVELOPE__BODY_CONN_END);
	ck_assert_uint_eq(last->conn_end->error, EPROTO);
	ck_assert(!last->conn_end->to_passive);
	ctl__envelope__free_unpacked(last, NULL);
	ck_assert_int_eq(frl_get_request(listener, &other), -EAGAIN);
	frl_conn_close(conn);
}
END_TEST

/* A peer's process may end its connection with any errno, but not make this end wait for ever. */
START_TEST(senseless_end)
{
	struct frl_conn *conn;
	Ctl__Envelope *last;

	begin();
	stub_hold(STUB_BIT(CONN_REQUEST));
	conn = ask(a.qp, "test");
	ck_assert(stub_wait(CTL__ENVELOPE__BODY_CONN_REQUEST, 1));
	last = stub_last(CTL__ENVELOPE__BODY_CONN_REQUEST);
	send_end(last->conn_request, false, EAGAIN, "so it is");
	ctl__envelope__free_unpacked(last, NULL);
	wait_ended(conn, -EPROTO, "so it is");
	frl_conn_close(conn);
}
END_TEST

/* The end comes while the connection is being made, or later. */
START_LOOP_TEST(ended, 2)
{
	struct frl_conn *active, *passive;
	Ctl__Envelope *last;
	char text[100];

	begin();
	active = ask(a.qp, "test");
	passive = next_request();
	if (!_i)
		stub_hold(STUB_BIT(CONN_REPLY));
	ok(frl_accept(passive, b.qp, NULL, 0, NULL));
	if (_i)
		ok(frl_conn_wait(passive, HANG_MS));
	else
		ck_assert(stub_wait(CTL__ENVELOPE__BODY_CONN_REPLY, 1));
	last = stub_last(CTL__ENVELOPE__BODY_CONN_REQUEST);
	send_end(last->conn_request, true, ECONNRESET, "process 1 has ended");
	send_end(last->conn_request, false, EHOSTDOWN, "");
	ctl__envelope__free_unpacked(last, NULL);
	wait_ended(passive, -ECONNRESET, "process 1 has ended");
	ck_assert_int_eq(state_of(b.qp), FRL_QPS_ERR);
	ck_assert_str_eq(frl_qp_error(b.qp, text, sizeof(text)), "process 1 has ended");
	wait_ended(active, -EHOSTDOWN, "no reason");
	ck_assert_int_eq(state_of(a.qp), _i ? FRL_QPS_ERR : FRL_QPS_RESET);
	frl_conn_close(active);
	frl_conn_close(passive);
}
END_TEST

TEST_MAIN(cm_faults)
{
	return run(all_tests(NULL, end));
}
