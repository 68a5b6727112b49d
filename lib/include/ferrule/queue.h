/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion queues, queue pairs and shared receive queues. Names, meanings and numbers are those
 * of libibverbs.
 *
 * Threads: any thread may call any function; calls on one device are serialised inside. If several
 * threads post to one queue at once, the order of their requests is undefined. An object must not
 * be destroyed while another thread uses it.
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
 * Creates a completion queue of at least `depth` entries (1 to 65536). Destroy it with
 * frl_cq_destroy(). An overrun is never silent: every queue pair on the queue enters the error
 * state, FRL_EVENT_CQ_ERR is raised, and frl_poll_cq() returns -EOVERFLOW once the entries that
 * fitted have been read. Returns -EINVAL or -ENOMEM on failure.
 */
FRL_API int frl_cq_create(struct frl_device *device, uint32_t depth, struct frl_cq **ret_cq);

/*
 * Creates a completion queue with a completion channel (event.h) for frl_req_notify_cq().
 * frl_cq_context() returns `context`, which the library does not use.
 */
FRL_API int frl_cq_create_on_channel(struct frl_device *device, uint32_t depth,
	struct frl_comp_channel *channel, void *context, struct frl_cq **ret_cq);

/* Returns the context given at creation, or NULL. */
FRL_API void *frl_cq_context(const struct frl_cq *cq);

/*
 * Changes the depth to at least `depth`, and keeps all entries. Other threads may use the queue
 * meanwhile. Returns -EINVAL if the queue has more than `depth` entries, or if `depth` is 0 or more
 * than max_cqe of the device. Returns -ENOMEM, and -ENOTSUP or -EIO for hardware. A failed call
 * changes nothing.
 */
FRL_API int frl_cq_resize(struct frl_cq *cq, uint32_t depth);

/* Destroys a completion queue. NULL is fine. Returns -EBUSY while a queue pair uses the queue. */
FRL_API int frl_cq_destroy(struct frl_cq *cq);

/*
 * Drives the device once, then takes up to `max` completions into `wc`. If completions are in the
 * queue already, the call may take them without driving the device, but only a few times in a row
 * and for at most 10 ms. Returns the number of completions, or 0 if there are none. Returns
 * -EOVERFLOW after an overrun and -EINVAL for a bad argument. Returns -EIO if the hardware has
 * failed; no completion follows.
 */
FRL_API int frl_poll_cq(struct frl_cq *cq, int max, struct frl_wc wc[]);

/*
 * Waits until there is at least one completion, then returns as frl_poll_cq() does. Returns 0 once
 * `timeout_ms` have passed (negative: no limit). Waiting spins, then yields the processor, then
 * sleeps.
 */
FRL_API int frl_cq_wait(struct frl_cq *cq, int max, struct frl_wc wc[], int timeout_ms);

struct frl_srq_config {
	uint32_t max_wr;  /* 1 to 16384 */
	uint32_t max_sge; /* 1 to FRL_MAX_SGE; 0: 4 */
	uint32_t limit;   /* FRL_EVENT_SRQ_LIMIT_REACHED when fewer requests are left; 0: none */
	void *context;    /* the caller's pointer; frl_srq_context() returns it */
	/* Posts do not check elements. A receive with a wrong element fails the queue pair that
	 * takes it, with FRL_WC_LOC_PROT_ERR, as with hardware. */
	bool as_hardware;
};

/*
 * Creates a receive queue for several queue pairs. Receives use memory of `pd`. Destroy it with
 * frl_srq_destroy(). Returns -EINVAL or -ENOMEM on failure.
 */
FRL_API int frl_srq_create(
	struct frl_pd *pd, const struct frl_srq_config *config, struct frl_srq **ret_srq);

/*
 * Destroys a shared receive queue and discards its posted receives. NULL is fine. Returns -EBUSY
 * while a queue pair uses the queue.
 */
FRL_API int frl_srq_destroy(struct frl_srq *srq);

