/* SPDX-License-Identifier: BSD-3-Clause */
/* Attaches and detaches offloads. The first one installs the hooks. */
#include "lib/engine/offload/attach.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "lib/base/error.h"
#include "lib/engine/offload/retained.h"
#include "lib/engine/offload/hooks.h"
#include "lib/engine/offload/loan.h"
#include "lib/engine/offload/deferred.h"
#include "lib/engine/offload/transfers.h"
#include "lib/engine/stages.h"

static_assert((int)SLAB_MORE >= (int)WIRE_GRH_LEN, "any payload fits");

static int add_qp(struct engine *e, struct engine_qp *qp, const struct qp_config *config)
{
	int rc = completions_watch(e, config->send_cq, config->recv_cq);

	if (rc)
		return rc;
	qp->offloads = calloc(1, sizeof(*qp->offloads));
	if (!qp->offloads)
		return -ENOMEM;
	qp->offloads->qp = qp;
	list_init(&qp->offloads->dropped);
	return 0;
}

static void remove_qp(struct engine *e, struct engine_qp *qp)
{
	deferred_drop(e, qp);
	offload_clear_loss(e, qp);
	retained_end_qp(e, qp);
	free(qp->offloads);
	qp->offloads = NULL;
}

/* Completions of earlier placements stay held until these are done. */
static void reset_qp(struct engine *e, struct engine_qp *qp)
{
	qp->offloads->used_mask = 0;
	deferred_drop(e, qp);
	offload_clear_loss(e, qp);
}

static void release_region(struct engine *e, const struct region *region)
{
	if (region->owner)
		retained_end(e, region->addr, region->length);
}

static void drop_link(struct engine *e, uint16_t link)
{
	sides_drop_link(e, link);
	retained_end_link(e, link);
	deferred_drop_link(e, link);
}

/* A response that was dropped or deferred here is not the peer's delay either. */
static bool holds_timer(const struct engine_qp *qp)
{
	return side_is_fetching(qp) || qp->offloads->loss.response || qp->offloads->deferred[1];
}

static void init_slabs(struct transfers *t, uint8_t *memory)
{
	for (uint32_t i = 0; i < SLABS; i++) {
		t->slabs[i].bytes = memory + i * t->slab_size;
		t->slabs[i].next = t->free_slabs;
		t->free_slabs = &t->slabs[i];
	}
	t->n_free_slabs = SLABS;
}

static void init_held(struct transfers *t, uint32_t spared)
{
	for (uint32_t i = 0; i < HELD_FRAMES && i < spared; i++) {
		t->held[i].next = t->free_held;
		t->free_held = &t->held[i];
		t->n_held++;
	}
}

static void free_transfers(struct transfers *t)
{
	for (unsigned i = 0; t && i < ENGINE_OFFLOADS; i++)
		free(t->attached[i].ring);
	while (t && t->failures) {
		struct failure *failure = t->failures;

		t->failures = failure->next;
		free(failure);
	}
	if (t && t->memory)
		munmap(t->memory, t->memory_size);
	if (t) {
		sides_fini(t);
		loan_fini(t);
		retained_fini(t);
		deferred_fini(t);
	}
	free(t);
}

/* Whole pages, since the offload can access all of a page. Shared pages: after a fork a write to a
 * private page would give this process a copy, while the GPU keeps the original. */
static struct transfers *new_transfers(const struct port_caps *caps, uint32_t mtu)
{
	struct transfers *t = calloc(1, sizeof(*t));
	size_t slabs_end;
	void *memory;

