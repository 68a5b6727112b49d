/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether NCCL's kernels may be left to unpack what comes (unpack.h), by NCCL's settings.
 * Reentrant.
 *
 * Only protocol Simple unpacks (NCCL 2.19 to 2.30, src/device/prims_simple.h). NCCL allocates the
 * receive buffers of all three protocols in memory of the GPU where it uses GPUDirect RDMA
 * (src/transport/net.cc), so kernels of LL and LL128 would wait for data that stays in packets.
 * NCCL_ALLOC_P2P_NET_LL_BUFFERS=1 moves LL's buffers to memory of the host, also those of
 * collectives.
 */
#ifndef FERRULE_NCCL_UNPACK_RULE_H
#define FERRULE_NCCL_UNPACK_RULE_H

#include "nccl/protocols.h"

/* Settings of NCCL's. */
struct net_unpack_settings {
	struct net_protocols protocols; /* NCCL_PROTO */
	bool shares_buffers;            /* NCCL_NET_SHARED_BUFFERS is not 0 */
	bool has_ll_on_host;            /* NCCL_ALLOC_P2P_NET_LL_BUFFERS is set */
	bool tells_optional;            /* NCCL_NET_OPTIONAL_RECV_COMPLETION is not 0 */
	bool forces_pat;                /* NCCL_PAT_ENABLE is 1 */
};

enum net_unpack_rule {
	NET_UNPACK_NEVER,
	NET_UNPACK_ALWAYS,
	/* Where Ferrule's tuner keeps NCCL from the protocols of net_unpack_forbids(), and from
	 * table v9 on, with which a receive of another protocol says what it is. */
	NET_UNPACK_WITH_TUNER,
};

/* *ret_why: why never, a sentence without an end; else what it rests on. */
enum net_unpack_rule net_unpack_rule(
	const struct net_unpack_settings *settings, const char **ret_why);

/* Kernels of this protocol must not be used with UNPACK. */
bool net_unpack_forbids(const struct net_unpack_settings *settings, enum nccl_protocol protocol);

#endif
