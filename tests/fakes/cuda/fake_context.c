/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: contexts, and each thread's stack of them. */
#include <string.h>

#include "tests/fakes/cuda/fake_exports.h"
#include "tests/fakes/cuda/fake_internal.h"

/* Identifies a context, also against a later one at the same address. */
static __thread struct {
	uint64_t world; /* that they belong to: reset() makes a new one */
	unsigned depth;
	struct {
		struct fake_context *context;
		uint64_t id;
	} stack[FAKE_DEPTH];
} own;

static unsigned depth(void)
{
	if (own.world != fake.number) {
		own.world = fake.number;
		own.depth = 0;
	}
	return own.depth;
}

unsigned fake_context_depth(void)
{
	return depth();
}

cu_context fake_context_handle(const struct fake_context *context)
{
	return (cu_context)(uintptr_t)context;
}

struct fake_context *fake_context_of(cu_context context)
{
	for (unsigned i = 0; i < FAKE_CONTEXTS; i++)
		if (fake.contexts[i].is_alive && fake_context_handle(&fake.contexts[i]) == context)
			return &fake.contexts[i];
	return NULL;
}

static bool top_is_alive(void)
{
	struct fake_context *context = own.stack[own.depth - 1].context;

	return context->is_alive && context->id == own.stack[own.depth - 1].id;
}

cu_result fake_current(struct fake_context **ret_context)
{
	*ret_context = NULL;
	if (depth() == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!top_is_alive())
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ret_context = own.stack[own.depth - 1].context;
	return CUDA_SUCCESS;
}

static bool push(struct fake_context *context)
{
	if (depth() == FAKE_DEPTH)
		return false;
	own.stack[own.depth].context = context;
	own.stack[own.depth++].id = context->id;
	return true;
}

/* The lowest free number: the place of the last context. */
static struct fake_context *context_new(int device, unsigned flags, bool is_primary)
{
	for (unsigned i = is_primary ? 0 : FAKE_CUDA_MAX_DEVICES; i < FAKE_CONTEXTS; i++) {
		struct fake_context *context = &fake.contexts[is_primary ? (unsigned)device : i];

		if (context->is_alive)
			continue;
		*context = (struct fake_context){
			.is_alive = true,
			.is_primary = is_primary,
			.device = device,
			.flags = flags,
			.id = ++fake.next_id,
		};
		context->legacy = fake_stream_new(context, 0, 0);
		context->legacy->is_legacy = true;
		context->per_thread = fake_stream_new(context, 0, 0);
		return context;
	}
	return NULL;
}

static void context_end(struct fake_context *context)
{
	fake_streams_drop(context);
	fake_events_drop(context);
	fake_modules_drop(context);
	fake_memory_drop(context);
	context->is_alive = false;
}

void fake_contexts_reset(void)
{
	for (unsigned i = 0; i < FAKE_CONTEXTS; i++)
		if (fake.contexts[i].is_alive)
			context_end(&fake.contexts[i]);
	fake.number++;
}

cu_result cuDevicePrimaryCtxRetain(cu_context *ret_context, cu_device device)
{
	cu_result result = fake_enter("cuDevicePrimaryCtxRetain", 0);
	struct fake_context *context;

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_context)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (device < 0 || device >= fake.n_devices)
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	context = &fake.contexts[device];
	if (!context->is_alive)
		context = context_new(device, 0, true);
	context->retained++;
	*ret_context = fake_context_handle(context);
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuDevicePrimaryCtxRelease_v2(cu_device device)
{
	cu_result result = fake_enter("cuDevicePrimaryCtxRelease", 0);

	if (result != CUDA_SUCCESS)
		return result;
	if (device < 0 || device >= fake.n_devices)
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!fake.contexts[device].is_alive)
		return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (--fake.contexts[device].retained == 0)
		context_end(&fake.contexts[device]);
	return fake_leave(CUDA_SUCCESS);
}

