/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving: frames from the port to queue pairs, payload to its place. */
#include "lib/engine/stages.h"

#include <string.h>

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
	case WIRE_ICMPV6:
	case WIRE_NOT_ROCE: break;
	}
	return &stats->drop_not_for_us;
}

static void handle_neighbor(struct engine *e, const struct port_frame *frame)
{
	uint8_t answer[NEIGHBOR_MAX_FRAME];
	size_t len;

	if (e->port->caps.on_demand) {
		e->stats.drop_not_for_us++;
		return;
	}
	len = neighbors_input(&e->neighbors, frame->data, frame->len, answer);
	if (len) {
		e->stats.neighbor_requests++;
		engine_queue_frame(e, frame->link, answer, len);
	}
}

static struct engine_qp *find_qp(const struct engine *e, uint32_t qpn)
{
	struct engine_qp *qp = e->qps[qpn & (ENGINE_MAX_QPS - 1)];

	return qp && qp->core.qpn == qpn ? qp : NULL;
}

/* Takes pad and ICRC off; false when they are not right. */
static bool finish_packet(struct frl_stats *stats, const struct port_frame *frame,
	struct wire_packet *packet, bool has_icrc)
{
	/* Payload that lies elsewhere is for connections without ICRC only, and has no pad. */
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

static void handle_frame(struct engine *e, const struct port_frame *frame, uint64_t now_ns)
{
	struct frl_stats *stats = &e->stats;
	struct placements placements;
	struct wire_packet packet;
	struct engine_qp *qp;
	enum wire_verdict verdict;

	stats->rx_packets++;
	stats->rx_bytes += frame->len + frame->payload_len;
	verdict = frame->payload ? wire_decode_split(&packet, frame->data, frame->len,
					   frame->payload, frame->payload_len)
				 : wire_decode(&packet, frame->data, frame->len);
	if (verdict == WIRE_ARP || verdict == WIRE_ICMPV6) {
		handle_neighbor(e, frame);
		return;
	}
	if (verdict != WIRE_OK) {
		++*drop_counter(stats, verdict);
		return;
	}
	if (!mac_equal(frame->data, e->port->caps.mac) || !ip_equal(&packet.dst_ip, &e->ip)) {
		stats->drop_not_for_us++;
		return;
	}
	qp = find_qp(e, packet.h.bth.dest_qpn);
	if (!qp) {
		stats->drop_unknown_qp++;
		if (!(packet.op->flags & OPCODE_RESPONSE))
			engine_answer_for_gone(e, &packet);
		return;
	}
	/* On the local fabric a link is a process: another one must not speak for it. */
	if (frame->link != qp->link) {
		stats->drop_wrong_peer++;
		return;
	}
	if (!finish_packet(stats, frame, &packet, !(qp->core.capabilities & FRL_CAP_NO_ICRC)))
		return;
	qp_input(&qp->core, &packet, &placements, now_ns);
	place(stats, &placements);
	/* Payload of a packet that was refused or is a repetition was not read. */
	if (frame->payload && placements.count && !e->port->ops->payload_intact(e->port, frame))
		qp_payload_lost(&qp->core, &placements);
	engine_update(e, qp);
}

/* Payload that lies elsewhere is in another processor's cache; the hardware goes on from here. */
static void prefetch_frame(const struct port_frame *frame)
{
	__builtin_prefetch(frame->data);
	for (unsigned at = 0; at < frame->payload_len && at < PREFETCH_BYTES; at += 64)
		__builtin_prefetch(frame->payload + at);
}

uint32_t receive_burst(struct engine *e, uint64_t now_ns)
{
	struct port_frame frames[PORT_BURST];
	uint16_t n = e->port->ops->rx_burst(e->port, frames, PORT_BURST);

	for (uint16_t i = 0; i < n; i++) {
		if (i + 1 < n)
			prefetch_frame(&frames[i + 1]);
		handle_frame(e, &frames[i], now_ns);
	}
	if (n)
		e->port->ops->rx_free(e->port, frames, n);
	return n;
}
