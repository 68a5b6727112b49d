/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The functions of libcuda.so.1 that the double has: DRIVER_CALL(name, exported name, version of
 * CUDA that has this signature, version that replaced it (0: none has), arguments). Included
 * several times; no guard.
 */
/* clang-format takes pointers in a macro's arguments for products: */
/* clang-format off */

/* The driver and its devices. */
DRIVER_CALL(cuInit, cuInit, 2000, 0, (unsigned int flags))
DRIVER_CALL(cuDriverGetVersion, cuDriverGetVersion, 2020, 0, (int *ret_version))
DRIVER_CALL(cuGetErrorName, cuGetErrorName, 6000, 0, (cu_result result, const char **ret_name))
DRIVER_CALL(cuGetErrorString, cuGetErrorString, 6000, 0, (cu_result result, const char **ret_text))
DRIVER_CALL(cuDeviceGetCount, cuDeviceGetCount, 2000, 0, (int *ret_n))
DRIVER_CALL(cuDeviceGet, cuDeviceGet, 2000, 0, (cu_device *ret_device, int ordinal))
DRIVER_CALL(cuDeviceGetName, cuDeviceGetName, 2000, 0, (char *name, int size, cu_device device))
DRIVER_CALL(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, 0, (size_t *ret_bytes, cu_device device))
DRIVER_CALL(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, 0,
	(int *ret_value, cu_device_attribute attribute, cu_device device))
DRIVER_CALL(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010, 0,
	(char *text, int size, cu_device device))
DRIVER_CALL(cuDeviceGetUuid, cuDeviceGetUuid, 9020, 11040, (cu_uuid *ret_uuid, cu_device device))

/* Contexts. */
DRIVER_CALL(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, 0,
	(cu_context *ret_context, cu_device device))
DRIVER_CALL(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, 0, (cu_device device))
DRIVER_CALL(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, 0, (cu_device device))
DRIVER_CALL(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, 0,
	(cu_device device, unsigned int *ret_flags, int *ret_active))
DRIVER_CALL(cuCtxCreate, cuCtxCreate_v2, 3020, 11040,
	(cu_context *ret_context, unsigned int flags, cu_device device))
DRIVER_CALL(cuCtxDestroy, cuCtxDestroy_v2, 4000, 0, (cu_context context))
DRIVER_CALL(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, 0, (cu_context context))
DRIVER_CALL(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, 0, (cu_context *ret_context))
DRIVER_CALL(cuCtxSetCurrent, cuCtxSetCurrent, 4000, 0, (cu_context context))
DRIVER_CALL(cuCtxGetCurrent, cuCtxGetCurrent, 4000, 0, (cu_context *ret_context))
DRIVER_CALL(cuCtxGetDevice, cuCtxGetDevice, 2000, 13000, (cu_device *ret_device))
DRIVER_CALL(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050, 0,
	(int *ret_least, int *ret_greatest))
DRIVER_CALL(cuCtxSynchronize, cuCtxSynchronize, 2000, 13000, (void))
DRIVER_CALL(cuCtxGetId, cuCtxGetId, 12000, 0, (cu_context context, unsigned long long *ret_id))
DRIVER_CALL(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, 0,
	(cu_capture_mode *mode))

/* Attributes of pointers. */
DRIVER_CALL(cuPointerGetAttribute, cuPointerGetAttribute, 4000, 0,
	(void *data, cu_pointer_attribute attribute, cu_deviceptr address))
DRIVER_CALL(cuPointerGetAttributes, cuPointerGetAttributes, 7000, 0,
	(unsigned int n, cu_pointer_attribute *attributes, void **data, cu_deviceptr
		address))
DRIVER_CALL(cuPointerSetAttribute, cuPointerSetAttribute, 6000, 0,
	(const void *value, cu_pointer_attribute attribute, cu_deviceptr address))
DRIVER_CALL(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020, 0,
	(cu_deviceptr *ret_base, size_t *ret_size, cu_deviceptr address))

/* Memory. */
DRIVER_CALL(cuMemAlloc, cuMemAlloc_v2, 3020, 0, (cu_deviceptr *ret_address, size_t size))
DRIVER_CALL(cuMemFree, cuMemFree_v2, 3020, 0, (cu_deviceptr address))
DRIVER_CALL(cuMemAllocManaged, cuMemAllocManaged, 6000, 0,
	(cu_deviceptr *ret_address, size_t size, unsigned int flags))
