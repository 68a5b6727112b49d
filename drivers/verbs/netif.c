/* SPDX-License-Identifier: BSD-3-Clause */
/* The network interfaces of RDMA ports: properties that libibverbs does not report. */
#include "drivers/verbs/internal.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <unistd.h>

#include <linux/if_vlan.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

_Static_assert(IF_NAMESIZE == sizeof(((struct frl_device_info *)0)->interface), "a name fits");

static int netif_ioctl(unsigned long request, void *arg)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc;

	if (fd < 0)
		return -1;
	rc = ioctl(fd, request, arg);
	close(fd);
	return rc;
}

void netif_name(unsigned ifindex, char ret_name[16])
{
	if (!ifindex || !if_indextoname(ifindex, ret_name))
		ret_name[0] = '\0';
}

bool netif_mac(unsigned ifindex, uint8_t ret_mac[6])
{
	struct ifreq answer = { 0 };

	netif_name(ifindex, answer.ifr_name);
	if (!answer.ifr_name[0] || netif_ioctl(SIOCGIFHWADDR, &answer))
		return false;
	memcpy(ret_mac, answer.ifr_hwaddr.sa_data, 6);
	return true;
}

uint16_t netif_vlan(unsigned ifindex)
{
	struct vlan_ioctl_args args = { .cmd = GET_VLAN_VID_CMD };
	char name[IF_NAMESIZE];

	netif_name(ifindex, name);
	snprintf(args.device1, sizeof(args.device1), "%s", name);
	if (!name[0] || netif_ioctl(SIOCGIFVLAN, &args))
		return 0;
	return (uint16_t)args.u.VID;
}

static bool read_address(const struct sockaddr *from, struct frl_ip *ret_ip)
{
	if (from && from->sa_family == AF_INET) {
		struct sockaddr_in in;

		memcpy(&in, from, sizeof(in));
		*ret_ip = ip_from_v4((const uint8_t *)&in.sin_addr);
		return true;
	}
	if (from && from->sa_family == AF_INET6) {
		struct sockaddr_in6 in6;

		memcpy(&in6, from, sizeof(in6));
		memcpy(ret_ip->bytes, &in6.sin6_addr, sizeof(ret_ip->bytes));
		return true;
	}
	return false;
}

/* Counts leading one bits of an IPv4 mask, after the prefix of a mapped address. */
static int count_ones(const struct frl_ip *mask, unsigned first)
{
	int n = 0;

	for (unsigned i = first; i < sizeof(mask->bytes); i++)
		n += __builtin_popcount(mask->bytes[i]);
	return n;
}

int netif_prefix_len(const struct frl_ip *ip)
{
	struct ifaddrs *all;
	int len = -1;

	if (getifaddrs(&all))
		return -1;
	for (const struct ifaddrs *at = all; at && len < 0; at = at->ifa_next) {
		struct frl_ip own, mask;

		if (read_address(at->ifa_addr, &own) && ip_equal(&own, ip) &&
			read_address(at->ifa_netmask, &mask))
			len = count_ones(&mask, ip_is_v4(ip) ? 12 : 0);
	}
	freeifaddrs(all);
	return len;
}
