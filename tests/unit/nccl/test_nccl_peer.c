/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL plugin, and this test as a peer that is not a plugin and sends anything: in handle and
 * hello, in announcements, and in the immediate data and lengths of writes. Invalid messages are
 * errors in the log and at the one connection; valid ones arrive. Each end checks by itself: the
 * peer here never does.
 */
#include <arpa/inet.h>
#include <check.h>
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/comm.h"
#include "nccl/connect/setup.h"
#include "tests/fixtures/bootstrap_fixture.h"
#include "tests/unit/nccl/nccl_log.h"
#include "tests/fixtures/program.h"

enum {
	MEMORY = 1 << 16,
	RECEIVE = 5000, /* bytes that a receive of the plugin takes */
	SEND = 1000,    /* that it sends */
	TAG = 5,
	SLOT = 512,
	DEPTH = 16,
	DEVICE = 0,
};

/* ---- NCCL's log */

static void warned(const char *what)
{
	pthread_mutex_lock(&log_lock);
	ck_assert_msg(strstr(warnings, what), "the log has no '%s': %s", what, warnings);
	pthread_mutex_unlock(&log_lock);
}

/* ---- the peer */

static struct net_context *context;
static struct {
	struct frl_device *device;
	struct frl_pd *pd;
	struct frl_cq *cq;
	struct frl_qp *qp;
	struct frl_conn *conn;
	struct frl_mr *mr;
	uint8_t *memory;
} peer;
/* The plugin's end. */
static struct comm *comm;
static struct registration *registration;
static struct request *request;
static uint8_t *memory;

static void ok(int result)
{
	ck_assert_msg(result >= 0, "%d: %s", result, frl_last_error());
}

static void begin(void)
{
	struct frl_qp_config config = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH };
	struct frl_device_config device;

	/* The rest of a test that failed. */
	memset(&peer, 0, sizeof(peer));
	comm = NULL;
	registration = NULL;
	request = NULL;
	stop_daemon();
	warnings[0] = '\0';
	start_daemon();
	ck_assert_int_eq(net_init(NULL, take_line, NULL, &context), NCCL_SUCCESS);
	frl_device_config_init(&device);
	ok(frl_device_open(&device, &peer.device));
	ok(frl_pd_create(peer.device, &peer.pd));
	ok(frl_cq_create(peer.device, 4 * DEPTH, &peer.cq));
	config.send_cq = config.recv_cq = peer.cq;
	ok(frl_qp_create(peer.pd, &config, &peer.qp));
	peer.memory = calloc(1, MEMORY);
	memory = calloc(1, MEMORY);
	ck_assert(peer.memory && memory);
	ok(frl_reg_mr(peer.pd, peer.memory, MEMORY,
		FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE, &peer.mr));
}

static void end(void)
{
	if (registration)
		net_deregister(registration);
	if (comm)
		net_close(comm);
	frl_conn_close(peer.conn);
	frl_qp_destroy(peer.qp);
	ok(frl_cq_destroy(peer.cq));
	ok(frl_dereg_mr(peer.mr));
	ok(frl_pd_destroy(peer.pd));
	ok(frl_device_close(peer.device));
	ck_assert_int_eq(net_finalize(context), NCCL_SUCCESS);
	free(peer.memory);
	free(memory);
	stop_daemon();
}

static void register_memory(void)
{
	ck_assert_int_eq(
		net_register(comm, memory, MEMORY, NCCL_PTR_HOST, &registration), NCCL_SUCCESS);
}

static void configure(struct frl_connect_config *config)
{
	frl_connect_config_init(peer.device, config);
	config->timeout_ms = HANG_MS;
	config->access_flags = FRL_ACCESS_REMOTE_WRITE;
}

/* The peer's next completion, while both ends are driven. */
static struct frl_wc next_completion(void)
{
	uint64_t until = now_ms() + HANG_MS;
	struct frl_wc wc;
	int n;

	while ((n = frl_poll_cq(peer.cq, 1, &wc)) == 0) {
		net_comm_poll(comm);
		ck_assert_msg(now_ms() < until, "nothing comes: %s", warnings);
	}
	ok(n);
	return wc;
}

static void post_receive(void)
{
	const struct frl_sge sge = {
		.addr = peer.memory, .length = SLOT, .lkey = frl_mr_lkey(peer.mr)
	};
	const struct frl_recv_wr wr = { .sge = &sge, .n_sge = 1 };

	ok(frl_post_recv(peer.qp, &wr, 1, NULL));
}

/* The plugin's request at its end: 1 done, -1 failed. */
static int finish(int *ret_size)
{
	uint64_t until = now_ms() + HANG_MS;
	int done = 0;

	while (!done) {
		if (net_test(request, &done, ret_size) != NCCL_SUCCESS)
			return -1;
		frl_progress(peer.device);
		ck_assert_msg(now_ms() < until, "no end: %s", warnings);
	}
	return 1;
}

