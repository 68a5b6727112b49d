/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/api/tuner.h"

#include <pthread.h>
#include <stdlib.h>

#include "nccl/devices.h"
#include "nccl/log.h"
#include "nccl/settings.h"

struct net_tuner {
	struct net_tuner *next;
	bool has_id, is_closed, is_forgotten;
	uint64_t comm_id;
	size_t n_nodes;
	bool excludes[NCCL_PROTOCOLS];
	float step_us; /* additional latency of a step between hosts */
};

static struct {
	pthread_mutex_t lock;
	struct net_tuner *first;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Returns whether NCCL must not use the protocol between hosts. `for_unpack`: NCCL uses table v9,
 * with which UNPACK may rely on a tuner. */
static bool excludes(enum nccl_protocol protocol, bool for_unpack)
{
	const struct net_settings *settings = net_settings();

	/* With this rule, UNPACK relies on the tuner. */
	if (for_unpack && settings->unpack && settings->unpack_rule == NET_UNPACK_WITH_TUNER &&
		net_unpack_forbids(&settings->nccl, protocol))
		return true;
	/*
	 * LL128 needs lines of 128 bytes whose flag never becomes visible before the data. This is
	 * not guaranteed in host memory, or for data that kernels move into GPU memory. A user who
	 * forces LL128 gets it, with a warning (net.c).
	 */
	return protocol == NCCL_PROTOCOL_LL128 && net_devices_receive_on_host() &&
		!settings->nccl.protocols.forces_ll128;
}

static void introduce(const struct net_tuner *tuner)
{
	if (!tuner->excludes[NCCL_PROTOCOL_LL128] && tuner->step_us <= 0)
		return;
	net_log_info("tuner: between hosts NCCL uses %s, a step takes %.0f us more than it assumes",
		tuner->excludes[NCCL_PROTOCOL_LL]              ? "neither LL nor LL128"
			: tuner->excludes[NCCL_PROTOCOL_LL128] ? "no LL128"
							       : "all protocols",
		(double)tuner->step_us);
}

struct net_tuner *net_tuner_open(const uint64_t *comm_id, bool for_unpack, size_t n_nodes)
{
	struct net_tuner *tuner = calloc(1, sizeof(*tuner));
	int n_devices = 0;

	if (!tuner)
		return NULL;
	net_devices(&n_devices);
	tuner->has_id = comm_id != NULL;
	tuner->comm_id = comm_id ? *comm_id : 0;
	tuner->n_nodes = n_nodes;
	/* Otherwise no network context exists that could forget the tuner. */
	tuner->is_forgotten = !comm_id || !n_devices;
	/* Change nothing within a host, or if NCCL does not use this network plugin. */
	if (n_nodes > 1 && n_devices) {
		for (int p = 0; p < NCCL_PROTOCOLS; p++)
			tuner->excludes[p] = excludes((enum nccl_protocol)p, for_unpack);
		tuner->step_us = net_devices_step_us();
		introduce(tuner);
	}
	pthread_mutex_lock(&all.lock);
	tuner->next = all.first;
	all.first = tuner;
	pthread_mutex_unlock(&all.lock);
	return tuner;
}

/* Frees closed tuners whose network context is gone. Requires the lock. */
static void free_unused(void)
{
	struct net_tuner **link = &all.first, *tuner;

	while ((tuner = *link)) {
		if (!tuner->is_closed || !tuner->is_forgotten) {
			link = &tuner->next;
			continue;
		}
		*link = tuner->next;
		free(tuner);
	}
}

void net_tuner_close(struct net_tuner *tuner)
{
	if (!tuner)
		return;
	pthread_mutex_lock(&all.lock);
	tuner->is_closed = true;
	free_unused();
	pthread_mutex_unlock(&all.lock);
}

void net_tuner_context_ended(const uint64_t *comm_id)
{
	pthread_mutex_lock(&all.lock);
	for (struct net_tuner *tuner = all.first; tuner; tuner = tuner->next)
		tuner->is_forgotten |= !comm_id || (tuner->has_id && tuner->comm_id == *comm_id);
	free_unused();
	pthread_mutex_unlock(&all.lock);
}

bool net_tuner_is_used(const uint64_t *comm_id)
{
	bool is_used = false;

	pthread_mutex_lock(&all.lock);
	for (const struct net_tuner *tuner = all.first; tuner && !is_used; tuner = tuner->next)
		is_used = tuner->n_nodes > 1 &&
			(!comm_id || !tuner->has_id || tuner->comm_id == *comm_id);
	pthread_mutex_unlock(&all.lock);
	return is_used;
}

/* ---- costs */

static unsigned log2_of(size_t n)
{
	unsigned log = 0;

	while (n >>= 1)
		log++;
	return log;
}

/* Returns the number of sequential steps between hosts, as in NCCL's model
 * (src/graph/tuning.cc). */
static unsigned steps(
	enum nccl_algorithm algorithm, enum nccl_collective collective, size_t n_nodes)
{
	switch (algorithm) {
	case NCCL_RING: return (unsigned)(n_nodes - 1) * (collective == NCCL_ALL_REDUCE ? 2 : 1);
	case NCCL_TREE:
	case NCCL_NVLS_TREE: return 2 * log2_of(n_nodes);
	case NCCL_PAT: return log2_of(n_nodes);
	default: return 1;
	}
}

static bool has_other(const float *costs, int n_algorithms, int n_protocols, const bool *excludes)
{
	for (int a = 0; a < n_algorithms; a++)
		for (int p = 0; p < n_protocols; p++)
			if (!excludes[p] && costs[a * n_protocols + p] >= 0)
				return true;
	return false;
}

void net_tuner_advise(const struct net_tuner *tuner, enum nccl_collective collective, float *costs,
	int n_algorithms, int n_protocols)
{
	if (n_protocols != NCCL_PROTOCOLS || tuner->n_nodes < 2)
		return;
	for (int a = 0; a < n_algorithms; a++) {
		float more_us = tuner->step_us *
			(float)steps((enum nccl_algorithm)a, collective, tuner->n_nodes);

		for (int p = 0; p < n_protocols; p++)
			if (costs[a * n_protocols + p] >= 0)
				costs[a * n_protocols + p] += more_us;
	}
	/* Excluding everything would make NCCL fail. The user's settings leave no other
	 * protocol. */
	if (!has_other(costs, n_algorithms, n_protocols, tuner->excludes))
		return;
	for (int a = 0; a < n_algorithms; a++)
		for (int p = 0; p < n_protocols; p++)
			if (tuner->excludes[p])
				costs[a * n_protocols + p] = NCCL_COST_IGNORE;
}
