/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registration of GPU memory, by the best method that works. Hardware gets a dma-buf, or else the
 * device pointer, which the kernel module nvidia_peermem supports. On a software device GPU kernels
 * move the payload: each device has one struct offload for each GPU with registered memory. It
 * exists from the first region to the last.
 *
 * No driver can prevent an application from freeing memory whose region is still registered. The
 * code here does not access the memory of such a region, and logs a warning when the region is
 * deregistered.
 *
 * Order of release: first the region leaves the device, then the offload and its mappings of ports'
 * memory, then the GPU.
 */
#include "lib/api/memory/memory_gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpudirect/gpu.h"
#include "gpudirect/memory.h"
#include "gpudirect/offload.h"
#include "gpudirect/probe.h"
#include "lib/api/objects.h"
#include "lib/base/error.h"
#include "lib/base/settings.h"
#include "lib/engine/offload/offload.h"

enum {
	PEERMEM_ALIGNMENT = 64 << 10, /* the GPU's page size in nvidia_peermem */
};

/* A GPU whose memory a software device accesses. */
struct device_gpu {
	struct device_gpu *next;
	struct gpu *gpu;
	struct offload *offload; /* has a reference to the GPU */
	unsigned regions;        /* 0: being released; stays in the list until that is done */
};

/* Protects the lists of all devices, which change seldom. Taken before any guard. */
static pthread_mutex_t gpus_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gpu_was_detached = PTHREAD_COND_INITIALIZER;

/* ---- checks */

static bool is_tier_wanted(enum frl_mr_tier tier)
{
	const char *wanted = settings_get()->gpu_tier;

	return strcmp(wanted, "auto") == 0 || strcmp(wanted, frl_mr_tier_name(tier)) == 0;
}

static int refuse_by_setting(const struct frl_mr *mr, const char *what)
{
	return frl_fail(-ENOTSUP,
		"%p is memory of a GPU, and FRL_GPU_TIER is %s: %s; unset it, or give host memory",
		mr->addr, settings_get()->gpu_tier, what);
}

static int check_access(const struct frl_mr *wanted)
{
	const uint32_t refused = FRL_ACCESS_REMOTE_ATOMIC | FRL_ACCESS_MW_BIND;

	if (!wanted->device->ops->offload_attach || !(wanted->access & refused))
		return 0;
	return frl_fail(-ENOTSUP,
		"GPU memory cannot have %s on a %s device, which cannot execute atomics there in "
		"order: use host memory, or leave the right out",
		wanted->access & FRL_ACCESS_REMOTE_ATOMIC ? "REMOTE_ATOMIC" : "MW_BIND",
		wanted->device->ops->kind);
}

static int check_memory(const struct frl_mr *mr, const struct gpu_memory *memory)
{
	if (strcmp(settings_get()->gpu_tier, "off") == 0)
		return refuse_by_setting(mr, "GPU memory is disabled");
	if (memory->kind == GPU_MEMORY_MANAGED)
		return frl_fail(-ENOTSUP,
			"%p is managed memory (cuMemAllocManaged(), cudaMallocManaged()), which "
			"moves between processor and GPU and cannot be registered: use "
			"cuMemAlloc() or cudaMalloc()",
			mr->addr);
	return check_access(mr);
}

/* ---- hardware: the NIC accesses the memory */

static int by_dmabuf(struct frl_mr *mr, const struct gpu_memory *memory, struct gpu *gpu)
{
	const struct device_ops *ops = mr->device->ops;
	uint64_t offset;
	int fd, rc;

	if (!is_tier_wanted(FRL_MR_DMABUF))
		return refuse_by_setting(mr, "not by dma-buf");
	rc = gpu_memory_export(gpu, memory, mr->addr, mr->length, &fd, &offset);
	if (rc)
		return rc;
	rc = ops->mr_reg_dmabuf(mr, fd, offset);
	if (mr_caches_make_room(rc))
		rc = ops->mr_reg_dmabuf(mr, fd, offset);
	/* The registration keeps the memory without the descriptor. */
	close(fd);
	if (rc)
		return rc;
	mr->attr.tier = FRL_MR_DMABUF;
	mr->attr.alignment = (uint32_t)sysconf(_SC_PAGESIZE);
	return 0;
}

