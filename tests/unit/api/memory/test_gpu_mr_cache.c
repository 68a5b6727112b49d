/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory in a cache of registrations: kept as long as it is the same memory, whatever memory is
 * at its address later. GPU, driver and NIC are doubles. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fixtures/gpu_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/verbs_fixture.h"

enum { LOCAL = FRL_ACCESS_LOCAL_WRITE, REMOTE = LOCAL | FRL_ACCESS_REMOTE_WRITE };

static struct frl_mr_cache *cache;
static cu_context own;

static void setup(void)
{
	gpu_setup();
	verbs_setup(&(struct verbs_wants){ 0 });
	own = own_context();
	verbs_ok(frl_mr_cache_create(ends[0].pd, NULL, &cache));
}

static void teardown(void)
{
	verbs_ok(frl_mr_cache_destroy(cache));
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
	verbs_teardown();
	gpu_teardown();
}

static struct frl_mr_cache_stats stats(void)
{
	struct frl_mr_cache_stats found;

	frl_mr_cache_query(cache, &found);
	return found;
}

static struct frl_mr *get(cu_deviceptr address, size_t length, uint32_t access)
{
	struct frl_mr *mr = NULL;

	verbs_ok(frl_mr_cache_get(cache, at(address), length, access, &mr));
	ck_assert_ptr_nonnull(mr);
	return mr;
}

/* Gets a region and puts it back at once. */
static uint32_t key_of(cu_deviceptr address, size_t length)
{
	struct frl_mr *mr = get(address, length, LOCAL);
	uint32_t key = frl_mr_lkey(mr);

	frl_mr_cache_put(cache, mr);
	return key;
}

/* The NIC writes with this key, and the bytes are in this memory. */
static void reaches(cu_deviceptr address, struct frl_mr *mr)
{
	struct frl_sge sge = verbs_sge(&ends[1], 0, 64);
	uint8_t found[64];
	static uint8_t value;

	memset(ends[1].memory, ++value, sizeof(found));
	ck_assert_int_eq(
		verbs_send(&ends[1], FRL_WR_RDMA_WRITE, &sge, address, frl_mr_rkey(mr)), 1);
	verbs_expect(&ends[1], FRL_WC_SUCCESS);
	ck_assert(fake->read(found, address, sizeof(found)));
	ck_assert_mem_eq(found, ends[1].memory, sizeof(found));
}

START_TEST(second_get_finds_the_first)
{
	cu_deviceptr a = allocate(own, 4 * MIB);
	uint32_t key = key_of(a + 4096, 8192);

	ck_assert_uint_eq(key_of(a + 4096, 8192), key);
	ck_assert_uint_eq(key_of(a + 5000, 100), key);
	ck_assert_uint_ne(key_of(a + 4095, 100), key);
	ck_assert_uint_eq(stats().hits, 2);
	ck_assert_uint_eq(stats().misses, 2);
	ck_assert_uint_eq(stats().unwatched, 0);
	ck_assert_uint_eq(fake_verbs_live(FAKE_VERBS_MR), 2 + 2);
	frl_mr_cache_trim(cache);
	ck_assert_uint_eq(fake_verbs_live(FAKE_VERBS_MR), 2);
	release(own, a);
}
END_TEST

/* The address has other memory now: the registration is of the earlier memory. */
START_LOOP_TEST(other_memory_at_the_address, 2)
{
	const uint32_t access = _i ? REMOTE : LOCAL;
	cu_deviceptr a = allocate(own, 4 * MIB);
	struct frl_mr *mr = get(a + 4096, 8192, access);

	frl_mr_cache_put(cache, mr);
	release(own, a);
	ck_assert_uint_eq(allocate(own, 4 * MIB), a);
	mr = get(a + 4096, 8192, access);
	ck_assert_uint_eq(stats().hits, 0);
	ck_assert_uint_eq(stats().invalidated, 1);
	ck_assert_uint_eq(stats().deregistered, 1);
	if (_i)
		reaches(a + 4096, mr);
	frl_mr_cache_put(cache, mr);
	/* Not of a part of it either. */
	release(own, a);
	ck_assert_uint_eq(allocate(own, 4 * MIB), a);
	mr = get(a + 5000, 64, access);
	ck_assert_uint_eq(stats().hits, 0);
	if (_i)
		reaches(a + 5000, mr);
	frl_mr_cache_put(cache, mr);
	release(own, a);
}
END_TEST

