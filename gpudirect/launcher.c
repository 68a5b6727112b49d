/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/launcher.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "gpudirect/host.h"
#include "lib/base/error.h"

int launcher_map(struct gpu *gpu, size_t bytes, void **ret_memory, uint64_t *ret_address)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int rc;

	if (memory == MAP_FAILED)
		return frl_fail(-ENOMEM, "no memory for a GPU's queue");
	rc = gpu_host_map(gpu, memory, bytes);
	if (rc) {
		munmap(memory, bytes);
		return rc;
	}
	*ret_address = gpu_host_address(gpu, memory, bytes);
	if (!*ret_address) {
		launcher_unmap(gpu, memory, bytes);
		return frl_fail(-EBUSY,
			"%zu bytes of host memory for a queue of GPU %d are registered with CUDA "
			"in parts, which that GPU does not see in a row",
			bytes, gpu->ordinal);
	}
	*ret_memory = memory;
	return 0;
}

void launcher_unmap(struct gpu *gpu, void *memory, size_t bytes)
{
	if (!memory)
		return;
	gpu_host_unmap(gpu, memory, bytes);
	munmap(memory, bytes);
}

int launcher_prepare(struct launcher *launcher, const struct launcher_ops *ops, struct gpu *gpu)
{
	void *shared = NULL;
	int rc;

	launcher->ops = ops;
	launcher->gpu = gpu;
	launcher->owner = getpid();
	launcher->max_pieces = GPU_BATCH_PIECES;
	rc = launcher_map(gpu, sizeof(*launcher->shared), &shared, &launcher->shared_address);
	if (!rc)
		launcher->shared = shared;
	return rc;
}

cu_result launcher_begin(struct launcher *launcher, const char **ret_call)
{
	const struct cuda_api *cuda = launcher->gpu->cuda;
	int least, greatest;
	cu_result result;

	*ret_call = "cuCtxGetStreamPriorityRange";
	result = cuda->cuCtxGetStreamPriorityRange(&least, &greatest);
	if (result)
		return result;
	*ret_call = "cuStreamCreateWithPriority";
	return cuda->cuStreamCreateWithPriority(
		&launcher->stream, CU_STREAM_NON_BLOCKING, greatest);
}

/* Failures mean that the context is gone already. */
void launcher_end(struct launcher *launcher, uint64_t launched, bool is_idle)
{
	const struct cuda_api *cuda = launcher->gpu->cuda;
	const struct timespec pause = { .tv_nsec = 1000000 };

	if (launcher->stream) {
		/* Once in any case: what counters begin with may still be on its way. */
		while (cuda_is_passing(cuda->cuStreamSynchronize(launcher->stream)) && !is_idle &&
			atomic_load_explicit(&launcher->shared->done, memory_order_acquire) !=
				launched)
			nanosleep(&pause, NULL);
		cuda->cuStreamDestroy(launcher->stream);
	}
	launcher->ops->unmake(launcher);
	launcher->is_unmade = true;
}

/* Where it was not unmade the context is gone, or the GPU may still use it. */
bool launcher_forget(struct launcher *launcher)
{
	struct gpu_scope scope;
	int rc;

	if (launcher->owner != getpid())
		return false;
	if (!launcher->is_unmade && launcher->stream) {
		rc = gpu_enter(launcher->gpu, &scope);
		if (!rc)
			gpu_leave(&scope);
		if (rc != -ENODEV)
			return false;
	}
	launcher_unmap(launcher->gpu, launcher->shared, sizeof(*launcher->shared));
	launcher->shared = NULL;
	return true;
}

bool launcher_is_own(const struct launcher *launcher)
{
	if (launcher->owner == getpid())
		return true;
	frl_fail(-ENODEV, "GPU %d: this process was forked from the one that has this queue",
		launcher->gpu->ordinal);
	return false;
}

uint64_t launcher_done_address(const struct launcher *launcher)
{
	return launcher->shared_address + offsetof(struct launcher_shared, done);
}

bool launcher_is_gone(cu_result result)
{
	return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT;
}

enum launch_answer launcher_enter(const struct launcher *launcher, struct gpu_scope *ret_scope)
{
	int rc;

	if (!launcher_is_own(launcher))
		return LAUNCH_GONE;
	rc = gpu_enter(launcher->gpu, ret_scope);
	if (!rc)
		return LAUNCH_TAKEN;
	if (cuda_is_passing_error(rc))
		return LAUNCH_PUT_OFF;
	return rc == -ENODEV ? LAUNCH_GONE : LAUNCH_BROKEN;
}

enum launch_answer launcher_answer(
	const struct launcher *launcher, cu_result result, const char *call)
{
	char what[64];

	if (!result)
		return LAUNCH_TAKEN;
	snprintf(what, sizeof(what), "giving work to GPU %d", launcher->gpu->ordinal);
	cuda_fail(result, call, what);
	if (cuda_is_passing(result))
		return LAUNCH_PUT_OFF;
	return cuda_is_fatal(result) || launcher_is_gone(result) ? LAUNCH_GONE : LAUNCH_BROKEN;
}