/*
 * Arms the limit; 0 disarms it. FRL_EVENT_SRQ_LIMIT_REACHED is raised once, when a receive is taken
 * and fewer than `limit` are left. Returns -EINVAL if `limit` is more than max_wr.
 */
FRL_API int frl_srq_set_limit(struct frl_srq *srq, uint32_t limit);

/*
 * Copies the configuration that the queue was created with. `limit` is the armed limit: 0 after its
 * event.
 */
FRL_API void frl_srq_query(struct frl_srq *srq, struct frl_srq_config *ret_config);

/* Returns the context given at creation. */
FRL_API void *frl_srq_context(const struct frl_srq *srq);

/* Posts receives to a shared receive queue, as frl_post_recv() does to a queue pair. */
FRL_API int frl_post_srq_recv(
	struct frl_srq *srq, const struct frl_recv_wr wr[], int n, int *ret_posted);

enum frl_qp_type {
	FRL_QPT_GSI = 1, /* QP1: as UD, with the well-known Q_Key; one per device */
	FRL_QPT_RC = 2,
	FRL_QPT_UC = 3,
	FRL_QPT_UD = 4,
};

enum frl_qp_state {
	FRL_QPS_RESET = 0,
	FRL_QPS_INIT = 1,
	FRL_QPS_RTR = 2,
	FRL_QPS_RTS = 3,
	FRL_QPS_SQD = 4, /* send queue drains: no new request is started */
	FRL_QPS_SQE = 5, /* UC, UD: a send request failed; the receive queue works */
	FRL_QPS_ERR = 6,
};

/* Returns the name of a state. Never NULL. */
FRL_API const char *frl_qp_state_str(enum frl_qp_state state);

enum frl_access {
	FRL_ACCESS_LOCAL_WRITE = 1 << 0,
	FRL_ACCESS_REMOTE_WRITE = 1 << 1,
	FRL_ACCESS_REMOTE_READ = 1 << 2,
	FRL_ACCESS_REMOTE_ATOMIC = 1 << 3,
	FRL_ACCESS_MW_BIND = 1 << 4, /* memory windows may be bound to the region */
	/* The memory may be unmapped before frl_dereg_mr(): see frl_reg_mr(). */
	FRL_ACCESS_MAY_UNMAP = 1 << 16,
};

struct frl_qp_config {
	enum frl_qp_type type; /* 0: FRL_QPT_RC */
	struct frl_cq *send_cq;
	struct frl_cq *recv_cq; /* may be send_cq */
	struct frl_srq *srq;    /* takes receives from this queue; NULL: has a receive queue of its
				 * own */
	uint32_t max_send_wr;   /* 1 to 16384 */
	uint32_t max_recv_wr;   /* 0 to 16384; ignored with an srq */
	uint32_t max_send_sge;  /* up to FRL_MAX_SGE; 0: 4 */
	uint32_t max_recv_sge;  /* up to FRL_MAX_SGE; 0: 4 */
	/*
	 * Bytes, up to FRL_MAX_INLINE. Returns -EINVAL if the hardware supports less. 0: 64, or the
	 * hardware's maximum; frl_qp_query() returns the value.
	 */
	uint32_t max_inline;
	bool sq_sig_all; /* all send requests are signaled */
	/*
	 * The software device is as strict as hardware:
	 *
	 * - Local fabric, RC: timeout and retry_cnt hold as on networks. A request to a queue pair
	 *   that does not exist, or is in RESET, INIT or ERR, ends with FRL_WC_RETRY_EXC_ERR. The
	 *   timeout is at least code 16 (268 ms), unless it is 0, as a peer may wait for a
	 *   processor. Without this option, requests are repeated while the peer's device lives,
	 *   and those to a queue pair that has ended fail at once. Set it at both ends: a queue
	 *   pair with the option does not report its end to one without.
	 * - Local fabric: the end of the peer's process fails RC requests at once, with
	 *   FRL_WC_REM_ABORT_ERR. A queue pair without requests does not notice it, and UC requests
	 *   complete with success; without the option both fail.
	 * - Posts do not check elements: a wrong key or range completes the request with
	 *   FRL_WC_LOC_PROT_ERR. (Receives of a shared queue: see frl_srq_config. Receives with an
	 *   action are checked.)
	 * - A signaled send request keeps its place in the queue until its completion is polled.
	 * - A reset, and frl_qp_destroy(), remove completions that were not polled.
	 *
	 * Hardware ignores the option.
	 */
	bool as_hardware;
	void *context; /* the caller's pointer; frl_qp_context() returns it */
};

