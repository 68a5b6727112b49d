/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Echoes: bytes of packets that came for memory of an offload, and that will leave from there
 * again, as a part of the next message of a ring for example (struct frl_recv_wr.keep). They are in
 * host memory as well:
 *
 *	COPY      in the packet's frame, or in the slab that its payload was copied into; in a
 *	          buffer when these are needed for others, which get half of them at least at once
 *	REDUCE    in a buffer that the offload writes the result to along with its memory
 *
 * A send that names the same bytes takes them from there, and the offload is not asked for them:
 * out of a buffer, which is the packet's then, or by one copy of the processor's. An echo is used
 * once, and none is ever needed: whoever finds none has the bytes fetched.
 *
 * They refer to no memory of the offload: a region does not wait for them. They go when anything
 * else is placed where they came from; with the region, the offload, the queue pair and the link;
 * when there are too many, the oldest first.
 *
 * Private to this folder.
 */
#ifndef FERRULE_ENGINE_ECHO_H
#define FERRULE_ENGINE_ECHO_H

#include "lib/engine/offload/transfers.h"

struct echoes;
struct side_buffer;

/* Where the bytes are. */
enum echo_kind { ECHO_FRAME, ECHO_SLAB, ECHO_BUFFER, ECHO_KINDS };

/* -ENOMEM. For a port that spares `n_held` frames. */
int echoes_init(struct transfers *t, uint32_t n_held);
void echoes_fini(struct transfers *t);

/* A placement that is about to be given: ends the echoes of what lies there, and becomes one if it
 * is to be kept. */
void echo_place(struct engine *e, struct engine_qp *qp, struct transfer *transfer,
	const struct placement *p);
/* Where the result of such a transfer goes besides. */
uint8_t *echo_result(const struct transfer *transfer);
/* The transfer that wrote the buffer is over; `ok`: its bytes are there. */
void echo_written(struct transfers *t, struct side_buffer *buffer, bool ok);
/* Fills the side packet with the bytes of its only piece. False: there is no echo of them. */
bool echo_send(struct engine *e, struct side_packet *side, const struct packet_piece *piece,
	uint64_t keep);

/* A frame or a slab is needed: the oldest that is there for an echo alone is given back, and the
 * echo moves to a buffer, or ends. False: there is none. */
bool echo_vacate(struct engine *e, enum echo_kind kind);

/* Ends those of bytes of this memory; of what was placed, and should not have been; of an offload;
 * of what a queue pair received; of what came over a link. */
void echo_forget(struct engine *e, const uint8_t *there, uint64_t length);
void echo_forget_placed(struct engine *e, const struct placements *placements);
void echo_forget_offload(struct engine *e, const struct attached *a);
void echo_forget_qp(struct engine *e, const struct engine_qp *qp);
void echo_forget_link(struct engine *e, uint16_t link);

#endif
