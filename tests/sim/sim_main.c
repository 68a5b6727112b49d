/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whole connections over simulated networks, a world a seed.
 *   FRL_SEED_FROM=n FRL_SEEDS=n   which seeds (from 1, 500 of them)
 *   FRL_SEED=n                    this one alone, with a trace of its packets
 */
#include "tests/sim/world.h"

#include "tests/sim/common/fail.h"
#include "tests/sim/spoofer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	RUN_TWICE_ONE_IN = 64,       /* seeds: the second run must be the same as the first */
	SEEDS_FOR_EVERYTHING = 2250, /* so many show every fault for certain */
	SEEDS = 500,
};

static uint64_t number_from_env(const char *name, uint64_t fallback)
{
	const char *text = getenv(name);
	char *end;
	uint64_t value;

	if (!text || !*text)
		return fallback;
	value = strtoull(text, &end, 10);
	if (*end) {
		fprintf(stderr, "sim: %s=%s is not a number\n", name, text);
		exit(1);
	}
	return value;
}

struct row {
	const char *name;
	uint64_t value;
};

/* Returns how many of the rows are zero. */
static int print_rows(const char *title, const struct row *rows, size_t n)
{
	int missing = 0;

	printf("%s:", title);
	for (size_t i = 0; i < n; i++) {
		printf(" %s=%" PRIu64, rows[i].name, rows[i].value);
		missing += rows[i].value == 0;
	}
	printf("\n");
	return missing;
}

#define ROWS(rows) rows, sizeof(rows) / sizeof((rows)[0])

static int print_faults(const struct tally *t)
{
	const uint64_t *s = t->statuses;
	const struct row vices[] = { { "past_end", t->vices[VICE_PAST_END] },
		{ "foreign_key", t->vices[VICE_FOREIGN_KEY] },
		{ "no_right", t->vices[VICE_NO_RIGHT] },
		{ "stale_window", t->vices[VICE_STALE_WINDOW] } };
	const struct row statuses[] = { { "flush", s[FRL_WC_WR_FLUSH_ERR] },
		{ "retry_exc", s[FRL_WC_RETRY_EXC_ERR] },
		{ "rnr_retry_exc", s[FRL_WC_RNR_RETRY_EXC_ERR] },
		{ "loc_prot", s[FRL_WC_LOC_PROT_ERR] }, { "loc_len", s[FRL_WC_LOC_LEN_ERR] },
		{ "rem_inv_req", s[FRL_WC_REM_INV_REQ_ERR] },
		{ "rem_access", s[FRL_WC_REM_ACCESS_ERR] }, { "rem_op", s[FRL_WC_REM_OP_ERR] },
		{ "rem_abort", s[FRL_WC_REM_ABORT_ERR] }, { "bad_resp", s[FRL_WC_BAD_RESP_ERR] } };
	struct row spoofs[N_LIES];
	struct row faults[N_FAULTS];
	int missing;

	for (int i = 0; i < N_FAULTS; i++)
		faults[i] = (struct row){ fault_names[i], t->faults[i] };
	for (int i = 0; i < N_LIES; i++)
		spoofs[i] = (struct row){ lie_names[i], t->spoofs[i] };
	missing = print_rows("faults", ROWS(faults));
	missing += print_rows("vices", ROWS(vices));
	missing += print_rows("spoofs", ROWS(spoofs));
	missing += print_rows("statuses", ROWS(statuses));
	return missing;
}

static int print_operations(const struct tally *t)
{
	const uint64_t *r = t->requests;
	const struct row requests[] = { { "write", r[FRL_WR_RDMA_WRITE] },
		{ "write_imm", r[FRL_WR_RDMA_WRITE_WITH_IMM] }, { "send", r[FRL_WR_SEND] },
		{ "send_imm", r[FRL_WR_SEND_WITH_IMM] }, { "read", r[FRL_WR_RDMA_READ] },
		{ "cmp_swap", r[FRL_WR_ATOMIC_CMP_AND_SWP] },
		{ "fetch_add", r[FRL_WR_ATOMIC_FETCH_AND_ADD] },
		{ "local_inv", r[FRL_WR_LOCAL_INV] }, { "bind_mw", r[FRL_WR_BIND_MW] },
		{ "send_inv", r[FRL_WR_SEND_WITH_INV] }, { "by_window", t->windowed },
		{ "fenced", t->fenced }, { "inline", t->inlined }, { "16_sges", t->many_sges },
		{ "chains", t->shared_chains }, { "drains", t->drains },
		{ "drains_told", t->drains_told } };
	const struct row receives[] = { { "uc", t->uc_received }, { "uc_broken", t->uc_broken },
		{ "uc_no_recv", t->uc_no_recv }, { "ud", t->ud_received },
		{ "ud_no_recv", t->ud_no_recv }, { "too_small", t->too_small },
		{ "bad_qkey", t->bad_qkey }, { "multicast", t->multicast }, { "srq", t->srq_taken },
		{ "srq_limits", t->srq_limits }, { "solicited", t->solicited },
		{ "notified", t->notified } };
	int missing;

	missing = print_rows("requests", ROWS(requests));
	missing += print_rows("receives", ROWS(receives));
	return missing;
}

