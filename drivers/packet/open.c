/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens, describes and closes a port over a packet socket. */
#include "drivers/packet/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/net/link_speed.h"

#ifndef PACKET_IGNORE_OUTGOING /* Linux 4.20 */
#define PACKET_IGNORE_OUTGOING 23
#endif

enum {
	/* Room for received frames: the windows of several queue pairs. The kernel doubles it for
	 * its own overhead. */
	RECEIVE_BYTES = 8 << 20,
	RECEIVE_LEAST = 2 << 20, /* about one window of 256 packets of 4 KiB */
	SEND_BYTES = 1 << 20,
};

struct port_mem {
	char nothing; /* the kernel reads any memory */
};

static int mem_map(struct port *port, void *addr, size_t len, struct port_mem **ret_mem)
{
	*ret_mem = calloc(1, sizeof(**ret_mem));
	return *ret_mem ? 0 : frl_fail(-ENOMEM, "no memory for a memory registration");
}

/* The kernel has copied all payload when tx_burst returns. */
static bool mem_idle(struct port *port, const struct port_mem *mem)
{
	return true;
}

static void mem_unmap(struct port *port, struct port_mem *mem)
{
	free(mem);
}

static int interface_ioctl(
	struct packet_port *port, unsigned long request, struct ifreq *ret_answer)
{
	memset(ret_answer, 0, sizeof(*ret_answer));
	snprintf(ret_answer->ifr_name, sizeof(ret_answer->ifr_name), "%s", port->wanted.interface);
	return ioctl(port->fd, request, ret_answer) ? -errno : 0;
}

/* Returns the index of the interface that the socket is bound to, or -1 if it is gone. */
static int bound_to(const struct packet_port *port)
{
	struct sockaddr_ll address = { 0 };
	socklen_t len = sizeof(address);

	return getsockname(port->fd, (struct sockaddr *)&address, &len) ? -1 : address.sll_ifindex;
}

static bool is_interfaces_mac(struct packet_port *port, const uint8_t mac[6])
{
	struct ifreq answer;

	return interface_ioctl(port, SIOCGIFHWADDR, &answer) == 0 &&
		answer.ifr_hwaddr.sa_family == ARPHRD_ETHER &&
		memcmp(answer.ifr_hwaddr.sa_data, mac, 6) == 0;
}

/* Makes the interface receive these frames until the socket is closed. */
static int join(const struct packet_port *port, int ifindex, uint16_t type, const uint8_t *mac)
{
	struct packet_mreq membership = { .mr_ifindex = ifindex, .mr_type = type };

	if (mac) {
		membership.mr_alen = 6;
		memcpy(membership.mr_address, mac, 6);
	}
	return setsockopt(
		       port->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &membership, sizeof(membership))
		? -errno
		: 0;
}

static int bind_to(struct packet_port *port, int ifindex)
{
	const uint8_t *mac = port->base.caps.mac;
	int rc = join(port, ifindex, PACKET_MR_ALLMULTI, NULL);

	/* IPv6 finds its neighbors by groups that the kernel has not joined. */
	if (rc)
		frl_log(FRL_LOG_WARNING,
			"%s does not accept all multicast (%s): IPv6 neighbors may not find it",
			port->name, frl_strerror(rc));
	rc = port->has_mac ? join(port, ifindex, PACKET_MR_UNICAST, mac) : 0;
	if (rc)
		return rc;
	rc = packet_bind(port->fd, ifindex);
	if (!rc)
		port->ifindex = ifindex;
	return rc;
}

/*
 * If an interface is deleted, or moved out of this namespace, the socket loses its binding. When an
 * interface with that name is back, this binds to it again and restores the socket's options. Its
 * MAC must be the one that peers know.
 */
static bool is_attached(struct packet_port *port)
{
	struct ifreq answer;
	int ifindex;

	if (interface_ioctl(port, SIOCGIFINDEX, &answer))
		return false;
	ifindex = answer.ifr_ifindex;
	if (bound_to(port) == ifindex)
		return true;
	if (!port->has_mac && !is_interfaces_mac(port, port->base.caps.mac)) {
		if (port->foreign_ifindex != ifindex)
			frl_log(FRL_LOG_WARNING,
				"%s: another interface has this name now, with another MAC "
				"address: restore the previous address, or open the device again",
				port->name);
		port->foreign_ifindex = ifindex;
		return false;
	}
	return bind_to(port, ifindex) == 0;
}

