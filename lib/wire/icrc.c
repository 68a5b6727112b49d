/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/wire/icrc.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "lib/wire/icrc_kernels.h"
#include "lib/wire/icrc_tables.h"
#include "lib/wire/packet.h"

static_assert(IPV6_LEN + UDP_LEN + BTH_LEN <= WIRE_MAX_HEADERS, "masked headers fit");

uint32_t icrc_headers(const uint8_t *l3, size_t len)
{
	uint8_t masked[WIRE_MAX_HEADERS];

	assert(len >= (l3[0] >> 4 == 4 ? IPV4_LEN : IPV6_LEN) + UDP_LEN + BTH_LEN &&
		len <= sizeof(masked));
	memcpy(masked, l3, len);
	icrc_mask_headers(masked);
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
	icrc_mask_ip(masked, ipv4);
	crc = icrc_update(CRC_OF_MASKED_LRH, masked, ip_len);
	crc = icrc_update(crc, l3 + ip_len, udp_offset - ip_len);
	memcpy(masked, l3 + udp_offset, UDP_LEN + BTH_LEN);
	icrc_mask_udp_and_bth(masked);
	crc = icrc_update(crc, masked, UDP_LEN + BTH_LEN);
	return icrc_update(crc, l3 + payload, len - payload);
}

/* The CRC before inversion, after eight more bytes. */
static uint32_t crc_of_8(uint32_t crc, const uint8_t *at)
{
	crc ^= at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
	return crc_tables[7][crc & 0xff] ^ crc_tables[6][crc >> 8 & 0xff] ^
		crc_tables[5][crc >> 16 & 0xff] ^ crc_tables[4][crc >> 24] ^ crc_tables[3][at[4]] ^
		crc_tables[2][at[5]] ^ crc_tables[1][at[6]] ^ crc_tables[0][at[7]];
}

uint32_t icrc_update_plain(uint32_t crc, const void *data, size_t len)
{
	const uint8_t *at = data;

	crc = ~crc;
	for (; len >= 8; len -= 8, at += 8)
		crc = crc_of_8(crc, at);
	for (; len; len--, at++)
		crc = crc >> 8 ^ crc_tables[0][(crc ^ *at) & 0xff];
	return ~crc;
}

static uint32_t whole_plain(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len)
{
	return icrc_update_plain(icrc_headers(l3, headers_len), payload, payload_len);
}

static bool always(void)
{
	return true;
}

const struct icrc_kernel icrc_plain = {
	.name = "plain",
	.supported = always,
	.update = icrc_update_plain,
	.whole = whole_plain,
};

const struct icrc_kernel *const icrc_all_kernels[] = {
#if defined(__x86_64__)
	&icrc_avx512,
	&icrc_avx2,
	&icrc_pclmul,
#elif defined(__AARCH64EL__)
	&icrc_arm64,
#endif
	&icrc_plain,
	NULL,
};

static icrc_update_fn first_update;
static icrc_whole_fn first_whole;

static const struct icrc_kernel first = { .update = first_update, .whole = first_whole };

/* The first call selects the kernel. Concurrent first calls select the same one. */
static _Atomic(const struct icrc_kernel *) used = &first;

void icrc_use(const struct icrc_kernel *kernel)
{
	atomic_store_explicit(&used, kernel ? kernel : &first, memory_order_relaxed);
}

static void choose(void)
{
	const struct icrc_kernel *const *kernel = icrc_all_kernels;

	while (!(*kernel)->supported())
		kernel++;
	icrc_use(*kernel);
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
	return atomic_load_explicit(&used, memory_order_relaxed)->update(crc, data, len);
}

uint32_t icrc_whole(const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len)
{
	return atomic_load_explicit(&used, memory_order_relaxed)
		->whole(l3, headers_len, payload, payload_len);
}
