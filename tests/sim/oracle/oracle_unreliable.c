/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * UC and UD. Frames may be lost, doubled and reordered, so the accepted ones depend on the frames
 * that the engine receives: the port reports them. Packets between queue pairs of one engine go in
 * order and are never lost: the sender's window reports those.
 */
#include "tests/sim/oracle/oracle.h"

#include "tests/sim/common/fail.h"

#include <string.h>

static void arrive(struct endpoint *endpoint, struct endpoint *from, uint32_t packet)
{
	enum frl_qp_state state = endpoint->qp->core.state;

	if (state < FRL_QPS_RTR || state == FRL_QPS_ERR)
		return;
	SIM_CHECK(packet < from->script.n_packets, "endpoint %u: packet %u of %u", endpoint->index,
		packet, from->index);
	SIM_CHECK(endpoint->n_arrivals < ENDPOINT_ARRIVALS, "endpoint %u: too many arrivals",
		endpoint->index);
	endpoint->arrivals[endpoint->n_arrivals++] = (struct arrival){ from, packet };
}

static struct endpoint *find(struct world *world, const struct node *node, uint32_t qpn)
{
	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		struct endpoint *endpoint = &world->endpoints[i];

		if (endpoint->node == node && endpoint->qpn == qpn && !endpoint->removed)
			return endpoint;
	}
	return NULL;
}

static struct node *node_of(struct world *world, const uint8_t mac[6])
{
	for (uint32_t i = 0; i < world->config.n_nodes; i++)
		if (memcmp(world->nodes[i].port.config.mac, mac, 6) == 0)
			return &world->nodes[i];
	return NULL;
}

static void arrive_at_group(
	struct node *node, struct endpoint *from, uint32_t packet, const struct frl_ip *group)
{
	bool ipv4 = ip_is_v4(group);
	struct world *world = node->world;

	for (uint32_t i = 0; i < world->n_endpoints; i++) {
		struct endpoint *endpoint = &world->endpoints[i];

		if (endpoint->node == node && endpoint->type == FRL_QPT_UD && !endpoint->removed &&
			ip_is_v4(&endpoint->attr.ah.dgid) == ipv4)
			arrive(endpoint, from, packet);
	}
}

/* A packet of an unreliable flow comes to the node. */
static void note_packet(struct node *node, const struct wire_packet *packet, const uint8_t *frame)
{
	struct world *world = node->world;
	bool datagram = packet->op->headers & HEADER_DETH;
	struct node *source = node_of(world, frame + 6);
	struct endpoint *to = find(world, node, packet->h.bth.dest_qpn), *from;
	uint32_t k;

	if (!datagram && opcode_transport(packet->h.bth.opcode) != TRANSPORT_UC)
		return;
	from = datagram ? find(world, source, packet->h.deth.src_qpn) : to ? to->peer : NULL;
	if (!from)
		return;
	k = (uint32_t)psn_diff(packet->h.bth.psn, psn_make(from->attr.sq_psn));
	if (packet->h.bth.dest_qpn == QPN_MULTICAST)
		arrive_at_group(node, from, k, &packet->dst_ip);
	else if (to)
		arrive(to, from, k);
}

void oracle_on_receive(struct node *node, const struct frame *frame)
{
	struct wire_packet packet;

	if (!frame->ignored && !frame->payload &&
		wire_decode(&packet, frame->data, frame->len) == WIRE_OK)
		note_packet(node, &packet, frame->data);
}

void oracle_on_send(struct node *node, const uint8_t *data, uint32_t len)
{
	struct wire_packet packet;

	if ((data[0] & 1) && wire_decode(&packet, data, len) == WIRE_OK)
		note_packet(node, &packet, data);
}

/* Messages that were sent without a port have arrived. */
void oracle_follow_loop(struct endpoint *endpoint)
{
	const struct requester *r = &endpoint->qp->core.requester;
	uint32_t una = (uint32_t)psn_diff(r->una, psn_make(endpoint->attr.sq_psn));

	if (endpoint_is_reliable(endpoint) || !qp_sends(&endpoint->qp->core))
		return;
	for (; endpoint->una < una; endpoint->una++) {
		uint32_t k = script_message_of(&endpoint->script, endpoint->una);

		if (endpoint->loop && !endpoint->script.messages[k].group &&
			!endpoint->peer->removed)
			arrive(endpoint->peer, endpoint, endpoint->una);
	}
}

/* A receive of a shared queue must not be kept; a receive of its own is used for the next
 * message. */
static void break_message(struct endpoint *endpoint)
{
	if (endpoint->recv_request != ENDPOINT_NO_RECV && endpoint->shares) {
		static const struct message nothing = { .opcode = FRL_WR_SEND };

		oracle_expect(endpoint, &nothing)->status = FRL_WC_REM_INV_REQ_ERR;
	}
	endpoint->world->tally->uc_broken += !endpoint->broken;
	endpoint->broken = true;
}

static void apply_uc(
	struct endpoint *endpoint, struct message *message, uint32_t k, uint32_t offset)
{
	const struct script *script = &endpoint->peer->script;
	bool last = offset + script->mtu >= message->length;
	bool needs = message_is_send(message) || (last && message_has_imm(message));
	uint32_t len = last ? message->length - offset : script->mtu;
	uint8_t payload[WIRE_MAX_MTU];

