/* SPDX-License-Identifier: BSD-3-Clause */
/* Packet buffers of the local fabric: allocation, release, and the place of their memory. */
#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#include "drivers/local/pool.h"
#include "tests/fixtures/program.h"

enum { POOLS = 4, BUFFERS = 16384, FRAME = 4200 };

#define GIB ((size_t)1 << 30)

static void no_access(void **ret_at, size_t size)
{
	*ret_at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(*ret_at, MAP_FAILED);
}

/* As CUDA reserves it, between two devices that are opened. */
START_TEST(pools_lie_together)
{
	struct packet_pool pools[POOLS];
	void *between[POOLS];

	for (int i = 0; i < POOLS; i++) {
		ck_assert_int_eq(packet_pool_create(&pools[i], BUFFERS, FRAME), 0);
		no_access(&between[i], 64 * GIB);
	}
	for (int i = 1; i < POOLS; i++) {
		uintptr_t a = (uintptr_t)pools[0].memory, b = (uintptr_t)pools[i].memory;

		ck_assert_uint_lt(a < b ? b - a : a - b, 2 * GIB);
	}
	for (int i = 0; i < POOLS; i++) {
		packet_pool_destroy(&pools[i]);
		munmap(between[i], 64 * GIB);
	}
}
END_TEST

/* New pools stay near one that exists. */
START_TEST(pools_reuse_places)
{
	struct packet_pool stays, pool;
	uintptr_t first = 0;

	ck_assert_int_eq(packet_pool_create(&stays, BUFFERS, FRAME), 0);
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(packet_pool_create(&pool, BUFFERS, FRAME), 0);
		if (i == 0)
			first = (uintptr_t)pool.memory;
		ck_assert_uint_eq((uintptr_t)pool.memory, first);
		packet_pool_destroy(&pool);
	}
	packet_pool_destroy(&stays);
}
END_TEST

TEST_FILE(packet_pool)