/* ---- handles: of a listener that there is not, so no one comes to be */

static const struct handle_row {
	size_t at;
	uint8_t value;
	const char *says;
} handle_rows[] = {
	{ offsetof(struct net_handle, magic), 1, "no handle of this plugin" },
	{ offsetof(struct net_handle, version), SETUP_VERSION + 1, "has protocol version" },
	{ offsetof(struct net_handle, n_rails), 0, "is damaged" },
	{ offsetof(struct net_handle, n_rails), NET_MAX_RAILS + 1, "is damaged" },
	{ offsetof(struct net_handle, n_qps), 0, "is damaged" },
	{ offsetof(struct net_handle, n_qps), 100, "is damaged" },
	{ offsetof(struct net_handle, daemon_address) + FRL_PLACE_SIZE - 1, 'x', "is damaged" },
};

static void make_handle(uint64_t bytes[NCCL_HANDLE_SIZE / 8])
{
	struct net_handle handle = {
		.magic = SETUP_MAGIC,
		.version = SETUP_VERSION,
		.n_rails = 1,
		.n_qps = 1,
		.name = 0x1234,
	};

	ok(frl_place_create(handle.daemon_address));
	memset(bytes, 0, NCCL_HANDLE_SIZE);
	memcpy(bytes, &handle, sizeof(handle));
}

START_LOOP_TEST(handles, ROWS(handle_rows))
{
	const struct handle_row *row = &handle_rows[_i];
	uint64_t handle[NCCL_HANDLE_SIZE / 8];

	begin();
	make_handle(handle);
	if (row->value == 'x')
		memset((uint8_t *)handle + offsetof(struct net_handle, daemon_address), 'x',
			FRL_PLACE_SIZE);
	((uint8_t *)handle)[row->at] = row->value;
	ck_assert_int_ne(net_connect(context, NULL, DEVICE, handle, &comm), NCCL_SUCCESS);
	ck_assert_ptr_null(comm);
	warned(row->says);
	end();
}
END_TEST

/* ---- hellos: the plugin listens */

/* Returns 0 if there is a connection, or the reason, with the plugin's text in frl_last_error(). */
static int ask(const struct net_hello *hello, size_t size)
{
	uint64_t handle[NCCL_HANDLE_SIZE / 8] = { 0 }, until = now_ms() + HANG_MS;
	char service[FRL_SERVICE_MAX + 1];
	struct frl_connect_config config;
	struct listener *listener;
	struct net_handle is;
	int err = -EAGAIN;

	ck_assert_int_eq(net_listen(context, DEVICE, handle, &listener), NCCL_SUCCESS);
	memcpy(&is, handle, sizeof(is));
	ck_assert_uint_eq(is.n_rails, 1);
	net_service_name(is.name, 0, service);
	configure(&config);
	/* Until the service is known. */
	while (!comm && err == -EAGAIN) {
		ck_assert_msg(now_ms() < until, "no connection: %s", warnings);
		if (!peer.conn)
			ok(frl_connect(peer.qp, "", service, hello, size, &config, &peer.conn));
		ck_assert_int_eq(net_accept(listener, &comm), NCCL_SUCCESS);
		err = frl_conn_test(peer.conn);
		if (err == -ECONNREFUSED && !frl_conn_private_data(peer.conn, NULL, 0)) {
			static const struct frl_qp_attr reset = { .state = FRL_QPS_RESET };

			frl_conn_close(peer.conn);
			peer.conn = NULL;
			ok(frl_qp_modify(peer.qp, &reset, FRL_QP_STATE));
			err = -EAGAIN;
		}
		if (err == 0 && !comm)
			err = -EAGAIN;
	}
	net_close_listen(listener);
	return comm ? 0 : err;
}

static const struct net_hello good_hello = {
	.magic = SETUP_MAGIC,
	.version = SETUP_VERSION,
	.n_paths = 1,
	.n_rails = 1,
	.connection = 77,
};

static const struct hello_row {
	size_t at, size;
	uint8_t value;
	const char *says;
} hello_rows[] = {
	{ 0, sizeof(good_hello), 1, "not from this plugin" },
	{ 0, sizeof(good_hello) - 1, SETUP_MAGIC & 0xff, "not from this plugin" },
	{ offsetof(struct net_hello, version), sizeof(good_hello), SETUP_VERSION + 1,
		"have different releases" },
	{ offsetof(struct net_hello, n_paths), sizeof(good_hello), 0, "invalid path numbers" },
	{ offsetof(struct net_hello, n_paths), sizeof(good_hello), NET_MAX_PATHS + 1,
		"invalid path numbers" },
	{ offsetof(struct net_hello, path), sizeof(good_hello), 1, "invalid path numbers" },
	{ offsetof(struct net_hello, n_rails), sizeof(good_hello), 0, "invalid path numbers" },
	{ offsetof(struct net_hello, n_rails), sizeof(good_hello), NET_MAX_RAILS + 1,
		"invalid path numbers" },
};

