/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The types and constants of CUDA's driver API that Ferrule uses. They allow a build without CUDA's
 * headers. Types have Ferrule's names; constants have NVIDIA's names. Each enum of cuda.h is an int
 * here, because a newer driver may return values that have no name yet. Do not include this file
 * together with cuda.h; tests/unit/gpudirect/test_cuda_abi.c compares the two.
 *
 * Source: NVIDIA, cuda.h 13.0.
 */
#ifndef FERRULE_GPUDIRECT_CUDA_ABI_H
#define FERRULE_GPUDIRECT_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int cu_result;
typedef int cu_device; /* a handle; cuDeviceGet() converts an ordinal to a handle */
typedef struct CUctx_st *cu_context;
typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;
typedef uint64_t cu_deviceptr;
typedef struct cu_uuid {
	char bytes[16];
} cu_uuid;

/* The constants are listed below. */
typedef int cu_device_attribute;
typedef int cu_pointer_attribute;
typedef int cu_capture_mode;
typedef int cu_capture_status;
typedef int cu_range_handle_type;
typedef int cu_flush_target;
typedef int cu_flush_scope;
typedef int cu_jit_option;
typedef int cu_module_loading_mode;
typedef int cu_proc_status;

/* Results: cuda_results.inc. */
enum {
#define CUDA_RESULT(name, number) name = (number),
#include "gpudirect/cuda/cuda_results.inc"
#undef CUDA_RESULT
};

/* cu_device_attribute */
enum {
	CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
	CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
	CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
	CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
	CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
	CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20,
	CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
	CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED = 78,
	CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
	CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED = 99,
	CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
	CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110,
	CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
	CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED = 116,
	CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS = 117,
	CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING = 118,
	CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124,
	CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED = 146,
};

/* Values of the attribute COMPUTE_MODE. */
enum {
	CU_COMPUTEMODE_DEFAULT = 0,
	CU_COMPUTEMODE_PROHIBITED = 2,
	CU_COMPUTEMODE_EXCLUSIVE_PROCESS = 3,
};

/* Values of GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS (bits) and of ..._WRITES_ORDERING. */
enum {
	CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST = 1,
	CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE = 0,
	CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER = 100,
	CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES = 200,
};

/* cu_pointer_attribute, with the type that the driver writes to `data`. */
enum {
	CU_POINTER_ATTRIBUTE_CONTEXT = 1,                     /* cu_context */
	CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,                 /* unsigned int: CU_MEMORYTYPE_... */
	CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,              /* cu_deviceptr */
	CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,                /* void * */
	CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,                 /* unsigned int, also when set */
	CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,                   /* unsigned long long */
	CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,                  /* unsigned int */
	CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,              /* int */
	CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10, /* unsigned int */
	CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,           /* cu_deviceptr */
	CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,                 /* size_t */
	CU_POINTER_ATTRIBUTE_MAPPED = 13,                     /* unsigned int */
	CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,       /* uint64_t, a bit for each type */
	CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE = 15, /* unsigned int */
	CU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16,               /* CU_MEM_ACCESS_... */
	CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,             /* a pointer; NULL: not from a pool */
	CU_POINTER_ATTRIBUTE_MAPPING_SIZE = 18,               /* size_t */
	CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR = 19,          /* cu_deviceptr */
	CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID = 20,            /* unsigned long long */
};

enum {
	CU_MEMORYTYPE_HOST = 1,
	CU_MEMORYTYPE_DEVICE = 2,
	CU_MEMORYTYPE_ARRAY = 3,
	CU_MEMORYTYPE_UNIFIED = 4,

	CU_MEM_ACCESS_NONE = 0,
	CU_MEM_ACCESS_READ = 1,
	CU_MEM_ACCESS_READWRITE = 3,

	CU_MEM_HANDLE_TYPE_NONE = 0,
	CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1,
};

/* cuMemHostRegister() */
enum {
	CU_MEMHOSTREGISTER_PORTABLE = 1,
	CU_MEMHOSTREGISTER_DEVICEMAP = 2,
};

/* cuMemGetHandleForAddressRange(): type and flags */
enum {
	CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1,
	CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE = 1,
};

/* cuFlushGPUDirectRDMAWrites(): target and scopes */
enum {
	CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX = 0,
	CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER = 100,
	CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES = 200,
};

/* Streams and events. */
enum {
	CU_STREAM_DEFAULT = 0,
	CU_STREAM_NON_BLOCKING = 1,

	CU_EVENT_DISABLE_TIMING = 2,

	CU_EVENT_WAIT_DEFAULT = 0,

	CU_STREAM_CAPTURE_STATUS_NONE = 0,
	CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
	CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,

	CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
	CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
	CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

/* cu_module_loading_mode */
enum {
	CU_MODULE_EAGER_LOADING = 1,
	CU_MODULE_LAZY_LOADING = 2,
};

/* The two predefined stream handles. */
#define CU_STREAM_LEGACY     ((cu_stream)0x1)
#define CU_STREAM_PER_THREAD ((cu_stream)0x2)

/* cuGetProcAddress(): flags; cu_proc_status */
enum {
	CU_GET_PROC_ADDRESS_LEGACY_STREAM = 1,

	CU_GET_PROC_ADDRESS_SUCCESS = 0,
	CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
	CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
};

/* The signatures of cuGetProcAddress(). dlsym() finds both of its versions. */
typedef cu_result (*cu_get_proc_address)(
	const char *symbol, void **ret_function, int version, uint64_t flags); /* 11.3 */
typedef cu_result (*cu_get_proc_address_v2)(const char *symbol, void **ret_function, int version,
	uint64_t flags, cu_proc_status *ret_status); /* 12.0 */

#endif
