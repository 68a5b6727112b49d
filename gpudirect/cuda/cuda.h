/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUDA's driver API, found at run time: libcuda.so.1 by dlopen(), its functions by
 * cuGetProcAddress(). Building Ferrule does not need CUDA. Ferrule never loads or initializes CUDA
 * in a process that does not use CUDA. Callable from any thread.
 *
 * Source: NVIDIA, CUDA Driver API reference, 11.7 to 13.0.
 */
#ifndef FERRULE_GPUDIRECT_CUDA_H
#define FERRULE_GPUDIRECT_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpudirect/cuda/cuda_abi.h"

/* The driver functions that Ferrule calls, under their own names. A pointer is NULL if the driver
 * is too old for the function and cuda_calls.inc marks the function as optional. */
struct cuda_api {
#define CUDA_CALL(name, version, args) cu_result(*name) args;
#include "gpudirect/cuda/cuda_calls.inc"
#undef CUDA_CALL
	int version; /* from cuDriverGetVersion(): 13000 is 13.0 */
};

/*
 * Returns whether libcuda.so.1 is loaded in this process. As long as it is not, no pointer can
 * refer to GPU memory. Cheap enough to call for each operation: it looks again only after the
 * dynamic loader has loaded another library.
 */
bool cuda_is_loaded(void);

/*
 * Returns the initialized driver, and loads libcuda.so.1 if necessary. Code on the host memory path
 * calls cuda_is_loaded() and cuda_look() first. The first result is kept, unless it is a temporary
 * failure. -ENOSYS: libcuda.so.1 is missing or too old (it lacks a function). -ENODEV: no device is
 * present, or the process was forked from one that used CUDA; no pointer can then refer to GPU
 * memory. Other errors: cuInit() failed, as cuda_fail(). frl_last_error() describes the failure and
 * the remedy.
 */
int cuda_get(const struct cuda_api **ret_cuda);

/*
 * Same as cuda_get(), but without cuInit(): use it to query pointers. While a query returns
 * CUDA_ERROR_NOT_INITIALIZED, no pointer refers to GPU memory. An application that has loaded CUDA
 * can therefore still initialize CUDA later, or only in child processes. Fails with -ENOSYS, as
 * cuda_get().
 */
int cuda_look(const struct cuda_api **ret_cuda);

/* Returns the result of an earlier successful cuda_look(), or NULL. Does not load or search
 * anything. */
const struct cuda_api *cuda_if_looked(void);

/*
 * Returns whether CUDA loads modules lazily in this process (CUDA_MODULE_LOADING). With lazy
 * loading, loading a function waits for running kernels while it holds the context's lock, so a
 * launch by another thread waits too. Drivers before CUDA 11.7 load eagerly. If the driver does not
 * report a mode, lazy loading is assumed.
 */
bool cuda_loads_lazily(const struct cuda_api *cuda);

/*
 * Sets the last error for a failed call, for example "registering 2 MiB of host memory with GPU 0:
 * cuMemHostRegister: CUDA_ERROR_OUT_OF_MEMORY (2): <meaning and remedy>". `what` names the
 * operation; it may be NULL if the call's name is enough. Returns the error that matches the
 * result: -ENOMEM, -EINVAL, -ENODEV, -ENOSYS, -EPERM, -ENOTSUP, -EBUSY or -EIO.
 */
int cuda_fail(cu_result result, const char *call, const char *what);

/* Returns the name of a result, for example "CUDA_ERROR_INVALID_VALUE", or "unknown error". */
const char *cuda_result_name(cu_result result);

/* Returns whether the context or device is unusable after this result (CUDA calls such errors
 * sticky). All work that was started in the context has stopped. */
bool cuda_is_fatal(cu_result result);

/* Returns whether a failure is temporary: memory is short at the moment, or a stream is being
 * captured. */
bool cuda_is_passing(cu_result result);
/* Same as cuda_is_passing(), for a return value of gpu_enter(). */
bool cuda_is_passing_error(int rc);

/* For tests: discards the loaded driver, so that the next cuda_get() searches again. No caller may
 * still use a struct cuda_api. */
void cuda_reset(void);

#endif
