/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Payload that the peer reads where it lies: the sender's shared memory (lib/base/share.h) is
 * mapped by the peer once, read-only, and frames then carry references to it.
 *
 * The ends of a link talk about this over its meeting socket: EXPORT passes a descriptor on under
 * an id, READY or REFUSED answers; WITHDRAW takes the id back, GONE answers, and the id is free
 * again. A refused export costs nothing but copies. MAPPED is about the link itself, see link.c.
 *
 * The id CONTROL is the memory of the epochs: counters of revocations, one for each flow of the
 * port, the same for all of its links. A reference holds the epoch that it was made in and is void
 * as soon as the counter differs. Flows have counters of their own (PORT_FLOWS), so a revocation
 * voids no other flow's references. An end that lets go of a link voids all references in its ring
 * (ring_void()).
 *
 * Ids are a port's: one memory has the same id on all of its links.
 */
#ifndef FERRULE_DRIVERS_LOCAL_IN_PLACE_H
#define FERRULE_DRIVERS_LOCAL_IN_PLACE_H

#include <stdatomic.h>

#include "drivers/local/internal.h"
#include "lib/base/share.h"

struct fabric_link;
struct fabric_pass;

enum {
	IN_PLACE_CONTROL = IN_PLACE_MAX, /* the id of the epochs */
	IN_PLACE_IDS,
	IN_PLACE_HEADER = 128, /* of packets with longer ones the payload is copied */
	IN_PLACE_FRAME = IN_PLACE_HEADER + 32, /* of a reference */
	AT_ETHERTYPE = 12,                     /* in a frame */
};

/* Memory of this process that the port sends from. Under the guard; `leaving` is the link
 * thread's to set. */
struct port_share {
	LIST_ENTRY(port_share) next;
	struct share *share;
	uint32_t users; /* port_mems */
	int id;         /* of the export, or -1 */
	bool leaving;   /* being taken back from all peers */
};

/* What this end has told its peer about one id. "To" states wait for a place in the socket. */
enum export_state {
	EXPORT_NONE,
	EXPORT_TO_SEND,
	EXPORT_SENT,
	EXPORT_READY,
	EXPORT_REFUSED,
	EXPORT_TO_WITHDRAW,
	EXPORT_WITHDRAWN,
};

enum import_state {
	IMPORT_NONE,
	IMPORT_TO_REFUSE,
	IMPORT_TO_PUBLISH, /* mapped, not in the table of bursts */
	IMPORT_TO_ANSWER,
	IMPORT_READY,
	IMPORT_TO_HIDE, /* withdrawn, still in the table */
	IMPORT_TO_UNMAP,
	IMPORT_TO_SAY_GONE,
};

struct import {
	enum import_state state;
	void *addr;
	size_t size;
	uint64_t holes; /* bytes that had no page when it was mapped */
	uint64_t inode;
};

/* Costs of peers' memory here: addresses, and memory at most. */
struct import_sum {
	uint64_t bytes, holes;
};

/* The most of all imports of a link, and of this process. Tests change it. */
extern struct import_limits {
	struct import_sum link, process;
} import_limits;

/* One link's. */
struct in_place {
	/* Under the guard: what bursts see. */
	uint64_t ready;                       /* exports that the peer can read */
	uint64_t wanted;                      /* exports that packets have asked for */
	const _Atomic(uint64_t) *peer_epochs; /* NULL: take no references */
	struct {
		const uint8_t *addr; /* NULL: no such import */
		uint64_t size;
	} imported[IN_PLACE_MAX];

	/* Under the link thread's mutex. */
	bool visible;                       /* bursts may have seen it */
	bool detached;                      /* they cannot any more */
	struct share *shares[IN_PLACE_IDS]; /* what to send; valid until the export is NONE */
	enum export_state exports[IN_PLACE_IDS];
	struct import imports[IN_PLACE_IDS];
	struct import_sum mapped;
	bool has_complained; /* the log has why the peer's payload is copied */
};

/* in_place.c: the memory of a port. Guard held, but for in_place_forget. */
int in_place_use(struct local_port *port, void *addr, size_t len, struct port_share **ret_share);
void in_place_unuse(struct local_port *port, struct port_share *share);
/* Asks for an export of the memory to the link's peer. */
void in_place_want(struct local_port *port, struct in_place *in_place, struct port_share *share);
/* When the port has no links and no port_mems any more. */
void in_place_forget(struct local_port *port);

/* For the link thread, with the port's guard and the mutex held: begin, each link of the port, end.
 * True: the peer is to be told. */
void in_place_publish_begin(struct local_port *port);
bool in_place_publish(struct local_port *port, struct in_place *in_place);
void in_place_publish_end(struct local_port *port);
/* Takes it out of bursts' sight and voids every reference. Guard held. */
void in_place_hide(struct local_port *port, uint16_t link);
/* Lets go of memory that a publish has dropped. The mutex held, and no guard. */
void in_place_put_dropped(void);
/* NULL: no memory. */
struct in_place *in_place_create(struct local_port *port);
/* Negative when the peer is gone or talks nonsense. A link may have no `in_place`. */
int in_place_step(struct fabric_link *link, struct fabric_pass *pass);
/* Takes what the peer has said, and says nothing. As in_place_step. */
int in_place_listen(struct fabric_link *link, struct fabric_pass *pass);
/* The client has mapped the rings. 0, -EAGAIN, or that the peer is gone. */
int in_place_say_mapped(struct fabric_link *link);
/* False: not yet, bursts may see it until the next publish. */
bool in_place_destroy(struct in_place **in_place);

/* imports.c: memory of peers. Mutex held. */
/* Whether a descriptor from a peer is of memory that nobody can cut off: 0 or -EINVAL. */
int in_place_check_memory(int fd, uint64_t size);
/* Fills in all but the state. -EINVAL: the peer could take pages away, or has exported the memory
 * already; -ENOSPC: it would be too much; -ENOMEM. The log has the link's first reason. */
int import_map(struct in_place *in_place, struct import *import, int fd, uint64_t size);
void import_unmap(struct in_place *in_place, struct import *import);

/* references.c: the data path. Guard held. */
bool in_place_can_send(
	struct local_port *port, struct in_place *in_place, const struct port_packet *packet);
/* The reference as bytes: returns how many of IN_PLACE_FRAME there are. */
uint32_t in_place_encode(const struct local_port *port, const struct port_packet *packet,
	uint8_t frame[static IN_PLACE_FRAME]);
bool in_place_is_reference(const struct port_frame *frame);
/* Replaces the reference by what it refers to. False when it is void or wrong. */
bool in_place_accept(const struct local_port *port, struct port_frame *frame);
void in_place_revoke(struct port *port, uint16_t link, uint32_t flow);
bool in_place_intact(struct port *port, const struct port_frame *frame);

#endif
