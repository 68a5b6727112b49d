/* SPDX-License-Identifier: BSD-3-Clause */
/* One ethdev: queues, MTU, link state, and errors that name the problem. */
#include "drivers/dpdk/internal.h"
#include "drivers/dpdk/pci.h"
#include "drivers/dpdk/quirks.h"
#include "drivers/dpdk/rx_buffers.h"
#include "drivers/dpdk/sigpipe.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_alarm.h>
#include <rte_bus.h>
#include <rte_dev.h>

#include "drivers/nic.h"
#include "lib/base/clock.h"
#include "lib/base/net/devargs.h"
#include "lib/base/error.h"
#include "lib/base/limit.h"
#include "lib/base/net/link_speed.h"

enum {
	DESCRIPTORS = 1024,
	RX_SLACK = 128, /* frames held by the engine, and copies to send */
	TX_SLACK = PORT_BURST * (2 + MAX_REFERENCES),
	XDP_MTU = 3000, /* MTU that kernel drivers accept with XDP */
	CARRIER_WAIT_MS = 5000,
	CARRIER_PAUSE_NS = 10000000,
};

static bool is_af_packet(const char *devargs)
{
	return strncmp(devargs, "net_af_packet", 13) == 0 ||
		strncmp(devargs, "eth_af_packet", 13) == 0;
}

static bool has_vlans(const struct dpdk_port *port)
{
	for (unsigned i = 0; port->gids && i < port->gids->n; i++)
		if (port->gids->gids[i].vlan)
			return true;
	return false;
}

/* NICs that filter VLANs, as virtio always does, accept only the configured ones. */
static void take_vlans(struct dpdk_port *port, uint16_t ethdev)
{
	if (!(rte_eth_dev_get_vlan_offload(ethdev) & RTE_ETH_VLAN_FILTER_OFFLOAD))
		return;
	for (unsigned i = 0; i < port->gids->n; i++) {
		uint16_t vlan = port->gids->gids[i].vlan;
		int err = vlan ? rte_eth_dev_vlan_filter(ethdev, vlan, 1) : 0;

		if (err)
			frl_log(FRL_LOG_WARNING, "\"%s\" does not admit VLAN %u: %s", port->name,
				vlan, frl_strerror(err));
	}
}

/* Returns true for a NIC that stays with the kernel, whose interface has the MTU. */
static bool has_kernels_mtu(const struct dpdk_port *port)
{
	return port->needs_dma && port->interface[0];
}

/* Some drivers read the MTU from rte_eth_conf. Others (ena, gve) take it only from this call. */
static int set_mtu(const struct dpdk_port *port, uint16_t ethdev, uint32_t mtu)
{
	bool is_ours = port->needs_dma && !port->interface[0];
	int err = is_ours ? rte_eth_dev_set_mtu(ethdev, (uint16_t)mtu) : 0;

	return err == -ENOTSUP ? 0 : err;
}

/* Configures and starts one queue pair of a stopped ethdev. */
static int set_up_queues(
	struct dpdk_port *port, uint16_t ethdev, uint16_t n_rx, uint16_t n_tx, uint32_t mtu)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf = { .rxmode.mtu = mtu };
	struct rte_eth_txconf tx;
	int err = rte_eth_dev_info_get(ethdev, &info);

	if (err)
		return err;
	if (!port->copies || port->page)
		conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	/* The kernel strips tags anyway; bursts restore them. */
	if (is_af_packet(port->name))
		conf.rxmode.offloads = info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_STRIP;
	if (has_vlans(port))
		conf.rxmode.offloads |= info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_FILTER;
	if (!port->copies && !conf.txmode.offloads)
		port->copies = true;
	err = rte_eth_dev_configure(ethdev, 1, 1, &conf);
	if (err)
		return err;
	err = set_mtu(port, ethdev, mtu);
	if (err)
		return err;
	err = rte_eth_dev_adjust_nb_rx_tx_desc(ethdev, &n_rx, &n_tx);
	if (err)
		return err;
	err = rte_eth_rx_queue_setup(ethdev, 0, n_rx, SOCKET_ID_ANY, NULL, port->rx_pool);
	if (err)
		return err;
	/* Report every completion, so that mem_idle() can free at once. */
	tx = info.default_txconf;
	tx.tx_rs_thresh = port->needs_dma && !port->copies ? 1 : tx.tx_rs_thresh;
	err = rte_eth_tx_queue_setup(ethdev, 0, n_tx, SOCKET_ID_ANY, &tx);
	if (err == -EINVAL)
		err = rte_eth_tx_queue_setup(ethdev, 0, n_tx, SOCKET_ID_ANY, NULL);
	if (err)
		return err;
	return rte_eth_dev_start(ethdev);
}

