/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A run's events, as a hash that two runs of one seed must agree on, and as text for one seed.
 * Addresses and values that depend on them (RETH, ICRC) are not in the hash.
 */
#ifndef FERRULE_SIM_TRACE_H
#define FERRULE_SIM_TRACE_H

#include <stdbool.h>
#include <stdint.h>

struct trace {
	bool verbose;
	uint64_t hash;
	const uint64_t *now_ns;
};

void trace_init(struct trace *trace, bool verbose, const uint64_t *now_ns);

void trace_number(struct trace *trace, uint64_t number);

/* A frame on the link `where`, and the link's action. `elsewhere` bytes of it are payload that is
 * not at `data`. */
void trace_frame(struct trace *trace, const char *where, const char *what, const uint8_t *data,
	uint32_t len, uint32_t elsewhere);

/* Only text. */
__attribute__((format(printf, 2, 3))) void trace_note(struct trace *trace, const char *format, ...);

#endif
