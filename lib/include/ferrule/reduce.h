/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Element types, operations, and the element-wise code that receives and collectives share. No
 * state; any thread.
 */
#ifndef FERRULE_REDUCE_H
#define FERRULE_REDUCE_H

#include <stddef.h>

#include <ferrule/error.h>

#ifdef __cplusplus
extern "C" {
#endif

enum frl_dtype {
	FRL_FLOAT32,
	FRL_DTYPES /* how many there are */
};

enum frl_op {
	FRL_SUM,
	FRL_OPS /* how many there are */
};

/* Bytes of one element; 0 for a value that is no type. */
FRL_API size_t frl_dtype_size(enum frl_dtype dtype);

/* "float32", "sum"; NULL for a value that is none. */
FRL_API const char *frl_dtype_name(enum frl_dtype dtype);
FRL_API const char *frl_op_name(enum frl_op op);

/*
 * dst[i] = op(a[i], b[i]) for `count` elements, by the fastest code that this processor has. Any
 * alignment; dst may be a or b, and must not overlap them otherwise.
 */
FRL_API void frl_reduce(void *dst, const void *a, const void *b, size_t count, enum frl_dtype dtype,
	enum frl_op op);

/* The same in plain C: the reference for the fast ones, which give bitwise the same, but for which
 * of two NaNs is passed on. */
FRL_API void frl_reduce_plain(void *dst, const void *a, const void *b, size_t count,
	enum frl_dtype dtype, enum frl_op op);

#ifdef __cplusplus
}
#endif
#endif
