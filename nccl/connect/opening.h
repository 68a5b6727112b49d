/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The slow part of setup. The first DPDK port starts DPDK, and a host lookup asks the control
 * daemon, which may have to be started. NCCL must not block on this, so a thread does any of it
 * that is not done yet, and then ends. Start and end an opening from one thread.
 */
#ifndef FERRULE_NCCL_OPENING_H
#define FERRULE_NCCL_OPENING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <ferrule/cm.h>

#include "nccl/devices.h"

struct opening {
	struct net_device *device;
	char address[FRL_PLACE_SIZE]; /* of the peer's daemon; "": no host lookup */
	int (*then)(void *arg);       /* called last by the thread, or NULL; returns an errno */
	void *arg;
	/* Results: */
	int err;
	char host[FRL_HOST_MAX + 1]; /* of that daemon; "": this host */
	/* Internal: */
	bool has_thread, holds_device;
	pthread_t thread;
	atomic_bool is_done;
};

/* Starts an opening. The caller sets the first four fields. On failure the log has the reason, and
 * opening->err the error. */
void net_opening_start(struct opening *opening);
/* Returns -EAGAIN while the opening runs, then opening->err. After 0 the device's ports are
 * open. */
int net_opening_test(struct opening *opening);
/* Waits until the opening's thread has ended. */
void net_opening_wait(struct opening *opening);
/* Waits as net_opening_wait(), and releases the device. */
void net_opening_end(struct opening *opening);

#endif
