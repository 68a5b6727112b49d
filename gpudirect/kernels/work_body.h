/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One thread's share of a piece of work. kernels.cu compiles this code for GPUs; tests compile it
 * for the processor, and run the threads one by one, in any order.
 *
 * A thread handles vectors of 16 bytes. The first vector may be shorter, so that all later ones are
 * aligned at `dst`, if the element size allows this. `src` and `operand` may be misaligned: the
 * thread then reads the two aligned vectors around the data and shifts the bytes into place.
 * Misalignment is the usual case, because payload in a packet follows at least 42 bytes of headers.
 * No byte outside of the piece's own ranges is read, not even within the same 16 bytes.
 *
 * `also` may have any alignment; a misaligned vector takes several stores. It is fastest if `also`
 * and `dst` have the same offset from a multiple of 16.
 *
 * Loads are ordinary ones, because `ferrule_work` must see all writes before its launch. Loads of
 * constant data (__ldg()) would be wrong: packet buffers are reused while other kernels run.
 */
#ifndef FERRULE_GPUDIRECT_WORK_BODY_H
#define FERRULE_GPUDIRECT_WORK_BODY_H

#include "gpudirect/kernels/batch.h"
#include "lib/reduce/element.h"

#ifdef __CUDACC__
#define GPU_BODY   static __device__ __forceinline__
#define GPU_UNROLL _Pragma("unroll")
#define GPU_ROLL   _Pragma("unroll 1")
#define GPU_ALIAS
#else
#define GPU_BODY static inline __attribute__((unused))
#define GPU_UNROLL
#define GPU_ROLL
#define GPU_ALIAS __attribute__((may_alias))
#endif

/* 16 bytes, as elements of any type. */
union gpu_vector {
	uint32_t words[4];
	uint64_t longs[2];
	uint16_t shorts[8];
	uint8_t bytes[16];
	int8_t i8[16];
	uint8_t u8[16];
	int32_t i32[4];
	uint32_t u32[4];
	int64_t i64[2];
	uint64_t u64[2];
	uint16_t f16[8];
	float f32[4];
	double f64[2];
	uint16_t bf16[8];
	uint8_t e4m3[16];
	uint8_t e5m2[16];
};

struct GPU_ALIAS gpu_aligned {
	uint32_t words[4];
} __attribute__((aligned(16)));

typedef uint64_t GPU_ALIAS gpu_u64;
typedef uint32_t GPU_ALIAS gpu_u32;
typedef uint16_t GPU_ALIAS gpu_u16;
typedef uint8_t GPU_ALIAS gpu_u8;

/* ---- memory */

/* The range that may be read: a load around a vector must not leave it. */
struct gpu_range {
	uint64_t begin, end;
};

GPU_BODY struct gpu_aligned gpu_load_aligned(uint64_t address)
{
	return *(const struct gpu_aligned *)address;
}

/* Returns the low word of two words, shifted right by 0 to 31 bits. */
GPU_BODY uint32_t gpu_funnel(uint32_t low, uint32_t high, uint32_t bits)
{
	return (uint32_t)(((uint64_t)high << 32 | low) >> bits);
}

/* Returns the 16 bytes at offset `skip` (1 to 15) of 32 bytes. */
GPU_BODY union gpu_vector gpu_realign(
	struct gpu_aligned low, struct gpu_aligned high, uint32_t skip)
{
	uint32_t bits = skip % 4 * 8;
	uint32_t a[6], b[5];
	union gpu_vector v;

	a[0] = skip & 8 ? low.words[2] : low.words[0];
	a[1] = skip & 8 ? low.words[3] : low.words[1];
	a[2] = skip & 8 ? high.words[0] : low.words[2];
	a[3] = skip & 8 ? high.words[1] : low.words[3];
	a[4] = skip & 8 ? high.words[2] : high.words[0];
	a[5] = skip & 8 ? high.words[3] : high.words[1];
	GPU_UNROLL
	for (int i = 0; i < 5; i++)
		b[i] = skip & 4 ? a[i + 1] : a[i];
	GPU_UNROLL
	for (int i = 0; i < 4; i++)
		v.words[i] = gpu_funnel(b[i], b[i + 1], bits);
	return v;
}

