/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interface between lib/api and devices: the ops table, and the structs behind the public handles.
 * Devices are software (lib/device/soft.h: the engine over a port) or hardware (drivers/verbs). A
 * driver's object begins with the common struct. lib/api allocates it, zeroed, with the driver's
 * size, sets the common part, and calls the driver for the rest.
 *
 * lib/api checks the arguments (NULL, ranges against the device's attributes, objects of one
 * device and domain), counts dependent objects, and refuses with -EBUSY. The driver checks
 * conditions of a queue pair's type and state (transitions, requests that can be posted). A driver
 * that fails sets the reason with frl_fail() and changes nothing.
 *
 * The guard protects the data of lib/api here and, in the software device, the engine. Functions
 * marked [guard] are called with it held; all others without it, by any thread. A thread that uses
 * a handle must make sure that it is not destroyed meanwhile.
 */
#ifndef FERRULE_DEVICE_DEVICE_H
#define FERRULE_DEVICE_DEVICE_H

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
#include "lib/base/net/gids.h"
#include "lib/base/process/guard.h"
#include "lib/base/process/host.h"

struct device_gpu;
struct device_ops;
struct gpu;
struct offload;
struct page_qp;

enum {
	NONCE_SIZE = 16,
	QP_PEER_HOST = 60, /* with the rank one cache line: later fields keep their alignment */
	RESOLVE_MS = 3000, /* timeout of ARP or ND if the caller gave none */
};

/* An event descriptor: readable while there is an event to read. */
struct event_fd {
	int fd; /* an eventfd, or -1 */
	bool raised;
};

struct frl_device {
	const struct device_ops *ops;
	struct guard guard;
	struct frl_device_attr attr; /* set by the driver, except values that change */
	struct gid_table gids;       /* set by the driver; constant while the device is open */
	uint32_t capabilities;       /* supported enum frl_capability */
	uint8_t ack_timeout;         /* set by the driver: default of connections; 0: common
				      * default */
	uint8_t nonce[NONCE_SIZE];   /* identifies the device */
	uint8_t host[HOST_ID_SIZE];  /* of the local fabric; zero: unknown */
	unsigned objects;            /* domains, completion queues, channels, connections */
	/* Asynchronous events that were not read yet: struct event_source. The driver adds events
	 * with the guard held; releasing the guard raises `async`. */
	struct list *events;
	struct event_fd async; /* created on demand */
	/* frl_device_on_event(): takes the events instead. */
	void (*on_event)(const struct frl_async_event *event, void *arg);
	void *on_event_arg;
	struct publication *publication;
	struct device_gpu *gpus; /* GPUs that it works with; owned by memory_gpu.c */
	/* Set by the driver: the port puts the end of frames into memory of this GPU (CUDA
	 * ordinal). It needs the GPU's offload while it is open: `far_offload`, owned by
	 * memory_gpu.c. */
	bool has_far;
	int far_gpu;
	struct offload *far_offload;
};

struct frl_pd {
	struct frl_device *device;
	unsigned objects; /* all objects of the domain */
};

struct frl_mr {
	struct frl_device *device;
	struct frl_pd *pd; /* another domain of the device after a change */
	void *addr;
	size_t length;
	uint64_t iova;
	uint32_t access;
	uint32_t lkey, rkey;             /* set by the driver */
	void *cached;                    /* owned by mr_cache.c, for a region in a cache */
	struct frl_mr_attr attr;         /* owned by memory_gpu.c, as `gpu` */
	struct gpu *gpu;                 /* GPU that has the memory; NULL: host memory */
	uint64_t gpu_buffer;             /* buffer ID of the memory; 0: unknown */
	struct offload *offload;         /* moves payload in and out; NULL: the device itself */
	struct frl_fragments *fragments; /* share that keeps the payload, `addr` is only a name; or
					  * NULL */
	struct share *share;             /* keeps the memory where it is, or NULL */
};

struct frl_fragments {
	struct frl_pd *pd;
	unsigned regions;
};

/* Arguments of frl_fragments_arm(). */
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
	int fd; /* set by the driver: readable while there is an event */
	unsigned cqs;
	/* frl_comp_channel_on_event(): takes the events instead. */
	void (*on_event)(struct frl_cq *cq, void *arg);
	void *on_event_arg;
};

struct frl_cq {
	struct frl_device *device;
	struct frl_comp_channel *channel; /* or NULL */
	void *context;
	unsigned qps; /* uses of it by queue pairs */
};

struct frl_srq {
	struct frl_pd *pd;
	struct frl_srq_config config; /* its `limit` is not updated */
	unsigned qps;
};

