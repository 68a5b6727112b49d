/* SPDX-License-Identifier: BSD-3-Clause */
/* GPUs in the list of ferrule-info. */
#ifndef FERRULE_TOOLS_INFO_GPU_LIST_H
#define FERRULE_TOOLS_INFO_GPU_LIST_H

#include <stddef.h>

#include <jansson.h>

#include <ferrule/gpu.h>

enum { GPU_NAME_SIZE = 16 };

/* Returns "gpu:0"; "gpu" for the entry that says why there is no GPU. */
const char *gpu_name(const struct frl_gpu_info *info, char name[static GPU_NAME_SIZE]);

/* Prints a table of GPUs; nothing if there are none. */
void print_gpus(const struct frl_gpu_info *infos, size_t n);

/* Returns the JSON of a GPU, or NULL without memory. */
json_t *json_gpu(const struct frl_gpu_info *info);

#endif