START_LOOP_TEST(hellos, ROWS(hello_rows))
{
	const struct hello_row *row = &hello_rows[_i];
	struct net_hello hello = good_hello;

	begin();
	((uint8_t *)&hello)[row->at] = row->value;
	ck_assert_int_eq(ask(&hello, row->size), -ECONNREFUSED);
	ck_assert_msg(strstr(frl_last_error(), row->says), "%s", frl_last_error());
	warned(row->says);
	end();
}
END_TEST

/* ---- what is written to the plugin's receiver, of two writes at most */

static const struct write_row {
	struct {
		uint32_t bytes, number, part, n_pieces;
	} writes[2];
	int n;
	bool is_good;
} write_rows[] = {
	{ { { RECEIVE, 0, 0, 1 } }, 1, true },
	{ { { 0, 0, 0, 1 } }, 1, true },
	{ { { RECEIVE / 2, 0, 0, 2 }, { RECEIVE / 2, 0, 0, 2 } }, 2, true },
	{ { { RECEIVE + 1, 0, 0, 1 } }, 1, false },
	{ { { RECEIVE, 0, 0, 2 }, { 1, 0, 0, 2 } }, 2, false },
	{ { { RECEIVE, 1, 0, 1 } }, 1, false },
	{ { { RECEIVE, 0, 1, 1 } }, 1, false },
	{ { { RECEIVE, 0, 0, 0 } }, 1, false },
	{ { { 10, 0, 0, 2 }, { 10, 0, 0, 3 } }, 2, false },
};

static uint64_t read_u64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return le64toh(value);
}

static uint32_t read_u32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return le32toh(value);
}

static void write_to(uint64_t addr, uint32_t rkey, uint32_t bytes, uint32_t imm)
{
	const struct frl_sge sge = {
		.addr = peer.memory + SLOT, .length = bytes, .lkey = frl_mr_lkey(peer.mr)
	};
	const struct frl_send_wr wr = {
		.opcode = FRL_WR_RDMA_WRITE_WITH_IMM,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = bytes ? 1 : 0,
		.imm_data = htonl(imm),
		.remote_addr = addr,
		.rkey = rkey,
	};

	ok(frl_post_send(peer.qp, &wr, 1, NULL));
}

START_LOOP_TEST(writes, ROWS(write_rows))
{
	const struct write_row *row = &write_rows[_i];
	struct net_buffer to = { .size = RECEIVE, .tag = TAG };
	int size = -1, result;
	uint32_t bytes = 0;

	begin();
	ok(ask(&good_hello, sizeof(good_hello)));
	post_receive();
	register_memory();
	to.data = memory + 64;
	to.registration = registration;
	ck_assert_int_eq(net_receive(comm, 1, &to, &request), NCCL_SUCCESS);
	ck_assert_uint_eq(next_completion().byte_len, ANNOUNCEMENT_HEAD + ANNOUNCEMENT_PART + 4);
	ck_assert_uint_eq(read_u32(peer.memory), 0);
	ck_assert_uint_eq(read_u32(peer.memory + 4), 1);
	ck_assert_uint_eq(read_u64(peer.memory + 8), (uintptr_t)to.data);
	ck_assert_uint_eq(read_u64(peer.memory + 16), RECEIVE);
	ck_assert_uint_eq(read_u32(peer.memory + 24), TAG);
	memset(peer.memory + SLOT, 0xc5, MEMORY - SLOT);
	for (int i = 0; i < row->n; i++) {
		write_to((uintptr_t)to.data + bytes, read_u32(peer.memory + 28),
			row->writes[i].bytes,
			row->writes[i].number | row->writes[i].part << 8 |
				row->writes[i].n_pieces << 11);
		bytes += row->writes[i].bytes;
	}
	result = finish(&size);
	if (row->is_good) {
		ck_assert_msg(result == 1, "%s", warnings);
		ck_assert_uint_eq(size, bytes);
		ck_assert(!bytes || (memory[64] == 0xc5 && memory[64 + bytes - 1] == 0xc5));
		ck_assert_uint_eq(memory[64 + bytes], 0);
	} else {
		ck_assert_int_eq(result, -1);
		warned("the peer violates the plugin's protocol");
	}
	end();
}
END_TEST

/* ---- what is announced to the plugin's sender */

