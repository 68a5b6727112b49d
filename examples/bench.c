/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The benchmark: for each size, first out of place, then in place: check a result, warm up, time
 * iterations back to back, check again. Elements are small whole numbers, so their sum is exact in
 * float32 and every wrong element can be counted. Ranks tell each other their numbers by small
 * allreduces, because the bootstrap is lent to the communicator.
 */
#include "examples/allreduce.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "examples/outfile.h"

enum {
	PERIOD = 1021, /* elements; a prime, so that no chunk size hides a shifted result */
	MIN_ITERS = 5,
	MAX_ITERS = 20000,
	MAX_WRONG = 1 << 17, /* counted a rank: the sum over 64 ranks is exact in float32 */
};

static const double seconds_of_iters = 0.2;

struct bench {
	struct session *session;
	float *send, *recv;
	float mine[PERIOD];     /* what this rank contributes */
	float expected[PERIOD]; /* and what comes out */
	json_t *rows;           /* NULL: no JSON is wanted */
	uint64_t wrong;
};

/* One of the two blocks of columns. */
struct block {
	uint64_t iters;
	double us, algbw, busbw;
	uint64_t wrong;
};

static float element(int rank, size_t i)
{
	return (float)((int)((i * 31 + (size_t)rank * 17) % PERIOD) - PERIOD / 2);
}

static void make_tables(struct bench *b)
{
	for (size_t i = 0; i < PERIOD; i++) {
		b->mine[i] = element(b->session->rank, i);
		for (int r = 0; r < b->session->options->ranks; r++)
			b->expected[i] += element(r, i);
	}
}

static void fill(const struct bench *b, float *at, size_t count)
{
	for (size_t i = 0, left; i < count; i += PERIOD) {
		left = count - i;
		memcpy(at + i, b->mine, (left < PERIOD ? left : PERIOD) * sizeof(float));
	}
}

static uint64_t count_wrong(const struct bench *b, const float *at, size_t count)
{
	uint64_t wrong = 0;

	for (size_t i = 0; i < count; i += PERIOD)
		for (size_t k = 0; k < PERIOD && i + k < count; k++)
			wrong += at[i + k] != b->expected[k];
	return wrong;
}

/* The sum of one number of each rank. */
static int sum_up(const struct bench *b, double mine, double *ret_sum)
{
	float value = (float)mine;
	int rc = frl_allreduce(b->session->comm, &value, &value, 1, FRL_FLOAT32, FRL_SUM);

	*ret_sum = (double)value;
	return rc;
}

static int repeat(
	const struct bench *b, const float *send, size_t count, uint64_t iters, double *ret_seconds)
{
	uint64_t start = now_ns();
	int rc = 0;

	for (uint64_t i = 0; i < iters && !rc; i++)
		rc = frl_allreduce(b->session->comm, send, b->recv, count, FRL_FLOAT32, FRL_SUM);
	*ret_seconds = (double)(now_ns() - start) * 1e-9;
	return rc;
}

/* One allreduce of known numbers; `wrong` grows by the elements that came out otherwise. */
static int check_once(struct bench *b, const float *send, size_t count, uint64_t *wrong)
{
	double seconds;
	int rc;

	if (send != b->recv)
		memset(b->recv, 0xff, count * sizeof(float)); /* NaN: equals nothing */
	fill(b, send == b->recv ? b->recv : b->send, count);
	rc = repeat(b, send, count, 1, &seconds);
	if (!rc)
		*wrong += count_wrong(b, b->recv, count);
	return rc;
}

/* All ranks must do the same number: rank 0 decides. */
static int choose_iters(const struct bench *b, const float *send, size_t count, uint64_t *ret_iters)
{
	const struct options *o = b->session->options;
	uint64_t warmup = o->iters || o->warmup ? o->warmup : 1;
	double seconds = 0, iters, chosen = 0;
	int rc = repeat(b, send, count, warmup, &seconds);

	if (rc || o->iters) {
		*ret_iters = o->iters;
		return rc;
	}
	iters = seconds_of_iters * (double)warmup / (seconds + 1e-9);
	if (b->session->rank == 0)
		chosen = iters < MIN_ITERS ? MIN_ITERS : iters > MAX_ITERS ? MAX_ITERS : iters;
	rc = sum_up(b, (double)(uint64_t)chosen, &chosen);
	if (!rc && !(chosen >= MIN_ITERS && chosen <= MAX_ITERS))
		rc = -EPROTO;
	*ret_iters = rc ? 0 : (uint64_t)chosen;
	return rc;
}

static int measure(struct bench *b, const float *send, size_t count, struct block *ret_block)
{
	double n = b->session->options->ranks, seconds = 0, sum = 0, wrong = 0;
	struct block block = { 0 };
	int rc = check_once(b, send, count, &block.wrong);

	if (!rc)
		rc = choose_iters(b, send, count, &block.iters);
	if (!rc)
		rc = frl_barrier(b->session->comm);
	if (!rc)
		rc = repeat(b, send, count, block.iters, &seconds);
	if (!rc)
		rc = sum_up(b, seconds / (double)block.iters, &sum);
	if (!rc)
		rc = check_once(b, send, count, &block.wrong);
	if (!rc)
		rc = sum_up(b, (double)(block.wrong < MAX_WRONG ? block.wrong : MAX_WRONG), &wrong);
	if (rc)
		return rc;
	block.us = sum / n * 1e6;
	block.algbw = (double)(count * sizeof(float)) / block.us / 1e3;
	block.busbw = block.algbw * 2 * (n - 1) / n;
	block.wrong = (uint64_t)wrong;
	b->wrong += block.wrong;
	*ret_block = block;
	return 0;
}

