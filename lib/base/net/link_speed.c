/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/net/link_speed.h"

#include <net/if.h>
#include <stdio.h>

uint32_t link_speed_mbps(const char *interface)
{
	char path[64];
	int speed = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/net/%.*s/speed", IF_NAMESIZE - 1, interface);
	file = fopen(path, "re");
	if (!file)
		return 0;
	/* The kernel reports -1 for interfaces without a speed or a link. */
	if (fscanf(file, "%d", &speed) != 1 || speed < 0)
		speed = 0;
	fclose(file);
	return (uint32_t)speed;
}
