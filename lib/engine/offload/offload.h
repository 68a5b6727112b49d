/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that the processor cannot reach, and who can: the engine places payload into it, and
 * gathers payload out of it, by this table. gpudirect/ implements it for GPUs, tests do for
 * memory that they look after.
 *
 * Called with the device's guard held, but for map() and unmap(); nothing else waits. Transfers are
 * done in the order in which they were given wherever they touch the same bytes.
 */
#ifndef FERRULE_ENGINE_OFFLOAD_H
#define FERRULE_ENGINE_OFFLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/queue.h>

struct offload;

/* Payload, and where it goes. "There" is the offload's memory. */
struct offload_placement {
	uint8_t *dst;           /* there */
	const uint8_t *src;     /* there: an action's first operand; NULL: dst */
	const uint8_t *payload; /* host memory that it reaches, */
	bool is_there;          /* or memory there */
	uint8_t *also;          /* host memory that it reaches: gets the same bytes; NULL: none */
	uint32_t length;
	const struct frl_recv_action *action; /* dst = op(src, payload); NULL: dst = payload */
};

struct offload_ops {
	/* Returns a ticket, which counts up from 1; 0: no room just now. */
	uint64_t (*place)(struct offload *offload, const struct offload_placement *placement);
	/* The reverse: bytes at `src` there go to host memory. */
	uint64_t (*gather)(
		struct offload *offload, uint8_t *host, const uint8_t *src, uint32_t length);
	/* What was given is begun at the latest now, or as soon as there is room: to be called
	 * again until it is done. */
	void (*launch)(struct offload *offload);
	/* All tickets up to this one are done; after a failure all that were given, when nothing
	 * touches the memory any more. */
	uint64_t (*done)(struct offload *offload);
	/* NULL, or a sentence: nothing works any more. It lives as long as the offload. */
	const char *(*error)(struct offload *offload);
	/* Whether it reaches this host memory. */
	bool (*reaches)(struct offload *offload, const void *host, size_t length);
	/* Has it reach more, and no more. 0 or a negative error. Both may take long. */
	int (*map)(struct offload *offload, void *host, size_t length);
	void (*unmap)(struct offload *offload, void *host, size_t length);
};

/* Implementations embed this as their first member. */
struct offload {
	const struct offload_ops *ops;
	int gpu; /* whose memory it reaches, as CUDA counts */
};

#endif
