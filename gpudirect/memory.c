/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds the kind of memory behind a pointer. Queries do not initialize the driver: if the driver
 * knows the memory, the code that allocated it has initialized the driver.
 *
 * A pointer that the driver does not know is host memory. Registration also checks that the
 * processor can read the memory. Each operation omits this check, because it takes a system call.
 * If the driver cannot answer (for example, because the current context is broken), the processor
 * always checks. It cannot read GPU memory, so GPU memory is never taken for host memory.
 */
#include "gpudirect/memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <sys/uio.h>

#include "lib/base/error.h"

typedef cu_result (*pointer_attribute_fn)(
	void *data, cu_pointer_attribute attribute, cu_deviceptr address);

/* ---- pointer queries */

/* Works even with a driver that is too old for all other functions: this one is from CUDA 4.0. */
static pointer_attribute_fn find_query(const struct cuda_api **ret_cuda)
{
	pointer_attribute_fn query = NULL;
	char error[ERROR_TEXT_MAX];
	void *library;

	error_save(error);
	if (!cuda_look(ret_cuda))
		return (*ret_cuda)->cuPointerGetAttribute;
	error_restore(error);
	*ret_cuda = NULL;
	library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (!library)
		return NULL;
	query = (pointer_attribute_fn)dlsym(library, "cuPointerGetAttribute");
	dlclose(library);
	return query;
}

/* Returns 0 if the processor can read the address, EFAULT if it cannot, or another errno if the
 * check fails. Never causes a fault. */
static int processor_reads(uint64_t address)
{
	char byte;
	struct iovec to = { .iov_base = &byte, .iov_len = 1 };
	struct iovec from = { .iov_base = (void *)(uintptr_t)address, .iov_len = 1 };

	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 ? 0 : errno;
}

/* Returns whether the processor may read the address, even if the kernel does not read it for other
 * processes (as for device registers). */
static bool is_mapped_readable(uint64_t address)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long long start, end;
	bool is_readable = false;
	char line[512], right;

	while (maps && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%llx-%llx %c", &start, &end, &right) == 3 && start <= address &&
			address < end)
			is_readable = right == 'r';
	}
	if (maps)
		fclose(maps);
	return is_readable;
}

enum memory_class { HOST, GPU, NOTHING, UNKNOWN };

/* Addresses that the driver reserves for GPUs hold no memory. The same holds for freed GPU memory,
 * and for GPU memory that a child process inherits. */
static enum memory_class host_or_nothing(uint64_t address)
{
	return processor_reads(address) == EFAULT && !is_mapped_readable(address) ? NOTHING : HOST;
}

static enum memory_class classify(
	pointer_attribute_fn query, uint64_t address, cu_result *ret_result, unsigned int *ret_type)
{
	unsigned int type = 0, is_managed = 0;
	cu_result result = query(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);

	*ret_result = result;
	*ret_type = type;
	switch (result) {
	case CUDA_SUCCESS: break;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_NOT_INITIALIZED:
	case CUDA_ERROR_DEINITIALIZED: return HOST;
	default: return processor_reads(address) == 0 ? HOST : UNKNOWN;
	}
	/* Managed memory may report that it is in host memory at the moment. */
	if (type == CU_MEMORYTYPE_HOST &&
		(query(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) || !is_managed))
		return HOST;
	return GPU;
}

static int fail_query(cu_result result, uint64_t address)
{
	char what[96];

	snprintf(what, sizeof(what), "querying the owner of memory at 0x%llx",
		(unsigned long long)address);
	return cuda_fail(result, "cuPointerGetAttribute", what);
}

/* ---- allocations and mappings */

static bool ask(const struct cuda_api *cuda, cu_pointer_attribute attribute, uint64_t address,
	void *ret_value)
{
	return cuda->cuPointerGetAttribute(ret_value, attribute, address) == CUDA_SUCCESS;
}

/* Finds the range of the allocation, or of the mapping at this address. */
static void find_range(const struct cuda_api *cuda, uint64_t address, struct gpu_memory *memory)
{
	cu_deviceptr base = 0;
	size_t size = 0;

	/* A reserved range is larger than the memory mapped in it. */
	if (memory->kind == GPU_MEMORY_VIRTUAL &&
		ask(cuda, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, address, &base) &&
		ask(cuda, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, address, &size) && size) {
		memory->base = base;
		memory->size = size;
		return;
	}
	base = 0;
	size = 0;
	if (cuda->cuMemGetAddressRange(&base, &size, address) &&
		(!ask(cuda, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address, &base) ||
			!ask(cuda, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address, &size)))
		size = 0;
	memory->base = base;
	memory->size = size;
}

