/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion queues, queue pairs and shared receive queues. Nouns, meanings and numbers are those
 * of libibverbs.
 *
 * Threads: every function may be called from any thread; calls on one device are serialised inside.
 * Posting to one queue from several threads at once leaves their order undefined. Objects must not
 * be destroyed while another thread uses them.
 *
 * Source: InfiniBand Architecture Specification, volume 1, chapters 9 to 11, and Annex A17.
 */
#ifndef FERRULE_QUEUE_H
#define FERRULE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferrule/address.h>
#include <ferrule/error.h>
#include <ferrule/work.h>

#ifdef __cplusplus
extern "C" {
#endif

struct frl_device;
struct frl_comp_channel;
struct frl_pd;
struct frl_cq;
struct frl_qp;
struct frl_srq;

/*
 * Creates a completion queue of at least `depth` entries (1 to 65536). A queue that overruns loses
 * nothing silently: every queue pair on it goes to the error state, FRL_EVENT_CQ_ERR is raised, and
 * frl_poll_cq() answers -EOVERFLOW once the entries that fitted have been read.
 * -EINVAL, -ENOMEM.
 */
FRL_API int frl_cq_create(struct frl_device *device, uint32_t depth, struct frl_cq **ret_cq);

/* The same, with a completion channel (event.h) for frl_req_notify_cq(), and a pointer of the
 * caller's for frl_cq_context(). */
FRL_API int frl_cq_create_on_channel(struct frl_device *device, uint32_t depth,
	struct frl_comp_channel *channel, void *context, struct frl_cq **ret_cq);

FRL_API void *frl_cq_context(const struct frl_cq *cq);

/* -EBUSY while a queue pair uses it. NULL is fine. */
FRL_API int frl_cq_destroy(struct frl_cq *cq);

/*
 * Drives the device once, then takes up to `max` completions into `wc`. Where some are there
 * already it may only take them, but no more than a few times in a row, nor for more than 10 ms.
 * Returns how many, 0 when there are none, -EOVERFLOW after an overrun. -EINVAL: a bad argument.
 * -EIO: the hardware has failed, and no completion comes any more.
 */
FRL_API int frl_poll_cq(struct frl_cq *cq, int max, struct frl_wc wc[]);

/*
 * As frl_poll_cq(), but waits until there is at least one completion or `timeout_ms` have passed
 * (0 is returned then; negative: no limit). Waiting spins, then yields the processor, then sleeps.
 */
FRL_API int frl_cq_wait(struct frl_cq *cq, int max, struct frl_wc wc[], int timeout_ms);

struct frl_srq_config {
	uint32_t max_wr;  /* 1 to 16384 */
	uint32_t max_sge; /* 1 to FRL_MAX_SGE; 0: 4 */
	uint32_t limit;   /* FRL_EVENT_SRQ_LIMIT_REACHED when fewer are left; 0: none */
	void *context;    /* the caller's; frl_srq_context() */
};

/* A receive queue for several queue pairs of one protection domain. -EINVAL, -ENOMEM. */
FRL_API int frl_srq_create(
	struct frl_pd *pd, const struct frl_srq_config *config, struct frl_srq **ret_srq);

/* What is still in it is dropped. -EBUSY while a queue pair uses it. NULL is fine. */
FRL_API int frl_srq_destroy(struct frl_srq *srq);

/* Arms the limit (0: disarms it): one event when fewer requests than that are left after one was
 * taken. -EINVAL: more than max_wr. */
FRL_API int frl_srq_set_limit(struct frl_srq *srq, uint32_t limit);

/* What it was made with; `limit` is the armed one: 0 after its event. */
FRL_API void frl_srq_query(struct frl_srq *srq, struct frl_srq_config *ret_config);

FRL_API void *frl_srq_context(const struct frl_srq *srq);

/* As frl_post_recv(). */
FRL_API int frl_post_srq_recv(
	struct frl_srq *srq, const struct frl_recv_wr wr[], int n, int *ret_posted);

enum frl_qp_type {
	FRL_QPT_GSI = 1, /* QP1: as UD, with the well-known Q_Key; one a device */
	FRL_QPT_RC = 2,
	FRL_QPT_UC = 3,
	FRL_QPT_UD = 4,
};

enum frl_qp_state {
	FRL_QPS_RESET = 0,
	FRL_QPS_INIT = 1,
	FRL_QPS_RTR = 2,
	FRL_QPS_RTS = 3,
	FRL_QPS_SQD = 4, /* send queue drains: no request is started */
	FRL_QPS_SQE = 5, /* UC, UD: a send request failed; the receive queue works */
	FRL_QPS_ERR = 6,
};

FRL_API const char *frl_qp_state_str(enum frl_qp_state state);

enum frl_access {
	FRL_ACCESS_LOCAL_WRITE = 1 << 0,
	FRL_ACCESS_REMOTE_WRITE = 1 << 1,
	FRL_ACCESS_REMOTE_READ = 1 << 2,
	FRL_ACCESS_REMOTE_ATOMIC = 1 << 3,
	FRL_ACCESS_MW_BIND = 1 << 4, /* memory windows may be bound to the region */
};

struct frl_qp_config {
	enum frl_qp_type type; /* 0: RC */
	struct frl_cq *send_cq;
	struct frl_cq *recv_cq; /* may be the same */
	struct frl_srq *srq;    /* receives come from there; NULL: from a queue of its own */
	uint32_t max_send_wr;   /* 1 to 16384 */
	uint32_t max_recv_wr;   /* 0 to 16384; not looked at with an srq */
	uint32_t max_send_sge;  /* up to FRL_MAX_SGE; 0: 4 */
	uint32_t max_recv_sge;  /* up to FRL_MAX_SGE; 0: 4 */
	/* Bytes, up to FRL_MAX_INLINE. Hardware that has less refuses: -EINVAL. 0: 64, or what it
	 * has; frl_qp_query() tells. */
	uint32_t max_inline;
	bool sq_sig_all; /* every send request is signaled */
	void *context;   /* the caller's; frl_qp_context() */
};

/*
 * Creates a queue pair in RESET. The configuration is copied.
 * -EINVAL, -ENOMEM, -ENOSPC (no queue pair number left), -EBUSY (GSI: there is one already),
 * -ENOTSUP (GSI of hardware: it is the kernel's).
 */
FRL_API int frl_qp_create(
	struct frl_pd *pd, const struct frl_qp_config *config, struct frl_qp **ret_qp);

/* Drops whatever is in flight, and ends its connection (cm.h); nothing completes by that. What has
 * completed already may still come out of the completion queue, also later if a GPU has yet to
 * write its bytes. NULL is fine. */
FRL_API void frl_qp_destroy(struct frl_qp *qp);

FRL_API void *frl_qp_context(const struct frl_qp *qp);
FRL_API uint32_t frl_qp_num(const struct frl_qp *qp);

enum frl_qp_attr_mask {
	FRL_QP_STATE = 1 << 0,
	FRL_QP_CUR_STATE = 1 << 1,
	FRL_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
	FRL_QP_ACCESS_FLAGS = 1 << 3,
	FRL_QP_PKEY_INDEX = 1 << 4,
	FRL_QP_PORT = 1 << 5,
	FRL_QP_QKEY = 1 << 6,
	FRL_QP_AV = 1 << 7, /* `ah` */
	FRL_QP_PATH_MTU = 1 << 8,
	FRL_QP_TIMEOUT = 1 << 9,
	FRL_QP_RETRY_CNT = 1 << 10,
	FRL_QP_RNR_RETRY = 1 << 11,
	FRL_QP_RQ_PSN = 1 << 12,
	FRL_QP_MAX_QP_RD_ATOMIC = 1 << 13,
	FRL_QP_MIN_RNR_TIMER = 1 << 15,
	FRL_QP_SQ_PSN = 1 << 16,
	FRL_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
	FRL_QP_DEST_QPN = 1 << 20,
	FRL_QP_CAPABILITIES = 1 << 30, /* INIT to RTR only; not of verbs */
};

enum { FRL_MAX_RD_ATOMIC = 32 };

struct frl_qp_attr {
	enum frl_qp_state state;
	enum frl_qp_state cur_state; /* modify: refused unless it is this; query: as state */
	bool en_sqd_async_notify;    /* FRL_EVENT_SQ_DRAINED is wanted */
	bool sq_draining;            /* query: in SQD, requests are still under way */
	uint32_t access_flags;       /* enum frl_access: what the peer may do */
	uint16_t pkey_index;         /* 0: there is one P_Key, 0xffff */
	uint8_t port_num;            /* 1 */
	uint32_t qkey;               /* UD */
	struct frl_ah_attr ah;       /* RC, UC: the path to the peer */
	uint32_t path_mtu;           /* bytes: a power of two, 256 to that of the device */
	uint32_t dest_qpn;
	/* 24 bits: the first PSN that arrives, or is sent. Query, RC: the next one that is
	 * accepted, and the oldest that is not acknowledged (of hardware: the next one that is
	 * sent); in ERR as it was then. */
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint8_t max_rd_atomic;      /* READs and atomics that are outstanding at most, 0 to 32 */
	uint8_t max_dest_rd_atomic; /* the same of the peer */
	uint8_t min_rnr_timer;      /* 0 to 31, the AETH timer code */
	uint8_t timeout;            /* 0 to 31: local ACK timeout 4.096 us * 2^timeout; 0: none */
	uint8_t retry_cnt;     /* 0 to 7; on the local fabric a peer that lives is never given up */
	uint8_t rnr_retry;     /* 0 to 7; 7: without limit */
	uint32_t capabilities; /* enum frl_capability that both ends agreed on */
	uint32_t max_inline;   /* query: bytes that a request can carry inline; may be 0 */
};

/*
 * Moves a queue pair from state to state. `mask` says which attributes are given; a transition
 * needs and allows those that the specification lists for the type (11.2.5.2; table 94). Alternate
 * paths are not supported.
 * Where FRL_QP_AV has no dmac, blocks until ARP or ND has answered, up to 3 s; on the local fabric
 * dmac and link are then those of the link to that device, if there is one.
 * -EINVAL names the attribute that is missing, out of range or not allowed; -EHOSTUNREACH; -ENOMEM
 * (for the path's link or its next hop). Of hardware also -EIO (it has failed, or its firmware does
 * not answer), -EBUSY (try again), -EPERM (a qkey with bit 31 set needs CAP_NET_RAW), -ENOTSUP.
 * What fails changes nothing; one that has failed by itself meanwhile is in ERR: -EINVAL.
 */
FRL_API int frl_qp_modify(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask);

/*
 * Why the queue pair failed, a sentence: an error on the wire, the end of the peer's process or
 * host, an operator's wish. Copied into `text`, cut to `size`; empty while it has not failed.
 * Reset clears it. Returns `text`.
 */
FRL_API const char *frl_qp_error(struct frl_qp *qp, char *text, size_t size);

/*
 * Says which rank of this process's job is at the other end, and on which host (cut to 59
 * characters), for `ferrulectl qps` and `ferrulectl why`. Queue pairs of frl_connect() do not need
 * it. A negative rank takes it back.
 */
FRL_API void frl_qp_set_peer(struct frl_qp *qp, int rank, const char *host);

/* The current attributes. */
FRL_API void frl_qp_query(struct frl_qp *qp, struct frl_qp_attr *ret_attr);

/*
 * UD: takes, or takes no more, what is sent to a multicast group. The device also joins the group
 * by IGMP or MLD, so that switches and routers send it here. -EINVAL, -ENOMEM (too many groups).
 */
FRL_API int frl_attach_mcast(struct frl_qp *qp, const struct frl_ip *group);
FRL_API int frl_detach_mcast(struct frl_qp *qp, const struct frl_ip *group);

/*
 * Posts `n` requests in order. Returns how many were taken when all were; on failure the ones
 * before the bad one are posted, *ret_posted (may be NULL) says how many.
 * -ENOMEM: the queue is full (poll for completions, then try again); -EINVAL: bad request or the
 * queue pair is not in a state that allows it; -ENOTSUP: a receive that reduces, of hardware; -EIO:
 * the device has failed. The arrays are copied; payload memory belongs to the request until it
 * completes. Sending may begin with the call, so that it takes as long as the port needs for the
 * packets. A request that is not signaled may keep its place in the queue until one behind it has
 * completed and that was polled: hardware tells of nothing else. In ERR (send requests: also in
 * SQE) requests are taken and completed as flushed; in SQD send requests are taken and wait.
 */
FRL_API int frl_post_send(struct frl_qp *qp, const struct frl_send_wr wr[], int n, int *ret_posted);
FRL_API int frl_post_recv(struct frl_qp *qp, const struct frl_recv_wr wr[], int n, int *ret_posted);

#ifdef __cplusplus
}
#endif
#endif
