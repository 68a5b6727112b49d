/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work requests and their completions. Names, meanings and numbers are those of libibverbs.
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

/*
 * A piece of registered memory. `lkey` is that of a region that contains the whole piece. `addr` is
 * an address in the region's address space: a pointer, unless the region was registered with an
 * iova.
 */
struct frl_sge {
	void *addr;
	uint32_t length;
	uint32_t lkey;
};

/*
 * Actions of a receive on its payload. COPY is the action of verbs. REDUCE computes dst[i] =
 * op(src[i], payload[i]) directly from the packet buffer, exactly once for each element even if
 * packets are retransmitted. `src` NULL means dst itself. REDUCE is for RC queue pairs of devices
 * that support it (frl_device_attr.reduces_on_receive).
 */
enum frl_action_type {
	FRL_ACTION_COPY,
	FRL_ACTION_REDUCE,
};

struct frl_recv_action {
	enum frl_action_type type;
	enum frl_dtype dtype;
	enum frl_op op;
	/*
	 * REDUCE only: the first operand, as long as all elements of the receive, in registered
	 * memory of `src_lkey`. NULL: the receive's own elements.
	 */
	const void *src;
	uint32_t src_lkey;
};

/*
 * Opcodes of send requests. Queue pairs support:
 *
 * 	RC	all opcodes
 * 	UC	SEND, RDMA_WRITE, both also with immediate, LOCAL_INV, BIND_MW
 * 	UD, GSI	SEND, SEND_WITH_IMM
 *
 * A receiver may poll memory that RDMA_WRITEs change, instead of completions, if a software device
 * places the payload in host memory:
 *
 * - A load of an aligned word of 8, 4, 2 or 1 bytes returns the old or the new value, never a mix,
 *   if the WRITE starts at a multiple of the word's size in memory.
 * - A load with acquire order that returns the new last word of a WRITE guarantees that all bytes
 *   of this WRITE are visible. With RC all earlier WRITEs of the same queue pair are visible too.
 * - The last 8 bytes of an aligned line of 128 give the same guarantee for the line.
 *
 * Other orders, and the memory of a failed WRITE, are unspecified. GPU memory and fragments have no
 * such guarantee. RDMA NICs have that of the hardware.
 */
enum frl_wr_opcode {
	FRL_WR_RDMA_WRITE = 0,
	FRL_WR_RDMA_WRITE_WITH_IMM = 1,
	FRL_WR_SEND = 2,
	FRL_WR_SEND_WITH_IMM = 3,
	FRL_WR_RDMA_READ = 4,
	FRL_WR_ATOMIC_CMP_AND_SWP = 5,
	FRL_WR_ATOMIC_FETCH_AND_ADD = 6,
	FRL_WR_LOCAL_INV = 7, /* invalidates the local window of invalidate_rkey */
	FRL_WR_BIND_MW = 8,
	FRL_WR_SEND_WITH_INV = 9, /* invalidates the peer's window of invalidate_rkey */
};

enum frl_send_flags {
	FRL_SEND_FENCE = 1 << 0,     /* starts after all earlier READs and atomics have completed */
	FRL_SEND_SIGNALED = 1 << 1,  /* write a work completion on success too */
	FRL_SEND_SOLICITED = 1 << 2, /* SEND, WRITE with immediate: a solicited event at the peer */
	FRL_SEND_INLINE = 1 << 3,    /* SEND, WRITE: copy the payload at post time; addr is a
				      * pointer, lkeys are ignored */
};

/*
 * The range that BIND_MW binds a type 2 window to. `rkey` is the window's new key: that of
 * frl_mw_rkey() with another low byte (frl_inc_rkey()). The region needs FRL_ACCESS_MW_BIND.
 */
struct frl_mw_bind {
	struct frl_mw *mw;
	struct frl_mr *mr;
	uint64_t addr; /* in the region's address space */
	uint64_t length;
	uint32_t rkey;
	uint32_t access; /* remote rights of enum frl_access */
};

/* A send request. The memory of its elements must not change until the request completes. */
struct frl_send_wr {
	uint64_t wr_id;
	enum frl_wr_opcode opcode;
	uint32_t flags; /* enum frl_send_flags */
	const struct frl_sge *sge;
	int n_sge;
	union {
		uint32_t imm_data; /* sent unchanged; verbs keep it in network byte order */
		uint32_t invalidate_rkey;
	};
	/*
	 * RDMA and atomics: the address in the peer's address space. Atomics: 8 aligned bytes; the
	 * elements receive the previous 8 bytes, in host order.
	 */
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t compare_add; /* CMP_AND_SWP: compare with; FETCH_AND_ADD: add */
	uint64_t swap;        /* CMP_AND_SWP: what to store when equal */
	/* Datagrams: the destination. */
	struct frl_ah *ah;
	uint32_t remote_qpn;     /* 0xffffff for a multicast group */
	uint32_t remote_qkey;    /* if bit 31 is set, the queue pair's own Q_Key is sent (IBTA
				  * 10.2.5) */
	struct frl_mw_bind bind; /* BIND_MW */
	uint64_t keep;           /* RC, SEND and WRITE: `keep` of struct frl_recv_wr; 0: none */
};

