/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/offload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpudirect/kernels/batch.h"
#include "gpudirect/gpu.h"
#include "gpudirect/host.h"
#include "gpudirect/queue.h"
#include "lib/base/error.h"
#include "lib/engine/offload/offload.h"

struct gpu_offload {
	struct offload base;
	struct gpu *gpu; /* held by the queue */
	struct gpu_queue *queue;
	char why[ERROR_TEXT_MAX]; /* why the queue takes no more work; or "" */
};

static struct gpu_offload *of(struct offload *offload)
{
	return (struct gpu_offload *)offload;
}

/* Adds a piece that refers to host memory; `is_mapped` says whether that memory is mapped. A lost
 * mapping (for example, after its context was destroyed) never returns. Record the failure, because
 * the caller would otherwise retry for ever. */
static uint64_t give(struct gpu_offload *gpu, const struct gpu_work *work, bool is_mapped)
{
	if (gpu->why[0])
		return 0;
	if (is_mapped)
		return gpu_queue_add(gpu->queue, work);
	snprintf(gpu->why, sizeof(gpu->why),
		"packet buffers are not mapped for GPU %d any more: was its context destroyed, or "
		"the device reset, while its memory was registered?",
		gpu->gpu->ordinal);
	frl_log(FRL_LOG_ERROR, "%s", gpu->why);
	return 0;
}

static uint64_t place(struct offload *offload, const struct offload_placement *p)
{
	struct gpu_offload *gpu = of(offload);
	const struct frl_recv_action *action = p->action;
	struct gpu_work work = {
		.dst = (uintptr_t)p->dst,
		.src = p->is_there ? (uintptr_t)p->payload
				   : gpu_host_address(gpu->gpu, p->payload, p->length),
		.also = p->also ? gpu_host_address(gpu->gpu, p->also, p->length) : 0,
		.count = p->length,
		.action = GPU_COPY,
	};

	if (action && action->type == FRL_ACTION_REDUCE) {
		work.action = GPU_REDUCE;
		work.dtype = (uint8_t)action->dtype;
		work.op = (uint8_t)action->op;
		work.operand = (uintptr_t)(p->src ? p->src : p->dst);
		work.count = p->length / gpu_dtype_size(work.dtype);
	}
	return give(gpu, &work, work.src && (work.also || !p->also));
}

static uint64_t gather(struct offload *offload, uint8_t *host, const uint8_t *src, uint32_t length)
{
	struct gpu_offload *gpu = of(offload);
	struct gpu_work work = {
		.dst = gpu_host_address(gpu->gpu, host, length),
		.src = (uintptr_t)src,
		.count = length,
		.action = GPU_COPY,
	};

	return give(gpu, &work, work.dst != 0);
}

static void launch(struct offload *offload)
{
	gpu_queue_launch(of(offload)->queue);
}

static uint64_t done(struct offload *offload)
{
	return gpu_queue_done(of(offload)->queue);
}

static const char *error(struct offload *offload)
{
	const char *why = NULL;

	if (of(offload)->why[0])
		return of(offload)->why;
	gpu_queue_error(of(offload)->queue, &why);
	return why;
}

static bool reaches(struct offload *offload, const void *host, size_t length)
{
	return gpu_host_address(of(offload)->gpu, host, length) != 0;
}

static int map(struct offload *offload, void *host, size_t length)
{
	return gpu_host_map(of(offload)->gpu, host, length);
}

static void unmap(struct offload *offload, void *host, size_t length)
{
	gpu_host_unmap(of(offload)->gpu, host, length);
}

static const struct offload_ops ops = {
	.place = place,
	.gather = gather,
	.launch = launch,
	.done = done,
	.error = error,
	.reaches = reaches,
	.map = map,
	.unmap = unmap,
};

int gpu_offload_new(struct gpu *gpu, struct offload **ret_offload)
{
	struct gpu_offload *offload = calloc(1, sizeof(*offload));
	int rc;

	if (!offload)
		return frl_fail(-ENOMEM, "no memory for a GPU's offload");
	rc = gpu_queue_new(gpu, &offload->queue);
	if (rc) {
		free(offload);
		return rc;
	}
	offload->base.ops = &ops;
	offload->base.gpu = gpu->ordinal;
	offload->gpu = gpu;
	*ret_offload = &offload->base;
	return 0;
}

void gpu_offload_free(struct offload *offload)
{
	if (!offload)
		return;
	gpu_queue_free(of(offload)->queue);
	free(offload);
}
