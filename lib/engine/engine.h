/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine: moves packets between one port and its queue pairs, one round a call of
 * engine_poll(). The engine reads no clock and never blocks. The time is an argument, so the same
 * code runs on a NIC and in simulated time.
 *
 * Not thread-safe: every function needs the owner's guard (the mutex of the device).
 */
#ifndef FERRULE_ENGINE_ENGINE_H
#define FERRULE_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/stats.h>

#include "drivers/port.h"
#include "lib/base/list.h"
#include "lib/base/random.h"
#include "lib/base/net/gids.h"
#include "lib/engine/groups.h"
#include "lib/engine/neighbors.h"
#include "lib/protocol/qp.h"
#include "lib/protocol/region.h"

enum {
	ENGINE_QP_INDEX_BITS = 14,
	ENGINE_MAX_QPS = 1 << ENGINE_QP_INDEX_BITS,
	ENGINE_TX_QUEUE = 64, /* packets that wait for one link; a power of two */
	ENGINE_QP_ERROR = 256,
	ENGINE_EMIT_QUANTUM = 16, /* packets that a queue pair sends in a turn */
	/* Not links of the port: packets between queue pairs of this engine, and multicast packets
	 * for all links of the local fabric. */
	ENGINE_LOOP_LINK = PORT_MAX_LINKS,
	ENGINE_GROUP_LINK,
	ENGINE_LINKS,
	/* Destination of datagrams whose link is gone. */
	ENGINE_NO_LINK = ENGINE_LINKS,
};

struct offload_hooks;
struct offload_qp;

/*
 * Encoded packets that the port has not taken yet: slots [head, tail) modulo 2^16. emit_packets()
 * writes them in place; flush_tx() offers them to the port.
 */
struct tx_queue {
	uint16_t head;
	uint16_t tail;
	bool down;              /* engine_drop_link() was called since the link went down */
	bool blocked;           /* the port did not take everything, and nothing since */
	bool drops;             /* blocked for so long that datagrams are dropped */
	uint64_t blocked_at_ns; /* when it was blocked, or when the port last took a packet */
	uint16_t next_link;     /* ENGINE_GROUP_LINK: link that the first packet goes to next */
	/* For ports that send batches: whether the queue was empty when the round began. Then the
	 * incomplete batch at the tail: number of packets, their length and their flow. */
	bool was_empty;
	uint16_t n_batched;
	uint32_t batch_len;
	uint32_t batch_flow;
	struct port_packet packets[ENGINE_TX_QUEUE];
};

/* The path to a destination. */
struct engine_path {
	struct wire_path wire;
	uint16_t link; /* of the port, ENGINE_LOOP_LINK, or ENGINE_NO_LINK: the peer is gone */
	int neighbor;  /* entry that resolves the MAC address, or -1 */
};

/*
 * Whether the batches (caps.max_batch) of a reliable connection arrive. Receivers that do not split
 * such frames lose them. See batches.c.
 */
struct batch_trial {
	bool has_begun;
	bool has_first;
	uint8_t failures;    /* in a row */
	struct psn at;       /* after the packet queued last */
	struct psn end;      /* after the newest packet */
	struct psn first;    /* first batched packet since the last retransmission */
	uint32_t alone_left; /* packets to send singly before the next try */
};

/* Path MTU probes of a peer that does not acknowledge. See path_probe.c. */
struct path_probe {
	struct psn una;        /* the oldest unacknowledged packet */
	uint32_t own_len;      /* its payload; 0: no probe yet */
	uint8_t own_sent;      /* requests of its length */
	uint8_t small_answers; /* to small requests, up to 2 */
	uint8_t requested;     /* path MTUs of requests, in units of 256: each is one bit */
	uint8_t best;          /* largest path MTU of them that was answered, in units of 256 */
	bool own_arrives;      /* a request of its length was answered */
};

