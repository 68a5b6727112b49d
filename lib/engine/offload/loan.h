/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loaned buffers: zero-copy transmit of gathered payload. A port that sends by reference
 * (drivers/port.h) takes the buffer of a packet as a loan, and the packet gets a spare buffer in
 * its place. The loaned buffer returns when the port reports it idle. Some NIC drivers report that
 * late, or only when they have more to send. The number of loans is therefore limited; beyond it
 * the port copies, as ports without references always do.
 *
 * Private to this folder.
 */
#ifndef FERRULE_ENGINE_LOAN_H
#define FERRULE_ENGINE_LOAN_H

#include "lib/engine/offload/transfers.h"

enum {
	LOANED_BUFFERS = 256,    /* upper limit of loans */
	RETAINED_BUFFERS = 2048, /* of retained.c; collectives/net/bulk.c relies on it */
};

struct side_buffer {
	uint8_t *bytes;           /* slab_size bytes of t->memory */
	struct port_mem *mem;     /* NULL: the port takes no references to it */
	struct side_buffer *next; /* in the list of spare or loaned buffers (the next younger loan)
				   */
	/* For retained.c: a transfer writes the buffer; the entry it belongs to, NULL if that has
	 * ended. */
	bool is_written;
	struct retained *entry;
	struct side_packet *side; /* packet in its link's queue; NULL: none */
};

/* Allocates all buffers: first `n` for packets, then the spare ones. -ENOMEM. */
int loan_init(struct transfers *t, uint32_t n, uint8_t *memory);
/* Returns the bytes of `memory` needed. */
size_t loan_size(const struct transfers *t, uint32_t n);
/* Registers t->memory with the port, if the port sends by reference. */
void loan_map(struct engine *e);
/* Called before the port is closed. Returns false if the port still refers to buffers; their
 * memory must stay until it is closed. */
bool loan_unmap(struct engine *e);
void loan_fini(struct transfers *t);

/* Takes a spare buffer. There is always one for callers that keep to the limits above. */
struct side_buffer *loan_take_spare(struct transfers *t);
void loan_put_spare(struct transfers *t, struct side_buffer *buffer);

/* Offers the buffer of a packet that goes to its queue as a loan, if possible. */
void loan_offer(struct engine *e, struct side_packet *side);
/* Called when the packet has left the queue. `taken`: by the port; otherwise it was dropped. */
void loan_settle(struct engine *e, struct side_packet *side, bool taken);

#endif
