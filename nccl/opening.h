/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The slow part of setting up: the first DPDK port starts DPDK, and to find a host asks
 * the control daemon, which may have to be started. NCCL must not wait for it, so where anything of
 * it is left to do a thread does it, and ends. Who started an opening ends it, by one thread.
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
	char place[FRL_PLACE_SIZE]; /* "": no host is looked for */
	int (*then)(void *arg);     /* at the end, in the thread, or NULL; a negative errno */
	void *arg;
	/* Results: */
	int err;
	char host[FRL_HOST_MAX + 1]; /* of the place */
	/* Internal: */
	bool has_thread, holds_device;
	pthread_t thread;
	atomic_bool is_done;
};

/* The first four fields are filled in. What goes wrong is in the log, and in opening->err. */
void net_opening_start(struct opening *opening);
/* -EAGAIN: not yet; else opening->err: with 0 the device's ports are open. */
int net_opening_test(struct opening *opening);
/* Its thread has ended when this returns. */
void net_opening_wait(struct opening *opening);
/* Waits as well, and is no user of the device any more. */
void net_opening_end(struct opening *opening);

#endif
