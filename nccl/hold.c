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

/* The GPU's holder is passed on to the hold. */
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

void net_hold_gpu(struct net_port *port, const void *data, size_t size)
{
	struct gpu_memory memory;
	struct gpu *gpu = NULL;
	int err;

	pthread_mutex_lock(&holds_lock);
	err = gpu_memory_look(data, size, &memory);
	if (!err)
		err = gpu_hold(memory.context, memory.ordinal, &gpu);
	if (!err && is_held(port, gpu)) {
		gpu_release(gpu);
	} else if (!err) {
		err = make_hold(port, gpu);
		if (err)
			gpu_release(gpu);
	}
	pthread_mutex_unlock(&holds_lock);
	if (err)
		net_log_warning("%s gives up a GPU with the last of its memory, which may wait for "
				"NCCL's kernels: %s",
			port->info.name, frl_last_error());
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
