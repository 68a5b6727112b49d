/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Holds completions back until the payload that they report is in memory. Each completion queue of
 * an engine with offloads has a gate. The gate holds a completion until all earlier transfers of
 * its queue pair are done, so completions of a queue pair stay in order.
 *
 * Receives, READs and atomics wait for their placements. Flushed requests wait as well, because
 * their memory returns to the application.
 */
#include <errno.h>
#include <stdlib.h>

#include "lib/engine/offload/transfers.h"

struct held_completion {
	struct frl_wc wc;
	bool urgent;   /* as for cq_put() */
	uint32_t mask; /* waits for these offloads */
	uint64_t seq;  /* up to this transfer */
};

/* Gate of a completion queue. Holds completions [head, head + base.held). */
struct gate {
	struct cq_gate base;
	struct cq *cq;
	struct engine *engine;
	struct list node;    /* in transfers.gates */
	struct list holding; /* in transfers.holding while it holds completions */
	uint32_t head;
	struct held_completion ring[]; /* one entry for each entry of the queue */
};

static struct gate *gate_of(const struct cq *cq)
{
	return container_of(cq->gate, struct gate, base);
}

static struct held_completion *completion_at(struct gate *gate, uint32_t position)
{
	return &gate->ring[position & gate->cq->mask];
}

static void take(struct cq *cq, const struct frl_wc *wc, bool urgent)
{
	struct gate *gate = gate_of(cq);
	struct transfers *t = transfers_of(gate->engine);
	struct offload_qp *qp = engine_find_qp(gate->engine, wc->qp_num)->offloads;

	if (qp->placed_mask && transfers_done(t, qp->placed_seq, qp->placed_mask))
		qp->placed_mask = 0;
	if (!gate->base.held && !qp->placed_mask) {
		cq_put(cq, wc, urgent);
		return;
	}
	*completion_at(gate, gate->head + gate->base.held++) = (struct held_completion){
		.wc = *wc,
		.urgent = urgent,
		.mask = qp->placed_mask,
		.seq = qp->placed_seq,
	};
	if (list_empty(&gate->holding))
		list_add_tail(&t->holding, &gate->holding);
}

const struct frl_wc *completions_held(const struct cq *cq, uint32_t i)
{
	struct gate *gate = gate_of(cq);

	return &completion_at(gate, gate->head + i)->wc;
}

/* Writes completions in the order in which they came, over all queue pairs. */
static void pass_on(struct transfers *t, struct gate *gate)
{
	while (gate->base.held) {
		const struct held_completion *first = completion_at(gate, gate->head);

		if (!transfers_done(t, first->seq, first->mask))
			return;
		gate->head++;
		gate->base.held--;
		cq_put(gate->cq, &first->wc, first->urgent);
	}
	list_remove(&gate->holding);
}

void completions_pass_on(struct transfers *t)
{
	struct list *node = t->holding.next;

	while (node != &t->holding) {
		struct gate *gate = container_of(node, struct gate, holding);

		node = node->next;
		pass_on(t, gate);
	}
}

/* Their payload will never arrive. */
void completions_spoil(struct transfers *t, const struct attached *a)
{
	uint32_t bit = UINT32_C(1) << (a - t->attached);

	for (struct list *node = t->holding.next; node != &t->holding; node = node->next) {
		struct gate *gate = container_of(node, struct gate, holding);

		for (uint32_t i = 0; i < gate->base.held; i++) {
			struct held_completion *held = completion_at(gate, gate->head + i);

			if (!(held->mask & bit) || transfers_done(t, held->seq, bit) ||
				held->wc.status != FRL_WC_SUCCESS)
				continue;
			held->wc.status = FRL_WC_LOC_PROT_ERR;
			held->urgent = true;
		}
	}
}

static struct gate *new_gate(size_t count)
{
	return calloc(1, sizeof(struct gate) + count * sizeof(struct held_completion));
}

static int add_gate(struct engine *e, struct cq *cq)
{
	struct gate *gate;

	if (cq->gate)
		return 0;
	gate = new_gate((size_t)cq->mask + 1);
	if (!gate)
		return -ENOMEM;
	gate->base.take = take;
	gate->cq = cq;
	gate->engine = e;
	list_init(&gate->holding);
	list_init(&gate->node);
	list_add_tail(&transfers_of(e)->gates, &gate->node);
	cq->gate = &gate->base;
	return 0;
}

int completions_watch(struct engine *e, struct cq *send_cq, struct cq *recv_cq)
{
	int rc = add_gate(e, send_cq);

	return rc ? rc : add_gate(e, recv_cq);
}

int completions_resize(struct cq *cq, uint32_t count)
{
	struct gate *gate, *before;
	struct transfers *t;

	if (!cq->gate)
		return 0;
	before = gate_of(cq);
	t = transfers_of(before->engine);
	gate = new_gate(count);
	if (!gate)
		return -ENOMEM;
	*gate = *before;
	for (uint32_t i = 0; i < gate->base.held; i++)
		gate->ring[(gate->head + i) & (count - 1)] = *completion_at(
			before, before->head + i);
	list_init(&gate->holding);
	list_init(&gate->node);
	completions_unwatch(cq);
	list_add_tail(&t->gates, &gate->node);
	if (gate->base.held)
		list_add_tail(&t->holding, &gate->holding);
	cq->gate = &gate->base;
	return 0;
}

void completions_unwatch(struct cq *cq)
{
	struct gate *gate;

	if (!cq->gate)
		return;
	gate = gate_of(cq);
	list_remove(&gate->node);
	list_remove(&gate->holding);
	cq->gate = NULL;
	free(gate);
}

void completions_fini(struct transfers *t)
{
	while (!list_empty(&t->gates))
		completions_unwatch(container_of(t->gates.next, struct gate, node)->cq);
}
