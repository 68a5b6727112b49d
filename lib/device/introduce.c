/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Introductions on the local fabric: a device that knows the address of another one of this machine
 * asks it for its nonce, and both open the link. The port carries the messages, in a thread of its
 * own, which takes the guard: the other device's application need not make any call.
 *
 * A path to a device without a link is a *search*. It asks again until the link is up: the other
 * device may be busy, may not have noticed yet that an earlier link is down, or may have ended.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/local/local.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/net/ip.h"
#include "lib/device/soft.h"

enum {
	NS_PER_MS = 1000000,
	/* A link comes up within a millisecond, if both processes have a processor. */
	AGAIN_NS = 2 * NS_PER_MS,    /* if the other device did not answer */
	REPEAT_NS = 100 * NS_PER_MS, /* if the link is not up, although it did */
	/* A link that is not up after this time is given up, and a search that nobody continued
	 * is forgotten. */
	LIMIT_MS = RESOLVE_MS,
};

struct fabric_search {
	struct list node;
	struct frl_ip ip;
	bool is_asked;    /* the port has not reported the answer yet */
	bool is_silent;   /* there was none in time, see fabric_set_silent() */
	int err;          /* why there is no link; 0: none */
	uint64_t next_ns; /* earliest time to ask again */
	uint64_t end_ns;  /* forgotten then */
};

static struct fabric_search *search_at(struct list *node)
{
	return container_of(node, struct fabric_search, node);
}

static void remove_search(struct fabric_search *search)
{
	list_remove(&search->node);
	free(search);
}

static struct fabric_search *find_search(struct soft_device *device, const struct frl_ip *ip)
{
	for (struct list *node = device->searches.next; node != &device->searches;
		node = node->next)
		if (ip_equal(&search_at(node)->ip, ip))
			return search_at(node);
	return NULL;
}

static void forget_old(struct soft_device *device, uint64_t now_ns)
{
	struct list *node = device->searches.next;

	while (node != &device->searches) {
		struct fabric_search *search = search_at(node);

		node = node->next;
		if (!search->is_asked && now_ns >= search->end_ns)
			remove_search(search);
	}
}

static struct fabric_search *add_search(struct soft_device *device, const struct frl_ip *ip)
{
	struct fabric_search *search = calloc(1, sizeof(*search));

	if (!search)
		return NULL;
	search->ip = *ip;
	list_add_tail(&device->searches, &search->node);
	return search;
}

static int fail_search(int err, const struct frl_ip *ip)
{
	switch (err) {
	case -ENOSPC:
		return frl_fail(err,
			"no link to the device %s: it, or this device, has as many as it can have",
			format_ip(ip));
	case -EPROTONOSUPPORT:
		return frl_fail(-EHOSTUNREACH,
			"the device %s is of another release of Ferrule: use the same one in all "
			"processes",
			format_ip(ip));
	default:
		return frl_fail(
			err, "no link to the device %s: %s", format_ip(ip), frl_strerror(err));
	}
}

int fabric_introduce(struct soft_device *device, const struct frl_ip *ip)
{
	uint64_t now_ns = clock_now_ns();
	struct fabric_search *search;
	int rc;

	if (!local_is_address(ip))
		return frl_fail(-EHOSTUNREACH,
			"%s is not an address of the local fabric, 169.254.0.0/16: use the GID of "
			"the peer's device, or open a network port",
			format_ip(ip));
	forget_old(device, now_ns);
	search = find_search(device, ip);
	if (!search)
		search = add_search(device, ip);
	if (!search)
		return frl_fail(-ENOMEM, "no memory for an introduction");
	if (search->is_asked || (!search->err && now_ns < search->next_ns))
		return -EAGAIN;
	rc = search->err;
	if (rc) {
		remove_search(search);
		return fail_search(rc, ip);
	}
	rc = device->port->ops->introduce(device->port, ip);
	search->is_asked = !rc;
	search->next_ns = now_ns + AGAIN_NS;
	search->end_ns = now_ns + (uint64_t)LIMIT_MS * NS_PER_MS;
	if (!rc || rc == -EAGAIN)
		return -EAGAIN;
	remove_search(search);
	return rc;
}

void fabric_set_silent(struct soft_device *device, const struct frl_ip *ip)
{
	struct fabric_search *search = find_search(device, ip);

	if (search)
		search->is_silent = search->is_asked;
}

bool fabric_is_silent(struct soft_device *device, const struct frl_ip *ip)
{
	const struct fabric_search *search = find_search(device, ip);

	return search && search->is_silent;
}

/* Opens the link to a device that was introduced. Returns its number. -EAGAIN: not at the moment.
 */
static int open_link(struct soft_device *device, const struct port_identity *peer)
{
	struct soft_link *link;
	int rc = fabric_open_link(device, peer, (uint64_t)LIMIT_MS * NS_PER_MS, &link);

	if (rc)
		return rc == -EADDRINUSE ? -EAGAIN : rc;
	/* An address has one device at a time: earlier links there are about to go down. */
	for (unsigned i = 0; i < device->n_links; i++)
		if (ip_equal(&device->links[i].peer_ip, &peer->ip))
			device->links[i].is_replaced = &device->links[i] != link;
	return link->link;
}

static int accept_peer(void *arg, const struct port_identity *peer)
{
	struct soft_device *device = arg;
	int rc = open_link(device, peer);

	/* Removing dead links has failed their queue pairs. */
	device_report(&device->base);
	return rc;
}

static void take_answer(
	void *arg, const struct frl_ip *ip, const struct port_identity *peer, int err)
{
	struct soft_device *device = arg;
	struct fabric_search *search = find_search(device, ip);

	if (peer)
		err = open_link(device, peer);
	search->is_asked = search->is_silent = false;
	if (err >= 0)
		search->next_ns = clock_now_ns() + REPEAT_NS;
	else if (err != -EAGAIN)
		search->err = err;
	device_report(&device->base);
}

int fabric_start(struct soft_device *device)
{
	struct port_introductions introductions = {
		.own.ip = device->base.attr.ip,
		.listener = device->listen_fd,
		.accept = accept_peer,
		.answered = take_answer,
		.arg = device,
	};
	int rc;

	memcpy(introductions.own.mac, device->base.attr.mac, sizeof(introductions.own.mac));
	memcpy(introductions.own.nonce, device->base.nonce, sizeof(introductions.own.nonce));
	device_enter(&device->base);
	rc = device->port->ops->introductions_open(device->port, &introductions);
	if (!rc)
		device->listen_fd = -1;
	device_leave(&device->base);
	return rc;
}

void fabric_stop(struct soft_device *device)
{
	device->port->ops->introductions_close(device->port);
	while (!list_empty(&device->searches))
		remove_search(search_at(device->searches.next));
}
