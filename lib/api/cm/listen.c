/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners: offered services and their waiting requests. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/api/cm/cm.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/limit.h"

enum {
	DEFAULT_BACKLOG = 1024,
	LISTEN_MS = 5000, /* for the daemon's answer */
};

void frl_listen_config_init(struct frl_listen_config *config)
{
	*config = (struct frl_listen_config){ .backlog = DEFAULT_BACKLOG };
}

static struct frl_listener *find_listener(uint32_t number)
{
	for (struct list *node = cm.listeners.next; node != &cm.listeners; node = node->next) {
		struct frl_listener *listener = container_of(node, struct frl_listener, node);

		if (listener->number == number)
			return listener;
	}
	return NULL;
}

static void notify(struct frl_listener *listener)
{
	event_fd_set(&listener->event_fd,
		listener->error || listener->is_unreported || !list_empty(&listener->queue));
	pthread_cond_broadcast(&listener->changed);
}

void listener_remove(struct frl_conn *conn)
{
	struct frl_listener *listener = conn->listener;

	list_remove(&conn->of_listener);
	conn->listener = NULL;
	if (!listener)
		return;
	listener->waiting--;
	notify(listener);
}

static struct frl_listener *find_by_seq(uint64_t seq)
{
	for (struct list *node = cm.listeners.next; node != &cm.listeners; node = node->next) {
		struct frl_listener *listener = container_of(node, struct frl_listener, node);

		if (seq && listener->seq == seq)
			return listener;
	}
	return NULL;
}

static void fail_listener(struct frl_listener *listener, int error, const char *why)
{
	listener->error = error;
	cm_copy_text(listener->reason, sizeof(listener->reason), why);
	notify(listener);
}

bool listener_refused(uint64_t seq, const Ctl__Failure *failure)
{
	struct frl_listener *listener = find_by_seq(seq);

	if (listener)
		fail_listener(listener, cm_error(failure->error), failure->text);
	return listener != NULL;
}

bool listener_confirmed(uint64_t seq, const Ctl__Listening *listening)
{
	struct frl_listener *listener = find_by_seq(seq);

	if (!listener)
		return false;
	if (!listener->listening) {
		cm_copy_text(listener->service, sizeof(listener->service), listening->service);
		listener->listening = true;
		listener->is_unreported = true;
		notify(listener);
	}
	return true;
}

void listeners_fail(int error, const char *why)
{
	for (struct list *node = cm.listeners.next; node != &cm.listeners; node = node->next) {
		struct frl_listener *listener = container_of(node, struct frl_listener, node);

		if (!listener->listening && !listener->error)
			fail_listener(listener, error, why);
	}
}

/* Takes a request for a listener. On failure the last error has the reason. */
static int take_request(
	struct frl_listener *listener, const struct conn_key *key, const Ctl__ConnRequest *request)
{
	struct frl_conn *conn;
	int rc;

	if (!listener)
		return frl_fail(-ECONNREFUSED, "the service has been closed");
	if (listener->waiting >= listener->backlog)
		return frl_fail(-ECONNREFUSED, "the service '%s' has %u requests waiting already",
			listener->service, listener->waiting);
	conn = conn_new(listener->device);
	if (!conn)
		return frl_fail(-ECONNREFUSED, "the service '%s' has no memory for a connection",
			listener->service);
	conn->key = *key;
	conn->port = listener->port;
	cm_copy_text(conn->service, sizeof(conn->service), listener->service);
	rc = conn_take_endpoint(conn, &request->endpoint, request->params);
	if (rc) {
		conn_free(conn);
		return rc;
	}
	if (conn_add(conn)) {
		conn_free(conn);
		return frl_fail(-ECONNREFUSED, "the service '%s' has no memory for a connection",
			listener->service);
	}
	conn_take_peer(conn, request->who, &request->private_data);
	conn->state = CONN_REQUESTED;
	conn->listener = listener;
	list_add_tail(&listener->queue, &conn->of_listener);
	listener->waiting++;
	conn_wait(conn, request->timeout_ms < INT32_MAX ? (int)request->timeout_ms : INT32_MAX);
	notify(listener);
	return 0;
}

