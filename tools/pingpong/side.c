/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connection setup, and the control connection, over which the ends exchange the plan and wait for
 * each other. The client requests each connection, with struct greeting as private data.
 */
#include "tools/pingpong/pingpong.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <sys/random.h>

enum {
	FAREWELL_MS = 5000,
	RETRY_MS = 20,
	SAY_MS = 2000, /* time after which a missing server is reported */
	SIDE_DEPTH = 2,
};

static const uint64_t greeting_magic = 0x4665725070003200; /* also detects another byte order */

static uint64_t in_ms(int ms)
{
	return now_ns() + (uint64_t)ms * 1000000;
}

static void connect_config(struct link *link, struct frl_connect_config *ret_config)
{
	frl_connect_config_init(link->device, ret_config);
	ret_config->timeout_ms = link->wait_ms;
}

static bool is_greeting(const struct link *link, struct frl_conn *conn, struct greeting *ret)
{
	return frl_conn_private_data(conn, ret, sizeof(*ret)) == sizeof(*ret) &&
		ret->magic == greeting_magic && (!link->token || ret->token == link->token);
}

/* ---- the client connects */

/*
 * Returns whether to try again: the server may start soon. A rejection by the server has private
 * data.
 */
static bool may_come(struct frl_conn *conn, int rc)
{
	return rc == -ECONNREFUSED && !frl_conn_private_data(conn, NULL, 0);
}

int link_ask(
	struct link *link, struct frl_qp *qp, struct greeting *greeting, struct frl_conn **ret_conn)
{
	const struct timespec pause = { .tv_nsec = RETRY_MS * 1000000 };
	uint64_t limit = in_ms(link->wait_ms), say_at = in_ms(SAY_MS);
	struct frl_connect_config config;
	struct greeting answer;
	int rc;

	connect_config(link, &config);
	greeting->magic = greeting_magic;
	greeting->token = link->token;
	for (;;) {
		rc = frl_connect(qp, link->host, link->service, greeting, sizeof(*greeting),
			&config, ret_conn);
		if (rc)
			break;
		rc = frl_conn_wait(*ret_conn, -1);
		if (!rc || !may_come(*ret_conn, rc) || now_ns() >= limit)
			break;
		if (now_ns() >= say_at) {
			say("waiting for service %s on %s: %s", link->service,
				*link->host ? link->host : "this host", frl_last_error());
			say_at = UINT64_MAX;
		}
		frl_conn_close(*ret_conn);
		*ret_conn = NULL;
		nanosleep(&pause, NULL);
	}
	if (rc) {
		say_failure(rc, "cannot connect to service %s on %s", link->service,
			*link->host ? link->host : "this host");
		return rc;
	}
	if (!is_greeting(link, *ret_conn, &answer)) {
		say("the server has another version of this program");
		return -EPROTO;
	}
	*greeting = answer;
	return 0;
}

/* ---- the server answers */

static int reject(struct frl_conn *conn, const char *reason)
{
	frl_reject(conn, reason, "", 1);
	frl_conn_close(conn);
	return 0;
}

int link_answer(
	struct link *link, struct frl_qp *qp, struct greeting *greeting, struct frl_conn **ret_conn)
{
	struct frl_connect_config config;
	struct greeting question;
	struct frl_conn *conn;
	int rc;

	for (;;) {
		rc = frl_wait_request(link->listener, link->token ? link->wait_ms : -1, &conn);
		if (rc) {
			say_failure(rc, "cannot wait for the client");
			return rc;
		}
		if (is_greeting(link, conn, &question))
			break;
		reject(conn,
			link->token ? "the server is busy with another client"
				    : "the server has another version of this program");
	}
	link->token = question.token;
	greeting->magic = greeting_magic;
	greeting->token = link->token;
	*ret_conn = conn;
	connect_config(link, &config);
	rc = frl_accept(conn, qp, greeting, sizeof(*greeting), &config);
	if (!rc)
		rc = frl_conn_wait(conn, -1);
	if (rc)
		say_failure(rc, "cannot connect to the client");
	*greeting = question;
	return rc;
}

/* ---- the control connection */

static int make_side(struct link *link)
{
	struct frl_qp_config config = { .max_send_wr = SIDE_DEPTH, .max_recv_wr = SIDE_DEPTH };
	struct side *side = &link->side;
	int rc = frl_reg_mr(
		link->pd, side->buffers, sizeof(side->buffers), FRL_ACCESS_LOCAL_WRITE, &side->mr);

	if (!rc)
		rc = frl_cq_create(link->device, 2 * SIDE_DEPTH, &side->cq);
	if (!rc) {
		config.send_cq = side->cq;
		config.recv_cq = side->cq;
		rc = frl_qp_create(link->pd, &config, &side->qp);
	}
	if (rc)
		say_failure(rc, "cannot create a queue pair");
	return rc;
}

