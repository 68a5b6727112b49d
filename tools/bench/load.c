/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-bench: reads results of an earlier --json, to be drawn beside others. The file is not
 * trusted: anything unknown is refused.
 */
#include "tools/bench/bench.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

/* Limit for files that ferrule-bench did not write; its own are small. */
enum { MAX_ROWS = 1000000 };

static const char *op_name(int value)
{
	return bench_op_name(value);
}

static const char *dtype_name(int value)
{
	return frl_dtype_name((enum frl_dtype)value);
}

static const char *redop_name(int value)
{
	return frl_op_name((enum frl_op)value);
}

static const char *wire_name(int value)
{
	return frl_wire_name((enum frl_wire)value);
}

static const char *algo_name(int value)
{
	return frl_algo_name((enum frl_algo)value);
}

/* Returns the value with the name under `key`, or -1. */
static int find(const json_t *row, const char *key, const char *(*name)(int), int n)
{
	const char *text = json_string_value(json_object_get(row, key));

	for (int i = 0; text && i < n; i++)
		if (strcmp(name(i), text) == 0)
			return i;
	return -1;
}

static void load_block(const json_t *object, struct bench_block *block)
{
	double us = json_number_value(json_object_get(object, "time_us"));
	double busbw = json_number_value(json_object_get(object, "busbw_gbps"));
	json_int_t iters = json_integer_value(json_object_get(object, "iters"));

	if (iters <= 0 || !isfinite(us) || !isfinite(busbw))
		return;
	block->iters = (uint64_t)iters;
	block->us = us;
	block->busbw = busbw;
}

static bool load_row(const json_t *object, struct bench_row *row)
{
	int op = find(object, "op", op_name, BENCH_OPS);
	int dtype = find(object, "dtype", dtype_name, FRL_DTYPES);
	int redop = find(object, "redop", redop_name, FRL_OPS);
	int wire = find(object, "wire", wire_name, FRL_WIRES);
	int algo = find(object, "algo", algo_name, FRL_ALGOS);
	const json_t *root = json_object_get(object, "root");
	json_int_t size = json_integer_value(json_object_get(object, "size"));

	*row = (struct bench_row){ .size = size > 0 ? (size_t)size : 0 };
	if (op < 0 || wire < 0 || algo < 0 || size < 0 || (dtype < 0 && op != FRL_BARRIER))
		return false;
	row->c = (struct bench_case){
		.op = op,
		.dtype = dtype < 0 ? FRL_INT8 : (enum frl_dtype)dtype,
		.redop = redop < 0 ? FRL_OPS : (enum frl_op)redop,
		.wire = (enum frl_wire)wire,
		.algo = (enum frl_algo)algo,
		.root = json_is_integer(root) ? (int)json_integer_value(root) : -1,
	};
	load_block(json_object_get(object, "out_of_place"), &row->blocks[0]);
	load_block(json_object_get(object, "in_place"), &row->blocks[1]);
	return true;
}

static int load_rows(const char *path, const json_t *file, struct bench_results *ret_results)
{
	const json_t *rows = json_object_get(file, "results");
	size_t n = json_array_size(rows);

	if (!json_is_array(rows) || n > MAX_ROWS ||
		json_integer_value(json_object_get(file, "schema")) != BENCH_SCHEMA) {
		say("%s: not a JSON file of this version of ferrule-bench", path);
		return -EINVAL;
	}
	ret_results->rows = calloc(n + 1, sizeof(*ret_results->rows));
	if (!ret_results->rows) {
		say("no memory for %s", path);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		if (load_row(json_array_get(rows, i), &ret_results->rows[i]))
			continue;
		say("%s: result %zu: an operation, type, wire type or algorithm that is not known",
			path, i + 1);
		free(ret_results->rows);
		ret_results->rows = NULL;
		return -EINVAL;
	}
	ret_results->n_rows = n;
	ret_results->ranks = (int)json_integer_value(json_object_get(file, "ranks"));
	return 0;
}

int bench_load(const char *path, struct bench_results *ret_results)
{
	const char *slash = strrchr(path, '/');
	json_error_t error;
	json_t *file = json_load_file(path, 0, &error);
	int rc;

	if (!file) {
		say("%s: %s", path, error.text);
		return -EINVAL;
	}
	*ret_results = (struct bench_results){ .name = slash ? slash + 1 : path };
	rc = load_rows(path, file, ret_results);
	json_decref(file);
	return rc;
}
