/* SPDX-License-Identifier: BSD-3-Clause */
/* Public calls about connections: connect, accept, wait and close. */
#include "lib/api/cm/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/process/condition.h"
#include "lib/base/random.h"

enum { NS_PER_MS = 1000000 };

uint64_t cm_limit(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX : clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
}

bool cm_sleep(pthread_cond_t *condition, uint64_t limit_ns)
{
	return condition_wait(condition, &cm.mutex, limit_ns);
}

/* ---- connecting */

static int check_private(const void *data, size_t size)
{
	if (size > FRL_PRIVATE_DATA_MAX)
		return frl_fail(-EINVAL, "private data: %zu bytes, at most %d are allowed", size,
			FRL_PRIVATE_DATA_MAX);
	if (size && !data)
		return frl_fail(-EINVAL, "private data: %zu bytes, but no address", size);
	return 0;
}

static int check_request(struct frl_qp *qp, const char *host, const char *service,
	const void *private_data, size_t private_size)
{
	if (!qp || !service)
		return frl_fail(-EINVAL, "frl_connect: qp, service and ret_conn are required");
	if (!*service || !service_is_valid(service))
		return frl_fail(-EINVAL,
			"'%s' is not a service: a name has 1 to %d letters, digits, dots, dashes "
			"and underscores",
			service, FRL_SERVICE_MAX);
	if (strlen(host) > FRL_HOST_MAX)
		return frl_fail(
			-EINVAL, "the name of the host has more than %d characters", FRL_HOST_MAX);
	for (const char *at = host; *at; at++)
		if (*at <= ' ' || *at > '~')
			return frl_fail(-EINVAL,
				"the name of the host has a blank or a non-ASCII character");
	return check_private(private_data, private_size);
}

static int check_config(const struct frl_connect_config *config)
{
	if (config->timeout_ms < 0)
		return frl_fail(-EINVAL, "timeout_ms is negative");
	if (config->max_rd_atomic > FRL_MAX_RD_ATOMIC || config->timeout > 31 ||
		config->retry_cnt > 7 || config->rnr_retry > 7 || config->min_rnr_timer > 31)
		return frl_fail(-EINVAL,
			"max_rd_atomic must be at most %d, timeout and min_rnr_timer 31, "
			"retry_cnt and rnr_retry 7",
			FRL_MAX_RD_ATOMIC);
	return 0;
}

/* Claims the queue pair, so that no other caller connects it. */
static int take_qp(struct frl_conn *conn, struct frl_qp *qp,
	const struct frl_connect_config *config, const void *private_data, size_t private_size)
{
	struct frl_connect_config defaults;
	struct frl_conn *other;
	int rc;

	if (!config) {
		frl_connect_config_init(qp->pd->device, &defaults);
		config = &defaults;
	}
	rc = check_config(config);
	if (rc)
		return rc;
	pthread_mutex_lock(&cm.mutex);
	other = qp->conn;
	pthread_mutex_unlock(&cm.mutex);
	if (other)
		return frl_fail(-EINVAL,
			"queue pair 0x%x belongs to a connection: close that first",
			frl_qp_num(qp));
	rc = frl_qp_endpoint(qp, &conn->mine);
	if (!rc)
		rc = connecting_claim(qp);
	if (rc)
		return rc;
	/* A request already has a deadline, which the control thread watches. */
	pthread_mutex_lock(&cm.mutex);
	connecting_terms(qp, config, &conn->terms);
	conn->qpn = frl_qp_num(qp);
	conn->any_user = config->any_user;
	if (private_size)
		memcpy(conn->private_data, private_data, private_size);
	conn->private_size = private_size;
	conn->timeout_ms = config->timeout_ms;
	pthread_mutex_unlock(&cm.mutex);
	return 0;
}

static void make_key(struct conn_key *key)
{
	for (size_t i = 0; i < UUID_SIZE; i += sizeof(uint64_t)) {
		uint64_t bits = random_entropy();

		memcpy(key->uuid + i, &bits, sizeof(bits));
	}
}

/* Sends the request, or leaves that to up(). `rc` is an error if no daemon can be reached. */
static void send_request(struct frl_conn *conn, struct frl_qp *qp, int rc)
{
	pthread_mutex_lock(&cm.mutex);
	conn->qp = qp;
	qp->conn = conn;
	conn->state = CONN_REQUESTING;
	conn_wait(conn, conn->timeout_ms);
	rc = rc ? rc : conn_add(conn);
	if (!rc && cm.up)
		rc = cm_send_request(conn);
	else if (!rc && cm.unreachable)
		rc = frl_fail(-cm.unreachable, "%s", cm.why);
	if (rc)
		conn_end(conn, cm_error((uint32_t)-rc), frl_last_error());
	pthread_mutex_unlock(&cm.mutex);
}

