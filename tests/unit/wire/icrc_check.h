/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares kernels of the ICRC with a CRC that is computed bit by bit. Does not need Check, since
 * it also runs on other processors under QEMU. */
#ifndef FERRULE_TESTS_UNIT_WIRE_ICRC_CHECK_H
#define FERRULE_TESTS_UNIT_WIRE_ICRC_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/wire/icrc_kernels.h"

/* Returns the CRC of the bytes before, of which `crc` is the CRC, and of these. */
uint32_t slow_crc(uint32_t crc, const uint8_t *data, size_t len);

/* Returns the bits of byte `at` of the headers that routers may change. */
uint8_t icrc_masked_bits(const uint8_t *l3, size_t at);

/* Returns whether the kernel is right for all lengths of headers and payload, at any address, and
 * reads nothing beside them. Prints the first difference. */
bool icrc_check(const struct icrc_kernel *kernel);

#endif
