/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sender's end of setup. NCCL calls connect() with the same handle until the connection exists.
 * Between the calls the library's control thread does the work. The handle leads to the setup's
 * state.
 *
 * Time limits. The other end's accept() may come late, in a large job or if its rank is in a
 * debugger, and NCCL itself waits without a limit. So connect() waits as long as NCCL keeps calling
 * and the control daemons report that the listener's process exists. After a request is accepted,
 * the receiver enforces ACCEPT_MS until both ends are ready.
 */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/time_budget.h"
#include "nccl/failure.h"
#include "nccl/log.h"
#include "nccl/connect/opening.h"
#include "nccl/settings.h"
#include "nccl/connect/setup.h"

enum {
	NS_PER_MS = 1000000,
	/* Repeat a request that was not answered for this long: a daemon keeps a request for at
	 * most an hour. */
	REQUEST_MS = 600000,
	/* The handle may arrive before the listener's daemon knows the listener, because the
	 * listener's port must be opened first. The daemon may also restart meanwhile. After
	 * WARN_AFTER_MS a warning is logged. */
	UNKNOWN_MS = 60000,
	WARN_AFTER_MS = 5000,
	RETRY_MS = 5, /* doubled with each retry */
	MAX_RETRY_MS = 250,
	/* If NCCL does not call for this long, it no longer wants the connection. */
	CALLS_MS = 60000,
	UNCALLED_PERIOD_MS = 1000,
	ABANDONED_PERIOD_MS = 10,
	WHY = 400,
};

struct connecting {
	struct connecting *next; /* list of all setups */
	bool is_busy, is_called; /* in connect() now; called since the last check */
	struct time_budget uncalled;
	const struct net_context *context;
	struct comm *comm;
	struct opening opening;
	struct cleanup abandoned;
	int dev, n_paths, n_their_rails;
	nccl_profiler_fn profiler;
	uint64_t listener, connection;
	struct time_budget unknown; /* starts with the first request */
	bool has_warned;            /* a warning was logged */
	struct {
		uint64_t requested_ns, retry_ns;
		unsigned retry_ms;
	} paths[NET_MAX_PATHS];
	int traffic_class;
};

static bool abandon_uncalled(struct cleanup *cleanup);

/* The setups in progress. NCCL may stop calling without any notice. */
static struct {
	pthread_mutex_t lock;
	struct connecting *first;
	bool is_watched; /* by the cleanup thread */
	struct cleanup watch;
} all = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.watch = { .try_finish = abandon_uncalled,
		.period_ms = UNCALLED_PERIOD_MS,
		.is_background = true },
};

static int check_handle(const struct net_handle *handle)
{
	if (handle->magic != SETUP_MAGIC) {
		net_log_warning("the peer sent no handle of this plugin: all ranks must use it; "
				"check NCCL_NET_PLUGIN and NCCL_NET on the other hosts");
		return -EPROTO;
	}
	/* Check the version first: other releases may place all other fields elsewhere. */
	if (handle->version != SETUP_VERSION) {
		net_log_warning("the peer's plugin has protocol version %u, this one %d: install "
				"the same release on all hosts",
			handle->version, SETUP_VERSION);
		return -EPROTO;
	}
	if (handle->n_rails < 1 || handle->n_rails > NET_MAX_RAILS || handle->n_qps < 1 ||
		handle->n_qps > NET_MAX_QPS ||
		!memchr(handle->daemon_address, '\0', sizeof(handle->daemon_address))) {
		net_log_warning("the peer's handle is damaged: %u ports with %u queue pairs each",
			handle->n_rails, handle->n_qps);
		return -EPROTO;
	}
	if (handle->state) {
		net_log_warning("connect() was called for an abandoned connection: its "
				"communicator has ended, or NCCL had not called for %d s",
			CALLS_MS / 1000);
		return -ECONNABORTED;
	}
	return 0;
}

static int count_paths(const struct net_device *device, const struct net_handle *handle)
{
	int rails = device->n_rails > handle->n_rails ? device->n_rails : handle->n_rails;
	int qps = net_settings()->qps > handle->n_qps ? net_settings()->qps : handle->n_qps;

	return rails * qps < NET_MAX_PATHS ? rails * qps : NET_MAX_PATHS;
}

static void end(struct connecting *connecting)
{
	net_opening_end(&connecting->opening);
	if (connecting->comm)
		net_comm_destroy(connecting->comm);
	free(connecting);
}

