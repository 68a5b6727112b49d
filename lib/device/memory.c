/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory regions, memory windows and address handles. */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/memory/fault.h"
#include "lib/base/net/ip.h"
#include "lib/base/limit.h"
#include "lib/engine/offload/attach.h"
#include "lib/device/soft.h"

/* Registers the memory with the port, unless the port cannot read it. Payload is then in the
 * engine's buffers, or stays in the port's. */
static int map(struct soft_device *device, const struct frl_mr *mr, struct port_mem **ret_mem)
{
	*ret_mem = NULL;
	return mr->offload || mr->fragments
		? 0
		: device->port->ops->mem_map(device->port, mr->addr, mr->length, ret_mem);
}

static void unmap(struct soft_device *device, struct port_mem *mem)
{
	if (mem)
		device->port->ops->mem_unmap(device->port, mem);
}

/* Marks the memory of a region if it may be unmapped. Without the guard, as this may start threads
 * and wait for the kernel. */
static void add_mark(struct unmap_mark *mark, const struct frl_mr *mr, atomic_bool *is_gone)
{
	uintptr_t start = (uintptr_t)mr->addr;

	if (!(mr->access & FRL_ACCESS_MAY_UNMAP) || mr->offload || mr->fragments)
		return;
	fault_start();
	unmap_mark_open(&soft_device(mr->device)->marks);
	unmap_mark_add(mark, start, start + mr->length, is_gone);
}

int soft_mr_reg(struct frl_mr *base)
{
	struct soft_device *device = soft_device(base->device);
	struct soft_mr *mr = soft_mr(base);
	struct port_mem *mem;
	int rc;

	mr->region = (struct region){
		.addr = base->addr,
		.length = base->length,
		.iova = base->iova,
		.access = base->access,
		.pd = base->pd,
		.owner = base->offload,
		.fragments = base->fragments ? &soft_fragments(base->fragments)->core : NULL,
	};
	add_mark(&mr->mark, base, &mr->region.is_gone);
	device_enter(&device->base);
	rc = map(device, base, &mem);
	if (rc)
		goto leave;
	mr->region.port_mem = mem;
	rc = engine_add_region(&device->engine, &mr->region);
	if (rc) {
		frl_fail(rc, "no room for another memory region (at most %d a device)", REGION_MAX);
		unmap(device, mem);
	} else {
		base->lkey = base->rkey = mr->region.key;
	}
leave:
	device_leave(&device->base);
	if (rc)
		unmap_mark_remove(&mr->mark);
	return rc;
}

/* Returns -EBUSY while the region is in use. Guard held. */
static int check_idle(struct soft_device *device, const struct soft_mr *mr)
{
	if (mr->region.windows)
		return frl_fail(-EBUSY,
			"memory windows are bound to the memory region: invalidate them first");
	if (mr->region.fragments)
		return fragments_region_armed(&mr->region)
			? frl_fail(-EBUSY,
				  "a part of the region is armed: frl_fragments_release() it first")
			: 0;
	if (engine_region_queued(&device->engine, &mr->region) ||
		(mr->region.port_mem && !port_mem_flush(device->port, mr->region.port_mem)))
		return frl_fail(-EBUSY, "packets that refer to the memory region are still queued");
	return 0;
}

/* Writes only the fields that the flags name, since keys are read without the guard. */
static void change_region(struct region *region, uint32_t flags, const struct frl_mr *wanted)
{
	if (flags & FRL_REREG_TRANSLATION) {
		atomic_store(&region->is_gone, false);
		region->addr = wanted->addr;
		region->length = wanted->length;
		region->iova = wanted->iova;
		region->owner = wanted->offload;
	}
	if (flags & FRL_REREG_ACCESS)
		region->access = wanted->access;
	if (flags & FRL_REREG_PD)
		region->pd = wanted->pd;
}

int soft_mr_rereg(struct frl_mr *base, uint32_t flags, const struct frl_mr *wanted)
{
	struct soft_device *device = soft_device(base->device);
	struct soft_mr *mr = soft_mr(base);
	bool keeps_mark = !(flags & FRL_REREG_TRANSLATION) &&
		!((base->access ^ wanted->access) & FRL_ACCESS_MAY_UNMAP);
	struct unmap_mark next = { .page = 0 };
	atomic_bool is_next_gone = false;
	struct port_mem *mem;
	int rc;

	/* Its flag is the region's as soon as the memory is. */
	if (!keeps_mark)
		add_mark(&next, wanted, &is_next_gone);
	device_enter(&device->base);
	rc = check_idle(device, mr);
	if (rc)
		goto leave;
	if (flags & FRL_REREG_TRANSLATION) {
		rc = map(device, wanted, &mem);
		if (rc)
			goto leave;
		unmap(device, mr->region.port_mem);
		mr->region.port_mem = mem;
	}
	engine_release_region(&device->engine, &mr->region);
	if (!keeps_mark)
		unmap_mark_remove(&mr->mark);
	change_region(&mr->region, flags, wanted);
	unmap_mark_move(&mr->mark, &next, &mr->region.is_gone);
leave:
	device_leave(&device->base);
	unmap_mark_remove(&next);
	return rc;
}

int soft_mr_dereg(struct frl_mr *base)
{
	struct soft_device *device = soft_device(base->device);
	struct soft_mr *mr = soft_mr(base);
	int rc;

	device_enter(&device->base);
	rc = check_idle(device, mr);
	if (!rc) {
		engine_remove_region(&device->engine, &mr->region);
		unmap(device, mr->region.port_mem);
	}
	device_leave(&device->base);
	if (!rc)
		unmap_mark_remove(&mr->mark);
	return rc;
}

