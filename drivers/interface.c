/* SPDX-License-Identifier: BSD-3-Clause */
/* Facts about a kernel interface, asked before a driver fails on it without saying why. */
#include "drivers/interface.h"

#include <errno.h>
#include <linux/if_packet.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/error.h"

static int ask(const char *name, unsigned long request, struct ifreq *ret_answer)
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
	int err = ask(name, SIOCGIFMTU, &answer);

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

	return ask(name, SIOCGIFFLAGS, &answer) == 0 && (answer.ifr_flags & IFF_UP) &&
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
			"%s has MTU %u; packets of %u bytes of payload and %d of headers need %u: "
			"`ip link set dev %s mtu %u`",
			name, mtu, max_payload, MTU_OVERHEAD, need, name, need);
	return frl_fail(-EMSGSIZE,
		"%s has MTU %u; packets of %u bytes of payload and %d of headers need %u: "
		"`ip link set dev %s mtu %u`, or set a path MTU of %u",
		name, mtu, max_payload, MTU_OVERHEAD, need, name, need, fits);
}

int interface_check_raw_socket(const char *name)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	int err = errno;

	if (fd >= 0) {
		close(fd);
		return 0;
	}
	if (err == EPERM || err == EACCES)
		return frl_fail(-EPERM,
			"%s: raw packets need the capability CAP_NET_RAW: run as root, or "
			"`setcap cap_net_raw+ep` the program, or use the local fabric",
			name);
	return frl_fail(err, "%s: cannot open a packet socket: %s", name, frl_strerror(err));
}

/* The kernel counts such wishes, so they do not disturb those of others, and ends them with the
 * socket. Of protocol 0: nothing is received on it. */
int interface_take_multicast(const char *name)
{
	struct packet_mreq wish = { .mr_type = PACKET_MR_ALLMULTI };
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	int err;

	if (fd < 0)
		return -errno;
	wish.mr_ifindex = (int)if_nametoindex(name);
	if (!setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &wish, sizeof(wish)))
		return fd;
	err = -errno;
	close(fd);
	return err;
}
