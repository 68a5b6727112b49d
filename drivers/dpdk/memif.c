/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links over DPDK's memif, for peers that have no rings of our own.
 *
 * The server's memifs all listen on one socket of the process, which an "anchor" vdev keeps open
 * for good: the PMD frees a socket with its last vdev without unregistering its interrupt callback,
 * and a client that came late would then run into freed memory. Clients reach it through a relay of
 * their link (relay.c). Ids are never used twice.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <rte_dev.h>

#include "drivers/dpdk/fabric.h"
#include "lib/base/error.h"

#define PREFIX "ferrule-memif/"

enum { LOG2_RING = 8 };

/* Of this process, under the gate's mutex. */
static struct {
	bool anchored;
	char socket[64];
	char secret[24];
	uint32_t next_id;
	uint32_t next_vdev;
} host;

static int random_text(char *text, size_t size)
{
	uint8_t bytes[32];

	if (size > sizeof(bytes) || getrandom(bytes, size, 0) != (ssize_t)size)
		return -EIO;
	for (size_t i = 0; i + 1 < size; i++)
		text[i] = "abcdefghijklmnopqrstuvwxyz012345"[bytes[i] & 31];
	text[size - 1] = '\0';
	return 0;
}

/* The vdev that keeps the process's memif socket; never started, so nobody can connect to it. */
static int anchor(void)
{
	char tail[13], args[256];
	int err;

	if (host.anchored)
		return 0;
	if (random_text(host.secret, sizeof(host.secret)) || random_text(tail, sizeof(tail)))
		return -EIO;
	snprintf(host.socket, sizeof(host.socket), PREFIX "%ld-%s", (long)getpid(), tail);
	snprintf(args, sizeof(args), "role=server,id=0,socket=%s,socket-abstract=yes,secret=%s",
		host.socket, host.secret);
	err = rte_eal_hotplug_add("vdev", "net_memif_ferrule_anchor", args);
	host.anchored = err == 0;
	return err;
}

static void vdev_name(const struct fabric_link *link, char name[static 32])
{
	snprintf(name, 32, "net_memif_ferrule%u", link->vdev_number);
}

/* A memif buffer holds the longest frame of the client, whose settings rule the memif. */
static uint32_t buffer_size(const struct dpdk_port *port)
{
	return RTE_ALIGN_CEIL(port->base.caps.max_frame, 64u);
}

static int start_memif(struct fabric_link *link, const struct meet_answer *answer)
{
	char name[32], args[320];
	int err;

	link->vdev_number = host.next_vdev++;
	vdev_name(link, name);
	snprintf(args, sizeof(args),
		"role=%s,id=%u,socket=%s,socket-abstract=yes,secret=%s,bsize=%u,rsize=%d",
		link->request.server ? "server" : "client", answer->memif_id, answer->memif_socket,
		answer->memif_secret, buffer_size(link->port), LOG2_RING);
	log_clear_error();
	err = rte_eal_hotplug_add("vdev", name, args);
	if (err)
		goto err_say;
	err = rte_eth_dev_get_port_by_name(name, &link->ethdev);
	if (err)
		goto err_uninit;
	err = ethdev_queues(link->port, link->ethdev, 1 << LOG2_RING, 1 << LOG2_RING, 0);
	if (err)
		goto err_uninit;
	return 0;

err_uninit:
	link->ethdev = NO_ETHDEV;
	rte_eal_hotplug_remove("vdev", name);
err_say:
	frl_log(FRL_LOG_ERROR, "the memif %s cannot be made: %s", name, log_error());
	return err;
}

static int offer(struct fabric_link *link, struct meet_answer *answer, int *ret_passed)
{
	int err;

	if (anchor())
		return -EAGAIN;
	answer->memif_id = ++host.next_id;
	memcpy(answer->memif_secret, host.secret, sizeof(host.secret));
	memcpy(answer->memif_socket, host.socket, sizeof(host.socket));
	err = start_memif(link, answer);
	if (err)
		return err;
	/* The client's way to it. */
	snprintf(answer->memif_socket, sizeof(answer->memif_socket), "%.48s-%u", host.socket,
		answer->memif_id);
	return relay_listen(&link->relay, answer->memif_socket) ? -EAGAIN : 0;
}

