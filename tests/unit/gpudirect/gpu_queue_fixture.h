/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue of work for a GPU of the double of the driver, and memory to work on. */
#ifndef FERRULE_TESTS_UNIT_GPUDIRECT_GPU_QUEUE_FIXTURE_H
#define FERRULE_TESTS_UNIT_GPUDIRECT_GPU_QUEUE_FIXTURE_H

#include "gpudirect/queue.h"
#include "tests/fixtures/gpu_fixture.h"

enum { ARENA = 2048 };

extern struct gpu *gpu;
extern struct gpu_queue *queue;
extern cu_deviceptr arena; /* ARENA bytes of the GPU's */
extern uint64_t host;      /* where the GPU sees `memory` */

void queue_begin(void);
/* Removes planned failures and holds. */
void queue_end(void);

void pause_us(unsigned us);
/* At most 20 seconds. */
void wait_done(struct gpu_queue *q, uint64_t ticket);
/* The reason why nothing works any more, or "". */
const char *why(struct gpu_queue *q);

struct gpu_work copy(uint64_t dst, uint64_t src, uint64_t count);
/* To the queue. */
uint64_t add(struct gpu_work work);

#endif
