/* SPDX-License-Identifier: BSD-3-Clause */
/* The room that a received frame needs, and the size that the driver reports. Reentrant. */
#ifndef FERRULE_DRIVERS_DPDK_RX_BUFFERS_H
#define FERRULE_DRIVERS_DPDK_RX_BUFFERS_H

#include "drivers/dpdk/internal.h"

/* Returns the bytes of a frame in net_af_packet's ring, which requires powers of two. */
uint32_t af_packet_frame(uint32_t mtu);

/*
 * Returns the size of a packet buffer for frames of this MTU. NICs count buffer sizes in KiB and
 * round down, some to powers of two. burst.c joins frames that then arrive in two segments.
 * net_af_packet requires room for a whole frame of its ring.
 */
uint32_t rx_buffers_room(const struct rte_eth_dev_info *info, uint32_t mtu, bool af_packet);

/*
 * Returns -EMSGSIZE, with the remedy, if the driver cannot scatter and its buffer is shorter than a
 * frame. In DPDK 22.11 only hns3, dpaa and dpaa2 report the size; for all others this returns 0.
 * Call after the queue is set up.
 */
int rx_buffers_check(const struct dpdk_port *port, uint16_t ethdev);

#endif
