/* SPDX-License-Identifier: BSD-3-Clause */
#include "drivers/local/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "lib/base/error.h"

enum {
	LINE = 64,
	HEADER_TO_PAYLOAD = 54, /* Ethernet, IPv4, UDP, BTH */
	/* Added to an address at a cache line, puts the payload behind those headers at one. */
	SKEW = (LINE - HEADER_TO_PAYLOAD % LINE) % LINE,
};

static size_t round_up(size_t size, size_t step)
{
	return (size + step - 1) / step * step;
}

int packet_pool_create(struct packet_pool *pool, uint32_t n, uint32_t max_frame)
{
	size_t stride = round_up(SKEW + max_frame + LINE, LINE);

	*pool = (struct packet_pool){ .size = round_up(n * stride, 4096) };
	pool->buffers = calloc(n, sizeof(*pool->buffers));
	pool->free = calloc(n, sizeof(struct packet_buffer *));
	pool->memory = mmap(
		NULL, pool->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!pool->buffers || !pool->free || pool->memory == MAP_FAILED) {
		if (pool->memory == MAP_FAILED)
			pool->memory = NULL;
		packet_pool_destroy(pool);
		return frl_fail(-ENOMEM, "no memory for %u packet buffers of %zu bytes", n, stride);
	}
	/* The first one is the first to be handed out. */
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