/* A queue pair and the engine's state of it. */
struct engine_qp {
	struct qp core;
	struct list ready; /* in engine.ready while it has something to send */
	struct list timed; /* in engine.timed while it has a deadline; removed lazily */
	struct engine_path path;
	int pending_neighbor; /* neighbor that a change of the path waits for, or -1 */
	uint64_t failed_ns;   /* approximate time of the transition to ERR; 0: none */
	bool sending;         /* it could send at the last update: packets of requests may be under
			     * way */
	/* UC, UD, GSI: queued packets not yet reported to qp_transmitted(). They are all for one
	 * link, which keeps the reports in order. */
	uint16_t queued;
	uint16_t queued_link;
	struct offload_qp *offloads;  /* state of the offloads; NULL if engine.offloads is NULL */
	struct batch_trial trials[2]; /* requests and responses */
	struct path_probe probe;
	char error[ENGINE_QP_ERROR]; /* text that core.error may point to */
};

/* An address handle and the engine's state of it. */
struct engine_ah {
	struct address_handle core;
	struct list node; /* in engine.ahs */
	int neighbor;     /* or -1 */
};

/* A time-wait entry: a connection that ended here. See time_wait.c. */
struct time_wait {
	uint32_t qpn; /* 0: free entry */
	uint32_t dest_qpn;
	bool has_icrc;
	struct frl_ip remote_ip;
	struct psn epsn; /* expected PSN; a later connection uses other PSNs */
	uint32_t behind; /* number of PSNs before epsn that the peer may send again */
	struct wire_path path;
};

/* The device at the other end of a link of the local fabric. */
struct engine_peer {
	bool known;
	bool drops_groups;    /* multicast packets for all links do not wait for this one */
	struct frl_ip ips[2]; /* link-local and main address */
};

struct engine_config {
	struct port *port;                 /* owned by the caller */
	struct gid_table gids;             /* gids[1] is the main address */
	struct neighbors_config neighbors; /* the engine sets `gids` and `mac` */
	uint16_t pkey;
	uint32_t mtu;       /* of datagrams, and the maximum path MTU */
	uint64_t seed;      /* for keys, queue pair numbers and PSNs */
	uint32_t qpn_first; /* first queue pair number of this engine, except QP1 */
	uint32_t qpn_count; /* how many numbers it has; 0: any number */
};

struct engine {
	struct port *port;
	struct gid_table gids;
	uint16_t pkey;
	uint32_t mtu;
	struct frl_stats stats;
	struct engine_qp **qps; /* indexed by the low bits of the number; [1] is QP1 */
	struct region_table regions;
	struct event_queues events;
	struct event_source port_events;
	struct list ready;
	struct list timed;
	struct list ahs;
	struct groups groups;
	struct tx_queue *tx[ENGINE_LINKS];
	/* Hooks of offload/hooks.h; NULL until the first offload is prepared. */
	const struct offload_hooks *offloads;
	void *offload_state;    /* state of the hooks */
	uint32_t frames_shared; /* packet buffers reserved by shares, see fragments.h */
	bool frame_kept;        /* the frame being received was kept by a share */
	struct engine_peer peers[PORT_MAX_LINKS];
	uint16_t n_links; /* links of the port at or above this are unused */
	bool port_up;
	bool revoked; /* see engine_revoke() */
	/* The last queue pair that must send single packets, or 0; and whether this was logged. */
	uint32_t alone_qpn;
	bool alone_logged;
	/* Lower bound of all deadlines. Queue pairs are visited when it is reached. */
	uint64_t next_deadline_ns;
	uint64_t next_probes_ns; /* probes alone cause no visit before this time */
	uint64_t next_link_check_ns;
	uint64_t now_ns; /* time of the last round */
	bool unsent;     /* packets may wait in a transmit queue */
	/* Frames that engine_fetch() took from the port and that are not handled yet. */
	uint16_t n_taken;
	struct port_frame taken[PORT_BURST];
	uint32_t qpn_first, qpn_count; /* as configured */
	uint32_t qp_cursor; /* start of the search for a free slot, so numbers are reused late */
	uint32_t qp_end;    /* slots at or above this are unused */
	uint32_t n_qps;     /* without QP1 */
	uint64_t seen_overruns;  /* stats.cq_overruns that were handled */
	uint32_t seen_neighbors; /* generation of `neighbors` that all paths reflect */
	struct random_state random;
	struct time_wait *time_wait[ENGINE_LINKS]; /* indexed by the peer's queue pair; NULL: no
						    * entries */
	/* Buffer for one frame that exceeds a packet's header: a reply to an ICMP echo request. */
	uint8_t *scratch;
	uint32_t scratch_size;
	struct neighbors neighbors;
};

