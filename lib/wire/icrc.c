/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/wire/icrc.h"

#include <assert.h>
#include <string.h>

#include <isa-l/crc.h>

#include "lib/base/bytes.h"
#include "lib/wire/packet.h"

/* The CRC of the eight bytes of ones that stand for the link header which RoCEv2 lacks. */
#define CRC_OF_MASKED_LRH (~UINT32_C(0xdebb20e3))

static_assert(IPV6_LEN + UDP_LEN + BTH_LEN <= WIRE_MAX_HEADERS, "masked headers fit");

static void mask_ip(uint8_t *ip, bool ipv4)
{
	if (ipv4) {
		ip[1] = 0xff;             /* type of service */
		ip[8] = 0xff;             /* time to live */
		memset(ip + 10, 0xff, 2); /* header checksum */
	} else {
		ip[0] |= 0x0f; /* traffic class and flow label */
		memset(ip + 1, 0xff, 3);
		ip[7] = 0xff; /* hop limit */
	}
}

static void mask_udp_and_bth(uint8_t *udp)
{
	memset(udp + 6, 0xff, 2); /* UDP checksum */
	udp[UDP_LEN + 4] = 0xff;  /* FECN, BECN, reserved */
}

uint32_t icrc_headers(const uint8_t *l3, size_t len)
{
	uint8_t masked[WIRE_MAX_HEADERS];
	bool ipv4 = l3[0] >> 4 == 4;
	size_t udp = ipv4 ? IPV4_LEN : IPV6_LEN;

	assert(len >= udp + UDP_LEN + BTH_LEN && len <= sizeof(masked));
	memcpy(masked, l3, len);
	mask_ip(masked, ipv4);
	mask_udp_and_bth(masked + udp);
	return icrc_update(CRC_OF_MASKED_LRH, masked, len);
}

uint32_t icrc_packet(const uint8_t *l3, bool ipv4, size_t udp_offset, size_t len)
{
	size_t ip_len = ipv4 ? IPV4_LEN : IPV6_LEN;
	size_t payload = udp_offset + UDP_LEN + BTH_LEN;
	uint8_t masked[IPV6_LEN];
	uint32_t crc;

	static_assert(UDP_LEN + BTH_LEN <= sizeof(masked), "UDP and BTH fit as well");
	assert(udp_offset >= ip_len && len >= payload);
	memcpy(masked, l3, ip_len);
	mask_ip(masked, ipv4);
	crc = icrc_update(CRC_OF_MASKED_LRH, masked, ip_len);
	crc = icrc_update(crc, l3 + ip_len, udp_offset - ip_len);
	memcpy(masked, l3 + udp_offset, UDP_LEN + BTH_LEN);
	mask_udp_and_bth(masked);
	crc = icrc_update(crc, masked, UDP_LEN + BTH_LEN);
	return icrc_update(crc, l3 + payload, len - payload);
}

uint32_t icrc_update(uint32_t crc, const void *data, size_t len)
{
	return crc32_gzip_refl(crc, data, len);
}

void icrc_store(uint8_t out[4], uint32_t crc)
{
	put_le32(out, crc);
}

uint32_t icrc_load(const uint8_t in[4])
{
	return get_le32(in);
}
