/* SPDX-License-Identifier: BSD-3-Clause */
/* Converts completions of libibverbs to those of Ferrule, which are nearly the same. */
#include "drivers/verbs/internal.h"

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/limit.h"

enum {
	BATCH = 16,
	LATELY_MS = 1000,
	SOON_MS = 50,
	SOON_STEP_NS = 1000000,
	RXE_WITH_INV = 1 << 2, /* the kernel's IB_WC_WITH_INVALIDATE */
};

_Static_assert(FRL_WC_RECV == (int)IBV_WC_RECV &&
		FRL_WC_RECV_RDMA_WITH_IMM == (int)IBV_WC_RECV_RDMA_WITH_IMM &&
		FRL_WC_SEND == (int)IBV_WC_SEND && FRL_WC_RDMA_WRITE == (int)IBV_WC_RDMA_WRITE &&
		FRL_WC_RDMA_READ == (int)IBV_WC_RDMA_READ &&
		FRL_WC_COMP_SWAP == (int)IBV_WC_COMP_SWAP &&
		FRL_WC_FETCH_ADD == (int)IBV_WC_FETCH_ADD &&
		FRL_WC_BIND_MW == (int)IBV_WC_BIND_MW && FRL_WC_LOCAL_INV == (int)IBV_WC_LOCAL_INV,
	"opcodes are the same");
_Static_assert(FRL_WC_GRH == (int)IBV_WC_GRH && FRL_WC_WITH_IMM == (int)IBV_WC_WITH_IMM &&
		FRL_WC_WITH_INV == (int)IBV_WC_WITH_INV,
	"flags are the same");

static enum frl_wc_status status_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS: return FRL_WC_SUCCESS;
	case IBV_WC_LOC_LEN_ERR: return FRL_WC_LOC_LEN_ERR;
	case IBV_WC_LOC_QP_OP_ERR: return FRL_WC_LOC_QP_OP_ERR;
	case IBV_WC_LOC_PROT_ERR: return FRL_WC_LOC_PROT_ERR;
	case IBV_WC_WR_FLUSH_ERR: return FRL_WC_WR_FLUSH_ERR;
	case IBV_WC_MW_BIND_ERR: return FRL_WC_MW_BIND_ERR;
	case IBV_WC_BAD_RESP_ERR: return FRL_WC_BAD_RESP_ERR;
	case IBV_WC_LOC_ACCESS_ERR: return FRL_WC_LOC_ACCESS_ERR;
	case IBV_WC_REM_INV_REQ_ERR: return FRL_WC_REM_INV_REQ_ERR;
	case IBV_WC_REM_ACCESS_ERR: return FRL_WC_REM_ACCESS_ERR;
	case IBV_WC_REM_OP_ERR: return FRL_WC_REM_OP_ERR;
	case IBV_WC_RETRY_EXC_ERR: return FRL_WC_RETRY_EXC_ERR;
	case IBV_WC_RNR_RETRY_EXC_ERR: return FRL_WC_RNR_RETRY_EXC_ERR;
	case IBV_WC_REM_INV_RD_REQ_ERR: return FRL_WC_REM_INV_RD_REQ_ERR;
	/* Ferrule's REM_ABORT_ERR is more specific than the specification's, and hardware cannot
	 * mean it. */
	case IBV_WC_REM_ABORT_ERR: return FRL_WC_REM_OP_ERR;
	case IBV_WC_FATAL_ERR: return FRL_WC_FATAL_ERR;
	case IBV_WC_RESP_TIMEOUT_ERR: return FRL_WC_RESP_TIMEOUT_ERR;
	/* Statuses of reliable datagrams, EE contexts and tag matching, which are not supported. */
	default: return FRL_WC_GENERAL_ERR;
	}
}

/* Records why the queue pair is in ERR. Not called for successful completions. */
static void note_failure(
	struct verbs_cq *cq, uint32_t num, enum frl_wc_status status, uint32_t vendor_error)
{
	struct verbs_device *device = verbs_device(cq->base.device);
	struct verbs_qp *qp;

	device_enter(&device->base);
	qp = verbs_find(device, num);
	if (qp)
		verbs_qp_note_failure(qp, status, vendor_error);
	device_leave(&device->base);
}

static bool is_link_down(const struct verbs_device *device)
{
	struct ibv_port_attr port = { 0 };

	return ibv_query_port(device->context, device->port, &port) ||
		port.state != IBV_PORT_ACTIVE;
}

