/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device ops table: what lib/api asks of a device, be it software (lib/soft: the engine over a
 * port) or hardware (drivers/verbs). And what all devices have in common: the structs behind the
 * public handles. A driver's own object begins with the common one; lib/api allocates it, zeroed,
 * in the driver's size, fills in the common part, and has the driver do the rest.
 *
 * lib/api checks the arguments (NULL, ranges against the device's attributes, objects of one device
 * and domain), counts the objects that depend on each other, and refuses with -EBUSY. What depends
 * on a queue pair's type and state (its transitions, what can be posted) the driver checks. A
 * driver that fails has said why by frl_fail(), and has changed nothing.
 *
 * The guard protects what lib/api notes here and, in the software device, the engine. Functions
 * marked [guard] are called with it held; all others without, by any thread. Who holds a handle
 * sees to it that nobody destroys it meanwhile.
 */
#ifndef FERRULE_DRIVERS_DEVICE_H
#define FERRULE_DRIVERS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/address.h>
#include <ferrule/device.h>
#include <ferrule/event.h>
#include <ferrule/fragments.h>
#include <ferrule/memory.h>
#include <ferrule/queue.h>
#include <ferrule/stats.h>

#include "lib/base/event.h"
#include "lib/base/gids.h"
#include "lib/base/guard.h"

struct device_gpu;
struct device_ops;
struct gpu;
struct offload;
struct page_qp;

enum {
	NONCE_SIZE = 16,
	RESOLVE_MS = 3000, /* how long ARP or ND may take where the caller did not say */
};

/* A descriptor that is readable while there is something to fetch. */
struct bell {
	int fd; /* an eventfd, or -1 */
	bool raised;
};

struct frl_device {
	const struct device_ops *ops;
	struct guard guard;
	struct frl_device_attr attr; /* the driver's to fill in, but for what changes */
	struct gid_table gids;       /* the driver's to fill in; of an open device it stays */
	uint32_t capabilities;       /* enum frl_capability that it offers */
	uint8_t ack_timeout;         /* the driver's: of connections by default; 0: as others */
	uint8_t nonce[NONCE_SIZE];   /* tells it from all others */
	unsigned objects;            /* domains, completion queues, channels, connections */
	/* Asynchronous events that were not fetched yet: struct event_source. The driver adds, with
	 * the guard held; `async` is raised when the guard is released. */
	struct list *events;
	struct bell async; /* made when it is asked for */
	struct publication *publication;
	struct device_gpu *gpus; /* memory_gpu.c's: that it works with */
	/* The driver's to fill in: the port has payload go on in memory of this GPU, as CUDA
	 * counts, and needs its offload while it is open: `far_offload`, which is memory_gpu.c's.
	 */
	bool has_far;
	int far_gpu;
	struct offload *far_offload;
};

struct frl_pd {
	struct frl_device *device;
	unsigned objects; /* whatever was made in it */
};

struct frl_mr {
	struct frl_device *device;
	struct frl_pd *pd; /* may become another one of the device */
	void *addr;
	size_t length;
	uint64_t iova;
	uint32_t access;
	uint32_t lkey, rkey;     /* the driver's to fill in */
	void *cached;            /* mr_cache.c's, of a region in a cache */
	struct frl_mr_attr attr; /* memory_gpu.c's, as `gpu` */
	struct gpu *gpu;         /* whose memory it is; NULL: host memory */
	uint64_t gpu_buffer;     /* which memory of it; 0: that is not known */
	struct offload *offload; /* who moves payload in and out of it; NULL: the device itself */
	struct frl_fragments *fragments; /* it is a name, and its payload stays in those; or NULL */
};

struct frl_fragments {
	struct frl_pd *pd;
	unsigned regions;
};

/* What frl_fragments_arm() is given. */
struct fragments_range {
	const void *addr;
	size_t length;
	struct frl_fragment *list;
	uint32_t frames;
};

struct frl_mw {
	struct frl_pd *pd;
};

struct frl_ah {
	struct frl_pd *pd;
	struct frl_ah_attr attr;
};

struct frl_comp_channel {
	struct frl_device *device;
	int fd; /* the driver's to fill in: readable while there is an event */
	unsigned cqs;
};

struct frl_cq {
	struct frl_device *device;
	struct frl_comp_channel *channel; /* or NULL */
	void *context;
	unsigned qps; /* uses of it by queue pairs */
};

