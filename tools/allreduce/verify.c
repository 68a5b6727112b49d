/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compares a result with the sum in float64.
 *
 * The bound: the sum of n numbers x_i with p bits of mantissa (float32: 24), in any order and
 * without overflow, has an error of at most (n - 1) * 2^-p * sum |x_i| (Jeannerod and Rump,
 * "Improved error bounds for inner products in floating-point arithmetic", 2013). Types of 16 and 8
 * bits are summed in float32 and then rounded. For two numbers this equals a single rounding,
 * because 24 is at least 2p + 2 (Figueroa, "When is double rounding innocuous?", 1995). For more
 * numbers the error is smaller than with a rounding after each addition.
 *
 * The error is relative to sum |x_i|, for which the inputs of all ranks are read. Relative to the
 * sum itself there is no bound, because inputs may cancel out.
 */
#include "tools/allreduce/allreduce.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/number.h"

enum { CHUNK = 4096 }; /* elements */

struct reference {
	enum frl_dtype dtype; /* of inputs and result */
	struct safetensors *sum;
	struct safetensors *inputs[MAX_RANKS];
	int ranks;
};

static int open_inputs(
	const struct options *options, const struct safetensors *mine, struct reference *reference)
{
	for (int r = 0; r < options->job.ranks; r++) {
		char *path = path_of_rank(options->input, r);
		int rc = path ? input_open(path, &reference->inputs[r]) : -ENOMEM;

		free(path);
		if (rc) {
			say("--check needs the inputs of all ranks to state its error bound");
			return rc;
		}
		reference->ranks = r + 1;
		if (reference->inputs[r]->data_size != mine->data_size) {
			say("%s: changed since the ranks read it", reference->inputs[r]->path);
			return -EINVAL;
		}
	}
	return 0;
}

static int find_sum(const struct safetensors *sum, const struct safetensors_tensor *tensor,
	const struct safetensors_tensor **ret_sum)
{
	const struct safetensors_tensor *t = safetensors_find(sum, tensor->name);

	if (!t) {
		say("%s: has no tensor '%.100s'", sum->path, tensor->name);
		return -EINVAL;
	}
	if (strcmp(t->dtype, "F64") != 0) {
		say("%s: tensor '%.100s': dtype is %s, a reference must be F64", sum->path, t->name,
			t->dtype);
		return -EINVAL;
	}
	if (t->n_dims != tensor->n_dims ||
		memcmp(t->shape, tensor->shape, t->n_dims * sizeof(t->shape[0])) != 0) {
		char theirs[120], ours[120];

		safetensors_describe(t, theirs, sizeof(theirs));
		safetensors_describe(tensor, ours, sizeof(ours));
		say("%s: tensor '%.100s': is %s, the inputs have %s", sum->path, t->name, theirs,
			ours);
		return -EINVAL;
	}
	*ret_sum = t;
	return 0;
}

static void compare_element(double result, double expected, double magnitude, struct report *report)
{
	double error = fabs(result - expected);
	double relative = error == 0 ? 0 : error / magnitude;

	/* Infinities and NaNs must be the same in the result. */
	if (!isfinite(expected) || !isfinite(magnitude)) {
		if (result == expected || (isnan(result) && isnan(expected)))
			return;
		error = relative = INFINITY;
	} else if (!isfinite(error)) {
		error = relative = INFINITY;
	}
	report->max_error = fmax(report->max_error, error);
	report->max_relative = fmax(report->max_relative, relative);
}

/* Some elements of all files. */
struct chunk {
	uint8_t input[CHUNK * sizeof(float)]; /* or narrower types */
	double magnitude[CHUNK];
	double expected[CHUNK];
};

/* Returns element `index` of the inputs' type. */
static double element(const struct reference *reference, const uint8_t *elements, size_t index)
{
	size_t size = frl_dtype_size(reference->dtype);

	return (double)number_decode(reference->dtype, number_load(elements + index * size, size));
}

static int read_chunk(const struct reference *reference, uint64_t input_offset, uint64_t sum_offset,
	size_t count, struct chunk *chunk)
{
	struct safetensors_error error;
	int rc = safetensors_read(reference->sum, sum_offset, chunk->expected,
		count * sizeof(chunk->expected[0]), &error);

	memset(chunk->magnitude, 0, sizeof(chunk->magnitude));
	for (int r = 0; r < reference->ranks && !rc; r++) {
		rc = safetensors_read(reference->inputs[r], input_offset, chunk->input,
			count * frl_dtype_size(reference->dtype), &error);
		for (size_t i = 0; i < count && !rc; i++)
			chunk->magnitude[i] += fabs(element(reference, chunk->input, i));
	}
	if (rc)
		say("%s", error.text);
	return rc;
}

static int compare_tensor(const struct reference *reference,
	const struct safetensors_tensor *tensor, const struct safetensors_tensor *sum,
	const uint8_t *result, struct report *report)
{
	size_t size = frl_dtype_size(reference->dtype);
	struct chunk chunk;

	for (uint64_t first = 0; first < tensor->count; first += CHUNK) {
		uint64_t left = tensor->count - first;
		size_t count = left < CHUNK ? (size_t)left : CHUNK;
		int rc = read_chunk(reference, tensor->begin + first * size,
			sum->begin + first * sizeof(double), count, &chunk);

		if (rc)
			return rc;
		for (size_t i = 0; i < count; i++)
			compare_element(element(reference, result + tensor->begin, first + i),
				chunk.expected[i], chunk.magnitude[i], report);
	}
	return 0;
}

static int compare_all(const struct reference *reference, const struct safetensors *input,
	const uint8_t *result, struct report *report)
{
	if (reference->sum->n_tensors != input->n_tensors) {
		say("%s: has %zu tensors, the inputs have %zu", reference->sum->path,
			reference->sum->n_tensors, input->n_tensors);
		return -EINVAL;
	}
	for (size_t i = 0; i < input->n_tensors; i++) {
		const struct safetensors_tensor *sum;
		int rc = find_sum(reference->sum, &input->tensors[i], &sum);

		if (!rc)
			rc = compare_tensor(reference, &input->tensors[i], sum, result, report);
		if (rc)
			return rc;
	}
	return 0;
}

bool can_verify(const char *path, enum frl_dtype dtype)
{
	if (number_is_float(dtype) && dtype != FRL_FLOAT64)
		return true;
	say("%s: --check compares sums of floats of 32 bits or less with float64, not of %s", path,
		frl_dtype_name(dtype));
	return false;
}

int verify_result(const struct options *options, const struct safetensors *input,
	const void *result, struct report *report)
{
	struct reference reference = { .dtype = input_dtype(input) };
	struct safetensors_error error;
	int rc;

	if (!can_verify(input->path, reference.dtype))
		return -ENOTSUP;
	report->checked = true;
	report->bound = ldexp(options->job.ranks - 1, -number_precision(reference.dtype));
	rc = safetensors_open(options->check, &reference.sum, &error);
	if (rc)
		say("%s", error.text);
	if (!rc)
		rc = open_inputs(options, input, &reference);
	if (!rc)
		rc = compare_all(&reference, input, result, report);
	for (int r = 0; r < reference.ranks; r++)
		safetensors_close(reference.inputs[r]);
	safetensors_close(reference.sum);
	if (!rc)
		report->ok = report->max_relative <= report->bound;
	return rc;
}
