/* SPDX-License-Identifier: BSD-3-Clause */
/* Introductions, in steps: see introduction.h. */
#include "drivers/local/introduction.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/base/net/addr.h"
#include "lib/base/net/ip.h"

enum {
	ANSWER_NS = 1000 * 1000 * 1000,
	AT_V4 = 12, /* offset in an address */
};

bool local_is_address(const struct frl_ip *ip)
{
	const uint8_t *v4 = ip->bytes + AT_V4;

	return ip_is_v4(ip) && v4[0] == 169 && v4[1] == 254 && v4[2] >= 1 && v4[2] <= 254;
}

void local_mac(const struct frl_ip *ip, uint8_t ret_mac[6])
{
	ret_mac[0] = 0x02; /* locally administered */
	ret_mac[1] = 0;
	memcpy(ret_mac + 2, ip->bytes + AT_V4, 4);
}

static void socket_name(const struct frl_ip *ip, char name[static 64])
{
	snprintf(name, 64, "ferrule-intro/%s", format_ip(ip));
}

int local_listen(const struct frl_ip *ip)
{
	char name[64];

	socket_name(ip, name);
	return handshake_listen(name);
}

struct introductions *introductions_new(
	struct local_port *port, const struct port_introductions *config)
{
	struct introductions *introductions = calloc(1, sizeof(*introductions));

	if (!introductions)
		return NULL;
	introductions->port = port;
	introductions->config = *config;
	introductions->clients.listen_fd = config->listener;
	introductions->clients.same_user = true;
	TAILQ_INIT(&introductions->all);
	return introductions;
}

static void remove_introduction(
	struct introductions *introductions, struct introduction *introduction)
{
	TAILQ_REMOVE(&introductions->all, introduction, next);
	introductions->n_others -= introduction->is_other;
	handshake_close(&introduction->fd);
	free(introduction);
}

void introductions_free(struct introductions *introductions)
{
	struct introduction *first;

	while ((first = TAILQ_FIRST(&introductions->all)))
		remove_introduction(introductions, first);
	fabric_clients_drop(&introductions->clients);
	handshake_close(&introductions->clients.listen_fd);
	free(introductions);
}

void introductions_detach(struct introductions *introductions)
{
	struct introduction *introduction;

	introductions->is_detached = true;
	fabric_clients_close_copies(&introductions->clients);
	TAILQ_FOREACH(introduction, &introductions->all, next)
	{
		if (introduction->fd >= 0)
			close(introduction->fd);
		introduction->fd = -1;
	}
}

static struct introduction_message message_to(
	const struct introductions *introductions, const struct frl_ip *ip, int status)
{
	const struct port_identity *own = &introductions->config.own;
	struct introduction_message message = {
		.magic = INTRODUCTION_MAGIC,
		.version = INTRODUCTION_VERSION,
		.status = status,
		.from = own->ip,
		.to = *ip,
	};

	memcpy(message.mac, own->mac, sizeof(message.mac));
	memcpy(message.nonce, own->nonce, sizeof(message.nonce));
	return message;
}

/* Checks that the message is from the device with the address that it names, to this device. */
static bool is_valid(
	const struct introductions *introductions, const struct introduction_message *message)
{
	const struct port_identity *own = &introductions->config.own;
	uint8_t mac[6];

	if (!local_is_address(&message->from))
		return false;
	local_mac(&message->from, mac);
	return mac_equal(mac, message->mac) && ip_equal(&message->to, &own->ip) &&
		!ip_equal(&message->from, &own->ip) &&
		memcmp(message->nonce, own->nonce, sizeof(own->nonce)) != 0;
}

static struct introduction *add_introduction(
	struct introductions *introductions, int fd, enum introduction_stage stage)
{
	struct introduction *introduction = calloc(1, sizeof(*introduction));

	if (!introduction)
		return NULL;
	introduction->fd = fd;
	introduction->stage = stage;
	TAILQ_INSERT_TAIL(&introductions->all, introduction, next);
	return introduction;
}

static void set_peer(struct introduction *introduction, const struct introduction_message *message)
{
	introduction->peer.ip = message->from;
	memcpy(introduction->peer.mac, message->mac, sizeof(introduction->peer.mac));
	memcpy(introduction->peer.nonce, message->nonce, sizeof(introduction->peer.nonce));
}

/* ---- this end asks */

