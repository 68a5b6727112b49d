/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The binary interface between programs and this library, checked by the compiler: sizes and
 * offsets that are compiled into programs, and numbers that are passed on unchanged. No code.
 *
 * The numbers hold for rdma-core 34 to 65 on x86-64 and arm64. ABI_AT_LEAST() is for structures
 * that later releases have extended.
 */
#ifndef FERRULE_DROPIN_IBVERBS_ABI_H
#define FERRULE_DROPIN_IBVERBS_ABI_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stddef.h>

#include <ferrule/device.h>
#include <ferrule/event.h>
#include <ferrule/memory.h>
#include <ferrule/queue.h>
#include <ferrule/work.h>

/* The mutex of the C library has 40 bytes on x86-64, and 48 on arm64. */
#define ABI_MUTEX                (sizeof(pthread_mutex_t) - 40)
#define ABI_SIZE(type, size)     _Static_assert(sizeof(struct type) == (size), "size of " #type)
#define ABI_AT_LEAST(type, size) _Static_assert(sizeof(struct type) >= (size), "size of " #type)
#define ABI_OFFSET(type, member, at) \
	_Static_assert(offsetof(struct type, member) == (at), "place of " #type "." #member)
#define ABI_EQUAL(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
#define ABI_SAME_PLACE(a, b, member)                                                        \
	_Static_assert(offsetof(struct a, member) == offsetof(struct b, member) &&          \
			sizeof(((struct a *)0)->member) == sizeof(((struct b *)0)->member), \
		"place of " #a "." #member)

/* ---- devices and contexts */

ABI_SIZE(ibv_device, 664);
ABI_OFFSET(ibv_device, node_type, 16);
ABI_OFFSET(ibv_device, transport_type, 20);
ABI_OFFSET(ibv_device, name, 24);
ABI_OFFSET(ibv_device, dev_name, 88);
ABI_OFFSET(ibv_device, dev_path, 152);
ABI_OFFSET(ibv_device, ibdev_path, 408);

ABI_SIZE(ibv_context, 328 + ABI_MUTEX);
ABI_OFFSET(ibv_context, device, 0);
ABI_OFFSET(ibv_context, ops, 8);
ABI_OFFSET(ibv_context, cmd_fd, 264);
ABI_OFFSET(ibv_context, async_fd, 268);
ABI_OFFSET(ibv_context, num_comp_vectors, 272);
ABI_OFFSET(ibv_context, mutex, 280);
ABI_OFFSET(ibv_context, abi_compat, 320 + ABI_MUTEX);

ABI_SIZE(ibv_context_ops, 256);
ABI_OFFSET(ibv_context_ops, _compat_query_device, 0);
ABI_OFFSET(ibv_context_ops, _compat_query_port, 8);
ABI_OFFSET(ibv_context_ops, alloc_mw, 56);
ABI_OFFSET(ibv_context_ops, bind_mw, 64);
ABI_OFFSET(ibv_context_ops, dealloc_mw, 72);
ABI_OFFSET(ibv_context_ops, poll_cq, 88);
ABI_OFFSET(ibv_context_ops, req_notify_cq, 96);
ABI_OFFSET(ibv_context_ops, post_srq_recv, 160);
ABI_OFFSET(ibv_context_ops, post_send, 200);
ABI_OFFSET(ibv_context_ops, post_recv, 208);

/* It grows at its start: programs find a member by its distance to `context`, which is the end. */
#define ABI_FROM_CONTEXT(member, distance)                                \
	_Static_assert(offsetof(struct verbs_context, context) -          \
				offsetof(struct verbs_context, member) == \
			(distance),                                       \
		"place of verbs_context." #member)
ABI_AT_LEAST(verbs_context, 648 + ABI_MUTEX);
_Static_assert(offsetof(struct verbs_context, context) + sizeof(struct ibv_context) ==
		sizeof(struct verbs_context),
	"verbs_context.context is last");
ABI_FROM_CONTEXT(sz, 8);
ABI_FROM_CONTEXT(close_xrcd, 24);
ABI_FROM_CONTEXT(open_xrcd, 32);
ABI_FROM_CONTEXT(create_srq_ex, 40);
ABI_FROM_CONTEXT(get_srq_num, 48);
ABI_FROM_CONTEXT(create_qp_ex, 56);
ABI_FROM_CONTEXT(open_qp, 64);
ABI_FROM_CONTEXT(ibv_create_flow, 80);
ABI_FROM_CONTEXT(ibv_destroy_flow, 96);
ABI_FROM_CONTEXT(query_device_ex, 104);
ABI_FROM_CONTEXT(create_cq_ex, 120);
ABI_FROM_CONTEXT(query_rt_values, 128);
ABI_FROM_CONTEXT(modify_cq, 184);
ABI_FROM_CONTEXT(alloc_td, 192);
ABI_FROM_CONTEXT(dealloc_td, 200);
ABI_FROM_CONTEXT(alloc_parent_domain, 208);
ABI_FROM_CONTEXT(modify_qp_rate_limit, 216);
ABI_FROM_CONTEXT(alloc_null_mr, 304);
ABI_FROM_CONTEXT(advise_mr, 312);
ABI_FROM_CONTEXT(query_port, 320);

/* ---- objects */

ABI_SIZE(ibv_pd, 16);
ABI_SIZE(ibv_ah, 24);
ABI_SIZE(ibv_mw, 32);
ABI_SIZE(ibv_wq, 152 + ABI_MUTEX);

ABI_SIZE(ibv_comp_channel, 16);
ABI_OFFSET(ibv_comp_channel, context, 0);
ABI_OFFSET(ibv_comp_channel, fd, 8);
ABI_OFFSET(ibv_comp_channel, refcnt, 12);

ABI_SIZE(ibv_mr, 48);
ABI_OFFSET(ibv_mr, addr, 16);
ABI_OFFSET(ibv_mr, length, 24);
ABI_OFFSET(ibv_mr, handle, 32);
ABI_OFFSET(ibv_mr, lkey, 36);
ABI_OFFSET(ibv_mr, rkey, 40);

ABI_SIZE(ibv_srq, 128 + ABI_MUTEX);
ABI_OFFSET(ibv_srq, srq_context, 8);
ABI_OFFSET(ibv_srq, mutex, 32);

ABI_SIZE(ibv_cq, 128 + ABI_MUTEX);
ABI_OFFSET(ibv_cq, channel, 8);
ABI_OFFSET(ibv_cq, cq_context, 16);
ABI_OFFSET(ibv_cq, handle, 24);
ABI_OFFSET(ibv_cq, cqe, 28);
ABI_OFFSET(ibv_cq, mutex, 32);

/* ibv_cq_ex_to_cq() is a cast. */
ABI_SIZE(ibv_cq_ex, 288 + ABI_MUTEX);
ABI_SAME_PLACE(ibv_cq, ibv_cq_ex, context);
ABI_SAME_PLACE(ibv_cq, ibv_cq_ex, channel);
ABI_SAME_PLACE(ibv_cq, ibv_cq_ex, cq_context);
ABI_SAME_PLACE(ibv_cq, ibv_cq_ex, handle);
ABI_SAME_PLACE(ibv_cq, ibv_cq_ex, cqe);
ABI_SAME_PLACE(ibv_cq, ibv_cq_ex, mutex);
ABI_SAME_PLACE(ibv_cq, ibv_cq_ex, cond);
ABI_SAME_PLACE(ibv_cq, ibv_cq_ex, comp_events_completed);
ABI_SAME_PLACE(ibv_cq, ibv_cq_ex, async_events_completed);
ABI_OFFSET(ibv_cq_ex, comp_mask, 128 + ABI_MUTEX);
ABI_OFFSET(ibv_cq_ex, status, 132 + ABI_MUTEX);
ABI_OFFSET(ibv_cq_ex, wr_id, 136 + ABI_MUTEX);
ABI_OFFSET(ibv_cq_ex, start_poll, 144 + ABI_MUTEX);
ABI_OFFSET(ibv_cq_ex, read_opcode, 168 + ABI_MUTEX);
ABI_OFFSET(ibv_cq_ex, read_completion_wallclock_ns, 280 + ABI_MUTEX);

ABI_SIZE(ibv_qp, 160 + ABI_MUTEX);
ABI_OFFSET(ibv_qp, qp_context, 8);
ABI_OFFSET(ibv_qp, send_cq, 24);
ABI_OFFSET(ibv_qp, handle, 48);
ABI_OFFSET(ibv_qp, qp_num, 52);
ABI_OFFSET(ibv_qp, state, 56);
ABI_OFFSET(ibv_qp, qp_type, 60);
ABI_OFFSET(ibv_qp, mutex, 64);

ABI_AT_LEAST(ibv_qp_ex, 352 + ABI_MUTEX);
ABI_OFFSET(ibv_qp_ex, qp_base, 0);
ABI_OFFSET(ibv_qp_ex, comp_mask, 160 + ABI_MUTEX);
ABI_OFFSET(ibv_qp_ex, wr_id, 168 + ABI_MUTEX);
ABI_OFFSET(ibv_qp_ex, wr_flags, 176 + ABI_MUTEX);
ABI_OFFSET(ibv_qp_ex, wr_atomic_cmp_swp, 184 + ABI_MUTEX);
ABI_OFFSET(ibv_qp_ex, wr_start, 320 + ABI_MUTEX);
ABI_OFFSET(ibv_qp_ex, wr_complete, 328 + ABI_MUTEX);
ABI_OFFSET(ibv_qp_ex, wr_abort, 336 + ABI_MUTEX);
ABI_OFFSET(ibv_qp_ex, wr_atomic_write, 344 + ABI_MUTEX);

/* ---- arguments and results */

ABI_SIZE(ibv_wc, 48);
ABI_OFFSET(ibv_wc, status, 8);
ABI_OFFSET(ibv_wc, byte_len, 20);
ABI_OFFSET(ibv_wc, imm_data, 24);
ABI_OFFSET(ibv_wc, wc_flags, 36);
ABI_OFFSET(ibv_wc, sl, 44);

ABI_SIZE(ibv_send_wr, 128);
ABI_OFFSET(ibv_send_wr, sg_list, 16);
ABI_OFFSET(ibv_send_wr, opcode, 28);
ABI_OFFSET(ibv_send_wr, imm_data, 36);
ABI_OFFSET(ibv_send_wr, wr, 40);
ABI_OFFSET(ibv_send_wr, bind_mw, 80);
ABI_SIZE(ibv_recv_wr, 32);
ABI_SIZE(ibv_qp_attr, 144);
ABI_SIZE(ibv_qp_init_attr, 64);
ABI_SIZE(ibv_qp_init_attr_ex, 136);
ABI_SIZE(ibv_device_attr, 232);
ABI_SIZE(ibv_device_attr_ex, 400);
ABI_SIZE(ibv_gid_entry, 32);
ABI_AT_LEAST(ibv_port_attr, 52);
ABI_OFFSET(ibv_port_attr, flags, 47);
ABI_OFFSET(ibv_port_attr, port_cap_flags2, 48);

/* Lists of elements are passed on by a cast. */
ABI_SIZE(ibv_sge, sizeof(struct frl_sge));
ABI_SAME_PLACE(ibv_sge, frl_sge, addr);
ABI_SAME_PLACE(ibv_sge, frl_sge, length);
ABI_SAME_PLACE(ibv_sge, frl_sge, lkey);

/* ---- numbers */

ABI_EQUAL(FRL_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE);
ABI_EQUAL(FRL_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM);
ABI_EQUAL(FRL_WR_SEND, IBV_WR_SEND);
ABI_EQUAL(FRL_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM);
ABI_EQUAL(FRL_WR_RDMA_READ, IBV_WR_RDMA_READ);
ABI_EQUAL(FRL_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP);
ABI_EQUAL(FRL_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD);
ABI_EQUAL(FRL_WR_LOCAL_INV, IBV_WR_LOCAL_INV);
ABI_EQUAL(FRL_WR_BIND_MW, IBV_WR_BIND_MW);
ABI_EQUAL(FRL_WR_SEND_WITH_INV, IBV_WR_SEND_WITH_INV);

ABI_EQUAL(FRL_SEND_FENCE, IBV_SEND_FENCE);
ABI_EQUAL(FRL_SEND_SIGNALED, IBV_SEND_SIGNALED);
ABI_EQUAL(FRL_SEND_SOLICITED, IBV_SEND_SOLICITED);
ABI_EQUAL(FRL_SEND_INLINE, IBV_SEND_INLINE);

ABI_EQUAL(FRL_WC_SUCCESS, IBV_WC_SUCCESS);
ABI_EQUAL(FRL_WC_LOC_LEN_ERR, IBV_WC_LOC_LEN_ERR);
ABI_EQUAL(FRL_WC_LOC_QP_OP_ERR, IBV_WC_LOC_QP_OP_ERR);
ABI_EQUAL(FRL_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR);
ABI_EQUAL(FRL_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR);
ABI_EQUAL(FRL_WC_MW_BIND_ERR, IBV_WC_MW_BIND_ERR);
ABI_EQUAL(FRL_WC_BAD_RESP_ERR, IBV_WC_BAD_RESP_ERR);
ABI_EQUAL(FRL_WC_LOC_ACCESS_ERR, IBV_WC_LOC_ACCESS_ERR);
ABI_EQUAL(FRL_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
ABI_EQUAL(FRL_WC_REM_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
ABI_EQUAL(FRL_WC_REM_OP_ERR, IBV_WC_REM_OP_ERR);
ABI_EQUAL(FRL_WC_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR);
ABI_EQUAL(FRL_WC_RNR_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR);
ABI_EQUAL(FRL_WC_REM_INV_RD_REQ_ERR, IBV_WC_REM_INV_RD_REQ_ERR);
ABI_EQUAL(FRL_WC_REM_ABORT_ERR, IBV_WC_REM_ABORT_ERR);
ABI_EQUAL(FRL_WC_FATAL_ERR, IBV_WC_FATAL_ERR);
ABI_EQUAL(FRL_WC_RESP_TIMEOUT_ERR, IBV_WC_RESP_TIMEOUT_ERR);
ABI_EQUAL(FRL_WC_GENERAL_ERR, IBV_WC_GENERAL_ERR);

ABI_EQUAL(FRL_WC_SEND, IBV_WC_SEND);
ABI_EQUAL(FRL_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE);
ABI_EQUAL(FRL_WC_RDMA_READ, IBV_WC_RDMA_READ);
ABI_EQUAL(FRL_WC_COMP_SWAP, IBV_WC_COMP_SWAP);
ABI_EQUAL(FRL_WC_FETCH_ADD, IBV_WC_FETCH_ADD);
ABI_EQUAL(FRL_WC_BIND_MW, IBV_WC_BIND_MW);
ABI_EQUAL(FRL_WC_LOCAL_INV, IBV_WC_LOCAL_INV);
ABI_EQUAL(FRL_WC_RECV, IBV_WC_RECV);
ABI_EQUAL(FRL_WC_RECV_RDMA_WITH_IMM, IBV_WC_RECV_RDMA_WITH_IMM);

ABI_EQUAL(FRL_WC_GRH, IBV_WC_GRH);
ABI_EQUAL(FRL_WC_WITH_IMM, IBV_WC_WITH_IMM);
ABI_EQUAL(FRL_WC_WITH_INV, IBV_WC_WITH_INV);

ABI_EQUAL(FRL_QPT_RC, IBV_QPT_RC);
ABI_EQUAL(FRL_QPT_UC, IBV_QPT_UC);
ABI_EQUAL(FRL_QPT_UD, IBV_QPT_UD);

ABI_EQUAL(FRL_QPS_RESET, IBV_QPS_RESET);
ABI_EQUAL(FRL_QPS_INIT, IBV_QPS_INIT);
ABI_EQUAL(FRL_QPS_RTR, IBV_QPS_RTR);
ABI_EQUAL(FRL_QPS_RTS, IBV_QPS_RTS);
ABI_EQUAL(FRL_QPS_SQD, IBV_QPS_SQD);
ABI_EQUAL(FRL_QPS_SQE, IBV_QPS_SQE);
ABI_EQUAL(FRL_QPS_ERR, IBV_QPS_ERR);

ABI_EQUAL(FRL_QP_STATE, IBV_QP_STATE);
ABI_EQUAL(FRL_QP_CUR_STATE, IBV_QP_CUR_STATE);
ABI_EQUAL(FRL_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY);
ABI_EQUAL(FRL_QP_ACCESS_FLAGS, IBV_QP_ACCESS_FLAGS);
ABI_EQUAL(FRL_QP_PKEY_INDEX, IBV_QP_PKEY_INDEX);
ABI_EQUAL(FRL_QP_PORT, IBV_QP_PORT);
ABI_EQUAL(FRL_QP_QKEY, IBV_QP_QKEY);
ABI_EQUAL(FRL_QP_AV, IBV_QP_AV);
ABI_EQUAL(FRL_QP_PATH_MTU, IBV_QP_PATH_MTU);
ABI_EQUAL(FRL_QP_TIMEOUT, IBV_QP_TIMEOUT);
ABI_EQUAL(FRL_QP_RETRY_CNT, IBV_QP_RETRY_CNT);
ABI_EQUAL(FRL_QP_RNR_RETRY, IBV_QP_RNR_RETRY);
ABI_EQUAL(FRL_QP_RQ_PSN, IBV_QP_RQ_PSN);
ABI_EQUAL(FRL_QP_MAX_QP_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC);
ABI_EQUAL(FRL_QP_MIN_RNR_TIMER, IBV_QP_MIN_RNR_TIMER);
ABI_EQUAL(FRL_QP_SQ_PSN, IBV_QP_SQ_PSN);
ABI_EQUAL(FRL_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_DEST_RD_ATOMIC);
ABI_EQUAL(FRL_QP_DEST_QPN, IBV_QP_DEST_QPN);

ABI_EQUAL(FRL_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE);
ABI_EQUAL(FRL_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE);
ABI_EQUAL(FRL_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ);
ABI_EQUAL(FRL_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC);
ABI_EQUAL(FRL_ACCESS_MW_BIND, IBV_ACCESS_MW_BIND);

ABI_EQUAL(FRL_REREG_TRANSLATION, IBV_REREG_MR_CHANGE_TRANSLATION);
ABI_EQUAL(FRL_REREG_PD, IBV_REREG_MR_CHANGE_PD);
ABI_EQUAL(FRL_REREG_ACCESS, IBV_REREG_MR_CHANGE_ACCESS);

ABI_EQUAL(FRL_PORT_DOWN, IBV_PORT_DOWN);
ABI_EQUAL(FRL_PORT_ACTIVE, IBV_PORT_ACTIVE);

ABI_EQUAL(FRL_EVENT_CQ_ERR, IBV_EVENT_CQ_ERR);
ABI_EQUAL(FRL_EVENT_QP_FATAL, IBV_EVENT_QP_FATAL);
ABI_EQUAL(FRL_EVENT_QP_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
ABI_EQUAL(FRL_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
ABI_EQUAL(FRL_EVENT_COMM_EST, IBV_EVENT_COMM_EST);
ABI_EQUAL(FRL_EVENT_SQ_DRAINED, IBV_EVENT_SQ_DRAINED);
ABI_EQUAL(FRL_EVENT_DEVICE_FATAL, IBV_EVENT_DEVICE_FATAL);
ABI_EQUAL(FRL_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ACTIVE);
ABI_EQUAL(FRL_EVENT_PORT_ERR, IBV_EVENT_PORT_ERR);
ABI_EQUAL(FRL_EVENT_SRQ_ERR, IBV_EVENT_SRQ_ERR);
ABI_EQUAL(FRL_EVENT_SRQ_LIMIT_REACHED, IBV_EVENT_SRQ_LIMIT_REACHED);
ABI_EQUAL(FRL_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_LAST_WQE_REACHED);

#undef ABI_AT_LEAST
#undef ABI_EQUAL
#undef ABI_FROM_CONTEXT
#undef ABI_MUTEX
#undef ABI_OFFSET
#undef ABI_SAME_PLACE
#undef ABI_SIZE

#endif
