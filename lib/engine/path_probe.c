/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Path MTU probes: find out whether only large packets to a silent peer are lost, as a switch with
 * a smaller MTU drops them without notice. Each timeout of a connection sends two ICMP echo
 * requests to the peer: a small one, and one of the length of the unacknowledged packet or,
 * alternately, of a smaller path MTU. Any IP stack answers them. The result is used only for the
 * error text (decision 68).
 */
#include "lib/engine/stages.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/ip.h"
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

static bool ask(struct engine *e, const struct engine_qp *qp, uint8_t which, uint32_t len)
{
	const struct icmp_label label = {
		.id = (uint16_t)qp->core.qpn,
		.sequence = (uint16_t)(qp->core.qpn >> 16 << 8 | which),
		.ip_len = len,
	};
	uint8_t header[PORT_HEADER_ROOM];
	struct icmp_echo peer;
	size_t frame_len;

	describe_peer(e, qp, &peer);
	frame_len = icmp_echo_request(header, sizeof(header), &peer, &label);
	if (frame_len)
		return engine_queue_frame(e, qp->path.link, header, frame_len);
	if (engine_scratch_queued(e))
		return false;
	frame_len = icmp_echo_request(e->scratch, e->scratch_size, &peer, &label);
	return frame_len && engine_queue_frame(e, qp->path.link, e->scratch, frame_len);
}

/* Sends a large request: alternately of the packet's own length and of decreasing path MTUs. */
static void ask_large(struct engine *e, struct engine_qp *qp, uint32_t payload)
{
	struct path_probe *probe = &qp->probe;
	uint32_t mtu = qp->core.path_mtu >> ((probe->rounds + 1) / 2);

	if (probe->rounds % 2 == 0)
		probe->own_sent += ask(e, qp, ECHO_OWN, ip_len(qp, payload));
	else if (mtu >= LEAST_MTU && mtu < payload)
		ask(e, qp, (uint8_t)(mtu / MTU_UNIT), ip_len(qp, mtu));
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
	ask(e, qp, ECHO_SMALL, SMALL_LEN);
	ask_large(e, qp, payload);
	if (probe->rounds < UINT8_MAX)
		probe->rounds++;
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
	else if (label.ip_len == ip_len(qp, which * MTU_UNIT) && which > qp->probe.best)
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