static int fail_connect(int err, const struct frl_ip *ip)
{
	if (err == -ECONNREFUSED)
		return frl_fail(-EHOSTUNREACH,
			"no device has the address %s: check that the peer's process runs, in this "
			"network namespace",
			format_ip(ip));
	return frl_fail(
		err, "cannot connect to the device %s: %s", format_ip(ip), frl_strerror(err));
}

static int check_user(int fd, const struct frl_ip *ip)
{
	int err = handshake_check_user(fd);

	if (err == -EOVERFLOW)
		return frl_fail(-EACCES,
			"the user of the device %s has no id in this user namespace: run this "
			"process as a user that its namespace maps, not as nobody, or connect by "
			"frl_qp_connect()",
			format_ip(ip));
	if (err)
		return frl_fail(-EACCES,
			"the device %s belongs to another user: give both processes the same user, "
			"or connect them by frl_qp_connect()",
			format_ip(ip));
	return 0;
}

static int send_question(struct introductions *introductions, int fd, const struct frl_ip *ip)
{
	struct introduction_message message = message_to(introductions, ip, 0);
	struct introduction *introduction;

	int err = check_user(fd, ip);

	if (err)
		return err;
	if (handshake_send(fd, &message, sizeof(message)))
		return -EAGAIN; /* it was closed, or has dropped the connection */
	introduction = add_introduction(introductions, fd, INTRODUCTION_ASKED);
	if (!introduction)
		return frl_fail(-ENOMEM, "no memory for an introduction");
	introduction->peer.ip = *ip;
	link_thread_watch(&introductions->watch, fd);
	introductions->watch.is_ready = true;
	return 0;
}

int introductions_start(struct introductions *introductions, const struct frl_ip *ip)
{
	char name[64];
	int fd, err;

	socket_name(ip, name);
	fd = handshake_connect(name, false);
	if (fd == -EAGAIN)
		return fd;
	if (fd < 0)
		return fail_connect(fd, ip);
	err = send_question(introductions, fd, ip);
	if (err)
		handshake_close(&fd);
	return err;
}

/* Returns what the answer means: 0 or a negative errno. */
static int read_answer(const struct introductions *introductions, struct introduction *introduction,
	const struct introduction_message *message)
{
	if (message->magic != INTRODUCTION_MAGIC)
		return -EPROTO;
	if (message->version != INTRODUCTION_VERSION)
		return -EPROTONOSUPPORT;
	if (!is_valid(introductions, message) ||
		!ip_equal(&message->from, &introduction->peer.ip) || message->status > 0)
		return -EPROTO;
	set_peer(introduction, message);
	return message->status;
}

static void step_asked(struct introductions *introductions, struct introduction *introduction,
	struct fabric_pass *pass)
{
	struct introduction_message message;
	int err = handshake_receive(introduction->fd, &message, sizeof(message));

	/* A process that is stopped answers when it continues. */
	if (err == -EAGAIN)
		return;
	if (!err)
		introduction->result = read_answer(introductions, introduction, &message);
	else
		/* It was dropped among many: it may answer the next time. */
		introduction->result = err == -EPIPE ? -EAGAIN : err;
	introduction->stage = INTRODUCTION_TO_REPORT;
	pass->publish = true;
}

/* ---- another device asks */

static bool is_question(void *arg, const void *bytes)
{
	const struct introduction_message *message = bytes;

	/* Another version gets an answer, too. */
	return message->magic == INTRODUCTION_MAGIC &&
		(message->version != INTRODUCTION_VERSION || is_valid(arg, message));
}

static void read_questions(struct introductions *introductions, struct fabric_pass *pass)
{
	struct introduction_message message;
	struct introduction *introduction;
	int fd;

	while ((fd = fabric_clients_read(&introductions->clients, &message, sizeof(message),
			is_question, introductions, pass)) >= 0) {
		introduction = introductions->n_others < INTRODUCTIONS_MOST
			? add_introduction(introductions, fd, INTRODUCTION_TO_ACCEPT)
			: NULL;
		if (!introduction) {
			handshake_close(&fd);
			continue;
		}
		introduction->is_other = true;
		introductions->n_others++;
		set_peer(introduction, &message);
		if (message.version != INTRODUCTION_VERSION) {
			introduction->result = -EPROTONOSUPPORT;
			introduction->stage = INTRODUCTION_TO_ANSWER;
		} else {
			pass->publish = true;
		}
	}
}

