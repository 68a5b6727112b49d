/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts of enumerations, and conversions of rates. Pure functions; any thread. */
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#include "dropin/ibverbs/abi.h"
#include "dropin/ibverbs/newer.h"

#define N_ROWS(table) (sizeof(table) / sizeof((table)[0]))
/* A negative value becomes a large one, which no table has. */
#define NAME_IN(table, value) name_in(table, N_ROWS(table), (size_t)(value))

static const char *name_in(const char *const *table, size_t n, size_t value)
{
	return value < n && table[value] ? table[value] : "unknown";
}

const char *ibv_node_type_str(enum ibv_node_type node_type)
{
	static const char *const names[] = {
		[IBV_NODE_CA] = "channel adapter",
		[IBV_NODE_SWITCH] = "InfiniBand switch",
		[IBV_NODE_ROUTER] = "InfiniBand router",
		[IBV_NODE_RNIC] = "iWARP adapter",
		[IBV_NODE_USNIC] = "usNIC adapter",
		[IBV_NODE_USNIC_UDP] = "usNIC adapter (UDP)",
		[IBV_NODE_UNSPECIFIED] = "unspecified",
	};

	return NAME_IN(names, node_type);
}

const char *ibv_port_state_str(enum ibv_port_state port_state)
{
	static const char *const names[] = {
		[IBV_PORT_NOP] = "unchanged",
		[IBV_PORT_DOWN] = "down",
		[IBV_PORT_INIT] = "initialize",
		[IBV_PORT_ARMED] = "armed",
		[IBV_PORT_ACTIVE] = "active",
		[IBV_PORT_ACTIVE_DEFER] = "active, deferred",
	};

	return NAME_IN(names, port_state);
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
	static const char *const names[] = {
		[IBV_EVENT_CQ_ERR] = "completion queue error",
		[IBV_EVENT_QP_FATAL] = "queue pair: fatal error",
		[IBV_EVENT_QP_REQ_ERR] = "queue pair: invalid request",
		[IBV_EVENT_QP_ACCESS_ERR] = "queue pair: access violation",
		[IBV_EVENT_COMM_EST] = "communication established",
		[IBV_EVENT_SQ_DRAINED] = "send queue drained",
		[IBV_EVENT_PATH_MIG] = "path migrated",
		[IBV_EVENT_PATH_MIG_ERR] = "path migration failed",
		[IBV_EVENT_DEVICE_FATAL] = "device: fatal error",
		[IBV_EVENT_PORT_ACTIVE] = "port active",
		[IBV_EVENT_PORT_ERR] = "port down",
		[IBV_EVENT_LID_CHANGE] = "LID changed",
		[IBV_EVENT_PKEY_CHANGE] = "P_Key table changed",
		[IBV_EVENT_SM_CHANGE] = "subnet manager changed",
		[IBV_EVENT_SRQ_ERR] = "shared receive queue error",
		[IBV_EVENT_SRQ_LIMIT_REACHED] = "shared receive queue below its limit",
		[IBV_EVENT_QP_LAST_WQE_REACHED] = "last receive request of the queue pair done",
		[IBV_EVENT_CLIENT_REREGISTER] = "subnet manager wants clients to register again",
		[IBV_EVENT_GID_CHANGE] = "GID table changed",
		[IBV_EVENT_WQ_FATAL] = "work queue: fatal error",
	};

	return NAME_IN(names, event);
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const names[] = {
		[IBV_WC_SUCCESS] = "success",
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_QP_OP_ERR] = "local queue pair operation error",
		[IBV_WC_LOC_EEC_OP_ERR] = "local EE context operation error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "work request flushed",
		[IBV_WC_MW_BIND_ERR] = "memory window bind error",
		[IBV_WC_BAD_RESP_ERR] = "bad response",
		[IBV_WC_LOC_ACCESS_ERR] = "local access error",
		[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "transport retries exceeded",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retries exceeded",
		[IBV_WC_LOC_RDD_VIOL_ERR] = "local RDD violation",
		[IBV_WC_REM_INV_RD_REQ_ERR] = "remote invalid RD request",
		[IBV_WC_REM_ABORT_ERR] = "remote aborted",
		[IBV_WC_INV_EECN_ERR] = "invalid EE context number",
		[IBV_WC_INV_EEC_STATE_ERR] = "invalid EE context state",
		[IBV_WC_FATAL_ERR] = "fatal error",
		[IBV_WC_RESP_TIMEOUT_ERR] = "response timeout",
		[IBV_WC_GENERAL_ERR] = "general error",
		[IBV_WC_TM_ERR] = "tag matching error",
		[IBV_WC_TM_RNDV_INCOMPLETE] = "tag matching rendezvous incomplete",
	};

	return NAME_IN(names, status);
}

