/* SPDX-License-Identifier: BSD-3-Clause */
/* The one copy of a received payload: from the packet buffer to where it belongs. */
#include "lib/engine/stages.h"

#include <ferrule/reduce.h>

#include "lib/base/copy.h"

/* Atomic with everybody on this machine, the application's own atomics included. */
static void execute(const struct atomic_op *op)
{
	uint64_t original = op->compare;

	if (op->compare_swap)
		__atomic_compare_exchange_n(op->addr, &original, op->swap_add, false,
			__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	else
		original = __atomic_fetch_add(op->addr, op->swap_add, __ATOMIC_ACQ_REL);
	*op->ret_original = original;
}

void place(struct frl_stats *stats, const struct placements *placements)
{
	for (uint32_t i = 0; i < placements->count; i++) {
		const struct placement *p = &placements->list[i];
		const struct frl_recv_action *action = p->action;

		if (action) {
			frl_reduce_local(p->dst, p->src, p->payload,
				p->length / frl_dtype_size(action->dtype), action->dtype,
				action->op);
			stats->bytes_reduced += p->length;
		} else {
			/* Somebody may watch the memory that a WRITE goes to. */
			copy_in_order(p->dst, p->payload, p->length);
			stats->bytes_placed += p->length;
		}
	}
	if (placements->atomic.addr)
		execute(&placements->atomic);
}
