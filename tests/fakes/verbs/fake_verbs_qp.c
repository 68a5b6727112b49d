/* SPDX-License-Identifier: BSD-3-Clause */
/* The libibverbs in memory: queue pairs and shared receive queues, and groups of QPs. */
#include <errno.h>
#include <stdlib.h>

#include "tests/fakes/verbs/fake_verbs_internal.h"

/* --- Memory of queues */

bool fake_recv_ring_init(struct fake_recv_ring *ring, uint32_t max_wr, uint32_t max_sge)
{
	ring->max_wr = max_wr;
	ring->max_sge = max_sge;
	ring->slots = calloc(max_wr + 1, sizeof(*ring->slots));
	ring->sges = calloc((size_t)max_wr * max_sge + 1, sizeof(*ring->sges));
	for (uint32_t i = 0; ring->slots && i < max_wr; i++)
		ring->slots[i].sges = ring->sges + (size_t)i * max_sge;
	return ring->slots && ring->sges;
}

void fake_recv_ring_fini(struct fake_recv_ring *ring)
{
	free(ring->slots);
	free(ring->sges);
}

static bool init_sends(struct fake_qp *qp, const struct ibv_qp_cap *cap)
{
	qp->sends = calloc(cap->max_send_wr + 1, sizeof(*qp->sends));
	qp->send_sges = calloc(
		(size_t)cap->max_send_wr * cap->max_send_sge + 1, sizeof(*qp->send_sges));
	qp->send_bytes = calloc((size_t)cap->max_send_wr * cap->max_inline_data + 1, 1);
	if (!qp->sends || !qp->send_sges || !qp->send_bytes)
		return false;
	for (uint32_t i = 0; i < cap->max_send_wr; i++) {
		qp->sends[i].sges = qp->send_sges + (size_t)i * cap->max_send_sge;
		qp->sends[i].bytes = qp->send_bytes + (size_t)i * cap->max_inline_data;
	}
	return true;
}

/* --- Making a QP */

static int check_init(const struct fake_device *device, const struct ibv_qp_init_attr_ex *attr)
{
	const struct ibv_device_attr *is = &device->is.attr;
	const struct ibv_qp_cap *cap = &attr->cap;
	uint32_t max_wr = (uint32_t)is->max_qp_wr, max_sge = (uint32_t)is->max_sge;

	if (attr->qp_type == IBV_QPT_RAW_PACKET && device->is.has_raw && !device->is.may_raw)
		return EPERM;
	if (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UC &&
		attr->qp_type != IBV_QPT_UD &&
		(attr->qp_type != IBV_QPT_RAW_PACKET || !device->is.has_raw))
		return EOPNOTSUPP;
	if (!attr->send_cq || !attr->recv_cq || attr->send_cq->context != attr->pd->context ||
		attr->recv_cq->context != attr->pd->context)
		return EINVAL;
	if (cap->max_send_wr > max_wr || cap->max_send_sge > max_sge ||
		cap->max_inline_data > device->is.max_inline)
		return EINVAL;
	if (!attr->srq && (cap->max_recv_wr > max_wr || cap->max_recv_sge > max_sge))
		return EINVAL;
	return fake_world.live[FAKE_VERBS_QP] > (unsigned)is->max_qp ? ENOMEM : 0;
}

static int check_ex(const struct fake_device *device, const struct ibv_qp_init_attr_ex *attr)
{
	static const uint64_t datagrams = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	static const uint64_t writes = IBV_QP_EX_WITH_RDMA_WRITE |
		IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	static const uint64_t windows = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;
	uint64_t can = device->is.send_ops;

	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD))
		return EINVAL;
	if ((attr->comp_mask &
		    ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) != 0)
		return EOPNOTSUPP;
	if (attr->qp_type == IBV_QPT_UD)
		can &= datagrams;
	if (attr->qp_type == IBV_QPT_UC)
		can &= datagrams | writes | windows;
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
		(attr->send_ops_flags & ~can) != 0)
		return EOPNOTSUPP;
	return 0;
}

static void hold(struct fake_qp *qp, int by)
{
	FAKE_OF(struct fake_pd, ibv, qp->ibv.pd)->object.n_users += (unsigned)by;
	FAKE_OF(struct fake_cq, ibv, qp->ibv.send_cq)->object.n_users += (unsigned)by;
	FAKE_OF(struct fake_cq, ibv, qp->ibv.recv_cq)->object.n_users += (unsigned)by;
	if (qp->ibv.srq)
		FAKE_OF(struct fake_srq, ibv, qp->ibv.srq)->object.n_users += (unsigned)by;
}

