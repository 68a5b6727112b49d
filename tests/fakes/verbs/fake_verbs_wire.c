/* SPDX-License-Identifier: BSD-3-Clause */
/* The libibverbs in memory: reachability, the requester's side of messages, and its timers. */
#include <errno.h>
#include <signal.h>
#include <time.h>

#include "tests/fakes/verbs/fake_verbs_internal.h"

uint32_t fake_packets(uint64_t length, enum ibv_mtu mtu)
{
	uint64_t size = UINT64_C(128) << mtu;

	return length == 0 ? 1 : (uint32_t)((length + size - 1) / size);
}

/* --- Addresses */

bool fake_is_v4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid->raw, mapped, sizeof(mapped)) == 0;
}

bool fake_is_multicast(const union ibv_gid *gid)
{
	return gid->raw[0] == 0xff || (fake_is_v4(gid) && (gid->raw[12] & 0xf0) == 0xe0);
}

static bool is_same_gid(const union ibv_gid *a, const union ibv_gid *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static bool has_gid(const struct fake_verbs_port *port, const union ibv_gid *gid, int type)
{
	for (int i = 0; i < FAKE_VERBS_GIDS; i++)
		if (port->gids[i].type == type && is_same_gid(&port->gids[i].gid, gid))
			return true;
	return false;
}

static bool is_known(const union ibv_gid *gid, int type)
{
	for (unsigned i = 0; i < fake_world.n_devices; i++)
		for (int j = 0; j < fake_world.devices[i]->is.attr.phys_port_cnt; j++)
			if (has_gid(fake_port_of(fake_world.devices[i], (unsigned)j + 1), gid,
				    type))
				return true;
	return false;
}

int fake_check_path(struct fake_device *device, const struct ibv_ah_attr *attr)
{
	const struct fake_verbs_port *port = fake_port_of(device, attr->port_num);
	const union ibv_gid *dgid = &attr->grh.dgid;
	const struct fake_verbs_gid *from;
	union ibv_gid none = { .raw = { 0 } };

	if (!port || attr->sl > 15)
		return EINVAL;
	if (port->link_layer != IBV_LINK_LAYER_ETHERNET && !attr->is_global)
		return attr->dlid == 0 ? EINVAL : 0;
	if (!attr->is_global || attr->grh.sgid_index >= FAKE_VERBS_GIDS ||
		attr->grh.flow_label >> 20 != 0 || is_same_gid(dgid, &none))
		return EINVAL;
	from = &port->gids[attr->grh.sgid_index];
	if (from->type < 0)
		return EINVAL;
	if (port->link_layer != IBV_LINK_LAYER_ETHERNET)
		return 0;
	/* The kernel looks for the neighbor; link-local addresses have their MAC in them. */
	if (fake_is_v4(&from->gid) != fake_is_v4(dgid))
		return ENETUNREACH;
	if (fake_is_multicast(dgid) || (dgid->raw[0] == 0xfe && dgid->raw[1] == 0x80))
		return 0;
	return is_known(dgid, from->type) ? 0 : ETIMEDOUT;
}

static unsigned number_of(const struct fake_device *device)
{
	unsigned i = 0;

	while (fake_world.devices[i] != device)
		i++;
	return i;
}

bool fake_is_linked(const struct fake_device *a, const struct fake_verbs_port *from,
	const struct fake_device *b, const struct fake_verbs_port *to)
{
	return from->link_layer == to->link_layer && from->state == IBV_PORT_ACTIVE &&
		to->state == IBV_PORT_ACTIVE && !a->is_dead && !b->is_dead &&
		!fake_world.cut[number_of(a)][number_of(b)];
}

/* Whether `path`, used at the port `from`, ends at the port `to`. */
static bool is_path_to(const struct ibv_ah_attr *path, const struct fake_verbs_port *from,
	const struct fake_verbs_port *to)
{
	if (!path->is_global)
		return to->lid == path->dlid;
	return has_gid(to, &path->grh.dgid, from->gids[path->grh.sgid_index].type);
}

static bool is_same_partition(const struct fake_qp *a, const struct fake_qp *b)
{
	const struct fake_verbs_port *at = fake_port_of(a->object.device, a->attr.port_num);
	const struct fake_verbs_port *bt = fake_port_of(b->object.device, b->attr.port_num);
	uint16_t i = at->pkeys[a->attr.pkey_index], j = bt->pkeys[b->attr.pkey_index];

	return ((i ^ j) & 0x7fff) == 0 && (i & 0x7fff) != 0 && ((i | j) & 0x8000) != 0;
}

/* Whether `qp` can receive from `from` at all. */
static bool can_hear(const struct fake_qp *qp, const struct fake_qp *from)
{
	enum ibv_qp_state state = qp->ibv.state;

	return qp->ibv.qp_type == from->ibv.qp_type && !qp->is_cut && !from->is_cut &&
		(state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
			state == IBV_QPS_SQE) &&
		is_same_partition(qp, from);
}

/* A connected QP receives from its own peer only. */
static bool is_from_peer(const struct fake_qp *qp, const struct fake_qp *from,
	const struct fake_verbs_port *from_port)
{
	const struct ibv_ah_attr *back = &qp->attr.ah_attr, *path = &from->attr.ah_attr;

	if (!path->is_global || !back->is_global)
		return !path->is_global && !back->is_global && back->dlid == from_port->lid;
	return is_same_gid(&back->grh.dgid, &from_port->gids[path->grh.sgid_index].gid);
}

/* Returns the QP of this number at the end of `path`; NULL if the message is lost on its way. */
static struct fake_qp *find_peer(
	const struct fake_qp *from, const struct ibv_ah_attr *path, uint32_t qp_num)
{
	struct fake_device *device = from->object.device;
	const struct fake_verbs_port *from_port = fake_port_of(device, from->attr.port_num);
	struct fake_object *at = NULL;

	while ((at = fake_next(FAKE_VERBS_QP, at)) != NULL) {
		struct fake_qp *qp = (struct fake_qp *)at;
		const struct fake_verbs_port *to;

		if (qp->ibv.qp_num != qp_num || !can_hear(qp, from))
			continue;
		to = fake_port_of(at->device, qp->attr.port_num);
		if (fake_is_linked(device, from_port, at->device, to) &&
			is_path_to(path, from_port, to) &&
			(from->ibv.qp_type == IBV_QPT_UD || is_from_peer(qp, from, from_port)))
			return qp;
	}
	return NULL;
}

/* --- Messages */

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM: return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ: return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP: return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD: return IBV_WC_FETCH_ADD;
	case IBV_WR_LOCAL_INV: return IBV_WC_LOCAL_INV;
	case IBV_WR_BIND_MW: return IBV_WC_BIND_MW;
	default: return IBV_WC_SEND;
	}
}

