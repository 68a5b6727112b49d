/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast groups. The device attaches to the group. A socket joins it, so that the kernel informs
 * switches and routers by IGMP or MLD and opens the filter of the interface.
 */
#include "drivers/verbs/internal.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sys/socket.h>

#include "lib/base/error.h"
#include "lib/base/net/ip.h"

struct membership {
	struct list node;
	struct frl_ip group;
	int fd; /* of the socket, or -1 */
};

/* Returns the interface of the first address in the group's family. */
static unsigned interface_for(struct verbs_device *device, const struct frl_ip *group)
{
	const struct gid_table *gids = &device->base.gids;
	unsigned at = 1, ifindex;

	while (at < gids->n && ip_is_v4(&gids->gids[at].ip) != ip_is_v4(group))
		at++;
	device_enter(&device->base);
	ifindex = device->gid_ifindex[at < gids->n ? at : 1];
	device_leave(&device->base);
	return ifindex;
}

/* Returns a socket that is a member, or -1. */
static int join(const struct frl_ip *group, unsigned ifindex)
{
	bool is_v4 = ip_is_v4(group);
	int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ip_mreqn v4 = { .imr_ifindex = (int)ifindex };
	struct ipv6_mreq v6 = { .ipv6mr_interface = ifindex };
	int rc;

	if (fd < 0)
		return -1;
	memcpy(&v4.imr_multiaddr, group->bytes + 12, sizeof(v4.imr_multiaddr));
	memcpy(&v6.ipv6mr_multiaddr, group->bytes, sizeof(v6.ipv6mr_multiaddr));
	rc = is_v4 ? setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &v4, sizeof(v4))
		   : setsockopt(fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &v6, sizeof(v6));
	if (!rc)
		return fd;
	close(fd);
	return -1;
}

static struct membership *find(struct verbs_qp *qp, const struct frl_ip *group)
{
	for (struct list *at = qp->memberships.next; at != &qp->memberships; at = at->next) {
		struct membership *m = container_of(at, struct membership, node);

		if (ip_equal(&m->group, group))
			return m;
	}
	return NULL;
}

/* The guard keeps the list consistent. If threads concurrently join and leave the same group with
 * the same queue pair, any order is possible. */
static bool is_member(struct verbs_qp *qp, const struct frl_ip *group)
{
	struct frl_device *device = qp->base.pd->device;
	bool found;

	device_enter(device);
	found = find(qp, group) != NULL;
	device_leave(device);
	return found;
}

static int refuse(const struct frl_qp *qp, const struct frl_ip *group, const char *why)
{
	return frl_fail(-EINVAL, "queue pair 0x%x, group %s: %s", qp->num, format_ip(group), why);
}

int verbs_attach_mcast(struct frl_qp *base, const struct frl_ip *group)
{
	struct verbs_device *device = device_of_pd(base->pd);
	struct verbs_qp *qp = verbs_qp(base);
	struct membership *m;
	union ibv_gid gid;
	int rc;

	if (!is_datagram(base))
		return refuse(base, group, "only UD queue pairs receive multicast datagrams");
	if (!ip_is_multicast(group))
		return refuse(base, group, "it is no multicast group");
	if (is_member(qp, group))
		return 0;
	m = malloc(sizeof(*m));
	if (!m)
		return frl_fail(-ENOMEM, "no memory for a membership in a group");
	memcpy(gid.raw, group->bytes, sizeof(gid.raw));
	rc = ibv_attach_mcast(qp->qp, &gid, 0);
	if (rc) {
		free(m);
		return verbs_fail(verbs_errno(rc),
			"%s: queue pair 0x%x cannot join the group %s (at most %u groups)",
			device->name, base->num, format_ip(group),
			base->pd->device->attr.max_mcast_groups);
	}
	m->group = *group;
	m->fd = join(group, interface_for(device, group));
	if (m->fd < 0)
		frl_log(FRL_LOG_WARNING,
			"%s: cannot join %s on its interface (%s): routers and switches may not "
			"send it here",
			device->name, format_ip(group), frl_strerror(errno));
	device_enter(&device->base);
	list_add_tail(&qp->memberships, &m->node);
	device_leave(&device->base);
	return 0;
}

static void drop(struct membership *m)
{
	if (m->fd >= 0)
		close(m->fd);
	free(m);
}

int verbs_detach_mcast(struct frl_qp *base, const struct frl_ip *group)
{
	struct verbs_device *device = device_of_pd(base->pd);
	struct verbs_qp *qp = verbs_qp(base);
	struct membership *m;
	union ibv_gid gid;
	int rc;

	if (!is_member(qp, group))
		return refuse(base, group, "it is not attached to that group");
	memcpy(gid.raw, group->bytes, sizeof(gid.raw));
	rc = ibv_detach_mcast(qp->qp, &gid, 0);
	if (rc)
		return verbs_fail(verbs_errno(rc), "%s: queue pair 0x%x cannot leave the group %s",
			device->name, base->num, format_ip(group));
	device_enter(&device->base);
	m = find(qp, group);
	if (m)
		list_remove(&m->node);
	device_leave(&device->base);
	if (m)
		drop(m);
	return 0;
}

void verbs_leave_groups(struct verbs_qp *qp)
{
	while (!list_empty(&qp->memberships)) {
		struct membership *m = container_of(qp->memberships.next, struct membership, node);
		union ibv_gid gid;

		memcpy(gid.raw, m->group.bytes, sizeof(gid.raw));
		ibv_detach_mcast(qp->qp, &gid, 0);
		list_remove(&m->node);
		drop(m);
	}
}
