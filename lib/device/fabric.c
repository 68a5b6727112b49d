/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The local fabric: each device of the machine has an address in 169.254.0.0/16. Two devices that
 * connect get a link of shared memory on demand. The name and secret of the link come from random
 * numbers (nonces) of both ends. The caller has that of the peer (soft_link_open()), or the devices
 * exchange them when one of them needs a path to the other's address (introduce.c).
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

#include "drivers/local/local.h"
#include "lib/base/error.h"
#include "lib/base/net/ip.h"
#include "lib/base/random.h"
#include "lib/device/soft.h"

_Static_assert((int)PORT_NONCE_SIZE == (int)NONCE_SIZE, "the nonce of a device");

enum {
	ADDRESSES = 254 * 256, /* 169.254.1.0 to 169.254.254.255, RFC 3927 */
	CLAIM_TRIES = 4096,
};

int fabric_claim_name(const char *name)
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
	return frl_fail(err, "cannot claim the name %s: %s", name, frl_strerror(err));
}

/* Takes the address, if no other device has it. Both names of a device are needed. */
static int take_address(struct soft_device *device, const struct frl_ip *ip)
{
	char name[64];
	int fd, listener;

	snprintf(name, sizeof(name), "ferrule/%s", format_ip(ip));
	fd = fabric_claim_name(name);
	if (fd < 0)
		return fd;
	listener = local_listen(ip);
	if (listener < 0) {
		close(fd);
		return listener == -EADDRINUSE
			? listener
			: frl_fail(listener, "cannot listen at the address %s: %s", format_ip(ip),
				  frl_strerror(listener));
	}
	device->claim_fd = fd;
	device->listen_fd = listener;
	return 0;
}

