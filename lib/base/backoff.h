/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How threads wait by looking: the one policy of devices, queues and collectives. A wait first
 * looks again at once, then gives the processor away between two looks, then sleeps, longer each
 * time. Who has found that others want the processor leaves the first out. Waits differ in their
 * longest sleep alone. What can tell that it has something is waited for by device_idle()
 * (drivers/device.h). Any thread.
 */
#ifndef FERRULE_BASE_BACKOFF_H
#define FERRULE_BASE_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

#include <ferrule/device.h>

enum {
	BACKOFF_GPU_US = 20,   /* for what a GPU does, and nobody tells of */
	BACKOFF_US = 100,      /* of frl_backoff_idle() */
	BACKOFF_IDLE_US = 250, /* for who may be idle for hours */
};

/* As frl_backoff_idle(), with another longest sleep. Beyond 100 us sleeps grow by a 64th of what
 * was slept since. */
void backoff_idle(struct frl_backoff *backoff, uint32_t max_us);

/* So many looks and yields came to nothing that sleeping for long is right, where something ends
 * that early. */
bool backoff_is_long(const struct frl_backoff *backoff);

/* For what comes within a microsecond, or not soon: looks until it has come, a few times at most.
 * Returns whether it has. */
bool backoff_spin(bool (*has_come)(void *arg), void *arg);

#endif
