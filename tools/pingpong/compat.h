/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-pingpong --compat ibv: the peer of ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong and
 * ibv_srq_pingpong of rdma-core. The two ends exchange the addresses of their queue pairs as lines
 * of text over TCP (compat_tcp.c). Then each sends the same number of messages (compat.c).
 */
#ifndef FERRULE_TOOLS_PINGPONG_COMPAT_H
#define FERRULE_TOOLS_PINGPONG_COMPAT_H

#include <stdint.h>

#include <ferrule/ferrule.h>

#include "tools/common/common.h"

enum {
	COMPAT_MAX_QPS = 16,
	COMPAT_SRQ_LINES =
		256, /* ibv_srq_pingpong sends this many lines, even for fewer queue pairs */
};

/* Address of a queue pair, and the first PSN that it sends. */
struct compat_address {
	uint32_t qpn;
	uint32_t psn;
	struct frl_ip gid;
};

/* Runs the mode. `argv` is the whole command line. Returns the exit status. */
int compat_main(int argc, char **argv);

/*
 * Sends `mine` and receives `theirs`, `n` addresses each. `server` NULL: waits for a client first.
 * A server calls `ready` after it has received the client's addresses and before it sends its own.
 * Prints what failed. Returns 0 or a negative errno.
 */
int compat_exchange(const char *server, uint16_t port, const struct compat_address mine[],
	struct compat_address theirs[], unsigned n,
	int (*ready)(const struct compat_address theirs[], void *arg), void *arg);

#endif
