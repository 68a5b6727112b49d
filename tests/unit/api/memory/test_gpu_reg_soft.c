/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a GPU on a software device: objects that are made with the first region, and freed with
 * the last. GPU and driver are doubles. Rows that depend on settings are processes of their own. */
#include <pthread.h>
#include <unistd.h>

#include "lib/device/device.h"
#include "lib/engine/offload/offload.h"
#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/gpu_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/run_self.h"

enum { REMOTE = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_READ };

static cu_context own;

static void setup(void)
{
	gpu_setup();
	own = own_context();
	start(false, FRL_PROGRESS_INLINE);
}

static void teardown(void)
{
	finish();
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
	gpu_teardown();
}

static struct frl_mr_attr query(const struct frl_mr *mr)
{
	struct frl_mr_attr attr;

	frl_mr_query(mr, &attr);
	return attr;
}

static struct frl_mr *reg(const struct end *end, cu_deviceptr address, size_t length)
{
	struct frl_mr *mr = NULL;

	ok(frl_reg_mr(end->pd, at(address), length, REMOTE, &mr));
	return mr;
}

/* Nothing of the GPU is taken for it any more. */
static void nothing_is_left(void)
{
	ck_assert_uint_eq(fake->live(FAKE_CUDA_STREAM), 0);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), 0);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_MODULE), 0);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_RETAIN), 0);
	ck_assert_uint_eq(fake->context_depth(), 0);
}

START_TEST(mapped)
{
	cu_deviceptr memory_a = allocate(own, 4 * MIB);
	struct frl_mr *mr, *more;
	struct frl_mr_attr attr;
	unsigned registrations;

	nothing_is_left();
	mr = reg(&a, memory_a + 100, 5000);
	attr = query(mr);
	ck_assert_int_eq(attr.tier, FRL_MR_MAPPED);
	ck_assert_int_eq(attr.gpu, 0);
	ck_assert_uint_eq(attr.alignment, 1);
	ck_assert(!attr.needs_flush);
	ck_assert_ptr_nonnull(strstr(attr.reason, "verbs:"));
	ok(frl_mr_flush(mr));
	registrations = fake->live(FAKE_CUDA_REGISTRATION);
	ck_assert_uint_gt(registrations, 0);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_STREAM), 1);
	/* One of everything for all regions. */
	more = reg(&a, memory_a + MIB, MIB);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_STREAM), 1);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_REGISTRATION), registrations);
	ok(frl_dereg_mr(mr));
	ck_assert_uint_eq(fake->live(FAKE_CUDA_STREAM), 1);
	ok(frl_dereg_mr(more));
	nothing_is_left();
	release(own, memory_a);
}
END_TEST

static unsigned n_maps;

/* The driver may wait in both of them for all work of the GPU. */
static int map_freely(struct offload *offload, void *host, size_t length)
{
	ck_assert_int_eq(pthread_mutex_trylock(&a.device->guard.mutex), 0);
	pthread_mutex_unlock(&a.device->guard.mutex);
	n_maps++;
	return 0;
}

static void unmap_freely(struct offload *offload, void *host, size_t length)
{
	map_freely(offload, host, length);
	n_maps -= 2;
}

START_TEST(mapped_without_guard)
{
	static const struct offload_ops ops = { .map = map_freely, .unmap = unmap_freely };
	struct offload offload = { .ops = &ops };

	ok(a.device->ops->offload_attach(a.device, &offload));
	ck_assert_uint_gt(n_maps, 1);
	a.device->ops->offload_detach(a.device, &offload);
	ck_assert_uint_eq(n_maps, 0);
}
END_TEST

