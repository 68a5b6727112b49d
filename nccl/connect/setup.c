/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/connect/setup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "nccl/log.h"
#include "nccl/settings.h"

enum {
	/* The number of timeouts after which a queue pair fails: hardware retries at a constant
	 * interval, Ferrule's devices double it four times. */
	HARDWARE_TRIES = 8,
	SOFTWARE_TRIES = 1 + 2 + 4 + 8 + 4 * 16,
	MAX_TIMEOUT = 25, /* eight retries take longer than the largest FERRULE_TIMEOUT_S */
	UNIT_NS = 4096,
};

void net_service_name(uint64_t listener, int rail, char name[FRL_SERVICE_MAX + 1])
{
	snprintf(name, FRL_SERVICE_MAX + 1, "nccl-%016" PRIx64 "-%d", listener, rail);
}

int net_check_class(int traffic_class)
{
	if (traffic_class == NCCL_TRAFFIC_CLASS_UNDEFINED ||
		(traffic_class >= 0 && traffic_class <= UINT8_MAX))
		return 0;
	net_log_warning("NCCL's traffic class %d (trafficClass) is invalid: use 0 to %d, of which "
			"the upper six bits are the DSCP",
		traffic_class, UINT8_MAX);
	return -EINVAL;
}

/* Returns the largest timeout with which a queue pair fails within the configured time. */
static uint8_t timeout_for(uint64_t wanted_ns, uint64_t tries)
{
	uint8_t timeout = 1;

	while (timeout < MAX_TIMEOUT && ((UINT64_C(2) * UNIT_NS) << timeout) * tries <= wanted_ns)
		timeout++;
	return timeout;
}

void net_connect_config(const struct net_port *port, int traffic_class, int timeout_ms,
	uint32_t access_flags, struct frl_connect_config *ret_config)
{
	uint64_t tries = port->info.is_hardware ? HARDWARE_TRIES : SOFTWARE_TRIES;

	frl_connect_config_init(port->device, ret_config);
	ret_config->timeout_ms = timeout_ms;
	ret_config->access_flags = access_flags;
	if (traffic_class != NCCL_TRAFFIC_CLASS_UNDEFINED)
		ret_config->traffic_class = (uint8_t)traffic_class;
	if (!port->attr.local_fabric)
		ret_config->timeout = timeout_for(
			(uint64_t)net_settings()->timeout_s * UINT64_C(1000000000), tries);
}

uint64_t net_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t net_random(void)
{
	uint64_t value;

	/* getrandom() cannot fail after system start. If it does, the fallback still differs
	 * between processes. */
	if (getrandom(&value, sizeof(value), 0) != sizeof(value))
		value = net_now_ns() << 20 ^ (uint64_t)getpid();
	return value;
}
