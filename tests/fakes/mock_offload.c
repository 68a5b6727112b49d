/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fakes/mock_offload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ferrule/reduce.h>

static struct mock_offload *mock_of(struct offload *offload)
{
	return (struct mock_offload *)(void *)offload;
}

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "mock_offload: %s\n", what);
	abort();
}

static struct mock_transfer *at(const struct mock_offload *mock, uint64_t ticket)
{
	return &mock->transfers[ticket % mock->capacity];
}

static void grow(struct mock_offload *mock)
{
	uint64_t capacity = mock->capacity ? 2 * mock->capacity : 64;
	struct mock_transfer *transfers = calloc(capacity, sizeof(*transfers));

	require(transfers, "out of memory");
	for (uint64_t i = mock->done + 1; mock->transfers && i <= mock->given; i++)
		transfers[i % capacity] = *at(mock, i);
	free(mock->transfers);
	mock->transfers = transfers;
	mock->capacity = capacity;
}

static uint64_t add(struct mock_offload *mock, const struct mock_transfer *transfer)
{
	if (mock->error || mock->given - mock->done >= mock->room)
		return 0;
	if (mock->given - mock->done + 1 >= mock->capacity)
		grow(mock);
	*at(mock, ++mock->given) = *transfer;
	return mock->given;
}

static uint8_t *view_of(const struct mock_offload *mock, const uint8_t *there, uint32_t length)
{
	for (unsigned i = 0; i < MOCK_MEMORIES; i++) {
		const struct mock_memory *memory = &mock->memories[i];

		if (memory->there && there >= memory->there &&
			there + length <= memory->there + memory->size)
			return memory->view + (there - memory->there);
	}
	require(false, "that is none of its memory");
	return NULL;
}

static uint64_t place(struct offload *offload, const struct offload_placement *p)
{
	struct mock_offload *mock = mock_of(offload);
	struct mock_transfer transfer = {
		.dst = p->dst,
		.also = p->also,
		.src = p->src,
		.payload = p->payload,
		.is_there = p->is_there,
		.length = p->length,
		.has_action = p->action,
	};

	view_of(mock, p->dst, p->length);
	if (p->is_there)
		view_of(mock, p->payload, p->length);
	if (p->action)
		transfer.action = *p->action;
	return add(mock, &transfer);
}

static uint64_t gather(struct offload *offload, uint8_t *host, const uint8_t *src, uint32_t length)
{
	struct mock_offload *mock = mock_of(offload);

	view_of(mock, src, length);
	return add(mock,
		&(struct mock_transfer){
			.is_gather = true, .dst = host, .payload = src, .length = length });
}

static void launch(struct offload *offload)
{
	struct mock_offload *mock = mock_of(offload);

	if (mock->launched == mock->given || mock->launched - mock->done > mock->launch_room)
		return;
	mock->launches++;
	mock->launched = mock->given;
}

static uint64_t done(struct offload *offload)
{
	struct mock_offload *mock = mock_of(offload);

	if (mock->error)
		return mock->still_runs ? mock->done : mock->given;
	mock_offload_step(mock, mock->speed);
	return mock->done;
}

static const char *error(struct offload *offload)
{
	return mock_of(offload)->error;
}

static bool reaches(struct offload *offload, const void *host, size_t length)
{
	const struct mock_offload *mock = mock_of(offload);

	return mock->reaches_one_in && (uintptr_t)host / 64 % mock->reaches_one_in == 0;
}

static int map(struct offload *offload, void *host, size_t length)
{
	struct mock_offload *mock = mock_of(offload);

	if (mock->map_error && mock->map_succeeds-- == 0)
		return mock->map_error;
	require(mock->n_maps < MOCK_MAPS, "too much is mapped");
	mock->maps[mock->n_maps++] = (struct mock_map){ host, length };
	return 0;
}

static void unmap(struct offload *offload, void *host, size_t length)
{
	struct mock_offload *mock = mock_of(offload);

	for (unsigned i = 0; i < mock->n_maps; i++) {
		if (mock->maps[i].addr != host || mock->maps[i].length != length)
			continue;
		mock->maps[i] = mock->maps[--mock->n_maps];
		return;
	}
	require(false, "what is unmapped was not mapped");
}

void mock_offload_init(struct mock_offload *mock, uint64_t seed)
{
	static const struct offload_ops ops = {
		.place = place,
		.gather = gather,
		.launch = launch,
		.done = done,
		.error = error,
		.reaches = reaches,
		.map = map,
		.unmap = unmap,
	};

	*mock = (struct mock_offload){
		.base.ops = &ops, .room = UINT32_MAX, .launch_room = UINT32_MAX, .reaches_one_in = 1
	};
	random_seed(&mock->random, seed);
}