static enum gpu_memory_kind kind_of(
	const struct cuda_api *cuda, uint64_t address, const struct gpu_memory *memory)
{
	unsigned int is_managed = 0, is_ipc = 0;
	void *pool = NULL;

	if (ask(cuda, CU_POINTER_ATTRIBUTE_IS_MANAGED, address, &is_managed) && is_managed)
		return GPU_MEMORY_MANAGED;
	if (ask(cuda, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address, &pool) && pool)
		return GPU_MEMORY_POOL;
	/* Mapped memory has no context, and does not support the legacy IPC. */
	if (!memory->context ||
		(ask(cuda, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address, &is_ipc) &&
			!is_ipc))
		return GPU_MEMORY_VIRTUAL;
	return GPU_MEMORY_DEVICE;
}

/* Combines two numbers. Returns 0 (not known) if either is 0. */
static uint64_t mix(uint64_t id, uint64_t next)
{
	uint64_t x = id * 0x9e3779b97f4a7c15u + next;

	if (!id || !next)
		return 0;
	x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
	x ^= x >> 32;
	return x ? x : 1;
}

/* For mapped memory, CUDA does not say whether the buffer ID is that of the mapping or of the
 * reserved range, where other memory may be mapped later. So the ID also covers the mapped
 * handle. */
static uint64_t find_id(
	const struct cuda_api *cuda, uint64_t address, const struct gpu_memory *memory)
{
	unsigned long long id = 0, block = 0;

	if (!ask(cuda, CU_POINTER_ATTRIBUTE_BUFFER_ID, address, &id))
		return 0;
	if (memory->kind != GPU_MEMORY_VIRTUAL)
		return id;
	if (!ask(cuda, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, address, &block))
		return 0;
	return mix(mix(id, block), memory->size);
}

/* Describes the allocation at one address. Returns -EINVAL if there is none. */
static int describe(const struct cuda_api *cuda, uint64_t address, struct gpu_memory *ret_memory)
{
	struct gpu_memory memory = { .ordinal = -1 };
	unsigned int is_capable = 0, is_mapped = 1;

	if (!ask(cuda, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address, &memory.ordinal) ||
		(ask(cuda, CU_POINTER_ATTRIBUTE_MAPPED, address, &is_mapped) && !is_mapped))
		return frl_fail(-EINVAL,
			"no memory at the GPU address 0x%llx: it was freed, or is only reserved",
			(unsigned long long)address);
	if (!ask(cuda, CU_POINTER_ATTRIBUTE_CONTEXT, address, &memory.context))
		memory.context = NULL;
	memory.kind = kind_of(cuda, address, &memory);
	find_range(cuda, address, &memory);
	memory.buffer_id = find_id(cuda, address, &memory);
	/* A driver without this attribute allows NICs to access all memory from cuMemAlloc(). */
	memory.rdma_capable = ask(cuda, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, address,
				      &is_capable)
		? is_capable != 0
		: memory.kind == GPU_MEMORY_DEVICE;
	*ret_memory = memory;
	return 0;
}

/* Extends the range over consecutive mappings until it covers [address, end). */
static int extend(const struct cuda_api *cuda, uint64_t end, struct gpu_memory *memory)
{
	while (memory->size && memory->base + memory->size < end) {
		uint64_t at = memory->base + memory->size;
		struct gpu_memory next;
		cu_result result;
		unsigned int type;

		if (classify(cuda->cuPointerGetAttribute, at, &result, &type) != GPU ||
			describe(cuda, at, &next) || !next.size)
			return frl_fail(-EINVAL,
				"the range is not mapped to its end: no memory at 0x%llx",
				(unsigned long long)at);
		if (next.kind != GPU_MEMORY_VIRTUAL || next.ordinal != memory->ordinal)
			return frl_fail(-EINVAL,
				"the range mixes allocations: at 0x%llx begins memory of GPU %d "
				"that was allocated in another way, or of another GPU",
				(unsigned long long)at, next.ordinal);
		memory->size = next.base + next.size - memory->base;
		memory->buffer_id = mix(memory->buffer_id, next.buffer_id);
		memory->rdma_capable &= next.rdma_capable;
	}
	return 0;
}

