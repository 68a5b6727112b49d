/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests by ibv_wr_*(): between ibv_wr_start() and ibv_wr_complete() they are collected, and
 * complete posts all or none. An error is reported by complete.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dropin/ibverbs/dropin.h"

enum { FIRST_ROOM = 16 };

static struct dropin_qp *of(struct ibv_qp_ex *ex)
{
	return container_of(ex, struct dropin_qp, ex);
}

static void fail(struct wr_batch *batch, int err)
{
	if (!batch->error)
		batch->error = err;
}

/* Makes room for `more` further entries. Returns false, with the error noted, if there is none. */
static bool grow(struct wr_batch *batch, void *array, uint32_t *room, uint64_t wanted, size_t entry)
{
	uint64_t next = *room ? *room : FIRST_ROOM;
	void **place = array, *larger;

	if (wanted <= *room)
		return true;
	while (next < wanted)
		next *= 2;
	larger = next > UINT32_MAX / 2 ? NULL : realloc(*place, next * entry);
	if (!larger) {
		fail(batch, ENOMEM);
		return false;
	}
	*place = larger;
	*room = (uint32_t)next;
	return true;
}

/* ---- start, complete, abort */

static void wr_start(struct ibv_qp_ex *ex)
{
	struct wr_batch *batch = &of(ex)->batch;

	pthread_mutex_lock(&of(ex)->wr_mutex);
	batch->n_wr = batch->n_sge = batch->n_bytes = 0;
	batch->error = 0;
}

/* The arrays may have moved since the requests were written: their elements are found by their
 * order, and inline data too. */
static void set_pointers(struct wr_batch *batch)
{
	struct frl_sge *sge = batch->sge;
	uint8_t *bytes = batch->bytes;

	for (uint32_t i = 0; i < batch->n_wr; i++) {
		struct frl_send_wr *wr = &batch->wr[i];

		wr->sge = sge;
		if (wr->flags & FRL_SEND_INLINE) {
			sge->addr = bytes;
			bytes += sge->length;
		}
		sge += wr->n_sge;
	}
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct dropin_qp *qp = of(ex);
	struct wr_batch *batch = &qp->batch;
	int err = batch->error, rc = 0;

	if (!err && batch->n_wr) {
		set_pointers(batch);
		rc = frl_post_send_all(qp->frl, batch->wr, (int)batch->n_wr);
	}
	pthread_mutex_unlock(&qp->wr_mutex);
	if (err)
		return dropin_refuse(err,
			err == ENOMEM ? "ibv_wr_complete: no memory for the requests"
				      : "ibv_wr_complete: a request has invalid arguments");
	return rc ? dropin_errno(rc) : 0;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	pthread_mutex_unlock(&of(ex)->wr_mutex);
}

/* ---- operations */

/* Begins a request. After a failure the last one, or a spare one, takes what follows. */
static struct frl_send_wr *begin(struct ibv_qp_ex *ex, enum frl_wr_opcode opcode)
{
	struct wr_batch *batch = &of(ex)->batch;
	struct frl_send_wr *wr = &batch->spare;

	if (grow(batch, &batch->wr, &batch->wr_room, (uint64_t)batch->n_wr + 1, sizeof(*wr)))
		wr = &batch->wr[batch->n_wr++];
	*wr = (struct frl_send_wr){
		.wr_id = ex->wr_id,
		.opcode = opcode,
		.flags = ex->wr_flags & (FRL_SEND_FENCE | FRL_SEND_SIGNALED | FRL_SEND_SOLICITED),
	};
	return wr;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	begin(ex, FRL_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm_data)
{
	begin(ex, FRL_WR_SEND_WITH_IMM)->imm_data = imm_data;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	begin(ex, FRL_WR_SEND_WITH_INV)->invalidate_rkey = rkey;
}

static struct frl_send_wr *begin_rdma(
	struct ibv_qp_ex *ex, enum frl_wr_opcode opcode, uint32_t rkey, uint64_t remote_addr)
{
	struct frl_send_wr *wr = begin(ex, opcode);

