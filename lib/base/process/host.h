/* SPDX-License-Identifier: BSD-3-Clause */
/* Identifies this host, for shared memory and the local fabric. Reads /proc. Any thread. */
#ifndef FERRULE_BASE_HOST_H
#define FERRULE_BASE_HOST_H

#include <stdbool.h>
#include <stdint.h>

enum { HOST_ID_SIZE = 16 };

/*
 * Writes an id that is equal in all processes that share a kernel and its network namespace, and in
 * no others. Returns false if /proc lacks a part of it. Different ids then prove nothing.
 */
bool host_id(uint8_t ret_id[HOST_ID_SIZE]);

#endif
