/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Introductions: a device that knows only the address of another one of this machine asks it for
 * its nonce, from which both compute the name and the secret of their link (lib/device/fabric.c).
 *
 * Each device listens on the abstract name "ferrule-intro/<address>". The asking end connects,
 * both check that the other process has the same user, and exchange one message each:
 *
 *	asking end                         other end
 *	connect, check, send               accept, check, receive
 *	                                   the owner opens its end of the link
 *	receive                            send
 *	the owner opens its end, close     the link's next attempt follows at once
 *
 * The other end opens its end first, so that a failure is an answer, and so that the asking end
 * finds a server if that is the other end. Otherwise the end of the connection says that the server
 * is there now. If the link exists already, both ends find it: simultaneous introductions of two
 * devices to each other, and repeated ones, give one link.
 */
#ifndef FERRULE_DRIVERS_LOCAL_INTRODUCTION_H
#define FERRULE_DRIVERS_LOCAL_INTRODUCTION_H

#include <sys/queue.h>

#include "drivers/local/link.h"

enum {
	INTRODUCTION_MAGIC = 0x46524c69, /* "FRLi" */
	INTRODUCTION_VERSION = 1,
	INTRODUCTIONS_MOST = 64, /* of other devices, at a time */
};

/* Sent by each end. The form stays the same in all versions. */
struct introduction_message {
	uint32_t magic;
	uint32_t version;
	int32_t status; /* of the answer: 0, or why there is no link (-errno) */
	uint8_t mac[6]; /* of the sender, as the next two */
	uint8_t unused[2];
	uint8_t nonce[PORT_NONCE_SIZE];
	struct frl_ip from;
	struct frl_ip to; /* address of the receiver */
};

enum introduction_stage {
	INTRODUCTION_ASKED,     /* by this end: waits for the answer, however long */
	INTRODUCTION_TO_ACCEPT, /* of another device: for the owner */
	INTRODUCTION_TO_ANSWER,
	INTRODUCTION_ANSWERED,  /* waits for the peer to open its end */
	INTRODUCTION_TO_REPORT, /* the answer, or the failure: for the owner */
	INTRODUCTION_OVER,
};

struct introduction {
	TAILQ_ENTRY(introduction) next;
	enum introduction_stage stage;
	bool is_other; /* another device has asked */
	int fd;
	uint64_t deadline_ns;      /* of INTRODUCTION_ANSWERED */
	struct port_identity peer; /* `ip` alone until the peer has sent its message */
	int result;                /* number of the link or 0, or a negative errno */
};

/* The introductions of a port. Protected by the link thread's mutex, except the first two members,
 * which never change. Introductions in a stage for the owner belong to the link thread alone. */
struct introductions {
	struct local_port *port;
	struct port_introductions config;

	struct fabric_watch watch;
	struct fabric_clients clients;
	TAILQ_HEAD(, introduction) all;
	uint32_t n_others;  /* introductions of other devices */
	bool closing;       /* the owner ends them */
	bool is_detached;   /* a forked child's copy */
	uint64_t accept_ns; /* earliest time to accept the next client */
	uint64_t wake_ns;   /* used by the link thread */
};

/* Takes over the listener, if it does not return NULL: no memory. */
struct introductions *introductions_new(
	struct local_port *port, const struct port_introductions *config);
/* Mutex held, if another thread may use them. */
void introductions_free(struct introductions *introductions);
/* In a forked child: closes its copies of the sockets. */
void introductions_detach(struct introductions *introductions);
/* Errors as for port_ops.introduce. Guard and mutex held. */
int introductions_start(struct introductions *introductions, const struct frl_ip *ip);
/* Does one step, as fabric_advance(). Mutex held. */
void introductions_advance(struct introductions *introductions, struct fabric_pass *pass);
/* Calls the owner's functions, which may open links. For the link thread; guard held, mutex not
 * held. Returns true if it called one: a step must follow. */
bool introductions_deliver(struct introductions *introductions);

/* ops.c */
int introductions_open(struct port *port, const struct port_introductions *config);
void introductions_close(struct port *port);
int introductions_ask(struct port *port, const struct frl_ip *ip);

#endif