static struct fake_qp *make(const char *function, struct ibv_context *context,
	const struct ibv_qp_init_attr_ex *attr, bool is_ex)
{
	struct fake_context *of = fake_context_of(context);
	struct fake_device *device = of->object.device;
	struct fake_qp *qp = fake_make(function, FAKE_VERBS_QP, sizeof(*qp), device, of);
	int err;

	if (!qp)
		return NULL;
	pthread_mutex_init(&qp->building, NULL);
	err = is_ex ? check_ex(device, attr) : 0;
	if (err == 0)
		err = check_init(device, attr);
	if (err != 0)
		return fake_unmake(&qp->object, device->is.is_silent ? 0 : err);
	/* Both begin alike: ibv_create_qp_ex() counts on that as well. */
	memcpy(&qp->init, attr, sizeof(qp->init));
	if (attr->srq)
		qp->init.cap.max_recv_wr = qp->init.cap.max_recv_sge = 0;
	if (!init_sends(qp, &qp->init.cap) ||
		!fake_recv_ring_init(
			&qp->recvs, qp->init.cap.max_recv_wr, qp->init.cap.max_recv_sge))
		return fake_unmake(&qp->object, ENOMEM);
	qp->ibv.context = context;
	qp->ibv.qp_context = attr->qp_context;
	qp->ibv.pd = attr->pd;
	qp->ibv.send_cq = attr->send_cq;
	qp->ibv.recv_cq = attr->recv_cq;
	qp->ibv.srq = attr->srq;
	qp->ibv.handle = ++device->next_handle;
	qp->ibv.qp_num = device->next_qpn++;
	qp->ibv.state = IBV_QPS_RESET;
	qp->ibv.qp_type = attr->qp_type;
	hold(qp, 1);
	return qp;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = { 0 };
	struct fake_qp *qp;

	memcpy(&ex, attr, sizeof(*attr));
	ex.pd = pd;
	qp = make(__func__, pd->context, &ex, false);
	if (!qp)
		return NULL;
	attr->cap = qp->init.cap;
	fake_leave();
	return &qp->ibv;
}

struct ibv_qp *fake_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct fake_qp *qp = make("ibv_create_qp_ex", context, attr, true);

	if (!qp)
		return NULL;
	attr->cap = qp->init.cap;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		fake_qp_ex_init(qp, attr->send_ops_flags);
	fake_leave();
	return &qp->ibv;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibv)
{
	struct fake_qp *qp = FAKE_OF(struct fake_qp, ibv, ibv);

	return qp->has_ex ? &qp->ex : NULL;
}

int ibv_query_qp(
	struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct fake_qp *qp = FAKE_OF(struct fake_qp, ibv, ibv);
	int err = fake_enter(__func__, FAKE_CALL_MAKES, qp->object.device);

	if (err != 0)
		return err;
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = ibv->state;
	attr->rq_psn = qp->expected_psn;
	attr->sq_psn = qp->psn;
	attr->cap = qp->init.cap;
	*init = qp->init;
	fake_stand_still("ibv_query_qp, done");
	fake_leave();
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct fake_qp *qp = FAKE_OF(struct fake_qp, ibv, ibv);
	bool keep = qp->object.device->is.keeps_completions;
	int err = fake_destroy(__func__, &qp->object);

	if (err != 0)
		return err;
	qp->is_late = false;
	fake_qp_flush(qp);
	ibv->state = IBV_QPS_RESET;
	fake_windows_forget(qp);
	fake_cq_forget(FAKE_OF(struct fake_cq, ibv, ibv->send_cq), &qp->object, keep);
	fake_cq_forget(FAKE_OF(struct fake_cq, ibv, ibv->recv_cq), &qp->object, keep);
	fake_events_forget(&qp->object.context->events, &qp->object);
	hold(qp, -1);
	return fake_destroyed(&qp->object);
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t flags)
{
	return 0;
}

