/* SPDX-License-Identifier: BSD-3-Clause */
/* The CRC, 32 bytes at a time, with carry-less multiplication of 256 bits but without AVX-512. */
#define ICRC_BITS 256
#include "lib/wire/icrc_fold.h"

static bool supported(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul") &&
		__builtin_cpu_supports("vpclmulqdq");
}

ICRC_TARGET static uint32_t update_avx2(uint32_t crc, const void *data, size_t len)
{
	return update(crc, data, len);
}

ICRC_TARGET static uint32_t whole_avx2(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len)
{
	return whole(l3, headers_len, payload, payload_len);
}

const struct icrc_kernel icrc_avx2 = {
	.name = "avx2",
	.supported = supported,
	.update = update_avx2,
	.whole = whole_avx2,
};
