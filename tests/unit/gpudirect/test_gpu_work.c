/* SPDX-License-Identifier: BSD-3-Clause */
/* The code that a GPU runs, compiled for the processor: every action, type, operation and wire type
 * bit for bit against lib/reduce, at all alignments, its threads in random order. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "gpudirect/kernels/work_body.h"
#include "lib/base/random.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/reduce_fixture.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

enum {
	MAX_COUNT = 700, /* elements: more than five blocks of the wire's */
	GUARD = 32,
	ROOM = GUARD + 16 + MAX_COUNT * 8 + GUARD,
	MAX_THREADS = 70,
	ALIGNMENTS = 16,
};

enum block { DST, SRC, OPERAND, ALSO, BLOCKS };

enum alias { APART, DST_IS_OPERAND, DST_IS_SRC, ALL_ONE, ALIASES };

/* A tested combination: an action with its parameters. */
struct kind {
	enum gpu_action action;
	enum frl_dtype dtype;
	enum frl_op op;
	enum frl_wire wire;
};

static struct kind kinds[200];
static int n_kinds;

static void add_kind(int action, int dtype, int op, int wire)
{
	kinds[n_kinds++] = (struct kind){ (enum gpu_action)action, (enum frl_dtype)dtype,
		(enum frl_op)op, (enum frl_wire)wire };
}

static void list_kinds(void)
{
	n_kinds = 0;
	add_kind(GPU_COPY, FRL_DTYPES, FRL_OPS, FRL_WIRES);
	for (int dtype = 0; dtype < FRL_DTYPES; dtype++) {
		for (int op = FRL_SUM; op <= FRL_MIN; op++)
			add_kind(GPU_REDUCE, dtype, op, FRL_WIRES);
		add_kind(GPU_SCALE, dtype, FRL_OPS, FRL_WIRES);
		add_kind(GPU_DIVIDE, dtype, FRL_OPS, FRL_WIRES);
	}
	for (int wire = 0; wire < FRL_WIRES; wire++) {
		add_kind(GPU_ENCODE, FRL_FLOAT32, FRL_OPS, wire);
		add_kind(GPU_DECODE, FRL_FLOAT32, FRL_OPS, wire);
		for (int op = FRL_SUM; op <= FRL_MIN; op++)
			add_kind(GPU_DECODE_REDUCE, FRL_FLOAT32, op, wire);
	}
}

/* The same by the processor's code. Memory is aligned and apart. */
static void expect(const struct gpu_work *work, void *dst, const void *src, const void *operand)
{
	enum frl_dtype dtype = (enum frl_dtype)work->dtype;
	enum frl_wire wire = (enum frl_wire)work->wire;
	enum frl_op op = (enum frl_op)work->op;
	size_t count = work->count;

	switch (work->action) {
	case GPU_COPY: memcpy(dst, src, count); break;
	case GPU_REDUCE: frl_reduce_local_plain(dst, operand, src, count, dtype, op); break;
	case GPU_SCALE: frl_scale_local(dst, src, count, dtype, work->scalar); break;
	case GPU_DIVIDE: frl_divide_local(dst, src, count, dtype, work->divisor); break;
	case GPU_ENCODE: frl_wire_encode(dst, src, count, wire); break;
	case GPU_DECODE: frl_wire_decode(dst, src, count, wire); break;
	case GPU_DECODE_REDUCE: frl_wire_decode_reduce(dst, operand, src, count, wire, op); break;
	default: ck_abort();
	}
}

/* Its threads one by one, in random order. */
static void run(const struct gpu_work *work, struct random_state *random)
{
	uint32_t order[MAX_THREADS], n = 1 + (uint32_t)(random_u64(random) % MAX_THREADS);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t j = (uint32_t)(random_u64(random) % (i + 1));

		order[i] = order[j];
		order[j] = i;
	}
	for (uint32_t i = 0; i < n; i++)
		gpu_work_share(work, order[i], n);
}

/* One piece and the memory that it works on, filled and with guards around. */
struct trial {
	struct gpu_work work;
	uint8_t *at[BLOCKS];
	size_t bytes[BLOCKS];
	uint8_t blocks[BLOCKS][ROOM] __attribute__((aligned(64)));
	uint8_t wanted[BLOCKS][ROOM] __attribute__((aligned(64)));
};