static void print_heading(const struct session *s)
{
	printf("# allreduce, %d ranks, %s, path MTU %" PRIu32 "\n", s->options->ranks,
		s->attr.local_fabric ? "local fabric" : s->attr.port, s->attr.path_mtu);
	printf("# time: mean over ranks of the mean iteration, back to back; busbw = algbw * "
	       "2(n-1)/n; #wrong: elements, all ranks\n#\n");
	printf("# %36s   %33s   %33s\n", "", "out-of-place            ", "in-place             ");
	printf("# %10s %12s %6s %5s   %9s %7s %7s %7s   %9s %7s %7s %7s\n", "size", "count", "type",
		"redop", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
	printf("# %10s %12s %6s %5s   %9s %7s %7s %7s   %9s %7s %7s %7s\n", "(B)", "(elements)", "",
		"", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
	fflush(stdout);
}

static void print_row(size_t count, const struct block blocks[2])
{
	printf("  %10zu %12zu %6s %5s", count * sizeof(float), count, "float", "sum");
	for (int i = 0; i < 2; i++)
		printf("   %9.2f %7.3f %7.3f %7" PRIu64, blocks[i].us, blocks[i].algbw,
			blocks[i].busbw, blocks[i].wrong);
	printf("\n");
	fflush(stdout);
}

static json_t *json_block(const struct block *block)
{
	return json_pack("{s:f, s:f, s:f, s:I, s:I}", "time_us", block->us, "algbw_gbps",
		block->algbw, "busbw_gbps", block->busbw, "wrong", (json_int_t)block->wrong,
		"iters", (json_int_t)block->iters);
}

static int add_json_row(json_t *rows, size_t count, const struct block blocks[2])
{
	json_t *row = json_pack("{s:I, s:I, s:o, s:o}", "size", (json_int_t)(count * sizeof(float)),
		"count", (json_int_t)count, "out_of_place", json_block(&blocks[0]), "in_place",
		json_block(&blocks[1]));

	return row && json_array_append_new(rows, row) == 0 ? 0 : -ENOMEM;
}

static int save_json(const struct bench *b)
{
	const struct session *s = b->session;
	json_t *root = json_pack("{s:s, s:i, s:s, s:i, s:s, s:s, s:O}", "version", FERRULE_VERSION,
		"ranks", s->options->ranks, "port", s->attr.port, "path_mtu", (int)s->attr.path_mtu,
		"dtype", "f32", "op", "sum", "results", b->rows);
	char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
	int rc = -ENOMEM;

	if (text)
		rc = outfile_write(s->options->json,
			(const struct outfile_part[]){ { text, strlen(text) }, { "\n", 1 } }, 2);
	if (rc)
		say("cannot write %s: %s", s->options->json, strerror(-rc));
	free(text);
	json_decref(root);
	return rc;
}

static int sweep(struct bench *b)
{
	const struct options *o = b->session->options;

	for (uint64_t size = o->min; size <= o->max; size *= o->factor) {
		size_t count = (size_t)size / sizeof(float);
		struct block blocks[2];
		int rc = measure(b, b->send, count, &blocks[0]);

		if (!rc)
			rc = measure(b, b->recv, count, &blocks[1]);
		if (rc) {
			say_failure(rc, "allreduce of %zu elements failed", count);
			return rc;
		}
		if (b->session->rank == 0)
			print_row(count, blocks);
		if (b->rows && add_json_row(b->rows, count, blocks)) {
			say("no memory");
			return -ENOMEM;
		}
	}
	return 0;
}

/* All ranks counted the same wrong elements together, so all come to the same verdict. */
static int conclude(const struct bench *b)
{
	int rc = 0;

	if (b->session->rank != 0)
		return b->wrong ? -EIO : 0;
	if (b->rows)
		rc = save_json(b);
	printf("# %s\n", b->wrong ? "FAILED: wrong elements" : "OK: every result was right");
	return b->wrong ? -EIO : rc;
}

static void *allocate(const struct options *o)
{
	return o->use_malloc ? malloc(o->max) : frl_mem_alloc(o->max);
}

static void release(const struct options *o, void *memory)
{
	if (o->use_malloc)
		free(memory);
	else
		frl_mem_free(memory, o->max);
}

int run_bench(struct session *session)
{
	const struct options *o = session->options;
	struct bench b = { .session = session };
	int rc = session_connect(session);

	if (rc)
		return rc;
	b.send = allocate(o);
	b.recv = allocate(o);
	if (session->rank == 0 && o->json)
		b.rows = json_array();
	make_tables(&b);
	if (!b.send || !b.recv) {
		say_failure(-ENOMEM, "no memory for twice %" PRIu64 " bytes", o->max);
		rc = -ENOMEM;
	}
	if (!rc && session->rank == 0)
		print_heading(session);
	if (!rc)
		rc = sweep(&b);
	if (!rc)
		rc = conclude(&b);
	if (rc)
		session_give_up(session);
	session_disconnect(session); /* before the buffers go */
	release(o, b.send);
	release(o, b.recv);
	json_decref(b.rows);
	return rc;
}
