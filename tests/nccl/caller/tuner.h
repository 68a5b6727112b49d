/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuner in a net plugin's file, as NCCL uses it: the newest version that the NCCL of a net
 * table takes, one context for each communicator that spans hosts. Written from NCCL's headers
 * (src/include/nccl_tuner.h of v2.22.3 and v2.24.3, plugin/tuner/tuner_v5.h of v2.28.9), not from
 * nccl/.
 */
#ifndef TESTS_NCCL_TUNER_H
#define TESTS_NCCL_TUNER_H

#include <stdbool.h>

#include "tests/nccl/caller/abi.h"

enum { TUNER_ALGORITHMS = 7, TUNER_PROTOCOLS = 3, TUNER_OLDEST = 3, TUNER_NEWEST = 5 };

struct tuner {
	int version; /* 0: there is none */
	const void *table;
	void *context;
};

/* The tuner version of the NCCL that takes this net table: 2.22 for v8, 2.24 for v9, 2.28 for
 * v11. */
int tuner_version_for(int net_version);

/* `library`: from dlopen(). Returns false if it has no tuner of this version. */
bool tuner_load(struct tuner *tuner, void *library, int version);
int tuner_init(struct tuner *tuner, uint64_t comm_id, size_t n_nodes, nccl_logger log);
/* `costs` has a row of n_protocols for each algorithm. */
int tuner_ask(struct tuner *tuner, int collective, float *costs, int n_algorithms, int n_protocols);
int tuner_end(struct tuner *tuner);

#endif