static void fill(void *p, size_t bytes, enum frl_dtype dtype, struct random_state *random)
{
	size_t size = dtype < FRL_DTYPES ? frl_dtype_size(dtype) : 1;

	fill_elements(p, bytes / size, dtype < FRL_DTYPES ? dtype : FRL_UINT8, random);
	for (size_t i = bytes / size * size; i < bytes; i++)
		((uint8_t *)p)[i] = (uint8_t)random_u64(random);
}

/* The expected contents of the memory. */
static void predict(struct trial *t)
{
	static uint64_t dst[ROOM / 8], src[ROOM / 8], operand[ROOM / 8];
	size_t written = t->bytes[DST];

	memcpy(src, t->at[SRC], t->bytes[SRC]);
	memcpy(operand, t->at[OPERAND], t->bytes[OPERAND]);
	memcpy(dst, t->at[DST], written);
	if (t->work.action == GPU_DIVIDE && t->work.divisor == 0)
		written = 0;
	expect(&t->work, dst, src, operand);
	memcpy(t->wanted, t->blocks, sizeof(t->wanted));
	for (int i = 0; i < BLOCKS; i++)
		if (t->at[i] == t->at[DST] || i == ALSO)
			memcpy(&t->wanted[0][0] + (t->at[i] - &t->blocks[0][0]), dst, written);
}

static void prepare(struct trial *t, const struct kind *kind, const size_t offsets[BLOCKS],
	enum alias alias, size_t count, struct random_state *random)
{
	bool is_random_op = kind->op == FRL_OPS;

	memset(t->blocks, 0xa5, sizeof(t->blocks));
	for (int i = 0; i < BLOCKS; i++)
		t->at[i] = t->blocks[i] + GUARD + offsets[i];
	if (alias == DST_IS_OPERAND || alias == ALL_ONE)
		t->at[OPERAND] = t->at[DST];
	if ((alias == DST_IS_SRC || alias == ALL_ONE) && kind->action < GPU_ENCODE)
		t->at[SRC] = t->at[DST];
	t->work = (struct gpu_work){
		.dst = (uintptr_t)t->at[DST],
		.src = (uintptr_t)t->at[SRC],
		.operand = (uintptr_t)t->at[OPERAND],
		.also = (uintptr_t)t->at[ALSO],
		.count = count,
		.action = (uint8_t)kind->action,
		.dtype = (uint8_t)kind->dtype,
		.op = (uint8_t)(is_random_op ? random_u64(random) : kind->op),
		.wire = (uint8_t)kind->wire,
		.divisor = (uint32_t)(random_u64(random) >> random_u64(random) % 64),
	};
	t->bytes[DST] = t->bytes[ALSO] = gpu_work_dst_bytes(&t->work);
	t->bytes[SRC] = gpu_work_src_bytes(&t->work);
	t->bytes[OPERAND] = gpu_work_operand_bytes(&t->work);
	for (int i = 0; i < BLOCKS; i++)
		fill(t->at[i], t->bytes[i], kind->dtype, random);
	if (kind->action == GPU_SCALE)
		fill(t->work.scalar, frl_dtype_size(kind->dtype), kind->dtype, random);
}

/* Under AddressSanitizer the bytes around the operands must not even be read. */
static void guard(struct trial *t, bool is_guarded)
{
	for (int i = 0; i < BLOCKS; i++) {
		if (is_guarded)
			ASAN_POISON_MEMORY_REGION(t->blocks[i], ROOM);
		else
			ASAN_UNPOISON_MEMORY_REGION(t->blocks[i], ROOM);
	}
	for (int i = 0; i < BLOCKS && is_guarded; i++)
		ASAN_UNPOISON_MEMORY_REGION(t->at[i], t->bytes[i]);
}