/* A user has the region: it goes when it is put back. */
START_TEST(freed_in_use)
{
	cu_deviceptr a = allocate(own, 4 * MIB);
	struct frl_mr *old = get(a, 8192, LOCAL), *now;

	release(own, a);
	ck_assert_uint_eq(allocate(own, 4 * MIB), a);
	now = get(a, 8192, LOCAL);
	ck_assert_ptr_ne(old, now);
	ck_assert_uint_eq(stats().deregistered, 0);
	verbs_logged("");
	frl_mr_cache_put(cache, old);
	ck_assert_uint_eq(stats().deregistered, 1);
	ck_assert_str_eq(verbs_logged("was freed"), "");
	ck_assert_ptr_eq(get(a, 8192, LOCAL), now);
	frl_mr_cache_put(cache, now);
	frl_mr_cache_put(cache, now);
	release(own, a);
}
END_TEST

/* Regions of memory that nobody asks for any more hold it: they are found by and by. */
START_TEST(what_was_freed_is_let_go)
{
	enum { N = 40 };
	cu_deviceptr a[N], other = allocate(own, 4 * MIB);

	for (int i = 0; i < N; i++) {
		a[i] = allocate(own, 4 * MIB);
		key_of(a[i], 8192);
	}
	for (int i = 0; i < N; i += 2)
		release(own, a[i]);
	for (int i = 0; i < 4; i++)
		key_of(other + (unsigned)i * 8192, 4096);
	ck_assert_uint_eq(stats().invalidated, N / 2);
	ck_assert_uint_eq(stats().deregistered, N / 2);
	for (int i = 1; i < N; i += 2) {
		uint64_t hits = stats().hits;

		key_of(a[i], 8192);
		ck_assert_uint_eq(stats().hits, hits + 1);
		release(own, a[i]);
	}
	release(own, other);
}
END_TEST

/* Also where nothing is registered any more, since all is found. */
START_TEST(what_was_freed_is_let_go_by_hits)
{
	enum { N = 40 };
	cu_deviceptr a[N], used = allocate(own, 4 * MIB);
	uint64_t misses;

	for (int i = 0; i < N; i++) {
		a[i] = allocate(own, 4 * MIB);
		key_of(a[i], 8192);
	}
	key_of(used, 8192);
	for (int i = 0; i < N; i++)
		release(own, a[i]);
	misses = stats().misses;
	for (int i = 0; i < 300; i++)
		key_of(used, 8192);
	ck_assert_uint_eq(stats().misses, misses);
	ck_assert_uint_eq(stats().deregistered, N);
	ck_assert_uint_eq(fake_verbs_live(FAKE_VERBS_MR), 2 + 1);
	release(own, used);
}
END_TEST

/* The application puts its regions back, and ends its context: what is kept goes later. */
START_TEST(context_ends_before_what_is_kept)
{
	cu_deviceptr a = allocate(own, 4 * MIB);

	key_of(a, 8192);
	key_of(a + 8192, 8192);
	ck_assert_int_eq(cu.cuCtxDestroy(own), 0);
	verbs_logged("");
	frl_mr_cache_trim(cache);
	ck_assert_str_eq(verbs_logged(""), "");
	ck_assert_uint_eq(fake_verbs_live(FAKE_VERBS_MR), 2);
	own = own_context();
	a = allocate(own, 4 * MIB);
	key_of(a, 8192);
	release(own, a);
}
END_TEST

