/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The binary interface of NCCL's tuner plugins, versions 3 to 5, in declarations of our own. NCCL
 * takes one out of the net plugin's file: v3 from 2.22 on, v4 from 2.24, v5 from 2.28 (v6, of 2.30,
 * adds a function that may be missing; 2.30 still takes v5). Before v3 a tuner cannot exclude a
 * protocol: it only names the one to use.
 */
#ifndef FERRULE_NCCL_ABI_TUNER_H
#define FERRULE_NCCL_ABI_TUNER_H

#include "nccl/abi.h"

/* ncclFunc_t */
enum nccl_collective {
	NCCL_BROADCAST,
	NCCL_REDUCE,
	NCCL_ALL_GATHER,
	NCCL_REDUCE_SCATTER,
	NCCL_ALL_REDUCE,
};

/* NCCL_ALGO_*: rows of the table of costs, whose columns are protocols (protocols.h). */
enum nccl_algorithm {
	NCCL_TREE,
	NCCL_RING,
	NCCL_COLLNET_DIRECT,
	NCCL_COLLNET_CHAIN,
	NCCL_NVLS,
	NCCL_NVLS_TREE,
	NCCL_PAT,
};

/* NCCL does not use an entry with this cost. All others are microseconds. */
#define NCCL_COST_IGNORE (-1.0f)

/* `costs` is declared as float ** and is an array of n_algorithms times n_protocols floats. */
typedef int (*nccl_get_info_v3_fn)(void *ctx, int collective, size_t bytes, int n_ops,
	float **costs, int n_algorithms, int n_protocols, int *n_channels);
typedef int (*nccl_get_info_v4_fn)(void *ctx, int collective, size_t bytes, int n_ops,
	float **costs, int n_algorithms, int n_protocols, int is_registered, int *n_channels);
typedef int (*nccl_tuner_init_v3_fn)(size_t n_ranks, size_t n_nodes, nccl_log_fn log, void **ctx);
/* `domains` (NVLink) and `constants` (NCCL's model) are not used here. */
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
