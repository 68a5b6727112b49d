/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Retained payload: bytes of received packets that will be sent again from the offload's memory,
 * such as a segment of a ring collective (struct frl_recv_wr.keep). A copy stays in host memory:
 *
 *	COPY      in the packet's frame or in its slab; moved to a buffer when frames or slabs
 *	          run short (retained payload has at most half of them)
 *	REDUCE    in a buffer that the offload writes the result to, along with its memory
 *
 * A send of the same bytes takes them from there instead of fetching them from the offload.
 * Payload in a buffer is sent without a copy: the packet gets the buffer. Other payload is copied
 * once by the processor. Each entry is used once. Entries are an optimization: a send that finds
 * none fetches the bytes.
 *
 * Entries refer to no memory of the offload, so a region can be removed at any time. An entry ends
 * when other bytes are placed at its address, when its region, offload, queue pair or link goes,
 * or as the oldest one when there are too many.
 *
 * Private to this folder.
 */
#ifndef FERRULE_ENGINE_RETAINED_H
#define FERRULE_ENGINE_RETAINED_H

#include "lib/engine/offload/transfers.h"

struct retained_table;
struct side_buffer;

/* Kind of memory that holds the bytes. */
enum retained_kind { RETAINED_FRAME, RETAINED_SLAB, RETAINED_BUFFER, RETAINED_KINDS };

/* `n_held` is the number of frames that the port spares. -ENOMEM. */
int retained_init(struct transfers *t, uint32_t n_held);
void retained_fini(struct transfers *t);

/* Called before a placement is given to the offload. Ends entries of the same bytes. Adds an entry
 * if the payload is to be retained. */
void retained_place(struct engine *e, struct engine_qp *qp, struct transfer *transfer,
	const struct placement *p);
/* Returns the second destination of the result of such a transfer. */
uint8_t *retained_result(const struct transfer *transfer);
/* Called when the transfer that wrote the buffer is over. `ok`: the bytes are valid. */
void retained_written(struct transfers *t, struct side_buffer *buffer, bool ok);
/* Fills the side packet with the retained bytes of its only piece. Returns false if there are
 * none. */
bool retained_send(struct engine *e, struct side_packet *side, const struct packet_piece *piece,
	uint64_t keep);

/* Frees the oldest frame or slab that only retained payload uses; the payload moves to a buffer,
 * or the entry ends. Returns false if there is none. */
bool retained_vacate(struct engine *e, enum retained_kind kind);

/* End entries: of this memory; of placements that are void; of an offload; of a queue pair's
 * receives; of a link. */
void retained_end(struct engine *e, const uint8_t *there, uint64_t length);
void retained_end_placed(struct engine *e, const struct placements *placements);
void retained_end_offload(struct engine *e, const struct attached *a);
void retained_end_qp(struct engine *e, const struct engine_qp *qp);
void retained_end_link(struct engine *e, uint16_t link);

#endif