/* -ENOMEM. */
int engine_init(struct engine *engine, const struct engine_config *config);
/* Called while the port is still open, and after it was closed. Packets in the port may refer to
 * buffers of the engine in between. */
void engine_fini(struct engine *engine);
void engine_port_closed(struct engine *engine);

/*
 * Runs one round: receives a burst, fires deadlines, emits packets, hands them to the port.
 * Returns the number of packets that moved; 0 if there was nothing to do.
 */
uint32_t engine_poll(struct engine *engine, uint64_t now_ns);

/*
 * Takes frames from the port for the next engine_poll(), unless some are left from an earlier
 * call. Returns the number of frames. This can save a read of the clock: if there are no frames
 * and engine_has_work() is false, engine_poll() has nothing to do before the next deadline. Only
 * the periodic link check is delayed.
 */
uint16_t engine_fetch(struct engine *engine);

/* Emits packets and hands them to the port, without receiving. Used after posting, to send before
 * the next round. */
void engine_send(struct engine *engine, uint64_t now_ns);

/* Returns when engine_poll() must run even if nothing arrives: a time, or DEADLINE_NONE. */
uint64_t engine_next_deadline(const struct engine *engine);

/* A link may have come or gone: makes the next engine_poll() check. */
static inline void engine_check_links(struct engine *engine)
{
	engine->next_link_check_ns = 0;
}

/*
 * Adds the queue pair and assigns its number. The engine sets qpn, pkey, port_mtu, regions, stats
 * and queues of `config`. -ENOMEM; -ENOSPC; -EBUSY if a GSI queue pair exists.
 */
int engine_add_qp(struct engine *engine, struct engine_qp *qp, struct qp_config *config);
void engine_remove_qp(struct engine *engine, struct engine_qp *qp);

/* Moves the completions of a queue to `entries`, with room for `count`: a power of two and at least
 * cq_used(). Returns the array before in *ret_before. -ENOMEM; nothing is changed then. */
int engine_resize_cq(struct engine *engine, struct cq *cq, struct frl_wc *entries, uint32_t count,
	struct frl_wc **ret_before);

/* Called before a completion queue is destroyed. No queue pair uses it. */
void engine_remove_cq(struct engine *engine, struct cq *cq);

static inline struct engine_qp *engine_find_qp(const struct engine *engine, uint32_t qpn)
{
	struct engine_qp *qp = engine->qps[qpn & (ENGINE_MAX_QPS - 1)];

	return qp && qp->core.qpn == qpn ? qp : NULL;
}

/* Returns true if the queue pair is connected but cannot send now: its link is down, or the queue
 * of the link is full. */
bool engine_is_held_up(const struct engine *engine, const struct engine_qp *qp);

/*
 * Calls qp_modify() and updates the packet headers. Every failure sets *ret_why:
 * - -EINVAL
 * - -ENOMEM: no transmit queue, or no room for a neighbor
 * - -EHOSTUNREACH: no route
 * - -EAGAIN: the MAC address of the next hop was requested. Nothing was changed. Call again while
 *   polling, or give up with engine_clear_path().
 * - -ENETDOWN: after engine_revoke() only RESET, INIT and ERR are possible.
 */
