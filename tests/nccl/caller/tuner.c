/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/nccl/caller/tuner.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct tuner_v3 {
	const char *name;
	int (*init)(size_t n_ranks, size_t n_nodes, nccl_logger log, void **context);
	int (*get_info)(void *context, int collective, size_t bytes, int n_ops, float **costs,
		int n_algorithms, int n_protocols, int *n_channels);
	int (*destroy)(void *context);
};

struct tuner_v4 {
	const char *name;
	int (*init)(size_t n_ranks, size_t n_nodes, nccl_logger log, void **context);
	int (*get_info)(void *context, int collective, size_t bytes, int n_ops, float **costs,
		int n_algorithms, int n_protocols, int registered, int *n_channels);
	int (*destroy)(void *context);
};

struct tuner_v5 {
	const char *name;
	int (*init)(void **context, uint64_t comm_id, size_t n_ranks, size_t n_nodes,
		nccl_logger log, void *nvlink_domains, void *constants);
	int (*get_info)(void *context, int collective, size_t bytes, int n_ops, float **costs,
		int n_algorithms, int n_protocols, int registered, int *n_channels);
	int (*finalize)(void *context);
};

int tuner_version_for(int net_version)
{
	if (net_version >= 11)
		return 5;
	return net_version >= 9 ? 4 : 3;
}

bool tuner_load(struct tuner *tuner, void *library, int version)
{
	char symbol[32];

	snprintf(symbol, sizeof(symbol), "ncclTunerPlugin_v%d", version);
	*tuner = (struct tuner){ .version = version, .table = dlsym(library, symbol) };
	if (!tuner->table)
		tuner->version = 0;
	return tuner->table;
}

int tuner_init(struct tuner *tuner, uint64_t comm_id, size_t n_nodes, nccl_logger log)
{
	/* NCCL's own model, which a tuner may change. It is larger than any version's. */
	static double constants[1000];
	int nvlink_domains[3] = { (int)n_nodes, 1, 1 };

	switch (tuner->version) {
	case 3:
		return ((const struct tuner_v3 *)tuner->table)
			->init(2 * n_nodes, n_nodes, log, &tuner->context);
	case 4:
		return ((const struct tuner_v4 *)tuner->table)
			->init(2 * n_nodes, n_nodes, log, &tuner->context);
	default:
		return ((const struct tuner_v5 *)tuner->table)
			->init(&tuner->context, comm_id, 2 * n_nodes, n_nodes, log, nvlink_domains,
				constants);
	}
}

int tuner_ask(struct tuner *tuner, int collective, float *costs, int n_algorithms, int n_protocols)
{
	/* An array of arrays, passed with another type, as NCCL does (enqueue.cc). */
	float **table = (float **)(void *)costs;
	int n_channels = 0;

	if (tuner->version == 3)
		return ((const struct tuner_v3 *)tuner->table)
			->get_info(tuner->context, collective, 1 << 20, 1, table, n_algorithms,
				n_protocols, &n_channels);
	if (tuner->version == 4)
		return ((const struct tuner_v4 *)tuner->table)
			->get_info(tuner->context, collective, 1 << 20, 1, table, n_algorithms,
				n_protocols, 0, &n_channels);
	return ((const struct tuner_v5 *)tuner->table)
		->get_info(tuner->context, collective, 1 << 20, 1, table, n_algorithms, n_protocols,
			0, &n_channels);
}

int tuner_end(struct tuner *tuner)
{
	void *context = tuner->context;

	tuner->context = NULL;
	if (tuner->version == 3)
		return ((const struct tuner_v3 *)tuner->table)->destroy(context);
	if (tuner->version == 4)
		return ((const struct tuner_v4 *)tuner->table)->destroy(context);
	return ((const struct tuner_v5 *)tuner->table)->finalize(context);
}
