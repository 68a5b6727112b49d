/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Setting up a connection of the NCCL plugin to an unknown peer: one that asks for paths as no
 * plugin does, ends half-way, or has handles of another release. Then the cleanup.
 */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "nccl/connect/cleanup.h"
#include "nccl/settings.h"
#include "nccl/connect/setup.h"
#include "tests/fixtures/bootstrap_fixture.h"
#include "tests/fixtures/wait_limits.h"
#include "tests/unit/nccl/nccl_log.h"
#include "tests/fixtures/program.h"

enum {
	DEV = 0,
	HALF_MADE = 16,
	SHORT_MS = 300,
	WAIT_MS = 5000, /* daemon_address.c */
};

static struct net_context *context;

static void begin(int traffic_class)
{
	const struct net_config config = { .traffic_class = traffic_class };

	warnings[0] = '\0';
	ck_assert_int_eq(net_init(&config, take_line, NULL, &context), NCCL_SUCCESS);
}

/* Nothing has leaked. */
static void end(void)
{
	const struct net_port *port = net_port_at(net_device_at(DEV), 0);

	ck_assert_int_eq(net_finalize(context), NCCL_SUCCESS);
	ck_assert_uint_eq(port->users, 0);
	ck_assert_ptr_null(port->device);
}

/* ---- a control daemon that is slow to answer */

/* NCCL's thread waits a little for it, once; as soon as it answers all is well. It comes before the
 * process has the address of its daemon. */
START_TEST(late_daemon)
{
	uint64_t handle[NCCL_HANDLE_SIZE / 8], until = now_ms() + HANG_MS;
	struct listener *listener;

	ck_assert_int_eq(kill(daemon_pid, SIGSTOP), 0);
	begin(NCCL_TRAFFIC_CLASS_UNDEFINED);
	limits_expire(WAIT_MS);
	ck_assert_int_ne(net_listen(context, DEV, handle, &listener), NCCL_SUCCESS);
	ck_assert_msg(strstr(warnings, "does not answer"), "%s", warnings);
	limits_expire(0);
	ck_assert_int_ne(net_listen(context, DEV, handle, &listener), NCCL_SUCCESS);
	ck_assert_int_eq(kill(daemon_pid, SIGCONT), 0);
	while (net_listen(context, DEV, handle, &listener) != NCCL_SUCCESS)
		ck_assert_msg(now_ms() < until, "%s", warnings);
	net_close_listen(listener);
	end();
}
END_TEST

/* ---- a stranger, of this process */

struct ask {
	struct frl_cq *cq;
	struct frl_qp *qp;
	struct frl_conn *conn;
};

static struct {
	struct frl_device *device;
	struct frl_pd *pd;
} stranger;

static void open_stranger(void)
{
	struct frl_device_config config;

	frl_device_config_init(&config);
	config.fabric = "local";
	ck_assert_msg(frl_device_open(&config, &stranger.device) == 0, "%s", frl_last_error());
	ck_assert_int_eq(frl_pd_create(stranger.device, &stranger.pd), 0);
}

static void close_stranger(void)
{
	ck_assert_int_eq(frl_pd_destroy(stranger.pd), 0);
	ck_assert_int_eq(frl_device_close(stranger.device), 0);
}

/* Asks for a path of a connection. */
static struct ask ask(
	const uint64_t *bytes, uint64_t connection, uint8_t n_paths, uint8_t path, uint8_t n_rails)
{
	const struct net_handle *handle = (const void *)bytes;
	const struct net_hello hello = {
		.magic = SETUP_MAGIC,
		.version = SETUP_VERSION,
		.n_paths = n_paths,
		.path = path,
		.n_rails = n_rails,
		.connection = connection,
	};
	struct frl_connect_config config;
	char service[FRL_SERVICE_MAX + 1];
	struct ask ask = { .cq = NULL };

	ck_assert_int_eq(frl_cq_create(stranger.device, 64, &ask.cq), 0);
	ck_assert_int_eq(frl_qp_create(stranger.pd,
				 &(struct frl_qp_config){ .send_cq = ask.cq,
					 .recv_cq = ask.cq,
					 .max_send_wr = 8,
					 .max_recv_wr = 8,
					 .max_send_sge = 1,
					 .max_recv_sge = 1 },
				 &ask.qp),
		0);
	net_service_name(handle->name, 0, service);
	frl_connect_config_init(stranger.device, &config);
	config.timeout_ms = HANG_MS;
	ck_assert_int_eq(
		frl_connect(ask.qp, "", service, &hello, sizeof(hello), &config, &ask.conn), 0);
	return ask;
}

