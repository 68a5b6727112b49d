/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/oracle/oracle.h"

#include "lib/engine/offload/transfers.h"
#include "tests/sim/common/fail.h"

#include <string.h>

/* Executed at the peer, as far as can be known. */
static bool has_arrived(const struct endpoint *endpoint, const struct message *message)
{
	return !endpoint_is_reliable(endpoint) || endpoint->lawless ||
		message_end(message) <= endpoint->peer->accepted;
}

void oracle_skip_unsignaled(struct endpoint *endpoint, uint32_t k)
{
	const struct script *script = &endpoint->script;

	for (; endpoint->send.checked < k; endpoint->send.checked++) {
		const struct message *message = &script->messages[endpoint->send.checked];

		SIM_CHECK(!(message->flags & FRL_SEND_SIGNALED),
			"endpoint %u: completion of request %u instead of %u", endpoint->index, k,
			endpoint->send.checked);
		SIM_CHECK(has_arrived(endpoint, message),
			"endpoint %u: request %u is over, but not at the peer", endpoint->index,
			endpoint->send.checked);
	}
}

struct gather {
	const struct sim_memory *memory;
	uint8_t *out;
};

static void gather_piece(void *arg, uint32_t at, uint32_t done, uint32_t len)
{
	const struct gather *gather = arg;

	memcpy(gather->out + done, gather->memory->bytes + at, len);
}

/* The whole message is in memory when the completion says so. */
static void check_result(struct endpoint *endpoint, const struct message *message, uint32_t k)
{
	static uint8_t bytes[SCRIPT_LONGEST];
	struct gather gather = { &endpoint->results, bytes };

	if (endpoint->lawless ||
		memory_is_due(&endpoint->results, send_slot(endpoint, k), endpoint->slot_size))
		return;
	oracle_walk(
		&message->local, send_slot(endpoint, k), 0, message->length, gather_piece, &gather);
	SIM_CHECK(message->result || message->shared, "endpoint %u: result of request %u",
		endpoint->index, k);
	SIM_CHECK(!message->result || memcmp(bytes, message->result, message->length) == 0,
		"endpoint %u: wrong result of request %u", endpoint->index, k);
}

static void count(struct endpoint *endpoint, const struct message *message)
{
	struct tally *tally = endpoint->world->tally;

	tally->messages++;
	tally->bytes += message->length;
	tally->requests[message->opcode]++;
	tally->windowed += message->window && !message_is_local(message);
	tally->fenced += (message->flags & FRL_SEND_FENCE) != 0;
	tally->inlined += (message->flags & FRL_SEND_INLINE) != 0;
	tally->many_sges += message->local.n == FRL_MAX_SGE;
}

static void check_success(struct endpoint *endpoint, const struct frl_wc *wc)
{
	static const enum frl_wc_opcode opcodes[] = {
		[FRL_WR_RDMA_WRITE] = FRL_WC_RDMA_WRITE,
		[FRL_WR_RDMA_WRITE_WITH_IMM] = FRL_WC_RDMA_WRITE,
		[FRL_WR_SEND] = FRL_WC_SEND,
		[FRL_WR_SEND_WITH_IMM] = FRL_WC_SEND,
		[FRL_WR_RDMA_READ] = FRL_WC_RDMA_READ,
		[FRL_WR_ATOMIC_CMP_AND_SWP] = FRL_WC_COMP_SWAP,
		[FRL_WR_ATOMIC_FETCH_AND_ADD] = FRL_WC_FETCH_ADD,
		[FRL_WR_LOCAL_INV] = FRL_WC_LOCAL_INV,
		[FRL_WR_BIND_MW] = FRL_WC_BIND_MW,
		[FRL_WR_SEND_WITH_INV] = FRL_WC_SEND,
	};
	uint32_t k = wc_sequence(wc);
	const struct message *message = &endpoint->script.messages[k];

	SIM_CHECK(message->flags & FRL_SEND_SIGNALED, "endpoint %u: request %u is not signaled",
		endpoint->index, k);
	SIM_CHECK(wc->opcode == opcodes[message->opcode], "endpoint %u: opcode of request %u",
		endpoint->index, k);
	SIM_CHECK(has_arrived(endpoint, message),
		"endpoint %u: request %u completed, but the peer lacks it", endpoint->index, k);
	if (message_has_result(message)) {
		SIM_CHECK(wc->byte_len == message->length, "endpoint %u: length of request %u",
			endpoint->index, k);
		check_result(endpoint, message, k);
	}
	count(endpoint, message);
}

static void check_slot(struct endpoint *endpoint, uint32_t k)
{
	const struct inbox *inbox = endpoint->inbox;
	uint32_t slot = inbox_offset(inbox, k);

	SIM_CHECK(memory_compare(&inbox->memory, slot, inbox->slot_size) == slot + inbox->slot_size,
		"endpoint %u: bytes in the slot of receive %u", endpoint->index, k);
}

