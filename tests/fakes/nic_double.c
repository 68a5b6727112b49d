/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fakes/nic_double.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_log.h>

enum { PORT = 7, HUGE = 2 << 20 };

struct nic_double nic;

static bool is_probed, is_started, is_physical, has_huge;
static int a_device; /* its address is all that matters */

static int result(const char *function)
{
	if (nic.raises && strcmp(nic.raises, function) == 0)
		raise(SIGPIPE);
	return nic.fails && strcmp(nic.fails, function) == 0 ? -EIO : 0;
}

/* ---- bus and EAL */

void nic_go_physical(bool wanted)
{
	is_physical = wanted;
}

void nic_say_huge(bool wanted)
{
	has_huge = wanted;
}

int rte_eal_has_hugepages(void)
{
	return has_huge;
}

enum rte_iova_mode rte_eal_iova_mode(void)
{
	return is_physical ? RTE_IOVA_PA : RTE_IOVA_VA;
}

rte_iova_t rte_mem_virt2iova(const void *addr)
{
	uint64_t at = (uintptr_t)addr;

	return is_physical ? (UINT64_C(1) << 46) - at / HUGE * HUGE + at % HUGE : at;
}

int rte_dev_probe(const char *devargs)
{
	snprintf(nic.devargs, sizeof(nic.devargs), "%s", devargs);
	is_probed = result("rte_dev_probe") == 0;
	if (!is_probed && nic.says)
		rte_log(RTE_LOG_ERR, RTE_LOGTYPE_EAL, "%s\n", nic.says);
	return is_probed ? 0 : -EIO;
}

int rte_dev_remove(struct rte_device *device)
{
	is_probed = false;
	return 0;
}

const struct rte_bus *rte_dev_bus(const struct rte_device *device)
{
	return NULL;
}

const char *rte_bus_name(const struct rte_bus *bus)
{
	return nic.is_vdev ? "vdev" : "pci";
}

int rte_dev_dma_map(struct rte_device *device, void *addr, uint64_t iova, size_t len)
{
	nic.mapped++;
	return result("rte_dev_dma_map");
}

int rte_dev_dma_unmap(struct rte_device *device, void *addr, uint64_t iova, size_t len)
{
	nic.mapped--;
	return 0;
}

/* ---- the port */

int rte_eth_dev_get_port_by_name(const char *name, uint16_t *ret_port)
{
	size_t len = strlen(name);

	*ret_port = PORT;
	return is_probed && strncmp(nic.devargs, name, len) == 0 ? 0 : -ENODEV;
}

int rte_eth_dev_info_get(uint16_t port, struct rte_eth_dev_info *info)
{
	*info = (struct rte_eth_dev_info){
		.device = (struct rte_device *)&a_device,
		.driver_name = nic.driver ? nic.driver : "net_ice",
		.tx_offload_capa = nic.has_no_chains ? 0 : RTE_ETH_TX_OFFLOAD_MULTI_SEGS,
		.rx_offload_capa = nic.filters_vlans ? RTE_ETH_RX_OFFLOAD_VLAN_FILTER : 0,
		.if_index = nic.interface,
		.min_rx_bufsize = nic.min_buffer,
		.max_mtu = nic.max_mtu ? nic.max_mtu : 9000,
		.tx_desc_lim.nb_mtu_seg_max = nic.segments,
	};
	return 0;
}

static uint16_t take(void *queue, struct rte_mbuf **mbufs, uint16_t n);
static uint16_t give(void *queue, struct rte_mbuf **mbufs, uint16_t n);

int rte_eth_dev_configure(
	uint16_t port, uint16_t n_rx, uint16_t n_tx, const struct rte_eth_conf *conf)
{
	static void *queues[1], *callbacks[1];

	nic.mtu = conf->rxmode.mtu;
	nic.rx_offloads = conf->rxmode.offloads;
	nic.tx_offloads = conf->txmode.offloads;
	rte_eth_fp_ops[PORT].rx_pkt_burst = give;
	rte_eth_fp_ops[PORT].tx_pkt_burst = take;
	rte_eth_fp_ops[PORT].rxq.data = queues;
	rte_eth_fp_ops[PORT].rxq.clbk = callbacks;
	rte_eth_fp_ops[PORT].txq.data = queues;
	rte_eth_fp_ops[PORT].txq.clbk = callbacks;
	return result("rte_eth_dev_configure");
}

int rte_eth_dev_set_mtu(uint16_t port, uint16_t mtu)
{
	ck_assert(!is_started);
	if (nic.has_no_set_mtu)
		return -ENOTSUP;
	nic.set_mtu = mtu;
	return result("rte_eth_dev_set_mtu");
}

int rte_eth_dev_adjust_nb_rx_tx_desc(uint16_t port, uint16_t *n_rx, uint16_t *n_tx)
{
	return 0;
}

int rte_eth_rx_queue_setup(uint16_t port, uint16_t queue, uint16_t n, unsigned int socket,
	const struct rte_eth_rxconf *conf, struct rte_mempool *pool)
{
	nic.pool = pool;
	return result("rte_eth_rx_queue_setup");
}

int rte_eth_tx_queue_setup(uint16_t port, uint16_t queue, uint16_t n, unsigned int socket,
	const struct rte_eth_txconf *conf)
{
	return result("rte_eth_tx_queue_setup");
}

int rte_eth_dev_start(uint16_t port)
{
	nic.starts++;
	is_started = true;
	return result("rte_eth_dev_start");
}

static void give_up(struct nic_sent *sent)
{
	rte_pktmbuf_free(sent->mbuf);
	sent->mbuf = NULL;
}

static void give_up_all(void)
{
	for (unsigned i = 0; i < nic.n_sent; i++)
		give_up(&nic.sent[i]);
	nic.tail = NULL;
}

