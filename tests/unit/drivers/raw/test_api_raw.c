/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface over ports of raw packets, on a libibverbs in memory: it shows nothing about
 * NICs. Memory of GPUs: test_api_far.c. */
#include "tests/fixtures/program.h"
#include "tests/unit/drivers/raw/raw_fixture.h"

#include <stdio.h>

#include <sys/stat.h>

#include "tests/fixtures/api_fixture.h"

static void open_raw(struct end *end, const char *name, const char *ip, enum frl_progress progress)
{
	struct frl_device_config config;

	frl_device_config_init(&config);
	config.port = name;
	config.ip = ip;
	config.progress = progress;
	/* Larger than networks have: up to the port's limit. */
	config.path_mtu = end == &b ? 16384 : 0;
	make_end(end, false, &config);
}

static void fill(void)
{
	for (uint32_t i = 0; i < MEMORY; i++) {
		a.memory[i] = (uint8_t)(i * 7 + i / 251);
		b.memory[i] = 0x11;
	}
}

/* Options of the devices. */
static const struct {
	const char *ips[2];
	const char *mtu; /* of the second one's interface */
	enum frl_progress progress;
	uint32_t path_mtu;
} pairs[] = {
	{ { "10.0.0.1/24", "10.0.0.2/24" }, "4200\n", FRL_PROGRESS_INLINE, 4096 },
	{ { "fd00::1/64", "fd00::2/64" }, "4200\n", FRL_PROGRESS_INLINE, 4096 },
	{ { "10.0.0.1/24", "10.0.0.2/24" }, "1500\n", FRL_PROGRESS_INLINE, 1024 },
	{ { "10.0.0.1/24@7", "10.0.0.2/24@7" }, "4200\n", FRL_PROGRESS_INLINE, 4096 },
	{ { "10.0.0.1/24", "10.0.0.2/24" }, "9000\n", FRL_PROGRESS_THREAD, 4096 },
};

static void start_pair(int i)
{
	struct fake_verbs_device device;

	raw_setup();
	raw_plug(0);
	raw_describe(&device, 1);
	raw_put(1, "mtu", pairs[i].mtu);
	fake_verbs_add(&device);
	open_raw(&a, "raw:nic0", pairs[i].ips[0], pairs[i].progress);
	open_raw(&b, "raw:nic1,slots=256", pairs[i].ips[1], pairs[i].progress);
	connect_both();
	fill();
}

static void finish_pair(void)
{
	finish();
	raw_teardown();
}

static void move_all(void)
{
	struct frl_sge sge = sge_of(&a, 5, MESSAGE);
	struct frl_send_wr wr = send_wr(2, FRL_WR_SEND, &sge);
	struct frl_wc wc;

	post_recv(1, 100, MESSAGE, false);
	post_send(&wr);
	expect(&a, 2, FRL_WC_SUCCESS);
	wc = expect(&b, 1, FRL_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, MESSAGE);
	ck_assert_mem_eq(b.memory + 100, a.memory + 5, MESSAGE);
	ck_assert_uint_eq(b.memory[99], 0x11);
	ck_assert_uint_eq(b.memory[100 + MESSAGE], 0x11);

	wr = send_wr(3, FRL_WR_RDMA_WRITE, &sge);
	wr.remote_addr += 30000;
	post_send(&wr);
	expect(&a, 3, FRL_WC_SUCCESS);
	ck_assert_mem_eq(b.memory + 30000, a.memory + 5, MESSAGE);

	for (uint32_t i = 0; i < MESSAGE; i++)
		b.memory[i] = (uint8_t)(i * 13 + i / 250);
	wr = send_wr(4, FRL_WR_RDMA_READ, &sge);
	post_send(&wr);
	expect(&a, 4, FRL_WC_SUCCESS);
	ck_assert_mem_eq(a.memory + 5, b.memory, MESSAGE);
}

START_LOOP_TEST(moves, ROWS(pairs))
{
	struct frl_device_attr attr;
	struct frl_qp_attr qp;

	start_pair(_i);
	frl_device_query(a.device, &attr);
	ck_assert_str_eq(attr.port, "raw:nic0");
	ck_assert(!attr.local_fabric && !attr.lossless && attr.port_state == FRL_PORT_ACTIVE);
	ck_assert_uint_eq(attr.path_mtu, 4096);
	frl_qp_query(a.qp, &qp);
	ck_assert_uint_eq(qp.path_mtu, pairs[_i].path_mtu);
	move_all();
	finish_pair();
}
END_TEST

