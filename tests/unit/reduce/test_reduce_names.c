/* SPDX-License-Identifier: BSD-3-Clause */
/* Names, other names and sizes of element types, operations and wire types. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include <ferrule/reduce.h>

#include "tests/fixtures/program.h"

START_TEST(every_value_has_a_name)
{
	enum frl_dtype dtype;
	enum frl_wire wire;
	enum frl_op op;

	for (int i = 0; i < FRL_DTYPES; i++) {
		ck_assert_uint_gt(frl_dtype_size((enum frl_dtype)i), 0);
		ck_assert_int_eq(frl_dtype_parse(frl_dtype_name((enum frl_dtype)i), &dtype), 0);
		ck_assert_int_eq((int)dtype, i);
	}
	for (int i = 0; i < FRL_OPS; i++) {
		ck_assert_int_eq(frl_op_parse(frl_op_name((enum frl_op)i), &op), 0);
		ck_assert_int_eq((int)op, i);
		ck_assert(frl_op_is_elementwise((enum frl_op)i) == (i <= FRL_MIN));
	}
	for (int i = 0; i < FRL_WIRES; i++) {
		ck_assert_int_eq(frl_wire_parse(frl_wire_name((enum frl_wire)i), &wire), 0);
		ck_assert_int_eq((int)wire, i);
	}
}
END_TEST

/* As NCCL numbers them, which its plugins and programs rely on. */
START_TEST(numbers)
{
	static const size_t sizes[FRL_DTYPES] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

	for (int i = 0; i < FRL_DTYPES; i++)
		ck_assert_uint_eq(frl_dtype_size((enum frl_dtype)i), sizes[i]);
	ck_assert_int_eq(FRL_FLOAT16, 6);
	ck_assert_int_eq(FRL_BFLOAT16, 9);
	ck_assert_int_eq(FRL_FLOAT8_E5M2, 11);
	ck_assert_int_eq(FRL_AVG, 4);
}
END_TEST

static const struct {
	const char *name;
	int dtype, op, wire; /* -1: none */
} rows[] = {
	{ "f32", FRL_FLOAT32, -1, -1 },
	{ "FLOAT", FRL_FLOAT32, -1, -1 },
	{ "double", FRL_FLOAT64, -1, -1 },
	{ "half", FRL_FLOAT16, -1, FRL_WIRE_FLOAT16 },
	{ "BF16", FRL_BFLOAT16, -1, FRL_WIRE_BFLOAT16 },
	{ "int8", FRL_INT8, -1, FRL_WIRE_INT8 },
	{ "u8", FRL_UINT8, -1, -1 },
	{ "e4m3", FRL_FLOAT8_E4M3, -1, -1 },
	{ "float8_e4m3fn", FRL_FLOAT8_E4M3, -1, -1 },
	{ "fp8_e5m2", FRL_FLOAT8_E5M2, -1, -1 },
	{ "Sum", -1, FRL_SUM, -1 },
	{ "product", -1, FRL_PROD, -1 },
	{ "mean", -1, FRL_AVG, -1 },
	{ "premul", -1, FRL_PREMUL_SUM, -1 },
	{ "same", -1, -1, FRL_WIRE_SAME },
	{ "float33", -1, -1, -1 },
	{ "", -1, -1, -1 },
	{ "float ", -1, -1, -1 },
	{ NULL, -1, -1, -1 },
};

START_LOOP_TEST(parsed, ROWS(rows))
{
	enum frl_dtype dtype = FRL_DTYPES;
	enum frl_wire wire = FRL_WIRES;
	enum frl_op op = FRL_OPS;

	ck_assert_int_eq(frl_dtype_parse(rows[_i].name, &dtype), rows[_i].dtype < 0 ? -EINVAL : 0);
	ck_assert_int_eq((int)dtype, rows[_i].dtype < 0 ? FRL_DTYPES : rows[_i].dtype);
	ck_assert_int_eq(frl_op_parse(rows[_i].name, &op), rows[_i].op < 0 ? -EINVAL : 0);
	ck_assert_int_eq((int)op, rows[_i].op < 0 ? FRL_OPS : rows[_i].op);
	ck_assert_int_eq(frl_wire_parse(rows[_i].name, &wire), rows[_i].wire < 0 ? -EINVAL : 0);
	ck_assert_int_eq((int)wire, rows[_i].wire < 0 ? FRL_WIRES : rows[_i].wire);
}
END_TEST

START_TEST(nonsense)
{
	ck_assert_uint_eq(frl_dtype_size(FRL_DTYPES), 0);
	ck_assert_uint_eq(frl_dtype_size((enum frl_dtype) - 1), 0);
	ck_assert_ptr_null(frl_dtype_name(FRL_DTYPES));
	ck_assert_ptr_null(frl_op_name(FRL_OPS));
	ck_assert_ptr_null(frl_op_name((enum frl_op)(FRL_OPS + 100)));
	ck_assert_ptr_null(frl_wire_name(FRL_WIRES));
	ck_assert(!frl_op_is_elementwise(FRL_OPS));
	ck_assert(!frl_op_is_elementwise((enum frl_op) - 1));
}
END_TEST

TEST_FILE(reduce_names)
