/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs: create, find and describe them, and explain failures. modify.c changes their
 * state. */
#include "drivers/verbs/internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/control/page.h"

enum { STRIDE = 2048 }; /* slots examined per hold of the guard */

_Static_assert(FRL_QPT_RC == (int)IBV_QPT_RC && FRL_QPT_UC == (int)IBV_QPT_UC &&
		FRL_QPT_UD == (int)IBV_QPT_UD,
	"types are the same");

/* ---- the table */

static struct list *bucket(struct verbs_device *device, uint32_t num)
{
	return &device->qps[num & (QP_BUCKETS - 1)];
}

struct verbs_qp *verbs_find(struct verbs_device *device, uint32_t num)
{
	struct list *head = bucket(device, num);

	for (struct list *at = head->next; at != head; at = at->next) {
		struct verbs_qp *qp = container_of(at, struct verbs_qp, node);

		if (qp->base.num == num)
			return qp;
	}
	return NULL;
}

struct frl_qp *verbs_find_qp(struct frl_device *device, uint32_t num)
{
	struct verbs_qp *qp = verbs_find(verbs_device(device), num);

	return qp ? &qp->base : NULL;
}

static bool take_slot(struct verbs_device *device, struct verbs_qp *qp)
{
	uint32_t at = device->first_free, room;
	struct verbs_qp **more;

	while (at < device->n_slots && device->slots[at])
		at++;
	if (at == device->n_slots) {
		room = at ? 2 * at : 16;
		more = realloc(device->slots, room * sizeof(struct verbs_qp *));
		if (!more)
			return false;
		memset(more + at, 0, (room - at) * sizeof(struct verbs_qp *));
		device->slots = more;
		device->n_slots = room;
	}
	device->slots[at] = qp;
	device->first_free = at + 1;
	qp->slot = at;
	return true;
}

static bool add_to_table(struct verbs_device *device, struct verbs_qp *qp)
{
	bool is_added;

	device_enter(&device->base);
	is_added = take_slot(device, qp);
	if (is_added)
		list_add_tail(bucket(device, qp->base.num), &qp->node);
	device_leave(&device->base);
	return is_added;
}

static void remove_from_table(struct verbs_device *device, struct verbs_qp *qp)
{
	device_enter(&device->base);
	list_remove(&qp->node);
	device->slots[qp->slot] = NULL;
	if (qp->slot < device->first_free)
		device->first_free = qp->slot;
	device_leave(&device->base);
}

static void count_on_cq(struct frl_cq *base, const struct verbs_qp *qp, int change)
{
	struct verbs_cq *cq = verbs_cq(base);

	/* Unsigned: adding the maximum subtracts one. */
	atomic_fetch_add(
		is_datagram(&qp->base) ? &cq->datagrams : &cq->connected, (unsigned)change);
}

/* ---- creation */

/* Returns the operations that it must support by ibv_wr_*(). */
static uint64_t send_ops(const struct frl_qp *qp)
{
	const struct frl_device_attr *device = &qp->pd->device->attr;
	uint64_t ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

	if (qp->type == FRL_QPT_UD)
		return ops;
	ops |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	if (device->max_mw)
		ops |= IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;
	if (qp->type == FRL_QPT_UC)
		return ops;
	ops |= IBV_QP_EX_WITH_RDMA_READ;
	if (device->max_mw)
		ops |= IBV_QP_EX_WITH_SEND_WITH_INV;
	if (device->has_atomics)
		ops |= IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	return ops;
}

static struct ibv_qp_cap cap_of(const struct frl_qp_config *config)
{
	return (struct ibv_qp_cap){
		.max_send_wr = config->max_send_wr,
		.max_recv_wr = config->srq ? 0 : config->max_recv_wr,
		.max_send_sge = config->max_send_sge,
		.max_recv_sge = config->srq ? 0 : config->max_recv_sge,
		.max_inline_data = config->max_inline,
	};
}