/* Returns the first n (0 to 16) bytes at `address`, padded with zeros. */
GPU_BODY union gpu_vector gpu_load(uint64_t address, uint32_t n, struct gpu_range range)
{
	uint32_t skip = (uint32_t)(address & 15);
	uint64_t base = address - skip;
	union gpu_vector v;

	if (n == 16 && skip == 0) {
		struct gpu_aligned whole = gpu_load_aligned(address);

		GPU_UNROLL
		for (int i = 0; i < 4; i++)
			v.words[i] = whole.words[i];
		return v;
	}
	if (n == 16 && base >= range.begin && base + 32 <= range.end)
		return gpu_realign(gpu_load_aligned(base), gpu_load_aligned(base + 16), skip);
	GPU_UNROLL
	for (int i = 0; i < 4; i++)
		v.words[i] = 0;
	GPU_UNROLL
	for (uint32_t i = 0; i < 16; i++)
		if (i < n)
			v.words[i / 4] |= (uint32_t) * (const gpu_u8 *)(address + i) << i % 4 * 8;
	return v;
}

/* Stores a whole vector at an address that is not a multiple of 16. */
GPU_BODY void gpu_store_apart(uint64_t address, union gpu_vector v)
{
	if ((address & 7) == 0) {
		GPU_UNROLL
		for (int i = 0; i < 2; i++)
			((gpu_u64 *)address)[i] = v.longs[i];
	} else if ((address & 3) == 0) {
		GPU_UNROLL
		for (int i = 0; i < 4; i++)
			((gpu_u32 *)address)[i] = v.words[i];
	} else if ((address & 1) == 0) {
		GPU_UNROLL
		for (int i = 0; i < 8; i++)
			((gpu_u16 *)address)[i] = (uint16_t)(v.words[i / 2] >> i % 2 * 16);
	} else {
		GPU_UNROLL
		for (int i = 0; i < 16; i++)
			((gpu_u8 *)address)[i] = (uint8_t)(v.words[i / 4] >> i % 4 * 8);
	}
}

/* Stores the first n (0 to 16) bytes of a vector. */
GPU_BODY void gpu_store(uint64_t address, union gpu_vector v, uint32_t n)
{
	if (n == 16 && (address & 15) == 0) {
		struct gpu_aligned whole;

		GPU_UNROLL
		for (int i = 0; i < 4; i++)
			whole.words[i] = v.words[i];
		*(struct gpu_aligned *)address = whole;
	} else if (n == 16) {
		gpu_store_apart(address, v);
	} else {
		GPU_UNROLL
		for (uint32_t i = 0; i < 16; i++)
			if (i < n)
				((gpu_u8 *)address)[i] = (uint8_t)(v.words[i / 4] >> i % 4 * 8);
	}
}

/* Stores at `dst`, and at `also` if that is set. */
GPU_BODY void gpu_put(const struct gpu_work *w, uint64_t offset, union gpu_vector v, uint32_t n)
{
	gpu_store(w->dst + offset, v, n);
	if (w->also)
		gpu_store(w->also + offset, v, n);
}

/* ---- elements */

/* The operation on a vector: an enum frl_op value, which has two operands, or one of these. */
enum { GPU_DIVIDED = FRL_MIN + 1, GPU_COPIED };

/* Moves the words of a vector down by one index, and puts `last` at the top. */
GPU_BODY union gpu_vector gpu_turn(union gpu_vector v, uint32_t last)
{
	GPU_UNROLL
	for (int i = 0; i < 3; i++)
		v.words[i] = v.words[i + 1];
	v.words[3] = last;
	return v;
}

/* Computes all elements of a vector, unrolled. */
#define GPU_AT_ONCE(name, expression)                             \
	GPU_UNROLL                                                \
	for (unsigned int i = 0; i < 16 / sizeof(x.name[0]); i++) \
		x.name[i] = element_##expression;                 \
	break

/* Computes a vector word by word in a loop, for elements that take many instructions: the code
 * exists once instead of once for each word. Registers cannot be indexed, so the loop rotates the
 * vectors. */