struct frl_srq {
	struct frl_pd *pd;
	struct frl_srq_config config; /* its `limit` is not kept up to date */
	unsigned qps;
};

struct frl_qp {
	struct frl_pd *pd;
	struct frl_cq *send_cq;
	struct frl_cq *recv_cq;
	struct frl_srq *srq; /* or NULL */
	void *context;
	enum frl_qp_type type;
	uint32_t num;        /* the driver's to fill in */
	uint32_t max_inline; /* as in the configuration; a driver that has more may say so */

	/* lib/api's, for connecting it. */
	bool has_endpoint;       /* frl_qp_endpoint() chose the PSN below */
	bool connecting;         /* frl_qp_connect() is at work, or a connection is being made */
	struct attempt *attempt; /* of frl_qp_connect_start(), until it is over; or NULL */
	struct frl_conn *conn;   /* that it belongs to, or NULL: cm.mutex protects it */
	uint32_t local_psn;
};

/* What is told to a control daemon of some queue pairs: see describe_qps(). */
struct qp_batch {
	uint32_t first; /* the slot to begin with */
	uint32_t room;  /* for so many */
	uint32_t n;     /* so many were found, */
	uint32_t end;   /* in the slots before this one, */
	uint32_t last;  /* and none is at this slot or above, ever so far */
	uint32_t *slots;
	struct page_qp *qps; /* but for their sequence numbers */
};

/* What ends a wait for a device. */
struct awaited {
	const struct frl_cq *cq; /* a completion in it; or NULL */
	uint64_t until_ns;       /* UINT64_MAX: no time does */
	bool was_vain;           /* the device's: it was woken for nothing; false at first */
};

struct device_ops {
	const char *kind; /* "software", "verbs" */
	/* Its port is the kernel's, and of other processes as well: addresses, MACs, routes. */
	bool is_hardware;
	/* Of its objects, the common part included. */
	size_t pd_size, mr_size, mw_size, ah_size, channel_size, cq_size, srq_size, qp_size;
	size_t fragments_size;

	/* ---- the device */

	/* No object is left. Frees it, too. */
	void (*close)(struct frl_device *device);
	/* [guard] The guard is about to be released: completion channels are told, if that is the
	 * driver's way. May be NULL. */
	void (*leaving)(struct frl_device *device);
	/* [guard] What has to be done by software; returns how much was done. NULL: nothing has. */
	uint32_t (*poll)(struct frl_device *device);
	/* Somebody is going to sleep until there is an event, and drives nothing. [guard] for the
	 * first, which may start a thread. NULL: hardware needs nobody. */
	int (*start_thread)(struct frl_device *device);
	void (*expect_sleep)(struct frl_device *device);
	/* While the thread sleeps for long this descriptor is readable as soon as there may be
	 * something to drive the device for: who waits for an event can do that himself, and need
	 * not be woken by the thread, which lets those go first who are between watch() and
	 * unwatch(). -1: there is none. Both NULL: never. */
	int (*watch)(struct frl_device *device);
	void (*unwatch)(struct frl_device *device);
	/* Nothing has come for a while: sleeps until something may have, for nobody longer than
	 * about 50 ms, and drives the device then. Returns how much was done, or negative: it has
	 * not slept, as nobody would tell. NULL: never. */
	int (*sleep)(struct frl_device *device, struct awaited *awaited);
	/* The application polls, whatever comes of it. NULL as above. */
	void (*note_poll)(struct frl_device *device);
	/* [guard] Fills in what changes: port_state. */
	void (*query)(struct frl_device *device, struct frl_device_attr *attr);
	void (*stats)(struct frl_device *device, struct frl_stats *ret_stats);
	/* [guard] The queue pair of that number, or NULL. */
	struct frl_qp *(*find_qp)(struct frl_device *device, uint32_t num);
	/* [guard] Describes some, from slot `first` on. */
	void (*describe_qps)(struct frl_device *device, struct qp_batch *batch);
	/* [guard] Its addresses are another's: fails all, for good. NULL: it has none on lease. */
	void (*revoke)(struct frl_device *device, const char *reason);

	/* ---- memory; NULL: nothing to be done */

