/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/data/unpack_rule.h"

#include <stddef.h>

static const char *what_prevents(const struct net_unpack_settings *settings)
{
	if (settings->forces_pat)
		return "NCCL_PAT_ENABLE is set, and kernels of the algorithm PAT do not unpack";
	if (settings->protocols.excludes_simple)
		return "NCCL_PROTO excludes Simple, the only protocol that unpacks";
	if (settings->protocols.forces_ll128)
		return "NCCL_PROTO forces LL128, whose kernels do not unpack: set "
		       "NCCL_PROTO=Simple";
	/* NCCL_PROTO and tuners do not affect sends and receives. */
	if (!settings->shares_buffers && !settings->has_ll_on_host)
		return "with NCCL_NET_SHARED_BUFFERS=0 sends and receives use LL in GPU memory: "
		       "set NCCL_ALLOC_P2P_NET_LL_BUFFERS=1 as well";
	return NULL;
}

bool net_unpack_forbids(const struct net_unpack_settings *settings, enum nccl_protocol protocol)
{
	return protocol == NCCL_PROTOCOL_LL128 ||
		(protocol == NCCL_PROTOCOL_LL && !settings->has_ll_on_host);
}

enum net_unpack_rule net_unpack_rule(
	const struct net_unpack_settings *settings, const char **ret_why)
{
	bool uses_forbidden = false;

	*ret_why = what_prevents(settings);
	if (*ret_why)
		return NET_UNPACK_NEVER;
	for (int p = 0; p < NCCL_PROTOCOLS; p++)
		uses_forbidden |= settings->protocols.may_use[p] &&
			net_unpack_forbids(settings, (enum nccl_protocol)p);
	if (!uses_forbidden) {
		*ret_why = "NCCL_PROTO allows only protocols that work with it";
		return NET_UNPACK_ALWAYS;
	}
	/* Without the completion, a receive of LL would wait for ever instead of failing. */
	if (!settings->reports_optional) {
		*ret_why = "with NCCL_NET_OPTIONAL_RECV_COMPLETION=0 receives of LL and LL128, "
			   "whose kernels do not unpack, look like others: set NCCL_PROTO=Simple";
		return NET_UNPACK_NEVER;
	}
	*ret_why = "Ferrule's tuner excludes the other protocols";
	return NET_UNPACK_WITH_TUNER;
}
