/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: the library, its devices and their attributes, names of results. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/cuda/fake_exports.h"
#include "tests/fakes/cuda/fake_internal.h"

enum { ATTRIBUTES = 160, UNSET = -1 };

/* The values of an H100, as far as Ferrule asks. */
static const struct {
	cu_device_attribute attribute;
	int value;
} usual[] = {
	{ CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024 },
	{ CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff },
	{ CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132 },
	{ CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1 },
	{ CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1 },
	{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9 },
	{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0 },
	{ CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1 },
	{ CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 1 },
	{ CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
		CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST },
	{ CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
		CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER },
	{ CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 1 },
};

static int attributes[FAKE_CUDA_MAX_DEVICES][ATTRIBUTES];

void fake_attributes_reset(void)
{
	memset(attributes, 0, sizeof(attributes));
	for (unsigned i = 0; i < FAKE_CUDA_MAX_DEVICES; i++)
		for (unsigned j = 0; j < sizeof(usual) / sizeof(usual[0]); j++)
			attributes[i][usual[j].attribute] = usual[j].value;
}

void fake_set_attribute(int ordinal, cu_device_attribute attribute, int value)
{
	for (int i = 0; i < FAKE_CUDA_MAX_DEVICES; i++)
		if ((ordinal < 0 || i == ordinal) && attribute > 0 && attribute < ATTRIBUTES)
			attributes[i][attribute] = value;
}

int fake_attribute(int device, cu_device_attribute attribute)
{
	/* The host's pointer is usable if all devices accept it. */
	if (attribute == CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM &&
		fake.is_host_apart)
		return 0;
	return attributes[device][attribute];
}

cu_result cuInit(unsigned int flags)
{
	cu_result result = fake_enter("cuInit", FAKE_NO_INIT);

	if (result != CUDA_SUCCESS)
		return result;
	if (flags != 0)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (fake.n_devices == 0)
		return fake_leave(CUDA_ERROR_NO_DEVICE);
	if (fake.owner == 0 && fake_windows_make() < 0)
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	__atomic_store_n(&fake.owner, getpid(), __ATOMIC_RELAXED);
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuDriverGetVersion(int *ret_version)
{
	cu_result result = fake_enter("cuDriverGetVersion", FAKE_NO_INIT);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_version)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_version = fake.version;
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuDeviceGetCount(int *ret_n)
{
	cu_result result = fake_enter("cuDeviceGetCount", 0);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_n)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_n = fake.n_devices;
	return fake_leave(CUDA_SUCCESS);
}

static bool is_device(cu_device device)
{
	return device >= 0 && device < fake.n_devices;
}

cu_result cuDeviceGet(cu_device *ret_device, int ordinal)
{
	cu_result result = fake_enter("cuDeviceGet", 0);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_device)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (!is_device(ordinal))
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	*ret_device = ordinal;
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuDeviceGetName(char *name, int size, cu_device device)
{
	cu_result result = fake_enter("cuDeviceGetName", 0);

	if (result != CUDA_SUCCESS)
		return result;
	if (!name || size <= 0)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (!is_device(device))
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	snprintf(name, (size_t)size, "Double of a GPU");
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuDeviceTotalMem_v2(size_t *ret_bytes, cu_device device)
{
	cu_result result = fake_enter("cuDeviceTotalMem", 0);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_bytes)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (!is_device(device))
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	*ret_bytes = fake.memory;
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuDeviceGetAttribute(int *ret_value, cu_device_attribute attribute, cu_device device)
{
	cu_result result = fake_enter("cuDeviceGetAttribute", 0);

	if (result != CUDA_SUCCESS)
		return result;
	/* A driver of CUDA 12 does not know attributes of 13. */
	if (!ret_value || attribute <= 0 || attribute >= ATTRIBUTES ||
		(attribute >= CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED &&
			fake.version < 13000) ||
		(attribute >= CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED && fake.version < 11070))
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (!is_device(device))
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	*ret_value = fake_attribute(device, attribute);
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuDeviceGetPCIBusId(char *text, int size, cu_device device)
{
	cu_result result = fake_enter("cuDeviceGetPCIBusId", 0);

	if (result != CUDA_SUCCESS)
		return result;
	if (!text || size <= 0)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (!is_device(device))
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	snprintf(text, (size_t)size, "0000:%02X:00.0", 0xc0 + device);
	return fake_leave(CUDA_SUCCESS);
}

cu_result cuDeviceGetUuid(cu_uuid *ret_uuid, cu_device device)
{
	cu_result result = fake_enter("cuDeviceGetUuid", 0);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_uuid)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (!is_device(device))
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	memcpy(ret_uuid->bytes,
		"\xfe\xd0\x0b\x1e"
		"double of a",
		15);
	ret_uuid->bytes[15] = (char)device;
	return fake_leave(CUDA_SUCCESS);
}

static const char *name_of(cu_result result)
{
	switch (result) {
#define CUDA_RESULT(name, number) \
	case name:                \
		return #name;
#include "gpudirect/cuda/cuda_results.inc"
#undef CUDA_RESULT
	default: return NULL;
	}
}

static cu_result text_of(const char *call, cu_result result, const char **ret_text)
{
	cu_result own = fake_enter(call, FAKE_NO_INIT | FAKE_QUIET);

	if (own != CUDA_SUCCESS)
		return own;
	if (!ret_text)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*ret_text = name_of(result);
	return fake_leave(*ret_text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

cu_result cuGetErrorName(cu_result result, const char **ret_name)
{
	return text_of("cuGetErrorName", result, ret_name);
}

cu_result cuGetErrorString(cu_result result, const char **ret_text)
{
	return text_of("cuGetErrorString", result, ret_text);
}
