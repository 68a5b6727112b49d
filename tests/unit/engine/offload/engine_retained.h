/* SPDX-License-Identifier: BSD-3-Clause */
/* The fixture of the files of test_engine_retained. */
#ifndef FERRULE_TESTS_UNIT_ENGINE_OFFLOAD_ENGINE_RETAINED_H
#define FERRULE_TESTS_UNIT_ENGINE_OFFLOAD_ENGINE_RETAINED_H

#include <check.h>

#include "tests/unit/engine/offload/offload_fixture.h"
#include "tests/fixtures/program.h"

enum {
	KEEP = 77,
	CHANGED = 0xee,
};

/* Received payload is kept in frames, in slabs, or it is the result of a sum. */
enum retained_test { FRAMES, COPIES, RESULTS, KINDS };

extern struct offload_pair retained_pair;
extern enum retained_test retained_test;

/* offload_pair_open(), `config` may be NULL; queue pairs 2 of both are connected as well. */
void retained_open(enum retained_test as, const struct offload_config *config);
/* Floats, which are small integers: what is received, number `i` of them. */
float retained_value(uint32_t i);
/* `length` bytes come and are placed; afterwards the memory is another one. */
void retained_receive(uint32_t offset, uint32_t length, uint64_t keep);
/* They are to leave, and did: out of packets from `first` to `end`, and out of the memory
 * elsewhere. */
void retained_post(uint32_t offset, uint32_t length, uint64_t keep);
void retained_check(uint32_t length, uint32_t first, uint32_t end);
/* Bytes that left out of packets. */
uint64_t retained_count(void);

/* engine_retained_room.c's. */
Suite *retained_add_room(Suite *suite);

#endif
