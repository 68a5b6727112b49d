/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports over an Ethernet interface of the kernel, by a packet socket: "packet:eth0". Consecutive
 * packets of one queue pair are exchanged with the kernel as one frame of up to 64 KiB. The kernel
 * or the NIC splits it into those packets (UDP segmentation offload). On the wire they are the
 * packets of any RoCE device. The kernel copies payload once at either end.
 *
 * The kernel keeps the interface, and Ferrule uses addresses that the kernel does not have.
 */
#ifndef FERRULE_DRIVERS_PACKET_PACKET_H
#define FERRULE_DRIVERS_PACKET_PACKET_H

#include <stdbool.h>

#include "drivers/nic.h"

/* Returns true if the text of a port, which may be NULL, names a packet port. */
bool packet_is_port(const char *port);

/*
 * Opens a port, "packet:IFACE[,gso=off]", on an interface in this network namespace. With gso=off
 * each packet is sent alone. Its ops close it. Returns a negative errno on failure, and
 * frl_last_error() names the cause and the remedy: -EINVAL (text), -ENODEV (no such interface, or
 * not Ethernet), -EPERM (CAP_NET_RAW), -EMSGSIZE (MTU), -EADDRINUSE (the kernel has an address),
 * -ENOMEM. Any thread.
 */
int packet_port_open(const struct nic_config *config, struct port **ret_port);

#endif
