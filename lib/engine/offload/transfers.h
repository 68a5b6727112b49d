/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transfers: payload that offloads (offload.h) move into and out of memory that the processor
 * cannot reach, for example of a GPU. Private to this folder. struct transfers is the engine's
 * offload_state.
 *
 *	receiving   packet -> placements -> ring of transfers -> offload -> memory
 *	            The frame is held, or its payload copied into a slab, until the offload has
 *	            taken it. Completions are held back meanwhile (completions.c).
 *	sending     memory -> offload -> side packet -> link's transmit queue
 *	            A packet waits beside the queues until its payload is there (gather.c).
 *
 * Each offload has one ring. The ring holds all transfers in the order of their packets. The
 * offload keeps that order for transfers that touch the same bytes. A READ response therefore
 * returns the data of an earlier WRITE, also when another queue pair received the WRITE.
 *
 * An offload never blocks other traffic. A packet that needs room that is not there is dropped
 * when received, and not built when sent (offload_admits(), side_room()). Traffic of host memory
 * goes on. Each offload has a share of the room, so a stalled offload does not stop the others.
 */
#ifndef FERRULE_ENGINE_TRANSFERS_H
#define FERRULE_ENGINE_TRANSFERS_H

#include "lib/base/list.h"
#include "lib/engine/engine.h"
#include "lib/engine/offload/offload.h"
#include "lib/protocol/qp.h"

enum {
	ENGINE_OFFLOADS = 8, /* per engine; bits of a mask */
	TRANSFERS = 2048,    /* unfinished ones per offload; a power of two */
	/* Placements and gathers share a ring. Each may use half of it. */
	TRANSFERS_SHARE = TRANSFERS / 2,
	/* A placement is split in two where the far part of a frame begins. */
	TRANSFERS_A_PACKET = FRL_MAX_SGE + 2,
	SLAB_MORE = 64,    /* bytes of a slab beyond the largest payload: room for a GRH */
	SLABS = 256,       /* for payload of frames that cannot be held */
	HELD_FRAMES = 256, /* upper limit; the port may spare fewer */
	OFFLOAD_WHY = 256,
};

/* Payload of a received packet. In use until all transfers from it are done. */
struct slab {
	uint8_t *bytes;
	uint32_t used;          /* bytes */
	uint32_t users;         /* transfers, the packet while it is being placed, retained payload
				 */
	bool is_kept;           /* by retained payload; counts for no share if that is the only
				 * user */
	struct attached *owner; /* NULL: belongs to a deferred frame */
	struct slab *next;
};

struct held_frame {
	struct port_frame frame;
	uint32_t users; /* transfers, the burst it came with, retained payload */
	bool is_kept;   /* as in struct slab */
	struct attached *owner;
	struct held_frame *next;
};

/* A packet that waits for its payload, or behind another one that does. See gather.c. */
struct side_packet {
	struct list node; /* in transfers.sides, in the order of creation; or in no list */
	struct side_packet *prev_in_stream; /* waits as well; NULL: the first one that waits */
	struct side_packet *next_in_stream;
	uint32_t qpn;
	uint16_t link;
	uint8_t stream;           /* 1: responses; 0: requests */
	bool has_payload;         /* in `buffer` */
	bool has_icrc;            /* to be computed when the payload is there */
	uint16_t headers;         /* bytes of headers in packet.header */
	uint16_t l3_offset;       /* where the ICRC starts in the headers */
	uint32_t transfers;       /* unfinished ones */
	struct attached *owner;   /* offload that it waits for; counts for its share */
	struct side_packet *next; /* in the free list */
	struct port_packet packet;
	struct side_buffer *buffer;
	/* Replaces `buffer` if the port takes that by reference. NULL: the port copies. */
	struct side_buffer *spare;
};

struct transfer {
	uint64_t seq; /* counts up over all offloads of the engine */
	uint64_t ticket;
	uint8_t *dst;           /* there; host memory for a gather */
	const uint8_t *src;     /* REDUCE: first operand, there */
	const uint8_t *payload; /* host memory; memory there for a gather */
	bool is_there;          /* `payload` is there: the far part of a frame */
	uint32_t length;
	bool has_action;
	struct frl_recv_action action;
	struct side_packet *side;  /* set for a gather, and none of the following */
	struct deferred *deferred; /* set for the far part of a frame, and none of the following */
	struct slab *slab;
	struct held_frame *held;
	struct side_buffer *also; /* second destination of the result (retained.h), or NULL */
};

/* An attached offload. Its unfinished transfers are at positions [head, tail) of the ring, modulo
 * 2^64. The offload has accepted those before `given`, and has no room for the others yet. */