	int (*pd_create)(struct frl_pd *pd);
	int (*pd_destroy)(struct frl_pd *pd);
	/* Fills in the keys. `rereg` is given what is to be true then; flags as frl_rereg_mr(). */
	int (*mr_reg)(struct frl_mr *mr);
	int (*mr_reg_dmabuf)(struct frl_mr *mr, int fd, uint64_t offset);
	/* Regions with this `offload` are about to be registered: it is to reach the port's packet
	 * buffers. NULL: the device has no use for one. Detached when no such region is left, which
	 * waits until nothing is under way for it; others have the device meanwhile. Attached one
	 * at a time. Both without the guard, and so are the offload's map() and unmap(). */
	int (*offload_attach)(struct frl_device *device, struct offload *offload);
	void (*offload_detach)(struct frl_device *device, struct offload *offload);
	/* A region with an offload, of memory of `far_gpu`, is sent from by the NIC itself from now
	 * on, where that can be: by the dma-buf `fd`, which stays the caller's, from `offset` in
	 * it; fd -1: by its address. -ENOTSUP and the like. */
	int (*mr_map_far)(struct frl_mr *mr, int fd, uint64_t offset);
	int (*mr_rereg)(struct frl_mr *mr, uint32_t flags, const struct frl_mr *wanted);
	int (*mr_dereg)(struct frl_mr *mr); /* -EBUSY: still in use */
	int (*mw_alloc)(struct frl_mw *mw);
	void (*mw_dealloc)(struct frl_mw *mw);
	uint32_t (*mw_rkey)(struct frl_mw *mw);
	/* Shares of packet buffers, as in ferrule/fragments.h; all NULL: there are none. Of
	 * memory -ENOENT, of arm -EAGAIN, of count and release all failures come without a
	 * sentence. */
	int (*fragments_create)(struct frl_fragments *fragments, uint32_t frames);
	void (*fragments_destroy)(struct frl_fragments *fragments);
	int (*fragments_memory)(
		struct frl_device *device, unsigned index, void **ret_addr, size_t *ret_length);
	int (*fragments_arm)(struct frl_fragments *fragments, const struct frl_mr *mr,
		const struct fragments_range *range, uint32_t *ret_token);
	int (*fragments_count)(struct frl_fragments *fragments, uint32_t token, uint32_t *ret_n,
		size_t *ret_bytes);
	int (*fragments_release)(struct frl_fragments *fragments, uint32_t token);
	/* May block while the next hop is asked for its MAC, 3 s at most. `ah->attr` is given. */
	int (*ah_create)(struct frl_ah *ah);
	void (*ah_destroy)(struct frl_ah *ah);

	/* ---- completion queues; a failure to destroy is logged, not returned */

	int (*channel_create)(struct frl_comp_channel *channel);
	void (*channel_destroy)(struct frl_comp_channel *channel);
	/* Never waits: the queue that an event is about, or NULL. */
	struct frl_cq *(*channel_take)(struct frl_comp_channel *channel);
	/* At least so deep. */
	int (*cq_create)(struct frl_cq *cq, uint32_t depth);
	void (*cq_destroy)(struct frl_cq *cq);
	int (*req_notify)(struct frl_cq *cq, bool solicited_only);
	/* As frl_poll_cq(); *ret_moved: whether anything else was done, worth not sleeping. */
	int (*poll_cq)(struct frl_cq *cq, int max, struct frl_wc wc[], bool *ret_moved);

	/* ---- receive queues and queue pairs; `ret_posted` is never NULL */

	int (*srq_create)(struct frl_srq *srq);
	void (*srq_destroy)(struct frl_srq *srq);
	int (*srq_set_limit)(struct frl_srq *srq, uint32_t limit);
	uint32_t (*srq_limit)(struct frl_srq *srq); /* the armed one */
	int (*srq_post)(struct frl_srq *srq, const struct frl_recv_wr wr[], int n, int *ret_posted);

