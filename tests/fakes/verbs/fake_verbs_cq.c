/* SPDX-License-Identifier: BSD-3-Clause */
/* The libibverbs in memory: completion queues, plain and extended. */
#include <errno.h>
#include <stdlib.h>

#include "tests/fakes/verbs/fake_verbs_internal.h"

/* --- Completions come */

static void notify(struct fake_cq *cq)
{
	struct fake_event event = { .object = &cq->object };

	cq->notify = FAKE_NOTIFY_NONE;
	event.event.element.cq = &cq->ibv;
	fake_events_add(&cq->channel->events, &event);
}

/* With an error only status, vendor_err and the numbers of WR and QP are valid. The other fields
 * get wrong values, to find readers of them. */
static void spoil(struct fake_cqe *cqe)
{
	cqe->wc.opcode = cqe->is_send ? IBV_WC_RECV : IBV_WC_SEND;
	cqe->wc.byte_len = 0xa5a5a5a5;
	cqe->wc.imm_data = 0xa5a5a5a5;
	cqe->wc.wc_flags = 0;
}

void fake_cq_add(struct fake_cq *cq, const struct fake_cqe *cqe, bool is_solicited)
{
	struct fake_cqe *added;

	if (cq->is_dead || cq->n == (uint32_t)cq->ibv.cqe) {
		if (!cq->has_overrun)
			fake_event_raise(&cq->object, IBV_EVENT_CQ_ERR);
		cq->has_overrun = true;
		return;
	}
	added = &cq->ring[(cq->head + cq->n++) % (uint32_t)cq->ibv.cqe];
	*added = *cqe;
	if (cqe->wc.status != IBV_WC_SUCCESS) {
		spoil(added);
		is_solicited = true;
	}
	if (cq->channel &&
		(cq->notify == FAKE_NOTIFY_ANY ||
			(cq->notify == FAKE_NOTIFY_SOLICITED && is_solicited)))
		notify(cq);
}

void fake_cq_forget(struct fake_cq *cq, const struct fake_object *object, bool keep)
{
	uint32_t size = (uint32_t)cq->ibv.cqe, kept = 0;

	for (uint32_t i = 0; i < cq->n; i++) {
		struct fake_cqe cqe = cq->ring[(cq->head + i) % size];
		bool is_of = cqe.qp && &cqe.qp->object == object;

		if (cqe.srq && (is_of || &cqe.srq->object == object)) {
			cqe.srq->ring.polled += is_of && !keep;
			cqe.srq = NULL;
		}
		if (is_of)
			cqe.qp = NULL;
		if (!is_of || keep)
			cq->ring[(cq->head + kept++) % size] = cqe;
	}
	cq->n = kept;
}

/* --- Completions go */

static bool take(struct fake_cq *cq, struct fake_cqe *cqe)
{
	if (cq->n == 0)
		return false;
	*cqe = cq->ring[cq->head];
	cq->head = (cq->head + 1) % (uint32_t)cq->ibv.cqe;
	cq->n--;
	fake_world.stats.polled++;
	if (cqe->is_send && cqe->qp)
		cqe->qp->freed = cqe->index + 1;
	else if (cqe->srq)
		cqe->srq->ring.polled++;
	else if (cqe->qp)
		cqe->qp->recvs.polled++;
	return true;
}

int fake_poll_cq(struct ibv_cq *ibv, int max, struct ibv_wc *wc)
{
	struct fake_cq *cq = FAKE_OF(struct fake_cq, ibv, ibv);
	int err = fake_enter_anyway("ibv_poll_cq", FAKE_CALL_LOOPS);
	struct fake_cqe cqe;
	int n = 0;

	if (err != 0)
		return -err;
	while (n < max && take(cq, &cqe))
		wc[n++] = cqe.wc;
	if (n == 0)
		fake_stand_still("ibv_poll_cq, empty");
	fake_leave();
	return n;
}

int fake_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct fake_cq *cq = FAKE_OF(struct fake_cq, ibv, ibv);
	int err = fake_enter("ibv_req_notify_cq", FAKE_CALL_LOOPS, cq->object.device);

	if (err != 0)
		return err;
	/* Existing completions raise no event; "solicited" does not replace an earlier "any". */
	if (!solicited_only)
		cq->notify = FAKE_NOTIFY_ANY;
	else if (cq->notify == FAKE_NOTIFY_NONE)
		cq->notify = FAKE_NOTIFY_SOLICITED;
	fake_leave();
	return 0;
}

/* --- Extended polling */

static struct fake_cq *of_ex(struct ibv_cq_ex *ex)
{
	return FAKE_OF(struct fake_cq, ex, ex);
}

static int poll_one(const char *function, struct fake_cq *cq)
{
	int err = fake_enter_anyway(function, FAKE_CALL_LOOPS);

	if (err != 0)
		return err;
	if (take(cq, &cq->current)) {
		cq->ex.wr_id = cq->current.wc.wr_id;
		cq->ex.status = cq->current.wc.status;
		fake_world.stats.polled_ex++;
	} else {
		err = ENOENT;
		fake_stand_still("ibv_start_poll, empty");
	}
	fake_leave();
	return err;
}

/* Locks the CQ until end_poll(), as providers do. Does not lock an empty one. */
static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct fake_cq *cq = of_ex(ex);
	int err;

	if (attr->comp_mask != 0)
		return EINVAL;
	pthread_mutex_lock(&cq->polling);
	err = poll_one("ibv_start_poll", cq);
	if (err != 0)
		pthread_mutex_unlock(&cq->polling);
	return err;
}