int frl_connect(struct frl_qp *qp, const char *host, const char *service, const void *private_data,
	size_t private_size, const struct frl_connect_config *config, struct frl_conn **ret_conn)
{
	struct frl_conn *conn;
	int rc;

	if (!host || strcmp(host, "localhost") == 0)
		host = "";
	rc = check_request(ret_conn ? qp : NULL, host, service, private_data, private_size);
	if (rc)
		return rc;
	conn = conn_new(qp->pd->device);
	if (!conn)
		return frl_fail(-ENOMEM, "no memory for a connection");
	rc = take_qp(conn, qp, config, private_data, private_size);
	if (rc) {
		conn_free(conn);
		return rc;
	}
	conn->fetched = true;
	cm_copy_text(conn->host, sizeof(conn->host), host);
	cm_copy_text(conn->service, sizeof(conn->service), service);
	make_key(&conn->key);
	/* Describe the port first: handlers are called in the order of registration. */
	rc = publish_require(conn->device, &conn->port);
	if (!rc) {
		rc = cm_acquire();
		conn->is_user = !rc;
	}
	send_request(conn, qp, rc);
	*ret_conn = conn;
	return 0;
}

/* ---- answering */

static int check_answer(
	struct frl_conn *conn, const char *what, const void *private_data, size_t private_size)
{
	if (!conn)
		return frl_fail(-EINVAL, "%s: conn is required", what);
	if (!conn->key.passive)
		return frl_fail(-EINVAL, "%s: the connection is not a received request", what);
	return check_private(private_data, private_size);
}

/* Returns an error if the peer no longer waits for the answer. With the mutex held. */
static int check_unanswered(const struct frl_conn *conn, const char *what)
{
	if (conn->state == CONN_ENDED)
		return frl_fail(-ECONNRESET, "the request has ended: %s", conn->reason);
	if (conn->state != CONN_REQUESTED)
		return frl_fail(-EINVAL, "%s: the request has been answered", what);
	return 0;
}

int frl_accept(struct frl_conn *conn, struct frl_qp *qp, const void *private_data,
	size_t private_size, const struct frl_connect_config *config)
{
	int rc = check_answer(qp ? conn : NULL, "frl_accept", private_data, private_size);

	if (rc)
		return rc;
	if (qp->pd->device != conn->device)
		return frl_fail(-EINVAL, "frl_accept: the queue pair is of another device");
	rc = take_qp(conn, qp, config, private_data, private_size);
	if (rc)
		return rc;
	pthread_mutex_lock(&cm.mutex);
	rc = check_unanswered(conn, "frl_accept");
	if (!rc) {
		listener_remove(conn);
		conn->qp = qp;
		qp->conn = conn;
		conn_wait(conn, conn->timeout_ms);
		conn_connect(conn);
	}
	pthread_mutex_unlock(&cm.mutex);
	if (rc)
		connecting_unclaim(qp);
	return rc;
}

int frl_reject(
	struct frl_conn *conn, const char *reason, const void *private_data, size_t private_size)
{
	int rc = check_answer(conn, "frl_reject", private_data, private_size);
	char text[CM_REASON];

	if (rc)
		return rc;
	cm_copy_text(text, sizeof(text), reason && *reason ? reason : "the service refuses");
	pthread_mutex_lock(&cm.mutex);
	rc = check_unanswered(conn, "frl_reject");
	if (!rc) {
		cm_send_end(&conn->key, ECONNREFUSED, text, private_data, private_size);
		conn_end(conn, ECONNREFUSED, "this end has refused the request");
	}
	pthread_mutex_unlock(&cm.mutex);
	return rc;
}

/* ---- looking and waiting */

void frl_conn_peer(struct frl_conn *conn, struct frl_conn_peer *ret_peer)
{
	pthread_mutex_lock(&cm.mutex);
	*ret_peer = conn->peer;
	pthread_mutex_unlock(&cm.mutex);
}

size_t frl_conn_private_data(struct frl_conn *conn, void *data, size_t size)
{
	size_t there;

	pthread_mutex_lock(&cm.mutex);
	there = conn->peer_size;
	if (there && size)
		memcpy(data, conn->peer_data, there < size ? there : size);
	pthread_mutex_unlock(&cm.mutex);
	return there;
}

