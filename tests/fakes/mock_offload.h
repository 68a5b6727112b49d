/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that the processor cannot touch, and an offload that reaches it: a GPU as the engine sees
 * one, under a test's control. Any other access to the memory is a segmentation fault. Launched
 * work is done when the test says so, in random order except where it touches the same bytes.
 */
#ifndef FERRULE_TESTS_FAKES_MOCK_OFFLOAD_H
#define FERRULE_TESTS_FAKES_MOCK_OFFLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/random.h"
#include "lib/engine/engine.h"
#include "lib/engine/offload/attach.h"
#include "lib/engine/offload/offload.h"

enum {
	MOCK_MEMORIES = 64,
	MOCK_MAPS = 64,
};

/* Regions name `there`; the same bytes can be read at `view`. */
struct mock_memory {
	uint8_t *there;
	uint8_t *view;
	size_t size;
};

struct mock_transfer {
	bool is_gather;
	bool is_executed;
	bool has_action;
	bool is_there; /* `payload` */
	uint8_t *dst, *also;
	const uint8_t *src, *payload;
	uint32_t length;
	struct frl_recv_action action;
};

struct mock_map {
	const uint8_t *addr;
	size_t length;
};

struct mock_offload {
	struct offload base;
	struct random_state random;
	struct mock_memory memories[MOCK_MEMORIES];
	struct mock_transfer
		*transfers; /* tickets (done, given] at their number modulo `capacity` */
	uint64_t capacity;
	uint64_t given, launched, done;
	struct mock_map maps[MOCK_MAPS];
	unsigned n_maps;
	int map_error; /* of the map() after `map_succeeds` more */
	unsigned map_succeeds;
	uint32_t room;        /* transfers that are not done, at most */
	uint32_t launch_room; /* while more than that are launched and not done none is */
	uint32_t speed;       /* that are executed whenever somebody asks what is done, at most */
	uint32_t reaches_one_in; /* frames, by their address; 0: none; 1: all */
	const char *error;       /* as error() says; nothing is executed any more */
	bool still_runs;         /* in spite of that */
	uint64_t launches;
	uint64_t reduced; /* bytes */
};

void mock_offload_init(struct mock_offload *mock, uint64_t seed);
void mock_offload_fini(struct mock_offload *mock);

/* All steps of attaching it to an engine and of detaching it. */
int mock_offload_attach(struct mock_offload *mock, struct engine *engine);
void mock_offload_detach(struct mock_offload *mock, struct engine *engine);

/* Zeroed memory. */
struct mock_memory *mock_offload_memory(struct mock_offload *mock, size_t size);
void mock_offload_free(struct mock_offload *mock, struct mock_memory *memory);

/* Executes up to `n` launched transfers. Returns how many. */
uint32_t mock_offload_step(struct mock_offload *mock, uint32_t n);

#endif