/* A struct cleanup: called until it returns true. */
static bool finish_abandoned(struct cleanup *cleanup)
{
	struct connecting *connecting = (struct connecting *)(void *)((char *)cleanup -
		offsetof(struct connecting, abandoned));

	if (net_opening_test(&connecting->opening) == -EAGAIN)
		return false;
	end(connecting);
	return true;
}

/* Never waits for the thread that opens the port. */
static void abandon(struct connecting *connecting)
{
	if (net_opening_test(&connecting->opening) != -EAGAIN) {
		end(connecting);
		return;
	}
	connecting->abandoned = (struct cleanup){
		.try_finish = finish_abandoned,
		.period_ms = ABANDONED_PERIOD_MS,
	};
	net_cleanup_add(&connecting->abandoned);
}

static void add_setup(struct connecting *connecting)
{
	bool is_watched;

	pthread_mutex_lock(&all.lock);
	connecting->next = all.first;
	all.first = connecting;
	is_watched = all.is_watched;
	all.is_watched = true;
	pthread_mutex_unlock(&all.lock);
	if (!is_watched)
		net_cleanup_add(&all.watch);
}

static void remove_setup(struct connecting *connecting)
{
	struct connecting **link = &all.first;

	pthread_mutex_lock(&all.lock);
	while (*link != connecting)
		link = &(*link)->next;
	*link = connecting->next;
	pthread_mutex_unlock(&all.lock);
}

/* The peer controls the handle's contents, so only a setup in this process's own list counts. */
static struct connecting *find(const struct net_handle *handle)
{
	struct connecting *connecting;

	pthread_mutex_lock(&all.lock);
	for (connecting = all.first; connecting; connecting = connecting->next)
		if ((uintptr_t)connecting == handle->state &&
			connecting->connection == handle->connection)
			break;
	if (connecting)
		connecting->is_busy = connecting->is_called = true;
	pthread_mutex_unlock(&all.lock);
	return connecting;
}

static void leave_call(struct connecting *connecting)
{
	pthread_mutex_lock(&all.lock);
	connecting->is_busy = false;
	pthread_mutex_unlock(&all.lock);
}

static bool is_uncalled(struct connecting *connecting, const void *none)
{
	const uint64_t step_ns = UINT64_C(2) * UNCALLED_PERIOD_MS * NS_PER_MS;

	if (connecting->is_called)
		connecting->uncalled.spent_ns = 0;
	connecting->is_called = false;
	(void)none;
	return time_budget_spend(&connecting->uncalled, step_ns, net_now_ns()) >=
		(uint64_t)CALLS_MS * NS_PER_MS;
}

static bool is_of_context(struct connecting *connecting, const void *context)
{
	return !context || connecting->context == context;
}

/* With the lock held: removes the setups that are not in connect() and for which `is_due` returns
 * true. */
static struct connecting *remove_due(
	bool (*is_due)(struct connecting *connecting, const void *arg), const void *arg)
{
	struct connecting *due = NULL, **link = &all.first;

	while (*link) {
		struct connecting *connecting = *link;

		if (connecting->is_busy || !is_due(connecting, arg)) {
			link = &connecting->next;
			continue;
		}
		*link = connecting->next;
		connecting->next = due;
		due = connecting;
	}
	return due;
}

static void abandon_all(struct connecting *due)
{
	while (due) {
		struct connecting *connecting = due;

		due = connecting->next;
		abandon(connecting);
	}
}

static bool abandon_uncalled(struct cleanup *cleanup)
{
	struct connecting *due;
	bool is_over;

	(void)cleanup;
	pthread_mutex_lock(&all.lock);
	due = remove_due(is_uncalled, NULL);
	is_over = !all.first;
	all.is_watched = !is_over;
	pthread_mutex_unlock(&all.lock);
	if (due)
		net_log_warning(
			"connection setup was abandoned: NCCL has not called connect() for %d s",
			CALLS_MS / 1000);
	abandon_all(due);
	return is_over;
}

void net_connects_end(const struct net_context *context)
{
	struct connecting *due;

	pthread_mutex_lock(&all.lock);
	due = remove_due(is_of_context, context);
	pthread_mutex_unlock(&all.lock);
	abandon_all(due);
}

static int begin(struct net_context *context, struct net_device *device, int dev, int traffic_class,
	nccl_profiler_fn profiler, const struct net_handle *handle,
	struct connecting **ret_connecting)
{
	struct connecting *connecting;
	int err = check_handle(handle);

