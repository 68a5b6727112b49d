/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a GPU by frl_reg_mr(): all methods in turn over a libibverbs in memory, and the
 * software device. GPU and driver are doubles. Rows that depend on settings are processes of their
 * own. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/stat.h>

#include "gpudirect/probe.h"
#include "tests/fixtures/gpu_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/run_self.h"
#include "tests/fixtures/verbs_fixture.h"

enum { REMOTE = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ };

static cu_context own;
static char root[64];

static void setup(void)
{
	gpu_setup();
	verbs_setup(&(struct verbs_wants){ 0 });
	own = own_context();
}

static void teardown(void)
{
	ck_assert_uint_eq(fake->live(FAKE_CUDA_FD), 0);
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
	verbs_teardown();
	gpu_teardown();
}

/* From here on there is an nvidia-peermem, in a /sys of this test's. */
static void load_peermem(void)
{
	static const char *const folders[] = { "/sys", "/sys/module",
		"/sys/module/nvidia_peermem" };
	char path[128];

	snprintf(root, sizeof(root), "%s/XXXXXX", test_folder());
	ck_assert_ptr_nonnull(mkdtemp(root));
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s%s", root, folders[i]);
		ck_assert_int_eq(mkdir(path, 0700), 0);
	}
	probe_set_root(root);
}

static void unload_peermem(void)
{
	static const char *const folders[] = { "/sys/module/nvidia_peermem", "/sys/module", "/sys",
		"" };
	char path[128];

	probe_set_root(NULL);
	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s%s", root, folders[i]);
		rmdir(path);
	}
}

static struct frl_mr_attr query(const struct frl_mr *mr)
{
	struct frl_mr_attr attr;

	frl_mr_query(mr, &attr);
	return attr;
}

/* "two" writes its memory into the region, through the NIC. */
static void write_into(
	const struct frl_mr *mr, cu_deviceptr address, uint64_t iova, uint32_t length)
{
	struct frl_sge sge = verbs_sge(&ends[1], 0, length);

	memset(ends[1].memory, 0, length + 2);
	ck_assert(fake->write(address - 1, ends[1].memory, length + 2));
	for (uint32_t i = 0; i < length; i++)
		ends[1].memory[i] = (uint8_t)(i * 7 + 1);
	ck_assert_int_eq(verbs_send(&ends[1], FRL_WR_RDMA_WRITE, &sge, iova, frl_mr_rkey(mr)), 1);
	verbs_expect(&ends[1], FRL_WC_SUCCESS);
}

/* A NIC that takes both, as far as the rest of the machine goes. */
static void open_third(struct frl_device **ret_device, struct frl_pd **ret_pd)
{
	struct fake_verbs_device device;

	fake_verbs_device_init(&device, "three", "10.0.0.3");
	device.has_peermem = true;
	fake_verbs_add(&device);
	verbs_ok(verbs_open("verbs:three", ret_device));
	verbs_ok(frl_pd_create(*ret_device, ret_pd));
}

static void close_third(struct frl_device *device, struct frl_pd *pd)
{
	verbs_ok(frl_pd_destroy(pd));
	verbs_ok(frl_device_close(device));
}

/* All of it is there, and nothing beside it. */
static void has_arrived(cu_deviceptr address, uint32_t length)
{
	uint8_t *found = malloc(length + 2);

	ck_assert(fake->read(found, address - 1, length + 2));
	ck_assert_mem_eq(found + 1, ends[1].memory, length);
	ck_assert_uint_eq(found[0], 0);
	ck_assert_uint_eq(found[length + 1], 0);
	free(found);
}

/* ---- hardware */

/* Pieces of one allocation, at any place in it. */
static const struct {
	uint32_t into, length;
	uint64_t more; /* of the iova */
} parts[] = {
	{ 4096, 4096, 0 },
	{ 5 * 4096 + 100, 300, 0 },
	{ 4095, 2, 0 },
	{ (2 << 20) - 50, 10000, 0 },
	{ 7777, 5000, 0x7000 },
};

