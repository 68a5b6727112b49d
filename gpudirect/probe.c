/* SPDX-License-Identifier: BSD-3-Clause */
/* frl_gpu_list(): the GPUs, what Ferrule supports on each, and the reasons for missing features. */
#include <ferrule/gpu.h>

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpudirect/gpu.h"
#include "gpudirect/kernels/image.h"
#include "gpudirect/probe.h"
#include "lib/base/error.h"
#include "lib/base/settings.h"

/* ---- peermem */

static const char *the_root = "";

void probe_set_root(const char *root)
{
	the_root = root ? root : "";
}

bool probe_has_peermem(void)
{
	/* nvidia-peermem does not load with the kernel's own RDMA subsystem. With that of DOCA or
	 * MLNX_OFED, the module is found by its name. Its predecessor is found by the folder in
	 * which it registers. */
	static const char *const signs[] = { "/sys/module/nvidia_peermem",
		"/sys/kernel/mm/memory_peers/nv_mem", "/sys/kernel/mm/memory_peers/nv_mem_nc" };
	char path[512];

	for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", the_root, signs[i]);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

/* ---- one GPU */

/* Appends a sentence about a missing feature. */
static void add_reason(struct frl_gpu_info *info, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void add_reason(struct frl_gpu_info *info, const char *format, ...)
{
	size_t length = strlen(info->reason);
	va_list args;

	if (length && length + 2 < sizeof(info->reason)) {
		memcpy(info->reason + length, "; ", 3);
		length += 2;
	}
	va_start(args, format);
	vsnprintf(info->reason + length, sizeof(info->reason) - length, format, args);
	va_end(args);
}

static void read_identity(const struct cuda_api *cuda, cu_device device, struct frl_gpu_info *info)
{
	size_t bytes = 0;

	if (cuda->cuDeviceGetName(info->name, sizeof(info->name), device) != CUDA_SUCCESS)
		info->name[0] = '\0';
	info->name[sizeof(info->name) - 1] = '\0';
	if (cuda->cuDeviceGetPCIBusId(info->pci, sizeof(info->pci), device) != CUDA_SUCCESS)
		info->pci[0] = '\0';
	info->pci[sizeof(info->pci) - 1] = '\0';
	for (char *c = info->pci; *c; c++)
		*c = (char)tolower((unsigned char)*c); /* lower case, as in sysfs and lspci */
	if (cuda->cuDeviceTotalMem(&bytes, device) == CUDA_SUCCESS)
		info->memory_bytes = bytes;
}

/* Tier A: NICs access GPU memory directly. */
static void check_nics(
	const struct cuda_api *cuda, const struct gpu_caps *caps, struct frl_gpu_info *info)
{
	info->exports_dmabuf = caps->dma_buf && cuda->cuMemGetHandleForAddressRange;
	info->has_peermem = caps->rdma && probe_has_peermem();
	if (info->exports_dmabuf || info->has_peermem)
		return;
	if (!cuda->cuMemGetHandleForAddressRange)
		add_reason(info,
			"no dma-bufs for NICs: they need the driver of CUDA 11.7 (515) or newer");
	else if (!caps->rdma)
		add_reason(info, "NICs cannot access its memory: this GPU has no GPUDirect RDMA");
	else
		add_reason(info,
			"no dma-bufs for NICs: install the driver's open kernel modules, or load "
			"nvidia-peermem");
}

/* Tier C: kernels move packets. Returns false if they cannot. */
static bool check_kernels(const struct gpu_caps *caps, struct frl_gpu_info *info)
{
	const char *why = image_why_not(
		caps->compute_major, caps->compute_minor, info->driver_version);

	info->has_kernels = !why;
	if (why)
		add_reason(info, "%s", why);
	if (!caps->host_register)
		add_reason(info, "host memory cannot be registered with this GPU");
	return info->has_kernels && caps->host_register;
}

static bool is_allowed(const char *tier, const char *setting)
{
	return strcmp(setting, "auto") == 0 || strcmp(setting, tier) == 0;
}

/* Returns whether a tier that FRL_GPU_TIER allows is available. */
static bool has_way(const struct frl_gpu_info *info, bool is_mapped)
{
	const char *setting = settings_get()->gpu_tier;

	return (info->exports_dmabuf && is_allowed("dma-buf", setting)) ||
		(info->has_peermem && is_allowed("peermem", setting)) ||
		(is_mapped && (is_allowed("mapped", setting) || is_allowed("nic-queue", setting)));
}

static bool is_prohibited(const struct cuda_api *cuda, cu_device device)
{
	int mode = CU_COMPUTEMODE_DEFAULT;

	return cuda->cuDeviceGetAttribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device) ==
		CUDA_SUCCESS &&
		mode == CU_COMPUTEMODE_PROHIBITED;
}

static void describe(const struct cuda_api *cuda, int ordinal, struct frl_gpu_info *info)
{
	struct gpu_caps caps;
	cu_device device;
	cu_result result;
	bool is_mapped;

	*info = (struct frl_gpu_info){ .ordinal = ordinal, .driver_version = cuda->version };
	result = cuda->cuDeviceGet(&device, ordinal);
	if (result != CUDA_SUCCESS) {
		cuda_fail(result, "cuDeviceGet", NULL);
		add_reason(info, "%s", frl_last_error());
		return;
	}
	read_identity(cuda, device, info);
	gpu_read_caps(cuda, device, &caps);
	info->compute_major = caps.compute_major;
	info->compute_minor = caps.compute_minor;
	info->needs_flush = caps.needs_flush;
	info->loads_lazily = cuda_loads_lazily(cuda);
	if (is_prohibited(cuda, device)) {
		add_reason(info, "its compute mode is prohibited: nvidia-smi -i %s -c DEFAULT",
			info->pci);
		return;
	}
	is_mapped = check_kernels(&caps, info);
	check_nics(cuda, &caps, info);
	info->usable = has_way(info, is_mapped);
	if (!info->usable && (is_mapped || info->exports_dmabuf || info->has_peermem))
		add_reason(info, "FRL_GPU_TIER=%s excludes all available ways to its memory",
			settings_get()->gpu_tier);
}

/* ---- all GPUs */

/* Returns the driver and its number of GPUs. Sets the last error on failure. */
static int count_gpus(const struct cuda_api **ret_cuda, int *ret_n)
{
	cu_result result;
	int rc;

	if (strcmp(settings_get()->gpu_tier, "off") == 0)
		return frl_fail(-ENOTSUP,
			"FRL_GPU_TIER is off: Ferrule does not accept GPU memory, and does not "
			"search for GPUs");
	rc = cuda_get(ret_cuda);
	if (rc < 0)
		return rc;
	result = (*ret_cuda)->cuDeviceGetCount(ret_n);
	if (result == CUDA_SUCCESS && *ret_n <= 0)
		result = CUDA_ERROR_NO_DEVICE;
	return result == CUDA_SUCCESS ? 0 : cuda_fail(result, "cuDeviceGetCount", NULL);
}

int frl_gpu_list(struct frl_gpu_info **ret_infos, size_t *ret_n)
{
	char error[ERROR_TEXT_MAX];
	const struct cuda_api *cuda;
	struct frl_gpu_info *infos;
	int rc, n = 0;

	/* A machine without a GPU is a valid result, not a failed call. */
	error_save(error);
	rc = count_gpus(&cuda, &n);
	infos = calloc(n > 0 ? (size_t)n : 1, sizeof(*infos));
	if (!infos)
		return frl_fail(-ENOMEM, "no memory for a list of %d GPUs", n);
	if (rc < 0) {
		infos[0].ordinal = -1;
		add_reason(&infos[0], "%s", frl_last_error());
	}
	for (int i = 0; rc == 0 && i < n; i++)
		describe(cuda, i, &infos[i]);
	error_restore(error);
	*ret_infos = infos;
	*ret_n = rc < 0 ? 1 : (size_t)n;
	return 0;
}

void frl_gpu_list_free(struct frl_gpu_info *infos)
{
	free(infos);
}
