/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon's own use of memory, CPU time and descriptors. On the loop's thread.
 */
#ifndef FERRULE_DAEMON_SERVER_PROCESS_H
#define FERRULE_DAEMON_SERVER_PROCESS_H

#include <stdio.h>

/* Writes Prometheus text, with the standard names of process metrics. Unknown values are
 * omitted. */
void process_write_metrics(FILE *out);

#endif