static void unask(struct ask *ask)
{
	frl_conn_close(ask->conn);
	frl_qp_destroy(ask->qp);
	frl_cq_destroy(ask->cq);
}

/* Accepts until the ask is answered. Returns 0, or the reason of a refusal. */
static int answer(struct listener *listener, struct ask *ask)
{
	uint64_t until = now_ms() + HANG_MS;
	struct comm *comm;
	int err;

	while ((err = frl_conn_test(ask->conn)) == -EAGAIN) {
		ck_assert_msg(now_ms() < until, "no answer: %s", warnings);
		ck_assert_int_eq(net_accept(listener, &comm), NCCL_SUCCESS);
		ck_assert_ptr_null(comm);
	}
	return err;
}

static struct listener *listen_for(uint64_t handle[NCCL_HANDLE_SIZE / 8])
{
	uint64_t until = now_ms() + HANG_MS;
	struct listener *listener;
	struct comm *comm;

	ck_assert_msg(net_listen(context, DEV, handle, &listener) == NCCL_SUCCESS, "%s", warnings);
	open_stranger();
	for (int err = -1; err;) {
		struct ask probe = ask(handle, 1, 0, 0, 0);

		ck_assert_msg(now_ms() < until, "no listener: %s", warnings);
		while ((err = frl_conn_test(probe.conn)) == -EAGAIN)
			net_accept(listener, &comm);
		/* Refused as nonsense, with a welcome: it listens. */
		err = frl_conn_private_data(probe.conn, NULL, 0) == 0;
		unask(&probe);
	}
	return listener;
}

/* The final result of accept. */
static int fails(struct listener *listener)
{
	uint64_t until = now_ms() + HANG_MS;
	int rc = NCCL_SUCCESS;
	struct comm *comm;

	while (rc == NCCL_SUCCESS) {
		ck_assert_msg(now_ms() < until, "accept waits for ever");
		rc = net_accept(listener, &comm);
		ck_assert_ptr_null(comm);
	}
	return rc;
}

START_TEST(ends_half_way)
{
	uint64_t handle[NCCL_HANDLE_SIZE / 8];
	struct listener *listener;
	struct ask first;

	begin(NCCL_TRAFFIC_CLASS_UNDEFINED);
	listener = listen_for(handle);
	first = ask(handle, 7, 2, 0, 1);
	ck_assert_int_eq(answer(listener, &first), 0);
	unask(&first);
	ck_assert_int_ne(fails(listener), NCCL_SUCCESS);
	net_close_listen(listener);
	close_stranger();
	end();
}
END_TEST

START_TEST(does_not_fit)
{
	uint64_t handle[NCCL_HANDLE_SIZE / 8];
	struct ask first, more_paths, more_rails;
	struct listener *listener;

	begin(NCCL_TRAFFIC_CLASS_UNDEFINED);
	listener = listen_for(handle);
	first = ask(handle, 7, 2, 0, 1);
	ck_assert_int_eq(answer(listener, &first), 0);
	more_paths = ask(handle, 7, 16, 15, 1);
	ck_assert_int_eq(answer(listener, &more_paths), -ECONNREFUSED);
	more_rails = ask(handle, 7, 2, 1, 2);
	ck_assert_int_eq(answer(listener, &more_rails), -ECONNREFUSED);
	unask(&more_rails);
	unask(&more_paths);
	net_close_listen(listener);
	unask(&first);
	close_stranger();
	end();
}
END_TEST

/* One of them fails: accept goes on as long as there is another. */
START_TEST(many_half_made)
{
	uint64_t handle[NCCL_HANDLE_SIZE / 8], until;
	struct ask asks[HALF_MADE + 1];
	struct listener *listener;
	struct comm *comm;

	begin(NCCL_TRAFFIC_CLASS_UNDEFINED);
	listener = listen_for(handle);
	for (int i = 0; i <= HALF_MADE; i++) {
		asks[i] = ask(handle, 7 + (uint64_t)i, 2, 0, 1);
		ck_assert_int_eq(answer(listener, &asks[i]), i < HALF_MADE ? 0 : -ECONNREFUSED);
	}
	for (int i = 1; i <= HALF_MADE; i++)
		unask(&asks[i]);
	until = now_ms() + SHORT_MS;
	while (now_ms() < until)
		ck_assert_int_eq(net_accept(listener, &comm), NCCL_SUCCESS);
	unask(&asks[0]);
	ck_assert_int_ne(fails(listener), NCCL_SUCCESS);
	net_close_listen(listener);
	close_stranger();
	end();
}
END_TEST

