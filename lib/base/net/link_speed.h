/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FERRULE_BASE_LINK_SPEED_H
#define FERRULE_BASE_LINK_SPEED_H

#include <stdint.h>

/* Returns the link speed of the kernel's network interface in Mbit/s, or 0 if unknown. Any
 * thread. */
uint32_t link_speed_mbps(const char *interface);

#endif