static int offer(struct link *link, bool announce)
{
	int rc = frl_listen(link->device, link->service, NULL, &link->listener);

	if (rc)
		say_failure(rc, "cannot offer service %s", link->service);
	if (rc || !announce)
		return rc;
	printf("waiting for a client of service %s\n", link->service);
	fflush(stdout);
	return 0;
}

int side_connect(struct link *link, bool announce)
{
	struct greeting greeting = { 0 };
	int rc = make_side(link);

	if (!rc && link->rank == SERVER)
		rc = offer(link, announce);
	if (rc)
		return rc;
	if (link->rank == SERVER)
		return link_answer(link, link->side.qp, &greeting, &link->side.conn);
	if (getrandom(&link->token, sizeof(link->token), 0) != sizeof(link->token)) {
		say("no random numbers from the kernel");
		return -EIO;
	}
	link->token |= 1; /* not 0 */
	return link_ask(link, link->side.qp, &greeting, &link->side.conn);
}

static int post_both(struct link *link, size_t size)
{
	struct side *side = &link->side;
	struct frl_sge from = { side->buffers[0], (uint32_t)size, frl_mr_lkey(side->mr) };
	struct frl_sge to = { side->buffers[1], SIDE_BYTES, frl_mr_lkey(side->mr) };
	struct frl_recv_wr recv = { .sge = &to, .n_sge = 1 };
	struct frl_send_wr send = {
		.opcode = FRL_WR_SEND, .flags = FRL_SEND_SIGNALED, .sge = &from, .n_sge = 1
	};
	int rc = frl_post_recv(side->qp, &recv, 1, NULL);

	return rc < 0 ? rc : frl_post_send(side->qp, &send, 1, NULL);
}

static int bad_exchange(struct link *link, int n, const struct frl_wc *wc)
{
	if (n > 0 && wc->status != FRL_WC_SUCCESS)
		return link_fail(link, link->side.conn, link->side.qp, wc);
	if (link_check_peer(link))
		return -ECONNRESET;
	if (n < 0)
		say_failure(n, "cannot poll for completions");
	else
		say("the peer sent an invalid message of %u bytes", wc->byte_len);
	return -EIO;
}

static bool is_message(const struct frl_wc *wc, size_t size)
{
	return wc->status == FRL_WC_SUCCESS && wc->opcode == FRL_WC_RECV && wc->byte_len == size;
}

/*
 * Waits until the peer's message has arrived and the own one is acknowledged. Drives the device
 * meanwhile, because the peer may need the measured connection to get here. The peer may exit right
 * after it has sent its message, so the acknowledgement of the own one may be missing.
 */
static int wait_both(struct link *link, size_t size)
{
	bool received = false, sent = false;

	while (!received || !sent) {
		/*
		 * Look at the connection before the queue: messages from before the end are then
		 * found.
		 */
		bool alive = frl_conn_test(link->side.conn) == 0;
		struct frl_wc wc = { 0 };
		int n = frl_poll_cq(link->side.cq, 1, &wc);

		if (n > 0 && is_message(&wc, size))
			received = true;
		else if (n > 0 && wc.status == FRL_WC_SUCCESS && wc.opcode == FRL_WC_SEND)
			sent = true;
		else if (n == 0 && alive)
			frl_backoff_idle(&link->backoff);
		else if (received)
			return 0;
		else
			return bad_exchange(link, n, &wc);
		if (n > 0)
			frl_backoff_reset(&link->backoff);
	}
	return 0;
}

int side_exchange(struct link *link, const void *mine, size_t size, void *theirs)
{
	int rc;

	memcpy(link->side.buffers[0], mine, size);
	rc = post_both(link, size);
	if (rc < 0) {
		if (!link_check_peer(link))
			say_failure(rc, "cannot notify the peer");
		return rc;
	}
	rc = wait_both(link, size);
	if (!rc)
		memcpy(theirs, link->side.buffers[1], size);
	return rc;
}

void side_farewell(struct link *link)
{
	uint64_t limit = in_ms(FAREWELL_MS);
	struct frl_backoff backoff;

	if (link->rank == CLIENT)
		return;
	frl_backoff_reset(&backoff);
	while (!frl_conn_test(link->side.conn) && now_ns() < limit) {
		frl_progress(link->device);
		frl_backoff_idle(&backoff);
	}
}

void side_close(struct link *link)
{
	struct side *side = &link->side;

	frl_conn_close(side->conn);
	frl_listener_close(link->listener);
	frl_qp_destroy(side->qp);
	frl_cq_destroy(side->cq);
	frl_dereg_mr(side->mr);
}
