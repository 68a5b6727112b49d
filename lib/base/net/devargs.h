/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses the text that names a port. Reentrant. */
#ifndef FERRULE_LIB_BASE_DEVARGS_H
#define FERRULE_LIB_BASE_DEVARGS_H

#include <net/if.h>

/*
 * Writes the name of the kernel interface that sends a port's frames: "eth0" for "packet:eth0", for
 * "net_af_packet0,iface=eth0", and for "net_tap0,iface=tap0,remote=eth0". A space ends the parsed
 * text. Writes "" if no interface is named: PCI devices send by themselves, and "iface=" is a
 * socket for some DPDK drivers. Returns -ENODEV and writes "" if the name cannot be that of an
 * interface.
 */
int devargs_interface(const char *devargs, char ret_name[IF_NAMESIZE]);

#endif
