/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Posts requests in batches with one doorbell each. Requests that libibverbs would accept, but the
 * hardware would fail or misinterpret, are refused first. Keys and bounds of the elements are left
 * to the hardware.
 */
#include "drivers/verbs/internal.h"

#include <stdio.h>

#include "lib/base/error.h"

enum {
	ATOMIC_SIZE = 8,
	KNOWN_FLAGS = FRL_SEND_FENCE | FRL_SEND_SIGNALED | FRL_SEND_SOLICITED | FRL_SEND_INLINE,
};

_Static_assert(FRL_SEND_FENCE == (int)IBV_SEND_FENCE &&
		FRL_SEND_SIGNALED == (int)IBV_SEND_SIGNALED &&
		FRL_SEND_SOLICITED == (int)IBV_SEND_SOLICITED &&
		FRL_SEND_INLINE == (int)IBV_SEND_INLINE,
	"flags are the same");
_Static_assert(FRL_WR_RDMA_WRITE == (int)IBV_WR_RDMA_WRITE &&
		FRL_WR_RDMA_WRITE_WITH_IMM == (int)IBV_WR_RDMA_WRITE_WITH_IMM &&
		FRL_WR_SEND == (int)IBV_WR_SEND &&
		FRL_WR_SEND_WITH_IMM == (int)IBV_WR_SEND_WITH_IMM &&
		FRL_WR_RDMA_READ == (int)IBV_WR_RDMA_READ &&
		FRL_WR_ATOMIC_CMP_AND_SWP == (int)IBV_WR_ATOMIC_CMP_AND_SWP &&
		FRL_WR_ATOMIC_FETCH_AND_ADD == (int)IBV_WR_ATOMIC_FETCH_AND_ADD &&
		FRL_WR_LOCAL_INV == (int)IBV_WR_LOCAL_INV &&
		FRL_WR_BIND_MW == (int)IBV_WR_BIND_MW &&
		FRL_WR_SEND_WITH_INV == (int)IBV_WR_SEND_WITH_INV,
	"opcodes are the same");

static bool is_atomic(enum frl_wr_opcode opcode)
{
	return opcode == FRL_WR_ATOMIC_CMP_AND_SWP || opcode == FRL_WR_ATOMIC_FETCH_AND_ADD;
}

static bool has_payload(enum frl_wr_opcode opcode)
{
	return opcode != FRL_WR_LOCAL_INV && opcode != FRL_WR_BIND_MW;
}

/* See the table in work.h. A device without windows is not queried for window operations, for which
 * its provider may have no function. */
static bool takes(const struct frl_qp *qp, enum frl_wr_opcode opcode)
{
	bool has_windows = qp->pd->device->attr.max_mw;

	switch (opcode) {
	case FRL_WR_SEND:
	case FRL_WR_SEND_WITH_IMM: return true;
	case FRL_WR_RDMA_WRITE:
	case FRL_WR_RDMA_WRITE_WITH_IMM: return !is_datagram(qp);
	case FRL_WR_LOCAL_INV:
	case FRL_WR_BIND_MW: return !is_datagram(qp) && has_windows;
	case FRL_WR_RDMA_READ: return qp->type == FRL_QPT_RC;
	case FRL_WR_SEND_WITH_INV: return qp->type == FRL_QPT_RC && has_windows;
	case FRL_WR_ATOMIC_CMP_AND_SWP:
	case FRL_WR_ATOMIC_FETCH_AND_ADD:
		return qp->type == FRL_QPT_RC && qp->pd->device->attr.has_atomics;
	}
	return false;
}

static bool is_foreign(const struct frl_qp *qp, const struct frl_mw_bind *bind)
{
	const struct frl_device *own = qp->pd->device;

	return bind->mw->pd->device != own || bind->mr->device != own;
}

