/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Staging rings: registered memory that receives data which the device cannot reduce. A chunk is
 * the payload of one large message of a reducing step. It is received into the ring and reduced to
 * its destination from there, while the device receives the next chunks.
 *
 * Each rank decides for itself whether it stages: its peers send the same messages in both cases,
 * and get credits according to the room in the ring. A rank stages on all of its rails or on none,
 * so that a channel can resume over any other rail in the middle of a chunk.
 *
 * A channel has a ring only while the ring holds chunks, so there are as many rings as channels
 * needed one at the same time. Channels do not share rings: awaited chunks of one peer must not
 * block those of another, for which the first peer may wait.
 */
#ifndef FERRULE_COLLECTIVES_NET_STAGING_H
#define FERRULE_COLLECTIVES_NET_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/memory.h>

#include "collectives/communicator/run.h"

struct block;
struct channel;
struct compute;
struct frl_comm;
struct segment;
struct staging;

enum {
	/* Longest chunks in a ring: STAGING_CHUNKS, or fewer, down to STAGING_LEAST, if the ring
	 * would exceed STAGING_BYTES. */
	STAGING_CHUNKS = 8,
	STAGING_LEAST = 2,
	STAGING_BYTES = 8 << 20,
	STAGING_ALIGN = 64,
};

struct staging_ring {
	struct staging_ring *next; /* in the list of idle rings */
	struct block *block;       /* in GPU memory; NULL: in host memory */
	uint8_t *base;
	struct frl_mr *mr[RAILS_MAX];
	uint32_t chunks;   /* chunks in the ring */
	size_t head, tail; /* end of the last chunk; begin of the first one, or before it */
};

/* Requires the rails. */
void staging_init(struct frl_comm *comm);
/* Returns the memory of idle rings in GPU memory to the idle blocks. */
void staging_give_idle(struct frl_comm *comm);
/* Frees everything. Nothing may be received any more, and no channels may be left. */
void staging_fini(struct frl_comm *comm);

/*
 * Gets room for the channel's next chunk. *ret_chunk is NULL if there is none until
 * staging_put_for(). `compute`: in memory of the GPU that reduces it; NULL: in host memory. A
 * channel has a ring of one GPU at a time. Returns 0 or the communicator's error.
 */
int staging_get_for(
	struct channel *channel, struct compute *compute, size_t bytes, uint8_t **ret_chunk);
/* Frees the channel's oldest chunk, which ends at `end`. */
void staging_put_for(struct channel *channel, struct compute *compute, const uint8_t *end);
/* Frees the rings of a channel that is being freed. */
void staging_leave(struct channel *channel);

static inline int staging_get(struct channel *channel, size_t bytes, uint8_t **ret_chunk)
{
	return staging_get_for(channel, NULL, bytes, ret_chunk);
}

static inline void staging_put(struct channel *channel, const uint8_t *end)
{
	staging_put_for(channel, NULL, end);
}

/* Appends a chunk that has arrived. */
void staging_append(struct staging *staging, struct segment *segment);
/* Removes and returns the oldest arrived chunk. There must be one. */
struct segment *staging_take(struct staging *staging);

#endif