START_LOOP_TEST(dma_buf, ROWS(parts))
{
	cu_deviceptr a = allocate(own, 4 * MIB), address = a + parts[_i].into;
	uint64_t iova = address + parts[_i].more;
	struct frl_mr_attr attr;
	struct frl_mr *mr;
	unsigned sync = 0;

	verbs_ok(frl_reg_mr_iova(ends[0].pd, at(address), parts[_i].length, iova, REMOTE, &mr));
	attr = query(mr);
	ck_assert_int_eq(attr.tier, FRL_MR_DMABUF);
	ck_assert_int_eq(attr.gpu, 0);
	ck_assert_uint_eq(attr.alignment, 4096);
	ck_assert_str_eq(attr.reason, "");
	ck_assert_uint_eq(fake->live(FAKE_CUDA_FD), 0);
	ck_assert_int_eq(cu.cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a), 0);
	ck_assert_uint_eq(sync, 1);
	write_into(mr, address, iova, parts[_i].length);
	has_arrived(address, parts[_i].length);
	verbs_ok(frl_mr_flush(mr));
	verbs_ok(frl_dereg_mr(mr));
	ck_assert_uint_eq(fake->context_depth(), 0);
	release(own, a);
}
END_TEST

/* The missing feature, and the result. */
static const struct {
	bool lacks_dma_buf; /* the GPU's driver */
	bool nic_fails;     /* the NIC's driver, with this: */
	int nic_errno;
	bool has_peermem;
	enum frl_mr_tier tier; /* HOST: none */
	int rc;
	const char *word, *logged; /* of the reason or the error; of the log */
} rungs[] = {
	{ .lacks_dma_buf = true,
		.has_peermem = true,
		.tier = FRL_MR_PEERMEM,
		.word = "open kernel modules",
		.logged = "" },
	{ .nic_fails = true,
		.nic_errno = EOPNOTSUPP,
		.has_peermem = true,
		.tier = FRL_MR_PEERMEM,
		.word = "cannot register dma-bufs",
		.logged = "" },
	{ .nic_fails = true,
		.nic_errno = EINVAL,
		.has_peermem = true,
		.tier = FRL_MR_PEERMEM,
		.word = "cannot register",
		.logged = "by peermem" },
	{ .lacks_dma_buf = true, .rc = -ENOTSUP, .word = "nvidia_peermem" },
	{ .lacks_dma_buf = true, .rc = -ENOTSUP, .word = "open kernel modules" },
	{ .nic_fails = true, .nic_errno = EINVAL, .rc = -EINVAL, .word = "no peermem" },
};

START_LOOP_TEST(ladder, ROWS(rungs))
{
	cu_deviceptr a = allocate(own, 4 * MIB);
	struct frl_device *third;
	struct frl_mr *mr = NULL;
	struct frl_pd *pd;
	int rc;

	open_third(&third, &pd);
	if (rungs[_i].lacks_dma_buf)
		fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0);
	if (rungs[_i].nic_fails)
		fake_verbs_fail("ibv_reg_dmabuf_mr", 1, rungs[_i].nic_errno);
	if (rungs[_i].has_peermem)
		load_peermem();
	verbs_logged("");
	rc = frl_reg_mr(pd, at(a + 100), 5000, REMOTE, &mr);
	if (rungs[_i].tier == FRL_MR_HOST) {
		verbs_refused(rc, rungs[_i].rc, rungs[_i].word);
		ck_assert_ptr_null(mr);
	} else {
		struct frl_mr_attr attr;

		verbs_ok(rc);
		attr = query(mr);
		ck_assert_int_eq(attr.tier, rungs[_i].tier);
		ck_assert_uint_eq(attr.alignment, 65536);
		ck_assert_msg(strstr(attr.reason, rungs[_i].word), "%s", attr.reason);
		ck_assert_int_eq(*verbs_logged("by peermem") != 0, *rungs[_i].logged != 0);
		verbs_ok(frl_dereg_mr(mr));
	}
	if (rungs[_i].has_peermem)
		unload_peermem();
	close_third(third, pd);
	release(own, a);
}
END_TEST

