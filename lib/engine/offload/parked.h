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
#ifndef FERRULE_ENGINE_PARKED_H
#define FERRULE_ENGINE_PARKED_H

#include "lib/engine/offload/transfers.h"

enum {
	PARKED = 256, /* frames, at most */
	PARKED_OTHER = QPN_MULTICAST,
	/* Aligns payload behind Ethernet, IPv4, UDP and BTH. */
	PARKED_OFFSET = 10,
	PARKED_FRAME = PORT_SPLIT + WIRE_IBTA_MTU + SLAB_MORE, /* the longest one */
	PARKED_SIZE = PARKED_OFFSET + PARKED_FRAME,
};

struct parked {
	struct list node;        /* in parking.order */
	struct port_frame frame; /* frame of the port, held while its far part is fetched */
	uint32_t len;            /* of the whole frame, at slab.bytes */
	uint32_t qpn;            /* PARKED_OTHER: no queue pair; 0: the queue pair is gone */
	uint8_t stream;          /* as in struct side_packet */
	bool is_ready;           /* the frame is complete */
	bool is_dropped;         /* to be discarded */
	/* Stays in use until all placements from the frame are done. */
	struct slab slab;
	struct parked *next; /* in the free list */
};

struct parking {
	struct attached *far;      /* offload that reaches far parts; NULL: none now */
	struct list order;         /* in the order of arrival */
	struct parked *delivering; /* the frame being received */
	uint32_t n_other;          /* entries of `order` without a queue pair */
	bool took_frame;           /* the frame that just arrived is held */
	struct parked *free;
	uint32_t n_free, n;
	struct parked entries[PARKED];
};

/* Returns the bytes of `memory` needed: 0 if the port has no such frames. */
size_t parking_size(const struct port_caps *caps);
/* -ENOMEM. */
int parking_init(struct transfers *t, const struct port_caps *caps, uint8_t *memory);
void parking_fini(struct transfers *t);
/* Returns the number of frames reserved for this, out of those that the port can spare. */
uint32_t parking_frames(const struct port_caps *caps);

/* Called when an offload is attached; it may be the one that reaches far parts. */
void parking_attach(struct engine *e, struct attached *a);
/* Called when an offload is detached: frees its deferred frames without waiting for their fetches.
 * The memory stays until the offload is done with it (engine_unmap_offload()). */
void parking_detach(struct engine *e, struct attached *a);

/* As offload_hooks.defers and offload_hooks.defers_other. */
bool parked_defers(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	const struct wire_packet *packet);
bool parked_defers_other(struct engine *e, const struct port_frame *frame);
/* Called when the far part was fetched, or its offload has failed. */
void parked_fetched(struct engine *e, struct parked *parked);
/* Receives complete frames whose turn it is. Returns how many. */
uint32_t parked_deliver(struct engine *e, uint64_t now_ns);
/* Returns true if the frame that just arrived is held; it is freed here later. */
bool parked_kept_frame(struct transfers *t);
/* Returns the slab that holds `payload` of the deferred frame being received. NULL: the payload is
 * elsewhere, or must be copied because the frame cannot be held that long. */
struct slab *parked_slab(
	const struct transfers *t, const struct attached *a, const uint8_t *payload);
/* Called when the slab has no users any more. */
void parked_release(struct transfers *t, struct slab *slab);
/* Returns true if there is room for a packet that is requested again. */
bool parked_may_ask(const struct transfers *t, const struct attached *a);
/* Discard deferred frames of a queue pair that is removed or reset, or of a link. */
void parked_forget(struct engine *e, struct engine_qp *qp);
void parked_drop_link(struct engine *e, uint16_t link);

/* Returns true if the NIC can send this packet directly from the offloads' memory now. */
bool parked_sends(struct engine *e, struct engine_qp *qp, const struct packet_out *out);

#endif
