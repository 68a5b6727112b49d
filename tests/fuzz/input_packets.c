/* SPDX-License-Identifier: BSD-3-Clause */
/* Incoming packets, made from the script. */
#include <string.h>

#include "tests/fuzz/input_state.h"

enum { PAYLOAD = 20480 };

/* Blocks have exactly their sizes, so that the sanitizer sees their ends. */
static void input(struct wire_packet *packet, uint8_t opcode, bool lost)
{
	static const uint8_t bytes[PAYLOAD] = { 1, 2, 3, 4, [64] = 0x3f, 0x80, [256] = 0x40, 5 };
	uint32_t head = s.qp.requester.head;
	uint64_t reads = s.stats.reads_served;
	struct placements *placements;
	uint8_t *l3, *payload;

	if (opcode_table[opcode].operation == OPERATION_NONE)
		return; /* wire_decode() lets none pass */
	packet->payload_len %= PAYLOAD + 1;
	packet->h.bth.opcode = opcode;
	packet->h.bth.dest_qpn = s.qp.qpn;
	packet->op = &opcode_table[opcode];
	placements = malloc(sizeof(*placements));
	payload = malloc(packet->payload_len + !packet->payload_len);
	l3 = malloc(ip_is_v4(&packet->src_ip) ? IPV4_LEN : IPV6_LEN);
	MUST(placements && payload && l3);
	memcpy(payload, bytes, packet->payload_len);
	memset(l3, 0x45, ip_is_v4(&packet->src_ip) ? IPV4_LEN : IPV6_LEN);
	packet->l3 = l3;
	packet->payload = payload;
	qp_input(&s.qp, packet, placements, s.now_ns);
	check_placements(placements, packet, head);
	if (s.stats.reads_served != reads)
		check_read(&packet->h.reth);
	if (lost && placements->count && !qp_is_datagram(&s.qp))
		qp_payload_lost(&s.qp, packet, placements);
	if (placements->completes)
		qp_placed(&s.qp, packet, placements, s.now_ns);
	free(placements);
	free(payload);
	free(l3);
}

static void take_common(struct script *script, struct wire_packet *packet, uint8_t flags)
{
	uint32_t odd = flags & 0x80 ? take(script, 1) : 0;

	packet->src_ip = s.peer_ip;
	packet->src_ip.bytes[15] ^= (odd & 3) == 3;
	packet->h.bth.pkey = (odd & 12) == 12 ? (uint16_t)(odd << 11) : PKEY_DEFAULT;
	packet->h.bth.ack_request = flags & 0x40;
	packet->h.bth.solicited = flags & 0x20;
	packet->vlan = odd & 0x10 ? 7 : 0;
}

static uint8_t own_transport(void)
{
	switch (s.qp.type) {
	case FRL_QPT_RC: return TRANSPORT_RC;
	case FRL_QPT_UC: return TRANSPORT_UC;
	default: return TRANSPORT_UD;
	}
}

/* The extended headers that a request has. */
static void take_headers(struct script *script, struct wire_packet *packet, uint8_t opcode)
{
	uint8_t headers = opcode_table[opcode].headers;
	uint32_t where = headers ? take(script, 1) : 0;
	unsigned region = where % REGIONS;

	packet->h.imm_data = where & 0x10 ? where : s.keys[WINDOW_A + (where >> 3 & 1)];
	if (headers & HEADER_DETH) {
		packet->h.deth.qkey = where & 0x80 ? where : s.qp.qkey;
		packet->h.deth.src_qpn = QPN_PEER;
	} else if (headers & HEADER_RETH) {
		packet->h.reth.va = take_address(script, region);
		packet->h.reth.rkey = take_key(script, region);
		packet->h.reth.dma_length = packet->payload_len;
		if (where & 0x80 || opcode == OP_READ_REQUEST)
			packet->h.reth.dma_length = take_length(script);
	} else if (headers & HEADER_ATOMICETH) {
		packet->h.atomic.va = take_address(script, region);
		packet->h.atomic.rkey = take_key(script, region);
		packet->h.atomic.swap_add = where;
		packet->h.atomic.compare = UINT64_C(0x5a5a5a5a5a5a5a5a) + (where >> 6);
	}
}

void input_request(struct script *script)
{
	uint8_t opcode = (uint8_t)take(script, 1), flags = (uint8_t)take(script, 1);
	uint32_t ahead = flags & 1 ? (uint32_t)(int8_t)take(script, 1) : 0;
	struct wire_packet packet = { .payload_len = take_length(script) };

	if (flags & 2)
		ahead = take(script, 3);
	if (opcode < 0x80)
		opcode = (opcode & 0x1f) | own_transport();
	packet.h.bth.psn = psn_add(s.qp.responder.epsn, ahead);
	take_common(script, &packet, flags);
	take_headers(script, &packet, opcode);
	input(&packet, opcode, flags & 4);
}