	if (!err)
		err = net_check_class(traffic_class);
	if (err)
		return err;
	connecting = calloc(1, sizeof(*connecting));
	if (!connecting) {
		net_log_warning("cannot connect %s: no memory", device->name);
		return -ENOMEM;
	}
	connecting->is_busy = connecting->is_called = true;
	connecting->context = context;
	connecting->dev = dev;
	connecting->n_paths = count_paths(device, handle);
	connecting->n_their_rails = handle->n_rails;
	connecting->listener = handle->name;
	connecting->connection = net_random();
	connecting->traffic_class = traffic_class;
	connecting->profiler = profiler;
	connecting->opening.device = device;
	memcpy(connecting->opening.address, handle->daemon_address, sizeof(handle->daemon_address));
	net_opening_start(&connecting->opening);
	*ret_connecting = connecting;
	return 0;
}

/* The local fabric connects only processes of one host. */
static int check_reachable(const struct connecting *connecting)
{
	const struct net_device *device = connecting->opening.device;

	for (int i = 0; *connecting->opening.host && i < device->n_rails; i++) {
		if (!net_port_at(device, i)->attr.local_fabric)
			continue;
		net_log_warning(
			"cannot connect to %s: device %s reaches only this host; name a port "
			"between the hosts in FERRULE_DEVICES, or set NCCL_NET_PLUGIN=none",
			connecting->opening.host, device->name);
		return -EHOSTUNREACH;
	}
	return 0;
}

static int make_paths(struct connecting *connecting)
{
	struct comm *comm;
	int err = net_comm_create(connecting->opening.device, connecting->dev, true,
		connecting->n_paths, connecting->n_their_rails, &comm);

	if (err)
		return err;
	connecting->comm = comm;
	comm->profiler = connecting->profiler;
	for (int i = 0; i < comm->n_paths && !err; i++)
		err = net_comm_add_path(comm, i);
	if (err)
		net_log_warning("cannot connect: %s", frl_last_error());
	return err;
}

/* Requires an open device. Converts the system's -EAGAIN (no resources), which would mean "not yet"
 * here. */
static int create(struct connecting *connecting)
{
	int err = check_reachable(connecting);

	if (!err)
		err = make_paths(connecting);
	return err == -EAGAIN ? -ENOMEM : err;
}

static int request_path(struct connecting *connecting, int index)
{
	struct comm *comm = connecting->comm;
	struct path *path = &comm->paths[index];
	const struct net_hello hello = {
		.magic = SETUP_MAGIC,
		.version = SETUP_VERSION,
		.n_paths = (uint8_t)comm->n_paths,
		.path = (uint8_t)index,
		.n_rails = (uint8_t)comm->device->n_rails,
		.connection = connecting->connection,
	};
	struct frl_connect_config config;
	char service[FRL_SERVICE_MAX + 1];

	net_service_name(connecting->listener, path->their_rail, service);
	/* No remote access: announcements are sends, so the peer writes nothing here. */
	net_connect_config(net_port_at(comm->device, path->rail), connecting->traffic_class,
		REQUEST_MS, 0, &config);
	connecting->paths[index].requested_ns = net_now_ns();
	return frl_connect(path->qp, connecting->opening.host, service, &hello, sizeof(hello),
		&config, &path->conn);
}

/* Returns whether to retry: the listener may not be known to its daemon yet, or the daemon may be
 * restarting. A listener that rejects a request does so with a welcome. */
static bool is_listener_unknown(
	struct connecting *connecting, const struct path *path, int err, const char *why)
{
	const uint64_t step_ns = UINT64_C(2) * MAX_RETRY_MS * NS_PER_MS;
	struct net_welcome refusal;
	uint64_t spent_ns;

	if (err != -ENOTCONN &&
		(err != -ECONNREFUSED ||
			frl_conn_private_data(path->conn, &refusal, sizeof(refusal)) != 0))
		return false;
	spent_ns = time_budget_spend(&connecting->unknown, step_ns, net_now_ns());
	if (!connecting->has_warned && spent_ns >= (uint64_t)WARN_AFTER_MS * NS_PER_MS) {
		net_log_warning("still connecting %s, for up to %d s: %s",
			connecting->comm->device->name, UNKNOWN_MS / 1000, why);
		connecting->has_warned = true;
	}
	return spent_ns < (uint64_t)UNKNOWN_MS * NS_PER_MS;
}

