/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames that go on in the memory of a GPU (port_frame.far). Private to this folder, and only
 * for engines whose port has such frames.
 *
 *	direct	all that the packet may place goes to memory that the far part's offload reaches,
 *		and nobody has to see its bytes before: it is taken in at once, and the offload
 *		moves the payload from where the NIC has put it to where it belongs.
 *	parked	everything else: the offload fetches the far part behind a copy of the near one,
 *		and then it is a frame as any other, and goes the way of all frames from the
 *		beginning: whatever may have changed meanwhile is looked at then.
 *
 * What is parked is taken in in the order in which it came. What follows in the same stream of PSNs
 * (requests, or answers) waits behind it, also if nothing has to be fetched for it; other streams
 * do not. So an acknowledgement, an atomic, or the answer to a READ says what it says on other
 * ports.
 */
#ifndef FERRULE_ENGINE_PARKED_H
#define FERRULE_ENGINE_PARKED_H

#include "lib/engine/offload/transfers.h"

enum {
	PARKED = 256, /* frames, at most */
	PARKED_OTHER = QPN_MULTICAST,
	/* Payload that begins behind Ethernet, IPv4, UDP and BTH is aligned then. */
	PARKED_OFFSET = 10,
	PARKED_FRAME = PORT_SPLIT + WIRE_IBTA_MTU + SLAB_MORE, /* the longest one */
	PARKED_SIZE = PARKED_OFFSET + PARKED_FRAME,
};

struct parked {
	struct list node;        /* in `order` */
	struct port_frame frame; /* the port's, which is kept while its far part is being fetched */
	uint32_t len;            /* of the whole frame, at slab.bytes */
	uint32_t qpn;            /* PARKED_OTHER: no queue pair's; 0: that of one that is gone */
	uint8_t stream;          /* as in struct side_packet */
	bool is_ready;           /* all of it is there */
	bool is_dropped;         /* nobody takes it in */
	/* It stays until everything that is placed out of it is, too. */
	struct slab slab;
	struct parked *next; /* free ones */
};

struct parking {
	struct attached *far;      /* who reaches the far parts; NULL: nobody just now */
	struct list order;         /* in which they came */
	struct parked *delivering; /* the one that is taken in just now */
	uint32_t n_other;          /* of the order, PARKED_OTHER */
	bool took_frame;           /* that of the packet which came just now */
	struct parked *free;
	uint32_t n_free, n;
	struct parked entries[PARKED];
};

/* Bytes of `memory` that it needs: none where the port has no such frames. */
size_t parking_size(const struct port_caps *caps);
/* -ENOMEM. */
int parking_init(struct transfers *t, const struct port_caps *caps, uint8_t *memory);
void parking_fini(struct transfers *t);
/* Frames of the port that are kept for it, out of those that the port can spare. */
uint32_t parking_frames(const struct port_caps *caps);

/* An offload has come: perhaps it is the one. */
void parking_attach(struct engine *e, struct attached *a);
/* It goes: what is parked is given back, and what it has under way for that is not waited for: its
 * memory stays until the offload has no use for it any more (engine_unmap_offload()). */
void parking_detach(struct engine *e, struct attached *a);

/* As offload_hooks.defers, and defers_other. */
bool parked_defers(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	const struct wire_packet *packet);
bool parked_defers_other(struct engine *e, const struct port_frame *frame);
/* The far part is there, or its offload has failed. */
void parked_fetched(struct engine *e, struct parked *parked);
/* Those whose turn it is are taken in. Returns how many. */
uint32_t parked_deliver(struct engine *e, uint64_t now_ns);
/* The frame that was taken in is kept, and comes back by itself. */
bool parked_kept_frame(struct transfers *t);
/* Payload for that offload out of the frame that is taken in just now; NULL: it lies elsewhere, or
 * is to be copied, as the frame cannot be spared for so long. */
struct slab *parked_slab(
	const struct transfers *t, const struct attached *a, const uint8_t *payload);
/* It has no users any more. */
void parked_release(struct transfers *t, struct slab *slab);
/* There is room for a queue pair that is asked for a packet again. */
bool parked_may_ask(const struct transfers *t, const struct attached *a);
/* The queue pair goes, or is reset; the link goes: nothing of theirs is taken in any more. */
void parked_forget(struct engine *e, struct engine_qp *qp);
void parked_drop_link(struct engine *e, uint16_t link);

/* Whether the NIC can send this packet out of the memory of offloads by itself, now. */
bool parked_sends(struct engine *e, struct engine_qp *qp, const struct packet_out *out);

#endif
