/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The states of a connection.
 *
 * 	active:  REQUESTING --ConnReply--> CONNECTING --connected: ConnReady--> ESTABLISHED
 * 	passive: REQUESTED --frl_accept()--> CONNECTING --in RTS: ConnReply-->
 * 	         --connected, ConnReady arrived--> ESTABLISHED
 * 	both:    any state --> ENDED
 *
 * The control client's thread steps setups every millisecond. All states before ESTABLISHED have a
 * deadline.
 */
#include "lib/api/cm/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/limit.h"
#include "lib/wire/packet.h"

enum {
	NS_PER_MS = 1000000,
	/* The daemon watches the time too, and its error is more precise: let it be first. */
	GRACE_MS = 50,
	LOG_MS = 1000, /* at most one log line about waits in this time */
	MAX_TIMEOUT = 31,
	MAX_RETRIES = 7,
	MAX_RNR_TIMER = 31,
	DRAIN_ROUNDS = 256, /* polls of the device for data sent before the peer closed */
};

struct frl_conn *conn_new(struct frl_device *device)
{
	struct frl_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->device = device;
	conn->event_fd.fd = -1;
	list_init(&conn->node);
	list_init(&conn->of_listener);
	pthread_cond_init(&conn->changed, NULL);
	device_enter_first(device);
	device->objects++;
	device_leave(device);
	return conn;
}

void conn_free(struct frl_conn *conn)
{
	device_enter_first(conn->device);
	conn->device->objects--;
	device_leave(conn->device);
	event_fd_fini(&conn->event_fd);
	pthread_cond_destroy(&conn->changed);
	free(conn);
}

struct frl_conn *conn_find(const ProtobufCBinaryData *uuid, bool passive)
{
	struct conn_key key = { .passive = passive };
	struct frl_conn *conn;

	if (uuid->len != UUID_SIZE)
		return NULL;
	memcpy(key.uuid, uuid->data, UUID_SIZE);
	HASH_FIND(hh, cm.conns, &key, sizeof(key), conn);
	return conn;
}

int conn_add(struct frl_conn *conn)
{
	HASH_ADD(hh, cm.conns, key, sizeof(conn->key), conn);
	return hash_added(&conn->hh) ? 0 : frl_fail(-ENOMEM, "no memory for a connection");
}

static uint64_t next_ns(const struct frl_conn *conn)
{
	uint64_t due_ns = conn->reminder.due_ns;

	return due_ns < conn->deadline_ns ? due_ns : conn->deadline_ns;
}

static void move_to(struct list *list, struct frl_conn *conn)
{
	list_remove(&conn->node);
	list_add_tail(list, &conn->node);
	if (list == &cm.waiting && next_ns(conn) < cm.next_deadline_ns)
		cm.next_deadline_ns = next_ns(conn);
	control_wake();
}

void conn_wait(struct frl_conn *conn, int timeout_ms)
{
	conn->timeout_ms = timeout_ms;
	conn->deadline_ns = limit_after_ms(clock_now_ns(), (unsigned)timeout_ms + GRACE_MS);
	conn->reminder = reminder_start(clock_now_ns());
	move_to(&cm.waiting, conn);
}

void conn_notify(struct frl_conn *conn)
{
	conn->is_unreported = true;
	event_fd_set(&conn->event_fd, true);
	pthread_cond_broadcast(&conn->changed);
}

static bool params_are_valid(const Ctl__ConnParams *p)
{
	return p->path_mtu >= 256 && p->path_mtu <= WIRE_MAX_MTU &&
		!(p->path_mtu & (p->path_mtu - 1)) && p->max_rd_atomic <= FRL_MAX_RD_ATOMIC &&
		p->max_dest_rd_atomic <= FRL_MAX_RD_ATOMIC && p->timeout <= MAX_TIMEOUT &&
		p->retry_cnt <= MAX_RETRIES && p->rnr_retry <= MAX_RETRIES &&
		p->min_rnr_timer <= MAX_RNR_TIMER;
}

