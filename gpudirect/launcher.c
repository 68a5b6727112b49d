/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/launcher.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "gpudirect/host.h"
#include "gpudirect/kernels/image.h"
#include "lib/base/error.h"

enum {
	/* Two blocks for each multiprocessor saturate PCIe and most of a GPU's memory bandwidth,
	 * and leave room for the application's kernels. */
	BLOCKS_PER_PROCESSOR = 2,
	MAX_BLOCKS = 4096,
};

static_assert(
	offsetof(struct gpu_batch, first_block) == offsetof(struct gpu_batch_many, first_block),
	"what is ahead of the pieces is the same in both");

/* ---- memory shared with the GPU */

static int map_shared(struct launcher *launcher)
{
	const size_t bytes = sizeof(*launcher->shared);
	struct gpu *gpu = launcher->gpu;
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int rc;

	if (memory == MAP_FAILED)
		return frl_fail(-ENOMEM, "no memory for a GPU's queue");
	rc = gpu_host_map(gpu, memory, bytes);
	if (rc) {
		munmap(memory, bytes);
		return rc;
	}
	launcher->shared = memory;
	launcher->shared_address = gpu_host_address(gpu, memory, bytes);
	if (launcher->shared_address)
		return 0;
	return frl_fail(-EBUSY,
		"%zu bytes of host memory for a queue of GPU %d have several CUDA registrations, "
		"which are not contiguous for that GPU",
		bytes, gpu->ordinal);
}

static void unmap_shared(struct launcher *launcher)
{
	if (!launcher->shared)
		return;
	gpu_host_unmap(launcher->gpu, launcher->shared, sizeof(*launcher->shared));
	munmap(launcher->shared, sizeof(*launcher->shared));
	launcher->shared = NULL;
}

/* ---- creation and destruction */

/* In the context: creates a non-blocking stream of high priority. The counter is initialized in
 * this stream, ahead of all launches that use it. Other copies would wait for the application's
 * streams, or this stream would not wait for them. */
static cu_result begin(struct launcher *launcher, const char **ret_call)
{
	const struct cuda_api *cuda = launcher->gpu->cuda;
	int least, greatest;
	cu_result result;

	*ret_call = "cuCtxGetStreamPriorityRange";
	result = cuda->cuCtxGetStreamPriorityRange(&least, &greatest);
	if (result)
		return result;
	*ret_call = "cuStreamCreateWithPriority";
	result = cuda->cuStreamCreateWithPriority(
		&launcher->stream, CU_STREAM_NON_BLOCKING, greatest);
	if (result)
		return result;
	*ret_call = "cuMemAlloc";
	result = cuda->cuMemAlloc(&launcher->counter, sizeof(uint32_t));
	if (result)
		return result;
	*ret_call = "cuMemcpyHtoDAsync";
	return cuda->cuMemcpyHtoDAsync(
		launcher->counter, &launcher->shared->zero, sizeof(uint32_t), launcher->stream);
}

static int begin_in_context(struct launcher *launcher)
{
	struct gpu_scope scope;
	const char *call;
	cu_result result;
	int rc = gpu_enter(launcher->gpu, &scope);

	if (rc)
		return rc;
	result = begin(launcher, &call);
	if (result) {
		rc = cuda_fail(result, call, "making a queue of work for a GPU");
		launcher_end(launcher, 0, true);
	}
	gpu_leave(&scope);
	return rc;
}

int launcher_make(struct launcher *launcher, struct gpu *gpu)
{
	uint32_t max_blocks = (uint32_t)gpu->caps.multiprocessors * BLOCKS_PER_PROCESSOR;
	int rc = image_load(gpu, &launcher->function, &launcher->many);

	if (rc)
		return rc;
	launcher->gpu = gpu;
	launcher->owner = getpid();
	launcher->max_blocks = max_blocks < MAX_BLOCKS ? max_blocks : MAX_BLOCKS;
	launcher->max_pieces = launcher->many ? GPU_BATCH_MANY : GPU_BATCH_PIECES;
	rc = map_shared(launcher);
	if (!rc)
		rc = begin_in_context(launcher);
	if (rc)
		launcher_free_memory(launcher);
	return rc;
}

