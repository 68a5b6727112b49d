/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FERRULE_BASE_LINK_SPEED_H
#define FERRULE_BASE_LINK_SPEED_H

#include <stdint.h>

/* The speed of the link of the kernel's network interface, in Mbit/s; 0: the kernel does not know.
 * Any thread. */
uint32_t link_speed_mbps(const char *interface);

#endif
