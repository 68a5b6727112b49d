/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between connection management and the daemon. Nothing is posted without a daemon: unsent
 * requests are posted when one comes. A restarted daemon is sent the state that it cannot know.
 * Setups through a lost daemon fail.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/api/cm/cm.h"
#include "lib/base/error.h"
#include "lib/base/random.h"

static bool on_message(struct control_handler *handler, const Ctl__Envelope *envelope);
static void on_up(struct control_handler *handler, bool again);
static void on_down(struct control_handler *handler, int error, const char *why);
static uint64_t on_tick(struct control_handler *handler, uint64_t now_ns);

struct cm cm = {
	.life = PTHREAD_MUTEX_INITIALIZER,
	.mutex = PTHREAD_MUTEX_INITIALIZER,
	.handler = { .message = on_message, .up = on_up, .down = on_down, .tick = on_tick },
	.setups = { &cm.setups, &cm.setups },
	.waiting = { &cm.waiting, &cm.waiting },
	.next_deadline_ns = UINT64_MAX,
	.listeners = { &cm.listeners, &cm.listeners },
};

int cm_acquire(void)
{
	bool unreachable;
	int rc = 0;

	pthread_mutex_lock(&cm.life);
	pthread_mutex_lock(&cm.mutex);
	hash_seed(random_entropy(), random_entropy());
	unreachable = cm.unreachable;
	cm.unreachable = 0;
	pthread_mutex_unlock(&cm.mutex);
	if (!cm.users || unreachable)
		rc = control_register(&cm.handler, CONTROL_START);
	if (!rc)
		cm.users++;
	pthread_mutex_unlock(&cm.life);
	return rc;
}

void cm_release(void)
{
	pthread_mutex_lock(&cm.life);
	if (--cm.users == 0) {
		control_unregister(&cm.handler);
		pthread_mutex_lock(&cm.mutex);
		cm.up = false;
		cm.unreachable = 0;
		pthread_mutex_unlock(&cm.mutex);
	}
	pthread_mutex_unlock(&cm.life);
}

void cm_copy_text(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from ? from : "");
	frame_clean_text(to);
}

int cm_error(uint32_t error)
{
	return error == EAGAIN || error == EINPROGRESS ? EPROTO : (int)error;
}

int cm_post(const Ctl__Envelope *envelope)
{
	if (!cm.up)
		return frl_fail(-ENOTCONN, "the control daemon is gone");
	return control_post(envelope, -1);
}

static ProtobufCBinaryData bytes_of(const void *data, size_t size)
{
	/* The cast is safe: packing only reads the data. */
	return (ProtobufCBinaryData){ .len = size, .data = (uint8_t *)(uintptr_t)data };
}

static ProtobufCBinaryData uuid_of(const struct conn_key *key)
{
	return bytes_of(key->uuid, UUID_SIZE);
}

static void fill_params(const struct frl_qp_attr *attr, Ctl__ConnParams *params)
{
	ctl__conn_params__init(params);
	params->path_mtu = attr->path_mtu;
	params->capabilities = attr->capabilities;
	params->max_rd_atomic = attr->max_rd_atomic;
	params->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	params->timeout = attr->timeout;
	params->retry_cnt = attr->retry_cnt;
	params->rnr_retry = attr->rnr_retry;
	params->min_rnr_timer = attr->min_rnr_timer;
	params->traffic_class = attr->ah.traffic_class;
}

int cm_send_request(struct frl_conn *conn)
{
	Ctl__ConnRequest request = CTL__CONN_REQUEST__INIT;
	Ctl__ConnParams params;
	Ctl__Envelope envelope;
	int rc;

	fill_params(&conn->terms, &params);
	request.uuid = uuid_of(&conn->key);
	request.host = conn->host;
	request.service = conn->service;
	request.port = conn->port;
	request.endpoint = bytes_of(conn->mine.bytes, FRL_ENDPOINT_SIZE);
	request.private_data = bytes_of(conn->private_data, conn->private_size);
	request.params = &params;
	request.any_user = conn->any_user;
	/* 0 would mean the default. */
	request.timeout_ms = conn->timeout_ms ? (uint32_t)conn->timeout_ms : 1;
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_CONN_REQUEST;
	envelope.conn_request = &request;
	rc = cm_post(&envelope);
	conn->sent = !rc;
	return rc;
}

