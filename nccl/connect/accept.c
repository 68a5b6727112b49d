/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receiver's end of setup: a listener offers one service for each rail, and groups the
 * requested queue pairs into connections.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/time_budget.h"
#include "nccl/connect/daemon_address.h"
#include "nccl/failure.h"
#include "nccl/log.h"
#include "nccl/connect/opening.h"
#include "nccl/settings.h"
#include "nccl/connect/setup.h"

enum {
	NS_PER_MS = 1000000,
	/* How long both ends may take to get ready after a path is accepted, and to request all
	 * paths. */
	ACCEPT_MS = 60000,
	STEP_MS = 1000,
	MAX_INCOMING = 16,
	CLOSED_PERIOD_MS = 10,
	WHY = 400,
};

/* A connection of which some paths exist. */
struct incoming {
	struct incoming *next;
	struct comm *comm;
	uint64_t connection;
	struct time_budget waited;
};

struct listener {
	struct net_device *device;
	int dev;
	int traffic_class;
	bool has_comm_id; /* of the communicator, since table v11 */
	uint64_t comm_id;
	uint64_t name;
	struct opening opening; /* its last step offers the services */
	struct frl_listener *rails[NET_MAX_RAILS];
	struct incoming *incoming;
	unsigned n_incoming;
	struct cleanup closed;
};

static int offer(void *arg)
{
	struct listener *listener = arg;
	char service[FRL_SERVICE_MAX + 1];
	int err = 0;

	for (int i = 0; i < listener->device->n_rails && !err; i++) {
		net_service_name(listener->name, i, service);
		err = frl_listen_start(net_port_at(listener->device, i)->device, service, NULL,
			&listener->rails[i]);
	}
	if (err)
		net_log_warning(
			"cannot listen on %s: %s", listener->device->name, frl_last_error());
	return err;
}

/* Checks what listen() needs immediately. On failure the log has the reason. */
static int prepare(struct net_device *device, int traffic_class, char address[FRL_PLACE_SIZE])
{
	char why[WHY];
	int err = net_check_class(traffic_class);

	/* net_device_acquire() logs why no device is usable. */
	if (!err && net_devices_are_refused())
		err = net_device_acquire(device);
	if (err)
		return err;
	err = net_daemon_address(false, address, why, sizeof(why));
	if (err)
		net_log_warning("cannot listen on %s: %s", device->name, why);
	return err;
}

int net_listener_open(struct net_device *device, int dev, int traffic_class,
	const uint64_t *comm_id, void *bytes, struct listener **ret_listener)
{
	struct net_handle handle = {
		.magic = SETUP_MAGIC,
		.version = SETUP_VERSION,
		.n_rails = (uint8_t)device->n_rails,
		.n_qps = (uint8_t)net_settings()->qps,
		.name = net_random(),
	};
	struct listener *listener;
	int err = prepare(device, traffic_class, handle.daemon_address);

	if (err)
		return err;
	listener = calloc(1, sizeof(*listener));
	if (!listener) {
		net_log_warning("cannot listen on %s: no memory", device->name);
		return -ENOMEM;
	}
	listener->device = device;
	listener->dev = dev;
	listener->traffic_class = traffic_class;
	listener->has_comm_id = comm_id != NULL;
	listener->comm_id = comm_id ? *comm_id : 0;
	listener->name = handle.name;
	listener->opening = (struct opening){ .device = device, .then = offer, .arg = listener };
	net_opening_start(&listener->opening);
	err = net_opening_test(&listener->opening);
	if (err && err != -EAGAIN) {
		net_close_listen(listener);
		return err;
	}
	memset(bytes, 0, NCCL_HANDLE_SIZE);
	memcpy(bytes, &handle, sizeof(handle));
	*ret_listener = listener;
	return 0;
}

static void drop(struct listener *listener, struct incoming **link)
{
	struct incoming *incoming = *link;

	*link = incoming->next;
	listener->n_incoming--;
	net_comm_destroy(incoming->comm);
	free(incoming);
}

/* Rejects with a welcome, so that the peer does not assume that the listener does not exist yet. */
static void reject(struct frl_conn *conn, const char *reason)
{
	static const struct net_welcome refusal = {
		.magic = SETUP_MAGIC,
		.version = SETUP_VERSION,
	};

	frl_reject(conn, reason, &refusal, sizeof(refusal));
	frl_conn_close(conn);
}

