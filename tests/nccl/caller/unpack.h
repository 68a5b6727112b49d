/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does the work of NCCL's kernels for a receive whose payload stays in packets (netDeviceType
 * UNPACK), by the processor in memory of the double of libcuda. Written from the description in
 * NCCL's source, none of which is here. A "kernel" runs for each receive: it loads its place among
 * the slots, goes to the next one, copies its pieces, and saves the place.
 *
 * Connections are known by their comm, from accept to close. Any thread, but one at a time for a
 * comm.
 */
#ifndef TESTS_NCCL_UNPACK_H
#define TESTS_NCCL_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/nccl/caller/abi.h"

/* The handle that accept stored in NCCL's pointer; closing ends it. */
void unpack_accepted(void *comm, const struct nccl_device_handle *device);
void unpack_closed(const void *comm);

/* accept has given the comm a handle, which may be off. */
bool unpack_has_handle(const void *comm);
/* NCCL reads it when the connection's memory has been registered: kernels unpack receives from then
 * on. */
bool unpack_is_on(const void *comm);

/* The receive of `size` bytes into memory of a GPU at `data` is done: copies them there. Does
 * nothing if the handle is off. */
void unpack_fetch(const void *comm, uint8_t *data, size_t size);

/* Returns how many slots have pieces for a kernel that was aborted. NCCL's loop over these does not
 * end. */
unsigned int unpack_ready(const void *comm);

/* Checks the memory that kernels of a comm read, and returns how many slots have pieces. It works
 * also after the close, for kernels that were aborted. */
const struct nccl_unpack_handle *unpack_handle(const void *comm);
unsigned int unpack_ready_at(const struct nccl_unpack_handle *handle);

#endif
