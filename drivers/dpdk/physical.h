/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Physical addresses of this process' memory, for devices without an IOMMU (IOVA as PA). Only
 * shared huge pages (frl_mem_alloc(), EAL's memory, hugetlbfs) have a stable physical address; the
 * kernel migrates others and copies private pages on write after fork(). Any thread.
 */
#ifndef FERRULE_DRIVERS_DPDK_PHYSICAL_H
#define FERRULE_DRIVERS_DPDK_PHYSICAL_H

#include <stddef.h>
#include <stdint.h>

#include <rte_common.h>

/* The physical address of each page (of the usual size) of memory that begins and ends with one;
 * free() it. NULL: some of it may move, or this process may not ask (it takes CAP_SYS_ADMIN). */
rte_iova_t *physical_pages(const uint8_t *addr, size_t len);

/* Returns the address of the byte at `offset`; limits *len to the contiguous part. */
rte_iova_t physical_address(const rte_iova_t pages[], size_t offset, uint32_t *len);

#endif
