/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/pcap/print.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/wire/packet.h"

enum {
	SYNDROME_TYPE_SHIFT = 5,
	SYNDROME_VALUE_MASK = 0x1f,
	NS_PER_S = 1000000000,
};

const char *pcap_opcode_name(uint8_t opcode, char text[static 8])
{
	if (opcode_known(opcode))
		return opcode_table[opcode].name;
	snprintf(text, 8, "0x%02x", opcode);
	return text;
}

/* IBTA volume 1, 9.7.5.1.3. */
static void print_syndrome(uint8_t syndrome)
{
	static const char *const types[] = { "ACK", "RNR", "reserved", "NAK" };
	static const char *const naks[] = { "sequence", "invalid-request", "remote-access",
		"remote-operation", "invalid-rd-request" };
	unsigned value = syndrome & SYNDROME_VALUE_MASK;
	unsigned type = syndrome >> SYNDROME_TYPE_SHIFT;

	printf(" syndrome=0x%02x", syndrome);
	if (type >= sizeof(types) / sizeof(types[0]))
		printf("(reserved)");
	else if (type == 3 && value < sizeof(naks) / sizeof(naks[0]))
		printf("(NAK:%s)", naks[value]);
	else
		printf("(%s:%u)", types[type], value);
}

static void print_extended(const struct wire_headers *h)
{
	uint8_t headers = opcode_table[h->bth.opcode].headers;

	if (headers & HEADER_DETH)
		printf(" qkey=0x%08" PRIx32 " src_qpn=0x%06" PRIx32, h->deth.qkey, h->deth.src_qpn);
	if (headers & HEADER_RETH)
		printf(" va=0x%016" PRIx64 " rkey=0x%08" PRIx32 " dma_length=%" PRIu32, h->reth.va,
			h->reth.rkey, h->reth.dma_length);
	if (headers & HEADER_ATOMICETH) {
		printf(" va=0x%016" PRIx64 " rkey=0x%08" PRIx32, h->atomic.va, h->atomic.rkey);
		if (h->bth.opcode == OP_FETCH_ADD)
			printf(" add=0x%016" PRIx64, h->atomic.swap_add);
		else
			printf(" swap=0x%016" PRIx64 " compare=0x%016" PRIx64, h->atomic.swap_add,
				h->atomic.compare);
	}
	if (headers & HEADER_AETH) {
		print_syndrome(h->aeth.syndrome);
		printf(" msn=%" PRIu32, h->aeth.msn);
	}
	if (headers & HEADER_ATOMICACKETH)
		printf(" original=0x%016" PRIx64, h->atomic_original);
	if (headers & HEADER_IMMDT)
		printf(" imm=0x%08" PRIx32, get_be32((const uint8_t *)&h->imm_data));
	if (headers & HEADER_IETH)
		printf(" invalidate=0x%08" PRIx32, h->invalidate_rkey);
}

static void print_bth(const struct bth *bth)
{
	char text[8];

	printf(" %s qpn=0x%06" PRIx32 " psn=0x%06" PRIx32, pcap_opcode_name(bth->opcode, text),
		bth->dest_qpn, bth->psn.value);
	if (bth->ack_request)
		printf(" A");
	if (bth->solicited)
		printf(" SE");
	if (bth->migrated)
		printf(" M");
	if (bth->fecn)
		printf(" FECN");
	if (bth->becn)
		printf(" BECN");
	if (bth->version)
		printf(" tver=%u", bth->version);
	if (bth->pkey != PKEY_DEFAULT)
		printf(" pkey=0x%04x", bth->pkey);
}

/* Prints the headers after the BTH. After an unknown opcode everything is payload. */
static void print_rest(const struct pcap_packet *packet, const struct wire_headers *h)
{
	size_t headers_len = opcode_table[h->bth.opcode].headers_len;
	size_t rest = packet->end - packet->bth - BTH_LEN - ICRC_LEN;

	if (rest < headers_len) {
		printf(" headers=short");
		return;
	}
	rest -= headers_len;
	if (packet->captured < packet->bth + BTH_LEN + headers_len)
		printf(" headers=truncated");
	else
		print_extended(h);
	if (rest < h->bth.pad)
		printf(" payload=%zu pad=%u(short)", rest, h->bth.pad);
	else
		printf(" payload=%zu pad=%u", rest - h->bth.pad, h->bth.pad);
}

static void print_transport(const struct pcap_packet *packet)
{
	/* Zeros where the capture or the packet ends early, so that headers can be decoded. */
	uint8_t bytes[BTH_LEN + ATOMICETH_LEN] = { 0 };
	size_t len = packet->captured < packet->bth ? 0 : packet->captured - packet->bth;
	struct wire_headers h;
	char text[8];

	memcpy(bytes, packet->l3 + packet->bth, len < sizeof(bytes) ? len : sizeof(bytes));
	if (len < BTH_LEN) {
		printf(" %s headers=truncated", len ? pcap_opcode_name(bytes[0], text) : "UNKNOWN");
		return;
	}
	wire_decode_headers(&h, bytes);
	print_bth(&h.bth);
	print_rest(packet, &h);
}

static void print_network(const struct pcap_packet *packet)
{
	const uint8_t *ip = packet->l3;
	uint8_t traffic_class = packet->ipv4 ? ip[1] : (uint8_t)(get_be16(ip) >> 4);
	uint32_t label = packet->ipv4 ? 0 : get_be32(ip) & 0xfffff;
	int family = packet->ipv4 ? AF_INET : AF_INET6;
	const char *open = packet->ipv4 ? "" : "[";
	const char *close = packet->ipv4 ? "" : "]";
	char src[INET6_ADDRSTRLEN], dst[INET6_ADDRSTRLEN];

	inet_ntop(family, ip + (packet->ipv4 ? 12 : 8), src, sizeof(src));
	inet_ntop(family, ip + (packet->ipv4 ? 16 : 24), dst, sizeof(dst));
	printf(" %s%s%s:%u > %s%s%s:%u", open, src, close, get_be16(ip + packet->udp), open, dst,
		close, ROCE_UDP_PORT);
	for (unsigned i = 0; i < packet->n_tags; i++)
		printf(" vlan=%u pcp=%u", packet->tags[i] & 0xfff, packet->tags[i] >> 13);
	if (traffic_class)
		printf(" tos=0x%02x", traffic_class);
	if (label)
		printf(" flow=0x%05" PRIx32, label);
}

void pcap_print(const struct pcap_packet *packet, uint64_t number, int64_t since_first_ns,
	enum pcap_icrc icrc)
{
	static const char *const icrcs[] = { "ok", "BAD", "unknown" };
	uint64_t ns = (uint64_t)(since_first_ns < 0 ? -since_first_ns : since_first_ns);

	printf("#%" PRIu64 " %s%" PRIu64 ".%09" PRIu64, number, since_first_ns < 0 ? "-" : "",
		ns / NS_PER_S, ns % NS_PER_S);
	print_network(packet);
	print_transport(packet);
	printf(" icrc=%s\n", icrcs[icrc]);
}
