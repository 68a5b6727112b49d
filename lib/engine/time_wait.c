/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections of the local fabric that ended here, by removal or RESET, while the peer may still
 * send over them. A link that reports its peer's death lets requests wait for as long as the peer
 * lives, so they have to be refused.
 *
 * Each link has a table with a place for each queue pair that the peer can have. The UDP source
 * port of a connection on the local fabric is the low bits of its sender's number, so it tells
 * which of them has sent a packet. A queue pair has one connection at a time, so a place is taken
 * over only when its entry is of no more use: the peer's queue pair is connected anew, or is
 * another one.
 */
#include "lib/engine/stages.h"

#include <assert.h>
#include <stdlib.h>

#include "lib/base/bytes.h"

enum {
	SLOT_MASK = ENGINE_MAX_QPS - 1,
	FABRIC_PORTS = 0xc000, /* the first one */
	NEAR_PSNS = 4096,      /* a peer's window, in request packets */
	FAR_PSNS = 1 << 22,    /* PSNs of another connection shall be told from these */
};

static_assert(
	(int)FABRIC_PORTS + (int)ENGINE_MAX_QPS == UINT16_MAX + 1, "a port for each queue pair");

uint16_t engine_fabric_port(uint32_t qpn)
{
	return (uint16_t)(FABRIC_PORTS | (qpn & SLOT_MASK));
}

/* The sender has as much under way as its window allows, and the answers to READs. */
static uint32_t psns_behind(const struct engine_qp *qp)
{
	uint32_t n = NEAR_PSNS + qp_saved_psns(&qp->core);

	return n < FAR_PSNS ? n : FAR_PSNS;
}

void engine_enter_time_wait(struct engine *e, const struct engine_qp *qp)
{
	struct time_wait **table = &e->time_wait[qp->path.link];

	if (!qp->core.unlimited_retry || qp->core.type != FRL_QPT_RC || !engine_is_connected(qp))
		return;
	/* Pages of it are allocated as places are used. Without it the peer waits. */
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

/* The entry of the sender's queue pair, if that is the one which the packet is for. */
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

	/* The number of a queue pair that is gone tells enough. */
	if (!entry || !qp)
		return entry;
	/* Connected to that queue pair of the peer, or to the one that has its place now. */
	if (engine_is_connected(qp) && qp->path.link == link &&
		((qp->core.dest_qpn ^ entry->dest_qpn) & SLOT_MASK) == 0)
		return NULL;
	/* The two may be about to be connected anew, with other PSNs. */
	ahead = psn_diff(packet->h.bth.psn, entry->epsn);
	return ahead >= -(int32_t)entry->behind && ahead <= NEAR_PSNS ? entry : NULL;
}

void engine_drop_time_wait(struct engine *e, uint16_t link)
{
	free(e->time_wait[link]);
	e->time_wait[link] = NULL;
}
