/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/api/memory/mr_cache_fixture.h"

#include <check.h>
#include <stdio.h>

#include <sys/mman.h>

struct frl_device *device;
struct frl_pd *pd;
struct frl_mr_cache *cache;
char *memory;

char *map(void *at)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
	char *addr = mmap(at, SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);

	ck_assert_ptr_ne(addr, MAP_FAILED);
	return addr;
}

void cache_setup(void)
{
	ck_assert_int_eq(frl_device_open(NULL, &device), 0);
	ck_assert_int_eq(frl_pd_create(device, &pd), 0);
	ck_assert_int_eq(frl_mr_cache_create(pd, NULL, &cache), 0);
	memory = map(NULL);
}

void cache_teardown(void)
{
	ck_assert_int_eq(frl_mr_cache_destroy(cache), 0);
	ck_assert_int_eq(frl_pd_destroy(pd), 0);
	ck_assert_int_eq(frl_device_close(device), 0);
	munmap(memory, SIZE);
}

void cache_again(const struct frl_mr_cache_config *config)
{
	ck_assert_int_eq(frl_mr_cache_destroy(cache), 0);
	ck_assert_int_eq(frl_mr_cache_create(pd, config, &cache), 0);
}

struct frl_mr_cache_stats stats(void)
{
	struct frl_mr_cache_stats stats;

	frl_mr_cache_query(cache, &stats);
	return stats;
}

struct frl_mr *get_with(void *addr, size_t length, uint32_t access)
{
	struct frl_mr *mr = NULL;

	ck_assert_int_eq(frl_mr_cache_get(cache, addr, length, access, &mr), 0);
	ck_assert_ptr_nonnull(mr);
	return mr;
}

struct frl_mr *get(void *addr, size_t length)
{
	return get_with(addr, length, LOCAL);
}

uint32_t key_of(void *addr, size_t length)
{
	struct frl_mr *mr = get(addr, length);
	uint32_t key = frl_mr_lkey(mr);

	frl_mr_cache_put(cache, mr);
	return key;
}

bool is_kept(void)
{
	key_of(memory, PAGE);
	if (!stats().unwatched)
		return true;
	printf("skipped: the kernel cannot tell of unmapped memory\n");
	return false;
}
