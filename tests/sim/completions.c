/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/oracle.h"

#include "tests/sim/fail.h"

#include <string.h>

void oracle_skip_unsignaled(struct endpoint *endpoint, uint32_t k)
{
	const struct script *script = &endpoint->script;

	for (; endpoint->send.checked < k; endpoint->send.checked++) {
		const struct message *message = &script->messages[endpoint->send.checked];

		SIM_CHECK(!(message->flags & FRL_SEND_SIGNALED),
			"endpoint %u: completion of request %u instead of %u", endpoint->index, k,
			endpoint->send.checked);
		SIM_CHECK(message->first_packet + message->n_packets <= endpoint->peer->accepted,
			"endpoint %u: request %u is over, but not at the peer", endpoint->index,
			endpoint->send.checked);
	}
}

static void check_success(struct endpoint *endpoint, const struct frl_wc *wc)
{
	uint32_t k = wc_sequence(wc);
	const struct message *message = &endpoint->script.messages[k];

	SIM_CHECK(message->flags & FRL_SEND_SIGNALED, "endpoint %u: request %u is not signaled",
		endpoint->index, k);
	SIM_CHECK(wc->opcode == (message_is_write(message) ? FRL_WC_RDMA_WRITE : FRL_WC_SEND),
		"endpoint %u: opcode of request %u", endpoint->index, k);
	SIM_CHECK(message->first_packet + message->n_packets <= endpoint->peer->accepted,
		"endpoint %u: request %u completed, but the peer lacks it", endpoint->index, k);
	endpoint->world->tally->messages++;
	endpoint->world->tally->bytes += message->length;
}

static void check_received(struct endpoint *endpoint, const struct frl_wc *wc)
{
	const struct script *script = &endpoint->peer->script;
	const struct message *message;
	uint32_t k = wc_sequence(wc), flags, slot = recv_slot(endpoint, k);

	SIM_CHECK(
		k < script->n_recvs, "endpoint %u: receive %u is one too many", endpoint->index, k);
	message = &script->messages[script->recvs[k]];
	flags = message_has_imm(message) ? FRL_WC_WITH_IMM : 0;
	SIM_CHECK(message->first_packet + message->n_packets <= endpoint->accepted,
		"endpoint %u: receive %u completes early", endpoint->index, k);
	SIM_CHECK(
		!endpoint->lost || message->first_packet + message->n_packets < endpoint->accepted,
		"endpoint %u: receive %u succeeds, but its payload is lost", endpoint->index, k);
	SIM_CHECK(wc->byte_len == message->length, "endpoint %u: receive %u has %u bytes",
		endpoint->index, k, wc->byte_len);
	SIM_CHECK(wc->flags == flags && (!flags || wc->imm_data == message->imm_data),
		"endpoint %u: immediate of receive %u", endpoint->index, k);
	SIM_CHECK(
		wc->opcode == (message_is_write(message) ? FRL_WC_RECV_RDMA_WITH_IMM : FRL_WC_RECV),
		"endpoint %u: opcode of receive %u", endpoint->index, k);
	SIM_CHECK(memcmp(endpoint->target.bytes + slot, endpoint->target.shadow + slot,
			  endpoint->slot_size) == 0,
		"endpoint %u: bytes in the slot of receive %u", endpoint->index, k);
}

static void check_error(
	struct endpoint *endpoint, struct progress *progress, const struct frl_wc *wc)
{
	bool flush = wc->status == FRL_WC_WR_FLUSH_ERR;

	SIM_CHECK(endpoint->removed || endpoint->qp->core.state == FRL_QPS_ERR,
		"endpoint %u: an error without the state", endpoint->index);
	SIM_CHECK(endpoint->doomed || endpoint->app_error, "endpoint %u: status %d for no reason",
		endpoint->index, wc->status);
	SIM_CHECK(flush || endpoint->allowed >> wc->status & 1, "endpoint %u: status %d",
		endpoint->index, wc->status);
	SIM_CHECK(flush || !progress->told, "endpoint %u: a second reason, %d", endpoint->index,
		wc->status);
	progress->failed = true;
	progress->told |= !flush;
	endpoint->world->tally->statuses[wc->status & 31]++;
}

static void check_completion(struct world *world, struct sim_cq *cq, const struct frl_wc *wc)
{
	struct endpoint *endpoint = endpoint_of(world, wc);
	bool recv = wc_is_recv(wc);
	struct progress *progress = recv ? &endpoint->recv : &endpoint->send;
	uint32_t k = wc_sequence(wc);

	trace_note(&world->trace, "endpoint %u: %s %u completes with status %d", endpoint->index,
		recv ? "receive" : "request", k, wc->status);
	trace_number(&world->trace, wc->wr_id);
	trace_number(&world->trace, wc->status);
	SIM_CHECK(cq == (recv ? endpoint->recv_cq : endpoint->send_cq), "endpoint %u: wrong queue",
		endpoint->index);
	SIM_CHECK(endpoint->removed || wc->qp_num == endpoint->qp->core.qpn,
		"endpoint %u: qp_num %06x", endpoint->index, wc->qp_num);
	SIM_CHECK(k >= progress->checked && k < progress->posted,
		"endpoint %u: %s %u completes; %u were posted, %u completed", endpoint->index,
		recv ? "receive" : "request", k, progress->posted, progress->checked);
	if (!recv && !progress->failed)
		oracle_skip_unsignaled(endpoint, k);
	SIM_CHECK(k == progress->checked, "endpoint %u: %s %u is missing", endpoint->index,
		recv ? "receive" : "request", progress->checked);
	SIM_CHECK(wc->status != FRL_WC_SUCCESS || !progress->failed,
		"endpoint %u: success of %u after an error", endpoint->index, k);
	if (wc->status != FRL_WC_SUCCESS)
		check_error(endpoint, progress, wc);
	else if (recv)
		check_received(endpoint, wc);
	else
		check_success(endpoint, wc);
	progress->last = ++progress->checked;
}

void oracle_scan_cq(struct world *world, struct sim_cq *cq)
{
	SIM_CHECK(cq->cq.tail - cq->cq.head <= cq->cq.mask + 1, "a queue with too many entries");
	for (; cq->scanned != cq->cq.tail; cq->scanned++)
		check_completion(world, cq, &cq->cq.entries[cq->scanned & cq->cq.mask]);
}