struct attached {
	struct offload *offload; /* NULL: free entry */
	struct transfer *ring;   /* TRANSFERS entries */
	uint64_t head, given, tail;
	uint32_t placements, gathers; /* unfinished ones; at most half of the ring each */
	/* Address range of all placements since the last time that none was under way. */
	const uint8_t *placed_first, *placed_end;
	/* Its use of shared room. */
	uint32_t slabs, held;
	uint32_t shared_sides; /* side packets beyond those promised to each link */
	uint8_t sides_of[ENGINE_LINKS];
	struct slab *rx_slab; /* of the packet being received; NULL: none needed */
	/* Queue pair whose peer must resend a dropped packet. Room is reserved for that packet
	 * until the deadline. One at a time; NULL: none. */
	struct engine_qp *requested_qp;
	uint64_t requested_until_ns;
	bool is_leaving; /* new frames that it would have to fetch are dropped */
	bool failed;
	const char *why; /* reason of the failure */
};

/* Reason of a failure. Queue pairs refer to it even after the offload is detached. */
struct failure {
	struct failure *next;
	char why[OFFLOAD_WHY];
};

/* State of a queue pair: engine_qp.offloads. */
struct offload_qp {
	struct engine_qp *qp;
	/* The last transfer placed for it, the offloads with unfinished placements for it, and all
	 * offloads that it has used. */
	uint64_t placed_seq;
	uint32_t placed_mask;
	uint32_t used_mask;
	/* Its newest packets beside the queues, and the number of its deferred frames (deferred.h).
	 * Index 0: requests; 1: responses. */
	struct side_packet *side_last[2];
	uint32_t deferred[2];
	/* Its dropped packets, and the offloads that had no room for them. */
	struct qp_loss loss;
	uint32_t dropped_mask;
	struct list dropped;
};

struct transfers {
	struct attached attached[ENGINE_OFFLOADS];
	uint32_t n_attached;
	bool any_failed;
	struct failure *failures;
	uint64_t seq;    /* of the last transfer */
	uint8_t *memory; /* for slabs and side packets; the offloads reach it */
	size_t memory_size;
	size_t slab_size; /* of slabs and buffers: any payload and a GRH */
	struct slab slabs[SLABS];
	struct slab *free_slabs;
	uint32_t n_free_slabs;
	uint32_t n_kept_slabs; /* used by retained payload alone */
	struct held_frame held[HELD_FRAMES];
	struct held_frame *free_held;
	uint32_t n_held;                 /* in use or free */
	uint32_t n_kept_frames;          /* used by retained payload alone */
	struct held_frame *rx_held;      /* the frame being received; NULL: not held */
	struct deferred_queue *deferred; /* NULL: the port has no frames with a far part */
	struct list gates;               /* of all completion queues */
	struct list holding;             /* those that hold completions back */
	struct list dropped;      /* struct offload_qp.dropped: queue pairs with dropped packets */
	struct side_packet *side; /* SIDE_PACKETS entries */
	struct side_packet *free_sides;
	uint32_t n_free_sides;
	uint32_t n_promised; /* side packets reserved for links that use less than their minimum */
	uint16_t sides_of[ENGINE_LINKS];
	struct list sides;
	struct side_buffer *buffers; /* n_buffers entries; see loan.h */
	uint32_t n_buffers;
	struct port_mem *port_mem; /* registration of `memory` with the port; NULL: none */
	struct side_buffer *spare;
	struct side_buffer *loaned, *loaned_last; /* loaned to the port, oldest first */
	uint32_t n_loaned;                        /* loaned, or offered and about to be */
	struct retained_table *retained;
	bool may_leave; /* a packet beside the queues waits for nothing */
};

static inline struct transfers *transfers_of(const struct engine *e)
{
	return e->offload_state;
}

/* ---- transfers.c */

/* As offload_hooks.progress. */
uint32_t offload_progress(struct engine *e, uint64_t now_ns);
/* As offload_hooks.launch. */
void offload_launch(struct engine *e);
/* As offload_hooks.place. */
void offload_place(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	const struct placement *p);
/* As offload_hooks.placed. */
void offload_placed(struct engine *e);
/* Holds the frame being received for the offload. Returns false if it cannot be held. */
bool offload_hold(struct engine *e, struct attached *a, const struct port_frame *frame);
/* As offload_hooks.keeps_frame. */
bool offload_kept_frame(struct engine *e);
/* As offload_hooks.region_busy. */
bool offload_region_busy(const struct engine *e, const struct region *region);
/* As offload_hooks.is_busy: transfers are unfinished, or packets are to be requested again. */
bool offload_is_busy(const struct engine *e);

