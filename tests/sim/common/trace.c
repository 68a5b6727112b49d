/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/common/trace.h"

#include "lib/base/bytes.h"
#include "lib/wire/packet.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void trace_init(struct trace *trace, bool verbose, const uint64_t *now_ns)
{
	*trace = (struct trace){ .verbose = verbose, .hash = 1, .now_ns = now_ns };
}

void trace_number(struct trace *trace, uint64_t number)
{
	uint64_t x = (trace->hash ^ number) * UINT64_C(0x9e3779b97f4a7c15);

	trace->hash = x ^ x >> 29;
}

static void print_frame(struct trace *trace, const char *where, const char *what,
	const uint8_t *data, uint32_t len, uint32_t elsewhere)
{
	struct wire_packet packet;
	enum wire_verdict verdict = wire_decode_split(&packet, data, len, NULL, elsewhere);

	if (elsewhere == 0)
		verdict = wire_decode(&packet, data, len);
	printf("%12" PRIu64 "  %-6s %-10s %5u B  ", *trace->now_ns, where, what, len + elsewhere);
	if (verdict != WIRE_OK) {
		printf("%s\n", wire_verdict_name(verdict));
		return;
	}
	printf("%-22s qp %06x psn %06x%s", packet.op->name, packet.h.bth.dest_qpn,
		packet.h.bth.psn.value, packet.h.bth.ack_request ? " A" : "");
	if (packet.op->headers & HEADER_AETH)
		printf(" syndrome %02x msn %u", packet.h.aeth.syndrome, packet.h.aeth.msn);
	if (packet.op->headers & HEADER_RETH)
		printf(" rkey %08x length %u", packet.h.reth.rkey, packet.h.reth.dma_length);
	printf("\n");
}

void trace_frame(struct trace *trace, const char *where, const char *what, const uint8_t *data,
	uint32_t len, uint32_t elsewhere)
{
	/* Ethernet to BTH; types that a few wrong bits do not turn into each other. */
	bool tagged = len > ETH_LEN + VLAN_LEN && get_be16(data + ETH_LEN - 2) == ETHERTYPE_VLAN;
	uint32_t l3 = ETH_LEN + (tagged ? VLAN_LEN : 0);
	bool ipv6 = len > l3 && get_be16(data + l3 - 2) == ETHERTYPE_IPV6;
	uint32_t hashed = l3 + (ipv6 ? IPV6_LEN : IPV4_LEN) + UDP_LEN + BTH_LEN;

	trace_number(trace, *trace->now_ns);
	trace_number(trace,
		(uint64_t)(len + elsewhere) << 32 | (uint64_t)(uint8_t)where[0] << 16 |
			(uint64_t)(uint8_t)where[1] << 8 | (uint8_t)what[0]);
	for (uint32_t i = 0; i + 8 <= len && i + 8 <= hashed; i += 8) {
		uint64_t word;

		memcpy(&word, data + i, sizeof(word));
		trace_number(trace, word);
	}
	if (trace->verbose)
		print_frame(trace, where, what, data, len, elsewhere);
}

void trace_note(struct trace *trace, const char *format, ...)
{
	va_list args;

	if (!trace->verbose)
		return;
	printf("%12" PRIu64 "  ", *trace->now_ns);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}
