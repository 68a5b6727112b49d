/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/gpu_resources.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "gpudirect/alloc.h"
#include "gpudirect/gpu.h"
#include "gpudirect/memory.h"
#include "nccl/devices.h"
#include "nccl/log.h"
#include "nccl/data/memory.h"

enum { REGION_BYTES = 4096, BUSY_NS = 100000000 };

struct net_gpu_resources {
	struct net_gpu_resources *next;
	struct gpu *gpu;
	uint8_t *memory;
	struct frl_mr *mr;
};

static pthread_mutex_t resources_lock = PTHREAD_MUTEX_INITIALIZER;

static bool has_resources(const struct net_port *port, const struct gpu *gpu)
{
	const struct net_gpu_resources *resources = port->gpu_resources;

	while (resources && resources->gpu != gpu)
		resources = resources->next;
	return resources;
}

/* Takes over the caller's hold on the GPU. */
static int make_resources(struct net_port *port, struct gpu *gpu)
{
	struct net_gpu_resources *resources = calloc(1, sizeof(*resources));
	int err;

	if (!resources)
		return -ENOMEM;
	resources->gpu = gpu;
	err = gpu_alloc(gpu, REGION_BYTES, &resources->memory);
	if (!err)
		err = frl_reg_mr(port->pd, resources->memory, REGION_BYTES, FRL_ACCESS_LOCAL_WRITE,
			&resources->mr);
	if (err) {
		gpu_free(gpu, resources->memory);
		free(resources);
		return err;
	}
	resources->next = port->gpu_resources;
	port->gpu_resources = resources;
	return 0;
}

static int prepare(struct net_port *port, struct gpu *gpu)
{
	int err = 0;

	pthread_mutex_lock(&resources_lock);
	if (!has_resources(port, gpu)) {
		gpu_hold_again(gpu);
		err = make_resources(port, gpu);
		if (err)
			gpu_release(gpu);
	}
	pthread_mutex_unlock(&resources_lock);
	return err;
}

void net_gpu_resources_add(struct net_port *port, const void *data, size_t size)
{
	struct gpu_memory memory;
	struct gpu *gpu = NULL;
	int err = gpu_memory_look(data, size, &memory);

	if (!err)
		err = gpu_hold(memory.context, memory.ordinal, &gpu);
	if (!err)
		err = prepare(port, gpu);
	if (err)
		net_log_warning("%s frees its resources for a GPU with the GPU's last region, "
				"which may wait for NCCL's kernels: %s",
			port->info.name, frl_last_error());
	gpu_release(gpu);
}

static bool uses_gpu_kernels(const struct net_device *device)
{
	const struct port_info *info = &net_port_at(device, 0)->info;

	return device->n_rails == 1 && !info->is_hardware && (info->pointers & NCCL_PTR_CUDA);
}

/* Adds the device's resources for the GPU. Returns 0 without doing so if the port is not open.
 * `is_only`: this is the only device, so it will be used: open its port if necessary. With several
 * devices, the others may be for other processes. On failure the log has the reason. */
static int prepare_device(struct net_device *device, bool is_only, struct gpu *gpu)
{
	int err = 0;

	if (!is_only && !net_device_acquire_open(device))
		return 0;
	if (is_only)
		err = net_device_acquire(device);
	if (err)
		return err;
	err = prepare(net_port_at(device, 0), gpu);
	if (err)
		net_log_warning("%s has no resources for GPU %d yet; registration of the GPU's "
				"memory tries again: %s",
			device->name, gpu->ordinal, frl_last_error());
	net_device_release(device);
	return err;
}

void net_gpu_resources_add_current(bool retry)
{
	struct gpu *gpu = NULL;
	int n;

	net_devices(&n);
	for (int i = 0; i < n; i++) {
		struct net_device *device = net_device_at(i);
		struct net_port *port = device ? net_port_at(device, 0) : NULL;

		if (!device || !uses_gpu_kernels(device) ||
			(!retry && atomic_load(&port->has_no_gpu_resources)))
			continue;
		if (!gpu && gpu_hold_current(&gpu))
			net_log_warning("no resources for GPUs yet: %s", frl_last_error());
		if (!gpu)
			return;
		atomic_store(&port->has_no_gpu_resources, prepare_device(device, n == 1, gpu) != 0);
	}
	gpu_release(gpu);
}

bool net_gpu_resources_free(struct net_port *port)
{
	bool is_done = true;

	pthread_mutex_lock(&resources_lock);
	while (port->gpu_resources) {
		struct net_gpu_resources *resources = port->gpu_resources;

		is_done = net_dereg_within(port, resources->mr, BUSY_NS) == 0;
		if (!is_done)
			break;
		gpu_free(resources->gpu, resources->memory);
		gpu_release(resources->gpu);
		port->gpu_resources = resources->next;
		free(resources);
	}
	pthread_mutex_unlock(&resources_lock);
	return is_done;
}