	wr->rkey = rkey;
	wr->remote_addr = remote_addr;
	return wr;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_rdma(ex, FRL_WR_RDMA_READ, rkey, remote_addr);
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_rdma(ex, FRL_WR_RDMA_WRITE, rkey, remote_addr);
}

static void wr_rdma_write_imm(
	struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, __be32 imm_data)
{
	begin_rdma(ex, FRL_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr)->imm_data = imm_data;
}

static void wr_atomic_cmp_swp(
	struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t compare, uint64_t swap)
{
	struct frl_send_wr *wr = begin_rdma(ex, FRL_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr);

	wr->compare_add = compare;
	wr->swap = swap;
}

static void wr_atomic_fetch_add(
	struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t add)
{
	begin_rdma(ex, FRL_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr)->compare_add = add;
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	begin(ex, FRL_WR_LOCAL_INV)->invalidate_rkey = rkey;
}

static void wr_bind_mw(
	struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	begin(ex, FRL_WR_BIND_MW)->bind = (struct frl_mw_bind){
		.mw = dropin_mw(mw)->frl,
		.mr = info->mr ? dropin_mr(info->mr)->frl : NULL,
		.addr = info->addr,
		.length = info->length,
		.rkey = rkey,
		.access = window_access(info),
	};
}

/* ---- what the last operation carries, and where it goes */

/* The request that the setters complete; NULL without one. */
static struct frl_send_wr *last(struct wr_batch *batch)
{
	if (batch->n_wr && !batch->error)
		return &batch->wr[batch->n_wr - 1];
	fail(batch, EINVAL);
	return NULL;
}

static struct frl_sge *add_elements(struct wr_batch *batch, size_t n)
{
	struct frl_send_wr *wr = last(batch);
	struct frl_sge *sge;

	if (!wr)
		return NULL;
	/* A second setter for one request, or more elements than any request has. */
	if (wr->n_sge || n > FRL_MAX_SGE) {
		fail(batch, EINVAL);
		return NULL;
	}
	if (!grow(batch, &batch->sge, &batch->sge_room, (uint64_t)batch->n_sge + n, sizeof(*sge)))
		return NULL;
	sge = &batch->sge[batch->n_sge];
	batch->n_sge += (uint32_t)n;
	wr->n_sge = (int)n;
	return sge;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct frl_sge *sge = add_elements(&of(ex)->batch, 1);

	if (sge)
		*sge = (struct frl_sge){
			.addr = (void *)(uintptr_t)addr, .length = length, .lkey = lkey
		};
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list)
{
	struct frl_sge *sge = add_elements(&of(ex)->batch, n);

	if (sge && n)
		memcpy(sge, list, n * sizeof(*sge)); /* one layout: see abi.h */
}

/* The data is copied now: the program may change it after the call. */
static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *list)
{
	struct wr_batch *batch = &of(ex)->batch;
	struct frl_sge *sge = add_elements(batch, 1);
	uint64_t total = 0;

	if (!sge)
		return;
	for (size_t i = 0; i < n; i++) {
		/* The sum of any lengths could wrap around. */
		if (list[i].length > of(ex)->cap.max_inline_data - total) {
			fail(batch, EINVAL);
			return;
		}
		total += list[i].length;
	}
	if (!grow(batch, &batch->bytes, &batch->bytes_room, batch->n_bytes + total, 1))
		return;
	*sge = (struct frl_sge){ .length = (uint32_t)total };
	batch->wr[batch->n_wr - 1].flags |= FRL_SEND_INLINE;
	for (size_t i = 0; i < n; i++) {
		if (list[i].length)
			memcpy(batch->bytes + batch->n_bytes, list[i].addr, list[i].length);
		batch->n_bytes += (uint32_t)list[i].length;
	}
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	const struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(ex, 1, &buf);
}

static void wr_set_ud_addr(
	struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct frl_send_wr *wr = last(&of(ex)->batch);

	if (!wr)
		return;
	wr->ah = ah ? dropin_ah(ah)->frl : NULL;
	wr->remote_qpn = remote_qpn & 0xffffff;
	wr->remote_qkey = remote_qkey;
}

/* ---- the table; ibv_create_qp_ex() has refused what is not in it */

void wr_init(struct dropin_qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ex;

	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_ud_addr = wr_set_ud_addr;
}

void wr_fini(struct dropin_qp *qp)
{
	free(qp->batch.wr);
	free(qp->batch.sge);
	free(qp->batch.bytes);
}