/* Returns true if all transfers up to `seq` of the offloads in the mask are done. */
bool transfers_done(const struct transfers *t, uint64_t seq, uint32_t mask);
/* Moves the queue pair to ERR: it uses an offload that has failed. */
void offload_fail_qp(struct engine *e, struct engine_qp *qp, const struct attached *a);
/* Returns NULL if the offload is not attached to the engine. */
struct attached *attached_of(const struct transfers *t, const struct offload *offload);
/* Mark a frame or slab that is in use as retained, and undo that. The last user frees it. */
void frame_keep(struct held_frame *held);
void frame_unkeep(struct engine *e, struct held_frame *held);
void slab_keep(struct slab *slab);
void slab_unkeep(struct transfers *t, struct slab *slab);
/* Appends a transfer; the ring must have room. The caller fills it in, then calls transfer_give().
 */
struct transfer *transfer_add(struct transfers *t, struct attached *a);
void transfer_give(struct attached *a);
/* Returns how many more packets the ring has room to gather payload for. */
uint32_t transfers_room(const struct attached *a);
/* Returns the share of each offload out of `all`. */
uint32_t transfers_share(const struct transfers *t, uint32_t all);
/* Collects the offloads of all regions that qp_output_touches() or qp_input_touches() visit, as
 * bits of a mask. offload_note_need() returns false so that the visit goes on. */
struct offload_needs {
	const struct transfers *transfers;
	uint32_t *mask;
};
bool offload_note_need(const void *arg, const struct region *region);
/* Predicate for qp_output_touches(): the region has an owner. */
bool offload_is_any(const void *arg, const struct region *region);

/* ---- completions.c */

/* Adds gates to the completion queues of a queue pair that have none. -ENOMEM. */
int completions_watch(struct engine *e, struct cq *send_cq, struct cq *recv_cq);
/* Gives the gate of the queue, if any, room for `count` completions, before the queue gets it.
 * -ENOMEM. */
int completions_resize(struct cq *cq, uint32_t count);
/* Frees the gate of the queue, if any, with the completions that it holds. */
void completions_unwatch(struct cq *cq);
void completions_fini(struct transfers *t);
/* For tests: returns the i-th completion that the gate of the queue holds. */
const struct frl_wc *completions_held(const struct cq *cq, uint32_t i);
/* Writes held completions whose transfers are done. */
void completions_pass_on(struct transfers *t);
/* Turns held completions that wait for the failed offload into errors. */
void completions_spoil(struct transfers *t, const struct attached *a);

/* ---- admit.c */

/* Returns true if the packet may be received. Otherwise it was dropped: there is no room, or the
 * offload that owns the memory has failed. */
bool offload_admits(
	struct engine *e, struct engine_qp *qp, const struct wire_packet *packet, uint64_t now_ns);
/* Cancels requests to resend packets to the queue pair. */
void offload_clear_loss(struct engine *e, struct engine_qp *qp);
/* Requests dropped packets again where there is room now. */
void offload_request_dropped(struct engine *e, uint64_t now_ns);
/* Returns true, and moves the queue pair to ERR, if its next packet reads from a failed offload. */
bool offload_fails_output(struct engine *e, struct engine_qp *qp);

/* ---- gather.c */

int sides_init(struct transfers *t, uint8_t *memory);
size_t sides_size(const struct transfers *t); /* bytes of `memory` needed */
void sides_fini(struct transfers *t);
/* As offload_hooks.room. */
uint32_t side_room(
	struct engine *e, struct engine_qp *qp, uint16_t link, uint32_t max, bool *ret_waits);
/* As offload_hooks.queue. */
struct port_packet *side_queue(
	struct engine *e, struct engine_qp *qp, uint16_t link, const struct packet_out *out);
/* Called when a transfer of the packet is done. */
void side_transfer_done(struct transfers *t, struct side_packet *side);
/* Moves packets that wait for nothing to their queues. Returns how many. */
uint32_t sides_leave(struct engine *e, uint64_t now_ns);
/* The same, if such a packet was just built. */
void sides_leave_early(struct engine *e, uint64_t now_ns);
/* Returns true while requests of the queue pair wait for their payload. */
bool side_is_fetching(const struct engine_qp *qp);
/* As offload_hooks.link_queued. */
bool sides_wait(const struct engine *e, uint16_t link);
/* As offload_hooks.release. */
void side_release(struct engine *e, struct port_packet *packet, bool taken);
/* Drop packets beside the queues: of a flow; of a link; of a failed offload. */
uint16_t sides_withdraw(struct engine *e, uint32_t flow);
void sides_drop_link(struct engine *e, uint16_t link);
void sides_drop_failed(struct engine *e, const struct attached *a);

#endif