static int describe_range(
	const struct cuda_api *cuda, uint64_t address, size_t length, struct gpu_memory *ret_memory)
{
	struct gpu_memory memory;
	int rc = describe(cuda, address, &memory);

	if (!rc && memory.kind == GPU_MEMORY_VIRTUAL)
		rc = extend(cuda, address + length, &memory);
	if (rc)
		return rc;
	if (!memory.size || address < memory.base || address - memory.base + length > memory.size)
		return frl_fail(-EINVAL,
			"%zu bytes at 0x%llx are not in one allocation of GPU %d: that at 0x%llx "
			"has %llu bytes",
			length, (unsigned long long)address, memory.ordinal,
			(unsigned long long)memory.base, (unsigned long long)memory.size);
	*ret_memory = memory;
	return 0;
}

/* ---- public functions */

static int too_old(uint64_t address)
{
	const struct cuda_api *cuda;
	char why[ERROR_TEXT_MAX];

	cuda_look(&cuda);
	error_save(why);
	return frl_fail(-ENOSYS, "0x%llx is memory of a GPU: %s", (unsigned long long)address, why);
}

static int find(const void *addr, size_t length, bool is_checked, struct gpu_memory *ret_memory)
{
	uint64_t address = (uintptr_t)addr, last = address + (length ? length - 1 : 0);
	const struct cuda_api *cuda = NULL;
	pointer_attribute_fn query;
	enum memory_class memory_class;
	cu_result result;
	unsigned int type;

	*ret_memory = (struct gpu_memory){ .kind = GPU_MEMORY_HOST, .ordinal = -1 };
	if (!cuda_is_loaded())
		return 0;
	query = find_query(&cuda);
	if (!query)
		return 0;
	memory_class = classify(query, address, &result, &type);
	if (memory_class == HOST && last != address &&
		classify(query, last, &result, &type) != HOST)
		memory_class = NOTHING;
	if (memory_class == HOST && is_checked)
		memory_class = host_or_nothing(address);
	if (memory_class == HOST && is_checked && last != address)
		memory_class = host_or_nothing(last);
	if (memory_class == HOST)
		return 0;
	if (memory_class == UNKNOWN)
		return fail_query(result, address);
	if (memory_class == NOTHING)
		return frl_fail(-EINVAL,
			"%zu bytes at 0x%llx are not all readable host memory or GPU memory: was "
			"the memory freed?",
			length, (unsigned long long)address);
	if (!cuda)
		return too_old(address);
	if (type == CU_MEMORYTYPE_ARRAY)
		return frl_fail(-EINVAL, "0x%llx is a CUDA array, whose bytes have no addresses",
			(unsigned long long)address);
	return describe_range(cuda, address, length, ret_memory);
}

int gpu_memory_of(const void *addr, size_t length, struct gpu_memory *ret_memory)
{
	return find(addr, length, true, ret_memory);
}

int gpu_memory_look(const void *addr, size_t length, struct gpu_memory *ret_memory)
{
	return find(addr, length, false, ret_memory);
}

/* In the GPU's context: the attribute refers to the current device. */
static int check_rights_at(struct gpu *gpu, uint64_t address, bool is_written)
{
	/* The driver writes an enumeration of 4 bytes. */
	unsigned long long rights = 0;

	/* If the driver does not report access rights, do not check: the GPU's own kernels will
	 * fault on a violation. */
	if (!ask(gpu->cuda, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address, &rights))
		return 0;
	if (!rights)
		return frl_fail(-EINVAL,
			"GPU %d has no access to the memory at 0x%llx: call cuMemSetAccess() first",
			gpu->ordinal, (unsigned long long)address);
	if (is_written && rights == CU_MEM_ACCESS_READ)
		return frl_fail(-EINVAL,
			"GPU %d may only read the memory at 0x%llx: omit LOCAL_WRITE, or grant "
			"write access (cuMemSetAccess())",
			gpu->ordinal, (unsigned long long)address);
	return 0;
}