/* Returns true if the link is down, or was a moment ago, or will be. The kernel removes an
 * interface's routes before it reports to rxe that the interface is down. */
static bool is_link_down_about_now(const struct verbs_device *device)
{
	const struct timespec step = { .tv_nsec = SOON_STEP_NS };
	uint64_t down_ns = atomic_load_explicit(&device->down_ns, memory_order_relaxed);
	uint64_t now_ns = clock_now_ns(), until_ns = limit_after_ms(now_ns, SOON_MS);
	bool is_down = down_ns && now_ns < limit_after_ms(down_ns, LATELY_MS);

	while (!is_down && !(is_down = is_link_down(device)) && clock_now_ns() < until_ns)
		nanosleep(&step, NULL);
	return is_down;
}

/* Without a route, because its interface is down, rxe does not retry, and reports an error of the
 * local queue pair. A NIC would retry, and then report that the peer does not answer. */
static enum frl_wc_status status_on(const struct verbs_cq *cq, enum ibv_wc_status status)
{
	const struct verbs_device *device = verbs_device(cq->base.device);

	if (status != IBV_WC_LOC_QP_OP_ERR || !device->is_rxe || !is_link_down_about_now(device))
		return status_of(status);
	frl_log(FRL_LOG_INFO,
		"%s: rxe failed a queue pair (local QP operation error) while the link is or was "
		"down: reported as retries exhausted",
		device->name);
	return FRL_WC_RETRY_EXC_ERR;
}

static bool is_of_datagrams(struct verbs_cq *cq, uint32_t num)
{
	struct verbs_device *device = verbs_device(cq->base.device);
	struct verbs_qp *qp;
	bool is;

	if (!atomic_load_explicit(&cq->datagrams, memory_order_relaxed))
		return false;
	if (!atomic_load_explicit(&cq->connected, memory_order_relaxed))
		return true;
	/* Queues for both kinds are rare. */
	device_enter(&device->base);
	qp = verbs_find(device, num);
	is = qp && is_datagram(&qp->base);
	device_leave(&device->base);
	return is;
}

static bool is_on_vlan(const struct gid_table *gids, uint16_t vlan)
{
	for (unsigned i = 0; i < gids->n; i++)
		if (gids->gids[i].vlan == vlan)
			return true;
	return false;
}

/* Corrects a receive completion. Some devices set flags of datagrams for all services, and report a
 * VLAN tag that did not exist. */
static void tidy(struct verbs_cq *cq, struct frl_wc *wc)
{
	bool is_datagram;

	wc->flags &= FRL_WC_GRH | FRL_WC_WITH_IMM | FRL_WC_WITH_INV;
	is_datagram = (wc->flags & FRL_WC_GRH) && is_of_datagrams(cq, wc->qp_num);
	if (!is_datagram || !wc->vlan || !is_on_vlan(&cq->base.device->gids, wc->vlan)) {
		wc->vlan = 0;
		wc->sl = 0;
	}
	if (is_datagram)
		return;
	wc->flags &= ~(uint32_t)FRL_WC_GRH;
	wc->src_qp = 0;
}

static void convert(struct verbs_cq *cq, const struct ibv_wc *from, struct frl_wc *to)
{
	*to = (struct frl_wc){
		.wr_id = from->wr_id,
		.status = status_on(cq, from->status),
		.qp_num = from->qp_num,
	};
	if (from->status != IBV_WC_SUCCESS) {
		note_failure(cq, to->qp_num, to->status, from->vendor_err);
		return;
	}
	to->opcode = (enum frl_wc_opcode)from->opcode;
	to->byte_len = from->byte_len;
	if (!(to->opcode & FRL_WC_RECV))
		return;
	to->flags = from->wc_flags;
	if ((to->flags & RXE_WITH_INV) && verbs_device(cq->base.device)->is_rxe)
		to->flags |= FRL_WC_WITH_INV;
	if (to->flags & (FRL_WC_WITH_IMM | FRL_WC_WITH_INV))
		to->imm_data = from->imm_data; /* immediate data, or the invalidated key */
	to->src_qp = from->src_qp;
	tidy(cq, to);
}

/* The error loses a completion, so this queue is not usable any more. */
static void note_poll_error(struct verbs_cq *cq, int err)
{
	int none = 0;

	atomic_compare_exchange_strong(&cq->poll_error, &none, err ? err : EIO);
}

