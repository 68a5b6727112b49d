/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine: moves packets between one port and the queue pairs that live on it, in stages, once a
 * call of engine_poll(). It reads no clock and waits for nothing: the time comes with the call, so
 * the same code runs on a NIC and in simulated time.
 *
 * One thread at a time: every function needs the owner's guard (the device's mutex).
 */
#ifndef FERRULE_ENGINE_ENGINE_H
#define FERRULE_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/stats.h>

#include "drivers/port.h"
#include "lib/base/list.h"
#include "lib/base/random.h"
#include "lib/engine/neighbors.h"
#include "lib/protocol/qp.h"
#include "lib/protocol/region.h"

enum {
	ENGINE_QP_INDEX_BITS = 14,
	ENGINE_MAX_QPS = 1 << ENGINE_QP_INDEX_BITS,
	ENGINE_TX_QUEUE = 64,     /* packets that wait for one link; a power of two */
	ENGINE_GRAVES = 256,      /* removed queue pairs that are remembered */
	ENGINE_EMIT_QUANTUM = 16, /* packets that a queue pair sends before the next one's turn */
};

/*
 * Packets encoded but not yet taken by the port: slots [head, tail) modulo 2^16. Written in place
 * by emit_packets, offered to the port by flush_tx.
 */
struct tx_queue {
	uint16_t head;
	uint16_t tail;
	struct port_packet packets[ENGINE_TX_QUEUE];
};

/* A queue pair as the engine keeps it. */
struct engine_qp {
	struct qp core;
	struct list ready; /* on engine.ready while it has something to send */
	struct wire_path path;
	uint16_t link;
	bool sending; /* was in RTS when it was looked at last: packets of it may be under way */
};

/* A queue pair that was removed while its peer may still send to it. */
struct engine_grave {
	uint32_t qpn; /* 0: none */
	uint32_t dest_qpn;
	uint16_t link;
	bool has_icrc;
	struct wire_path path;
};

struct engine_config {
	struct port *port;                 /* stays the caller's */
	struct neighbors_config neighbors; /* addresses of the port and its way to others */
	uint64_t seed;                     /* of keys, queue pair numbers and PSNs */
};

struct engine {
	struct port *port;
	struct frl_ip ip;
	struct frl_stats stats;
	struct engine_qp **qps; /* by the low bits of the number */
	struct region_table regions;
	struct list ready;
	struct tx_queue *tx[PORT_MAX_LINKS];
	uint16_t n_links;
	/* No deadline of any queue pair is earlier: they are looked at when it is reached. */
	uint64_t next_deadline_ns;
	uint64_t next_link_check_ns;
	uint32_t qp_cursor; /* where the search for a free slot starts: numbers are reused late */
	uint32_t qp_end;    /* no queue pair is at this index or above */
	uint32_t n_qps;
	uint64_t seen_overruns; /* of stats.cq_overruns: how many were dealt with */
	struct random_state random;
	uint32_t next_grave;
	struct engine_grave graves[ENGINE_GRAVES];
	struct neighbors neighbors;
};

/* -ENOMEM. */
int engine_init(struct engine *engine, const struct engine_config *config);
void engine_fini(struct engine *engine);

/*
 * One round: receives a burst, fires deadlines, emits packets, hands them to the port. Returns how
 * many packets moved; 0 means there was nothing to do.
 */
uint32_t engine_poll(struct engine *engine, uint64_t now_ns);

/* When engine_poll() has something to do even if nothing arrives: DEADLINE_NONE or a time. */
uint64_t engine_next_deadline(const struct engine *engine);

/*
 * Gives the queue pair a number and takes its packets. `config` lacks qpn, regions and stats: the
 * engine fills them in. -ENOSPC.
 */
int engine_add_qp(struct engine *engine, struct engine_qp *qp, struct qp_config *config);
void engine_remove_qp(struct engine *engine, struct engine_qp *qp);

/* qp_modify(), and the packet headers that follow from it. -ENOMEM (a transmit queue). */
int engine_modify_qp(struct engine *engine, struct engine_qp *qp, const struct frl_qp_attr *attr,
	uint32_t mask, const char **ret_why);

/*
 * To be called after anything was done with a queue pair, before the guard is released: notes what
 * it wants to send and its deadline, and takes back its packets if it has failed.
 */
void engine_update(struct engine *engine, struct engine_qp *qp);

/* A link is gone, or about to be closed: what waits for it is dropped, its queue pairs fail. */
void engine_drop_link(struct engine *engine, uint16_t link);

/* True while a queue pair is connected over the link. */
bool engine_link_used(const struct engine *engine, uint16_t link);

/* Gives the region its key. -ENOMEM, -ENOSPC. */
int engine_add_region(struct engine *engine, struct region *region);
void engine_remove_region(struct engine *engine, struct region *region);

/* True while a packet with payload from the region waits for its port: not to be removed yet. */
bool engine_region_queued(const struct engine *engine, const struct region *region);

#endif