/* Some providers accept operations that they do not implement. */
static bool has_ops(const struct ibv_qp_ex *ex, uint64_t ops)
{
	const struct {
		uint64_t op;
		bool has;
	} rows[] = {
		{ IBV_QP_EX_WITH_SEND, ex->wr_send },
		{ IBV_QP_EX_WITH_SEND_WITH_IMM, ex->wr_send_imm },
		{ IBV_QP_EX_WITH_SEND_WITH_INV, ex->wr_send_inv },
		{ IBV_QP_EX_WITH_RDMA_WRITE, ex->wr_rdma_write },
		{ IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, ex->wr_rdma_write_imm },
		{ IBV_QP_EX_WITH_RDMA_READ, ex->wr_rdma_read },
		{ IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, ex->wr_atomic_cmp_swp },
		{ IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, ex->wr_atomic_fetch_add },
		{ IBV_QP_EX_WITH_LOCAL_INV, ex->wr_local_inv },
		{ IBV_QP_EX_WITH_BIND_MW, ex->wr_bind_mw },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if ((ops & rows[i].op) && !rows[i].has)
			return false;
	return ex->wr_start && ex->wr_complete && ex->wr_set_sge && ex->wr_set_sge_list &&
		ex->wr_set_inline_data_list;
}

/* Creates one that posts by ibv_wr_*(). Returns NULL and sets errno; EOPNOTSUPP if the provider
 * lacks the operations. */
static struct ibv_qp *create_extended(struct verbs_qp *qp, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *made;

	errno = EOPNOTSUPP;
	if (!device_of_pd(qp->base.pd)->has_good_wr)
		return NULL;
	made = ibv_create_qp_ex(attr->pd->context, attr);
	if (!made)
		return NULL;
	qp->ex = ibv_qp_to_qp_ex(made);
	if (qp->ex && has_ops(qp->ex, attr->send_ops_flags) &&
		(!is_datagram(&qp->base) || qp->ex->wr_set_ud_addr))
		return made;
	qp->ex = NULL;
	ibv_destroy_qp(made);
	errno = EOPNOTSUPP;
	return NULL;
}

/* Returns 0 or an errno. A provider without ibv_wr_*() rejects requests for it. */
static int create(struct verbs_qp *qp, const struct frl_qp_config *config, uint32_t *ret_inline)
{
	struct frl_qp *base = &qp->base;
	struct ibv_qp_init_attr_ex extended = {
		.qp_context = qp,
		.send_cq = verbs_cq(base->send_cq)->cq,
		.recv_cq = verbs_cq(base->recv_cq)->cq,
		.srq = base->srq ? verbs_srq(base->srq)->srq : NULL,
		.cap = cap_of(config),
		.qp_type = (enum ibv_qp_type)base->type,
		.sq_sig_all = config->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = verbs_pd(base->pd)->pd,
		.send_ops_flags = send_ops(base),
	};
	struct ibv_qp_init_attr plain = {
		.qp_context = qp,
		.send_cq = extended.send_cq,
		.recv_cq = extended.recv_cq,
		.srq = extended.srq,
		.cap = extended.cap,
		.qp_type = extended.qp_type,
		.sq_sig_all = extended.sq_sig_all,
	};

	qp->qp = create_extended(qp, &extended);
	*ret_inline = extended.cap.max_inline_data;
	if (qp->qp)
		return 0;
	if (errno && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
		return errno;
	errno = 0;
	qp->qp = ibv_create_qp(extended.pd, &plain);
	*ret_inline = plain.cap.max_inline_data;
	/* Some providers set no errno if a request exceeds their limits. */
	return qp->qp ? 0 : errno ? errno : EINVAL;
}

/* Returns EINVAL if less was granted than requested. */
static int take_inline(struct verbs_qp *qp, uint32_t wanted, uint32_t given)
{
	if (given >= wanted) {
		qp->base.max_inline = given < FRL_MAX_INLINE ? given : FRL_MAX_INLINE;
		return 0;
	}
	ibv_destroy_qp(qp->qp);
	qp->qp = NULL;
	qp->ex = NULL;
	return EINVAL;
}

static int cannot_create(const struct frl_qp *qp, const struct frl_qp_config *config, int err)
{
	const struct verbs_device *device = device_of_pd(qp->pd);
	const struct frl_device_attr *attr = &device->base.attr;

	if (err == ENOSPC)
		return frl_fail(-ENOSPC, "%s has no queue pair left (at most %u)", device->name,
			attr->max_qp);
	if (err == EINVAL)
		return frl_fail(-EINVAL,
			"%s cannot create a queue pair (%u and %u requests, %u and %u elements, %u "
			"bytes inline): request less of them",
			device->name, config->max_send_wr, config->max_recv_wr,
			config->max_send_sge, config->max_recv_sge, config->max_inline);
	return verbs_fail(err,
		"%s: no queue pair of %u and %u requests with %u and %u elements and %u bytes "
		"inline",
		device->name, config->max_send_wr, config->max_recv_wr, config->max_send_sge,
		config->max_recv_sge, config->max_inline);
}

int verbs_qp_create(struct frl_qp *base, const struct frl_qp_config *config)
{
	struct verbs_device *device = device_of_pd(base->pd);
	struct verbs_qp *qp = verbs_qp(base);
	uint32_t given;
	int err;

	if (base->type == FRL_QPT_GSI)
		return frl_fail(-ENOTSUP,
			"%s: the kernel owns the hardware's GSI queue pair: use UD, or librdmacm",
			device->name);
	event_source_init(&qp->source, EVENT_OF_QP, base);
	list_init(&qp->memberships);
	list_init(&qp->node);
	atomic_init(&qp->state, FRL_QPS_RESET);
	atomic_init(&qp->qkey, 0);
	err = create(qp, config, &given);
	if (!err)
		err = take_inline(qp, config->max_inline, given);
	if (err)
		return cannot_create(base, config, err);
	base->num = qp->qp->qp_num;
	qp->max_send_sge = config->max_send_sge;
	qp->max_recv_sge = config->max_recv_sge;
	if (!add_to_table(device, qp)) {
		ibv_destroy_qp(qp->qp);
		return frl_fail(-ENOMEM, "no memory for a queue pair");
	}
	count_on_cq(base->send_cq, qp, 1);
	count_on_cq(base->recv_cq, qp, 1);
	return 0;
}

void verbs_qp_destroy(struct frl_qp *base)
{
	struct verbs_device *device = device_of_pd(base->pd);
	struct verbs_qp *qp = verbs_qp(base);
	struct ibv_qp *own = qp->qp;
	int rc;

	verbs_leave_groups(qp);
	/* Remove it from the table first: entries in the table are used. */
	remove_from_table(device, qp);
	rc = ibv_destroy_qp(own);
	verbs_destroyed(device, verbs_pd(base->pd), rc, "cannot destroy a queue pair");
	device_enter(&device->base);
	if (rc)
		own->qp_context = NULL;
	list_remove(&qp->source.node);
	device_leave(&device->base);
	count_on_cq(base->send_cq, qp, -1);
	count_on_cq(base->recv_cq, qp, -1);
}

/* ---- state and failures */

enum frl_qp_state verbs_qp_state(const struct frl_qp *qp)
{
	return qp_state_of(container_of(qp, const struct verbs_qp, base));
}

static enum frl_qp_state state_from(enum ibv_qp_state state)
{
	switch (state) {
	case IBV_QPS_RESET: return FRL_QPS_RESET;
	case IBV_QPS_INIT: return FRL_QPS_INIT;
	case IBV_QPS_RTR: return FRL_QPS_RTR;
	case IBV_QPS_RTS: return FRL_QPS_RTS;
	case IBV_QPS_SQD: return FRL_QPS_SQD;
	case IBV_QPS_SQE: return FRL_QPS_SQE;
	default: return FRL_QPS_ERR;
	}
}

void verbs_qp_set_state(struct verbs_qp *qp, enum frl_qp_state state)
{
	atomic_store(&qp->state, state);
	qp->changes++;
}

enum frl_qp_state verbs_qp_query_state(struct verbs_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr = { 0 };

	if (qp->is_moving)
		qp->needs_state_query = true;
	else if (!ibv_query_qp(qp->qp, &attr, IBV_QP_STATE, &init))
		verbs_qp_set_state(qp, state_from(attr.qp_state));
	return qp_state_of(qp);
}

/* A queue pair in ERR stays there until it is reset, whatever the device reports. */
static void store_state(
	struct verbs_qp *qp, const struct ibv_qp_attr *reported, struct frl_qp_attr *attr)
{
	if (qp_state_of(qp) == FRL_QPS_ERR)
		return;
	verbs_qp_set_state(qp, state_from(reported->qp_state));
	attr->sq_draining = reported->qp_state == IBV_QPS_SQD && reported->sq_draining;
}

/* Stores the current PSNs. Before it is connected, the requested ones stay. */
static void store_psns(
	const struct verbs_qp *qp, const struct ibv_qp_attr *reported, struct frl_qp_attr *attr)
{
	if (qp->base.type != FRL_QPT_RC)
		return;
	if (attr->state >= FRL_QPS_RTR)
		attr->rq_psn = reported->rq_psn;
	if (attr->state >= FRL_QPS_RTS)
		attr->sq_psn = reported->sq_psn;
}

void verbs_qp_query(struct frl_qp *base, struct frl_qp_attr *ret_attr)
{
	const int wanted = IBV_QP_STATE | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN;
	struct frl_device *device = base->pd->device;
	struct verbs_qp *qp = verbs_qp(base);
	struct ibv_qp_attr reported = { 0 };
	struct ibv_qp_init_attr init;
	bool queries_device;
	uint32_t changes;

	device_enter(device);
	*ret_attr = qp->attr;
	changes = qp->changes;
	ret_attr->state = qp_state_of(qp);
	queries_device = !qp->is_moving && !atomic_load(&verbs_device(device)->is_fatal);
	device_leave(device);
	if (queries_device && !ibv_query_qp(qp->qp, &reported, wanted, &init)) {
		device_enter(device);
		store_psns(qp, &reported, ret_attr);
		/* The state may have changed since the query. */
		if (!qp->is_moving && qp->changes == changes)
			store_state(qp, &reported, ret_attr);
		ret_attr->state = qp_state_of(qp);
		device_leave(device);
	}
	ret_attr->cur_state = ret_attr->state;
}

void verbs_qp_note_error(struct verbs_qp *qp, const char *reason)
{
	verbs_qp_set_state(qp, FRL_QPS_ERR);
	if (qp->error[0])
		return;
	snprintf(qp->error, sizeof(qp->error), "%s", reason);
	qp->error_ns = clock_now_ns();
}

void verbs_qp_note_failure(struct verbs_qp *qp, enum frl_wc_status status, uint32_t vendor_error)
{
	enum frl_qp_state state = qp_state_of(qp);

	/* The completion is from a previous connection. */
	if (state < FRL_QPS_RTR)
		return;
	if (status != FRL_WC_WR_FLUSH_ERR && qp->error_status == FRL_WC_SUCCESS) {
		qp->error_status = status;
		qp->vendor_error = vendor_error;
		qp->error_ns = clock_now_ns();
	}
	if (state == FRL_QPS_ERR || state == FRL_QPS_SQE)
		return;
	/* Other services may continue, and requests may have been flushed by the owner. */
	if (qp->base.type == FRL_QPT_RC && status != FRL_WC_WR_FLUSH_ERR)
		verbs_qp_set_state(qp, FRL_QPS_ERR);
	else
		verbs_qp_query_state(qp);
}

void verbs_qp_fail(struct frl_qp *base, const char *reason)
{
	struct verbs_qp *qp = verbs_qp(base);
	enum frl_qp_state before = qp_state_of(qp);

	if (before == FRL_QPS_RESET && !qp->is_moving)
		return;
	if (before == FRL_QPS_ERR) {
		verbs_qp_note_error(qp, reason);
		return;
	}
	verbs_qp_to_error(qp);
	/* It replaces any earlier reason. */
	qp->error[0] = '\0';
	verbs_qp_note_error(qp, reason);
	device_raise(base->pd->device, &qp->source, FRL_EVENT_QP_FATAL);
}

/* Truncates to the size. */
static void copy_text(char *to, size_t size, const char *from)
{
	size_t len = strnlen(from, size ? size - 1 : 0);

	if (!size)
		return;
	memcpy(to, from, len);
	to[len] = '\0';
}

void verbs_qp_describe_error(const struct frl_qp *base, char *text, size_t size)
{
	const struct verbs_qp *qp = container_of(base, const struct verbs_qp, base);

	if (qp->error[0] || qp->error_status == FRL_WC_SUCCESS)
		copy_text(text, size, qp->error);
	else if (qp->vendor_error)
		snprintf(text, size, "%s (vendor error 0x%x)", frl_wc_status_str(qp->error_status),
			qp->vendor_error);
	else
		copy_text(text, size, frl_wc_status_str(qp->error_status));
}

/* ---- for the control daemon */

static enum page_wait wait_of(enum frl_qp_state state)
{
	switch (state) {
	case FRL_QPS_RESET:
	case FRL_QPS_INIT: return PAGE_WAIT_NOT_CONNECTED;
	case FRL_QPS_SQD: return PAGE_WAIT_DRAINING;
	case FRL_QPS_ERR: return PAGE_WAIT_ERROR;
	default: return PAGE_WAIT_NOTHING; /* not known for hardware */
	}
}

static void describe(const struct verbs_qp *qp, struct page_qp *to)
{
	enum frl_qp_state state = qp_state_of(qp);

	*to = (struct page_qp){
		.qpn = qp->base.num,
		.type = (uint8_t)qp->base.type,
		.state = (uint8_t)state,
		.wait = (uint8_t)wait_of(state),
		.dest_qpn = qp->attr.dest_qpn,
		.path_mtu = qp->attr.path_mtu,
		.peer_rank = qp->base.peer_rank,
	};
	memcpy(to->peer_host, qp->base.peer_host, sizeof(to->peer_host));
	memcpy(to->remote_ip, &qp->attr.ah.dgid, sizeof(to->remote_ip));
	verbs_qp_describe_error(&qp->base, to->error, sizeof(to->error));
	to->error_ns = to->error[0] ? qp->error_ns : 0;
}

void verbs_describe_qps(struct frl_device *base, struct qp_batch *batch)
{
	struct verbs_device *device = verbs_device(base);
	uint32_t last = device->n_slots < PAGE_SLOTS ? device->n_slots : PAGE_SLOTS;
	uint32_t at = batch->first;

	batch->n = 0;
	batch->last = last;
	for (; at < last && at - batch->first < STRIDE && batch->n < batch->room; at++) {
		if (!device->slots[at])
			continue;
		batch->slots[batch->n] = at;
		describe(device->slots[at], &batch->qps[batch->n++]);
	}
	batch->end = at;
}
