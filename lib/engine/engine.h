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
#include "lib/base/gids.h"
#include "lib/engine/groups.h"
#include "lib/engine/neighbors.h"
#include "lib/protocol/qp.h"
#include "lib/protocol/region.h"

enum {
	ENGINE_QP_INDEX_BITS = 14,
	ENGINE_MAX_QPS = 1 << ENGINE_QP_INDEX_BITS,
	ENGINE_TX_QUEUE = 64,     /* packets that wait for one link; a power of two */
	ENGINE_EMIT_QUANTUM = 16, /* packets that a queue pair sends before the next one's turn */
	/* Not the port's: packets between queue pairs of this engine. */
	ENGINE_LOOP_LINK = PORT_MAX_LINKS,
	ENGINE_LINKS,
	/* Where datagrams go whose link is no more. */
	ENGINE_NO_LINK = ENGINE_LINKS,
};

struct offload_hooks;
struct offload_qp;

/*
 * Packets encoded but not yet taken by the port: slots [head, tail) modulo 2^16. Written in place
 * by emit_packets, offered to the port by flush_tx.
 */
struct tx_queue {
	uint16_t head;
	uint16_t tail;
	bool down;              /* what is to be done when the link is down was done */
	bool blocked;           /* the port did not take all of it, or nothing since */
	bool drops;             /* it is blocked for so long that datagrams are dropped */
	uint64_t blocked_at_ns; /* when it was blocked or something was taken last */
	/* Where the port sends trains: whether all had left when the round began; packets at the
	 * tail that are the start of one, how long each is, and whose. */
	bool was_empty;
	uint16_t n_coupled;
	uint32_t coupled_len;
	uint32_t coupled_flow;
	struct port_packet packets[ENGINE_TX_QUEUE];
};

/* A way to a destination, with what must be looked after to keep it right. */
struct engine_path {
	struct wire_path wire;
	uint16_t link; /* the port's, or ENGINE_LOOP_LINK */
	int neighbor;  /* whose MAC it has, or -1 */
};

/*
 * Whether packets that leave together (caps.train) arrive, of a reliable connection. They are lost
 * at receivers that do not split such frames. See trains.c.
 */
struct train_trial {
	bool has_begun;
	bool has_first;
	uint8_t failures;    /* in a row */
	struct psn at;       /* behind the packet that was queued last */
	struct psn end;      /* behind the newest one */
	struct psn first;    /* of those together since it last went back to older ones */
	uint32_t alone_left; /* so many packets leave alone, before it is tried again */
};

/* A queue pair as the engine keeps it. */
struct engine_qp {
	struct qp core;
	struct list ready; /* on engine.ready while it has something to send */
	struct list timed; /* on engine.timed while it has a deadline, and until that is seen */
	struct engine_path path;
	int asked;          /* neighbour that a change of the path waits for, or -1 */
	uint64_t failed_ns; /* when it went to ERR, about; 0: it has not */
	bool sending;       /* when it was looked at last: packets of requests may be under way */
	/* UC, UD, GSI: packets that qp_transmitted() is still to tell of. They wait for one link at
	 * a time, so that they are told in order. */
	uint16_t queued;
	uint16_t queued_link;
	struct offload_qp *offloads;  /* theirs; NULL: engine.offloads is, too */
	struct train_trial trials[2]; /* requests and answers */
};

/* An address handle as the engine keeps it. */
struct engine_ah {
	struct address_handle core;
	struct list node; /* engine.ahs */
	int neighbor;     /* or -1 */
};

/* A connection that ended here: see time_wait.c. */
struct time_wait {
	uint32_t qpn; /* 0: none */
	uint32_t dest_qpn;
	bool has_icrc;
	struct frl_ip remote_ip;
	struct psn epsn; /* what was expected next: a later connection has other PSNs */
	uint32_t behind; /* so many before that the peer may send again */
	struct wire_path path;
};

/* Who is at the other end of a link of the local fabric. */
struct engine_peer {
	bool known;
	struct frl_ip ips[2]; /* link-local and the main address */
};

struct engine_config {
	struct port *port;                 /* stays the caller's */
	struct gid_table gids;             /* gids[1] is the main address */
	struct neighbors_config neighbors; /* `gids` and `mac` are filled in by the engine */
	uint16_t pkey;
	uint32_t mtu;       /* of datagrams, and the largest path MTU of a queue pair */
	uint64_t seed;      /* of keys, queue pair numbers and PSNs */
	uint32_t qpn_first; /* queue pair numbers from there on are its own, QP1 apart */
	uint32_t qpn_count; /* so many; 0: any */
};

