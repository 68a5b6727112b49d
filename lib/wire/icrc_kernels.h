/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Implementations of the CRC. icrc.c selects the fastest that the processor supports; tests
 * compare them. Private to lib/wire. Any thread.
 */
#ifndef FERRULE_WIRE_ICRC_KERNELS_H
#define FERRULE_WIRE_ICRC_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CRC of eight bytes of ones, in place of the link header that RoCEv2 lacks. */
#define CRC_OF_MASKED_LRH (~UINT32_C(0xdebb20e3))

/* For any processor: icrc_update() and icrc_whole(). */
uint32_t icrc_update_plain(uint32_t crc, const void *data, size_t len);
uint32_t icrc_whole_plain(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len);

/* The same with AVX-512 and VPCLMULQDQ. Requires icrc_has_avx512(). */
bool icrc_has_avx512(void);
uint32_t icrc_update_avx512(uint32_t crc, const void *data, size_t len);
uint32_t icrc_whole_avx512(
	const uint8_t *l3, size_t headers_len, const void *payload, size_t payload_len);

#endif
