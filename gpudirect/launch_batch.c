/* SPDX-License-Identifier: BSD-3-Clause */
/* One kernel for each batch, which is its parameter. So nothing has to be kept for it, nothing
 * waits on the GPU, and a launch that was refused has left nothing behind. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpudirect/image.h"
#include "gpudirect/launcher.h"
#include "lib/base/error.h"

enum {
	/* Two for each multiprocessor keep PCIe and most of a GPU's memory busy, and leave room for
	 * the application's. */
	BLOCKS_PER_PROCESSOR = 2,
	MAX_BLOCKS = 4096,
};

static_assert(
	offsetof(struct gpu_batch, first_block) == offsetof(struct gpu_batch_many, first_block),
	"what is ahead of the pieces is the same in both");

struct batch_launcher {
	struct launcher base;
	cu_function function, many; /* `many` is NULL where there is none */
	cu_deviceptr counter;
	uint32_t max_blocks;
	struct gpu_batch few; /* the parameter of `function`, while a launch copies it */
};

static struct batch_launcher *of(struct launcher *launcher)
{
	return (struct batch_launcher *)launcher;
}

/* In the context. The counter is set in the stream itself, ahead of all that uses it: other ways
 * would wait for the application's streams, or not be waited for by this one. */
static cu_result begin(struct batch_launcher *own, struct gpu *gpu, const char **ret_call)
{
	cu_result result = launcher_begin(&own->base, ret_call);

	if (result)
		return result;
	*ret_call = "cuMemAlloc";
	result = gpu->cuda->cuMemAlloc(&own->counter, sizeof(uint32_t));
	if (result)
		return result;
	*ret_call = "cuMemcpyHtoDAsync";
	return gpu->cuda->cuMemcpyHtoDAsync(
		own->counter, &own->base.shared->zero, sizeof(uint32_t), own->base.stream);
}

static void forget(struct launcher *launcher)
{
	launcher_forget(launcher);
	free(of(launcher));
}

static int make(struct gpu *gpu, struct launcher **ret_launcher)
{
	uint32_t max_blocks = (uint32_t)gpu->caps.multiprocessors * BLOCKS_PER_PROCESSOR;
	struct batch_launcher *own;
	struct gpu_scope scope;
	cu_function function, many;
	const char *call;
	cu_result result;
	int rc = image_load(gpu, &function, &many);

	if (rc)
		return rc;
	own = calloc(1, sizeof(*own));
	if (!own)
		return frl_fail(-ENOMEM, "no memory for a GPU's queue");
	own->function = function;
	own->many = many;
	own->max_blocks = max_blocks < MAX_BLOCKS ? max_blocks : MAX_BLOCKS;
	rc = launcher_prepare(&own->base, &launch_batch_ops, gpu);
	if (many)
		own->base.max_pieces = GPU_BATCH_MANY;
	if (!rc)
		rc = gpu_enter(gpu, &scope);
	if (!rc) {
		result = begin(own, gpu, &call);
		if (result) {
			rc = cuda_fail(result, call, "making a queue of work for a GPU");
			launcher_end(&own->base, 0, true);
		}
		gpu_leave(&scope);
	}
	if (rc) {
		forget(&own->base);
		return rc;
	}
	*ret_launcher = &own->base;
	return 0;
}

/* The kernel for a batch of so many pieces, and its parameter. */
static cu_function choose(
	struct batch_launcher *own, struct gpu_batch_many *batch, void **ret_parameter)
{
	if (batch->n_pieces > GPU_BATCH_PIECES) {
		*ret_parameter = batch;
		return own->many;
	}
	memcpy(&own->few, batch, offsetof(struct gpu_batch, pieces));
	memcpy(own->few.pieces, batch->pieces, batch->n_pieces * sizeof(batch->pieces[0]));
	*ret_parameter = &own->few;
	return own->function;
}

static enum launch_answer launch(struct launcher *launcher, struct launch *open, uint64_t sequence)
{
	struct batch_launcher *own = of(launcher);
	struct gpu_batch_many *batch = &open->batch;
	void *parameters[1];
	cu_function function;
	struct gpu_scope scope;
	cu_result result;
	enum launch_answer answer = launcher_enter(launcher, &scope);

	if (answer != LAUNCH_TAKEN)
		return answer;
	launch_deal(open, own->max_blocks);
	batch->done = launcher_done_address(launcher);
	batch->counter = own->counter;
	batch->sequence = sequence;
	function = choose(own, batch, &parameters[0]);
	result = launcher->gpu->cuda->cuLaunchKernel(function, batch->n_blocks, 1, 1,
		GPU_BLOCK_THREADS, 1, 1, 0, launcher->stream, parameters, NULL);
	gpu_leave(&scope);
	return launcher_answer(launcher, result, "cuLaunchKernel");
}

static void unmake(struct launcher *launcher)
{
	if (of(launcher)->counter)
		launcher->gpu->cuda->cuMemFree(of(launcher)->counter);
}

const struct launcher_ops launch_batch_ops = {
	.make = make,
	.launch = launch,
	.unmake = unmake,
	.forget = forget,
};