int cm_send_reply(const struct frl_conn *conn)
{
	Ctl__ConnReply reply = CTL__CONN_REPLY__INIT;
	Ctl__ConnParams params;
	Ctl__Envelope envelope;

	fill_params(&conn->connecting.attr, &params);
	reply.uuid = uuid_of(&conn->key);
	reply.endpoint = bytes_of(conn->mine.bytes, FRL_ENDPOINT_SIZE);
	reply.private_data = bytes_of(conn->private_data, conn->private_size);
	reply.params = &params;
	reply.port = conn->port;
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_CONN_REPLY;
	envelope.conn_reply = &reply;
	return cm_post(&envelope);
}

int cm_send_ready(const struct frl_conn *conn)
{
	Ctl__ConnReady ready = CTL__CONN_READY__INIT;
	Ctl__Envelope envelope;

	ready.uuid = uuid_of(&conn->key);
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_CONN_READY;
	envelope.conn_ready = &ready;
	return cm_post(&envelope);
}

void cm_send_end(
	const struct conn_key *from, int error, const char *reason, const void *data, size_t size)
{
	Ctl__ConnEnd end = CTL__CONN_END__INIT;
	Ctl__Envelope envelope;

	end.uuid = uuid_of(from);
	end.to_passive = !from->passive;
	end.error = (uint32_t)error;
	end.reason = (char *)(uintptr_t)reason;
	end.private_data = bytes_of(data, size);
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_CONN_END;
	envelope.conn_end = &end;
	/* If it does not arrive, the daemon of the other end detects the loss. */
	(void)cm_post(&envelope);
}

static void send_resume(struct frl_conn *conn)
{
	Ctl__ConnResume resume = CTL__CONN_RESUME__INIT;
	Ctl__Who who = CTL__WHO__INIT;
	Ctl__Envelope envelope;

	who.host = conn->peer.host;
	who.program = conn->peer.program;
	who.pid = conn->peer.pid;
	who.uid = conn->peer.uid;
	who.address = conn->peer_address;
	who.instance = conn->peer_instance;
	resume.uuid = uuid_of(&conn->key);
	resume.passive = conn->key.passive;
	resume.port = conn->port;
	resume.qpn = conn->qpn;
	resume.peer_host = conn->peer_address;
	resume.peer_instance = conn->peer_instance;
	resume.service = conn->service;
	resume.who = &who;
	resume.peer_qpn = conn->peer.qpn;
	resume.established = true;
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_CONN_RESUME;
	envelope.conn_resume = &resume;
	(void)cm_post(&envelope);
}

void cm_send_listen(struct frl_listener *listener)
{
	Ctl__Listen listen = CTL__LISTEN__INIT;
	Ctl__Envelope envelope;

	listener->seq = control_next_seq();
	cm_fill_listen(listener, &listen);
	envelope_init(&envelope);
	envelope.seq = listener->seq;
	envelope.body_case = CTL__ENVELOPE__BODY_LISTEN;
	envelope.listen = &listen;
	(void)cm_post(&envelope);
}

static void handle_reply(const Ctl__ConnReply *reply)
{
	struct frl_conn *conn = conn_find(&reply->uuid, false);
	struct conn_key key = { .passive = 0 };

	if (!conn) {
		/* This end gave up meanwhile: notify the other end. */
		if (reply->uuid.len != UUID_SIZE)
			return;
		memcpy(key.uuid, reply->uuid.data, UUID_SIZE);
		cm_send_end(&key, ECONNRESET, "the peer has cancelled the connection", NULL, 0);
		return;
	}
	if (conn->state != CONN_REQUESTING || !conn->sent)
		return;
	conn_take_peer(conn, reply->who, &reply->private_data);
	if (conn_take_endpoint(conn, &reply->endpoint, reply->params))
		conn_fail(conn, EPROTO, frl_last_error());
	else
		conn_connect(conn);
}

