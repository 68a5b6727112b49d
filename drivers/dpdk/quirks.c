/* SPDX-License-Identifier: BSD-3-Clause */
#include "drivers/dpdk/quirks.h"

#include <stddef.h>
#include <string.h>

static const struct dpdk_quirks drivers[] = {
	{ .name = "net_af_packet", .reads_with_cpu = true },
	{ .name = "net_af_xdp",
		.reads_with_cpu = true,
		.needs_objects = true,
		.needs_page_objects = true },
	{ .name = "net_memif", .reads_with_cpu = true, .closes_in_interrupts = true },
	{ .name = "net_null", .reads_with_cpu = true },
	{ .name = "net_pcap", .reads_with_cpu = true },
	{ .name = "net_tap", .reads_with_cpu = true },
	{ .name = "net_vhost", .reads_with_cpu = true },
	/*
	 * In packed rings with indirect descriptors the driver marks the header as writable by the
	 * device (DPDK 22.11 to 26.07: vring_desc_init_indirect_packed()). QEMU then takes no more
	 * packets. Packets in one buffer need no indirect descriptor.
	 */
	{ .name = "net_virtio", .needs_one_buffer = true, .needs_objects = true },
	{ .name = "net_virtio_user", .needs_one_buffer = true, .needs_objects = true },
	/* Usually an emulated NIC. QEMU silently drops a frame with a segment that crosses a
	 * page. */
	{ .name = "net_e1000_em", .needs_pages = true },
	{ .name = "net_e1000_igb", .needs_pages = true, .returns_sent = true },
	{ .name = "net_vmxnet3", .needs_pages = true },
	{ .name = "net_e1000_igb_vf", .returns_sent = true },
	{ .name = "net_ena", .returns_sent = true },
	{ .name = "net_hns3", .returns_sent = true },
	{ .name = "net_hns3_vf", .returns_sent = true },
	{ .name = "net_i40e", .returns_sent = true },
	{ .name = "net_ice", .returns_sent = true },
	{ .name = "net_ixgbe", .returns_sent = true },
	{ .name = "net_ixgbe_vf", .returns_sent = true },
	{ .name = "net_ngbe", .returns_sent = true },
	{ .name = "net_txgbe", .returns_sent = true },
	{ .name = "net_txgbe_vf", .returns_sent = true },
};

const struct dpdk_quirks *dpdk_quirks(const char *name)
{
	static const struct dpdk_quirks unknown = { .name = "" };

	for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
		if (strcmp(name, drivers[i].name) == 0)
			return &drivers[i];
	return &unknown;
}