/* Each frame that is long is lost once in a while. */
static bool lose(void *arg, const char *device, const uint8_t *frame, size_t length)
{
	unsigned *n = arg;

	return length < 1000 || ++*n % 6 != 0;
}

START_TEST(recovers)
{
	unsigned n = 0;

	start_pair(0);
	fake_verbs_tap(lose, &n);
	move_all();
	ck_assert_uint_gt(n, 15);
	finish_pair();
}
END_TEST

/* Memory stays registered while the NIC has packets that refer to it. */
START_TEST(waits_for_nic)
{
	struct frl_sge sge;
	struct frl_send_wr wr;

	start_pair(0);
	sge = sge_of(&a, 0, 4000);
	wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	fake_verbs_hold(true);
	post_send(&wr);
	for (unsigned i = 0; i < 10; i++)
		frl_progress(a.device);
	frl_qp_destroy(a.qp);
	ck_assert_int_eq(frl_dereg_mr(a.mr), -EBUSY);
	fake_verbs_hold(false);
	a.qp = add_qp(&a);
	finish_pair();
}
END_TEST

/* ---- what fails */

/* The device fails while it is used: it is reported, and everything can be closed. */
START_TEST(fails)
{
	struct frl_sge sge;
	struct frl_send_wr wr;
	struct frl_device_attr attr;
	uint64_t limit_ns;

	start_pair(0);
	sge = sge_of(&a, 0, MESSAGE);
	wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	fake_verbs_hold(true);
	post_send(&wr);
	frl_progress(a.device);
	fake_verbs_raise("nic0", IBV_EVENT_DEVICE_FATAL, 1);
	fake_verbs_hold(false);
	limit_ns = hang_limit_ns();
	do {
		frl_progress(a.device);
		frl_device_query(a.device, &attr);
	} while (attr.port_state == FRL_PORT_ACTIVE && may_wait(limit_ns));
	ck_assert_int_eq(attr.port_state, FRL_PORT_DOWN);
	finish_pair();
}
END_TEST

static const struct {
	const char *port, *ip;
	int err;
	const char *word;
} refusals[] = {
	{ "raw:nic9", "10.0.0.1/24", -ENODEV, "there is no RDMA device 'nic9', but nic0" },
	{ "raw:nic0", NULL, -EINVAL, "needs an IP address" },
	{ "raw:", "10.0.0.1/24", -EINVAL, "raw:DEVICE" },
};

START_LOOP_TEST(refuses, ROWS(refusals))
{
	struct frl_device_config config;
	struct frl_device *device;

	raw_setup();
	raw_plug(0);
	frl_device_config_init(&config);
	config.port = refusals[_i].port;
	config.ip = refusals[_i].ip;
	refused(frl_device_open(&config, &device), refusals[_i].err, refusals[_i].word);
	raw_teardown();
}
END_TEST

static int try_to_open(const char *name, struct frl_device **ret_device)
{
	struct frl_device_config config;

	frl_device_config_init(&config);
	config.port = name;
	config.ip = "10.0.0.1/24";
	config.progress = FRL_PROGRESS_INLINE;
	return frl_device_open(&config, ret_device);
}

/* A port can be open once in a process, and can be opened again after it was closed, or after a
 * failure to open. */
START_TEST(refuses_open_port)
{
	struct frl_device *device, *other;

	raw_setup();
	raw_plug(0);
	for (unsigned i = 0; i < 2; i++) {
		fake_verbs_fail("ibv_create_flow", 1, EIO);
		ck_assert_int_lt(try_to_open("raw:nic0", &device), 0);
		ok(try_to_open("raw:nic0", &device));
		refused(try_to_open("raw:nic0,slots=256", &other), -EEXIST,
			"has opened raw:nic0 already");
		refused(try_to_open("raw:nic0/2", &other), -ENODEV, "no port 2");
		ok(frl_device_close(device));
	}
	raw_teardown();
}
END_TEST

/* One of them is the NIC's own, others stand for its functions: no guess is made. */
START_TEST(refuses_several_interfaces)
{
	struct fake_verbs_device device;
	struct frl_device *other;
	char path[128];

	raw_setup();
	raw_describe(&device, 0);
	snprintf(path, sizeof(path), "%s/device/net/rep0", device.sysfs);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	fake_verbs_add(&device);
	refused(try_to_open("raw:nic0", &other), -ENOTSUP, "several network interfaces (");
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "rep0"));
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "raw0"));
	raw_teardown();
}
END_TEST

TEST_MAIN(api_raw)
{
	return run_rows(all_tests(NULL, close_ends));
}
