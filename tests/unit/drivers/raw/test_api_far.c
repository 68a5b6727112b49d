/* SPDX-License-Identifier: BSD-3-Clause */
/* Payload that a port has put into memory of a GPU: the public interface over ports of raw packets,
 * on doubles of libibverbs and of CUDA's driver. It shows nothing about NICs or GPUs. */
#include <pthread.h>
#include <time.h>

#include "lib/device/device.h"
#include "lib/wire/packet.h"
#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/gpu_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/unit/drivers/raw/raw_fixture.h"

enum {
	REMOTE = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ,
	LENGTH = 20001,
	FLOATS = 3000,
};

static const struct {
	const char *ports[2];
	const char *ips[2];
	enum frl_icrc_mode icrc;
	bool has_icrc, loses;
} pairs[] = {
	{ { "raw:nic0,gpu=0", "raw:nic1,gpu=0" }, { "10.0.0.1/24", "10.0.0.2/24" }, FRL_ICRC_AUTO,
		false, false },
	{ { "raw:nic0,gpu=0", "raw:nic1,gpu=0" }, { "fd00::1/64", "fd00::2/64" }, FRL_ICRC_AUTO,
		false, true },
	{ { "raw:nic0,gpu=0", "raw:nic1,gpu=0" }, { "10.0.0.1/24@7", "10.0.0.2/24@7" },
		FRL_ICRC_ALWAYS, true, true },
	/* Both have to offer to go without. */
	{ { "raw:nic0", "raw:nic1,gpu=0" }, { "10.0.0.1/24", "10.0.0.2/24" }, FRL_ICRC_AUTO, true,
		false },
	{ { "raw:nic0,gpu=0", "raw:nic1" }, { "10.0.0.1/24", "10.0.0.2/24" }, FRL_ICRC_AUTO, true,
		false },
};

static struct gpu *gpu;
static cu_deviceptr there; /* 4 MiB of the GPU's: half for each end */
static struct frl_mr *mine, *theirs;
static uint8_t found[LENGTH + 2];

static void open_far(struct end *end, unsigned i, unsigned k)
{
	struct frl_device_config config;

	frl_device_config_init(&config);
	config.port = pairs[i].ports[k];
	config.ip = pairs[i].ips[k];
	config.icrc = pairs[i].icrc;
	config.progress = FRL_PROGRESS_INLINE;
	make_end(end, false, &config);
}

/* Frames that leave with an ICRC have the right one, whatever holds the payload; one in six long
 * frames is lost, if any. */
struct watch {
	bool has_icrc, loses;
	unsigned n, wrong;
};

static bool look(void *arg, const char *device, const uint8_t *frame, size_t length)
{
	struct watch *watch = arg;
	struct wire_packet packet;

	if (wire_decode(&packet, frame, length) != WIRE_OK)
		return true;
	if (watch->has_icrc && (wire_trim(&packet, true) || !wire_icrc_ok(&packet)))
		watch->wrong++;
	return length < 1000 || ++watch->n % 6 != 0 || !watch->loses;
}

static struct watch watch;

static void start_pair(unsigned i)
{
	gpu_setup();
	raw_setup();
	raw_plug(0);
	raw_plug(1);
	gpu = hold(0);
	there = allocate(gpu->context, 4 * MIB);
	open_far(&a, i, 0);
	open_far(&b, i, 1);
	ok(frl_reg_mr(a.pd, at(there), 2 * MIB, REMOTE, &mine));
	ok(frl_reg_mr(b.pd, at(there + 2 * MIB), 2 * MIB, REMOTE, &theirs));
	connect_both();
	watch = (struct watch){ pairs[i].has_icrc, pairs[i].loses, 0, 0 };
	fake_verbs_tap(look, &watch);
	for (uint32_t n = 0; n < MEMORY; n++)
		a.memory[n] = (uint8_t)(n * 7 + n / 251);
}

/* The memory of b, and b. */
static void finish_b(void)
{
	fake_verbs_tap(NULL, NULL);
	ck_assert_uint_eq(watch.wrong, 0);
	ok(frl_dereg_mr(theirs));
	close_end(&b);
}

static void finish_a(void)
{
	ok(frl_dereg_mr(mine));
	close_end(&a);
	release(gpu->context, there);
	gpu_release(gpu);
	raw_teardown();
	gpu_teardown();
}

static void finish_pair(void)
{
	finish_b();
	finish_a();
}

static void see(cu_deviceptr address, uint32_t length)
{
	fake->settle();
	ck_assert(fake->read(found, address, length));
}

/* From a's memory, of that kind, to b's, which has another alignment. Nothing is written beside
 * it. */
