/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions that the library exports and <infiniband/verbs.h> of rdma-core 44 does not declare:
 * private ones, and a later one. Any thread.
 *
 * The definition of a function of the private nodes follows IN_PRIVATE_NODES(name, name).
 */
#ifndef FERRULE_DROPIN_IBVERBS_NEWER_H
#define FERRULE_DROPIN_IBVERBS_NEWER_H

#include <infiniband/verbs.h>
#include <stdint.h>

#include "dropin/ibverbs_private.h"

/* The type of a GID, as the kernel's sysfs has it: it does not tell InfiniBand from RoCE v1. */
enum ibv_gid_type_sysfs {
	IBV_GID_TYPE_SYSFS_IB_ROCE_V1,
	IBV_GID_TYPE_SYSFS_ROCE_V2,
};

/*
 * Private nodes; ibv_devinfo and pyverbs use it. Writes the type of a port's GID; empty entries of
 * the table are IBV_GID_TYPE_SYSFS_IB_ROCE_V1. Returns 0, or -1 with errno: no such port or index.
 */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
	enum ibv_gid_type_sysfs *type);

/* Private nodes. Returns the name of an opcode, or a text for an unknown one. */
const char *ibv_wr_opcode_str(enum ibv_wr_opcode opcode);

/*
 * Node IBVERBS_1.16. Writes the speed of a port in units of 100 Mb/s. Returns 0, or a positive
 * errno.
 */
int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed);

#endif
