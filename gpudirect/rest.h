/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ends waits of streams. A gate is a word in host memory (gpu_ring.go) for which a stream waits
 * before each kernel that was launched ahead. A thread of the process sees to it that no such wait
 * lasts: it does nothing but look at clocks and store, calls no driver, takes no lock that anybody
 * keeps over a call of the driver, and waits for nobody. So a wait ends also while all other
 * threads are in cudaFree() or cudaDeviceSynchronize(), which wait for it.
 *
 * Each batch that is launched ahead is decided once, by a word of its slot (n_pieces and n_blocks
 * as one): from 0, either its owner makes it a batch, or whoever lets go makes it none.
 */
#ifndef FERRULE_GPUDIRECT_REST_H
#define FERRULE_GPUDIRECT_REST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpudirect/ring.h"

enum { REST_NS = 500000 }; /* the longest a stream waits, but for the scheduler's part */

struct rest_gate {
	struct gpu_ring *ring;
	_Atomic uint64_t end; /* launched ahead are those up to this one */
	_Atomic uint64_t
		due_ns[GPU_RING_SLOTS]; /* when number n is let go, at n % GPU_RING_SLOTS */
	struct rest_gate *next;         /* rest.c's, under its lock */
	bool is_added;                  /* likewise */
};

/* The first one starts the thread: -EAGAIN and the like where that fails. Its ring stays until
 * rest_remove(). Any thread. */
int rest_add(struct rest_gate *gate);
/* The last one ends it. Nothing is let go by this. Also of one that was not added. */
void rest_remove(struct rest_gate *gate);

/* The owner's, before each call that puts a wait for `number` into the stream: that call may not
 * come back before it is let go. */
void rest_expect(struct rest_gate *gate, uint64_t number);

/* What was launched ahead and is no batch yet will not be one, and no stream waits for it any more.
 * Any thread. */
void rest_let_go(struct rest_gate *gate);

/* The owner's: the slot of `number` is filled, but for the word. False: it was let go. */
bool rest_take(struct rest_gate *gate, uint64_t number, uint64_t word);

/* All up to `number` are decided. */
void rest_pass(struct rest_gate *gate, uint64_t number);

#endif
