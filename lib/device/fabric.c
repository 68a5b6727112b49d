/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The local fabric: each device of the machine has an address in 169.254.0.0/16. Two devices that
 * connect get a link of shared memory on demand. The name and secret of the link come from random
 * numbers that the ends exchange when they connect.
 *
 * A link outlives its last queue pair, for the next one, until its peer is gone.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/net/ip.h"
#include "lib/base/random.h"
#include "lib/device/soft.h"

enum {
	ADDRESSES = 254 * 256, /* 169.254.1.0 to 169.254.254.255, RFC 3927 */
	CLAIM_TRIES = 4096,
};

static int claim(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	size_t len = strlen(name);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int err;

	if (fd < 0)
		return frl_fail(errno, "cannot make a socket: %s", frl_strerror(errno));
	/* Nothing can be sent to the socket. Descriptors sent to it would stay open in its queue.
	 */
	shutdown(fd, SHUT_RD);
	/* A name in the abstract namespace: no file; released with the last descriptor. */
	memcpy(address.sun_path + 1, name, len);
	if (bind(fd, (struct sockaddr *)&address,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)) == 0)
		return fd;
	err = errno;
	close(fd);
	return frl_fail(err, "cannot claim the address %s: %s", name, frl_strerror(err));
}

int fabric_claim_address(struct frl_ip *ret_ip, uint8_t ret_mac[6])
{
	uint32_t start = (uint32_t)(random_entropy() % ADDRESSES);

	for (uint32_t i = 0; i < CLAIM_TRIES; i++) {
		uint32_t host = 256 + (start + i) % ADDRESSES;
		uint8_t v4[4] = { 169, 254, (uint8_t)(host >> 8), (uint8_t)host };
		uint8_t mac[6] = { 0x02, 0x00, v4[0], v4[1], v4[2], v4[3] };
		char name[64];
		int fd;

		snprintf(name, sizeof(name), "ferrule/%u.%u.%u.%u", v4[0], v4[1], v4[2], v4[3]);
		fd = claim(name);
		if (fd == -EADDRINUSE)
			continue;
		if (fd >= 0) {
			*ret_ip = ip_from_v4(v4);
			memcpy(ret_mac, mac, sizeof(mac));
		}
		return fd;
	}
	return frl_fail(-EADDRINUSE, "no free address in 169.254.0.0/16: %d tried", CLAIM_TRIES);
}