static void try_one(const struct kind *kind, const size_t offsets[BLOCKS], enum alias alias,
	size_t count, struct random_state *random)
{
	static struct trial t;

	prepare(&t, kind, offsets, alias, count, random);
	if (random_u64(random) % 4 == 0) {
		t.work.also = 0;
		t.at[ALSO] = t.at[DST];
		t.bytes[ALSO] = 0;
	}
	predict(&t);
	guard(&t, true);
	run(&t.work, random);
	guard(&t, false);
	for (int i = 0; i < BLOCKS; i++) {
		size_t j = 0;

		if (memcmp(t.blocks[i], t.wanted[i], ROOM) == 0)
			continue;
		while (t.blocks[i][j] == t.wanted[i][j])
			j++;
		ck_abort_msg("action %d, type %d, op %d, wire %d, alias %d, %zu elements, offsets "
			     "%zu %zu %zu %zu: block %d byte %d is %02x, not %02x",
			(int)kind->action, (int)kind->dtype, (int)kind->op, (int)kind->wire,
			(int)alias, count, offsets[DST], offsets[SRC], offsets[OPERAND],
			offsets[ALSO], i, (int)j - GUARD, t.blocks[i][j], t.wanted[i][j]);
	}
}

/* Counts at which something begins or ends, and any others. */
static size_t some_count(struct random_state *random)
{
	static const size_t edges[] = { 0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 127, 128,
		129, 255, 256, 257, 512, MAX_COUNT };
	uint64_t kind = random_u64(random);

	if (kind % 3 == 0)
		return edges[(kind >> 8) % (sizeof(edges) / sizeof(edges[0]))];
	return (kind >> 8) % (kind % 3 == 1 ? 64 : MAX_COUNT);
}

START_LOOP_TEST(alignments, ALIGNMENTS)
{
	struct random_state random;

	list_kinds();
	random_seed(&random, (uint64_t)_i);
	for (int k = 0; k < n_kinds; k++)
		for (size_t src = 0; src < ALIGNMENTS; src++) {
			size_t offsets[BLOCKS] = { (size_t)_i, src,
				random_u64(&random) % ALIGNMENTS,
				random_u64(&random) % ALIGNMENTS };

			try_one(&kinds[k], offsets, APART, some_count(&random), &random);
			try_one(&kinds[k], offsets, APART, some_count(&random), &random);
		}
}
END_TEST

START_LOOP_TEST(in_place, ALIGNMENTS)
{
	struct random_state random;

	list_kinds();
	random_seed(&random, 100 + (uint64_t)_i);
	for (int k = 0; k < n_kinds; k++)
		for (int alias = APART; alias < ALIASES; alias++)
			for (size_t other = 0; other < ALIGNMENTS; other++) {
				size_t offsets[BLOCKS] = { (size_t)_i, other, other, other };

				try_one(&kinds[k], offsets, (enum alias)alias, some_count(&random),
					&random);
			}
}
END_TEST

/* Every short count of every kind, where all is aligned and where nothing is. */
START_TEST(counts)
{
	static const size_t aligned[BLOCKS] = { 0, 0, 0, 0 }, apart[BLOCKS] = { 4, 6, 9, 2 };
	struct random_state random;

	list_kinds();
	random_seed(&random, 200);
	for (int k = 0; k < n_kinds; k++)
		for (size_t count = 0; count <= 140; count++) {
			try_one(&kinds[k], aligned, APART, count, &random);
			try_one(&kinds[k], apart, APART, count, &random);
		}
}
END_TEST

/* All encodings of the shorter types, some of which a random choice may miss. */
START_RANGE_TEST(all_shorts, FRL_WIRE_FLOAT16, FRL_WIRE_BFLOAT16 + 1)
{
	static uint16_t src[65536] __attribute__((aligned(16)));
	static float decoded[65536] __attribute__((aligned(16))), wanted[65536];
	static uint16_t encoded[65536] __attribute__((aligned(16))), back[65536];
	struct gpu_work work = { .count = 65536, .wire = (uint8_t)_i };

	for (uint32_t i = 0; i < 65536; i++)
		src[i] = (uint16_t)i;
	work.action = GPU_DECODE;
	work.src = (uintptr_t)src;
	work.dst = (uintptr_t)decoded;
	gpu_work_share(&work, 0, 1);
	frl_wire_decode(wanted, src, 65536, (enum frl_wire)_i);
	ck_assert_mem_eq(decoded, wanted, sizeof(wanted));
	work.action = GPU_ENCODE;
	work.src = (uintptr_t)wanted;
	work.dst = (uintptr_t)encoded;
	gpu_work_share(&work, 0, 1);
	frl_wire_encode(back, wanted, 65536, (enum frl_wire)_i);
	ck_assert_mem_eq(encoded, back, sizeof(back));
}
END_TEST