int fabric_claim_address(struct soft_device *device, struct frl_ip *ret_ip, uint8_t ret_mac[6])
{
	uint32_t start = (uint32_t)(random_entropy() % ADDRESSES);

	for (uint32_t i = 0; i < CLAIM_TRIES; i++) {
		uint32_t host = 256 + (start + i) % ADDRESSES;
		uint8_t v4[4] = { 169, 254, (uint8_t)(host >> 8), (uint8_t)host };
		struct frl_ip ip = ip_from_v4(v4);
		int rc = take_address(device, &ip);

		if (rc == -EADDRINUSE)
			continue;
		if (!rc) {
			*ret_ip = ip;
			local_mac(&ip, ret_mac);
		}
		return rc;
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

static bool is_dead(const struct soft_device *device, const struct soft_link *known)
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

static struct soft_link *find_by_nonce(
	struct soft_device *device, const uint8_t peer_nonce[NONCE_SIZE])
{
	for (unsigned i = 0; i < device->n_links; i++)
		if (memcmp(device->links[i].peer_nonce, peer_nonce, NONCE_SIZE) == 0)
			return &device->links[i];
	return NULL;
}

int fabric_open_link(struct soft_device *device, const struct port_identity *peer,
	uint64_t limit_ns, struct soft_link **ret_link)
{
	struct port_link_request request = { .limit_ns = limit_ns };
	struct soft_link *known;
	int link;

	remove_dead_links(device);
	known = find_by_nonce(device, peer->nonce);
	if (known) {
		/* Its holders have not noticed yet. */
		if (is_dead(device, known))
			return frl_fail(-EADDRINUSE, "the old link to the peer is not gone yet");
		/* An introduction has made it, and the peer of this caller may come later. */
		if (!limit_ns)
			device->port->ops->link_keep(device->port, known->link);
		*ret_link = known;
		return 0;
	}
	describe_link(&request, device, &peer->ip, peer->nonce);
	memcpy(request.peer_mac, peer->mac, sizeof(request.peer_mac));
	link = device->port->ops->link_open(device->port, &request);
	if (link < 0)
		return link;
	known = &device->links[device->n_links++];
	*known = (struct soft_link){ .peer_ip = peer->ip, .link = (uint16_t)link };
	memcpy(known->peer_nonce, peer->nonce, NONCE_SIZE);
	memcpy(known->peer_mac, peer->mac, sizeof(known->peer_mac));
	engine_set_peer(&device->engine, (uint16_t)link, &peer->ip, peer->mac);
	*ret_link = known;
	return 0;
}

int soft_link_open(struct frl_device *base, const struct frl_ip *peer_ip, const uint8_t peer_mac[6],
	const uint8_t peer_nonce[NONCE_SIZE])
{
	struct port_identity peer = { .ip = *peer_ip };
	struct soft_link *link;
	int rc;

	memcpy(peer.mac, peer_mac, sizeof(peer.mac));
	memcpy(peer.nonce, peer_nonce, sizeof(peer.nonce));
	rc = fabric_open_link(soft_device(base), &peer, 0, &link);
	if (rc)
		return rc;
	link->holders++;
	return link->link;
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

static bool is_up(const struct soft_device *device, uint16_t link)
{
	return device->port->ops->link_state(device->port, link) == PORT_LINK_UP;
}

/* A link that is up stays, since the peer may use it for its other connections. */
void soft_link_release(struct frl_device *base, uint16_t link, bool failed)
{
	struct soft_device *device = soft_device(base);

	for (unsigned i = 0; i < device->n_links; i++) {
		struct soft_link *known = &device->links[i];

		if (known->link != link)
			continue;
		known->holders--;
		if (failed && !known->holders && !is_up(device, link) &&
			!engine_link_used(&device->engine, link))
			remove_link(device, i);
		return;
	}
}

/* Returns a link to the device with the address that is up, or NULL. */
static const struct soft_link *find_link(const struct soft_device *device, const struct frl_ip *ip)
{
	for (unsigned i = 0; i < device->n_links; i++) {
		const struct soft_link *known = &device->links[i];

		if (ip_equal(ip, &known->peer_ip) && !known->is_replaced &&
			is_up(device, known->link))
			return known;
	}
	return NULL;
}

/* Returns the main address of the device with the GID, which may be its link-local address; or the
 * GID itself. */
static struct frl_ip main_address(const struct frl_ip *gid)
{
	const uint8_t *eui = gid->bytes + 8;
	uint8_t mac[6] = { eui[0] ^ 0x02, eui[1], eui[2], eui[5], eui[6], eui[7] }, wanted[6];
	struct frl_ip ip = ip_from_v4(mac + 2), link_local = gid_link_local(mac);

	local_mac(&ip, wanted);
	return ip_equal(gid, &link_local) && mac_equal(mac, wanted) ? ip : *gid;
}

bool fabric_names_link(const struct frl_ah_attr *attr)
{
	static const uint8_t no_mac[6];

	return !mac_equal(attr->dmac, no_mac);
}

int fabric_find_device(
	struct soft_device *device, const struct frl_ip *ip, const struct soft_link **ret_link)
{
	const struct soft_link *known = find_link(device, ip);

	if (!known)
		return fabric_introduce(device, ip);
	*ret_link = known;
	return 0;
}

int fabric_find_route(struct soft_device *device, struct frl_ah_attr *attr)
{
	const struct soft_link *known = NULL;
	struct frl_ip ip;
	int rc;

	/* Its own addresses need no link. The caller may choose the link. Multicast goes to all
	 * links otherwise. */
	if (gid_find(&device->engine.gids, &attr->dgid, 0) >= 0 || fabric_names_link(attr) ||
		ip_is_multicast(&attr->dgid))
		return 0;
	ip = main_address(&attr->dgid);
	rc = fabric_find_device(device, &ip, &known);
	if (rc)
		return rc;
	attr->link = known->link;
	memcpy(attr->dmac, known->peer_mac, sizeof(attr->dmac));
	return 0;
}

int fabric_find_capabilities(
	const struct soft_device *device, const struct frl_ah_attr *attr, uint32_t *ret)
{
	const struct port_ops *ops = device->port->ops;

	*ret = device->base.capabilities;
	if (gid_find(&device->engine.gids, &attr->dgid, 0) >= 0 || attr->link >= PORT_MAX_LINKS)
		return 0;
	if (ops->link_state(device->port, attr->link) == PORT_LINK_CONNECTING)
		return -EAGAIN;
	*ret = ops->link_features(device->port, attr->link);
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
