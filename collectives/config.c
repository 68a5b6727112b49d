/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/config.h"

#include "lib/base/settings.h"

void collective_config_init(struct collective_config *config)
{
	*config = (struct collective_config){
		.segment_bytes = (uint32_t)settings_get()->segment_kb * 1024,
		.algos = settings_get()->algo,
		.timeout_ms = (int)settings_get()->coll_timeout_s * 1000,
		.connect_timeout_ms = 30 * 1000,
		.drain_timeout_ms = 5 * 1000,
	};
}