/* As PyTorch's expandable segments: part of the range becomes other memory. */
START_TEST(virtual_memory)
{
	cu_deviceptr start, again;
	uint32_t key;

	ck_assert_int_eq(fake->make_virtual(0, 32 * MIB, 4, true, &start), 0);
	key = key_of(start + 4096, 8192);
	ck_assert_uint_eq(key_of(start + 4096, 8192), key);
	ck_assert_uint_eq(key_of(start + 5000, 8), key);
	ck_assert_uint_eq(stats().hits, 2);
	ck_assert_int_eq(fake->free_virtual(start), 0);
	ck_assert_int_eq(fake->make_virtual(0, 32 * MIB, 4, true, &again), 0);
	ck_assert_uint_eq(again, start);
	key_of(start + 5000, 8);
	ck_assert_uint_eq(stats().hits, 2);
	ck_assert_uint_eq(stats().invalidated, 1);
	ck_assert_int_eq(fake->free_virtual(again), 0);
}
END_TEST

/* Another handle is mapped at the address, with the same number or one of its own. */
static void map_other(cu_deviceptr address)
{
	const struct cu_mem_prop prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
		.rdma_capable = 1,
	};
	const struct cu_mem_access access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
		CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	cu_mem_handle handle, old;

	/* The old one stays alive elsewhere, so that the driver could not give its number again. */
	ck_assert_int_eq(cu.cuMemRetainAllocationHandle(&old, at(address)), 0);
	ck_assert_int_eq(cu.cuMemUnmap(address, 2 * MIB), 0);
	ck_assert_int_eq(cu.cuMemCreate(&handle, 2 * MIB, &prop, 0), 0);
	ck_assert_int_eq(cu.cuMemMap(address, 2 * MIB, 0, handle, 0), 0);
	ck_assert_int_eq(cu.cuMemRelease(handle), 0);
	ck_assert_int_eq(cu.cuMemRelease(old), 0);
	ck_assert_int_eq(cu.cuMemSetAccess(address, 2 * MIB, &access, 1), 0);
}

static const struct {
	bool is_one_id;
	int version;
	unsigned hits; /* of the same memory, once */
} mappings[] = { { false, 13000, 1 }, { true, 13000, 1 }, { true, 11070, 0 }, { false, 11070, 0 } };

START_LOOP_TEST(another_handle_at_the_address, ROWS(mappings))
{
	cu_deviceptr start;

	fake->set_version(mappings[_i].version);
	cuda_reset();
	fake->set_one_id(mappings[_i].is_one_id);
	ck_assert_int_eq(fake->make_virtual(0, 32 * MIB, 4, true, &start), 0);
	key_of(start + 2 * MIB, MIB);
	key_of(start + 2 * MIB, MIB);
	ck_assert_uint_eq(stats().hits, mappings[_i].hits);
	map_other(start + 2 * MIB);
	key_of(start + 2 * MIB, MIB);
	key_of(start + 2 * MIB + 4096, 4096);
	ck_assert_uint_eq(stats().hits, 2 * mappings[_i].hits);
	ck_assert_uint_eq(stats().unwatched, mappings[_i].hits ? 0 : 4);
	frl_mr_cache_trim(cache);
	ck_assert_uint_eq(fake_verbs_live(FAKE_VERBS_MR), 2);
	ck_assert_int_eq(fake->free_virtual(start), 0);
}
END_TEST

START_TEST(rights)
{
	cu_deviceptr a = allocate(own, 4 * MIB);
	struct frl_mr *remote = get(a + 100, 1000, REMOTE), *same, *part;

	same = get(a + 100, 1000, REMOTE);
	ck_assert_ptr_eq(same, remote);
	part = get(a + 100, 500, REMOTE);
	ck_assert_ptr_ne(part, remote);
	reaches(a + 100, remote);
	frl_mr_cache_put(cache, remote);
	frl_mr_cache_put(cache, same);
	frl_mr_cache_put(cache, part);
	/* The processor's memory is kept as ever, beside it. */
	ck_assert_uint_eq(key_of((uintptr_t)memory, 100), key_of((uintptr_t)memory + 50, 10));
	release(own, a);
}
END_TEST

