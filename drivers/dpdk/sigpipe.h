/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keeps SIGPIPE from ending the process. net_virtio_user writes, without MSG_NOSIGNAL, to a socket
 * whose other end may be closed. Any thread.
 */
#ifndef FERRULE_DRIVERS_DPDK_SIGPIPE_H
#define FERRULE_DRIVERS_DPDK_SIGPIPE_H

#include <signal.h>
#include <stdbool.h>

struct held_sigpipe {
	sigset_t before;
	bool was_pending;
};

/* Blocks SIGPIPE for this thread. */
void sigpipe_hold(struct held_sigpipe *held);
/* Discards a SIGPIPE received since, and restores the mask. */
void sigpipe_release(const struct held_sigpipe *held);

#endif
