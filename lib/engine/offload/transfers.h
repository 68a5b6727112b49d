/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Payload in memory that the processor does not reach, of a GPU for example: it is moved by
 * offloads (offload.h), in their time. Private to this folder. An engine that has had an offload
 * has this as its offload_state, and calls by hooks.h.
 *
 *	receiving   packet -> placements -> ring of transfers -> offload -> memory
 *	            The frame is held, or its payload copied into a slab, until the offload has
 *	            taken it. Completions wait at a gate meanwhile (completions.c).
 *	sending     memory -> offload -> side packet -> link's transmit queue
 *	            A packet waits beside the queues until its payload is there (gather.c).
 *
 * All transfers of an offload are in one ring, in the order of the packets that they are of. The
 * offload does in that order what touches the same bytes: so the response to a READ has what the
 * WRITE before it has brought, of the same queue pair or another one, and nothing here needs to
 * wait for that.
 *
 * Nothing waits for an offload. Where there is no room for what a packet may need, it is not taken
 * in, or not made (offload_admits(), side_room()); what the processor reaches goes on. Each offload
 * has its share of the room, so that one that stands still does not stop the others.
 */
#ifndef FERRULE_ENGINE_TRANSFERS_H
#define FERRULE_ENGINE_TRANSFERS_H

#include "lib/base/list.h"
#include "lib/engine/engine.h"
#include "lib/engine/offload/offload.h"
#include "lib/protocol/qp.h"

enum {
	ENGINE_OFFLOADS = 8, /* that an engine works with: bits of a mask */
	TRANSFERS = 2048,    /* of an offload, not done; a power of two */
	/* Placements and gathers share a ring, and neither can take the other's half. */
	TRANSFERS_SHARE = TRANSFERS / 2,
	/* One of them may be cut in two, where the far part of a frame begins. */
	TRANSFERS_A_PACKET = FRL_MAX_SGE + 2,
	SLAB_MORE = 64, /* bytes of a slab beyond those of the largest payload: a GRH before it */
	SLABS = 256,    /* of payload that came in a frame that cannot be held */
	HELD_FRAMES = 256, /* at most, if the port has so many to spare */
	OFFLOAD_WHY = 256,
};

/* Payload of a packet that came in; in use until all transfers out of it are done. */
struct slab {
	uint8_t *bytes;
	uint32_t used;          /* bytes */
	uint32_t users;         /* transfers, the packet while it is being placed, and an echo */
	bool is_kept;           /* by an echo; if that alone uses it, it is nobody's share */
	struct attached *owner; /* NULL: it is that of a struct parked */
	struct slab *next;
};

struct held_frame {
	struct port_frame frame;
	uint32_t users; /* transfers, the burst that it came with, and an echo */
	bool is_kept;   /* as of a slab */
	struct attached *owner;
	struct held_frame *next;
};

/* A packet that waits for its payload, or behind one that does. gather.c */
struct side_packet {
	struct list node; /* in `sides`, in the order in which they were made; or in no list */
	struct side_packet *behind; /* the one before it of the same stream is still here */
	struct side_packet *before; /* the reverse */
	uint32_t qpn;
	uint16_t link;
	uint8_t stream;           /* 1: answers; 0: requests */
	bool has_payload;         /* in `buffer` */
	bool has_icrc;            /* that is to be computed when the payload is there */
	uint16_t headers;         /* bytes of the packet's header that are headers, */
	uint16_t l3_offset;       /* and where in them the ICRC starts */
	uint32_t transfers;       /* that are not done */
	struct attached *owner;   /* whose share it is of: what it waits for */
	struct side_packet *next; /* free ones */
	struct port_packet packet;
	struct side_buffer *buffer;
	/* In the link's queue: the port is to have `buffer`, and this takes its place; NULL: it
	 * copies. */
	struct side_buffer *spare;
};

struct transfer {
	uint64_t seq; /* counts up over all offloads of the engine */
	uint64_t ticket;
	uint8_t *dst;           /* there; of a gather host memory */
	const uint8_t *src;     /* REDUCE: the first operand, there */
	const uint8_t *payload; /* host memory; of a gather memory there, */
	bool is_there;          /* and that of a frame's far part, too */
	uint32_t length;
	bool has_action;
	struct frl_recv_action action;
	struct side_packet *side; /* a gather; then none of these: */
	struct parked *parked;    /* the same, of the far part of a frame; then neither of these: */
	struct slab *slab;
	struct held_frame *held;
	struct side_buffer *also; /* where the result goes besides (echo.h), or NULL */
};

