/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packet sequence numbers: 24 bits, wrapping. A type of its own, so that the compiler refuses to
 * mix them with other integers. IBTA volume 1, 9.7.2.
 */
#ifndef FERRULE_WIRE_PSN_H
#define FERRULE_WIRE_PSN_H

#include <stdbool.h>
#include <stdint.h>

struct psn {
	uint32_t value; /* 0 to 2^24 - 1 */
};

enum { PSN_MASK = 0xffffff };

static inline struct psn psn_make(uint32_t value)
{
	return (struct psn){ value & PSN_MASK };
}

static inline struct psn psn_add(struct psn psn, uint32_t n)
{
	return psn_make(psn.value + n);
}

static inline struct psn psn_next(struct psn psn)
{
	return psn_add(psn, 1);
}

/* Returns how far a is ahead of b; negative if it is behind. Valid for distances below 2^23. */
static inline int32_t psn_diff(struct psn a, struct psn b)
{
	return (int32_t)((a.value - b.value) << 8) >> 8;
}

static inline bool psn_equal(struct psn a, struct psn b)
{
	return a.value == b.value;
}

#endif
