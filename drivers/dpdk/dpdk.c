/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens and closes ports: the ops tables of an ethdev and of the local fabric. */
#include "drivers/dpdk/fabric.h"
#include "drivers/dpdk/in_place.h"
#include "drivers/dpdk/wake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/nic.h"
#include "lib/base/error.h"
#include "lib/base/settings.h"

enum {
	FABRIC_RX_BUFFERS = 128,
	FABRIC_HELD = 48, /* of those: the others are for a burst, and copies to send */
	FABRIC_TX_BUFFERS = PORT_BURST * (2 + MAX_REFERENCES),
};

static void fabric_stats(struct port *port, struct port_stats *ret_stats)
{
	*ret_stats = ((struct dpdk_port *)port)->dropped;
}

static void fabric_close(struct port *base)
{
	struct dpdk_port *port = (struct dpdk_port *)base;

	gate_close_port(port);
	if (port->wake_fd >= 0)
		close(port->wake_fd);
	in_place_forget(port);
	pool_destroy(port);
	free(port);
}

static void device_close(struct port *base)
{
	struct dpdk_port *port = (struct dpdk_port *)base;

	ethdev_close(port);
	free(port);
}

static const struct port_ops fabric_ops = {
	.name = "dpdk fabric",
	.rx_burst = burst_rx,
	.rx_free = burst_rx_free,
	.arm = burst_arm,
	.disarm = burst_disarm,
	.rx_memory = pool_memory,
	.rx_take = pool_take,
	.tx_burst = burst_tx,
	.revoke = in_place_revoke,
	.payload_intact = in_place_intact,
	.mem_map = mem_map,
	.mem_idle = mem_idle,
	.mem_unmap = mem_unmap,
	.link_open = gate_link_open,
	.link_close = gate_link_close,
	.link_state = gate_link_state,
	.link_frame = gate_link_frame,
	.stats = fabric_stats,
	.close = fabric_close,
};

static const struct port_ops device_ops = {
	.name = "dpdk ethdev",
	.rx_burst = burst_rx,
	.rx_free = burst_rx_free,
	.rx_memory = pool_memory,
	.rx_take = pool_take,
	.tx_burst = burst_tx,
	.mem_map = mem_map,
	.mem_idle = mem_idle,
	.mem_flush = mem_flush,
	.mem_unmap = mem_unmap,
	.link_open = nic_link_open,
	.link_close = nic_link_close,
	.link_state = ethdev_link_state,
	.stats = ethdev_stats,
	.close = device_close,
};

static int fabric_open(struct dpdk_port *port, const struct dpdk_port_config *config)
{
	struct port_caps *caps = &port->base.caps;
	int err;

	port->cpu_reads_payload = true;
	memcpy(caps->mac, config->mac, sizeof(caps->mac));
	caps->max_frame = port->max_payload + PORT_HEADER_ROOM + PORT_TRAILER_ROOM;
	caps->lossless = true;
	caps->on_demand = true;
	caps->in_place = settings_get()->in_place;
	caps->max_held = FABRIC_HELD;
	caps->max_kept = config->max_kept;
	caps->kind = settings_get()->local_link;
	err = pool_create(port, FABRIC_RX_BUFFERS + config->max_kept, FABRIC_TX_BUFFERS,
		RTE_ALIGN_CEIL(caps->max_frame, 64u));
	if (err)
		return err;
	/* Who has none can do without: it looks now and then. */
	port->wake_fd = wake_open(&port->wake);
	return 0;
}

int dpdk_port_open(const struct dpdk_port_config *config, struct port **ret_port)
{
	const uint32_t most = config->devargs ? MAX_PAYLOAD : DPDK_FABRIC_PAYLOAD;
	struct dpdk_port *port;
	int err;

	if (config->min_payload < MIN_PAYLOAD || config->max_payload > most ||
		config->min_payload > config->max_payload)
		return frl_fail(-EINVAL, "payloads of %u to %u bytes; they must be within %d to %u",
			config->min_payload, config->max_payload, MIN_PAYLOAD, most);
	err = eal_start(config);
	if (err)
		return err;
	port = calloc(1, sizeof(*port));
	if (!port)
		return frl_fail(-ENOMEM, "no memory for a port");
	port->guard = config->guard;
	port->multicast_fd = -1;
	port->wake_fd = -1;
	port->max_payload = config->max_payload;
	port->min_payload = config->min_payload;
	LIST_INIT(&port->mapped);
	LIST_INIT(&port->covered);
	LIST_INIT(&port->shares);
	err = config->devargs ? ethdev_open(port, config) : fabric_open(port, config);
	if (err) {
		free(port);
		return err;
	}
	port->base.ops = config->devargs ? &device_ops : &fabric_ops;
	*ret_port = &port->base;
	return 0;
}