START_TEST(two_devices_and_two_gpus)
{
	struct gpu *second;
	cu_deviceptr one, two;
	struct frl_mr *mrs[3];

	fake->reset(); /* the number of GPUs is settled by cuInit() */
	cuda_reset();
	fake->set_devices(2);
	own = own_context();
	second = hold(1);
	one = allocate(own, MIB);
	two = allocate(second->context, MIB);
	mrs[0] = reg(&a, one, 4096);
	mrs[1] = reg(&a, two, 4096);
	mrs[2] = reg(&b, one, 4096);
	ck_assert_int_eq(query(mrs[1]).gpu, 1);
	ck_assert_uint_eq(fake->live(FAKE_CUDA_STREAM), 3);
	ok(frl_dereg_mr(mrs[0]));
	ck_assert_uint_eq(fake->live(FAKE_CUDA_STREAM), 2);
	ok(frl_dereg_mr(mrs[2]));
	ok(frl_dereg_mr(mrs[1]));
	release(own, one);
	release(second->context, two);
	gpu_release(second);
	nothing_is_left();
}
END_TEST

/* Also what no NIC is given. */
static const char *const kinds[] = { "pool", "virtual", "not for NICs" };

START_LOOP_TEST(any_kind, ROWS(kinds))
{
	struct gpu *gpu = hold(0);
	cu_stream stream = NULL;
	cu_deviceptr address;
	struct frl_mr *mr;

	ck_assert_int_eq(cu.cuCtxPushCurrent(gpu->context), 0);
	if (_i == 0) {
		ck_assert_int_eq(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
		ck_assert_int_eq(cu.cuMemAllocAsync(&address, 8 * MIB, stream), 0);
		ck_assert_int_eq(cu.cuStreamSynchronize(stream), 0);
	} else {
		ck_assert_int_eq(fake->make_virtual(0, 32 * MIB, 4, _i == 1, &address), 0);
	}
	ck_assert_int_eq(cu.cuCtxPopCurrent(&(cu_context){ NULL }), 0);
	mr = reg(&a, address + 4096, 7 * MIB);
	ck_assert_msg(query(mr).tier == FRL_MR_MAPPED, "%s", kinds[_i]);
	ok(frl_dereg_mr(mr));
	ck_assert_int_eq(cu.cuCtxPushCurrent(gpu->context), 0);
	if (_i == 0) {
		ck_assert_int_eq(cu.cuMemFreeAsync(address, stream), 0);
		ck_assert_int_eq(cu.cuStreamSynchronize(stream), 0);
		ck_assert_int_eq(cu.cuStreamDestroy(stream), 0);
	} else {
		ck_assert_int_eq(fake->free_virtual(address), 0);
	}
	ck_assert_int_eq(cu.cuCtxPopCurrent(&(cu_context){ NULL }), 0);
	gpu_release(gpu);
	nothing_is_left();
}
END_TEST

static const struct {
	uint32_t access;
	const char *word;
} rights[] = {
	{ REMOTE | FRL_ACCESS_REMOTE_ATOMIC, "REMOTE_ATOMIC" },
	{ REMOTE | FRL_ACCESS_MW_BIND, "MW_BIND" },
};

START_LOOP_TEST(rights_that_it_does_not_have, ROWS(rights))
{
	cu_deviceptr address = allocate(own, MIB);
	struct frl_mr *mr = NULL;

	refused(frl_reg_mr(a.pd, at(address), 4096, rights[_i].access, &mr), -ENOTSUP,
		rights[_i].word);
	ck_assert_ptr_null(mr);
	nothing_is_left();
	mr = reg(&a, address, 4096);
	refused(frl_rereg_mr(mr, FRL_REREG_ACCESS, NULL, NULL, 0, rights[_i].access), -ENOTSUP,
		rights[_i].word);
	ok(frl_rereg_mr(mr, FRL_REREG_ACCESS, NULL, NULL, 0, FRL_ACCESS_LOCAL_WRITE));
	refused(frl_rereg_mr(mr, FRL_REREG_TRANSLATION, NULL, a.memory, 4096, 0), -ENOTSUP,
		"register a new one");
	refused(frl_rereg_mr(a.mr, FRL_REREG_TRANSLATION, NULL, at(address), 4096, 0), -ENOTSUP,
		"register a new one");
	ok(frl_dereg_mr(mr));
	release(own, address);
}
END_TEST

/* The GPU's access to two adjacent mappings: a kernel that does more ends its context. */
static const struct {
	int first, second;
	uint32_t access;
	const char *word; /* NULL: it is registered */
} mappings[] = {
	{ 3, 3, REMOTE, NULL },
	{ 0, 3, REMOTE, "cuMemSetAccess" },
	{ 3, 0, FRL_ACCESS_REMOTE_READ, "cuMemSetAccess" },
	{ 3, 1, REMOTE, "may only read" },
	{ 1, 3, FRL_ACCESS_LOCAL_WRITE, "may only read" },
	{ 1, 1, FRL_ACCESS_REMOTE_READ, NULL },
};

static void set_access(cu_deviceptr address, int flags)
{
	const struct cu_mem_access access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, flags };

	ck_assert_int_eq(cu.cuMemSetAccess(address, 2 * MIB, &access, 1), 0);
}

