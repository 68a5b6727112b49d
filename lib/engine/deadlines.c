/* SPDX-License-Identifier: BSD-3-Clause */
/* Deadlines of queue pairs. engine.timed lists the queue pairs that have one. */
#include "lib/engine/offload/hooks.h"
#include "lib/engine/stages.h"

/* Many slow peers share one visit. */
enum { PROBE_DELAY_NS = 250000 };

/* Expires a deadline. Only the engine can distinguish a silent peer from a link that is down at
 * this end. */
static void fire_deadline(struct engine *e, struct engine_qp *qp, uint64_t now_ns)
{
	struct qp *core = &qp->core;
	uint64_t timeouts;

	if (e->offloads && e->offloads->holds_timer(qp))
		qp_hold_timer(core, now_ns);
	if (qp_next_deadline(core) > now_ns)
		return;
	timeouts = core->counts.timeouts;
	qp_on_deadline(core, now_ns);
	if (core->error_status != FRL_WC_RETRY_EXC_ERR) {
		if (core->counts.timeouts != timeouts)
			path_probe_on_timeout(e, qp);
	} else if (!core->error && !engine_has_link(e, qp)) {
		core->error = "transport retries exhausted: the port at this end has no link; "
			      "check its cable, and that its interface is up";
	} else if (!core->error) {
		path_probe_explain(e, qp);
	}
}

void fire_deadlines(struct engine *e, uint64_t now_ns)
{
	if (now_ns < e->next_deadline_ns)
		return;
	e->next_deadline_ns = DEADLINE_NONE;
	e->next_probes_ns = now_ns + PROBE_DELAY_NS;
	for (struct list *node = e->timed.next, *next; node != &e->timed; node = next) {
		struct engine_qp *qp = container_of(node, struct engine_qp, timed);

		next = node->next;
		if (qp_next_deadline(&qp->core) <= now_ns)
			fire_deadline(e, qp, now_ns);
		engine_update(e, qp);
		if (qp_next_deadline(&qp->core) == DEADLINE_NONE)
			list_remove(&qp->timed);
	}
}
