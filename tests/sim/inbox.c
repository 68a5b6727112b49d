/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/sim/inbox.h"

#include "tests/sim/common/fail.h"
#include "tests/sim/world.h"

#include <stdlib.h>
#include <string.h>

void inbox_init(struct inbox *inbox, struct node *node, const void *pd, uint32_t n,
	uint32_t longest, struct random_state *random)
{
	inbox->n = n;
	inbox->slot_size = script_slot_size(longest);
	inbox->slots = sim_alloc(n, sizeof(struct inbox_slot));
	inbox->operands = MEMORY_GUARD + n * inbox->slot_size;
	memory_init(&inbox->memory, &node->engine, pd, (n + 1) * inbox->slot_size,
		FRL_ACCESS_LOCAL_WRITE, random);
	for (uint32_t i = 0; i + 4 <= inbox->slot_size; i += 4) {
		float value = (float)(i % 4093) / 8;

		memcpy(inbox->memory.bytes + inbox->operands + i, &value, sizeof(value));
		memcpy(inbox->memory.shadow + inbox->operands + i, &value, sizeof(value));
	}
}

void inbox_share(struct inbox *inbox, struct node *node)
{
	inbox->srq = sim_alloc(1, sizeof(*inbox->srq));
	inbox->storage = sim_alloc(1, recv_queue_storage(inbox->n, FRL_MAX_SGE));
	recv_queue_init(&inbox->srq->queue, inbox->storage, inbox->n, FRL_MAX_SGE, &node->pd,
		&node->engine.regions);
	event_source_init(&inbox->srq->events, EVENT_OF_SRQ, NULL);
	inbox->srq->queues = &node->engine.events;
}

void inbox_fini(struct inbox *inbox)
{
	memory_fini(&inbox->memory);
	free(inbox->slots);
	free(inbox->srq);
	free(inbox->storage);
}