struct engine {
	struct port *port;
	struct gid_table gids;
	uint16_t pkey;
	uint32_t mtu;
	struct frl_stats stats;
	struct engine_qp **qps; /* by the low bits of the number; [1] is QP1 */
	struct region_table regions;
	struct event_queues events;
	struct event_source port_events;
	struct list ready;
	struct list timed;
	struct list ahs;
	struct groups groups;
	struct tx_queue *tx[ENGINE_LINKS];
	/* offload/hooks.h, for memory that the processor does not reach; NULL: there is none. */
	const struct offload_hooks *offloads;
	void *offload_state;    /* theirs */
	uint32_t frames_shared; /* packet buffers that shares have: fragments.h */
	bool frame_kept;        /* of these: that which is being taken in */
	struct engine_peer peers[PORT_MAX_LINKS];
	uint16_t n_links; /* of the port: no link at this number or above is in use */
	bool port_up;
	bool revoked; /* see engine_revoke() */
	/* The last queue pair whose packets have to leave alone, or 0; whether it was said. */
	uint32_t alone_qpn;
	bool told_alone;
	/* No deadline of any queue pair is earlier: they are looked at when it is reached. */
	uint64_t next_deadline_ns;
	uint64_t next_probes_ns; /* they have been looked at: before that not for probes alone */
	uint64_t next_link_check_ns;
	uint64_t now_ns; /* of the last round */
	bool unsent;     /* packets may wait in a transmit queue */
	/* Frames that engine_fetch() took from the port, and that are not handled yet. */
	uint16_t n_taken;
	struct port_frame taken[PORT_BURST];
	uint32_t qpn_first, qpn_count; /* as configured */
	uint32_t qp_cursor; /* where the search for a free slot starts: numbers are reused late */
	uint32_t qp_end;    /* no queue pair is at this index or above */
	uint32_t n_qps;     /* QP1 not counted */
	uint64_t seen_overruns;  /* of stats.cq_overruns: how many were dealt with */
	uint32_t seen_neighbors; /* generation of `neighbors` that all paths follow */
	struct random_state random;
	struct time_wait *time_wait[ENGINE_LINKS]; /* by the peer's queue pair; NULL: none */
	/* One frame that is too long for a packet's header: an answer to an ICMP echo request. */
	uint8_t *scratch;
	uint32_t scratch_size;
	struct neighbors neighbors;
};

/* -ENOMEM. */
int engine_init(struct engine *engine, const struct engine_config *config);
/* While the port is still open; and when it is closed. In between there may be buffers that packets
 * in the port's hands refer to. */
void engine_fini(struct engine *engine);
void engine_port_closed(struct engine *engine);

/*
 * One round: receives a burst, fires deadlines, emits packets, hands them to the port. Returns how
 * many packets moved; 0 means there was nothing to do.
 */
uint32_t engine_poll(struct engine *engine, uint64_t now_ns);

/*
 * Takes frames from the port for the next engine_poll(), unless it has some of an earlier call.
 * Returns how many it has. With engine_has_work() it saves a read of the clock: without frames and
 * without work, engine_poll() has nothing to do before the next deadline, but to look after the
 * links now and then.
 */
uint16_t engine_fetch(struct engine *engine);

/* Emits packets and hands them to the port, without receiving: for whoever has just posted and does
 * not want to wait for the next round. */
void engine_send(struct engine *engine, uint64_t now_ns);

/* When engine_poll() has something to do even if nothing arrives: DEADLINE_NONE or a time. */
uint64_t engine_next_deadline(const struct engine *engine);

/* A link may have come or gone: the next engine_poll() looks. */
static inline void engine_check_links(struct engine *engine)
{
	engine->next_link_check_ns = 0;
}

/*
 * Gives the queue pair a number and takes its packets. `config` lacks qpn, pkey, port_mtu, regions,
 * stats and queues: the engine fills them in. -ENOSPC; -EBUSY: a GSI queue pair exists.
 */
int engine_add_qp(struct engine *engine, struct engine_qp *qp, struct qp_config *config);
void engine_remove_qp(struct engine *engine, struct engine_qp *qp);

/* The completion queue, which no queue pair uses any more, is about to go. */
void engine_remove_cq(struct engine *engine, struct cq *cq);

