/* SPDX-License-Identifier: BSD-3-Clause */
/* The one copy of a received payload: from the packet buffer to where it belongs. */
#include "lib/engine/stages.h"

#include <string.h>

#include <ferrule/reduce.h>

void place(struct frl_stats *stats, const struct placements *placements)
{
	for (uint32_t i = 0; i < placements->count; i++) {
		const struct placement *p = &placements->list[i];
		const struct frl_recv_action *action = p->action;

		if (action) {
			frl_reduce(p->dst, p->src, p->payload,
				p->length / frl_dtype_size(action->dtype), action->dtype,
				action->op);
			stats->bytes_reduced += p->length;
		} else {
			memcpy(p->dst, p->payload, p->length);
			stats->bytes_placed += p->length;
		}
	}
}
