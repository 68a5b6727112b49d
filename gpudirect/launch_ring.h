/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the modes that hand over batches in host memory have in common: a ring of slots
 * (gpudirect/ring.h) and launches of the kernel that takes batches out of it. Private to the
 * launchers. As a launcher: one thread at a time.
 *
 * The ring is memory of launcher_map()'s.
 */
#ifndef FERRULE_GPUDIRECT_LAUNCH_RING_H
#define FERRULE_GPUDIRECT_LAUNCH_RING_H

#include "gpudirect/launcher.h"
#include "gpudirect/ring.h"

struct ring_launcher {
	struct launcher base;
	cu_function function;
	struct gpu_ring *ring;
	uint64_t ring_address; /* the GPU's */
	cu_deviceptr state;    /* struct gpu_ring_state */
	uint32_t n_blocks;     /* of a kernel */
	uint64_t next;         /* the number of the batch after those that were filled in */
};

/* n_pieces and n_blocks of a slot, as one word. */
static inline uint64_t *ring_word(struct gpu_ring *ring, uint64_t number)
{
	return (uint64_t *)(void *)&ring->slots[number % GPU_RING_SLOTS].n_pieces;
}

/* Outside of the context. As gpu_queue_new(). The struct is zeroed; after a failure it is to be
 * given to launch_ring_forget() all the same. */
int launch_ring_make(struct ring_launcher *own, const struct launcher_ops *ops, struct gpu *gpu);
/* The reverse of it, when nothing was launched. */
void launch_ring_end(struct ring_launcher *own);
/* struct launcher_ops.unmake */
void launch_ring_unmake(struct launcher *launcher);
/* launcher_forget(); the ring goes, unless the GPU may still use it. */
void launch_ring_forget(struct ring_launcher *own);

/* Fills the slot of `number`, all but its word, which is returned. */
uint64_t launch_ring_fill(
	struct ring_launcher *own, uint64_t number, struct launch *open, uint64_t sequence);

/* In the context. The kernel: as struct gpu_ring_call says, which needs `last` or the rest. */
cu_result launch_ring_kernel(struct ring_launcher *own, const struct gpu_ring_call *call);

/* Whether this process has made it: the child of a fork() shares its ring, and must not touch it.
 * With the last error if not. */
bool launch_ring_is_own(const struct ring_launcher *own);

#endif