static void check_received(struct endpoint *endpoint, const struct frl_wc *wc)
{
	const struct expected *expected = &endpoint->expected[endpoint->n_met];
	uint32_t k = wc_sequence(wc), slot = inbox_offset(endpoint->inbox, k);

	SIM_CHECK(endpoint->n_met < endpoint->n_expected && expected->request == k,
		"endpoint %u: receive %u completes early, or is one too many", endpoint->index, k);
	endpoint->n_met++;
	SIM_CHECK(wc->status == expected->status, "endpoint %u: receive %u has status %d",
		endpoint->index, k, wc->status);
	if (wc->status != FRL_WC_SUCCESS)
		return;
	SIM_CHECK(!endpoint->lost || expected->end < endpoint->accepted,
		"endpoint %u: receive %u succeeds, but its payload is lost", endpoint->index, k);
	SIM_CHECK(wc->byte_len == expected->byte_len, "endpoint %u: receive %u has %u bytes",
		endpoint->index, k, wc->byte_len);
	SIM_CHECK(wc->flags == expected->flags &&
			(!(wc->flags & (FRL_WC_WITH_IMM | FRL_WC_WITH_INV)) ||
				wc->imm_data == expected->imm_data),
		"endpoint %u: flags or immediate of receive %u", endpoint->index, k);
	SIM_CHECK(wc->opcode == (expected->write ? FRL_WC_RECV_RDMA_WITH_IMM : FRL_WC_RECV),
		"endpoint %u: opcode of receive %u", endpoint->index, k);
	if (wc->flags & FRL_WC_GRH)
		SIM_CHECK(wc->src_qp == expected->src_qp && wc->vlan == expected->vlan &&
				wc->sl == expected->sl,
			"endpoint %u: source of receive %u", endpoint->index, k);
	if (!memory_is_due(&endpoint->inbox->memory, slot, endpoint->inbox->slot_size))
		check_slot(endpoint, k);
	endpoint->world->tally->solicited += expected->solicited;
}

/* The bytes of a message in the memory of the receive that fails: those of packets that were
 * accepted, without the one that was taken away. */
static void check_placed(struct endpoint *endpoint, const struct frl_wc *wc)
{
	const struct expected *expected = &endpoint->expected[endpoint->n_met];
	const struct script *script = &endpoint->peer->script;
	uint32_t k = wc_sequence(wc), placed = 0, lost = 0;

	if (endpoint_is_reliable(endpoint) && k == endpoint->recv_request) {
		placed = endpoint->accepted - script->messages[endpoint->message].first_packet;
		placed *= script->mtu;
		lost = endpoint->lost_receive;
	} else if (endpoint_is_reliable(endpoint) && endpoint->lost_receive &&
		endpoint->n_met < endpoint->n_expected && expected->request == k) {
		placed = expected->byte_len;
		lost = endpoint->lost_receive;
	}
	SIM_CHECK(wc->byte_len + lost == placed,
		"endpoint %u: receive %u fails with %u bytes instead of %u less %u",
		endpoint->index, k, wc->byte_len, placed, lost);
	SIM_CHECK(!lost || wc->status == FRL_WC_REM_ABORT_ERR,
		"endpoint %u: receive %u hides that its payload is lost", endpoint->index, k);
	endpoint->world->tally->begun_failed += placed > 0;
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
	if (wc_is_recv(wc) && !endpoint->lawless && !endpoint->removed)
		check_placed(endpoint, wc);
	else if (!wc_is_recv(wc))
		SIM_CHECK(wc->byte_len == 0, "endpoint %u: bytes of a request that failed",
			endpoint->index);
	progress->failed = true;
	progress->told |= !flush;
	endpoint->world->tally->statuses[wc->status & 31]++;
}

/* Receives of a shared queue complete in any order; all others in the order of posting. */
static void check_turn(struct endpoint *endpoint, const struct frl_wc *wc)
{
	bool recv = wc_is_recv(wc);
	struct progress *progress = recv ? &endpoint->recv : &endpoint->send;
	uint32_t k = wc_sequence(wc);

	if (recv) {
		struct inbox_slot *slot = inbox_slot(endpoint->inbox, k);

		SIM_CHECK(slot->request == k &&
				(slot->state == INBOX_TAKEN || slot->state == INBOX_POSTED),
			"endpoint %u: receive %u completes, which is not there", endpoint->index,
			k);
		slot->state = INBOX_COMPLETED;
		if (endpoint->shares)
			return;
	}
	SIM_CHECK(k >= progress->checked && k < progress->posted,
		"endpoint %u: %s %u completes; %u were posted, %u completed", endpoint->index,
		recv ? "receive" : "request", k, progress->posted, progress->checked);
	if (!recv && !progress->failed)
		oracle_skip_unsignaled(endpoint, k);
	SIM_CHECK(k == progress->checked, "endpoint %u: %s %u is missing", endpoint->index,
		recv ? "receive" : "request", progress->checked);
}