static void handle_ready(const Ctl__ConnReady *ready)
{
	struct frl_conn *conn = conn_find(&ready->uuid, true);

	if (conn && conn->state == CONN_CONNECTING && conn->sent)
		conn_handle_ready(conn);
}

static void handle_end(const Ctl__ConnEnd *end)
{
	struct frl_conn *conn = conn_find(&end->uuid, end->to_passive);
	int error = end->error ? cm_error(end->error) : ECONNRESET;

	if (!conn)
		return;
	/* Keep the data of an acceptance. */
	if (conn->state == CONN_REQUESTING)
		conn_take_peer(conn, NULL, &end->private_data);
	conn_end(conn, error, *end->reason ? end->reason : "the peer gave no reason");
}

static bool handle(const Ctl__Envelope *envelope)
{
	switch (envelope->body_case) {
	case CTL__ENVELOPE__BODY_CONN_REQUEST: listener_request(envelope->conn_request); break;
	case CTL__ENVELOPE__BODY_CONN_REPLY: handle_reply(envelope->conn_reply); break;
	case CTL__ENVELOPE__BODY_CONN_READY: handle_ready(envelope->conn_ready); break;
	case CTL__ENVELOPE__BODY_CONN_END: handle_end(envelope->conn_end); break;
	case CTL__ENVELOPE__BODY_LISTENING:
		return listener_confirmed(envelope->seq, envelope->listening);
	case CTL__ENVELOPE__BODY_FAILURE: return listener_refused(envelope->seq, envelope->failure);
	default: return false;
	}
	return true;
}

static bool on_message(struct control_handler *handler, const Ctl__Envelope *envelope)
{
	bool taken;

	pthread_mutex_lock(&cm.mutex);
	taken = handle(envelope);
	pthread_mutex_unlock(&cm.mutex);
	return taken;
}

static void post_listeners(void)
{
	for (struct list *node = cm.listeners.next; node != &cm.listeners; node = node->next) {
		struct frl_listener *listener = container_of(node, struct frl_listener, node);

		if (!listener->error)
			cm_send_listen(listener);
	}
}

static void on_up(struct control_handler *handler, bool again)
{
	struct frl_conn *conn, *next;

	pthread_mutex_lock(&cm.mutex);
	cm.up = true;
	cm.unreachable = 0;
	post_listeners();
	HASH_ITER(hh, cm.conns, conn, next)
	{
		if (conn->state == CONN_ESTABLISHED && again)
			send_resume(conn);
		else if (conn->state == CONN_REQUESTING && !conn->sent && cm_send_request(conn))
			conn_end(conn, ENOTCONN, frl_last_error());
	}
	pthread_mutex_unlock(&cm.mutex);
}

static void on_down(struct control_handler *handler, int error, const char *why)
{
	struct frl_conn *conn, *next;

	pthread_mutex_lock(&cm.mutex);
	cm.up = false;
	cm.unreachable = error < 0 ? -error : error;
	cm_copy_text(cm.why, sizeof(cm.why), why);
	if (error)
		listeners_fail(ENOTCONN, cm.why);
	HASH_ITER(hh, cm.conns, conn, next)
	{
		if (conn->state == CONN_ESTABLISHED)
			continue;
		if (conn->key.passive || conn->sent)
			conn_end(conn, ENOTCONN,
				"the control daemon went away while the connection was being set "
				"up: try again");
		else if (error)
			conn_end(conn, ENOTCONN, cm.why);
	}
	pthread_mutex_unlock(&cm.mutex);
}

static uint64_t on_tick(struct control_handler *handler, uint64_t now_ns)
{
	uint64_t next_ns;

	pthread_mutex_lock(&cm.mutex);
	next_ns = cm_conns_tick(now_ns);
	pthread_mutex_unlock(&cm.mutex);
	return next_ns;
}
