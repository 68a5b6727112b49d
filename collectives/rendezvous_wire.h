/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rendezvous server and its clients say to each other, and how both read it: frames of a
 * fixed header and a payload, all numbers big-endian. Everything that arrives is checked; nothing
 * here blocks. An inbox belongs to one thread.
 *
 *     client                                server
 *       HELLO rank, ranks           ->
 *                                   <-      WELCOME, or REFUSED errno, text (and the end)
 *       GATHER round, data          ->
 *                                   <-      PIECE rank, round, data   from each other rank
 *       ABORT                       ->
 *                                   <-      ABORTED rank, LEFT rank, DEAD rank   at any time
 *       BYE                         ->      (and the end)
 */
#ifndef FERRULE_COLLECTIVES_RENDEZVOUS_WIRE_H
#define FERRULE_COLLECTIVES_RENDEZVOUS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FRAME_VERSION = 1,
	FRAME_HEADER = 12, /* magic 4, version 1, type 1, zero 2, payload length 4 */
	GATHER_MAX = 1024 * 1024,
	PIECE_HEADER = 8, /* rank 4, round 4 */
	FRAME_MAX = GATHER_MAX + PIECE_HEADER,
	HELLO_SIZE = 8,
	REFUSAL_TEXT = 256,
	RENDEZVOUS_RANKS_MAX = 32768,
};

enum frame_type {
	FRAME_HELLO = 1,
	FRAME_WELCOME,
	FRAME_REFUSED,
	FRAME_GATHER,
	FRAME_PIECE,
	FRAME_ABORT,
	FRAME_ABORTED,
	FRAME_LEFT,
	FRAME_DEAD,
	FRAME_BYE,
};

struct frame {
	uint8_t type; /* may be none of enum frame_type */
	uint32_t length;
	const uint8_t *payload;
};

void wire_put32(uint8_t *to, uint32_t value);
uint32_t wire_get32(const uint8_t *from);
void frame_put_header(uint8_t *to, enum frame_type type, uint32_t length);

/* Collects what arrives on a socket; all zero is empty. */
struct inbox {
	uint8_t *bytes;
	size_t start; /* of what was not taken yet */
	size_t end;
	size_t capacity;
};

void inbox_fini(struct inbox *inbox);

/*
 * Reads once. Returns the bytes that came, -EAGAIN when there are none, -EPIPE at the end of the
 * stream, or another negative errno. Invalidates frames taken before.
 */
int inbox_fill(struct inbox *inbox, int fd);

/* Takes a frame whose payload is at most `limit` bytes: 1, 0 when it is not there yet, -EPROTO. */
int inbox_take(struct inbox *inbox, uint32_t limit, struct frame *ret_frame);

uint64_t rendezvous_now_ms(void);

#endif