/* Returns the largest MTU that rte_eth_dev_configure() allows, by the device's MTU and longest
 * frame. */
static uint32_t most_mtu(const struct rte_eth_dev_info *info)
{
	uint32_t most = info->max_mtu, overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;

	if (!most || most == UINT16_MAX)
		most = UINT16_MAX - RTE_PKTMBUF_HEADROOM;
	else if (info->max_rx_pktlen > most)
		overhead = info->max_rx_pktlen - most;
	if (info->max_rx_pktlen > overhead)
		most = RTE_MIN(most, info->max_rx_pktlen - overhead);
	return most;
}

/* Chooses the MTU to request from a PMD. An underlying kernel interface keeps its own: mlx5 would
 * set a different one, which requires CAP_NET_ADMIN. */
static int choose_mtu(
	struct dpdk_port *port, const struct rte_eth_dev_info *info, uint32_t *ret_mtu)
{
	uint32_t need = port->max_payload + MTU_OVERHEAD;
	uint32_t most = most_mtu(info), mtu = RTE_MAX(need, (uint32_t)RTE_ETHER_MTU);
	int err = has_kernels_mtu(port) ? interface_mtu(port->interface, &mtu) : 0;

	if (err)
		return err;
	*ret_mtu = RTE_MIN(mtu, most);
	return nic_fit_payload(has_kernels_mtu(port) ? port->interface : port->name, *ret_mtu,
		port->min_payload, &port->max_payload);
}

/* IPv6 finds its neighbors by multicast, to groups that the port does not know. */
static void take_multicast(struct dpdk_port *port, uint16_t ethdev)
{
	int err = rte_eth_allmulticast_enable(ethdev);

	if (err == -ENOTSUP && port->interface[0]) {
		port->multicast_fd = interface_take_multicast(port->interface);
		if (port->multicast_fd >= 0)
			return;
	}
	if (err == -ENOTSUP)
		err = rte_eth_promiscuous_enable(ethdev);
	if (err)
		frl_log(FRL_LOG_WARNING,
			"\"%s\" does not accept all multicast (%s): IPv6 neighbors may not find it",
			port->name, frl_strerror(err));
}

/* Returns the most segments that a packet to send may have. */
static uint16_t most_segments(const struct rte_eth_dev_info *info)
{
	uint16_t whole = info->tx_desc_lim.nb_seg_max, mtu = info->tx_desc_lim.nb_mtu_seg_max;
	uint16_t most = UINT16_MAX;

	if (!(info->tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS))
		return 1;
	/* 0: the driver gives no limit. */
	if (whole)
		most = RTE_MIN(most, whole);
	if (mtu)
		most = RTE_MIN(most, mtu);
	return most;
}

static void describe(struct dpdk_port *port, const struct rte_eth_dev_info *info)
{
	const struct dpdk_quirks *driver = dpdk_quirks(info->driver_name);

	port->device = info->device;
	port->needs_dma = strcmp(rte_bus_name(rte_dev_bus(info->device)), "vdev") != 0;
	port->max_segments = most_segments(info);
	/* A vdev that is not known to copy may share DPDK's memory with other processes, but not
	 * ours. */
	port->copies = port->max_segments == 1 || driver->needs_one_buffer ||
		(!port->needs_dma && !driver->reads_with_cpu);
	if (port->needs_dma && driver->needs_pages)
		port->page = (uint32_t)sysconf(_SC_PAGESIZE);
	port->needs_objects = driver->needs_objects;
	port->base.caps.kind = info->driver_name;
	port->base.caps.lossless = false;
	port->base.caps.on_demand = false;
	if (!port->interface[0] && info->if_index)
		if_indextoname(info->if_index, port->interface);
}

/* Chooses how payload is sent, once the queues exist. Without tx_done_cleanup() an idle driver
 * keeps references to the application's memory, so payload is copied. */
