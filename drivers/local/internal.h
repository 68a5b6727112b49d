/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of this driver. The table of links is read and written under the port's
 * guard only: by the owner of the engine in bursts, and by the link thread (link_thread.c) when
 * links come and go.
 */
#ifndef FERRULE_DRIVERS_LOCAL_INTERNAL_H
#define FERRULE_DRIVERS_LOCAL_INTERNAL_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "drivers/local/local.h"
#include "drivers/local/pool.h"

enum {
	ETH_HEADER = 14,
	VLAN_TAG = 4,
	MIN_PAYLOAD = 256,
	IN_PLACE_MAX = 64, /* memories of a port that peers have mapped: bits of a mask */
};

struct fabric_link;
struct in_place;
struct port_share;
struct ring_link;
struct share;

/* One link as bursts see it. */
struct burst_link {
	enum port_link_state state;
	uint32_t max_frame;        /* both ends take frames of this length */
	struct in_place *in_place; /* NULL: all payload is copied */
	struct ring_link *ring;    /* NULL: none */
	uint32_t wake;             /* of its peer, see wake.c; 0: it cannot be woken, nor wake */
	bool broken;               /* the peer has written nonsense into it: no more of it */
	/* When the peer is gone, the link is UP until its owner has seen all that it had sent, at
	 * most `left` frames. */
	bool draining;
	uint32_t left;
	bool drained;
};

struct local_port {
	struct port base;
	struct port_guard guard;
	struct packet_pool pool; /* buffers for received frames */
	uint16_t n_active;       /* links that frames can come in from: state UP */
	uint16_t next_rx;        /* where rx_burst starts: an index into active[] */
	uint16_t active[PORT_MAX_LINKS];
	struct burst_link links[PORT_MAX_LINKS];
	struct port_stats dropped;
	bool armed; /* somebody sleeps until frames come */
	uint32_t max_payload;
	int wake_fd; /* or -1: this process had no descriptor left, or may not have such a one */
	uint32_t wake;
	struct fabric_link *made[PORT_MAX_LINKS];
	atomic_bool asked; /* by a burst: the link thread is to look at the table */

	/* Under the link thread's mutex. */
	LIST_ENTRY(local_port) next;         /* of those with links */
	TAILQ_HEAD(, fabric_link) all_links; /* being torn down included */
	bool is_held; /* the link thread has the guard, or is about to take it */
	/* Since the last publish: peers have memory; some is wanted and cannot be exported yet. */
	bool has_exports, exports_wait;
	uint64_t frees_seen; /* share_frees() then */

	/* Memory that the port sends from. Ids of shared memory (in_place.h) are bits of the masks.
	 */
	LIST_HEAD(, port_mem) mapped;
	LIST_HEAD(, port_share) shares;
	struct port_share *exports[IN_PLACE_MAX];
	uint64_t exports_used;     /* ids with a memory */
	_Atomic(uint64_t) *epochs; /* NULL: none yet, or no memory for them */
	struct share *epochs_share;
	uint64_t exports_busy; /* those that a peer knows; the link thread's, within one publish */
};

/* Links that a port can have. Tests change it. */
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
/* Something has come that is not a frame: whoever sleeps looks after it. Guard held. */
void local_rouse(struct local_port *port);
/* Changes a link's state and what is polled. Guard held. */
void local_set_state(struct local_port *port, uint16_t link, enum port_link_state state);
/* No burst sees the link's ring after this. Guard held. */
void local_hide_ring(struct local_port *port, uint16_t link);

/* Memory that packets refer to. */
struct port_mem {
	LIST_ENTRY(port_mem) next;
	struct port_share *share; /* NULL: peers cannot map it */
};

#endif
