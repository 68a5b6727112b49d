/* SPDX-License-Identifier: BSD-3-Clause */
/* The table against a second one, written by hand from the specification. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/wire/opcode.h"

#include "tests/fixtures/program.h"

enum {
	F = OPCODE_FIRST,
	L = OPCODE_LAST,
	T = OPCODE_TAKES_RECV,
	R = OPCODE_RESPONSE,
	N = OPCODE_NO_PAYLOAD,
};

static const struct {
	uint8_t opcode;
	const char *name;
	int operation;
	int headers;
	int headers_len;
	int flags;
} rows[] = {
	{ 0x00, "RC_SEND_FIRST", OPERATION_SEND, 0, 0, F | T },
	{ 0x01, "RC_SEND_MIDDLE", OPERATION_SEND, 0, 0, 0 },
	{ 0x02, "RC_SEND_LAST", OPERATION_SEND, 0, 0, L },
	{ 0x03, "RC_SEND_LAST_IMM", OPERATION_SEND, HEADER_IMMDT, 4, L },
	{ 0x04, "RC_SEND_ONLY", OPERATION_SEND, 0, 0, F | L | T },
	{ 0x05, "RC_SEND_ONLY_IMM", OPERATION_SEND, HEADER_IMMDT, 4, F | L | T },
	{ 0x06, "RC_WRITE_FIRST", OPERATION_WRITE, HEADER_RETH, 16, F },
	{ 0x07, "RC_WRITE_MIDDLE", OPERATION_WRITE, 0, 0, 0 },
	{ 0x08, "RC_WRITE_LAST", OPERATION_WRITE, 0, 0, L },
	{ 0x09, "RC_WRITE_LAST_IMM", OPERATION_WRITE, HEADER_IMMDT, 4, L | T },
	{ 0x0a, "RC_WRITE_ONLY", OPERATION_WRITE, HEADER_RETH, 16, F | L },
	{ 0x0b, "RC_WRITE_ONLY_IMM", OPERATION_WRITE, HEADER_RETH | HEADER_IMMDT, 20, F | L | T },
	{ 0x0c, "RC_READ_REQUEST", OPERATION_READ, HEADER_RETH, 16, F | L | N },
	{ 0x0d, "RC_READ_RESP_FIRST", OPERATION_READ_RESPONSE, HEADER_AETH, 4, F | R },
	{ 0x0e, "RC_READ_RESP_MIDDLE", OPERATION_READ_RESPONSE, 0, 0, R },
	{ 0x0f, "RC_READ_RESP_LAST", OPERATION_READ_RESPONSE, HEADER_AETH, 4, L | R },
	{ 0x10, "RC_READ_RESP_ONLY", OPERATION_READ_RESPONSE, HEADER_AETH, 4, F | L | R },
	{ 0x11, "RC_ACKNOWLEDGE", OPERATION_ACK, HEADER_AETH, 4, R | N },
	{ 0x12, "RC_ATOMIC_ACK", OPERATION_ATOMIC_ACK, HEADER_AETH | HEADER_ATOMICACKETH, 12,
		R | N },
	{ 0x13, "RC_CMP_SWAP", OPERATION_ATOMIC, HEADER_ATOMICETH, 28, F | L | N },
	{ 0x14, "RC_FETCH_ADD", OPERATION_ATOMIC, HEADER_ATOMICETH, 28, F | L | N },
	{ 0x16, "RC_SEND_LAST_INV", OPERATION_SEND, HEADER_IETH, 4, L },
	{ 0x17, "RC_SEND_ONLY_INV", OPERATION_SEND, HEADER_IETH, 4, F | L | T },
	{ 0x20, "UC_SEND_FIRST", OPERATION_SEND, 0, 0, F | T },
	{ 0x21, "UC_SEND_MIDDLE", OPERATION_SEND, 0, 0, 0 },
	{ 0x22, "UC_SEND_LAST", OPERATION_SEND, 0, 0, L },
	{ 0x23, "UC_SEND_LAST_IMM", OPERATION_SEND, HEADER_IMMDT, 4, L },
	{ 0x24, "UC_SEND_ONLY", OPERATION_SEND, 0, 0, F | L | T },
	{ 0x25, "UC_SEND_ONLY_IMM", OPERATION_SEND, HEADER_IMMDT, 4, F | L | T },
	{ 0x26, "UC_WRITE_FIRST", OPERATION_WRITE, HEADER_RETH, 16, F },
	{ 0x27, "UC_WRITE_MIDDLE", OPERATION_WRITE, 0, 0, 0 },
	{ 0x28, "UC_WRITE_LAST", OPERATION_WRITE, 0, 0, L },
	{ 0x29, "UC_WRITE_LAST_IMM", OPERATION_WRITE, HEADER_IMMDT, 4, L | T },
	{ 0x2a, "UC_WRITE_ONLY", OPERATION_WRITE, HEADER_RETH, 16, F | L },
	{ 0x2b, "UC_WRITE_ONLY_IMM", OPERATION_WRITE, HEADER_RETH | HEADER_IMMDT, 20, F | L | T },
	{ 0x64, "UD_SEND_ONLY", OPERATION_SEND, HEADER_DETH, 8, F | L | T },
	{ 0x65, "UD_SEND_ONLY_IMM", OPERATION_SEND, HEADER_DETH | HEADER_IMMDT, 12, F | L | T },
	{ 0x81, "CNP", OPERATION_CNP, 0, 0, 0 },
};

START_LOOP_TEST(row, ROWS(rows))
{
	const struct opcode_info *info = &opcode_table[rows[_i].opcode];

	ck_assert(opcode_known(rows[_i].opcode));
	ck_assert_str_eq(info->name, rows[_i].name);
	ck_assert_int_eq(info->operation, rows[_i].operation);
	ck_assert_int_eq(info->headers, rows[_i].headers);
	ck_assert_int_eq(info->headers_len, rows[_i].headers_len);
	ck_assert_int_eq(info->flags, rows[_i].flags);
}
END_TEST

START_TEST(nothing_else_is_known)
{
	int known = 0;

	for (int i = 0; i < 256; i++) {
		known += opcode_known((uint8_t)i);
		ck_assert_int_eq(opcode_known((uint8_t)i) || i == 0x1c || i == 0x1d,
			opcode_table[i].operation != OPERATION_NONE);
	}
	ck_assert_int_eq(known, ROWS(rows));
	/* FLUSH and ATOMIC WRITE are taken in order to be refused. */
	ck_assert_int_eq(opcode_table[0x1c].operation, OPERATION_UNSUPPORTED);
	ck_assert_int_eq(opcode_table[0x1d].operation, OPERATION_UNSUPPORTED);
}
END_TEST

START_TEST(transport)
{
	ck_assert_int_eq(opcode_transport(0x17), TRANSPORT_RC);
	ck_assert_int_eq(opcode_transport(0x20), TRANSPORT_UC);
	ck_assert_int_eq(opcode_transport(0x65), TRANSPORT_UD);
	ck_assert_int_eq(opcode_transport(0x81), TRANSPORT_CNP);
}
END_TEST

TEST_FILE(opcode)