static int by_peermem(struct frl_mr *mr)
{
	int rc;

	if (!is_tier_wanted(FRL_MR_PEERMEM))
		return refuse_by_setting(mr, "not by peermem");
	if (!probe_has_peermem())
		return frl_fail(-ENOTSUP,
			"no peermem: the kernel module nvidia_peermem is not loaded (modprobe "
			"nvidia-peermem; it needs the NIC's own driver package)");
	rc = mr->device->ops->mr_reg(mr);
	if (rc)
		return rc;
	mr->attr.tier = FRL_MR_PEERMEM;
	mr->attr.alignment = PEERMEM_ALIGNMENT;
	return 0;
}

/* Returns the error if neither method works: that of the method that is closer to working. */
static int fail_hardware(
	const struct frl_mr *mr, int rc_dmabuf, const char *why_dmabuf, int rc_peermem)
{
	char why_peermem[ERROR_TEXT_MAX];

	error_save(why_peermem);
	return frl_fail(rc_dmabuf == -ENOTSUP ? rc_peermem : rc_dmabuf,
		"the NIC cannot access GPU memory at %p: %.180s; %.180s; or copy through host "
		"memory",
		mr->addr, why_dmabuf, why_peermem);
}

static int register_hardware(struct frl_mr *mr, const struct gpu_memory *memory, struct gpu *gpu)
{
	char before[ERROR_TEXT_MAX], why[ERROR_TEXT_MAX] = "";
	int rc_dmabuf, rc = 0;

	if (!is_tier_wanted(FRL_MR_DMABUF) && !is_tier_wanted(FRL_MR_PEERMEM))
		return refuse_by_setting(mr, "with hardware there are dma-buf and peermem");
	error_save(before);
	rc_dmabuf = by_dmabuf(mr, memory, gpu);
	if (rc_dmabuf) {
		error_save(why);
		rc = by_peermem(mr);
		if (rc)
			return fail_hardware(mr, rc_dmabuf, why, rc);
		/* The method exists, and should have worked. */
		if (rc_dmabuf != -ENOTSUP)
			frl_log(FRL_LOG_WARNING, "GPU memory is registered by peermem, because: %s",
				why);
	}
	error_restore(before);
	snprintf(mr->attr.reason, sizeof(mr->attr.reason), "%.*s", (int)sizeof(mr->attr.reason) - 1,
		why);
	mr->attr.needs_flush = gpu->caps.needs_flush;
	gpu_memory_sync(gpu, memory, mr->addr);
	return 0;
}

/* ---- software: GPU kernels move payload between packets and the memory */

static int make_device_gpu(struct frl_device *device, struct gpu *gpu, struct device_gpu **ret_made)
{
	struct device_gpu *made = calloc(1, sizeof(*made));
	int rc;

	if (!made)
		return frl_fail(-ENOMEM, "no memory for a device's use of a GPU");
	made->gpu = gpu;
	rc = gpu_offload_new(gpu, &made->offload);
	if (!rc) {
		rc = device->ops->offload_attach(device, made->offload);
		if (rc)
			gpu_offload_free(made->offload);
	}
	if (rc) {
		free(made);
		return rc;
	}
	made->next = device->gpus;
	device->gpus = made;
	*ret_made = made;
	return 0;
}

/* Returns an error if the GPU has failed: it cannot have new regions. */
static int check_works(struct frl_device *device, const struct device_gpu *at)
{
	const char *why;

	device_enter(device);
	why = at->offload->ops->error(at->offload);
	device_leave(device);
	if (!why)
		return 0;
	/* The device itself uses the GPU that its port receives into. */
	return frl_fail(-EIO, "GPU %d cannot be used any more on this device, until %s: %s",
		at->gpu->ordinal,
		at->offload == device->far_offload ? "the device is closed and opened again"
						   : "all regions of its memory are deregistered",
		why);
}

