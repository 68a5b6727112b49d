/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums over ports for the metrics: one for each fabric, device and user. The counts of closed ports
 * stay included, since Prometheus takes a decreasing sum for a restart. If a process loses its
 * session and comes back, its counters are added again.
 *
 * Pages are not trusted. A process can only spoil the sums of its own user. It cannot invent
 * labels, since those come from the configuration and from the socket.
 */
#ifndef FERRULE_DAEMON_CORE_METRICS_TOTALS_H
#define FERRULE_DAEMON_CORE_METRICS_TOTALS_H

#include <ferrule/queue.h>
#include <ferrule/stats.h>

#include "daemon/core/internal.h"

enum total_counter {
#define TOTAL_COUNTER(name, what) TOTAL_##name,
	FRL_COUNTERS(TOTAL_COUNTER)
#undef TOTAL_COUNTER
		TOTAL_COUNTERS,
};

enum {
	TOTAL_TYPES = FRL_QPT_UD + 1,
	TOTAL_STATES = FRL_QPS_ERR + 1,
#define TOTAL_WAIT(name, what, hint) +1
	TOTAL_WAITS = 0 PAGE_WAITS(TOTAL_WAIT),
#undef TOTAL_WAIT
	TOTAL_DEVICE = 256,
	TOTALS_MAX = 512, /* further users share one */
};

#define TOTAL_OTHERS UINT32_MAX /* as a user: all users beyond TOTALS_MAX */

struct total {
	struct total_key {
		char fabric[CORE_NAME];
		char device[TOTAL_DEVICE];
		uint32_t uid;
	} key;                         /* padding is zero */
	UT_hash_handle hh;             /* core.totals */
	uint64_t gone[TOTAL_COUNTERS]; /* of closed ports */
	/* As of the last totals_update(). */
	uint64_t counters[TOTAL_COUNTERS];
	uint32_t ports;
	uint32_t qps[TOTAL_TYPES][TOTAL_STATES];
	uint32_t waits[TOTAL_WAITS];
};

/* Reads all pages. */
void totals_update(struct core *core);

#endif
