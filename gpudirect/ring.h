/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the kernel `ferrule_ring` and the processor share: batches in slots of mapped host memory,
 * numbered from 1, number n in slot n % GPU_RING_SLOTS, done one after the other. Plain C that is
 * also CUDA.
 *
 * Blocks of the kernel take a batch's blocks (those of struct gpu_batch) one at a time, whoever is
 * there: so none waits for one that has not begun, and what one kernel leaves the next one takes.
 * None begins with a batch before all blocks of the one before are done.
 */
#ifndef FERRULE_GPUDIRECT_RING_H
#define FERRULE_GPUDIRECT_RING_H

#include <stdint.h>

#include "gpudirect/batch.h"

enum {
	GPU_RING_SLOTS = 256,
	GPU_RING_BLOCKS = 32,      /* of the kernel, at most; enough of them for any bus */
	GPU_RING_UNIT_BITS = 16,   /* of gpu_ring_state.next */
	GPU_RING_SKIP = 0xfffffff, /* n_pieces of a batch that is none, with n_blocks 0 */
};

/* In host memory that the GPU reaches. */
struct gpu_ring {
	/* The processor's. */
	uint64_t head; /* batches up to this number are there */
	uint64_t go;   /* likewise, or will never be: what a stream waits for */
	uint64_t processor[6];
	/* The GPU's. */
	uint64_t passed; /* slots of batches up to this number are free */
	uint64_t ended;  /* the last kernel that has ended: gpu_ring_call.generation */
	uint64_t gpu[6];
	/* `done` and `sequence` of each are what it tells when it is done; `counter` means
	 * nothing. */
	struct gpu_batch slots[GPU_RING_SLOTS];
};

/* In GPU memory: how far the kernels are. It stays between them. */
struct gpu_ring_state {
	uint64_t next;      /* the batch << GPU_RING_UNIT_BITS, and its block, to be taken next */
	uint64_t completed; /* batches up to this number are done */
	uint64_t seen;      /* gpu_ring.head, as far as a block of the kernel has seen it */
	uint64_t begun;     /* when the first block of this kernel has begun; 0: none has */
	uint32_t finished;  /* blocks of the batch after `completed` that are done */
	uint32_t entered;   /* blocks of this kernel that have begun, */
	uint32_t left;      /* and have ended */
	uint32_t reserved;
};

/* The kernel's one parameter. */
struct gpu_ring_call {
	uint64_t ring;  /* of struct gpu_ring, */
	uint64_t state; /* and of struct gpu_ring_state, as the GPU has them */
	/* Works through batches up to this number, and ends; 0: looks for new ones, until nothing
	 * was left to do for idle_ns, or its first block has begun total_ns ago. */
	uint64_t last;
	uint64_t generation; /* counts such kernels, from 1 on */
	uint32_t idle_ns, total_ns;
};

#endif
