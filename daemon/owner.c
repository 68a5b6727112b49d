/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel is asked about one socket (sock_diag(7)). To look through /proc/net/tcp instead takes
 * milliseconds for each connection, which anybody on the machine can make as many of as he likes.
 */
#include "daemon/owner.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/listener.h"

struct request {
	struct nlmsghdr header;
	struct inet_diag_req_v2 diag;
};

struct answer {
	struct nlmsghdr header;
	struct inet_diag_msg diag;
};

/* Of an IPv4-mapped address the IPv4 address. */
static void unmap(struct sockaddr_storage *address)
{
	struct sockaddr_in6 from;
	struct sockaddr_in to = { .sin_family = AF_INET };

	if (address->ss_family != AF_INET6)
		return;
	memcpy(&from, address, sizeof(from));
	if (!IN6_IS_ADDR_V4MAPPED(&from.sin6_addr))
		return;
	to.sin_port = from.sin6_port;
	memcpy(&to.sin_addr, from.sin6_addr.s6_addr + 12, sizeof(to.sin_addr));
	memcpy(address, &to, sizeof(to));
}

static void describe(const struct sockaddr_storage *from, uint32_t *address, uint16_t *port)
{
	struct sockaddr_in6 v6;
	struct sockaddr_in v4;

	*port = htons(address_port(from));
	if (from->ss_family == AF_INET) {
		memcpy(&v4, from, sizeof(v4));
		memcpy(address, &v4.sin_addr, sizeof(v4.sin_addr));
	} else {
		memcpy(&v6, from, sizeof(v6));
		memcpy(address, &v6.sin6_addr, sizeof(v6.sin6_addr));
	}
}

/* Asks for the socket that is bound there, and connected to `remote`, or for NULL listens. */
static void fill_request(struct request *request, const struct sockaddr_storage *local,
	const struct sockaddr_storage *remote)
{
	struct inet_diag_sockid *id = &request->diag.id;

	memset(request, 0, sizeof(*request));
	request->header.nlmsg_len = sizeof(*request);
	request->header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
	request->header.nlmsg_flags = NLM_F_REQUEST;
	request->diag.sdiag_family = (uint8_t)local->ss_family;
	request->diag.sdiag_protocol = IPPROTO_TCP;
	request->diag.idiag_states = UINT32_MAX;
	id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	describe(local, id->idiag_src, &id->idiag_sport);
	if (remote)
		describe(remote, id->idiag_dst, &id->idiag_dport);
}

/* The kernel answers before the request has been sent. False: there is no such socket. */
static bool ask(const struct request *request, struct inet_diag_msg *ret)
{
	struct sockaddr_nl from = { 0 };
	socklen_t from_size = sizeof(from);
	struct answer answer = { 0 };
	ssize_t got = -1;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	if (fd < 0)
		return false;
	if (send(fd, request, sizeof(*request), 0) == sizeof(*request))
		got = recvfrom(fd, &answer, sizeof(answer), MSG_DONTWAIT | MSG_TRUNC,
			(struct sockaddr *)&from, &from_size);
	close(fd);
	*ret = answer.diag;
	return got >= (ssize_t)sizeof(answer) && from.nl_pid == 0 &&
		answer.header.nlmsg_type == SOCK_DIAG_BY_FAMILY;
}

bool owner_of_peer(int fd, bool dialled, uid_t *ret_uid)
{
	struct sockaddr_storage peer = { 0 }, own = { 0 };
	socklen_t peer_size = sizeof(peer), own_size = sizeof(own);
	struct inet_diag_msg found;
	struct request request;

	if (getpeername(fd, (struct sockaddr *)&peer, &peer_size) ||
		getsockname(fd, (struct sockaddr *)&own, &own_size))
		return false;
	unmap(&peer);
	unmap(&own);
	fill_request(&request, &peer, dialled ? NULL : &own);
	/* A socket without an inode is nobody's yet, or no more; it is shown as root's. */
	if (!ask(&request, &found) || found.idiag_inode == 0 ||
		found.idiag_state != (dialled ? TCP_LISTEN : TCP_ESTABLISHED))
		return false;
	*ret_uid = found.idiag_uid;
	return true;
}