static int poll_plain(struct verbs_cq *cq, int max, struct frl_wc wc[])
{
	struct ibv_wc from[BATCH];
	int done = 0;

	while (done < max) {
		int want = max - done < BATCH ? max - done : BATCH;
		int n = ibv_poll_cq(cq->cq, want, from);

		if (n < 0) {
			note_poll_error(cq, n);
			break;
		}
		for (int i = 0; i < n; i++)
			convert(cq, &from[i], &wc[done + i]);
		done += n;
		if (n < want)
			break;
	}
	return done;
}

/* Between ibv_start_poll() and ibv_end_poll() the provider may hold a lock of the queue, so the
 * guard is taken afterwards. Until then, a failed completion keeps its vendor error in imm_data. */
static void convert_current(struct verbs_cq *cq, struct frl_wc *to)
{
	struct ibv_cq_ex *ex = cq->ex;

	*to = (struct frl_wc){ .wr_id = ex->wr_id,
		.status = status_of(ex->status),
		.qp_num = ibv_wc_read_qp_num(ex) };
	if (ex->status != IBV_WC_SUCCESS) {
		to->imm_data = ibv_wc_read_vendor_err(ex);
		return;
	}
	to->opcode = (enum frl_wc_opcode)ibv_wc_read_opcode(ex);
	to->byte_len = ibv_wc_read_byte_len(ex);
	if (!(to->opcode & FRL_WC_RECV))
		return;
	to->flags = ibv_wc_read_wc_flags(ex);
	if (to->flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV))
		to->imm_data = ibv_wc_read_imm_data(ex);
	to->src_qp = ibv_wc_read_src_qp(ex);
	/* With RoCE this field is not a service level: the priority is in the tag. */
	if (cq->has_vlan) {
		uint16_t tag = ibv_wc_read_cvlan(ex);

		to->vlan = tag & 0xfff;
		to->sl = (uint8_t)(tag >> 13);
	}
}

static int poll_extended(struct verbs_cq *cq, int max, struct frl_wc wc[])
{
	struct ibv_poll_cq_attr attr = { 0 };
	int n = 0, rc = max > 0 ? ibv_start_poll(cq->ex, &attr) : ENOENT;

	if (rc) {
		if (rc != ENOENT)
			note_poll_error(cq, rc);
		return 0;
	}
	do
		convert_current(cq, &wc[n++]);
	while (n < max && !(rc = ibv_next_poll(cq->ex)));
	ibv_end_poll(cq->ex);
	if (rc && rc != ENOENT)
		note_poll_error(cq, rc);
	for (int i = 0; i < n; i++) {
		if (wc[i].status != FRL_WC_SUCCESS) {
			note_failure(cq, wc[i].qp_num, wc[i].status, wc[i].imm_data);
			wc[i].imm_data = 0;
		} else if (wc[i].opcode & FRL_WC_RECV) {
			tidy(cq, &wc[i]);
		}
	}
	return n;
}

static bool is_fatal(const struct verbs_cq *cq)
{
	return atomic_load_explicit(&verbs_device(cq->base.device)->is_fatal, memory_order_acquire);
}

/* Explains why a queue is empty or cannot be polled. */
static int explain(const struct verbs_cq *cq)
{
	const struct verbs_device *device = verbs_device(cq->base.device);
	int err = atomic_load_explicit(&cq->poll_error, memory_order_relaxed);

	if (atomic_load_explicit(&cq->has_overrun, memory_order_acquire))
		return frl_fail(-EOVERFLOW, "the completion queue overran: " OVERRUN_ADVICE);
	if (is_fatal(cq))
		return verbs_fail(EIO, "%s: no further completions", device->name);
	if (!err)
		return 0;
	return frl_fail(-EIO,
		"%s: a completion could not be read (libibverbs error %d) and is lost: create the "
		"completion queue and its queue pairs again; see dmesg",
		device->name, err);
}

static int take(struct verbs_cq *cq, int max, struct frl_wc wc[])
{
	return cq->ex ? poll_extended(cq, max, wc) : poll_plain(cq, max, wc);
}

int verbs_poll_cq(struct frl_cq *base, int max, struct frl_wc wc[], bool *ret_moved)
{
	struct verbs_cq *cq = verbs_cq(base);
	int n = take(cq, max, wc);

	/* A completion may have come between that poll and the failure of the device. */
	if (n == 0 && is_fatal(cq))
		n = take(cq, max, wc);
	*ret_moved = n > 0;
	return n > 0 ? n : explain(cq);
}