static uint32_t lower(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static uint8_t higher(uint32_t a, uint32_t b)
{
	return (uint8_t)(a > b ? a : b);
}

/* Returns the longer timeout; code 0 is the longest. */
static uint8_t longer(uint32_t a, uint32_t b)
{
	return a && b ? higher(a, b) : 0;
}

/* Computes the same terms at both ends: one end's sends match the other end's receives. */
static void agree(struct frl_qp_attr *terms, const Ctl__ConnParams *p)
{
	terms->path_mtu = lower(terms->path_mtu, p->path_mtu);
	terms->capabilities &= p->capabilities;
	terms->max_rd_atomic = (uint8_t)lower(terms->max_rd_atomic, p->max_dest_rd_atomic);
	terms->max_dest_rd_atomic = (uint8_t)lower(terms->max_dest_rd_atomic, p->max_rd_atomic);
	terms->timeout = longer(terms->timeout, p->timeout);
	terms->min_rnr_timer = longer(terms->min_rnr_timer, p->min_rnr_timer);
	terms->retry_cnt = higher(terms->retry_cnt, p->retry_cnt);
	terms->rnr_retry = higher(terms->rnr_retry, p->rnr_retry);
}

int conn_take_endpoint(
	struct frl_conn *conn, const ProtobufCBinaryData *endpoint, const Ctl__ConnParams *params)
{
	struct endpoint decoded;
	int rc;

	if (endpoint->len != FRL_ENDPOINT_SIZE || !params || !params_are_valid(params))
		return frl_fail(-EPROTO, "the peer's connection parameters are invalid");
	memcpy(conn->theirs.bytes, endpoint->data, FRL_ENDPOINT_SIZE);
	rc = endpoint_decode(&conn->theirs, &decoded);
	if (rc)
		return rc;
	conn->params = *params;
	conn->peer.qpn = decoded.qpn;
	conn->peer.ip = decoded.addresses[0].ip;
	return 0;
}

void conn_take_peer(struct frl_conn *conn, const Ctl__Who *who, const ProtobufCBinaryData *data)
{
	if (who) {
		cm_copy_text(conn->peer.host, sizeof(conn->peer.host), who->host);
		cm_copy_text(conn->peer.program, sizeof(conn->peer.program), who->program);
		conn->peer.pid = who->pid;
		conn->peer.uid = who->uid;
		cm_copy_text(conn->peer_address, sizeof(conn->peer_address), who->address);
		conn->peer_instance = who->instance;
	}
	conn->peer_size = data->len < sizeof(conn->peer_data) ? data->len : sizeof(conn->peer_data);
	if (conn->peer_size)
		memcpy(conn->peer_data, data->data, conn->peer_size);
}

/*
 * Polls the device after the peer has closed. Its last packets may have arrived but not been
 * handled; without its last acknowledgements, requests would fail that the peer has completed.
 */
static void drain_device(struct frl_device *device)
{
	for (int i = 0; i < DRAIN_ROUNDS && device_poll(device); i++)
		continue;
}

/* Releases the queue pair, and moves it to ERR if there was a connection. */
static void release_qp(struct frl_conn *conn, enum conn_state was, bool wanted)
{
	static const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };
	struct frl_qp *qp = conn->qp;

	if (!qp)
		return;
	device_enter_first(conn->device);
	qp->connecting = false;
	if (was == CONN_CONNECTING)
		connecting_abandon(&conn->connecting);
	if (was == CONN_CONNECTING || was == CONN_ESTABLISHED) {
		if (!wanted && was == CONN_ESTABLISHED)
			drain_device(conn->device);
		if (!wanted)
			qp_fail_held(qp, conn->error, conn->reason);
		else if (qp_state(qp) != FRL_QPS_RESET)
			(void)modify_qp_once(qp, &attr, FRL_QP_STATE);
	}
	device_leave(conn->device);
}

static void end(struct frl_conn *conn, int error, const char *reason, bool wanted)
{
	enum conn_state was = conn->state;

	conn->state = CONN_ENDED;
	conn->error = error;
	cm_copy_text(conn->reason, sizeof(conn->reason), reason);
	list_remove(&conn->node);
	if (hash_added(&conn->hh))
		HASH_DELETE(hh, cm.conns, conn);
	listener_remove(conn);
	release_qp(conn, was, wanted);
	if (conn->fetched)
		conn_notify(conn);
	else
		conn_free(conn);
}

void conn_end(struct frl_conn *conn, int error, const char *reason)
{
	if (conn->state != CONN_ENDED)
		end(conn, error, reason, false);
}

static void notify_peer(const struct frl_conn *conn, int error, const char *reason)
{
	if (conn->key.passive || conn->sent)
		cm_send_end(&conn->key, error, reason, NULL, 0);
}

void conn_fail(struct frl_conn *conn, int error, const char *reason)
{
	char text[CM_REASON];

	if (conn->state == CONN_ENDED)
		return;
	/* Copy: `reason` may be the last error, which sending overwrites. */
	cm_copy_text(text, sizeof(text), reason);
	notify_peer(conn, error, text);
	end(conn, error, text, false);
}

void conn_close(struct frl_conn *conn, int error, const char *reason)
{
	if (conn->state == CONN_ENDED)
		return;
	notify_peer(conn, error, reason);
	end(conn, ECANCELED, "this end has closed the connection", true);
}

static void establish(struct frl_conn *conn)
{
	conn->state = CONN_ESTABLISHED;
	conn->was_established = true;
	list_remove(&conn->node);
	device_enter_first(conn->device);
	conn->qp->connecting = false;
	device_leave(conn->device);
	conn_notify(conn);
}

static bool is_connected(const struct frl_conn *conn)
{
	return conn->connecting.stage == CONNECTING_DONE;
}

/* This end is ready. */
static void handle_connected(struct frl_conn *conn)
{
	if (conn->key.passive) {
		if (conn->peer_ready)
			establish(conn);
		else
			move_to(&cm.waiting, conn);
		return;
	}
	if (cm_send_ready(conn))
		conn_fail(conn, ENOTCONN, frl_last_error());
	else
		establish(conn);
}

