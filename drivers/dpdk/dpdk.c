/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens and closes ports. */
#include "drivers/dpdk/internal.h"

#include <errno.h>
#include <stdlib.h>

#include "drivers/nic.h"
#include "lib/base/error.h"

static void device_close(struct port *base)
{
	struct dpdk_port *port = (struct dpdk_port *)base;

	ethdev_close(port);
	free(port);
}

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

int dpdk_driver_open(const struct dpdk_port_config *config, struct port **ret_port)
{
	struct dpdk_port *port;
	int err;

	if (config->min_payload < MIN_PAYLOAD || config->max_payload > MAX_PAYLOAD ||
		config->min_payload > config->max_payload)
		return frl_fail(-EINVAL, "payloads of %u to %u bytes; they must be within %d to %d",
			config->min_payload, config->max_payload, MIN_PAYLOAD, MAX_PAYLOAD);
	err = eal_start(config);
	if (err)
		return err;
	port = calloc(1, sizeof(*port));
	if (!port)
		return frl_fail(-ENOMEM, "no memory for a port");
	port->multicast_fd = -1;
	port->max_payload = config->max_payload;
	port->min_payload = config->min_payload;
	LIST_INIT(&port->mapped);
	LIST_INIT(&port->covered);
	err = ethdev_open(port, config);
	if (err) {
		free(port);
		return err;
	}
	port->base.ops = &device_ops;
	*ret_port = &port->base;
	return 0;
}