struct frl_qp {
	struct frl_pd *pd;
	struct frl_cq *send_cq;
	struct frl_cq *recv_cq;
	struct frl_srq *srq; /* or NULL */
	void *context;
	enum frl_qp_type type;
	uint32_t num;        /* set by the driver */
	uint32_t max_inline; /* as configured; a driver may set a larger value */

	/* Owned by lib/api, for connecting. */
	bool has_endpoint;       /* frl_qp_endpoint() chose the PSN below */
	bool connecting;         /* frl_qp_connect() is running, or a connection is being made */
	struct attempt *attempt; /* of frl_qp_connect_start(), until it ends; or NULL */
	struct frl_conn *conn;   /* its connection, or NULL; protected by cm.mutex */
	uint32_t local_psn;

	/* Set by frl_qp_set_peer(). */
	uint32_t peer_rank; /* plus 1; 0: not set */
	char peer_host[QP_PEER_HOST];
};

/* Descriptions of some queue pairs for a control daemon, see describe_qps(). */
struct qp_batch {
	uint32_t first; /* first slot to visit */
	uint32_t room;  /* capacity */
	uint32_t n;     /* number of queue pairs found */
	uint32_t end;   /* in the slots before this one */
	uint32_t last;  /* slots at or above this were never used */
	uint32_t *slots;
	struct page_qp *qps; /* without their sequence numbers */
};

/* Conditions that end a wait for a device. */
struct awaited {
	const struct frl_cq *cq; /* a completion in it; or NULL */
	uint64_t until_ns;       /* UINT64_MAX: no time limit */
	bool was_spurious;       /* state of the device: the last wake-up was spurious; false at
				  * first */
};

struct device_ops {
	const char *kind; /* "software", "verbs" */
	/* The kernel and other processes share its port: addresses, MAC addresses, routes. */
	bool is_hardware;
	/* Sizes of its objects, including the common struct. */
	size_t pd_size, mr_size, mw_size, ah_size, channel_size, cq_size, srq_size, qp_size;
	size_t fragments_size;

	/* ---- the device */

	/* Closes and frees the device. No objects are left. */
	void (*close)(struct frl_device *device);
	/* [guard] Called before the guard is released: notifies completion channels, if the driver
	 * does. May be NULL. */
	void (*leaving)(struct frl_device *device);
	/* [guard] Runs a round of software work. Returns how much was done. NULL: hardware. */
	uint32_t (*poll)(struct frl_device *device);
	/* The caller will sleep until there is an event, without driving the device.
	 * start_thread() is called with the guard and may start a thread. NULL: hardware. */
	int (*start_thread)(struct frl_device *device);
	void (*expect_sleep)(struct frl_device *device);
	/* Returns a descriptor that is readable when there may be work, while the progress thread
	 * is in a long sleep; -1: none. A thread that waits for an event can then do the work
	 * itself and need not be woken. The progress thread yields to threads between watch() and
	 * unwatch(). Both NULL: not supported. */
	int (*watch)(struct frl_device *device);
	void (*unwatch)(struct frl_device *device);
	/* Sleeps until there may be work, at most about 50 ms, then drives the device. Called
	 * after the device was idle for a while. Returns how much was done, or a negative error if
	 * it did not sleep, because nothing would wake it. NULL: not supported. */
	int (*sleep)(struct frl_device *device, struct awaited *awaited);
	/* Notes that the application polls. NULL: hardware. */
	void (*note_poll)(struct frl_device *device);
	/* [guard] Sets attributes that change: port_state. */
	void (*query)(struct frl_device *device, struct frl_device_attr *attr);
	void (*stats)(struct frl_device *device, struct frl_stats *ret_stats);
	/* [guard] Returns the queue pair of that number, or NULL. */
	struct frl_qp *(*find_qp)(struct frl_device *device, uint32_t num);
	/* [guard] Describes queue pairs, from slot `first` on. */
	void (*describe_qps)(struct frl_device *device, struct qp_batch *batch);
	/* [guard] The device has lost its addresses: fails all queue pairs for good. NULL: the
	 * device leases none. */
	void (*revoke)(struct frl_device *device, const char *reason);

	/* ---- memory; NULL: nothing to do */

