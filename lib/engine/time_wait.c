/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time-wait entries: connections of the local fabric that ended here, by removal or RESET, while
 * the peer may still send. On a link that reports its peer's death, requests have no timeout. They
 * must therefore be refused.
 *
 * Each link has a table with an entry for each queue pair of the peer. The UDP source port of a
 * connection on the local fabric is the low bits of the sender's number, and selects the entry. A
 * queue pair has one connection at a time. An entry is overwritten only when the peer's queue pair
 * was reconnected or replaced, so it is obsolete then.
 */
#include "lib/engine/stages.h"

#include <assert.h>
#include <stdlib.h>

#include "lib/base/bytes.h"

enum {
	SLOT_MASK = ENGINE_MAX_QPS - 1,
	FABRIC_PORTS = 0xc000,           /* first port */
	WINDOW_PSNS = 4096,              /* a peer's window, in request packets */
	OTHER_CONNECTION_PSNS = 1 << 22, /* distance at which PSNs belong to another connection */
};

static_assert(
	(int)FABRIC_PORTS + (int)ENGINE_MAX_QPS == UINT16_MAX + 1, "a port for each queue pair");

uint16_t engine_fabric_port(uint32_t qpn)
{
	return (uint16_t)(FABRIC_PORTS | (qpn & SLOT_MASK));
}

/* The sender has at most its window and the responses to READs outstanding. */
static uint32_t psns_behind(const struct engine_qp *qp)
{
	uint32_t n = WINDOW_PSNS + qp_resource_psns(&qp->core);

	return n < OTHER_CONNECTION_PSNS ? n : OTHER_CONNECTION_PSNS;
}

void engine_enter_time_wait(struct engine *e, const struct engine_qp *qp)
{
	struct time_wait **table;

	if (!qp->core.unlimited_retry || qp->core.type != FRL_QPT_RC || !engine_is_connected(qp))
		return;
	table = &e->time_wait[qp->path.link];
	/* The kernel allocates its pages on first use. If there is no memory, the peer waits. */
	if (!*table)
		*table = calloc(ENGINE_MAX_QPS, sizeof(**table));
	if (!*table)
		return;
	(*table)[qp->core.dest_qpn & SLOT_MASK] = (struct time_wait){
		.qpn = qp->core.qpn,
		.dest_qpn = qp->core.dest_qpn,
		.has_icrc = !(qp->core.capabilities & FRL_CAP_NO_ICRC),
		.remote_ip = qp->core.remote_ip,
		.epsn = qp->core.responder.epsn,
		.behind = psns_behind(qp),
		.path = qp->path.wire,
	};
}

/* Returns the entry of the sender's queue pair, if the packet is for that connection. */
static const struct time_wait *find(
	const struct engine *e, uint16_t link, const struct wire_packet *packet)
{
	const uint8_t *udp = packet->l3 + (ip_is_v4(&packet->src_ip) ? IPV4_LEN : IPV6_LEN);
	const struct time_wait *entry = &e->time_wait[link][get_be16(udp) & SLOT_MASK];

	return entry->qpn && entry->qpn == packet->h.bth.dest_qpn &&
			ip_equal(&entry->remote_ip, &packet->src_ip)
		? entry
		: NULL;
}

const struct time_wait *engine_find_time_wait(const struct engine *e, const struct engine_qp *qp,
	uint16_t link, const struct wire_packet *packet)
{
	const struct time_wait *entry = find(e, link, packet);
	int32_t ahead;

	/* The number is free, so the packet is for the old connection. */
	if (!entry || !qp)
		return entry;
	/* The queue pair is connected to that queue pair of the peer, or to its successor. */
	if (engine_is_connected(qp) && qp->path.link == link &&
		((qp->core.dest_qpn ^ entry->dest_qpn) & SLOT_MASK) == 0)
		return NULL;
	/* The same two queue pairs may reconnect, with other PSNs. */
	ahead = psn_diff(packet->h.bth.psn, entry->epsn);
	return ahead >= -(int32_t)entry->behind && ahead <= WINDOW_PSNS ? entry : NULL;
}

void engine_drop_time_wait(struct engine *e, uint16_t link)
{
	free(e->time_wait[link]);
	e->time_wait[link] = NULL;
}