/* The module is there, but has not announced itself to this NIC: the pages cannot be pinned. */
START_TEST(neither_works)
{
	cu_deviceptr a = allocate(own, 4 * MIB);
	struct frl_mr *mr = NULL;

	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0);
	load_peermem();
	verbs_refused(frl_reg_mr(ends[0].pd, at(a), 5000, REMOTE, &mr), -EFAULT, "open kernel");
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "cannot register 5000 bytes"));
	ck_assert_ptr_nonnull(strstr(frl_last_error(), "copy through host memory"));
	unload_peermem();
	release(own, a);
}
END_TEST

START_LOOP_TEST(flush_where_it_is_needed, 2)
{
	struct fake_cuda_stats stats;
	struct frl_mr *mr;
	cu_deviceptr a;

	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
		_i ? CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE
		   : CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
	a = allocate(own, 4 * MIB);
	verbs_ok(frl_reg_mr(ends[0].pd, at(a), 4096, REMOTE, &mr));
	ck_assert_int_eq(query(mr).needs_flush, _i);
	verbs_ok(frl_mr_flush(mr));
	fake->stats(&stats);
	ck_assert_uint_eq(stats.flushes, (unsigned)_i);
	verbs_ok(frl_mr_flush(ends[0].mr));
	verbs_ok(frl_dereg_mr(mr));
	verbs_refused(frl_mr_flush(NULL), -EINVAL, "required");
	release(own, a);
}
END_TEST

/* As PyTorch's expandable segments: a NIC gets memory of one mapping, or the reason why not. */
START_LOOP_TEST(virtual_memory, 2)
{
	struct frl_mr *mr = NULL;
	cu_deviceptr start;

	ck_assert_int_eq(fake->make_virtual(0, 32 * MIB, 4, _i != 0, &start), 0);
	if (_i) {
		verbs_ok(frl_reg_mr(ends[0].pd, at(start + 4096), 8192, REMOTE, &mr));
		write_into(mr, start + 4096, start + 4096, 8192);
		has_arrived(start + 4096, 8192);
		verbs_ok(frl_dereg_mr(mr));
		verbs_refused(frl_reg_mr(ends[0].pd, at(start + 4096), 4 * MIB, REMOTE, &mr),
			-EINVAL, "dma-buf");
	} else {
		verbs_refused(frl_reg_mr(ends[0].pd, at(start + 4096), 8192, REMOTE, &mr), -ENOTSUP,
			"gpuDirectRDMACapable");
	}
	ck_assert_int_eq(fake->free_virtual(start), 0);
}
END_TEST

/* ---- what no device takes, and what is no GPU's */

START_TEST(managed_memory)
{
	struct frl_mr *mr = NULL;
	cu_deviceptr a;

	ck_assert_int_eq(cu.cuCtxPushCurrent(own), 0);
	ck_assert_int_eq(cu.cuMemAllocManaged(&a, 8192, CU_MEM_ATTACH_GLOBAL), 0);
	ck_assert_int_eq(cu.cuCtxPopCurrent(&own), 0);
	verbs_refused(frl_reg_mr(ends[0].pd, at(a), 8192, REMOTE, &mr), -ENOTSUP, "managed");
	release(own, a);
}
END_TEST

/* CUDA is called only to find the owner of memory. */
START_TEST(host_memory)
{
	const struct frl_mr_attr attr = query(ends[0].mr);
	unsigned calls = fake->calls(NULL), asked = fake->calls("cuPointerGetAttribute");
	struct frl_mr *mr;

	ck_assert_int_eq(attr.tier, FRL_MR_HOST);
	ck_assert_int_eq(attr.gpu, -1);
	ck_assert_uint_eq(attr.alignment, 1);
	ck_assert(!attr.needs_flush);
	verbs_ok(frl_reg_mr(ends[0].pd, memory, 8192, REMOTE, &mr));
	verbs_ok(frl_dereg_mr(mr));
	ck_assert_uint_eq(fake->calls(NULL) - calls, fake->calls("cuPointerGetAttribute") - asked);
	ck_assert_uint_le(fake->calls("cuPointerGetAttribute") - asked, 2);
}
END_TEST

