/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The binary interface of NCCL's tuner plugins, versions 3 to 5, in Ferrule's own declarations.
 * NCCL loads a tuner from the net plugin's file: v3 since 2.22, v4 since 2.24, v5 since 2.28. v6
 * (since 2.30) adds an optional function; 2.30 still accepts v5. Before v3 a tuner cannot exclude a
 * protocol; it can only select one.
 */
#ifndef FERRULE_NCCL_ABI_TUNER_H
#define FERRULE_NCCL_ABI_TUNER_H

#include "nccl/api/abi.h"

/* ncclFunc_t */
enum nccl_collective {
	NCCL_BROADCAST,
	NCCL_REDUCE,
	NCCL_ALL_GATHER,
	NCCL_REDUCE_SCATTER,
	NCCL_ALL_REDUCE,
};

/* NCCL_ALGO_*: rows of the cost table. The columns are protocols (protocols.h). */
enum nccl_algorithm {
	NCCL_TREE,
	NCCL_RING,
	NCCL_COLLNET_DIRECT,
	NCCL_COLLNET_CHAIN,
	NCCL_NVLS,
	NCCL_NVLS_TREE,
	NCCL_PAT,
};

/* NCCL never selects an entry with this cost. All other costs are in microseconds. */
#define NCCL_COST_IGNORE (-1.0f)

/* `costs` is declared as float **, but is an array of n_algorithms times n_protocols floats. */
typedef int (*nccl_get_info_v3_fn)(void *ctx, int collective, size_t bytes, int n_ops,
	float **costs, int n_algorithms, int n_protocols, int *n_channels);
typedef int (*nccl_get_info_v4_fn)(void *ctx, int collective, size_t bytes, int n_ops,
	float **costs, int n_algorithms, int n_protocols, int is_registered, int *n_channels);
typedef int (*nccl_tuner_init_v3_fn)(size_t n_ranks, size_t n_nodes, nccl_log_fn log, void **ctx);
/* `domains` (NVLink) and `constants` (NCCL's model) are unused here. */
typedef int (*nccl_tuner_init_v5_fn)(void **ctx, uint64_t comm_id, size_t n_ranks, size_t n_nodes,
	nccl_log_fn log, void *domains, void *constants);

struct nccl_tuner_v3 {
	const char *name;
	nccl_tuner_init_v3_fn init;
	nccl_get_info_v3_fn get_info;
	int (*destroy)(void *ctx);
};

struct nccl_tuner_v4 {
	const char *name;
	nccl_tuner_init_v3_fn init;
	nccl_get_info_v4_fn get_info;
	int (*destroy)(void *ctx);
};

struct nccl_tuner_v5 {
	const char *name;
	nccl_tuner_init_v5_fn init;
	nccl_get_info_v4_fn get_info;
	int (*finalize)(void *ctx);
};

static_assert(sizeof(struct nccl_tuner_v3) == 32, "ncclTuner_v3_t");
static_assert(sizeof(struct nccl_tuner_v4) == 32, "ncclTuner_v4_t");
static_assert(sizeof(struct nccl_tuner_v5) == 32, "ncclTuner_v5_t");

#endif
