/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives/communicator/location.h"

#include <ctype.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NODES_MAX = 64, LINE = 4096 };

void location_host(uint8_t ret_id[HOST_ID_SIZE])
{
	host_id(ret_id);
}

/* Returns whether a list such as "0-3,8" contains the whole set. */
static bool holds(const char *list, const cpu_set_t *set)
{
	cpu_set_t rest = *set;

	while (isdigit((unsigned char)*list)) {
		char *end;
		unsigned long first = strtoul(list, &end, 10), last = first;

		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
			CPU_CLR(cpu, &rest);
		list = *end == ',' ? end + 1 : end;
	}
	return CPU_COUNT(&rest) == 0;
}

uint32_t location_numa(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return 0;
	for (uint32_t node = 0; node < NODES_MAX; node++) {
		char path[64], line[LINE] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpulist", node);
		file = fopen(path, "re");
		if (!file)
			continue;
		if (!fgets(line, sizeof(line), file))
			line[0] = '\0';
		fclose(file);
		if (holds(line, &set))
			return node;
	}
	return 0;
}

uint32_t location_processors(uint32_t *ret_first)
{
	cpu_set_t set;
	uint32_t first = 0;

	*ret_first = 0;
	if (sched_getaffinity(0, sizeof(set), &set) != 0)
		return 1;
	while (first < CPU_SETSIZE && !CPU_ISSET(first, &set))
		first++;
	*ret_first = first;
	return (uint32_t)CPU_COUNT(&set);
}

static int compare_shares(const void *left, const void *right)
{
	const struct location_share *a = left, *b = right;

	if (a->host != b->host)
		return a->host < b->host ? -1 : 1;
	if (a->first_processor != b->first_processor)
		return a->first_processor < b->first_processor ? -1 : 1;
	return (a->processors < b->processors) - (a->processors > b->processors);
}

double location_oversubscription(struct location_share list[], uint32_t n)
{
	double oversubscription = 1, ranks = 0, processors = 0;

	qsort(list, n, sizeof(list[0]), compare_shares);
	for (uint32_t i = 0; i < n; i++) {
		bool is_new = i == 0 || list[i].host != list[i - 1].host;

		if (is_new)
			ranks = processors = 0;
		if (is_new || list[i].first_processor != list[i - 1].first_processor)
			processors += list[i].processors;
		ranks++;
		if (i + 1 < n && list[i + 1].host == list[i].host)
			continue;
		if (processors > 0 && ranks / processors > oversubscription)
			oversubscription = ranks / processors;
	}
	return oversubscription;
}

/* The time is the second number of schedstat; 0 if the kernel does not count it. */
uint64_t location_waited_ns(void)
{
	char text[LINE];
	int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	ssize_t size = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
	const char *blank;

	if (fd >= 0)
		close(fd);
	if (size < 0)
		return 0;
	text[size] = '\0';
	blank = strchr(text, ' ');
	return blank ? strtoull(blank + 1, NULL, 10) : 0;
}