void fake_complete_send(struct fake_qp *qp, enum ibv_wc_status status)
{
	const struct fake_send *send = &qp->sends[qp->done % qp->init.cap.max_send_wr];
	struct fake_cqe cqe = { .qp = qp, .is_send = true, .index = qp->done };

	qp->done++;
	if (status == IBV_WC_SUCCESS && !qp->init.sq_sig_all &&
		!(send->wr.send_flags & IBV_SEND_SIGNALED))
		return;
	cqe.wc.wr_id = send->wr.wr_id;
	cqe.wc.status = status;
	cqe.wc.opcode = wc_opcode(send->wr.opcode);
	cqe.wc.vendor_err = status == IBV_WC_SUCCESS ? 0 : 0x80u + status;
	cqe.wc.byte_len = (uint32_t)send->length;
	cqe.wc.qp_num = qp->ibv.qp_num;
	fake_cq_add(FAKE_OF(struct fake_cq, ibv, qp->ibv.send_cq), &cqe, false);
}

static void send_datagram(struct fake_qp *qp, const struct fake_send *send,
	const struct fake_span *local, int n_local)
{
	const struct fake_verbs_port *from = fake_port_of(qp->object.device, qp->attr.port_num);
	struct fake_qp *peer;

	/* C10-93: a datagram above the MTU is dropped without notice. */
	if (send->length <= UINT64_C(128) << from->active_mtu) {
		peer = find_peer(qp, &send->to, send->wr.wr.ud.remote_qpn);
		if (peer && fake_receive_datagram(peer, qp, send, local, n_local))
			return;
	}
	fake_world.stats.lost++;
}

