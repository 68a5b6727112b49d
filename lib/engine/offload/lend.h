/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers of packets beside the queues, and what the port has of them. A port that sends by
 * reference (drivers/port.h) is lent the buffer of a packet when it takes that; the packet gets a
 * spare one in its place, and the other comes back when the port says that nothing refers to it any
 * more. Some NICs' drivers say so late, or not before they have more to send: so there are only so
 * many to lend, and what finds none is copied by the port, as on ports that send no references.
 *
 * Private to this folder.
 */
#ifndef FERRULE_ENGINE_LEND_H
#define FERRULE_ENGINE_LEND_H

#include "lib/engine/offload/transfers.h"

enum {
	LENT_BUFFERS = 256,  /* that ports have at most */
	ECHO_BUFFERS = 2048, /* of echo.c, at most; collectives/bulk.c goes by it */
};

struct side_buffer {
	uint8_t *bytes;           /* slab_size, of t->memory */
	struct port_mem *mem;     /* NULL: the port takes no references to it */
	struct side_buffer *next; /* of those that are spare, or lent: then the next younger one */
	/* Of echo.c: written by a transfer, and which echo it is then (NULL: none any more). */
	bool is_written;
	struct echo *echo;
	struct side_packet *side; /* in its link's queue; NULL: none */
};

/* All buffers: `n` of packets, the first ones, and the spare ones behind them. -ENOMEM. */
int lend_init(struct transfers *t, uint32_t n, uint8_t *memory);
/* So much `memory`. */
size_t lend_size(const struct transfers *t, uint32_t n);
/* Makes t->memory known to the port, if that sends by reference. */
void lend_map(struct engine *e);
/* The port is about to be closed. False: it still refers to some, and the memory must stay until it
 * is closed. */
bool lend_unmap(struct engine *e);
void lend_fini(struct transfers *t);

/* There always is one for those who keep to their numbers above. */
struct side_buffer *lend_take_spare(struct transfers *t);
void lend_put_spare(struct transfers *t, struct side_buffer *buffer);

/* The packet goes to its queue: by reference, if that is possible. */
void lend_offer(struct engine *e, struct side_packet *side);
/* It has left the queue. `taken`: the port has it, else it was dropped. */
void lend_settle(struct engine *e, struct side_packet *side, bool taken);

#endif
