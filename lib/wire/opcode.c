/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/wire/opcode.h"

#include "lib/wire/packet.h"

#define FIRST      OPCODE_FIRST
#define LAST       OPCODE_LAST
#define ONLY       (OPCODE_FIRST | OPCODE_LAST)
#define TAKES_RECV OPCODE_TAKES_RECV
#define RESPONSE   OPCODE_RESPONSE
#define NO_PAYLOAD OPCODE_NO_PAYLOAD

#define NONE           0
#define DETH           HEADER_DETH
#define RETH           HEADER_RETH
#define ATOMICETH      HEADER_ATOMICETH
#define AETH           HEADER_AETH
#define ATOMICACK      (HEADER_AETH | HEADER_ATOMICACKETH)
#define IMMDT          HEADER_IMMDT
#define RETH_AND_IMMDT (HEADER_RETH | HEADER_IMMDT)
#define DETH_AND_IMMDT (HEADER_DETH | HEADER_IMMDT)
#define IETH           HEADER_IETH

/* X(transport, opcode, operation, headers, flags) */

#define CONNECTED_OPCODES(X, t)                               \
	X(t, SEND_FIRST, SEND, NONE, FIRST | TAKES_RECV)      \
	X(t, SEND_MIDDLE, SEND, NONE, 0)                      \
	X(t, SEND_LAST, SEND, NONE, LAST)                     \
	X(t, SEND_LAST_IMM, SEND, IMMDT, LAST)                \
	X(t, SEND_ONLY, SEND, NONE, ONLY | TAKES_RECV)        \
	X(t, SEND_ONLY_IMM, SEND, IMMDT, ONLY | TAKES_RECV)   \
	X(t, WRITE_FIRST, WRITE, RETH, FIRST)                 \
	X(t, WRITE_MIDDLE, WRITE, NONE, 0)                    \
	X(t, WRITE_LAST, WRITE, NONE, LAST)                   \
	X(t, WRITE_LAST_IMM, WRITE, IMMDT, LAST | TAKES_RECV) \
	X(t, WRITE_ONLY, WRITE, RETH, ONLY)                   \
	X(t, WRITE_ONLY_IMM, WRITE, RETH_AND_IMMDT, ONLY | TAKES_RECV)

#define RELIABLE_OPCODES(X, t)                                         \
	X(t, READ_REQUEST, READ, RETH, ONLY | NO_PAYLOAD)              \
	X(t, READ_RESP_FIRST, READ_RESPONSE, AETH, FIRST | RESPONSE)   \
	X(t, READ_RESP_MIDDLE, READ_RESPONSE, NONE, RESPONSE)          \
	X(t, READ_RESP_LAST, READ_RESPONSE, AETH, LAST | RESPONSE)     \
	X(t, READ_RESP_ONLY, READ_RESPONSE, AETH, ONLY | RESPONSE)     \
	X(t, ACKNOWLEDGE, ACK, AETH, RESPONSE | NO_PAYLOAD)            \
	X(t, ATOMIC_ACK, ATOMIC_ACK, ATOMICACK, RESPONSE | NO_PAYLOAD) \
	X(t, CMP_SWAP, ATOMIC, ATOMICETH, ONLY | NO_PAYLOAD)           \
	X(t, FETCH_ADD, ATOMIC, ATOMICETH, ONLY | NO_PAYLOAD)          \
	X(t, SEND_LAST_INV, SEND, IETH, LAST)                          \
	X(t, SEND_ONLY_INV, SEND, IETH, ONLY | TAKES_RECV)

#define DATAGRAM_OPCODES(X, t)                         \
	X(t, SEND_ONLY, SEND, DETH, ONLY | TAKES_RECV) \
	X(t, SEND_ONLY_IMM, SEND, DETH_AND_IMMDT, ONLY | TAKES_RECV)

#define LENGTH_IF(headers, header, length) (((headers) & (header)) ? (length) : 0)
#define HEADERS_LENGTH(headers)                                                                  \
	(LENGTH_IF(headers, HEADER_DETH, DETH_LEN) + LENGTH_IF(headers, HEADER_RETH, RETH_LEN) + \
		LENGTH_IF(headers, HEADER_ATOMICETH, ATOMICETH_LEN) +                            \
		LENGTH_IF(headers, HEADER_AETH, AETH_LEN) +                                      \
		LENGTH_IF(headers, HEADER_ATOMICACKETH, ATOMICACKETH_LEN) +                      \
		LENGTH_IF(headers, HEADER_IMMDT, IMMDT_LEN) +                                    \
		LENGTH_IF(headers, HEADER_IETH, IETH_LEN))

#define ENTRY(transport, opcode, operation_, headers_, flags_) \
	[TRANSPORT_##transport | OP_##opcode] = {              \
		.name = #transport "_" #opcode,                \
		.operation = OPERATION_##operation_,           \
		.headers = (headers_),                         \
		.headers_len = HEADERS_LENGTH(headers_),       \
		.flags = (flags_),                             \
	},

/* clang-format off */
const struct opcode_info opcode_table[256] = {
	CONNECTED_OPCODES(ENTRY, RC)
	RELIABLE_OPCODES(ENTRY, RC)
	CONNECTED_OPCODES(ENTRY, UC)
	DATAGRAM_OPCODES(ENTRY, UD)
	/* IBTA 1.5: requests that must be refused. Everything after the BTH counts as payload. */
	[TRANSPORT_RC | 0x1c] = {.name = "RC_FLUSH", .operation = OPERATION_UNSUPPORTED,
		.flags = ONLY},
	[TRANSPORT_RC | 0x1d] = {.name = "RC_ATOMIC_WRITE", .operation = OPERATION_UNSUPPORTED,
		.flags = ONLY},
	/* Annex A17.9.3: 16 reserved bytes follow, which count as payload. */
	[TRANSPORT_CNP | 0x01] = {.name = "CNP", .operation = OPERATION_CNP},
};
/* clang-format on */