int soft_mr_map_far(struct frl_mr *base, int fd, uint64_t offset)
{
	struct soft_device *device = soft_device(base->device);
	struct port *port = device->port;
	struct port_mem *mem;
	int rc;

	if (!port->ops->mem_map_far)
		return frl_fail(
			-ENOTSUP, "port %s cannot send from GPU memory directly", port->caps.kind);
	device_enter(&device->base);
	rc = port->ops->mem_map_far(port, base->addr, base->length, fd, offset, &mem);
	if (!rc)
		soft_mr(base)->region.port_mem = mem;
	device_leave(&device->base);
	return rc;
}

int soft_offload_attach(struct frl_device *base, struct offload *offload)
{
	struct engine *engine = &soft_device(base)->engine;
	int rc;

	device_enter(base);
	rc = engine_prepare_offload(engine);
	device_leave(base);
	if (!rc)
		rc = engine_map_offload(engine, offload);
	if (rc)
		return rc;
	device_enter(base);
	engine_attach_offload(engine, offload);
	device_leave(base);
	return 0;
}

void soft_offload_detach(struct frl_device *base, struct offload *offload)
{
	const struct timespec pause = { .tv_nsec = 50 * 1000 };
	struct engine *engine = &soft_device(base)->engine;

	device_enter(base);
	engine_retire_offload(engine, offload);
	/* Waits as long as the GPU takes; other threads have the device meanwhile. A GPU that does
	 * not respond becomes idle when its queue gives up. */
	while (!engine_offload_is_idle(engine, offload)) {
		device_leave(base);
		nanosleep(&pause, NULL);
		device_enter(base);
	}
	engine_detach_offload(engine, offload);
	device_leave(base);
	engine_unmap_offload(engine, offload);
}

int soft_mw_alloc(struct frl_mw *base)
{
	struct soft_device *device = soft_device(base->pd->device);
	struct soft_mw *mw = soft_mw(base);
	int rc;

	mw->region = (struct region){ .pd = base->pd, .is_window = true };
	device_enter(&device->base);
	rc = engine_add_region(&device->engine, &mw->region);
	if (!rc)
		device->windows++;
	device_leave(&device->base);
	if (rc)
		frl_fail(rc, "no room for another memory window (at most %d a device)", REGION_MAX);
	return rc;
}

void soft_mw_dealloc(struct frl_mw *base)
{
	struct soft_device *device = soft_device(base->pd->device);

	device_enter(&device->base);
	engine_remove_region(&device->engine, &soft_mw(base)->region);
	device->windows--;
	device_leave(&device->base);
}

uint32_t soft_mw_rkey(struct frl_mw *mw)
{
	uint32_t rkey;

	device_enter(mw->pd->device);
	rkey = soft_mw(mw)->region.key;
	device_leave(mw->pd->device);
	return rkey;
}

void soft_describe_no_answer(
	const struct soft_device *device, const struct frl_ah_attr *attr, char *out, size_t size)
{
	struct frl_ip hop;

	if (device->base.attr.local_fabric) {
		snprintf(out, size,
			"the device %s does not answer: check that its process is not stopped",
			format_ip(&attr->dgid));
		return;
	}
	if (!neighbors_next_hop(&device->engine.neighbors, attr->sgid_index, &attr->dgid, &hop))
		hop = attr->dgid;
	snprintf(out, size, "%s does not answer %s: check that it is on this port's network",
		format_ip(&hop), ip_is_v4(&hop) ? "ARP" : "neighbour discovery");
}

struct making {
	struct soft_ah *ah;
	bool is_added; /* to the engine */
};

/* -EAGAIN: the next hop was requested. Guard held. */
static int try_ah(struct frl_device *base, void *arg)
{
	struct soft_device *device = soft_device(base);
	struct making *making = arg;
	struct soft_ah *ah = making->ah;
	const char *why = "";
	int rc = 0;

	if (making->is_added)
		return engine_ah_ready(&device->engine, &ah->engine) ? 0 : -EAGAIN;
	if (base->attr.local_fabric)
		rc = fabric_find_route(device, &ah->base.attr);
	if (rc)
		return rc;
	rc = engine_add_ah(&device->engine, &ah->engine, &ah->base.attr, clock_now_ns(), &why);
	making->is_added = rc == 0 || rc == -EAGAIN;
	return making->is_added
		? rc
		: frl_fail(rc, "address handle for %s: %s", format_ip(&ah->base.attr.dgid), why);
}

int soft_ah_create(struct frl_ah *base)
{
	struct wait_limit limit = { .limit_ns = 0 };
	struct soft_device *device = soft_device(base->pd->device);
	struct making making = { .ah = soft_ah(base) };
	char no_answer[NO_ANSWER_SIZE];
	int rc;

	making.ah->engine.core.pd = base->pd;
	if (engine_is_for_all_links(&device->engine, &base->attr))
		fabric_meet(device);
	device_enter(&device->base);
	rc = try_ah(&device->base, &making);
	device_leave(&device->base);
	if (rc == -EAGAIN) {
		limit.limit_ns = limit_after_ms(clock_now_ns(), RESOLVE_MS);
		rc = device_wait(&device->base, try_ah, &making, &limit);
	}
	if (rc != -ETIMEDOUT)
		return rc;
	device_enter(&device->base);
	soft_describe_no_answer(device, &base->attr, no_answer, sizeof(no_answer));
	device_leave(&device->base);
	if (making.is_added)
		soft_ah_destroy(base);
	return frl_fail(-EHOSTUNREACH, "%s", no_answer);
}

void soft_ah_destroy(struct frl_ah *ah)
{
	struct soft_device *device = soft_device(ah->pd->device);

	device_enter(&device->base);
	engine_remove_ah(&device->engine, &soft_ah(ah)->engine);
	device_leave(&device->base);
}
