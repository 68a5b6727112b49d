/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What NCCL's kernels do with a receive whose payload stays in packets (netDeviceType UNPACK),
 * done by the processor in memory of the double of libcuda: written from what NCCL's source says
 * of it, none of which is here. A "kernel" runs for each receive: it loads its place among the
 * slots, goes to the next one, copies its pieces, and saves the place.
 *
 * Connections are known by their comm, from accept to close. Any thread, but a comm one at a time.
 */
#ifndef TESTS_NCCL_UNPACK_H
#define TESTS_NCCL_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/nccl/abi.h"

/* What accept left in NCCL's pointer, and what closes. */
void unpack_accepted(void *comm, const struct nccl_device_handle *device);
void unpack_closed(const void *comm);

/* accept has given the comm a handle, which need not be on. */
bool unpack_has_handle(const void *comm);
/* NCCL looks at it when the connection's memory has been registered: kernels unpack what comes. */
bool unpack_is_on(const void *comm);

/* The receive of `size` bytes into memory of a GPU at `data` is done: copies them there. Nothing
 * where it is not on. */
void unpack_fetch(const void *comm, uint8_t *data, size_t size);

/* What a kernel that was aborted would find in all the slots: how many have pieces. NCCL's loop
 * over these does not end. */
unsigned int unpack_ready(const void *comm);

/* What kernels of a comm that is on read, and how many of its slots have pieces: also after the
 * close, as a kernel that was aborted would see it then. */
const struct nccl_unpack_handle *unpack_handle(const void *comm);
unsigned int unpack_ready_at(const struct nccl_unpack_handle *handle);

#endif
