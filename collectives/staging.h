/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where chunks arrive that the device does not reduce: in rings of registered memory. A chunk is
 * the payload of one large message that a step reduces. It is received into the ring as it is, and
 * reduced into its place from there, while the device receives the next ones.
 *
 * Whether a rank does so is its own matter: its peers send the same messages in either case, and
 * get credits as the ring has room. It does so on all of its rails or on none, so that a channel
 * can go on over any other rail, with chunks of which some bytes have come already.
 *
 * A channel has a ring while it has chunks in it, and gives it back then: there are as many rings
 * as there were channels that needed one at the same time. One ring for each channel, because
 * chunks of one peer that are awaited must not keep those of another out, for which that peer
 * may wait.
 */
#ifndef FERRULE_COLLECTIVES_STAGING_H
#define FERRULE_COLLECTIVES_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/memory.h>

#include "collectives/run.h"

struct block;
struct channel;
struct compute;
struct frl_comm;
struct segment;

enum {
	/* Of the longest, in a ring; fewer, but for the least, where that were more bytes. */
	STAGING_CHUNKS = 8,
	STAGING_LEAST = 2,
	STAGING_BYTES = 8 << 20,
	STAGING_ALIGN = 64,
};

struct staging_ring {
	struct staging_ring *next; /* of those that nobody has */
	struct block *block;       /* in GPU memory; NULL: in host memory */
	uint8_t *base;
	struct frl_mr *mr[RAILS_MAX];
	uint32_t chunks;   /* in it */
	size_t head, tail; /* behind the last one; where the first one is, or before it */
};

/* Of a communicator. */
struct staging {
	bool is_needed; /* a device does not reduce, or is not to */
	size_t ring_bytes;
	uint32_t n_rings; /* made so far */
	struct staging_ring *idle;
	struct segment *first, *last; /* arrived, and to be reduced, the oldest first */
};

/* The rails are known. */
void staging_init(struct frl_comm *comm);
/* Rings in GPU memory that nobody has give their memory back to where it is kept. */
void staging_give_idle(struct frl_comm *comm);
/* Nothing is received any more, and no channel is left. */
void staging_fini(struct frl_comm *comm);

/*
 * A place for the channel's next chunk; NULL: there is none until staging_put_for() has given
 * another one back. `compute`: in memory of its GPU, which reduces it; NULL: in host memory. A
 * channel has a ring of one GPU at a time. 0 or the communicator's error.
 */
int staging_get_for(
	struct channel *channel, struct compute *compute, size_t bytes, uint8_t **ret_chunk);
/* The channel's oldest chunk there, which ends at `end`, is not needed any more. */
void staging_put_for(struct channel *channel, struct compute *compute, const uint8_t *end);
/* The channel's end: its rings are free, whatever is in them. */
void staging_leave(struct channel *channel);

static inline int staging_get(struct channel *channel, size_t bytes, uint8_t **ret_chunk)
{
	return staging_get_for(channel, NULL, bytes, ret_chunk);
}

static inline void staging_put(struct channel *channel, const uint8_t *end)
{
	staging_put_for(channel, NULL, end);
}

/* A chunk is there. */
void staging_append(struct staging *staging, struct segment *segment);
/* The oldest of those; there is one. */
struct segment *staging_take(struct staging *staging);

#endif