int gpu_memory_check_rights(struct gpu *gpu, const struct gpu_memory *memory, const void *addr,
	size_t length, bool is_written)
{
	uint64_t at = (uintptr_t)addr, end = at + length;
	struct gpu_memory mapping = { .kind = GPU_MEMORY_VIRTUAL };
	struct gpu_scope scope;
	int rc;

	if (memory->kind != GPU_MEMORY_VIRTUAL && memory->kind != GPU_MEMORY_POOL)
		return 0;
	rc = gpu_enter(gpu, &scope);
	if (rc)
		return rc;
	do {
		rc = check_rights_at(gpu, at, is_written);
		find_range(gpu->cuda, at, &mapping);
		at = mapping.base + mapping.size;
	} while (!rc && memory->kind == GPU_MEMORY_VIRTUAL && mapping.size && at < end);
	gpu_leave(&scope);
	return rc;
}

static int export_pages(struct gpu *gpu, uint64_t start, uint64_t size, int *ret_fd)
{
	const struct cuda_api *cuda = gpu->cuda;
	cu_result result;
	int fd = -1;

	/* Prefer the PCIe mapping if the memory has several, because the NIC is on PCIe. A driver
	 * that does not know the flag has only one mapping. */
	result = cuda->cuMemGetHandleForAddressRange(&fd, start, size,
		CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE);
	if (result)
		result = cuda->cuMemGetHandleForAddressRange(
			&fd, start, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
	if (!result)
		*ret_fd = fd;
	return result;
}

/* Returns which property of the GPU, driver or memory prevents a dma-buf, or NULL. */
static const char *why_no_dmabuf(const struct gpu *gpu, const struct gpu_memory *memory)
{
	if (!gpu->cuda->cuMemGetHandleForAddressRange)
		return "this driver is older than CUDA 11.7: update it";
	if (!gpu->caps.dma_buf)
		return "this GPU or driver does not support them (DMA_BUF_SUPPORTED is 0): use "
		       "NVIDIA's open kernel modules, 515 or newer";
	if (memory->kind == GPU_MEMORY_MANAGED)
		return "managed memory migrates: use cuMemAlloc() or cudaMalloc()";
	if (!memory->rdma_capable && memory->kind == GPU_MEMORY_VIRTUAL)
		return "the memory was not created for it: set allocFlags.gpuDirectRDMACapable at "
		       "cuMemCreate()";
	if (!memory->rdma_capable)
		return "NICs cannot access this kind of memory: use cuMemAlloc() or cudaMalloc()";
	return NULL;
}

int gpu_memory_export(struct gpu *gpu, const struct gpu_memory *memory, const void *addr,
	size_t length, int *ret_fd, uint64_t *ret_offset)
{
	const uint64_t in_page = (uint64_t)sysconf(_SC_PAGESIZE) - 1;
	uint64_t address = (uintptr_t)addr, start = address & ~in_page;
	uint64_t end = (address + length + in_page) & ~in_page;
	const char *why = why_no_dmabuf(gpu, memory);
	bool is_outside = start < memory->base || end > memory->base + memory->size;
	struct gpu_scope scope;
	cu_result result;
	char what[160];
	int rc;

	if (why)
		return frl_fail(-ENOTSUP, "no dma-buf: %s", why);
	rc = gpu_enter(gpu, &scope);
	if (rc)
		return rc;
	result = export_pages(gpu, start, end - start, ret_fd);
	gpu_leave(&scope);
	if (!result) {
		*ret_offset = address - start;
		return 0;
	}
	snprintf(what, sizeof(what), "making a dma-buf of %zu bytes of GPU %d%s", length,
		gpu->ordinal,
		is_outside ? ", which share pages with other allocations (allocate whole pages)"
			   : "");
	return cuda_fail(result, "cuMemGetHandleForAddressRange", what);
}

void gpu_memory_sync(struct gpu *gpu, const struct gpu_memory *memory, const void *addr)
{
	char error[ERROR_TEXT_MAX];
	const unsigned int on = 1;
	struct gpu_scope scope;

	error_save(error);
	if (memory->kind != GPU_MEMORY_MANAGED && !gpu_enter(gpu, &scope)) {
		gpu->cuda->cuPointerSetAttribute(
			&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, (uintptr_t)addr);
		gpu_leave(&scope);
	}
	error_restore(error);
}