	int (*pd_create)(struct frl_pd *pd);
	int (*pd_destroy)(struct frl_pd *pd);
	/* Sets the keys. `rereg` gets the new values; flags as for frl_rereg_mr(). */
	int (*mr_reg)(struct frl_mr *mr);
	int (*mr_reg_dmabuf)(struct frl_mr *mr, int fd, uint64_t offset);
	/* Makes the port's packet buffers reachable for an offload, before regions with it are
	 * registered. NULL: the device needs no offloads. Detached when no such region is left.
	 * Detaching waits until all its work is done, without blocking other threads. One offload
	 * is attached at a time. Both are called without the guard, as are the offload's map() and
	 * unmap(). */
	int (*offload_attach)(struct frl_device *device, struct offload *offload);
	void (*offload_detach)(struct frl_device *device, struct offload *offload);
	/* Lets the NIC send directly from a region of `far_gpu` that has an offload. Uses `offset`
	 * in the dma-buf `fd`, which stays the caller's; with fd -1 the address. -ENOTSUP or
	 * another error. */
	int (*mr_map_far)(struct frl_mr *mr, int fd, uint64_t offset);
	int (*mr_rereg)(struct frl_mr *mr, uint32_t flags, const struct frl_mr *wanted);
	int (*mr_dereg)(struct frl_mr *mr); /* -EBUSY: still in use */
	int (*mw_alloc)(struct frl_mw *mw);
	void (*mw_dealloc)(struct frl_mw *mw);
	uint32_t (*mw_rkey)(struct frl_mw *mw);
	/* Shares of packet buffers, see ferrule/fragments.h. All NULL: not supported. No error
	 * text is set for -ENOENT of memory, -EAGAIN of arm, and any error of count and release. */
	int (*fragments_create)(struct frl_fragments *fragments, uint32_t frames);
	void (*fragments_destroy)(struct frl_fragments *fragments);
	int (*fragments_memory)(
		struct frl_device *device, unsigned index, void **ret_addr, size_t *ret_length);
	int (*fragments_arm)(struct frl_fragments *fragments, const struct frl_mr *mr,
		const struct fragments_range *range, uint32_t *ret_token);
	int (*fragments_count)(struct frl_fragments *fragments, uint32_t token, uint32_t *ret_n,
		size_t *ret_bytes);
	int (*fragments_release)(struct frl_fragments *fragments, uint32_t token);
	/* May block up to 3 s to resolve the next hop's MAC address, or to make a link. `ah->attr`
	 * is set. */
	int (*ah_create)(struct frl_ah *ah);
	void (*ah_destroy)(struct frl_ah *ah);

	/* ---- completion queues; a failure to destroy is logged, not returned */

	int (*channel_create)(struct frl_comp_channel *channel);
	void (*channel_destroy)(struct frl_comp_channel *channel);
	/* Never blocks. Returns the queue of the next event, or NULL. */
	struct frl_cq *(*channel_take)(struct frl_comp_channel *channel);
	/* [guard] `on_event` was set. The driver calls it for later events, and for those that it
	 * keeps now, before the guard is released. NULL: not supported. */
	void (*channel_divert)(struct frl_comp_channel *channel);
	/* The depth is a minimum. */
	int (*cq_create)(struct frl_cq *cq, uint32_t depth);
	void (*cq_destroy)(struct frl_cq *cq);
	int (*cq_resize)(struct frl_cq *cq, uint32_t depth);
	int (*req_notify)(struct frl_cq *cq, bool solicited_only);
	/* As frl_poll_cq(). Sets *ret_moved if other work was done, so that the caller polls
	 * again. */
	int (*poll_cq)(struct frl_cq *cq, int max, struct frl_wc wc[], bool *ret_moved);

	/* ---- receive queues and queue pairs; `ret_posted` is never NULL */

	int (*srq_create)(struct frl_srq *srq);
	void (*srq_destroy)(struct frl_srq *srq);
	int (*srq_set_limit)(struct frl_srq *srq, uint32_t limit);
	uint32_t (*srq_limit)(struct frl_srq *srq); /* the armed limit */
	int (*srq_post)(struct frl_srq *srq, const struct frl_recv_wr wr[], int n, int *ret_posted);