static int next_poll(struct ibv_cq_ex *ex)
{
	return poll_one("ibv_next_poll", of_ex(ex));
}

static void end_poll(struct ibv_cq_ex *ex)
{
	pthread_mutex_unlock(&of_ex(ex)->polling);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->current.wc.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->current.wc.vendor_err;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->current.wc.wc_flags;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->current.wc.byte_len;
}

static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->current.wc.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->current.wc.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->current.wc.src_qp;
}

static uint32_t read_slid(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->current.wc.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->current.wc.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->current.wc.dlid_path_bits;
}

static uint16_t read_cvlan(struct ibv_cq_ex *ex)
{
	return of_ex(ex)->object.device->is.wc_tci;
}

/* Readers that were not requested stay NULL, as with providers. */
static void set_readers(struct ibv_cq_ex *ex, uint64_t flags)
{
	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_wc_flags = read_wc_flags;
	if (flags & IBV_WC_EX_WITH_BYTE_LEN)
		ex->read_byte_len = read_byte_len;
	if (flags & IBV_WC_EX_WITH_IMM)
		ex->read_imm_data = read_imm_data;
	if (flags & IBV_WC_EX_WITH_QP_NUM)
		ex->read_qp_num = read_qp_num;
	if (flags & IBV_WC_EX_WITH_SRC_QP)
		ex->read_src_qp = read_src_qp;
	if (flags & IBV_WC_EX_WITH_SLID)
		ex->read_slid = read_slid;
	if (flags & IBV_WC_EX_WITH_SL)
		ex->read_sl = read_sl;
	if (flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		ex->read_dlid_path_bits = read_dlid_path_bits;
	if (flags & IBV_WC_EX_WITH_CVLAN)
		ex->read_cvlan = read_cvlan;
}

/* --- Making and destroying */

static struct fake_cq *make(
	const char *function, struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr)
{
	struct fake_context *of = fake_context_of(context);
	struct fake_device *device = of->object.device;
	struct fake_cq *cq = fake_make(function, FAKE_VERBS_CQ, sizeof(*cq), device, of);

	if (!cq)
		return NULL;
	pthread_mutex_init(&cq->polling, NULL);
	if (attr->cqe == 0 || attr->cqe > (uint32_t)device->is.attr.max_cqe ||
		attr->comp_vector >= (uint32_t)context->num_comp_vectors ||
		(attr->channel && attr->channel->context != context))
		return fake_unmake(&cq->object, EINVAL);
	cq->ring = calloc(attr->cqe, sizeof(*cq->ring));
	if (!cq->ring || fake_world.live[FAKE_VERBS_CQ] > (unsigned)device->is.attr.max_cq)
		return fake_unmake(&cq->object, ENOMEM);
	cq->ibv.context = context;
	cq->ibv.cq_context = attr->cq_context;
	cq->ibv.channel = attr->channel;
	cq->ibv.cqe = (int)attr->cqe;
	cq->ibv.handle = ++device->next_handle;
	if (attr->channel) {
		cq->channel = FAKE_OF(struct fake_channel, ibv, attr->channel);
		cq->channel->object.n_users++;
		attr->channel->refcnt++;
	}
	return cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
	struct ibv_comp_channel *channel, int comp_vector)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe > 0 ? (uint32_t)cqe : 0,
		.cq_context = cq_context,
		.channel = channel,
		.comp_vector = (uint32_t)comp_vector,
	};
	struct fake_cq *cq = make(__func__, context, &attr);

	if (!cq)
		return NULL;
	fake_leave();
	return &cq->ibv;
}

struct ibv_cq_ex *fake_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct fake_cq *cq = make("ibv_create_cq_ex", context, attr);
	bool has_flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS;

	if (!cq)
		return NULL;
	if ((attr->wc_flags & ~cq->object.device->is.wc_flags) != 0 ||
		(attr->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ||
		(has_flags && (attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0)) {
		if (cq->channel) {
			cq->channel->object.n_users--;
			attr->channel->refcnt--;
		}
		return fake_unmake(&cq->object, EOPNOTSUPP);
	}
	set_readers(&cq->ex, attr->wc_flags);
	fake_leave();
	return &cq->ex;
}

int ibv_resize_cq(struct ibv_cq *ibv, int cqe)
{
	struct fake_cq *cq = FAKE_OF(struct fake_cq, ibv, ibv);
	int err = fake_enter(__func__, FAKE_CALL_MAKES, cq->object.device);
	struct fake_cqe *ring = NULL;

	if (err != 0)
		return err;
	if (cqe < 1 || cqe > cq->object.device->is.attr.max_cqe || cq->n > (uint32_t)cqe)
		err = EINVAL;
	else if (!(ring = calloc((size_t)cqe, sizeof(*ring))))
		err = ENOMEM;
	if (err == 0) {
		for (uint32_t i = 0; i < cq->n; i++)
			ring[i] = cq->ring[(cq->head + i) % (uint32_t)cq->ibv.cqe];
		free(cq->ring);
		cq->ring = ring;
		cq->head = 0;
		cq->ibv.cqe = cqe;
	}
	fake_leave();
	return err;
}

int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct fake_cq *cq = FAKE_OF(struct fake_cq, ibv, ibv);
	int err = fake_destroy(__func__, &cq->object);

	if (err != 0)
		return err;
	fake_events_forget(&cq->object.context->events, &cq->object);
	if (cq->channel) {
		fake_events_forget(&cq->channel->events, &cq->object);
		cq->channel->object.n_users--;
		cq->channel->ibv.refcnt--;
		cq->channel = NULL;
	}
	return fake_destroyed(&cq->object);
}
