/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames with a far part: the NIC puts their end into GPU memory (port_frame.far). Private to this
 * folder; used only if the port has such frames.
 *
 *	direct		The packet is received at once, and the offload moves the payload from
 *			the far part to its destination. Possible if all of the packet goes to
 *			memory of the far part's offload and nothing must read its bytes first.
 *	deferred	All other frames. The offload fetches the far part behind a copy of the
 *			near part. The complete frame is then received like any other: all state
 *			is looked up again, as it may have changed meanwhile.
 *
 * Deferred frames are received in the order of arrival. Later frames of the same stream of PSNs
 * (requests or responses) are deferred too, even if complete; other streams are not. ACKs, atomics
 * and READ responses therefore have the same meaning as on other ports.
 */
#ifndef FERRULE_ENGINE_DEFERRED_H
#define FERRULE_ENGINE_DEFERRED_H

#include "lib/engine/offload/transfers.h"

enum {
	DEFERRED_MAX = 256, /* frames, at most */
	DEFERRED_OTHER = QPN_MULTICAST,
	/* Aligns payload behind Ethernet, IPv4, UDP and BTH. */
	DEFERRED_OFFSET = 10,
	DEFERRED_FRAME = PORT_SPLIT + WIRE_IBTA_MTU + SLAB_MORE, /* the longest one */
	DEFERRED_SIZE = DEFERRED_OFFSET + DEFERRED_FRAME,
};

struct deferred {
	struct list node;        /* in deferred_queue.order */
	struct port_frame frame; /* frame of the port, held while its far part is fetched */
	uint32_t len;            /* of the whole frame, at slab.bytes */
	uint32_t qpn;            /* DEFERRED_OTHER: no queue pair; 0: the queue pair is gone */
	uint8_t stream;          /* as in struct side_packet */
	bool is_ready;           /* the frame is complete */
	bool is_dropped;         /* to be discarded */
	/* Stays in use until all placements from the frame are done. */
	struct slab slab;
	struct deferred *next; /* in the free list */
};

struct deferred_queue {
	struct attached *far;        /* offload that reaches far parts; NULL: none now */
	struct list order;           /* in the order of arrival */
	struct deferred *delivering; /* the frame being received */
	uint32_t n_other;            /* entries of `order` without a queue pair */
	bool took_frame;             /* the frame that just arrived is held */
	struct deferred *free;
	uint32_t n_free, n;
	struct deferred entries[DEFERRED_MAX];
};

/* Returns the bytes of `memory` needed: 0 if the port has no such frames. */
size_t deferred_size(const struct port_caps *caps);
/* -ENOMEM. */
int deferred_init(struct transfers *t, const struct port_caps *caps, uint8_t *memory);
void deferred_fini(struct transfers *t);
/* Returns the number of frames reserved for this, out of those that the port can spare. */
uint32_t deferred_frames(const struct port_caps *caps);

/* Called when an offload is attached; it may be the one that reaches far parts. */
void deferred_attach(struct engine *e, struct attached *a);
/* Called when an offload is detached: frees its deferred frames without waiting for their fetches.
 * The memory stays until the offload is done with it (engine_unmap_offload()). */
void deferred_detach(struct engine *e, struct attached *a);

/* As offload_hooks.defers and offload_hooks.defers_other. */
bool defer_frame(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	const struct wire_packet *packet);
bool defer_other_frame(struct engine *e, const struct port_frame *frame);
/* Called when the far part was fetched, or its offload has failed. */
void deferred_fetched(struct engine *e, struct deferred *deferred);
/* Receives complete frames whose turn it is. Returns how many. */
uint32_t deferred_deliver(struct engine *e, uint64_t now_ns);
/* Returns true if the frame that just arrived is held; it is freed here later. */
bool deferred_kept_frame(struct transfers *t);
/* Returns the slab that holds `payload` of the deferred frame being received. NULL: the payload is
 * elsewhere, or must be copied because the frame cannot be held that long. */
struct slab *deferred_slab(
	const struct transfers *t, const struct attached *a, const uint8_t *payload);
/* Called when the slab has no users any more. */
void deferred_release(struct transfers *t, struct slab *slab);
/* Returns true if there is room for a packet that is requested again. */
bool deferred_has_room(const struct transfers *t, const struct attached *a);
/* Discard deferred frames of a queue pair that is removed or reset, or of a link. */
void deferred_drop(struct engine *e, struct engine_qp *qp);
void deferred_drop_link(struct engine *e, uint16_t link);

/* Returns true if the NIC can send this packet directly from the offloads' memory now. */
bool can_send_far(struct engine *e, struct engine_qp *qp, const struct packet_out *out);

#endif
