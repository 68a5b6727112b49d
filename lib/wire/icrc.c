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

uint32_t icrc_headers(const uint8_t *l3, size_t len)
{
	uint8_t masked[WIRE_MAX_HEADERS];
	uint8_t *udp;

	assert(len <= sizeof(masked));
	memcpy(masked, l3, len);
	if (l3[0] >> 4 == 4) {
		masked[1] = 0xff;             /* type of service */
		masked[8] = 0xff;             /* time to live */
		memset(masked + 10, 0xff, 2); /* header checksum */
		udp = masked + IPV4_LEN;
	} else {
		masked[0] |= 0x0f; /* traffic class and flow label */
		memset(masked + 1, 0xff, 3);
		masked[7] = 0xff; /* hop limit */
		udp = masked + IPV6_LEN;
	}
	assert(len >= (size_t)(udp - masked) + UDP_LEN + BTH_LEN);
	memset(udp + 6, 0xff, 2); /* UDP checksum */
	udp[UDP_LEN + 4] = 0xff;  /* FECN, BECN, reserved */
	return icrc_update(CRC_OF_MASKED_LRH, masked, len);
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