/*
 * Creates a queue pair in RESET. The configuration is copied. Destroy it with frl_qp_destroy().
 * Returns -EINVAL, -ENOMEM, -ENOSPC (no queue pair number is free), -EBUSY (GSI: the device has one
 * already) or -ENOTSUP (GSI of hardware: the kernel owns it).
 */
FRL_API int frl_qp_create(
	struct frl_pd *pd, const struct frl_qp_config *config, struct frl_qp **ret_qp);

/*
 * Destroys a queue pair. Requests in flight are discarded without a completion, and its connection
 * (cm.h) ends. Earlier completions may still come out of the completion queue, with a delay if a
 * GPU has yet to write the payload. NULL is fine.
 */
FRL_API void frl_qp_destroy(struct frl_qp *qp);

/* Return the context given at creation, and the queue pair number. */
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
	FRL_QP_CAPABILITIES = 1 << 30, /* INIT to RTR only; not in verbs */
};

enum { FRL_MAX_RD_ATOMIC = 32 };

struct frl_qp_attr {
	enum frl_qp_state state;
	enum frl_qp_state cur_state; /* modify: fails if the state differs; query: same as state */
	bool en_sqd_async_notify;    /* raise FRL_EVENT_SQ_DRAINED */
	bool sq_draining;            /* query: in SQD, requests are still in flight */
	uint32_t access_flags;       /* enum frl_access: what the peer may do */
	uint16_t pkey_index;         /* 0: the only P_Key is 0xffff */
	uint8_t port_num;            /* 1 */
	uint32_t qkey;               /* UD */
	struct frl_ah_attr ah;       /* RC, UC: the path to the peer */
	uint32_t path_mtu;           /* bytes: a power of two, 256 to the device's path MTU */
	uint32_t dest_qpn;
	/*
	 * 24 bits: the first PSN that is received or sent. Query of an RC queue pair: rq_psn is the
	 * next expected PSN, sq_psn the oldest unacknowledged one (hardware: the next one to send).
	 * In ERR both keep their last values.
	 */
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint8_t max_rd_atomic;      /* 0 to 32: outstanding READs and atomics as requester */
	uint8_t max_dest_rd_atomic; /* 0 to 32: the same as responder */
	uint8_t min_rnr_timer;      /* 0 to 31, the AETH timer code */
	uint8_t timeout;            /* 0 to 31: local ACK timeout 4.096 us * 2^timeout; 0: none */
	uint8_t retry_cnt;          /* 0 to 7; the local fabric retries without limit while the peer
			        * lives, except with as_hardware */
	uint8_t rnr_retry;          /* 0 to 7; 7: without limit */
	uint32_t capabilities;      /* enum frl_capability that both ends agreed on; see
			        * frl_qp_modify() */
	uint32_t max_inline;        /* query: bytes that a request can carry inline, may be 0 */
};

