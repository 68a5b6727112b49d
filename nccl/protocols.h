/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of its protocols NCCL's collectives may use, by NCCL_PROTO. Reentrant. */
#ifndef FERRULE_NCCL_PROTOCOLS_H
#define FERRULE_NCCL_PROTOCOLS_H

#include <stdbool.h>

/* As NCCL counts them. */
enum nccl_protocol {
	NCCL_PROTOCOL_LL,
	NCCL_PROTOCOL_LL128,
	NCCL_PROTOCOL_SIMPLE,
	NCCL_PROTOCOLS,
};

struct net_protocols {
	bool may_use[NCCL_PROTOCOLS]; /* one of the collectives at least may use it */
	/* One of them may use LL128 where NCCL would not choose it by itself: its checks of the
	 * hardware are off. "^LL" says that as well: all that is not named is forced. */
	bool forces_ll128;
	bool excludes_simple; /* one of them may not use it */
};

/*
 * Reads a list as parseList() of NCCL 2.13 to 2.30 does (src/graph/tuning.cc): elements behind
 * commas, "^" for all others, from 2.24 on "FUNCTION:" in front and further ones behind ";". NULL:
 * not set. NCCL refuses names that it does not know, so they change nothing here. Point to point
 * goes by none of this.
 */
void net_protocols_read(const char *text, struct net_protocols *ret_protocols);

#endif