int rte_eth_dev_stop(uint16_t port)
{
	give_up_all();
	is_started = false;
	return 0;
}

int rte_eth_dev_close(uint16_t port)
{
	nic.closer = pthread_self();
	return result("rte_eth_dev_close");
}

int rte_eth_allmulticast_enable(uint16_t port)
{
	return 0;
}

int rte_eth_promiscuous_enable(uint16_t port)
{
	return 0;
}

int rte_eth_macaddr_get(uint16_t port, struct rte_ether_addr *mac)
{
	*mac = (struct rte_ether_addr){ { 0x02, 0, 0, 0, 0, 7 } };
	return result("rte_eth_macaddr_get");
}

int rte_eth_dev_get_vlan_offload(uint16_t port)
{
	return nic.rx_offloads & RTE_ETH_RX_OFFLOAD_VLAN_FILTER ? RTE_ETH_VLAN_FILTER_OFFLOAD : 0;
}

int rte_eth_dev_vlan_filter(uint16_t port, uint16_t vlan, int on)
{
	nic.vlans[nic.n_vlans++] = vlan;
	return 0;
}

int rte_eth_link_get_nowait(uint16_t port, struct rte_eth_link *link)
{
	*link = (struct rte_eth_link){
		.link_status = !nic.is_down,
		.link_speed = nic.is_down ? RTE_ETH_SPEED_NUM_NONE : RTE_ETH_SPEED_NUM_25G,
	};
	return 0;
}

int rte_eth_stats_get(uint16_t port, struct rte_eth_stats *stats)
{
	*stats = (struct rte_eth_stats){ .ierrors = nic.bad_frames };
	return 0;
}

int rte_eth_rx_queue_info_get(uint16_t port, uint16_t queue, struct rte_eth_rxq_info *info)
{
	*info = (struct rte_eth_rxq_info){
		.scattered_rx = nic.scatters,
		.rx_buf_size = (uint16_t)nic.holds,
	};
	return result("rte_eth_rx_queue_info_get");
}

/* ---- frames */

static void check_segment(const struct rte_mbuf *mbuf)
{
	rte_iova_t first = rte_mbuf_data_iova(mbuf), last = first + mbuf->data_len - 1;

	ck_assert_uint_gt(mbuf->data_len, 0);
	if (nic.page)
		ck_assert_uint_eq(first / nic.page, last / nic.page);
	/* For DPDK's own pools EAL would report it, but EAL knows of no pages here. */
	if (mbuf->pool == nic.pool)
		ck_assert_uint_eq(first, rte_mem_virt2iova(rte_pktmbuf_mtod(mbuf, void *)));
}

static void keep(struct nic_sent *sent, struct rte_mbuf *mbuf)
{
	sent->mbuf = mbuf;
	sent->len = 0;
	sent->segments = 0;
	for (const struct rte_mbuf *m = mbuf; m; m = m->next) {
		check_segment(m);
		ck_assert_uint_le(sent->len + m->data_len, NIC_FRAME);
		memcpy(sent->bytes + sent->len, rte_pktmbuf_mtod(m, void *), m->data_len);
		sent->len += m->data_len;
		sent->segments++;
	}
	ck_assert_uint_eq(sent->segments, mbuf->nb_segs);
	ck_assert_uint_eq(sent->len, mbuf->pkt_len);
	if (nic.segments)
		ck_assert_uint_le(sent->segments, nic.segments);
}

static uint16_t take(void *queue, struct rte_mbuf **mbufs, uint16_t n)
{
	uint16_t i;

	if (nic.tail && n && !nic.takes_nothing) {
		give_up(nic.tail);
		nic.tail = NULL;
		nic.keeps_tail = false;
	}
	for (i = 0; i < n && !nic.takes_nothing && nic.n_sent < NIC_RING; i++)
		keep(&nic.sent[nic.n_sent++], mbufs[i]);
	return i;
}

void nic_let_go(void)
{
	give_up_all();
	nic.n_sent = 0;
}

int rte_eth_tx_done_cleanup(uint16_t port, uint16_t queue, uint32_t n)
{
	nic.cleanups++;
	if (nic.has_no_cleanup)
		return -ENOTSUP;
	for (unsigned i = 0; i < nic.n_sent && !nic.is_stuck; i++) {
		if (nic.keeps_tail && !nic.tail)
			nic.tail = &nic.sent[i];
		if (nic.tail != &nic.sent[i])
			give_up(&nic.sent[i]);
	}
	return 0;
}

void nic_receive(const uint8_t *frame, uint32_t len)
{
	struct rte_mbuf *head = NULL, *last = NULL;

	while (len) {
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(nic.pool);
		uint32_t room = rte_pktmbuf_tailroom(mbuf);
		uint32_t size = nic.buffer ? RTE_MIN(nic.buffer, room) : room;
		uint32_t now = RTE_MIN(size, len);

		memcpy(rte_pktmbuf_mtod(mbuf, void *), frame, now);
		mbuf->data_len = (uint16_t)now;
		if (head) {
			last->next = mbuf;
			head->nb_segs++;
		} else {
			head = mbuf;
		}
		head->pkt_len += now;
		last = mbuf;
		frame += now;
		len -= now;
	}
	nic.arrived[nic.n_arrived++] = head;
}

static uint16_t give(void *queue, struct rte_mbuf **mbufs, uint16_t n)
{
	uint16_t now = (uint16_t)RTE_MIN(nic.n_arrived, n);

	memcpy(mbufs, nic.arrived, now * sizeof(mbufs[0]));
	nic.n_arrived -= now;
	memmove(nic.arrived, nic.arrived + now, nic.n_arrived * sizeof(mbufs[0]));
	return now;
}
