/* SPDX-License-Identifier: BSD-3-Clause */
/* Introductions of two devices in one process, a step at a time. */
#ifndef FERRULE_TESTS_UNIT_DRIVERS_LOCAL_INTRODUCTION_FIXTURE_H
#define FERRULE_TESTS_UNIT_DRIVERS_LOCAL_INTRODUCTION_FIXTURE_H

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "drivers/local/introduction.h"
#include "lib/base/error.h"
#include "lib/base/net/addr.h"
#include "lib/base/net/ip.h"

enum {
	LINK = 5,
	SECOND_NS = 1000 * 1000 * 1000,
};

/* A device, as its introductions see it. */
struct side {
	struct local_port port;
	struct introductions *introductions;
	struct port_identity own;
	int accepts; /* returned for other devices */
	unsigned n_accepted, n_answered;
	struct port_identity peer; /* the last one */
	int err;                   /* of the last answer */
};

static struct side asker, other;
static struct fabric_pass pass;
static uint64_t now_ns;

static inline int accept_peer(void *arg, const struct port_identity *peer)
{
	struct side *side = arg;

	side->n_accepted++;
	side->peer = *peer;
	return side->accepts;
}

static inline void take_answer(
	void *arg, const struct frl_ip *ip, const struct port_identity *peer, int err)
{
	struct side *side = arg;

	side->n_answered++;
	side->err = err;
	ck_assert(ip_equal(ip, &other.own.ip));
	ck_assert((err == 0) == (peer != NULL));
	if (peer)
		side->peer = *peer;
}

/* An address of this process, as far as processes can choose them. */
static inline struct port_identity identity_of(uint8_t n)
{
	uint16_t host = (uint16_t)(256 + ((unsigned)getpid() * 8 + n) % 60000);
	struct port_identity identity = {
		.ip = { { [10] = 0xff, 0xff, 169, 254, (uint8_t)(host >> 8), (uint8_t)host } },
	};

	local_mac(&identity.ip, identity.mac);
	memset(identity.nonce, n, sizeof(identity.nonce));
	return identity;
}

static inline void open_side(struct side *side, uint8_t n)
{
	struct port_introductions config = {
		.accept = accept_peer,
		.answered = take_answer,
		.arg = side,
	};

	memset(side, 0, sizeof(*side));
	side->accepts = LINK;
	TAILQ_INIT(&side->port.all_links);
	do {
		side->own = identity_of(n);
		config.listener = local_listen(&side->own.ip);
		n += 2;
	} while (config.listener == -EADDRINUSE);
	ck_assert_int_ge(config.listener, 0);
	config.own = side->own;
	side->introductions = introductions_new(&side->port, &config);
	ck_assert_ptr_nonnull(side->introductions);
}

static inline void setup(void)
{
	now_ns = SECOND_NS;
	open_side(&asker, 1);
	open_side(&other, 2);
}

static inline void close_side(struct side *side)
{
	if (side->introductions)
		introductions_free(side->introductions);
	side->introductions = NULL;
}

static inline void teardown(void)
{
	close_side(&asker);
	close_side(&other);
}

/* One step, and what the link thread does after it. */
static inline void step(struct side *side)
{
	pass = (struct fabric_pass){ .now_ns = now_ns, .wake_ns = UINT64_MAX };
	introductions_advance(side->introductions, &pass);
	if (!pass.publish)
		return;
	introductions_deliver(side->introductions);
	pass = (struct fabric_pass){ .now_ns = now_ns, .wake_ns = UINT64_MAX };
	introductions_advance(side->introductions, &pass);
}

static inline void ask(void)
{
	ck_assert_msg(introductions_start(asker.introductions, &other.own.ip) == 0, "%s",
		frl_last_error());
}

static inline bool is_idle(const struct side *side)
{
	return TAILQ_EMPTY(&side->introductions->all) && side->introductions->n_others == 0 &&
		side->introductions->clients.n_pending == 0;
}

static inline bool is_peer(const struct side *side, const struct side *peer)
{
	return ip_equal(&side->peer.ip, &peer->own.ip) &&
		mac_equal(side->peer.mac, peer->own.mac) &&
		memcmp(side->peer.nonce, peer->own.nonce, PORT_NONCE_SIZE) == 0;
}

static inline struct introduction_message question(void)
{
	struct introduction_message message = {
		.magic = INTRODUCTION_MAGIC,
		.version = INTRODUCTION_VERSION,
		.from = asker.own.ip,
		.to = other.own.ip,
	};

	memcpy(message.mac, asker.own.mac, sizeof(message.mac));
	memcpy(message.nonce, asker.own.nonce, sizeof(message.nonce));
	return message;
}

static inline int connect_to_other(void)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "ferrule-intro/%s", format_ip(&other.own.ip));
	fd = handshake_connect(name, true);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static inline void is_refused(int fd)
{
	char byte;

	step(&other);
	ck_assert_uint_eq(other.n_accepted, 0);
	ck_assert(is_idle(&other));
	ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
	close(fd);
}

#endif