/* Returns NULL if the device does not use the GPU. With gpus_mutex held. */
static struct device_gpu *find_gpu(const struct frl_device *device, const struct gpu *gpu)
{
	struct device_gpu *at = device->gpus;

	while (at && at->gpu != gpu)
		at = at->next;
	return at;
}

/*
 * Counts one more region of the GPU's memory, and attaches the GPU to the device if it is the first
 * one.
 */
static int attach_gpu(struct frl_device *device, struct gpu *gpu, struct offload **ret_offload)
{
	struct device_gpu *at;
	int rc;

	pthread_mutex_lock(&gpus_mutex);
	/* Wait for a release in progress: it would unmap what a new offload has mapped. */
	while ((at = find_gpu(device, gpu)) && at->regions == 0)
		pthread_cond_wait(&gpu_was_detached, &gpus_mutex);
	rc = at ? check_works(device, at) : make_device_gpu(device, gpu, &at);
	if (!rc) {
		at->regions++;
		*ret_offload = at->offload;
	}
	pthread_mutex_unlock(&gpus_mutex);
	return rc;
}

static void detach_gpu(struct frl_device *device, const struct offload *offload)
{
	struct device_gpu *at, **link;
	bool is_last;

	pthread_mutex_lock(&gpus_mutex);
	at = device->gpus;
	while (at->offload != offload)
		at = at->next;
	is_last = --at->regions == 0;
	pthread_mutex_unlock(&gpus_mutex);
	if (!is_last)
		return;
	/*
	 * Without the mutex, so that other threads can register meanwhile: this waits for the GPU
	 * to finish its work for the device, and CUDA may wait for all queued work of the
	 * application.
	 */
	device->ops->offload_detach(device, at->offload);
	gpu_offload_free(at->offload);
	pthread_mutex_lock(&gpus_mutex);
	for (link = &device->gpus; *link != at;)
		link = &(*link)->next;
	*link = at->next;
	pthread_cond_broadcast(&gpu_was_detached);
	pthread_mutex_unlock(&gpus_mutex);
	free(at);
}

int device_attach_far(struct frl_device *device)
{
	struct gpu *gpu;
	int rc;

	if (!device->has_far)
		return 0;
	rc = gpu_hold(NULL, device->far_gpu, &gpu);
	if (rc)
		return rc;
	rc = attach_gpu(device, gpu, &device->far_offload);
	/* The offload has its own reference. */
	gpu_release(gpu);
	return rc;
}

void device_detach_far(struct frl_device *device)
{
	if (device->far_offload)
		detach_gpu(device, device->far_offload);
	device->far_offload = NULL;
}

/*
 * Registers the region with the NIC, if the NIC can send from it: tier B. Received payload is in
 * the GPU's memory in any case if the port receives into that GPU.
 */
static int by_queue(struct frl_mr *mr, const struct gpu_memory *memory, struct gpu *gpu)
{
	struct frl_device *device = mr->device;
	char why[ERROR_TEXT_MAX];
	uint64_t offset;
	int fd, rc;

	if (!device->has_far)
		return frl_fail(-ENOTSUP,
			"a %s device has no NIC that accesses GPU memory: open a port with gpu=N "
			"(raw:NAME,gpu=N), or a device of libibverbs (verbs:NAME)",
			device->ops->kind);
	if (mr->offload != device->far_offload)
		return frl_fail(-ENOTSUP,
			"the port receives into GPU %d, but this is memory of GPU %d, or of "
			"another CUDA context than its primary one",
			device->far_gpu, gpu->ordinal);
	rc = gpu_memory_export(gpu, memory, mr->addr, mr->length, &fd, &offset);
	if (!rc) {
		rc = device->ops->mr_map_far(mr, fd, offset);
		close(fd);
	}
	if (!rc || !probe_has_peermem())
		return rc;
	error_save(why);
	return device->ops->mr_map_far(mr, -1, 0) ? frl_fail(rc, "%s", why) : 0;
}