static void step_to_answer(struct introductions *introductions, struct introduction *introduction,
	struct fabric_pass *pass)
{
	int status = introduction->result < 0 ? introduction->result : 0;
	struct introduction_message message = message_to(
		introductions, &introduction->peer.ip, status);
	bool is_sent = handshake_send(introduction->fd, &message, sizeof(message)) == 0;

	introduction->stage = is_sent && !status ? INTRODUCTION_ANSWERED : INTRODUCTION_OVER;
	introduction->deadline_ns = pass->now_ns + ANSWER_NS;
}

/* A client of a link retries at intervals, as no event reports a server. Here is one. */
static void hurry_link(struct local_port *port, int number)
{
	struct fabric_link *link;

	TAILQ_FOREACH(link, &port->all_links, next)
	{
		if (link->number != number || link->closing || link->stage != FABRIC_CONNECTING)
			continue;
		link->retry_ns = 0;
		link->watch.is_ready = true;
	}
}

static void step_answered(struct introductions *introductions, struct introduction *introduction,
	struct fabric_pass *pass)
{
	if (handshake_is_closed(introduction->fd)) {
		hurry_link(introductions->port, introduction->result);
		introduction->stage = INTRODUCTION_OVER;
	} else if (pass->now_ns >= introduction->deadline_ns) {
		introduction->stage = INTRODUCTION_OVER;
	} else {
		pass->wake_ns = least(pass->wake_ns, introduction->deadline_ns);
	}
}

/* ---- both */

static void step(struct introductions *introductions, struct introduction *introduction,
	struct fabric_pass *pass)
{
	switch (introduction->stage) {
	case INTRODUCTION_ASKED: step_asked(introductions, introduction, pass); break;
	case INTRODUCTION_ANSWERED: step_answered(introductions, introduction, pass); break;
	case INTRODUCTION_TO_ANSWER:
		step_to_answer(introductions, introduction, pass);
		if (introduction->stage == INTRODUCTION_ANSWERED)
			step_answered(introductions, introduction, pass);
		break;
	case INTRODUCTION_TO_ACCEPT:
	case INTRODUCTION_TO_REPORT:
	case INTRODUCTION_OVER: break;
	}
}

static void watch_again(struct introductions *introductions)
{
	struct introduction *introduction;

	introductions->watch.is_unwatched = false;
	fabric_clients_watch(&introductions->clients, &introductions->watch);
	TAILQ_FOREACH(introduction, &introductions->all, next)
	link_thread_watch(&introductions->watch, introduction->fd);
}

void introductions_advance(struct introductions *introductions, struct fabric_pass *pass)
{
	struct introduction *introduction, *next;

	if (introductions->watch.is_unwatched)
		watch_again(introductions);
	if (pass->now_ns >= introductions->accept_ns)
		introductions->accept_ns = fabric_clients_accept(
			&introductions->clients, &introductions->watch, pass);
	read_questions(introductions, pass);
	for (introduction = TAILQ_FIRST(&introductions->all); introduction; introduction = next) {
		next = TAILQ_NEXT(introduction, next);
		step(introductions, introduction, pass);
		if (introduction->stage == INTRODUCTION_OVER)
			remove_introduction(introductions, introduction);
	}
	if (introductions->accept_ns > pass->now_ns)
		pass->wake_ns = least(pass->wake_ns, introductions->accept_ns);
}

/* Other threads add to the list with the guard held, and only this thread removes from it. */
bool introductions_deliver(struct introductions *introductions)
{
	const struct port_introductions *config = &introductions->config;
	struct introduction *introduction;
	bool has_changed = false;

	TAILQ_FOREACH(introduction, &introductions->all, next)
	{
		const struct port_identity *peer = &introduction->peer;

		if (introduction->stage == INTRODUCTION_TO_ACCEPT) {
			has_changed = true;
			introduction->result = config->accept(config->arg, peer);
			introduction->stage = INTRODUCTION_TO_ANSWER;
		} else if (introduction->stage == INTRODUCTION_TO_REPORT) {
			has_changed = true;
			config->answered(config->arg, &peer->ip, introduction->result ? NULL : peer,
				introduction->result);
			introduction->stage = INTRODUCTION_OVER;
		}
	}
	return has_changed;
}
