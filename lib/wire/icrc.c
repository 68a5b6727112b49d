/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/wire/icrc.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include <isa-l/crc.h>

#include "lib/wire/icrc_kernels.h"
#include "lib/wire/packet.h"

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
	return icrc_update_plain(CRC_OF_MASKED_LRH, masked, len);
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

uint32_t icrc_update_plain(uint32_t crc, const void *data, size_t len)
{
	return crc32_gzip_refl(crc, data, len);
}

uint32_t icrc_whole_plain(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len)
{
	return icrc_update_plain(icrc_headers(l3, headers_len), payload, payload_len);
}

#if defined(__x86_64__)

typedef uint32_t update_fn(uint32_t crc, const void *data, size_t len);
typedef uint32_t whole_fn(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len);

static update_fn first_update;
static whole_fn first_whole;

/* The first call selects the implementation. Concurrent first calls select the same one. */
static _Atomic(update_fn *) best_update = first_update;
static _Atomic(whole_fn *) best_whole = first_whole;

static void choose(void)
{
	bool avx512 = icrc_has_avx512();

	atomic_store_explicit(&best_update, avx512 ? icrc_update_avx512 : icrc_update_plain,
		memory_order_relaxed);
	atomic_store_explicit(
		&best_whole, avx512 ? icrc_whole_avx512 : icrc_whole_plain, memory_order_relaxed);
}

static uint32_t first_update(uint32_t crc, const void *data, size_t len)
{
	choose();
	return icrc_update(crc, data, len);
}

static uint32_t first_whole(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len)
{
	choose();
	return icrc_whole(l3, headers_len, payload, payload_len);
}

uint32_t icrc_update(uint32_t crc, const void *data, size_t len)
{
	return atomic_load_explicit(&best_update, memory_order_relaxed)(crc, data, len);
}

uint32_t icrc_whole(const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len)
{
	return atomic_load_explicit(&best_whole, memory_order_relaxed)(
		l3, headers_len, payload, payload_len);
}

#else

uint32_t icrc_update(uint32_t crc, const void *data, size_t len)
{
	return icrc_update_plain(crc, data, len);
}

uint32_t icrc_whole(const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len)
{
	return icrc_whole_plain(l3, headers_len, payload, payload_len);
}

#endif
