/* SPDX-License-Identifier: BSD-3-Clause */
#include "gpudirect/mode.h"

#include <stdatomic.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/base/settings.h"

/* The driver then comes back from a launch only when it has ended: a kernel that waits for work
 * would wait in vain. That is told once. */
static bool are_launches_waited_for(const struct settings *settings)
{
	static atomic_flag is_told = ATOMIC_FLAG_INIT;
	const char *value = settings_foreign("CUDA_LAUNCH_BLOCKING");

	if (!value || !*value || strcmp(value, "0") == 0)
		return false;
	if (!atomic_flag_test_and_set(&is_told))
		frl_log(FRL_LOG_WARNING,
			"FRL_GPU_LAUNCH=%s does not work with CUDA_LAUNCH_BLOCKING=%s: batch is "
			"used",
			settings->gpu_launch, value);
	return true;
}

enum gpu_queue_mode gpu_queue_mode_wanted(void)
{
	const struct settings *settings = settings_get();

	if (strcmp(settings->gpu_tier, "staged") == 0)
		return GPU_QUEUE_STAGED;
	if (strcmp(settings->gpu_launch, "batch") == 0 || are_launches_waited_for(settings))
		return GPU_QUEUE_BATCH;
	if (strcmp(settings->gpu_launch, "memop") == 0)
		return GPU_QUEUE_MEMOP;
	return GPU_QUEUE_PERSISTENT;
}