/* Returns the result of frl_conn_test(), but does not mark it as reported. With the mutex held. */
static int result_of(const struct frl_conn *conn)
{
	if (conn->state == CONN_ENDED)
		return frl_fail(-conn->error, "%s", conn->reason);
	return conn->state == CONN_ESTABLISHED ? 0 : -EAGAIN;
}

static int report(struct frl_conn *conn)
{
	int rc = result_of(conn);

	if (rc != -EAGAIN) {
		conn->is_unreported = false;
		event_fd_set(&conn->event_fd, false);
	}
	return rc;
}

int frl_conn_query(struct frl_conn *conn, struct frl_qp_attr *ret_attr)
{
	int rc = 0;

	if (!conn || !ret_attr)
		return frl_fail(-EINVAL, "frl_conn_query: conn and ret_attr are required");
	pthread_mutex_lock(&cm.mutex);
	if (conn->was_established)
		*ret_attr = conn->connecting.attr;
	else
		rc = result_of(conn);
	pthread_mutex_unlock(&cm.mutex);
	return rc;
}

int frl_conn_fd(struct frl_conn *conn)
{
	int rc = 0;

	if (!conn)
		return frl_fail(-EINVAL, "frl_conn_fd: conn is required");
	pthread_mutex_lock(&cm.mutex);
	if (conn->event_fd.fd < 0)
		rc = event_fd_create(&conn->event_fd);
	if (!rc) {
		event_fd_set(&conn->event_fd, conn->is_unreported);
		rc = conn->event_fd.fd;
	}
	pthread_mutex_unlock(&cm.mutex);
	return rc;
}

int frl_conn_test(struct frl_conn *conn)
{
	int rc;

	if (!conn)
		return frl_fail(-EINVAL, "frl_conn_test: conn is required");
	pthread_mutex_lock(&cm.mutex);
	rc = report(conn);
	pthread_mutex_unlock(&cm.mutex);
	return rc;
}

static int wait_while(struct frl_conn *conn, int state_rc, int timeout_ms, const char *what)
{
	uint64_t limit_ns = cm_limit(timeout_ms);
	int rc;

	if (!conn)
		return frl_fail(-EINVAL, "%s: conn is required", what);
	pthread_mutex_lock(&cm.mutex);
	do
		rc = report(conn);
	while ((rc == -EAGAIN || rc == state_rc) && cm_sleep(&conn->changed, limit_ns));
	pthread_mutex_unlock(&cm.mutex);
	if (rc != -EAGAIN && rc != state_rc)
		return rc;
	return frl_fail(-ETIMEDOUT, "the connection is still %s after %d ms",
		rc ? "being set up" : "established", timeout_ms);
}

int frl_conn_wait(struct frl_conn *conn, int timeout_ms)
{
	return wait_while(conn, -EAGAIN, timeout_ms, "frl_conn_wait");
}

int frl_conn_wait_end(struct frl_conn *conn, int timeout_ms)
{
	return wait_while(conn, 0, timeout_ms, "frl_conn_wait_end");
}

/* ---- the end */

/* With the mutex held. */
static void end_by_user(struct frl_conn *conn, const char *established)
{
	switch (conn->state) {
	case CONN_REQUESTED:
		conn_close(conn, ECONNREFUSED, "the service has not answered the request");
		break;
	case CONN_REQUESTING:
	case CONN_CONNECTING:
		conn_close(conn, ECONNRESET, "the peer has cancelled the connection");
		break;
	case CONN_ESTABLISHED: conn_close(conn, ECONNRESET, established); break;
	case CONN_ENDED: break;
	}
}

void frl_conn_close(struct frl_conn *conn)
{
	bool is_user;

	if (!conn)
		return;
	pthread_mutex_lock(&cm.mutex);
	end_by_user(conn, "the peer has closed the connection");
	if (conn->qp)
		conn->qp->conn = NULL;
	is_user = conn->is_user;
	pthread_mutex_unlock(&cm.mutex);
	/* For the reason, see frl_listener_close(). */
	if (is_user)
		cm_release();
	conn_free(conn);
}

void cm_forget_qp(struct frl_qp *qp)
{
	pthread_mutex_lock(&cm.mutex);
	if (qp->conn) {
		end_by_user(qp->conn, "the peer has destroyed its queue pair");
		qp->conn->qp = NULL;
		qp->conn = NULL;
	}
	pthread_mutex_unlock(&cm.mutex);
}
