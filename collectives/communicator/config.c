/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/communicator/config.h"

#include <string.h>

#include "lib/base/settings.h"

static const char *tuner_folder(void)
{
	const char *folder = settings_get()->tuner_cache;

	if (strcmp(folder, "auto") == 0)
		folder = settings_cache_dir();
	return folder ? folder : "";
}

void collective_config_init(struct collective_config *config)
{
	*config = (struct collective_config){
		.segment_bytes = (uint32_t)settings_get()->segment_kb * 1024,
		.uses_shm = settings_get()->shm && settings_get()->in_place,
		.writes_shared = settings_get()->shm_write,
		.algos = settings_get()->algo,
		.tuner_costs = settings_get()->tuner_costs,
		.tuner_folder = tuner_folder(),
		.timeout_ms = (int)settings_get()->coll_timeout_s * 1000,
		.connect_timeout_ms = 30 * 1000,
		.drain_timeout_ms = 5 * 1000,
	};
}