/* Letters, digits and dashes alone: both become values of the vdev's arguments, which the peer must
 * not add to, and sockets of others are not to be tried. */
static bool is_word(const char *text)
{
	for (const char *c = text; *c; c++)
		if (!(*c >= 'a' && *c <= 'z') && !(*c >= '0' && *c <= '9') && *c != '-')
			return false;
	return *text;
}

static int take_up(struct fabric_link *link, const struct meet_answer *answer, int passed)
{
	struct meet_answer terminated = *answer;
	size_t prefix = strlen(PREFIX);

	terminated.memif_secret[sizeof(terminated.memif_secret) - 1] = '\0';
	terminated.memif_socket[sizeof(terminated.memif_socket) - 1] = '\0';
	/* The peer is not one of ours: the next one may be better. */
	if (strncmp(terminated.memif_socket, PREFIX, prefix) != 0 ||
		!is_word(terminated.memif_socket + prefix) || !is_word(terminated.memif_secret))
		return -EAGAIN;
	return start_memif(link, &terminated);
}

static int step(struct fabric_link *link, struct fabric_pass *pass)
{
	return link->request.server ? relay_step(&link->relay, host.socket) : 0;
}

static bool is_up(const struct fabric_link *link)
{
	struct rte_eth_link status;

	return link->ethdev != NO_ETHDEV && rte_eth_link_get_nowait(link->ethdev, &status) == 0 &&
		status.link_status == RTE_ETH_LINK_UP;
}

static void show(struct fabric_link *link, struct burst_link *seen)
{
	seen->ethdev = link->ethdev;
	seen->batch = PORT_BURST;
}

static bool stop(struct fabric_link *link, struct fabric_pass *pass)
{
	char name[32];

	if (!relay_close(&link->relay)) {
		pass->shaking = true;
		return false;
	}
	if (link->ethdev == NO_ETHDEV)
		return true;
	vdev_name(link, name);
	rte_eth_dev_stop(link->ethdev);
	if (rte_eal_hotplug_remove("vdev", name))
		frl_log(FRL_LOG_ERROR, "the memif %s cannot be removed", name);
	link->ethdev = NO_ETHDEV;
	pass->stopped = true;
	return true;
}

/* Appends a frame; false when there is no memory. */
static bool save(struct burst_stash **stash, size_t *size, const struct rte_mbuf *mbuf)
{
	uint16_t len = rte_pktmbuf_data_len(mbuf);
	size_t at = *stash ? (*stash)->len : 0;

	if (at + sizeof(len) + len > *size) {
		size_t larger = 2 * *size + 2 * UINT16_MAX;
		struct burst_stash *moved = realloc(*stash, sizeof(**stash) + larger);

		if (!moved)
			return false;
		if (!*stash)
			moved->at = 0;
		*stash = moved;
		*size = larger;
	}
	memcpy((*stash)->bytes + at, &len, sizeof(len));
	memcpy((*stash)->bytes + at + sizeof(len), rte_pktmbuf_mtod(mbuf, const uint8_t *), len);
	(*stash)->len = at + sizeof(len) + len;
	return true;
}

/* Puts a stash of what is in the ring in place of the memif. */
static void drain(struct fabric_link *link, struct burst_link *seen)
{
	struct dpdk_port *port = link->port;
	struct rte_mbuf *mbufs[PORT_BURST];
	size_t size = 0;
	uint16_t n;

	/* A peer that sends on and on gets no more than a ring of it through. */
	for (unsigned left = 1 << LOG2_RING; left; left -= n) {
		n = rte_eth_rx_burst(link->ethdev, 0, mbufs, RTE_MIN(left, (unsigned)PORT_BURST));
		for (uint16_t i = 0; i < n; i++) {
			if (mbufs[i]->nb_segs != 1 || !save(&seen->stash, &size, mbufs[i]))
				port->dropped.rx_dropped++;
			rte_pktmbuf_free(mbufs[i]);
		}
		if (n == 0)
			break;
	}
	seen->ethdev = NO_ETHDEV;
	seen->drained = !seen->stash;
}

const struct carrier memif_carrier = {
	.name = "memif",
	.offer = offer,
	.take_up = take_up,
	.step = step,
	.is_up = is_up,
	.show = show,
	.drain = drain,
	.stop = stop,
};