/*
 * Moves a queue pair to another state or changes its attributes. `mask` names the attributes that
 * are given. Each transition requires and allows the attributes that the specification lists for
 * the type (11.2.5.2; table 94). Alternate paths are not supported.
 *
 * FRL_QP_AV without a dmac blocks until ARP or ND has answered, up to 3 s. On the local fabric it
 * makes a link to the device with that GID, unless there is one, and sets dmac and link. That takes
 * about a millisecond. The peer's application need not make any call. Both processes must have the
 * same effective user; frl_connect() and frl_qp_connect() connect processes of different users.
 *
 * RC and UC on the local fabric: without FRL_QP_CAPABILITIES and without a dmac, the transition to
 * RTR sets the capabilities that the devices at both ends of the link have. Give
 * FRL_QP_CAPABILITIES, or a dmac, at both ends or at neither. frl_qp_connect() agrees on the same
 * capabilities. Datagrams always have an ICRC.
 *
 * Returns -EINVAL (frl_last_error() names the attribute that is missing, out of range or not
 * allowed, or that path_mtu is larger than that of the peer's device), -EHOSTUNREACH, or -ENOMEM
 * (for the path's link or its next hop). On the local fabric, FRL_QP_AV without a dmac may also
 * return -EACCES (the peer has another user) and -ENOSPC (too many links). Hardware also returns
 * -EIO (it has failed, or its firmware does not answer), -EBUSY (try again), -EPERM (a qkey with
 * bit 31 set needs CAP_NET_RAW) and -ENOTSUP. A failed call changes nothing. A queue pair that
 * failed by itself in the meantime is in ERR: -EINVAL.
 */
FRL_API int frl_qp_modify(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask);

/*
 * Copies one sentence about why the queue pair failed, such as an error on the wire, the end of the
 * peer's process or host, or an operator's command. The text is cut to `size` bytes, and is empty
 * if the queue pair has not failed. A reset clears it. Returns `text`.
 */
FRL_API const char *frl_qp_error(struct frl_qp *qp, char *text, size_t size);

/*
 * Sets the peer's rank in this process's job, and its host (cut to 59 characters), for `ferrulectl
 * qps` and `ferrulectl why`. Queue pairs of frl_connect() do not need this call. A negative rank
 * removes the entry.
 */
FRL_API void frl_qp_set_peer(struct frl_qp *qp, int rank, const char *host);

/* Copies the current attributes. */
FRL_API void frl_qp_query(struct frl_qp *qp, struct frl_qp_attr *ret_attr);

/*
 * UD: starts, or ends, the reception of a multicast group. The device also joins the group by IGMP
 * or MLD, so that switches and routers forward the group here. On the local fabric it makes links
 * to the senders instead: see frl_ah_create(). Returns -EINVAL or -ENOMEM (too many groups).
 */
FRL_API int frl_attach_mcast(struct frl_qp *qp, const struct frl_ip *group);
FRL_API int frl_detach_mcast(struct frl_qp *qp, const struct frl_ip *group);

/*
 * Posts `n` requests in order. Returns `n` if all were posted. On failure the requests before the
 * bad one are posted, and *ret_posted (may be NULL) is their number. The arrays are copied; payload
 * memory belongs to the request until it completes.
 *
 * Sending may start within the call, which then takes as long as the port needs for the packets. An
 * unsignaled request may keep its place in the queue until a later request has completed and that
 * completion was polled, because hardware reports nothing else. In ERR (send requests: also in SQE)
 * requests are accepted and completed as flushed; in SQD send requests are accepted and wait.
 *
 * Returns -ENOMEM if the queue is full (poll for completions, then try again), -EINVAL if a request
 * is bad or the queue pair's state does not allow it, -ENOTSUP for a receive that reduces on
 * hardware, and -EIO if the device has failed.
 */
FRL_API int frl_post_send(struct frl_qp *qp, const struct frl_send_wr wr[], int n, int *ret_posted);
FRL_API int frl_post_recv(struct frl_qp *qp, const struct frl_recv_wr wr[], int n, int *ret_posted);

/*
 * Posts all `n` send requests, or none of them: after a failure nothing is sent, bound or
 * completed. Returns 0, or an error as frl_post_send() does.
 *
 * Hardware posts several requests in this way only if its provider has ibv_wr_*(). They can be up
 * to 16, and only the last one can be BIND_MW. Returns -ENOTSUP for others.
 */
FRL_API int frl_post_send_all(struct frl_qp *qp, const struct frl_send_wr wr[], int n);

#ifdef __cplusplus
}
#endif
#endif