	/* `config` is complete: no field is 0 for a default. */
	int (*qp_create)(struct frl_qp *qp, const struct frl_qp_config *config);
	void (*qp_destroy)(struct frl_qp *qp);
	/* [guard] One step of frl_qp_modify(). -EAGAIN: the next hop's MAC address was requested,
	 * or a link to the peer is being made, and nothing was changed. Call again while polling,
	 * or give up with qp_unanswered(), which returns -EHOSTUNREACH. A driver whose kernel
	 * resolves the address never returns -EAGAIN. Such a driver may block, and releases the
	 * guard meanwhile; the caller must check its state again. */
	int (*qp_modify)(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask);
	/* [guard] */
	int (*qp_unanswered)(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask);
	/* [guard] Cancels the request for the MAC address. May be NULL. */
	void (*qp_clear_path)(struct frl_qp *qp);
	/* [guard] */
	enum frl_qp_state (*qp_state)(const struct frl_qp *qp);
	void (*qp_query)(struct frl_qp *qp, struct frl_qp_attr *ret_attr);
	/* [guard] Moves the queue pair to ERR for a reason outside the protocol: flushes, raises
	 * FRL_EVENT_QP_FATAL, and keeps the text (never empty). In ERR without a text it only
	 * keeps the text; in RESET it does nothing. */
	void (*qp_fail)(struct frl_qp *qp, const char *reason);
	/* [guard] Writes the reason of the failure, as frl_qp_error() returns it. */
	void (*qp_describe_error)(const struct frl_qp *qp, char *text, size_t size);
	int (*attach_mcast)(struct frl_qp *qp, const struct frl_ip *group);
	int (*detach_mcast)(struct frl_qp *qp, const struct frl_ip *group);
	int (*post_send)(struct frl_qp *qp, const struct frl_send_wr wr[], int n, int *ret_posted);
	int (*post_send_all)(struct frl_qp *qp, const struct frl_send_wr wr[], int n);
	int (*post_recv)(struct frl_qp *qp, const struct frl_recv_wr wr[], int n, int *ret_posted);

	/* ---- the path to a peer, before connecting; [guard]; NULL: the kernel resolves it */

	/* Ethernet: sets attr->dmac to the address that the peer reported, unless ARP or ND must
	 * resolve a gateway. -EHOSTUNREACH: no route. */
	int (*find_route)(
		struct frl_device *device, struct frl_ah_attr *attr, const uint8_t mac[6]);
	/* Local fabric: opens or finds the link to the peer and holds it. Returns its number.
	 * -EADDRINUSE: an earlier link is not gone yet, try again; -ENOSPC: too many links. */
	int (*link_open)(struct frl_device *device, const struct frl_ip *peer_ip,
		const uint8_t peer_mac[6], const uint8_t peer_nonce[NONCE_SIZE]);
	/* 0: up; -EAGAIN: not yet; -ECONNRESET. */
	int (*link_state)(struct frl_device *device, uint16_t link);
	void (*link_release)(struct frl_device *device, uint16_t link, bool failed);
};

/* ---- device.c: common to all devices */

static inline void device_enter(struct frl_device *device)
{
	guard_enter(&device->guard);
}

/* For threads that must not starve while the application polls. */
static inline void device_enter_first(struct frl_device *device)
{
	guard_enter_first(&device->guard);
}

/* Reports pending events. Guard held. */
void device_report(struct frl_device *device);

/* Reports pending events, and releases the guard. */
void device_leave(struct frl_device *device);

/* Initializes the common part: ops, guard, nonce, no events. */
void device_init(struct frl_device *device, const struct device_ops *ops, struct list *events);
/* Undoes device_init(); the driver frees the memory. */
void device_fini(struct frl_device *device);

/* Adds an event of an object. Guard held. */
static inline void device_raise(
	struct frl_device *device, struct event_source *source, enum frl_event_type type)
{
	event_note(device->events, source, type);
}

/* Removes and returns the oldest asynchronous event; there must be one. Guard held. */
struct frl_async_event device_take_event(struct frl_device *device);

/* Drives the device for one round. Guard held. Returns how much was done. */
static inline uint32_t device_poll(struct frl_device *device)
{
	return device->ops->poll ? device->ops->poll(device) : 0;
}

/*
 * Handles an idle round of a wait: like frl_backoff_idle(). In a long wait it sleeps until there
 * is work, if the device can signal that, and then drives the device. All rounds of a wait use the
 * same `awaited`. Called without the guard.
 */
void device_idle(struct frl_device *device, struct frl_backoff *backoff, struct awaited *awaited);

/* Time limit of a wait, and the function that may interrupt it, as in struct frl_connect_config. */
struct wait_limit {
	uint64_t limit_ns;
	int (*interrupt)(void *arg);
	void *interrupt_arg;
};

/*
 * Drives the device until `try` returns anything but -EAGAIN, and returns that. `try` is called
 * with the guard held. -ETIMEDOUT, or the error of the interrupt function.
 */
int device_wait(struct frl_device *device, int (*try)(struct frl_device *, void *), void *arg,
	const struct wait_limit *limit);

/* Creates the descriptor. -EMFILE or another errno. */
int event_fd_create(struct event_fd *event_fd);
/* Closes the descriptor, if there is one. */
void event_fd_fini(struct event_fd *event_fd);
/* Sets whether the descriptor is readable. The caller holds the lock that protects it. */
void event_fd_set(struct event_fd *event_fd, bool raised);

#endif
