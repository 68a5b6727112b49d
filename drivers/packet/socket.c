/* SPDX-License-Identifier: BSD-3-Clause */
#include "drivers/packet/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drivers/packet/internal.h"
#include "lib/base/error.h"
#include "lib/base/net/ip.h"

int packet_refuse_kernels(const char *port, const struct gid_table *gids)
{
	for (unsigned i = 1; i < gids->n; i++)
		if (interface_is_kernels(&gids->gids[i].ip))
			return frl_fail(-EADDRINUSE,
				"%s: address %s belongs to this host's kernel: give the port, or "
				"the fabric's `addresses`, an address that no host has",
				port, format_ip(&gids->gids[i].ip));
	return 0;
}

int packet_bind(int fd, int ifindex)
{
	struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(PACKET_EVERYTHING),
		.sll_ifindex = ifindex,
	};

	return bind(fd, (const struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
}

static int set_up(int fd, const struct packet_lease *lease, int ifindex)
{
	const struct packet_scope scope = {
		.gids = lease->gids,
		.mac = lease->mac,
		.is_lease = true,
		.vlan = lease->gids->n > 1 ? lease->gids->gids[1].vlan : 0,
	};
	int on = 1, rc = packet_filter(fd, &scope);

	if (rc)
		return rc;
	if (setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof(on)))
		return -errno;
	/* The socket had no protocol until now: no frame came in before the filter. */
	return packet_bind(fd, ifindex);
}

int packet_lease_socket(const struct packet_lease *lease, uint64_t *ret_id, char *why, size_t size)
{
	struct packet_wanted wanted;
	struct stat status;
	unsigned ifindex;
	int fd, rc = packet_parse(lease->port, &wanted);

	if (!rc)
		rc = packet_refuse_kernels(lease->port, lease->gids);
	if (rc) {
		snprintf(why, size, "%s", frl_last_error());
		return rc;
	}
	fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		rc = -errno;
		snprintf(why, size, "cannot open a packet socket: %s", frl_strerror(rc));
		return rc;
	}
	ifindex = if_nametoindex(wanted.interface);
	rc = ifindex ? set_up(fd, lease, (int)ifindex) : -ENODEV;
	if (!rc && fstat(fd, &status))
		rc = -errno;
	if (rc) {
		close(fd);
		snprintf(why, size,
			rc == -ENODEV ? "%s: no such interface in ferruled's network namespace "
					"(%s): see `ip link`, and the fabric's ports"
				      : "%s: %s",
			lease->port, frl_strerror(rc));
		return rc;
	}
	*ret_id = status.st_ino;
	return fd;
}