DRIVER_CALL(cuMemAllocAsync, cuMemAllocAsync, 11020, 0,
	(cu_deviceptr *ret_address, size_t size, cu_stream stream))
DRIVER_CALL(cuMemFreeAsync, cuMemFreeAsync, 11020, 0, (cu_deviceptr address, cu_stream stream))
DRIVER_CALL(cuMemGetInfo, cuMemGetInfo_v2, 3020, 0, (size_t *ret_free, size_t *ret_total))
DRIVER_CALL(cuMemAllocHost, cuMemAllocHost_v2, 3020, 0, (void **ret_address, size_t size))
DRIVER_CALL(cuMemHostAlloc, cuMemHostAlloc, 2020, 0,
	(void **ret_address, size_t size, unsigned int flags))
DRIVER_CALL(cuMemFreeHost, cuMemFreeHost, 2000, 0, (void *address))
DRIVER_CALL(cuMemHostRegister, cuMemHostRegister_v2, 6050, 0,
	(void *address, size_t size, unsigned int flags))
DRIVER_CALL(cuMemHostUnregister, cuMemHostUnregister, 4000, 0, (void *address))
DRIVER_CALL(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020, 0,
	(cu_deviceptr *ret_address, void *host, unsigned int flags))
DRIVER_CALL(cuMemHostGetFlags, cuMemHostGetFlags, 2030, 0, (unsigned int *ret_flags, void *host))
DRIVER_CALL(cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020, 0, (void *dst, cu_deviceptr src, size_t size))
DRIVER_CALL(cuMemcpyHtoD, cuMemcpyHtoD_v2, 3020, 0,
	(cu_deviceptr dst, const void *src, size_t size))
DRIVER_CALL(cuMemcpyDtoD, cuMemcpyDtoD_v2, 3020, 0,
	(cu_deviceptr dst, cu_deviceptr src, size_t size))
DRIVER_CALL(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020, 0,
	(void *dst, cu_deviceptr src, size_t size, cu_stream stream))
DRIVER_CALL(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020, 0,
	(cu_deviceptr dst, const void *src, size_t size, cu_stream stream))
DRIVER_CALL(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020, 0,
	(cu_deviceptr dst, cu_deviceptr src, size_t size, cu_stream stream))
DRIVER_CALL(cuMemsetD8, cuMemsetD8_v2, 3020, 0,
	(cu_deviceptr dst, unsigned char value, size_t size))
DRIVER_CALL(cuMemsetD8Async, cuMemsetD8Async, 3020, 0,
	(cu_deviceptr dst, unsigned char value, size_t size, cu_stream stream))

/* Virtual memory. */
DRIVER_CALL(cuMemAddressReserve, cuMemAddressReserve, 10020, 0,
	(cu_deviceptr *ret_address, size_t size, size_t alignment, cu_deviceptr at,
		unsigned long long flags))
DRIVER_CALL(cuMemAddressFree, cuMemAddressFree, 10020, 0, (cu_deviceptr address, size_t size))
DRIVER_CALL(cuMemCreate, cuMemCreate, 10020, 0,
	(cu_mem_handle *ret_handle, size_t size, const struct cu_mem_prop *prop,
		unsigned long long flags))
DRIVER_CALL(cuMemRelease, cuMemRelease, 10020, 0, (cu_mem_handle handle))
DRIVER_CALL(cuMemMap, cuMemMap, 10020, 0,
	(cu_deviceptr address, size_t size, size_t offset, cu_mem_handle handle,
		unsigned long long flags))
DRIVER_CALL(cuMemUnmap, cuMemUnmap, 10020, 0, (cu_deviceptr address, size_t size))
DRIVER_CALL(cuMemSetAccess, cuMemSetAccess, 10020, 0,
	(cu_deviceptr address, size_t size, const struct cu_mem_access *access,
		size_t n))
DRIVER_CALL(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020, 0,
	(size_t *ret_granularity, const struct cu_mem_prop *prop, int option))
DRIVER_CALL(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, 0,
	(cu_mem_handle *ret_handle, void *address))

/* For NICs. */
DRIVER_CALL(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070, 0,
	(void *ret_handle, cu_deviceptr address, size_t size, cu_range_handle_type
		type, unsigned long long flags))
