/* SPDX-License-Identifier: BSD-3-Clause */
/* The double of libcuda: dma-bufs, and the order of a NIC's writes. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fakes/cuda/fake_exports.h"
#include "tests/fakes/cuda/fake_internal.h"

/* An export: a file, and the offset of the range in it. */
struct export
{
	dev_t device;
	ino_t inode;
	off_t offset;
	cu_deviceptr address;
	size_t size;
	struct export *next;
};
static struct export *exports; /* the last one first */

void fake_exports_reset(void)
{
	while (exports) {
		struct export *next = exports->next;

		free(exports);
		exports = next;
	}
}

bool fake_dma_buf(int fd, cu_deviceptr *ret_address, size_t *ret_size)
{
	off_t offset = lseek(fd, 0, SEEK_CUR);
	struct stat is;

	if (fstat(fd, &is) < 0)
		return false;
	for (const struct export *e = exports; e; e = e->next) {
		if (e->device != is.st_dev || e->inode != is.st_ino || e->offset != offset)
			continue;
		*ret_address = e->address;
		*ret_size = e->size;
		return true;
	}
	return false;
}

unsigned fake_export_count(void)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned n = 0;

	while (folder && (entry = readdir(folder))) {
		char path[300], target[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		if (readlink(path, target, sizeof(target) - 1) > 0 &&
			strncmp(target, "/memfd:fake-cuda", 16) == 0)
			n++;
	}
	if (folder)
		closedir(folder);
	return n - fake.n_blocks;
}

/* A descriptor of its own for the file, positioned at the start of the range. */
static cu_result export_range(
	const struct fake_range *range, cu_deviceptr address, size_t size, int *ret_fd)
{
	struct export *e = calloc(1, sizeof(*e));
	char path[64];
	struct stat is;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", range->block->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (!e || fd < 0 || fstat(fd, &is) < 0) {
		free(e);
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	*e = (struct export){
		.device = is.st_dev,
		.inode = is.st_ino,
		.offset = (off_t)(range->block_offset + (address - range->base)),
		.address = address,
		.size = size,
		.next = exports,
	};
	lseek(fd, e->offset, SEEK_SET);
	exports = e;
	fake.stats.exports++;
	*ret_fd = fd;
	return CUDA_SUCCESS;
}

/* Small allocations share a block: whole pages around them are pages of that block. */
static const struct fake_range *exportable(cu_deviceptr address, size_t size)
{
	for (const struct fake_range *range = fake.ranges; range; range = range->next) {
		if (range->kind != FAKE_DEVICE && range->kind != FAKE_MAPPING &&
			(range->kind != FAKE_SHARED || range->flags != FAKE_DEVICE))
			continue;
		uint64_t end = range->base +
			(range->kind == FAKE_DEVICE ? range->block->size : range->size);
		if (range->kind == FAKE_DEVICE && range->block_offset > 0)
			continue;
		if (range->kind == FAKE_DEVICE && range->size < FAKE_CUDA_BLOCK / 2)
			continue;
		if (address >= range->base && address < end && size <= end - address)
			return range;
	}
	return NULL;
}

cu_result cuMemGetHandleForAddressRange(void *ret_handle, cu_deviceptr address, size_t size,
	cu_range_handle_type type, unsigned long long flags)
{
	cu_result result = fake_enter("cuMemGetHandleForAddressRange", FAKE_CONTEXTED);
	const struct fake_range *range;

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_handle || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || size == 0 ||
		address % FAKE_PAGE != 0 || size % FAKE_PAGE != 0 ||
		flags > CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	range = exportable(address, size);
	if (!range)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (!fake_attribute(range->device, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) ||
		(flags && !fake.is_pcie) ||
		(range->kind == FAKE_MAPPING && !range->block->is_rdma_capable))
		return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
	return fake_leave(export_range(range, address, size, ret_handle));
}

cu_result cuFlushGPUDirectRDMAWrites(cu_flush_target target, cu_flush_scope scope)
{
	cu_result result = fake_enter("cuFlushGPUDirectRDMAWrites", FAKE_CONTEXTED);
	struct fake_context *context;

	if (result != CUDA_SUCCESS)
		return result;
	fake_current(&context);
	if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX ||
		(scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER &&
			scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES))
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (!(fake_attribute(
		      context->device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS) &
		    CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST))
		return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
	fake.stats.flushes++;
	return fake_leave(CUDA_SUCCESS);
}
