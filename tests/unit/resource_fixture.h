/* SPDX-License-Identifier: BSD-3-Clause */
/* READs and atomics that arrive at a queue pair, and their answers. */
#ifndef FERRULE_TESTS_RESOURCE_FIXTURE_H
#define FERRULE_TESTS_RESOURCE_FIXTURE_H

#include "tests/unit/qp_fixture.h"

enum { MTU = 256, BASE = 0xfffffe, ACK = 0x1f, RNR = 0x20 | 14, DEFAULTS = F_RD_ATOMIC };

/* First PSNs: also those that wrap soon. */
static const uint32_t bases[] = { 0, 0xfffffe, 0xffffff, 0x7ffffe, 0x123456 };

/* A queue pair that expects this PSN next. */
struct fixture *fixture_at(uint32_t psn);
void arrive_read_key(struct fixture *f, uint32_t psn, uint64_t at, uint32_t length, uint32_t key);
void arrive_read(struct fixture *f, uint32_t psn, uint32_t offset, uint32_t length);
void arrive_write(struct fixture *f, uint32_t psn, uint32_t offset, uint32_t key);
void arrive_atomic(struct fixture *f, uint8_t opcode, uint32_t psn, uint64_t at, uint64_t swap_add,
	uint64_t compare, uint32_t key);
/* A FETCH_ADD arrives, and is carried out if it is accepted. */
void arrive_add(struct fixture *f, uint32_t psn, uint32_t offset, uint64_t value);
uint64_t memory_word(const struct fixture *f, uint32_t offset);
/* Packets `i` and on of the last output answer a READ of `length` bytes there. Returns how many. */
uint32_t expect_read_response(
	const struct fixture *f, uint32_t i, uint32_t psn, uint32_t offset, uint32_t length);
void expect_atomic_ack(const struct fixture *f, uint32_t i, uint32_t psn, uint64_t original);
void expect_ack(const struct fixture *f, uint32_t i, uint32_t psn, uint8_t syndrome, uint32_t msn);

#endif