/* Limits count regions; the lock limit concerns the processor's memory. */
START_TEST(limits)
{
	const struct frl_mr_cache_config config = { .max_regions = 3, .max_bytes = 4096 };
	cu_deviceptr a = allocate(own, 64 * MIB);
	uint32_t last;

	verbs_ok(frl_mr_cache_destroy(cache));
	verbs_ok(frl_mr_cache_create(ends[0].pd, &config, &cache));
	for (unsigned i = 0; i < 8; i++)
		last = key_of(a + i * 8 * (cu_deviceptr)MIB, 8 * MIB);
	ck_assert_uint_eq(fake_verbs_live(FAKE_VERBS_MR), 2 + 3);
	ck_assert_uint_eq(stats().evicted, 5);
	ck_assert_uint_eq(key_of(a + 7 * 8 * (cu_deviceptr)MIB, 8 * MIB), last);
	release(own, a);
}
END_TEST

START_TEST(failures)
{
	cu_deviceptr a = allocate(own, 4 * MIB);
	struct frl_mr *mr = NULL;

	fake_verbs_fail("ibv_reg_dmabuf_mr", 1, EINVAL);
	verbs_refused(frl_mr_cache_get(cache, at(a), 8192, REMOTE, &mr), -EINVAL, "no peermem");
	ck_assert_ptr_null(mr);
	/* Kept regions make room for needed ones. */
	key_of(a, 8192);
	fake_verbs_fail("ibv_reg_dmabuf_mr", 1, ENOMEM);
	mr = get(a + 8192, 8192, REMOTE);
	ck_assert_uint_eq(stats().evicted, 1);
	frl_mr_cache_put(cache, mr);
	release(own, a);
	verbs_refused(frl_mr_cache_get(cache, at(a), 8192, LOCAL, &mr), -EINVAL, "freed");
}
END_TEST

/* Memory is freed and allocated anew while others use the cache: nobody gets a region of memory
 * that is not there. Each thread has an allocation of its own; they come to lie anywhere. */
static void *use_often(void *arg)
{
	unsigned seed = *(const unsigned *)arg;

	for (int round = 0; round < 60; round++) {
		cu_deviceptr a = 0;
		cu_context context = own;

		if (cu.cuCtxPushCurrent(own) || cu.cuMemAlloc(&a, 2 * MIB) ||
			cu.cuCtxPopCurrent(&context))
			return (void *)"no memory";
		for (int i = 0; i < 4; i++) {
			uint64_t into = (uint64_t)rand_r(&seed) % 16 * 4096;
			struct frl_mr *mr = NULL;
			uint8_t before = (uint8_t)rand_r(&seed), *look;

			if (frl_mr_cache_get(cache, at(a + into), 4096, LOCAL, &mr))
				return (void *)"not registered";
			look = fake_verbs_memory(ends[0].name, frl_mr_lkey(mr), a + into);
			if (!look)
				return (void *)"the key is for other memory";
			*look = before;
			if (!fake->read(&before, a + into, 1) || before != *look)
				return (void *)"the region is of memory that was freed";
			frl_mr_cache_put(cache, mr);
		}
		if (cu.cuCtxPushCurrent(own) || cu.cuMemFree(a) || cu.cuCtxPopCurrent(&context))
			return (void *)"not freed";
	}
	return NULL;
}

START_TEST(many_threads)
{
	unsigned seeds[4] = { 1, 2, 3, 4 };
	pthread_t threads[4];
	void *why;

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, use_often, &seeds[i]), 0);
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &why), 0);
		ck_assert_msg(!why, "%s", (const char *)why);
	}
	ck_assert_uint_gt(stats().hits, 0);
	ck_assert_uint_gt(stats().invalidated, 0);
}
END_TEST

TEST_MAIN(gpu_mr_cache)
{
	if (!gpu_is_fake())
		return 77;
	return run_suite(all_tests(setup, teardown));
}