/* Improves a mapped region to tier B if possible. */
static int upgrade(struct frl_mr *mr, const struct gpu_memory *memory, struct gpu *gpu)
{
	char before[ERROR_TEXT_MAX], why[ERROR_TEXT_MAX];
	int rc;

	if (!is_tier_wanted(FRL_MR_QUEUE)) {
		snprintf(mr->attr.reason, sizeof(mr->attr.reason), "FRL_GPU_TIER is %s",
			settings_get()->gpu_tier);
		return 0;
	}
	error_save(before);
	rc = by_queue(mr, memory, gpu);
	if (!rc) {
		mr->attr.tier = FRL_MR_QUEUE;
		gpu_memory_sync(gpu, memory, mr->addr);
		return 0;
	}
	if (!is_tier_wanted(FRL_MR_MAPPED))
		return rc;
	error_save(why);
	error_restore(before);
	snprintf(mr->attr.reason, sizeof(mr->attr.reason), "%.*s", (int)sizeof(mr->attr.reason) - 1,
		why);
	return 0;
}

static void detach_region(struct frl_mr *mr)
{
	detach_gpu(mr->device, mr->offload);
	mr->offload = NULL;
}

static int register_software(struct frl_mr *mr, const struct gpu_memory *memory, struct gpu *gpu)
{
	struct frl_device *device = mr->device;
	int rc;

	if (!device->ops->offload_attach)
		return frl_fail(-ENOTSUP, "a %s device cannot use GPU memory", device->ops->kind);
	if (!is_tier_wanted(FRL_MR_MAPPED) && !is_tier_wanted(FRL_MR_QUEUE))
		return refuse_by_setting(
			mr, "with a software device there are mapped and nic-queue");
	rc = gpu_memory_check_rights(
		gpu, memory, mr->addr, mr->length, mr->access & FRL_ACCESS_LOCAL_WRITE);
	if (rc)
		return rc;
	rc = attach_gpu(device, gpu, &mr->offload);
	if (rc)
		return rc;
	mr->attr.tier = FRL_MR_MAPPED;
	rc = device->ops->mr_reg(mr);
	if (!rc) {
		rc = upgrade(mr, memory, gpu);
		if (rc)
			device->ops->mr_dereg(mr);
	}
	if (rc)
		detach_region(mr);
	return rc;
}

/* ---- called by memory.c */

static void host_attr(struct frl_mr *mr)
{
	mr->attr = (struct frl_mr_attr){ .tier = FRL_MR_HOST, .gpu = -1, .alignment = 1 };
}

static int register_gpu(struct frl_mr *mr, const struct gpu_memory *memory)
{
	struct gpu *gpu;
	int rc = check_memory(mr, memory);

	if (rc)
		return rc;
	rc = gpu_hold(memory->context, memory->ordinal, &gpu);
	if (rc)
		return rc;
	rc = mr->device->ops->mr_reg_dmabuf ? register_hardware(mr, memory, gpu)
					    : register_software(mr, memory, gpu);
	if (rc) {
		host_attr(mr);
		gpu_release(gpu);
		return rc;
	}
	mr->attr.gpu = memory->ordinal;
	mr->gpu = gpu;
	mr->gpu_buffer = memory->buffer_id;
	return 0;
}

int mr_register(struct frl_mr *mr)
{
	struct gpu_memory memory = { .kind = GPU_MEMORY_HOST };
	int rc = 0;

	host_attr(mr);
	if (cuda_is_loaded())
		rc = gpu_memory_of(mr->addr, mr->length, &memory);
	if (rc)
		return rc;
	if (memory.kind != GPU_MEMORY_HOST)
		return register_gpu(mr, &memory);
	return mr->device->ops->mr_reg(mr);
}

static bool is_host(const struct frl_mr *wanted)
{
	struct gpu_memory memory;
	char error[ERROR_TEXT_MAX];
	int rc;

	if (!cuda_is_loaded())
		return true;
	error_save(error);
	rc = gpu_memory_of(wanted->addr, wanted->length, &memory);
	error_restore(error);
	return !rc && memory.kind == GPU_MEMORY_HOST;
}