/* Ignores errors: they mean that the context is gone already. */
void launcher_end(struct launcher *launcher, uint64_t launched, bool is_idle)
{
	const struct cuda_api *cuda = launcher->gpu->cuda;
	const struct timespec pause = { .tv_nsec = 1000000 };

	if (launcher->stream) {
		/* Synchronize at least once: the copy of the counter's initial value may still be
		 * pending. */
		while (cuda_is_passing(cuda->cuStreamSynchronize(launcher->stream)) && !is_idle &&
			atomic_load_explicit(&launcher->shared->done, memory_order_acquire) !=
				launched)
			nanosleep(&pause, NULL);
		cuda->cuStreamDestroy(launcher->stream);
	}
	if (launcher->counter)
		cuda->cuMemFree(launcher->counter);
	launcher->is_unmade = true;
}

/* Without a preceding launcher_end(), either the context is gone, or the GPU may still use the
 * memory. */
void launcher_free_memory(struct launcher *launcher)
{
	struct gpu_scope scope;
	int rc;

	if (launcher->owner != getpid())
		return;
	if (!launcher->is_unmade && launcher->stream) {
		rc = gpu_enter(launcher->gpu, &scope);
		if (!rc)
			gpu_leave(&scope);
		if (rc != -ENODEV)
			return;
	}
	unmap_shared(launcher);
}

bool launcher_is_own(const struct launcher *launcher)
{
	if (launcher->owner == getpid())
		return true;
	frl_fail(-ENODEV, "GPU %d: the queue belongs to the parent of this forked process",
		launcher->gpu->ordinal);
	return false;
}

/* ---- launching */

bool launcher_context_is_lost(cu_result result)
{
	return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT;
}

/* Calls gpu_enter() in the process that created the launcher. After LAUNCH_TAKEN the caller must
 * call gpu_leave(). */
static enum launch_answer enter(const struct launcher *launcher, struct gpu_scope *ret_scope)
{
	int rc;

	if (!launcher_is_own(launcher))
		return LAUNCH_LOST;
	rc = gpu_enter(launcher->gpu, ret_scope);
	if (!rc)
		return LAUNCH_TAKEN;
	if (cuda_is_passing_error(rc))
		return LAUNCH_PUT_OFF;
	return rc == -ENODEV ? LAUNCH_LOST : LAUNCH_BROKEN;
}

/* Maps a result of cuLaunchKernel() to the result of the attempt. */
static enum launch_answer answer_of(const struct launcher *launcher, cu_result result)
{
	char what[64];

	if (!result)
		return LAUNCH_TAKEN;
	snprintf(what, sizeof(what), "launching on GPU %d", launcher->gpu->ordinal);
	cuda_fail(result, "cuLaunchKernel", what);
	if (cuda_is_passing(result))
		return LAUNCH_PUT_OFF;
	return cuda_is_fatal(result) || launcher_context_is_lost(result) ? LAUNCH_LOST
									 : LAUNCH_BROKEN;
}

/* Selects the kernel for a batch of this size, and its parameter. */
static cu_function choose(
	struct launcher *launcher, struct gpu_batch_many *batch, void **ret_parameter)
{
	if (batch->n_pieces > GPU_BATCH_PIECES) {
		*ret_parameter = batch;
		return launcher->many;
	}
	memcpy(&launcher->few, batch, offsetof(struct gpu_batch, pieces));
	memcpy(launcher->few.pieces, batch->pieces, batch->n_pieces * sizeof(batch->pieces[0]));
	*ret_parameter = &launcher->few;
	return launcher->function;
}

enum launch_answer launcher_launch(
	struct launcher *launcher, struct launch *open, uint64_t sequence)
{
	struct gpu_batch_many *batch = &open->batch;
	void *parameters[1];
	cu_function function;
	struct gpu_scope scope;
	cu_result result;
	enum launch_answer answer = enter(launcher, &scope);

	if (answer != LAUNCH_TAKEN)
		return answer;
	launch_deal(open, launcher->max_blocks);
	batch->done = launcher->shared_address + offsetof(struct launcher_shared, done);
	batch->counter = launcher->counter;
	batch->sequence = sequence;
	function = choose(launcher, batch, &parameters[0]);
	result = launcher->gpu->cuda->cuLaunchKernel(function, batch->n_blocks, 1, 1,
		GPU_BLOCK_THREADS, 1, 1, 0, launcher->stream, parameters, NULL);
	gpu_leave(&scope);
	return answer_of(launcher, result);
}