void mock_offload_fini(struct mock_offload *mock)
{
	require(mock->n_maps == 0, "something is still mapped");
	require(mock->error || mock->done == mock->given, "transfers are under way");
	for (unsigned i = 0; i < MOCK_MEMORIES; i++)
		mock_offload_free(mock, &mock->memories[i]);
	free(mock->transfers);
}

int mock_offload_attach(struct mock_offload *mock, struct engine *engine)
{
	int rc = engine_prepare_offload(engine);

	if (!rc)
		rc = engine_map_offload(engine, &mock->base);
	if (!rc)
		engine_attach_offload(engine, &mock->base);
	return rc;
}

void mock_offload_detach(struct mock_offload *mock, struct engine *engine)
{
	engine_detach_offload(engine, &mock->base);
	engine_unmap_offload(engine, &mock->base);
}

struct mock_memory *mock_offload_memory(struct mock_offload *mock, size_t size)
{
	int fd = memfd_create("ferrule-mock", MFD_CLOEXEC);
	struct mock_memory *memory = mock->memories;

	while (memory->there)
		memory++;
	require(memory < mock->memories + MOCK_MEMORIES, "too many memories");
	require(fd >= 0 && ftruncate(fd, (off_t)size) == 0, "no memory");
	memory->there = mmap(NULL, size, PROT_NONE, MAP_SHARED, fd, 0);
	memory->view = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	require(memory->there != MAP_FAILED && memory->view != MAP_FAILED, "no mapping");
	memory->size = size;
	close(fd);
	return memory;
}

void mock_offload_free(struct mock_offload *mock, struct mock_memory *memory)
{
	if (!memory->there)
		return;
	munmap(memory->there, memory->size);
	munmap(memory->view, memory->size);
	*memory = (struct mock_memory){ 0 };
}

static bool overlaps(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
	return a && b && a < b + b_len && b < a + a_len;
}

static bool conflicts(const struct mock_transfer *first, const struct mock_transfer *second)
{
	uint32_t a = first->length, b = second->length;

	return overlaps(first->dst, a, second->dst, b) || overlaps(first->dst, a, second->src, b) ||
		overlaps(first->dst, a, second->payload, b) ||
		overlaps(first->src, a, second->dst, b) ||
		overlaps(first->payload, a, second->dst, b) ||
		overlaps(first->also, a, second->dst, b) ||
		overlaps(first->also, a, second->also, b) ||
		overlaps(first->dst, a, second->also, b);
}

static bool is_ready(const struct mock_offload *mock, uint64_t ticket)
{
	for (uint64_t i = mock->done + 1; i < ticket; i++)
		if (!at(mock, i)->is_executed && conflicts(at(mock, i), at(mock, ticket)))
			return false;
	return true;
}

static void execute(struct mock_offload *mock, struct mock_transfer *transfer)
{
	const struct frl_recv_action *action = &transfer->action;
	uint32_t length = transfer->length;
	uint8_t *view = view_of(
		mock, transfer->is_gather ? transfer->payload : transfer->dst, length);
	const uint8_t *payload = transfer->is_there ? view_of(mock, transfer->payload, length)
						    : transfer->payload;

	if (transfer->is_gather) {
		memcpy(transfer->dst, view, length);
	} else if (transfer->has_action) {
		frl_reduce_local(view, view_of(mock, transfer->src, length), payload,
			length / frl_dtype_size(action->dtype), action->dtype, action->op);
		mock->reduced += length;
	} else {
		memcpy(view, payload, length);
	}
	if (transfer->also)
		memcpy(transfer->also, view, length);
	transfer->is_executed = true;
}

uint32_t mock_offload_step(struct mock_offload *mock, uint32_t n)
{
	uint32_t i = 0;

	if (mock->error)
		return 0;
	while (i < n && mock->done != mock->launched) {
		uint64_t ticket = mock->done + 1 +
			random_below(&mock->random, mock->launched - mock->done);

		while (at(mock, ticket)->is_executed || !is_ready(mock, ticket))
			ticket = ticket == mock->launched ? mock->done + 1 : ticket + 1;
		execute(mock, at(mock, ticket));
		while (mock->done != mock->given && at(mock, mock->done + 1)->is_executed)
			mock->done++;
		i++;
	}
	return i;
}