/* ---- what is refused at once */

START_LOOP_TEST(traffic_class, 3)
{
	static const int classes[] = { 256, -2, 1 << 30 };
	const struct net_config config = { .traffic_class = classes[_i] };
	uint64_t handle[NCCL_HANDLE_SIZE / 8];
	struct listener *listener;
	struct comm *comm;

	begin(classes[_i]);
	ck_assert_int_ne(net_listen(context, DEV, handle, &listener), NCCL_SUCCESS);
	ck_assert_msg(strstr(warnings, "traffic class"), "%s", warnings);
	ck_assert_int_eq(net_finalize(context), NCCL_SUCCESS);
	begin(255);
	ck_assert_int_eq(net_listen(context, DEV, handle, &listener), NCCL_SUCCESS);
	ck_assert_int_ne(net_connect(context, &config, DEV, handle, &comm), NCCL_SUCCESS);
	net_close_listen(listener);
	end();
}
END_TEST

START_TEST(other_release)
{
	const struct net_handle handle = {
		.magic = SETUP_MAGIC,
		.version = SETUP_VERSION + 1,
		.n_rails = 200,
	};
	uint64_t bytes[NCCL_HANDLE_SIZE / 8] = { 0 };
	struct comm *comm;

	memcpy(bytes, &handle, sizeof(handle));
	begin(NCCL_TRAFFIC_CLASS_UNDEFINED);
	ck_assert_int_ne(net_connect(context, NULL, DEV, bytes, &comm), NCCL_SUCCESS);
	ck_assert_msg(strstr(warnings, "install the same release"), "%s", warnings);
	end();
}
END_TEST

/* ---- of another host */

/* The local fabric does not lead there, which need not be found out by waiting. */
START_TEST(other_host)
{
	uint64_t until = now_ms() + HANG_MS, bytes[NCCL_HANDLE_SIZE / 8];
	struct listener *listener;
	struct net_handle handle;
	struct comm *comm;
	int rc = NCCL_SUCCESS;

	begin(NCCL_TRAFFIC_CLASS_UNDEFINED);
	listener = listen_for(bytes);
	memcpy(&handle, bytes, sizeof(handle));
	snprintf(handle.daemon_address, sizeof(handle.daemon_address),
		"0123456789abcdef:192.0.2.1:7000");
	memcpy(bytes, &handle, sizeof(handle));
	while (rc == NCCL_SUCCESS) {
		ck_assert_msg(now_ms() < until, "it waits: %s", warnings);
		rc = net_connect(context, NULL, DEV, bytes, &comm);
		ck_assert_ptr_null(comm);
	}
	ck_assert_msg(strstr(warnings, "reaches only this host"), "%s", warnings);
	net_close_listen(listener);
	close_stranger();
	end();
}
END_TEST

/* ---- times */

/* A queue pair gives up within the time of the setting, and not before half of it. */
START_LOOP_TEST(timeouts, 3)
{
	static const char *const settings[] = { "1", "5", "600" };
	int wanted;

	/* Read once, so this is the default where tests share a process. */
	setenv("FERRULE_TIMEOUT_S", settings[_i], 1);
	wanted = net_settings()->timeout_s;
	open_stranger();
	for (int hardware = 0; hardware < 2; hardware++) {
		const struct net_port port = {
			.info.is_hardware = hardware,
			.device = stranger.device,
		};
		const unsigned tries = hardware ? 8 : 79;
		struct frl_connect_config config;
		double seconds;

		net_connect_config(&port, NCCL_TRAFFIC_CLASS_UNDEFINED, 1, 0, &config);
		seconds = (double)((UINT64_C(4096) << config.timeout) * tries) / 1e9;
		ck_assert_double_le(seconds, wanted);
		ck_assert_double_gt(seconds * 2, wanted);
		ck_assert_uint_eq(config.access_flags, 0);
	}
	close_stranger();
}
END_TEST

/* ---- the cleanup thread */

