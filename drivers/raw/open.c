/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks, opens, describes and closes a port of raw packets. */
#include "drivers/raw/internal.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/net/link_speed.h"

/* ---- one open per port */

static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct list open_ports = { &open_ports, &open_ports };

/* Two opens of one port would have the same MAC and take each other's frames. */
static int note_open(struct raw_port *port)
{
	int rc = 0;

	pthread_mutex_lock(&open_mutex);
	for (struct list *at = open_ports.next; at != &open_ports; at = at->next) {
		const struct raw_port *other = container_of(at, struct raw_port, node);

		if (strcmp(other->wanted.device, port->wanted.device) == 0 &&
			other->wanted.num == port->wanted.num)
			rc = -EEXIST;
	}
	if (!rc)
		list_add_tail(&open_ports, &port->node);
	pthread_mutex_unlock(&open_mutex);
	return rc ? frl_fail(rc, "this process has opened %s already", port->name) : 0;
}

static void note_close(struct raw_port *port)
{
	pthread_mutex_lock(&open_mutex);
	list_remove(&port->node);
	pthread_mutex_unlock(&open_mutex);
}

/* ---- checks */

static int check_port(struct raw_port *port, struct ibv_port_attr *ret_attr)
{
	uint8_t num = port->wanted.num;
	int rc = ibv_query_device(port->context, &port->attr);

	if (rc)
		return raw_fail(port, verbs_errno(rc), "cannot query its capabilities");
	if (num > port->attr.phys_port_cnt)
		return frl_fail(-ENODEV, "%s: no port %d: the device has %d", port->name, num,
			port->attr.phys_port_cnt);
	rc = ibv_query_port(port->context, num, ret_attr);
	if (rc)
		return raw_fail(port, verbs_errno(rc), "cannot query its state");
	if (ret_attr->link_layer != IBV_LINK_LAYER_ETHERNET)
		return frl_fail(
			-ENODEV, "%s is no Ethernet port: raw packets need one", port->name);
	return 0;
}

static int roce_is_on(const struct raw_port *port)
{
	char pci[16] = "ADDRESS";

	verbs_read_pci(port->context->device->ibdev_path, pci);
	return frl_fail(-EBUSY,
		"%s: RoCE is on and takes UDP port 4791: devlink dev param set pci/%s name "
		"enable_roce value false cmode driverinit; devlink dev reload pci/%s; or use "
		"verbs:%s",
		port->name, pci, pci, port->wanted.device);
}

/* RoCE is on if the device has RoCE v2 addresses. */
static int check_roce(struct raw_port *port, const struct ibv_port_attr *attr)
{
	for (int i = 0; i < attr->gid_tbl_len; i++) {
		struct ibv_gid_entry entry;
		int err = ibv_query_gid_ex(port->context, port->wanted.num, (uint32_t)i, &entry, 0);

		if (err == ENODATA || err == EOPNOTSUPP)
			continue;
		if (err)
			return raw_fail(port, verbs_errno(err), "cannot query whether RoCE is on");
		if (entry.gid_type == IBV_GID_TYPE_ROCE_V2)
			return roce_is_on(port);
	}
	return 0;
}

static int check_mac(const struct raw_port *port, const uint8_t wanted[6])
{
	static const uint8_t any[6];
	const uint8_t *own = port->netdev.mac;

	if (memcmp(wanted, any, 6) == 0 || memcmp(wanted, own, 6) == 0)
		return 0;
	return frl_fail(-ENOTSUP,
		"%s rejects the MAC address of its lease (%02x:%02x:%02x:%02x:%02x:%02x): its own "
		"is %02x:%02x:%02x:%02x:%02x:%02x; remove MAC addresses from the fabric's "
		"configuration, or configure its own",
		port->name, wanted[0], wanted[1], wanted[2], wanted[3], wanted[4], wanted[5],
		own[0], own[1], own[2], own[3], own[4], own[5]);
}

static void describe(struct raw_port *port, uint32_t max_kept)
{
	struct port_caps *caps = &port->base.caps;

	memcpy(caps->mac, port->netdev.mac, sizeof(caps->mac));
	caps->max_frame = nic_max_frame(port->netdev.mtu, port->max_payload);
	caps->kind = "raw";
	caps->speed_mbps = link_speed_mbps(port->netdev.name);
	caps->has_far = port->wanted.gpu >= 0;
	caps->far_gpu = caps->has_far ? port->wanted.gpu : -1;
	caps->max_kept = caps->has_far ? 0 : max_kept;
}

static int look_at(struct raw_port *port, const struct nic_config *config)
{
	struct ibv_port_attr attr = { 0 };
	int rc = check_port(port, &attr);

	if (!rc)
		rc = check_roce(port, &attr);
	if (!rc)
		rc = raw_netdev_open(port->context->device->ibdev_path, port->wanted.num,
			port->name, &port->netdev);
	if (!rc)
		rc = check_mac(port, config->mac);
	if (!rc)
		rc = nic_fit_payload(port->netdev.name, port->netdev.mtu, config->min_payload,
			&port->max_payload);
	if (rc)
		return rc;
	describe(port, config->max_kept);
	if (!raw_netdev_is_up(&port->netdev))
		frl_log(FRL_LOG_WARNING, "%s is down: `ip link set %s up`", port->netdev.name,
			port->netdev.name);
	return 0;
}

