/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs: creation, destruction, and calls of newer versions of libibverbs. */
#include <errno.h>
#include <stdlib.h>

#include "dropin/ibverbs/dropin.h"

/* ---- creation */

static bool is_supported(enum ibv_qp_type type)
{
	return type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD;
}

static struct frl_qp_config config_of(const struct ibv_qp_init_attr_ex *attr, struct dropin_qp *qp)
{
	const struct ibv_qp_cap *cap = &qp->cap;

	return (struct frl_qp_config){
		.type = (enum frl_qp_type)attr->qp_type,
		.send_cq = dropin_cq(attr->send_cq)->frl,
		.recv_cq = dropin_cq(attr->recv_cq)->frl,
		.srq = attr->srq ? dropin_srq(attr->srq)->frl : NULL,
		.max_send_wr = cap->max_send_wr,
		.max_recv_wr = cap->max_recv_wr,
		.max_send_sge = cap->max_send_sge,
		.max_recv_sge = cap->max_recv_sge,
		.max_inline = cap->max_inline_data,
		.sq_sig_all = attr->sq_sig_all != 0,
		.as_hardware = true,
		.context = qp,
	};
}

static uint32_t at_least_one(uint32_t n)
{
	return n ? n : 1;
}

/* Programs may ask for no room at all where they use none. */
static void choose_cap(const struct ibv_qp_init_attr_ex *attr, struct ibv_qp_cap *cap)
{
	*cap = attr->cap;
	cap->max_send_wr = at_least_one(cap->max_send_wr);
	cap->max_send_sge = at_least_one(cap->max_send_sge);
	cap->max_recv_sge = at_least_one(cap->max_recv_sge);
	if (attr->srq)
		cap->max_recv_wr = cap->max_recv_sge = 0;
}

static int open_qp(struct dropin_qp *qp, const struct ibv_qp_init_attr_ex *attr)
{
	struct frl_qp_config config;
	struct frl_qp_attr now;
	int rc;

	choose_cap(attr, &qp->cap);
	config = config_of(attr, qp);
	rc = frl_qp_create(pd_use(attr->pd), &config, &qp->frl);
	if (rc) {
		pd_unuse(attr->pd);
		return rc;
	}
	frl_qp_query(qp->frl, &now);
	qp->cap.max_inline_data = now.max_inline;
	return 0;
}

static void fill_qp(
	struct dropin_qp *qp, struct ibv_context *ibv, const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *base = &qp->ex.qp_base;

	*base = (struct ibv_qp){
		.context = ibv,
		.qp_context = attr->qp_context,
		.pd = attr->pd,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.qp_num = frl_qp_num(qp->frl),
		.handle = frl_qp_num(qp->frl),
		.state = IBV_QPS_RESET,
		.qp_type = attr->qp_type,
	};
	pthread_mutex_init(&base->mutex, NULL);
	pthread_cond_init(&base->cond, NULL);
	pthread_mutex_init(&qp->wr_mutex, NULL);
	qp->sq_sig_all = attr->sq_sig_all != 0;
	qp->is_datagram = attr->qp_type == IBV_QPT_UD;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		qp->wr_ops = attr->send_ops_flags;
		wr_init(qp);
	}
}

/* Operations of ibv_wr_*() that each type has. */
static uint64_t ops_of(enum ibv_qp_type type)
{
	const uint64_t datagram = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	const uint64_t unreliable = datagram | IBV_QP_EX_WITH_RDMA_WRITE |
		IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_BIND_MW |
		IBV_QP_EX_WITH_LOCAL_INV;

	switch (type) {
	case IBV_QPT_UD: return datagram;
	case IBV_QPT_UC: return unreliable;
	default:
		return unreliable | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV;
	}
}

static int check(const struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
		IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

	if (!is_supported(attr->qp_type))
		return dropin_refuse(EOPNOTSUPP, "queue pairs are of type RC, UC or UD");
	if ((attr->comp_mask & ~known) ||
		((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr->create_flags))
		return dropin_refuse(
			EOPNOTSUPP, "ibv_create_qp_ex: an attribute that is not supported");
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || !attr->send_cq ||
		!attr->recv_cq)
		return dropin_refuse(
			EINVAL, "a queue pair needs a protection domain and completion queues");
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
		(attr->send_ops_flags & ~ops_of(attr->qp_type)))
		return dropin_refuse(
			EOPNOTSUPP, "ibv_create_qp_ex: the type lacks an operation of send_ops");
	return 0;
}

struct ibv_qp *create_qp_ex(struct ibv_context *ibv, struct ibv_qp_init_attr_ex *attr)
{
	struct dropin_qp *qp;
	int rc;

	if (check(attr))
		return NULL;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->process = process_now();
	source_init(&qp->source, SOURCE_QP, &qp->ex.qp_base);
	qp->ex.qp_base.context = ibv;
	rc = open_qp(qp, attr);
	if (rc) {
		free(qp);
		dropin_errno(rc);
		return NULL;
	}
	fill_qp(qp, ibv, attr);
	attr->cap = qp->cap;
	return &qp->ex.qp_base;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = create_qp_ex(pd->context, &ex);

	if (qp)
		attr->cap = ex.cap;
	return qp;
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct dropin_qp *qp = dropin_qp(ibv);

	if (qp->process != process_now())
		return 0;
	frl_qp_destroy(qp->frl);
	/* The wait may be cancelled. Another call then does the rest. */
	if (qp->frl)
		pd_unuse(ibv->pd);
	qp->frl = NULL;
	async_forget(ibv->context, &qp->source, &ibv->mutex, &ibv->cond, &ibv->events_completed);
	wr_fini(qp);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	pthread_mutex_destroy(&qp->wr_mutex);
	free(qp);
	return 0;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibv)
{
	struct dropin_qp *qp = dropin_qp(ibv);

	return qp->wr_ops ? &qp->ex : NULL;
}

/* ---- options that this device has not */

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return dropin_refuse(EOPNOTSUPP, "enhanced connection establishment is not supported");
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return dropin_refuse(EOPNOTSUPP, "enhanced connection establishment is not supported");
}

/* No more is promised than verbs promise. */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0;
}
