/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The structs of the hardware driver. Each begins with the common one of lib/device/device.h, and
 * calls map to those of libibverbs one to one. The files:
 *
 * - device.c, port.c, list.c: find a usable port, or explain why there is none
 * - gid.c, route.c, netif.c: select its main address
 * - memory.c, ah.c, mcast.c: regions, windows, address handles, groups
 * - cq.c, poll.c: completion queues and channels; completions
 * - srq.c, qp.c, modify.c: receive queues, queue pairs, their states
 * - post.c, post_wr.c: requests, by ibv_post_send() or ibv_wr_*()
 * - events.c: asynchronous events, read by a sleeping thread
 * - error.c: explains errnos and names remedies
 * - stats.c: counters of the port
 *
 * Posting and polling take no lock of Ferrule's. Only a failed completion takes the guard, to
 * record why its queue pair is in ERR. The kernel may take long to modify a queue pair: it is
 * marked, and the guard is released during the call. Other threads that want to modify it wait. A
 * failure during that time is only recorded, and the modifying thread handles it.
 */
#ifndef FERRULE_DRIVERS_VERBS_INTERNAL_H
#define FERRULE_DRIVERS_VERBS_INTERNAL_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include <infiniband/verbs.h>

#include "lib/device/device.h"
#include "drivers/verbs/verbs.h"

enum {
	QP_BUCKETS = 256, /* a power of two */
	REASON_SIZE = 256,
	DEVICE_NAME = 64,
	/* Ferrule's own limits. */
	MOST_WR = 16384,
	MOST_CQE = 65536,
};

/* Appended to a message about an overrun of a completion queue. */
#define OVERRUN_ADVICE                                                      \
	"poll more often, or make it deeper than all requests that can be " \
	"outstanding on its queue pairs"

/* An address of a port in the hardware's table. */
struct port_gid {
	struct frl_gid gid;
	uint32_t index; /* index in the port's table */
	unsigned ifindex;
};

/* A port that was examined, usable or not. */
struct verbs_port {
	struct ibv_context *context; /* NULL: not open */
	struct frl_device_info info;
	char device[DEVICE_NAME]; /* name in libibverbs */
	char path[IBV_SYSFS_PATH_MAX];
	uint8_t num;
	uint8_t n_ports;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct port_gid *gids; /* only RoCE v2, in the order of the port's table */
	unsigned n_gids;
	size_t gid_room; /* entries in the tables of all ports of the device; 0: not counted yet */
	unsigned main;   /* index in `gids` */
	char why[128];   /* why it is the main one */
};

/* The kernel's route to a peer. */
struct verbs_route {
	struct frl_ip peer;
	struct frl_ip source; /* the source address for the route */
	bool has_source;
	unsigned ifindex; /* of the outgoing interface */
};

struct verbs_device {
	struct frl_device base;
	struct ibv_context *context;
	char name[DEVICE_NAME]; /* as in frl_device_attr.port */
	char path[IBV_SYSFS_PATH_MAX];
	uint8_t port, n_ports;
	/* Two features of its provider (rdma-core, up to 2026 at least) are not used: ibv_wr_*()
	 * miscounts lists, and a poll of an extended queue takes one completion too many at its
	 * end. The provider also uses the kernel's number for the flag of an invalidation. */
	bool is_rxe;
	bool has_good_wr; /* ibv_wr_*() of its provider is known to work */
	uint32_t max_rd_atomic, max_dest_rd_atomic;

	/* The guard protects these. */
	uint32_t active_mtu;
	uint32_t gid_index[FRL_MAX_GIDS]; /* indexes in the port's table */
	bool has_gid[FRL_MAX_GIDS];       /* false: [0] of a port without a link-local address */
	unsigned gid_ifindex[FRL_MAX_GIDS];
	struct list events;
	struct event_source source; /* events of the port and the device */
	enum frl_port_state port_state;
	struct list qps[QP_BUCKETS]; /* struct verbs_qp.node, by number */
	struct verbs_qp **slots;     /* the same, for iteration over all */
	uint32_t n_slots;
	uint32_t first_free; /* all slots before it are in use */
	struct list cqs;     /* struct verbs_cq.node, queues with a channel */

	atomic_bool is_fatal;
	_Atomic uint64_t down_ns; /* time of the last link-down; 0: never */
	struct frl_stats first;   /* counters at the time of opening */

	/* The thread that waits for asynchronous events. */
	pthread_t thread;
	int stop_fd;
};

struct verbs_pd {
	struct frl_pd base;
	struct ibv_pd *pd;
	atomic_bool has_left; /* some of its objects could not be destroyed */
};

struct verbs_mr {
	struct frl_mr base;
	struct ibv_mr *mr;
	bool is_broken; /* a change of it has failed */
};