	/* `config` is complete: no field stands for a default. */
	int (*qp_create)(struct frl_qp *qp, const struct frl_qp_config *config);
	void (*qp_destroy)(struct frl_qp *qp);
	/* [guard] frl_qp_modify() once. -EAGAIN: the next hop was asked for its MAC, nothing has
	 * changed: try again while polling, or give up, which says why: -EHOSTUNREACH. A driver
	 * whose kernel finds the MAC never says so; it may block for that time, and releases the
	 * guard meanwhile: what was found under it before is to be looked at again. */
	int (*qp_modify)(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask);
	/* [guard] */
	int (*qp_unanswered)(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask);
	/* [guard] What was asked for is not wanted any more. May be NULL. */
	void (*qp_forget_path)(struct frl_qp *qp);
	/* [guard] */
	enum frl_qp_state (*qp_state)(const struct frl_qp *qp);
	void (*qp_query)(struct frl_qp *qp, struct frl_qp_attr *ret_attr);
	/* [guard] Moves it to ERR for a reason that is not the protocol's: flushes, raises
	 * FRL_EVENT_QP_FATAL, keeps the sentence (never empty). Of one that is in ERR without a
	 * sentence only that; of one in RESET nothing. */
	void (*qp_fail)(struct frl_qp *qp, const char *reason);
	/* [guard] Why it failed, in the words of frl_qp_error(). */
	void (*qp_describe_error)(const struct frl_qp *qp, char *text, size_t size);
	int (*attach_mcast)(struct frl_qp *qp, const struct frl_ip *group);
	int (*detach_mcast)(struct frl_qp *qp, const struct frl_ip *group);
	int (*post_send)(struct frl_qp *qp, const struct frl_send_wr wr[], int n, int *ret_posted);
	int (*post_recv)(struct frl_qp *qp, const struct frl_recv_wr wr[], int n, int *ret_posted);

	/* ---- the way to a peer that is about to be connected; [guard]; NULL: the kernel's */

	/* Ethernet: fills in attr->dmac from what the peer told, unless ARP or ND is to find the
	 * next hop. -EHOSTUNREACH: no route. */
	int (*find_way)(struct frl_device *device, struct frl_ah_attr *attr, const uint8_t mac[6]);
	/* The local fabric's links: holds one to the peer. Returns its number. -EADDRINUSE: an
	 * earlier one is not gone yet, try again; -ENOSPC: there are as many as can be. */
	int (*link_open)(struct frl_device *device, const struct frl_ip *peer_ip,
		const uint8_t peer_mac[6], const uint8_t peer_nonce[NONCE_SIZE]);
	/* 0: up; -EAGAIN: not yet; -ECONNRESET. */
	int (*link_state)(struct frl_device *device, uint16_t link);
	void (*link_release)(struct frl_device *device, uint16_t link, bool failed);
};

/* ---- device.c: what all devices have in common */

static inline void device_enter(struct frl_device *device)
{
	guard_enter(&device->guard);
}

/* For who must not starve while the application polls. */
static inline void device_enter_first(struct frl_device *device)
{
	guard_enter_first(&device->guard);
}

/* Tells about the events that were noted, and releases the guard. */
void device_leave(struct frl_device *device);

/* Fills in what every device needs before anything else: ops, guard, nonce, no events. */
void device_init(struct frl_device *device, const struct device_ops *ops, struct list *events);
/* The reverse; the driver frees the memory. */
void device_fini(struct frl_device *device);

/* Notes an event of an object, whose handle the source knows. With the guard held. */
static inline void device_raise(
	struct frl_device *device, struct event_source *source, enum frl_event_type type)
{
	event_note(device->events, source, type);
}

/* Drives it one round, with the guard held. Returns how much was done. */
static inline uint32_t device_poll(struct frl_device *device)
{
	return device->ops->poll ? device->ops->poll(device) : 0;
}

/*
 * One round of a wait that found nothing to do: as frl_backoff_idle(), and if the wait is long it
 * sleeps until there is something, where the device can tell, and drives the device then. All
 * rounds of a wait have the same `awaited`. Without the guard.
 */
void device_idle(struct frl_device *device, struct frl_backoff *backoff, struct awaited *awaited);

/* Until when to wait, and what may end it early, as in struct frl_connect_config. */
struct patience {
	uint64_t limit_ns;
	int (*interrupt)(void *arg);
	void *interrupt_arg;
};

/*
 * Drives the device until `try`, which is called with the guard held, gives anything but -EAGAIN,
 * which is the result. -ETIMEDOUT, or what the interrupt function said.
 */
int device_wait(struct frl_device *device, int (*try)(struct frl_device *, void *), void *arg,
	const struct patience *patience);

/* -EMFILE, ... */
int bell_make(struct bell *bell);
/* Also for one without a descriptor. */
void bell_fini(struct bell *bell);
/* Sets whether the descriptor is readable. With the lock held that protects it. */
void bell_set(struct bell *bell, bool raised);

#endif