static void hex(char *out, const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* Computes the same name and secret at both ends. The end with the lower address comes first and
 * is the server. */
static void describe_link(struct port_link_request *request, const struct soft_device *device,
	const struct frl_ip *peer_ip, const uint8_t peer_nonce[NONCE_SIZE])
{
	bool server = memcmp(&device->base.attr.ip, peer_ip, sizeof(*peer_ip)) < 0;
	const uint8_t *first = server ? device->base.nonce : peer_nonce;
	const uint8_t *second = server ? peer_nonce : device->base.nonce;
	uint8_t secret[11];
	char a[17], b[17];

	hex(a, first, 8);
	hex(b, second, 8);
	snprintf(request->name, sizeof(request->name), "ferrule/%s-%s", a, b);
	for (size_t i = 0; i < 4; i++) {
		secret[i] = first[8 + i];
		secret[4 + i] = second[8 + i];
	}
	for (size_t i = 8; i < sizeof(secret); i++)
		secret[i] = first[4 + i] ^ second[4 + i];
	hex(request->secret, secret, sizeof(secret));
	request->server = server;
}

static void remove_link(struct soft_device *device, unsigned index)
{
	uint16_t link = device->links[index].link;

	/* Engine first: the link number may be reused at once. */
	engine_drop_link(&device->engine, link);
	device->port->ops->link_close(device->port, link);
	device->links[index] = device->links[--device->n_links];
}

static bool is_dead(const struct soft_device *device, const struct fabric_link *known)
{
	return device->port->ops->link_state(device->port, known->link) == PORT_LINK_DOWN;
}

/* Closes links with dead peers to make room. A link with holders stays, so that its number is not
 * reused under them. */
static void remove_dead_links(struct soft_device *device)
{
	for (unsigned i = 0; i < device->n_links;) {
		if (!device->links[i].holders && is_dead(device, &device->links[i]))
			remove_link(device, i);
		else
			i++;
	}
}

int soft_link_open(struct frl_device *base, const struct frl_ip *peer_ip, const uint8_t peer_mac[6],
	const uint8_t peer_nonce[NONCE_SIZE])
{
	struct soft_device *device = soft_device(base);
	const struct port_ops *ops = device->port->ops;
	struct port_link_request request = { 0 };
	struct fabric_link *known;
	int link;

	remove_dead_links(device);
	for (unsigned i = 0; i < device->n_links; i++) {
		known = &device->links[i];
		if (memcmp(known->peer_nonce, peer_nonce, NONCE_SIZE) != 0)
			continue;
		/* Its holders have not noticed yet. */
		if (is_dead(device, known))
			return frl_fail(-EADDRINUSE, "the old link to the peer is not gone yet");
		known->holders++;
		return known->link;
	}
	describe_link(&request, device, peer_ip, peer_nonce);
	memcpy(request.peer_mac, peer_mac, sizeof(request.peer_mac));
	link = ops->link_open(device->port, &request);
	if (link < 0)
		return link;
	known = &device->links[device->n_links++];
	*known = (struct fabric_link){
		.peer_ip = *peer_ip,
		.link = (uint16_t)link,
		.holders = 1,
	};
	memcpy(known->peer_nonce, peer_nonce, NONCE_SIZE);
	memcpy(known->peer_mac, peer_mac, sizeof(known->peer_mac));
	engine_set_peer(&device->engine, (uint16_t)link, peer_ip, peer_mac);
	return link;
}

int soft_link_state(struct frl_device *base, uint16_t link)
{
	struct port *port = soft_device(base)->port;

	/* The peer's end, if in this process, may wait for the slot of a link that died since ours
	 * was opened. */
	remove_dead_links(soft_device(base));
	switch (port->ops->link_state(port, link)) {
	case PORT_LINK_CONNECTING: return -EAGAIN;
	case PORT_LINK_UP: return 0;
	case PORT_LINK_CLOSED:
	case PORT_LINK_DOWN: break;
	}
	return -ECONNRESET;
}

void soft_link_release(struct frl_device *base, uint16_t link, bool failed)
{
	struct soft_device *device = soft_device(base);

	for (unsigned i = 0; i < device->n_links; i++) {
		struct fabric_link *known = &device->links[i];

		if (known->link != link)
			continue;
		known->holders--;
		if (failed && !known->holders && !engine_link_used(&device->engine, link))
			remove_link(device, i);
		return;
	}
}

/* Returns the link with the caller's number, or the link to the device with the GID. */
static const struct fabric_link *find_link(
	const struct soft_device *device, const struct frl_ah_attr *attr, bool is_chosen)
{
	for (unsigned i = 0; i < device->n_links; i++) {
		const struct fabric_link *known = &device->links[i];
		struct frl_ip link_local = gid_link_local(known->peer_mac);

		if (is_chosen ? known->link == attr->link
			      : ip_equal(&attr->dgid, &known->peer_ip) ||
					ip_equal(&attr->dgid, &link_local))
			return known;
	}
	return NULL;
}

int fabric_find_route(const struct soft_device *device, struct frl_ah_attr *attr)
{
	static const uint8_t no_mac[6];
	/* The caller chooses the link of a multicast group. */
	bool is_chosen = !mac_equal(attr->dmac, no_mac) || ip_is_multicast(&attr->dgid);
	const struct fabric_link *known;

	/* Its own addresses need no link. */
	if (gid_find(&device->engine.gids, &attr->dgid, 0) >= 0)
		return 0;
	known = find_link(device, attr, is_chosen);
	if (is_chosen)
		return 0;
	if (!known)
		return frl_fail(-EHOSTUNREACH,
			"no link to %s: on the local fabric, connect a queue pair to that "
			"device first",
			format_ip(&attr->dgid));
	attr->link = known->link;
	memcpy(attr->dmac, known->peer_mac, sizeof(attr->dmac));
	return 0;
}

int soft_find_route(struct frl_device *base, struct frl_ah_attr *attr, const uint8_t mac[6])
{
	struct frl_ip hop;

	if (!neighbors_next_hop(
		    &soft_device(base)->engine.neighbors, attr->sgid_index, &attr->dgid, &hop))
		return frl_fail(-EHOSTUNREACH,
			"%s is not in the subnet of this port and there is no gateway: check the "
			"addresses and prefix lengths, or give a gateway",
			format_ip(&attr->dgid));
	if (ip_equal(&hop, &attr->dgid))
		memcpy(attr->dmac, mac, sizeof(attr->dmac));
	return 0;
}