static void end(struct listener *listener)
{
	struct frl_conn *conn;

	while (listener->incoming)
		drop(listener, &listener->incoming);
	for (int i = 0; i < listener->device->n_rails; i++) {
		if (!listener->rails[i])
			continue;
		while (frl_get_request(listener->rails[i], &conn) == 0)
			reject(conn, "the listener was closed");
		frl_listener_close(listener->rails[i]);
	}
	net_opening_end(&listener->opening);
	free(listener);
}

/* A struct cleanup: called until it returns true. */
static bool finish_closed(struct cleanup *cleanup)
{
	struct listener *listener = (struct listener *)(void *)((char *)cleanup -
		offsetof(struct listener, closed));

	if (net_opening_test(&listener->opening) == -EAGAIN)
		return false;
	end(listener);
	return true;
}

int net_close_listen(struct listener *listener)
{
	if (net_opening_test(&listener->opening) != -EAGAIN) {
		end(listener);
		return NCCL_SUCCESS;
	}
	listener->closed = (struct cleanup){ .try_finish = finish_closed,
		.period_ms = CLOSED_PERIOD_MS };
	net_cleanup_add(&listener->closed);
	return NCCL_SUCCESS;
}

/* ---- connection requests */

static void refuse(struct frl_conn *conn, const char *reason)
{
	net_log_warning("a connection was refused: %s", reason);
	reject(conn, reason);
}

/* Finds the connection to which a requested path belongs. Returns the reason if there is none. */
static const char *find(
	struct listener *listener, const struct net_hello *hello, struct incoming **ret_incoming)
{
	struct incoming *incoming = listener->incoming;

	while (incoming && incoming->connection != hello->connection)
		incoming = incoming->next;
	*ret_incoming = incoming;
	if (incoming)
		return incoming->comm->n_paths == hello->n_paths &&
				incoming->comm->n_their_rails == hello->n_rails
			? NULL
			: "its paths request different numbers of paths";
	if (listener->n_incoming == MAX_INCOMING)
		return "too many connections to this listener are incomplete";
	incoming = calloc(1, sizeof(*incoming));
	if (!incoming)
		return "no memory for the connection";
	if (net_comm_create(listener->device, listener->dev, false, hello->n_paths, hello->n_rails,
		    &incoming->comm)) {
		free(incoming);
		return "the receiver cannot create its end; its log has the reason";
	}
	incoming->comm->has_comm_id = listener->has_comm_id;
	incoming->comm->comm_id = listener->comm_id;
	incoming->connection = hello->connection;
	incoming->next = listener->incoming;
	listener->incoming = incoming;
	listener->n_incoming++;
	*ret_incoming = incoming;
	return NULL;
}

static bool is_empty(const struct incoming *incoming)
{
	for (int i = 0; i < incoming->comm->n_paths; i++)
		if (incoming->comm->paths[i].conn)
			return false;
	return true;
}

static void drop_if_empty(struct listener *listener, const struct incoming *incoming)
{
	struct incoming **link = &listener->incoming;

	while (*link != incoming)
		link = &(*link)->next;
	if (is_empty(incoming))
		drop(listener, link);
}

static const char *check_hello(
	const struct listener *listener, int rail, const struct net_hello *hello, size_t size)
{
	if (size != sizeof(*hello) || hello->magic != SETUP_MAGIC)
		return "the request is not from this plugin";
	if (hello->version != SETUP_VERSION)
		return "the plugins at both ends have different releases";
	if (hello->n_paths < 1 || hello->n_paths > NET_MAX_PATHS || hello->path >= hello->n_paths ||
		hello->n_rails < 1 || hello->n_rails > NET_MAX_RAILS ||
		hello->path % listener->device->n_rails != rail)
		return "the request has invalid path numbers";
	return NULL;
}

/* Returns true if the path was added to the connection, and the request was answered. */
static bool take_path(
	struct listener *listener, int rail, struct comm *comm, int index, struct frl_conn *conn)
{
	static const struct net_welcome welcome = {
		.magic = SETUP_MAGIC,
		.version = SETUP_VERSION,
	};
	struct path *path = &comm->paths[index];
	struct frl_connect_config config;

