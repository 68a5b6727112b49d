/* SPDX-License-Identifier: BSD-3-Clause */
/* What is behind the public handles. Everything below a device is protected by its guard. */
#ifndef FERRULE_API_OBJECTS_H
#define FERRULE_API_OBJECTS_H

#include <errno.h>
#include <stddef.h>

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include <ferrule/connect.h>
#include <ferrule/device.h>
#include <ferrule/event.h>
#include <ferrule/memory.h>

#include "lib/base/error.h"
#include "lib/base/guard.h"
#include "lib/engine/engine.h"

enum {
	NONCE_SIZE = 16,
	RESOLVE_MS = 3000, /* how long ARP or ND may take where the caller did not say */
	MAX_CQ_DEPTH = 65536,
	MAX_WR = 16384,
	DEFAULT_SGE = 4,
	DEFAULT_INLINE = 64,
	DEFAULT_HOP_LIMIT = 64,
	QP_REASON = 256,
};

/* A link of the local fabric to one other device. */
struct fabric_link {
	uint8_t peer_nonce[NONCE_SIZE];
	struct frl_ip peer_ip;
	uint8_t peer_mac[6];
	uint16_t link;
	unsigned holders; /* connections over it that are being made */
	uint64_t used;    /* counts up: which one was asked for last */
	bool parting;     /* the peer has been asked whether it can go, and nobody may use it */
	uint64_t asked_ns;
	uint64_t kept_ns; /* when the peer has said no; 0: never */
};

/* A descriptor that is readable while there is something to fetch. */
struct bell {
	int fd; /* an eventfd, or -1 */
	bool raised;
};

struct frl_device {
	struct guard guard;
	struct engine engine;
	struct port *port;
	struct frl_device_attr attr; /* but for what changes: see frl_device_query() */
	uint32_t capabilities;       /* enum frl_capability that it offers */
	unsigned objects;            /* domains, completion queues, channels, connections */
	unsigned windows;            /* memory windows */
	struct bell async;           /* for engine.events.async; made when it is asked for */

	/* Local fabric: the socket that holds the address, and what is known of others. */
	int claim_fd;
	uint8_t nonce[NONCE_SIZE];
	struct publication *publication; /* publish.c's, or NULL */
	struct fabric_link links[PORT_MAX_LINKS];
	unsigned n_links;
	uint64_t link_uses;
	uint64_t next_room_ns; /* when to look for links that can go */

	/* Progress thread. */
	bool has_thread;
	pthread_t thread;
	sem_t wake; /* ends its pause */
	atomic_bool stop;
	atomic_bool pausing;
	atomic_uint polls;    /* rounds that the application drove */
	atomic_uint asked_at; /* what that was when somebody asked for an event last */
};

struct frl_pd {
	struct frl_device *device;
	unsigned objects; /* whatever was made in it */
};

struct frl_mr {
	struct frl_device *device;
	struct frl_pd *pd; /* may become another one of the device */
	struct region region;
};

struct frl_mw {
	struct frl_pd *pd;
	struct region region;
};

struct frl_ah {
	struct frl_pd *pd;
	struct engine_ah engine;
	struct frl_ah_attr attr;
};

struct frl_comp_channel {
	struct frl_device *device;
	struct bell bell;
	struct list pending; /* struct cq.notify: queues whose event was not fetched yet */
	unsigned cqs;
};

struct frl_cq {
	struct frl_device *device;
	struct frl_comp_channel *channel; /* or NULL */
	void *context;
	struct cq core;
	unsigned qps; /* uses of it by queue pairs */
};

struct frl_srq {
	struct frl_pd *pd;
	struct srq core;
	struct frl_srq_config config;
	void *storage;
	unsigned qps;
};

struct frl_qp {
	struct engine_qp engine;
	struct frl_pd *pd;
	struct frl_cq *send_cq;
	struct frl_cq *recv_cq;
	struct frl_srq *srq; /* or NULL */
	void *context;
	void *storage;
	bool has_endpoint;       /* frl_qp_endpoint() chose the PSN below */
	bool connecting;         /* frl_qp_connect() is at work, or a connection is being made */
	struct attempt *attempt; /* of frl_qp_connect_start(), until it is over; or NULL */
	struct frl_conn *conn;   /* that it belongs to, or NULL: cm.mutex protects it */
	uint32_t local_psn;
	char error[QP_REASON]; /* qp_fail_with()'s sentence */
};

/* progress.c */

static inline void device_enter(struct frl_device *device)
{
	guard_enter(&device->guard);
}

/* For who must not starve while the application polls. */
static inline void device_enter_first(struct frl_device *device)
{
	guard_enter_first(&device->guard);
}

/* Tells about the events that the engine has noted, and releases the guard. */
void device_leave(struct frl_device *device);

/* Drives the engine one round, with the guard held. Returns how many packets moved. */
uint32_t device_poll(struct frl_device *device);

/* Starts the progress thread, unless there is one. With the guard held. */
int device_start_thread(struct frl_device *device);
/* Ends it, if there is one. Without the guard. */
void device_stop_thread(struct frl_device *device);
/* The caller is about to sleep until an event comes: the progress thread is not to stand back for
 * the few polls that come before. */
void device_expect_sleep(struct frl_device *device);

/* How long to wait, and what may end it early, as in struct frl_connect_config. */
struct patience {
	int timeout_ms;
	int (*interrupt)(void *arg);
	void *interrupt_arg;
};

/*
 * Drives the engine until `try`, which is called with the guard held, gives anything but -EAGAIN,
 * which is the result. -ETIMEDOUT, or what the interrupt function said.
 */