static bool is_read_or_atomic(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Tries the first send of the queue. `ret_status` is its result for FAKE_DONE. */
static enum fake_verdict try_send(
	struct fake_qp *qp, const struct fake_send *send, enum ibv_wc_status *ret_status)
{
	const struct fake_verbs_port *port = fake_port_of(qp->object.device, qp->attr.port_num);
	struct fake_pd *pd = FAKE_OF(struct fake_pd, ibv, qp->ibv.pd);
	bool returns = is_read_or_atomic(send->wr.opcode);
	struct fake_span local[FAKE_MAX_SGE] = { { send->bytes, send->length } };
	struct fake_qp *peer;
	int n = 1;

	*ret_status = IBV_WC_SUCCESS;
	if (send->wr.opcode == IBV_WR_BIND_MW || send->wr.opcode == IBV_WR_LOCAL_INV) {
		if (send->wr.opcode == IBV_WR_BIND_MW && !fake_mw_bind(qp, &send->wr))
			*ret_status = IBV_WC_MW_BIND_ERR;
		if (send->wr.opcode == IBV_WR_LOCAL_INV &&
			!fake_invalidate(qp, send->wr.invalidate_rkey))
			*ret_status = IBV_WC_LOC_QP_OP_ERR;
		return FAKE_DONE;
	}
	if (!(send->wr.send_flags & IBV_SEND_INLINE))
		n = fake_spans(local, pd, send->sges, send->wr.num_sge,
			returns ? IBV_ACCESS_LOCAL_WRITE : 0);
	if (n < 0)
		*ret_status = IBV_WC_LOC_PROT_ERR;
	else if (send->length > port->max_msg_sz ||
		(returns && send->wr.opcode != IBV_WR_RDMA_READ && send->length != 8))
		*ret_status = IBV_WC_LOC_LEN_ERR;
	else if ((returns && qp->attr.max_rd_atomic == 0) ||
		(qp->ibv.qp_type == IBV_QPT_UD && send->ah_pd != qp->ibv.pd))
		*ret_status = IBV_WC_LOC_QP_OP_ERR;
	if (*ret_status != IBV_WC_SUCCESS)
		return FAKE_DONE;
	if (qp->ibv.qp_type == IBV_QPT_RAW_PACKET) {
		*ret_status = fake_raw_send(qp, local, n, send->length);
		return FAKE_DONE;
	}
	if (qp->ibv.qp_type == IBV_QPT_UD) {
		send_datagram(qp, send, local, n);
		return FAKE_DONE;
	}
	peer = find_peer(qp, &qp->attr.ah_attr, qp->attr.dest_qp_num);
	if (peer)
		return fake_respond(peer, qp, send, local, n, ret_status);
	fake_world.stats.lost += qp->ibv.qp_type == IBV_QPT_UC;
	return qp->ibv.qp_type == IBV_QPT_UC ? FAKE_DONE : FAKE_LOST;
}

/* --- Waits */

/* Nanoseconds of the codes 0 to 31: InfiniBand specification, "RNR NAK timer field". */
static uint64_t rnr_timer_ns(unsigned code)
{
	static const uint32_t in_10_us[32] = { 65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96,
		128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288,
		16384, 24576, 32768, 49152 };

	return in_10_us[code & 31] * UINT64_C(10000);
}

/* Returns when the requester gives up, or 0 for never. */
static uint64_t deadline_ns(const struct fake_qp *qp, enum fake_blocked blocked)
{
	const struct fake_qp *peer;
	uint64_t wait_ns;

	if (blocked == FAKE_BLOCKED_RNR && qp->attr.rnr_retry < 7) {
		peer = find_peer(qp, &qp->attr.ah_attr, qp->attr.dest_qp_num);
		wait_ns = qp->attr.rnr_retry * rnr_timer_ns(peer ? peer->attr.min_rnr_timer : 1);
	} else if (blocked == FAKE_BLOCKED_LOST && qp->attr.timeout > 0) {
		wait_ns = (qp->attr.retry_cnt + UINT64_C(1)) * (UINT64_C(4096) << qp->attr.timeout);
	} else {
		return 0;
	}
	return fake_now_ns() + wait_ns / fake_world.divisor;
}

/* The send waits. Returns true if it has waited long enough and fails. */
static bool wait_on(struct fake_qp *qp, enum fake_blocked blocked)
{
	if (qp->blocked != blocked) {
		fake_world.stats.lost += blocked == FAKE_BLOCKED_LOST;
		qp->deadline_ns = deadline_ns(qp, blocked);
		pthread_cond_signal(&fake_world.wake);
	}
	qp->blocked = blocked;
	if (qp->deadline_ns == 0 || fake_now_ns() < qp->deadline_ns)
		return false;
	qp->blocked = FAKE_RUNS;
	fake_complete_send(
		qp, blocked == FAKE_BLOCKED_RNR ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_RETRY_EXC_ERR);
	fake_qp_fail(qp, IBV_QPS_ERR);
	return true;
}

/* With others the send queue alone. */
static bool fails_as_a_whole(const struct fake_qp *qp)
{
	return qp->ibv.qp_type == IBV_QPT_RC || qp->ibv.qp_type == IBV_QPT_RAW_PACKET;
}

/* Sends one message of this QP; false if none can go. */
static bool step(struct fake_qp *qp)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	uint64_t index = qp->done;

	if (qp->ibv.state != IBV_QPS_RTS || qp->done == qp->posted || qp->object.device->is_dead ||
		(fake_world.is_held && fake_world.allowed == 0))
		return false;
	switch (try_send(qp, &qp->sends[qp->done % qp->init.cap.max_send_wr], &status)) {
	case FAKE_RNR: return wait_on(qp, FAKE_BLOCKED_RNR);
	case FAKE_LOST: return wait_on(qp, FAKE_BLOCKED_LOST);
	case FAKE_DONE: break;
	}
	qp->blocked = FAKE_RUNS;
	fake_world.allowed -= fake_world.is_held;
	/* A QP that is its own peer may have failed as the responder. */
	if (qp->done != index)
		return true;
	fake_complete_send(qp, status);
	if (status != IBV_WC_SUCCESS)
		fake_qp_fail(qp, fails_as_a_whole(qp) ? IBV_QPS_ERR : IBV_QPS_SQE);
	return true;
}

