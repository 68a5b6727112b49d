/* SPDX-License-Identifier: BSD-3-Clause */
/* Orders ranks so that ranks near each other are neighbours. */
#include "collectives/plan/topology.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct placed {
	struct topology_location location;
	uint32_t rank;
};

static int compare(uint32_t a, uint32_t b)
{
	return a < b ? -1 : a > b;
}

static int compare_placed(const void *left, const void *right)
{
	const struct placed *a = left;
	const struct placed *b = right;
	int order = compare(a->location.host, b->location.host);

	if (order == 0)
		order = compare(a->location.numa, b->location.numa);
	return order != 0 ? order : compare(a->rank, b->rank);
}

static int compare_hosts(const void *left, const void *right)
{
	const struct topology_host *a = left, *b = right;
	int order = memcmp(a->id, b->id, sizeof(a->id));

	return order != 0 ? order : compare(a->rank, b->rank);
}

void topology_number_hosts(struct topology_host *hosts, uint32_t ranks, uint32_t ret_numbers[])
{
	uint32_t lowest = 0, n = 0;

	/* First each rank gets the lowest rank of its host, then the hosts are numbered in that
	 * order. */
	qsort(hosts, ranks, sizeof(*hosts), compare_hosts);
	for (uint32_t i = 0; i < ranks; i++) {
		if (i == 0 || memcmp(hosts[i].id, hosts[i - 1].id, sizeof(hosts[i].id)) != 0)
			lowest = hosts[i].rank;
		ret_numbers[hosts[i].rank] = lowest;
	}
	for (uint32_t rank = 0; rank < ranks; rank++) {
		lowest = ret_numbers[rank];
		ret_numbers[rank] = lowest == rank ? n++ : ret_numbers[lowest];
	}
}

int topology_init(
	struct topology *topology, const struct topology_location *locations, uint32_t ranks)
{
	struct placed *sorted = calloc(ranks, sizeof(sorted[0]));

	*topology = (struct topology){
		.ranks = ranks,
		.locations = calloc(ranks, sizeof(locations[0])),
		.order = calloc(ranks, sizeof(topology->order[0])),
	};
	if (!sorted || !topology->locations || !topology->order) {
		free(sorted);
		topology_fini(topology);
		return -ENOMEM;
	}
	memcpy(topology->locations, locations, ranks * sizeof(locations[0]));
	for (uint32_t rank = 0; rank < ranks; rank++)
		sorted[rank] = (struct placed){ .location = locations[rank], .rank = rank };
	qsort(sorted, ranks, sizeof(sorted[0]), compare_placed);
	for (uint32_t i = 0; i < ranks; i++) {
		topology->order[i] = sorted[i].rank;
		if (i == 0 || sorted[i].location.host != sorted[i - 1].location.host)
			topology->hosts++;
	}
	free(sorted);
	return 0;
}

void topology_fini(struct topology *topology)
{
	free(topology->locations);
	free(topology->order);
	*topology = (struct topology){ .ranks = 0 };
}