static inline struct engine_qp *engine_find_qp(const struct engine *engine, uint32_t qpn)
{
	struct engine_qp *qp = engine->qps[qpn & (ENGINE_MAX_QPS - 1)];

	return qp && qp->core.qpn == qpn ? qp : NULL;
}

/* The queue pair is connected, but its port takes no packets of it now: the link is not up, or its
 * queue is full. */
bool engine_is_held_up(const struct engine *engine, const struct engine_qp *qp);

/*
 * qp_modify(), and the packet headers that follow from it. Whatever fails, *ret_why is the reason.
 * -EINVAL; -ENOMEM (a transmit queue, or no room for a neighbour); -EHOSTUNREACH (no route);
 * -EAGAIN: the next hop's MAC has been asked for, nothing has been changed yet: try again while
 * polling, or give up by engine_forget_path(); -ENETDOWN: after engine_revoke() there is only
 * RESET, INIT and ERR.
 */
int engine_modify_qp(struct engine *engine, struct engine_qp *qp, const struct frl_qp_attr *attr,
	uint32_t mask, uint64_t now_ns, const char **ret_why);
void engine_forget_path(struct engine *engine, struct engine_qp *qp);

/* An address handle; ah->core.pd is the caller's to set, the rest is filled in. Errors as
 * engine_modify_qp(); after -EAGAIN it is added, and to be tried again with engine_ah_ready(). */
int engine_add_ah(struct engine *engine, struct engine_ah *ah, const struct frl_ah_attr *attr,
	uint64_t now_ns, const char **ret_why);
bool engine_ah_ready(const struct engine *engine, const struct engine_ah *ah);
void engine_remove_ah(struct engine *engine, struct engine_ah *ah);

/* -EINVAL with *ret_why: no datagram queue pair, no group; -ENOMEM. Detaching what is not attached
 * is -EINVAL too. Removing the queue pair detaches it. */
int engine_attach(struct engine *engine, struct engine_qp *qp, const struct frl_ip *group,
	uint64_t now_ns, const char **ret_why);
int engine_detach(struct engine *engine, struct engine_qp *qp, const struct frl_ip *group,
	const char **ret_why);

/*
 * To be called after anything was done with a queue pair, before the guard is released: notes what
 * it wants to send and its deadline, and takes back its packets if it has failed.
 */
void engine_update(struct engine *engine, struct engine_qp *qp);

/* A link of the local fabric was opened: datagrams that come over it have the peer's addresses. */
void engine_set_peer(
	struct engine *engine, uint16_t link, const struct frl_ip *ip, const uint8_t mac[6]);

/* A link is gone, or about to be closed: what waits for it is dropped, its queue pairs fail, and
 * datagrams by way of its address handles are dropped from now on, whoever gets its number. */
void engine_drop_link(struct engine *engine, uint16_t link);

/*
 * A network port's addresses are this engine's no more: it neither sends nor answers anything from
 * now on. Drops what waits, fails connections, raises FRL_EVENT_DEVICE_FATAL; there is no way back.
 */
void engine_revoke(struct engine *engine);

/* True while a queue pair is connected over the link, or an address handle leads over it. */
bool engine_link_used(const struct engine *engine, uint16_t link);

/* True while packets wait for the link. */
bool engine_link_queued(const struct engine *engine, uint16_t link);

/* Gives the region or window its key. -ENOMEM, -ENOSPC. */
int engine_add_region(struct engine *engine, struct region *region);
void engine_remove_region(struct engine *engine, struct region *region);
/* Its memory is about to become another one. */
void engine_forget_region(struct engine *engine, const struct region *region);

/* True while offloads have something to do, which nobody tells of: to be polled then. */
bool engine_offloads_busy(const struct engine *engine);

/*
 * True when engine_poll() has something to do now, apart from frames that are still at the port and
 * from deadlines: a packet to send, or an event that nobody reports, as room in the port's queue or
 * the end of a transfer. Changes nothing. False: the caller may sleep until a frame or the next
 * deadline comes.
 */
static inline bool engine_has_work(const struct engine *engine)
{
	return engine->unsent || !list_empty(&engine->ready) || engine->n_taken ||
		engine->stats.cq_overruns != engine->seen_overruns ||
		(engine->offloads && engine_offloads_busy(engine));
}

/* True while a packet with payload from the region waits for its port, or payload is on its way
 * into the region or out of it: not to be removed yet. */
bool engine_region_queued(const struct engine *engine, const struct region *region);

#endif
