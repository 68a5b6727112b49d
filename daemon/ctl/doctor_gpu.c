/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUs, as the driver reports them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <ferrule/gpu.h>

#include "daemon/ctl/doctor.h"

enum { WAYS_SIZE = 96 };

static void add_way(char ways[WAYS_SIZE], bool is_there, const char *way)
{
	size_t length = strlen(ways);

	if (is_there)
		snprintf(ways + length, WAYS_SIZE - length, "%s%s", length ? ", " : "", way);
}

static void say_gpu(struct doctor *doctor, const struct frl_gpu_info *info)
{
	char ways[WAYS_SIZE] = "";

	add_way(ways, info->exports_dmabuf, "NICs by dma-buf");
	add_way(ways, info->has_peermem, "NICs by nvidia-peermem");
	add_way(ways, info->has_kernels, "kernels");
	doctor_say(doctor, info->usable ? DOCTOR_OK : DOCTOR_WARN, "gpu", info->reason,
		"%d: %s, %s, %" PRIu64 " GiB, compute capability %d.%d, driver of CUDA %d.%d: %s%s",
		info->ordinal, info->name, info->pci, info->memory_bytes >> 30, info->compute_major,
		info->compute_minor, info->driver_version / 1000, info->driver_version % 1000 / 10,
		info->usable ? "usable: " : "cannot be used", info->usable ? ways : "");
}

void doctor_gpus(struct doctor *doctor, const struct frl_gpu_info *infos, size_t n)
{
	if (n && infos[0].ordinal < 0) {
		/* Most machines need no GPU. This one has the kernel module, and CUDA was asked. */
		if (root_exists(doctor, "/sys/module/nvidia") &&
			!strstr(infos[0].reason, "FRL_GPU_TIER is off"))
			doctor_say(doctor, DOCTOR_WARN, "gpu", infos[0].reason,
				"CUDA shows this user no usable GPU");
		else
			doctor_say(doctor, DOCTOR_SKIP, "gpu", NULL, "%s", infos[0].reason);
		return;
	}
	for (size_t i = 0; i < n; i++)
		say_gpu(doctor, &infos[i]);
	/* A property of the process, so it is the same for all. */
	if (n && infos[0].loads_lazily)
		doctor_say(doctor, DOCTOR_OK, "gpu", NULL,
			"CUDA loads modules lazily: NCCL with FERRULE_GPU=1 needs "
			"CUDA_MODULE_LOADING=EAGER");
}
