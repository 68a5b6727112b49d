/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Payload that stays in packet buffers (ferrule/fragments.h). A share of the port's buffers belongs
 * to whoever made it; of that a part of a region takes as many as its message may need when it is
 * armed, so what comes for it always finds room.
 *
 * A frame of the port is kept as it came. What cannot be kept (payload that lies in the sender's
 * memory, or packets to this engine itself, on the stack) is copied into an empty buffer of the
 * port's, which counts the same. One packet is one buffer and one fragment: only peers' WRITEs get
 * here, since regions of shares have no lkey, and a WRITE's packet goes to one place.
 */
#ifndef FERRULE_ENGINE_FRAGMENTS_H
#define FERRULE_ENGINE_FRAGMENTS_H

#include <ferrule/fragments.h>

#include "lib/engine/engine.h"

struct kept_frame {
	struct port_frame frame;
	struct kept_frame *next;
};

/* A part of a region that is armed; or none: then it has no region. */
struct armed {
	const struct region *region;
	const uint8_t *addr; /* a name, as the region's */
	size_t length;
	struct frl_fragment *list; /* the application's, of `frames` entries */
	uint32_t frames;           /* so many of the share are this one's */
	uint32_t n;
	size_t bytes;
	struct kept_frame *kept; /* n of them, the last one first */
	uint32_t uses;           /* of this place: a part of the token */
};

/* A share. */
struct fragments {
	uint32_t quota;    /* frames */
	uint32_t reserved; /* by what is armed */
	struct kept_frame *memory;
	struct kept_frame *free; /* of those in no armed.kept */
	/* That which was written to last: most of the time the next packet is for the same. */
	struct armed *recent;
	/* Of the packet that is being placed, if it was; else NULL. */
	struct armed *placed;
	struct armed armed[FRL_MAX_ARMED];
};

struct fragments_part {
	const struct region *region; /* of the share, and what follows is inside it */
	const void *addr;
	size_t length;
	struct frl_fragment *list;
	uint32_t frames; /* at most the quota */
};

/* Has a share of `frames` of what the port can spare. -ENOSPC, -ENOMEM. */
int fragments_init(struct engine *engine, struct fragments *fragments, uint32_t frames);
/* Releases what is armed. */
void fragments_fini(struct engine *engine, struct fragments *fragments);
/* Frames that no share has. */
uint32_t fragments_left(const struct engine *engine);

/* -EAGAIN: not enough is free; -EBUSY: overlaps with what is armed. */
int fragments_arm(
	struct fragments *fragments, const struct fragments_part *part, uint32_t *ret_token);
/* NULL: the token is not armed. */
const struct armed *fragments_find(const struct fragments *fragments, uint32_t token);
/* -EINVAL: the token is not armed. */
int fragments_release(struct engine *engine, struct fragments *fragments, uint32_t token);
/* True while a part of the region, which is one of a share, is armed. */
bool fragments_region_armed(const struct region *region);

/* ---- for the receiving stage */

/* The only placement of a packet in this frame is for a region of a share. What has no room there
 * makes the queue pair fail. */
void fragments_place(struct engine *engine, struct engine_qp *qp, const struct port_frame *frame,
	struct placements *placements);
/* Its payload turned out not to have been the sender's any more. True: it was refused anyway, and
 * the queue pair has failed. */
bool fragments_take_back(struct engine *engine, const struct placements *placements);
/* True: the frame that was taken in is kept, and goes back when it is released. */
bool fragments_kept_frame(struct engine *engine);

#endif
