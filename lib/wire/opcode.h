/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Table of BTH opcodes for encoding, decoding, validation and names. IBTA volume 1, table 38. No
 * state; any thread.
 */
#ifndef FERRULE_WIRE_OPCODE_H
#define FERRULE_WIRE_OPCODE_H

#include <stdbool.h>
#include <stdint.h>

/* Bits 7 to 5 of the opcode. */
enum wire_transport {
	TRANSPORT_RC = 0x00,
	TRANSPORT_UC = 0x20,
	TRANSPORT_UD = 0x60,
	TRANSPORT_CNP = 0x80,
	TRANSPORT_MASK = 0xe0,
};

/* The low five bits. UC and UD use the same values. */
enum wire_opcode {
	OP_SEND_FIRST = 0x00,
	OP_SEND_MIDDLE = 0x01,
	OP_SEND_LAST = 0x02,
	OP_SEND_LAST_IMM = 0x03,
	OP_SEND_ONLY = 0x04,
	OP_SEND_ONLY_IMM = 0x05,
	OP_WRITE_FIRST = 0x06,
	OP_WRITE_MIDDLE = 0x07,
	OP_WRITE_LAST = 0x08,
	OP_WRITE_LAST_IMM = 0x09,
	OP_WRITE_ONLY = 0x0a,
	OP_WRITE_ONLY_IMM = 0x0b,
	OP_READ_REQUEST = 0x0c,
	OP_READ_RESP_FIRST = 0x0d,
	OP_READ_RESP_MIDDLE = 0x0e,
	OP_READ_RESP_LAST = 0x0f,
	OP_READ_RESP_ONLY = 0x10,
	OP_ACKNOWLEDGE = 0x11,
	OP_ATOMIC_ACK = 0x12,
	OP_CMP_SWAP = 0x13,
	OP_FETCH_ADD = 0x14,
	OP_SEND_LAST_INV = 0x16,
	OP_SEND_ONLY_INV = 0x17,
};

/* Extended headers after the BTH, in the order on the wire. */
enum wire_header {
	HEADER_DETH = 1 << 0,
	HEADER_RETH = 1 << 1,
	HEADER_ATOMICETH = 1 << 2,
	HEADER_AETH = 1 << 3,
	HEADER_ATOMICACKETH = 1 << 4,
	HEADER_IMMDT = 1 << 5,
	HEADER_IETH = 1 << 6,
};

/* The kind of message that a packet belongs to. */
enum wire_operation {
	OPERATION_NONE, /* no such opcode */
	OPERATION_SEND,
	OPERATION_WRITE,
	OPERATION_READ,
	OPERATION_READ_RESPONSE,
	OPERATION_ACK,
	OPERATION_ATOMIC,
	OPERATION_ATOMIC_ACK,
	OPERATION_CNP,
	OPERATION_UNSUPPORTED, /* last value: known to newer peers; refused */
};

enum wire_opcode_flags {
	OPCODE_FIRST = 1 << 0,      /* starts a message (FIRST and ONLY) */
	OPCODE_LAST = 1 << 1,       /* ends a message (LAST and ONLY) */
	OPCODE_TAKES_RECV = 1 << 2, /* takes a receive work request at its start or end */
	OPCODE_RESPONSE = 1 << 3,   /* goes to the requester's side of the queue pair */
	OPCODE_NO_PAYLOAD = 1 << 4,
};

struct opcode_info {
	const char *name;    /* NULL: no such opcode */
	uint8_t operation;   /* enum wire_operation */
	uint8_t headers;     /* enum wire_header */
	uint8_t headers_len; /* bytes of those */
	uint8_t flags;       /* enum wire_opcode_flags */
};

/* Indexed by the opcode byte. */
extern const struct opcode_info opcode_table[256];

/* Returns true if packets with the opcode can be sent and received. */
static inline bool opcode_known(uint8_t opcode)
{
	return opcode_table[opcode].operation > OPERATION_NONE &&
		opcode_table[opcode].operation < OPERATION_UNSUPPORTED;
}

static inline uint8_t opcode_transport(uint8_t opcode)
{
	return opcode & TRANSPORT_MASK;
}

#endif