static bool is_running(struct packet_port *port)
{
	struct ifreq answer;

	return interface_ioctl(port, SIOCGIFFLAGS, &answer) == 0 && (answer.ifr_flags & IFF_UP) &&
		(answer.ifr_flags & IFF_RUNNING);
}

static enum port_link_state link_state(struct port *base, uint16_t link)
{
	struct packet_port *port = (struct packet_port *)base;

	if (link != 0)
		return PORT_LINK_CLOSED;
	return is_attached(port) && is_running(port) ? PORT_LINK_UP : PORT_LINK_DOWN;
}

/* PACKET_STATISTICS resets the kernel's counters, so drops are added up here. */
static void stats(struct port *base, struct port_stats *ret_stats)
{
	struct packet_port *port = (struct packet_port *)base;
	struct tpacket_stats kernel;
	socklen_t len = sizeof(kernel);

	if (!getsockopt(port->fd, SOL_PACKET, PACKET_STATISTICS, &kernel, &len))
		port->dropped.rx_dropped += kernel.tp_drops;
	*ret_stats = port->dropped;
}

static void close_port(struct port *base)
{
	struct packet_port *port = (struct packet_port *)base;

	if (port->fd >= 0)
		close(port->fd);
	packet_rx_close(port);
	free(port);
}

static const struct port_ops packet_ops = {
	.name = "packet socket",
	.rx_burst = packet_rx_burst,
	.arm = packet_rx_arm,
	.rx_free = packet_rx_free,
	.rx_memory = packet_rx_memory,
	.rx_take = packet_rx_take,
	.tx_burst = packet_tx_burst,
	.mem_map = mem_map,
	.mem_idle = mem_idle,
	.mem_unmap = mem_unmap,
	.link_open = nic_link_open,
	.link_close = nic_link_close,
	.link_state = link_state,
	.stats = stats,
	.close = close_port,
};

/* ---- open */

static int fail(const struct packet_port *port, int err, const char *what)
{
	return frl_fail(err, "%s: %s: %s", port->name, what, frl_strerror(err));
}

/* Takes the lease's MAC, or the interface's. */
static int take_mac(struct packet_port *port, const uint8_t wanted[6])
{
	static const uint8_t any[6];
	uint8_t *mac = port->base.caps.mac;
	struct ifreq answer;
	int rc = interface_ioctl(port, SIOCGIFHWADDR, &answer);

	if (rc)
		return fail(port, rc, "cannot read its MAC address");
	if (answer.ifr_hwaddr.sa_family != ARPHRD_ETHER)
		return frl_fail(-ENODEV, "%s is no Ethernet interface", port->wanted.interface);
	memcpy(mac, answer.ifr_hwaddr.sa_data, 6);
	port->has_mac = memcmp(wanted, any, 6) != 0 && memcmp(wanted, mac, 6) != 0;
	if (port->has_mac)
		memcpy(mac, wanted, 6);
	return 0;
}

/* Reads the interface's index, its MAC, and the longest payload for its MTU, from the socket's
 * network namespace. */
static int look_at(struct packet_port *port, const struct nic_config *config)
{
	struct port_caps *caps = &port->base.caps;
	struct ifreq answer;
	uint32_t mtu;
	int rc = interface_ioctl(port, SIOCGIFMTU, &answer);

	if (rc)
		return frl_fail(rc,
			"no interface \"%s\" in this network namespace (%s); `ip link` lists them",
			port->wanted.interface, frl_strerror(rc));
	mtu = (uint32_t)answer.ifr_mtu;
	rc = interface_ioctl(port, SIOCGIFINDEX, &answer);
	if (rc)
		return fail(port, rc, "cannot find the interface");
	port->ifindex = answer.ifr_ifindex;
	rc = take_mac(port, config->mac);
	if (rc)
		return rc;
	rc = nic_fit_payload(port->wanted.interface, mtu, config->min_payload, &port->max_payload);
	if (rc)
		return rc;
	caps->max_frame = nic_max_frame(mtu, port->max_payload);
	caps->kind = "packet";
	caps->speed_mbps = link_speed_mbps(port->wanted.interface);
	caps->max_batch = port->joins ? PACKET_BATCH_MAX : 0;
	caps->max_held = PACKET_SLOTS / 4;
	caps->max_kept = config->max_kept;
	return 0;
}