/* An offload. Its transfers are at positions [head, tail) modulo 2^64; it has been given those
 * before `given`, and finds no room for the others yet. */
struct attached {
	struct offload *offload; /* NULL: this place is free */
	struct transfer *ring;   /* TRANSFERS */
	uint64_t head, given, tail;
	uint32_t placements, gathers; /* under way: each at most half of the ring */
	/* Where placements go, if there are any: all since there were none before. */
	const uint8_t *placed_first, *placed_end;
	/* What it has of the room. */
	uint32_t slabs, held;
	uint32_t shared_sides; /* more than any link has anyway */
	uint8_t sides_of[ENGINE_LINKS];
	struct slab *rx_slab; /* of the packet that is being taken in; NULL: it needed none */
	/* Whose packet, thrown away before, finds room until then: one at a time, and the others
	 * leave it that. NULL: nobody's. */
	struct engine_qp *asked;
	uint64_t asked_until_ns;
	bool is_leaving; /* it fetches no frame that comes from now on */
	bool failed;
	const char *why; /* then */
};

/* Why one has failed. Queue pairs refer to it, also when that offload has gone. */
struct failure {
	struct failure *next;
	char why[OFFLOAD_WHY];
};

/* The state of a queue pair: engine_qp.offloads. */
struct offload_qp {
	struct engine_qp *qp;
	/* The last transfer that was placed for it, the offloads that place for it, and those that
	 * it has used. */
	uint64_t placed_seq;
	uint32_t placed_mask;
	uint32_t used_mask;
	/* Its newest packets beside the queues, and how many are parked (parked.h): requests and
	 * answers. */
	struct side_packet *side_last[2];
	uint32_t parked[2];
	/* Packets of it that were thrown away, and the offloads that had no room for them. */
	struct qp_loss loss;
	uint32_t starved_mask;
	struct list starved;
};

struct transfers {
	struct attached attached[ENGINE_OFFLOADS];
	uint32_t n_attached;
	bool any_failed;
	struct failure *failures;
	uint64_t seq;    /* of the last transfer */
	uint8_t *memory; /* of slabs and side packets, which the offloads reach */
	size_t memory_size;
	size_t slab_size; /* of slabs and buffers: payload of any packet, and a GRH */
	struct slab slabs[SLABS];
	struct slab *free_slabs;
	uint32_t n_free_slabs;
	uint32_t n_kept_slabs; /* that an echo alone uses */
	struct held_frame held[HELD_FRAMES];
	struct held_frame *free_held;
	uint32_t n_held;            /* in use or free */
	uint32_t n_kept_frames;     /* that an echo alone uses */
	struct held_frame *rx_held; /* of the packet that is being taken in; NULL: none */
	struct parking *parking;    /* NULL: the port has no frames in two parts */
	struct list gates;          /* of completion queues, */
	struct list holding;        /* and those that hold completions back */
	struct list starved;      /* struct offload_qp.starved: of which packets were thrown away */
	struct side_packet *side; /* SIDE_PACKETS */
	struct side_packet *free_sides;
	uint32_t n_free_sides;
	uint32_t n_promised; /* that links with fewer than they were promised may take */
	uint16_t sides_of[ENGINE_LINKS];
	struct list sides;
	struct side_buffer *buffers; /* lend.h: n_buffers of them */
	uint32_t n_buffers;
	struct port_mem *port_mem; /* what the port made of `memory`; NULL: nothing */
	struct side_buffer *spare;
	struct side_buffer *lent, *lent_last; /* to the port, the oldest first */
	uint32_t n_lent;                      /* and those that it will have */
	struct echoes *echoes;
	bool may_leave; /* a packet beside the queues has waited for nothing */
};

static inline struct transfers *transfers_of(const struct engine *e)
{
	return e->offload_state;
}

/* ---- transfers.c */

/* What has been done since the last time is dealt with. Returns how much. */
uint32_t offload_progress(struct engine *e, uint64_t now_ns);
/* What was given is begun at the latest now. */
void offload_launch(struct engine *e);
/* A placement into memory of an offload. */
void offload_place(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	const struct placement *p);
/* All placements of a packet were made. */
void offload_placed(struct engine *e);
/* The frame that is being taken in is held for the offload. False: it cannot be. */
bool offload_hold(struct engine *e, struct attached *a, const struct port_frame *frame);
/* True: the frame that was taken in is held, and comes back by itself. */
bool offload_kept_frame(struct engine *e);
/* A payload is on its way into the region's memory or out of it. */
bool offload_region_busy(const struct engine *e, const struct region *region);
/* Something is under way, or packets are to be asked for again. */
bool offload_is_busy(const struct engine *e);

