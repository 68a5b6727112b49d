/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of one local link, a step at a time.
 *
 * The server's memifs all listen on one socket of the process, which an "anchor" vdev keeps open
 * for good: the PMD frees a socket with its last vdev without unregistering its interrupt callback,
 * and a client that came late would then run into freed memory. Clients reach it through a relay of
 * their link (relay.c). Ids are never used twice.
 */
#include "drivers/dpdk/fabric.h"
#include "drivers/dpdk/in_place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_errno.h>

#include "lib/base/error.h"

enum {
	MAGIC = 0x46524c32, /* "FRL2" */
	LOG2_RING = 8,
	ASK_NS = 1000 * 1000 * 1000,
	SHAKE_NS = 2000 * 1000 * 1000,
	RETRY_NS = 1000 * 1000,
	RETRY_AFTER_FAILURE_NS = 50 * 1000 * 1000,
	LEAVE_NS = 100 * 1000 * 1000,
};

/* Of this process, under the gate's mutex. */
static struct {
	bool anchored;
	char socket[64];
	char secret[24];
	uint32_t next_id;
	uint32_t next_vdev;
} host;

static void meeting_place(const struct fabric_link *link, char place[static 96])
{
	snprintf(place, 96, "ferrule-link/%s", link->request.name);
}

int fabric_listen(struct fabric_link *link)
{
	char place[96];

	meeting_place(link, place);
	link->meet_fd = meet_listen(place);
	return link->meet_fd < 0 ? link->meet_fd : 0;
}

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
	snprintf(host.socket, sizeof(host.socket), "ferrule-memif/%ld-%s", (long)getpid(), tail);
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
	err = rte_eal_hotplug_add("vdev", name, args);
	if (err)
		return err;
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
	return err;
}

static void stop_memif(struct fabric_link *link, struct fabric_pass *pass)
{
	char name[32];

	if (link->ethdev == NO_ETHDEV)
		return;
	vdev_name(link, name);
	rte_eth_dev_stop(link->ethdev);
	if (rte_eal_hotplug_remove("vdev", name))
		frl_log(FRL_LOG_ERROR, "the memif %s cannot be removed", name);
	link->ethdev = NO_ETHDEV;
	pass->stopped = true;
}

static void set_stage(struct fabric_link *link, enum fabric_stage stage, uint64_t deadline_ns)
{
	link->stage = stage;
	link->deadline_ns = deadline_ns;
}

/* Back to the start: the peer may come again. */
static void start_over(struct fabric_link *link, struct fabric_pass *pass, uint64_t pause_ns)
{
	if (!relay_close(&link->relay)) {
		set_stage(link, FABRIC_SHAKE, pass->now_ns);
		return;
	}
	stop_memif(link, pass);
	in_place_destroy(&link->in_place);
	meet_hang_up(&link->peer_fd);
	link->lost = false;
	link->peer_leaves = false;
	link->retry_ns = pass->now_ns + pause_ns;
	set_stage(link, FABRIC_MEET, UINT64_MAX);
}

static void meet(struct fabric_link *link, struct fabric_pass *pass)
{
	struct meet_hello hello = {
		.magic = MAGIC,
		.max_frame = link->port->base.caps.max_frame,
		.in_place = link->port->base.caps.in_place,
	};
	bool server = link->request.server;
	char place[96];
	int fd;

	if (pass->now_ns < link->retry_ns)
		return;
	meeting_place(link, place);
	fd = server ? meet_accept(link->meet_fd) : meet_connect(place);
	if (fd < 0) {
		/* No server yet, and nothing tells when it comes; or no descriptors left. */
		if (!server || fd != -EAGAIN)
			link->retry_ns = pass->now_ns + RETRY_NS;
		return;
	}
	link->peer_fd = fd;
	set_stage(link, FABRIC_ASK, pass->now_ns + ASK_NS);
	if (server)
		return;
	memcpy(hello.secret, link->request.secret, sizeof(hello.secret));
	if (meet_send(fd, &hello, sizeof(hello)))
		start_over(link, pass, RETRY_NS);
}