	if (needs && oracle_take_receive(endpoint) == ENDPOINT_NO_RECV) {
		endpoint->world->tally->uc_no_recv++;
		break_message(endpoint);
		return;
	}
	if (message_is_send(message) &&
		offset + len > inbox_slot(endpoint->inbox, endpoint->recv_request)->capacity) {
		endpoint->world->tally->too_small++;
		break_message(endpoint);
		return;
	}
	script_payload(script, k, offset, payload, len);
	if (message_is_write(message))
		oracle_write(endpoint, message, offset, payload, len);
	else
		oracle_scatter_receive(endpoint, endpoint->recv_request, offset, payload, len);
	endpoint->node->rx_requests++;
	endpoint->in_message = !last;
	if (!last)
		return;
	endpoint->world->tally->uc_received++;
	if (needs)
		oracle_expect(endpoint, message);
}

/* 9.8.3: a message may start at any packet, and continues with the next packet or not at all. */
static void take_uc(struct endpoint *endpoint, const struct arrival *arrival)
{
	struct script *script = &endpoint->peer->script;
	uint32_t k = script_message_of(script, arrival->packet);
	struct message *message = &script->messages[k];
	bool first = arrival->packet == message->first_packet;
	bool in_order = arrival->packet == endpoint->expect_from;

	endpoint->expect_from = arrival->packet + 1;
	if (first) {
		if (endpoint->in_message)
			break_message(endpoint);
		endpoint->broken = endpoint->in_message = false;
	} else if (!in_order || !endpoint->in_message) {
		break_message(endpoint);
		endpoint->in_message = false;
		return;
	}
	apply_uc(endpoint, message, k, (arrival->packet - message->first_packet) * script->mtu);
	if (endpoint->broken)
		endpoint->in_message = false;
}

static uint16_t sum16(const uint8_t *bytes, uint32_t len)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < len; i += 2)
		sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* The header before the payload is the one of the sender's frame. */
static void check_grh(const struct endpoint *endpoint, const struct endpoint *from,
	const struct message *message, const uint8_t grh[FRL_GRH_SIZE])
{
	const struct frl_ip *src = &from->node->gids.gids[from->attr.ah.sgid_index].ip;
	bool ipv4 = ip_is_v4(src);
	const uint8_t *header = ipv4 ? grh + IPV4_LEN : grh;
	struct frl_ip group = world_group(ipv4);
	const struct frl_ip *dst = message->group ? &group : &from->attr.ah.dgid;
	bool right;

	if (ipv4)
		right = header[0] == 0x45 && header[9] == 17 &&
			memcmp(header + 12, src->bytes + 12, 4) == 0 &&
			memcmp(header + 16, dst->bytes + 12, 4) == 0 &&
			sum16(header, IPV4_LEN) == 0xffff;
	else
		right = header[0] >> 4 == 6 && header[6] == 17 &&
			memcmp(header + 8, src->bytes, 16) == 0 &&
			memcmp(header + 24, dst->bytes, 16) == 0;
	SIM_CHECK(right, "endpoint %u: the header before a datagram of %u", endpoint->index,
		from->index);
}

struct grh_gather {
	const struct endpoint *endpoint;
	uint8_t grh[FRL_GRH_SIZE];
};

static void grh_piece(void *arg, uint32_t at, uint32_t done, uint32_t len)
{
	struct grh_gather *gather = arg;

	memcpy(gather->grh + done, gather->endpoint->inbox->memory.bytes + at, len);
}

static void take_datagram(struct endpoint *endpoint, const struct arrival *arrival)
{
	struct endpoint *from = arrival->from;
	uint32_t k = script_message_of(&from->script, arrival->packet);
	const struct message *message = &from->script.messages[k];
	const struct frl_gid *gid = &from->node->gids.gids[from->attr.ah.sgid_index];
	struct grh_gather gather = { .endpoint = endpoint };
	struct tally *tally = endpoint->world->tally;
	uint8_t payload[WIRE_MAX_MTU];
	struct expected *expected;
	uint32_t request;

	if (message->wrong_qkey) {
		tally->bad_qkey++;
		return;
	}
	request = oracle_take_receive(endpoint);
	if (request == ENDPOINT_NO_RECV) {
		tally->ud_no_recv++;
		return;
	}
	if (FRL_GRH_SIZE + message->length > inbox_slot(endpoint->inbox, request)->capacity) {
		tally->too_small++;
		return; /* it stays for the next one */
	}
	oracle_walk(&inbox_slot(endpoint->inbox, request)->layout,
		inbox_offset(endpoint->inbox, request), 0, FRL_GRH_SIZE, grh_piece, &gather);
	check_grh(endpoint, from, message, gather.grh);
	script_payload(&from->script, k, 0, payload, message->length);
	oracle_scatter_receive(endpoint, request, 0, gather.grh, FRL_GRH_SIZE);
	oracle_scatter_receive(endpoint, request, FRL_GRH_SIZE, payload, message->length);
	endpoint->node->rx_requests++;
	expected = oracle_expect(endpoint, message);
	expected->byte_len += FRL_GRH_SIZE;
	expected->flags |= FRL_WC_GRH | (ip_is_v4(&gid->ip) ? FRL_WC_IPV4 : 0);
	expected->src_qp = from->qpn;
	expected->vlan = gid->vlan;
	expected->sl = gid->vlan ? from->attr.ah.sl : 0; /* part of the tag */
	tally->ud_received++;
	tally->multicast += message->group;
}

void oracle_follow_unreliable(struct endpoint *endpoint)
{
	if (endpoint_is_reliable(endpoint))
		return;
	for (uint32_t i = 0; i < endpoint->n_arrivals; i++) {
		if (endpoint->type == FRL_QPT_UC)
			take_uc(endpoint, &endpoint->arrivals[i]);
		else
			take_datagram(endpoint, &endpoint->arrivals[i]);
	}
	endpoint->n_arrivals = 0;
	oracle_check_touched(endpoint, false, 0);
}
