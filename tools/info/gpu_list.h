/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUs among what ferrule-info lists. */
#ifndef FERRULE_TOOLS_INFO_GPU_LIST_H
#define FERRULE_TOOLS_INFO_GPU_LIST_H

#include <stddef.h>

#include <jansson.h>

#include <ferrule/gpu.h>

enum { GPU_NAME_SIZE = 16 };

/* "gpu:0"; "gpu" of the entry that says why there is none. */
const char *gpu_name(const struct frl_gpu_info *info, char name[static GPU_NAME_SIZE]);

/* A table of its own; nothing for none. */
void print_gpus(const struct frl_gpu_info *infos, size_t n);

/* NULL: no memory. */
json_t *json_gpu(const struct frl_gpu_info *info);

#endif