static int shake(struct fabric_link *link, struct fabric_pass *pass,
	const struct meet_answer *answer, uint32_t peer_max_frame, bool peer_in_place)
{
	int err;

	if (peer_in_place && link->port->base.caps.in_place) {
		link->in_place = in_place_create();
		if (!link->in_place) {
			frl_log(FRL_LOG_ERROR, "no memory for the local link \"%s\"",
				link->request.name);
			link->error = -ENOMEM;
			return link->error;
		}
	}
	log_clear_error();
	err = start_memif(link, answer);
	if (err) {
		frl_log(FRL_LOG_ERROR, "the local link \"%s\" gets no memif: %s (%s)",
			link->request.name, log_error(), frl_strerror(err));
		link->error = err;
		return err;
	}
	link->max_frame = RTE_MIN(link->port->base.caps.max_frame, peer_max_frame);
	set_stage(link, FABRIC_SHAKE, pass->now_ns + SHAKE_NS);
	return 0;
}

static void ask_as_client(struct fabric_link *link, struct fabric_pass *pass)
{
	struct meet_answer answer;
	int err = meet_receive(link->peer_fd, &answer, sizeof(answer));

	if (err == -EAGAIN && pass->now_ns < link->deadline_ns)
		return;
	if (!err && answer.magic != MAGIC)
		err = -EPROTO;
	if (!err) {
		answer.memif_secret[sizeof(answer.memif_secret) - 1] = '\0';
		answer.memif_socket[sizeof(answer.memif_socket) - 1] = '\0';
		err = shake(link, pass, &answer, answer.max_frame, answer.in_place == 1);
	}
	if (err)
		start_over(link, pass, RETRY_AFTER_FAILURE_NS);
}

static void ask_as_server(struct fabric_link *link, struct fabric_pass *pass)
{
	struct meet_hello hello;
	struct meet_answer answer = {
		.magic = MAGIC,
		.max_frame = link->port->base.caps.max_frame,
		.in_place = link->port->base.caps.in_place,
	};
	int err = meet_receive(link->peer_fd, &hello, sizeof(hello));

	if (err == -EAGAIN && pass->now_ns < link->deadline_ns)
		return;
	if (!err &&
		(hello.magic != MAGIC ||
			strncmp(hello.secret, link->request.secret, sizeof(hello.secret)))) {
		frl_log(FRL_LOG_WARNING, "local link \"%s\": a peer with a wrong secret",
			link->request.name);
		err = -EACCES;
	}
	if (!err)
		err = anchor();
	if (!err) {
		answer.memif_id = ++host.next_id;
		memcpy(answer.memif_secret, host.secret, sizeof(host.secret));
		memcpy(answer.memif_socket, host.socket, sizeof(host.socket));
		err = shake(link, pass, &answer, hello.max_frame, hello.in_place == 1);
	}
	if (!err) {
		snprintf(answer.memif_socket, sizeof(answer.memif_socket), "%.48s-%u", host.socket,
			answer.memif_id);
		err = relay_listen(&link->relay, answer.memif_socket);
	}
	if (!err)
		err = meet_send(link->peer_fd, &answer, sizeof(answer));
	if (err)
		start_over(link, pass, 0);
}

static void ask(struct fabric_link *link, struct fabric_pass *pass)
{
	/* The interrupt thread may hold events of descriptors that were closed in this turn: a new
	 * socket with the same number must not get them. */
	if (pass->stopped) {
		pass->wake_ns = pass->now_ns;
		return;
	}
	if (link->request.server)
		ask_as_server(link, pass);
	else
		ask_as_client(link, pass);
}

static void handshake(struct fabric_link *link, struct fabric_pass *pass)
{
	bool failed = pass->now_ns >= link->deadline_ns || meet_is_closed(link->peer_fd) ||
		in_place_step(link, pass) < 0;

	if (!failed && link->request.server)
		failed = relay_step(&link->relay, host.socket) < 0;
	if (failed)
		start_over(link, pass, RETRY_AFTER_FAILURE_NS);
}

/* What the two ends have together goes; no burst sees it. False: not yet. */
static bool part(struct fabric_link *link, struct fabric_pass *pass)
{
	if (!relay_close(&link->relay)) {
		pass->shaking = true;
		return false;
	}
	stop_memif(link, pass);
	meet_hang_up(&link->peer_fd);
	meet_hang_up(&link->meet_fd);
	return true;
}

static bool destroy(struct fabric_link *link, struct fabric_pass *pass)
{
	if (!in_place_destroy(&link->in_place)) {
		pass->publish = true;
		return false;
	}
	if (!part(link, pass))
		return false;
	set_stage(link, FABRIC_DOWN, UINT64_MAX);
	return true;
}