START_LOOP_TEST(rights_of_the_gpu, ROWS(mappings))
{
	const char *word = mappings[_i].word;
	struct frl_mr *mr = NULL;
	cu_deviceptr start;

	ck_assert_int_eq(fake->make_virtual(0, 32 * MIB, 2, true, &start), 0);
	set_access(start, mappings[_i].first);
	set_access(start + 2 * MIB, mappings[_i].second);
	if (word) {
		refused(frl_reg_mr(a.pd, at(start + MIB), 2 * MIB, mappings[_i].access, &mr),
			-EINVAL, word);
		ck_assert_ptr_null(mr);
	} else {
		ok(frl_reg_mr(a.pd, at(start + MIB), 2 * MIB, mappings[_i].access, &mr));
		if (mappings[_i].first == 1)
			refused(frl_rereg_mr(mr, FRL_REREG_ACCESS, NULL, NULL, 0, REMOTE), -EINVAL,
				"may only read");
		ok(frl_dereg_mr(mr));
	}
	nothing_is_left();
	ck_assert_int_eq(fake->free_virtual(start), 0);
}
END_TEST

START_TEST(gpu_without_kernels)
{
	struct frl_mr *mr = NULL;
	cu_deviceptr address;

	fake->set_attribute(-1, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 3);
	address = allocate(own, MIB);
	refused(frl_reg_mr(a.pd, at(address), 4096, REMOTE, &mr), -ENOTSUP, "3.");
	nothing_is_left();
	release(own, address);
}
END_TEST

/* Bytes are read from and written to GPU memory by all operations of the devices. */
START_TEST(bytes)
{
	const uint32_t length = 20000;
	cu_deviceptr address = allocate(own, MIB);
	struct frl_mr *mr = reg(&a, address, MIB), *theirs = reg(&b, address, MIB);
	struct frl_sge sge = { at(address + 333), length, frl_mr_lkey(mr) };
	struct frl_send_wr wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	uint8_t *found = malloc(length);

	for (uint32_t i = 0; i < length; i++)
		found[i] = (uint8_t)(i * 11 + 3);
	ck_assert(fake->write(address + 333, found, length));
	post_send(&wr);
	expect(&a, 1, FRL_WC_SUCCESS);
	ck_assert_mem_eq(b.memory, found, length);
	/* The other way, at another place. */
	memset(b.memory, 0x5c, length);
	sge.addr = at(address + 50001);
	wr.opcode = FRL_WR_RDMA_READ;
	wr.wr_id = 2;
	post_send(&wr);
	expect(&a, 2, FRL_WC_SUCCESS);
	ck_assert(fake->read(found, address + 50001, length));
	ck_assert_mem_eq(found, b.memory, length);
	/* From host memory into the peer's GPU memory. */
	sge = sge_of(&a, 0, length);
	wr.opcode = FRL_WR_RDMA_WRITE;
	wr.wr_id = 3;
	wr.remote_addr = address + 100003;
	wr.rkey = frl_mr_rkey(theirs);
	post_send(&wr);
	expect(&a, 3, FRL_WC_SUCCESS);
	fake->settle();
	for (int i = 0; i < 1000; i++)
		frl_progress(b.device);
	ck_assert(fake->read(found, address + 100003, length));
	ck_assert_mem_eq(found, a.memory, length);
	free(found);
	ok(frl_dereg_mr(mr));
	ok(frl_dereg_mr(theirs));
	release(own, address);
}
END_TEST

