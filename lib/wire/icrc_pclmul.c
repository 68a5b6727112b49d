/* SPDX-License-Identifier: BSD-3-Clause */
/* The CRC, 32 bytes at a time, with carry-less multiplication of 128 bits. */
#define ICRC_BITS 128
#include "lib/wire/icrc_fold.h"

static bool supported(void)
{
	return __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("pclmul");
}

ICRC_TARGET static uint32_t update_pclmul(uint32_t crc, const void *data, size_t len)
{
	return update(crc, data, len);
}

ICRC_TARGET static uint32_t whole_pclmul(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len)
{
	return whole(l3, headers_len, payload, payload_len);
}

const struct icrc_kernel icrc_pclmul = {
	.name = "pclmul",
	.supported = supported,
	.update = update_pclmul,
	.whole = whole_pclmul,
};