/* Exceeds the system's limit if this process has the privilege. */
static void set_room(struct packet_port *port)
{
	int bytes = RECEIVE_BYTES, room = 0;
	socklen_t len = sizeof(room);

	if (setsockopt(port->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
		(void)setsockopt(port->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	if (!getsockopt(port->fd, SOL_SOCKET, SO_RCVBUF, &room, &len) && room < RECEIVE_LEAST)
		frl_log(FRL_LOG_WARNING,
			"%s: receive buffer limited to %d KiB, so bursts may be lost: set `sysctl "
			"net.core.rmem_max=%d`, or grant CAP_NET_ADMIN",
			port->name, room / 1024, RECEIVE_BYTES);
	bytes = SEND_BYTES;
	if (setsockopt(port->fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)))
		(void)setsockopt(port->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

/* `given`: the socket came with its filter. */
static int set_up_socket(struct packet_port *port, const struct gid_table *gids, bool given)
{
	const struct packet_scope scope = { .gids = gids, .mac = port->base.caps.mac };
	int on = 1, rc = given ? 0 : packet_filter(port->fd, &scope);

	if (rc)
		return fail(port, rc, "the kernel rejects the filter");
	if (setsockopt(port->fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) ||
		setsockopt(port->fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof(on)))
		return fail(port, -errno,
			"the packet socket does not report VLAN tags and virtio headers");
	/* Without this option (old kernels), the socket also receives sent frames, which are not
	 * for this port. A given socket must see them: other leases of the same interface are
	 * reachable only that way, since no switch sends a frame back. */
	if (!given)
		(void)setsockopt(port->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on));
	set_room(port);
	/* The socket had no protocol until now, or was given: no frame came in before the
	 * filter. */
	rc = bind_to(port, port->ifindex);
	return rc ? fail(port, rc, "cannot use the interface") : 0;
}

static int open_socket(struct packet_port *port, const struct nic_config *config)
{
	int rc;

	if (config->has_socket) {
		port->fd = fcntl(config->socket, F_DUPFD_CLOEXEC, 0);
		return port->fd < 0 ? fail(port, -errno, "cannot keep its socket") : 0;
	}
	port->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	rc = port->fd < 0 ? -errno : 0;
	if (rc == -EPERM || rc == -EACCES)
		return frl_fail(-EPERM,
			"%s: raw packets need CAP_NET_RAW: run as root, `setcap cap_net_raw+ep` "
			"the program, or lease it from a ferruled that has CAP_NET_RAW",
			port->name);
	if (rc)
		return fail(port, rc, "cannot open a packet socket");
	return packet_refuse_kernels(port->name, config->gids);
}

static int start(struct packet_port *port, const struct nic_config *config)
{
	int rc = open_socket(port, config);

	if (!rc)
		rc = look_at(port, config);
	if (!rc)
		rc = packet_rx_open(port);
	if (!rc)
		rc = set_up_socket(port, config->gids, config->has_socket);
	if (!rc && !is_running(port))
		frl_log(FRL_LOG_WARNING, "%s is down: `ip link set %s up`", port->wanted.interface,
			port->wanted.interface);
	return rc;
}

int packet_port_open(const struct nic_config *config, struct port **ret_port)
{
	struct packet_wanted wanted;
	struct packet_port *port;
	int rc = packet_parse(config->text, &wanted);

	if (rc)
		return rc;
	port = calloc(1, sizeof(*port));
	if (!port)
		return frl_fail(-ENOMEM, "no memory for a port");
	port->base.ops = &packet_ops;
	port->wanted = wanted;
	port->joins = !wanted.no_gso;
	port->max_payload = config->max_payload;
	port->fd = -1;
	snprintf(port->name, sizeof(port->name), "packet:%s", wanted.interface);
	return nic_opened(&port->base, start(port, config), ret_port);
}
