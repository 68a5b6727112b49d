/* SPDX-License-Identifier: BSD-3-Clause */
/* The applications: they poll, post receives and post sends, each time some and at random times. */
#ifndef FERRULE_SIM_WORKLOAD_H
#define FERRULE_SIM_WORKLOAD_H

#include "tests/sim/endpoint.h"

/* The application of an endpoint runs, and will run again. */
void workload_start(struct endpoint *endpoint);

/* workload_send.c: posts some requests of the script. Returns whether there were some. */
bool workload_send(struct endpoint *endpoint);

#endif