static void choose_way(struct dpdk_port *port, const char *driver, uint16_t ethdev)
{
	const struct dpdk_quirks *known = dpdk_quirks(driver);
	bool by_cpu = known->reads_with_cpu;

	/* A driver may release packets only with some of its transmit functions. */
	if (!port->copies && !by_cpu &&
		(!known->returns_sent || rte_eth_tx_done_cleanup(ethdev, 0, 0) < 0))
		port->copies = true;
	port->cpu_reads_payload = port->copies || by_cpu;
	port->holds_payload = !port->cpu_reads_payload;
	port->cuts = port->page ||
		(port->holds_payload &&
			(rte_eal_iova_mode() == RTE_IOVA_PA ||
				port->max_segments < 2 + MAX_REFERENCES));
}

static const char *why_copied(const struct dpdk_port *port, const struct dpdk_quirks *driver)
{
	if (driver->needs_one_buffer || port->max_segments == 1)
		return "the driver needs one buffer for each packet";
	if (!port->needs_dma)
		return "the driver may share its memory with other processes";
	return "the driver frees no transmitted packets on request";
}

static void log_way(const struct dpdk_port *port, const char *driver_name)
{
	const struct dpdk_quirks *driver = dpdk_quirks(driver_name);

	if (port->copies)
		frl_log(FRL_LOG_INFO, "\"%s\": payload is copied: %s", port->name,
			why_copied(port, driver));
	else if (driver->reads_with_cpu)
		frl_log(FRL_LOG_INFO, "\"%s\": the driver copies payload", port->name);
	else if (rte_eal_iova_mode() == RTE_IOVA_PA)
		frl_log(FRL_LOG_INFO,
			"\"%s\": the NIC reads payload in place from shared huge pages only (IOVA "
			"as PA); other payload is copied",
			port->name);
	else
		frl_log(FRL_LOG_INFO, "\"%s\": the NIC reads payload in place", port->name);
}

/* Sets the requested MAC, or takes the device's own if that is zero. */
static int take_mac(struct dpdk_port *port, uint16_t ethdev, const uint8_t wanted[6])
{
	struct rte_ether_addr mac, own;
	int err = rte_eth_macaddr_get(ethdev, &own);

	if (err)
		return frl_fail(err, "\"%s\" has no MAC address", port->name);
	memcpy(mac.addr_bytes, wanted, sizeof(mac.addr_bytes));
	if (rte_is_zero_ether_addr(&mac))
		mac = own;
	if (!rte_is_same_ether_addr(&mac, &own))
		err = rte_eth_dev_default_mac_addr_set(ethdev, &mac);
	if (err)
		return frl_fail(err,
			"\"%s\" rejects the MAC address of its lease (" RTE_ETHER_ADDR_PRT_FMT
			"): %s; leave the MAC addresses out of the "
			"fabric's configuration, or give this port its own",
			port->name, RTE_ETHER_ADDR_BYTES(&mac), frl_strerror(err));
	memcpy(port->base.caps.mac, mac.addr_bytes, sizeof(port->base.caps.mac));
	return 0;
}

/* Some kernel drivers allow longer frames with XDP; most do not. */
static int start_failed(const struct dpdk_port *port, const struct rte_eth_dev_info *info, int err)
{
	char advice[160] = "";
	uint32_t mtu;

	if (dpdk_quirks(info->driver_name)->needs_page_objects && port->interface[0] &&
		interface_mtu(port->interface, &mtu) == 0 && mtu > XDP_MTU)
		snprintf(advice, sizeof(advice),
			"; the MTU of %s is %u, but XDP frames must fit in a page: `ip link set %s "
			"mtu %d`",
			port->interface, mtu, port->interface, XDP_MTU);
	return frl_fail(err, "\"%s\" does not start: %s (%s)%s", port->name, log_error(),
		frl_strerror(err), advice);
}

