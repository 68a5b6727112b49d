/* SPDX-License-Identifier: BSD-3-Clause */
/* Driver properties that rte_eth_dev_info does not report. Reentrant. */
#ifndef FERRULE_DRIVERS_DPDK_KNOWN_H
#define FERRULE_DRIVERS_DPDK_KNOWN_H

#include <stdbool.h>

struct known_driver {
	const char *name; /* rte_eth_dev_info's driver_name */
	/* It reads packets with the CPU before tx_burst returns, or copies what is not its own. */
	bool reads_with_cpu;
	/* Packets go to it in one buffer, which is an object of an ordinary pool. */
	bool wants_one_buffer;
	/* It makes the pool's objects known to the kernel, or looks for packets in them. */
	bool wants_objects;
	/* Each of these fills a page: the kernel takes no longer ones, and has headroom in them. */
	bool wants_page_objects;
	/* No segment may cross from a page to one that lies elsewhere. */
	bool wants_pages;
	/* rte_eth_tx_done_cleanup() frees sent packets, but for the one at the tail of the ring.
	 * The function must not be tried with other drivers: net_iavf's damages a ring in which
	 * nothing was sent, net_netvsc's and net_cn10k's devices cannot read other memory. */
	bool returns_sent;
};

/* Never NULL: a driver that is not listed has an empty name, and none of this. */
const struct known_driver *known_driver(const char *name);

#endif
