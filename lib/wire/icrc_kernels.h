/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Implementations of the CRC. icrc.c selects the fastest that the processor supports; tests and
 * measurements select any. Private to lib/wire. Any thread.
 */
#ifndef FERRULE_WIRE_ICRC_KERNELS_H
#define FERRULE_WIRE_ICRC_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/wire/packet.h"

/* CRC of eight bytes of ones, in place of the link header that RoCEv2 lacks. */
#define CRC_OF_MASKED_LRH (~UINT32_C(0xdebb20e3))

/* As icrc_update() and icrc_whole(). */
typedef uint32_t icrc_update_fn(uint32_t crc, const void *data, size_t len);
typedef uint32_t icrc_whole_fn(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len);

struct icrc_kernel {
	const char *name;
	bool (*supported)(void); /* by the processor */
	icrc_update_fn *update;
	icrc_whole_fn *whole;
};

extern const struct icrc_kernel icrc_avx512; /* and VPCLMULQDQ */
extern const struct icrc_kernel icrc_avx2;   /* and VPCLMULQDQ */
extern const struct icrc_kernel icrc_pclmul; /* SSE4.1 and PCLMULQDQ */
extern const struct icrc_kernel icrc_arm64;  /* CRC32 and PMULL */
extern const struct icrc_kernel icrc_plain;  /* tables; always supported */

/* All kernels built for this architecture, fastest first, then NULL. icrc_plain is the last one. */
extern const struct icrc_kernel *const icrc_all_kernels[];

/* Makes icrc_update() and icrc_whole() use a kernel that the processor supports; NULL: the fastest
 * one, as at first. For tests and measurements. */
void icrc_use(const struct icrc_kernel *kernel);

/* icrc_plain.update() */
icrc_update_fn icrc_update_plain;

static inline void icrc_mask_ip(uint8_t *ip, bool ipv4)
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

static inline void icrc_mask_udp_and_bth(uint8_t *udp)
{
	memset(udp + 6, 0xff, 2); /* UDP checksum */
	udp[UDP_LEN + 4] = 0xff;  /* FECN, BECN, reserved */
}

/* Sets the fields that routers change, in headers without options or extension headers. */
static inline void icrc_mask_headers(uint8_t *l3)
{
	bool ipv4 = l3[0] >> 4 == 4;

	icrc_mask_ip(l3, ipv4);
	icrc_mask_udp_and_bth(l3 + (ipv4 ? IPV4_LEN : IPV6_LEN));
}

#endif
