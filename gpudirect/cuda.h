/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUDA's driver API, found at run time: libcuda.so.1 by dlopen(), its functions by
 * cuGetProcAddress(). Nothing of CUDA is needed to build this, and a process that does not use CUDA
 * never loads or initializes it because of Ferrule. Any thread.
 *
 * Source: NVIDIA, CUDA Driver API reference, 11.7 to 13.0.
 */
#ifndef FERRULE_GPUDIRECT_CUDA_H
#define FERRULE_GPUDIRECT_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpudirect/cuda_abi.h"

/* The functions that Ferrule calls, under their own names. What an older driver has not is NULL
 * where cuda_calls.inc says that it may be. */
struct cuda_api {
#define CUDA_CALL(name, version, args) cu_result(*name) args;
#include "gpudirect/cuda_calls.inc"
#undef CUDA_CALL
	int version; /* as cuDriverGetVersion() says: 13000 is 13.0 */
};

/*
 * Whether somebody in this process has loaded libcuda.so.1 by now: until then no pointer can be
 * one of a GPU's. Cheap enough for each operation (it looks again only when the loader has loaded
 * something since).
 */
bool cuda_is_loaded(void);

/*
 * The driver, initialized. Loads it if nobody has: callers on the way of host memory ask
 * cuda_is_loaded() first, and cuda_look(). The first answer that is no passing failure is kept.
 * -ENOSYS: no libcuda.so.1 here, or it lacks a function (too old); -ENODEV: no device, or none for
 * a process that was forked from one that used CUDA: then no pointer can be a GPU's; else
 * cuInit() failed as cuda_fail() says. frl_last_error() says which, and what to do.
 */
int cuda_get(const struct cuda_api **ret_cuda);

/*
 * The same without cuInit(): for questions about pointers, of which none is a GPU's while the
 * answer is CUDA_ERROR_NOT_INITIALIZED. So an application that has loaded CUDA, but uses it only
 * later, or only in the children that it forks, keeps that freedom. -ENOSYS as cuda_get().
 */
int cuda_look(const struct cuda_api **ret_cuda);

/* What cuda_look() has found earlier, or NULL. Looks for nothing. */
const struct cuda_api *cuda_if_looked(void);

/*
 * Whether CUDA loads modules lazily in this process (CUDA_MODULE_LOADING). Loading a function then
 * waits for what runs in its context, with the context's lock: a launch by another thread waits as
 * long. Drivers before CUDA 11.7 load eagerly. A driver that does not answer counts as lazy.
 */
bool cuda_loads_lazily(const struct cuda_api *cuda);

/*
 * frl_fail() about a call: "registering 2 MiB of host memory with GPU 0: cuMemHostRegister:
 * CUDA_ERROR_OUT_OF_MEMORY (2): <what it means and what to do>". `what` says what was being done;
 * NULL: the call says it all. Returns -ENOMEM, -EINVAL, -ENODEV, -ENOSYS, -EPERM, -ENOTSUP, -EBUSY
 * or -EIO, whatever fits the result.
 */
int cuda_fail(cu_result result, const char *call, const char *what);

/* "CUDA_ERROR_INVALID_VALUE"; "unknown error" of numbers that have no name here. */
const char *cuda_result_name(cu_result result);

/* After these the context, or the device, is of no use any more: nothing that was started in it
 * still runs, and nothing will (CUDA calls them sticky). */
bool cuda_is_fatal(cu_result result);

/* What goes away by itself: no memory just now, a stream that is being captured. */
bool cuda_is_passing(cu_result result);
/* The same of what gpu_enter() returns. */
bool cuda_is_passing_error(int rc);

/* For tests: forgets what is loaded, so that the next cuda_get() looks again. Nobody may hold a
 * table. */
void cuda_forget(void);

#endif
