/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens and closes ports of the local fabric. */
#include "drivers/local/local.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/local/in_place.h"
#include "drivers/local/introduction.h"
#include "drivers/local/link.h"
#include "drivers/local/wake.h"
#include "lib/base/error.h"
#include "lib/base/settings.h"

enum {
	RX_BUFFERS = 128,
	HELD = 48, /* limit of held frames: the others are for a burst */
};

static bool rx_memory(struct port *base, unsigned index, void **ret_addr, size_t *ret_len)
{
	const struct packet_pool *pool = &((struct local_port *)base)->pool;

	if (index > 0)
		return false;
	*ret_addr = pool->memory;
	*ret_len = pool->size;
	return true;
}

static bool rx_take(struct port *base, struct port_frame *ret_frame)
{
	struct packet_buffer *buffer = packet_pool_get(&((struct local_port *)base)->pool);

	if (!buffer)
		return false;
	buffer->payload_in_ring = false;
	*ret_frame = (struct port_frame){ .data = buffer->bytes, .handle = buffer };
	return true;
}

static int mem_map(struct port *base, void *addr, size_t len, struct port_mem **ret_mem)
{
	struct local_port *port = (struct local_port *)base;
	struct port_mem *mem = calloc(1, sizeof(*mem));

	if (!mem)
		return frl_fail(-ENOMEM, "no memory for a memory registration");
	if (in_place_use(port, addr, len, &mem->share))
		frl_log(FRL_LOG_WARNING,
			"no memory to share a registration: its payload is copied");
	LIST_INSERT_HEAD(&port->mapped, mem, next);
	*ret_mem = mem;
	return 0;
}

/* Packets are copied into rings, or refer to memory while their queue pair's requests are in
 * progress. revoke() ends that. */
static bool mem_idle(struct port *base, const struct port_mem *mem)
{
	return true;
}

static void mem_unmap(struct port *base, struct port_mem *mem)
{
	if (mem->share)
		in_place_unuse((struct local_port *)base, mem->share);
	LIST_REMOVE(mem, next);
	free(mem);
}

static void stats(struct port *base, struct port_stats *ret_stats)
{
	*ret_stats = ((struct local_port *)base)->dropped;
}

static void free_port(struct local_port *port)
{
	if (port->wake_fd >= 0)
		close(port->wake_fd);
	packet_pool_destroy(&port->pool);
	free(port);
}

static void close_port(struct port *base)
{
	struct local_port *port = (struct local_port *)base;

	link_close_all(port);
	while (!LIST_EMPTY(&port->mapped))
		mem_unmap(base, LIST_FIRST(&port->mapped));
	in_place_fini(port);
	free_port(port);
}

static const struct port_ops local_ops = {
	.name = "local fabric",
	.rx_burst = local_rx_burst,
	.rx_free = local_rx_free,
	.arm = local_arm,
	.disarm = local_disarm,
	.rx_memory = rx_memory,
	.rx_take = rx_take,
	.tx_burst = local_tx_burst,
	.revoke = in_place_revoke,
	.payload_intact = in_place_intact,
	.mem_map = mem_map,
	.mem_idle = mem_idle,
	.mem_unmap = mem_unmap,
	.link_open = link_open,
	.link_close = link_close,
	.link_state = link_state,
	.link_keep = link_keep,
	.link_frame = link_frame,
	.link_features = link_features,
	.introductions_open = introductions_open,
	.introductions_close = introductions_close,
	.introduce = introductions_ask,
	.stats = stats,
	.close = close_port,
};

static void describe(struct local_port *port, const struct local_port_config *config)
{
	struct port_caps *caps = &port->base.caps;

	memcpy(caps->mac, config->mac, sizeof(caps->mac));
	caps->max_frame = port->max_payload + PORT_HEADER_ROOM + PORT_TRAILER_ROOM;
	caps->lossless = true;
	caps->on_demand = true;
	caps->in_place = settings_get()->in_place;
	caps->max_held = HELD;
	caps->max_kept = config->max_kept;
	caps->kind = "ring";
}

int local_port_open(const struct local_port_config *config, struct port **ret_port)
{
	struct local_port *port;
	int err;

	if (config->max_payload < MIN_PAYLOAD || config->max_payload > LOCAL_MAX_PAYLOAD)
		return frl_fail(-EINVAL, "payloads of %u bytes; they must be within %d to %d",
			config->max_payload, MIN_PAYLOAD, LOCAL_MAX_PAYLOAD);
	port = calloc(1, sizeof(*port));
	if (!port)
		return frl_fail(-ENOMEM, "no memory for a port");
	port->base.ops = &local_ops;
	port->guard = config->guard;
	port->max_payload = config->max_payload;
	port->features = config->features;
	TAILQ_INIT(&port->all_links);
	LIST_INIT(&port->mapped);
	LIST_INIT(&port->shares);
	describe(port, config);
	/* Without a wake-up socket, a waiter polls at intervals. */
	port->wake_fd = wake_open(&port->wake);
	err = packet_pool_create(
		&port->pool, RX_BUFFERS + config->max_kept, port->base.caps.max_frame + VLAN_TAG);
	if (err) {
		free_port(port);
		return err;
	}
	*ret_port = &port->base;
	return 0;
}