static void carry(enum frl_wr_opcode opcode, bool from_gpu, bool to_gpu, uint32_t offset)
{
	struct frl_sge from = sge_of(&a, offset, LENGTH), to;
	struct frl_recv_wr recv = { .wr_id = 1, .sge = &to, .n_sge = 1 };
	cu_deviceptr far = there + 2 * MIB + 3 * offset;
	uint8_t *near = b.memory + 3 * offset;
	struct frl_send_wr wr;

	if (from_gpu) {
		ck_assert(fake->write(there + offset, a.memory + offset, LENGTH));
		from = (struct frl_sge){ at(there + offset), LENGTH, frl_mr_lkey(mine) };
	}
	to = (struct frl_sge){ near, LENGTH, frl_mr_lkey(b.mr) };
	memset(found, 0x5c, sizeof(found));
	ck_assert(fake->write(far - 1, found, LENGTH + 2));
	if (to_gpu)
		to = (struct frl_sge){ at(far), LENGTH, frl_mr_lkey(theirs) };
	wr = send_wr(2, opcode, &from);
	wr.remote_addr = (uintptr_t)to.addr;
	wr.rkey = to_gpu ? frl_mr_rkey(theirs) : frl_mr_rkey(b.mr);
	if (opcode == FRL_WR_SEND)
		ck_assert_msg(frl_post_recv(b.qp, &recv, 1, NULL) == 1, "%s", frl_last_error());
	post_send(&wr);
	expect(&a, 2, FRL_WC_SUCCESS);
	if (opcode == FRL_WR_SEND)
		expect(&b, 1, FRL_WC_SUCCESS);
	for (unsigned n = 0; to_gpu && n < 1000; n++)
		frl_progress(b.device);
	see(far - 1, LENGTH + 2);
	ck_assert(found[0] == 0x5c && found[LENGTH + 1] == 0x5c);
	ck_assert_mem_eq(to_gpu ? found + 1 : near, a.memory + offset, LENGTH);
}

/* b's memory, of that kind, is read into a's. */
static void read_back(bool from_gpu, bool to_gpu, uint32_t offset)
{
	struct frl_sge to = sge_of(&a, offset, LENGTH);
	struct frl_send_wr wr;

	memset(b.memory, (int)offset, MEMORY);
	ck_assert(fake->write(there + 2 * MIB, b.memory, MEMORY));
	if (to_gpu)
		to = (struct frl_sge){ at(there + offset), LENGTH, frl_mr_lkey(mine) };
	wr = send_wr(3, FRL_WR_RDMA_READ, &to);
	wr.remote_addr = from_gpu ? there + 2 * MIB + 3 : (uintptr_t)b.memory + 3;
	wr.rkey = from_gpu ? frl_mr_rkey(theirs) : frl_mr_rkey(b.mr);
	post_send(&wr);
	expect(&a, 3, FRL_WC_SUCCESS);
	if (to_gpu)
		see(there + offset, LENGTH);
	ck_assert_mem_eq(to_gpu ? found : a.memory + offset, b.memory, LENGTH);
}

static void reduce(void)
{
	struct frl_sge from = { at(there), FLOATS * 4, frl_mr_lkey(mine) };
	struct frl_sge to = { at(there + 2 * MIB), FLOATS * 4, frl_mr_lkey(theirs) };
	struct frl_recv_wr recv = { .wr_id = 1, .sge = &to, .n_sge = 1 };
	struct frl_send_wr wr = send_wr(2, FRL_WR_SEND, &from);
	float values[FLOATS];

	recv.action = (struct frl_recv_action){
		.type = FRL_ACTION_REDUCE, .dtype = FRL_FLOAT32, .op = FRL_SUM
	};
	for (unsigned n = 0; n < FLOATS; n++)
		values[n] = (float)n;
	ck_assert(fake->write(there, values, sizeof(values)));
	for (unsigned n = 0; n < FLOATS; n++)
		values[n] = 1000;
	ck_assert(fake->write(there + 2 * MIB, values, sizeof(values)));
	ck_assert_msg(frl_post_recv(b.qp, &recv, 1, NULL) == 1, "%s", frl_last_error());
	post_send(&wr);
	expect(&a, 2, FRL_WC_SUCCESS);
	expect(&b, 1, FRL_WC_SUCCESS);
	fake->settle();
	ck_assert(fake->read(values, there + 2 * MIB, sizeof(values)));
	for (unsigned n = 0; n < FLOATS; n++)
		ck_assert(values[n] == 1000.0F + (float)n);
}

static void expect_tier(const struct frl_mr *mr, bool is_queue)
{
	struct frl_mr_attr attr;

	frl_mr_query(mr, &attr);
	ck_assert_str_eq(frl_mr_tier_name(attr.tier), is_queue ? "nic-queue" : "mapped");
	ck_assert(is_queue ? !*attr.reason : strstr(attr.reason, "gpu=N") != NULL);
}

