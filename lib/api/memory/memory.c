/* SPDX-License-Identifier: BSD-3-Clause */
/* Protection domains and memory regions. */
#include <stdlib.h>

#include "lib/api/memory/memory_gpu.h"
#include "lib/api/objects.h"
#include "lib/base/error.h"
#include "lib/base/memory/memfd.h"
#include "lib/base/memory/share.h"

int frl_pd_create(struct frl_device *device, struct frl_pd **ret_pd)
{
	struct frl_pd *pd;
	int rc = 0;

	if (!device || !ret_pd)
		return frl_fail(-EINVAL, "frl_pd_create: device and ret_pd are required");
	pd = calloc(1, device->ops->pd_size);
	if (!pd)
		return frl_fail(-ENOMEM, "no memory for a protection domain");
	pd->device = device;
	if (device->ops->pd_create)
		rc = device->ops->pd_create(pd);
	if (rc) {
		free(pd);
		return rc;
	}
	device_enter(device);
	device->objects++;
	device_leave(device);
	*ret_pd = pd;
	return 0;
}

int frl_pd_destroy(struct frl_pd *pd)
{
	struct frl_device *device;
	unsigned objects;
	int rc = 0;

	if (!pd)
		return 0;
	device = pd->device;
	device_enter(device);
	objects = pd->objects;
	device_leave(device);
	if (objects)
		return frl_fail(-EBUSY,
			"the protection domain still has %u queue pairs, memory regions or other "
			"objects",
			objects);
	if (device->ops->pd_destroy)
		rc = device->ops->pd_destroy(pd);
	if (rc)
		return rc;
	device_enter(device);
	device->objects--;
	device_leave(device);
	free(pd);
	return 0;
}

