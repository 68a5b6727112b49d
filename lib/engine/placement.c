/* SPDX-License-Identifier: BSD-3-Clause */
/* Places received payload: the one copy from the packet buffer to its destination, or a request to
 * the offload that owns the destination. */
#include "lib/engine/stages.h"

#include <ferrule/reduce.h>

#include "lib/base/memory/copy.h"
#include "lib/base/memory/fault.h"
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

/* Accesses memory of the application by the processor. */
static void place_one(void *arg)
{
	const struct placement *p = arg;
	const struct frl_recv_action *action = p->action;

	if (action)
		frl_reduce_local(p->dst, p->src, p->payload,
			p->length / frl_dtype_size(action->dtype), action->dtype, action->op);
	else
		/* In address order, as the application may poll the memory of a WRITE. */
		copy_in_order(p->dst, p->payload, p->length);
}

static bool try_place_one(struct engine *e, struct placement *p)
{
	const struct fault_area areas[] = { { p->dst, p->length }, { p->src, p->length } };
	uintptr_t at;

	if (fault_try(place_one, p, areas, p->action ? 2 : 1, &at))
		return true;
	engine_lose_memory(e, at);
	return false;
}

static void execute_one(void *arg)
{
	execute(arg);
}

static bool try_execute(struct engine *e, struct atomic_op *op)
{
	const struct fault_area area = { op->addr, sizeof(*op->addr) };
	uintptr_t at;

	if (!region_may_unmap(op->region)) {
		execute(op);
		return true;
	}
	if (fault_try(execute_one, op, &area, 1, &at))
		return true;
	engine_lose_memory(e, at);
	return false;
}

bool place(struct engine *e, struct engine_qp *qp, const struct port_frame *frame,
	struct placements *placements)
{
	struct frl_stats *stats = &e->stats;
	bool done = true;

	for (uint32_t i = 0; i < placements->count && done; i++) {
		struct placement *p = &placements->list[i];

		if (p->region->fragments) {
			fragments_place(e, qp, frame, placements);
			continue;
		}
		*(p->action ? &stats->bytes_reduced : &stats->bytes_placed) += p->length;
		if (p->region->owner)
			e->offloads->place(e, qp, frame, p);
		else if (p->may_fault)
			done = try_place_one(e, p);
		else
			place_one(p);
	}
	if (e->offloads)
		e->offloads->placed(e);
	if (placements->atomic.addr)
		done = try_execute(e, &placements->atomic);
	return done;
}
