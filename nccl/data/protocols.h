/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads from NCCL_PROTO which protocols NCCL's collectives may use. Reentrant. */
#ifndef FERRULE_NCCL_PROTOCOLS_H
#define FERRULE_NCCL_PROTOCOLS_H

#include <stdbool.h>

/* NCCL's numbers. */
enum nccl_protocol {
	NCCL_PROTOCOL_LL,
	NCCL_PROTOCOL_LL128,
	NCCL_PROTOCOL_SIMPLE,
	NCCL_PROTOCOLS,
};

struct net_protocols {
	bool may_use[NCCL_PROTOCOLS]; /* at least one collective may use it */
	/* At least one collective may use LL128 where NCCL itself would not, because NCCL_PROTO
	 * disables the hardware checks. This includes "^LL", which forces all other protocols. */
	bool forces_ll128;
	bool excludes_simple; /* at least one collective must not use it */
};

/*
 * Parses a list as parseList() of NCCL 2.13 to 2.30 does (src/graph/tuning.cc). The list has
 * elements separated by commas; a leading "^" excludes them. Since 2.24 it may have the prefix
 * "FUNCTION:" and further lists after ";". `text` is NULL if the variable is not set. Unknown names
 * are ignored here, because NCCL rejects them. NCCL_PROTO does not affect point-to-point
 * operations.
 */
void net_protocols_read(const char *text, struct net_protocols *ret_protocols);

#endif