int engine_modify_qp(struct engine *engine, struct engine_qp *qp, const struct frl_qp_attr *attr,
	uint32_t mask, uint64_t now_ns, const char **ret_why);
void engine_clear_path(struct engine *engine, struct engine_qp *qp);

/* Adds an address handle. The caller sets ah->core.pd. Errors are those of engine_modify_qp().
 * After -EAGAIN the handle is added; it is usable when engine_ah_ready() returns true. */
int engine_add_ah(struct engine *engine, struct engine_ah *ah, const struct frl_ah_attr *attr,
	uint64_t now_ns, const char **ret_why);
bool engine_ah_ready(const struct engine *engine, const struct engine_ah *ah);
/* Returns true for a multicast group on the local fabric, if the caller has not chosen a link. No
 * guard is needed. */
bool engine_is_for_all_links(const struct engine *engine, const struct frl_ah_attr *attr);
void engine_remove_ah(struct engine *engine, struct engine_ah *ah);

/* Attach a datagram queue pair to a multicast group and detach it. -EINVAL with *ret_why if it is
 * no datagram queue pair, no group, or not attached; -ENOMEM. Removing the queue pair detaches it.
 */
int engine_attach(struct engine *engine, struct engine_qp *qp, const struct frl_ip *group,
	uint64_t now_ns, const char **ret_why);
int engine_detach(struct engine *engine, struct engine_qp *qp, const struct frl_ip *group,
	const char **ret_why);

/*
 * Must be called after every change of a queue pair, before the guard is released. Records its
 * pending output and its deadline, and withdraws its packets if it has failed.
 */
void engine_update(struct engine *engine, struct engine_qp *qp);

/* Called when a link of the local fabric was opened. Sets the peer's addresses, which its
 * datagrams must have. */
void engine_set_peer(
	struct engine *engine, uint16_t link, const struct frl_ip *ip, const uint8_t mac[6]);

/* Called when a link is gone or about to be closed. Drops packets that wait for it, and fails its
 * queue pairs. Datagrams to its address handles are dropped from now on, even if the link number
 * is reused. */
void engine_drop_link(struct engine *engine, uint16_t link);

/*
 * The device has lost its addresses on the network: stops sending and answering for good. Drops
 * waiting packets, fails connections and raises FRL_EVENT_DEVICE_FATAL.
 */
void engine_revoke(struct engine *engine);

/* Returns true if a queue pair or an address handle uses the link. */
bool engine_link_used(const struct engine *engine, uint16_t link);

/* Returns true while packets wait for the link. */
bool engine_link_queued(const struct engine *engine, uint16_t link);

/* Assigns a key to the region or window. -ENOMEM, -ENOSPC. */
int engine_add_region(struct engine *engine, struct region *region);
void engine_remove_region(struct engine *engine, struct region *region);
/* Called before the region is rebound to other memory. */
void engine_release_region(struct engine *engine, const struct region *region);

/* Returns true while offloads have unfinished work. Nothing signals its end, so the engine must be
 * polled. */
bool engine_offloads_busy(const struct engine *engine);

/*
 * Returns true if engine_poll() has work now, apart from frames at the port and from deadlines.
 * That is a packet to send, or an event that only polling detects: room in the port's queue, or
 * the end of a transfer. Changes nothing. If false, the caller may sleep until a frame arrives or
 * the next deadline.
 */
static inline bool engine_has_work(const struct engine *engine)
{
	return engine->unsent || !list_empty(&engine->ready) || engine->n_taken ||
		engine->stats.cq_overruns != engine->seen_overruns ||
		(engine->offloads && engine_offloads_busy(engine));
}

/* Returns true while a packet with payload of the region waits for the port, or a transfer
 * accesses the region. The region must not be removed then. */
bool engine_region_queued(const struct engine *engine, const struct region *region);

#endif
