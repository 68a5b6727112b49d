/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Physical addresses of this process's memory, for devices without an IOMMU (IOVA as PA). Only
 * shared huge pages (frl_mem_alloc(), EAL's memory, hugetlbfs) have a stable physical address. The
 * kernel migrates other pages, and copies private pages on write after fork(). Any thread.
 */
#ifndef FERRULE_DRIVERS_DPDK_PHYSICAL_H
#define FERRULE_DRIVERS_DPDK_PHYSICAL_H

#include <stddef.h>
#include <stdint.h>

#include <rte_common.h>

/* Returns the physical address of each base page of page-aligned memory; release it with free().
 * Returns NULL if some pages may move, or this process lacks CAP_SYS_ADMIN. */
rte_iova_t *physical_pages(const uint8_t *addr, size_t len);

/* Returns the address of the byte at `offset`, and limits *len to the contiguous part. */
rte_iova_t physical_address(const rte_iova_t pages[], size_t offset, uint32_t *len);

#endif
