/* SPDX-License-Identifier: BSD-3-Clause */
/* Names and sizes of element types, operations and wire types. */
#include <ferrule/reduce.h>

#include <assert.h>
#include <errno.h>
#include <strings.h>

#include "lib/base/error.h"

static_assert(sizeof(float) == 4 && sizeof(double) == 8, "they are FRL_FLOAT32 and FRL_FLOAT64");

/* the first one is the value's name; the others are accepted as well */
enum { MAX_NAMES = 7 };

struct names {
	const char *names[MAX_NAMES];
};

static const unsigned char sizes[FRL_DTYPES] = {
	[FRL_INT8] = 1,
	[FRL_UINT8] = 1,
	[FRL_INT32] = 4,
	[FRL_UINT32] = 4,
	[FRL_INT64] = 8,
	[FRL_UINT64] = 8,
	[FRL_FLOAT16] = 2,
	[FRL_FLOAT32] = 4,
	[FRL_FLOAT64] = 8,
	[FRL_BFLOAT16] = 2,
	[FRL_FLOAT8_E4M3] = 1,
	[FRL_FLOAT8_E5M2] = 1,
};

static const struct names dtype_names[FRL_DTYPES] = {
	[FRL_INT8] = { { "int8", "i8", "s8", "char" } },
	[FRL_UINT8] = { { "uint8", "u8", "byte" } },
	[FRL_INT32] = { { "int32", "i32", "s32", "int" } },
	[FRL_UINT32] = { { "uint32", "u32", "uint" } },
	[FRL_INT64] = { { "int64", "i64", "s64", "long" } },
	[FRL_UINT64] = { { "uint64", "u64", "ulong" } },
	[FRL_FLOAT16] = { { "float16", "f16", "fp16", "half" } },
	[FRL_FLOAT32] = { { "float32", "f32", "fp32", "float", "single" } },
	[FRL_FLOAT64] = { { "float64", "f64", "fp64", "double" } },
	[FRL_BFLOAT16] = { { "bfloat16", "bf16" } },
	[FRL_FLOAT8_E4M3] = { { "float8_e4m3", "float8_e4m3fn", "float8e4m3", "f8e4m3", "fp8_e4m3",
		"fp8e4m3", "e4m3" } },
	[FRL_FLOAT8_E5M2] = { { "float8_e5m2", "float8e5m2", "f8e5m2", "fp8_e5m2", "fp8e5m2",
		"e5m2" } },
};

static const struct names op_names[FRL_OPS] = {
	[FRL_SUM] = { { "sum", "add" } },
	[FRL_PROD] = { { "prod", "product", "mul" } },
	[FRL_MAX] = { { "max", "maximum" } },
	[FRL_MIN] = { { "min", "minimum" } },
	[FRL_AVG] = { { "avg", "average", "mean" } },
	[FRL_PREMUL_SUM] = { { "premul_sum", "premulsum", "premul" } },
};

static const struct names wire_names[FRL_WIRES] = {
	[FRL_WIRE_SAME] = { { "same", "none" } },
	[FRL_WIRE_FLOAT16] = { { "float16", "f16", "fp16", "half" } },
	[FRL_WIRE_BFLOAT16] = { { "bfloat16", "bf16" } },
	[FRL_WIRE_INT8] = { { "int8", "i8" } },
};

/* Returns the index of the row that has `name`, or -1. */
static int find(const struct names rows[], int n, const char *name)
{
	for (int i = 0; name && i < n; i++)
		for (int j = 0; j < MAX_NAMES && rows[i].names[j]; j++)
			if (strcasecmp(rows[i].names[j], name) == 0)
				return i;
	return -1;
}

static const char *or_nothing(const char *name)
{
	return name ? name : "";
}

size_t frl_dtype_size(enum frl_dtype dtype)
{
	return (unsigned int)dtype < FRL_DTYPES ? sizes[dtype] : 0;
}

const char *frl_dtype_name(enum frl_dtype dtype)
{
	return (unsigned int)dtype < FRL_DTYPES ? dtype_names[dtype].names[0] : NULL;
}

const char *frl_op_name(enum frl_op op)
{
	return (unsigned int)op < FRL_OPS ? op_names[op].names[0] : NULL;
}

const char *frl_wire_name(enum frl_wire wire)
{
	return (unsigned int)wire < FRL_WIRES ? wire_names[wire].names[0] : NULL;
}

int frl_dtype_parse(const char *name, enum frl_dtype *ret_dtype)
{
	int found = find(dtype_names, FRL_DTYPES, name);

	if (found < 0)
		return frl_fail(-EINVAL,
			"\"%s\" is not an element type: use int8, uint8, int32, uint32, "
			"int64, uint64, float16, float32, float64, bfloat16, float8_e4m3 "
			"or float8_e5m2",
			or_nothing(name));
	*ret_dtype = (enum frl_dtype)found;
	return 0;
}

int frl_op_parse(const char *name, enum frl_op *ret_op)
{
	int found = find(op_names, FRL_OPS, name);

	if (found < 0)
		return frl_fail(-EINVAL,
			"\"%s\" is not an operation: use sum, prod, max, min, avg or "
			"premul_sum",
			or_nothing(name));
	*ret_op = (enum frl_op)found;
	return 0;
}

int frl_wire_parse(const char *name, enum frl_wire *ret_wire)
{
	int found = find(wire_names, FRL_WIRES, name);

	if (found < 0)
		return frl_fail(-EINVAL,
			"\"%s\" is not a wire type: use same, float16, bfloat16 or int8",
			or_nothing(name));
	*ret_wire = (enum frl_wire)found;
	return 0;
}
