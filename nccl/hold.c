/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/hold.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "gpudirect/alloc.h"
#include "gpudirect/gpu.h"
#include "gpudirect/memory.h"
#include "nccl/devices.h"
#include "nccl/log.h"
#include "nccl/memory.h"

enum { HOLD_BYTES = 4096, BUSY_NS = 100000000 };

struct net_hold {
	struct net_hold *next;
	struct gpu *gpu;
	uint8_t *memory;
	struct frl_mr *mr;
};

static pthread_mutex_t holds_lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_held(const struct net_port *port, const struct gpu *gpu)
{
	const struct net_hold *hold = port->holds;

	while (hold && hold->gpu != gpu)
		hold = hold->next;
	return hold;
}

/* Takes over the caller's hold on the GPU. */
static int make_hold(struct net_port *port, struct gpu *gpu)
{
	struct net_hold *hold = calloc(1, sizeof(*hold));
	int err;

	if (!hold)
		return -ENOMEM;
	hold->gpu = gpu;
	err = gpu_alloc(gpu, HOLD_BYTES, &hold->memory);
	if (!err)
		err = frl_reg_mr(
			port->pd, hold->memory, HOLD_BYTES, FRL_ACCESS_LOCAL_WRITE, &hold->mr);
	if (err) {
		gpu_free(gpu, hold->memory);
		free(hold);
		return err;
	}
	hold->next = port->holds;
	port->holds = hold;
	return 0;
}

static int hold(struct net_port *port, struct gpu *gpu)
{
	int err = 0;

	pthread_mutex_lock(&holds_lock);
	if (!is_held(port, gpu)) {
		gpu_hold_again(gpu);
		err = make_hold(port, gpu);
		if (err)
			gpu_release(gpu);
	}
	pthread_mutex_unlock(&holds_lock);
	return err;
}

void net_hold_gpu(struct net_port *port, const void *data, size_t size)
{
	struct gpu_memory memory;
	struct gpu *gpu = NULL;
	int err = gpu_memory_look(data, size, &memory);

	if (!err)
		err = gpu_hold(memory.context, memory.ordinal, &gpu);
	if (!err)
		err = hold(port, gpu);
	if (err)
		net_log_warning("%s gives up a GPU with the last of its memory, which may wait for "
				"NCCL's kernels: %s",
			port->info.name, frl_last_error());
	gpu_release(gpu);
}

static bool moves_by_gpu(const struct net_device *device)
{
	const struct port_info *info = &net_port_at(device, 0)->info;

	return device->n_rails == 1 && !info->is_hardware && (info->pointers & NCCL_PTR_CUDA);
}

/* `is_only`: this is the only device, so it will be used: open its port if necessary. With several
 * devices, the others may be for other processes. */
static int hold_for_device(struct net_device *device, bool is_only, struct gpu *gpu)
{
	int err = 0;

	if (!is_only && !net_device_acquire_open(device))
		return 0;
	if (is_only)
		err = net_device_acquire(device);
	/* The log has the reason. */
	if (err)
		return err;
	err = hold(net_port_at(device, 0), gpu);
	if (err)
		net_log_warning("%s is not set up for GPU %d yet, which is tried again when its "
				"memory is registered: %s",
			device->name, gpu->ordinal, frl_last_error());
	net_device_release(device);
	return err;
}

void net_hold_current_gpu(bool tries_again)
{
	struct gpu *gpu = NULL;
	int n;

	net_devices(&n);
	for (int i = 0; i < n; i++) {
		struct net_device *device = net_device_at(i);
		struct net_port *port = device ? net_port_at(device, 0) : NULL;

		if (!device || !moves_by_gpu(device) ||
			(!tries_again && atomic_load(&port->is_hold_refused)))
			continue;
		if (!gpu && gpu_hold_current(&gpu))
			net_log_warning("no GPU is set up yet: %s", frl_last_error());
		if (!gpu)
			return;
		atomic_store(&port->is_hold_refused, hold_for_device(device, n == 1, gpu) != 0);
	}
	gpu_release(gpu);
}

bool net_let_gpus_go(struct net_port *port)
{
	bool is_done = true;

	pthread_mutex_lock(&holds_lock);
	while (port->holds) {
		struct net_hold *hold = port->holds;

		is_done = net_dereg_within(port, hold->mr, BUSY_NS) == 0;
		if (!is_done)
			break;
		gpu_free(hold->gpu, hold->memory);
		gpu_release(hold->gpu);
		port->holds = hold->next;
		free(hold);
	}
	pthread_mutex_unlock(&holds_lock);
	return is_done;
}