START_TEST(driver_is_too_old)
{
	cu_deviceptr a = allocate(own, 4 * MIB);
	struct frl_mr *mr = NULL;

	fake->set_version(11020);
	cuda_reset();
	verbs_refused(frl_reg_mr(ends[0].pd, at(a), 8192, REMOTE, &mr), -ENOSYS, "of a GPU");
	verbs_ok(frl_reg_mr(ends[0].pd, memory, 8192, REMOTE, &mr));
	verbs_ok(frl_dereg_mr(mr));
	fake->set_version(13000);
	cuda_reset();
	release(own, a);
}
END_TEST

START_TEST(somebody_elses_dma_buf)
{
	cu_deviceptr a = allocate(own, 4 * MIB);
	struct gpu *gpu;
	struct frl_mr *mr;
	int fd;

	is_ok(gpu_hold(own, 0, &gpu));
	ck_assert_int_eq(cu.cuCtxPushCurrent(own), 0);
	ck_assert_int_eq(cu.cuMemGetHandleForAddressRange(
				 &fd, a, MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
		0);
	ck_assert_int_eq(cu.cuCtxPopCurrent(&own), 0);
	verbs_ok(frl_reg_dmabuf_mr(ends[0].pd, fd, 4096, 8192, 0x10000, REMOTE, &mr));
	close(fd);
	ck_assert_int_eq(query(mr).tier, FRL_MR_DMABUF);
	ck_assert_int_eq(query(mr).gpu, -1);
	verbs_ok(frl_mr_flush(mr));
	verbs_ok(frl_dereg_mr(mr));
	gpu_release(gpu);
	release(own, a);
}
END_TEST

/* ---- changes and ends */

START_TEST(changes)
{
	cu_deviceptr a = allocate(own, 4 * MIB);
	struct frl_mr *mr;

	verbs_ok(frl_reg_mr(ends[0].pd, at(a), 8192, REMOTE, &mr));
	verbs_refused(frl_rereg_mr(mr, FRL_REREG_TRANSLATION, NULL, at(a + 8192), 8192, 0),
		-ENOTSUP, "register a new one");
	verbs_refused(frl_rereg_mr(mr, FRL_REREG_TRANSLATION, NULL, memory, 8192, 0), -ENOTSUP,
		"register a new one");
	verbs_refused(frl_rereg_mr(ends[0].mr, FRL_REREG_TRANSLATION, NULL, at(a), 8192, 0),
		-ENOTSUP, "register a new one");
	verbs_ok(frl_rereg_mr(ends[0].mr, FRL_REREG_TRANSLATION, NULL, memory, 8192, 0));
	verbs_ok(frl_dereg_mr(mr));
	release(own, a);
}
END_TEST

/* Reported once, without further effect. */
START_LOOP_TEST(freed_while_it_was_registered, 2)
{
	cu_deviceptr a = allocate(own, 4 * MIB), again = 0;
	struct frl_mr *mr;

	verbs_ok(frl_reg_mr(ends[0].pd, at(a), 8192, REMOTE, &mr));
	release(own, a);
	if (_i) {
		again = allocate(own, 4 * MIB);
		ck_assert_uint_eq(again, a);
	}
	verbs_logged("");
	verbs_ok(frl_dereg_mr(mr));
	ck_assert_str_ne(verbs_logged("was freed while it was registered"), "");
	if (again)
		release(own, again);
}
END_TEST

START_TEST(context_goes_first)
{
	cu_deviceptr a = allocate(own, 4 * MIB);
	struct frl_mr *mr;

	verbs_ok(frl_reg_mr(ends[0].pd, at(a), 8192, REMOTE, &mr));
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
	verbs_logged("");
	verbs_ok(frl_dereg_mr(mr));
	ck_assert_str_eq(verbs_logged("was freed"), "");
	own = own_context();
}
END_TEST

/* At the end of a process, and in a child: the state of the memory is unknown. */
START_LOOP_TEST(driver_goes_first, 2)
{
	const cu_result result = _i ? CUDA_ERROR_NOT_INITIALIZED : CUDA_ERROR_DEINITIALIZED;
	cu_deviceptr a = allocate(own, 4 * MIB);
	struct frl_mr *mr;

	verbs_ok(frl_reg_mr(ends[0].pd, at(a), 8192, REMOTE, &mr));
	verbs_logged("");
	fake->fail_call(NULL, 1, result, 0);
	verbs_ok(frl_dereg_mr(mr));
	fake->fail_call(NULL, 0, 0, 0);
	ck_assert_str_eq(verbs_logged("was freed"), "");
	release(own, a);
}
END_TEST

/* The primary context is nobody's but Ferrule's then. */
START_TEST(primary_context)
{
	struct gpu *gpu = hold(0);
	cu_deviceptr a = allocate(gpu->context, 4 * MIB);
	struct frl_mr *mr;

	verbs_ok(frl_reg_mr(ends[0].pd, at(a), 8192, REMOTE, &mr));
	release(gpu->context, a);
	gpu_release(gpu);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_RETAIN), 1);
	verbs_ok(frl_dereg_mr(mr));
	ck_assert_uint_eq(fake->live(FAKE_CUDA_RETAIN), 0);
}
END_TEST

