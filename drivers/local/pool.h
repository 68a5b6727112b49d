/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packet buffers of one port. One thread at a time uses a pool, so its free list is a plain stack.
 * The buffer returned last, still in the cache, is the next one handed out. The kernel allocates
 * memory page by page as buffers are used, so a large pool that is hardly used is small.
 */
#ifndef FERRULE_DRIVERS_LOCAL_POOL_H
#define FERRULE_DRIVERS_LOCAL_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct packet_buffer {
	uint8_t *bytes;
	uint32_t len;         /* length of the received frame */
	bool payload_in_ring; /* the frame's payload is in the ring: see ring_take_split() */
};

struct packet_pool {
	uint8_t *memory;
	size_t size;
	uint32_t n_free;
	struct packet_buffer *buffers;
	struct packet_buffer **free;
};

/*
 * Makes `n` buffers for frames of up to `max_frame` bytes. The payload of a RoCEv2 packet over IPv4
 * begins at a cache line. Up to 64 bytes after a frame may be overwritten, too. Returns -ENOMEM
 * with frl_last_error().
 */
int packet_pool_create(struct packet_pool *pool, uint32_t n, uint32_t max_frame);
/* Call when all buffers are back, or no longer in use. */
void packet_pool_destroy(struct packet_pool *pool);

/* Returns NULL if the pool is empty. */
static inline struct packet_buffer *packet_pool_get(struct packet_pool *pool)
{
	return pool->n_free ? pool->free[--pool->n_free] : NULL;
}

static inline void packet_pool_put(struct packet_pool *pool, struct packet_buffer *buffer)
{
	pool->free[pool->n_free++] = buffer;
}

#endif
