/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Payload that the peer reads in the sender's memory. The peer maps the sender's shared memory
 * (lib/base/memory/share.h) once, read-only, and frames then carry references to it.
 *
 * The ends of a link exchange messages over its handshake socket. EXPORT passes a descriptor under
 * an id; READY or REFUSED answers. WITHDRAW takes the id back; RELEASED answers, and the id is free
 * again. Payload of a refused export is copied, which is the only effect. MAPPED concerns the link
 * itself, see link.c.
 *
 * The id IN_PLACE_CONTROL stands for the memory of the epochs: revocation counters, one for each
 * flow of the port, shared by all of its links. A reference contains the epoch in which it was
 * made, and is void once the counter differs. Flows have their own counters (PORT_FLOWS), so a
 * revocation voids no other flow's references. An end that releases a link voids all references in
 * its ring (ring_void()).
 *
 * Ids belong to a port: a memory has the same id on all of its links.
 */
#ifndef FERRULE_DRIVERS_LOCAL_IN_PLACE_H
#define FERRULE_DRIVERS_LOCAL_IN_PLACE_H

#include <stdatomic.h>

#include "drivers/local/internal.h"
#include "lib/base/memory/share.h"

struct fabric_link;
struct fabric_pass;

enum {
	IN_PLACE_CONTROL = IN_PLACE_MAX, /* id of the epochs */
	IN_PLACE_IDS,
	IN_PLACE_HEADER = 128, /* payload of packets with longer headers is copied */
	IN_PLACE_FRAME = IN_PLACE_HEADER + 32, /* length of a reference frame */
	AT_ETHERTYPE = 12,                     /* offset in a frame */
};

/* Memory of this process that the port sends from. Protected by the guard; only the link thread
 * sets `leaving`. */
struct port_share {
	LIST_ENTRY(port_share) next;
	struct share *share;
	uint32_t users; /* number of port_mems */
	int id;         /* id of the export, or -1 */
	bool leaving;   /* being withdrawn from all peers */
};

/* State of one id as announced to the peer. "TO" states wait for room in the socket. */
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
	IMPORT_TO_PUBLISH, /* mapped, not yet visible to bursts */
	IMPORT_TO_ANSWER,
	IMPORT_READY,
	IMPORT_TO_HIDE, /* withdrawn, still visible to bursts */
	IMPORT_TO_UNMAP,
	IMPORT_TO_SEND_RELEASED,
};

struct import {
	enum import_state state;
	void *addr;
	size_t size;
	uint64_t holes; /* bytes without a page when it was mapped */
	uint64_t inode;
};

/* Costs of peers' memory in this process: address space, and an upper bound of memory. */
struct import_sum {
	uint64_t bytes, holes;
};

/* Limits for all imports of a link, and of this process. Tests change them. */
extern struct import_limits {
	struct import_sum link, process;
} import_limits;

/* State of one link. */
struct in_place {
	/* Protected by the guard: used by bursts. */
	uint64_t ready;                       /* exports that the peer can read */
	uint64_t requested;                   /* exports that packets have requested */
	const _Atomic(uint64_t) *peer_epochs; /* NULL: take no references */
	struct {
		const uint8_t *addr; /* NULL: no such import */
		uint64_t size;
	} imported[IN_PLACE_MAX];

	/* Protected by the link thread's mutex. */
	bool visible;                       /* bursts may have seen it */
	bool detached;                      /* bursts no longer see it */
	struct share *shares[IN_PLACE_IDS]; /* memory to send; valid until the export is NONE */
	enum export_state exports[IN_PLACE_IDS];
	struct import imports[IN_PLACE_IDS];
	struct import_sum mapped;
	bool has_warned; /* the log has the reason why the peer's payload is copied */
};

/* in_place.c: the memory of a port. Guard held, except for in_place_fini(). */
int in_place_use(struct local_port *port, void *addr, size_t len, struct port_share **ret_share);
void in_place_unuse(struct local_port *port, struct port_share *share);
/* Requests an export of the memory to the link's peer. */
void in_place_request(struct local_port *port, struct in_place *in_place, struct port_share *share);
/* Call when the port has no links and no port_mems any more. */
void in_place_fini(struct local_port *port);

/* For the link thread, with the port's guard and the mutex held: begin, each link of the port, end.
 * in_place_publish() returns true if messages must be sent to the peer. */
void in_place_publish_begin(struct local_port *port);
bool in_place_publish(struct local_port *port, struct in_place *in_place);
void in_place_publish_end(struct local_port *port);
/* Hides the link's imports from bursts and voids all references. Guard held. */
void in_place_hide(struct local_port *port, uint16_t link);
/* Releases memory that a publish has dropped. Mutex held, guard not held. */
void in_place_put_dropped(void);
/* Returns NULL if there is no memory. */
struct in_place *in_place_create(struct local_port *port);
/* Returns a negative errno if the peer is gone or violates the protocol. A link may have no
 * `in_place`. */
int in_place_step(struct fabric_link *link, struct fabric_pass *pass);
/* Handles messages from the peer without sending any. Returns as in_place_step() does. */
int in_place_receive(struct fabric_link *link, struct fabric_pass *pass);
/* Reports that the client has mapped the rings. Returns 0, -EAGAIN, or a negative errno if the peer
 * is gone. */
int in_place_send_mapped(struct fabric_link *link);
/* Returns false if bursts may see it until the next publish. */
bool in_place_destroy(struct in_place **in_place);

/* imports.c: memory of peers. Mutex held. */
/* Returns 0 if a peer's descriptor is memory that nobody can truncate, else -EINVAL. */
int in_place_check_memory(int fd, uint64_t size);
/* Fills in all members except the state. Returns -EINVAL if the peer could remove pages or has
 * exported the memory already, -ENOSPC above a limit, or -ENOMEM. Logs the link's first failure. */
int import_map(struct in_place *in_place, struct import *import, int fd, uint64_t size);
void import_unmap(struct in_place *in_place, struct import *import);

/* references.c: the data path. Guard held. */
bool in_place_can_send(
	struct local_port *port, struct in_place *in_place, const struct port_packet *packet);
/* Encodes the reference. Returns how many of IN_PLACE_FRAME bytes are used. */
uint32_t in_place_encode(const struct local_port *port, const struct port_packet *packet,
	uint8_t frame[static IN_PLACE_FRAME]);
bool in_place_is_reference(const struct port_frame *frame);
/* Replaces the reference by the payload that it refers to. Returns false if the reference is void
 * or invalid. */
bool in_place_accept(const struct local_port *port, struct port_frame *frame);
void in_place_revoke(struct port *port, uint16_t link, uint32_t flow);
bool in_place_intact(struct port *port, const struct port_frame *frame);

#endif