static bool is_unanswered(const struct connecting *connecting, int index, int err)
{
	/* An earlier timeout has another cause. */
	return err == -ETIMEDOUT &&
		net_now_ns() - connecting->paths[index].requested_ns >=
		(uint64_t)REQUEST_MS * NS_PER_MS;
}

static int schedule_retry(struct connecting *connecting, int index)
{
	static const struct frl_qp_attr reset = { .state = FRL_QPS_RESET };
	struct path *path = &connecting->comm->paths[index];
	unsigned ms = connecting->paths[index].retry_ms;

	ms = ms ? ms : RETRY_MS;
	connecting->paths[index].retry_ns = net_now_ns() + (uint64_t)ms * NS_PER_MS;
	connecting->paths[index].retry_ms = 2 * ms < MAX_RETRY_MS ? 2 * ms : MAX_RETRY_MS;
	frl_conn_close(path->conn);
	path->conn = NULL;
	return frl_qp_modify(path->qp, &reset, FRL_QP_STATE);
}

/* On failure `why` is a sentence. */
static int step_path(struct connecting *connecting, int index, char *why)
{
	struct path *path = &connecting->comm->paths[index];
	struct net_welcome welcome = { .magic = 0 };
	int err;

	if (!path->conn && net_now_ns() < connecting->paths[index].retry_ns)
		return -EAGAIN;
	if (!path->conn) {
		err = request_path(connecting, index);
		err = err ? err : -EAGAIN;
	} else {
		/* Test connected paths again: one may fail while others are still connecting. */
		err = frl_conn_test(path->conn);
	}
	if (err && err != -EAGAIN)
		snprintf(why, WHY, "%s", frl_last_error());
	if (err && path->conn && !path->is_up &&
		(is_listener_unknown(connecting, path, err, why) ||
			is_unanswered(connecting, index, err))) {
		if (err == -ETIMEDOUT)
			net_log_warning(
				"still connecting %s: %s", connecting->comm->device->name, why);
		err = schedule_retry(connecting, index);
		if (err)
			snprintf(why, WHY, "%s", frl_last_error());
		return err ? err : -EAGAIN;
	}
	if (err || path->is_up)
		return err;
	frl_conn_private_data(path->conn, &welcome, sizeof(welcome));
	if (welcome.magic != SETUP_MAGIC) {
		snprintf(
			why, WHY, "the listener is not this plugin: its answer has another format");
		return -EPROTO;
	}
	path->is_up = true;
	return 0;
}

/* Returns 0 when all paths are connected. */
static int step(struct connecting *connecting)
{
	int result = connecting->comm ? 0 : net_opening_test(&connecting->opening);
	char why[WHY];

	if (!result && !connecting->comm)
		result = create(connecting);
	if (result)
		return result;
	for (int i = 0; i < connecting->comm->n_paths; i++) {
		int err = step_path(connecting, i, why);

		if (err && err != -EAGAIN) {
			net_log_warning("cannot connect %s to %s: %s",
				connecting->comm->device->name,
				*connecting->opening.host ? connecting->opening.host
							  : "a process of this host",
				why);
			return err;
		}
		if (err)
			result = err;
	}
	return result;
}

static int finish(struct connecting *connecting, struct comm **ret_comm)
{
	struct comm *comm = connecting->comm;
	int err = net_comm_start(comm);

	if (err) {
		net_comm_report_now(comm);
		abandon(connecting);
		return err;
	}
	net_opening_end(&connecting->opening);
	free(connecting);
	*ret_comm = comm;
	return 0;
}

int net_connect_step(struct net_context *context, struct net_device *device, int dev,
	int traffic_class, nccl_profiler_fn profiler, void *bytes, struct comm **ret_comm)
{
	struct connecting *connecting;
	struct net_handle handle;
	int err = 0;

	*ret_comm = NULL;
	memcpy(&handle, bytes, sizeof(handle));
	connecting = find(&handle);
	if (!connecting) {
		err = begin(context, device, dev, traffic_class, profiler, &handle, &connecting);
		if (err)
			return err;
		add_setup(connecting);
		handle.state = (uintptr_t)connecting;
		handle.connection = connecting->connection;
	}
	err = step(connecting);
	if (err == -EAGAIN) {
		leave_call(connecting);
		memcpy(bytes, &handle, sizeof(handle));
		return 0;
	}
	remove_setup(connecting);
	handle.state = 0;
	memcpy(bytes, &handle, sizeof(handle));
	if (!err)
		return finish(connecting, ret_comm);
	abandon(connecting);
	return err;
}
