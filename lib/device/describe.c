/* SPDX-License-Identifier: BSD-3-Clause */
/* Describes queue pairs for the control daemon. See lib/control/page.h. */
#include <assert.h>
#include <string.h>

#include "lib/control/page.h"
#include "lib/device/soft.h"

enum { STRIDE = 2048 }; /* slots visited while the guard is held */

static_assert((int)PAGE_HOST == (int)QP_PEER_HOST, "a host has one length");
static_assert((int)PAGE_SLOTS >= (int)ENGINE_MAX_QPS, "each queue pair has a slot");

static enum page_wait wait_in_words(enum qp_wait wait)
{
	switch (wait) {
	case QP_WAIT_NOTHING: return PAGE_WAIT_NOTHING;
	case QP_WAIT_ERROR: return PAGE_WAIT_ERROR;
	case QP_WAIT_NOT_CONNECTED: return PAGE_WAIT_NOT_CONNECTED;
	case QP_WAIT_DRAINING: return PAGE_WAIT_DRAINING;
	case QP_WAIT_RNR: return PAGE_WAIT_RNR;
	case QP_WAIT_RETRY: return PAGE_WAIT_RETRY;
	case QP_WAIT_FENCE: return PAGE_WAIT_FENCE;
	case QP_WAIT_READ: return PAGE_WAIT_READ;
	case QP_WAIT_ACK: return PAGE_WAIT_ACK;
	case QP_WAIT_PROGRESS: return PAGE_WAIT_PROGRESS;
	}
	return PAGE_WAIT_NOTHING;
}

static enum page_wait describe_wait(
	struct engine *engine, const struct engine_qp *qp, enum qp_wait wait)
{
	switch (wait) {
	case QP_WAIT_RETRY:
	case QP_WAIT_FENCE:
	case QP_WAIT_READ:
	case QP_WAIT_ACK:
	case QP_WAIT_PROGRESS:
		if (engine_is_held_up(engine, qp))
			return PAGE_WAIT_PORT;
		break;
	case QP_WAIT_NOT_CONNECTED:
		if (qp->pending_neighbor >= 0)
			return PAGE_WAIT_NEIGHBOR;
		break;
	default: break;
	}
	return wait_in_words(wait);
}

/* Fills in everything but the sequence number. */
static void describe(struct engine *engine, struct engine_qp *qp, struct page_qp *to)
{
	const struct soft_qp *owner = container_of(qp, struct soft_qp, engine);
	const struct qp *core = &qp->core;
	struct qp_stats stats;

	qp_describe(core, &stats);
	*to = (struct page_qp){
		.qpn = core->qpn,
		.type = (uint8_t)core->type,
		.state = (uint8_t)core->state,
		.wait = (uint8_t)describe_wait(engine, qp, stats.wait),
		.retries_left = stats.retries_left,
		.rnr_retries_left = stats.rnr_retries_left,
		.lossless = stats.lossless,
		.dest_qpn = core->dest_qpn,
		.path_mtu = core->path_mtu,
		.send_psn = stats.send_psn,
		.acked_psn = stats.acked_psn,
		.recv_psn = stats.recv_psn,
		.send_queue = stats.send_queue,
		.recv_queue = stats.recv_queue,
		.tx_packets = stats.counts.tx_packets,
		.tx_bytes = stats.counts.tx_bytes,
		.rx_packets = stats.counts.rx_packets,
		.rx_bytes = stats.counts.rx_bytes,
		.retransmits = stats.counts.retransmits,
		.timeouts = stats.counts.timeouts,
		.rnr_received = stats.counts.rnr_received,
		.rnr_sent = stats.counts.rnr_sent,
		.rtt_ns = stats.counts.rtt_ns,
		.waiting_since_ns = stats.waiting_since_ns,
		.deadline_ns = stats.deadline_ns,
		.give_up_ns = stats.give_up_ns,
		.last_rx_ns = stats.counts.last_rx_ns,
		.last_tx_ns = stats.counts.last_tx_ns,
		.peer_rank = owner->base.peer_rank,
	};
	memcpy(to->remote_ip, &core->remote_ip, sizeof(to->remote_ip));
	memcpy(to->peer_host, owner->base.peer_host, sizeof(to->peer_host));
	soft_qp_describe_error(&owner->base, to->error, sizeof(to->error));
	to->error_ns = to->error[0] ? qp->failed_ns : 0;
}

void soft_describe_qps(struct frl_device *device, struct qp_batch *batch)
{
	struct engine *engine = &soft_device(device)->engine;
	uint32_t at = batch->first;

	batch->n = 0;
	batch->last = engine->qp_end;
	while (at < engine->qp_end && at - batch->first < STRIDE && batch->n < batch->room) {
		struct engine_qp *qp = engine->qps[at];

		if (qp) {
			batch->slots[batch->n] = at;
			describe(engine, qp, &batch->qps[batch->n++]);
		}
		at++;
	}
	batch->end = at;
}
