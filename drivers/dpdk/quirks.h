/* SPDX-License-Identifier: BSD-3-Clause */
/* Driver properties that rte_eth_dev_info does not report. Reentrant. */
#ifndef FERRULE_DRIVERS_DPDK_QUIRKS_H
#define FERRULE_DRIVERS_DPDK_QUIRKS_H

#include <stdbool.h>

struct dpdk_quirks {
	const char *name; /* driver_name of rte_eth_dev_info */
	/* The CPU reads packets before tx_burst returns, or the driver copies foreign memory. */
	bool reads_with_cpu;
	/* Requires packets in one buffer, which is an object of an ordinary pool. */
	bool needs_one_buffer;
	/* Registers the pool's objects with the kernel, or looks for packets in them. */
	bool needs_objects;
	/* Each of these fills a page, which limits their size and includes the kernel's
	 * headroom. */
	bool needs_page_objects;
	/* No segment may cross into a page with a different location. */
	bool needs_pages;
	/* rte_eth_tx_done_cleanup() frees sent packets, except the one at the tail of the ring. Do
	 * not try the function with other drivers: net_iavf's damages a ring in which nothing was
	 * sent. Devices of net_netvsc and net_cn10k cannot read foreign memory. */
	bool returns_sent;
	/* Its interrupt handler may still use what close() frees, if the peer closes as well (DPDK
	 * 22.11). Close it in the thread that runs the handler. */
	bool closes_in_interrupts;
};

/* Never returns NULL: the entry of an unlisted driver has an empty name and no properties. */
const struct dpdk_quirks *dpdk_quirks(const char *name);

#endif
