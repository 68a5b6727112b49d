/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The drop-in libibverbs.so.1: the functions of libibverbs over the public API of Ferrule. Programs
 * that were built for libibverbs run on it unchanged.
 *
 *	devices.c  the list of devices, from FRL_VERBS_DEVICES
 *	context.c  opening and closing them, tables of functions
 *	query.c    attributes of devices and ports, GIDs
 *	memory.c   protection domains, regions, windows
 *	cq.c       completion queues; cq_ex.c: extended ones
 *	channel.c  completion channels and their events
 *	async.c    asynchronous events
 *	qp.c       queue pairs; modify.c: their states
 *	post.c     requests as lists; wr.c: requests by ibv_wr_*()
 *	srq.c      shared receive queues
 *	ah.c       address handles, multicast
 *	names.c    texts, rates
 *
 * An object is the public struct of libibverbs with private members behind it. Ferrule's object
 * points back by its context. Objects of one device share its struct frl_device, whoever opened
 * it.
 *
 * Errors: functions of libibverbs return 0, -1 with errno, or an errno, each by its own rule.
 * dropin_errno() turns a result of Ferrule into an errno, and logs the reason.
 *
 * After fork(), the child must not use objects of its parent, but programs destroy them there, too
 * (garbage collection). Such calls do nothing: `process` says in which process an object was made.
 *
 * Threads: as libibverbs, any thread may call any function. An object must not be destroyed while
 * another thread uses it.
 */
#ifndef FERRULE_DROPIN_IBVERBS_DROPIN_H
#define FERRULE_DROPIN_IBVERBS_DROPIN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include <ferrule/ferrule.h>

#include "lib/base/list.h"

enum {
	DROPIN_MAX_DEVICES = 16,
	DROPIN_BATCH = 16, /* requests and completions converted at once */
	/* libmlx5 and others look for a table of functions behind any device (container_of). */
	DEVICE_TAIL = 64,
	NEWER_MEMBERS = 8, /* functions that later versions of a struct add at its end */
	PORT_NUM = 1,      /* the only port of a device */
};

/* ---- events */

/* The events of one object that the program has not fetched yet. */
struct dropin_source {
	struct list node;  /* in the context's list while `pending` is not 0 */
	uint32_t pending;  /* a bit for each enum ibv_event_type */
	uint32_t reported; /* events that the program has fetched, and must acknowledge */
	void *object;      /* the public struct that the events name; NULL: the port */
	enum { SOURCE_PORT, SOURCE_CQ, SOURCE_QP, SOURCE_SRQ } kind;
};

/* ---- objects */

struct dropin_device {
	struct ibv_device ibv;
	uint8_t tail[DEVICE_TAIL]; /* zero */
	/* How it is opened. */
	const char *fabric, *port, *ip; /* as in struct frl_device_config */
	char interface[16];             /* network interface of its GIDs; "": unknown */
	uint64_t guid;
	/* Protected by `devices_mutex`: */
	struct frl_device *frl; /* NULL: not open */
	struct frl_device_attr attr;
	/* Ferrule's lock may be held when `contexts_mutex` is taken, but not the reverse. */
	pthread_mutex_t contexts_mutex;
	struct list contexts; /* struct dropin_context */
};

struct dropin_context {
	struct list node;
	struct dropin_device *device;
	struct frl_device *frl;
	pthread_mutex_t mutex; /* protects `events` and the sources in it */
	struct list events;    /* sources with pending events, oldest first */
	struct dropin_source port_events;
	struct verbs_context verbs; /* ends with the public struct */
};

/* A protection domain, or a parent domain, which stands for another domain. */
struct dropin_pd {
	struct ibv_pd ibv;
	struct frl_pd *frl;
	unsigned process;
	struct dropin_pd *parent; /* parent domain: the domain that it stands for; else NULL */
	atomic_uint children;     /* parent domains that stand for it, and objects made of it */
};

struct dropin_mr {
	struct ibv_mr ibv;
	struct frl_mr *frl;
	unsigned process;
};

struct dropin_mw {
	struct ibv_mw ibv;
	struct frl_mw *frl;
	unsigned process;
};