START_TEST(names)
{
	static const char *const all[] = { "host", "dma-buf", "peermem", "mapped", "nic-queue" };

	ck_assert_int_eq(FRL_MR_TIERS, sizeof(all) / sizeof(all[0]));
	for (int i = 0; i < FRL_MR_TIERS; i++)
		ck_assert_str_eq(frl_mr_tier_name((enum frl_mr_tier)i), all[i]);
	ck_assert_ptr_null(frl_mr_tier_name(FRL_MR_TIERS));
	ck_assert_ptr_null(frl_mr_tier_name((enum frl_mr_tier) - 1));
}
END_TEST

/* ---- settings: a process each, since they are read once */

static const struct {
	const char *setting;
	bool has_peermem;
	enum frl_mr_tier tier; /* HOST: refused */
	const char *word;
} settings[] = {
	{ "auto", true, FRL_MR_DMABUF, "" },
	{ "dma-buf", true, FRL_MR_DMABUF, "" },
	{ "peermem", true, FRL_MR_PEERMEM, "FRL_GPU_TIER is peermem" },
	{ "peermem", false, FRL_MR_HOST, "nvidia_peermem" },
	{ "mapped", true, FRL_MR_HOST, "FRL_GPU_TIER is mapped" },
	{ "off", true, FRL_MR_HOST, "is off: GPU memory is disabled" },
};

static int the_row = -1;

/* In a process that was started for a row. */
START_TEST_IF(row_of_a_child, the_row >= 0)
{
	struct frl_device *third;
	struct frl_mr *mr = NULL;
	cu_deviceptr a;
	struct frl_pd *pd;
	int rc;

	open_third(&third, &pd);
	a = allocate(own, 4 * MIB);
	if (settings[the_row].has_peermem)
		load_peermem();
	rc = frl_reg_mr(pd, at(a), 8192, REMOTE, &mr);
	if (settings[the_row].has_peermem)
		unload_peermem();
	if (settings[the_row].tier == FRL_MR_HOST) {
		verbs_refused(rc, -ENOTSUP, settings[the_row].word);
	} else {
		verbs_ok(rc);
		ck_assert_int_eq(query(mr).tier, settings[the_row].tier);
		ck_assert_ptr_nonnull(strstr(query(mr).reason, settings[the_row].word));
		verbs_ok(frl_dereg_mr(mr));
	}
	release(own, a);
	close_third(third, pd);
}
END_TEST

START_LOOP_TEST(setting, ROWS(settings))
{
	run_row(_i, "FRL_GPU_TIER", settings[_i].setting, "row_of_a_child");
}
END_TEST

/* With an argument: that row of the settings. */
TEST_MAIN(gpu_reg)
{
	if (!gpu_is_fake())
		return TEST_SKIPPED;
	if (argc > 1)
		the_row = atoi(argv[1]);
	return run_suite(all_tests(setup, teardown));
}