/* ---- while open */

/* Detects that the device has failed or was removed. Nothing else reads these events. */
static void check_device(struct raw_port *port)
{
	struct pollfd file = { .fd = port->context->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	while (!port->is_broken && poll(&file, 1, 0) > 0) {
		if (!(file.revents & POLLIN) || ibv_get_async_event(port->context, &event)) {
			raw_break(port, "the device is gone");
			return;
		}
		ibv_ack_async_event(&event);
		if (event.event_type == IBV_EVENT_DEVICE_FATAL)
			raw_break(port, "the device has failed (see dmesg)");
		else if (event.event_type == IBV_EVENT_QP_FATAL ||
			event.event_type == IBV_EVENT_QP_REQ_ERR ||
			event.event_type == IBV_EVENT_QP_ACCESS_ERR ||
			event.event_type == IBV_EVENT_CQ_ERR)
			raw_break(port, "a queue has failed (see dmesg)");
	}
}

static enum port_link_state link_state(struct port *base, uint16_t link)
{
	struct raw_port *port = (struct raw_port *)base;

	if (link != 0)
		return PORT_LINK_CLOSED;
	check_device(port);
	if (port->is_broken)
		return PORT_LINK_DOWN;
	return raw_netdev_is_up(&port->netdev) ? PORT_LINK_UP : PORT_LINK_DOWN;
}

static void stats(struct port *base, struct port_stats *ret_stats)
{
	*ret_stats = ((struct raw_port *)base)->dropped;
}

static void close_port(struct port *base)
{
	struct raw_port *port = (struct raw_port *)base;

	raw_steer_stop(port);
	raw_queue_close(port);
	if (port->multicast_fd >= 0)
		close(port->multicast_fd);
	raw_netdev_close(&port->netdev);
	if (port->context)
		raw_destroyed(port, ibv_close_device(port->context), "cannot close the device");
	note_close(port);
	free(port);
}

static const struct port_ops raw_ops = {
	.name = "raw packets",
	.rx_burst = raw_rx_burst,
	.rx_free = raw_rx_free,
	.rx_memory = raw_rx_memory,
	.rx_take = raw_rx_take,
	.tx_burst = raw_tx_burst,
	.mem_map = raw_mem_map,
	.mem_idle = raw_mem_idle,
	.mem_unmap = raw_mem_unmap,
	.link_open = nic_link_open,
	.link_close = nic_link_close,
	.link_state = link_state,
	.stats = stats,
	.close = close_port,
};

static const struct port_ops raw_far_ops = {
	.name = "raw packets with a GPU",
	.rx_burst = raw_rx_burst,
	.rx_free = raw_rx_free,
	.rx_memory = raw_rx_memory,
	.rx_take = raw_rx_take,
	.tx_burst = raw_tx_burst,
	.mem_map = raw_mem_map,
	.mem_map_far = raw_mem_map_far,
	.mem_idle = raw_mem_idle,
	.mem_unmap = raw_mem_unmap,
	.link_open = nic_link_open,
	.link_close = nic_link_close,
	.link_state = link_state,
	.stats = stats,
	.close = close_port,
};

/* ---- open */

/* Flow rules select the frames for this process. The interface selects the frames for this function
 * of the NIC. IPv6 finds its neighbors by groups that the kernel has not joined. */
static void take_multicast(struct raw_port *port)
{
	port->multicast_fd = interface_take_multicast(port->netdev.name);
	if (port->multicast_fd < 0)
		frl_log(FRL_LOG_WARNING,
			"%s: %s does not accept all multicast (%s): IPv6 neighbors may not find it",
			port->name, port->netdev.name, frl_strerror(port->multicast_fd));
}

static int start(struct raw_port *port, const struct nic_config *config)
{
	int rc = note_open(port);

	if (rc)
		return rc;
	verbs_protect_from_fork();
	rc = verbs_context_find(port->wanted.device, &port->context);
	if (!rc)
		rc = look_at(port, config);
	if (!rc)
		rc = raw_queue_open(port);
	if (!rc)
		rc = raw_steer(port, config->gids);
	if (rc)
		return rc;
	take_multicast(port);
	port->base.caps.max_held = (port->n_slots - port->base.caps.max_kept) / 2;
	return 0;
}

int raw_port_open(const struct nic_config *config, struct port **ret_port)
{
	struct raw_wanted wanted;
	struct raw_port *port;
	int rc = raw_parse(config->text, &wanted);

	if (rc)
		return rc;
	port = calloc(1, sizeof(*port));
	if (!port)
		return frl_fail(-ENOMEM, "no memory for a port");
	list_init(&port->node);
	list_init(&port->mems);
	list_init(&port->regions);
	port->wanted = wanted;
	port->base.ops = wanted.gpu >= 0 ? &raw_far_ops : &raw_ops;
	port->multicast_fd = port->netdev.carrier_fd = -1;
	port->max_payload = config->max_payload;
	snprintf(port->name, sizeof(port->name), "raw:%s", wanted.device);
	if (wanted.num != 1)
		snprintf(port->name, sizeof(port->name), "raw:%s/%d", wanted.device, wanted.num);
	return nic_opened(&port->base, start(port, config), ret_port);
}