struct dropin_ah {
	struct ibv_ah ibv;
	struct frl_ah *frl;
	unsigned process;
};

struct dropin_channel {
	struct ibv_comp_channel ibv;
	struct frl_comp_channel *frl;
	unsigned process;
	pthread_mutex_t mutex; /* protects `events` and the queues' counts of them */
	struct list events;    /* struct dropin_cq with events, oldest first */
};

struct dropin_cq {
	union {
		struct ibv_cq ibv;
		struct ibv_cq_ex ex;
	};
	void *newer[NEWER_MEMBERS]; /* NULL */
	struct frl_cq *frl;
	unsigned process;
	struct dropin_source source;
	/* Protected by the channel's mutex. */
	struct list event_node;
	uint32_t events;   /* not fetched yet */
	uint32_t reported; /* fetched */
	/* Extended queues: the entry between start_poll() and end_poll(), under `poll_mutex`. */
	pthread_mutex_t poll_mutex;
	struct ibv_wc current;
	uint16_t current_vlan;
};

struct dropin_srq {
	struct ibv_srq ibv;
	struct frl_srq *frl;
	unsigned process;
	struct dropin_source source;
};

/* Requests between ibv_wr_start() and ibv_wr_complete(). */
struct wr_batch {
	struct frl_send_wr *wr;
	struct frl_sge *sge; /* of all requests; `wr[i].sge` is set by complete */
	uint8_t *bytes;      /* inline data of all requests */
	uint32_t n_wr, wr_room;
	uint32_t n_sge, sge_room;
	uint32_t n_bytes, bytes_room;
	struct frl_send_wr spare; /* takes the arguments of a request that failed */
	int error;                /* an errno: the first failure, which complete returns */
};

struct dropin_qp {
	struct ibv_qp_ex ex;
	void *newer[NEWER_MEMBERS]; /* NULL */
	struct frl_qp *frl;
	unsigned process;
	struct dropin_source source;
	struct ibv_qp_cap cap;
	bool sq_sig_all;
	bool is_datagram;
	uint64_t wr_ops; /* enum ibv_qp_create_send_ops_flags; 0: no ibv_wr_*() */
	pthread_mutex_t wr_mutex;
	struct wr_batch batch;
};

