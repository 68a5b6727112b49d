/* SPDX-License-Identifier: BSD-3-Clause */
/* In place of ISA-L, where code is compiled for a processor that it is not installed for. Slow; any
 * thread. */
#ifndef FERRULE_TESTS_FAKES_ISAL_CRC_H
#define FERRULE_TESTS_FAKES_ISAL_CRC_H

#include <stdint.h>

static inline uint32_t crc32_gzip_refl(uint32_t crc, const uint8_t *data, uint64_t len)
{
	crc = ~crc;
	for (uint64_t i = 0; i < len; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

#endif