void fabric_advance(struct fabric_link *link, struct fabric_pass *pass)
{
	switch (link->stage) {
	case FABRIC_MEET: meet(link, pass); break;
	case FABRIC_ASK: ask(link, pass); break;
	case FABRIC_SHAKE: handshake(link, pass); break;
	case FABRIC_UP:
		/* The server's memif is up a message before the client's: keep passing on. */
		link->lost = link->lost || meet_is_closed(link->peer_fd) ||
			in_place_step(link, pass) < 0 ||
			(link->request.server && relay_step(&link->relay, host.socket) < 0);
		link->to_drain = link->lost || link->peer_leaves;
		pass->drain = pass->drain || link->to_drain;
		break;
	case FABRIC_DRAIN: part(link, pass); break;
	case FABRIC_DOWN: destroy(link, pass); break;
	}
	pass->publish = pass->publish || (link->error && link->stage != FABRIC_DOWN);
	pass->shaking = pass->shaking || link->stage == FABRIC_SHAKE;
	pass->wake_ns = RTE_MIN(pass->wake_ns, link->deadline_ns);
	if (link->retry_ns > pass->now_ns)
		pass->wake_ns = RTE_MIN(pass->wake_ns, link->retry_ns);
}

static void go_down(struct fabric_link *link)
{
	struct burst_link *seen = &link->port->links[link->number];

	set_stage(link, FABRIC_DOWN, UINT64_MAX);
	burst_set_state(link->port, link->number, PORT_LINK_DOWN);
	burst_drop_stash(link->port, link->number);
	seen->ethdev = NO_ETHDEV;
	in_place_hide(link->port, link->number);
	if (link->in_place)
		link->in_place->detached = true;
}

void fabric_publish(struct fabric_link *link)
{
	struct burst_link *seen = &link->port->links[link->number];
	struct rte_eth_link status;
	bool up;

	/* Its owner has taken it out of the table: no burst sees its memory after this. */
	if (link->closing && link->in_place)
		link->in_place->detached = true;
	if (link->closing || link->stage == FABRIC_DOWN)
		return;
	if (link->error || (link->stage == FABRIC_DRAIN && seen->drained))
		go_down(link);
	/* Exports are not looked at any more: their ids are free. */
	if (link->ethdev == NO_ETHDEV || link->stage == FABRIC_DRAIN)
		return;
	up = rte_eth_link_get_nowait(link->ethdev, &status) == 0 &&
		status.link_status == RTE_ETH_LINK_UP;
	if (link->stage == FABRIC_SHAKE && up) {
		set_stage(link, FABRIC_UP, UINT64_MAX);
		meet_hang_up(&link->meet_fd);
		seen->ethdev = link->ethdev;
		seen->drained = false;
		seen->batch = PORT_BURST;
		seen->max_frame = link->max_frame;
		seen->in_place = link->in_place;
		if (link->in_place)
			link->in_place->visible = true;
		burst_set_state(link->port, link->number, PORT_LINK_UP);
	} else if (link->stage == FABRIC_UP && !up) {
		go_down(link);
	}
	if (link->in_place)
		in_place_publish(link->port, link->in_place);
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

void fabric_drain(struct fabric_link *link, struct fabric_pass *pass)
{
	struct dpdk_port *port = link->port;
	struct burst_link *seen = &port->links[link->number];
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
	link->to_drain = false;
	set_stage(link, FABRIC_DRAIN, UINT64_MAX);
	pass->publish = pass->publish || seen->drained;
	pass->wake_ns = pass->now_ns;
}

/* Until the peer has what is in the ring, or will not have it. */
static bool leave(struct fabric_link *link, struct fabric_pass *pass)
{
	int err;

	if (link->stage != FABRIC_UP || link->lost)
		return true;
	if (link->deadline_ns == UINT64_MAX)
		link->deadline_ns = pass->now_ns + LEAVE_NS;
	err = link->said_leaving ? 0 : in_place_say_leaving(link);
	link->said_leaving = err == 0;
	if (!err)
		err = in_place_hear_leaving(link, pass);
	if (!err && link->request.server)
		err = relay_step(&link->relay, host.socket);
	if ((err && err != -EAGAIN) || link->peer_leaves || pass->now_ns >= link->deadline_ns ||
		meet_is_closed(link->peer_fd)) {
		link->lost = true;
		return true;
	}
	pass->wake_ns = RTE_MIN(
		pass->wake_ns, link->said_leaving ? link->deadline_ns : pass->now_ns + RETRY_NS);
	return false;
}

bool fabric_take_apart(struct fabric_link *link, struct fabric_pass *pass)
{
	return leave(link, pass) && destroy(link, pass);
}
