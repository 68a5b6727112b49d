/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/process/host.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The kernel generates this random UUID at boot. */
static unsigned read_boot_id(uint8_t ret_id[HOST_ID_SIZE])
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	char line[64] = "";
	unsigned digits = 0;

	if (file && !fgets(line, sizeof(line), file))
		line[0] = '\0';
	if (file)
		fclose(file);
	for (const char *c = line; *c && digits < 2 * HOST_ID_SIZE; c++) {
		if (!isxdigit((unsigned char)*c))
			continue;
		ret_id[digits / 2] = (uint8_t)(ret_id[digits / 2] << 4 |
			(isdigit((unsigned char)*c) ? *c - '0' : tolower(*c) - 'a' + 10));
		digits++;
	}
	return digits;
}

/* The network namespace is included: processes in different ones reach each other through ports
 * only. */
bool host_id(uint8_t ret_id[HOST_ID_SIZE])
{
	struct stat network;
	unsigned digits;

	memset(ret_id, 0, HOST_ID_SIZE);
	digits = read_boot_id(ret_id);
	if (stat("/proc/self/ns/net", &network) != 0)
		return false;
	for (unsigned i = 0; i < 8; i++)
		ret_id[i] ^= (uint8_t)((uint64_t)network.st_ino >> 8 * i);
	return digits == 2 * HOST_ID_SIZE;
}