/* --- Shared receive queues */

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct fake_pd *of = FAKE_OF(struct fake_pd, ibv, pd);
	const struct ibv_device_attr *is = &of->object.device->is.attr;
	struct fake_srq *srq = fake_make(
		__func__, FAKE_VERBS_SRQ, sizeof(*srq), of->object.device, of->object.context);

	if (!srq)
		return NULL;
	if (attr->attr.max_wr == 0 || attr->attr.max_wr > (uint32_t)is->max_srq_wr ||
		attr->attr.max_sge > (uint32_t)is->max_srq_sge)
		return fake_unmake(&srq->object, is->max_srq == 0 ? EOPNOTSUPP : EINVAL);
	if (fake_world.live[FAKE_VERBS_SRQ] > (unsigned)is->max_srq)
		return fake_unmake(&srq->object, is->max_srq == 0 ? EOPNOTSUPP : ENOMEM);
	if (!fake_recv_ring_init(&srq->ring, attr->attr.max_wr, attr->attr.max_sge))
		return fake_unmake(&srq->object, ENOMEM);
	of->object.n_users++;
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = attr->srq_context;
	srq->ibv.pd = pd;
	srq->ibv.handle = ++of->object.device->next_handle;
	fake_leave();
	return &srq->ibv;
}

int ibv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
	struct fake_srq *srq = FAKE_OF(struct fake_srq, ibv, ibv);
	int err = fake_enter(__func__, FAKE_CALL_MAKES, srq->object.device);

	if (err != 0)
		return err;
	if (mask != IBV_SRQ_LIMIT || attr->srq_limit > srq->ring.max_wr)
		err = EINVAL;
	else
		srq->limit = attr->srq_limit;
	fake_leave();
	return err;
}

int ibv_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	struct fake_srq *srq = FAKE_OF(struct fake_srq, ibv, ibv);
	int err = fake_enter(__func__, FAKE_CALL_MAKES, srq->object.device);

	if (err != 0)
		return err;
	attr->max_wr = srq->ring.max_wr;
	attr->max_sge = srq->ring.max_sge;
	attr->srq_limit = srq->limit;
	fake_leave();
	return 0;
}

int ibv_destroy_srq(struct ibv_srq *ibv)
{
	struct fake_srq *srq = FAKE_OF(struct fake_srq, ibv, ibv);
	struct fake_object *at = NULL;
	int err = fake_destroy(__func__, &srq->object);

	if (err != 0)
		return err;
	while ((at = fake_next(FAKE_VERBS_CQ, at)) != NULL)
		fake_cq_forget((struct fake_cq *)at, &srq->object, true);
	fake_events_forget(&srq->object.context->events, &srq->object);
	FAKE_OF(struct fake_pd, ibv, ibv->pd)->object.n_users--;
	return fake_destroyed(&srq->object);
}

/* --- Groups */

static struct fake_mcast *find_mcast(
	const struct fake_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct fake_object *at = NULL;

	while ((at = fake_next(FAKE_VERBS_MCAST, at)) != NULL) {
		struct fake_mcast *mcast = (struct fake_mcast *)at;

		if (mcast->qp == qp && mcast->lid == lid &&
			memcmp(&mcast->gid, gid, sizeof(*gid)) == 0)
			return mcast;
	}
	return NULL;
}

int ibv_attach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
	struct fake_qp *qp = FAKE_OF(struct fake_qp, ibv, ibv);
	struct fake_device *device = qp->object.device;
	int max = device->is.attr.max_total_mcast_qp_attach;
	struct fake_mcast *mcast = fake_make(
		__func__, FAKE_VERBS_MCAST, sizeof(*mcast), device, qp->object.context);
	bool is_here;

	if (!mcast)
		return errno;
	is_here = find_mcast(qp, gid, lid) != NULL;
	if (ibv->qp_type != IBV_QPT_UD || !fake_is_multicast(gid) || is_here ||
		fake_world.live[FAKE_VERBS_MCAST] > (unsigned)max) {
		/* Attaching twice is no error and has no effect. */
		fake_unmake(&mcast->object, 0);
		if (is_here)
			return 0;
		return ibv->qp_type == IBV_QPT_UD && fake_is_multicast(gid) ? ENOMEM : EINVAL;
	}
	mcast->gid = *gid;
	mcast->lid = lid;
	mcast->qp = qp;
	qp->object.n_users++;
	fake_leave();
	return 0;
}

int ibv_detach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
	struct fake_qp *qp = FAKE_OF(struct fake_qp, ibv, ibv);
	int err = fake_enter_anyway(__func__, FAKE_CALL_DESTROYS);
	struct fake_mcast *mcast;

	if (err != 0)
		return err;
	mcast = find_mcast(qp, gid, lid);
	if (!mcast) {
		fake_leave();
		return EINVAL;
	}
	if (qp->object.device->is_dead)
		return fake_give_up(&mcast->object);
	qp->object.n_users--;
	return fake_destroyed(&mcast->object);
}
