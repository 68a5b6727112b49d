/* SPDX-License-Identifier: BSD-3-Clause */
/* The tuner's table for each version of NCCL's interface. */
#include "nccl/log.h"
#include "nccl/api/tables.h"
#include "nccl/api/tuner.h"

static int open_tuner(
	const uint64_t *comm_id, bool for_unpack, size_t n_nodes, nccl_log_fn log, void **ctx)
{
	net_log_to(log);
	*ctx = net_tuner_open(comm_id, for_unpack, n_nodes);
	if (*ctx)
		return NCCL_SUCCESS;
	net_log_warning("no memory for a communicator's tuner");
	return NCCL_SYSTEM_ERROR;
}

static int init_v3(size_t n_ranks, size_t n_nodes, nccl_log_fn log, void **ctx)
{
	return open_tuner(NULL, false, n_nodes, log, ctx);
}

/* NCCL 2.24 is the first release with v4, and with table v9 of the network. */
static int init_v4(size_t n_ranks, size_t n_nodes, nccl_log_fn log, void **ctx)
{
	return open_tuner(NULL, true, n_nodes, log, ctx);
}

static int init_v5(void **ctx, uint64_t comm_id, size_t n_ranks, size_t n_nodes, nccl_log_fn log,
	void *domains, void *constants)
{
	return open_tuner(&comm_id, true, n_nodes, log, ctx);
}

/* Never fails: contrary to its header, NCCL ends the collective on an error. */
static int get_info_v4(void *ctx, int collective, size_t bytes, int n_ops, float **costs,
	int n_algorithms, int n_protocols, int is_registered, int *n_channels)
{
	net_tuner_advise(ctx, (enum nccl_collective)collective, (float *)(void *)costs,
		n_algorithms, n_protocols);
	return NCCL_SUCCESS;
}

static int get_info_v3(void *ctx, int collective, size_t bytes, int n_ops, float **costs,
	int n_algorithms, int n_protocols, int *n_channels)
{
	return get_info_v4(
		ctx, collective, bytes, n_ops, costs, n_algorithms, n_protocols, 0, n_channels);
}

static int destroy(void *ctx)
{
	net_tuner_close(ctx);
	return NCCL_SUCCESS;
}

const struct nccl_tuner_v3 ncclTunerPlugin_v3 = {
	.name = TABLE_NAME,
	.init = init_v3,
	.get_info = get_info_v3,
	.destroy = destroy,
};

const struct nccl_tuner_v4 ncclTunerPlugin_v4 = {
	.name = TABLE_NAME,
	.init = init_v4,
	.get_info = get_info_v4,
	.destroy = destroy,
};

const struct nccl_tuner_v5 ncclTunerPlugin_v5 = {
	.name = TABLE_NAME,
	.init = init_v5,
	.get_info = get_info_v4,
	.finalize = destroy,
};
