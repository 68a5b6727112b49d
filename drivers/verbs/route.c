/* SPDX-License-Identifier: BSD-3-Clause */
/* Queries the kernel's route to a peer by rtnetlink, like `ip route get`. */
#include "drivers/verbs/internal.h"

#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "lib/base/error.h"
#include "lib/base/net/ip.h"

enum { MAX_ANSWER = 8192 };

enum { SEQUENCE = 1 };

/* The attributes are contiguous: the interface, if any, then the address. */
struct question {
	struct nlmsghdr header;
	struct rtmsg route;
	uint8_t attributes[RTA_SPACE(4) + RTA_SPACE(16)];
};

/* An address, and the interface of a link-local one, or 0. */
struct host {
	struct frl_ip ip;
	uint32_t scope;
};

static void add_attribute(struct question *to, unsigned short type, const void *value, size_t len)
{
	const struct rtattr attr = { .rta_type = type, .rta_len = (unsigned short)RTA_LENGTH(len) };
	uint8_t *at = (uint8_t *)to + to->header.nlmsg_len;

	memcpy(at, &attr, sizeof(attr));
	memcpy(at + RTA_LENGTH(0), value, len);
	to->header.nlmsg_len += (uint32_t)RTA_SPACE(len);
}

static size_t fill_question(const struct host *peer, struct question *ret)
{
	bool is_v4 = ip_is_v4(&peer->ip);
	size_t len = is_v4 ? 4 : 16;

	*ret = (struct question){
		.header = { .nlmsg_len = offsetof(struct question, attributes),
			.nlmsg_type = RTM_GETROUTE,
			.nlmsg_flags = NLM_F_REQUEST,
			.nlmsg_seq = SEQUENCE },
		.route = { .rtm_family = is_v4 ? AF_INET : AF_INET6,
			.rtm_dst_len = (unsigned char)(len * 8) },
	};
	if (peer->scope)
		add_attribute(ret, RTA_OIF, &peer->scope, sizeof(peer->scope));
	add_attribute(ret, RTA_DST, peer->ip.bytes + 16 - len, len);
	return ret->header.nlmsg_len;
}

static void take_attribute(
	const struct rtattr *attr, const uint8_t *data, size_t len, struct verbs_route *route)
{
	uint32_t index;

	if (attr->rta_type == RTA_OIF && len == sizeof(index)) {
		memcpy(&index, data, sizeof(index));
		route->ifindex = index;
	} else if (attr->rta_type == RTA_PREFSRC && len == 4) {
		route->source = ip_from_v4(data);
		route->has_source = true;
	} else if (attr->rta_type == RTA_PREFSRC && len == sizeof(route->source.bytes)) {
		memcpy(route->source.bytes, data, len);
		route->has_source = true;
	}
}

/* Returns 0 or an errno. */
static int read_answer(const uint8_t *answer, size_t size, struct verbs_route *route)
{
	size_t at = NLMSG_ALIGN(sizeof(struct nlmsghdr)) + NLMSG_ALIGN(sizeof(struct rtmsg));
	struct nlmsghdr header;
	int32_t error;

	if (size < sizeof(header) + sizeof(error))
		return EPROTO;
	memcpy(&header, answer, sizeof(header));
	if (header.nlmsg_seq != SEQUENCE)
		return EPROTO;
	if (header.nlmsg_type == NLMSG_ERROR) {
		memcpy(&error, answer + NLMSG_HDRLEN, sizeof(error));
		return error ? -error : EPROTO;
	}
	if (header.nlmsg_type != RTM_NEWROUTE || header.nlmsg_len > size)
		return EPROTO;
	while (at + sizeof(struct rtattr) <= header.nlmsg_len) {
		struct rtattr attr;

		memcpy(&attr, answer + at, sizeof(attr));
		if (attr.rta_len < sizeof(attr) || attr.rta_len > header.nlmsg_len - at)
			return EPROTO;
		take_attribute(
			&attr, answer + at + RTA_LENGTH(0), attr.rta_len - RTA_LENGTH(0), route);
		at += RTA_ALIGN(attr.rta_len);
	}
	return route->ifindex ? 0 : ENETUNREACH;
}

/* Returns 0 or an errno. */
static int query_kernel(const struct host *peer, struct verbs_route *ret_route)
{
	struct verbs_route route = { .peer = peer->ip };
	uint8_t answer[MAX_ANSWER];
	struct question question;
	size_t size = fill_question(peer, &question);
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	int err = errno;
	ssize_t n = -1;

	if (fd < 0)
		return err;
	if (send(fd, &question, size, 0) == (ssize_t)size)
		n = recv(fd, answer, sizeof(answer), 0);
	err = n < 0 ? errno : read_answer(answer, (size_t)n, &route);
	close(fd);
	if (!err)
		*ret_route = route;
	return err;
}

static bool take_address(const struct addrinfo *info, struct host *ret)
{
	*ret = (struct host){ 0 };
	if (info->ai_family == AF_INET) {
		struct sockaddr_in in;

		memcpy(&in, info->ai_addr, sizeof(in));
		ret->ip = ip_from_v4((const uint8_t *)&in.sin_addr);
		return true;
	}
	if (info->ai_family == AF_INET6) {
		struct sockaddr_in6 in6;

		memcpy(&in6, info->ai_addr, sizeof(in6));
		memcpy(ret->ip.bytes, &in6.sin6_addr, sizeof(ret->ip.bytes));
		ret->scope = in6.sin6_scope_id;
		return true;
	}
	return false;
}

int verbs_find_route(const char *peer, struct verbs_route *ret_route)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_DGRAM };
	struct addrinfo *found;
	int err = EHOSTUNREACH;
	int rc = getaddrinfo(peer, NULL, &hints, &found);

	if (rc)
		return frl_fail(-EINVAL, "peer '%s' is no IP address, nor the name of a host: %s",
			peer, gai_strerror(rc));
	for (const struct addrinfo *at = found; at && err; at = at->ai_next) {
		struct host host;

		if (take_address(at, &host))
			err = query_kernel(&host, ret_route);
	}
	freeaddrinfo(found);
	if (err)
		return frl_fail(-EHOSTUNREACH, "the kernel has no route to the peer '%s': %s", peer,
			frl_strerror(err));
	return 0;
}
