/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/vectors/flows.h"

#include <stdlib.h>
#include <string.h>

#include "tests/vectors/pcap.h"

static struct flows flows;

static void forget(void)
{
	for (uint32_t i = 0; i < flows.n; i++) {
		for (uint32_t k = 0; k < flows.flows[i].n_requests; k++)
			free(flows.flows[i].requests[k].frame);
		for (uint32_t k = 0; k < flows.flows[i].n_answers; k++)
			free(flows.flows[i].answers[k].frame);
	}
	memset(&flows, 0, sizeof(flows));
}

uint32_t flow_psns(const struct flow *flow, const struct wire_packet *request)
{
	uint32_t length = request->h.reth.dma_length;

	if (request->op->operation != OPERATION_READ || length == 0)
		return 1;
	return (length - 1) / flow->mtu + 1;
}

static struct flow *flow_of_request(const struct wire_packet *packet)
{
	struct flow *flow;

	for (uint32_t i = 0; i < flows.n; i++) {
		flow = &flows.flows[i];
		if (flow->responder_qpn == packet->h.bth.dest_qpn &&
			ip_equal(&flow->responder, &packet->dst_ip))
			return flow;
	}
	if (flows.n == FLOWS_MAX)
		return NULL;
	flow = &flows.flows[flows.n++];
	flow->requester = packet->src_ip;
	flow->responder = packet->dst_ip;
	flow->responder_qpn = packet->h.bth.dest_qpn;
	flow->first = packet->h.bth.psn;
	return flow;
}

/* PSNs are random enough to tell which flow an answer belongs to. */
static struct flow *flow_of_answer(const struct wire_packet *packet)
{
	for (uint32_t i = 0; i < flows.n; i++) {
		struct flow *flow = &flows.flows[i];
		int32_t at = psn_diff(packet->h.bth.psn, flow->first);

		if (ip_equal(&flow->requester, &packet->dst_ip) &&
			ip_equal(&flow->responder, &packet->src_ip) && at >= 0 &&
			(uint32_t)at < flow->psns)
			return flow;
	}
	return NULL;
}

static bool add(struct flow_packet list[], uint32_t *n, const struct wire_packet *packet,
	const uint8_t *frame, size_t len, uint32_t position)
{
	struct flow_packet *entry = &list[*n];

	if (*n == FLOW_PACKETS_MAX)
		return false;
	*entry = (struct flow_packet){ .packet = *packet, .position = position };
	entry->frame = malloc(len);
	if (!entry->frame)
		return false;
	memcpy(entry->frame, frame, len);
	entry->packet.payload = entry->frame + (packet->payload - frame);
	entry->packet.l3 = entry->frame + (packet->l3 - frame);
	++*n;
	return true;
}

/* The first pass: the longest packets inside messages tell the path MTU, unless they are meant to
 * be too short. */
static uint32_t find_mtu(const char *path)
{
	static uint8_t frame[PCAP_MAX_FRAME];
	struct wire_packet packet;
	struct pcap_file file;
	uint32_t mtu = 0;
	size_t len;

	if (pcap_file_open(&file, path))
		return 0;
	while (pcap_file_next(&file, frame, sizeof(frame), &len) == 1)
		if (wire_decode(&packet, frame, len) == WIRE_OK &&
			wire_trim(&packet, true) == WIRE_OK && wire_icrc_ok(&packet) &&
			opcode_transport(packet.h.bth.opcode) == TRANSPORT_RC &&
			!(packet.op->flags & OPCODE_LAST) && packet.payload_len > mtu)
			mtu = packet.payload_len;
	pcap_file_close(&file);
	for (uint32_t whole = 256; whole <= WIRE_IBTA_MTU; whole *= 2)
		if (mtu == whole)
			return mtu;
	return mtu ? 1024 : WIRE_IBTA_MTU;
}

struct flows *flows_load(const char *path)
{
	static uint8_t frame[PCAP_MAX_FRAME];
	uint32_t mtu = find_mtu(path), position = 0;
	struct wire_packet packet;
	struct pcap_file file;
	bool fits = true;
	size_t len;

	forget();
	if (!mtu || pcap_file_open(&file, path))
		return NULL;
	for (; fits && pcap_file_next(&file, frame, sizeof(frame), &len) == 1; position++) {
		struct flow *flow;

		if (wire_decode(&packet, frame, len) != WIRE_OK ||
			opcode_transport(packet.h.bth.opcode) != TRANSPORT_RC ||
			wire_trim(&packet, true) != WIRE_OK || !wire_icrc_ok(&packet))
			continue;
		if (packet.op->flags & OPCODE_RESPONSE) {
			flow = flow_of_answer(&packet);
			if (flow)
				fits = add(flow->answers, &flow->n_answers, &packet, frame, len,
					position);
			continue;
		}
		flow = flow_of_request(&packet);
		if (flow) {
			int32_t end;

			flow->mtu = mtu;
			end = psn_diff(packet.h.bth.psn, flow->first) +
				(int32_t)flow_psns(flow, &packet);
			if (end > (int32_t)flow->psns)
				flow->psns = (uint32_t)end;
			fits = add(
				flow->requests, &flow->n_requests, &packet, frame, len, position);
		}
	}
	pcap_file_close(&file);
	return fits ? &flows : NULL;
}
