/* SPDX-License-Identifier: BSD-3-Clause */
/* How this process gets work to GPUs, as the settings say. Any thread. */
#ifndef FERRULE_GPUDIRECT_MODE_H
#define FERRULE_GPUDIRECT_MODE_H

#include "gpudirect/queue.h"

/* GPU_QUEUE_STAGED where FRL_GPU_TIER is staged; else GPU_QUEUE_BATCH. */
enum gpu_queue_mode gpu_queue_mode_wanted(void);

#endif
