/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames in blocks of exactly their size, so that the address sanitizer sees a read behind them. */
#ifndef FERRULE_TESTS_UNIT_WIRE_PACKET_FIXTURE_H
#define FERRULE_TESTS_UNIT_WIRE_PACKET_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/random.h"
#include "lib/wire/packet.h"
#include "tests/vectors/frame.h"

/* As an independent implementation would: sixteen bits at a time. */
uint16_t udp_checksum(const struct frame *frame);
/* Decodes `len` bytes of the frame; *packet points into freed memory after that. */
enum wire_verdict decode_copy(struct wire_packet *packet, const struct frame *frame, size_t len);
void assert_verdict(enum wire_verdict got, enum wire_verdict want, const char *what);
void random_headers(struct wire_headers *h, uint8_t opcode, struct random_state *random);
void assert_same_headers(const struct wire_headers *a, const struct wire_headers *b);
void check_roundtrip(
	int variant, const struct wire_headers *h, uint32_t payload_len, bool has_icrc);

#endif
