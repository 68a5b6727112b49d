/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/mode.h"

#include <string.h>

#include "lib/base/settings.h"

enum gpu_queue_mode gpu_queue_mode_wanted(void)
{
	return strcmp(settings_get()->gpu_tier, "staged") == 0 ? GPU_QUEUE_STAGED : GPU_QUEUE_BATCH;
}
