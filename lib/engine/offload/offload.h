/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interface to memory that the processor cannot reach. The engine places payload into such memory
 * and gathers payload from it through struct offload_ops. gpudirect/ implements it for GPUs; the
 * tests have a mock.
 *
 * All calls but map() and unmap() are made with the device's guard held and must not block.
 * Transfers that touch the same bytes are carried out in the order in which they were queued.
 */
#ifndef FERRULE_ENGINE_OFFLOAD_H
#define FERRULE_ENGINE_OFFLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/queue.h>

struct offload;

/* Payload and its destination. "There" means the offload's memory. */
struct offload_placement {
	uint8_t *dst;           /* there */
	const uint8_t *src;     /* there: first operand of the action; NULL: dst */
	const uint8_t *payload; /* host memory that the offload reaches, or */
	bool is_there;          /* memory there, if true */
	uint8_t *also;          /* host memory that gets the same bytes; NULL: none */
	uint32_t length;
	const struct frl_recv_action *action; /* dst = op(src, payload); NULL: dst = payload */
};

struct offload_ops {
	/* Queues a placement. Returns a ticket (counts up from 1), or 0 if there is no room now. */
	uint64_t (*place)(struct offload *offload, const struct offload_placement *placement);
	/* Queues a copy of the bytes at `src` there to host memory. Returns as place(). */
	uint64_t (*gather)(
		struct offload *offload, uint8_t *host, const uint8_t *src, uint32_t length);
	/* Starts all queued transfers for which there is room. Called again until all are done. */
	void (*launch)(struct offload *offload);
	/* Returns the last ticket such that all tickets up to it are done. After a failure,
	 * returns the last ticket issued, once nothing accesses the memory any more. */
	uint64_t (*done)(struct offload *offload);
	/* Returns NULL, or the reason why the offload has failed for good. The text lives as long
	 * as the offload. */
	const char *(*error)(struct offload *offload);
	/* Returns true if the offload reaches this host memory. */
	bool (*reaches)(struct offload *offload, const void *host, size_t length);
	/* Makes host memory reachable for the offload, and undoes that. map() returns 0 or a
	 * negative error. Both may block for long. */
	int (*map)(struct offload *offload, void *host, size_t length);
	void (*unmap)(struct offload *offload, void *host, size_t length);
};

/* Base of each implementation: its first member. */
struct offload {
	const struct offload_ops *ops;
	int gpu; /* CUDA ordinal of the GPU whose memory it reaches */
};

#endif
