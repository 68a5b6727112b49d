/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decides from NCCL's settings whether NCCL's kernels may unpack receives (unpack.h). Reentrant.
 *
 * Only protocol Simple unpacks (NCCL 2.19 to 2.30, src/device/prims_simple.h). If NCCL uses
 * GPUDirect RDMA, it allocates the receive buffers of all three protocols in GPU memory
 * (src/transport/net.cc). Kernels of LL and LL128 would then wait for data that stays in packets.
 * NCCL_ALLOC_P2P_NET_LL_BUFFERS=1 moves LL's buffers to host memory, also those of collectives.
 */
#ifndef FERRULE_NCCL_UNPACK_RULE_H
#define FERRULE_NCCL_UNPACK_RULE_H

#include "nccl/data/protocols.h"

/* NCCL's own settings. */
struct net_unpack_settings {
	struct net_protocols protocols; /* NCCL_PROTO */
	bool shares_buffers;            /* NCCL_NET_SHARED_BUFFERS is not 0 */
	bool has_ll_on_host;            /* NCCL_ALLOC_P2P_NET_LL_BUFFERS is set */
	bool reports_optional;          /* NCCL_NET_OPTIONAL_RECV_COMPLETION is not 0 */
	bool forces_pat;                /* NCCL_PAT_ENABLE is 1 */
};

enum net_unpack_rule {
	NET_UNPACK_NEVER,
	NET_UNPACK_ALWAYS,
	/* Allowed if Ferrule's tuner excludes the protocols of net_unpack_forbids(), and since
	 * table v9, in which a receive states whether its protocol is LL or LL128. */
	NET_UNPACK_WITH_TUNER,
};

/* Returns the rule. *ret_why is a clause without a final period: why UNPACK is not allowed, or its
 * precondition. */
enum net_unpack_rule net_unpack_rule(
	const struct net_unpack_settings *settings, const char **ret_why);

/* Returns whether kernels of this protocol must not be used with UNPACK. */
bool net_unpack_forbids(const struct net_unpack_settings *settings, enum nccl_protocol protocol);

#endif
