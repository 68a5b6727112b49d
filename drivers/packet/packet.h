/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports over an Ethernet interface of the kernel, by a packet socket: "packet:eth0". Consecutive
 * packets of one queue pair are handed to the kernel, and taken from it, as one frame of up to 64
 * KiB that the kernel or the NIC cuts into those packets (UDP segmentation offload); on the wire
 * they are what every RoCE device sends. Payload is copied once at either end, by the kernel.
 *
 * The kernel keeps the interface: Ferrule's addresses are others than the kernel's.
 */
#ifndef FERRULE_DRIVERS_PACKET_PACKET_H
#define FERRULE_DRIVERS_PACKET_PACKET_H

#include <stdbool.h>

#include "drivers/nic.h"

/* Whether the text of a port, which may be NULL, names one of these. */
bool packet_is_port(const char *port);

/*
 * Opens a port, "packet:IFACE[,gso=off]": the interface in this network namespace; gso=off: every
 * packet goes to the kernel on its own. It is closed by its ops. Errors are negative errno with
 * frl_last_error() naming the cause and the remedy: -EINVAL (text), -ENODEV (no such interface, or
 * not Ethernet), -EPERM (CAP_NET_RAW), -EMSGSIZE (MTU), -EADDRINUSE (an address is the kernel's),
 * -ENOMEM. Any thread.
 */
int packet_port_open(const struct nic_config *config, struct port **ret_port);

#endif
