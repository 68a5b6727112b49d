/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the daemon itself takes: memory, time, descriptors. The loop's thread.
 */
#ifndef FERRULE_DAEMON_PROCESS_H
#define FERRULE_DAEMON_PROCESS_H

#include <stdio.h>

/* As Prometheus text, with the names that all programs use for it, but for what cannot be had. */
void process_write_metrics(FILE *out);

#endif
