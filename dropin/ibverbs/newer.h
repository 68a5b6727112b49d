/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions that the library exports and <infiniband/verbs.h> of rdma-core 44 does not declare:
 * those for librdmacm and for drivers, private ones, and a later one. Any thread.
 *
 * The definition of a function of the private nodes follows IN_PRIVATE_NODES(name, name).
 */
#ifndef FERRULE_DROPIN_IBVERBS_NEWER_H
#define FERRULE_DROPIN_IBVERBS_NEWER_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#include "dropin/ibverbs_private.h"

struct ib_user_path_rec;
struct ib_uverbs_ah_attr;
struct ib_uverbs_qp_attr;
struct ibv_sa_path_rec;

/* Copy the kernel's structures. The state and the rate limit of a queue pair are not copied. */
void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *to, const struct ib_uverbs_ah_attr *from);
void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *to, const struct ib_uverbs_qp_attr *from);
void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *to, const struct ib_user_path_rec *from);
void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *to, const struct ibv_sa_path_rec *from);

/* Returns the folder where sysfs is mounted. */
const char *ibv_get_sysfs_path(void);

/*
 * Reads a file of one line into the buffer, without the end of the line. Returns the length of the
 * text, or -1 with errno: the file cannot be read, or (EOVERFLOW) the text does not fit.
 */
int ibv_read_sysfs_file(const char *folder, const char *name, char *buffer, size_t size);

/* Return 0: a child shares no memory with hardware. */
int ibv_dontfork_range(void *start, size_t size);
int ibv_dofork_range(void *start, size_t size);

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
