/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Path MTU probes: find out whether only large packets to a silent peer are lost, as a switch with
 * a smaller MTU drops them without notice. Each timeout of a connection sends ICMP echo requests to
 * the peer: a small one, one of the length of the unacknowledged packet, and one for each smaller
 * path MTU. Any IP stack answers them. The result is used only for the error text (decision 68).
 */
#include "lib/engine/stages.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/net/ip.h"
#include "lib/wire/icmp.h"

enum {
	SMALL_LEN = 64,  /* of the IP packet */
	LEAST_MTU = 256, /* the minimum that every network carries */
	TRIALS = 2,      /* requests, as one may be lost for other reasons */
	ECHO_SMALL = 0,  /* in the label; other values are the path MTU in units of MTU_UNIT */
	ECHO_OWN = 0xff, /* in the label: has the length of the unacknowledged packet */
	MTU_UNIT = 256,
};

/* Returns the length of the IP packet in the middle of a message, which has the fewest headers. */
static uint32_t ip_len(const struct engine_qp *qp, uint32_t payload)
{
	uint32_t header = qp->path.wire.ipv4 ? IPV4_LEN : IPV6_LEN;

	return header + UDP_LEN + BTH_LEN + ((payload + 3) & ~3u) + ICRC_LEN;
}

/* Describes the peer as the source of a request, to which icmp_echo_request() sends. */
static void describe_peer(const struct engine *e, const struct engine_qp *qp, struct icmp_echo *ret)
{
	const struct frl_ah_attr *ah = &qp->core.attr.ah;
	const struct frl_gid *gid = &e->gids.gids[ah->sgid_index];

	*ret = (struct icmp_echo){
		.src_ip = ah->dgid,
		.dst_ip = gid->ip,
		.vlan = gid->vlan,
		.traffic_class = ah->traffic_class,
	};
	memcpy(ret->src_mac, qp->path.wire.headers, 6);
	memcpy(ret->dst_mac, e->port->caps.mac, 6);
}

/* Queues a request, which has only zeros after the packet's header. */
static bool queue(struct engine *e, uint16_t link, const uint8_t *frame, size_t len)
{
	static const uint8_t zeros[WIRE_IBTA_MTU];
	size_t header_len = len < PORT_HEADER_ROOM ? len : PORT_HEADER_ROOM;
	struct tx_queue *q = e->tx[link];
	struct port_packet *packet;

	if (!len || !engine_queue_frame(e, link, frame, header_len))
		return false;
	packet = &q->packets[(uint16_t)(q->tail - 1) % ENGINE_TX_QUEUE];
	if (len > header_len)
		packet->pieces[packet->n_pieces++] = (struct port_piece){
			.addr = zeros,
			.len = (uint32_t)(len - header_len),
		};
	return true;
}

static bool send_request(struct engine *e, const struct engine_qp *qp, uint8_t which, uint32_t len)
{
	const struct icmp_label label = {
		.id = (uint16_t)qp->core.qpn,
		.sequence = (uint16_t)(qp->core.qpn >> 16 << 8 | which),
		.ip_len = len,
	};
	uint8_t frame[WIRE_IBTA_MTU + WIRE_MAX_OVERHEAD];
	struct icmp_echo peer;

	describe_peer(e, qp, &peer);
	return queue(
		e, qp->path.link, frame, icmp_echo_request(frame, sizeof(frame), &peer, &label));
}

void path_probe_on_timeout(struct engine *e, struct engine_qp *qp)
{
	uint32_t payload = qp_awaited_length(&qp->core);
	struct path_probe *probe = &qp->probe;

	if (e->port->caps.on_demand || qp->path.link == ENGINE_LOOP_LINK || payload <= LEAST_MTU ||
		e->revoked)
		return;
	/* The unacknowledged packet has changed since the last timeout. */
	if (!psn_equal(probe->una, qp->core.requester.una) || probe->own_len != payload)
		*probe = (struct path_probe){ .una = qp->core.requester.una, .own_len = payload };
	send_request(e, qp, ECHO_SMALL, SMALL_LEN);
	if (send_request(e, qp, ECHO_OWN, ip_len(qp, payload)) && probe->own_sent < TRIALS)
		probe->own_sent++;
	/* The longest first: a peer may answer only one long request at a time. */
	for (uint32_t mtu = qp->core.path_mtu / 2; mtu >= LEAST_MTU; mtu /= 2)
		if (mtu < payload &&
			send_request(e, qp, (uint8_t)(mtu / MTU_UNIT), ip_len(qp, mtu)))
			probe->requested |= (uint8_t)(mtu / MTU_UNIT);
}

/* Path MTUs are powers of two: each is one bit of `requested`. Other values were never
 * requested. */
static bool was_requested(const struct path_probe *probe, uint8_t which)
{
	return which && !(which & (which - 1)) && (probe->requested & which);
}

bool path_probe_input(struct engine *e, const struct port_frame *frame)
{
	struct icmp_label label;
	struct icmp_echo reply;
	struct engine_qp *qp;
	uint8_t which;

	if (!icmp_reply_decode(&reply, &label, frame->data, frame->len))
		return false;
	which = (uint8_t)label.sequence;
	qp = engine_find_qp(e, (uint32_t)label.sequence >> 8 << 16 | label.id);
	if (!qp || !qp->probe.own_len || !ip_equal(&qp->core.attr.ah.dgid, &reply.src_ip))
		return true;
	if (which == ECHO_SMALL && label.ip_len == SMALL_LEN)
		qp->probe.small_answers += qp->probe.small_answers < TRIALS;
	else if (which == ECHO_OWN && label.ip_len == ip_len(qp, qp->probe.own_len))
		qp->probe.own_arrives = true;
	else if (was_requested(&qp->probe, which) && which > qp->probe.best &&
		label.ip_len == ip_len(qp, which * MTU_UNIT))
		qp->probe.best = which;
	return true;
}

void path_probe_explain(const struct engine *e, struct engine_qp *qp)
{
	const struct path_probe *probe = &qp->probe;
	uint32_t mtu = (uint32_t)probe->best * MTU_UNIT;
	char advice[64] = "set a smaller FRL_PATH_MTU", source[64];

	if (probe->small_answers < TRIALS || probe->own_sent < TRIALS || probe->own_arrives)
		return;
	if (mtu)
		snprintf(advice, sizeof(advice), "set FRL_PATH_MTU=%u", mtu);
	snprintf(source, sizeof(source), "%s",
		format_ip(&e->gids.gids[qp->core.attr.ah.sgid_index].ip));
	snprintf(qp->error, sizeof(qp->error),
		"IP packets of %u bytes are lost, of %u not: %s on both hosts, or raise the MTU "
		"between %s and %s",
		ip_len(qp, probe->own_len), mtu ? ip_len(qp, mtu) : (uint32_t)SMALL_LEN, advice,
		source, format_ip(&qp->core.attr.ah.dgid));
	qp->core.error = qp->error;
}