static int set_up(struct dpdk_port *port, const struct dpdk_port_config *config, uint16_t ethdev,
	uint32_t mtu, bool af_packet)
{
	struct rte_eth_dev_info info;
	int err = rte_eth_dev_info_get(ethdev, &info);

	if (err)
		return frl_fail(err, "\"%s\": rte_eth_dev_info_get() failed: %s", port->name,
			frl_strerror(err));
	describe(port, &info);
	err = af_packet ? 0 : choose_mtu(port, &info, &mtu);
	if (err)
		return err;
	/* A NIC may hold copies in its whole transmit ring until more is sent. */
	err = pool_create(port,
		config->max_kept + (af_packet ? 2 * RX_SLACK : 2 * DESCRIPTORS + 4 * RX_SLACK),
		af_packet ? TX_SLACK : DESCRIPTORS + TX_SLACK,
		rx_buffers_room(&info, mtu, af_packet));
	if (err)
		return err;
	log_clear_error();
	err = set_up_queues(port, ethdev, DESCRIPTORS, DESCRIPTORS, af_packet ? 0 : mtu);
	if (err)
		return start_failed(port, &info, err);
	err = af_packet ? 0 : rx_buffers_check(port, ethdev);
	if (err)
		return err;
	choose_way(port, info.driver_name, ethdev);
	log_way(port, info.driver_name);
	take_multicast(port, ethdev);
	if (has_vlans(port))
		take_vlans(port, ethdev);
	err = take_mac(port, ethdev, config->mac);
	if (err)
		return err;
	port->base.caps.max_frame = mtu + ETH_HEADER;
	if (port->interface[0])
		port->base.caps.speed_mbps = link_speed_mbps(port->interface);
	port->base.caps.max_held = RX_SLACK;
	port->base.caps.max_kept = config->max_kept;
	port->batch = PORT_BURST;
	return 0;
}

