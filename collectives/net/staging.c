/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/net/staging.h"

#include <errno.h>
#include <stdlib.h>

#include "collectives/communicator/communicator.h"
#include "collectives/communicator/gpu_ops.h"
#include "collectives/net/channel.h"
#include "lib/base/error.h"

/* ---- rings */

/*
 * Returns the size of a ring. It must hold what a peer sends before new credits reach it: at 100
 * Gb/s and 20 us from credit to payload that is 250 KB, and as much again waits to be reduced.
 */
static size_t ring_bytes(size_t chunk)
{
	size_t bytes = STAGING_CHUNKS * chunk, least = STAGING_LEAST * chunk;

	if (bytes > STAGING_BYTES)
		bytes = STAGING_BYTES;
	return bytes > least ? bytes : least;
}

void staging_init(struct frl_comm *comm)
{
	struct staging *staging = &comm->staging;

	staging->is_needed = false;
	for (unsigned i = 0; i < comm->n_rails; i++) {
		if (!comm->rails[i].attr.reduces_on_receive)
			staging->is_needed = true;
	}
	/* The longest segment of a plan. */
	staging->ring_bytes = ring_bytes(comm->config.segment_bytes);
}

/* Frees a ring, unless a NIC still uses a registration. */
static void ring_free(const struct frl_comm *comm, struct staging_ring *ring)
{
	bool is_done = true;

	if (ring->block) {
		comm->gpu_ops->put_block(ring->block);
		free(ring);
		return;
	}
	for (unsigned rail = 0; rail < comm->n_rails; rail++) {
		is_done = rail_end_registration(comm, rail, ring->mr[rail]) == 0 && is_done;
	}
	if (is_done && ring->base)
		frl_mem_free(ring->base, comm->staging.ring_bytes);
	free(ring);
}

/* Creates a ring and registers it on all rails. */
static int ring_new(struct frl_comm *comm, struct staging_ring **ret_ring)
{
	struct staging *staging = &comm->staging;
	struct staging_ring *ring = calloc(1, sizeof(*ring));
	int err = 0;

	if (!ring)
		return frl_fail(-ENOMEM, "no memory for a ring");
	ring->base = frl_mem_alloc(staging->ring_bytes);
	if (!ring->base)
		err = -ENOMEM;
	for (unsigned rail = 0; rail < comm->n_rails && !err; rail++)
		err = rail_register(
			comm, rail, PLAN_SCRATCH, ring->base, staging->ring_bytes, &ring->mr[rail]);
	if (err) {
		ring_free(comm, ring);
		return err;
	}
	if (staging->n_rings++ == 0)
		frl_log(FRL_LOG_INFO,
			"communicator, rank %d: received data is staged in rings of %zu KiB, since "
			"a device does not reduce on receive",
			comm->rank, staging->ring_bytes / 1024);
	*ret_ring = ring;
	return 0;
}

static int gpu_ring_new(
	struct frl_comm *comm, struct compute *compute, struct staging_ring **ret_ring)
{
	struct staging_ring *ring = calloc(1, sizeof(*ring));
	int err;

	if (!ring)
		return frl_fail(-ENOMEM, "no memory for a ring");
	err = comm->gpu_ops->get_block(compute, comm->staging.ring_bytes, &ring->block);
	if (err) {
		free(ring);
		return err;
	}
	ring->base = ring->block->base;
	for (unsigned rail = 0; rail < comm->n_rails; rail++)
		ring->mr[rail] = ring->block->mr[rail];
	*ret_ring = ring;
	return 0;
}

static void free_idle(const struct frl_comm *comm, struct staging_ring **idle)
{
	while (*idle) {
		struct staging_ring *ring = *idle;

		*idle = ring->next;
		ring_free(comm, ring);
	}
}

void staging_give_idle(struct frl_comm *comm)
{
	free_idle(comm, &comm->staging.idle_gpu);
}

