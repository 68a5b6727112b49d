/* SPDX-License-Identifier: BSD-3-Clause */
/* Patterns that depend on the place, and slots between guards. See row.h. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/nccl/caller/cuda.h"
#include "tests/nccl/caller/row.h"
#include "tests/nccl/caller/unpack.h"

#define GUARD_KEY  0x6775617264ull
#define POISON_KEY 0x706f69736f6eull

static uint64_t word_at(uint64_t key, size_t index)
{
	uint64_t x = (key * 0xd1342543de82ef95ull + index) * 0x9e3779b97f4a7c15ull;

	return x ^ (x >> 29);
}

void pattern_fill(void *data, size_t size, uint64_t key)
{
	uint8_t *to = data;
	uint64_t word;
	size_t i;

	for (i = 0; i + 8 <= size; i += 8) {
		word = word_at(key, i / 8);
		memcpy(to + i, &word, 8);
	}
	word = word_at(key, i / 8);
	memcpy(to + i, &word, size - i);
}

ssize_t pattern_find(const void *data, size_t size, uint64_t key)
{
	const uint8_t *from = data;

	for (size_t i = 0; i < size; i += 8) {
		size_t n = size - i < 8 ? size - i : 8;
		uint64_t word = word_at(key, i / 8);

		if (memcmp(from + i, &word, n) == 0)
			continue;
		for (size_t j = 0; j < n; j++)
			if (from[i + j] != (uint8_t)(word >> 8 * j))
				return (ssize_t)(i + j);
	}
	return -1;
}

bool slots_are_on_gpu;

void slots_create(struct slots *slots, unsigned int n, size_t size)
{
	slots->n = n;
	slots->size = size;
	slots->stride = (size + 127) / 128 * 128 + GUARD_BYTES;
	slots->bytes = (n * slots->stride + GUARD_BYTES + 4095) / 4096 * 4096;
	slots->mr = NULL;
	slots->gpu = NULL;
	slots->memory = mmap(
		NULL, slots->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(slots->memory != MAP_FAILED, "no memory for %zu bytes", slots->bytes);
	for (unsigned int i = 0; i < n; i++) {
		pattern_fill(slot_at(slots, i) - GUARD_BYTES, GUARD_BYTES, GUARD_KEY + i);
		slot_poison(slots, i);
	}
	pattern_fill(slot_at(slots, n) - GUARD_BYTES, GUARD_BYTES, GUARD_KEY + n);
	if (!slots_are_on_gpu)
		return;
	slots->gpu = cuda_alloc(slots->bytes);
	cuda_give(slots->gpu, slots->memory, slots->bytes);
}

void slots_leave_gpu(struct slots *slots)
{
	if (!slots->gpu)
		return;
	cuda_take(slots->memory, slots->gpu, slots->bytes);
	cuda_free(slots->gpu);
	slots->gpu = NULL;
}

void slots_register(struct slots *slots, struct side *side, void *comm)
{
	void *device_mr;

	/* With NCCL_NET_GDR_READ=0 send buffers are in memory of the host. */
	if (slots->gpu && side->net->unpacks && !unpack_has_handle(comm))
		slots_leave_gpu(slots);
	if (slots->gpu && !(side->properties.pointers & NCCL_POINTER_CUDA)) {
		REQUIRE(!expected(side, "pointers"), "%s takes no memory of GPUs",
			side->properties.name);
		skip("%s takes no memory of GPUs", side->properties.name);
	}
	MUST(plugin_reg(side->net, comm, slots->gpu ? slots->gpu : slots->memory, slots->bytes,
		slots->gpu ? NCCL_POINTER_CUDA : NCCL_POINTER_HOST, &slots->mr));
	if (side->net->get_device_mr && side->net->unpacks)
		MUST(side->net->get_device_mr(comm, slots->mr, &device_mr));
}

void slots_deregister(struct slots *slots, struct side *side, void *comm)
{
	MUST(side->net->dereg_mr(comm, slots->mr));
}

void slots_destroy(struct slots *slots)
{
	if (slots->gpu)
		cuda_free(slots->gpu);
	munmap(slots->memory, slots->bytes);
	slots->memory = slots->gpu = NULL;
}

uint8_t *slot_at(const struct slots *slots, unsigned int index)
{
	return slots->memory + GUARD_BYTES + index * slots->stride;
}

uint8_t *slot_data(const struct slots *slots, unsigned int index)
{
	uint8_t *slot = slot_at(slots, index);

	return slots->gpu ? slots->gpu + (slot - slots->memory) : slot;
}

void slot_give(const struct slots *slots, unsigned int index)
{
	if (slots->gpu)
		cuda_give(slot_data(slots, index), slot_at(slots, index),
			slots->stride - GUARD_BYTES);
}

void slot_take(const struct slots *slots, unsigned int index)
{
	if (slots->gpu)
		cuda_take(slot_at(slots, index) - GUARD_BYTES,
			slot_data(slots, index) - GUARD_BYTES, slots->stride + GUARD_BYTES);
}

void slot_poison(struct slots *slots, unsigned int index)
{
	pattern_fill(slot_at(slots, index), slots->stride - GUARD_BYTES, POISON_KEY + index);
}

/* The poison is one pattern from the slot's start on, so its tail is compared by words. */
void slot_check(const struct slots *slots, unsigned int index, size_t from, const char *when)
{
	const uint8_t *slot = slot_at(slots, index);
	size_t size = slots->stride - GUARD_BYTES;

	for (size_t i = from; i < size; i++) {
		uint64_t word;

		if (i % 8 == 0 && i + 8 <= size) {
			word = word_at(POISON_KEY + index, i / 8);
			if (memcmp(slot + i, &word, 8) == 0) {
				i += 7;
				continue;
			}
		}
		word = word_at(POISON_KEY + index, i / 8);
		REQUIRE(slot[i] == (uint8_t)(word >> 8 * (i % 8)),
			"%s: byte %zu of a buffer of %zu was written", when, i, slots->size);
	}
	for (unsigned int i = index; i <= index + 1; i++)
		REQUIRE(pattern_find(slot_at(slots, i) - GUARD_BYTES, GUARD_BYTES, GUARD_KEY + i) <
				0,
			"%s: memory %s a buffer was written", when,
			i == index ? "before" : "behind");
}
