/* SPDX-License-Identifier: BSD-3-Clause */
/* Selects the fastest code that the processor supports for each function of ferrule/reduce.h. */
#include "lib/reduce/nontemporal.h"

#include <pthread.h>
#include <stdatomic.h>

#include "lib/reduce/kernels.h"

static struct reduce_kernels best;
static _Atomic(const struct reduce_kernels *) best_ready;
static pthread_once_t best_once = PTHREAD_ONCE_INIT;

/* Functions of `kernels` replace those of slower instruction sets. */
static void take(const struct reduce_kernels *kernels)
{
	for (int dtype = 0; dtype < FRL_DTYPES; dtype++) {
		for (int op = 0; op < REDUCE_OPS; op++)
			if (kernels->reduce[dtype][op])
				best.reduce[dtype][op] = kernels->reduce[dtype][op];
		if (kernels->scale[dtype])
			best.scale[dtype] = kernels->scale[dtype];
		if (kernels->divide[dtype])
			best.divide[dtype] = kernels->divide[dtype];
		if (kernels->sum_nontemporal[dtype])
			best.sum_nontemporal[dtype] = kernels->sum_nontemporal[dtype];
	}
	for (int wire = 0; wire < FRL_WIRES; wire++) {
		if (kernels->encode[wire])
			best.encode[wire] = kernels->encode[wire];
		if (kernels->decode[wire])
			best.decode[wire] = kernels->decode[wire];
		if (kernels->decode_add[wire])
			best.decode_add[wire] = kernels->decode_add[wire];
	}
	best.name = kernels->name;
}

static void find_best(void)
{
	int n = 0;

	while (reduce_all_kernels[n])
		n++;
	while (n-- > 0)
		if (reduce_all_kernels[n]->supported())
			take(reduce_all_kernels[n]);
	atomic_store_explicit(&best_ready, &best, memory_order_release);
}

const struct reduce_kernels *reduce_best_kernels(void)
{
	const struct reduce_kernels *kernels = atomic_load_explicit(
		&best_ready, memory_order_acquire);

	if (kernels)
		return kernels;
	pthread_once(&best_once, find_best);
	return &best;
}

static bool is_dtype(enum frl_dtype dtype)
{
	return (unsigned int)dtype < FRL_DTYPES;
}

bool frl_op_is_elementwise(enum frl_op op)
{
	return (unsigned int)op < REDUCE_OPS;
}

void frl_reduce_local(
	void *dst, const void *a, const void *b, size_t count, enum frl_dtype dtype, enum frl_op op)
{
	if (is_dtype(dtype) && frl_op_is_elementwise(op))
		reduce_best_kernels()->reduce[dtype][op](dst, a, b, count);
}

bool reduce_has_nontemporal(enum frl_dtype dtype, enum frl_op op)
{
	return is_dtype(dtype) && op == FRL_SUM && reduce_best_kernels()->sum_nontemporal[dtype];
}

void reduce_nontemporal(
	void *dst, const void *a, const void *b, size_t count, enum frl_dtype dtype, enum frl_op op)
{
	if (reduce_has_nontemporal(dtype, op))
		reduce_best_kernels()->sum_nontemporal[dtype](dst, a, b, count);
	else
		frl_reduce_local(dst, a, b, count, dtype, op);
}

void frl_reduce_local_plain(
	void *dst, const void *a, const void *b, size_t count, enum frl_dtype dtype, enum frl_op op)
{
	if (is_dtype(dtype) && frl_op_is_elementwise(op))
		reduce_plain.reduce[dtype][op](dst, a, b, count);
}

void frl_scale_local(
	void *dst, const void *src, size_t count, enum frl_dtype dtype, const void *scalar)
{
	if (is_dtype(dtype))
		reduce_best_kernels()->scale[dtype](dst, src, count, scalar);
}

void frl_divide_local(void *dst, const void *src, size_t count, enum frl_dtype dtype, uint32_t n)
{
	if (is_dtype(dtype) && n != 0)
		reduce_best_kernels()->divide[dtype](dst, src, count, n);
}