/* A NIC needs seconds after its start for the link. ARP sent before that is lost. */
static void wait_for_carrier(struct dpdk_port *port)
{
	const struct timespec pause = { .tv_nsec = CARRIER_PAUSE_NS };
	uint64_t end_ns = limit_after_ms(clock_now_ns(), CARRIER_WAIT_MS);
	struct rte_eth_link status;

	while (ethdev_link_state(&port->base, 0) != PORT_LINK_UP && clock_now_ns() < end_ns)
		nanosleep(&pause, NULL);
	if (rte_eth_link_get_nowait(port->ethdev, &status) == 0 &&
		status.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
		port->base.caps.speed_mbps = status.link_speed;
	if (ethdev_link_state(&port->base, 0) != PORT_LINK_UP)
		frl_log(FRL_LOG_WARNING,
			"%s has no link yet: check its cable and the switch's port; it is used "
			"once it has a link",
			port->name);
}

static int take_interface(struct dpdk_port *port, const char *devargs, uint32_t *ret_mtu)
{
	if (devargs_interface(devargs, port->interface))
		return frl_fail(-ENODEV,
			"\"%s\": an interface's name has 1 to %d characters; `ip link` lists them",
			devargs, IF_NAMESIZE - 1);
	return port->interface[0] ? interface_mtu(port->interface, ret_mtu) : 0;
}

static int open_held(struct dpdk_port *port, const struct dpdk_port_config *config)
{
	bool af_packet = is_af_packet(config->devargs);
	char devargs[512];
	uint16_t ethdev;
	uint32_t mtu = 0;
	int err = take_interface(port, config->devargs, &mtu);

	if (!err && port->interface[0])
		err = nic_fit_payload(port->interface, mtu, port->min_payload, &port->max_payload);
	if (!err && af_packet && !port->interface[0])
		err = frl_fail(-ENODEV, "\"%s\" names no interface: net_af_packet0,iface=NAME",
			config->devargs);
	if (!err && af_packet)
		err = interface_check_af_packet(port->interface);
	if (err)
		return err;
	if (strlen(config->devargs) > sizeof(devargs) - 80)
		return frl_fail(-ENODEV, "the devargs are longer than %zu characters",
			sizeof(devargs) - 80);
	if (af_packet && !interface_is_running(port->interface))
		frl_log(FRL_LOG_WARNING, "%s is down: `ip link set %s up`", port->interface,
			port->interface);
	/* Frames longer than ours and the interface's need no room. */
	mtu = RTE_MIN(mtu, port->max_payload + MTU_OVERHEAD);
	if (af_packet)
		probe_complete(devargs, sizeof(devargs), config->devargs, mtu);
	else
		pci_complete(config->devargs, devargs, sizeof(devargs));
	err = probe_ethdev(port, devargs, &ethdev);
	if (err)
		return err;
	port->ethdev = ethdev;
	/* Owned by the caller; valid during the open. */
	port->gids = config->gids;
	err = set_up(port, config, ethdev, mtu, af_packet);
	port->gids = NULL;
	if (err)
		ethdev_close(port);
	else if (port->needs_dma)
		wait_for_carrier(port);
	return err;
}

int ethdev_open(struct dpdk_port *port, const struct dpdk_port_config *config)
{
	struct held_sigpipe held;
	int err;

	sigpipe_hold(&held);
	err = open_held(port, config);
	sigpipe_release(&held);
	return err;
}

struct closing {
	uint16_t ethdev;
	sem_t is_closed;
};

static void close_now(uint16_t ethdev)
{
	rte_eth_dev_stop(ethdev);
	rte_eth_dev_close(ethdev);
}

static void close_and_tell(void *arg)
{
	struct closing *closing = arg;
	struct held_sigpipe held;

	sigpipe_hold(&held);
	close_now(closing->ethdev);
	sigpipe_release(&held);
	sem_post(&closing->is_closed);
}

/* The thread that runs interrupt handlers also runs alarms. */
static void close_in_interrupts(uint16_t ethdev)
{
	struct closing closing = { .ethdev = ethdev };

	sem_init(&closing.is_closed, 0, 0);
	if (rte_eal_alarm_set(1, close_and_tell, &closing) == 0) {
		while (sem_wait(&closing.is_closed) != 0) /* a signal */
			;
	} else {
		close_now(ethdev);
	}
	sem_destroy(&closing.is_closed);
}

void ethdev_close(struct dpdk_port *port)
{
	uint16_t ethdev = port->ethdev;
	struct rte_eth_dev_info info;
	struct rte_device *device = NULL;
	struct held_sigpipe held;
	bool in_interrupts = false;

	if (rte_eth_dev_info_get(ethdev, &info) == 0) {
		device = info.device;
		in_interrupts = dpdk_quirks(info.driver_name)->closes_in_interrupts;
	}
	if (port->multicast_fd >= 0)
		close(port->multicast_fd);
	sigpipe_hold(&held);
	if (in_interrupts)
		close_in_interrupts(ethdev);
	else
		close_now(ethdev);
	mem_forget(port);
	if (device)
		rte_dev_remove(device);
	sigpipe_release(&held);
	pool_destroy(port);
}

static void report_refusal(struct dpdk_port *port)
{
	if (!port->refused_len || port->reported_refusal)
		return;
	port->reported_refusal = true;
	if (port->refused_len <= port->base.caps.max_frame) {
		frl_log(FRL_LOG_WARNING,
			"\"%s\" dropped a frame of %u bytes, whose VLAN tag it cannot put back. "
			"drop_port counts such frames",
			port->name, port->refused_len);
		return;
	}
	frl_log(FRL_LOG_WARNING,
		"\"%s\" dropped a frame of %u bytes, its path MTU allows %u: set the same "
		"FRL_PATH_MTU at both ends. drop_port counts such frames",
		port->name, port->refused_len, port->base.caps.max_frame);
}

enum port_link_state ethdev_link_state(struct port *base, uint16_t link)
{
	struct dpdk_port *port = (struct dpdk_port *)base;
	struct rte_eth_link status;

	if (link != 0)
		return PORT_LINK_CLOSED;
	/* Logged here, because bursts do not log, and the engine polls the state regularly. */
	report_refusal(port);
	if (port->interface[0])
		return interface_is_running(port->interface) ? PORT_LINK_UP : PORT_LINK_DOWN;
	if (rte_eth_link_get_nowait(port->ethdev, &status))
		return PORT_LINK_DOWN;
	return status.link_status == RTE_ETH_LINK_UP ? PORT_LINK_UP : PORT_LINK_DOWN;
}

void ethdev_restart(struct dpdk_port *port)
{
	uint16_t ethdev = port->ethdev;
	int err = rte_eth_dev_stop(ethdev);

	if (!err)
		err = rte_eth_dev_start(ethdev);
	if (err)
		frl_log(FRL_LOG_ERROR, "\"%s\" does not start again: %s; open it anew", port->name,
			frl_strerror(err));
}

void ethdev_stats(struct port *base, struct port_stats *ret_stats)
{
	struct dpdk_port *port = (struct dpdk_port *)base;
	struct rte_eth_stats stats;

	*ret_stats = port->dropped;
	if (rte_eth_stats_get(port->ethdev, &stats))
		return;
	if (stats.ierrors && !port->reported_errors) {
		port->reported_errors = true;
		frl_log(FRL_LOG_WARNING,
			"\"%s\" dropped %llu received frames, damaged or longer than its MTU: set "
			"the same FRL_PATH_MTU at both ends, check cable and switch",
			port->name, (unsigned long long)stats.ierrors);
	}
	ret_stats->rx_dropped += stats.imissed + stats.rx_nombuf + stats.ierrors;
	ret_stats->tx_dropped += stats.oerrors;
}
