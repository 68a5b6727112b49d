/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of the simulation, with guards around it and a copy (the shadow) of its expected contents.
 * Registered under several keys, some of them with an address space of their own. It may be out of
 * the processor's reach: then only the simulation sees `bytes`, not the engine.
 */
#ifndef FERRULE_SIM_MEMORY_H
#define FERRULE_SIM_MEMORY_H

#include "lib/base/random.h"
#include "lib/engine/engine.h"
#include "tests/fakes/mock_offload.h"

enum {
	MEMORY_KEYS = 3, /* regions over the same memory */
	MEMORY_GUARD = 64,
};

struct sim_memory {
	struct engine *engine;
	uint8_t *bytes; /* with the guards */
	uint8_t *shadow;
	uint32_t size;
	uint32_t n_keys;
	struct region regions[MEMORY_KEYS];
	bool registered;
	struct mock_offload *mock;  /* who reaches it; NULL: host memory */
	struct mock_memory *mapped; /* then */
	bool is_ignored;            /* nobody knows any more how it should look */
};

/* A location in memory, as requests name it. */
struct memory_name {
	uint64_t va;
	uint32_t key;
};

/* Makes `size` zeroed bytes between guards, registered for the domain `pd`. memory->mock is
 * given. */
void memory_init(struct sim_memory *memory, struct engine *engine, const void *pd, uint32_t size,
	uint32_t access, struct random_state *random);
/* Returns true while some of these bytes are being transferred. */
bool memory_is_due(const struct sim_memory *memory, uint32_t offset, uint32_t len);
/* Ends the registration; the memory stays. */
void memory_deregister(struct sim_memory *memory);
/* No transfer of it may be queued any more. */
void memory_fini(struct sim_memory *memory);

/* Fills both the memory and its shadow: the application owns it. */
void memory_fill(struct sim_memory *memory, uint32_t offset, int byte, uint32_t len);

/* Finds the location by one of its keys. */
struct memory_name memory_name(
	const struct sim_memory *memory, uint32_t offset, struct random_state *random);

/* Returns the first difference from the shadow: an offset below offset + len, or offset + len. */
uint32_t memory_compare(const struct sim_memory *memory, uint32_t offset, uint32_t len);

/* Takes the contents between the guards as right. */
void memory_accept(struct sim_memory *memory);

#endif