struct counted {
	struct cleanup cleanup;
	int left;
};

static bool count(struct cleanup *cleanup)
{
	struct counted *counted = (struct counted *)cleanup;

	return --counted->left <= 0;
}

START_TEST(cleanups)
{
	struct counted some = { .cleanup = { .try_finish = count, .period_ms = 1 }, .left = 5 };
	struct counted more = { .cleanup = { .try_finish = count, .period_ms = 20 }, .left = 2 };
	struct counted background = {
		.cleanup = { .try_finish = count, .period_ms = 60000, .is_background = true },
		.left = 2,
	};

	net_cleanup_add(&background.cleanup);
	net_cleanup_add(&some.cleanup);
	net_cleanup_add(&more.cleanup);
	net_cleanup_wait();
	ck_assert_int_eq(some.left, 0);
	ck_assert_int_eq(more.left, 0);
	/* It was looked at, and is not waited for. */
	ck_assert_int_eq(background.left, 1);
	net_cleanup_wait();
	ck_assert_int_eq(background.left, 0);
}
END_TEST

/* ---- devices that communicators share */

static unsigned users_of(unsigned shard)
{
	struct net_port *port = net_port_at(net_device_shard(net_device_at(DEV), shard), 0);
	unsigned users;

	pthread_mutex_lock(&port->lock);
	users = port->users;
	pthread_mutex_unlock(&port->lock);
	return users;
}

/* A listener has its device once that is open. */
static void await_users(unsigned shard, unsigned users)
{
	uint64_t until = now_ms() + HANG_MS;

	while (users_of(shard) != users)
		ck_assert_msg(now_ms() < until, "shard %u has %u users", shard, users_of(shard));
}

/* Each has the device that the fewest others have. */
START_TEST(communicators_share)
{
	const struct net_config config = { .traffic_class = NCCL_TRAFFIC_CLASS_UNDEFINED };
	static const unsigned shards[] = { 0, 1, 2, 3, 0, 1 };
	uint64_t handles[6][NCCL_HANDLE_SIZE / 8] = { { 0 } };
	struct net_context *contexts[6];
	struct listener *listeners[6];
	unsigned users[NET_SHARDS] = { 0 };

	for (int i = 0; i < 6; i++) {
		if (i == 5) {
			/* The second one has ended: its device has none now. */
			ck_assert_int_eq(net_close_listen(listeners[1]), NCCL_SUCCESS);
			ck_assert_int_eq(net_finalize(contexts[1]), NCCL_SUCCESS);
			await_users(1, --users[1]);
		}
		ck_assert_int_eq(net_init(&config, take_line, NULL, &contexts[i]), NCCL_SUCCESS);
		ck_assert_int_eq(
			net_listen(contexts[i], DEV, handles[i], &listeners[i]), NCCL_SUCCESS);
		await_users(shards[i], ++users[shards[i]]);
	}
	for (int i = 0; i < 6; i++) {
		if (i == 1)
			continue;
		ck_assert_int_eq(net_close_listen(listeners[i]), NCCL_SUCCESS);
		ck_assert_int_eq(net_finalize(contexts[i]), NCCL_SUCCESS);
	}
	for (unsigned s = 0; s < NET_SHARDS; s++)
		ck_assert_uint_eq(users_of(s), 0);
}
END_TEST

/* It knows no threads that a child starts after fork(). */
#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER true
#elif defined(__has_feature)
#define THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define THREAD_SANITIZER false
#endif

/* A child has neither the thread nor its cleanups. */
START_TEST(child)
{
	static struct counted none = { .cleanup = { .try_finish = count, .period_ms = 50 },
		.left = 4 };
	static struct counted own = { .cleanup = { .try_finish = count, .period_ms = 1 },
		.left = 3 };
	int status;
	pid_t pid;

	if (THREAD_SANITIZER)
		return;
	net_cleanup_add(&none.cleanup);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		net_cleanup_wait();
		net_cleanup_add(&own.cleanup);
		net_cleanup_wait();
		_exit(own.left != 0 || none.left == 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	net_cleanup_wait();
	ck_assert_int_eq(none.left, 0);
}
END_TEST

TEST_MAIN(nccl_setup)
{
	set_socket_path();
	setenv("FERRULE_DEVICES", "local", 1);
	return run_with_daemon(run_suite, all_tests(NULL, NULL));
}
