/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-pingpong --compat ibv: the other end of ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong
 * and ibv_srq_pingpong of rdma-core. Both ends tell each other their queue pairs as lines of text
 * over TCP (compat_tcp.c), then send each other as many messages (compat.c).
 */
#ifndef FERRULE_TOOLS_PINGPONG_COMPAT_H
#define FERRULE_TOOLS_PINGPONG_COMPAT_H

#include <stdint.h>

#include <ferrule/ferrule.h>

#include "tools/common/common.h"

enum {
	COMPAT_MAX_QPS = 16,
	COMPAT_SRQ_LINES = 256, /* ibv_srq_pingpong tells that many, however few it has */
};

/* Where a queue pair is, and the first PSN that it sends. */
struct compat_address {
	uint32_t qpn;
	uint32_t psn;
	struct frl_ip gid;
};

/* Runs the mode; `argv` is the whole command line. Returns the exit status. */
int compat_main(int argc, char **argv);

/*
 * Tells `mine` to the other end and fetches `theirs`, `n` of each. `server` NULL: waits for a
 * client first. The server calls `ready` in between, when it knows the other's and before the
 * other knows its own. All return 0 or a negative errno, and say what is wrong.
 */
int compat_exchange(const char *server, uint16_t port, const struct compat_address mine[],
	struct compat_address theirs[], unsigned n,
	int (*ready)(const struct compat_address theirs[], void *arg), void *arg);

#endif
