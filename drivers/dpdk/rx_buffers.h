/* SPDX-License-Identifier: BSD-3-Clause */
/* How much a received frame needs, and what the driver makes of it. Reentrant. */
#ifndef FERRULE_DRIVERS_DPDK_RX_BUFFERS_H
#define FERRULE_DRIVERS_DPDK_RX_BUFFERS_H

#include "drivers/dpdk/internal.h"

/* Bytes of a frame in net_af_packet's ring, which wants powers of two. */
uint32_t af_packet_frame(uint32_t mtu);

/*
 * Bytes of a packet buffer for the frames of such an MTU. NICs count in KiB what a buffer holds,
 * and round down; some in powers of two: frames that then come in two segments are joined by
 * burst.c. net_af_packet insists that a whole frame of its ring fits.
 */
uint32_t rx_buffers_room(const struct rte_eth_dev_info *info, uint32_t mtu, bool af_packet);

/*
 * Returns -EMSGSIZE, with the remedy, if the driver cannot scatter and its buffer is shorter than a
 * frame. In DPDK 22.11 only hns3, dpaa and dpaa2 say how much they fill; with all others it returns
 * 0. The queue is set up.
 */
int rx_buffers_check(const struct dpdk_port *port, uint16_t ethdev);

#endif