IN_PRIVATE_NODES(ibv_wr_opcode_str, ibv_wr_opcode_str);
const char *ibv_wr_opcode_str(enum ibv_wr_opcode opcode)
{
	static const char *const names[] = {
		[IBV_WR_RDMA_WRITE] = "RDMA WRITE",
		[IBV_WR_RDMA_WRITE_WITH_IMM] = "RDMA WRITE with immediate",
		[IBV_WR_SEND] = "SEND",
		[IBV_WR_SEND_WITH_IMM] = "SEND with immediate",
		[IBV_WR_RDMA_READ] = "RDMA READ",
		[IBV_WR_ATOMIC_CMP_AND_SWP] = "compare and swap",
		[IBV_WR_ATOMIC_FETCH_AND_ADD] = "fetch and add",
		[IBV_WR_LOCAL_INV] = "local invalidate",
		[IBV_WR_BIND_MW] = "bind memory window",
		[IBV_WR_SEND_WITH_INV] = "SEND with invalidate",
		[IBV_WR_TSO] = "TCP segmentation",
		[IBV_WR_DRIVER1] = "driver's own",
		[IBV_WR_ATOMIC_WRITE] = "atomic write",
	};

	return NAME_IN(names, opcode);
}

/* Signaling rates in Mb/s, with the encoding. 0: not offered as a multiple of 2.5 Gb/s. */
static const struct rate {
	enum ibv_rate rate;
	int mult, mbps;
} rates[] = {
	{ IBV_RATE_2_5_GBPS, 1, 2500 },
	{ IBV_RATE_5_GBPS, 2, 5000 },
	{ IBV_RATE_10_GBPS, 4, 10000 },
	{ IBV_RATE_20_GBPS, 8, 20000 },
	{ IBV_RATE_30_GBPS, 12, 30000 },
	{ IBV_RATE_40_GBPS, 16, 40000 },
	{ IBV_RATE_60_GBPS, 24, 60000 },
	{ IBV_RATE_80_GBPS, 32, 80000 },
	{ IBV_RATE_120_GBPS, 48, 120000 },
	{ IBV_RATE_14_GBPS, 0, 14062 },
	{ IBV_RATE_56_GBPS, 0, 56250 },
	{ IBV_RATE_112_GBPS, 0, 112500 },
	{ IBV_RATE_168_GBPS, 0, 168750 },
	{ IBV_RATE_25_GBPS, 0, 25781 },
	{ IBV_RATE_100_GBPS, 0, 103125 },
	{ IBV_RATE_200_GBPS, 0, 206250 },
	{ IBV_RATE_300_GBPS, 0, 309375 },
	{ IBV_RATE_28_GBPS, 11, 28125 },
	{ IBV_RATE_50_GBPS, 20, 53125 },
	{ IBV_RATE_400_GBPS, 160, 425000 },
	{ IBV_RATE_600_GBPS, 240, 637500 },
	{ IBV_RATE_800_GBPS, 320, 850000 },
	{ IBV_RATE_1200_GBPS, 480, 1275000 },
};

int ibv_rate_to_mult(enum ibv_rate rate)
{
	for (size_t i = 0; i < N_ROWS(rates); i++)
		if (rates[i].rate == rate && rates[i].mult)
			return rates[i].mult;
	return -1;
}

enum ibv_rate mult_to_ibv_rate(int mult)
{
	for (size_t i = 0; i < N_ROWS(rates); i++)
		if (rates[i].mult == mult && mult)
			return rates[i].rate;
	return IBV_RATE_MAX;
}

int ibv_rate_to_mbps(enum ibv_rate rate)
{
	for (size_t i = 0; i < N_ROWS(rates); i++)
		if (rates[i].rate == rate)
			return rates[i].mbps;
	return -1;
}

enum ibv_rate mbps_to_ibv_rate(int mbps)
{
	for (size_t i = 0; i < N_ROWS(rates); i++)
		if (rates[i].mbps == mbps)
			return rates[i].rate;
	return IBV_RATE_MAX;
}