/* Checks the arguments of all registrations. */
static int check_region(const struct frl_mr *region, const char *function)
{
	const uint32_t known = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE |
		FRL_ACCESS_REMOTE_READ | FRL_ACCESS_REMOTE_ATOMIC | FRL_ACCESS_MW_BIND |
		FRL_ACCESS_MAY_UNMAP;
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
	/* Memory that is aligned for the peer must be aligned in this process. */
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

/* Devices use pages of registered memory, so fork() must not replace them: see share.h. */
static void pin(struct frl_mr *mr)
{
	mr->share = mr->addr ? share_find(mr->addr, mr->length) : NULL;
}

static void unpin(struct frl_mr *mr)
{
	if (mr->share)
		share_put(mr->share);
	mr->share = NULL;
}

int mr_make(struct frl_pd *pd, const struct frl_mr *wanted,
	int (*reg)(struct frl_mr *mr, void *arg), void *arg, struct frl_mr **ret_mr)
{
	struct frl_device *device = pd->device;
	char error[ERROR_TEXT_MAX];
	struct frl_mr *mr;
	int rc = check_region(wanted, "frl_reg_mr");

	if (rc)
		return rc;
	mr = calloc(1, device->ops->mr_size);
	if (!mr)
		return frl_fail(-ENOMEM, "no memory for a memory region");
	*mr = *wanted;
	mr->device = device;
	mr->pd = pd;
	pd_count(pd, 1);
	error_save(error);
	pin(mr);
	rc = reg(mr, arg);
	if (mr_caches_make_room(rc)) {
		rc = reg(mr, arg);
		if (!rc)
			error_restore(error);
	}
	if (rc) {
		unpin(mr);
		pd_count(pd, -1);
		free(mr);
		return rc;
	}
	*ret_mr = mr;
	return 0;
}

static int reg_memory(struct frl_mr *mr, void *arg)
{
	return mr_register(mr);
}

int frl_reg_mr_iova(struct frl_pd *pd, void *addr, size_t length, uint64_t iova, uint32_t access,
	struct frl_mr **ret_mr)
{
	const struct frl_mr wanted = {
		.addr = addr, .length = length, .iova = iova, .access = access
	};

	if (!pd || !ret_mr || !addr || length == 0)
		return frl_fail(-EINVAL, "frl_reg_mr: pd, addr, a length and ret_mr are required");
	return mr_make(pd, &wanted, reg_memory, NULL, ret_mr);
}

struct dmabuf {
	int fd;
	uint64_t offset;
};

static int reg_dmabuf(struct frl_mr *mr, void *arg)
{
	const struct device_ops *ops = mr->device->ops;
	const struct dmabuf *dmabuf = arg;

	if (!ops->mr_reg_dmabuf)
		return frl_fail(-ENOTSUP,
			"a %s device cannot register a dma-buf: open one of libibverbs "
			"(verbs:NAME), or register memory that the processor can read",
			ops->kind);
	mr->attr = (struct frl_mr_attr){
		.tier = FRL_MR_DMABUF,
		.gpu = -1,
		.alignment = 1,
	};
	return ops->mr_reg_dmabuf(mr, dmabuf->fd, dmabuf->offset);
}

int frl_reg_dmabuf_mr(struct frl_pd *pd, int fd, uint64_t offset, size_t length, uint64_t iova,
	uint32_t access, struct frl_mr **ret_mr)
{
	const struct frl_mr wanted = { .length = length, .iova = iova, .access = access };
	struct dmabuf dmabuf = { .fd = fd, .offset = offset };

	if (!pd || !ret_mr || fd < 0 || length == 0)
		return frl_fail(-EINVAL,
			"frl_reg_dmabuf_mr: pd, a descriptor, a length and ret_mr are required");
	if (offset + length < offset)
		return frl_fail(-EINVAL, "frl_reg_dmabuf_mr: offset and length wrap around");
	return mr_make(pd, &wanted, reg_dmabuf, &dmabuf, ret_mr);
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

/* Writes only the fields that the flags name: another thread may change the others. Pages that the
 * region no longer has go to `wanted`. */
static void change_region(struct frl_mr *mr, uint32_t flags, struct frl_mr *wanted)
{
	device_enter(mr->device);
	if (flags & FRL_REREG_TRANSLATION) {
		struct share *before = mr->share;

		mr->share = wanted->share;
		wanted->share = before;
		mr->addr = wanted->addr;
		mr->length = wanted->length;
		mr->iova = wanted->iova;
	}
	if (flags & FRL_REREG_ACCESS)
		mr->access = wanted->access;
	if (flags & FRL_REREG_PD) {
		mr->pd->objects--;
		mr->pd = wanted->pd;
		mr->pd->objects++;
	}
	device_leave(mr->device);
}

int frl_rereg_mr(struct frl_mr *mr, uint32_t flags, struct frl_pd *pd, void *addr, size_t length,
	uint32_t access)
{
	struct frl_mr wanted;
	int rc;

	if (!mr)
		return frl_fail(-EINVAL, "frl_rereg_mr: mr is required");
	if (mr->cached)
		return frl_fail(-EINVAL,
			"frl_rereg_mr: the region belongs to a cache and may have other users: "
			"register one of your own");
	if (mr->fragments)
		return frl_fail(-EINVAL,
			"frl_rereg_mr: the region's payload stays in packet buffers: register "
			"another one by frl_reg_fragments()");
	rc = check_change(mr, flags, pd, addr, length);
	if (rc)
		return rc;
	device_enter(mr->device);
	wanted = *mr;
	device_leave(mr->device);
	if (flags & FRL_REREG_TRANSLATION) {
		wanted.addr = addr;
		wanted.length = length;
		wanted.iova = (uintptr_t)addr;
	}
	if (flags & FRL_REREG_PD)
		wanted.pd = pd;
	if (flags & FRL_REREG_ACCESS)
		wanted.access = access;
	rc = check_region(&wanted, "frl_rereg_mr");
	if (!rc)
		rc = mr_check_gpu_change(mr, flags, &wanted);
	if (rc)
		return rc;
	wanted.share = NULL;
	if (flags & FRL_REREG_TRANSLATION)
		pin(&wanted);
	rc = mr->device->ops->mr_rereg(mr, flags, &wanted);
	if (!rc)
		change_region(mr, flags, &wanted);
	unpin(&wanted);
	return rc;
}

static void free_region(struct frl_mr *mr)
{
	unpin(mr);
	mr_release_gpu(mr);
	mr_release_fragments(mr);
	pd_count(mr->pd, -1);
	free(mr);
}

int frl_dereg_mr(struct frl_mr *mr)
{
	int rc;

	if (!mr)
		return 0;
	if (mr->cached)
		return frl_fail(-EINVAL,
			"frl_dereg_mr: the region belongs to a cache: return it by "
			"frl_mr_cache_put()");
	rc = mr->device->ops->mr_dereg(mr);
	if (!rc)
		free_region(mr);
	return rc;
}

int mr_dereg_cached(struct frl_mr *mr)
{
	int rc = mr->device->ops->mr_dereg(mr);

	if (rc == -EBUSY)
		return rc;
	if (rc)
		frl_log(FRL_LOG_WARNING, "a region of a cache stays registered: %s",
			frl_last_error());
	free_region(mr);
	return 0;
}

uint32_t frl_mr_lkey(const struct frl_mr *mr)
{
	return mr->lkey;
}

uint32_t frl_mr_rkey(const struct frl_mr *mr)
{
	return mr->rkey;
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
		frl_fail(errno, "no %zu bytes of memory: %s", size, memfd_strerror(errno));
	return addr;
}

void frl_mem_free(void *addr, size_t size)
{
	if (addr)
		share_free(addr);
}