static const char *check_send(const struct verbs_qp *qp, const struct frl_send_wr *wr)
{
	if (!takes(&qp->base, wr->opcode))
		return "this type of queue pair, or this device, does not support the opcode";
	if (wr->flags & ~(uint32_t)KNOWN_FLAGS)
		return "flags has unknown bits";
	if ((wr->flags & FRL_SEND_INLINE) &&
		(is_atomic(wr->opcode) || wr->opcode == FRL_WR_RDMA_READ ||
			!has_payload(wr->opcode)))
		return "only SEND and RDMA_WRITE can be inline";
	if (is_atomic(wr->opcode) && wr->remote_addr % ATOMIC_SIZE)
		return "an atomic needs a remote_addr that is a multiple of 8";
	if (wr->opcode == FRL_WR_BIND_MW && (!wr->bind.mw || !wr->bind.mr))
		return "BIND_MW needs bind.mw and bind.mr";
	if (wr->opcode == FRL_WR_BIND_MW && is_foreign(&qp->base, &wr->bind))
		return "bind.mw or bind.mr is of another device";
	if (is_datagram(&qp->base) && !wr->ah)
		return "a datagram needs an address handle";
	if (is_datagram(&qp->base) && wr->ah->pd != qp->base.pd)
		return "the address handle is of another protection domain";
	if (is_datagram(&qp->base) && !wr->remote_qpn)
		return "remote_qpn is 0";
	if (has_payload(wr->opcode) &&
		(wr->n_sge < 0 || (uint32_t)wr->n_sge > qp->max_send_sge ||
			(wr->n_sge && !wr->sge)))
		return "n_sge must be 0 to max_send_sge, and sge an array of so many";
	return NULL;
}

/* The key of an empty element is irrelevant, and some hardware takes its length for 2 GiB. */
static uint64_t copy_elements(const struct frl_sge *sge, int n_sge, struct ibv_sge *to, int *ret_n)
{
	uint64_t total = 0;
	int n = 0;

	for (int i = 0; i < n_sge; i++) {
		if (!sge[i].length)
			continue;
		to[n++] = (struct ibv_sge){
			.addr = (uintptr_t)sge[i].addr, .length = sge[i].length, .lkey = sge[i].lkey
		};
		total += sge[i].length;
	}
	*ret_n = n;
	return total;
}

/* The library itself reads the elements of inline requests. */
static const char *check_inline(const struct frl_send_wr *wr)
{
	for (int i = 0; i < wr->n_sge; i++)
		if (wr->sge[i].length && !wr->sge[i].addr)
			return "an inline element is at NULL";
	return NULL;
}

static const char *check_length(const struct verbs_qp *qp, const struct post_wr *wr, uint64_t total)
{
	const struct frl_device_attr *device = &qp->base.pd->device->attr;

	if ((wr->flags & IBV_SEND_INLINE) && total > qp->base.max_inline)
		return "it has more inline bytes than max_inline of the queue pair";
	if (is_datagram(&qp->base) && total > device->path_mtu)
		return "a datagram is at most as long as the MTU";
	if (is_atomic(wr->wr->opcode) && total != ATOMIC_SIZE)
		return "the elements of an atomic have 8 bytes together";
	if (total > device->max_msg_size)
		return "it is longer than max_msg_size of the device";
	return NULL;
}

static const char *prepare(const struct verbs_qp *qp, const struct frl_send_wr *wr,
	struct ibv_sge *sge, struct post_wr *ret)
{
	const char *why = check_send(qp, wr);
	uint64_t total = 0;

	if (why)
		return why;
	*ret = (struct post_wr){ .wr = wr, .sge = sge, .flags = wr->flags };
	if (wr->flags & FRL_SEND_INLINE)
		why = check_inline(wr);
	if (why)
		return why;
	if (has_payload(wr->opcode))
		total = copy_elements(wr->sge, wr->n_sge, sge, &ret->n_sge);
	if (!ret->n_sge)
		ret->flags &= ~(unsigned)IBV_SEND_INLINE;
	return check_length(qp, ret, total);
}