	if (!t)
		return NULL;
	t->slab_size = (mtu > WIRE_IBTA_MTU ? mtu : WIRE_IBTA_MTU) + SLAB_MORE;
	slabs_end = sides_size(t) + SLABS * t->slab_size;
	t->memory_size = slabs_end + deferred_size(caps);
	memory = mmap(
		NULL, t->memory_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	t->memory = memory == MAP_FAILED ? NULL : memory;
	list_init(&t->gates);
	list_init(&t->holding);
	list_init(&t->dropped);
	if (!t->memory || sides_init(t, t->memory) ||
		retained_init(t, caps->max_held - deferred_frames(caps)) ||
		deferred_init(t, caps, t->memory + slabs_end)) {
		free_transfers(t);
		return NULL;
	}
	init_slabs(t, t->memory + sides_size(t));
	init_held(t, caps->max_held - deferred_frames(caps));
	return t;
}

static void end(struct engine *e)
{
	free_transfers(transfers_of(e));
	e->offload_state = NULL;
	e->offloads = NULL;
}

static void free_qps(struct engine *e)
{
	struct engine_qp *qp;

	for (uint32_t i = 0; (qp = engine_next_qp(e, &i));) {
		free(qp->offloads);
		qp->offloads = NULL;
	}
}

static void fini(struct engine *e)
{
	struct transfers *t = transfers_of(e);

	for (unsigned i = 0; i < ENGINE_OFFLOADS; i++) {
		struct offload *offload = t->attached[i].offload;

		if (!offload)
			continue;
		engine_detach_offload(e, offload);
		engine_unmap_offload(e, offload);
	}
	completions_fini(t);
	free_qps(e);
	/* Otherwise the port still has packets that refer to the buffers. */
	if (loan_unmap(e))
		end(e);
}

static const struct offload_hooks hooks = {
	.add_qp = add_qp,
	.remove_qp = remove_qp,
	.reset_qp = reset_qp,
	.fail_qp = offload_clear_loss,
	.resize_cq = completions_resize,
	.remove_cq = completions_unwatch,
	.release_region = release_region,
	.region_busy = offload_region_busy,
	.drop_link = drop_link,
	.link_queued = sides_wait,
	.fini = fini,
	.port_closed = end,
	.progress = offload_progress,
	.launch = offload_launch,
	.is_busy = offload_is_busy,
	.holds_timer = holds_timer,
	.defers = defer_frame,
	.defers_other = defer_other_frame,
	.admits = offload_admits,
	.place = offload_place,
	.placed = offload_placed,
	.void_placed = retained_end_placed,
	.keeps_frame = offload_kept_frame,
	.room = side_room,
	.queue = side_queue,
	.emitted = sides_leave_early,
	.withdraw = sides_withdraw,
	.release = side_release,
};

/* Prepares existing queue pairs as new ones are prepared. */
static int add_qps(struct engine *e)
{
	struct engine_qp *qp;
	int rc = 0;

	for (uint32_t i = 0; !rc && (qp = engine_next_qp(e, &i));) {
		const struct qp_config config = {
			.send_cq = qp->core.send_cq,
			.recv_cq = qp->core.recv_cq,
		};

		rc = add_qp(e, qp, &config);
	}
	return rc;
}

/* Installs the hooks with the first offload. They stay installed. */
static int prepare(struct engine *e)
{
	int rc;

	if (e->offloads)
		return 0;
	e->offload_state = new_transfers(&e->port->caps, e->mtu);
	if (!e->offload_state)
		return -ENOMEM;
	rc = add_qps(e);
	if (rc) {
		completions_fini(transfers_of(e));
		free_qps(e);
		end(e);
		return rc;
	}
	loan_map(e);
	e->offloads = &hooks;
	return 0;
}

/* Returns the i-th range of host memory that an offload must reach, or false if there are no more.
 */
static bool host_memory(const struct engine *e, unsigned i, void **ret_addr, size_t *ret_len)
{
	if (i == 0) {
		*ret_addr = transfers_of(e)->memory;
		*ret_len = transfers_of(e)->memory_size;
		return true;
	}
	/* If the port spares no frames, offloads need not reach them. */
	return e->port->caps.max_held && e->port->ops->rx_memory(e->port, i - 1, ret_addr, ret_len);
}

static void unmap(const struct engine *e, struct offload *offload, unsigned n)
{
	size_t len;
	void *addr;

	for (unsigned i = 0; i < n && host_memory(e, i, &addr, &len); i++)
		offload->ops->unmap(offload, addr, len);
}

void engine_unmap_offload(const struct engine *e, struct offload *offload)
{
	unmap(e, offload, UINT32_MAX);
}

int engine_map_offload(const struct engine *e, struct offload *offload)
{
	size_t len;
	void *addr;
	int rc;

	for (unsigned i = 0; host_memory(e, i, &addr, &len); i++) {
		rc = offload->ops->map(offload, addr, len);
		if (rc) {
			unmap(e, offload, i);
			return rc;
		}
	}
	return 0;
}

int engine_prepare_offload(struct engine *e)
{
	struct attached *a;
	int rc = prepare(e);

	if (rc)
		return frl_fail(rc, "no memory for the buffers between a device and a GPU");
	a = attached_of(transfers_of(e), NULL);
	if (!a)
		return frl_fail(-ENOSPC, "a device works with at most %d GPUs", ENGINE_OFFLOADS);
	if (!a->ring)
		a->ring = calloc(TRANSFERS, sizeof(a->ring[0]));
	return a->ring ? 0 : frl_fail(-ENOMEM, "no memory for the transfers of a GPU");
}

void engine_attach_offload(struct engine *e, struct offload *offload)
{
	struct attached *a = transfers_of(e)->attached;

	/* Finds the prepared entry; another entry may be free as well. */
	while (a->offload || !a->ring)
		a++;
	a->offload = offload;
	transfers_of(e)->n_attached++;
	deferred_attach(e, a);
}

void engine_retire_offload(struct engine *e, struct offload *offload)
{
	struct attached *a = e->offloads ? attached_of(transfers_of(e), offload) : NULL;

	if (a)
		a->is_leaving = true;
}

static void forget(struct engine *e, uint32_t bit)
{
	struct engine_qp *qp;

	for (uint32_t i = 0; (qp = engine_next_qp(e, &i));) {
		qp->offloads->used_mask &= ~bit;
		qp->offloads->placed_mask &= ~bit;
	}
}

bool engine_offload_is_idle(const struct engine *e, struct offload *offload)
{
	struct attached *a = e->offloads ? attached_of(transfers_of(e), offload) : NULL;

	if (!a || a->head == a->given)
		return true;
	offload->ops->launch(offload);
	return offload->ops->done(offload) >= a->ring[(a->given - 1) % TRANSFERS].ticket;
}

void engine_detach_offload(struct engine *e, struct offload *offload)
{
	struct transfers *t = transfers_of(e);
	struct attached *a = t ? attached_of(t, offload) : NULL;

	if (!a)
		return;
	deferred_detach(e, a);
	/* Completions may have waited for the transfers that just ended. */
	completions_pass_on(t);
	assert(a->head == a->tail);
	retained_end_offload(e, a);
	forget(e, UINT32_C(1) << (a - t->attached));
	free(a->ring);
	a->ring = NULL;
	a->offload = NULL;
	a->requested_qp = NULL;
	a->is_leaving = a->failed = false;
	t->n_attached--;
	t->any_failed = false;
	for (unsigned i = 0; i < ENGINE_OFFLOADS; i++)
		t->any_failed |= t->attached[i].failed;
}
