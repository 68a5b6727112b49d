/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled where CUDA's headers are: stops the build where cuda_results.inc or cuda_calls.inc
 * differ from them, and exports the numbers that cuda_abi.h has as well. */
#include "tests/unit/gpudirect/cuda_header.h"

#include <assert.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#if CUDA_VERSION >= 13000

#define CUDA_RESULT(name, number) \
	static_assert((name) == (number), #name " is not " #number " in cuda.h");
#include "gpudirect/cuda/cuda_results.inc"
#undef CUDA_RESULT

/* Signatures of all requested versions; cudaTypedefs.h has them. */
#define cu_result              CUresult
#define cu_device              CUdevice_v1
#define cu_context             CUcontext
#define cu_module              CUmodule
#define cu_function            CUfunction
#define cu_stream              CUstream
#define cu_event               CUevent
#define cu_deviceptr           CUdeviceptr_v2
#define cu_uuid                CUuuid
#define cu_device_attribute    CUdevice_attribute
#define cu_pointer_attribute   CUpointer_attribute
#define cu_capture_mode        CUstreamCaptureMode
#define cu_capture_status      CUstreamCaptureStatus
#define cu_range_handle_type   CUmemRangeHandleType
#define cu_flush_target        CUflushGPUDirectRDMAWritesTarget
#define cu_flush_scope         CUflushGPUDirectRDMAWritesScope
#define cu_jit_option          CUjit_option
#define cu_module_loading_mode CUmoduleLoadingMode
#define CUDA_CALL(name, version, args)                                                          \
	static_assert(__builtin_types_compatible_p(PFN_##name##_v##version, cu_result(*) args), \
		#name " of version " #version " has other arguments in cuda.h");
#include "gpudirect/cuda/cuda_calls.inc"
#undef CUDA_CALL

/* Our types have the sizes of these. */
static_assert(sizeof(CUresult) == 4 && sizeof(CUdevice) == 4 && sizeof(CUdeviceptr) == 8, "");
static_assert(sizeof(CUuuid) == 16 && sizeof(CUdevice_attribute) == 4, "");
static_assert(sizeof(CUpointer_attribute) == 4 && sizeof(CUstreamCaptureMode) == 4, "");
static_assert(sizeof(CUmemRangeHandleType) == 4 && sizeof(CUjit_option) == 4, "");
static_assert(sizeof(CUflushGPUDirectRDMAWritesTarget) == 4, "");
static_assert(sizeof(CUmoduleLoadingMode) == 4, "");

static const struct cuda_number numbers[] = {
#define NUMBER(name) { #name, (long)(name) },
#include "tests/unit/gpudirect/cuda_numbers.h"
#undef NUMBER
};

const struct cuda_number *cuda_header_numbers(size_t *ret_n)
{
	*ret_n = sizeof(numbers) / sizeof(numbers[0]);
	return numbers;
}

#else

const struct cuda_number *cuda_header_numbers(size_t *ret_n)
{
	*ret_n = 0;
	return NULL;
}

#endif
