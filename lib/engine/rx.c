/* SPDX-License-Identifier: BSD-3-Clause */
/* Receive: from frames of the port to queue pairs and placements. */
#include "lib/engine/stages.h"

#include <string.h>

#include "lib/base/bytes.h"
#include "lib/engine/fragments.h"
#include "lib/engine/offload/hooks.h"
#include "lib/wire/icmp.h"

enum { PREFETCH_BYTES = 1024 };

static uint64_t *drop_counter(struct frl_stats *stats, enum wire_verdict verdict)
{
	switch (verdict) {
	case WIRE_SHORT: return &stats->drop_short;
	case WIRE_BAD_IP: return &stats->drop_bad_ip;
	case WIRE_BAD_UDP: return &stats->drop_bad_udp;
	case WIRE_BAD_LENGTH: return &stats->drop_bad_length;
	case WIRE_BAD_VERSION: return &stats->drop_bad_version;
	case WIRE_BAD_OPCODE: return &stats->drop_bad_opcode;
	case WIRE_OK:
	case WIRE_ARP:
	case WIRE_ICMP:
	case WIRE_IGMP:
	case WIRE_NOT_ROCE: break;
	}
	return &stats->drop_not_for_us;
}

static void handle_neighbor(struct engine *e, const struct port_frame *frame, uint64_t now_ns)
{
	uint8_t answer[NEIGHBOR_MAX_FRAME];
	size_t len = neighbors_input(&e->neighbors, frame->data, frame->len, answer, now_ns);

	if (len && engine_queue_frame(e, frame->link, answer, len))
		e->stats.neighbor_requests++;
}

/* Answers an ICMP echo request. Returns false if it is none. */
static bool handle_echo(struct engine *e, const struct port_frame *frame)
{
	uint8_t answer[PORT_HEADER_ROOM];
	struct icmp_echo echo;
	bool queued = false;
	size_t len;

	if (!icmp_echo_decode(&echo, frame->data, frame->len))
		return false;
	if (!mac_equal(echo.dst_mac, e->port->caps.mac) ||
		gid_find(&e->gids, &echo.dst_ip, echo.vlan) < 0) {
		e->stats.drop_not_for_us++;
		return true;
	}
	len = icmp_echo_reply(answer, sizeof(answer), &echo);
	if (len) {
		queued = engine_queue_frame(e, frame->link, answer, len);
	} else if (!engine_scratch_queued(e)) {
		/* One at a time; the requester of a large echo can retry. */
		len = icmp_echo_reply(e->scratch, e->scratch_size, &echo);
		queued = len && engine_queue_frame(e, frame->link, e->scratch, len);
	}
	if (queued)
		e->stats.echo_requests++;
	return true;
}

/* Handles frames that are not RoCE. */
static void handle_other(struct engine *e, const struct port_frame *frame,
	enum wire_verdict verdict, uint64_t now_ns)
{
	bool taken = false;

	if (!e->port->caps.on_demand) {
		if (verdict == WIRE_ICMP)
			taken = handle_echo(e, frame) || path_probe_input(e, frame);
		if (!taken && (verdict == WIRE_ARP || verdict == WIRE_ICMP)) {
			handle_neighbor(e, frame, now_ns);
			taken = true;
		}
		/* MLD queries have hop-by-hop options. */
		if (verdict == WIRE_IGMP || verdict == WIRE_NOT_ROCE)
			taken = groups_input(
				&e->groups, frame->data, frame->len, &e->random, now_ns);
	}
	if (!taken)
		++*drop_counter(&e->stats, verdict);
}

/* Removes pad and ICRC. Returns false if they are wrong. */
static bool finish_packet(struct frl_stats *stats, const struct port_frame *frame,
	struct wire_packet *packet, bool has_icrc)
{
	/* Payload outside the frame is for connections without ICRC only, and has no pad. */
	if (frame->payload ? has_icrc : wire_trim(packet, has_icrc) != WIRE_OK) {
		stats->drop_bad_length++;
		return false;
	}
	if (has_icrc && !wire_icrc_ok(packet)) {
		stats->drop_bad_icrc++;
		return false;
	}
	return true;
}

