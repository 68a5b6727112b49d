/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes DPDK create an ethdev from devargs, and explains a failure. */
#include "drivers/dpdk/internal.h"
#include "drivers/dpdk/pci.h"
#include "drivers/dpdk/rx_buffers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_dev.h>

#include "lib/base/error.h"

enum { PACKET_RING_BYTES = 4 << 20 };

/*
 * Adds ring sizes for net_af_packet, unless the devargs have them. Foreign frames on the interface
 * may be longer than ours: the kernel truncates them without harm. The PMD requires that frames
 * fill blocks exactly. Its default, qdisc_bypass, would skip egress rules of tc.
 */
void probe_complete(char *text, size_t size, const char *devargs, uint32_t mtu)
{
	uint32_t frame = af_packet_frame(mtu);
	uint32_t count = RTE_MAX(PACKET_RING_BYTES / frame, 512u);
	bool sized = strstr(devargs, "framesz=") || strstr(devargs, "blocksz=") ||
		strstr(devargs, "framecnt=");
	int n = snprintf(text, size, "%s", devargs);

	if (!sized && n >= 0 && (size_t)n < size)
		n += snprintf(text + n, size - n, ",framesz=%u,blocksz=%u,framecnt=%u", frame,
			RTE_MAX(frame, 16384u), RTE_MIN(count, 1024u));
	if (!strstr(devargs, "qdisc_bypass=") && n >= 0 && (size_t)n < size)
		snprintf(text + n, size - n, ",qdisc_bypass=0");
}

static int probe_failed(int err, const char *devargs)
{
	char address[PCI_ADDRESS], cause[256] = "";
	struct pci_device device = { 0 };

	if (pci_address(devargs, address)) {
		pci_look("", address, &device);
		pci_explain("", &device, cause, sizeof(cause));
	}
	if (device.exists && device.by_physical && rte_eal_iova_mode() != RTE_IOVA_PA)
		return frl_fail(-ENODEV,
			"%s needs IOVA as PA, EAL runs as VA: open it first, or set "
			"FRL_EAL_ARGS=\"--iova-mode=pa --in-memory --allow=0000:00:00.0\"",
			address);
	if (device.exists && strstr(log_error(), strerror(EBUSY)))
		return frl_fail(
			-EBUSY, "%s is in use by another process (%s)", address, log_error());
	if (cause[0])
		return frl_fail(err == -EACCES ? -EPERM : -ENODEV, "DPDK cannot open %s: %s (%s)",
			address, cause, log_error());
	if (err == -EACCES)
		return frl_fail(-EPERM, "no permission to open \"%s\": %s", devargs, log_error());
	return frl_fail(-ENODEV,
		"DPDK cannot open \"%s\": %s; check name, arguments and the driver's package; open "
		"PCI ports first",
		devargs, log_error());
}

/* Some DPDK drivers would probe a NIC that the kernel uses, as virtio's by its I/O ports. Behind a
 * translating IOMMU, a NIC under UIO opens but moves no packet. */
static int refuse_bound(const char *devargs)
{
	char address[PCI_ADDRESS], cause[256];
	struct pci_device device;

	if (!pci_address(devargs, address))
		return 0;
	pci_look("", address, &device);
	if (!device.is_kernels && !device.is_translated)
		return 0;
	pci_explain("", &device, cause, sizeof(cause));
	return frl_fail(-EBUSY, "DPDK does not open %s: %s", address, cause);
}

int probe_ethdev(struct dpdk_port *port, const char *devargs, uint16_t *ret_ethdev)
{
	size_t len = strcspn(devargs, ",");
	int err = refuse_bound(devargs);

	if (err)
		return err;

	if (len == 0 || len >= sizeof(port->name))
		return frl_fail(-ENODEV, "\"%s\" does not start with a device's name", devargs);
	memcpy(port->name, devargs, len);
	port->name[len] = '\0';
	if (rte_eth_dev_get_port_by_name(port->name, ret_ethdev) == 0)
		return frl_fail(-EEXIST,
			"this process has opened \"%s\" already; another vdev needs another name, "
			"for example %s1",
			port->name, port->name);
	log_clear_error();
	err = rte_dev_probe(devargs);
	if (err)
		return probe_failed(err, devargs);
	if (rte_eth_dev_get_port_by_name(port->name, ret_ethdev))
		return frl_fail(-ENODEV, "\"%s\" is not a network device", devargs);
	return 0;
}
