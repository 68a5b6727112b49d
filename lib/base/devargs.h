/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses a port's text. Reentrant. */
#ifndef FERRULE_LIB_BASE_DEVARGS_H
#define FERRULE_LIB_BASE_DEVARGS_H

#include <net/if.h>

/*
 * The kernel's interface that a port's frames leave by: "eth0" of "packet:eth0", of
 * "net_af_packet0,iface=eth0" and of "net_tap0,iface=tap0,remote=eth0". The text may go on after a
 * space. "": none is named; a PCI device's frames leave by themselves, and "iface=" is a socket for
 * some of DPDK's drivers. -ENODEV, and "": what is named cannot be an interface.
 */
int devargs_interface(const char *devargs, char ret_name[IF_NAMESIZE]);

#endif
