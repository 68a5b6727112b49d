/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include "lib/api/objects.h"
#include "lib/base/error.h"
#include "lib/base/share.h"

int frl_pd_create(struct frl_device *device, struct frl_pd **ret_pd)
{
	struct frl_pd *pd;

	if (!device || !ret_pd)
		return frl_fail(-EINVAL, "frl_pd_create: device and ret_pd are required");
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return frl_fail(-ENOMEM, "no memory for a protection domain");
	pd->device = device;
	guard_enter(&device->guard);
	device->objects++;
	guard_leave(&device->guard);
	*ret_pd = pd;
	return 0;
}

int frl_pd_destroy(struct frl_pd *pd)
{
	struct frl_device *device;

	if (!pd)
		return 0;
	device = pd->device;
	guard_enter(&device->guard);
	if (pd->objects) {
		guard_leave(&device->guard);
		return frl_fail(-EBUSY,
			"the protection domain still has %u queue pairs and memory regions",
			pd->objects);
	}
	device->objects--;
	guard_leave(&device->guard);
	free(pd);
	return 0;
}

int frl_reg_mr(
	struct frl_pd *pd, void *addr, size_t length, uint32_t access, struct frl_mr **ret_mr)
{
	const uint32_t known = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE;
	struct frl_device *device;
	struct port_mem *mem;
	struct frl_mr *mr;
	int rc;

	if (!pd || !ret_mr || !addr || length == 0)
		return frl_fail(-EINVAL, "frl_reg_mr: pd, addr, a length and ret_mr are required");
	if ((uintptr_t)addr + length < (uintptr_t)addr)
		return frl_fail(-EINVAL, "frl_reg_mr: the range wraps around the address space");
	if (access & ~known)
		return frl_fail(-EINVAL, "frl_reg_mr: unknown access flags 0x%x", access & ~known);
	if ((access & FRL_ACCESS_REMOTE_WRITE) && !(access & FRL_ACCESS_LOCAL_WRITE))
		return frl_fail(-EINVAL, "frl_reg_mr: REMOTE_WRITE needs LOCAL_WRITE too");
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return frl_fail(-ENOMEM, "no memory for a memory region");
	device = pd->device;
	guard_enter(&device->guard);
	rc = device->port->ops->mem_map(device->port, addr, length, &mem);
	if (rc)
		goto err_leave;
	mr->pd = pd;
	mr->region = (struct region){
		.addr = addr,
		.length = length,
		.access = access,
		.pd = pd,
		.port_mem = mem,
	};
	rc = engine_add_region(&device->engine, &mr->region);
	if (rc) {
		frl_fail(rc, "no room for another memory region (at most %d a device)", REGION_MAX);
		goto err_unmap;
	}
	pd->objects++;
	guard_leave(&device->guard);
	*ret_mr = mr;
	return 0;

err_unmap:
	device->port->ops->mem_unmap(device->port, mem);
err_leave:
	guard_leave(&device->guard);
	free(mr);
	return rc;
}

int frl_dereg_mr(struct frl_mr *mr)
{
	struct frl_device *device;
	struct port_mem *mem;

	if (!mr)
		return 0;
	device = mr->pd->device;
	mem = mr->region.port_mem;
	guard_enter(&device->guard);
	if (engine_region_queued(&device->engine, &mr->region) ||
		!device->port->ops->mem_idle(device->port, mem)) {
		guard_leave(&device->guard);
		return frl_fail(-EBUSY, "packets that refer to the memory region are still queued");
	}
	engine_remove_region(&device->engine, &mr->region);
	device->port->ops->mem_unmap(device->port, mem);
	mr->pd->objects--;
	guard_leave(&device->guard);
	free(mr);
	return 0;
}

uint32_t frl_mr_lkey(const struct frl_mr *mr)
{
	return mr->region.key;
}

uint32_t frl_mr_rkey(const struct frl_mr *mr)
{
	return mr->region.key;
}

void *frl_mem_alloc(size_t size)
{
	void *addr;

	if (size == 0) {
		frl_fail(-EINVAL, "frl_mem_alloc: size is 0");
		return NULL;
	}
	addr = share_alloc(size);
	if (!addr)
		frl_fail(errno, "no %zu bytes of memory: %s", size, frl_strerror(errno));
	return addr;
}

void frl_mem_free(void *addr, size_t size)
{
	if (addr)
		share_free(addr);
}