static int print_traffic(const struct tally *t)
{
	const struct row traffic[] = { { "seeds", t->seeds }, { "events", t->events },
		{ "frames", t->frames }, { "messages", t->messages }, { "bytes", t->bytes } };
	const struct row network[] = { { "lost", t->lost }, { "overflowed", t->overflowed },
		{ "reordered", t->reordered }, { "duplicated", t->duplicated },
		{ "corrupted", t->corrupted }, { "refused", t->refused },
		{ "loopback", t->loopback }, { "flaps", t->flaps },
		{ "port_events", t->port_events } };
	const struct row protocol[] = { { "retransmits", t->retransmits },
		{ "timeouts", t->timeouts }, { "rnr", t->rnr }, { "seq_naks", t->seq_naks },
		{ "implied_naks", t->implied_naks }, { "fatal_naks", t->fatal_naks },
		{ "duplicates", t->duplicates }, { "replays", t->replays },
		{ "no_replay", t->drop_no_replay }, { "stale_acks", t->stale_acks },
		{ "bad_icrc", t->bad_icrc }, { "cq_overruns", t->cq_overruns },
		{ "begun_failed", t->begun_failed },
		{ "neighbor_requests", t->neighbor_requests } };
	const struct row routes[] = { { "link_local", t->routes[ROUTE_LINK_LOCAL] },
		{ "ipv4", t->routes[ROUTE_IPV4] }, { "ipv6", t->routes[ROUTE_IPV6] },
		{ "ipv4_vlan", t->routes[ROUTE_IPV4_VLAN] },
		{ "ipv6_vlan", t->routes[ROUTE_IPV6_VLAN] } };
	const struct row in_place[] = { { "frames", t->in_place }, { "late", t->in_place_late },
		{ "revoked", t->revoked }, { "lost", t->payload_lost } };
	const struct row offloads[] = { { "placed", t->offload_placed },
		{ "gathered", t->offload_gathered }, { "reduced", t->offload_reduced },
		{ "received", t->offload_received }, { "results", t->offload_results },
		{ "waits", t->offload_waits } };
	int missing;

	missing = print_rows("network", ROWS(network));
	missing += print_rows("offloads", ROWS(offloads));
	missing += print_rows("protocol", ROWS(protocol));
	missing += print_rows("routes", ROWS(routes));
	missing += print_rows("in_place", ROWS(in_place));
	missing += print_rows("sim", ROWS(traffic));
	return missing;
}

/* Returns how many things never happened. */
static int print_tally(const struct tally *t)
{
	int missing = print_faults(t);

	missing += print_operations(t);
	missing += print_traffic(t);
	return missing;
}

static void run_again(uint64_t seed, uint64_t hash)
{
	struct tally tally = { 0 };

	SIM_CHECK(world_run_seed(seed, false, &tally) == hash,
		"the same seed has given another trace");
}

int main(void)
{
	uint64_t from = number_from_env("FRL_SEED_FROM", 1);
	uint64_t count = number_from_env("FRL_SEEDS", SEEDS);
	uint64_t only = number_from_env("FRL_SEED", UINT64_MAX);
	struct tally tally = { 0 };

	if (only != UINT64_MAX) {
		uint64_t hash = world_run_seed(only, true, &tally);

		run_again(only, hash);
		print_tally(&tally);
		printf("seed %" PRIu64 ": trace hash %016" PRIx64 "\n", only, hash);
		return 0;
	}
	for (uint64_t seed = from; seed < from + count; seed++) {
		uint64_t hash = world_run_seed(seed, false, &tally);

		if (seed % RUN_TWICE_ONE_IN == 0)
			run_again(seed, hash);
	}
	if (print_tally(&tally) && count >= SEEDS_FOR_EVERYTHING) {
		fprintf(stderr, "sim: something that should have gone wrong never did\n");
		return 1;
	}
	return 0;
}
