/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completion queues and queue pairs. Nouns and meanings are those of libibverbs; the
 * numbers are, where a comment says so.
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

#include <ferrule/error.h>
#include <ferrule/reduce.h>

#ifdef __cplusplus
extern "C" {
#endif

struct frl_device;
struct frl_pd;
struct frl_cq;
struct frl_qp;

enum {
	FRL_MAX_SGE = 4,     /* scatter/gather elements of one work request */
	FRL_MAX_INLINE = 64, /* bytes that FRL_SEND_INLINE can carry */
};

/* A piece of registered memory; `lkey` is that of the region which holds all of it. */
struct frl_sge {
	void *addr;
	uint32_t length;
	uint32_t lkey;
};

/*
 * What a receive does with the payload while it is placed. COPY is what verbs do. REDUCE computes
 * dst[i] = op(src[i], payload[i]) straight out of the packet buffer, exactly once for each element
 * even when packets are sent again; `src` NULL means dst itself.
 */
enum frl_action_type {
	FRL_ACTION_COPY,
	FRL_ACTION_REDUCE,
};

struct frl_recv_action {
	enum frl_action_type type;
	enum frl_dtype dtype;
	enum frl_op op;
	/* REDUCE only: where the first operand lies, as long as the receive's elements together and
	 * in registered memory of `src_lkey`; NULL: the receive's own elements. */
	const void *src;
	uint32_t src_lkey;
};

enum frl_wr_opcode {
	FRL_WR_SEND,
	FRL_WR_SEND_WITH_IMM,
	FRL_WR_RDMA_WRITE,
	FRL_WR_RDMA_WRITE_WITH_IMM,
};

enum frl_send_flags {
	FRL_SEND_SIGNALED = 1 << 0,  /* complete with a work completion also when it succeeds */
	FRL_SEND_SOLICITED = 1 << 1, /* set the SE bit of the last packet */
	FRL_SEND_INLINE = 1 << 2,    /* copy the payload at post time; lkeys are not looked at */
};

/* The memory that the elements name must stay as it is until the request completes. */
struct frl_send_wr {
	uint64_t wr_id;
	enum frl_wr_opcode opcode;
	uint32_t flags; /* enum frl_send_flags */
	const struct frl_sge *sge;
	int n_sge;
	uint32_t imm_data;    /* passed through as it is; verbs keep it in network byte order */
	uint64_t remote_addr; /* RDMA WRITE: where, in the peer's address space */
	uint32_t rkey;
};

struct frl_recv_wr {
	uint64_t wr_id;
	const struct frl_sge *sge;
	int n_sge;
	struct frl_recv_action action; /* all zero: COPY */
};

/* The numbers are those of enum ibv_wc_status. */
enum frl_wc_status {
	FRL_WC_SUCCESS = 0,
	FRL_WC_LOC_LEN_ERR = 1,
	FRL_WC_LOC_QP_OP_ERR = 2,
	FRL_WC_LOC_PROT_ERR = 4,
	FRL_WC_WR_FLUSH_ERR = 5,
	FRL_WC_BAD_RESP_ERR = 7,
	FRL_WC_LOC_ACCESS_ERR = 8,
	FRL_WC_REM_INV_REQ_ERR = 9,
	FRL_WC_REM_ACCESS_ERR = 10,
	FRL_WC_REM_OP_ERR = 11,
	FRL_WC_RETRY_EXC_ERR = 12,
	FRL_WC_RNR_RETRY_EXC_ERR = 13,
	FRL_WC_REM_ABORT_ERR = 16, /* the link to the peer, or its process, is gone */
	FRL_WC_FATAL_ERR = 19,
};

/* A sentence about a status: what it means and where to look. Never NULL. */
FRL_API const char *frl_wc_status_str(enum frl_wc_status status);

enum frl_wc_opcode {
	FRL_WC_SEND,
	FRL_WC_RDMA_WRITE,
	FRL_WC_RECV,
	FRL_WC_RECV_RDMA_WITH_IMM,
};

enum frl_wc_flags {
	FRL_WC_WITH_IMM = 1 << 0,
};

struct frl_wc {
	uint64_t wr_id;
	enum frl_wc_status status;
	enum frl_wc_opcode opcode; /* undefined unless status is SUCCESS */
	uint32_t byte_len;         /* receives: bytes of the message */
	uint32_t imm_data;
	uint32_t qp_num; /* the local queue pair */
	uint32_t flags;  /* enum frl_wc_flags */
};

/*
 * Creates a completion queue of at least `depth` entries (1 to 65536). A queue that overruns loses
 * nothing silently: every queue pair on it goes to the error state and frl_poll_cq() answers
 * -EOVERFLOW once the entries that fitted have been read.
 * -EINVAL, -ENOMEM.
 */
FRL_API int frl_cq_create(struct frl_device *device, uint32_t depth, struct frl_cq **ret_cq);

/* -EBUSY while a queue pair uses it. NULL is fine. */
FRL_API int frl_cq_destroy(struct frl_cq *cq);

/*
 * Drives the device once and takes up to `max` completions into `wc`. Returns how many, 0 when
 * there are none, -EOVERFLOW after an overrun.
 */
FRL_API int frl_poll_cq(struct frl_cq *cq, int max, struct frl_wc wc[]);

/*
 * As frl_poll_cq(), but waits until there is at least one completion or `timeout_ms` have passed
 * (0 is returned then; negative: no limit). Waiting spins, then yields the processor, then sleeps.
 */
FRL_API int frl_cq_wait(struct frl_cq *cq, int max, struct frl_wc wc[], int timeout_ms);

enum frl_qp_state {
	FRL_QPS_RESET,
	FRL_QPS_INIT,
	FRL_QPS_RTR,
	FRL_QPS_RTS,
	FRL_QPS_ERR,
};

FRL_API const char *frl_qp_state_str(enum frl_qp_state state);

enum frl_access {
	FRL_ACCESS_LOCAL_WRITE = 1 << 0,
	FRL_ACCESS_REMOTE_WRITE = 1 << 1,
};

struct frl_qp_config {
	struct frl_cq *send_cq;
	struct frl_cq *recv_cq; /* may be the same */
	uint32_t max_send_wr;   /* 1 to 16384 */
	uint32_t max_recv_wr;   /* 0 to 16384 */
	void *context;          /* the caller's; frl_qp_context() */
};

/*
 * Creates a reliable connected (RC) queue pair in RESET. The configuration is copied.
 * -EINVAL, -ENOMEM, -ENOSPC (no queue pair number left).
 */
FRL_API int frl_qp_create(
	struct frl_pd *pd, const struct frl_qp_config *config, struct frl_qp **ret_qp);

/* Drops whatever is in flight; no completion is written for it. NULL is fine. */
FRL_API void frl_qp_destroy(struct frl_qp *qp);

FRL_API void *frl_qp_context(const struct frl_qp *qp);
FRL_API uint32_t frl_qp_num(const struct frl_qp *qp);

enum frl_qp_attr_mask {
	FRL_QP_STATE = 1 << 0,
	FRL_QP_ACCESS_FLAGS = 1 << 1,
	FRL_QP_PATH = 1 << 2, /* remote_ip, remote_mac, link, traffic_class, hop_limit */
	FRL_QP_PATH_MTU = 1 << 3,
	FRL_QP_DEST_QPN = 1 << 4,
	FRL_QP_RQ_PSN = 1 << 5,
	FRL_QP_MIN_RNR_TIMER = 1 << 6,
	FRL_QP_SQ_PSN = 1 << 7,
	FRL_QP_TIMEOUT = 1 << 8,
	FRL_QP_RETRY_CNT = 1 << 9,
	FRL_QP_RNR_RETRY = 1 << 10,
	FRL_QP_CAPABILITIES = 1 << 11,
};

/* An IPv6 address, or an IPv4 one in the form ::ffff:a.b.c.d, as in a GID. */
struct frl_ip {
	uint8_t bytes[16];
};

struct frl_qp_attr {
	enum frl_qp_state state;
	uint32_t access_flags; /* enum frl_access: what the peer may do */
	struct frl_ip remote_ip;
	uint8_t remote_mac[6]; /* of the next hop */
	uint16_t link;         /* the port's link that leads there; 0 on Ethernet */
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint32_t path_mtu; /* bytes: 256, 512, 1024, 2048 or 4096 */
	uint32_t dest_qpn;
	uint32_t rq_psn;       /* 24 bits: the first PSN that arrives */
	uint32_t sq_psn;       /* 24 bits: the first PSN that is sent */
	uint8_t min_rnr_timer; /* 0 to 31, the AETH timer code */
	uint8_t timeout;       /* 0 to 31: local ACK timeout 4.096 us * 2^timeout; 0: none */
	uint8_t retry_cnt;     /* 0 to 7; on the local fabric a peer that lives is never given up */
	uint8_t rnr_retry;     /* 0 to 7; 7: without limit */
	uint32_t capabilities; /* enum frl_capability that both ends agreed on */
};

/*
 * Moves a queue pair through RESET, INIT, RTR, RTS and ERR. `mask` says which attributes are given;
 * a transition needs and allows those that the specification lists for RC (11.2.5.2; table 94).
 * -EINVAL names the attribute that is missing, out of range or not allowed.
 */
FRL_API int frl_qp_modify(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask);

/* The current attributes. */
FRL_API void frl_qp_query(struct frl_qp *qp, struct frl_qp_attr *ret_attr);

/*
 * Posts `n` requests in order. Returns how many were taken when all were; on failure the ones
 * before the bad one are posted, *ret_posted (may be NULL) says how many.
 * -ENOMEM: the queue is full (poll for completions, then try again); -EINVAL: bad request or the
 * queue pair is not in a state that allows it. The arrays are copied; payload memory belongs to the
 * request until it completes. In ERR requests are taken and completed as flushed.
 */
FRL_API int frl_post_send(struct frl_qp *qp, const struct frl_send_wr wr[], int n, int *ret_posted);
FRL_API int frl_post_recv(struct frl_qp *qp, const struct frl_recv_wr wr[], int n, int *ret_posted);

#ifdef __cplusplus
}
#endif
#endif
