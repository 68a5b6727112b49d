/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CRC without instructions for it, eight bytes at a time. Private to lib/wire. Any thread.
 *
 * crc_tables[n][b] is the change that byte b makes to the CRC when n further bytes have followed
 * it. A CRC is linear: the entry is the sum of the factors of the byte's bits.
 */
#ifndef FERRULE_WIRE_ICRC_TABLES_H
#define FERRULE_WIRE_ICRC_TABLES_H

#include <stdint.h>

/* The changes of bits 0 to 7. */
#define FACTORS_0                                                                           \
	0x77073096, 0xee0e612c, 0x076dc419, 0x0edb8832, 0x1db71064, 0x3b6e20c8, 0x76dc4190, \
		0xedb88320
#define FACTORS_1                                                                           \
	0x191b3141, 0x32366282, 0x646cc504, 0xc8d98a08, 0x4ac21251, 0x958424a2, 0xf0794f05, \
		0x3b83984b
#define FACTORS_2                                                                           \
	0x01c26a37, 0x0384d46e, 0x0709a8dc, 0x0e1351b8, 0x1c26a370, 0x384d46e0, 0x709a8dc0, \
		0xe1351b80
#define FACTORS_3                                                                           \
	0xb8bc6765, 0xaa09c88b, 0x8f629757, 0xc5b428ef, 0x5019579f, 0xa032af3e, 0x9b14583d, \
		0xed59b63b
#define FACTORS_4                                                                           \
	0x3d6029b0, 0x7ac05360, 0xf580a6c0, 0x30704bc1, 0x60e09782, 0xc1c12f04, 0x58f35849, \
		0xb1e6b092
#define FACTORS_5                                                                           \
	0xcb5cd3a5, 0x4dc8a10b, 0x9b914216, 0xec53826d, 0x03d6029b, 0x07ac0536, 0x0f580a6c, \
		0x1eb014d8
#define FACTORS_6                                                                           \
	0xa6770bb4, 0x979f1129, 0xf44f2413, 0x33ef4e67, 0x67de9cce, 0xcfbd399c, 0x440b7579, \
		0x8816eaf2
#define FACTORS_7                                                                           \
	0xccaa009e, 0x4225077d, 0x844a0efa, 0xd3e51bb5, 0x7cbb312b, 0xf9766256, 0x299dc2ed, \
		0x533b85da

/* An entry, and all entries of a table. */
#define SUM(b, c0, c1, c2, c3, c4, c5, c6, c7)                                                  \
	(((b)&1 ? UINT32_C(c0) : 0) ^ ((b)&2 ? UINT32_C(c1) : 0) ^ ((b)&4 ? UINT32_C(c2) : 0) ^ \
		((b)&8 ? UINT32_C(c3) : 0) ^ ((b)&16 ? UINT32_C(c4) : 0) ^                      \
		((b)&32 ? UINT32_C(c5) : 0) ^ ((b)&64 ? UINT32_C(c6) : 0) ^                     \
		((b)&128 ? UINT32_C(c7) : 0))
#define ENTRY(b, ...) SUM(b, __VA_ARGS__)
#define ENTRIES_4(b, ...)                                                                \
	ENTRY(b, __VA_ARGS__), ENTRY((b) + 1, __VA_ARGS__), ENTRY((b) + 2, __VA_ARGS__), \
		ENTRY((b) + 3, __VA_ARGS__)
#define ENTRIES_16(b, ...)                                          \
	ENTRIES_4(b, __VA_ARGS__), ENTRIES_4((b) + 4, __VA_ARGS__), \
		ENTRIES_4((b) + 8, __VA_ARGS__), ENTRIES_4((b) + 12, __VA_ARGS__)
#define ENTRIES_64(b, ...)                                             \
	ENTRIES_16(b, __VA_ARGS__), ENTRIES_16((b) + 16, __VA_ARGS__), \
		ENTRIES_16((b) + 32, __VA_ARGS__), ENTRIES_16((b) + 48, __VA_ARGS__)
#define ENTRIES(...)                                                               \
	{                                                                          \
		ENTRIES_64(0, __VA_ARGS__), ENTRIES_64(64, __VA_ARGS__),           \
			ENTRIES_64(128, __VA_ARGS__), ENTRIES_64(192, __VA_ARGS__) \
	}

static const uint32_t crc_tables[8][256] = {
	ENTRIES(FACTORS_0),
	ENTRIES(FACTORS_1),
	ENTRIES(FACTORS_2),
	ENTRIES(FACTORS_3),
	ENTRIES(FACTORS_4),
	ENTRIES(FACTORS_5),
	ENTRIES(FACTORS_6),
	ENTRIES(FACTORS_7),
};

#endif
