/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Extended completion queues. Entries are taken one at a time, so that none waits in the drop-in
 * between two polls: ibv_poll_cq() and events work on the same queue.
 */
#include <errno.h>

#include "dropin/ibverbs/dropin.h"

static struct dropin_cq *of(struct ibv_cq_ex *ex)
{
	return container_of(ex, struct dropin_cq, ex);
}

/* Returns ENOENT if the queue is empty. */
static int next_poll(struct ibv_cq_ex *ex)
{
	struct dropin_cq *cq = of(ex);
	int n = cq_take_one(cq, &cq->current, &cq->current_vlan);

	if (n <= 0)
		return n ? -n : ENOENT;
	ex->status = cq->current.status;
	ex->wr_id = cq->current.wr_id;
	return 0;
}

/* Without an entry the poll has not started: end_poll() does not follow. */
static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	int err;

	if (attr->comp_mask)
		return EINVAL;
	pthread_mutex_lock(&of(ex)->poll_mutex);
	err = next_poll(ex);
	if (err)
		pthread_mutex_unlock(&of(ex)->poll_mutex);
	return err;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	pthread_mutex_unlock(&of(ex)->poll_mutex);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return of(ex)->current.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	return of(ex)->current.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return of(ex)->current.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	return of(ex)->current.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return of(ex)->current.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
	return of(ex)->current.src_qp;
}

static unsigned read_wc_flags(struct ibv_cq_ex *ex)
{
	return of(ex)->current.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *ex)
{
	return of(ex)->current.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *ex)
{
	return of(ex)->current.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex)
{
	return of(ex)->current.dlid_path_bits;
}

static uint16_t read_cvlan(struct ibv_cq_ex *ex)
{
	return of(ex)->current_vlan;
}

struct ibv_cq_ex *create_cq_ex(struct ibv_context *ibv, struct ibv_cq_init_attr_ex *attr)
{
	const uint64_t fields = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_CVLAN;
	const uint32_t flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED |
		IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	struct dropin_cq *cq;

	if ((attr->wc_flags & ~fields) ||
		(attr->comp_mask &
			~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) ||
		((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (attr->flags & ~flags))) {
		dropin_refuse(EOPNOTSUPP,
			"ibv_create_cq_ex: timestamps, flow tags and tag matching are not "
			"supported");
		return NULL;
	}
	if (!attr->cqe) {
		dropin_refuse(EINVAL, "ibv_create_cq_ex: cqe must be at least 1");
		return NULL;
	}
	cq = cq_create(ibv, attr->cqe, attr->channel, (int)attr->comp_vector, attr->cq_context);
	if (!cq)
		return NULL;
	cq->ex.start_poll = start_poll;
	cq->ex.next_poll = next_poll;
	cq->ex.end_poll = end_poll;
	cq->ex.read_opcode = read_opcode;
	cq->ex.read_vendor_err = read_vendor_err;
	cq->ex.read_byte_len = read_byte_len;
	cq->ex.read_imm_data = read_imm_data;
	cq->ex.read_qp_num = read_qp_num;
	cq->ex.read_src_qp = read_src_qp;
	cq->ex.read_wc_flags = read_wc_flags;
	cq->ex.read_slid = read_slid;
	cq->ex.read_sl = read_sl;
	cq->ex.read_dlid_path_bits = read_dlid_path_bits;
	cq->ex.read_cvlan = read_cvlan;
	return &cq->ex;
}
