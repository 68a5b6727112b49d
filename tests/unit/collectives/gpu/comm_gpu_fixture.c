/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/collectives/gpu/comm_gpu_fixture.h"

#include <stdio.h>
#include <string.h>

enum { MARGIN = 192, CANARY = 0x5a };

struct gpu *test_gpu;
const struct fake_cuda *fake;

void test_gpu_must(int got, const char *call)
{
	if (got == 0)
		return;
	fprintf(stderr, "%s: %d: %s\n", call, got, frl_last_error());
	abort();
}

void test_gpu_enter(struct gpu *gpu, struct gpu_scope *ret_scope)
{
	MUST(gpu_enter(gpu, ret_scope));
}

bool test_gpu_open(void)
{
	fake = fake_cuda_find();
	if (fake)
		fake->reset();
	if (gpu_hold(NULL, 0, &test_gpu) == 0)
		return true;
	fprintf(stderr, "skipped: %s\n", frl_last_error());
	return false;
}

bool test_gpu_close(void)
{
	gpu_release(test_gpu);
	test_gpu = NULL;
	if (!fake || (!fake->fault()[0] && !fake->leaks()[0]))
		return true;
	fprintf(stderr, "left behind: %s; %s\n", fake->leaks(), fake->fault());
	return false;
}

uint8_t *test_gpu_alloc_in(struct gpu *gpu, size_t bytes)
{
	struct gpu_scope scope;
	cu_deviceptr address;

	test_gpu_enter(gpu, &scope);
	MUST(gpu->cuda->cuMemAlloc(&address, bytes));
	gpu_leave(&scope);
	return (uint8_t *)(uintptr_t)address;
}

uint8_t *test_gpu_alloc(size_t bytes)
{
	return test_gpu_alloc_in(test_gpu, bytes);
}

void test_gpu_free(uint8_t *memory)
{
	struct gpu_scope scope;

	test_gpu_enter(test_gpu, &scope);
	MUST(test_gpu->cuda->cuMemFree((uintptr_t)memory));
	gpu_leave(&scope);
}

void test_gpu_put(uint8_t *to, const void *from, size_t bytes)
{
	struct gpu_scope scope;

	test_gpu_enter(test_gpu, &scope);
	MUST(test_gpu->cuda->cuMemcpyHtoD((uintptr_t)to, from, bytes));
	gpu_leave(&scope);
}

void test_gpu_get(void *to, const uint8_t *from, size_t bytes)
{
	struct gpu_scope scope;

	test_gpu_enter(test_gpu, &scope);
	MUST(test_gpu->cuda->cuMemcpyDtoH(to, (uintptr_t)from, bytes));
	gpu_leave(&scope);
}

/* ---- where buffers lie */

/* Offsets in one piece of memory, in bytes. */
struct layout {
	size_t send, recv, total;
	size_t sent; /* bytes at `send` */
};

static void lay_out(struct layout *l, const struct rank *rank, const struct trial *trial,
	const struct job_vectors *v)
{
	enum frl_coll coll = trial->c.coll;
	bool many_out = coll == FRL_REDUCE_SCATTER || coll == FRL_ALLTOALL || coll == FRL_SCATTER;
	bool many_in = coll == FRL_ALLGATHER || coll == FRL_ALLTOALL || coll == FRL_GATHER;
	bool is_v = coll == FRL_ALLTOALLV;
	size_t size = frl_dtype_size(trial->c.dtype), one = trial->c.count * size;
	size_t sent = is_v ? v->sent * size : one * (many_out ? (size_t)rank->ranks : 1);
	size_t received = is_v ? v->received * size : one * (many_in ? (size_t)rank->ranks : 1);
	size_t own = (size_t)rank->number * one;

	l->sent = sent;
	l->recv = MARGIN + trial->shift;
	l->send = l->recv + received + MARGIN + 2 * trial->shift;
	l->total = l->send + sent + MARGIN;
	if (!trial->in_place)
		return;
	l->send = l->recv;
	if (many_out && !many_in)
		l->recv += own;
	else if (many_in && !many_out)
		l->send += own;
	l->total = MARGIN + trial->shift + (sent > received ? sent : received) + MARGIN;
}

