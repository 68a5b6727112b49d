/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes written as hexadecimal digits, for frames in tests. */
#ifndef FERRULE_TESTS_UNIT_WIRE_HEX_H
#define FERRULE_TESTS_UNIT_WIRE_HEX_H

#include <check.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Spaces may stand between bytes. Returns how many there are. */
static inline size_t from_hex(uint8_t *out, size_t room, const char *text)
{
	size_t n = 0;

	for (; *text; text += *text == ' ' ? 1 : 2) {
		unsigned byte;

		if (*text == ' ')
			continue;
		ck_assert_uint_lt(n, room);
		ck_assert_int_eq(sscanf(text, "%2x", &byte), 1);
		out[n++] = (uint8_t)byte;
	}
	return n;
}

#endif