/* The context stays retained, as often as it was, but loses everything it had. */
cu_result cuDevicePrimaryCtxReset_v2(cu_device device)
{
	cu_result result = fake_enter("cuDevicePrimaryCtxReset", 0);
	unsigned retained;

	if (result != CUDA_SUCCESS)
		return result;
	if (device < 0 || device >= fake.n_devices)
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	if (fake.contexts[device].is_alive) {
		retained = fake.contexts[device].retained;
		context_end(&fake.contexts[device]);
		context_new(device, 0, true)->retained = retained;
	}
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuDevicePrimaryCtxGetState(cu_device device, unsigned int *ret_flags, int *ret_active)
{
	cu_result result = fake_enter("cuDevicePrimaryCtxGetState", 0);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_flags || !ret_active)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (device < 0 || device >= fake.n_devices)
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	*ret_flags = 0;
	*ret_active = fake.contexts[device].is_alive;
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuCtxCreate_v2(cu_context *ret_context, unsigned int flags, cu_device device)
{
	cu_result result = fake_enter("cuCtxCreate", 0);
	struct fake_context *context;

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_context)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (device < 0 || device >= fake.n_devices)
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	context = context_new(device, flags, false);
	if (!context || !push(context))
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	*ret_context = fake_context_handle(context);
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuCtxDestroy_v2(cu_context handle)
{
	cu_result result = fake_enter("cuCtxDestroy", 0);
	struct fake_context *context;

	if (result != CUDA_SUCCESS)
		return result;
	context = fake_context_of(handle);
	if (!context || context->is_primary)
		return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (depth() > 0 && own.stack[own.depth - 1].context == context && top_is_alive())
		own.depth--;
	context_end(context);
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuCtxPushCurrent_v2(cu_context handle)
{
	cu_result result = fake_enter("cuCtxPushCurrent", 0);
	struct fake_context *context;

	if (result != CUDA_SUCCESS)
		return result;
	context = fake_context_of(handle);
	if (!context)
		return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
	return fake_leave(push(context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

cu_result cuCtxPopCurrent_v2(cu_context *ret_context)
{
	cu_result result = fake_enter("cuCtxPopCurrent", FAKE_QUIET);

	if (result != CUDA_SUCCESS)
		return result;
	if (depth() == 0)
		return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
	own.depth--;
	if (ret_context)
		*ret_context = fake_context_handle(own.stack[own.depth].context);
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuCtxSetCurrent(cu_context handle)
{
	cu_result result = fake_enter("cuCtxSetCurrent", 0);
	struct fake_context *context;

	if (result != CUDA_SUCCESS)
		return result;
	context = fake_context_of(handle);
	if (handle && !context)
		return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (depth() > 0)
		own.depth--;
	if (context)
		push(context);
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuCtxGetCurrent(cu_context *ret_context)
{
	cu_result result = fake_enter("cuCtxGetCurrent", 0);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_context)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_context = depth() ? fake_context_handle(own.stack[own.depth - 1].context) : NULL;
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuCtxGetDevice(cu_device *ret_device)
{
	cu_result result = fake_enter("cuCtxGetDevice", 0);
	struct fake_context *context;

	if (result != CUDA_SUCCESS)
		return result;
	result = fake_current(&context);
	if (result == CUDA_SUCCESS && !ret_device)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*ret_device = context->device;
	return fake_leave(result);
}

cu_result cuCtxGetId(cu_context handle, unsigned long long *ret_id)
{
	cu_result result = fake_enter("cuCtxGetId", 0);
	struct fake_context *context;

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_id)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (handle)
		context = fake_context_of(handle);
	else
		result = fake_current(&context);
	if (result == CUDA_SUCCESS && !context)
		result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (result == CUDA_SUCCESS)
		*ret_id = context->id;
	return fake_leave(result);
}

cu_result cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest)
{
	cu_result result = fake_enter("cuCtxGetStreamPriorityRange", FAKE_CONTEXTED);

	if (result != CUDA_SUCCESS)
		return result;
	if (ret_least)
		*ret_least = 0;
	if (ret_greatest)
		*ret_greatest = -5;
	return fake_leave(CUDA_SUCCESS);
}

static bool context_is_idle(const void *what)
{
	for (const struct fake_stream *s = fake.streams; s; s = s->next)
		if (s->context == what && !fake_stream_is_idle(s))
			return false;
	return true;
}

cu_result fake_context_wait(struct fake_context *context)
{
	cu_result result;

	fake.n_keepers++;
	fake.keeper = pthread_self();
	result = fake_wait(context, context_is_idle, context);
	fake.n_keepers--;
	pthread_cond_broadcast(&fake.changed);
	return result;
}

cu_result cuCtxSynchronize(void)
{
	cu_result result = fake_enter("cuCtxSynchronize", FAKE_CONTEXTED | FAKE_UNSAFE);
	struct fake_context *context;

	if (result != CUDA_SUCCESS)
		return result;
	fake_current(&context);
	return fake_leave(fake_wait(context, context_is_idle, context));
}