void listener_request(const Ctl__ConnRequest *request)
{
	struct conn_key key = { .passive = 1 };
	int rc;

	if (request->uuid.len != UUID_SIZE || conn_find(&request->uuid, true))
		return;
	memcpy(key.uuid, request->uuid.data, UUID_SIZE);
	rc = take_request(find_listener(request->listener), &key, request);
	if (rc)
		cm_send_end(&key, -rc, frl_last_error(), NULL, 0);
}

void cm_fill_listen(struct frl_listener *listener, Ctl__Listen *listen)
{
	ctl__listen__init(listen);
	listen->service = listener->service;
	listen->port = listener->port;
	listen->backlog = listener->backlog;
	listen->any_user = listener->any_user;
	listen->listener = listener->number;
}

bool service_is_valid(const char *service)
{
	size_t n = strspn(
		service, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

	return !service[n] && n <= FRL_SERVICE_MAX;
}

static int new_listener(struct frl_device *device, const char *service,
	const struct frl_listen_config *config, struct frl_listener **ret_listener)
{
	struct frl_listener *listener = calloc(1, sizeof(*listener));
	int rc;

	if (!listener)
		return frl_fail(-ENOMEM, "no memory for a listener");
	rc = event_fd_create(&listener->event_fd);
	if (rc) {
		free(listener);
		return rc;
	}
	listener->device = device;
	listener->backlog = config->backlog;
	listener->any_user = config->any_user;
	cm_copy_text(listener->service, sizeof(listener->service), service);
	list_init(&listener->node);
	list_init(&listener->queue);
	list_init(&listener->fetched);
	pthread_cond_init(&listener->changed, NULL);
	device_enter(device);
	device->objects++;
	device_leave(device);
	*ret_listener = listener;
	return 0;
}

static void free_listener(struct frl_listener *listener)
{
	device_enter(listener->device);
	listener->device->objects--;
	device_leave(listener->device);
	event_fd_fini(&listener->event_fd);
	pthread_cond_destroy(&listener->changed);
	free(listener);
}

/* Adds the listener to the table before it is posted: requests may follow the answer at once. */
static int announce(struct frl_listener *listener)
{
	int rc = 0;

	pthread_mutex_lock(&cm.mutex);
	listener->number = ++cm.next_listener;
	list_add_tail(&cm.listeners, &listener->node);
	if (cm.up)
		cm_send_listen(listener);
	else if (cm.unreachable)
		rc = frl_fail(-cm.unreachable, "%s", cm.why);
	pthread_mutex_unlock(&cm.mutex);
	return rc;
}

static int check_listen(struct frl_device *device, const char *service,
	const struct frl_listen_config *config, struct frl_listener **ret_listener)
{
	if (!device || !ret_listener)
		return frl_fail(-EINVAL, "frl_listen: device and ret_listener are required");
	if (!service_is_valid(service))
		return frl_fail(-EINVAL,
			"'%s' is not a service: a name has 1 to %d letters, digits, dots, dashes "
			"and underscores",
			service, FRL_SERVICE_MAX);
	if (!config->backlog)
		return frl_fail(-EINVAL, "frl_listen: the backlog must be 1 or more");
	return 0;
}

/* Closes a listener that failed and keeps the last error. */
static int close_failed(struct frl_listener *listener, int rc)
{
	char why[CM_REASON];

	cm_copy_text(why, sizeof(why), frl_last_error());
	frl_listener_close(listener);
	return frl_fail(rc, "%s", why);
}

int frl_listen_start(struct frl_device *device, const char *service,
	const struct frl_listen_config *config, struct frl_listener **ret_listener)
{
	struct frl_listen_config defaults;
	struct frl_listener *listener = NULL;
	int rc;

	frl_listen_config_init(&defaults);
	if (!config)
		config = &defaults;
	if (!service)
		service = "";
	rc = check_listen(device, service, config, ret_listener);
	if (rc)
		return rc;
	rc = new_listener(device, service, config, &listener);
	if (rc)
		return rc;
	rc = publish_require(device, &listener->port);
	if (!rc)
		rc = cm_acquire();
	if (rc) {
		free_listener(listener);
		return rc;
	}
	rc = announce(listener);
	if (rc)
		return close_failed(listener, rc);
	*ret_listener = listener;
	return 0;
}

/* Returns 0, -EAGAIN or the reason. With the mutex held. */
static int test(struct frl_listener *listener)
{
	if (listener->error)
		return frl_fail(-listener->error, "%s", listener->reason);
	if (!listener->listening)
		return -EAGAIN;
	listener->is_unreported = false;
	notify(listener);
	return 0;
}

int frl_listener_test(struct frl_listener *listener)
{
	int rc;

	if (!listener)
		return frl_fail(-EINVAL, "frl_listener_test: there is no listener");
	pthread_mutex_lock(&cm.mutex);
	rc = test(listener);
	pthread_mutex_unlock(&cm.mutex);
	return rc;
}

int frl_listen(struct frl_device *device, const char *service,
	const struct frl_listen_config *config, struct frl_listener **ret_listener)
{
	uint64_t limit_ns = limit_after_ms(clock_now_ns(), LISTEN_MS);
	struct frl_listener *listener = NULL;
	int rc = frl_listen_start(device, service, config, ret_listener ? &listener : NULL);

	if (rc)
		return rc;
	pthread_mutex_lock(&cm.mutex);
	do
		rc = test(listener);
	while (rc == -EAGAIN && cm_sleep(&listener->changed, limit_ns));
	pthread_mutex_unlock(&cm.mutex);
	if (rc == -EAGAIN)
		rc = frl_fail(
			-ETIMEDOUT, "no answer from the control daemon within %d ms", LISTEN_MS);
	if (rc)
		return close_failed(listener, rc);
	*ret_listener = listener;
	return 0;
}

const char *frl_listener_service(const struct frl_listener *listener)
{
	return listener->service;
}

int frl_listener_fd(const struct frl_listener *listener)
{
	return listener->event_fd.fd;
}

static void send_unlisten(const struct frl_listener *listener)
{
	Ctl__Unlisten unlisten = CTL__UNLISTEN__INIT;
	Ctl__Envelope envelope;

	unlisten.listener = listener->number;
	envelope_init(&envelope);
	envelope.body_case = CTL__ENVELOPE__BODY_UNLISTEN;
	envelope.unlisten = &unlisten;
	(void)cm_post(&envelope);
}

void frl_listener_close(struct frl_listener *listener)
{
	if (!listener)
		return;
	pthread_mutex_lock(&cm.mutex);
	list_remove(&listener->node);
	while (!list_empty(&listener->queue))
		conn_fail(container_of(listener->queue.next, struct frl_conn, of_listener),
			ECONNREFUSED, "the service has been closed");
	while (!list_empty(&listener->fetched))
		listener_remove(container_of(listener->fetched.next, struct frl_conn, of_listener));
	send_unlisten(listener);
	pthread_mutex_unlock(&cm.mutex);
	/*
	 * Release before the device may be closed: handlers are called in the order of
	 * registration, and ports must be described before their connections.
	 */
	cm_release();
	free_listener(listener);
}

/* Fetches the next request for the application. With the mutex held. */
static int fetch(struct frl_listener *listener, struct frl_conn **ret_conn)
{
	struct frl_conn *conn;

	if (list_empty(&listener->queue))
		return listener->error ? frl_fail(-listener->error, "%s", listener->reason)
				       : -EAGAIN;
	conn = container_of(listener->queue.next, struct frl_conn, of_listener);
	list_remove(&conn->of_listener);
	list_add_tail(&listener->fetched, &conn->of_listener);
	conn->is_user = true;
	conn->fetched = true;
	notify(listener);
	*ret_conn = conn;
	return 0;
}

int frl_wait_request(struct frl_listener *listener, int timeout_ms, struct frl_conn **ret_conn)
{
	uint64_t limit_ns = cm_limit(timeout_ms);
	int rc;

	if (!listener || !ret_conn)
		return frl_fail(-EINVAL, "frl_wait_request: listener and ret_conn are required");
	/* Acquire for the connection, before the mutex: cm_acquire() takes `life` first. */
	rc = cm_acquire();
	if (rc)
		return rc;
	pthread_mutex_lock(&cm.mutex);
	do
		rc = fetch(listener, ret_conn);
	while (rc == -EAGAIN && cm_sleep(&listener->changed, limit_ns));
	pthread_mutex_unlock(&cm.mutex);
	if (rc)
		cm_release();
	if (rc != -EAGAIN)
		return rc;
	return timeout_ms ? frl_fail(-ETIMEDOUT, "no request came within %d ms", timeout_ms) : rc;
}

int frl_get_request(struct frl_listener *listener, struct frl_conn **ret_conn)
{
	return frl_wait_request(listener, 0, ret_conn);
}