void input_proper_request(struct script *script)
{
	static const uint8_t starts[8] = { OP_SEND_FIRST, OP_SEND_ONLY, OP_WRITE_FIRST,
		OP_WRITE_ONLY, OP_READ_REQUEST, OP_CMP_SWAP, OP_FETCH_ADD, OP_WRITE_ONLY_IMM };
	const struct responder *r = &s.qp.responder;
	uint8_t flags = (uint8_t)take(script, 1), opcode = starts[flags & 7];
	struct wire_packet packet = { .h.bth.psn = r->epsn, .payload_len = mtu() };
	uint32_t left = r->write_length - r->offset;

	if (r->message == MESSAGE_SEND)
		opcode = flags & 1 ? OP_SEND_LAST + (flags >> 1 & 1) : OP_SEND_MIDDLE;
	else if (r->message == MESSAGE_WRITE)
		opcode = left <= mtu() ? OP_WRITE_LAST + (flags & 1) : OP_WRITE_MIDDLE;
	if (qp_is_datagram(&s.qp))
		opcode = OP_SEND_ONLY + (flags & 1);
	opcode |= own_transport();
	if (opcode_table[opcode].flags & OPCODE_NO_PAYLOAD)
		packet.payload_len = 0;
	else if (r->message == MESSAGE_WRITE && left < mtu())
		packet.payload_len = left;
	else if (opcode_table[opcode].flags & OPCODE_LAST)
		packet.payload_len = take_length(script) % (mtu() + 1);
	take_common(script, &packet, flags & 0x7f);
	take_headers(script, &packet, opcode);
	if ((opcode & 0x1f) == OP_WRITE_FIRST)
		packet.h.reth.dma_length = mtu() + 1 + take_length(script) % (2 * mtu());
	input(&packet, opcode, false);
}

void input_answer(struct script *script)
{
	uint8_t kind = (uint8_t)take(script, 1), flags = (uint8_t)take(script, 1);
	const struct requester *r = &s.qp.requester;
	struct psn base = flags & 1 ? r->sent_end : r->una;
	struct wire_packet packet = { .h.aeth.syndrome = (uint8_t)take(script, 1) };
	uint8_t opcode = OP_ACKNOWLEDGE;

	packet.h.bth.psn = psn_add(base, (uint32_t)(int8_t)take(script, 1));
	packet.h.aeth.msn = take(script, 1);
	if (kind & 0x80)
		opcode = OP_READ_RESP_FIRST + kind % 6;
	if (opcode != OP_ACKNOWLEDGE || (flags & 2))
		packet.payload_len = take_length(script);
	if (opcode == OP_ATOMIC_ACK)
		packet.h.atomic_original = kind;
	take_common(script, &packet, flags);
	input(&packet, opcode, flags & 4);
}

void input_proper_answer(uint32_t n)
{
	const struct requester *r = &s.qp.requester;
	const struct send_wqe *wqe = send_wqe_at(r, r->head);
	struct wire_packet packet = { .h.aeth.syndrome = AETH_CREDITS_NONE,
		.src_ip = s.peer_ip,
		.h.bth.pkey = PKEY_DEFAULT,
		.h.bth.psn = r->una };
	uint32_t k = (uint32_t)psn_diff(r->una, wqe->first_psn), left = wqe->length - k * mtu();
	bool first = k == 0, last = k + 1 == wqe->packets;
	uint8_t opcode = OP_ACKNOWLEDGE;

	if (s.qp.type != FRL_QPT_RC || psn_diff(r->next, r->una) <= 0 || r->head == r->tail)
		return;
	if (wqe->opcode == FRL_WR_RDMA_READ) {
		opcode = first ? last ? OP_READ_RESP_ONLY : OP_READ_RESP_FIRST
			: last ? OP_READ_RESP_LAST
			       : OP_READ_RESP_MIDDLE;
		packet.payload_len = last ? left : mtu();
	} else if (wr_is_atomic(wqe->opcode)) {
		opcode = OP_ATOMIC_ACK;
		packet.h.atomic_original = UINT64_C(0x1122334455667788);
	} else {
		packet.h.bth.psn = psn_add(r->una, n % (uint32_t)psn_diff(r->next, r->una));
	}
	input(&packet, opcode, false);
}