static int check_new_access(const struct frl_mr *mr, const struct frl_mr *wanted)
{
	struct gpu_memory memory;
	int rc = check_access(wanted);

	if (rc || !mr->offload)
		return rc;
	rc = gpu_memory_of(mr->addr, mr->length, &memory);
	if (rc)
		return rc;
	return gpu_memory_check_rights(
		mr->gpu, &memory, mr->addr, mr->length, wanted->access & FRL_ACCESS_LOCAL_WRITE);
}

int mr_check_gpu_change(const struct frl_mr *mr, uint32_t flags, const struct frl_mr *wanted)
{
	if ((flags & FRL_REREG_TRANSLATION) && (mr->gpu || !is_host(wanted)))
		return frl_fail(-ENOTSUP,
			"frl_rereg_mr: a region cannot change from or to GPU memory: deregister it "
			"and register a new one");
	return mr->gpu ? check_new_access(mr, wanted) : 0;
}

bool mr_gpu_buffer(const void *addr, size_t length, uint64_t *ret_buffer)
{
	struct gpu_memory memory;
	char error[ERROR_TEXT_MAX];
	int rc;

	*ret_buffer = 0;
	if (!cuda_is_loaded())
		return false;
	error_save(error);
	rc = gpu_memory_look(addr, length, &memory);
	error_restore(error);
	if (rc || memory.kind == GPU_MEMORY_HOST)
		return rc != 0;
	*ret_buffer = memory.buffer_id;
	return true;
}

/*
 * Returns false if the driver or the context is gone with all memory: at process exit, in a child,
 * after cudaDeviceReset().
 */
static bool was_freed(const struct frl_mr *mr)
{
	char error[ERROR_TEXT_MAX];
	struct gpu_scope scope;
	uint64_t buffer;
	bool is_there;

	mr_gpu_buffer(mr->addr, mr->length, &buffer);
	if (!mr->gpu_buffer || buffer == mr->gpu_buffer)
		return false;
	error_save(error);
	is_there = !gpu_enter(mr->gpu, &scope);
	error_restore(error);
	if (is_there)
		gpu_leave(&scope);
	return is_there;
}

void mr_release_gpu(struct frl_mr *mr)
{
	if (!mr->gpu)
		return;
	if (mr->offload)
		detach_gpu(mr->device, mr->offload);
	/* The memory of a cached region may be freed: the cache allows that. */
	if (!mr->cached && was_freed(mr))
		frl_log(FRL_LOG_WARNING,
			"memory of GPU %d at %p was freed while it was registered: received data "
			"may have overwritten later allocations there; deregister before freeing",
			mr->attr.gpu, mr->addr);
	gpu_release(mr->gpu);
	mr->gpu = NULL;
	mr->offload = NULL;
}

/* ---- the public functions */

const char *frl_mr_tier_name(enum frl_mr_tier tier)
{
	static const char *const names[] = {
		[FRL_MR_HOST] = "host",
		[FRL_MR_DMABUF] = "dma-buf",
		[FRL_MR_PEERMEM] = "peermem",
		[FRL_MR_MAPPED] = "mapped",
		[FRL_MR_QUEUE] = "nic-queue",
	};

	_Static_assert(sizeof(names) / sizeof(names[0]) == FRL_MR_TIERS, "each has a name");
	return (unsigned)tier < FRL_MR_TIERS ? names[tier] : NULL;
}

void frl_mr_query(const struct frl_mr *mr, struct frl_mr_attr *ret_attr)
{
	*ret_attr = mr->attr;
}

int frl_mr_flush(struct frl_mr *mr)
{
	if (!mr)
		return frl_fail(-EINVAL, "frl_mr_flush: mr is required");
	return mr->attr.needs_flush ? gpu_memory_flush(mr->gpu, mr->addr) : 0;
}