void fake_wire_run(void)
{
	struct fake_object *at;
	bool has_gone = true;

	while (has_gone) {
		has_gone = false;
		for (at = NULL; (at = fake_next(FAKE_VERBS_QP, at)) != NULL;)
			while (step((struct fake_qp *)at))
				has_gone = true;
	}
}

/* --- The thread */

static uint64_t next_deadline_ns(void)
{
	struct fake_object *at = NULL;
	uint64_t next_ns = 0;

	while (!fake_world.is_held && (at = fake_next(FAKE_VERBS_QP, at)) != NULL) {
		const struct fake_qp *qp = (const struct fake_qp *)at;

		if (qp->blocked != FAKE_RUNS && qp->deadline_ns != 0 &&
			(next_ns == 0 || qp->deadline_ns < next_ns))
			next_ns = qp->deadline_ns;
	}
	return next_ns;
}

static void *run(void *unused)
{
	pthread_mutex_lock(&fake_world.lock);
	while (!fake_world.stops) {
		uint64_t next_ns = next_deadline_ns();
		struct timespec next = { (time_t)(next_ns / 1000000000),
			(long)(next_ns % 1000000000) };

		if (next_ns == 0)
			pthread_cond_wait(&fake_world.wake, &fake_world.lock);
		else if (pthread_cond_clockwait(&fake_world.wake, &fake_world.lock, CLOCK_MONOTONIC,
				 &next) == ETIMEDOUT)
			fake_wire_run();
	}
	pthread_mutex_unlock(&fake_world.lock);
	return NULL;
}

bool fake_wire_start(void)
{
	sigset_t all, old;

	if (fake_world.has_thread)
		return true;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	fake_world.has_thread = pthread_create(&fake_world.thread, NULL, run, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return fake_world.has_thread;
}

void fake_wire_stop(void)
{
	pthread_mutex_lock(&fake_world.lock);
	if (!fake_world.has_thread) {
		pthread_mutex_unlock(&fake_world.lock);
		return;
	}
	fake_world.stops = true;
	pthread_cond_signal(&fake_world.wake);
	pthread_mutex_unlock(&fake_world.lock);
	pthread_join(fake_world.thread, NULL);
	fake_world.has_thread = false;
	fake_world.stops = false;
}