static void fill_bind(const struct frl_mw_bind *bind, struct ibv_send_wr *to)
{
	to->bind_mw.mw = verbs_mw(bind->mw)->mw;
	to->bind_mw.rkey = bind->rkey;
	to->bind_mw.bind_info = verbs_bind_info(bind);
}

static void fill(const struct verbs_qp *qp, const struct post_wr *from, struct ibv_send_wr *to)
{
	const struct frl_send_wr *wr = from->wr;

	*to = (struct ibv_send_wr){
		.wr_id = wr->wr_id,
		.sg_list = from->sge,
		.num_sge = from->n_sge,
		.opcode = (enum ibv_wr_opcode)wr->opcode,
		.send_flags = from->flags,
	};
	if (wr->opcode == FRL_WR_LOCAL_INV || wr->opcode == FRL_WR_SEND_WITH_INV)
		to->invalidate_rkey = wr->invalidate_rkey;
	else if (wr->opcode != FRL_WR_BIND_MW)
		to->imm_data = wr->imm_data;
	if (is_datagram(&qp->base)) {
		to->wr.ud.ah = verbs_ah(wr->ah)->ah;
		to->wr.ud.remote_qpn = wr->remote_qpn;
		to->wr.ud.remote_qkey = verbs_qkey_for(qp, wr);
	} else if (wr->opcode == FRL_WR_BIND_MW) {
		fill_bind(&wr->bind, to);
	} else if (is_atomic(wr->opcode)) {
		to->wr.atomic.remote_addr = wr->remote_addr;
		to->wr.atomic.rkey = wr->rkey;
		to->wr.atomic.compare_add = wr->compare_add;
		to->wr.atomic.swap = wr->swap;
	} else {
		to->wr.rdma.remote_addr = wr->remote_addr;
		to->wr.rdma.rkey = wr->rkey;
	}
}

/* Returns 0 or an errno. *ret_posted requests are posted in any case. */
static int post_plain(struct verbs_qp *qp, const struct post_wr wrs[], int n, int *ret_posted)
{
	struct ibv_send_wr list[POST_BATCH], *bad = NULL;
	int rc;

	for (int i = 0; i < n; i++) {
		fill(qp, &wrs[i], &list[i]);
		list[i].next = i + 1 < n ? &list[i + 1] : NULL;
	}
	rc = ibv_post_send(qp->qp, list, &bad);
	*ret_posted = !rc ? n : bad ? (int)(bad - list) : 0;
	return rc ? verbs_errno(rc) : 0;
}

/* Like post_plain(). If a batch is refused, its first requests may still fit. */
static int post_by_wr(struct verbs_qp *qp, const struct post_wr wrs[], int n, int *ret_posted)
{
	int done = 0, size = n, err = 0;

	while (done < n) {
		int take = size < n - done ? size : n - done;

		err = verbs_post_by_wr(qp, wrs + done, take);
		if (!err)
			done += take;
		else if (take > 1)
			size = take / 2;
		else
			break;
	}
	*ret_posted = done;
	return err;
}

/* The next bind starts from this key, which some devices check. */
static void note_window(const struct frl_mw_bind *bind)
{
	struct verbs_mw *mw = verbs_mw(bind->mw);

	mw->mw->rkey = bind->rkey;
	atomic_store_explicit(&mw->rkey, bind->rkey, memory_order_relaxed);
}

/* Posts up to one batch, which may end with a bind, and adds to *done. Returns 0, or a negative
 * errno with the reason. */
static int post_some(struct verbs_qp *qp, const struct frl_send_wr wr[], int n, int *done,
	const char **ret_why, int *ret_err)
{
	struct ibv_sge sges[POST_BATCH][FRL_MAX_SGE];
	struct post_wr wrs[POST_BATCH];
	const char *why = NULL;
	int m = 0, posted = 0, err = 0;
	bool binds = false;

	while (m < n && m < POST_BATCH && !binds && !(why = prepare(qp, &wr[m], sges[m], &wrs[m])))
		binds = wr[m++].opcode == FRL_WR_BIND_MW;
	if (m > 0)
		err = qp->ex ? post_by_wr(qp, wrs, m, &posted) : post_plain(qp, wrs, m, &posted);
	if (binds && posted == m)
		note_window(&wr[m - 1].bind);
	*done += posted;
	if (err) {
		*ret_err = err;
		return -err;
	}
	*ret_why = why;
	return why ? -EINVAL : 0;
}

