/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of this driver. The table of links is accessed only under the port's guard:
 * by the owner of the engine in bursts, and by the link thread (link_thread.c) when links come and
 * go.
 */
#ifndef FERRULE_DRIVERS_LOCAL_INTERNAL_H
#define FERRULE_DRIVERS_LOCAL_INTERNAL_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "drivers/local/local.h"
#include "drivers/local/pool.h"
#include "lib/base/memory/store_times.h"

enum {
	ETH_HEADER = 14,
	VLAN_TAG = 4,
	MIN_PAYLOAD = 256,
	IN_PLACE_MAX = 64, /* memories of a port that peers can map: bits of a mask */
};

struct fabric_link;
struct in_place;
struct introductions;
struct port_share;
struct ring_link;
struct share;

/* One link as seen by bursts. */
struct burst_link {
	enum port_link_state state;
	uint32_t max_frame;        /* longest frame that both ends accept */
	uint32_t features;         /* of struct local_port_config, of both ends */
	struct in_place *in_place; /* NULL: all payload is copied */
	struct ring_link *ring;    /* NULL: none */
	uint32_t wake; /* wake-up name of the peer, see wake.c; 0: neither end wakes the other */
	struct store_times store_times; /* of long payload, to the ring */
	bool broken; /* the peer has written invalid data: the ring is not used any more */
	/* After the peer is gone, the link stays UP until its owner has received the remaining
	 * frames, at most `left`. */
	bool draining;
	uint32_t left;
	bool drained;
};

struct local_port {
	struct port base;
	struct port_guard guard;
	struct packet_pool pool; /* buffers for received frames */
	uint16_t n_active;       /* links in state UP, which are polled */
	uint16_t next_rx;        /* where rx_burst starts: an index into active[] */
	uint16_t active[PORT_MAX_LINKS];
	struct burst_link links[PORT_MAX_LINKS];
	struct port_stats dropped;
	bool armed; /* the owner is about to sleep until frames come */
	uint32_t max_payload;
	uint32_t features; /* as configured */
	int wake_fd;       /* or -1: no descriptor was left, or such sockets are not permitted */
	uint32_t wake;
	struct fabric_link *made[PORT_MAX_LINKS];
	atomic_bool is_notified; /* set by a burst: the link thread must check the table */

	/* Protected by the link thread's mutex. */
	LIST_ENTRY(local_port) next;         /* list of ports with links or introductions */
	TAILQ_HEAD(, fabric_link) all_links; /* including links that are being closed */
	struct introductions *introductions; /* NULL: does not take part in any */
	bool is_held; /* the link thread has the guard, or is about to take it */
	/* State at the last publish: peers have exports; an export is wanted but not possible
	 * yet. */
	bool has_exports, exports_wait;
	uint64_t frees_seen; /* share_frees() at the last publish */

	/* Memory that the port sends from. Ids of shared memory (in_place.h) are bits of the
	 * masks. */
	LIST_HEAD(, port_mem) mapped;
	LIST_HEAD(, port_share) shares;
	struct port_share *exports[IN_PLACE_MAX];
	uint64_t exports_used;     /* ids in use */
	_Atomic(uint64_t) *epochs; /* NULL: not created yet, or out of memory */
	struct share *epochs_share;
	uint64_t exports_busy; /* ids known to a peer; used by the link thread within one publish */
};

/* Limit of links per port. Tests change it. */
extern unsigned local_max_links;

static inline uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* burst.c: the data path, as the ops of a port. */
uint16_t local_rx_burst(struct port *port, struct port_frame frames[], uint16_t max);
void local_rx_free(struct port *port, const struct port_frame frames[], uint16_t n);
uint16_t local_tx_burst(
	struct port *port, uint16_t link, const struct port_packet packets[], uint16_t n);
int local_arm(struct port *port);
void local_disarm(struct port *port);
/* Wakes a sleeping owner for an event that is not a frame. Guard held. */
void local_wake_owner(struct local_port *port);
/* Changes a link's state and the set of polled links. Guard held. */
void local_set_state(struct local_port *port, uint16_t link, enum port_link_state state);
/* Hides the link's ring from bursts. Guard held. */
void local_hide_ring(struct local_port *port, uint16_t link);

/* Memory that packets refer to. */
struct port_mem {
	LIST_ENTRY(port_mem) next;
	struct port_share *share; /* NULL: peers cannot map it */
};

#endif