DRIVER_CALL(cuFlushGPUDirectRDMAWrites, cuFlushGPUDirectRDMAWrites, 11030, 0,
	(cu_flush_target target, cu_flush_scope scope))

/* Streams and events. */
DRIVER_CALL(cuStreamCreate, cuStreamCreate, 2000, 0, (cu_stream *ret_stream, unsigned int flags))
DRIVER_CALL(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, 0,
	(cu_stream *ret_stream, unsigned int flags, int priority))
DRIVER_CALL(cuStreamDestroy, cuStreamDestroy_v2, 4000, 0, (cu_stream stream))
DRIVER_CALL(cuStreamQuery, cuStreamQuery, 2000, 0, (cu_stream stream))
DRIVER_CALL(cuStreamSynchronize, cuStreamSynchronize, 2000, 0, (cu_stream stream))
DRIVER_CALL(cuStreamGetCtx, cuStreamGetCtx, 9020, 12050,
	(cu_stream stream, cu_context *ret_context))
DRIVER_CALL(cuStreamGetFlags, cuStreamGetFlags, 5050, 0,
	(cu_stream stream, unsigned int *ret_flags))
DRIVER_CALL(cuStreamGetPriority, cuStreamGetPriority, 5050, 0,
	(cu_stream stream, int *ret_priority))
DRIVER_CALL(cuStreamWaitEvent, cuStreamWaitEvent, 3020, 0,
	(cu_stream stream, cu_event event, unsigned int flags))
DRIVER_CALL(cuStreamIsCapturing, cuStreamIsCapturing, 10000, 0,
	(cu_stream stream, cu_capture_status *ret_status))
DRIVER_CALL(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, 0,
	(cu_stream stream, cu_capture_mode mode))
DRIVER_CALL(cuStreamEndCapture, cuStreamEndCapture, 10000, 0,
	(cu_stream stream, cu_graph *ret_graph))
DRIVER_CALL(cuGraphDestroy, cuGraphDestroy, 10000, 0, (cu_graph graph))
DRIVER_CALL(cuEventCreate, cuEventCreate, 2000, 0, (cu_event *ret_event, unsigned int flags))
DRIVER_CALL(cuEventRecord, cuEventRecord, 2000, 0, (cu_event event, cu_stream stream))
DRIVER_CALL(cuEventQuery, cuEventQuery, 2000, 0, (cu_event event))
DRIVER_CALL(cuEventSynchronize, cuEventSynchronize, 2000, 0, (cu_event event))
DRIVER_CALL(cuEventDestroy, cuEventDestroy_v2, 4000, 0, (cu_event event))

/* Kernels. */
DRIVER_CALL(cuModuleGetLoadingMode, cuModuleGetLoadingMode, 11070, 0,
	(cu_module_loading_mode *ret_mode))
DRIVER_CALL(cuModuleLoadData, cuModuleLoadData, 2000, 0, (cu_module *ret_module, const void *image))
DRIVER_CALL(cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, 0,
	(cu_module *ret_module, const void *image, unsigned int n, cu_jit_option
		*options, void **values))
DRIVER_CALL(cuModuleUnload, cuModuleUnload, 2000, 0, (cu_module module))
DRIVER_CALL(cuModuleGetFunction, cuModuleGetFunction, 2000, 0,
	(cu_function *ret_function, cu_module module, const char *name))
DRIVER_CALL(cuFuncGetAttribute, cuFuncGetAttribute, 2020, 0,
	(int *ret_value, int attribute, cu_function function))
DRIVER_CALL(cuFuncSetAttribute, cuFuncSetAttribute, 9000, 0,
	(cu_function function, int attribute, int value))
DRIVER_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor,
		cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, 0,
	(int *ret_blocks, cu_function function, int block_size, size_t
		shared_bytes))
DRIVER_CALL(cuLaunchKernel, cuLaunchKernel, 4000, 0,
	(cu_function function, unsigned int grid_x, unsigned int grid_y, unsigned
		int grid_z, unsigned int block_x, unsigned int block_y, unsigned int
		block_z, unsigned int shared_bytes, cu_stream stream, void **parameters,
		void **extra))
DRIVER_CALL(cuLaunchHostFunc, cuLaunchHostFunc, 10000, 0,
	(cu_stream stream, cu_host_function function, void *user_data))
