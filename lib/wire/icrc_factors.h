/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The constants of the CRC by carry-less multiplication, for all widths. Private to lib/wire.
 * Never writes. Any thread.
 *
 * Bytes are polynomials over GF(2); the first bit is the highest power. All numbers are
 * bit-reversed: bit 0 is the highest power. Powers of x are remainders modulo the polynomial.
 */
#ifndef FERRULE_WIRE_ICRC_FACTORS_H
#define FERRULE_WIRE_ICRC_FACTORS_H

#include <stddef.h>
#include <stdint.h>

/* For the two halves of 128 bits that are moved by d bits: x^(d + 32) and x^(d - 32). */
static const uint64_t fold_factors[][2] = {
	{ 0x03db1ecdc, 0x174359406 },           /* by 48 bytes */
	{ 0x0f1da05aa, 0x15a546366 },           /* by 32 bytes */
	{ 0x1751997d0, 0x0ccaa009e },           /* by 16 bytes */
	{ 0, 0 }, { 0x154442bd4, 0x1c6e41596 }, /* by 64 bytes */
	{ 0x1e88ef372, 0x14a7fe880 },           /* by 128 bytes */
	{ 0x11542778a, 0x1322d1430 },           /* by 256 bytes */
	{ 0x01072db28, 0x1d741f35c },           /* by 512 bytes */
};

/* x^96; x^96 divided by the polynomial without its last bit. */
static const uint64_t fold_divisors[2] = { 0x0ccaa009e, 0xb4e5b025f7011641 };
static const uint64_t fold_polynomial[2] = { 0x1db710641, 0 };

/* The factors for this distance: 16, 32, 48, or a higher power of two up to 512. */
static inline const uint64_t *fold_by(size_t bytes)
{
	return fold_factors[bytes < 64 ? 3 - bytes / 16 : (size_t)__builtin_ctzll(bytes) - 2];
}

#endif
