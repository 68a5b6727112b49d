/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Payload that stays in packet buffers (ferrule/fragments.h). A share reserves a number of the
 * port's buffers. Arming a part of a region reserves as many of the share's buffers as its message
 * may need. A message to an armed part therefore always finds room.
 *
 * A frame of the port is kept as it is. Some payload cannot be kept: it lies in the sender's
 * memory, or in a loopback packet on the stack. Such payload is copied into an empty buffer of the
 * port, which counts the same. One packet is one buffer and one fragment. Only WRITEs of peers get
 * here: regions of shares have no lkey, and a packet of a WRITE has one destination.
 */
#ifndef FERRULE_ENGINE_FRAGMENTS_H
#define FERRULE_ENGINE_FRAGMENTS_H

#include <ferrule/fragments.h>

#include "lib/engine/engine.h"

struct kept_frame {
	struct port_frame frame;
	struct kept_frame *next;
};

/* An armed part of a region; `region` is NULL if the slot is free. */
struct armed {
	const struct region *region;
	const uint8_t *addr; /* used as a name only, as the region's */
	size_t length;
	struct frl_fragment *list; /* `frames` entries, owned by the application */
	uint32_t frames;           /* reserved out of the share */
	uint32_t n;
	size_t bytes;
	struct kept_frame *kept; /* n frames, last one first */
	uint32_t uses;           /* of this slot: part of the token */
};

/* A share of the port's packet buffers. */
struct fragments {
	uint32_t quota;    /* frames */
	uint32_t reserved; /* by armed parts */
	struct kept_frame *memory;
	struct kept_frame *free; /* not in any armed.kept */
	/* Last part that was written to; the next packet is usually for the same. */
	struct armed *recent;
	/* Part of the packet being placed; NULL if it was refused. */
	struct armed *placed;
	struct armed armed[FRL_MAX_ARMED];
};

struct fragments_part {
	const struct region *region; /* a region of the share that contains the part */
	const void *addr;
	size_t length;
	struct frl_fragment *list;
	uint32_t frames; /* at most the quota */
};

/* Reserves `frames` of the port's buffers. -ENOSPC, -ENOMEM. */
int fragments_init(struct engine *engine, struct fragments *fragments, uint32_t frames);
/* Releases all armed parts. */
void fragments_fini(struct engine *engine, struct fragments *fragments);
/* Returns the number of frames that no share has reserved. */
uint32_t fragments_left(const struct engine *engine);

/* -EAGAIN: not enough frames are free; -EBUSY: overlaps an armed part. */
int fragments_arm(
	struct fragments *fragments, const struct fragments_part *part, uint32_t *ret_token);
/* Returns NULL if the token is not armed. */
const struct armed *fragments_find(const struct fragments *fragments, uint32_t token);
/* -EINVAL: the token is not armed. */
int fragments_release(struct engine *engine, struct fragments *fragments, uint32_t token);
/* Returns true while a part of this region of a share is armed. */
bool fragments_region_armed(const struct region *region);

/* ---- for the receiving stage */

/* Places the only placement of a packet into a region of a share. Fails the queue pair if there is
 * no room. */
void fragments_place(struct engine *engine, struct engine_qp *qp, const struct port_frame *frame,
	struct placements *placements);
/* Undoes the placement: its payload was no longer valid. Returns true if the placement was refused
 * anyway and the queue pair has failed. */
bool fragments_take_back(struct engine *engine, const struct placements *placements);
/* Returns true if the received frame is kept; it is freed when its part is released. */
bool fragments_kept_frame(struct engine *engine);

#endif