/* All transfers up to `seq`, of the offloads of the mask, are done. */
bool transfers_done(const struct transfers *t, uint64_t seq, uint32_t mask);
/* The queue pair uses an offload that has failed. */
void offload_fail_qp(struct engine *e, struct engine_qp *qp, const struct attached *a);
/* NULL: it is none of the engine's. */
struct attached *attached_of(const struct transfers *t, const struct offload *offload);
/* An echo uses a frame or slab which something else uses already; and does not any more. */
void frame_keep(struct held_frame *held);
void frame_unkeep(struct engine *e, struct held_frame *held);
void slab_keep(struct slab *slab);
void slab_unkeep(struct transfers *t, struct slab *slab);
/* A new transfer, which there is room for, is filled in and then given. */
struct transfer *transfer_add(struct transfers *t, struct attached *a);
void transfer_give(struct attached *a);
/* So many packets find room for what is fetched for them. */
uint32_t transfers_room(const struct attached *a);
/* What each offload may have of so much. */
uint32_t transfers_share(const struct transfers *t, uint32_t all);
/* Collects the offloads of regions that qp_output_touches() or qp_input_touches() find, as bits of
 * the mask: its answer is no, so they look at all of them. */
struct offload_needs {
	const struct transfers *transfers;
	uint32_t *mask;
};
bool offload_note_need(const void *arg, const struct region *region);
/* For qp_output_touches(). */
bool offload_is_any(const void *arg, const struct region *region);

/* ---- completions.c */

/* Gives the completion queues of a queue pair gates, if they have none. -ENOMEM. */
int completions_watch(struct engine *e, struct cq *send_cq, struct cq *recv_cq);
/* The gate of the queue, if it has one, goes with the completions that it holds. */
void completions_unwatch(struct cq *cq);
void completions_fini(struct transfers *t);
/* For tests: the i-th of the completions that the gate of the queue holds. */
const struct frl_wc *completions_held(const struct cq *cq, uint32_t i);
/* Writes the completions whose transfers are done. */
void completions_pass_on(struct transfers *t);
/* Turns those that wait for this offload, which has failed, into errors. */
void completions_spoil(struct transfers *t, const struct attached *a);

/* ---- admit.c */

/* Whether the packet may be taken in. False: it was thrown away, for want of room or because the
 * memory that it is for is out of reach for good. */
bool offload_admits(
	struct engine *e, struct engine_qp *qp, const struct wire_packet *packet, uint64_t now_ns);
/* Nothing of the queue pair's is asked for again any more. */
void offload_forget(struct engine *e, struct engine_qp *qp);
/* Whose packets were thrown away for want of room is asked for them again when there is some. */
void offload_ask_starved(struct engine *e, uint64_t now_ns);
/* If the next packet of the queue pair is from an offload that has failed, so does it. */
bool offload_fails_output(struct engine *e, struct engine_qp *qp);

/* ---- gather.c */

int sides_init(struct transfers *t, uint8_t *memory);
size_t sides_size(const struct transfers *t); /* bytes of `memory` that they need */
void sides_fini(struct transfers *t);
/* How many packets of the queue pair for that link may be made now, out of `max`; *ret_waits: none,
 * because what the next one needs is not free. */
uint32_t side_room(
	struct engine *e, struct engine_qp *qp, uint16_t link, uint32_t max, bool *ret_waits);
/* As offload_hooks.queue. */
struct port_packet *side_queue(
	struct engine *e, struct engine_qp *qp, uint16_t link, const struct packet_out *out);
/* A transfer is done. */
void side_transfer_done(struct transfers *t, struct side_packet *side);
/* Those whose turn it is go to their queues. Returns how many. */
uint32_t sides_leave(struct engine *e, uint64_t now_ns);
/* The same, if one has waited for nothing. */
void sides_leave_early(struct engine *e, uint64_t now_ns);
/* Requests of the queue pair wait for their payload. */
bool side_is_fetching(const struct engine_qp *qp);
/* Some wait for the link's queue, or for what is to be there then. */
bool sides_wait(const struct engine *e, uint16_t link);
/* As offload_hooks.release. */
void side_release(struct engine *e, struct port_packet *packet, bool taken);
/* What has not gone to a queue is dropped: of a flow; of a link; of an offload that has failed. */
void sides_withdraw(struct engine *e, uint32_t flow);
void sides_drop_link(struct engine *e, uint16_t link);
void sides_drop_failed(struct engine *e, const struct attached *a);

#endif