static int step(struct frl_conn *conn)
{
	int rc;

	device_enter_first(conn->device);
	device_poll(conn->device);
	rc = connecting_step(&conn->connecting);
	device_leave(conn->device);
	return rc;
}

void conn_step(struct frl_conn *conn)
{
	int rc = step(conn);

	if (rc && rc != -EAGAIN) {
		conn_fail(conn, -rc, frl_last_error());
		return;
	}
	/*
	 * The peer needs the reply to create its end of the link, and may send at once after that.
	 */
	if (conn->key.passive && !conn->sent && conn->connecting.stage >= CONNECTING_PEER) {
		conn->sent = true;
		if (cm_send_reply(conn)) {
			conn_fail(conn, ENOTCONN, frl_last_error());
			return;
		}
	}
	if (!rc)
		handle_connected(conn);
}

void conn_connect(struct frl_conn *conn)
{
	int rc;

	agree(&conn->terms, &conn->params);
	rc = connecting_begin(&conn->connecting, conn->qp, &conn->theirs, &conn->terms);
	if (rc) {
		conn_fail(conn, -rc, frl_last_error());
		return;
	}
	conn->peer.ip = conn->connecting.remote_ip;
	conn->state = CONN_CONNECTING;
	move_to(&cm.setups, conn);
	conn_step(conn);
}

void conn_handle_ready(struct frl_conn *conn)
{
	conn->peer_ready = true;
	if (is_connected(conn))
		establish(conn);
}

static const char *host_of(const struct frl_conn *conn)
{
	return *conn->host ? conn->host : "this host";
}

/* Ends a connection after its deadline; the error names what it waited for. */
static void time_out(struct frl_conn *conn)
{
	int ms = conn->timeout_ms, rc = -ETIMEDOUT;

	switch (conn->state) {
	case CONN_REQUESTED:
		frl_fail(rc, "the service '%s' did not answer the request within %d ms",
			conn->service, ms);
		break;
	case CONN_REQUESTING:
		if (conn->sent)
			frl_fail(rc,
				"the service '%s' on %s did not answer within %d ms: its process "
				"is slow to accept, or its daemon is unreachable",
				conn->service, host_of(conn), ms);
		else
			frl_fail(rc, "no control daemon could be reached within %d ms", ms);
		break;
	case CONN_CONNECTING:
		if (is_connected(conn)) {
			frl_fail(rc, "the peer did not get ready within %d ms", ms);
			break;
		}
		device_enter_first(conn->device);
		rc = connecting_time_out(&conn->connecting, ms);
		device_leave(conn->device);
		break;
	case CONN_ESTABLISHED:
	case CONN_ENDED: return;
	}
	conn_fail(conn, -rc, frl_last_error());
}

/* Logs one connection for all that wait. */
static void remind(struct frl_conn *conn, uint64_t now_ns)
{
	if (!reminder_is_due(&conn->reminder, now_ns) || conn->state == CONN_REQUESTED ||
		(cm.logged_ns && now_ns - cm.logged_ns < LOG_MS * UINT64_C(1000000)))
		return;
	cm.logged_ns = now_ns;
	if (conn->state == CONN_CONNECTING)
		frl_log(FRL_LOG_WARNING, "service '%s' on %s: waiting for the peer's queue pair",
			conn->service, host_of(conn));
	else if (conn->sent)
		frl_log(FRL_LOG_WARNING,
			"service '%s' on %s: waiting for an answer of its process, or of its "
			"daemon",
			conn->service, host_of(conn));
	else
		frl_log(FRL_LOG_WARNING,
			"service '%s' on %s: waiting for the control daemon of this host",
			conn->service, host_of(conn));
}

static void check_deadlines(struct list *list, uint64_t now_ns)
{
	for (struct list *node = list->next, *next; node != list; node = next) {
		struct frl_conn *conn = container_of(node, struct frl_conn, node);

		next = node->next;
		if (now_ns >= conn->deadline_ns)
			time_out(conn);
		else
			remind(conn, now_ns);
	}
}

static void step_all(void)
{
	for (struct list *node = cm.setups.next, *next; node != &cm.setups; node = next) {
		next = node->next;
		conn_step(container_of(node, struct frl_conn, node));
	}
}

static uint64_t first_deadline(const struct list *list)
{
	uint64_t first_ns = UINT64_MAX;

	for (const struct list *node = list->next; node != list; node = node->next) {
		uint64_t ns = next_ns(container_of(node, struct frl_conn, node));

		first_ns = ns < first_ns ? ns : first_ns;
	}
	return first_ns;
}

uint64_t cm_conns_tick(uint64_t now_ns)
{
	step_all();
	check_deadlines(&cm.setups, now_ns);
	if (now_ns >= cm.next_deadline_ns) {
		check_deadlines(&cm.waiting, now_ns);
		cm.next_deadline_ns = first_deadline(&cm.waiting);
	}
	return list_empty(&cm.setups) ? cm.next_deadline_ns : now_ns + NS_PER_MS;
}