int device_wait(struct frl_device *device, int (*try)(struct frl_device *, void *), void *arg,
	const struct patience *patience);

/* events.c */

/* Nobody is to hear of the object any more. With the guard held. */
void events_forget_cq(struct frl_cq *cq);
void events_forget(struct event_source *source);

/* -EMFILE, ... */
int bell_make(struct bell *bell);
/* Also for one without a descriptor. */
void bell_fini(struct bell *bell);
/* Sets whether the descriptor is readable. With the lock held that protects it. */
void bell_set(struct bell *bell, bool raised);

/* queue.c */

uint32_t round_up_pow2(uint32_t n);

/* What every function that posts requests refuses; `what` names it and its queue. */
static inline int check_post(
	const char *what, const void *queue, const void *wr, int n, int *ret_posted)
{
	if (queue && n >= 0 && (wr || n == 0))
		return 0;
	if (ret_posted)
		*ret_posted = 0;
	return frl_fail(-EINVAL, "%s, an n of 0 or more and that many wr are required", what);
}

/* queue_pair.c */

/* One try of what frl_qp_modify() does, with all attributes given and the guard held. -EAGAIN: the
 * next hop has been asked for its MAC; try again while polling, or give up: */
int modify_qp_once(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask);
/* Says that the next hop does not answer: -EHOSTUNREACH. With the guard held. */
int modify_qp_unanswered(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask);

/* connect.c: the queue pair is reset or destroyed; what frl_qp_connect_start() began is given up.
 * With the guard held. */
void connect_abandon(struct frl_qp *qp);

/* failure.c */

/*
 * Moves a queue pair to ERR because of something outside of the protocol: flushes, raises
 * FRL_EVENT_QP_FATAL and keeps the sentence for frl_qp_error(), `error` (an errno) in words if
 * there is none. Of one that is in ERR without a sentence only that; of one in RESET nothing.
 */
void qp_fail_with(struct frl_qp *qp, int error, const char *reason);
/* The same with the guard held. */
void qp_fail_held(struct frl_qp *qp, int error, const char *reason);
/* The addresses of a network port are another's: fails all queue pairs and raises
 * FRL_EVENT_DEVICE_FATAL; the device is of no more use. Without the guard. */
void device_revoke(struct frl_device *device, const char *reason);
/* frl_qp_error() with the guard held. */
void qp_describe_error(const struct frl_qp *qp, char *text, size_t size);

/* publish.c */

/*
 * Makes sure that the daemon is, or will be, told of the device's port before what is posted after
 * this, and gives the port's number in messages. Starts the daemon if need be; does not wait. As
 * control_register(). Without the guard.
 */
int publish_require(struct frl_device *device, uint32_t *ret_port);

/* ah.c: a sentence about a next hop that has not answered. With the guard held. */
void describe_silence(
	struct frl_device *device, const struct frl_ah_attr *attr, char *out, size_t size);

/* cm.c: the queue pair is about to be destroyed, so its connection ends. Without the guard. */
void cm_forget_qp(struct frl_qp *qp);

/* fabric.c */

/*
 * Makes sure that a link to the peer exists, on the local fabric, and holds it for a connection.
 * Returns its number. -EADDRINUSE: an earlier one is not gone yet, try again; -EBUSY: there are
 * as many as can be, and some may go, try again; -ENOSPC: all are in use now; -EAGAIN: asked again
 * too early to say which. With the guard held.
 */
int fabric_link_open(struct frl_device *device, const struct frl_ip *peer_ip,
	const uint8_t peer_mac[6], const uint8_t peer_nonce[NONCE_SIZE]);

/* A connection over the link is made, or has failed: then closes it if there is no other one, nor
 * anybody who makes one. With the guard held. */
void fabric_link_release(struct frl_device *device, uint16_t link, bool failed);

/* What peers have said of their links: closes those that neither end uses. With the guard held, by
 * whoever has driven the engine. */
void fabric_take_notes(struct frl_device *device);

/* Links that something here uses. With the guard held. */
unsigned fabric_links_used(const struct frl_device *device);

/* Fills in link and MAC where the MAC is missing, from the link to the device that has the GID.
 * -EHOSTUNREACH. Guard held. */
int fabric_find_way(const struct frl_device *device, struct frl_ah_attr *attr);

/* Claims an address of 169.254.0.0/16 for a device: a socket whose name the kernel keeps unique and
 * gives back when the process ends. Returns the socket. -EADDRINUSE, or another errno. */
int fabric_claim_address(struct frl_ip *ret_ip, uint8_t ret_mac[6]);

/* address.c */

/* "10.1.1.1/24", "fd00::1/64"; without a prefix length it is that of one address. -EINVAL. */
int parse_ip(const char *text, struct frl_ip *ret_ip, uint8_t *ret_prefix_len);
/* For messages; the text is the calling thread's, until its next call. */
const char *format_ip(const struct frl_ip *ip);
/* Whether an address is in the subnet of a GID. */
bool in_subnet(const struct frl_gid *gid, const struct frl_ip *ip);
/* As in struct frl_device_config: `ip` becomes GIDs 1 and up. -EINVAL. */
int parse_addresses(const char *text, struct gid_table *ret_gids);
/* The gateways, which must be in subnets of the addresses. -EINVAL. */
int parse_gateways(const char *text, const struct gid_table *gids, struct neighbors_config *ret);
/* Puts the link-local address of the MAC into slot 0. -EINVAL: it is in another one too. */
int add_link_local(struct gid_table *gids, const uint8_t mac[6]);

#endif
