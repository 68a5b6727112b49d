/* SPDX-License-Identifier: BSD-3-Clause */
/* Deliberate faults: the connections that they may affect, and how they are made. */
#include "tests/sim/common/fail.h"
#include "tests/sim/oracle/oracle.h"
#include "tests/sim/world.h"

const char *const fault_names[N_FAULTS] = {
	[FAULT_NONE] = "none",
	[FAULT_LINK_DOWN] = "link_down",
	[FAULT_SILENT] = "silent",
	[FAULT_DEREG_TARGET] = "dereg_target",
	[FAULT_DEREG_SOURCE] = "dereg_source",
	[FAULT_QP_ERROR] = "qp_error",
	[FAULT_QP_REMOVED] = "qp_removed",
	[FAULT_CQ_OVERRUN] = "cq_overrun",
	[FAULT_NO_RECEIVES] = "no_receives",
	[FAULT_SHORT_RECEIVE] = "short_receive",
	[FAULT_BAD_ACCESS] = "bad_access",
	[FAULT_BAD_INVALIDATE] = "bad_invalidate",
	[FAULT_SPOOFED] = "spoofed",
	[FAULT_REVOKED] = "revoked",
};

enum { REVOKE_ONE_IN = 3 }; /* payloads that are being read */

static bool one_in(struct random_state *random, uint64_t n)
{
	return random_below(random, n) == 0;
}

static void allow(struct endpoint *endpoint, enum frl_wc_status status)
{
	endpoint->allowed |= 1u << status;
}

static void doom(struct world *world, struct endpoint *endpoint)
{
	struct endpoint *ends[] = { endpoint, endpoint->peer };

	for (int i = 0; i < 2; i++) {
		if (ends[i]->doomed)
			continue;
		ends[i]->doomed = true;
		ends[i]->patient = false;
		ends[i]->attr.retry_cnt = (uint8_t)random_below(&world->random, 8);
		allow(ends[i], FRL_WC_RETRY_EXC_ERR);
	}
}

/* Makes a message faulty. Returns false if this message does not allow it. */
static bool spoil_message(struct world *world, struct message *message)
{
	enum vice vice = (enum vice)(1 + random_below(&world->random, N_VICES - 1));
	bool remote = message_is_write(message) || message_has_result(message);

	if (message->length == 0)
		return false;
	switch (world->config.fault) {
	case FAULT_SHORT_RECEIVE:
		if (!message_is_send(message))
			return false;
		message->reduce = message->reduce_src = false;
		message->recv = (struct layout){ .n = 1, .length = { message->length - 1 } };
		return true;
	case FAULT_BAD_ACCESS:
		if (!remote || (vice == VICE_STALE_WINDOW && !world->endpoints[1].script.n_local))
			return false;
		message->vice = vice;
		message->shared = false;
		return true;
	default: /* FAULT_BAD_INVALIDATE */
		if (!message_is_send(message))
			return false;
		message->opcode = FRL_WR_SEND_WITH_INV;
		message->vice = VICE_FOREIGN_KEY;
		return true;
	}
}

static bool spoil(struct world *world, struct script *script)
{
	uint32_t from = world->config.fault_after % script->n_messages;

	for (uint32_t i = from; i < script->n_messages; i++)
		if (spoil_message(world, &script->messages[i]))
			return true;
	return false;
}

/* All flows on the node of the endpoint. */
static void doom_node(struct world *world, const struct node *node)
{
	for (uint32_t i = 0; i < world->n_endpoints; i++)
		if (world->endpoints[i].node == node)
			doom(world, &world->endpoints[i]);
}

