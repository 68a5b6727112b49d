/* SPDX-License-Identifier: BSD-3-Clause */
#include "drivers/local/pool.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "lib/base/error.h"
#include "lib/base/round.h"

#define ROOM ((size_t)8 << 30)

enum {
	LINE = 64,
	HEADER_TO_PAYLOAD = 54, /* Ethernet, IPv4, UDP, BTH */
	/* Aligns the payload after those headers to a cache line, if added to an aligned
	 * address. */
	SKEW = (LINE - HEADER_TO_PAYLOAD % LINE) % LINE,
};

/* `place` 0: any address. */
static uint8_t *map_at(uintptr_t place, size_t size)
{
	int fixed = place ? MAP_FIXED_NOREPLACE : 0;
	void *memory = mmap((void *)place, size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* Returns an address with room on both sides, or 0: any address. */
static uintptr_t find_room(void)
{
	void *room = mmap(
		NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (room == MAP_FAILED)
		return 0;
	munmap(room, ROOM);
	return (uintptr_t)room + ROOM / 2;
}

/* Maps next to the pool made last, or where it was. Code that refers to packets of several devices
 * by 32 bits (nccl/data/unpack.c) needs them within 4 GiB. */
static uint8_t *map_near_others(size_t size)
{
	static atomic_uintptr_t last_begin, last_end;
	uintptr_t begin = atomic_load(&last_begin), end = atomic_load(&last_end);
	uint8_t *memory = NULL;

	if (begin > size) {
		memory = map_at(end - size, size);
		if (!memory)
			memory = map_at(begin - size, size);
		if (!memory)
			memory = map_at(end, size);
	}
	if (!memory)
		memory = map_at(find_room(), size);
	if (!memory)
		memory = map_at(0, size);
	if (!memory)
		return NULL;
	atomic_store(&last_begin, (uintptr_t)memory);
	atomic_store(&last_end, (uintptr_t)memory + size);
	return memory;
}

int packet_pool_create(struct packet_pool *pool, uint32_t n, uint32_t max_frame)
{
	size_t stride = round_up(SKEW + max_frame + LINE, LINE);

	*pool = (struct packet_pool){ .size = round_up(n * stride, 4096) };
	pool->buffers = calloc(n, sizeof(*pool->buffers));
	pool->free = calloc(n, sizeof(struct packet_buffer *));
	pool->memory = map_near_others(pool->size);
	if (!pool->buffers || !pool->free || !pool->memory) {
		packet_pool_destroy(pool);
		return frl_fail(-ENOMEM, "no memory for %u packet buffers of %zu bytes", n, stride);
	}
	/* Push in reverse: the first buffer is handed out first. */
	for (uint32_t i = n; i > 0; i--) {
		pool->buffers[i - 1].bytes = pool->memory + (i - 1) * stride + SKEW;
		packet_pool_put(pool, &pool->buffers[i - 1]);
	}
	return 0;
}

void packet_pool_destroy(struct packet_pool *pool)
{
	if (pool->memory)
		munmap(pool->memory, pool->size);
	free(pool->buffers);
	free(pool->free);
	*pool = (struct packet_pool){ 0 };
}