static bool is_expected_error(const struct endpoint *endpoint, const struct frl_wc *wc)
{
	return wc_is_recv(wc) && endpoint->n_met < endpoint->n_expected &&
		endpoint->expected[endpoint->n_met].status != FRL_WC_SUCCESS;
}

static bool was_solicited(const struct endpoint *endpoint, const struct frl_wc *wc)
{
	return wc_is_recv(wc) && endpoint->n_met < endpoint->n_expected &&
		endpoint->expected[endpoint->n_met].solicited;
}

static void check_completion(
	struct node *node, struct sim_cq *cq, const struct frl_wc *wc, uint8_t *notice)
{
	struct endpoint *endpoint = endpoint_of(node, wc);
	struct world *world = node->world;
	bool recv = wc_is_recv(wc);
	struct progress *progress = recv ? &endpoint->recv : &endpoint->send;
	uint32_t k = wc_sequence(wc);

	trace_note(&world->trace, "endpoint %u: %s %u completes with status %d", endpoint->index,
		recv ? "receive" : "request", k, wc->status);
	trace_number(&world->trace, wc->wr_id);
	trace_number(&world->trace, wc->status);
	SIM_CHECK(cq == (recv ? endpoint->recv_cq : endpoint->send_cq), "endpoint %u: wrong queue",
		endpoint->index);
	SIM_CHECK(wc->qp_num == endpoint->qpn, "endpoint %u: qp_num %06x", endpoint->index,
		wc->qp_num);
	*notice = endpoint->lawless && recv                                   ? NOTICE_UNKNOWN
		: wc->status != FRL_WC_SUCCESS || was_solicited(endpoint, wc) ? NOTICE_URGENT
									      : NOTICE_PLAIN;
	check_turn(endpoint, wc);
	SIM_CHECK(wc->status != FRL_WC_SUCCESS || !progress->failed,
		"endpoint %u: success of %u after an error", endpoint->index, k);
	if (wc->status != FRL_WC_SUCCESS && !is_expected_error(endpoint, wc))
		check_error(endpoint, progress, wc);
	else if (!recv)
		check_success(endpoint, wc);
	else if (!endpoint->lawless)
		check_received(endpoint, wc);
	progress->last = ++progress->checked;
}

const struct frl_wc *oracle_completion_at(const struct sim_cq *cq, uint32_t at)
{
	uint32_t behind = at - cq->cq.tail;

	return behind < cq_used(&cq->cq) ? completions_held(&cq->cq, behind)
					 : &cq->cq.entries[at & cq->cq.mask];
}

void oracle_scan_cq(struct node *node, struct sim_cq *cq)
{
	SIM_CHECK(cq_used(&cq->cq) <= cq->cq.mask + 1, "a queue with too many entries");
	for (; cq->scanned != cq->cq.head + cq_used(&cq->cq); cq->scanned++)
		check_completion(node, cq, oracle_completion_at(cq, cq->scanned),
			&cq->notices[cq->scanned & (ENDPOINT_CQ - 1)]);
	for (; cq->noted != cq->cq.tail; cq->noted++) {
		uint8_t notice = cq->notices[cq->noted & (ENDPOINT_CQ - 1)];

		if (notice == NOTICE_UNKNOWN)
			oracle_accept_notice(cq);
		else
			oracle_note_completion(cq, notice == NOTICE_URGENT);
	}
}

void oracle_check_polled(struct endpoint *endpoint, const struct frl_wc *wc)
{
	uint32_t k = wc_sequence(wc);
	const struct message *message = &endpoint->script.messages[k];

	/* An end that does not poll reuses slots without polling. */
	if (wc->status != FRL_WC_SUCCESS || endpoint->lawless || endpoint->lost || endpoint->lazy)
		return;
	if (wc_is_recv(wc) && endpoint->inbox->memory.mock) {
		check_slot(endpoint, k);
		endpoint->world->tally->offload_received++;
	} else if (!wc_is_recv(wc) && message_has_result(message) && endpoint->results.mock) {
		SIM_CHECK(!memory_is_due(
				  &endpoint->results, send_slot(endpoint, k), endpoint->slot_size),
			"endpoint %u: the result of request %u is not there", endpoint->index, k);
		check_result(endpoint, message, k);
		endpoint->world->tally->offload_results++;
	}
}