struct verbs_mw {
	struct frl_mw base;
	struct ibv_mw *mw;
	atomic_uint rkey; /* of the last bind */
};

struct verbs_ah {
	struct frl_ah base;
	struct ibv_ah *ah;
};

struct verbs_channel {
	struct frl_comp_channel base; /* its descriptor is readable while one of these is: */
	struct ibv_comp_channel *channel;
	struct event_fd event_fd; /* a queue has failed, which libibverbs does not report here */
};

struct verbs_cq {
	struct frl_cq base;
	struct ibv_cq *cq;
	struct ibv_cq_ex *ex; /* the same, or NULL: not extended */
	bool has_vlan;
	atomic_bool has_overrun;
	atomic_int poll_error;            /* not 0: a completion was lost while polling */
	atomic_uint datagrams, connected; /* number of queue pairs of that kind */

	/* The guard protects these. */
	struct event_source source;
	struct list node;         /* struct verbs_device.cqs */
	bool has_error_to_report; /* report the failure through its channel */
};

struct verbs_srq {
	struct frl_srq base;
	struct ibv_srq *srq;
	struct event_source source;
};

struct verbs_qp {
	struct frl_qp base;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex; /* the same for ibv_wr_*(), or NULL */
	uint32_t max_send_sge, max_recv_sge;
	atomic_int state; /* enum frl_qp_state, as far as known; set with the guard held */
	atomic_uint qkey; /* as in `attr` */

	/* The guard protects these. */
	struct event_source source;
	bool is_moving;           /* in a modify call, during which the guard is released */
	bool needs_state_query;   /* a query of its state was deferred: */
	const char *query_reason; /* reason of the query, and of the failure if in ERR; or NULL */
	uint32_t changes;         /* counts changes of `state`: an older answer is discarded */
	struct list node;         /* struct verbs_device.qps */
	uint32_t slot;
	struct frl_qp_attr attr; /* attributes that were set, except its state */
	enum frl_wc_status error_status;
	uint32_t vendor_error;
	char error[REASON_SIZE];
	uint64_t error_ns;
	struct list memberships; /* used by mcast.c */
};

static inline struct verbs_device *verbs_device(struct frl_device *device)
{
	return container_of(device, struct verbs_device, base);
}

static inline struct verbs_pd *verbs_pd(struct frl_pd *pd)
{
	return container_of(pd, struct verbs_pd, base);
}

static inline struct verbs_cq *verbs_cq(struct frl_cq *cq)
{
	return container_of(cq, struct verbs_cq, base);
}

static inline struct verbs_qp *verbs_qp(struct frl_qp *qp)
{
	return container_of(qp, struct verbs_qp, base);
}

static inline struct verbs_srq *verbs_srq(struct frl_srq *srq)
{
	return container_of(srq, struct verbs_srq, base);
}

static inline struct verbs_mr *verbs_mr(struct frl_mr *mr)
{
	return container_of(mr, struct verbs_mr, base);
}

static inline struct verbs_mw *verbs_mw(struct frl_mw *mw)
{
	return container_of(mw, struct verbs_mw, base);
}

static inline struct verbs_ah *verbs_ah(struct frl_ah *ah)
{
	return container_of(ah, struct verbs_ah, base);
}

static inline struct ibv_mw_bind_info verbs_bind_info(const struct frl_mw_bind *bind)
{
	return (struct ibv_mw_bind_info){
		.mr = verbs_mr(bind->mr)->mr,
		.addr = bind->addr,
		.length = bind->length,
		.mw_access_flags = bind->access,
	};
}

/* Returns the device of objects in a protection domain. */
static inline struct verbs_device *device_of_pd(const struct frl_pd *pd)
{
	return verbs_device(pd->device);
}

static inline bool is_datagram(const struct frl_qp *qp)
{
	return qp->type == FRL_QPT_UD;
}

static inline enum frl_qp_state qp_state_of(const struct verbs_qp *qp)
{
	return (enum frl_qp_state)atomic_load_explicit(&qp->state, memory_order_relaxed);
}