void staging_fini(struct frl_comm *comm)
{
	free_idle(comm, &comm->staging.idle);
	staging_give_idle(comm);
}

/* Gets an empty ring. The most recently used one is the most likely to be cached. */
static int find_ring(
	struct channel *channel, struct compute *compute, struct staging_ring **ret_ring)
{
	struct frl_comm *comm = channel->peer->comm;
	struct staging_ring **idle = compute ? &comm->staging.idle_gpu : &comm->staging.idle;
	struct staging_ring *ring;
	int err = 0;

	while (*idle && compute && (*idle)->block->compute != compute)
		idle = &(*idle)->next;
	ring = *idle;
	if (ring)
		*idle = ring->next;
	else
		err = compute ? gpu_ring_new(comm, compute, &ring) : ring_new(comm, &ring);
	if (err)
		return comm_fail(comm, err,
			"rank %d: no staging ring of %zu bytes for data of rank %d: %s", comm->rank,
			comm->staging.ring_bytes, channel->peer->rank, frl_last_error());
	ring->chunks = 0;
	ring->head = ring->tail = 0;
	*ret_ring = ring;
	return 0;
}

static void leave(struct staging_ring **idle, struct staging_ring **at)
{
	(*at)->next = *idle;
	*idle = *at;
	*at = NULL;
}

void staging_leave(struct channel *channel)
{
	if (channel->ring)
		leave(&channel->peer->comm->staging.idle, &channel->ring);
	if (channel->gpu_ring)
		leave(&channel->peer->comm->staging.idle_gpu, &channel->gpu_ring);
}

/* ---- chunks */

/* Finds room for a chunk, which must be contiguous: the rest at the end of the ring may stay
 * unused. */
static bool find_place(const struct staging_ring *ring, size_t size, size_t bytes, size_t *ret_at)
{
	bool is_wrapped = ring->chunks > 0 && ring->head <= ring->tail;

	*ret_at = ring->head;
	if (is_wrapped)
		return ring->tail - ring->head >= bytes;
	if (size - ring->head >= bytes)
		return true;
	*ret_at = 0;
	return ring->tail >= bytes;
}

static size_t aligned(size_t bytes)
{
	return (bytes + STAGING_ALIGN - 1) & ~(size_t)(STAGING_ALIGN - 1);
}

int staging_get_for(
	struct channel *channel, struct compute *compute, size_t bytes, uint8_t **ret_chunk)
{
	const struct staging *staging = &channel->peer->comm->staging;
	struct staging_ring **ring = compute ? &channel->gpu_ring : &channel->ring;
	size_t at;
	int err = *ring ? 0 : find_ring(channel, compute, ring);

	if (err)
		return err;
	*ret_chunk = NULL;
	/* The lane is woken when the last chunk of the other GPU is freed. */
	if (compute && (*ring)->block->compute != compute)
		return 0;
	if (!find_place(*ring, staging->ring_bytes, aligned(bytes), &at))
		return 0;
	(*ring)->head = at + aligned(bytes);
	(*ring)->chunks++;
	*ret_chunk = (*ring)->base + at;
	return 0;
}

void staging_put_for(struct channel *channel, struct compute *compute, const uint8_t *end)
{
	struct staging *staging = &channel->peer->comm->staging;
	struct staging_ring **ring = compute ? &channel->gpu_ring : &channel->ring;

	(*ring)->tail = aligned((size_t)(end - (*ring)->base));
	if (--(*ring)->chunks == 0)
		leave(compute ? &staging->idle_gpu : &staging->idle, ring);
}

void staging_append(struct staging *staging, struct segment *segment)
{
	segment->next = NULL;
	if (staging->first)
		staging->last->next = segment;
	else
		staging->first = segment;
	staging->last = segment;
}

struct segment *staging_take(struct staging *staging)
{
	struct segment *segment = staging->first;

	staging->first = segment->next;
	return segment;
}
