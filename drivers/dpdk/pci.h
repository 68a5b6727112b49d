/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A PCI device as seen by the kernel: its driver, and the addresses that its DMA then uses. Any
 * thread.
 */
#ifndef FERRULE_DRIVERS_DPDK_PCI_H
#define FERRULE_DRIVERS_DPDK_PCI_H

#include <stdbool.h>

enum {
	PCI_ADDRESS = 20, /* "0000:3b:00.0" */
	PCI_WORD = 64,
};

struct pci_device {
	char address[PCI_ADDRESS];
	bool exists;
	char driver[PCI_WORD]; /* kernel driver; "": none */
	bool by_physical;      /* its driver supports physical addresses only */
	bool is_translated;    /* its driver is UIO, and an IOMMU translates its addresses */
	bool is_kernels;       /* its driver neither hands over nor shares the device */
};

/* Parses a PCI address at the start of devargs ("0000:3b:00.0" or "3b:00.0"); writes its full form.
 */
bool pci_address(const char *devargs, char ret_address[PCI_ADDRESS]);
/* Copies devargs, with a leading PCI address completed: EAL compares text. */
void pci_complete(const char *devargs, char *ret_devargs, unsigned size);
/* Reads the properties of an address. `root` is "" except in tests. */
void pci_look(const char *root, const char *address, struct pci_device *ret_device);
/* Writes why DPDK cannot open the device, and the remedy. Writes "" if nothing is wrong. */
void pci_explain(const char *root, const struct pci_device *device, char *ret_text, unsigned size);
/* Returns the number of free huge pages, of all sizes. */
long pci_free_huge_pages(const char *root);

#endif
