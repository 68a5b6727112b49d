/* SPDX-License-Identifier: BSD-3-Clause */
/* Facts about a kernel interface, checked before a driver fails on it without a reason. */
#include "drivers/interface.h"

#include <errno.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/error.h"

static int interface_ioctl(const char *name, unsigned long request, struct ifreq *ret_answer)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int err;

	if (fd < 0)
		return -errno;
	memset(ret_answer, 0, sizeof(*ret_answer));
	snprintf(ret_answer->ifr_name, sizeof(ret_answer->ifr_name), "%s", name);
	err = ioctl(fd, request, ret_answer) ? -errno : 0;
	close(fd);
	return err;
}

int interface_mtu(const char *name, uint32_t *ret_mtu)
{
	struct ifreq answer;
	int err = interface_ioctl(name, SIOCGIFMTU, &answer);

	if (err)
		return frl_fail(err == -ENODEV ? -ENODEV : err,
			"no interface \"%s\" in this network namespace (%s); `ip link` lists them",
			name, frl_strerror(err));
	*ret_mtu = (uint32_t)answer.ifr_mtu;
	return 0;
}

bool interface_is_running(const char *name)
{
	struct ifreq answer;

	return interface_ioctl(name, SIOCGIFFLAGS, &answer) == 0 && (answer.ifr_flags & IFF_UP) &&
		(answer.ifr_flags & IFF_RUNNING);
}

int interface_check_mtu(const char *name, uint32_t mtu, uint32_t max_payload)
{
	uint32_t need = max_payload + MTU_OVERHEAD;
	uint32_t fits = MAX_PAYLOAD;

	if (mtu >= need)
		return 0;
	while (fits >= MIN_PAYLOAD && fits + MTU_OVERHEAD > mtu)
		fits /= 2;
	if (fits < MIN_PAYLOAD)
		return frl_fail(-EMSGSIZE,
			"%s has MTU %u; %u bytes of payload and %d of headers need %u: "
			"`ip link set dev %s mtu %u`",
			name, mtu, max_payload, MTU_OVERHEAD, need, name, need);
	return frl_fail(-EMSGSIZE,
		"%s has MTU %u; %u bytes of payload and %d of headers need %u: "
		"`ip link set dev %s mtu %u`, or set a path MTU of %u",
		name, mtu, max_payload, MTU_OVERHEAD, need, name, need, fits);
}

static bool can_change_interfaces(int fd)
{
	int bytes = 4096;

	/* It requires CAP_NET_ADMIN, too, and changes only this socket. */
	return !setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
}

int interface_check_af_packet(const char *name)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	int err = fd < 0 ? errno : can_change_interfaces(fd) ? 0 : EPERM;

	if (fd >= 0)
		close(fd);
	if (err == EPERM || err == EACCES)
		return frl_fail(-EPERM,
			"%s: net_af_packet needs CAP_NET_RAW and CAP_NET_ADMIN: run as root, or "
			"use the port packet:%s",
			name, name);
	return err ? frl_fail(err, "%s: cannot open a packet socket: %s", name, frl_strerror(err))
		   : 0;
}

/* Connecting a UDP socket sends nothing. The kernel then assigns the peer's address as its source
 * only if that address is local. */
bool interface_is_kernels(const struct frl_ip *ip)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(9) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(9) };
	struct sockaddr *to = ip_is_v4(ip) ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
	socklen_t length = ip_is_v4(ip) ? sizeof(v4) : sizeof(v6);
	int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct frl_ip own = *ip;
	bool is_local;

	memcpy(&v4.sin_addr, ip->bytes + 12, 4);
	memcpy(&v6.sin6_addr, ip->bytes, 16);
	is_local = fd >= 0 && connect(fd, to, length) == 0 && getsockname(fd, to, &length) == 0;
	if (fd >= 0)
		close(fd);
	if (ip_is_v4(ip))
		memcpy(own.bytes + 12, &v4.sin_addr, 4);
	else
		memcpy(own.bytes, &v6.sin6_addr, 16);
	return is_local && ip_equal(&own, ip);
}

/* The kernel counts these memberships, so they are independent of other users', and ends them with
 * the socket. Protocol 0 means that the socket receives nothing. */
int interface_take_multicast(const char *name)
{
	struct packet_mreq membership = { .mr_type = PACKET_MR_ALLMULTI };
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	int err;

	if (fd < 0)
		return -errno;
	membership.mr_ifindex = (int)if_nametoindex(name);
	if (!setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &membership, sizeof(membership)))
		return fd;
	err = -errno;
	close(fd);
	return err;
}