START_LOOP_TEST(moves, ROWS(pairs))
{
	bool far_a = strstr(pairs[_i].ports[0], "gpu"), far_b = strstr(pairs[_i].ports[1], "gpu");
	struct frl_stats stats;
	struct frl_qp_attr qp;

	start_pair((unsigned)_i);
	/* The memory of each end: packets, the application's, and all of the engine's buffers at
	 * once. Memory of GPUs is registered by dma-bufs. */
	ck_assert_uint_eq(fake_verbs_calls("ibv_reg_mr"), 2 * 3);
	expect_tier(mine, far_a);
	expect_tier(theirs, far_b);
	frl_qp_query(a.qp, &qp);
	ck_assert_int_eq(!(qp.capabilities & FRL_CAP_NO_ICRC), pairs[_i].has_icrc);
	carry(FRL_WR_SEND, true, true, 0);
	carry(FRL_WR_RDMA_WRITE, true, true, 5);
	reduce();
	read_back(true, true, 32);
	frl_device_stats(b.device, &stats);
	ck_assert_uint_eq(stats.offload_direct > 0, !pairs[_i].has_icrc);
	ck_assert_uint_eq(stats.offload_gathered > 0, pairs[_i].has_icrc);
	if (!pairs[_i].loses)
		ck_assert_uint_eq(stats.offload_fetched > 0, far_b && pairs[_i].has_icrc);
	for (unsigned way = 0; way < 3; way++) {
		carry(FRL_WR_SEND, way & 1, way & 2, 7);
		carry(FRL_WR_RDMA_WRITE, way & 1, way & 2, 8);
		read_back(way & 1, way & 2, 9);
	}
	frl_device_stats(b.device, &stats);
	ck_assert_uint_eq(stats.offload_fetched > 0, far_b);
	ck_assert_uint_eq(stats.drop_bad_icrc, 0);
	finish_pair();
}
END_TEST

/* From memory that no processor may read, lengths up to the shortest frame of Ethernet: alone, or
 * behind full packets. */
START_LOOP_TEST(short_ends, 3)
{
	start_pair((unsigned)_i);
	for (uint32_t full = 0; full <= 8192; full += 4096) {
		for (uint32_t n = 1; n <= 8; n++) {
			struct frl_sge sge = { at(there + 64), full + n, frl_mr_lkey(mine) };
			struct frl_send_wr wr = send_wr(2, FRL_WR_RDMA_WRITE, &sge);

			ck_assert(fake->write(there + 64, a.memory + full + 5 * n, full + n));
			wr.remote_addr = there + 2 * MIB + n;
			wr.rkey = frl_mr_rkey(theirs);
			post_send(&wr);
			expect(&a, 2, FRL_WC_SUCCESS);
			/* And back, as answers. */
			sge.addr = at(there + 32768);
			wr.wr_id = 3;
			wr.opcode = FRL_WR_RDMA_READ;
			post_send(&wr);
			expect(&a, 3, FRL_WC_SUCCESS);
			see(there + 32768, full + n);
			ck_assert_mem_eq(found, a.memory + full + 5 * n, full + n);
		}
	}
	finish_pair();
}
END_TEST

/* Meanwhile neither that device nor other devices' memory is locked. */
static void *go_on_later(void *arg)
{
	const struct timespec later = { .tv_nsec = 50 * 1000 * 1000 };
	struct frl_mr *mr;

	nanosleep(&later, NULL);
	pthread_mutex_lock(&b.device->guard.mutex);
	pthread_mutex_unlock(&b.device->guard.mutex);
	ok(frl_reg_mr(a.pd, at(there), MIB, REMOTE, &mr));
	ok(frl_dereg_mr(mr));
	fake->hold(false);
	return arg;
}

/* Devices are closed before the GPU has fetched payload for queue pairs that are gone: it fetches
 * it meanwhile, into memory that still exists. */
START_TEST(closed_with_frames)
{
	pthread_t thread;
	struct frl_sge sge;
	struct frl_send_wr wr;

	start_pair(0);
	sge = sge_of(&a, 0, 6000);
	wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	fake->hold(true);
	post_send(&wr);
	for (unsigned i = 0; i < 50; i++) {
		frl_progress(a.device);
		frl_progress(b.device);
	}
	ck_assert_uint_eq(b.memory[0], 0);
	frl_qp_destroy(b.qp);
	b.qp = add_qp(&b);
	ck_assert_int_eq(pthread_create(&thread, NULL, go_on_later, NULL), 0);
	finish_b();
	pthread_join(thread, NULL);
	finish_a();
}
END_TEST

/* Without an offload for its GPU such a port is unusable. */
START_TEST(gpu_without_kernels)
{
	struct frl_device_config config;
	struct frl_device *device;

	gpu_setup();
	raw_setup();
	raw_plug(0);
	frl_device_config_init(&config);
	config.port = "raw:nic0,gpu=0";
	config.ip = "10.0.0.1/24";
	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 3);
	refused(frl_device_open(&config, &device), -ENOTSUP, "3.");
	raw_teardown();
	gpu_teardown();
}
END_TEST

TEST_MAIN(api_far)
{
	if (!gpu_is_fake())
		return EXIT_FAILURE;
	return run_rows(all_tests(NULL, close_ends));
}