void scenario_doom(struct world *world)
{
	struct endpoint *own = &world->endpoints[0], *peer = own->peer;

	if (world->config.fault == FAULT_NONE)
		return;
	doom(world, own);
	switch (world->config.fault) {
	case FAULT_LINK_DOWN:
		doom_node(world, own->node);
		for (uint32_t i = 0; i < world->n_endpoints; i++)
			if (world->endpoints[i].node == own->node)
				allow(&world->endpoints[i], FRL_WC_REM_ABORT_ERR);
		break;
	case FAULT_SILENT: doom_node(world, own->node); break;
	case FAULT_DEREG_TARGET:
		allow(peer, FRL_WC_REM_OP_ERR);
		allow(peer, FRL_WC_REM_ACCESS_ERR);
		allow(own, FRL_WC_LOC_PROT_ERR);
		allow(own, FRL_WC_REM_ACCESS_ERR);
		break;
	case FAULT_DEREG_SOURCE: allow(own, FRL_WC_LOC_PROT_ERR); break;
	case FAULT_CQ_OVERRUN:
		own->lazy = true;
		if (world->config.shared_cqs) {
			doom_node(world, own->node);
			for (uint32_t i = 0; i < world->n_endpoints; i++)
				world->endpoints[i].lazy |= world->endpoints[i].node == own->node;
		}
		break;
	case FAULT_NO_RECEIVES:
		peer->silent = true;
		own->attr.rnr_retry = (uint8_t)random_below(&world->random, 7);
		allow(own, FRL_WC_RNR_RETRY_EXC_ERR);
		break;
	case FAULT_SHORT_RECEIVE:
		world->fault_done = spoil(world, &own->script);
		allow(own, FRL_WC_REM_INV_REQ_ERR);
		allow(peer, FRL_WC_LOC_LEN_ERR);
		break;
	case FAULT_BAD_ACCESS:
		world->fault_done = spoil(world, &own->script);
		allow(own, FRL_WC_REM_ACCESS_ERR);
		allow(own, FRL_WC_REM_INV_REQ_ERR);
		allow(peer, FRL_WC_REM_ACCESS_ERR);
		break;
	case FAULT_BAD_INVALIDATE:
		world->fault_done = spoil(world, &own->script);
		allow(own, FRL_WC_REM_ACCESS_ERR);
		allow(peer, FRL_WC_REM_INV_REQ_ERR);
		break;
	case FAULT_SPOOFED: own->allowed = peer->allowed = UINT32_MAX; break;
	case FAULT_REVOKED: allow(peer, FRL_WC_REM_ABORT_ERR); break;
	case FAULT_NONE:
	case FAULT_QP_ERROR:
	case FAULT_QP_REMOVED:
	case N_FAULTS: break;
	}
}

/* One of the two ends, or both. */
static void deregister(struct world *world, struct sim_memory *a, struct sim_memory *b)
{
	uint64_t which = random_below(&world->random, 3);

	if (which != 0)
		memory_deregister(a);
	if (which != 1)
		memory_deregister(b);
}

void scenario_break(struct world *world)
{
	struct endpoint *own = &world->endpoints[0];
	struct node *node = own->node;

	world->fault_done = true;
	world->fault_ns = world->clock.now_ns;
	trace_note(&world->trace, "fault: %s", fault_names[world->config.fault]);
	switch (world->config.fault) {
	case FAULT_LINK_DOWN:
		sim_port_set_down(&node->port);
		node->down.cut = true;
		break;
	case FAULT_SILENT: node->frozen = true; break;
	case FAULT_DEREG_TARGET: deregister(world, &own->target, &own->own_inbox.memory); break;
	case FAULT_DEREG_SOURCE: deregister(world, &own->source, &own->results); break;
	case FAULT_QP_ERROR: endpoint_to_error(own); break;
	case FAULT_QP_REMOVED: endpoint_remove_qp(own); break;
	default: break;
	}
	oracle_check_node(node);
	world_poll_at(node, world->clock.now_ns);
}

/*
 * Once armed, the application of endpoint 0 gives up at the worst moment: when the peer has the
 * frame but has not read it, or has placed it but not yet checked that it was still valid. Its
 * memory is reused as soon as it has seen the flushed completions.
 */
void scenario_on_read(void *arg, const struct frame *frame)
{
	const struct node *reader = arg;
	struct world *world = reader->world;
	struct endpoint *own = &world->endpoints[0];

	if (!world->fault_done || own->app_error || own->qp->core.state != FRL_QPS_RTS ||
		frame->owner != &own->node->port || frame->flow != own->qp->core.qpn ||
		!one_in(&world->random, REVOKE_ONE_IN))
		return;
	trace_note(&world->trace, "endpoint 0 takes its payload away from %s", reader->name);
	endpoint_to_error(own);
	oracle_check_node(own->node);
	endpoint_poll(own, UINT32_MAX);
	world_poll_at(own->node, world->clock.now_ns);
}

void scenario_on_lost(void *arg, const struct frame *frame)
{
	const struct node *reader = arg;
	struct world *world = reader->world;
	struct wire_packet packet;

	SIM_CHECK(wire_decode_split(&packet, frame->data, frame->len, frame->payload,
			  frame->payload_len) == WIRE_OK,
		"%s: loses what is no packet", reader->name);
	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		struct endpoint *endpoint = &world->endpoints[i];

		if (frame->owner != &endpoint->node->port || endpoint->removed ||
			frame->flow != endpoint->qp->core.qpn)
			continue;
		endpoint->peer->lost = true;
		if (packet.op->operation == OPERATION_SEND)
			endpoint->peer->lost_receive = frame->payload_len;
	}
}