/* A region stays while the GPU works for it. */
START_TEST(busy)
{
	cu_deviceptr address = allocate(own, MIB);
	struct frl_mr *mr = reg(&a, address, MIB);
	struct frl_sge sge = { at(address), 3000, frl_mr_lkey(mr) };
	struct frl_send_wr wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);

	fake->hold(true);
	post_send(&wr);
	for (int i = 0; i < 100; i++)
		frl_progress(a.device);
	refused(frl_dereg_mr(mr), -EBUSY, "queued");
	fake->hold(false);
	expect(&a, 1, FRL_WC_SUCCESS);
	ok(frl_dereg_mr(mr));
	release(own, address);
}
END_TEST

/* A GPU that failed is of no use for more regions, until those that there are have gone. */
START_TEST(gpu_that_failed)
{
	cu_deviceptr address = allocate(own, MIB);
	struct frl_mr *mr = reg(&a, address, MIB), *more = NULL;
	struct frl_sge sge = { at(address), 3000, frl_mr_lkey(mr) };
	struct frl_send_wr wr = send_wr(1, FRL_WR_RDMA_WRITE, &sge);
	struct frl_wc wc;

	fake->kill(own, CUDA_ERROR_ILLEGAL_ADDRESS);
	post_send(&wr);
	ck_assert_int_eq(poll_both(&a, &wc), 1);
	ck_assert_int_ne(wc.status, FRL_WC_SUCCESS);
	ck_assert_int_ne(frl_reg_mr(a.pd, at(address), MIB, REMOTE, &more), 0);
	ck_assert_msg(
		strstr(frl_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS"), "%s", frl_last_error());
	ok(frl_dereg_mr(mr));
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
	own = own_context();
	address = allocate(own, MIB);
	mr = reg(&a, address, MIB);
	ok(frl_dereg_mr(mr));
	release(own, address);
}
END_TEST

START_LOOP_TEST(freed_first, 2)
{
	cu_deviceptr address = allocate(own, 4 * MIB);
	struct frl_mr *mr = reg(&a, address, MIB);

	if (_i == 0)
		release(own, address);
	else
		ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
	ok(frl_dereg_mr(mr));
	if (_i)
		own = own_context();
	nothing_is_left();
}
END_TEST

/* ---- settings: a process each, since they are read once */

static const struct {
	const char *setting;
	const char *word; /* NULL: it is mapped */
} settings[] = {
	{ "auto", NULL },
	{ "mapped", NULL },
	{ "dma-buf", "FRL_GPU_TIER is dma-buf" },
	{ "peermem", "FRL_GPU_TIER is peermem" },
	{ "nic-queue", "gpu=N" },
	{ "off", "is off: GPU memory is disabled" },
};

static int the_row = -1;

/* In a process that was started for a row. */
START_TEST_IF(row_of_a_child, the_row >= 0)
{
	cu_deviceptr address = allocate(own, MIB);
	struct frl_mr *mr = NULL;

	if (settings[the_row].word) {
		refused(frl_reg_mr(a.pd, at(address), 4096, REMOTE, &mr), -ENOTSUP,
			settings[the_row].word);
	} else {
		mr = reg(&a, address, 4096);
		ck_assert_int_eq(query(mr).tier, FRL_MR_MAPPED);
		ok(frl_dereg_mr(mr));
	}
	nothing_is_left();
	release(own, address);
}
END_TEST

START_LOOP_TEST(setting, ROWS(settings))
{
	run_row(_i, "FRL_GPU_TIER", settings[_i].setting, "row_of_a_child");
}
END_TEST

/* With an argument: that row of the settings. */
TEST_MAIN(gpu_reg_soft)
{
	if (!gpu_is_fake())
		return TEST_SKIPPED;
	if (argc > 1)
		the_row = atoi(argv[1]);
	return run_rows(all_tests(setup, teardown));
}