/* All pairs of elements of a byte. */
START_LOOP_TEST(all_pairs_of_bytes, 4)
{
	static uint8_t a[65536] __attribute__((aligned(16))), b[65536] __attribute__((aligned(16)));
	static uint8_t dst[65536] __attribute__((aligned(16))), wanted[65536];
	static const uint8_t dtypes[] = { FRL_INT8, FRL_UINT8, FRL_FLOAT8_E4M3, FRL_FLOAT8_E5M2 };
	struct gpu_work work = { .action = GPU_REDUCE,
		.count = 65536,
		.dtype = dtypes[_i],
		.dst = (uintptr_t)dst,
		.src = (uintptr_t)b,
		.operand = (uintptr_t)a };

	for (uint32_t i = 0; i < 65536; i++) {
		a[i] = (uint8_t)i;
		b[i] = (uint8_t)(i >> 8);
	}
	for (work.op = FRL_SUM; work.op <= FRL_MIN; work.op++) {
		gpu_work_share(&work, 0, 1);
		frl_reduce_local_plain(
			wanted, a, b, 65536, (enum frl_dtype)work.dtype, (enum frl_op)work.op);
		ck_assert_mem_eq(dst, wanted, sizeof(wanted));
	}
}
END_TEST

/* Blocks and threads of a batch in random order: every piece is all done, and once. */
START_LOOP_TEST(batches, 13)
{
	enum { LENGTH = 9000 };
	static uint8_t dst[GPU_BATCH_MANY][LENGTH], src[GPU_BATCH_MANY][LENGTH];
	static struct gpu_batch_many batch;
	static uint32_t order[GPU_BATCH_MANY * 4 * GPU_BLOCK_THREADS];
	struct random_state random;
	uint32_t block = 0, n;

	random_seed(&random, (uint64_t)_i);
	memset(dst, 0, sizeof(dst));
	/* The last one is full. */
	batch.n_pieces = _i == 12 ? GPU_BATCH_MANY : 1 + (uint32_t)_i * 7 % GPU_BATCH_PIECES;
	for (uint32_t i = 0; i < batch.n_pieces; i++) {
		fill(src[i], LENGTH, FRL_UINT8, &random);
		batch.pieces[i] = (struct gpu_work){ .action = GPU_REDUCE,
			.dtype = FRL_UINT8,
			.dst = (uintptr_t)dst[i],
			.operand = (uintptr_t)dst[i],
			.src = (uintptr_t)src[i],
			.count = LENGTH };
		batch.first_block[i] = (uint16_t)block;
		block += 1 + (uint32_t)(random_u64(&random) % 4);
	}
	batch.first_block[batch.n_pieces] = (uint16_t)block;
	batch.n_blocks = block;
	n = block * GPU_BLOCK_THREADS;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t j = (uint32_t)(random_u64(&random) % (i + 1));

		order[i] = order[j];
		order[j] = i;
	}
	for (uint32_t i = 0; i < n; i++)
		gpu_pieces_share(batch.pieces, batch.first_block, batch.n_pieces,
			order[i] / GPU_BLOCK_THREADS, order[i] % GPU_BLOCK_THREADS);
	for (uint32_t i = 0; i < batch.n_pieces; i++)
		ck_assert_mem_eq(dst[i], src[i], LENGTH);
}
END_TEST

TEST_MAIN(gpu_work)
{
	/* The maximum of a kernel's parameters, before CUDA 12.1 and since, and pieces that
	 * continue in the next one. */
	_Static_assert(sizeof(struct gpu_batch) <= 4096, "more than a kernel is given");
	_Static_assert(sizeof(struct gpu_batch_many) <= 32764, "more than a kernel is given");
	_Static_assert(sizeof(struct gpu_work) == 64, "pieces lie close together");
	return run_suite(all_tests(NULL, NULL));
}