static void deliver(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	const struct wire_packet *packet, uint64_t now_ns)
{
	struct placements placements;

	if (e->offloads && !e->offloads->admits(e, qp, packet, now_ns))
		return;
	qp_input(&qp->core, packet, &placements, now_ns);
	if (!place(e, qp, frame, &placements)) {
		if (e->offloads)
			e->offloads->void_placed(e, &placements);
		qp_memory_gone(&qp->core, packet, &placements);
		engine_update(e, qp);
		return;
	}
	/* Without placements (refused or duplicate packet) the payload was not read. */
	if (frame->payload && placements.count && !e->port->ops->payload_intact(e->port, frame)) {
		bool is_refused = fragments_take_back(e, &placements);

		if (e->offloads)
			e->offloads->void_placed(e, &placements);
		if (!is_refused)
			qp_payload_lost(&qp->core, packet, &placements);
	}
	if (placements.completes)
		qp_placed(&qp->core, packet, &placements, now_ns);
	engine_update(e, qp);
}

/* Returns true if the device has an address of the family on the VLAN. */
static bool is_on_vlan(const struct engine *e, const struct wire_packet *packet)
{
	bool v4 = ip_is_v4(&packet->dst_ip);

	for (unsigned i = 0; i < e->gids.n; i++)
		if (e->gids.gids[i].vlan == packet->vlan && ip_is_v4(&e->gids.gids[i].ip) == v4)
			return true;
	return false;
}

/* Returns true if the source is the peer of the link. On the local fabric a link is a process,
 * which must not send with another one's address. */
static bool is_from_peer(
	struct engine *e, const struct port_frame *frame, const struct wire_packet *packet)
{
	const struct engine_peer *peer;

	if (frame->link == ENGINE_LOOP_LINK)
		return true;
	peer = &e->peers[frame->link];
	if (!peer->known || ip_equal(&packet->src_ip, &peer->ips[0]) ||
		ip_equal(&packet->src_ip, &peer->ips[1]))
		return true;
	e->stats.drop_wrong_peer++;
	return false;
}

/* Without an offload the far part of a frame is unreachable, and the frame useless. */
static bool is_cut(struct engine *e, const struct port_frame *frame)
{
	if (frame->far_len)
		e->stats.offload_waits++;
	return frame->far_len;
}

/* Returns true if the packet is not to be received now. */
static bool is_deferred(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	const struct wire_packet *packet)
{
	return e->offloads ? e->offloads->defers(e, qp, frame, packet) : is_cut(e, frame);
}

static bool is_other_deferred(struct engine *e, const struct port_frame *frame)
{
	return e->offloads ? e->offloads->defers_other(e, frame) : is_cut(e, frame);
}

static void receive_multicast(struct engine *e, const struct port_frame *frame,
	struct wire_packet *packet, uint64_t now_ns)
{
	int group = groups_find(&e->groups, &packet->dst_ip);
	struct engine_qp *qp;
	unsigned at = 0;
	uint8_t mac[6];

	if (group < 0 || !is_on_vlan(e, packet) || !wire_multicast_mac(&packet->dst_ip, mac) ||
		!mac_equal(frame->data, mac)) {
		e->stats.drop_not_for_us++;
		return;
	}
	if (packet->h.bth.dest_qpn != QPN_MULTICAST) {
		e->stats.drop_unknown_qp++;
		return;
	}
	if (!is_from_peer(e, frame, packet) || is_deferred(e, NULL, frame, packet) ||
		!finish_packet(&e->stats, frame, packet, true))
		return;
	while ((qp = groups_next_member(&e->groups, group, &at)))
		deliver(e, qp, frame, packet, now_ns);
}

/*
 * Refuses a request to a connection in time-wait, as its sender waits for an answer. `qp` has the
 * number now, or is NULL; it may be connected to another queue pair of the same peer. Returns
 * false if there is no such connection.
 */
static bool refuse_after_close(struct engine *e, const struct engine_qp *qp,
	const struct port_frame *frame, const struct wire_packet *packet)
{
	const struct time_wait *entry;

	if (!e->time_wait[frame->link] || opcode_transport(packet->h.bth.opcode) != TRANSPORT_RC ||
		(packet->op->flags & OPCODE_RESPONSE))
		return false;
	entry = engine_find_time_wait(e, qp, frame->link, packet);
	if (entry)
		engine_refuse(e, frame->link, entry, packet->h.bth.psn);
	return entry;
}

/*
 * Returns true if a packet to our GID at `gid` comes from the queue pair's peer. An earlier peer
 * in the same process uses the same path. A packet with the expected PSN skips that check, as PSNs
 * are random.
 */
static bool is_from_own_peer(struct engine *e, const struct engine_qp *qp,
	const struct port_frame *frame, const struct wire_packet *packet, unsigned gid)
{
	bool on_path = frame->link == qp->path.link && gid == qp->core.attr.ah.sgid_index;

	if (on_path && psn_equal(packet->h.bth.psn, qp->core.responder.epsn))
		return true;
	return !refuse_after_close(e, qp, frame, packet) && on_path;
}