/* Returns 256 to 4096 bytes, or 0 for an unknown value. */
static inline uint32_t bytes_of_mtu(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

/* error.c */

/* Why libibverbs.so.1 cannot be used. bind.c writes it before ibv_get_device_list() fails. */
extern char verbs_load_reason[256];
/* Returns the errno of a call that returned `rc`, which was not 0. */
int verbs_errno(int rc);
/* Returns the errno of a call that returned NULL, with errno 0 before. Some providers set none:
 * EINVAL. */
int verbs_null_errno(void);
/* Like frl_fail(), with the meaning of `err`, an errno of such a call, appended. */
int verbs_fail(int err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes only the explanation into `text`. */
void verbs_explain(int err, char *text, size_t size);
/* Logs an error that has no remedy. */
void verbs_warn(int err, const char *what);
/* Handles the result `rc` of destroying an object of `pd`, or of no domain if NULL. A remaining
 * object is freed when the device is closed. This is logged, unless the device has failed. */
void verbs_destroyed(struct verbs_device *device, struct verbs_pd *pd, int rc, const char *what);

/* netif.c */

/* Writes "" if the interface is not in this network namespace. */
void netif_name(unsigned ifindex, char ret_name[16]);
bool netif_mac(unsigned ifindex, uint8_t ret_mac[6]);
/* Returns the VLAN of the interface, or 0. */
uint16_t netif_vlan(unsigned ifindex);
/* Returns the prefix length of an address of this host, or -1 for other addresses. */
int netif_prefix_len(const struct frl_ip *ip);

/* route.c: finds the route to a peer. Returns -EINVAL (no such host) or -EHOSTUNREACH. */
int verbs_find_route(const char *peer, struct verbs_route *ret_route);

/* gid.c */

/* Reads the port's RoCE v2 addresses. Returns -ENODEV if there is none. */
int verbs_read_gids(struct verbs_port *port);
/* Updates the indexes of the device's addresses in the port's table, and whether the port still has
 * them. Call without the guard, which it takes. */
void verbs_find_gids_again(struct verbs_device *device);
/* Chooses the main address and records why: `ip` if given, else one for the route, if given.
 * Returns -EINVAL if no address matches. */
int verbs_choose_gid(
	struct verbs_port *port, const struct frl_ip *ip, const struct verbs_route *route);
/* Chooses the first address of the peer's family, or the first of any family. */
int verbs_choose_family(struct verbs_port *port, const struct frl_ip *peer);
/* Fills the device's table from the port's. The main address becomes GID 1. */
void verbs_take_gids(struct verbs_device *device, const struct verbs_port *port);
/* Fills in the path for libibverbs. Returns 0, or -EINVAL with a text in *ret_why. Guard held. */
int verbs_fill_path(const struct verbs_device *device, const struct frl_ah_attr *attr,
	struct ibv_ah_attr *ret_path, const char **ret_why);

/* port.c */

/* Opens a port and checks whether it can be used. On failure ret_port->info contains the known
 * properties and the reason, which is also in frl_last_error(). Close it in any case. */
int verbs_port_open(struct ibv_device *device, uint8_t num, struct verbs_port *ret_port);
/* The same for another port of an open device. */
int verbs_port_turn(struct verbs_port *port, uint8_t num);
void verbs_port_close(struct verbs_port *port);
/* Opens only a context of the device. `name` starts the error text. */
int verbs_open_context(
	struct ibv_device *device, const char *name, struct ibv_context **ret_context);
/* Reads "0000:3b:00.0" from the device's folder in sysfs. Leaves ret_pci unchanged for devices on
 * no PCI bus. */
void verbs_read_pci(const char *path, char ret_pci[16]);

/* list.c */

/* Finds and opens the requested port, and chooses its main address. */
int verbs_port_find(const struct verbs_open *wanted, struct verbs_port *ret_port);
/* Finds and opens the named device, with any capabilities, for another driver. The context is
 * separate, and ibv_close_device() closes it. Returns -ENODEV (no such device), -EPERM, or as
 * verbs_fail(). */
int verbs_context_find(const char *name, struct ibv_context **ret_context);

/* device.c: keeps the pages of registered memory in place when the process forks. Call before the
 * first registration. */
void verbs_protect_from_fork(void);

/* memory.c */

int verbs_pd_create(struct frl_pd *pd);
int verbs_pd_destroy(struct frl_pd *pd);
int verbs_mr_reg(struct frl_mr *mr);
int verbs_mr_reg_dmabuf(struct frl_mr *mr, int fd, uint64_t offset);
int verbs_mr_rereg(struct frl_mr *mr, uint32_t flags, const struct frl_mr *wanted);
int verbs_mr_dereg(struct frl_mr *mr);
int verbs_mw_alloc(struct frl_mw *mw);
void verbs_mw_dealloc(struct frl_mw *mw);
uint32_t verbs_mw_rkey(struct frl_mw *mw);

/* ah.c */

int verbs_ah_create(struct frl_ah *ah);
void verbs_ah_destroy(struct frl_ah *ah);
/* Writes "10.0.0.9 does not answer ARP ...". */
void verbs_describe_silence(const struct frl_ip *ip, char *text, size_t size);
/* Returns true if the kernel failed to resolve the next hop's MAC. */
bool verbs_is_silence(int err);

/* mcast.c */

int verbs_attach_mcast(struct frl_qp *qp, const struct frl_ip *group);
int verbs_detach_mcast(struct frl_qp *qp, const struct frl_ip *group);
/* Leaves all groups. */
void verbs_leave_groups(struct verbs_qp *qp);

/* cq.c */

int verbs_channel_create(struct frl_comp_channel *channel);
void verbs_channel_destroy(struct frl_comp_channel *channel);
struct frl_cq *verbs_channel_take(struct frl_comp_channel *channel);
int verbs_cq_create(struct frl_cq *cq, uint32_t depth);
void verbs_cq_destroy(struct frl_cq *cq);
int verbs_cq_resize(struct frl_cq *cq, uint32_t depth);
int verbs_req_notify(struct frl_cq *cq, bool solicited_only);
/* Wakes threads that sleep on its channel, if any, because it has failed. Guard held. */
void verbs_cq_wake(struct verbs_cq *cq);

/* poll.c */

int verbs_poll_cq(struct frl_cq *cq, int max, struct frl_wc wc[], bool *ret_moved);

/* srq.c */

int verbs_srq_create(struct frl_srq *srq);
void verbs_srq_destroy(struct frl_srq *srq);
int verbs_srq_set_limit(struct frl_srq *srq, uint32_t limit);
uint32_t verbs_srq_limit(struct frl_srq *srq);

/* qp.c */

int verbs_qp_create(struct frl_qp *qp, const struct frl_qp_config *config);
void verbs_qp_destroy(struct frl_qp *qp);
/* Guard held, as for all functions below. Returns NULL if there is none. */
struct verbs_qp *verbs_find(struct verbs_device *device, uint32_t num);
struct frl_qp *verbs_find_qp(struct frl_device *device, uint32_t num);
void verbs_describe_qps(struct frl_device *device, struct qp_batch *batch);
enum frl_qp_state verbs_qp_state(const struct frl_qp *qp);
void verbs_qp_set_state(struct verbs_qp *qp, enum frl_qp_state state);
/* Queries the state from the device and stores it. During a modify call, returns the last known
 * state. */
enum frl_qp_state verbs_qp_query_state(struct verbs_qp *qp);
/* Call without the guard, which it takes. */
void verbs_qp_query(struct frl_qp *qp, struct frl_qp_attr *ret_attr);
void verbs_qp_fail(struct frl_qp *qp, const char *reason);
void verbs_qp_describe_error(const struct frl_qp *qp, char *text, size_t size);
/* Records the first reason after a failed completion, and the current state. */
void verbs_qp_note_failure(struct verbs_qp *qp, enum frl_wc_status status, uint32_t vendor_error);
/* Records that it is in ERR, and `reason` unless one is known. */
void verbs_qp_note_error(struct verbs_qp *qp, const char *reason);

/* modify.c */

int verbs_qp_modify(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask);
int verbs_qp_unanswered(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask);
/* Moves it to ERR, as far as the device still can. During a modify call, it follows when the call
 * is over. */
void verbs_qp_to_error(struct verbs_qp *qp);

/* post.c */

int verbs_post_send(struct frl_qp *qp, const struct frl_send_wr wr[], int n, int *ret_posted);
int verbs_post_send_all(struct frl_qp *qp, const struct frl_send_wr wr[], int n);
int verbs_post_recv(struct frl_qp *qp, const struct frl_recv_wr wr[], int n, int *ret_posted);
int verbs_srq_post(struct frl_srq *srq, const struct frl_recv_wr wr[], int n, int *ret_posted);

/* Returns the Q_Key for a datagram. Bit 31 stands for the queue pair's own Q_Key, which not all
 * devices substitute. */
static inline uint32_t verbs_qkey_for(const struct verbs_qp *qp, const struct frl_send_wr *wr)
{
	if (wr->remote_qkey & 0x80000000u)
		return atomic_load_explicit(&qp->qkey, memory_order_relaxed);
	return wr->remote_qkey;
}

/* Requests posted with one doorbell. */
enum { POST_BATCH = 16 };

/* A validated send request: its elements, without empty ones. */
struct post_wr {
	const struct frl_send_wr *wr;
	struct ibv_sge *sge;
	int n_sge;
	unsigned flags; /* enum ibv_send_flags */
};

/* post_wr.c: posts by ibv_wr_*(). Posts all requests or none. Returns 0 or an errno. */
int verbs_post_by_wr(struct verbs_qp *qp, const struct post_wr wrs[], int n);

/* events.c */

int verbs_start_events(struct verbs_device *device);
void verbs_stop_events(struct verbs_device *device);

/* stats.c */

void verbs_read_stats(struct verbs_device *device, struct frl_stats *ret_stats);
void verbs_stats(struct frl_device *device, struct frl_stats *ret_stats);

#endif
