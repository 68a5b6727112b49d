/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>

#include "tools/info/gpu_list.h"

const char *gpu_name(const struct frl_gpu_info *info, char name[static GPU_NAME_SIZE])
{
	snprintf(name, GPU_NAME_SIZE, info->ordinal < 0 ? "gpu" : "gpu:%d", info->ordinal);
	return name;
}

/* Returns the ways in which the GPU's memory can be accessed. */
static const char *ways(const struct frl_gpu_info *info)
{
	static const char *const texts[2][2][2] = {
		{ { "-", "kernels" }, { "peermem", "peermem, kernels" } },
		{ { "dma-buf", "dma-buf, kernels" },
			{ "dma-buf, peermem", "dma-buf, peermem, kernels" } },
	};

	return texts[info->exports_dmabuf][info->has_peermem][info->has_kernels];
}

static void print_gpu(const struct frl_gpu_info *info)
{
	char name[GPU_NAME_SIZE], memory[32] = "-", capability[16] = "-", driver[16] = "-";

	if (info->memory_bytes)
		snprintf(memory, sizeof(memory), "%" PRIu64 " MiB", info->memory_bytes >> 20);
	if (info->compute_major)
		snprintf(capability, sizeof(capability), "%d.%d", info->compute_major,
			info->compute_minor);
	if (info->driver_version)
		snprintf(driver, sizeof(driver), "%d.%d", info->driver_version / 1000,
			info->driver_version % 1000 / 10);
	printf("%-20s %-8s %-25s %-12s %10s %6s %6s %s\n", gpu_name(info, name),
		info->usable ? "usable" : "unusable", ways(info), info->pci[0] ? info->pci : "-",
		memory, capability, driver, info->name[0] ? info->name : "-");
	if (info->reason[0])
		printf("    %s\n", info->reason);
}

void print_gpus(const struct frl_gpu_info *infos, size_t n)
{
	if (n)
		printf("%-20s %-8s %-25s %-12s %10s %6s %6s %s\n", "GPU", "", "reached by", "PCI",
			"memory", "comp.", "CUDA", "model");
	for (size_t i = 0; i < n; i++)
		print_gpu(&infos[i]);
}

json_t *json_gpu(const struct frl_gpu_info *info)
{
	char name[GPU_NAME_SIZE];

	return json_pack(
		"{s:s, s:s, s:b, s:o, s:o, s:o, s:I, s:i, s:i, s:i, s:b, s:b, s:b, s:b, s:b}",
		"name", gpu_name(info, name), "kind", "gpu", "usable", info->usable, "reason",
		info->reason[0] ? json_string(info->reason) : json_null(), "model",
		info->name[0] ? json_string(info->name) : json_null(), "pci",
		info->pci[0] ? json_string(info->pci) : json_null(), "memory_bytes",
		(json_int_t)info->memory_bytes, "compute_major", info->compute_major,
		"compute_minor", info->compute_minor, "driver_version", info->driver_version,
		"dma_buf", info->exports_dmabuf, "peermem", info->has_peermem, "kernels",
		info->has_kernels, "needs_flush", info->needs_flush, "lazy_loading",
		info->loads_lazily);
}