/* Receives a packet to our GID at `gid`. */
static void receive_unicast(struct engine *e, const struct port_frame *frame,
	struct wire_packet *packet, unsigned gid, uint64_t now_ns)
{
	struct engine_qp *qp = engine_find_qp(e, packet->h.bth.dest_qpn);

	if (!qp) {
		e->stats.drop_unknown_qp++;
		refuse_after_close(e, NULL, frame, packet);
		return;
	}
	if (qp_is_datagram(&qp->core)) {
		if (!is_from_peer(e, frame, packet))
			return;
	} else if (!engine_is_connected(qp)) {
		e->stats.drop_qp_state++;
		refuse_after_close(e, qp, frame, packet);
		return;
	} else if (!is_from_own_peer(e, qp, frame, packet, gid)) {
		/* The network must not send in the name of this device either. */
		e->stats.drop_wrong_peer++;
		return;
	}
	if (is_deferred(e, qp, frame, packet) ||
		!finish_packet(
			&e->stats, frame, packet, !(qp->core.capabilities & FRL_CAP_NO_ICRC)))
		return;
	deliver(e, qp, frame, packet, now_ns);
}

static enum wire_verdict decode(struct wire_packet *packet, const struct port_frame *frame)
{
	if (frame->far_len)
		return wire_decode_part(packet, frame->data, frame->len, frame->far_len);
	if (frame->payload)
		return wire_decode_split(
			packet, frame->data, frame->len, frame->payload, frame->payload_len);
	return wire_decode(packet, frame->data, frame->len);
}

void receive_frame(struct engine *e, const struct port_frame *frame, uint64_t now_ns)
{
	struct wire_packet packet;
	enum wire_verdict verdict;
	int gid;

	if (e->revoked) {
		e->stats.drop_not_for_us++;
		return;
	}
	verdict = decode(&packet, frame);
	if (verdict != WIRE_OK) {
		if ((verdict == WIRE_ICMP || verdict == WIRE_IGMP) && is_other_deferred(e, frame))
			return;
		handle_other(e, frame, verdict, now_ns);
		return;
	}
	/* Provider tags, and tags within tags, are for other networks. */
	if (packet.n_tags > 1 ||
		(packet.n_tags && get_be16(frame->data + ETH_LEN - 2) != ETHERTYPE_VLAN)) {
		e->stats.drop_not_for_us++;
		return;
	}
	if (ip_is_multicast(&packet.dst_ip)) {
		receive_multicast(e, frame, &packet, now_ns);
		return;
	}
	gid = gid_find(&e->gids, &packet.dst_ip, packet.vlan);
	if (gid < 0 || !mac_equal(frame->data, e->port->caps.mac)) {
		e->stats.drop_not_for_us++;
		return;
	}
	receive_unicast(e, frame, &packet, (unsigned)gid, now_ns);
}

/* Payload outside the frame is in another processor's cache. The hardware prefetcher continues
 * from here. */
static void prefetch_frame(const struct port_frame *frame)
{
	__builtin_prefetch(frame->data);
	for (unsigned at = 0; at < frame->payload_len && at < PREFETCH_BYTES; at += 64)
		__builtin_prefetch(frame->payload + at);
}

/* Returns true if the received frame is held and freed later. */
static bool is_kept(struct engine *e)
{
	return (e->offloads && e->offloads->keeps_frame(e)) ||
		(e->frames_shared && fragments_kept_frame(e));
}

uint16_t engine_fetch(struct engine *e)
{
	if (!e->n_taken)
		e->n_taken = e->port->ops->rx_burst(e->port, e->taken, PORT_BURST);
	return e->n_taken;
}

uint32_t receive_burst(struct engine *e, uint64_t now_ns)
{
	struct port_frame *frames = e->taken;
	bool keeps = e->offloads || e->frames_shared;
	uint16_t n = engine_fetch(e), n_free = 0;

	e->n_taken = 0;
	for (uint16_t i = 0; i < n; i++) {
		if (i + 1 < n)
			prefetch_frame(&frames[i + 1]);
		e->stats.rx_packets++;
		e->stats.rx_bytes += frames[i].len + frames[i].payload_len + frames[i].far_len;
		receive_frame(e, &frames[i], now_ns);
		if (keeps && !is_kept(e))
			frames[n_free++] = frames[i];
	}
	if (!keeps)
		n_free = n;
	if (n_free)
		e->port->ops->rx_free(e->port, frames, n_free);
	return n;
}