	if (path->conn) {
		refuse(conn, "a path with this number exists already");
		return true;
	}
	if (!path->qp && net_comm_add_path(comm, index)) {
		refuse(conn, frl_last_error());
		return false;
	}
	net_connect_config(net_port_at(listener->device, rail), listener->traffic_class, ACCEPT_MS,
		FRL_ACCESS_REMOTE_WRITE, &config);
	if (frl_accept(conn, path->qp, &welcome, sizeof(welcome), &config)) {
		/* The peer has given up. */
		frl_conn_close(conn);
		return false;
	}
	path->conn = conn;
	return true;
}

static void take_request(struct listener *listener, int rail, struct frl_conn *conn)
{
	struct net_hello hello = { .magic = 0 };
	size_t size = frl_conn_private_data(conn, &hello, sizeof(hello));
	const char *wrong = check_hello(listener, rail, &hello, size);
	struct incoming *incoming = NULL;

	if (!wrong)
		wrong = find(listener, &hello, &incoming);
	if (wrong)
		refuse(conn, wrong);
	else if (!take_path(listener, rail, incoming->comm, hello.path, conn))
		drop_if_empty(listener, incoming);
}

static int take_requests(struct listener *listener)
{
	struct frl_conn *conn;
	int err = 0;

	for (int i = 0; i < listener->device->n_rails; i++) {
		err = frl_listener_test(listener->rails[i]);
		if (err && err != -EAGAIN) {
			net_log_warning("cannot listen on %s: %s", listener->device->name,
				frl_last_error());
			return err;
		}
		while (frl_get_request(listener->rails[i], &conn) == 0)
			take_request(listener, i, conn);
	}
	return 0;
}

/* Returns 0 when all paths are connected. For every error except -EAGAIN the log has the reason. */
static int step(struct incoming *incoming)
{
	struct comm *comm = incoming->comm;
	int result = 0, n_requested = 0;

	for (int i = 0; i < comm->n_paths; i++) {
		struct path *path = &comm->paths[i];
		/* Test connected paths again: one may fail while others are still connecting. */
		int err = path->conn ? frl_conn_test(path->conn) : -EAGAIN;

		if (err && err != -EAGAIN) {
			net_log_warning("a connection to %s could not be set up: %s",
				comm->device->name, frl_last_error());
			return err;
		}
		path->is_up = !err;
		n_requested += path->conn != NULL;
		if (err)
			result = err;
	}
	if (n_requested == comm->n_paths ||
		time_budget_spend(&incoming->waited, (uint64_t)STEP_MS * NS_PER_MS, net_now_ns()) <
			(uint64_t)ACCEPT_MS * NS_PER_MS)
		return result;
	net_log_warning("a connection to %s could not be set up: within %d s the peer has "
			"requested only %d of its %d paths",
		comm->device->name, ACCEPT_MS / 1000, n_requested, comm->n_paths);
	return -ETIMEDOUT;
}

static int finish(struct listener *listener, struct incoming **link, struct comm **ret_comm)
{
	struct incoming *incoming = *link;
	int err = net_comm_start(incoming->comm);

	if (err) {
		net_comm_report_now(incoming->comm);
		drop(listener, link);
		return err;
	}
	*link = incoming->next;
	listener->n_incoming--;
	*ret_comm = incoming->comm;
	free(incoming);
	return 0;
}

int net_accept(struct listener *listener, struct comm **ret_comm)
{
	struct incoming **link = &listener->incoming;
	int err = net_opening_test(&listener->opening), failure = 0;

	*ret_comm = NULL;
	if (err == -EAGAIN)
		return NCCL_SUCCESS;
	if (!err)
		err = take_requests(listener);
	if (err)
		return net_result_of(err);
	while (*link) {
		err = step(*link);
		if (!err)
			return net_result_of(finish(listener, link, ret_comm));
		if (err == -EAGAIN) {
			link = &(*link)->next;
		} else {
			failure = err;
			drop(listener, link);
		}
	}
	/*
	 * NCCL listens for one peer, which it has given the handle. So a failed connection was most
	 * likely this peer's. Report the failure to NCCL, because it would otherwise wait for ever
	 * for a dead peer. However, while another connection is pending, the failed one may have
	 * been a stranger's.
	 */
	return net_result_of(listener->incoming ? 0 : failure);
}