/* Explains why requests were refused: by `err` if set, else by `why`. The queue of a failed device
 * fills up, and no completion empties it. */
static int explain(const struct verbs_device *device, int rc, const char *why, int err,
	const char *full, char text[REASON_SIZE])
{
	if (err && atomic_load(&device->is_fatal)) {
		rc = -EIO;
		err = EIO;
	}
	if (err == ENOMEM)
		snprintf(text, REASON_SIZE, "the queue is full: %s, then post again", full);
	else if (err)
		verbs_explain(err, text, REASON_SIZE);
	else
		snprintf(text, REASON_SIZE, "%s", why);
	return rc;
}

static int finish(const struct frl_qp *qp, int rc, int done, const char *why, int err)
{
	char text[REASON_SIZE];

	if (!rc)
		return done;
	rc = explain(device_of_pd(qp->pd), rc, why, err, "poll for completions", text);
	return frl_fail(rc, "queue pair 0x%x (%s), request %d: %s", qp->num,
		frl_qp_state_str(verbs_qp_state(qp)), done, text);
}

int verbs_post_send(struct frl_qp *base, const struct frl_send_wr wr[], int n, int *ret_posted)
{
	struct verbs_qp *qp = verbs_qp(base);
	enum frl_qp_state state = qp_state_of(qp);
	const char *why = NULL;
	int done = 0, rc = 0, err = 0;

	/* In ERR and SQE, requests are accepted and flushed. */
	if (state < FRL_QPS_RTS && n > 0) {
		why = "send requests need the state RTS or SQD";
		rc = -EINVAL;
	}
	while (done < n && !rc)
		rc = post_some(qp, wr + done, n - done, &done, &why, &err);
	if (ret_posted)
		*ret_posted = done;
	return finish(base, rc, done, why, err);
}

/* Posts a batch, of which the hardware takes all or nothing. */
static int post_batch(struct verbs_qp *qp, const struct frl_send_wr wr[], int n)
{
	struct ibv_sge sges[POST_BATCH][FRL_MAX_SGE];
	struct post_wr wrs[POST_BATCH];
	const char *why = NULL;
	int err;

	for (int i = 0; i < n; i++) {
		why = prepare(qp, &wr[i], sges[i], &wrs[i]);
		if (why)
			return finish(&qp->base, -EINVAL, i, why, 0);
	}
	err = verbs_post_by_wr(qp, wrs, n);
	if (err)
		return finish(&qp->base, -err, 0, NULL, err);
	if (wr[n - 1].opcode == FRL_WR_BIND_MW)
		note_window(&wr[n - 1].bind);
	return 0;
}

/* ibv_post_send() posts the requests before a bad one, ibv_wr_complete() does not. */
int verbs_post_send_all(struct frl_qp *base, const struct frl_send_wr wr[], int n)
{
	struct verbs_qp *qp = verbs_qp(base);
	bool binds = false;
	int rc;

	/* One request, or a state in which none can be posted. */
	if (n <= 1 || qp_state_of(qp) < FRL_QPS_RTS) {
		rc = verbs_post_send(base, wr, n, NULL);
		return rc < 0 ? rc : 0;
	}
	for (int i = 0; i + 1 < n; i++)
		binds |= wr[i].opcode == FRL_WR_BIND_MW;
	if (!qp->ex || n > POST_BATCH || binds)
		return frl_fail(-ENOTSUP,
			"queue pair 0x%x cannot post %d such requests, or none: use "
			"frl_post_send(), or fewer requests",
			base->num, n);
	return post_batch(qp, wr, n);
}

