/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/memory.h"

#include "tests/sim/common/fail.h"

#include <stdlib.h>
#include <string.h>

enum { CANARY = 0xc5 };

static void region_init(struct sim_memory *memory, struct region *region, const void *pd,
	uint32_t access, struct random_state *random)
{
	uint8_t *start = memory->mock ? memory->mapped->there : memory->bytes;
	struct port *port = memory->engine->port;
	uint32_t size = memory->size - 2 * MEMORY_GUARD;
	struct port_mem *mem = NULL;

	*region = (struct region){
		.addr = start + MEMORY_GUARD,
		.length = size,
		.iova = (uintptr_t)start + MEMORY_GUARD,
		.owner = memory->mock ? &memory->mock->base : NULL,
		.access = access,
		.pd = pd,
	};
	/* Any address with the memory's alignment will do, also the highest ones. */
	if (random_below(random, 2))
		region->iova = random_below(random, 2) ? 0 - (uint64_t)(size + 63) / 64 * 64
						       : random_below(random, 1u << 30) * 64;
	if (!memory->mock)
		SIM_CHECK(port->ops->mem_map(port, region->addr, size, &mem) == 0, "mem_map");
	region->port_mem = mem;
	SIM_CHECK(engine_add_region(memory->engine, region) == 0, "add_region");
}

void memory_init(struct sim_memory *memory, struct engine *engine, const void *pd, uint32_t size,
	uint32_t access, struct random_state *random)
{
	size_t rounded = (size + 2 * MEMORY_GUARD + 63u) & ~63u;

	memory->engine = engine;
	memory->size = size + 2 * MEMORY_GUARD;
	if (memory->mock)
		memory->mapped = mock_offload_memory(memory->mock, rounded);
	memory->bytes = memory->mock ? memory->mapped->view : aligned_alloc(64, rounded);
	SIM_CHECK(memory->bytes != NULL, "out of memory");
	memset(memory->bytes, CANARY, rounded);
	memset(memory->bytes + MEMORY_GUARD, 0, size);
	memory->shadow = sim_alloc(memory->size, 1);
	memcpy(memory->shadow, memory->bytes, memory->size);
	memory->n_keys = 1 + (uint32_t)random_below(random, MEMORY_KEYS);
	for (uint32_t i = 0; i < memory->n_keys; i++)
		region_init(memory, &memory->regions[i], pd, access, random);
	memory->registered = true;
}

void memory_deregister(struct sim_memory *memory)
{
	for (uint32_t i = 0; memory->registered && i < memory->n_keys; i++)
		engine_remove_region(memory->engine, &memory->regions[i]);
	memory->registered = false;
}

void memory_fini(struct sim_memory *memory)
{
	struct port *port = memory->engine ? memory->engine->port : NULL;

	memory_deregister(memory);
	for (uint32_t i = 0; i < memory->n_keys; i++) {
		SIM_CHECK(!engine_region_queued(memory->engine, &memory->regions[i]),
			"memory is still queued");
		if (memory->mock)
			continue;
		SIM_CHECK(port->ops->mem_idle(port, memory->regions[i].port_mem),
			"memory is still being sent");
		port->ops->mem_unmap(port, memory->regions[i].port_mem);
	}
	if (memory->mock)
		mock_offload_free(memory->mock, memory->mapped);
	else
		free(memory->bytes);
	free(memory->shadow);
}

bool memory_is_due(const struct sim_memory *memory, uint32_t offset, uint32_t len)
{
	struct region bytes;

	if (!memory->mock)
		return false;
	bytes = (struct region){
		.addr = memory->mapped->there + offset,
		.length = len,
		.owner = &memory->mock->base,
	};
	return engine_region_queued(memory->engine, &bytes);
}

void memory_fill(struct sim_memory *memory, uint32_t offset, int byte, uint32_t len)
{
	memset(memory->bytes + offset, byte, len);
	memset(memory->shadow + offset, byte, len);
}

struct memory_name memory_name(
	const struct sim_memory *memory, uint32_t offset, struct random_state *random)
{
	const struct region *region = &memory->regions[random_below(random, memory->n_keys)];

	return (struct memory_name){ region->iova + offset - MEMORY_GUARD, region->key };
}

uint32_t memory_compare(const struct sim_memory *memory, uint32_t offset, uint32_t len)
{
	uint32_t end = offset + len;

	if (memcmp(memory->bytes + offset, memory->shadow + offset, len) == 0)
		return end;
	while (memory->bytes[offset] == memory->shadow[offset])
		offset++;
	return offset;
}

void memory_accept(struct sim_memory *memory)
{
	memcpy(memory->shadow + MEMORY_GUARD, memory->bytes + MEMORY_GUARD,
		memory->size - 2 * MEMORY_GUARD);
}
