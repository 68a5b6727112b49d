/* SPDX-License-Identifier: BSD-3-Clause */
/* Protection domains and memory regions. */
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
	device_enter(device);
	device->objects++;
	device_leave(device);
	*ret_pd = pd;
	return 0;
}

int frl_pd_destroy(struct frl_pd *pd)
{
	struct frl_device *device;

	if (!pd)
		return 0;
	device = pd->device;
	device_enter(device);
	if (pd->objects) {
		device_leave(device);
		return frl_fail(-EBUSY,
			"the protection domain still has %u queue pairs, memory regions or other "
			"objects",
			pd->objects);
	}
	device->objects--;
	device_leave(device);
	free(pd);
	return 0;
}

/* What a region must be, wherever it comes from. */
static int check_region(const struct region *region, const char *function)
{
	const uint32_t known = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE |
		FRL_ACCESS_REMOTE_READ | FRL_ACCESS_REMOTE_ATOMIC | FRL_ACCESS_MW_BIND;
	const uint32_t writing = FRL_ACCESS_REMOTE_WRITE | FRL_ACCESS_REMOTE_ATOMIC;
	uint64_t addr = (uintptr_t)region->addr;

	if (addr + region->length < addr)
		return frl_fail(-EINVAL, "%s: the range wraps around the address space", function);
	if (region->iova + region->length < region->iova)
		return frl_fail(
			-EINVAL, "%s: the range wraps around the iova's address space", function);
	if (region->access & ~known)
		return frl_fail(-EINVAL, "%s: unknown access flags 0x%x", function,
			region->access & ~known);
	if ((region->access & writing) && !(region->access & FRL_ACCESS_LOCAL_WRITE))
		return frl_fail(-EINVAL, "%s: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE too",
			function);
	/* What is aligned for the peer must be so in memory. */
	if ((region->access & (FRL_ACCESS_REMOTE_ATOMIC | FRL_ACCESS_MW_BIND)) &&
		(addr - region->iova) % sizeof(uint64_t))
		return frl_fail(-EINVAL,
			"%s: REMOTE_ATOMIC and MW_BIND need an iova that differs from the address "
			"by a multiple of 8",
			function);
	return 0;
}

int frl_reg_mr(
	struct frl_pd *pd, void *addr, size_t length, uint32_t access, struct frl_mr **ret_mr)
{
	return frl_reg_mr_iova(pd, addr, length, (uintptr_t)addr, access, ret_mr);
}

int frl_reg_mr_iova(struct frl_pd *pd, void *addr, size_t length, uint64_t iova, uint32_t access,
	struct frl_mr **ret_mr)
{
	struct frl_device *device;
	struct port_mem *mem;
	struct frl_mr *mr;
	int rc;

	if (!pd || !ret_mr || !addr || length == 0)
		return frl_fail(-EINVAL, "frl_reg_mr: pd, addr, a length and ret_mr are required");
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return frl_fail(-ENOMEM, "no memory for a memory region");
	mr->device = pd->device;
	mr->pd = pd;
	mr->region = (struct region){
		.addr = addr, .length = length, .iova = iova, .access = access, .pd = pd
	};
	rc = check_region(&mr->region, "frl_reg_mr");
	if (rc)
		goto err_free;
	device = pd->device;
	device_enter(device);
	rc = device->port->ops->mem_map(device->port, addr, length, &mem);
	if (rc)
		goto err_leave;
	mr->region.port_mem = mem;
	rc = engine_add_region(&device->engine, &mr->region);
	if (rc) {
		frl_fail(rc, "no room for another memory region (at most %d a device)", REGION_MAX);
		goto err_unmap;
	}
	pd->objects++;
	device_leave(device);
	*ret_mr = mr;
	return 0;

err_unmap:
	device->port->ops->mem_unmap(device->port, mem);
err_leave:
	device_leave(device);
err_free:
	free(mr);
	return rc;
}

/* Whether somebody still needs the region as it is. With the guard held. */
static int check_idle(struct frl_device *device, const struct frl_mr *mr)
{
	if (mr->region.windows)
		return frl_fail(-EBUSY,
			"memory windows are bound to the memory region: invalidate them first");
	if (engine_region_queued(&device->engine, &mr->region) ||
		!device->port->ops->mem_idle(device->port, mr->region.port_mem))
		return frl_fail(-EBUSY, "packets that refer to the memory region are still queued");
	return 0;
}

static int check_change(const struct frl_mr *mr, uint32_t flags, const struct frl_pd *pd,
	const void *addr, size_t length)
{
	const uint32_t known = FRL_REREG_TRANSLATION | FRL_REREG_PD | FRL_REREG_ACCESS;

	if (!flags || (flags & ~known))
		return frl_fail(-EINVAL,
			"frl_rereg_mr: flags 0x%x: they must be some of FRL_REREG_TRANSLATION, "
			"FRL_REREG_PD, FRL_REREG_ACCESS",
			flags);
	if ((flags & FRL_REREG_PD) && (!pd || pd->device != mr->device))
		return frl_fail(-EINVAL,
			"frl_rereg_mr: FRL_REREG_PD needs a protection domain of the same device");
	if ((flags & FRL_REREG_TRANSLATION) && (!addr || length == 0))
		return frl_fail(
			-EINVAL, "frl_rereg_mr: FRL_REREG_TRANSLATION needs addr and a length");
	return 0;
}

/* Only what the flags name is written: the keys are read without the guard. */
static void change_region(
	struct region *region, uint32_t flags, void *addr, size_t length, uint32_t access)
{
	if (flags & FRL_REREG_TRANSLATION) {
		region->addr = addr;
		region->length = length;
		region->iova = (uintptr_t)addr;
	}
	if (flags & FRL_REREG_ACCESS)
		region->access = access;
}

int frl_rereg_mr(struct frl_mr *mr, uint32_t flags, struct frl_pd *pd, void *addr, size_t length,
	uint32_t access)
{
	struct frl_device *device;
	struct port_mem *mem;
	struct region region;
	int rc;

	if (!mr)
		return frl_fail(-EINVAL, "frl_rereg_mr: mr is required");
	rc = check_change(mr, flags, pd, addr, length);
	if (rc)
		return rc;
	device = mr->device;
	device_enter(device);
	region = mr->region;
	change_region(&region, flags, addr, length, access);
	rc = check_region(&region, "frl_rereg_mr");
	if (!rc)
		rc = check_idle(device, mr);
	if (rc)
		goto leave;
	if (flags & FRL_REREG_TRANSLATION) {
		rc = device->port->ops->mem_map(device->port, addr, length, &mem);
		if (rc)
			goto leave;
		device->port->ops->mem_unmap(device->port, mr->region.port_mem);
		mr->region.port_mem = mem;
	}
	if (flags & FRL_REREG_PD) {
		mr->pd->objects--;
		mr->region.pd = mr->pd = pd;
		pd->objects++;
	}
	change_region(&mr->region, flags, addr, length, access);
leave:
	device_leave(device);
	return rc;
}

int frl_dereg_mr(struct frl_mr *mr)
{
	struct frl_device *device;
	int rc;

	if (!mr)
		return 0;
	device = mr->device;
	device_enter(device);
	rc = check_idle(device, mr);
	if (!rc) {
		engine_remove_region(&device->engine, &mr->region);
		device->port->ops->mem_unmap(device->port, mr->region.port_mem);
		mr->pd->objects--;
	}
	device_leave(device);
	if (!rc)
		free(mr);
	return rc;
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