struct frl_recv_wr {
	uint64_t wr_id;
	/* Datagrams: the first FRL_GRH_SIZE bytes receive the header; see frl_ah_attr_from_wc(). */
	const struct frl_sge *sge;
	int n_sge;
	struct frl_recv_action action; /* all zero: COPY */
	/*
	 * A number that links this receive to the request that will send its result; 0: none. It is
	 * for RC queue pairs of a software device that receive into GPU memory. Give the same
	 * number to the request that will send the received data, or its reduction, unchanged from
	 * the same place.
	 *
	 * The device may then keep packets, and send them without fetching their bytes from the
	 * GPU. A packet is sent in this way at most once, and only if the request divides the same
	 * addresses into the same packets. Otherwise the bytes are fetched as usual. Only this
	 * device may write to the memory between the receive and the request.
	 *
	 * Do not reuse a number for other bytes at the same address. Numbers from 2^63 on are
	 * reserved for Ferrule's collectives; this is not checked. Set the field to 0 if it is not
	 * used: an uninitialised value sends stale bytes.
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
	FRL_WC_REM_ABORT_ERR = 16, /* the link to the peer is down, or its process has exited */
	FRL_WC_FATAL_ERR = 19,
	FRL_WC_RESP_TIMEOUT_ERR = 20,
	FRL_WC_GENERAL_ERR = 21,
};

/* Returns a sentence about a status: what it means and where to look. Never NULL. */
FRL_API const char *frl_wc_status_str(enum frl_wc_status status);

enum frl_wc_opcode {
	FRL_WC_SEND = 0,
	FRL_WC_RDMA_WRITE = 1,
	FRL_WC_RDMA_READ = 2,
	FRL_WC_COMP_SWAP = 3,
	FRL_WC_FETCH_ADD = 4,
	FRL_WC_BIND_MW = 5,
	FRL_WC_LOCAL_INV = 6,
	FRL_WC_RECV = 128, /* this bit is set in all receive opcodes */
	FRL_WC_RECV_RDMA_WITH_IMM = 129,
};

enum frl_wc_flags {
	FRL_WC_GRH = 1 << 0, /* datagrams: the first FRL_GRH_SIZE bytes are a header */
	FRL_WC_WITH_IMM = 1 << 1,
	FRL_WC_WITH_INV = 1 << 3, /* the peer has invalidated invalidated_rkey */
	/* Datagrams on a software device: the header is IPv4's, in the last 20 of the FRL_GRH_SIZE
	 * bytes. Otherwise it is IPv6's. Not in verbs; hardware does not set it. */
	FRL_WC_IPV4 = 1 << 16,
};

/*
 * A work completion. After a failed receive of an RC queue pair, byte_len is the length of the
 * message's valid part, copied or reduced: the first byte_len bytes, in whole packets. 0: no
 * message had begun. The bytes after the valid part depend on the status:
 *
 * 	REM_ABORT_ERR	the bytes of one packet are undefined
 * 	all others	unchanged: a receiver that gets the rest of the message in another way
 * 			can continue from there
 *
 * byte_len is 0 for all other failed requests. Hardware does not report the valid part: byte_len is
 * always 0 after an error, and the memory of a failed receive is undefined.
 */
struct frl_wc {
	uint64_t wr_id;
	enum frl_wc_status status;
	enum frl_wc_opcode opcode; /* undefined after an error, like all later fields but byte_len
				    * and qp_num */
	uint32_t byte_len;         /* receives, READ and atomics: bytes; datagrams: with the GRH;
				    * errors: see above */
	union {
		uint32_t imm_data;
		uint32_t invalidated_rkey;
	};
	uint32_t qp_num; /* the local queue pair; also after an error */
	uint32_t src_qp; /* datagrams: the sender's queue pair */
	uint32_t flags;  /* enum frl_wc_flags */
	uint16_t pkey_index;
	uint16_t vlan; /* datagrams: the VLAN of the packet, 0: untagged */
	uint8_t sl;    /* datagrams: the priority of the packet */
};

#ifdef __cplusplus
}
#endif
#endif
