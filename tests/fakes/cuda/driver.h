/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver's functions as an application calls them: Ferrule's own and more. struct driver holds
 * them all, found in libcuda.so.1 under their exported names. It works with NVIDIA's library as
 * well as with the double, so tests that use it run on both.
 *
 * Source: NVIDIA, cuda.h 13.0.
 */
#ifndef FERRULE_TESTS_FAKES_CUDA_DRIVER_H
#define FERRULE_TESTS_FAKES_CUDA_DRIVER_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpudirect/cuda/cuda_abi.h"

typedef struct CUgraph_st *cu_graph;
typedef struct CUmemPoolHandle_st *cu_mem_pool;
typedef unsigned long long cu_mem_handle;
typedef void (*cu_host_function)(void *user_data);

struct cu_mem_location {
	int type;
	int id;
};

struct cu_mem_prop {
	int type;
	int handle_types;
	struct cu_mem_location location;
	void *win32_metadata;
	unsigned char compression;
	unsigned char rdma_capable;
	unsigned short usage;
	unsigned char reserved[4];
};

struct cu_mem_access {
	struct cu_mem_location location;
	int flags;
};

enum {
	CU_MEM_ALLOCATION_TYPE_PINNED = 1,
	CU_MEM_LOCATION_TYPE_DEVICE = 1,
	CU_MEM_ACCESS_FLAGS_PROT_NONE = 0,
	CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
	CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
	CU_MEMHOSTALLOC_PORTABLE = 1,
	CU_MEMHOSTALLOC_DEVICEMAP = 2,
	CU_MEM_ATTACH_GLOBAL = 1,
};

struct driver {
#define DRIVER_CALL(name, exported, since, until, args) cu_result(*name) args;
#include "tests/fakes/cuda/driver_calls.h"
#undef DRIVER_CALL
};

/* Loads libcuda.so.1. Returns false if it is missing or lacks a function, whose name goes to
 * *ret_lacks (NULL: the library itself is missing). */
static inline bool driver_load(struct driver *driver, const char **ret_lacks)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);

	*ret_lacks = NULL;
	if (!library)
		return false;
#define DRIVER_CALL(name, exported, since, until, args)              \
	*ret_lacks = #exported;                                      \
	*(void **)(void *)&driver->name = dlsym(library, #exported); \
	if (!driver->name)                                           \
		return false;
#include "tests/fakes/cuda/driver_calls.h"
#undef DRIVER_CALL
	*ret_lacks = NULL;
	return true;
}

#endif