#define GPU_BY_WORD(name, expression)                                    \
	GPU_ROLL                                                         \
	for (int turn = 0; turn < 4; turn++) {                           \
		union gpu_vector v = x;                                  \
		GPU_UNROLL                                               \
		for (unsigned int i = 0; i < 4 / sizeof(x.name[0]); i++) \
			v.name[i] = element_##expression;                \
		x = gpu_turn(x, v.words[0]);                             \
		y = gpu_turn(y, y.words[0]);                             \
	}                                                                \
	break

#define GPU_TYPE(name, each, each_quotient)                                           \
	GPU_BODY union gpu_vector gpu_vector_##name(                                  \
		union gpu_vector x, union gpu_vector y, uint32_t what, uint32_t n)    \
	{                                                                             \
		switch (what) {                                                       \
		case FRL_SUM: each(name, sum_##name(x.name[i], y.name[i]));           \
		case FRL_PROD: each(name, prod_##name(x.name[i], y.name[i]));         \
		case FRL_MAX: each(name, max_##name(x.name[i], y.name[i]));           \
		case FRL_MIN: each(name, min_##name(x.name[i], y.name[i]));           \
		case GPU_DIVIDED: each_quotient(name, quotient_##name(x.name[i], n)); \
		default: break;                                                       \
		}                                                                     \
		return x;                                                             \
	}

GPU_TYPE(i8, GPU_AT_ONCE, GPU_BY_WORD)
GPU_TYPE(u8, GPU_AT_ONCE, GPU_BY_WORD)
GPU_TYPE(i32, GPU_AT_ONCE, GPU_BY_WORD)
GPU_TYPE(u32, GPU_AT_ONCE, GPU_BY_WORD)
GPU_TYPE(i64, GPU_AT_ONCE, GPU_AT_ONCE)
GPU_TYPE(u64, GPU_AT_ONCE, GPU_AT_ONCE)
GPU_TYPE(f16, GPU_BY_WORD, GPU_BY_WORD)
GPU_TYPE(f32, GPU_AT_ONCE, GPU_BY_WORD)
GPU_TYPE(f64, GPU_AT_ONCE, GPU_AT_ONCE)
GPU_TYPE(bf16, GPU_AT_ONCE, GPU_BY_WORD)
GPU_TYPE(e4m3, GPU_BY_WORD, GPU_BY_WORD)
GPU_TYPE(e5m2, GPU_BY_WORD, GPU_BY_WORD)

/* All threads of a block take the same branch here. Its cost is small compared to the memory
 * accesses. */
GPU_BODY union gpu_vector gpu_compute(
	union gpu_vector x, union gpu_vector y, uint32_t dtype, uint32_t what, uint32_t n)
{
	if (what == GPU_COPIED)
		return x;
	switch (dtype) {
	case FRL_INT8: return gpu_vector_i8(x, y, what, n);
	case FRL_UINT8: return gpu_vector_u8(x, y, what, n);
	case FRL_INT32: return gpu_vector_i32(x, y, what, n);
	case FRL_UINT32: return gpu_vector_u32(x, y, what, n);
	case FRL_INT64: return gpu_vector_i64(x, y, what, n);
	case FRL_UINT64: return gpu_vector_u64(x, y, what, n);
	case FRL_FLOAT16: return gpu_vector_f16(x, y, what, n);
	case FRL_FLOAT32: return gpu_vector_f32(x, y, what, n);
	case FRL_FLOAT64: return gpu_vector_f64(x, y, what, n);
	case FRL_BFLOAT16: return gpu_vector_bf16(x, y, what, n);
	case FRL_FLOAT8_E4M3: return gpu_vector_e4m3(x, y, what, n);
	case FRL_FLOAT8_E5M2: return gpu_vector_e5m2(x, y, what, n);
	default: return x;
	}
}

/* Returns a vector with the same element in all places. */
GPU_BODY union gpu_vector gpu_splat(const uint8_t scalar[8], uint32_t size)
{
	union gpu_vector v;
	uint64_t all = 0;

	GPU_UNROLL
	for (uint32_t i = 0; i < 8; i++)
		all |= (uint64_t)scalar[i & (size - 1)] << i * 8;
	v.longs[0] = all;
	v.longs[1] = all;
	return v;
}

/* ---- groups of elements: each belongs to one thread, and has `width` elements except for the
 * first and the last */

struct gpu_groups {
	uint64_t count;
	uint64_t n;
	uint32_t width;
	uint32_t missing; /* elements that the first group lacks */
};

/* Divides elements of `size` bytes at `dst` into groups. The second and all later groups start at a
 * multiple of 16. */
GPU_BODY struct gpu_groups gpu_groups_at(
	uint64_t dst, uint64_t count, uint32_t size, uint32_t width)
{
	uint32_t head = (uint32_t)(0 - dst) & 15;
	struct gpu_groups groups;

	groups.count = count;
	groups.width = width;
	groups.missing = head & (size - 1) || head == 0 ? 0 : width - head / size;
	groups.n = (count + groups.missing + width - 1) / width;
	return groups;
}

/* Returns the length of group `i`, and its first element. */
GPU_BODY uint32_t gpu_group(struct gpu_groups groups, uint64_t i, uint64_t *ret_first)
{
	uint64_t first = i * groups.width, n = groups.width;

	if (i == 0)
		n -= groups.missing;
	else
		first -= groups.missing;
	*ret_first = first;
	return (uint32_t)(n < groups.count - first ? n : groups.count - first);
}

GPU_BODY struct gpu_range gpu_range_of(uint64_t address, uint64_t bytes)
{
	struct gpu_range range;

	range.begin = address;
	range.end = address + bytes;
	return range;
}

/* ---- actions */

/* COPY, REDUCE, SCALE, DIVIDE: the element size does not change. */
GPU_BODY void gpu_work_same(const struct gpu_work *w, uint32_t dtype, uint32_t what, uint64_t count,
	uint64_t index, uint64_t n_threads)
{
	uint32_t size = gpu_dtype_size((uint8_t)dtype);
	struct gpu_groups groups = gpu_groups_at(w->dst, count, size, 16 / size);
	struct gpu_range src = gpu_range_of(w->src, count * size);
	struct gpu_range operand = gpu_range_of(w->operand, count * size);
	int is_of_two = w->action == GPU_REDUCE || w->action == GPU_DECODE_REDUCE;
	union gpu_vector scalar = gpu_splat(w->scalar, size);

	GPU_ROLL
	for (uint64_t i = index; i < groups.n; i += n_threads) {
		uint64_t first;
		uint32_t n = gpu_group(groups, i, &first) * size;
		union gpu_vector x, y = gpu_load(w->src + first * size, n, src);

		if (is_of_two) {
			x = gpu_load(w->operand + first * size, n, operand);
		} else {
			x = y;
			y = scalar;
		}
		gpu_put(w, first * size, gpu_compute(x, y, dtype, what, w->divisor), n);
	}
}

GPU_BODY uint32_t gpu_shorter(float x, uint32_t wire)
{
	if (wire == FRL_WIRE_FLOAT16)
		return element_to_f16(element_saturate(x, ELEMENT_LIMIT_F16, ELEMENT_LARGEST_F16));
	return element_to_bf16(element_saturate(x, ELEMENT_LIMIT_BF16, ELEMENT_LARGEST_BF16));
}

/* Returns how many bytes of n elements are in the first or second vector of float32. */
GPU_BODY uint32_t gpu_half_bytes(uint32_t n, uint32_t half)
{
	if (half)
		return n > 4 ? (n - 4) * 4 : 0;
	return n > 4 ? 16 : n * 4;
}

/* ENCODE of float16 and bfloat16. */
GPU_BODY void gpu_encode_shorts(const struct gpu_work *w, uint64_t index, uint64_t n_threads)
{
	struct gpu_groups groups = gpu_groups_at(w->dst, w->count, 2, 8);
	struct gpu_range src = gpu_range_of(w->src, w->count * 4);

	GPU_ROLL
	for (uint64_t i = index; i < groups.n; i += n_threads) {
		uint64_t first;
		uint32_t n = gpu_group(groups, i, &first);
		union gpu_vector v;

		GPU_UNROLL
		for (uint32_t half = 0; half < 2; half++) {
			union gpu_vector x = gpu_load(
				w->src + first * 4 + half * 16, gpu_half_bytes(n, half), src);

			GPU_UNROLL
			for (int j = 0; j < 2; j++)
				v.words[half * 2 + j] = gpu_shorter(x.f32[2 * j], w->wire) |
					gpu_shorter(x.f32[2 * j + 1], w->wire) << 16;
		}
		gpu_put(w, first * 2, v, n * 2);
	}
}

/* Returns the bits of the largest magnitude among n elements, starting at `first`. */
GPU_BODY uint32_t gpu_largest(
	const struct gpu_work *w, uint64_t first, uint32_t n, struct gpu_range src)
{
	uint32_t largest = 0;

	GPU_ROLL
	for (uint32_t i = 0; i < n; i += 4) {
		union gpu_vector x = gpu_load(
			w->src + (first + i) * 4, gpu_half_bytes(n - i < 4 ? n - i : 4, 0), src);

		GPU_UNROLL
		for (int j = 0; j < 4; j++) {
			uint32_t magnitude = x.words[j] & 0x7fffffff;

			largest = magnitude > largest ? magnitude : largest;
		}
	}
	return largest;
}

/* ENCODE of int8: a thread handles a whole block, so no thread needs another thread's numbers. */
GPU_BODY void gpu_encode_blocks(const struct gpu_work *w, uint64_t index, uint64_t n_threads)
{
	struct gpu_range src = gpu_range_of(w->src, w->count * 4);

	GPU_ROLL
	for (uint64_t i = index; i * FRL_WIRE_BLOCK < w->count; i += n_threads) {
		uint64_t first = i * FRL_WIRE_BLOCK, rest = w->count - first;
		uint64_t offset = i * GPU_WIRE_BLOCK_BYTES;
		uint32_t n = rest < FRL_WIRE_BLOCK ? (uint32_t)rest : FRL_WIRE_BLOCK;
		uint32_t scale = element_block_scale(gpu_largest(w, first, n, src));
		float inverse = 1.0f / element_from_bf16((uint16_t)scale);
		union gpu_vector v = gpu_splat(w->scalar, 1);

		v.words[0] = scale;
		gpu_put(w, offset, v, 2);
		GPU_ROLL
		for (uint32_t j = 0; j < n; j += 4) {
			uint32_t some = n - j < 4 ? n - j : 4;
			union gpu_vector x = gpu_load(w->src + (first + j) * 4, some * 4, src);

			v.words[0] = 0;
			GPU_UNROLL
			for (int k = 0; k < 4; k++)
				v.words[0] |= (uint32_t)(uint8_t)element_to_block(x.f32[k], inverse)
					<< k * 8;
			if (scale == ELEMENT_NAN_BF16)
				v.words[0] = 0;
			gpu_put(w, offset + 2 + j, v, some);
		}
	}
}

/* Eight decoded elements; only the first n are valid. */
struct gpu_decoded {
	union gpu_vector halves[2];
};

GPU_BODY struct gpu_decoded gpu_decode(
	const struct gpu_work *w, uint64_t first, uint32_t n, struct gpu_range src)
{
	struct gpu_decoded d;
	union gpu_vector v;

	if (w->wire == FRL_WIRE_INT8) {
		/* A group never spans two blocks. */
		uint64_t block = w->src + first / FRL_WIRE_BLOCK * GPU_WIRE_BLOCK_BYTES;
		uint32_t scale_bits = *(const gpu_u8 *)block |
			(uint32_t) * (const gpu_u8 *)(block + 1) << 8;
		float scale = element_from_bf16((uint16_t)scale_bits);
		uint64_t at = block + 2 + first % FRL_WIRE_BLOCK;

		/* Load all 16 bytes if they belong to the piece, even if fewer elements are
		 * needed. */
		v = gpu_load(at, at + 16 <= src.end ? 16 : n, src);
		GPU_UNROLL
		for (int i = 0; i < 8; i++)
			d.halves[i / 4].f32[i % 4] = element_from_block(v.i8[i], scale);
		return d;
	}
	v = gpu_load(w->src + first * 2, n * 2, src);
	GPU_UNROLL
	for (int i = 0; i < 8; i++)
		d.halves[i / 4].f32[i % 4] = w->wire == FRL_WIRE_FLOAT16
			? element_from_f16(v.shorts[i])
			: element_from_bf16(v.shorts[i]);
	return d;
}

/* Returns op(x, decoded y). For int8 blocks, a NaN operand yields the NaN of FRL_SUM with every
 * operation. */
GPU_BODY union gpu_vector gpu_combine(
	union gpu_vector x, union gpu_vector y, uint32_t op, uint32_t wire)
{
	union gpu_vector v = gpu_vector_f32(x, y, op, 1);

	if (wire != FRL_WIRE_INT8 || op == FRL_SUM || op == FRL_PROD)
		return v;
	GPU_UNROLL
	for (int i = 0; i < 4; i++)
		if (x.f32[i] != x.f32[i] || y.f32[i] != y.f32[i])
			v.f32[i] = element_sum_f32(x.f32[i], y.f32[i]);
	return v;
}

/* DECODE and DECODE_REDUCE. Groups start where blocks start. */
GPU_BODY void gpu_work_decode(const struct gpu_work *w, uint64_t index, uint64_t n_threads)
{
	uint64_t dst = w->wire == FRL_WIRE_INT8 ? 0 : w->dst;
	struct gpu_groups groups = gpu_groups_at(dst, w->count, 4, 8);
	struct gpu_range src = gpu_range_of(w->src, gpu_wire_bytes(w->wire, w->count));
	struct gpu_range operand = gpu_range_of(w->operand, w->count * 4);

	GPU_ROLL
	for (uint64_t i = index; i < groups.n; i += n_threads) {
		uint64_t first;
		uint32_t n = gpu_group(groups, i, &first);
		struct gpu_decoded d = gpu_decode(w, first, n, src);

		GPU_UNROLL
		for (uint32_t half = 0; half < 2; half++) {
			uint64_t offset = first * 4 + half * 16;
			uint32_t bytes = gpu_half_bytes(n, half);
			union gpu_vector v = d.halves[half];

			if (w->action == GPU_DECODE_REDUCE)
				v = gpu_combine(gpu_load(w->operand + offset, bytes, operand), v,
					w->op, w->wire);
			gpu_put(w, offset, v, bytes);
		}
	}
}

/* Performs the share of thread `index` of `n_threads` of a piece. Works with any number of threads,
 * in any order. */
GPU_BODY void gpu_work_share(const struct gpu_work *w, uint64_t index, uint64_t n_threads)
{
	int is_wire = w->action >= GPU_ENCODE && w->wire != FRL_WIRE_SAME;
	uint32_t what = GPU_COPIED, dtype = w->dtype;
	uint64_t count = w->count;

	if (w->action == GPU_DIVIDE && w->divisor == 0)
		return;
	if (is_wire && w->action != GPU_ENCODE) {
		gpu_work_decode(w, index, n_threads);
	} else if (is_wire && w->wire == FRL_WIRE_INT8) {
		gpu_encode_blocks(w, index, n_threads);
	} else if (is_wire) {
		gpu_encode_shorts(w, index, n_threads);
	} else {
		switch (w->action) {
		case GPU_REDUCE: what = w->op; break;
		case GPU_SCALE: what = FRL_PROD; break;
		case GPU_DIVIDE: what = GPU_DIVIDED; break;
		case GPU_DECODE_REDUCE:
			what = w->op;
			dtype = FRL_FLOAT32;
			break;
		default: /* bytes */ count = gpu_work_dst_bytes(w); dtype = FRL_UINT8;
		}
		gpu_work_same(w, dtype, what, count, index, n_threads);
	}
}

/* Performs one thread's share in one block of a batch. */
GPU_BODY void gpu_pieces_share(const struct gpu_work *pieces, const uint16_t *first_block,
	uint32_t n_pieces, uint32_t block, uint32_t thread)
{
	uint32_t low = 0, high = n_pieces;

	while (high - low > 1) {
		uint32_t middle = (low + high) / 2;

		if (first_block[middle] <= block)
			low = middle;
		else
			high = middle;
	}
	gpu_work_share(&pieces[low],
		(uint64_t)(block - first_block[low]) * GPU_BLOCK_THREADS + thread,
		(uint64_t)(first_block[low + 1] - first_block[low]) * GPU_BLOCK_THREADS);
}

#undef GPU_AT_ONCE
#undef GPU_BY_WORD
#undef GPU_TYPE
#endif