#define DROPIN_OBJECTS(X) X(pd) X(mr) X(mw) X(ah) X(srq)
#define DROPIN_CAST(name)                                                               \
	static inline struct dropin_##name *dropin_##name(const struct ibv_##name *ibv) \
	{                                                                               \
		return container_of(ibv, struct dropin_##name, ibv);                    \
	}
DROPIN_OBJECTS(DROPIN_CAST)
#undef DROPIN_CAST
#undef DROPIN_OBJECTS

static inline struct dropin_context *dropin_context(const struct ibv_context *ibv)
{
	return container_of(ibv, struct dropin_context, verbs.context);
}

static inline struct dropin_device *dropin_device(const struct ibv_device *ibv)
{
	return container_of(ibv, struct dropin_device, ibv);
}

static inline struct dropin_channel *dropin_channel(const struct ibv_comp_channel *ibv)
{
	return container_of(ibv, struct dropin_channel, ibv);
}

static inline struct dropin_cq *dropin_cq(const struct ibv_cq *ibv)
{
	return container_of(ibv, struct dropin_cq, ibv);
}

static inline struct dropin_qp *dropin_qp(const struct ibv_qp *ibv)
{
	return container_of(ibv, struct dropin_qp, ex.qp_base);
}

/* ---- context.c */

/* Returns the number of this process in a chain of forks. */
unsigned process_now(void);
/* Logs the calling thread's last error of Ferrule and returns the errno of `rc`, also in errno. */
int dropin_errno(int rc);
/* The same for errors of the arguments: `reason` says what is wrong. */
int dropin_refuse(int err, const char *reason);

/* ---- devices.c */

/* Returns the devices. The array never changes. *ret_n may be 0. */
struct dropin_device *devices_get(unsigned *ret_n);
/* Sets the interface of a port "packet:NAME"; other ports have none. */
void device_set_interface(struct dropin_device *device, const char *port);

/* ---- query.c */

int query_device(struct ibv_context *ibv, struct ibv_device_attr *attr);
int query_device_ex(struct ibv_context *ibv, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *attr, size_t size);
int query_port(struct ibv_context *ibv, uint8_t port, struct ibv_port_attr *attr, size_t size);

/* ---- memory.c */

/* Count the objects that are made of a domain. */
struct frl_pd *pd_use(struct ibv_pd *ibv);
void pd_unuse(struct ibv_pd *ibv);

struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int dealloc_mw(struct ibv_mw *mw);
int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
struct ibv_pd *alloc_parent_domain(
	struct ibv_context *ibv, struct ibv_parent_domain_init_attr *attr);
struct ibv_td *alloc_td(struct ibv_context *ibv, struct ibv_td_init_attr *attr);
int dealloc_td(struct ibv_td *td);

/* Returns the rights of a window. Programs ask for local write, too, as for a region; NICs ignore
 * it, since no local request uses a window. */
static inline uint32_t window_access(const struct ibv_mw_bind_info *info)
{
	return info->mw_access_flags & ~(uint32_t)IBV_ACCESS_LOCAL_WRITE;
}

/* ---- channel.c, async.c */

/* Creates a descriptor that counts events: each read takes one. Returns -1 with errno. */
int events_open(void);
/* Adds `n` events. Never blocks. */
void events_add(int fd, uint32_t n);
/* Takes back up to `n` events that nobody will fetch. Never blocks. */
void events_take_back(int fd, uint32_t n);
/* Waits for an event and takes it, as the descriptor's flags say. Returns 0, or -1 with errno:
 * EAGAIN, EINTR. A cancellation point. */
int events_wait(int fd);

/* Waits until `*acknowledged`, which the mutex protects, is `reported`. A cancellation point. */
void await_acknowledged(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acknowledged,
	uint32_t reported);
/* Discards the events of a queue that will be destroyed, and waits until the program has
 * acknowledged the others. After a cancelled wait it may be called again. */
void channel_forget_cq(struct dropin_cq *cq);

void source_init(struct dropin_source *source, int kind, void *object);
/* Called by Ferrule for each asynchronous event; `arg` is the device. */
void async_event(const struct frl_async_event *event, void *arg);
/* Discards the events of an object that will be destroyed, and waits until the program has
 * acknowledged the others. `acknowledged` is the object's public count. After a cancelled wait it
 * may be called again. */
void async_forget(struct ibv_context *ibv, struct dropin_source *source, pthread_mutex_t *mutex,
	pthread_cond_t *cond, const uint32_t *acknowledged);

/* ---- cq.c, cq_ex.c */

/* Creates a completion queue; `ex`: with the functions of an extended one. */
struct dropin_cq *cq_create(struct ibv_context *ibv, uint32_t cqe, struct ibv_comp_channel *channel,
	int comp_vector, void *cq_context);
int poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc);
int req_notify_cq(struct ibv_cq *ibv, int solicited_only);
/* Takes one completion. Returns 1, 0, or a negative errno. *ret_vlan is 0 for untagged packets. */
int cq_take_one(struct dropin_cq *cq, struct ibv_wc *ret_wc, uint16_t *ret_vlan);
struct ibv_cq_ex *create_cq_ex(struct ibv_context *ibv, struct ibv_cq_init_attr_ex *attr);

/* ---- qp.c, post.c, wr.c, srq.c */

struct ibv_qp *create_qp_ex(struct ibv_context *ibv, struct ibv_qp_init_attr_ex *attr);
int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
int post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);
/* Fills in the functions of ibv_wr_*(). */
void wr_init(struct dropin_qp *qp);
void wr_fini(struct dropin_qp *qp);
struct ibv_srq *create_srq_ex(struct ibv_context *ibv, struct ibv_srq_init_attr_ex *attr);

/* Ferrule's names for a path. Returns an errno. */
int ah_attr_to_frl(const struct ibv_ah_attr *attr, struct frl_ah_attr *ret_attr);
void ah_attr_from_frl(const struct frl_ah_attr *attr, struct ibv_ah_attr *ret_attr);

#endif