static const struct announcement_row {
	uint32_t number;
	uint8_t n;
	uint64_t size;
	int more;         /* bytes than there should be */
	const char *says; /* NULL: it is good */
} announcement_rows[] = {
	{ 0, 1, SEND, 0, NULL },
	{ 0, 1, SEND + 1, 0, NULL },
	{ 0, 1, SEND - 1, 0, "exceeds its receive of 999" },
	{ 0, 1, 0, 0, "exceeds its receive of 0" },
	{ 1, 1, SEND, 0, "violates the plugin's protocol" },
	{ 0, 0, SEND, 0, "violates the plugin's protocol" },
	{ 0, NET_MAX_RECEIVES + 1, SEND, 0, "violates the plugin's protocol" },
	{ 0, 1, SEND, -1, "violates the plugin's protocol" },
	{ 0, 1, SEND, 4, "violates the plugin's protocol" },
	{ 0, 2, SEND, -24, "violates the plugin's protocol" },
};

static uint8_t *put(uint8_t *at, uint64_t value, size_t size)
{
	value = htole64(value);
	memcpy(at, &value, size);
	return at + size;
}

static void announce(const struct announcement_row *row)
{
	uint8_t *start = peer.memory, *at = put(put(start, row->number, 4), row->n, 4);
	struct frl_sge sge = { .addr = start, .lkey = frl_mr_lkey(peer.mr) };
	const struct frl_send_wr wr = {
		.opcode = FRL_WR_SEND,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1,
	};

	for (uint8_t i = 0; i < row->n; i++) {
		at = put(at, (uintptr_t)peer.memory + MEMORY / 2, 8);
		at = put(at, row->size, 8);
		at = put(at, TAG, 4);
		at = put(at, frl_mr_rkey(peer.mr), 4);
	}
	sge.length = (uint32_t)(at - start + row->more);
	ok(frl_post_send(peer.qp, &wr, 1, NULL));
}

/* The plugin connects, to a listener of the peer's. */
static void be_asked(const void *welcome, size_t size)
{
	uint64_t handle[NCCL_HANDLE_SIZE / 8], until = now_ms() + HANG_MS;
	char service[FRL_SERVICE_MAX + 1];
	struct frl_connect_config config;
	struct frl_listener *listener;
	struct net_hello hello;
	int rc = NCCL_SUCCESS;

	make_handle(handle);
	net_service_name(0x1234, 0, service);
	ok(frl_listen(peer.device, service, NULL, &listener));
	configure(&config);
	while (!comm && rc == NCCL_SUCCESS) {
		ck_assert_msg(now_ms() < until, "no connection: %s", warnings);
		rc = net_connect(context, NULL, DEVICE, handle, &comm);
		if (peer.conn || frl_get_request(listener, &peer.conn))
			continue;
		ck_assert_uint_eq(
			frl_conn_private_data(peer.conn, &hello, sizeof(hello)), sizeof(hello));
		ck_assert_uint_eq(hello.magic, SETUP_MAGIC);
		ck_assert_uint_eq(hello.version, SETUP_VERSION);
		ck_assert(hello.n_paths == 1 && hello.path == 0 && hello.n_rails == 1);
		ok(frl_accept(peer.conn, peer.qp, welcome, size, &config));
	}
	frl_listener_close(listener);
}

static const struct net_welcome good_welcome = {
	.magic = SETUP_MAGIC,
	.version = SETUP_VERSION,
};

START_LOOP_TEST(announcements, ROWS(announcement_rows))
{
	const struct announcement_row *row = &announcement_rows[_i];
	struct net_buffer from = { .size = SEND, .tag = TAG };
	uint8_t *to;
	int size;

	begin();
	to = peer.memory + MEMORY / 2;
	be_asked(&good_welcome, sizeof(good_welcome));
	ck_assert_msg(comm, "%s", warnings);
	register_memory();
	memset(memory, 0xc5, MEMORY);
	from.data = memory;
	from.registration = registration;
	ok(frl_conn_wait(peer.conn, HANG_MS));
	post_receive();
	announce(row);
	ck_assert_int_eq(net_send(comm, &from, &request), NCCL_SUCCESS);
	if (!row->says) {
		ck_assert_msg(finish(&size) == 1, "%s", warnings);
		ck_assert(to[0] == 0xc5 && to[SEND - 1] == 0xc5);
	} else {
		ck_assert_int_eq(finish(&size), -1);
		warned(row->says);
		ck_assert_uint_eq(to[0], 0);
	}
	ck_assert_uint_eq(to[SEND], 0);
	end();
}
END_TEST

/* A program that has taken the listener's name. */
START_TEST(strange_welcome)
{
	begin();
	be_asked("FRLX", 4);
	ck_assert_ptr_null(comm);
	end();
}
END_TEST

TEST_MAIN(nccl_peer)
{
	set_socket_path();
	setenv("FERRULE_DEVICES", "local", 1);
	return run_suite_unforked(all_tests(NULL, NULL));
}
