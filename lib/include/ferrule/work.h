/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work requests and their completions. Nouns, meanings and numbers are those of libibverbs.
 *
 * Source: InfiniBand Architecture Specification, volume 1, 11.4 (work requests, completions).
 */
#ifndef FERRULE_WORK_H
#define FERRULE_WORK_H

#include <stdint.h>

#include <ferrule/error.h>
#include <ferrule/reduce.h>

#ifdef __cplusplus
extern "C" {
#endif

struct frl_ah;
struct frl_mr;
struct frl_mw;

enum {
	FRL_MAX_SGE = 16,     /* scatter/gather elements of one work request, at most */
	FRL_MAX_INLINE = 256, /* bytes that FRL_SEND_INLINE can carry, at most */
};

/* A piece of registered memory; `lkey` is that of the region which holds all of it. `addr` is an
 * address in the region's own address space: a pointer, unless it was registered with an iova. */
struct frl_sge {
	void *addr;
	uint32_t length;
	uint32_t lkey;
};

/*
 * What a receive does with the payload while it is placed. COPY is what verbs do. REDUCE computes
 * dst[i] = op(src[i], payload[i]) straight out of the packet buffer, exactly once for each element
 * even when packets are sent again; `src` NULL means dst itself. REDUCE is for RC only, of devices
 * that can do it (frl_device_attr.reduces_on_receive).
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

/*
 * Polling memory that RDMA_WRITEs change, in place of completions, works where a software device
 * places the payload in host memory:
 * - An aligned word of 8, 4, 2 or 1 bytes is seen old or new, never as a mix, if the WRITE starts
 *   at a multiple of the word's size in memory.
 * - Once the last such word of a WRITE is seen new, by a load with acquire order, so are all bytes
 *   of this WRITE and, with RC, of those posted before it to the same queue pair.
 * - Likewise the last 8 bytes of an aligned line of 128, for the line.
 * Other orders are unspecified, and so is what a failed WRITE leaves behind. Memory of GPUs and
 * fragments have no such guarantee, RDMA NICs that of the hardware.
 *
 * Which queue pairs take what:
 *	RC	all of them
 *	UC	SEND, RDMA_WRITE, both also with immediate, LOCAL_INV, BIND_MW
 *	UD, GSI	SEND, SEND_WITH_IMM
 */
enum frl_wr_opcode {
	FRL_WR_RDMA_WRITE = 0,
	FRL_WR_RDMA_WRITE_WITH_IMM = 1,
	FRL_WR_SEND = 2,
	FRL_WR_SEND_WITH_IMM = 3,
	FRL_WR_RDMA_READ = 4,
	FRL_WR_ATOMIC_CMP_AND_SWP = 5,
	FRL_WR_ATOMIC_FETCH_AND_ADD = 6,
	FRL_WR_LOCAL_INV = 7, /* invalidates the window of invalidate_rkey */
	FRL_WR_BIND_MW = 8,
	FRL_WR_SEND_WITH_INV = 9, /* the peer's window of invalidate_rkey is invalidated */
};

enum frl_send_flags {
	FRL_SEND_FENCE = 1 << 0,     /* starts after all READs and atomics before it are done */
	FRL_SEND_SIGNALED = 1 << 1,  /* complete with a work completion also when it succeeds */
	FRL_SEND_SOLICITED = 1 << 2, /* SEND, WRITE with immediate: a solicited event at the peer */
	FRL_SEND_INLINE = 1 << 3,    /* SEND, WRITE: copy the payload at post time; addr is a
				      * pointer and lkeys are not looked at */
};

/* What BIND_MW binds a type 2 window to. `rkey` is the window's new key: that of frl_mw_rkey() with
 * another low byte (frl_inc_rkey()). The region needs FRL_ACCESS_MW_BIND. */
struct frl_mw_bind {
	struct frl_mw *mw;
	struct frl_mr *mr;
	uint64_t addr; /* in the region's address space */
	uint64_t length;
	uint32_t rkey;
	uint32_t access; /* remote rights of enum frl_access */
};

/* The memory that the elements name must stay as it is until the request completes. */
struct frl_send_wr {
	uint64_t wr_id;
	enum frl_wr_opcode opcode;
	uint32_t flags; /* enum frl_send_flags */
	const struct frl_sge *sge;
	int n_sge;
	union {
		uint32_t
			imm_data; /* passed through as it is; verbs keep it in network byte order */
		uint32_t invalidate_rkey;
	};
	/* RDMA and atomics: where, in the peer's address space. Atomics: 8 bytes, aligned; the
	 * elements receive the 8 bytes that were there, in host order. */
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t compare_add; /* CMP_AND_SWP: compare with; FETCH_AND_ADD: add */
	uint64_t swap;        /* CMP_AND_SWP: what to store when equal */
	/* Datagrams: to whom. */
	struct frl_ah *ah;
	uint32_t remote_qpn;     /* 0xffffff to a multicast group */
	uint32_t remote_qkey;    /* with bit 31 set: the queue pair's own is sent (IBTA 10.2.5) */
	struct frl_mw_bind bind; /* BIND_MW */
	uint64_t keep;           /* RC, SEND and WRITE: that of struct frl_recv_wr; 0: none */
};

struct frl_recv_wr {
	uint64_t wr_id;
	/* Datagrams: the first FRL_GRH_SIZE bytes are for the header; see frl_ah_attr_from_wc(). */
	const struct frl_sge *sge;
	int n_sge;
	struct frl_recv_action action; /* all zero: COPY */
	/*
	 * RC, into memory of a GPU with a software device: what comes, or what a reduction makes of
	 * it, will be sent from there soon, as it is, by a request that has the same number here;
	 * 0: nobody knows. The device may then keep packets, and send these without asking the GPU
	 * for their bytes again. Each is sent so once at most, and only where the request cuts the
	 * same addresses into the same packets; otherwise the bytes are fetched as ever. Between
	 * the receive and the request nobody but this device may write there. Numbers are not to be
	 * used again for other bytes at the same address; those from 2^63 on are for Ferrule's
	 * collectives, which nothing checks. Requests that do not mean this must say so: like all
	 * that is not used, it is to be zero, and one left as the stack had it sends old bytes.
	 */
	uint64_t keep;
};

enum frl_wc_status {
	FRL_WC_SUCCESS = 0,
	FRL_WC_LOC_LEN_ERR = 1,
	FRL_WC_LOC_QP_OP_ERR = 2,
	FRL_WC_LOC_PROT_ERR = 4,
	FRL_WC_WR_FLUSH_ERR = 5,
	FRL_WC_MW_BIND_ERR = 6,
	FRL_WC_BAD_RESP_ERR = 7,
	FRL_WC_LOC_ACCESS_ERR = 8,
	FRL_WC_REM_INV_REQ_ERR = 9,
	FRL_WC_REM_ACCESS_ERR = 10,
	FRL_WC_REM_OP_ERR = 11,
	FRL_WC_RETRY_EXC_ERR = 12,
	FRL_WC_RNR_RETRY_EXC_ERR = 13,
	FRL_WC_REM_INV_RD_REQ_ERR = 15,
	FRL_WC_REM_ABORT_ERR = 16, /* the link to the peer, or its process, is gone */
	FRL_WC_FATAL_ERR = 19,
	FRL_WC_RESP_TIMEOUT_ERR = 20,
	FRL_WC_GENERAL_ERR = 21,
};

/* A sentence about a status: what it means and where to look. Never NULL. */
FRL_API const char *frl_wc_status_str(enum frl_wc_status status);

enum frl_wc_opcode {
	FRL_WC_SEND = 0,
	FRL_WC_RDMA_WRITE = 1,
	FRL_WC_RDMA_READ = 2,
	FRL_WC_COMP_SWAP = 3,
	FRL_WC_FETCH_ADD = 4,
	FRL_WC_BIND_MW = 5,
	FRL_WC_LOCAL_INV = 6,
	FRL_WC_RECV = 128, /* receives have this bit */
	FRL_WC_RECV_RDMA_WITH_IMM = 129,
};

enum frl_wc_flags {
	FRL_WC_GRH = 1 << 0, /* datagrams: the first FRL_GRH_SIZE bytes are a header */
	FRL_WC_WITH_IMM = 1 << 1,
	FRL_WC_WITH_INV = 1 << 3, /* the peer had invalidated_rkey invalidated */
};

/*
 * Of a receive of an RC queue pair that does not succeed byte_len says how much of a message is in
 * its memory, copied or reduced: the first byte_len bytes, in whole packets; 0: no message had
 * begun. Behind them
 *
 *	REM_ABORT_ERR	the bytes of one packet may be anything
 *	all others	nothing has been touched: who gets the rest of the message in another way
 *			can go on from there
 *
 * All other requests that do not succeed have 0 there. Hardware does not tell: it has 0 always,
 * and the memory of a receive that fails may be anything.
 */
struct frl_wc {
	uint64_t wr_id;
	enum frl_wc_status status;
	enum frl_wc_opcode opcode; /* undefined unless status is SUCCESS, as all that follows, */
	uint32_t byte_len;         /* but this. Receives, READ and atomics: bytes; datagrams: with
				    * the GRH */
	union {
		uint32_t imm_data;
		uint32_t invalidated_rkey;
	};
	uint32_t qp_num; /* the local queue pair; also with errors */
	uint32_t src_qp; /* datagrams: the sender's queue pair */
	uint32_t flags;  /* enum frl_wc_flags */
	uint16_t pkey_index;
	uint16_t vlan; /* datagrams: the VLAN it came on, 0: untagged */
	uint8_t sl;    /* datagrams: its priority */
};

#ifdef __cplusplus
}
#endif
#endif
