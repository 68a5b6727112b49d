/* SPDX-License-Identifier: BSD-3-Clause */
/* Places received payload: the one copy from the packet buffer to its destination, or a request to
 * the offload that owns the destination. */
#include "lib/engine/stages.h"

#include <ferrule/reduce.h>

#include "lib/base/memory/copy.h"
#include "lib/engine/fragments.h"
#include "lib/engine/offload/hooks.h"

/* Atomic to everything on this machine, including the application's own atomics. */
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

void place(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	struct placements *placements)
{
	struct frl_stats *stats = &e->stats;

	for (uint32_t i = 0; i < placements->count; i++) {
		const struct placement *p = &placements->list[i];
		const struct frl_recv_action *action = p->action;

		if (p->region->fragments) {
			fragments_place(e, qp, frame, placements);
		} else if (p->region->owner) {
			*(action ? &stats->bytes_reduced : &stats->bytes_placed) += p->length;
			e->offloads->place(e, qp, frame, p);
		} else if (action) {
			frl_reduce_local(p->dst, p->src, p->payload,
				p->length / frl_dtype_size(action->dtype), action->dtype,
				action->op);
			stats->bytes_reduced += p->length;
		} else {
			/* In address order, as the application may poll the memory of a WRITE. */
			copy_in_order(p->dst, p->payload, p->length);
			stats->bytes_placed += p->length;
		}
	}
	if (e->offloads)
		e->offloads->placed(e);
	if (placements->atomic.addr)
		execute(&placements->atomic);
}
