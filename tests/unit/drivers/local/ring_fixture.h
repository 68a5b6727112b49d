/* SPDX-License-Identifier: BSD-3-Clause */
/* One way of a local link, with both of its ends in this process. */
#ifndef FERRULE_TESTS_UNIT_DRIVERS_LOCAL_RING_FIXTURE_H
#define FERRULE_TESTS_UNIT_DRIVERS_LOCAL_RING_FIXTURE_H

#include <check.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "drivers/local/ring.h"

static struct ring_way *way;
static struct ring_tx tx;
static struct ring_rx rx;
static uint8_t got[RING_MAX_FRAME + RING_LINE]; /* what the consumer has taken */
/* Its memory, between pages without access. */
static uint8_t *ring_mapping;
static size_t ring_page, ring_mapping_size;

static inline uint32_t mix(uint32_t n)
{
	n = (n ^ n >> 16) * 0x45d9f3bu;
	n = (n ^ n >> 16) * 0x45d9f3bu;
	return n ^ n >> 16;
}

/* A new ring, of one of the three sizes. Its memory ends at the end of the whole. */
static inline void ring_choose(uint32_t bytes)
{
	size_t size = offsetof(struct ring_way, records) + bytes + RING_BEHIND;

	way = (void *)(ring_mapping + ring_mapping_size - ring_page - size);
	ring_tx_init(&tx, way, bytes);
	ring_rx_init(&rx, way, bytes);
}

static inline void ring_set_up(void)
{
	size_t way_size;

	ring_page = (size_t)sysconf(_SC_PAGESIZE);
	way_size = (sizeof(*way) + ring_page - 1) / ring_page * ring_page;
	ring_mapping_size = ring_page + way_size + ring_page;
	ring_mapping = mmap(NULL, ring_mapping_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert(ring_mapping != MAP_FAILED);
	ck_assert_int_eq(mprotect(ring_mapping + ring_page, way_size, PROT_READ | PROT_WRITE), 0);
	ring_choose(RING_BYTES);
}

static inline void ring_tear_down(void)
{
	munmap(ring_mapping, ring_mapping_size);
}

#endif
