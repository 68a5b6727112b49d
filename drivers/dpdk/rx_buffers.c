/* SPDX-License-Identifier: BSD-3-Clause */
#include "drivers/dpdk/rx_buffers.h"

#include <errno.h>
#include <unistd.h>

#include "drivers/dpdk/quirks.h"
#include "lib/base/error.h"

enum { PACKET_RING_OVERHEAD = 80 /* tpacket2_hdr, sockaddr_ll, alignment, VLAN tag */ };

uint32_t af_packet_frame(uint32_t mtu)
{
	uint32_t least = mtu + ETH_HEADER + PACKET_RING_OVERHEAD, value = 2048;

	while (value < least)
		value *= 2;
	return value;
}

/* Room for a buffer in objects that fill a page, minus what a pool puts between them. */
static uint32_t page_room(void)
{
	const uint32_t page = (uint32_t)sysconf(_SC_PAGESIZE);
	uint32_t object = page;

	while (rte_mempool_calc_obj_size(object, 0, NULL) > page)
		object -= RTE_CACHE_LINE_SIZE;
	return object - sizeof(struct rte_mbuf) - RTE_PKTMBUF_HEADROOM;
}

uint32_t rx_buffers_room(const struct rte_eth_dev_info *info, uint32_t mtu, bool af_packet)
{
	uint32_t most = (uint32_t)UINT16_MAX - 2 * RTE_PKTMBUF_HEADROOM;
	uint32_t frame = af_packet
		? af_packet_frame(mtu)
		: mtu + RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN + 2 * RTE_VLAN_HLEN;

	if (dpdk_quirks(info->driver_name)->needs_page_objects)
		return page_room();
	return RTE_MIN(RTE_ALIGN_CEIL(RTE_MAX(frame, info->min_rx_bufsize), 1024u), most);
}

int rx_buffers_check(const struct dpdk_port *port, uint16_t ethdev)
{
	const uint32_t overhead = MTU_OVERHEAD + ETH_HEADER + VLAN_TAG;
	uint32_t fits = port->max_payload, frame = fits + overhead;
	struct rte_eth_rxq_info queue;

	/* 0: the driver reports no size. */
	if (rte_eth_rx_queue_info_get(ethdev, 0, &queue) || queue.scattered_rx ||
		!queue.rx_buf_size || queue.rx_buf_size >= frame)
		return 0;
	while (fits > MIN_PAYLOAD && fits + overhead > queue.rx_buf_size)
		fits /= 2;
	return frl_fail(-EMSGSIZE,
		"\"%s\" receives %u bytes into a buffer, but frames have up to %u: set "
		"FRL_PATH_MTU=%u",
		port->name, queue.rx_buf_size, frame, fits);
}