/* ---- receives */

/* A receive queue: of a queue pair, or shared. */
struct target {
	struct ibv_qp *qp; /* or NULL */
	struct ibv_srq *srq;
	uint32_t max_sge;
};

static int check_recv(
	const struct target *target, const struct frl_recv_wr *wr, const char **ret_why)
{
	*ret_why = NULL;
	if (wr->action.type == FRL_ACTION_REDUCE) {
		*ret_why = "hardware does not reduce on receive (reduces_on_receive): receive it, "
			   "then use frl_reduce_local()";
		return -ENOTSUP;
	}
	if (wr->action.type != FRL_ACTION_COPY)
		*ret_why = "unknown action";
	else if (wr->n_sge < 0 || (uint32_t)wr->n_sge > target->max_sge || (wr->n_sge && !wr->sge))
		*ret_why = "n_sge must be 0 to max_recv_sge, and sge an array of so many";
	return *ret_why ? -EINVAL : 0;
}

static int post_recvs(const struct target *target, struct ibv_recv_wr *list, int n, int *ret_posted)
{
	struct ibv_recv_wr *bad = NULL;
	int rc = target->qp ? ibv_post_recv(target->qp, list, &bad)
			    : ibv_post_srq_recv(target->srq, list, &bad);

	*ret_posted = !rc ? n : bad ? (int)(bad - list) : 0;
	return rc ? verbs_errno(rc) : 0;
}

/* Like post_some(). */
static int post_some_recvs(const struct target *target, const struct frl_recv_wr wr[], int n,
	int *done, const char **ret_why, int *ret_err)
{
	struct ibv_sge sges[POST_BATCH][FRL_MAX_SGE];
	struct ibv_recv_wr list[POST_BATCH];
	int m = 0, posted = 0, rc = 0, err = 0;

	while (m < n && m < POST_BATCH && !(rc = check_recv(target, &wr[m], ret_why))) {
		list[m] = (struct ibv_recv_wr){ .wr_id = wr[m].wr_id, .sg_list = sges[m] };
		copy_elements(wr[m].sge, wr[m].n_sge, sges[m], &list[m].num_sge);
		if (m)
			list[m - 1].next = &list[m];
		m++;
	}
	if (m > 0)
		err = post_recvs(target, list, m, &posted);
	*done += posted;
	if (!err)
		return rc;
	*ret_err = err;
	*ret_why = NULL;
	return -err;
}

int verbs_post_recv(struct frl_qp *base, const struct frl_recv_wr wr[], int n, int *ret_posted)
{
	struct verbs_qp *qp = verbs_qp(base);
	const struct target target = { .qp = qp->qp, .max_sge = qp->max_recv_sge };
	const char *why = NULL;
	int done = 0, rc = 0, err = 0;

	if (base->srq && n > 0)
		why = "its receives come from a shared receive queue: post there";
	else if (qp_state_of(qp) == FRL_QPS_RESET && n > 0)
		why = "receive requests need another state than RESET";
	if (why)
		rc = -EINVAL;
	while (done < n && !rc)
		rc = post_some_recvs(&target, wr + done, n - done, &done, &why, &err);
	if (ret_posted)
		*ret_posted = done;
	return finish(base, rc, done, why, err);
}

int verbs_srq_post(struct frl_srq *base, const struct frl_recv_wr wr[], int n, int *ret_posted)
{
	const struct target target = { .srq = verbs_srq(base)->srq,
		.max_sge = base->config.max_sge };
	const char *why = NULL;
	char text[REASON_SIZE];
	int done = 0, rc = 0, err = 0;

	while (done < n && !rc)
		rc = post_some_recvs(&target, wr + done, n - done, &done, &why, &err);
	if (ret_posted)
		*ret_posted = done;
	if (!rc)
		return done;
	rc = explain(device_of_pd(base->pd), rc, why, err, "receive", text);
	return frl_fail(rc, "shared receive queue, request %d: %s", done, text);
}
