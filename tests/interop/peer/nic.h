/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs that the peer program needs, so that one program runs over libibverbs (nic_verbs.c) and
 * over Ferrule (nic_ferrule.c). All numbers (opcodes, flags, states, masks, statuses) are those of
 * libibverbs; path MTUs are in bytes. Functions return 0 or a count, or a negative errno; objects
 * are opaque to the program. One device a process, one thread.
 */
#ifndef INTEROP_NIC_H
#define INTEROP_NIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	NIC_MAX_SGE = 16,
	NIC_GID_SIZE = 16,
};

struct nic_ah_attr {
	uint8_t dgid[NIC_GID_SIZE];
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
	uint32_t flow_label;
};

struct nic_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct nic_send_wr {
	uint64_t wr_id;
	int opcode;
	unsigned flags;
	struct nic_sge sge[NIC_MAX_SGE];
	int n_sge;
	uint32_t imm_data; /* as it is on the wire, read as big endian */
	uint32_t invalidate_rkey;
	uint64_t remote_addr;
	uint32_t rkey;
	uint64_t compare_add, swap;
	void *ah;
	uint32_t remote_qpn, remote_qkey;
	void *bind_mw, *bind_mr;
	uint64_t bind_addr, bind_length;
	uint32_t bind_rkey, bind_access;
};

struct nic_recv_wr {
	uint64_t wr_id;
	struct nic_sge sge[NIC_MAX_SGE];
	int n_sge;
};

struct nic_wc {
	uint64_t wr_id;
	int status;
	int opcode;
	uint32_t byte_len;
	uint32_t imm_data; /* as in struct nic_send_wr; or the invalidated key */
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned flags;
};

struct nic_qp_config {
	int type;
	void *send_cq, *recv_cq, *srq;
	uint32_t max_send_wr, max_recv_wr, max_sge, max_inline;
};

struct nic_qp_attr {
	int state;
	uint32_t access_flags;
	uint32_t qkey;
	struct nic_ah_attr ah;
	uint32_t path_mtu;
	uint32_t dest_qpn;
	uint32_t rq_psn, sq_psn;
	uint8_t max_rd_atomic, max_dest_rd_atomic;
	uint8_t min_rnr_timer, timeout, retry_cnt, rnr_retry;
	bool en_sqd_async_notify;
};

extern const char *const nic_backend; /* "verbs" or "ferrule" */

/* `device`: a name of an RDMA device, or a port of Ferrule's; `ip`: addresses, Ferrule only. */
int nic_open(const char *device, const char *ip);
void nic_close(void);
int nic_path_mtu(void);                                 /* of the port */
int nic_gid(unsigned index, uint8_t gid[NIC_GID_SIZE]); /* -ENOENT past the last */
const char *nic_error(int err);                         /* what went wrong, for people */

int nic_mr_create(void *addr, size_t length, const uint64_t *iova, uint32_t access, void **ret_mr);
int nic_mr_destroy(void *mr);
uint32_t nic_mr_lkey(void *mr);
uint32_t nic_mr_rkey(void *mr);
int nic_mw_create(void **ret_mw);
int nic_mw_destroy(void *mw);
uint32_t nic_mw_rkey(void *mw);

/* Every completion queue has a channel of its own. */
int nic_cq_create(uint32_t depth, void **ret_cq);
int nic_cq_destroy(void *cq);
int nic_cq_poll(void *cq, struct nic_wc *ret_wc); /* 1, 0 or -errno */
int nic_cq_arm(void *cq, bool solicited_only);
int nic_cq_event(void *cq, int timeout_ms); /* 1: one came, 0: none */

int nic_srq_create(uint32_t max_wr, uint32_t max_sge, uint32_t limit, void **ret_srq);
int nic_srq_set_limit(void *srq, uint32_t limit);
int nic_srq_destroy(void *srq);

int nic_qp_create(const struct nic_qp_config *config, void **ret_qp);
int nic_qp_destroy(void *qp);
uint32_t nic_qp_num(void *qp);
int nic_qp_modify(void *qp, const struct nic_qp_attr *attr, unsigned mask);
int nic_qp_state(void *qp);

/* Datagrams to the multicast group arrive at the queue pair as well. */
int nic_qp_attach(void *qp, const uint8_t gid[NIC_GID_SIZE]);

int nic_ah_create(const struct nic_ah_attr *attr, void **ret_ah);
int nic_ah_destroy(void *ah);

int nic_post_send(void *qp, const struct nic_send_wr *wr);
int nic_post_recv(void *qp, const struct nic_recv_wr *wr);
int nic_post_srq_recv(void *srq, const struct nic_recv_wr *wr);

/* Returns the next asynchronous event's type, or -EAGAIN if none came in time. */
int nic_async_event(int timeout_ms);

/* Writes a line of counters, "name=value ...". */
void nic_counters(char *line, size_t size);

#endif