/* ---- what is in them */

static uint32_t next_number(uint32_t *state)
{
	*state = *state * 1664525 + 1013904223;
	return *state >> 8;
}

/* All kinds of bits; but numbers of sensible size if they travel in another format. */
static void fill(
	uint8_t *memory, const struct layout *l, const struct rank *rank, const struct trial *trial)
{
	uint32_t state = trial->seed * 31 + (uint32_t)rank->number * 7919 + 1;

	memset(memory, CANARY, l->total);
	for (size_t i = 0; i < l->sent; i++)
		memory[l->send + i] = (uint8_t)next_number(&state);
	if (trial->c.dtype != FRL_FLOAT32)
		return;
	for (size_t i = 0; i + sizeof(float) <= l->sent; i += sizeof(float)) {
		float value = (float)(int)(next_number(&state) % 20001 - 10000) / 7;

		memcpy(memory + l->send + i, &value, sizeof(value));
	}
}

/* ---- both runs */

static int run_at(struct rank *rank, const struct trial *trial, const struct job_vectors *v,
	const uint8_t *send, uint8_t *recv)
{
	struct frl_collective c = trial->c;

	c.send_counts = v->send_counts;
	c.send_displs = v->send_displs;
	c.recv_counts = v->recv_counts;
	c.recv_displs = v->recv_displs;
	c.send = send;
	c.recv = recv;
	return frl_run(rank->comm, &c);
}

static bool is_same(struct rank *rank, const struct trial *trial, const uint8_t *got,
	const uint8_t *expected, const struct layout *l)
{
	size_t i = 0;

	while (i < l->total && got[i] == expected[i])
		i++;
	return i == l->total ||
		complain(rank,
			"%s of %zu %s, %s, wire %s%s, buffers %u, shift %zu: byte %td of the "
			"result, of %zu, is %u instead of %u",
			frl_coll_name(trial->c.coll), trial->c.count,
			frl_dtype_name(trial->c.dtype), frl_op_name(trial->c.op),
			frl_wire_name(trial->c.wire), trial->in_place ? ", in place" : "",
			trial->where, trial->shift, (ptrdiff_t)i - (ptrdiff_t)l->recv, l->total,
			got[i], expected[i]);
}

struct memory {
	uint8_t *expected, *host, *got, *gpu;
};

/* Memory outside the result is unchanged: the other buffer, and the place without offset. */
static void compare(struct rank *rank, const struct trial *trial, const struct layout *l,
	const struct memory *m, const uint8_t *before)
{
	bool on_gpu = trial->where & RECV_ON_GPU;

	test_gpu_get(m->got, m->gpu, l->total);
	is_same(rank, trial, m->got, on_gpu ? m->expected : before, l);
	is_same(rank, trial, m->host, on_gpu ? before : m->expected, l);
}

bool trial_run(struct rank *rank, const struct trial *trial)
{
	struct job_vectors v;
	struct layout l;
	struct memory m;
	uint8_t *before;

	job_make_vectors(&v, rank, trial->c.count);
	lay_out(&l, rank, trial, &v);
	m.expected = malloc(l.total);
	m.host = malloc(l.total);
	m.got = malloc(l.total);
	before = malloc(l.total);
	m.gpu = test_gpu_alloc(l.total);
	fill(before, &l, rank, trial);
	memcpy(m.expected, before, l.total);
	memcpy(m.host, before, l.total);
	test_gpu_put(m.gpu, before, l.total);
	if (expect(rank, run_at(rank, trial, &v, m.expected + l.send, m.expected + l.recv) == 0) &&
		expect(rank,
			run_at(rank, trial, &v,
				(trial->where & SEND_ON_GPU ? m.gpu : m.host) + l.send,
				(trial->where & RECV_ON_GPU ? m.gpu : m.host) + l.recv) == 0))
		compare(rank, trial, &l, &m, before);
	test_gpu_free(m.gpu);
	free(m.expected);
	free(m.host);
	free(m.got);
	free(before);
	return !rank->failure[0];
}
